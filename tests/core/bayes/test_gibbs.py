"""Basis, judge levels and Gibbs sampler against integrals, definitions and importance sampling."""

import numpy as np
import oracles_bayes
import pytest
from scipy import stats

from cje_core.bayes import gibbs
from cje_core.bayes.gibbs import sample, truncated_normal
from cje_core.bayes.levels import Levels, design_effect, grade
from cje_core.bayes.prior import Prior
from cje_core.bayes.splines import isplines
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_sim.scenarios import binary_oracle, discrete_judge, equal_policies, well_specified

ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors


def graded(data, **options):
    rows = unpack(data)
    fitted = fit_slice(rows, direction=options.pop("direction", "increasing"), calibrator="monotone")
    scales = {name: tuple(data.attrs[name]) for name in ("judge_range", "oracle_range")}
    return rows, fitted, grade(rows, fitted, **scales, **options)


# --- basis ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_splines", [2, 5, 8])
def test_isplines_integrate_msplines(n_splines):
    x = np.linspace(0, 1, 23)
    expected = oracles_bayes.isplines_by_integration(x, n_splines, 2)
    # midpoint rule with 20,000 cells: second order inside, first order (one cell of a density below 20) at a jump
    np.testing.assert_allclose(isplines(x, n_splines), expected, atol=20 / 20000)


def test_isplines_rise_from_0_to_1():
    x = np.linspace(0, 1, 301)
    basis = isplines(x, 8)
    assert basis.shape == (301, 8)
    np.testing.assert_allclose(basis[[0, -1]], [[0] * 8, [1] * 8], atol=1e-12)
    assert (np.diff(basis, axis=0) >= -1e-12).all()
    assert np.linalg.matrix_rank(np.column_stack([np.ones(301), basis])) == 9


def test_isplines_stop_at_points_off_the_scale():
    for bad in ([1.2], [-0.1], [np.nan], [[0.5]]):
        with pytest.raises(ValueError, match="map the scale"):
            isplines(bad)
    with pytest.raises(ValueError, match="n_splines"):
        isplines([0.5], 1)


# --- judge levels -----------------------------------------------------------------------------------------------------


def small(**options):
    return from_arrays(
        [[2.0, 4.0, 4.0, 10.0, 6.0], [4.0, 4.0, 8.0, np.nan, 6.0]],
        policies=["a", "b"],
        oracle=[[1.0, 3.0, 2.0, 5.0, np.nan], [np.nan] * 5],
        judge_range=(0, 10),
        oracle_range=(1, 5),
        **options,
    )


@pytest.mark.parametrize("direction", ["increasing", "decreasing"])
def test_levels_are_counts_and_sums(direction):
    rows, _, found = graded(small(), direction=direction)
    sign = 1 if direction == "increasing" else -1
    level = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(found.levels.level, level if sign == 1 else np.sort(1 - level), atol=1e-15)
    np.testing.assert_allclose(found.levels.n, np.array([1, 2, 0, 0, 1])[::sign])
    np.testing.assert_allclose(found.levels.total, np.array([0, 0.75, 0, 0, 1])[::sign])
    assert found.levels.squares == pytest.approx(0.5**2 + 0.25**2 + 1)
    assert not found.levels.binary
    unit = rows.score / 10 if sign == 1 else 1 - rows.score / 10
    np.testing.assert_allclose(found.levels.level[found.at], unit)
    assert (found.levels.low, found.levels.width) == (1, 4)


def test_known_propensities_leave_the_counts():
    """P(label) depends on the score alone, so E[Y | S] is learned from plain counts."""
    prob = np.full((2, 5), 0.25)
    prob[0, :2] = 0.5
    np.testing.assert_array_equal(graded(small(label_prob=prob))[2].levels.n, graded(small())[2].levels.n)


