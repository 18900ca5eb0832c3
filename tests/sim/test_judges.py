"""Judge relations: conditional means, variances, dependence and quadrature against slow second versions."""

import numpy as np
import oracles_worlds as slow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from cje_sim import judges

LAWS = [(3.0, 2.0), (1.0, 1.0), (0.6, 0.5), (12.0, 1.5)]


@pytest.mark.parametrize("link", judges.LINKS)
@pytest.mark.parametrize(("a", "b"), LAWS)
def test_quadrature_against_riemann_sum(link: str, a: float, b: float) -> None:
    """Midpoint sums of 2e6 cells err by at most one cell times the total variation of the function (< 3)."""
    fast = judges.expected_over_scores(lambda s: judges.oracle_mean(s, link), a, b, judges.LINKS[link][1])
    assert abs(fast - slow.kumaraswamy_integral(lambda s: judges.oracle_mean(s, link), a, b)) < 3 / 2e6


def test_quadrature_closed_forms() -> None:
    """Moments of the Kumaraswamy law are ``b B(1 + k/a, b)``."""
    for a, b in LAWS:
        for k in (1, 2, 5):
            exact = b * special.beta(1 + k / a, b)
            assert judges.expected_over_scores(lambda s, k=k: s**k, a, b) == pytest.approx(exact, abs=1e-11)


def test_links_are_onto_and_shaped_as_named() -> None:
    s = np.linspace(0, 1, 1001)
    for name, (shape, kinks) in judges.LINKS.items():
        y = shape(s)
        assert y.min() == pytest.approx(0, abs=1e-12), name
        assert y.max() == pytest.approx(1, abs=1e-12), name
        assert np.abs(np.diff(y)).max() < 0.01, f"{name} jumps"
        steps = np.diff(y)
        rising = {"inverted": -1, "dip": 0}.get(name, 1)
        assert (steps * rising > -1e-12).all() if rising else (steps < -1e-6).any() and (steps > 1e-6).any()
        assert all(0 < k < 1 for k in kinks)


@given(mean=st.floats(0, 1), spread=st.floats(0, 1), atoms=st.floats(0, 1) | st.just(0.0) | st.just(1.0))
def test_label_moments_exactly(mean: float, spread: float, atoms: float) -> None:
    """Averages over a fine grid of uniforms: the label is piecewise linear in u, so the error is
    O(1/cells).
    """
    u = (np.arange(200_000) + 0.5) / 200_000
    y = judges.draw_oracle(mean, u, spread=spread, atoms=atoms)
    assert y.min() >= 0
    assert y.max() <= 1
    assert (np.diff(y) >= -1e-12).all(), "labels must rise with the uniform"
    assert abs(y.mean() - mean) < 1e-5
    assert abs(y.var() - slow.oracle_variance(mean, spread=spread, atoms=atoms)) < 2e-5


def test_heteroscedastic_labels() -> None:
    spread = np.array([0.1, 0.9])
    y = judges.draw_oracle(0.5, np.linspace(0.0005, 0.9995, 1000)[:, None], spread=spread)
    assert y.std(axis=0) == pytest.approx(np.sqrt(slow.oracle_variance(0.5, spread=spread)), rel=1e-3)


def test_prompt_and_cluster_correlation() -> None:
    """Normal scores of the uniforms have the stated correlations, within 5 SE over independent clusters."""
    n, size, corr, cluster_corr = 60_000, 3, 0.2, 0.3
    cluster = np.arange(n) // size
    u = judges.prompt_uniforms(
        (2, n, 2), np.random.default_rng(5), corr, cluster=cluster, cluster_corr=cluster_corr
    )
    z = special.ndtri(u)
    blocks = z.reshape(2, n // size, size, 2)
    same_prompt = (blocks[0, :, :, 0] * blocks[1, :, :, 1]).mean(axis=1)
    same_cluster = blocks[0, :, 0, 0] * blocks[1, :, 1, 1]
    other = z[0, :-size, 0] * z[0, size:, 0]
    for products, expected in (
        (same_prompt, corr + cluster_corr),
        (same_cluster, cluster_corr),
        (other, 0.0),
    ):
        assert abs(products.mean() - expected) < 5 * products.std() / np.sqrt(len(products) / size)
    # Even if a cluster's entries were all equal, means over n / size clusters have these standard errors.
    assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / (n / size))
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / (n / size))


