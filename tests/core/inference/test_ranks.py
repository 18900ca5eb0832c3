"""Ranks with their uncertainty, and ranking metrics, against definitions, enumeration and scipy."""

from itertools import permutations, product

import numpy as np
import oracles_compare as slow
import pytest
import xarray as xr
from oracles_compare import estimate_of
from scipy import stats

import cje_sim
from cje_core.estimators import labels_only
from cje_core.inference import ranks
from cje_core.inference.contrasts import contrasts, win_matrix
from cje_core.inference.estimate import clopper_pearson
from cje_core.inference.ranks import kendall, pairwise_accuracy, probability_best, rank_confidence_sets, top_1

METHODS = ("max_t", "holm")
Z5 = 5.0  # Monte Carlo standard errors


def independent(value, error, df=np.inf, n=400):
    """Estimates with uncorrelated errors of exactly the given standard errors."""
    k = len(value)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(n, k)))[0].T  # orthonormal rows
    return with_limits(
        estimate_of(np.asarray(value, float), n * basis * np.asarray(error, float)[:, None], df=df)
    )


def with_limits(given):
    """The estimate with the t intervals of its influence values."""
    phi, value, df = given.influence.values, given.estimate.values, given.df.values
    half = stats.t.ppf(0.975, df) * np.sqrt((phi**2).sum(axis=1)) / phi.shape[1]
    given["interval"].values[:] = np.column_stack([value - half, value + half])
    return given


def counted(labels):
    """`labels_only`'s estimate of binary labels, shape (policies, prompts), by their exact limits."""
    mean, m = labels.mean(axis=1), labels.shape[1]
    centred = labels - mean[:, None]
    given = estimate_of(mean, centred * np.sqrt(m / (m - 1)), df=m - 1.0)
    given["interval"].values[:] = clopper_pearson(mean, m, 0.95)
    return given.assign(
        std_error=(
            "policy",
            np.where(np.ptp(labels, axis=1) > 0, labels.std(axis=1, ddof=1) / np.sqrt(m), np.nan),
        ),
        interval_kind=("policy", np.full(len(mean), "clopper_pearson")),
        effective_count=("policy", np.full(len(mean), float(m))),
        unseen_by=("policy", np.full(len(mean), np.nan)),
    ).assign_attrs(oracle_range=(0.0, 1.0))


# --- rank confidence sets ---


@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_are_certain_and_ranks_that_are_not(method):
    sure = rank_confidence_sets(independent([0.1, 0.9, 0.5], [0.01] * 3), method=method, rng=1)
    assert sure["rank"].values.tolist() == [3, 1, 2]
    assert sure.rank_interval.values.tolist() == [[3, 3], [1, 1], [2, 2]]
    assert sure.best.values.tolist() == [False, True, False]
    unsure = rank_confidence_sets(independent([0.1, 0.9, 0.5], [10.0] * 3), method=method, rng=1)
    assert unsure.rank_interval.values.tolist() == [[1, 3]] * 3
    assert unsure.best.all()
    mixed = rank_confidence_sets(independent([0.1, 0.9, 0.88], [0.02] * 3), method=method, rng=1)
    assert mixed.rank_interval.values.tolist() == [[3, 3], [1, 2], [1, 2]]
    assert mixed.best.values.tolist() == [False, True, True]


@pytest.mark.parametrize("df", [np.inf, 6.0])
def test_two_policies_are_ranked_by_the_t_test_of_their_contrast(df):
    quantile = stats.t.ppf(0.975, df) * np.sqrt(2)
    for factor, told_apart in ((0.97, False), (1.03, True)):
        given = independent([0.0, factor * quantile], [1.0, 1.0], df=df)
        for method in METHODS:
            sets = rank_confidence_sets(given, method=method, rng=2, n_draws=100_000)
            assert bool(sets.best[0]) is not told_apart


