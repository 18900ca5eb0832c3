"""The spline posterior of borrowed values against its slow form, and where it gives way to the balanced one-step."""

import numpy as np
import pytest
from oracles_spline import Posterior
from oracles_spline import points as slow_points

from cje_core.calibration.calibrated import Calibration
from cje_core.data import from_arrays
from cje_core.estimators import direct
from cje_core.formulas.borrowed import difference_limits, difference_p_value, points
from cje_core.inference.borrowed_limits import parts_of, value_limits
from cje_core.inference.pairs import pair_errors
from cje_sim.scenarios import few_levels

N, M = 120, 40


def drawn(world, seed):
    """Scores (3, N) and labels of the first policy's first M prompts."""
    rng = np.random.default_rng(seed)
    score = rng.beta([[2.0], [3.0], [2.0]], [[2.0], [2.0], [3.0]], (3, N))
    if world == "levels":
        score = np.round(2 * score) / 2
    label = 0.1 + 0.8 * score[0]
    graded = np.clip(label + rng.normal(0, 0.1, N), 0, 1)
    label = (rng.random(N) < label).astype(float) if world != "graded" else graded
    return score, np.where(np.arange(N) < M, label, np.nan)


def estimated(score, label, **options):
    """Direct on these arrays, with labels of the first policy only."""
    oracle = np.full(score.shape, np.nan)
    oracle[0] = label
    return direct.estimate(from_arrays(score, policies=["a", "b", "c"], oracle=oracle), **options)


def test_the_stored_points_are_scipys():
    for stored, made in zip(points(), slow_points(), strict=True):
        np.testing.assert_array_equal(stored, made)


@pytest.mark.parametrize("world", ["graded", "binary", "levels"])
def test_values_and_limits_are_their_definition(world):
    """At .95 and .8; the optimiser of the slow form ends where its gradient is 1e-9, Fisher scoring
    at a step of 1e-3.
    """
    score, label = drawn(world, 5)
    found = estimated(score, label)
    assert found.interval_kind.values.tolist()[1:] == ["spline", "spline"]
    slow = Posterior(score[0, :M], label[:M], score[0].mean(), score[0].std())
    parts, pairs = parts_of(found), pair_errors(found, np.array([1]), np.array([2]), 0.95)
    for p in (1, 2):
        value, *limits = slow.limits(score[p], 0.95)
        np.testing.assert_allclose(found.estimate.values[p], value, atol=2e-5)
        np.testing.assert_allclose(found.interval.values[p], np.clip(limits, 0, 1), atol=1e-4)
        np.testing.assert_allclose(value_limits(parts, p, 0.8), slow.limits(score[p], 0.8)[1:], atol=1e-4)
    np.testing.assert_allclose(pairs.interval[0], slow.limits(score[1], 0.95, score[2])[1:], atol=1e-4)


def test_the_p_value_is_the_level_at_which_the_limits_reach_zero():
    parts = parts_of(estimated(*drawn("graded", 3)))
    for first, second in ((1, 2), (1, 0), (0, 2)):
        p = difference_p_value(parts, first, second)
        limits = difference_limits(parts, first, second, 1 - p)
        assert min(abs(limits)) < 1e-4 * np.ptp(limits)
        assert np.allclose(
            difference_limits(parts, second, first, 0.9), -difference_limits(parts, first, second, 0.9)[::-1]
        )


def test_limits_widen_with_the_level():
    parts = parts_of(estimated(*drawn("binary", 5)))
    widths = [
        np.ptp(value_limits(parts, 1, 1 - alpha))
        for alpha in (0.5, 0.2, 0.05, 0.021, 0.019, 1e-3, 1e-6, 1e-9)
    ]
    assert (np.diff(widths) > 0).all()


def test_scales_and_directions_of_judge_and_oracle_do_not_matter():
    """Judge on 0 to 10 turned round, oracle on -2 to 2."""
    score, label = drawn("binary", 4)
    oracle = np.full(score.shape, np.nan)
    oracle[0] = 4 * label - 2
    turned = from_arrays(
        10 - 10 * score, policies=["a", "b", "c"], oracle=oracle, judge_range=(0, 10), oracle_range=(-2, 2)
    )
    found = direct.estimate(turned, calibration=Calibration(direction="decreasing"))
    plain = estimated(score, label)
    np.testing.assert_allclose(found.interval.values[1:], 4 * plain.interval.values[1:] - 2, atol=1e-8)
    np.testing.assert_allclose(found.estimate.values[1:], 4 * plain.estimate.values[1:] - 2, atol=1e-8)


def test_where_it_is_not_defined_the_balanced_form_is_borrowed():
    score, label = drawn("graded", 3)
    oracle, prob = np.full(score.shape, np.nan), np.full(score.shape, np.nan)
    oracle[0], prob[0] = label, 0.3 + 0.3 * score[0]
    data = from_arrays(score, policies=["a", "b", "c"], oracle=oracle, label_prob=prob)
    assert set(direct.estimate(data).route.values[1:]) == {"balanced"}


def test_a_selection_of_policies_keeps_its_limits():
    found = estimated(*drawn("graded", 3))
    whole = pair_errors(found, np.array([1]), np.array([2]), 0.95)
    part = pair_errors(found.sel(policy=["c", "b"]), np.array([1]), np.array([0]), 0.95)
    np.testing.assert_allclose(part.interval, whole.interval, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n_labels", "least"), [("binary", 40, 0.95), ("likert", 60, 0.92)])
def test_few_judge_levels_are_covered(kind, n_labels, least):
    """60 data sets, two borrowed values each; the balanced form (planted) covers .69 to .84.

    The bound is 5 Monte Carlo standard errors of 60 independent data sets below what 1,000 others cover at least.
    """
    truth = few_levels.truth(kind=kind).values
    hits = {"spline": [], "balanced": []}
    for seed in range(60):
        data = few_levels.simulate(
            n=400, oracle_fraction=n_labels / 400, label_design="base", kind=kind, rng=seed
        )
        for form, into in hits.items():
            low, high = direct.estimate(data, borrowed=form).interval.values[1:].T
            if np.isfinite(low).all():
                into.append((low <= truth[1:]) & (truth[1:] <= high))
    slack = 5 * np.sqrt(least * (1 - least) / len(hits["spline"]))
    assert np.mean(hits["spline"]) >= least - slack
    assert np.mean(hits["balanced"]) < np.mean(hits["spline"]) - 0.05
