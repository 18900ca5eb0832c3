"""The smoother of the direct part: a linear mean, the same where every prompt has fresh responses, shorter where "
"few do.
"""

import numpy as np
import off_policy_numbers
import pytest

from cje_core.calibration.calibrated import calibrated
from cje_core.data import from_arrays
from cje_core.estimators import calibrated_dr_cpo, dr_cpo
from cje_core.families.off_policy.smooth import RIDGE, features, smoothed_mean


def problem(n=60, fresh=25, seed=0):
    rng = np.random.default_rng(seed)
    logged = rng.random((n, 2))
    logged[50:] = np.nan  # nothing logged there
    prompt = np.sort(rng.choice(n, fresh, replace=False)).repeat(2)
    q = 0.5 * np.nan_to_num(logged[prompt, 0]) + rng.normal(0, 0.1, len(prompt))
    return q, prompt, np.full(len(prompt), 0.5), logged, rng.integers(0, 5, n)


def test_weights_are_the_definition_fold_by_fold():
    """Against a loop that fits each fold's ridge regression, predicts, and adds the two means up."""
    q, prompt, mass, logged, fold = problem()
    h, share = features(logged), mass / mass.sum()
    inside = np.isfinite(logged).all(axis=1)
    inside[prompt] = True
    g = np.zeros(len(h))
    for k in range(5):
        rest = fold[prompt] != k
        root = np.sqrt(share[rest])[:, None]
        a, b = root * h[prompt[rest]], root[:, 0] * q[rest]
        size = np.sqrt(RIDGE * np.trace(a.T @ a) / a.shape[1])
        penalty = size * np.eye(a.shape[1])[1:]
        beta = np.linalg.lstsq(np.vstack([a, penalty]), np.r_[b, np.zeros(len(penalty))], rcond=None)[0]
        g[fold == k] = h[fold == k] @ beta
    expected = g[inside].mean() + share @ (q - g[prompt])
    found = smoothed_mean(q, prompt, mass, logged, fold)
    np.testing.assert_allclose(found.weight @ q, expected)
    np.testing.assert_allclose(found.weight.sum(), 1.0)
    np.testing.assert_allclose(found.error.sum(), 0.0, atol=1e-12)


def test_a_constant_stays_and_a_shift_moves_along():
    q, prompt, mass, logged, fold = problem()
    weight = smoothed_mean(q, prompt, mass, logged, fold).weight
    np.testing.assert_allclose(
        smoothed_mean(q + 3, prompt, mass, logged, fold).weight, weight
    )  # w is not of q
    np.testing.assert_allclose(weight @ np.ones(len(q)), 1.0)


def world(rng, n=400, share=1.0):
    """Prompts differ in how good answers to them are, under both policies; labels of base teach, logs are its own.

    A `share` of the prompts has a fresh response of the target, a random part; E[Y] is .5 under both.
    """
    hardness = rng.random(n)
    judge = np.clip(hardness + rng.normal(0, 0.1, (3, n)), 0, 1)
    label = np.clip(judge[0] + rng.normal(0, 0.05, n), 0, 1)
    score = judge[:2].copy()
    score[1, rng.random(n) > share] = np.nan
    logp = -rng.uniform(20, 40, n)
    return from_arrays(
        score,
        policies=["base", "target"],
        oracle=np.stack([label, np.full(n, np.nan)]),
        logged={
            "logp_target": np.stack([logp, np.minimum(logp + rng.normal(0, 0.2, n), 0)]),
            "logp_logger": logp,
            "logged_judge": judge[2],
        },
    )


@pytest.mark.parametrize("estimator", [dr_cpo, calibrated_dr_cpo])
def test_it_is_an_option_of_the_family(estimator):
    whole = world(np.random.default_rng(1))
    plain, smooth = estimator.estimate(whole), estimator.estimate(whole, smooth_g=True)
    assert "smooth_g" not in plain.attrs["options"] and '"smooth_g": true' in smooth.attrs["options"]
    # every prompt has fresh responses: the folds move it by a fraction of its error
    assert (np.abs(smooth.estimate - plain.estimate) < 0.1 * plain.std_error).all()
    few = world(np.random.default_rng(1), share=0.2)
    plain, smooth = (estimator.estimate(few, smooth_g=on).sel(policy="target") for on in (False, True))
    assert smooth.direct_part_std_error < 0.7 * plain.direct_part_std_error
    paper = {"smooth_g": True, "borrowed": "plug_in"}
    kept, again = (
        estimator.estimate(few, inference=how, **paper).sel(policy="target")
        for how in ("influence", "jackknife")
    )
    np.testing.assert_allclose(again.estimate, kept.estimate)


def test_the_numbers_of_many_data_sets_are_those_of_the_estimator():
    few = world(np.random.default_rng(100), share=0.2)
    methods = {smooth: (dr_cpo, {"smooth_g": smooth}) for smooth in (False, True)}
    for smooth, found in off_policy_numbers.values(calibrated(few), methods, ["target"], fresh=True).items():
        wanted = dr_cpo.estimate(few, smooth_g=smooth).sel(policy="target")
        np.testing.assert_array_equal(
            found[:, 0], [wanted[k].item() for k in ("estimate", "std_error", "df")]
        )


@pytest.mark.slow
def test_with_few_draws_it_is_shorter_and_no_more_biased():
    """A fifth of the prompts have a fresh response: spread, standard error and bias; a smoothed mean without the
    residuals of the fresh responses would be biased by what the folds' regressions leave, so the bias is looked at.
    """
    reps, names = 300, ("plain", "smooth")
    methods = {name: (dr_cpo, {"smooth_g": name == "smooth"}) for name in names}
    values, errors = {name: [] for name in names}, {name: [] for name in names}
    for r in range(reps):
        few = calibrated(world(np.random.default_rng(100 + r), share=0.2))
        for name, (value, error, _) in off_policy_numbers.values(
            few, methods, ["target"], fresh=True
        ).items():
            values[name].append(value.item())
            errors[name].append(error.item())
    spread = {name: np.std(values[name], ddof=1) for name in names}
    ratio = spread["smooth"] / spread["plain"]
    assert ratio < 1 - 5 / np.sqrt(reps)  # each spread has a relative error of 1 / sqrt(2 reps)
    for name in names:
        assert abs(np.mean(values[name]) - 0.5) < 5 * spread[name] / np.sqrt(reps)
        honest = np.mean(errors[name]) / spread[name]
        assert 1 - 5 / np.sqrt(2 * reps) < honest < 1 + 5 / np.sqrt(2 * reps), (name, honest)
