"""Pass/fail oracle: exact coverage of the labels alone by enumeration, and an error that would be noticed."""

import itertools

import numpy as np
import pytest
from scipy import stats

from studies import binary_oracle as study
from studies.engine import run

STUDY = study.STUDY


def test_binomial_coverage_by_enumerating_all_label_vectors():
    """All 2^10 vectors of ten labels, bounds by the Beta quantiles."""
    value, coverage, width = 0.3, 0.0, 0.0
    for labels in itertools.product((0, 1), repeat=10):
        k = sum(labels)
        prob = value**k * (1 - value) ** (10 - k)
        low = stats.beta.ppf(0.025, k, 11 - k) if k else 0.0
        high = stats.beta.ppf(0.975, k + 1, 10 - k) if k < 10 else 1.0
        coverage, width = coverage + prob * (low <= value <= high), width + prob * (high - low)
    assert study.binomial_interval(value, 10) == pytest.approx((coverage, width), abs=1e-9)
    assert coverage >= 0.95  # the guarantee of Clopper and Pearson


@pytest.mark.parametrize("world", ["rare", "rare_sharp"])
def test_rare_worlds_are_rare(world):
    exact = study.theory({"world": world, "n": 1000, "labels": 100})
    assert 0.03 < exact["value"] < 0.09
    alone = np.sqrt(exact["value"] * (1 - exact["value"]) / 100)
    assert exact["se_bound"] < alone


def test_worlds_with_draws_have_no_closed_form():
    exact = study.theory({"world": "mbpp", "n": 1000, "labels": 100})
    assert np.isnan(list(exact.values())).all()


@pytest.mark.slow
def test_smoke_and_planted_error(tmp_path):
    """Tables, figure and sentences; labels-only coverage of one half where the law says 96% is noticed."""
    ds = run.run_study(STUDY, profile="smoke", out=tmp_path, jobs=1).results
    found = STUDY.findings(ds)
    assert len(STUDY.table(ds)) == 5 and len(STUDY.figure(ds)) == 1 and len(found) >= 4
    rows = study._measured(ds)
    alone = (rows["method"] == "labels_only") & (rows["estimand"] == "own labels")
    exact = [study.theory(row)["coverage_labels_only"] for row in rows[alone].to_dict("records")]
    rows.loc[alone, "coverage"] = exact
    assert study._control(ds, rows).holds is True
    rows.loc[alone, "coverage"] = 0.0
    assert study._control(ds, rows).holds is False
    missed = ds.copy(deep=True)
    missed["interval"] = missed["interval"] + 10.0 * (missed["method"] == "direct")
    assert [found[0].holds, STUDY.findings(missed)[0].holds] == [None, False]  # six runs a cell cannot tell
    few = ds.isel(replicate=[0])
    few["interval"] = few["interval"] + 10.0
    assert STUDY.findings(few)[0].holds is None  # one miss decides nothing: .05 of sound intervals do
