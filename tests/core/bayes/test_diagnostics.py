"""Bands by exact enumeration and simulation, PIT with planted misfits, power scaling against refits."""

import numpy as np
import oracles_bayes
import oracles_bayes_models as oracles
import pytest
from scipy import stats

from cje_core.bayes import gibbs
from cje_core.bayes.diagnostics import power_scaling, predictive
from cje_core.bayes.gibbs import Draws, Prior
from cje_core.bayes.levels import Levels

LEVEL = np.round(np.linspace(0.05, 1.0, 12), 2)


def labels(rng, m=300, *, binary=False, noise=0.1, f=None):
    """Labels on judge levels and their sufficient statistics."""
    at = rng.integers(len(LEVEL), size=m)
    mean = (0.2 + 0.6 * LEVEL if f is None else f)[at]
    y = rng.binomial(1, mean).astype(float) if binary else mean + noise * rng.standard_normal(m)
    return at, y, summed(at, y, binary)


def summed(at, y, binary=False):
    n = np.bincount(at, minlength=len(LEVEL)).astype(float)
    total = np.bincount(at, weights=y, minlength=len(LEVEL))
    return Levels(LEVEL, n, total, float(y @ y), binary, 0.0, 1.0)


def test_band_coverage_is_exact_by_enumeration():
    """Two uniforms and three cells: nine equally likely placements."""
    point = np.array([1 / 3, 2 / 3])
    for lower, upper in (((0, 1), (1, 2)), ((0, 0), (0, 2)), ((1, 1), (1, 1)), ((0, 0), (2, 2))):
        inside = 0
        for a in range(3):
            for b in range(3):
                counts = [(a <= k) + (b <= k) for k in range(2)]
                inside += all(lo <= c <= hi for lo, c, hi in zip(lower, counts, upper, strict=True))
        found = predictive.band_coverage(np.array(lower), np.array(upper), point, 2)
        assert found == pytest.approx(inside / 9, abs=1e-12)


@pytest.mark.parametrize(("n", "n_points"), [(30, 20), (250, 100)])
def test_band_covers_as_often_as_it_says(n, n_points):
    band = predictive.ecdf_band(n, 0.9, n_points)
    assert 0.9 <= band.attrs["coverage"] < 0.93  # the rest is discreteness
    n_sets = 4000
    seen = oracles.uniform_ecdfs(n, band["point"].values, n_sets, np.random.default_rng(1))
    inside = ((seen >= band["lower"].values) & (seen <= band["upper"].values)).all(axis=1).sum()
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], n_sets, band.attrs["coverage"])
    assert low <= inside <= high
    pointwise = predictive.ecdf_band(n, 1 - (1 - 0.9) / 1000, n_points)
    assert (pointwise["upper"].values >= band["upper"].values).all()


def test_ecdf_leaves_the_band_when_values_are_not_uniform():
    rng = np.random.default_rng(2)
    assert predictive.ecdf(rng.random(400))["ecdf"].attrs == {}
    assert predictive.ecdf(rng.random(400)).attrs["inside"] == 1
    assert predictive.ecdf(rng.beta(1.4, 1.4, 400)).attrs["inside"] == 0


@pytest.mark.parametrize("arguments", [(0, 0.9, 10), (10, 1.0, 10), (10, 0.9, 1)])
def test_ecdf_band_says_what_it_needs(arguments):
    with pytest.raises(ValueError, match="need n >= 1"):
        predictive.ecdf_band(*arguments)


@pytest.mark.parametrize("binary", [False, True])
def test_pit_of_a_true_model_is_inside_and_of_wrong_draws_is_not(binary):
    rng = np.random.default_rng(3)
    at, y, levels = labels(rng, 600, binary=binary)
    draws = gibbs.sample(levels, n_draws=800, rng=4)
    assert predictive.ecdf(predictive.pit(levels, at, y, draws, rng=5), prob=0.99).attrs["inside"] == 1
    low = np.clip(draws.f - 0.25, 0.01, 0.99)
    wrong = draws._replace(f=low) if binary else draws._replace(sigma=2.0 * draws.sigma)
    assert predictive.ecdf(predictive.pit(levels, at, y, wrong, rng=5), prob=0.99).attrs["inside"] == 0


@pytest.mark.slow
def test_pit_leaves_the_label_out():
    """Importance weights against a refit without the label."""
    rng = np.random.default_rng(6)
    at, y, _ = labels(rng, 25, noise=0.15)
    i = int(np.argmax(np.abs(y - 0.2 - 0.6 * LEVEL[at])))
    keep = np.arange(25) != i
    draws = gibbs.sample(summed(at, y), n_draws=20_000, rng=7)
    refit = gibbs.sample(summed(at[keep], y[keep]), n_draws=20_000, rng=8)
    exact = stats.norm.cdf((y[i] - refit.f[:, at[i]]) / refit.sigma).mean()
    loo = predictive.pit(summed(at, y), at, y, draws)[i]
    both = predictive.pit(summed(at, y), at, y, draws, leave_one_out=False)[i]
    assert loo == pytest.approx(exact, abs=0.01)
    assert abs(both - exact) > 0.01
    assert abs(loo - 0.5) > abs(both - 0.5)