def test_holm_steps_down_over_ordered_pairs():
    """Six one-sided tests: thresholds .05/6, .05/5, ... in the order of the p-values."""
    z = [stats.norm.isf(0.05 / 6 * 0.98), stats.norm.isf(0.05 / 5 * 0.98)]
    difference = np.array(z) * np.sqrt(2)
    # a - b is the larger and passes .05/6; then a - c passes .05/5, which it would not pass as the first
    both = independent([difference[0], 0.0, difference[0] - difference[1]], [1, 1, 1])
    assert rank_confidence_sets(both, method="holm").rank_interval.values.tolist() == [[1, 1], [2, 3], [2, 3]]
    weaker = independent([difference[1], 0.0, 1e-3], [1, 1, 1])
    assert rank_confidence_sets(weaker, method="holm").rank_interval.values.tolist() == [[1, 3]] * 3


def test_max_t_uses_the_correlation_that_holm_ignores():
    """Six policies share most of their error: the intervals of differences are those of few distinct comparisons."""
    rng = np.random.default_rng(4)
    influence = rng.normal(size=(6, 300))
    influence[1:] = influence[1] + 0.01 * rng.normal(size=(5, 300))  # b..f move as one: one comparison with a
    error = np.sqrt(((influence[0] - influence[1]) ** 2).sum()) / 300
    value = np.array(
        [2.5 * error, 0, 0, 0, 0, 0]
    )  # beyond the two-sided 5% point of one test, not of fifteen
    given = estimate_of(value, influence, df=np.inf)
    level = 1 - ranks.simultaneous_prob(given, 0.95, n_draws=40_000, rng=1)
    assert 0.05 / 15 < level < 0.05
    assert rank_confidence_sets(given, method="holm").rank_interval.values[0].tolist() == [1, 6]


@pytest.mark.parametrize("k", [3, 4, 10, 30])
def test_few_clusters_have_the_level_of_tukeys_range(k):
    """Independent policies: max |difference| / SE is a studentised range over sqrt(2)."""
    given = independent([0.0] * k, [1.0] * k, n=k)  # too few clusters to say how they move together
    found = ranks.simultaneous_prob(given, 0.95)
    tukey = stats.studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
    assert found == pytest.approx(1 - 2 * stats.norm.sf(tukey), abs=1e-7)


def test_simultaneous_level_of_draws_is_that_of_their_range():
    n_draws = 100_000
    draws = np.random.default_rng(1).normal(size=(4, n_draws))
    level = 1 - ranks.simultaneous_prob(estimate_of(np.zeros(4), draws=draws), 0.95)
    # the level moves with the quantile, whose tail probability has a binomial Monte Carlo error
    exceed = stats.studentized_range.sf(stats.norm.isf(level / 2) * np.sqrt(2), 4, np.inf)
    assert abs(exceed - 0.05) < Z5 * np.sqrt(0.05 * 0.95 / n_draws)


def test_two_policies_have_the_printed_level():
    for given in (
        independent([0.0, 1.0], [1.0, 1.0]),
        estimate_of(np.zeros(2), draws=np.random.default_rng(1).normal(size=(2, 50))),
    ):
        assert ranks.simultaneous_prob(given, 0.95) == 0.95


def test_decisions_are_those_of_the_intervals_at_the_simultaneous_level():
    given = independent([0.1, 0.9, 0.88, 0.5], [0.02, 0.03, 0.02, 0.2], df=9.0)
    sets = rank_confidence_sets(given, rng=1)
    pairs = contrasts(given, ci_prob=sets.attrs["pair_prob"])
    for k in range(pairs.sizes["pair"]):
        a, b = (str(pairs[end].values[k]) for end in ("first", "second"))
        low, high = pairs.interval.values[k]
        assert bool(sets.ahead.sel(policy=a, other=b)) == (low > 0)
        assert bool(sets.ahead.sel(policy=b, other=a)) == (high < 0)


