"""PAVA, the calibrator and its first-order theory, each against its definition."""

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

import cje_sim
from cje_core.calibration.calibrator import fit, knot_mass, label_leverage, predict
from cje_core.calibration.isotonic import interpolate, isotonic
from cje_core.calibration.oracle_slice import OracleSlice, fit_slice, held_out, mean_labels, refit
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.families.direct.refit_kernels import spread_into
from cje_core.inference.estimate import Status
from cje_core.workflow.steps.fits import slice_groups, slice_of

LEVELS = st.lists(
    st.tuples(st.integers(-6, 6), st.integers(1, 5)), min_size=1, max_size=9
)  # integers: sums are exact, so ties between blocks are real ties


@pytest.mark.slow
@given(LEVELS)
@settings(max_examples=300, deadline=None)
def test_isotonic_is_the_minmax_solution(levels):
    mean, weight = np.array(levels, float).T
    fitted, block = isotonic(mean, weight)
    np.testing.assert_allclose(fitted, oracles.isotonic_minmax(mean, weight), atol=1e-12)
    assert (np.diff(fitted) >= 0).all()
    assert ((np.diff(block) == 0) | (np.diff(block) == 1)).all()
    np.testing.assert_allclose((weight * fitted).sum(), (weight * mean).sum(), atol=1e-10)  # mean preserved


def test_isotonic_agrees_with_scipy():
    rng = np.random.default_rng(0)
    y, w = rng.normal(size=400) + np.linspace(0, 1, 400), rng.uniform(0.1, 3, 400)
    np.testing.assert_allclose(isotonic(y, w)[0], isotonic_regression(y, weights=w).x, atol=1e-12)


@pytest.mark.parametrize(("y", "w"), [([1.0], [0.0]), ([1.0, 2.0], [1.0]), ([[1.0]], [[1.0]])])
def test_isotonic_refuses_bad_levels(y, w):
    with pytest.raises(ValueError, match=r"levels|length"):
        isotonic(y, w)


def test_calibrator_matches_definition_and_preserves_the_slice_mean():
    rng = np.random.default_rng(1)
    for increasing in (True, False):
        score = rng.choice(np.round(np.linspace(0, 1, 11), 1), 60)
        label, weight = rng.uniform(size=60), rng.uniform(0.5, 2, 60)
        new = rng.uniform(-0.2, 1.2, 40)
        f = fit(score, label, weight, increasing=increasing)
        sign = 1 if increasing else -1
        expected = oracles.calibrate(list(sign * score), list(label), list(weight), list(sign * new))
        np.testing.assert_allclose(predict(f, new), expected, atol=1e-12)
        np.testing.assert_allclose((weight * predict(f, score)).sum(), (weight * label).sum())


def test_knot_values_spread_over_the_levels_as_numpy_interpolates():
    rng = np.random.default_rng(2)
    level = np.sort(rng.uniform(size=30))
    is_knot = rng.uniform(size=30) < 0.3
    value = np.sort(rng.uniform(size=is_knot.sum()))
    out = np.empty(30)
    spread_into(np.flatnonzero(is_knot), value, int(is_knot.sum()), np.arange(30), level, out)
    np.testing.assert_allclose(out, np.interp(level, level[is_knot], value), atol=1e-14)


def test_knot_mass_reproduces_the_sum_of_predictions():
    rng = np.random.default_rng(3)
    f = fit(rng.choice([0.1, 0.4, 0.7, 0.9], 50), rng.uniform(size=50))
    score, weight = rng.uniform(size=200), rng.uniform(size=200)
    mass = knot_mass(f, score, weight)
    np.testing.assert_allclose((mass * f.value).sum(), (weight * predict(f, score)).sum())
    np.testing.assert_allclose(mass.sum(), weight.sum())


def test_leverage_is_the_derivative_with_respect_to_a_label_weight():
    """Infinitesimal jackknife by definition: bump one row's weight, refit, difference quotient."""
    rng = np.random.default_rng(4)
    score = rng.choice(np.linspace(0, 1, 8), 40)
    label = np.clip(score + rng.normal(0, 0.4, 40), 0, 1)
    weight = rng.uniform(0.5, 2, 40)
    new, new_weight = rng.uniform(size=100), np.full(100, 0.01)
    f = fit(score, label, weight)
    residual = label - predict(f, score)
    claimed = label_leverage(f, knot_mass(f, new, new_weight), score, weight) * residual / weight
    step = 1e-6
    for i in range(40):
        bumped = weight.copy()
        bumped[i] += step
        moved = (new_weight * predict(fit(score, label, bumped), new)).sum()
        derivative = (moved - (new_weight * predict(f, new)).sum()) / step
        np.testing.assert_allclose(claimed[i], derivative, atol=1e-5)


def test_held_out_predictions_never_see_their_own_fold():
    rng = np.random.default_rng(5)
    z, label, fold = rng.uniform(size=(60, 1)), rng.uniform(size=60), rng.integers(0, 3, 60)
    row = np.arange(60)
    fitted = OracleSlice(Status.OK, None, z, label, np.ones(60), row, fold, "monotone", True)
    before = held_out(fitted, z, row)
    after = held_out(fitted._replace(label=np.where(fold == 1, 1 - label, label)), z, row)
    assert (before[fold == 1] == after[fold == 1]).all()
    assert (before[fold != 1] != after[fold != 1]).any()


