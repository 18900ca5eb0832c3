"""Stabilised weights: the fit against loops, the guard, folds, edges, and the error of a Hajek mean."""

import numpy as np
import oracles_weights as oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cje_core.calibration.isotonic import iso_mean_one
from cje_core.offpolicy import weights


def sample(seed, n=60, levels=7, spread=1.0):
    """Mean-one weights that rise with a discrete score, a reward and folds."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, levels, n) / levels
    weight = weights.mean_one(spread * (score + rng.standard_normal(n)))
    reward = np.clip(score + 0.2 * rng.standard_normal(n), 0, 1)
    return weight, score, reward, rng.integers(0, 5, n)


@pytest.mark.parametrize("seed", range(4))
def test_stabilise_against_loops(seed):
    w, s, r, fold = sample(seed, n=40)
    out = weights.stabilise(w, s, r, fold, guard="none")
    columns = oracles.candidates(w.tolist(), s.tolist(), fold.tolist(), weights.CANDIDATES)
    assert_allclose(out.candidate, columns, rtol=1e-10)
    found = oracles.stack_variance(columns, r.tolist(), out.beta.tolist())
    for a in range(21):  # no other stack is better than by what the ridge may cost
        for b in range(21 - a):
            other = oracles.stack_variance(columns, r.tolist(), [a / 20, b / 20, 1 - (a + b) / 20])
            assert found <= other * (1 + 1e-6)
    stack = out.beta @ np.array(columns)
    assert_allclose(out.weight, stack / stack.mean(), rtol=1e-10)


def test_the_fit_objective_against_loops():
    w, s, r, fold = sample(1, n=40)
    out = weights.stabilise(w, s, r, fold, objective="fit")
    columns = np.array(oracles.candidates(w.tolist(), s.tolist(), fold.tolist(), weights.CANDIDATES))

    def error(beta):
        return np.mean((w - np.asarray(beta) @ columns) ** 2)

    grid = [(a / 40, b / 40, 1 - (a + b) / 40) for a in range(41) for b in range(41 - a)]
    assert error(out.beta) <= min(map(error, grid)) * (1 + 1e-6)
    assert out.beta[1] > 0.5  # these weights rise with the score


def test_the_variance_stack_returns_the_loggers_value():
    # E[W | S] rises with S here and the overlap is good, so raw weights are right; the paper's stack is not, and
    # neither its effective sample size nor its standard error says so.
    rng, gap = np.random.default_rng(9), []
    for _ in range(20):
        s = rng.integers(0, 11, 2000) / 10
        w = weights.mean_one(s + 0.2 * rng.standard_normal(2000))
        fold = np.arange(2000) % 5
        values = [s.mean(), (w * s).mean()]
        for objective in weights.KNOWN["objective"]:
            out = weights.stabilise(w, s, s, fold, objective=objective)
            assert weights.ess_fraction(out.weight) > weights.ess_fraction(w) > 0.85
            values.append((out.weight * s).mean())
        gap.append(np.array(values[1:]) - values[0])
    raw, variance, fit = np.mean(gap, axis=0)  # value above the logger's
    assert raw == pytest.approx(0.096, abs=0.003)
    assert abs(variance) < 0.1 * raw
    assert fit > 0.9 * raw


def test_stabilised_weights_are_finite_where_the_raw_are():
    w, s, r, fold = sample(1)
    w[::7] = np.nan
    w = w / np.nanmean(w)
    out = weights.stabilise(w, s, r, fold)
    assert_array_equal(np.isnan(out.weight), np.isnan(w))
    assert np.nanmean(out.weight) == pytest.approx(1.0, rel=1e-12)
    kept = np.isfinite(w)
    alone = weights.stabilise(w[kept], s[kept], r[kept], fold[kept])
    assert_allclose(out.weight[kept], alone.weight)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.sampled_from(weights.KNOWN["projection"]),
    st.sampled_from(weights.KNOWN["guard"]),
    st.sampled_from([0.1, 1.0, 3.0]),
    st.sampled_from([0.1, 1.0, 4.0]),
    st.sampled_from([weights.CANDIDATES, ("up",)]),
)
def test_guard_bounds(seed, projection, guard, rho, spread, candidates):
    w, s, r, fold = sample(seed, spread=spread)
    out = weights.stabilise(w, s, r, fold, projection=projection, guard=guard, rho=rho, candidates=candidates)
    limit = {"absolute": rho, "relative": rho * w.var(), "none": np.inf}[guard]
    if out.engaged:  # shrinks no more than it must
        assert out.weight.var() == pytest.approx(limit, rel=1e-9)
    else:
        assert out.stack.var() <= limit
    assert out.weight.mean() == pytest.approx(1.0, rel=1e-12)
    if projection == "exact":  # the paper's proposition on Cal-IPS: deterministic, whatever the sample
        assert weights.ess_fraction(out.weight) >= weights.ess_fraction(w) - 1e-12
    assert out.engaged == (out.alpha < 1)
    assert_allclose(out.weight, 1 + out.alpha * (out.stack - 1), rtol=1e-9, atol=1e-12)


def test_the_rescaled_stack_can_lose_effective_sample_size():
    # Why "exact" exists: out of fold nothing keeps the variance below that of the raw weights.
    worse = 0
    for seed in range(200):
        w, s, r, fold = sample(seed, n=12, spread=0.15)
        out = weights.stabilise(w, s, r, fold, guard="none", candidates=("up",))
        worse += weights.ess_fraction(out.weight) < weights.ess_fraction(w) - 1e-9
    assert worse > 0


def test_stabilise_does_not_depend_on_row_order_or_fold_names():
    w, s, r, fold = sample(2)
    out = weights.stabilise(w, s, r, fold)
    order = np.random.default_rng(0).permutation(len(w))
    again = weights.stabilise(w[order], s[order], r[order], 7 - fold[order])
    assert_allclose(again.weight, out.weight[order], rtol=1e-12)
    assert_allclose(again.beta, out.beta, atol=1e-9)
    shifted = weights.stabilise(w, s, r + 5.0, fold)  # Delta is centred
    assert_allclose(shifted.beta, out.beta, atol=1e-6)


def test_out_of_fold_candidates_never_see_their_own_fold():
    w, s, r, fold = sample(3)
    changed = w.copy()
    changed[fold == 2] = changed[fold == 2][::-1] * 3
    a, b = (weights.stabilise(v, s, r, fold).candidate[:, fold == 2] for v in (w, changed))
    assert_allclose(a, b)


def test_maps_persist_the_candidates():
    w, s, r, fold = sample(5)
    out = weights.stabilise(w, s, r, fold, candidates=("down", "up"), projection="exact")
    for each in out.maps:
        train = fold != each.fold  # fold -1: all rows
        assert np.interp(s[train], each.knot, each.value).mean() == pytest.approx(1.0)
        if each.fold >= 0:
            row = ("down", "up").index(each.candidate)
            test = fold == each.fold
            assert_allclose(out.candidate[row, test], np.interp(s[test], each.knot, each.value))
        else:
            assert_allclose(
                np.interp(s, each.knot, each.value), iso_mean_one(w, s, each.candidate == "up"), rtol=1e-9
            )
    assert [m.fold for m in out.maps].count(-1) == 2 and len(out.maps) == 12


def test_stabilise_edges():
    nothing = weights.stabilise([np.nan, np.nan], [0.1, 0.2], [0.0, 1.0], [0, 1])
    assert np.isnan(nothing.weight).all() and nothing.beta.tolist() == [1 / 3] * 3 and not nothing.engaged
    one_fold = weights.stabilise([2.0, 0.0], [0.1, 0.2], [0.0, 1.0], [0, 0])
    assert one_fold.weight.tolist() == [1.0, 1.0] and one_fold.maps == ()
    one_row = weights.stabilise([3.0, 0.0, 0.0], [0.1, 0.2, 0.3], [0.0, 1.0, 0.5], [0, 1, 1])
    assert np.isfinite(one_row.weight).all()  # the fold without the heavy row has nothing to fit on


@pytest.mark.parametrize("rewards", [(0.0, 0.8, 1.0), (0.0, 0.2, 1.0)])
@pytest.mark.parametrize("ratio", [(0.4, 1.0, 1.6), (1.6, 1.0, 0.4)])
def test_when_the_stack_turns_constant(rewards, ratio):
    """A finite model, every fold a copy of it, so out-of-fold maps are E[W | S]: constant iff Cov(W, D^2) >= 0.

    In two of the four cases that is not where the target is better, which an earlier text took for the condition.
    """
    reward, w = np.array(rewards), np.array(ratio)
    away = (reward - reward.mean()) ** 2
    covariance = (w * away).mean() - w.mean() * away.mean()
    copies = 4
    out = weights.stabilise(
        np.tile(w, copies), np.tile(reward, copies), np.tile(reward, copies), np.repeat(np.arange(copies), 3),
        guard="none",
    )  # fmt: skip
    constant = np.ptp(out.weight) < 1e-6
    assert constant == (covariance >= 0)
    assert abs(covariance) > 0.01  # no tie
    value = (np.tile(w, copies) * np.tile(reward, copies)).mean()
    stacked = (out.weight * np.tile(reward, copies)).mean()
    assert constant == (abs(stacked - reward.mean()) < 1e-6)
    assert abs(value - reward.mean()) > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"projection": "other"}, "projection='other'"),
        ({"guard": "other"}, "guard='other'"),
        ({"objective": "other"}, "objective='other': use one of variance, fit"),
        ({"candidates": ("sideways",)}, "use some of base, up, down"),
        ({"candidates": ()}, "use some of base, up, down"),
        ({"rho": 0.0}, "rho=0"),
    ],
)
def test_stabilise_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        weights.stabilise(*sample(0), **change)
    w, s, r, fold = sample(0)
    s[3] = np.nan
    with pytest.raises(ValueError, match="weight but no judge score"):
        weights.stabilise(w, s, r, fold)


def test_guard_curve_is_stabilise_at_every_rho():
    w, s, r, fold = sample(6, spread=3.0)
    free = weights.stabilise(w, s, r, fold, guard="none", candidates=("up",))
    assert 0.2 < free.stack.var() < 100
    rhos = [0.05, 0.2, 1.0, 100.0, np.inf]
    curve = weights.guard_curve(free, r, rhos)
    for rho in rhos:
        out = weights.stabilise(w, s, r, fold, rho=rho, candidates=("up",))
        at = curve.sel(rho=rho)
        assert float(at.alpha) == pytest.approx(out.alpha)
        assert float(at.ess_fraction) == pytest.approx(weights.ess_fraction(out.weight))
        assert float(at.value) == pytest.approx((out.weight * r).mean())
        assert float(at["shift"]) == pytest.approx((out.weight * r).mean() - (free.weight * r).mean())
    assert (np.diff(curve.alpha) >= 0).all() and curve.alpha[-1] == 1
    assert np.isnan(weights.guard_curve(free._replace(stack=np.full(3, np.nan)), np.zeros(3)).value).all()


@pytest.mark.slow
def test_pitfall_07_the_standard_error_of_a_hajek_mean():
    # phi = W (R - V) / mean W, and nothing else: with the extra term -V (W - mean W) the ratio below is far from 1.
    rng = np.random.default_rng(11)
    n, reps = 400, 500
    values, errors = np.empty(reps), np.empty(reps)
    for i in range(reps):
        x = rng.standard_normal(n)
        w, r = weights.mean_one(0.5 * x), 5 + 0.3 * x + 0.2 * rng.standard_normal(n)
        none = weights.Stabilised(w, np.ones(1), 1.0, False, w[None], w, (), 1.0)
        curve = weights.guard_curve(none, r, [np.inf])
        values[i], errors[i] = curve.value[0], curve.std_error[0]
    # a standard deviation over 500 replicates is known to 1 / sqrt(2 * 500) = 3.2%
    assert errors.mean() / values.std() == pytest.approx(1.0, abs=5 * 0.032)