def test_a_policy_without_an_error_may_have_any_rank_and_takes_none_from_others():
    given = independent([0.1, 0.9, 0.5], [0.01] * 3)
    given["influence"][1] = np.nan
    given["interval"][1] = np.nan
    for method in METHODS:
        sets = rank_confidence_sets(given, method=method, rng=1)
        assert sets.rank_interval.values.tolist() == [[2, 3], [1, 3], [1, 2]]
        assert sets.best.values.tolist() == [False, True, True]
    failed = given.copy(deep=True)
    failed["estimate"][1] = np.nan
    assert np.isnan(rank_confidence_sets(failed, rng=1)["rank"][1])
    everything = given.copy(deep=True)
    everything["influence"] = given.influence * np.nan
    assert rank_confidence_sets(everything, rng=1).rank_interval.values.tolist() == [[1, 3]] * 3


def test_rank_sets_from_draws_and_from_small_chunks(monkeypatch):
    rng = np.random.default_rng(8)
    given = independent([0.0, 3.0, 3.1, 9.0], [0.5, 0.7, 0.6, 0.8])
    draws = given.estimate.values[:, None] + rng.normal(size=(4, 20_000)) * np.array(
        [[0.5], [0.7], [0.6], [0.8]]
    )
    drawn = estimate_of(given.estimate.values, draws=draws)
    whole = rank_confidence_sets(given, rng=3)
    np.testing.assert_array_equal(rank_confidence_sets(drawn).rank_interval, whole.rank_interval)
    np.testing.assert_array_equal(
        rank_confidence_sets(drawn, method="holm").rank_interval, whole.rank_interval
    )
    monkeypatch.setattr(ranks, "CHUNK", 7)
    xr.testing.assert_identical(
        rank_confidence_sets(given, rng=3, n_draws=500), rank_confidence_sets(given, rng=3, n_draws=500)
    )
    small = ranks.simultaneous_prob(given, 0.95, n_draws=500, rng=1)
    monkeypatch.setattr(ranks, "CHUNK", 2_000_000)
    assert small == ranks.simultaneous_prob(given, 0.95, n_draws=500, rng=1)


def test_unknown_rank_method_is_named():
    with pytest.raises(ValueError, match="'tukey': use one of max_t, holm"):
        rank_confidence_sets(independent([0, 1], [1, 1]), method="tukey")


# --- probability of being best ---


@pytest.mark.parametrize("df", [np.inf, 5.0, [np.inf, 3.0]])
def test_best_of_two_is_the_win_probability(df):
    given = independent([0.3, 0.0], [0.2, 0.4], df=df)
    best = probability_best(given, rng=1, n_draws=50_000)
    expected = win_matrix(given).probability.values[0, 1]
    assert abs(float(best.probability[0]) - expected) < Z5 * float(best.mcse[0])
    np.testing.assert_allclose(best.probability.sum(), 1)


def test_best_of_equals_and_best_from_draws():
    n_draws = 50_000
    equal = probability_best(independent([0.0] * 4, [1.0] * 4), rng=2, n_draws=n_draws)
    np.testing.assert_allclose(equal.probability, 0.25, atol=Z5 * np.sqrt(0.25 * 0.75 / n_draws))
    draws = np.array([[1.0, 2.0, 3.0, 1.0], [2.0, 2.0, 1.0, 0.0], [np.nan] * 4])
    best = probability_best(estimate_of(np.array([1.75, 1.25, np.nan]), draws=draws))
    np.testing.assert_allclose(best.probability[:2], [2.5 / 4, 1.5 / 4])  # a tie is shared
    assert np.isnan(best.probability[2])


def test_equal_labels_take_part_in_what_is_best():
    """12 of 12 right against 10 of 12: equal labels have limits, and no policy is dropped for the want of spread."""
    few, all_right = np.ones(12), np.ones(12)
    few[:2] = 0.0
    given = counted(np.stack([few, all_right]))
    best = probability_best(given, rng=1)
    assert np.isfinite(best.probability).all() and 0.5 < float(best.probability[1]) < 0.95
    assert not rank_confidence_sets(given)["ahead"].any()
    # against 4 of 12 the exact tails decide, though one of the two showed no spread
    few[:8] = 0.0
    given = counted(np.stack([few, all_right]))
    assert bool(rank_confidence_sets(given)["ahead"].sel(policy="b", other="a"))
    assert float(probability_best(given, rng=1).probability[1]) > 0.99


