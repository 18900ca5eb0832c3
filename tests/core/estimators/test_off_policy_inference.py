"""Errors of off-policy estimators: influence and jackknife against the definitions, and what others got wrong."""

import functools

import numpy as np
import oracles_ope as slow
import pytest
import xarray as xr
from ope_world import logs_of, names, of_target, small, unrefused, world_of
from scipy import stats

from cje_core.calibration.calibrator import knot_mass, label_leverage
from cje_core.calibration.oracle_slice import calibration_part
from cje_core.data.arrays import unpack
from cje_core.estimators import dr_cpo, ips, snips, stacked_dr, tmle
from cje_core.families.off_policy import estimate as off_policy_estimate
from cje_core.families.off_policy import labels as off_policy_labels
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.stages import with_reruns
from cje_core.inference.sums import cluster_se

# --- errors against the definitions ---


@pytest.mark.parametrize("seed", range(3))
def test_standard_error_of_snips_matches_the_definition(seed):
    data = small(seed, draws=1, n=80, share=0.8)
    world = world_of(data)
    result = snips.estimate(data, borrowed="plug_in")
    assert of_target(result, "std_error") == pytest.approx(
        slow.snips_standard_error(world, slow.weights(world)), rel=1e-9
    )


@pytest.mark.parametrize("seed", range(3))
def test_standard_error_of_plain_importance_sampling_matches_the_definition(seed):
    data = small(seed, draws=1, n=80, share=0.8)
    world = world_of(data)
    weight = [None if prompt["ratio"] is None else np.exp(prompt["ratio"]) for prompt in world]
    result = ips.estimate(data, borrowed="plug_in")
    expected = slow.snips_standard_error(world, weight, plain=True)
    assert of_target(result, "std_error") == pytest.approx(expected, rel=1e-9)


@names
def test_terms_carry_the_whole_value(module):
    """A shift of all labels shifts the value as much, so the weights on the fits sum to one.

    Plain importance sampling does not follow a shift: its weights have the mean that they happen to have.
    """
    logs = logs_of(small(3))
    policy_value = (
        functools.partial(module.policy_value, members=("dr_cpo", "mrdr"))
        if module is stacked_dr
        else module.policy_value
    )
    value = policy_value(logs, 1)
    total = sum(term.weight.sum() for term in value.terms())
    # TMLE is linear to first order only: its logit bends
    expected = value.facts["mean_weight"] if module is ips else 1.0
    assert total == pytest.approx(expected, abs=1e-2 if module is tmle else 1e-12)


def test_terms_of_one_fit_are_one_functional():
    """What cancels between them counts neither as error nor for the degrees of freedom."""
    logs = logs_of(small(3))
    z, share = logs.logged.z, np.full(40, 1 / 40)
    back = np.where(z[:, 0] < 0.5, -share, 0.0)
    terms = [off_policy.Term("calibrator", logs.fitted, "seen", weight) for weight in (share, back)]
    part = off_policy_labels.label_error(logs, 1, terms, "plug_in").part
    whole = calibration_part(logs.rows, logs.fitted, z, share + back)
    np.testing.assert_allclose(part.influence, whole.influence, atol=1e-12)
    assert part.df == pytest.approx(whole.df)


def test_the_papers_path_puts_held_out_rewards_in_place_of_pooled_ones():
    logs = logs_of(small(3))
    value = tmle.policy_value(logs, 1)
    _, of_logged = value.sources()
    swapped = of_logged.influence - 40 * of_logged.leverage * (logs.reward - logs.outcomes[()].logged)
    np.testing.assert_allclose(value.held_out_influence(), swapped, atol=1e-12)


def test_one_dominating_weight_leaves_a_wide_interval_with_two_degrees_of_freedom():
    data = small(3, spread=12.0)
    part = off_policy_estimate.source_part(logs_of(data), snips.policy_value(logs_of(data), 1).sources()[1])
    assert part.df == 2.0
    result = snips.estimate(data)
    assert np.isfinite(of_target(result, "std_error"))
    assert of_target(result, "df") >= 2


def test_calibration_term_is_the_derivative_in_the_labels():
    """Moving one label inside its block moves SNIPS by the leverage that the standard error uses."""
    data = small(4, draws=1)
    logs = logs_of(data)
    step, before = 1e-7, snips.policy_value(logs, 1).value
    (term,) = snips.policy_value(logs, 1).terms()
    leverage = label_leverage(
        logs.fitted.calibrator,
        knot_mass(logs.fitted.calibrator, logs.z_of(1, term.rows), term.weight),
        logs.fitted.z,
        logs.fitted.weight,
    )
    rows = unpack(data)
    teaching = np.flatnonzero(rows.teaches)
    for j in (0, 7, 15):
        moved = data.copy(deep=True)
        i = int(np.flatnonzero(data.prompt.values == rows.prompts[rows.prompt[teaching[j]]])[0])
        moved["oracle"][0, i, 0] += step
        after = snips.policy_value(logs_of(moved), 1).value
        assert (after - before) / step == pytest.approx(leverage[j], abs=1e-6)


