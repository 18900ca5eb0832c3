"""The balanced one-step of borrowed policies against its definition, and when a borrowed value is refused."""

import numpy as np
import oracles_borrowed as slow
import pandas as pd
import pytest
from oracles_uncertainty import row_dicts, table
from scipy import stats

from cje_core.calibration.calibrated import Calibration
from cje_core.calibration.informative import informative, widening
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays, from_frame
from cje_core.data.arrays import unpack
from cje_core.estimators import direct
from cje_core.families.direct.balance import (
    balanced_residual,
    balancing_weights,
    evaluate,
    make_lesson,
    make_terms,
    supported,
)
from cje_core.families.direct.fit import Options, make_lender
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.inference.rank_test import rank_test

# of the labels' noise: with these the judge passes its test, but not by much
NOISE = {(0, 1): 0, (0, 2): 29, (1, 1): 7, (1, 2): 0, (2, 1): 40, (2, 2): 4}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("draws", [1, 2])
def test_the_balanced_value_and_its_error_are_their_definition(seed, draws):
    """Clusters of two prompts, unequal label probabilities, several draws of a prompt; a judge that just passes."""
    frame = table(n=40, seed=seed, share=0.8, draws=draws)
    rng = np.random.default_rng(NOISE[seed, draws])
    label = frame["oracle_label"] - 0.35 * frame["judge_score"]
    frame["oracle_label"] = (label + 0.5 * rng.uniform(size=len(frame))).clip(0, 1)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    frame["cluster"] = frame.prompt_id.str[1:].astype(int) // 2
    data = from_frame(frame)
    out = direct.estimate(data, borrowed="balanced").sel(policy="b")
    assert (out.route, out.status) == ("balanced", Status.TRANSPORT_ASSUMED)
    p_value = out.attrs["judge_p_value"]
    assert widening(p_value) > 1.02
    dicts, folds = row_dicts(data)
    value, std_error, behind = slow.balanced(dicts, "b", folds, p_value)
    np.testing.assert_allclose(out.estimate, value, atol=1e-10)
    np.testing.assert_allclose(
        out.std_error, std_error, rtol=1e-4
    )  # a difference quotient, and a search by 1e-5
    alone = slow.balanced(dicts, "b", folds)[1]
    assert std_error > 1.002 * alone  # planted: an error that does not know what was selected
    rows = unpack(data)
    fitted = fit_slice(rows)
    z = rows.z[rows.policy == 1]
    weight = rows.weight[rows.policy == 1]
    lender = make_lender(rows, fitted, Options(borrowed="balanced"))
    _, part = balanced_residual(rows, fitted, lender.lesson, z, weight / weight.sum(), lender.judge)
    np.testing.assert_allclose(part.df, slow.labels_df(behind), rtol=1e-9)


def test_the_degrees_of_freedom_of_a_difference_are_of_the_labels_that_it_rests_on():
    """Two policies that borrow, one of the teacher's scores and one far away; not the smaller of the levels'."""
    data = from_frame(far_and_near())
    out = direct.estimate(data, borrowed="balanced")
    dicts, folds = row_dicts(data)
    near, far = (slow.balanced(dicts, name, folds)[2] for name in ("near", "far"))
    phi = out.influence.sel(policy="far") - out.influence.sel(policy="near")
    cluster = unpack(data).cluster.tolist()
    pairs = contrasts(out).set_index(pair=["first", "second"])
    found = float(pairs.df.sel(first="far", second="near"))
    np.testing.assert_allclose(found, slow.lent_df(far, near, phi.values, cluster), rtol=1e-9)
    assert abs(found / float(out.df.sel(policy=["near", "far"]).min()) - 1) > 0.05
    against_own = float(pairs.df.sel(first="base", second="far"))
    assert against_own == float(out.df.sel(policy=["base", "far"]).min())


def far_and_near():
    """Labels of a base policy, and two that borrow them."""
    rng = np.random.default_rng(4)
    rows = []
    for policy, power in (("base", 1.0), ("near", 0.7), ("far", 0.4)):
        for i, score in enumerate(rng.uniform(size=45) ** power):
            label = np.clip(0.2 + 0.6 * score + rng.normal(0, 0.15), 0, 1)
            rows.append((policy, f"p{i}", score, label if policy == "base" and i < 24 else np.nan))
    return pd.DataFrame(rows, columns=["policy", "prompt_id", "judge_score", "oracle_label"])