def test_correlated_counts_by_a_slow_mover():
    """Binary labels of two policies on the same prompts: Newcombe's corrected phi, and exact tails, in plain loops."""
    first, second = np.array([1] * 7 + [0] * 5), np.array([1] * 4 + [0] * 8)
    given, m = counted(np.stack([first, second]).astype(float)), 12
    a, b = 7 / m, 4 / m
    phi = np.corrcoef(first, second)[0, 1] - 1 / (2 * m * np.sqrt(a * (1 - a) * b * (1 - b)))
    assert 0 < phi < 0.5
    (la, ua), (lb, ub) = (
        (stats.beta.ppf(0.005, x, m - x + 1), stats.beta.ppf(0.995, x + 1, m - x)) for x in (7, 4)
    )
    down = np.sqrt((a - la) ** 2 + (ub - b) ** 2 - 2 * phi * (a - la) * (ub - b))
    up = np.sqrt((ua - a) ** 2 + (b - lb) ** 2 - 2 * phi * (ua - a) * (b - lb))
    found = contrasts(given, ci_prob=0.99).interval.values[0]
    np.testing.assert_allclose(found, [a - b - down, a - b + up])


def test_draws_have_the_printed_limits():
    """Both ends of each policy's interval are quantiles of its draws, also where the arms differ."""
    given = independent([0.5, 0.8, 0.2], [0.1, 0.05, 0.2], df=7.0)
    given["interval"].values[:] = [[0.3, 0.9], [0.55, 0.85], [0.1, 0.2]]
    n_draws = 100_000
    drawn = ranks._from_limits(given, np.arange(3), n_draws, np.random.default_rng(1))
    five = Z5 * np.sqrt(0.025 * 0.975 / n_draws)
    low, high = given["interval"].values.T
    np.testing.assert_allclose((drawn < low).mean(axis=0), 0.025, atol=five)
    np.testing.assert_allclose((drawn > high).mean(axis=0), [0.025, 0.025, 0], atol=five)


# --- ranking metrics ---


def test_metrics_against_loops_and_scipy():
    rng = np.random.default_rng(6)
    for _ in range(50):
        value, truth = rng.integers(0, 4, (2, 6)).astype(float)
        concordant, discordant, ordered = slow.concordance(value, truth)
        np.testing.assert_allclose(pairwise_accuracy(value, truth), concordant / ordered)
        np.testing.assert_allclose(kendall(value, truth), (concordant - discordant) / ordered)
        np.testing.assert_allclose(kendall(value, truth), stats.somersd(truth, value).statistic)
    value, truth = rng.normal(size=(2, 8))
    np.testing.assert_allclose(kendall(value, truth), stats.kendalltau(value, truth).statistic)
    np.testing.assert_allclose(kendall(value, truth), 2 * pairwise_accuracy(value, truth) - 1)


def test_metrics_over_all_orders():
    """Uniform over the 24 orders: tau has mean 0 and variance 2(2P + 5) / (9P(P - 1)), accuracy 1/2, top-1 1/4."""
    orders = np.array(list(permutations(range(4))), dtype=float)
    tau = kendall(orders, np.arange(4))
    np.testing.assert_allclose([tau.mean(), tau.var()], [0, 2 * 13 / (9 * 12)], atol=1e-12)
    np.testing.assert_allclose(pairwise_accuracy(orders, np.arange(4)).mean(), 0.5)
    np.testing.assert_allclose(top_1(orders, np.arange(4)).mean(), 0.25)