@pytest.mark.parametrize("folds", [3, 4, 1])
def test_mean_labels_are_the_means_of_the_labels_outside_each_fold(folds):
    """By a loop, exactly: labels are eighths and weights powers of two, so no sum rounds.

    With four folds the last holds no label, and its level is that of the slice; with one it holds all, and nothing is
    left, whatever rounding a subtraction would leave.
    """
    rng = np.random.default_rng(6)
    label, weight = rng.integers(0, 9, 40) / 8, 2.0 ** rng.integers(-3, 4, 40)
    prompt = rng.permutation(60)[:40]
    fold = rng.integers(0, min(folds, 3), 60)
    fold[np.setdiff1d(np.arange(60), prompt)[0]] = folds - 1
    fitted = OracleSlice(
        Status.OK, None, rng.uniform(size=(40, 1)), label, weight, prompt, fold, "monotone", True
    )
    mean, outside = mean_labels(fitted)

    def average(rows):
        total = sum(weight[i] for i in rows)
        return sum(weight[i] * label[i] for i in rows) / total if rows else np.nan

    assert mean == average(list(range(40)))
    expected = [average([i for i in range(40) if fold[prompt[i]] != k]) for k in range(folds)]
    np.testing.assert_array_equal(outside, expected)
    assert np.isnan(outside).any() == (folds == 1)


def test_mean_labels_do_not_cancel():
    """One fold holds nearly all the weight: the level outside it is that of the other label, to the last digit."""
    fitted = OracleSlice(
        Status.OK,
        None,
        np.zeros((3, 1)),
        np.array([0.3, 0.7, 0.1]),
        np.array([1e15, 1e15, 1.0]),
        np.arange(3),
        np.array([0, 0, 1]),
        "monotone",
        True,
    )
    assert mean_labels(fitted)[1][0] == 0.1


@pytest.mark.parametrize("n_knots", [12, 700])
@pytest.mark.parametrize("spread", ["even", "clumped"])
def test_many_values_are_interpolated_as_numpy_does(spread, n_knots):
    rng = np.random.default_rng(8)
    knot = np.unique(rng.uniform(size=n_knots))
    if spread == "clumped":  # nearly all knots in one cell of the table
        knot = np.unique(np.concatenate([knot * 1e-9, [-3.0, 5.0]]))
    value = np.sort(rng.uniform(size=len(knot)))
    inside = rng.uniform(knot[0], knot[-1], 6_000)
    x = np.concatenate([inside, knot, np.nextafter(knot, -9), [-np.inf, np.inf, np.nan, -9.0, 9.0]])
    x = rng.permutation(np.concatenate([x, rng.uniform(0, 1e-9, 2_000)]))
    assert np.array_equal(interpolate(x, knot, value), np.interp(x, knot, value), equal_nan=True)


def test_held_out_calibrators_are_refits_without_the_fold():
    """Their levels are taken from the slice's, which are sorted once; the calibrators are those of the rows alone."""
    rng = np.random.default_rng(9)
    score = rng.integers(0, 30, 400) / 29
    label = np.where(np.arange(400) < 120, np.clip(score + rng.normal(0, 0.3, 400), 0, 1), np.nan)
    prob = np.where(np.arange(400) % 2 == 0, 0.5, 0.25)
    data = from_arrays(score[None], policies=["p"], oracle=label[None], label_prob=prob[None])
    for direction in ("increasing", "decreasing"):
        fitted = fit_slice(unpack(data), direction=direction)
        fold = fitted.fold[fitted.prompt]
        expected = np.empty(len(fold))
        for k in np.unique(fold):
            expected[fold == k] = predict(refit(fitted, fold != k, None), fitted.z[fold == k])
        assert np.array_equal(held_out(fitted, fitted.z, fitted.prompt), expected)


@pytest.mark.parametrize("direction", ["increasing", "decreasing"])
def test_places_that_the_fit_leaves_are_those_that_are_searched_for(direction):
    data = cje_sim.simulate("discrete_judge", n=200, oracle_fraction=0.3, rng=1)
    fitted = fit_slice(unpack(data), direction=direction)
    np.testing.assert_array_equal(fitted.at, fitted._replace(status=fitted.status).at)


def test_other_labels_leave_nothing_of_the_former_ones():
    """A slice read from a file brings the fits of its folds: with other labels they are made anew."""
    data = cje_sim.simulate("discrete_judge", n=200, oracle_fraction=0.3, rng=1)
    fitted = fit_slice(unpack(data), direction="increasing")
    kept = np.arange(len(fitted.label)) % 2 == 0
    model = refit(fitted, kept, None)
    other = (model, fitted.z[kept], fitted.label[kept], fitted.weight[kept], fitted.prompt[kept])
    read = slice_of(slice_groups(fitted))
    expected = held_out(fitted.with_labels(*other), fitted.z, fitted.prompt)
    np.testing.assert_array_equal(held_out(read.with_labels(*other), fitted.z, fitted.prompt), expected)
    z, label, weight, prompt = other[1:]
    stale = read._replace(calibrator=model, z=z, label=label, weight=weight, prompt=prompt)
    assert not np.array_equal(held_out(stale, fitted.z, fitted.prompt), expected)