@pytest.mark.slow
def test_what_is_looked_at_only_where_it_passes_is_covered_all_the_same():
    """``T ~ N(tau, 1)`` printed where p < .05: T +- 1.96 widening covers 95% of what is printed, whatever tau.

    By quadrature over T; without widening (planted) it covers less than half where the power is small.
    """
    step = 1e-3
    beyond = np.arange(step / 2, 12, step)  # T less its critical value
    t = stats.norm.ppf(0.95) + beyond
    half = 1.96 * np.array([widening(p) for p in stats.norm.sf(t)])
    np.testing.assert_allclose(
        half[250:6000:1500] / 1.96, [slow.widening(p) for p in stats.norm.sf(t[250:6000:1500])], atol=1e-4
    )
    worst = 1.0
    for tau in np.arange(-4, 6, 0.25):
        law = stats.norm.pdf(t - tau)
        law = law / law.sum()
        assert law[np.abs(t - tau) <= half].sum() >= 0.95 - 2e-3  # a cell of the grid at each end
        worst = min(worst, law[np.abs(t - tau) <= 1.96].sum())
    assert worst < 0.5


@pytest.mark.parametrize("covariates", [[], ["x"]])
def test_the_weights_balance_every_term_and_sum_to_one(covariates):
    frame = table(n=60, seed=1)
    frame["x"] = np.random.default_rng(0).normal(size=len(frame))
    rows = unpack(from_frame(frame, covariates=["x"]), covariates)
    fitted = fit_slice(rows)
    lesson = make_lesson(rows, fitted)
    z = rows.z[rows.policy == 1]
    share = np.full(len(z), 1 / len(z))
    a = balancing_weights(lesson, z, share)
    np.testing.assert_allclose(a.sum(), 1)
    np.testing.assert_allclose(
        a @ evaluate(lesson.terms, fitted.z), share @ evaluate(lesson.terms, z), atol=1e-9
    )
    assert evaluate(lesson.terms, z).shape[1] == 3 + len(covariates)


def test_few_distinct_scores_leave_a_line_and_one_score_a_constant():
    assert evaluate(make_terms(np.array([[0.0], [0.0], [1.0]])), np.zeros((2, 1))).shape == (2, 2)
    score = np.array([[0.5] * 20, [0.5] * 20])
    label = np.full((2, 20), np.nan)
    label[0, :12] = np.linspace(0, 1, 12)
    rows = unpack(from_arrays(score, policies=["a", "b"], oracle=label))
    fitted = fit_slice(rows)
    a = balancing_weights(make_lesson(rows, fitted), rows.z[rows.policy == 1], np.full(20, 1 / 20))
    np.testing.assert_allclose(a, 1 / 12)


def test_a_natural_cubic_is_a_line_beyond_its_outer_knots():
    terms = make_terms(np.linspace(0, 1, 21)[:, None])
    below, above = (evaluate(terms, np.linspace(*ends, 5)[:, None])[:, 2] for ends in ((-1, 0.05), (0.95, 2)))
    np.testing.assert_allclose(below, 0)
    np.testing.assert_allclose(np.diff(above, 2), 0, atol=1e-9)


def test_a_residual_that_the_terms_span_is_removed():
    """Labels moved by a line in S that the calibrator is not told of: the value moves by the line at the policy."""
    rng = np.random.default_rng(0)
    n = 2000
    score = np.stack([rng.uniform(0, 1, n), rng.uniform(0, 1, n) ** 2])
    label = np.full((2, n), np.nan)
    label[0] = 0.2 + 0.5 * score[0] + rng.normal(0, 0.05, n)
    rows = unpack(from_arrays(score, policies=["a", "b"], oracle=label))
    fitted = fit_slice(rows)
    lesson = make_lesson(rows, fitted)
    z = rows.z[rows.policy == 1]
    share = np.full(n, 1 / n)
    judge = informative(rows, fitted)
    moved = lesson._replace(residual=lesson.residual + 0.3 - 0.4 * fitted.z[:, 0])
    shift = (
        balanced_residual(rows, fitted, moved, z, share, judge)[0]
        - balanced_residual(rows, fitted, lesson, z, share, judge)[0]
    )
    np.testing.assert_allclose(shift, 0.3 - 0.4 * z.mean(), atol=1e-10)


def test_a_policy_of_the_same_scores_has_the_own_label_correction():
    """A twin of the teacher: weights are equal, so the value is mean f plus the mean held-out residual."""
    frame = table(n=80, policies=("a",), share=2.0)
    twin = frame.assign(policy="b", oracle_label=np.nan)
    data = from_frame(pd.concat([frame, twin]), calibration_policy="a")
    out = direct.estimate(data, borrowed="balanced")
    np.testing.assert_allclose(out.estimate[1], frame.oracle_label.mean(), atol=0.01)
    rows = unpack(data)
    fitted = fit_slice(rows)
    z = rows.z[rows.policy == 1]
    a = balancing_weights(make_lesson(rows, fitted), z, np.full(80, 1 / 80))
    np.testing.assert_allclose(a, 1 / 80, atol=1e-12)


