"""The benchmark of judges: the efficient estimator by hand, exact widths, and what is noticed."""

import numpy as np
import pytest

from cje_core.estimators import direct
from cje_sim.scenarios import binary_judge
from studies import judge_benchmark as bench
from studies.engine import run

STUDY = bench.STUDY


def test_calibrated_verdict_is_the_joint_likelihood():
    """One-step estimator = post-stratified mean = maximum likelihood of p(verdict) p(label | verdict), up to folds."""
    data = binary_judge.simulate(n=2000, oracle_fraction=0.2, taught=0.3, label_design="base", rng=4)
    base = data.sel(policy="base")
    verdict, label = base["judge"].values.ravel(), base["oracle"].values.ravel()
    seen = base["labelled"].values.ravel()
    strata = [(verdict == z, label[seen & (verdict == z)].mean()) for z in (0, 1)]
    mle = sum(which.mean() * mean for which, mean in strata)
    found = direct.estimate(data, power_tuned=False).sel(policy="base")
    assert float(found["estimate"]) == pytest.approx(mle, abs=0.05 * float(found["std_error"]))


def test_exact_errors_order_as_theory_has_it():
    for cell in STUDY.at("paper").cells():
        exact = bench.theory(cell)
        assert exact["se_direct"] == exact["se_ppi_plus_plus"] <= exact["se_labels_only"] + 1e-15
        assert exact["se_direct"] < exact["se_rogan_gladen"] and 0 < exact["squared_correlation"] < 1


@pytest.mark.slow
def test_smoke_and_planted_errors(tmp_path):
    ds = run.run_study(STUDY, profile="smoke", out=tmp_path, jobs=1).results
    found = STUDY.findings(ds)
    assert len(found) == 5 and len(STUDY.figure(ds)) == 2 and len(STUDY.table(ds)) == 3
    rows = bench._measured(ds)
    assert bench._naive(rows).holds is True
    rows.loc[rows["method"] == "raw_judge", "coverage"] = 0.5
    assert bench._naive(rows).holds is False
    rows.loc[rows["method"] == bench.DEFAULT, "coverage"] = 0.0
    assert bench._level(ds, rows).holds is False


@pytest.mark.slow
def test_half_of_the_exact_width_is_z_standard_errors(tmp_path):
    """The simulated width of a large-sample method is 2 z SE: 60 replicates of a cell with 400 labels, within 5%."""
    levels = {"theta": [0.5], "sensitivity": [0.8], "specificity": [0.8], "oracle_fraction": [0.2]}
    ds = run.run_study(STUDY, profile="smoke", levels=levels, out=tmp_path, jobs=1).results
    rows = bench._measured(ds).set_index("method")
    exact = 2 * bench._quantile(ds) * rows["exact_se"]
    ratio = rows["width"] / exact
    assert np.abs(ratio[["labels_only", "ppi", "ppi_plus_plus", "theta_aug", "direct"]] - 1).max() < 0.05
    assert ratio["rogan_gladen"] == pytest.approx(1, abs=0.3)
