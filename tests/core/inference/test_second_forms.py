"""Small formulas of inference against libraries and loops: unequal weights, clusters of unequal size, ties."""

import numpy as np
import oracles_borrowed
import oracles_peers
import oracles_uncertainty as slow
import oracles_weights
import pytest
import statsmodels.api as sm
from scipy import stats

from cje_core.families.off_policy.residual_tails import variance_df
from cje_core.inference.influence import (
    acceleration,
    combine,
    effective_clusters,
    kish_ess,
    mean_over,
    pooled_df,
    pooled_df_of_one,
)
from cje_core.inference.limits import error_skewness
from cje_core.inference.sums import cluster_se, cluster_sums


def rows_of(seed, n=40):
    """Prompts in clusters of unequal size, up to three rows each, some prompts without; values with ties."""
    rng = np.random.default_rng(seed)
    cluster = np.sort(rng.integers(0, 13, n))
    cluster = np.unique(cluster, return_inverse=True)[1]
    unit = np.repeat(np.arange(n), rng.integers(0, 4, n))
    return unit, rng.uniform(0.2, 3.0, len(unit)), cluster, rng.integers(0, 5, len(unit)) / 4


@pytest.mark.parametrize("seed", range(5))
def test_a_weighted_mean_and_its_error_are_weighted_least_squares(seed):
    unit, weight, cluster, values = rows_of(seed)
    mean, part = mean_over(unit, weight, cluster).part(values)
    fit = sm.WLS(values, np.ones(len(values)), weights=weight).fit(
        cov_type="cluster", cov_kwds={"groups": cluster[unit], "use_correction": False}
    )
    effective = oracles_borrowed.effective(np.bincount(cluster[unit], weight))
    np.testing.assert_allclose(mean, fit.params[0], rtol=1e-12)
    error = cluster_se(part.influence, cluster)
    np.testing.assert_allclose(error, fit.bse[0] * np.sqrt(effective / (effective - 1)), rtol=1e-9)
    np.testing.assert_allclose(part.df, effective - 1, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_sources_of_error_add_as_their_sums_by_cluster(seed):
    """Two means over some rows and all of them, which share clusters."""
    unit, weight, cluster, values = rows_of(seed)
    some = np.random.default_rng(seed).random(len(unit)) < 0.5
    chosen = [np.full(len(unit), True), some]
    parts = [mean_over(unit[c], weight[c], cluster).part(values[c])[1] for c in chosen]
    influence, error, df = combine(parts, cluster)
    sources = []
    for c in chosen:
        rows = [{"cluster": g} for g in cluster[unit[c]].tolist()]
        sources.append(oracles_peers.error_of_mean(rows, values[c].tolist(), weight[c].tolist())[1:])
    variance = [sum(e**2 for e in by_cluster.values()) for by_cluster, _ in sources]
    np.testing.assert_allclose(error, oracles_peers.join(sources)[0], rtol=1e-9)
    np.testing.assert_allclose(df, slow.pooled_df(variance, [nu for _, nu in sources]), rtol=1e-9)
    np.testing.assert_allclose(influence, parts[0].influence + parts[1].influence, atol=1e-12)


def test_effective_clusters_and_kish_are_their_sums():
    rng = np.random.default_rng(0)
    for _ in range(20):
        leverage, cluster = rng.normal(size=30), rng.integers(0, 7, 30)
        sums = [abs(leverage[cluster == g]).sum() for g in set(cluster.tolist())]
        np.testing.assert_allclose(effective_clusters(leverage, cluster), oracles_borrowed.effective(sums))
        np.testing.assert_allclose(kish_ess(abs(leverage)) / 30, oracles_weights.ess_fraction(abs(leverage)))


@pytest.mark.parametrize("n_sources", [2, 3])
def test_pooled_degrees_of_freedom_are_welchs_or_solve_for_the_widest(n_sources):
    rng = np.random.default_rng(n_sources)
    variance = rng.lognormal(sigma=1.5, size=(200, n_sources))
    df = 1 + rng.lognormal(sigma=2.0, size=(200, n_sources))
    expected = [slow.pooled_df(v, nu) for v, nu in zip(variance.tolist(), df.tolist(), strict=True)]
    np.testing.assert_allclose(pooled_df(variance, df), expected, rtol=1e-9)
    one = [pooled_df_of_one(v, nu) for v, nu in zip(variance.tolist(), df.tolist(), strict=True)]
    np.testing.assert_allclose(one, expected, rtol=1e-9)
    welch = variance.sum(axis=1) ** 2 / (variance**2 / df).sum(axis=1)
    assert 20 < (np.array(expected) < welch * (1 - 1e-9)).sum() < 180  # both branches


@pytest.mark.parametrize("seed", range(5))
def test_skewness_and_acceleration_are_those_of_the_sums_by_cluster(seed):
    rng = np.random.default_rng(seed)
    influence, cluster = rng.exponential(size=60), np.arange(60) // 3
    influence -= influence.mean()
    sums = influence.reshape(20, 3).sum(axis=1)
    expected = stats.skew(sums) / np.sqrt(20)
    np.testing.assert_allclose(error_skewness(cluster_sums(influence, cluster)), expected, rtol=1e-9)
    np.testing.assert_allclose(acceleration(influence, cluster), expected / 6, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_degrees_of_freedom_of_a_variance_are_those_of_its_kurtosis(seed):
    moves = np.random.default_rng(seed).standard_t(3, size=80)
    mirrored = np.r_[moves, -moves]  # of mean 0, about which SciPy takes its moments
    kurtosis = stats.kurtosis(mirrored, fisher=False)
    np.testing.assert_allclose(variance_df(mirrored), 2 * 160 / (kurtosis - 1), rtol=1e-9)