# --- refusals --------------------------------------------------------------------------------------------------------


def lent(score, label, **fields):
    """Direct on policies of which the first has the labels."""
    oracle = np.full(np.shape(score), np.nan)
    oracle[0, : len(label)] = label
    return from_arrays(np.asarray(score), policies=["a", "b", "c"][: len(score)], oracle=oracle, **fields)


def test_a_judge_without_information_lends_nothing():
    """The same .5 everywhere, or noise: no level, no interval, no difference; the teacher keeps its own value."""
    rng = np.random.default_rng(3)
    label = rng.uniform(size=100)
    for score in (np.full((3, 200), 0.5), np.stack([rng.permutation(np.linspace(0, 1, 200))] * 3)):
        data = lent(score, label)
        out = direct.estimate(data, borrowed="balanced")
        assert out.status.values[1:].tolist() == [Status.UNINFORMATIVE_JUDGE] * 2
        assert np.isfinite(out.estimate.values[0]) and np.isnan(out.estimate.values[1:]).all()
        assert np.isnan(out.interval.values[1:]).all() and np.isnan(out.influence.values[1:]).all()
        assert np.isnan(contrasts(out).p_value).all()
        assert out.attrs["judge_p_value"] >= 0.05
        paper = direct.estimate(data, borrowed="plug_in")
        assert np.isfinite(paper.estimate).all() and "judge_p_value" not in paper.attrs


def test_labels_that_never_vary_lend_nothing():
    out = direct.estimate(lent(np.random.default_rng(0).uniform(size=(2, 60)), np.ones(30)))
    assert out.status.values.tolist() == [Status.CONSTANT_LABELS, Status.UNINFORMATIVE_JUDGE]


def test_modes_of_the_paper_keep_the_plug_in():
    data = from_frame(table())
    chosen = {
        "spline": [{}, {"correction": "tmle"}],
        "plug_in": [
            {"inference": "jackknife"},
            {"inference": "cluster"},
            {"inference": "plugin_iid"},
            {"inference": direct.Bootstrap(n=10), "rng": 0},
            {"correction": "none"},
        ],
    }
    for form, every in chosen.items():
        for options in every:
            out = direct.estimate(data, **options)
            assert out.route.values[1] == form
            assert f'"borrowed": "{form}"' in out.attrs["options"]


def test_the_test_is_of_the_declared_direction_and_of_the_prediction_with_covariates():
    rng = np.random.default_rng(1)
    n = 300
    x = rng.normal(size=(2, n))
    score = rng.uniform(size=(2, n))
    label = np.clip(0.5 + 0.2 * x[0, :100] + rng.normal(0, 0.1, 100), 0, 1)
    data = lent(score, label, covariate=x[..., None], features=["x"])
    assert direct.estimate(data, borrowed="balanced").status.values[1] == Status.UNINFORMATIVE_JUDGE
    knowing = direct.estimate(data, calibration=Calibration(["x"]))
    assert knowing.status.values[1] == Status.TRANSPORT_ASSUMED
    assert knowing.attrs["judge_p_value"] < 1e-6
    falling = lent(score, 1 - score[0, :100])
    rows = unpack(falling)
    assert informative(rows, fit_slice(rows, direction="decreasing")).informative
    assert not informative(rows, fit_slice(rows)).informative


