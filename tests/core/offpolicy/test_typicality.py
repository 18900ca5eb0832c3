"""Typicality (TTC) and its cost: against loops, the coverage of its interval, and the errors that others made."""

import numpy as np
import oracles_weights as oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from cje_core.offpolicy.typicality import Sample, cle_factor, typicality, weighted_typicality
from cje_core.offpolicy.weights import mean_one
from cje_sim.exact import typicality as exact
from cje_sim.scenarios import zipf_hot_target, zipf_tilt
from cje_sim.targets.tilts import token_tilt
from cje_sim.tokens.laws import iid_policy, sample_sums, zipf


def as_sample(values, first=0):
    values = np.asarray(values, float)
    return Sample(values, np.ones(len(values)), first + np.arange(len(values)))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.5, 0.9, 0.99]))
def test_ttc_against_loops_and_pitfall_19_its_interval_contains_it(seed, n, m, level):
    rng = np.random.default_rng(seed)
    fresh, logged = rng.integers(10, 30, m) / 10, rng.integers(10, 35, n) / 10
    out = typicality(as_sample(fresh), as_sample(logged, first=int(rng.integers(0, m + 1))), level=level)
    expected, threshold = oracles.ttc(fresh.tolist(), logged.tolist(), level)
    assert out.ttc == pytest.approx(expected)
    assert out.high == pytest.approx(threshold) and out.low == -np.inf
    assert out.alpha == pytest.approx((fresh <= threshold).mean())
    assert out.alpha >= level - 1e-9
    two = typicality(as_sample(fresh), as_sample(logged, first=m), level=level, two_sided=True)
    distance = np.quantile(np.abs(fresh - fresh.mean()), level, method="inverted_cdf")
    assert two.ttc == pytest.approx((np.abs(logged - fresh.mean()) <= distance + 1e-7).mean())
    for each in (out, two):
        assert 0 <= each.interval[0] <= each.ttc <= each.interval[1] <= 1
        assert (
            np.ptp(each.interval) > 0 or m == n
        )  # never without width, unless the samples may be the same rows


def test_the_same_responses_in_both_samples_leave_no_doubt():
    # A clone whose logged responses are its own fresh draws: TTC is the level, and the two errors cancel.
    values = np.random.default_rng(3).standard_normal(1000)
    same, apart = (typicality(as_sample(values), as_sample(values, first)) for first in (0, 1000))
    assert same.ttc == apart.ttc == 0.9
    assert np.ptp(same.interval) < 0.02 < np.ptp(apart.interval)


def test_clusters_widen_the_interval_of_ttc():
    rng = np.random.default_rng(4)
    logged, fresh = np.repeat(rng.standard_normal(100), 10), rng.standard_normal(2000)
    apart = typicality(as_sample(fresh), as_sample(logged, 2000))
    together = typicality(
        as_sample(fresh), Sample(logged, np.ones(1000), 2000 + np.repeat(np.arange(100), 10))
    )
    assert together.ttc == apart.ttc
    assert np.ptp(together.interval) > 1.8 * np.ptp(apart.interval)