def test_a_continuous_judge_is_binned():
    rng = np.random.default_rng(0)
    score = rng.uniform(size=(1, 500))
    data = from_arrays(score, policies=["a"], oracle=np.where(np.arange(500) < 40, score, np.nan))
    rows, _, found = graded(data)
    assert len(found.levels.level) <= 64
    assert found.levels.n.sum() == pytest.approx(40)
    assert np.abs(found.levels.level[found.at] - rows.score).max() <= 0.5 / 64 + 1e-12
    assert len(graded(data, max_levels=1000)[2].levels.level) == 500


def test_copies_inside_a_cluster_add_no_labels():
    """With every label there twice in its cluster, the design effect is 2 and the counts are those of one copy."""
    rng = np.random.default_rng(1)
    score = rng.choice([0.2, 0.5, 0.9], (1, 60))
    label = np.clip(score + rng.normal(0, 0.2, (1, 60)), 0, 1)
    single = from_arrays(score, policies=["a"], oracle=label)
    double = from_arrays(
        np.tile(score, 2), policies=["a"], oracle=np.tile(label, 2), cluster=np.tile(np.arange(60), 2)
    )
    rows, fitted, found = graded(double)
    assert design_effect(fitted, rows.cluster) == pytest.approx(2)
    expected = graded(single)[2].levels
    np.testing.assert_allclose(found.levels.n, expected.n)
    np.testing.assert_allclose(found.levels.total, expected.total)
    assert found.levels.squares == pytest.approx(expected.squares)
    rows, fitted, _ = graded(single)
    assert design_effect(fitted, rows.cluster) == 1


# --- truncated normal -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"),
    [(-1, 1), (-np.inf, np.inf), (-3, 9), (0.5, 0.6), (0.5, np.inf), (2, 5), (8, 8.01), (8, 30), (-30, -8),
     (-1.5, -0.2), (300, np.inf), (-1e5, -300), (0, 4), (-0.3, 2.1)],
)  # fmt: skip
def test_truncated_normal(low, high):
    rng = np.random.default_rng(7)
    n = 20_000
    draws = np.array([truncated_normal(rng, float(low), float(high)) for _ in range(n)])
    assert ((draws >= low) & (draws <= high)).all()
    # log survival functions reach into the far tails, where scipy's truncnorm.cdf rounds
    flip = high <= 0
    a, b, x = (-high, -low, -draws) if flip else (low, high, draws)
    log_sf = stats.norm.logsf
    tail = np.expm1(log_sf(x) - log_sf(a)) / np.expm1(log_sf(b) - log_sf(a))
    ratio = tail if a > 0 else stats.truncnorm.cdf(x, a, b)
    assert stats.kstest(ratio, "uniform").pvalue > ALPHA


def test_truncated_normal_of_no_width():
    rng = np.random.default_rng(0)
    for point in (-3.0, 0.0, 2.0):
        assert truncated_normal(rng, point, point) == point


# --- posterior --------------------------------------------------------------------------------------------------------

