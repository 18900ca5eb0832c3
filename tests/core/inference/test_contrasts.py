"""Contrasts, multiplicity and the win matrix against definitions and statsmodels."""

from itertools import combinations

import numpy as np
import oracles_compare as slow
import pytest
import xarray as xr
from oracles_compare import estimate_of
from scipy import stats
from statsmodels.stats.multitest import multipletests

from cje_core.estimators import direct
from cje_core.inference.contrasts import ADJUSTMENTS, adjust_p, against, contrasts, win_matrix
from cje_core.inference.pairs import covariance
from cje_sim.scenarios import well_specified

STATSMODELS = {
    "bh": "fdr_bh",
    "bonferroni": "bonferroni",
    "holm": "holm",
}  # methods that adjust_p computes itself


@pytest.fixture
def joint():
    """Five policies over 60 prompts in 20 clusters, correlated, each with its own df."""
    rng = np.random.default_rng(11)
    influence = rng.normal(size=(5, 60)) * np.array([1, 2, 1, 0.5, 3])[:, None] + rng.normal(size=60)
    return estimate_of(
        np.array([0.3, 0.1, 0.9, -0.2, 0.5]),
        influence,
        df=[9, 30, np.inf, 12, 5],
        cluster=np.repeat(np.arange(20), 3),
    )


# --- multiplicity ---


