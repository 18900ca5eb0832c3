"""The jackknife over oracle folds: closed form, reruns by hand, and the share of the calibration."""

import json

import numpy as np
import oracles_uncertainty as slow
import pytest
from oracles_uncertainty import row_dicts, table
from scipy import stats

from cje_core.calibration.calibrated import Calibration
from cje_core.data import from_arrays
from cje_core.estimators import direct
from cje_core.inference.influence import (
    delete_group_variance,
)
from cje_core.io import from_frame


def test_pitfall_01_jackknife_is_the_closed_form_of_a_mean():
    """Delete-one of a mean: exactly s^2 / n. Dividing the sum by K would make it K - 1 times smaller."""
    y = np.random.default_rng(0).normal(size=17)
    left_out = np.array([np.delete(y, i).mean() for i in range(17)])
    np.testing.assert_allclose(delete_group_variance(left_out, np.ones(17), y.mean()), y.var(ddof=1) / 17)


def test_weighted_jackknife_of_unequal_folds():
    """Loops; the paper's formula where folds are equal; unbiased for a mean where they are not (enumerated signs)."""
    rng = np.random.default_rng(1)
    left_out, size = rng.normal(size=(4, 5)), [3, 3, 2, 2, 2]
    full = rng.normal(size=4)
    expected = [slow.delete_group_variance(row, size, v) for row, v in zip(left_out, full, strict=True)]
    np.testing.assert_allclose(delete_group_variance(left_out, size, full), expected)
    equal = [0.8 * ((row - row.mean()) ** 2).sum() for row in left_out]
    np.testing.assert_allclose(delete_group_variance(left_out, [7] * 5, full), equal)
    groups = np.repeat(np.arange(5), size)
    signs = np.array([[1 if code >> i & 1 else -1 for i in range(12)] for code in range(2**12)], float)
    without = np.stack([signs[:, groups != k].mean(axis=1) for k in range(5)], axis=1)
    variance = delete_group_variance(without, size, signs.mean(axis=1))
    np.testing.assert_allclose(variance.mean(), 1 / 12)


@pytest.mark.parametrize("correction", ["none", "theta_aug", "tmle"])
def test_jackknife_leaves_out_one_oracle_fold_at_a_time(correction):
    """Refits by loops; the standard error adds their variance to the cluster variance; 1.96 in paper mode."""
    data = from_frame(table(own=("a",), draws=2, n=61))
    out = direct.estimate(
        data, inference="jackknife", correction=correction, power_tuned=False, interval="normal"
    )
    dicts, folds = row_dicts(data)
    labelled = {r["prompt"] for r in dicts if r["teaches"]}
    size = [sum(folds[i] == k for i in labelled) for k in range(5)]
    for policy in "ab":
        kind = {"none": "plug_in", "theta_aug": "hajek", "tmle": "tmle"}[correction]
        kind = kind if policy == "a" else "plug_in"
        expected = [slow.value(dicts, policy, folds, kind, without=k) for k in range(5)]
        np.testing.assert_allclose(out.jackknife.sel(policy=policy), expected, atol=1e-10)
        variance = slow.delete_group_variance(expected, size, out.estimate.sel(policy=policy).item())
        np.testing.assert_allclose(out.std_error_calibration.sel(policy=policy) ** 2, variance)
    np.testing.assert_allclose(out.std_error**2, out.std_error_evaluation**2 + out.std_error_calibration**2)
    np.testing.assert_allclose(out.calibration_share, out.std_error_calibration**2 / out.std_error**2)
    half = out.interval.sel(ci_bound="upper") - out.estimate
    np.testing.assert_allclose(half / out.std_error, stats.norm.ppf(0.975))
    given_f = direct.estimate(data, correction=correction, power_tuned=False)
    if correction == "none":  # a plug-in's labels act through f alone; own residuals vary for any f
        expected = given_f.std_error_evaluation.values
    else:
        expected = [given_f.std_error.values[0], given_f.std_error_evaluation.values[1]]
    np.testing.assert_allclose(out.std_error_evaluation, expected)
    t = direct.estimate(data, inference="jackknife", correction=correction, power_tuned=False)
    assert (t.interval.diff("ci_bound") > out.interval.diff("ci_bound")).all()


def test_pitfall_02_jackknife_of_a_two_stage_calibrator_goes_through_held_out_predictions():
    """Leave-one-fold values lie near the estimate; raw scores fed to an index-space fit would be far off."""
    rng = np.random.default_rng(0)
    score, x = rng.uniform(size=(2, 120)), rng.uniform(size=(2, 120, 1))
    label = np.clip(0.6 * score + 0.3 * x[..., 0] + rng.normal(0, 0.05, (2, 120)), 0, 1)
    label[1], label[0, 80:] = np.nan, np.nan
    data = from_arrays(10 * score, policies=["a", "b"], oracle=label, covariate=x, judge_range=(0, 10))
    out = direct.estimate(data, calibration=Calibration(["x0"]), inference="jackknife")
    assert (np.abs(out.jackknife - out.estimate) < 0.05).all()
    assert json.loads(out.attrs["options"])["calibrator"] == "two_stage"


def test_pitfall_23_a_fully_labelled_policy_has_no_calibration_error():
    data = from_frame(table(share=2.0))
    out = direct.estimate(data, inference="jackknife")
    assert out.calibration_share.sel(policy="a") == 0
    assert out.calibration_share.sel(policy="b") > 0
    assert np.isnan(out.jackknife.sel(policy="a")).all()


def test_calibration_share_falls_with_labels():
    """From over a half at 10% labels to nothing for a policy whose every response is labelled."""
    share = [
        direct.estimate(from_frame(table(n=400, share=s, seed=1))).calibration_share.values
        for s in (0.1, 0.5, 2.0)
    ]
    assert (np.diff(share, axis=0) < 0).all()
    assert (share[0] > 0.5).all()
    assert share[2][0] == 0