def test_prior_draws_and_curves():
    levels = labels(np.random.default_rng(9))[2]._replace(low=2.0, width=10.0)
    draws = predictive.prior_draws(levels, n_draws=20_000, prior=Prior(2.0, 0.4, 5), rng=1)
    assert draws.shape.shape == (20_000, 5) and draws.ends.shape == (20_000, 2)
    assert (np.sign(np.diff(draws.ends)) * np.diff(draws.f, axis=1) >= -1e-12).all()
    # turned round, the prior is itself: f(0) and 1 - f(1) have one law, and f is 1/2 in the middle of the scale
    assert abs(draws.ends.mean() - 0.5) < 5 * draws.ends.mean(axis=1).std() / np.sqrt(20_000)
    scale = stats.halfnorm(scale=0.4)
    assert abs(draws.sigma.mean() - scale.mean()) < 5 * scale.std() / np.sqrt(20_000)
    found = predictive.curves(levels, draws, ci_prob=0.5)
    np.testing.assert_allclose(found["mean"], 2.0 + 10.0 * draws.f.mean(axis=0))
    share = (
        (2 + 10 * draws.f >= found["interval"].values[:, 0])
        & (2 + 10 * draws.f <= found["interval"].values[:, 1])
    ).mean(axis=0)
    np.testing.assert_allclose(share, 0.5, atol=1e-3)
    np.testing.assert_allclose(found["label_mean"], 2.0 + 10.0 * levels.total / levels.n)
    assert np.isnan(predictive.prior_draws(levels._replace(binary=True), n_draws=3, rng=1).sigma).all()


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_predictive_check_finds_a_planted_misfit(binary):
    rng = np.random.default_rng(10)
    at, y, levels = labels(rng, 300, binary=binary)
    draws = gibbs.sample(levels, n_draws=1000, rng=11)
    found = predictive.predictive_check(levels, at, y, draws, rng=12)
    p = found["p_value"]
    assert ((p > 0.005) & (p < 0.995)).all()
    assert found["observed"].sel({"statistic": "mean"}) == pytest.approx(y.mean())
    wrong = draws._replace(f=np.clip(draws.f - 0.15, 0, 1), sigma=2 * draws.sigma)
    p = predictive.predictive_check(levels, at, y, wrong, rng=12)["p_value"]
    assert p.sel({"statistic": "mean"}) < 0.005
    if not binary:
        assert p.sel({"statistic": "sd"}) > 0.995


def test_predictive_check_of_equal_labels_has_no_rank_correlation():
    at = np.array([0, 1, 2, 3])
    y = np.full(4, 0.5)
    levels = summed(at, y)
    found = predictive.predictive_check(
        levels, at, y, predictive.prior_draws(levels, n_draws=50, rng=1), rng=2
    )
    assert np.isnan(found["p_value"].sel({"statistic": "rank_correlation"}))
    assert np.isfinite(found["p_value"].sel({"statistic": "mean"}))


@pytest.mark.parametrize("seed", [1, 2])
def test_jensen_shannon_is_the_integral(seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(40)
    first, second = rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(40))
    exact = oracles.jensen_shannon(values, first, second)
    assert power_scaling.jensen_shannon(values, first, second) == pytest.approx(exact, abs=1e-3)
    assert power_scaling.jensen_shannon(3 * values - 7, first, second) == pytest.approx(exact, abs=1e-3)
    assert power_scaling.jensen_shannon(np.ones(3), first[:3], second[:3]) == 0.0


def test_the_prior_s_density_is_that_of_the_definition():
    """In log odds and log ratios, up to one constant; and powers of it move sigma as they should."""
    levels = labels(np.random.default_rng(13))[2]
    prior, alpha = Prior(1.5, 0.3, 4, flat=0.3), 1.2
    draws = predictive.prior_draws(levels, n_draws=50_000, prior=prior, rng=14)
    log = power_scaling.log_prior(draws, prior)
    some = np.flatnonzero((draws.shape[:200] > 1e-9).all(axis=1))
    exact = oracles_bayes.log_prior(
        draws.ends[some], draws.shape[some], draws.sigma[some], concentration=1.5, flat=0.3, scale=0.3
    )
    np.testing.assert_allclose(log[some] - log[some[0]], exact - exact[0], atol=1e-8)
    # sigma^2 under exp(-alpha s^2 / (2 scale^2)) is that of scale / sqrt(alpha), whatever the rest does
    weight = np.exp((alpha - 1) * log - ((alpha - 1) * log).max())
    weight /= weight.sum()
    n_eff = 1 / (weight**2).sum()
    assert weight @ draws.sigma**2 == pytest.approx(0.09 / alpha, abs=5 * 0.09 * np.sqrt(2 / n_eff))