TINY = {
    "normal": Levels(
        np.array([0.1, 0.5, 0.9]), np.array([3.0, 5.0, 2.0]), np.array([0.6, 2.7, 1.6]), 3.6, False, 0.0, 1.0
    ),
    "two levels": Levels(np.array([0.3, 0.8]), np.array([4.0, 3.0]), np.array([1.9, 1.1]), 1.7, False, 0.0, 1.0),
    "bernoulli": Levels(
        np.array([0.1, 0.5, 0.9]), np.array([4.0, 6.0, 5.0]), np.array([0.0, 4.0, 5.0]), 9.0, True, 0.0, 1.0
    ),
    "tempered": Levels(np.array([0.3, 0.8]), np.array([2.5, 4.5]), np.array([1.5, 2.5]), 4.0, True, 0.0, 1.0),
    "unseen level": Levels(
        np.array([0.0, 0.4, 1.0]), np.array([5.0, 0.0, 4.0]), np.array([1.0, 0.0, 3.2]), 3.1, False, 0.0, 1.0
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prior"),
    [(name, Prior(n_splines=2)) for name in TINY]
    + [("normal", Prior(0.5, n_splines=2, flat=0.9)), ("bernoulli", Prior(2.5, n_splines=3, flat=0.2))],
)
def test_posterior_against_importance_sampling(name, prior):
    levels = TINY[name]
    found = sample(levels, n_draws=20_000, prior=prior, rng=3)
    chains = found.f if levels.binary else np.column_stack([found.f, found.sigma])
    mean, sd, error, sd_error = oracles_bayes.posterior_by_importance(levels, prior)
    for k in range(chains.shape[1]):
        x = chains[:, k]
        mcse = x.std() / np.sqrt(oracles_bayes.effective_draws(x))
        assert abs(x.mean() - mean[k]) < 5 * np.hypot(mcse, error[k]), (k, x.mean(), mean[k])
        if k < len(levels.level) or not levels.binary:
            squared = (x - x.mean()) ** 2
            spread = squared.std() / np.sqrt(oracles_bayes.effective_draws(squared)) / (2 * x.std())
            assert abs(x.std() - sd[k]) < 5 * np.hypot(spread, sd_error[k]), (k, x.std(), sd[k])


@pytest.mark.parametrize("name", ["normal", "bernoulli"])
def test_without_labels_the_posterior_is_the_prior(name):
    """Moments of both ends, of the rise and of the shape, against draws of the prior by its definition."""
    empty = TINY[name]._replace(n=np.zeros(3), total=np.zeros(3), squares=0.0)
    for prior in (Prior(n_splines=3), Prior(3.0, n_splines=3, flat=0.8)):
        found = sample(empty, n_draws=8000, prior=prior, rng=5)
        ends, shape = oracles_bayes.prior_by_loop(
            40_000, 3, np.random.default_rng(1), concentration=prior.concentration, flat=prior.flat
        )
        for ours, exact in ((found.ends, ends), (found.shape, shape), (np.diff(found.ends), np.diff(ends))):
            for k in range(exact.shape[1]):
                for x, y in ((ours[:, k], exact[:, k]), (ours[:, k] ** 2, exact[:, k] ** 2)):
                    error = y.std() * np.sqrt(1 / oracles_bayes.effective_draws(x) + 1 / len(y))
                    assert abs(x.mean() - y.mean()) < 5 * error, (prior, k)


def simulated(kind, seed, m):
    module = {"continuous": well_specified, "discrete": discrete_judge, "binary": binary_oracle}[kind]
    return graded(module.simulate(n=500, oracle_fraction=m / 500, label_design="base", rng=seed))[2].levels


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["continuous", "discrete", "binary"])
def test_chains_agree(kind):
    """R-hat below 1.01 for f at every level and sigma, at the default warm-up and thinning, on a dozen data sets."""
    for seed, m in enumerate([20, 50, 100, 250]):
        levels = simulated(kind, seed, m)
        chains = [sample(levels, n_draws=2000, rng=10 + c) for c in range(4)]
        f = np.stack([c.f for c in chains])
        worst = max(oracles_bayes.rhat(f[:, :, k]) for k in range(f.shape[2]))
        assert worst < 1.01, (m, worst)
        if not levels.binary:
            assert oracles_bayes.rhat(np.stack([c.sigma for c in chains])) < 1.01


