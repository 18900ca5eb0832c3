"""Weights: log ratios, the mean-one projection and the simplex against definitions, and the Arena sample."""

import numpy as np
import oracles_weights as oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from cje_core.calibration.isotonic import iso_mean_one
from cje_core.data import DataError, from_arrays
from cje_core.data.arrays import unpack_logged
from cje_core.offpolicy import weights

finite = st.floats(-1e4, 1e4, allow_nan=False)


# --- log ratios and self-normalised weights ---


def logged_data(logp_target, logp_logger, judge=None):
    n = len(logp_logger)
    return from_arrays(
        np.full((1, n), 0.5),
        policies=["p"],
        logged={
            "logp_target": [logp_target],
            "logp_logger": logp_logger,
            "logged_judge": np.full(n, 0.5) if judge is None else judge,
        },
    )


def test_log_ratios_are_nan_where_anything_is_missing():
    nan = np.nan
    data = logged_data([-3.0, nan, -4.0, -5.0], [-2.0, -2.0, nan, -5.5], [0.1, 0.1, 0.1, nan])
    assert_array_equal(weights.log_ratios(unpack_logged(data)), [[-1.0, nan, nan, nan]])


@given(st.lists(st.one_of(st.none(), st.floats(-30, 30)), min_size=1, max_size=30))
def test_mean_one_against_the_definition(log_ratio):
    out = weights.mean_one([np.nan if r is None else r for r in log_ratio])
    if any(r is not None for r in log_ratio):
        expected = [np.nan if w is None else w for w in oracles.mean_one(log_ratio)]
        assert_allclose(out, expected, rtol=1e-12)
    else:
        assert np.isnan(out).all()


@given(st.lists(finite, min_size=1, max_size=50), finite)
def test_mean_one_ignores_a_constant_and_has_mean_one(log_ratio, constant):
    out = weights.mean_one(log_ratio)
    assert_allclose(out.mean(), 1.0, rtol=1e-12)
    assert_allclose(weights.mean_one(np.array(log_ratio) + constant), out, rtol=1e-8, atol=1e-12)


def test_pitfall_14_missing_log_probabilities_never_become_zero_weights():
    out = weights.mean_one([0.0, np.nan, np.log(3)])
    assert_allclose(out, [0.5, np.nan, 1.5])
    assert weights.ess_fraction(out) == pytest.approx(4 / (2 * 2.5))  # of the two rows that have a weight
    for infinite in (np.inf, -np.inf):
        with pytest.raises(ValueError, match="infinite"):
            weights.mean_one([0.0, infinite])
        with pytest.raises(DataError, match="finite and at most 0"):
            logged_data([infinite], [-1.0])


def test_ess_fraction_edges():
    assert np.isnan(weights.ess_fraction([])) and np.isnan(weights.ess_fraction([np.nan, 0.0]))
    assert weights.ess_fraction(np.full(7, 3.0)) == pytest.approx(1.0)
    assert weights.ess_fraction([1e300, 1e300]) == pytest.approx(1.0)
    w = weights.mean_one(np.random.default_rng(0).standard_normal(50))
    assert weights.ess_fraction(w) == pytest.approx(1 / (1 + w.var()))
    assert weights.ess_fraction(w) == pytest.approx(oracles.ess_fraction(w.tolist()))


def test_clip():
    w = weights.mean_one([0.0, 1.0, 2.0, 5.0, np.nan])
    out = weights.clip(w, 2.0)
    assert_allclose(np.nanmean(out), 1.0)
    assert_allclose(out[:4] / out[0], np.minimum(w[:4], 2.0) / w[0])
    assert np.isnan(out[4])
    assert_allclose(weights.clip(w, np.inf), w)
    with pytest.raises(ValueError, match="positive"):
        weights.clip(w, 0.0)


def test_overlap_weights_have_the_overlap_population_as_estimand():
    p, q, y = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.0, 1.0, 0.3, 0.8])
    drawn = np.repeat(np.arange(4), (1000 * q).astype(int))  # a logged sample with exactly the logger's law
    out = weights.overlap_weights(np.log(p / q)[drawn])
    population = p * q / (p + q)
    assert (out * y[drawn]).mean() == pytest.approx((population * y).sum() / population.sum(), rel=1e-12)
    assert weights.overlap_weights([-900.0, -900.0, np.nan]).tolist()[:2] == [1.0, 1.0]


# --- projection ---


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(0, 5)), min_size=1, max_size=25).filter(
        lambda rows: sum(w for w, _ in rows) > 0
    ),
    st.booleans(),
)
def test_iso_mean_one_against_min_max_and_majorisation(rows, increasing):
    w = np.array([row[0] for row in rows])
    w = w / w.mean()
    s = np.array([row[1] for row in rows], dtype=float)
    out = iso_mean_one(w, s, increasing)
    assert_allclose(out, oracles.iso_mean_one(w.tolist(), s.tolist(), increasing), rtol=1e-9, atol=1e-9)
    assert_allclose(out.mean(), 1.0, rtol=1e-12)
    assert out.var() <= w.var() + 1e-9
    assert weights.ess_fraction(out) >= weights.ess_fraction(w) - 1e-12
    top = [np.cumsum(np.sort(v)[::-1]) for v in (out, w)]  # partial sums: w majorises its projection
    assert (top[0] <= top[1] + 1e-9).all()
    order = np.argsort(s, kind="stable")
    assert (np.diff(out[order] * (1 if increasing else -1)) >= -1e-12).all()