@pytest.mark.slow
def test_power_scaling_is_the_derivative_of_the_posterior():
    """Against refits by importance sampling from the prior: its power, and alpha-fold counts for the likelihood's."""
    levels = Levels(np.array([0.2, 0.8]), np.array([8.0, 9.0]), np.array([1.0, 8.0]), 9.0, True, 0.0, 1.0)
    prior, step, share = Prior(n_splines=2), 1.05, np.array([0.7, 0.3])
    draws = gibbs.sample(levels, n_draws=100_000, prior=prior, rng=16)
    found = power_scaling.power_scaling(draws, levels, {"V": draws.f @ share}, prior=prior)

    def refit(component, power, seed):
        scaled = levels._replace(n=power * levels.n, total=power * levels.total)
        data, of_prior = (levels, power) if component == "prior" else (scaled, 1.0)
        found = oracles_bayes.posterior_by_importance(data, prior, n=20_000, seed=seed, power=of_prior)
        return found[0] @ share

    moved = (draws.f - draws.f.mean(axis=0)) @ share
    for component, log_density in (
        ("prior", power_scaling.log_prior(draws, prior)),
        ("likelihood", power_scaling.log_likelihood(draws, levels)),
    ):
        # the same prior draws on both sides of each difference
        slopes = [
            (refit(component, step, k) - refit(component, 1 / step, k)) / (2 * np.log2(step))
            for k in range(16)
        ]
        got = float(found["mean_slope"].sel({"component": component, "quantity": "V"}))
        # the slope is a covariance of the draws, whose error is that of the means of 40 stretches
        of_draw = np.log(2) * moved * (log_density - log_density.mean())
        noise = np.hypot(stats.sem(of_draw.reshape(40, -1).mean(axis=1)), stats.sem(slopes))
        assert abs(got - np.mean(slopes)) < 5 * noise, (component, got, np.mean(slopes), noise)
        assert 5 * noise < 0.3 * abs(got)  # a slope that is a third too steep is seen


def test_power_scaling_diagnoses():
    rng = np.random.default_rng(19)
    _, _, levels = labels(rng, 25, noise=0.1, f=np.where(LEVEL > 0.9, 0.9, 0.02))
    stiff, loose = Prior(20.0), Prior(1.0)
    diagnosis = {}
    for name, data, prior in (
        ("conflict", levels, stiff),
        ("ok", labels(rng, 1000, noise=0.1)[2], loose),
    ):
        draws = gibbs.sample(data, n_draws=4000, prior=prior, rng=20)
        found = power_scaling.power_scaling(
            draws, data, {"f": draws.f[:, 6], "lost": np.full(4000, np.nan)}, prior=prior
        )
        diagnosis[name] = found["diagnosis"].values.tolist()
    assert diagnosis["conflict"] == ["prior-data conflict", "not estimated"]
    assert diagnosis["ok"] == ["ok", "not estimated"]
    few = levels._replace(n=levels.n * 0, total=levels.total * 0, squares=0.0)
    draws = predictive.prior_draws(few, n_draws=4000, prior=stiff, rng=21)
    found = power_scaling.power_scaling(draws, few, {"f": draws.f[:, 2]}, prior=stiff)
    assert found["diagnosis"].values.tolist() == ["strong prior or weak likelihood"]


def test_power_scaling_refuses_what_it_cannot_read():
    levels = labels(np.random.default_rng(1))[2]
    draws = Draws(np.zeros((5, 12)), np.full((5, 2), 0.5), np.full((5, 8), 0.125), np.ones(5), {})
    with pytest.raises(ValueError, match="above 1"):
        power_scaling.power_scaling(draws, levels, {}, alpha=1.0)
    with pytest.raises(ValueError, match="one number for each of 5 draws"):
        power_scaling.power_scaling(draws, levels, {"V": np.zeros(4)})


def test_figures_show_what_they_are_given():
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from cje_core.figures import bayes as figures

    rng = np.random.default_rng(22)
    at, y, levels = labels(rng, 100)
    draws = gibbs.sample(levels, n_draws=200, rng=23)
    posterior = predictive.curves(levels, draws)
    axes = figures.calibration_posterior(posterior)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), posterior["mean"])
    assert "100 labels on 12 of 12" in axes.get_title(loc="left")
    np.testing.assert_allclose(axes.collections[1].get_offsets()[:, 1], levels.total / levels.n)
    axes = figures.prior_predictive(
        predictive.curves(levels, predictive.prior_draws(levels, n_draws=100, rng=1))
    )
    assert len(axes.lines) == 21
    found = predictive.ecdf(predictive.pit(levels, at, y, draws))
    axes = figures.pit_ecdf(found)
    assert "n = 100: inside the simultaneous 95% band" in axes.get_title(loc="left")
    axes = figures.pit_ecdf(predictive.ecdf(rng.random(100) ** 3), ax=axes)
    assert "leaves" in axes.get_title(loc="left")
    plt.close("all")
