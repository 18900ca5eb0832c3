"""The calibrator's band against a known E[Y | S]: what it covers in the middle of the labels, and at their ends."""

import math

import numpy as np
import pytest
import xarray as xr
from bare_arrays import calibrated_rows, drawn, rows_of

from cje_core.calibration.bands import calibration_band
from cje_core.calibration.calibrated import Calibrated
from cje_sim.judges import oracle_mean, score_quantile
from cje_sim.scenarios import well_specified
from cje_sim.scenarios.well_specified import SCORE_LAW

SAID, TOLD_FROM = 0.95, 0.88
LINK = {"link": "sigmoid", "low": 0.05, "high": 0.7}
QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]  # of the judge score under the policy whose labels teach


def spread(p: float) -> float:
    """Standard deviation of one yes or no."""
    return math.sqrt(p * (1 - p))


REPLICATES = math.ceil((5 * (spread(SAID) + spread(TOLD_FROM)) / (SAID - TOLD_FROM)) ** 2)


def data_set(r: int) -> Calibrated:
    """World ``well_specified``, a quarter of the base policy's responses labelled."""
    found = drawn(well_specified, 1000 + r, n=800, oracle_fraction=0.25, label_design="base", **LINK)
    return calibrated_rows(rows_of(found.score, **found.fields))


def test_the_data_sets_are_those_of_the_world() -> None:
    wanted = calibration_band(
        well_specified.simulate(n=800, oracle_fraction=0.25, label_design="base", rng=1000, **LINK)
    )
    xr.testing.assert_identical(calibration_band(data_set(0)), wanted)


@pytest.mark.slow
def test_the_band_covers_in_the_middle_and_too_little_at_the_ends() -> None:
    """World ``well_specified``, 200 labels of the base policy, pointwise, of bands that say 95%.

    Replicates are as many as tell 95% from 88% by 5 Monte Carlo standard errors of each. The numbers measured stand in
    `cje_core.calibration.bands`; if the ends come to cover, its words and the page's are out of date, and this fails.
    """
    below, above = [], []  # the truth lies below the band, or above it
    at = score_quantile(QUANTILES, *SCORE_LAW["base"])
    for r in range(REPLICATES):
        band = calibration_band(data_set(r))
        assert band.attrs["mode"] == "monotone" and band.attrs["n_labels"] == 200
        score, (low, high) = band["score"].values, band["interval"].values.T
        truth = oracle_mean(score, **LINK)
        points = [0, *np.abs(score[:, None] - at).argmin(axis=0), -1]
        below.append((truth < low)[points])
        above.append((truth > high)[points])
    under, over = np.mean(below, axis=0), np.mean(above, axis=0)
    covered = 1 - under - over
    print(dict(zip(["first", *QUANTILES, "last"], covered.round(3).tolist(), strict=True)), under, over)
    error = spread(SAID) / math.sqrt(REPLICATES)
    assert (np.abs(covered[[3, 4]] - SAID) < 5 * error).all()  # at the median, and at the upper quartile
    assert (covered[[0, 1, -2, -1]] < SAID - 5 * error).all()
    # An isotonic fit bends outward: at the lower end the truth lies above the band, at the upper end below it.
    assert (over - under)[:2].min() > 5 * error and (under - over)[-2:].min() > 5 * error
