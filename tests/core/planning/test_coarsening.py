"""The coarsening ablation: what the cuts do, and that coarse scores cost width as Blackwell's order has it."""

import numpy as np
import pytest
import xarray as xr

from cje_core.calibration.calibrated import Calibration
from cje_core.estimators import direct
from cje_core.planning.coarsening import coarsen, coarsening_ablation
from cje_sim.scenarios import discrete_judge, length_bias, tilted_logs, well_specified


@pytest.mark.parametrize("n_levels", [2, 3, 5, 10])
def test_coarse_scores_are_means_of_quantile_bins_in_order(n_levels):
    data = well_specified.simulate(n=100, rng=1)
    score, coarse = data["judge"].values.ravel(), coarsen(data, n_levels)["judge"].values.ravel()
    order = np.argsort(score)
    assert (np.diff(coarse[order]) >= 0).all()
    levels, size = np.unique(coarse, return_counts=True)
    assert len(levels) == n_levels and np.ptp(size) <= 1
    for level in levels:
        assert level == pytest.approx(score[coarse == level].mean())


def test_levels_that_are_there_stay_and_logged_scores_follow():
    few = discrete_judge.simulate(n=200, rng=1)
    n_there = len(np.unique(few["judge"]))
    xr.testing.assert_allclose(coarsen(few, 1000)["judge"], few["judge"])
    assert len(np.unique(coarsen(few, 2)["judge"])) == 2 < n_there
    logs = tilted_logs.simulate(n=200, rng=1)
    coarse = coarsen(logs, 3)
    assert set(np.unique(coarse["logged_judge"])) <= set(np.unique(coarse["judge"]))
    np.testing.assert_array_equal(coarse["logged_judge"], coarse["judge"].sel(policy="base").isel(draw=0))
    with pytest.raises(ValueError, match="fewer than 2 levels"):
        coarsen(logs, 1)


def test_the_table_is_that_of_the_estimator_on_coarse_data():
    data = length_bias.simulate(n=300, rng=2)
    how = Calibration(["length"])
    table = coarsening_ablation(data, [2, 5], calibration=how)
    by_hand, full = direct.estimate(coarsen(data, 5), calibration=how), direct.estimate(data, calibration=how)
    at = table.sel(levels=5)
    np.testing.assert_allclose(at["estimate"], by_hand["estimate"])
    np.testing.assert_allclose(at["shift"], by_hand["estimate"] - full["estimate"])
    moves = (by_hand["influence"] - full["influence"]).transpose("policy", "prompt").values
    np.testing.assert_allclose(at["shift_std_error"], np.sqrt((moves**2).sum(axis=1)) / 300)
    np.testing.assert_allclose(at["width"] / at["width_ratio"], table["full_width"])


def test_fewer_levels_cost_width_and_move_no_own_value():
    """Mean over 12 data sets: 2 levels are wider than 10 for every policy; values move within their errors."""
    found = [
        coarsening_ablation(well_specified.simulate(n=1000, oracle_fraction=0.15, rng=r), [2, 10])
        for r in range(12)
    ]
    width = xr.concat([one["width"] for one in found], dim="r")
    gap = (width.sel(levels=2) - width.sel(levels=10)).mean("policy")
    assert gap.mean() > 5 * gap.std(ddof=1) / 12**0.5
    z = xr.concat([one["shift"] / one["shift_std_error"] for one in found], dim="r")
    assert np.abs(z).max() < 5 and 0.5 < z.std() < 1.5


def test_estimators_without_influence_or_calibration_are_taken():
    data = well_specified.simulate(n=200, rng=1)
    for name in ("ppi", "bayes_direct"):
        assert coarsening_ablation(data, [3], estimator=name)["width"].notnull().all()