def test_ties_and_failures_in_the_metrics():
    truth = [0.1, 0.2, 0.3]
    assert float(pairwise_accuracy([0.1, 0.1, 0.3], truth)) == pytest.approx(2 / 3)  # a tie is not an order
    assert float(kendall([0.1, 0.1, 0.3], truth)) == pytest.approx(2 / 3)
    assert float(pairwise_accuracy([0.1, np.nan, 0.3], truth)) == pytest.approx(1 / 3)  # a failure is a miss
    assert float(pairwise_accuracy([1.0, 2.0, 3.0], [0.1, 0.1, 0.3])) == 1  # equal in truth: no right order
    assert np.isnan(pairwise_accuracy([1.0, 2.0], [0.1, 0.1]))
    assert float(top_1([np.nan, 0.5, 0.2], truth)) == 0
    assert float(top_1([0.1, np.nan, 0.3], truth)) == 1
    assert float(top_1([np.nan] * 3, truth)) == 0
    assert float(top_1([0.3, 0.1, 0.3], truth)) == 0.5
    assert float(top_1([0.1, 0.2], [0.5, 0.5])) == 1  # both are best
    for pair in product([np.nan, 0.5], repeat=2):
        assert 0 <= float(top_1(pair, [0.1, 0.2])) <= 1


def test_ranking_matches_policies_by_name():
    given = independent([0.1, 0.9, 0.5], [0.01] * 3)
    truth = xr.DataArray([0.5, 0.2, 0.8], dims="policy", coords={"policy": ["c", "a", "b"]})
    found = ranks.ranking(given, truth)
    assert {name: float(found[name]) for name in found} == {"pairwise_accuracy": 1, "top_1": 1, "kendall": 1}


# --- coverage ---


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("truth", ["equal", "ladder"])
def test_rank_sets_hold_all_ranks_together(method, truth):
    """With equal values every rank set must be everything, the hardest case: max-t fails in 5%, Holm in less.

    Estimates are means of 40 correlated rows with unequal spread, so the t quantile matters too.
    """
    n, n_replicates = 40, 1000
    value = {"equal": np.zeros(5), "ladder": np.array([0, 0, 0.4, 0.4, 1.2])}[truth]
    low_rank = 1 + (value[None] > value[:, None]).sum(axis=1)
    high_rank = len(value) - (value[None] < value[:, None]).sum(axis=1)
    rng = np.random.default_rng(21)
    held = kept_best = 0
    given = estimate_of(np.zeros(5), np.zeros((5, n)), df=n - 1.0)  # filled with each data set's numbers
    for r in range(n_replicates):
        rows = (
            value[:, None]
            + rng.normal(size=n)
            + rng.normal(size=(5, n)) * np.array([[1], [1], [2], [0.5], [1]])
        )
        mean = rows.mean(axis=1)
        given["estimate"].values[:] = mean
        given["influence"].values[:] = (rows - mean[:, None]) * np.sqrt(n / (n - 1))
        sets = rank_confidence_sets(given, method=method, rng=r, n_draws=2000)
        low, high = sets.rank_interval.values.T
        held += bool((low <= low_rank).all() and (high_rank <= high).all())
        kept_best += bool(sets.best.values[low_rank == 1].all())
    lowest, highest = stats.binom.interval(1 - 2 * stats.norm.sf(Z5), n_replicates, 0.95)
    assert held >= lowest
    assert kept_best >= lowest
    if truth == "equal" and method == "max_t":
        assert held <= highest  # not wider than needed


@pytest.mark.slow
@pytest.mark.parametrize(("law", "count", "m"), [("skewed", 10, 12), ("binary", 5, 12)])
def test_equal_policies_are_seldom_ranked_or_surely_best(law, count, m):
    """Few own labels of one law on the same prompts, where the t errors told some pair apart in .52 of the runs.

    Bounds: at most 6% of the runs with a false rank set, and with a P(best) above .95, by the exact binomial.
    """
    n_replicates = 200
    most = stats.binom.ppf(stats.norm.cdf(Z5), n_replicates, 0.06)
    value = {"label_value": 0.5} if law == "binary" else {}
    ranked = sure = 0
    for r in range(n_replicates):
        data = cje_sim.simulate("equal_skewed", n=m, oracle_fraction=1.0, count=count, rng=r, **value)
        estimate = labels_only.estimate(data)
        ranked += bool(rank_confidence_sets(estimate, rng=r)["ahead"].any())
        sure += float(probability_best(estimate, n_draws=2000, rng=r).probability.max()) > 0.95
    assert ranked <= most
    assert sure <= most