@pytest.mark.parametrize("grid", judges.GRIDS)
def test_report_levels_and_cell_means(grid: str) -> None:
    low, high, steps = judges.GRIDS[grid]
    s = np.random.default_rng(1).random(5000)
    reported = judges.report(s, grid)
    assert reported.min() >= low
    assert reported.max() <= high
    assert len(np.unique(reported)) <= steps + 1
    assert np.abs((reported - low) / (high - low) - s).max() <= 0.5 / steps + 1e-12
    edges = np.clip((np.arange(steps + 2) - 0.5) / steps, 0, 1)
    prob, means = judges.cell_means(judges.oracle_mean, 3.0, 2.0, edges)
    whole = judges.expected_over_scores(judges.oracle_mean, 3.0, 2.0)
    assert prob.sum() == pytest.approx(1, abs=1e-12)
    assert prob @ means == pytest.approx(whole, abs=1e-10), "the tower property"
    i = steps // 2
    exact = slow.kumaraswamy_integral(judges.oracle_mean, 3.0, 2.0, edges[i], edges[i + 1])
    assert prob[i] * means[i] == pytest.approx(exact, abs=2e-6)


def test_garbling_is_nested() -> None:
    s = np.concatenate([[0.0, 1.0], np.random.default_rng(2).random(3000)])
    for bits in range(6):
        coarse, fine = judges.garble(s, bits), judges.garble(s, bits + 1)
        assert len(np.unique(coarse)) == 2**bits
        for level in np.unique(fine):
            assert len(np.unique(coarse[fine == level])) == 1, (
                "the coarse report must be a function of the fine"
            )


@pytest.mark.parametrize("kind", ["none", "mean", "shape", "compensating"])
def test_shifts_have_the_stated_residual(kind: str) -> None:
    a, b, size = 3.0, 2.0, 0.1
    base = lambda s: judges.oracle_mean(s, "sigmoid", 0.15, 0.85)  # noqa: E731
    curve = judges.shifted_mean(base, kind, size, a, b)
    residual = slow.kumaraswamy_integral(lambda s: curve(s) - base(s), a, b)
    assert residual == pytest.approx(size if kind == "mean" else 0.0, abs=1e-6)
    assert (np.abs(curve(np.array([0.3, 0.9])) - base(np.array([0.3, 0.9]))) > 0.01).all() == (kind != "none")


def test_inflation_inverts() -> None:
    q = np.array([0.0, 0.2, 0.9, 1.0])
    assert judges.inflate(judges.inflate(q, 0.7), -0.7) == pytest.approx(q, abs=1e-12)
    assert (np.diff(judges.inflate(q, 0.7)) > 0).all()


def test_levels_have_their_shares() -> None:
    u = ((np.arange(1000) + 0.5) / 1000)[None, :]
    assert np.bincount(judges.draw_levels(u, [[0.2, 0.0, 0.5, 0.3]])[0]).tolist() == [200, 0, 500, 300]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: judges.oracle_mean(0.5, "cubic"), "there are: linear"),
        (lambda: judges.oracle_mean(0.5, low=0.9, high=0.1), "0 <= low <= high <= 1"),
        (lambda: judges.score_quantile(0.5, -1.0, 1.0), "must be > 0"),
        (lambda: judges.draw_oracle(0.5, 0.5, atoms=2.0), r"in \[0, 1\]"),
        (lambda: judges.prompt_uniforms((2, 3), np.random.default_rng(0), 1.5), "sum <= 1"),
        (lambda: judges.prompt_uniforms((2, 3), np.random.default_rng(0), cluster_corr=0.5), "cluster code"),
        (lambda: judges.report(0.5, "stars"), "there are: twentieths"),
        (lambda: judges.garble(0.5, -1), r"0\.\.30"),
        (lambda: judges.draw_levels(np.zeros((1, 2)), [[0.5, 0.6]]), "sum to 1"),
        (lambda: judges.shifted_mean(judges.oracle_mean, "mean", 0.9, 3.0, 2.0), "out of"),
        (lambda: judges.shifted_mean(judges.oracle_mean, "odd", 0.1, 3.0, 2.0), "there are: none"),
    ],
)
def test_bad_parameters_say_what_is_allowed(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