def test_a_judge_is_inverted_only_where_its_interval_says_so():
    """A slightly negative correlation of ten labels is noise; one of the same size in 200 is not."""
    statuses = []
    for m in (10, 200):
        score = np.tile(np.arange(10.0), m // 10)
        label = np.tile([5.0, 6, 3, 9, 4, 8, 1, 2, 7, 0], m // 10)  # Spearman -.49
        rows = unpack(
            from_arrays(
                score[None], policies=["a"], oracle=label[None], judge_range=(0, 9), oracle_range=(0, 9)
            )
        )
        statuses.append(fit_slice(rows).status)
    assert statuses == [Status.OK, Status.INVERTED_JUDGE]


@pytest.mark.parametrize("where", [0.0, 0.5])
def test_support_is_the_range_of_the_labels(where):
    """A tenth of the responses beyond all labels is too much; on the last labelled score itself it is not."""
    rng = np.random.default_rng(2)
    taught = np.concatenate([np.full(10, 0.5), rng.uniform(0.5, 1, 290)])
    score = np.stack([taught, np.where(np.arange(300) < 30, where, rng.uniform(0.5, taught.max(), 300))])
    rows = unpack(lent(score, taught**2 + rng.normal(0, 0.01, 300), oracle_range=(-1, 2)))
    fitted = fit_slice(rows)
    z = rows.z[rows.policy == 1]
    assert supported(fitted.z, make_lesson(rows, fitted).n_clusters, z, np.full(300, 1 / 300)) == (
        where == 0.5
    )


@pytest.mark.parametrize(
    ("borrowed", "status"), [("balanced", "LOW_SUPPORT"), ("one_step", "TRANSPORT_ASSUMED")]
)
def test_a_covariate_counts_for_support_where_the_value_rests_on_it(borrowed, status):
    """With the monotone calibrator the balance uses it, the density ratio of the scores does not."""
    rng = np.random.default_rng(3)
    judge = rng.uniform(size=(2, 120))
    judge[0, :2] = [0, 1]
    x = np.stack([rng.uniform(size=120), rng.uniform(2, 3, 120)])[..., None]
    label = np.where(np.arange(120) < np.array([[90], [0]]), judge, np.nan)
    data = from_arrays(judge, policies=["a", "b"], oracle=label, covariate=x, features=["x"])
    out = direct.estimate(data, calibration=Calibration(["x"], "monotone"), borrowed=borrowed).sel(policy="b")
    assert Status(int(out.status)).name == status
    both = direct.estimate(data, calibration=Calibration(["x"]), borrowed=borrowed).sel(policy="b")
    assert Status(int(both.status)) is Status.LOW_SUPPORT  # the two-stage calibrator sees it by either route


# --- the rank test ---------------------------------------------------------------------------------------------------


def test_rank_test_is_spearmans_where_rows_are_independent():
    rng = np.random.default_rng(0)
    for m in (6, 40):
        score, label = rng.integers(0, 8, m).astype(float), rng.integers(0, 3, m).astype(float)
        found = rank_test(score, label, np.arange(m))
        peer = stats.spearmanr(score, label, alternative="greater")
        np.testing.assert_allclose([found.spearman, found.p_value], [peer.statistic, peer.pvalue])
        np.testing.assert_allclose(found.spearman, slow.spearman(score.tolist(), label.tolist()))


def test_rank_test_counts_clusters_and_not_rows():
    """Every row five times, as one cluster: the p-value stays near the one of the clusters."""
    rng = np.random.default_rng(1)
    score = rng.uniform(size=40)
    label = 0.4 * score + rng.normal(0, 0.3, 40)
    once = rank_test(score, label, np.arange(40))
    copied = rank_test(np.tile(score, 5), np.tile(label, 5), np.tile(np.arange(40), 5))
    np.testing.assert_allclose(copied.spearman, once.spearman)
    assert 0.5 < copied.p_value / once.p_value < 2
    assert rank_test(np.tile(score, 5), np.tile(label, 5), np.arange(200)).p_value < 0.1 * once.p_value


def test_rank_test_of_a_perfect_order_is_as_sure_as_an_order_can_be():
    assert rank_test(np.arange(4.0), np.arange(4.0), np.arange(4)).p_value == 1 / 24
    assert rank_test(np.arange(9.0), -np.arange(9.0), np.arange(9)).against()
    # one order of four in 24 is 4%: too many to call a judge inverted at 2.5%
    assert not rank_test(np.arange(4.0), -np.arange(4.0), np.arange(4)).against()


@pytest.mark.parametrize("copies", [1, 3])
def test_size_of_the_rank_test(copies):
    """One-sided at 5%, and an inversion is found in 2.5%: 2,000 independent judges, 5 Monte Carlo errors."""
    rng = np.random.default_rng(5)
    cluster = np.repeat(np.arange(30), copies)
    hits = np.zeros(2)
    for _ in range(2000):
        common = rng.normal(size=(2, 30))[:, cluster]
        score, label = common + rng.normal(size=common.shape) * (copies > 1)
        found = rank_test(score, label, cluster)
        hits += [found.p_value < 0.05, found.against()]
    for share, size in zip(hits / 2000, (0.05, 0.025), strict=True):
        assert abs(share - size) < 5 * np.sqrt(size * (1 - size) / 2000)


# --- labels drawn with unequal probabilities -------------------------------------------------------------------------


def test_the_weighted_rank_test_is_its_definition():
    """Weighted mid-ranks, HC3 and null variances, effective clusters, from loops over rows."""
    rng = np.random.default_rng(6)
    for m, clusters in ((12, 12), (40, 40), (40, 13)):
        score, label = rng.integers(0, 8, m).astype(float), rng.integers(0, 3, m).astype(float)
        cluster, weight = np.arange(m) % clusters, 1 / rng.uniform(0.3, 0.9, m)
        found = rank_test(score, label, cluster, weight)
        rho, t, df = slow.weighted_rank_test(score, label, cluster, weight)
        np.testing.assert_allclose([found.spearman, found.df], [rho, df], rtol=1e-10)
        np.testing.assert_allclose(found.p_value, stats.t.sf(t, df), rtol=1e-8)
        scaled = rank_test(score, label, cluster, 7.0 * weight)
        np.testing.assert_allclose(scaled, found, rtol=1e-10)


@pytest.mark.parametrize("clusters", [50, 17])
def test_equal_probabilities_give_the_numbers_of_none(clusters):
    rng = np.random.default_rng(7)
    score, label = rng.integers(0, 9, 50).astype(float), rng.integers(0, 4, 50).astype(float)
    cluster = np.arange(50) % clusters
    assert rank_test(score, label, cluster, np.full(50, 2.5)) == rank_test(score, label, cluster)


def test_one_label_with_all_the_weight_ranks_nothing():
    weight = np.array([1e6, *np.ones(39)])
    found = rank_test(np.arange(40.0), np.arange(40.0), np.arange(40), weight)
    assert found.p_value == 1 and not found.against()


def chosen_by_score_and_cause(rng, n, *, binary):
    """An independent judge; labels drawn where score and a cause of the label are both high or both low."""
    score, cause = rng.uniform(size=(2, n))
    label = (rng.uniform(size=n) < cause) * 1.0 if binary else cause + rng.normal(0, 0.3, n)
    prob = np.where((score - 0.5) * (cause - 0.5) > 0, 0.5, 0.1)
    drawn = rng.uniform(size=n) < prob
    return score[drawn], label[drawn], 1 / prob[drawn]


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("n", [100, 400])
def test_size_of_the_weighted_rank_test(n, binary):
    """At most 5% of 2,000 independent judges (exact bound); the planted error, no weights, finds most of them."""
    rng = np.random.default_rng(8)
    hits = np.zeros(2, dtype=int)
    for _ in range(2000):
        score, label, weight = chosen_by_score_and_cause(rng, n, binary=binary)
        alone = np.arange(len(score))
        hits[0] += rank_test(score, label, alone, weight).p_value < 0.05
        hits[1] += rank_test(score, label, alone).p_value < 0.05
    assert hits[0] <= stats.binom.isf(1e-4, 2000, 0.05)
    assert hits[1] > 800


def test_the_judge_is_tested_with_the_declared_probabilities():
    """Labels chosen so that scores and labels agree: informative if drawn at random, noise as they were drawn."""
    rng = np.random.default_rng(9)
    n = 800
    score, cause = rng.uniform(size=(2, n))
    prob = np.where((score - 0.5) * (cause - 0.5) > 0, 0.5, 0.1)
    label = np.where(rng.uniform(size=n) < prob, cause, np.nan)
    both, chances = np.stack([score, rng.uniform(size=n)]), np.stack([prob, np.ones(n)])
    oracle = np.stack([label, np.full(n, np.nan)])
    plain = direct.estimate(from_arrays(both, policies=["a", "b"], oracle=oracle))
    assert plain.status.values[1] == Status.TRANSPORT_ASSUMED and plain.attrs["judge_p_value"] < 1e-6
    told = direct.estimate(from_arrays(both, policies=["a", "b"], oracle=oracle, label_prob=chances))
    assert told.status.values[1] == Status.UNINFORMATIVE_JUDGE


def test_weights_that_differ_by_rounding_are_equal():
    rng = np.random.default_rng(3)
    score = rng.normal(size=30)
    label = score + 2 * rng.normal(size=30)
    plain = rank_test(score, label, np.arange(30))
    assert rank_test(score, label, np.arange(30), 0.3 * (1 + 1e-15 * rng.normal(size=30))) == plain
    assert rank_test(score, label, np.arange(30), 1 + 0.5 * rng.random(30)) != plain


def test_rank_test_where_terms_cancel_within_clusters():
    """Two answers of each prompt, one the complement of the other: clusters do not differ."""
    score = np.tile([0.25, 0.75, 0.75, 0.25], 6)
    label = np.repeat([0.0, 1.0], 12)
    found = rank_test(score, label, np.arange(24) // 2)
    assert found.spearman == pytest.approx(0.0, abs=1e-15) and found.p_value == pytest.approx(0.5)