def test_jackknife_is_the_rerun_without_each_fold():
    data = small(9)
    world = world_of(data)
    weight = slow.weights(world)
    again = [
        slow.weighted_mean(weight, slow.rewards(world, [k for k in slow.folds_of(world) if k != j]))
        for j in slow.folds_of(world)
    ]
    mean = sum(again) / len(again)
    calibration = (len(again) - 1) / len(again) * sum((v - mean) ** 2 for v in again)
    held_out = slow.outcomes(world)[0]
    centre = slow.weighted_mean(weight, held_out)
    total = sum(w for w in weight if w is not None)
    sampling = sum(
        (w / total * (q - centre)) ** 2 for w, q in zip(weight, held_out, strict=True) if w is not None
    )
    result = snips.estimate(data, inference="jackknife")
    assert of_target(result, "std_error") == pytest.approx(np.sqrt(sampling + calibration), rel=1e-9)
    assert of_target(result, "calibration_share") == pytest.approx(
        calibration / (sampling + calibration), rel=1e-9
    )
    assert np.isinf(of_target(result, "df"))


@names
def test_inference_changes_neither_the_estimate_nor_the_influence(module):
    data = small(10)
    one, two = module.estimate(data, borrowed="plug_in"), module.estimate(data, inference="jackknife")
    np.testing.assert_array_equal(one["estimate"], two["estimate"])
    np.testing.assert_array_equal(one["influence"], two["influence"])
    low, high = one["interval"].sel(policy="target").values
    assert low < of_target(one) < high
    se = cluster_se(one["influence"].sel(policy="target").values, np.arange(one.sizes["prompt"]))
    assert se == pytest.approx(of_target(one, "std_error"))


@names
def test_jackknife_reruns_also_lose_the_labels_of_logged_responses(module):
    """Every estimator's reruns forget fold k whole: MRDR reads those labels directly."""
    logs = with_reruns(logs_of(small(11)))
    for rerun in logs.reruns:
        gone = sorted(set(logs.fitted.fold) - set(rerun.fitted.fold[rerun.fitted.prompt]))
        assert len(gone) == 1
        assert np.isnan(rerun.logged.label[logs.fitted.fold == gone[0]]).all()
    assert len(logs.reruns) == 5
    assert of_target(module.estimate(small(11), inference="jackknife"), "std_error") > 0


def test_normal_quantiles_in_paper_mode():
    result = dr_cpo.estimate(small(33), inference="jackknife", ci_prob=0.9)
    half = (of_target(result) - result["interval"].sel(policy="target", ci_bound="lower")) / of_target(
        result, "std_error"
    )
    assert float(half) == pytest.approx(stats.norm.ppf(0.95))


# --- pitfalls that others fell into ---


def test_pitfall_01_jackknife_sums_over_folds():
    values = [0.1, 0.4, 0.2, 0.9, 0.5]
    mean = sum(values) / 5
    assert off_policy_estimate.jackknife(values) == pytest.approx(
        4 / 5 * sum((v - mean) ** 2 for v in values)
    )
    # for a mean of five group means it is the variance of that mean
    leave_out = [(sum(values) - v) / 4 for v in values]
    assert off_policy_estimate.jackknife(leave_out) == pytest.approx(np.var(values, ddof=1) / 5)


@names
def test_pitfall_05_one_standard_error_for_the_family(module):
    """Every prompt twice in one cluster: the same error, whichever estimator; folds are no clusters."""
    data = small(28, n=60)
    n = data.sizes["prompt"]
    names_of = data.prompt.values.astype(str)
    base = data.assign(cluster=("prompt", names_of))
    copy = base.assign_coords(prompt=[f"{name}_again" for name in names_of])
    doubled = xr.concat([base, copy], dim="prompt", data_vars="minimal", coords="minimal")
    one, two = module.estimate(base), module.estimate(doubled)
    assert two.sizes["prompt"] == 2 * n
    np.testing.assert_allclose(two["estimate"], one["estimate"], rtol=1e-6)
    # the labels' factor n_b / (n_b - 1) counts labels, not clusters, hence the slack
    np.testing.assert_allclose(two["std_error"], one["std_error"], rtol=0.1)
    assert (one["df"] > 4).all()


def test_pitfall_07_hajek_influence_is_the_derivative_in_the_row_weights():
    """No second -V (w - mean w) term: n times the derivative of V in a row's multiplicity."""
    data = small(30)
    logs = logs_of(data)
    used, weight = off_policy.used_rows(logs, 1), off_policy.raw_weights(logs, 1)
    value = snips.policy_value(logs, 1)
    n, step, (_, of_logged) = len(logs.rows.prompts), 1e-6, value.sources()
    for j in (0, 5, 20):
        count = np.ones(len(used))
        count[j] += step
        moved = (count * weight * logs.reward[used]).sum() / (count * weight).sum()
        assert n * (moved - value.value) / step == pytest.approx(of_logged.influence[used[j]], abs=1e-3)
    assert of_logged.influence.sum() == pytest.approx(0, abs=1e-10)


def test_pitfall_08_influence_uses_the_outcome_of_the_estimate():
    """All logged responses labelled: both still use R = f(Z), and the influence is centred at the estimate."""
    data = small(31, share=1.1, missing=0)
    logs = logs_of(data)
    value = snips.policy_value(logs, 1)
    weight = off_policy.raw_weights(logs, 1)
    expected = weight * (logs.reward - value.value) / weight.mean()
    np.testing.assert_allclose(value.sources()[1].influence, expected, atol=1e-12)


@names
def test_pitfall_19_the_interval_contains_the_estimate(module):
    for seed in range(40, 45):
        for inference in ("influence", "jackknife"):
            result = module.estimate(small(seed, spread=2.0), inference=inference, **unrefused(module))
            low, high = result["interval"].values.T
            value = result["estimate"].values
            ends = (value == 0) | (value == 1) if module is ips else np.zeros(2, bool)  # cut at the scale
            assert ((low < value) | ends).all() and ((value < high) | ends).all()