def test_a_ttc_of_zero_knows_as_many_rows_as_there_are_clusters():
    fresh, far = as_sample(np.linspace(0, 1, 50)), np.full(1000, 9.0)
    tops = [
        typicality(fresh, Sample(far, np.ones(1000), 50 + np.arange(1000) // size)).interval[1]
        for size in (1, 10)
    ]
    z2 = stats.norm.ppf(0.975) ** 2
    assert_allclose(tops, [z2 / (1000 + z2), z2 / (100 + z2)])  # Wilson's upper limit at 0 of n


def test_repeated_draws_count_by_prompt():
    fresh = Sample(
        np.array([1.0, 2.0, 3.0, 9.0]), np.array([1 / 3, 1 / 3, 1 / 3, 1.0]), np.array([0, 0, 0, 1])
    )
    out = typicality(fresh, as_sample([0.0, 2.5, 5.0], 2), level=0.5)
    assert out.high == pytest.approx(3.0) and out.alpha == pytest.approx(0.5)
    assert out.ttc == pytest.approx(2 / 3)


def test_weighted_typicality_is_the_reference_rule():
    rng = np.random.default_rng(5)
    surprisal, w = rng.standard_normal(300), mean_one(rng.standard_normal(300))
    out = weighted_typicality(as_sample(surprisal), w)
    order = np.argsort(surprisal)
    at = np.flatnonzero(np.cumsum(w[order]) >= 0.9 * 300)[0]
    assert out.high == pytest.approx(surprisal[order][at])
    assert out.ttc == pytest.approx((at + 1) / 300)
    assert out.alpha == pytest.approx(w[surprisal <= surprisal[order][at]].sum() / 300)
    assert np.isnan(out.interval).all()


def test_cle_against_the_definition():
    rng = np.random.default_rng(6)
    w, surprisal, fresh = (
        mean_one(rng.standard_normal(200)),
        rng.standard_normal(200),
        rng.standard_normal(150),
    )
    region = typicality(as_sample(fresh), as_sample(surprisal, 150))
    out = cle_factor(w, surprisal, region)
    assert out.factor == pytest.approx(oracles.cle(w.tolist(), surprisal.tolist(), region.high, region.alpha))
    assert out.variance.sum() == pytest.approx(w.var())
    # the paper's lemma on the weight's second moment: E0[W^2 1_T] = alpha_w^2 / beta (1 + chi2_T)
    inside = surprisal <= region.high
    assert (w**2 * inside).mean() == pytest.approx((w * inside).mean() ** 2 / region.ttc * out.shape)
    nowhere = cle_factor(w, surprisal, region._replace(high=-9.0, ttc=0.0))
    assert np.isnan([nowhere.coverage, nowhere.shape, nowhere.factor]).all()
    assert nowhere.variance[1] == pytest.approx(w.var())


@pytest.mark.parametrize("arguments", [{"level": 1.0}, {"level": 0.0}, {"ci_prob": 1.0}])
def test_typicality_refuses(arguments):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        typicality(as_sample([1.0]), as_sample([1.0]), **arguments)


def worlds():
    """Logger and target: TTC of .86, of .08, and near 1 although the overlap is gone (two-sided .19)."""
    logger = iid_policy(zipf(1000, 1.2), 25)
    log_p = logger.log_prob[0, 0]
    hot = zipf_hot_target.tokens(length=25).policies["hot"]
    tilted = zipf_tilt.tokens(length=25).policies["tilt_0.5"]
    return {
        "tilted": (logger, tilted),
        "sharp": (logger, token_tilt(logger, log_p, 0.25)),
        "hot": (logger, hot),
    }


@pytest.mark.slow
@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("name", ["tilted", "sharp", "hot"])
@pytest.mark.parametrize(("n", "m"), [(1000, 1000), (1000, 100), (100, 1000)])
def test_the_interval_of_ttc_covers_the_exact_one(name, two_sided, n, m):
    logger, target = worlds()[name]
    log_p, length = target.log_prob, target.length
    truth = exact.coverage(log_p[0, 0], logger.log_prob[0, 0], length, two_sided=two_sided).ttc
    rng, reps, at_once = np.random.default_rng([n, m, two_sided]), 1000, 50

    assert reps % at_once == 0

    def samples(policy, size):
        for _ in range(reps // at_once):
            sums = sample_sums(policy, log_p[..., None], at_once * size, rng=rng).sums
            yield from -sums.reshape(at_once, size) / length

    hits = 0
    for fresh, logged in zip(samples(target, m), samples(logger, n), strict=True):
        out = typicality(as_sample(fresh), as_sample(logged, m), two_sided=two_sided)
        hits += out.interval[0] <= truth <= out.interval[1]
    # Exact binomial bounds, 5 standard errors' worth of tail, for a coverage of at least .94; without the quantile's
    # noise it is .84 with equal samples and .44 with 100 fresh draws. Near 0 and 1 few rows decide: it may exceed .99.
    assert hits >= stats.binom.ppf(2.9e-7, reps, 0.94), hits / reps
    if 0.05 < truth < 0.95:
        assert hits <= stats.binom.isf(2.9e-7, reps, 0.98), hits / reps


@pytest.mark.slow
def test_the_two_sided_interval_counts_the_noise_of_the_centre():
    # The logger sits on the upper edge, which moves with the mean (variance 1 / m) and with d (2.1 / m): without the
    # first the coverage is .89.
    rng, reps, edge = np.random.default_rng(8), 3000, stats.norm.ppf(0.95)
    law = stats.norm(edge, 0.5)
    truth = law.cdf(edge) - law.cdf(-edge)
    hits = 0
    for _ in range(reps):
        out = typicality(
            as_sample(rng.standard_normal(200)),
            as_sample(edge + 0.5 * rng.standard_normal(20_000), 200),
            two_sided=True,
        )
        hits += out.interval[0] <= truth <= out.interval[1]
    assert stats.binom.ppf(2.9e-7, reps, 0.94) <= hits <= stats.binom.isf(2.9e-7, reps, 0.97), hits / reps