# What an analysis prints is of 2,000 draws. Before increments moved against the ends, 2,000 draws of f had as few as 74
# effective ones (dip, 250 labels), of a mean of f 284 (equal, 250 labels).
MIXING = {
    "dip": (well_specified, {"link": "dip", "label_design": "own"}),
    "few levels of many labels": (discrete_judge, {"label_design": "own"}),
    "uninformative": (equal_policies, {"label_design": "base"}),
    "borrowed": (well_specified, {"label_design": "base"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MIXING))
def test_an_analysis_has_400_effective_draws(name):
    """Of the mean of f under each policy, of their differences, and of f at every level; 20,000 draws tell it to 5%."""
    module, options = MIXING[name]
    rows, _, found = graded(module.simulate(n=1000, oracle_fraction=0.25, rng=7, **options))
    draws = sample(found.levels, n_draws=20_000, rng=1)
    value = [draws.f[:, found.at[rows.evaluated & (rows.policy == p)]].mean(axis=1) for p in range(3)]
    columns = np.column_stack([*value, value[0] - value[1], value[0] - value[2], draws.f, draws.sigma])
    fewest = min(oracles_bayes.effective_draws(x) for x in columns.T) / 10
    print(f"{fewest:.0f} effective draws of 2,000")
    assert fewest > 400


@pytest.mark.slow
@pytest.mark.parametrize("m", [50, 250])
@pytest.mark.parametrize("module", [well_specified, discrete_judge, equal_policies, binary_oracle])
def test_every_parameter_of_the_calibrator_has_400_effective_draws(module, m):
    """Of 2,000 draws. They were 58 to 250 before increments moved against the ends, in all but binary labels."""
    levels = graded(module.simulate(n=1000, oracle_fraction=m / 1000, label_design="base", rng=8))[2].levels
    draws = sample(levels, n_draws=20_000, rng=1)
    noise = () if levels.binary else (draws.sigma,)
    columns = np.column_stack([draws.f, draws.ends, draws.shape, *noise])
    fewest = min(oracles_bayes.effective_draws(x) for x in columns.T) / 10
    print(f"{fewest:.0f} effective draws of 2,000")
    assert fewest > 400


def test_draws_are_monotone_and_inside():
    for kind in ("continuous", "discrete", "binary"):
        found = sample(simulated(kind, 0, 50), n_draws=200, rng=1)
        rise = np.sign(np.diff(found.ends))
        assert (rise * np.diff(found.f, axis=1) >= -1e-12).all()
        assert (found.f >= -1e-12).all() and (found.f <= 1 + 1e-12).all()
        assert (found.shape >= 0).all() and (found.ends >= 0).all() and (found.ends <= 1).all()
        np.testing.assert_allclose(found.shape.sum(axis=1), 1, rtol=1e-12)
        assert np.isnan(found.sigma).all() if kind == "binary" else (found.sigma > 0).all()


def test_deterministic():
    levels = simulated("discrete", 0, 50)
    first, again = sample(levels, n_draws=50, rng=3), sample(levels, n_draws=50, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(first.f, again.f)
    assert not np.array_equal(first.f, sample(levels, n_draws=50, rng=4).f)


def test_many_equal_labels_do_not_underflow():
    """Runs of terms with equal counts: 200 misses at a level where f is nearly 0."""
    levels = Levels(np.linspace(0, 1, 50), np.full(50, 4.0), np.zeros(50), 0.0, True, 0.0, 1.0)
    found = sample(levels, n_draws=300, rng=0)
    assert np.isfinite(found.f).all()
    assert found.f.mean() < 3 / 200  # 200 misses and no hit; a constant would have 1 / 202


def test_options_out_of_range():
    levels = TINY["normal"]
    for bad in ({"n_draws": 0}, {"thin": 0}, {"n_warmup": -1}):
        with pytest.raises(ValueError, match="n_draws"):
            sample(levels, **bad)
    for prior in (Prior(concentration=0.0), Prior(scale=0.0)):
        with pytest.raises(ValueError, match="positive"):
            sample(levels, prior=prior)
    for prior in (Prior(flat=0.0), Prior(atom=1.0)):
        with pytest.raises(ValueError, match=r"flat must lie in \(0, 1\]"):
            sample(levels, prior=prior)


def test_runs_of_terms_hold_all_labels():
    levels = TINY["bernoulli"]
    basis, hit, count, end = gibbs._binary_terms(isplines(levels.level, 2), levels)
    width = np.diff(np.concatenate([[0], end]))
    assert (count * width).sum() == levels.n.sum()
    assert basis.shape == (2, width.sum()) and hit.shape == (width.sum(),)