@pytest.mark.parametrize("method", ADJUSTMENTS)
def test_adjusted_p_values_are_statsmodels(method):
    """Planted once: with `k - rank` in place of `k + 1 - rank`, Holm differs."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 3, 10, 40):
        p = rng.uniform(size=size) ** 3
        p[rng.uniform(size=size) < 0.2] = p[0]  # ties
        p[-1] = min(p[-1], 1.0)
        ours = adjust_p(p, method)
        if method in STATSMODELS:
            np.testing.assert_allclose(ours, multipletests(p, method=STATSMODELS[method])[1], rtol=1e-12)
        shuffle = rng.permutation(size)
        np.testing.assert_allclose(adjust_p(p[shuffle], method), ours[shuffle], rtol=1e-12)
        assert (ours >= p * (1 - 1e-12)).all() and (ours <= 1).all()


@pytest.mark.parametrize("method", ADJUSTMENTS)
def test_a_test_not_made_does_not_count(method):
    p = np.array([0.01, np.nan, 0.04, 0.03, np.nan])
    ours = adjust_p(p, method)
    made = np.isfinite(p)
    np.testing.assert_array_equal(np.isnan(ours), ~made)
    np.testing.assert_allclose(ours[made], adjust_p(p[made], method))
    assert np.isnan(adjust_p([np.nan, np.nan], method)).all()
    assert adjust_p([], method).shape == (0,)


def test_unknown_adjustment_is_named():
    with pytest.raises(ValueError, match=r"'tukey': use one of bh, by"):
        adjust_p([0.1], "tukey")


# --- contrasts ---


def test_contrasts_against_loops(joint):
    pairs = contrasts(joint, ci_prob=0.9, adjust="holm")
    names = joint.policy.values.tolist()
    assert list(zip(pairs["first"].values, pairs["second"].values, strict=True)) == list(
        combinations(names, 2)
    )
    p_values = []
    for k, (a, b) in enumerate(combinations(range(5), 2)):
        row = pairs.isel(pair=k)
        error = slow.contrast_error(*joint.influence.values[[a, b]], joint.cluster.values)
        df = min(joint.df.values[a], joint.df.values[b])
        difference = joint.estimate.values[a] - joint.estimate.values[b]
        np.testing.assert_allclose(row.difference, difference)
        np.testing.assert_allclose(row.std_error, error, rtol=1e-12)
        assert row.df == df
        half = stats.t.ppf(0.95, df) * error
        np.testing.assert_allclose(row.interval, [difference - half, difference + half])
        p_values.append(2 * stats.t.sf(abs(difference) / error, df))
    np.testing.assert_allclose(pairs.p_value, p_values)
    np.testing.assert_allclose(pairs.p_bh, multipletests(p_values, method="fdr_bh")[1])
    np.testing.assert_allclose(pairs.p_adjusted, multipletests(p_values, method="holm")[1])
    assert pairs.attrs["adjustment"] == "holm"


def test_pitfall_27_contrasts_come_from_the_joint_influence_of_the_same_estimator():
    out = direct.estimate(well_specified.simulate(n=300, label_design="base", rng=2), inference="influence")
    pairs = contrasts(out)
    sigma = covariance(out)
    np.testing.assert_allclose(np.sqrt(np.diag(sigma)), out.std_error)
    names = out.policy.values.tolist()
    for k in range(pairs.sizes["pair"]):
        a, b = (names.index(pairs[side].values[k]) for side in ("first", "second"))
        np.testing.assert_allclose(pairs.std_error[k] ** 2, sigma[a, a] + sigma[b, b] - 2 * sigma[a, b])
        np.testing.assert_allclose(pairs.difference[k], out.estimate[a] - out.estimate[b])
    independent = np.hypot(*(out.std_error.sel(policy=pairs[s].values).values for s in ("first", "second")))
    assert (pairs.std_error.values < 0.9 * independent).all()  # prompts and labels are shared


def test_pitfall_28_a_policy_without_spread_gives_no_contrast_and_not_zero(joint):
    dead = joint.copy(deep=True)
    dead["influence"][1] = np.nan
    dead["df"][1] = np.nan
    pairs = contrasts(dead)
    with_dead = (pairs["first"].values == "b") | (pairs["second"].values == "b")
    for name in ("std_error", "p_value", "p_bh", "p_adjusted"):
        np.testing.assert_array_equal(np.isnan(pairs[name]), with_dead)
    assert np.isfinite(pairs.difference).all()
    alive = contrasts(joint.sel(policy=["a", "c", "d", "e"]))
    np.testing.assert_allclose(pairs.p_bh.values[~with_dead], alive.p_bh.values)
    twins = joint.copy(deep=True)
    twins["influence"][1] = twins["influence"][0].values
    assert np.isnan(contrasts(twins).std_error[0])  # they never differ: no test, rather than p = 0


def test_contrasts_do_not_depend_on_the_order_of_policies(joint):
    xr.testing.assert_identical(contrasts(joint.isel(policy=[3, 0, 4, 1, 2])), contrasts(joint))


def test_one_policy_has_no_contrasts(joint):
    assert contrasts(joint.isel(policy=[0])).sizes["pair"] == 0


def test_against_is_a_family_of_its_own(joint):
    versus = against(joint, "c", adjust="bonferroni")
    assert versus["first"].values.tolist() == ["a", "b", "d", "e"]
    assert (versus["second"].values == "c").all()
    pairs = contrasts(joint)
    for k, name in enumerate("abde"):
        sign = 1 if name < "c" else -1
        sides = [name, "c"] if sign == 1 else ["c", name]
        here = (pairs["first"].values == sides[0]) & (pairs["second"].values == sides[1])
        np.testing.assert_allclose(versus.difference[k], sign * pairs.difference.values[here][0])
        np.testing.assert_allclose(versus.p_value[k], pairs.p_value.values[here][0])
    np.testing.assert_allclose(versus.p_adjusted, np.minimum(4 * versus.p_value.values, 1))
    with pytest.raises(ValueError, match="reference='z': the estimate has a, b, c, d, e"):
        against(joint, "z")


# --- draws ---


def test_draws_make_contrasts_where_influence_is_absent():
    draws = np.array([[0.1, 0.2, 0.3, 0.4, 0.5], [0.1, 0.0, 0.4, 0.1, 0.1]])
    pairs = contrasts(estimate_of(np.array([0.3, 0.14]), draws=draws), ci_prob=0.8)
    drawn = draws[0] - draws[1]  # 0, .2, -.1, .3, .4
    np.testing.assert_allclose(pairs.std_error, drawn.std(ddof=1))
    np.testing.assert_allclose(pairs.interval[0], np.quantile(drawn, [0.1, 0.9]))
    np.testing.assert_allclose(pairs.p_value, 2 * (1 + 2) / 6)  # two of five at or below zero
    assert np.isinf(pairs.df).all()
    wins = win_matrix(estimate_of(np.array([0.3, 0.14]), draws=draws))
    np.testing.assert_allclose(wins.probability[0, 1], 3.5 / 5)  # a tie counts one half
    blank = draws.copy()
    blank[1] = np.nan
    pairs = contrasts(estimate_of(np.array([0.3, np.nan]), draws=blank))
    assert np.isnan(pairs.p_value).all() and np.isnan(pairs.interval).all()


def test_normal_draws_agree_with_their_influence():
    rng = np.random.default_rng(5)
    influence = rng.normal(size=(3, 400)) + rng.normal(size=400)
    value = np.array([0.0, 0.1, -0.1])
    given = estimate_of(value, influence, df=np.inf)
    n_draws = 40_000
    draws = value[:, None] + rng.multivariate_normal(np.zeros(3), covariance(given), n_draws).T
    drawn = estimate_of(value, draws=draws)
    np.testing.assert_allclose(covariance(drawn), covariance(given), atol=5 * 0.01 / np.sqrt(n_draws))
    one, two = contrasts(given), contrasts(drawn)
    np.testing.assert_allclose(two.std_error, one.std_error, rtol=5 / np.sqrt(2 * n_draws))
    np.testing.assert_allclose(two.p_value, one.p_value, atol=5 / np.sqrt(n_draws))
    np.testing.assert_allclose(
        win_matrix(drawn).probability, win_matrix(given).probability, atol=2.5 / np.sqrt(n_draws)
    )


def test_an_estimate_without_joint_uncertainty_is_refused():
    with pytest.raises(ValueError, match="neither influence values nor draws"):
        contrasts(estimate_of(np.array([0.1, 0.2])))


# --- win matrix ---


def test_win_matrix_is_the_pairs_laid_out(joint):
    wins = win_matrix(joint, 0.1, adjust="by")
    pairs = contrasts(joint, adjust="by")
    difference = wins.difference.values
    np.testing.assert_array_equal(difference, -difference.T)
    np.testing.assert_array_equal(np.diag(difference), 0)
    for k in range(pairs.sizes["pair"]):
        cell = wins.sel(policy=pairs["first"].values[k], other=pairs["second"].values[k])
        np.testing.assert_allclose(cell.difference, pairs.difference[k])
        np.testing.assert_allclose(cell.p_adjusted, pairs.p_adjusted[k])
        ratio = pairs.difference[k] / pairs.std_error[k]
        np.testing.assert_allclose(cell.probability, stats.t.cdf(ratio, pairs.df[k]))
        assert bool(cell.wins) == bool(pairs.p_adjusted[k] < 0.1 and pairs.difference[k] > 0)
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose((wins.probability.values + wins.probability.values.T)[off], 1)
    np.testing.assert_array_equal(wins.significant.values, wins.wins.values | wins.wins.values.T)
    assert wins.wins.values.any()
    assert not (wins.wins.values & wins.wins.values.T).any()
    assert wins.attrs["q"] == 0.1 and wins.attrs["adjustment"] == "by"
    with pytest.raises(ValueError, match="q=1"):
        win_matrix(joint, 1.0)


def test_failed_policies_stay_in_the_win_matrix(joint):
    failed = joint.copy(deep=True)
    for name in ("estimate", "influence", "df"):
        failed[name] = failed[name].where(failed.policy != "c")
    wins = win_matrix(failed).sel(policy="c")
    assert np.isnan(wins.probability).all() and not wins.wins.any()
    everything = joint.copy(deep=True)
    everything["influence"] = joint.influence * np.nan
    assert not win_matrix(everything).wins.any()
