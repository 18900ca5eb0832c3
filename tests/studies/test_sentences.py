"""What sentences rest on: simultaneous exact bounds, and normalised errors, against laws that are known."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from studies.engine.measures.normalised import normalised_errors
from studies.engine.sentences import LeftOut, bounds, keeps_level, kept


def rows(values, replicates, **more):
    p = np.asarray(values, float)
    return pd.DataFrame(
        {
            "n": np.arange(len(p)),
            "coverage": p,
            "coverage_mcse": np.sqrt(p * (1 - p) / (replicates - 1)),
            **more,
        }
    )


def test_bounds_are_exact_binomial_tails():
    low, high = bounds(rows([0.95], 401), "coverage", 400, cells=10)[0]
    hits = 400 * 0.95
    assert stats.binom.sf(hits - 1, 400, low) == pytest.approx(0.005, rel=1e-6)
    assert stats.binom.cdf(hits, 400, high) == pytest.approx(0.005, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "replicates", "holds"),
    [
        ((0.95, 0.94), 1000, True),
        ((0.95, 0.80), 1000, False),
        ((0.95, 0.80), 8, None),
        ((1.0, 1.0), 8, None),
        ((0.91, 0.95), 1000, None),
        ((0.2, 0.3), 30, False),
    ],
)
def test_a_level_is_kept_or_not_or_it_cannot_be_told(values, replicates, holds):
    found = keeps_level("it", rows(values, replicates), ["n"], replicates)
    assert found.holds is holds
    assert f"cells cover {100 * min(values):.0f}" in found.sentence
    # n=1 and not n=1.0, as a row of numbers holds it
    assert f"least at n={np.argmin(values)}." in found.sentence


def test_what_is_left_out_is_named_with_its_number():
    """A world that is not asked about, refused and failed runs, and cells without any interval."""
    asked = rows((0.95, 0.94, np.nan), 1000, refused=[0.0, 0.25, 1.0], refused_mcse=[0.002, 0.014, 0.002])
    asked = asked.assign(failed=[0.0, 0.01, 0.0], failed_mcse=0.003)
    out = LeftOut(
        "world shift", "transport fails by construction", rows((0.0,), 1000).assign(coverage_mcse=0.002)
    )
    said = keeps_level("it", asked, ["n"], 1000, left_out=[out]).sentence
    assert "its 2 cells cover 94.0 (0.8) to 95.0 (0.7)%" in said
    assert "Refused runs are not counted: at most 100.0 (0.2)% (n=2)." in said
    assert "Failed runs are not counted either: at most 1.0 (0.3)% (n=1)." in said
    assert "No interval at all in 1 of 3 cells: n=2." in said
    assert said.endswith("Left out: world shift, where transport fails by construction (covers 0.0 (0.2)%).")


@pytest.mark.slow
def test_no_cell_of_a_right_method_is_called_wrong_too_often():
    """Twenty cells at exactly 90%: a verdict on either side errs in at most 5% of the studies."""
    rng = np.random.default_rng(5)
    hits = rng.binomial(300, 0.9, (2000, 20)) / 300
    said = [kept(rows(p, 301), ["n"], 300).holds for p in hits]
    most = 2000 * 0.05 + 5 * np.sqrt(2000 * 0.05 * 0.95)
    assert 0 < said.count(False) < most and said.count(True) < most


def test_runs_that_did_not_answer_are_no_trials():
    few = rows([0.95], 400).assign(refused=0.5, failed=0.49, coverage_mcse=0.0)
    assert kept(few, ["n"], 400).holds is None
    assert kept(few.assign(refused=0.0, failed=0.0), ["n"], 4000).holds is True


@pytest.mark.slow
def test_normalised_errors_have_their_mean_spread_and_error():
    """Z ~ N(0.5, 2^2), with policies that agree: numbers, and MCSEs over many studies, are those of the law."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(300):
        z = np.repeat(0.5 + 2 * rng.normal(size=(2, 1, 1, 60, 1)), 3, axis=-1)
        dims = ("n", "fraction", "method", "replicate", "policy")
        truth = np.zeros((2, 1, 60, 3))
        se = np.full(z.shape, 0.1)
        interval = np.stack([0.1 * (z - 1.96), 0.1 * (z + 1.96)], axis=-1)
        ds = xr.Dataset(
            {
                "estimate": (dims, 0.1 * z),
                "std_error": (dims, se),
                "interval": ((*dims, "ci_bound"), interval),
                "truth": (("n", "fraction", "replicate", "policy"), truth),
            },
            coords={"n": [1, 2], "fraction": [0.1], "method": ["m"]},
        )
        found.append(normalised_errors(ds, "fraction").iloc[0])
    table = pd.DataFrame(found)
    cover = stats.norm.cdf(1.96, 0.5, 2) - stats.norm.cdf(-1.96, 0.5, 2)
    for name, value in (("mean_z", 0.5), ("sd_z", 2.0), ("coverage", cover)):
        column = table[name].astype(float)
        # the root of a variance with 120 in place of 119 is short by a share of 1 / 160
        slack = 2.0 / 160 if name == "sd_z" else 0.0
        assert abs(column.mean() - value) < slack + 5 * column.std() / np.sqrt(len(column))
        ratio = table[f"{name}_mcse"].astype(float).mean() / column.std()
        assert abs(ratio - 1) < 5 / np.sqrt(2 * len(column))
