"""The prior of the calibrator against quadrature and its definition, and the probability of a flat one."""

import numpy as np
import oracles_bayes
import pytest
from scipy import stats

from cje_core.bayes import flat, gibbs, prior
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.prior import Prior

N = 40_000


def probability(region, flat_share, size, cells=20_000):
    """Mass of a region of r = b - a, by the midpoint rule: a has a length of 1 - |r| to lie in."""
    r = (np.arange(cells) + 0.5) / cells * 2 - 1
    density = flat_share + (1 - flat_share) * size * (size + 1) * np.maximum(r, 0) ** (size - 1)
    return ((1 - np.abs(r)) * density * region(r)).sum() * 2 / cells


@pytest.mark.parametrize("setting", [Prior(), Prior(flat=0.2, n_splines=4)])
def test_ends_have_their_density(setting):
    rise = np.diff(prior.draw(setting, N, np.random.default_rng(1))[0])[:, 0]
    for region in (lambda r: abs(r) < 0.2, lambda r: r < 0, lambda r: r > 0.8, lambda r: r < 2):
        exact = probability(region, setting.flat, setting.n_splines)
        assert abs(region(rise).mean() - exact) <= 5 * np.sqrt(abs(exact * (1 - exact)) / N) + 1e-6
    if setting == Prior():  # the figures of the module's docstring: a flat or falling judge is no curiosity
        assert probability(lambda r: abs(r) < 0.2, 0.5, 8) == pytest.approx(0.18, abs=0.005)
        assert probability(lambda r: r < 0, 0.5, 8) == pytest.approx(0.25, abs=0.005)
        assert probability(lambda r: abs(r) < 0.2, 0.0, 8) == pytest.approx(2e-5, rel=0.1)
    assert prior.ends_density(-0.3, 8, 0.5) == 0.5
    assert prior.ends_density(0.5, 8, 0.5) == pytest.approx(0.5 + 36 * 0.5**7)


def test_shapes_are_the_mixture():
    components = oracles_bayes.shape_mixture(8, 1.5)
    table, _ = prior.shapes(8, 1.5)
    np.testing.assert_allclose(table, [a for _, a in components])
    u = stats.dirichlet.rvs(np.full(8, 0.7), size=20, random_state=2)
    exact = [np.log(sum(mass * stats.dirichlet.pdf(x, a) for mass, a in components)) for x in u]
    np.testing.assert_allclose(prior.log_shape_density(u, Prior(1.5)), exact)
    drawn = prior.draw_shapes(Prior(1.5), N, np.random.default_rng(3))
    np.testing.assert_allclose(drawn.sum(axis=1), 1)
    mean = sum(mass * a / a.sum() for mass, a in components)
    second = sum(mass * a * (a + 1) / a.sum() / (a.sum() + 1) for mass, a in components)
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * drawn.std(axis=0) / np.sqrt(N)).all()
    assert (np.abs((drawn**2).mean(axis=0) - second) < 5 * (drawn**2).std(axis=0) / np.sqrt(N)).all()


@pytest.mark.parametrize(("first", "second"), [(0.05, 0.05), (0.05, 2.0), (1.0, 3.0), (0.8, 0.7)])
def test_splits_are_beta(first, second):
    """Both parts, each by its smaller half: what is next to nothing has a size too, which the prior of weights sees."""
    rng = np.random.default_rng(4)
    parts = np.array([prior.beta_split(rng, 2.0, first, second) for _ in range(4000)]).T / 2
    np.testing.assert_allclose(parts.sum(axis=0), 1)
    for part, law in zip(parts, (stats.beta(first, second), stats.beta(second, first)), strict=True):
        small = part < 0.5
        assert abs(small.mean() - law.cdf(0.5)) < 5 * 0.5 / np.sqrt(4000)
        assert stats.kstest(law.cdf(part[small]) / law.cdf(0.5), "uniform").pvalue > 2 * stats.norm.sf(5)


def seen(name):
    rng = np.random.default_rng(5)
    level = np.array([0.1, 0.5, 0.9])
    n = np.array([6.0, 9.0, 5.0])
    if name == "hits":
        return Levels(level, n, np.array([3.0, 5.0, 3.0]), 11.0, True, 0.0, 1.0)
    y = [0.5 + 0.15 * rng.standard_normal(int(k)) + (0.25 if name == "steep" else 0.05) * s
         for k, s in zip(n, level, strict=True)]  # fmt: skip
    total = np.array([one.sum() for one in y])
    return Levels(level, n, total, float(sum((one**2).sum() for one in y)), False, 0.0, 1.0)


def as_graded(levels):
    return Graded(levels, np.zeros(0, np.intp), np.zeros(0))


@pytest.mark.parametrize("name", ["hits", "flat", "steep"])
def test_probability_of_a_flat_judge_is_bayes_theorem(name):
    levels, setting = seen(name), Prior(n_splines=3, atom=0.3)
    draws = gibbs.sample(levels, n_draws=20_000, prior=setting, rng=1)
    found = flat.probability(None, as_graded(levels), draws, setting)
    exact, error = oracles_bayes.probability_of_flat(levels, atom=0.3, n_splines=3)
    # a mean over 100 draws of the conditional density, whose coefficient of variation is below 1
    assert abs(np.log(found / (1 - found)) - np.log(exact / (1 - exact))) < 5 * np.hypot(error, 0.1), (
        found,
        exact,
    )
    assert flat.probability(None, as_graded(levels), draws, setting._replace(atom=0.0)) == 0.0


@pytest.mark.parametrize("name", ["hits", "flat"])
def test_flat_draws_have_the_posterior_of_a_constant(name):
    levels = seen(name)
    found = flat.sample(None, as_graded(levels), n_draws=4000, prior=Prior(), rng=np.random.default_rng(6))
    grid = (np.arange(2000) + 0.5) / 2000
    if levels.binary:
        density = stats.beta(1 + 11, 1 + 9).pdf(grid)
    else:
        rest = levels.squares - 2 * grid * levels.total.sum() + grid**2 * levels.n.sum()
        sigma = np.exp(np.linspace(np.log(0.01), np.log(2), 400))
        log = (1 - levels.n.sum()) * np.log(sigma) - rest[:, None] / (2 * sigma**2) - sigma**2 / (2 * 0.3**2)
        density = np.exp(log - log.max()).sum(axis=1)
    cdf = np.cumsum(density) / density.sum()
    assert (np.ptp(found.f, axis=1) == 0).all() and (found.ends == found.f[:, :1]).all()
    thinned = found.f[::4, 0]  # neighbours lean on each other through sigma
    assert stats.kstest(np.interp(thinned, grid, cdf), "uniform").pvalue > 2 * stats.norm.sf(5)


def test_a_steep_curve_is_not_flat_and_nothing_is_mixed_in():
    levels = seen("steep")._replace(total=np.array([0.6, 4.5, 4.5]), squares=6.6)
    draws = gibbs.sample(levels, n_draws=500, rng=1)
    mixed = flat.mix(None, as_graded(levels), draws, prior=Prior(), rng=np.random.default_rng(1))
    assert mixed.flat < 0.01 and (mixed.f != draws.f).any(axis=1).mean() < 0.05