@pytest.mark.parametrize("seed", range(3))
def test_iso_mean_one_solves_the_constrained_problem(seed):
    rng = np.random.default_rng(seed)
    w, s = rng.gamma(1.0, 2.0, 8), rng.permutation(8).astype(float)  # its mean is not one
    order = np.argsort(s)
    found = optimize.minimize(
        lambda u: ((u - w[order]) ** 2).sum(),
        np.ones(8),
        jac=lambda u: 2 * (u - w[order]),
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda u: u.mean() - 1},
            {"type": "ineq", "fun": np.diff},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert_allclose(iso_mean_one(w, s)[order], found.x, atol=1e-5)


def test_iso_mean_one_keeps_missing_rows_missing():
    out = iso_mean_one([2.0, np.nan, 0.0], [0.1, np.nan, 0.9])
    assert_array_equal(out, [1.0, np.nan, 1.0])
    assert np.isnan(iso_mean_one([np.nan], [0.3])).all()


# --- simplex ---


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_simplex_qp_against_grid_and_optimality(n, seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n + 1)) * 10.0 ** rng.integers(-3, 4)
    root += rng.choice([0.0, 3.0]) * root[0]  # correlated columns put weights on the boundary
    sigma = root @ root.T
    beta = weights.simplex_qp(sigma)
    assert (beta >= 0).all() and beta.sum() == pytest.approx(1.0, abs=1e-12)
    gradient = sigma @ beta
    value = float(beta @ gradient)
    assert gradient.min() >= value - 1e-9 * np.trace(
        sigma
    )  # the first-order condition, sufficient for a convex problem
    assert value <= oracles.simplex_grid(sigma.tolist(), {1: 1, 2: 40, 3: 20, 4: 8}[n]) + 1e-12 * np.trace(
        sigma
    )


@pytest.mark.parametrize("n", [2, 3, 4])
def test_simplex_qp_against_a_least_squares_solution_for_every_support(n):
    """Also where columns are equal or dependent: then the least norm decides."""
    rng = np.random.default_rng(n)
    for rank in (*range(1, n + 1), n, n):
        for _ in range(20):
            root = rng.standard_normal((n, rank)) + rng.choice([0.0, 1.5])
            root[-1] = root[0] if rng.random() < 0.3 else root[-1]
            sigma = root @ root.T
            found, expected = weights.simplex_qp(sigma), oracles.simplex_by_supports(sigma)
            assert found @ sigma @ found <= expected @ sigma @ expected + 1e-12 * np.trace(sigma)
            assert (
                found @ found <= expected @ expected + 1e-5
            )  # a flat valley: the least squares' own accuracy


def test_simplex_qp_against_scipy():
    rng = np.random.default_rng(4)
    for n in (3, 5, 7):
        root = rng.standard_normal((n, n)) + 1.0
        sigma = root @ root.T
        found = optimize.minimize(
            lambda b, s=sigma: b @ s @ b,
            np.full(n, 1 / n),
            jac=lambda b, s=sigma: 2 * s @ b,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda b: b.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        beta = weights.simplex_qp(sigma)
        assert beta @ sigma @ beta <= found.fun + 1e-10
        assert_allclose(beta, found.x, atol=1e-4)


def test_simplex_qp_gives_equal_columns_equal_weights():
    assert_allclose(weights.simplex_qp(np.ones((3, 3))), 1 / 3)
    assert_allclose(weights.simplex_qp(np.zeros((2, 2))), 0.5)
    sigma = np.array([[2.0, 2.0, 0.5], [2.0, 2.0, 0.5], [0.5, 0.5, 1.0]])
    beta = weights.simplex_qp(sigma)
    assert_allclose(
        beta, [0.125, 0.125, 0.75]
    )  # (2 - .5) to (1 - .5) against the third, split between the first two
    order = [2, 0, 1]
    assert_allclose(weights.simplex_qp(sigma[np.ix_(order, order)]), beta[order], atol=1e-12)


@pytest.mark.parametrize("sigma", [np.ones((2, 3)), np.eye(13), [[np.nan]], np.empty((0, 0))])
def test_simplex_qp_refuses(sigma):
    with pytest.raises(ValueError, match="sigma must be finite, square"):
        weights.simplex_qp(sigma)


# --- the Arena sample ---


def test_arena_weights(arena):
    from cje_core.calibration.calibrator import predict
    from cje_core.calibration.oracle_slice import fit_slice
    from cje_core.data.arrays import unpack
    from cje_core.io.files import read

    data, _ = read(arena / "fresh_draws", logged=arena / "logged_data.jsonl")
    rows, logged = unpack(data), unpack_logged(data)
    fitted = fit_slice(rows)
    reward = predict(fitted.calibrator, logged.z)
    raw = {
        name: weights.mean_one(row)
        for name, row in zip(rows.policies, weights.log_ratios(logged), strict=True)
    }
    assert np.isnan(raw["base"]).all()
    ess = {"clone": 0.2146, "parallel_universe_prompt": 0.0034, "unhelpful": 0.0078}
    largest = {"clone": 43, "parallel_universe_prompt": 514, "unhelpful": 195}
    for name, expected in ess.items():
        w = raw[name]
        assert weights.ess_fraction(w) == pytest.approx(expected, abs=1e-3 if name == "clone" else 5e-5)
        assert round(w.max()) == largest[name]
        for projection in weights.KNOWN["projection"]:
            out = weights.stabilise(w, logged.z[:, 0], reward, fitted.fold, projection=projection)
            assert weights.ess_fraction(out.weight) > 0.8  # and none of it is coverage
