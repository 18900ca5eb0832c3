"""From influence values to intervals: every formula against its loop, its closed form or statsmodels."""

import json

import numpy as np
import oracles_uncertainty as slow
import pandas as pd
import pytest
import statsmodels.api as sm
from oracles_uncertainty import row_dicts, table
from scipy import special, stats
from statsmodels.stats.sandwich_covariance import cov_cluster

from cje_core.data import DataError, from_arrays, from_frame
from cje_core.estimators import direct, direct_corrected, labels_only
from cje_core.result import Status, into_scale, logit_wald, wald
from cje_core.targeting import targeted
from cje_core.uncertainty import (
    Part,
    combine,
    cr1_factor,
    delete_group_variance,
    influence_se,
    make_part,
    pooled_df,
    simultaneous_bands,
    stationary_bootstrap_se,
)
from cje_sim.scenarios import useless_judge

INFERENCE = ["influence", "jackknife", "cluster", "plugin_iid", "bootstrap"]


def options(inference):
    return {"inference": inference, "rng": 0} | ({"n_boot": 60} if inference == "bootstrap" else {})


# --- one standard error ---------------------------------------------------------------------------------------------


def test_cr1_factor_is_statsmodels():
    """cov_cluster without its correction, times our factor, is cov_cluster with it: one and three regressors."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(12), 5)
    for k in (1, 3):
        x = np.column_stack([np.ones(60), rng.normal(size=(60, k - 1))])
        fit = sm.OLS(rng.normal(size=60), x).fit()
        plain, corrected = (cov_cluster(fit, group, use_correction=flag) for flag in (False, True))
        np.testing.assert_allclose(plain * cr1_factor(12, 60, k), corrected)
    assert cr1_factor(12) == 12 / 11


def test_cluster_robust_mean_is_statsmodels():
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(10), 6)
    y = rng.normal(size=60) + rng.normal(size=10)[cluster]
    part = make_part(y - y.mean(), np.ones(60), cluster)
    fit = sm.OLS(y, np.ones(60)).fit(cov_type="cluster", cov_kwds={"groups": cluster})
    np.testing.assert_allclose(influence_se(part.influence, cluster), fit.bse[0])
    raw = y - y.mean()
    np.testing.assert_allclose(influence_se(raw, cluster), slow.cluster_standard_error(raw, cluster))
    assert part.df == pytest.approx(9)


def test_parts_that_share_a_prompt_add_with_their_covariance():
    a, b = np.array([1.0, -1.0, 0.0]), np.array([-1.0, 1.0, 0.0])
    total, std_error, _ = combine([Part(a, 10.0), Part(b, 10.0)], np.arange(3))
    assert std_error == 0
    np.testing.assert_array_equal(total, 0)


def test_pitfall_29_degrees_of_freedom_are_welch_where_no_source_dominates():
    variance, df = np.array([2.0, 1.0, 3.0]), np.array([30.0, 12.0, 400.0])
    np.testing.assert_allclose(pooled_df(variance, df), 36 / (4 / 30 + 1 / 12 + 9 / 400))
    assert pooled_df([1.0], [7.0]) == pytest.approx(7)
    assert pooled_df([0.0], [5.0]) == np.inf
    assert pooled_df([1.0, 1.0], [np.inf, np.inf]) == np.inf
    assert np.isnan(pooled_df([np.nan, 1.0], [np.nan, 3.0]))


@pytest.mark.parametrize("first", [2.0, 4.0, 9.0])
def test_pitfall_30_a_further_source_of_error_never_narrows_the_interval(first):
    """Welch's df alone rises so fast that t * SE falls; ours never does, on a grid of added variances."""
    added = np.linspace(0, 3, 61)
    welch = (1 + added) ** 2 / (1 / first + added**2 / 1000)
    alone = special.stdtrit(first, 0.975)
    if first < 5:
        assert (special.stdtrit(welch, 0.975) * np.sqrt(1 + added)).min() < alone  # the pitfall is there
    df = np.array([pooled_df([1.0, v], [first, 1000.0]) for v in added])
    half = special.stdtrit(df, 0.975) * np.sqrt(1 + added)
    assert (half >= alone * (1 - 1e-9)).all()
    assert (np.diff(half) > -1e-9).all()


@pytest.mark.parametrize("inference", INFERENCE)
@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
@pytest.mark.parametrize("interval", ["wald", "logit"])
def test_pitfall_19_40_one_estimate_and_intervals_that_contain_it(inference, correction, interval):
    data = from_frame(table(n=70, seed=6, draws=2))
    out = direct.estimate(data, correction=correction, interval=interval, **options(inference))
    np.testing.assert_array_equal(out.estimate, direct.estimate(data, correction=correction).estimate)
    low, high = out.interval.values.T
    assert (low < out.estimate).all()
    assert (high > out.estimate).all()
    np.testing.assert_allclose(low + high - 2 * out.estimate, 0, atol=0.1)


@pytest.mark.parametrize("inference", ["influence", "jackknife", "cluster"])
@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
def test_clusters_are_respected(inference, correction):
    """Each prompt copied, as a new prompt of the same cluster: no information is added, and no SE falls."""
    frame = table(n=60, seed=2)
    frame["cluster"] = frame.prompt_id
    copied = pd.concat([frame, frame.assign(prompt_id="z" + frame.prompt_id)])
    alone, twice = (
        direct.estimate(from_frame(t), inference=inference, correction=correction) for t in (frame, copied)
    )
    np.testing.assert_allclose(twice.estimate, alone.estimate, atol=1e-12)
    np.testing.assert_allclose(
        twice.std_error, alone.std_error, rtol=0.05
    )  # n_b / (n_b - 1) of the blocks moves
    naive = direct.estimate(
        from_frame(copied.drop(columns="cluster")), inference=inference, correction=correction
    )
    assert (naive.std_error < 0.85 * twice.std_error).all()


def test_baselines_that_take_f_as_known_are_the_spread_of_the_predictions():
    """plugin_iid counts prompts, cluster counts clusters; each with its own G / (G - 1)."""
    frame = table(n=60, seed=2)
    frame["cluster"] = frame.prompt_id.str[1:].astype(int) // 2
    data = from_frame(frame)
    dicts, folds = row_dicts(data)
    for policy in "ab":
        evaluated, _ = slow.pieces(dicts, policy, folds, "plug_in")
        guess = np.array([g for _, _, g in evaluated])
        cluster = [r["cluster"] for r, _, _ in evaluated]
        known = {"plugin_iid": (range(60), 60), "cluster": (cluster, 30)}
        for inference, (unit, size) in known.items():
            out = direct.estimate(data, inference=inference, correction="none").sel(policy=policy)
            expected = slow.cluster_standard_error(guess - guess.mean(), unit) * np.sqrt(size / (size - 1))
            np.testing.assert_allclose(out.std_error, expected)
            assert out.df == np.inf
            assert np.isnan(out.std_error_calibration)


@pytest.mark.parametrize("inference", ["influence", "jackknife", "cluster", "plugin_iid"])
def test_twice_the_data_has_the_standard_error_over_root_two(inference):
    """Copies as new clusters. The plug-in is unchanged; small-sample factors leave some per cent."""
    frame = table(n=300, seed=5, share=0.6)
    copied = pd.concat([frame, frame.assign(prompt_id="z" + frame.prompt_id)])
    once, twice = (
        direct.estimate(from_frame(t), inference=inference, correction="none") for t in (frame, copied)
    )
    np.testing.assert_allclose(twice.estimate, once.estimate, atol=1e-12)
    # folds are dealt anew, so a five-fold jackknife has noise of its own: chi-square with 4 df
    np.testing.assert_allclose(
        twice.std_error * np.sqrt(2), once.std_error, rtol=0.8 if inference == "jackknife" else 0.03
    )


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plug_in", "hajek", "ht", "tmle"])
@pytest.mark.parametrize("scale", [(0.0, 1.0), (-1.0, 2.0)])
def test_every_route_is_its_definition(kind, scale):
    frame = table(own=("a", "b"), draws=3, seed=8)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    frame["cluster"] = frame.prompt_id.str[1:].astype(int) // 2
    data = from_frame(frame, oracle_range=scale)
    chosen = {
        "plug_in": {"correction": "none"},
        "hajek": {},
        "ht": {"normalise": "ht"},
        "tmle": {"correction": "tmle"},
    }
    out = direct.estimate(data, power_tuned=False, **chosen[kind])
    names = {"plug_in": "plug_in", "hajek": "aipw_hajek", "ht": "aipw_ht", "tmle": "aipw_tmle"}
    assert out.route.values.tolist() == [names[kind]] * 2
    dicts, folds = row_dicts(data)
    for policy in "ab":
        expected = slow.value(dicts, policy, folds, kind, scale=scale)
        np.testing.assert_allclose(out.estimate.sel(policy=policy), expected, atol=1e-10)


def test_horvitz_thompson_influence_is_that_of_its_pseudo_outcome():
    """psi_i = f + L / e (Y - f); the influence is psi_i less its mean, where every prompt has one row."""
    frame = table(own=("a",), policies=("a",), seed=3, n=200)
    frame["label_prob"] = 0.3 + 0.4 * frame["judge_score"]
    data = from_frame(frame)
    out = direct.estimate(data, power_tuned=False, normalise="ht")
    dicts, folds = row_dicts(data)
    evaluated, labelled = slow.pieces(dicts, "a", folds, "ht")
    psi = np.zeros(200)
    for r, _, g in evaluated:
        psi[r["prompt"]] += g
    for r, _, g in labelled:
        psi[r["prompt"]] += (r["label"] - g) / r["prob"]
    np.testing.assert_allclose(out.estimate, psi.mean())
    # the small-sample factor acts on the labelled part, so equality is up to sqrt(m / (m - 1))
    np.testing.assert_allclose(out.std_error, (psi - psi.mean()).std() / np.sqrt(200), rtol=0.01)


def test_horvitz_thompson_with_equal_probabilities_differs_by_the_number_drawn():
    """At e = |L| / n the two forms are one; at another declared constant they are not."""
    frame = table(own=("a",), policies=("a",), n=100)
    seen = frame.oracle_label.notna().mean()
    same = [
        direct.estimate(from_frame(frame.assign(label_prob=seen)), normalise=form).estimate.item()
        for form in ("hajek", "ht")
    ]
    np.testing.assert_allclose(same[0], same[1])
    data = from_frame(frame.assign(label_prob=0.9 * seen))
    assert direct.estimate(data, normalise="ht").estimate != direct.estimate(data).estimate


def test_tmle_agrees_with_theta_aug_to_first_order():
    """The difference is of the order of the squared error: at four times the labels it falls fourfold, not by half."""
    rng = np.random.default_rng(0)
    gap, error = [], []
    for m in (100, 400, 1600):
        differences, std_errors = [], []
        for _ in range(40):
            score = rng.uniform(size=4 * m)
            label = np.where(np.arange(4 * m) < m, rng.beta(1 + 6 * score, 7 - 6 * score), np.nan)
            data = from_arrays(score[None], policies=["a"], oracle=label[None])
            one, two = (direct.estimate(data, correction=c, power_tuned=False) for c in ("theta_aug", "tmle"))
            differences.append((one.estimate - two.estimate).item())
            std_errors.append(one.std_error.item())
            np.testing.assert_allclose(two.std_error, one.std_error, rtol=0.1)
        gap.append(np.sqrt(np.mean(np.square(differences))))
        error.append(np.mean(std_errors))
    assert gap[0] < 0.2 * error[0]
    rates = np.diff(np.log(gap)) / np.log(4)
    assert (rates < -0.7).all()  # first order would be -1/2
    assert np.diff(np.log(error)) / np.log(4) == pytest.approx(-0.5, abs=0.1)


def test_tmle_stays_in_the_range_where_theta_aug_leaves_it():
    """Predictions near the top and the few labels below it: the residual pushes theta_aug past 1."""
    n, m = 200, 20
    score = np.r_[np.full(m // 2, 0.1), np.full(m // 2, 0.9), np.full(n - m, 0.9)]
    label = np.r_[np.linspace(0.3, 0.5, m // 2), np.full(m // 2, 1.0), np.full(n - m, np.nan)]
    label[:3] = 1.0
    data = from_arrays(score[None], policies=["a"], oracle=label[None])
    step = direct.estimate(data, power_tuned=False)
    tmle = direct.estimate(data, correction="tmle", power_tuned=False)
    logit = direct.estimate(data, interval="logit", power_tuned=False)
    assert tmle.estimate <= 1
    assert step.interval.sel(ci_bound="upper") > 1 >= logit.interval.sel(ci_bound="upper")


def test_pitfall_04_the_fluctuation_reaches_the_evaluated_rows():
    """Predictions 0.2 too low everywhere: the targeted mean over rows without labels is lifted, not just residuals."""
    guess, label = np.full(50, 0.3), np.full(20, 0.5) + np.tile([-0.1, 0.1], 10)
    one = np.ones
    lifted, own = targeted(guess, one(50), guess[:20], one(20), label, one(20), (0.0, 1.0))
    np.testing.assert_allclose(lifted, 0.5, atol=1e-12)
    np.testing.assert_allclose((label - own).sum(), 0, atol=1e-10)


def test_targeting_all_ones_gives_the_end_of_the_range():
    one = np.ones
    lifted, _ = targeted(
        np.full(5, 2.0), one(5), np.full(4, 2.0), one(4), np.full(4, 3.0), one(4), (1.0, 3.0)
    )
    np.testing.assert_allclose(lifted, 3.0)


def test_tmle_is_doubly_robust_in_a_wrong_prediction():
    """Known unequal probabilities and a calibrator that cannot see what drives them: the score equation repairs it."""
    rng = np.random.default_rng(3)
    n, reps = 2000, 60
    estimates = {"tmle": [], "none": []}
    for _ in range(reps):
        x = rng.integers(0, 2, n)
        label = np.clip(0.2 + 0.6 * x + rng.normal(0, 0.05, n), 0, 1)
        prob = np.where(x == 1, 0.1, 0.4)
        seen = rng.uniform(size=n) < prob
        data = from_arrays(
            np.full((1, n), 0.5) + rng.uniform(0, 0.1, (1, n)),  # a judge that knows nothing
            policies=["a"],
            oracle=np.where(seen, label, np.nan)[None],
            label_prob=prob[None],
        )
        for c in estimates:
            estimates[c].append(direct.estimate(data, correction=c, power_tuned=False).estimate.item())
    mean, spread = np.mean(estimates["tmle"]), np.std(estimates["tmle"]) / np.sqrt(reps)
    assert abs(mean - 0.5) < 5 * spread < 0.05


def test_tmle_needs_the_probability_of_every_response():
    frame = table(policies=("a",))
    frame["label_prob"] = np.where(frame.oracle_label.notna(), 0.5, np.nan)
    data = from_frame(frame)
    with pytest.raises(DataError, match="label_prob is missing"):
        direct.estimate(data, correction="tmle")
    assert np.isfinite(direct.estimate(data).estimate).all()


@pytest.mark.parametrize("seed", range(3))
def test_one_step_of_a_borrowed_policy_is_its_definition(seed):
    frame = table(n=40, seed=seed, share=0.7, draws=2)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    data = from_frame(frame)
    out = direct.estimate(data, borrowed="one_step").sel(policy="b")
    assert out.route == "one_step"
    assert out.status == Status.TRANSPORT_ASSUMED
    dicts, folds = row_dicts(data)
    np.testing.assert_allclose(out.estimate, slow.one_step(dicts, "b", folds), atol=1e-9)


def test_one_step_is_near_theta_aug_where_borrower_and_teacher_are_one():
    """A twin without labels: the density ratio is one up to noise, so the correction is the mean held-out residual."""
    frame = table(n=600, policies=("a",), seed=1)
    twin = frame.assign(policy="b", oracle_label=np.nan)
    out = direct.estimate(from_frame(pd.concat([frame, twin])), borrowed="one_step", power_tuned=False)
    a, b = out.estimate.values
    assert abs(a - b) < 0.2 * out.std_error.values[0]
    np.testing.assert_allclose(out.std_error[1], out.std_error[0], rtol=0.1)


def test_one_step_without_a_label_where_the_policy_lives_says_so():
    """A policy between two labelled scores gets mass on both; one far below all labels rests on the lowest block."""
    score = np.stack([np.linspace(0.5, 1, 60), np.full(60, 0.1)])
    label = np.full((2, 60), np.nan)
    label[0, ::2] = score[0, ::2] ** 2
    out = direct.estimate(from_arrays(score, policies=["a", "b"], oracle=label), borrowed="one_step")
    assert np.isfinite(out.estimate).all()
    assert out.df.values[1] < out.df.values[0]


@pytest.mark.parametrize("inference", ["bootstrap", "jackknife"])
def test_one_step_refuses_inference_that_does_not_know_it(inference):
    with pytest.raises(ValueError, match="one_step"):
        direct.estimate(from_frame(table()), borrowed="one_step", inference=inference)


def test_pitfall_08_a_fully_labelled_policy_uses_its_labels_in_estimate_and_error():
    frame = table(share=2.0, policies=("a",))
    label = frame.oracle_label
    for inference in INFERENCE:
        out = direct.estimate(from_frame(frame), **options(inference))
        assert out.route == "label_mean"
        np.testing.assert_allclose(out.estimate, label.mean())
        se = label.std(ddof=1) / np.sqrt(len(label))
        np.testing.assert_allclose(out.std_error, se, rtol=0.5 if inference == "bootstrap" else 1e-9)
    expected = (label - label.mean()) * np.sqrt(60 / 59)  # and not the smoothed out-of-fold predictions
    np.testing.assert_allclose(np.sort(out.influence.values[0]), np.sort(expected))


def test_pitfall_03_repeated_draws_are_averaged_first():
    """Three identical draws per prompt say nothing new: same estimate, same standard error."""
    frame = table(n=50, policies=("a",))
    thrice = pd.concat([frame.assign(draw_idx=d) for d in range(3)])
    for correction in ("theta_aug", "tmle"):
        once, more = (direct.estimate(from_frame(t), correction=correction) for t in (frame, thrice))
        np.testing.assert_allclose(more.estimate, once.estimate, atol=1e-9)
        np.testing.assert_allclose(more.std_error, once.std_error, rtol=1e-6)


def test_pitfall_22_labels_of_another_policy_only():
    frame = table(own=("b",))
    for inference in INFERENCE:
        out = direct.estimate(from_frame(frame), **options(inference)).sel(policy="a")
        assert out.status == Status.TRANSPORT_ASSUMED
        assert np.isfinite(out.interval).all()


@pytest.mark.parametrize("power_tuned", [True, False])
def test_pitfall_34_own_labels_that_never_vary_have_no_interval(power_tuned):
    """Other labels vary, so f does; residuals of constant labels would show only that."""
    frame = table(own=("a", "b"))
    frame.loc[(frame.policy == "b") & frame.oracle_label.notna(), "oracle_label"] = 1.0
    for correction in ("theta_aug", "tmle"):
        out = direct.estimate(from_frame(frame), power_tuned=power_tuned, correction=correction)
        assert out.status.values.tolist() == [Status.OK, Status.CONSTANT_LABELS]
        assert np.isnan(out.interval.sel(policy="b")).all()
        assert np.isfinite(out.estimate).all()


def test_pitfall_28_one_cluster_has_no_standard_error_in_any_kind_of_inference():
    frame = table(own=("a",))
    frame = frame[(frame.policy == "a") | (frame.prompt_id == "p7")]
    for inference in INFERENCE:
        out = direct.estimate(from_frame(frame), **options(inference))
        assert out.status.sel(policy="b") == Status.ONE_CLUSTER
        assert np.isnan(out.std_error.sel(policy="b"))


def test_tuned_weights_are_reported():
    data = from_frame(table())
    out = direct.estimate(data)
    assert 0 <= out.power_calibrator.sel(policy="a") <= 1
    assert np.isnan(out.power_calibrator.sel(policy="b")) or out.power_calibrator.sel(policy="b") == 1
    assert "power_line" not in direct.estimate(data, power_tuned=False)


@pytest.mark.slow
@pytest.mark.parametrize("m", [50, 250])
def test_a_useless_judge_costs_at_most_three_per_cent(m):
    """Mean width of tuned Direct over that of the labels alone, 400 paired data sets; theta_aug pays more."""
    width = {"tuned": [], "theta_aug": [], "labels": []}
    for r in range(400):
        data = useless_judge.simulate(n=1000, oracle_fraction=m / 1000, rng=r)
        for name, out in (
            ("tuned", direct.estimate(data)),
            ("theta_aug", direct.estimate(data, power_tuned=False)),
            ("labels", labels_only.estimate(data)),
        ):
            width[name].append(out.interval.diff("ci_bound").values.mean())
    ratio = {name: np.mean(w) / np.mean(width["labels"]) for name, w in width.items()}
    assert ratio["tuned"] < 1.03
    assert ratio["theta_aug"] > ratio["tuned"]


# --- jackknife --------------------------------------------------------------------------------------------------------


def test_pitfall_01_jackknife_is_the_closed_form_of_a_mean():
    """Delete-one of a mean: exactly s^2 / n. Dividing the sum by K would make it K - 1 times smaller."""
    y = np.random.default_rng(0).normal(size=17)
    left_out = np.array([np.delete(y, i).mean() for i in range(17)])
    np.testing.assert_allclose(delete_group_variance(left_out, np.ones(17), y.mean()), y.var(ddof=1) / 17)


def test_weighted_jackknife_of_unequal_folds():
    """Loops; the paper's formula where folds are equal; unbiased for a mean where they are not (enumerated signs)."""
    rng = np.random.default_rng(1)
    left_out, size = rng.normal(size=(4, 5)), [3, 3, 2, 2, 2]
    full = rng.normal(size=4)
    expected = [slow.delete_group_variance(row, size, v) for row, v in zip(left_out, full, strict=True)]
    np.testing.assert_allclose(delete_group_variance(left_out, size, full), expected)
    equal = [0.8 * ((row - row.mean()) ** 2).sum() for row in left_out]
    np.testing.assert_allclose(delete_group_variance(left_out, [7] * 5, full), equal)
    groups = np.repeat(np.arange(5), size)
    signs = np.array([[1 if code >> i & 1 else -1 for i in range(12)] for code in range(2**12)], float)
    without = np.stack([signs[:, groups != k].mean(axis=1) for k in range(5)], axis=1)
    variance = delete_group_variance(without, size, signs.mean(axis=1))
    np.testing.assert_allclose(variance.mean(), 1 / 12)


@pytest.mark.parametrize("correction", ["none", "theta_aug", "tmle"])
def test_jackknife_leaves_out_one_oracle_fold_at_a_time(correction):
    """Refits by loops; the standard error adds their variance to the cluster variance; 1.96 in paper mode."""
    data = from_frame(table(own=("a",), draws=2, n=61))
    out = direct.estimate(
        data, inference="jackknife", correction=correction, power_tuned=False, quantile="normal"
    )
    dicts, folds = row_dicts(data)
    labelled = {r["prompt"] for r in dicts if r["teaches"]}
    size = [sum(folds[i] == k for i in labelled) for k in range(5)]
    for policy in "ab":
        kind = {"none": "plug_in", "theta_aug": "hajek", "tmle": "tmle"}[correction]
        kind = kind if policy == "a" else "plug_in"
        expected = [slow.value(dicts, policy, folds, kind, without=k) for k in range(5)]
        np.testing.assert_allclose(out.jackknife.sel(policy=policy), expected, atol=1e-10)
        variance = slow.delete_group_variance(expected, size, out.estimate.sel(policy=policy).item())
        np.testing.assert_allclose(out.std_error_calibration.sel(policy=policy) ** 2, variance)
    np.testing.assert_allclose(out.std_error**2, out.std_error_evaluation**2 + out.std_error_calibration**2)
    np.testing.assert_allclose(out.calibration_share, out.std_error_calibration**2 / out.std_error**2)
    half = out.interval.sel(ci_bound="upper") - out.estimate
    np.testing.assert_allclose(half / out.std_error, stats.norm.ppf(0.975))
    given_f = direct.estimate(data, correction=correction, power_tuned=False)
    if correction == "none":  # a plug-in's labels act through f alone; own residuals vary for any f
        expected = given_f.std_error_evaluation.values
    else:
        expected = [given_f.std_error.values[0], given_f.std_error_evaluation.values[1]]
    np.testing.assert_allclose(out.std_error_evaluation, expected)
    t = direct.estimate(data, inference="jackknife", correction=correction, power_tuned=False)
    assert (t.interval.diff("ci_bound") > out.interval.diff("ci_bound")).all()


def test_pitfall_02_jackknife_of_a_two_stage_calibrator_goes_through_held_out_predictions():
    """Leave-one-fold values lie near the estimate; raw scores fed to an index-space fit would be far off."""
    rng = np.random.default_rng(0)
    score, x = rng.uniform(size=(2, 120)), rng.uniform(size=(2, 120, 1))
    label = np.clip(0.6 * score + 0.3 * x[..., 0] + rng.normal(0, 0.05, (2, 120)), 0, 1)
    label[1], label[0, 80:] = np.nan, np.nan
    data = from_arrays(10 * score, policies=["a", "b"], oracle=label, covariate=x, judge_range=(0, 10))
    out = direct.estimate(data, covariates=("x0",), inference="jackknife")
    assert (np.abs(out.jackknife - out.estimate) < 0.05).all()
    assert json.loads(out.attrs["options"])["calibrator"] == "two_stage"


def test_pitfall_23_a_fully_labelled_policy_has_no_calibration_error():
    data = from_frame(table(share=2.0))
    out = direct.estimate(data, inference="jackknife")
    assert out.calibration_share.sel(policy="a") == 0
    assert out.calibration_share.sel(policy="b") > 0
    assert np.isnan(out.jackknife.sel(policy="a")).all()


def test_calibration_share_falls_with_labels():
    """From over a half at 10% labels to nothing for a policy whose every response is labelled."""
    share = [
        direct.estimate(from_frame(table(n=400, share=s, seed=1))).calibration_share.values
        for s in (0.1, 0.5, 2.0)
    ]
    assert (np.diff(share, axis=0) < 0).all()
    assert (share[0] > 0.5).all()
    assert share[2][0] == 0


# --- interval scales --------------------------------------------------------------------------------------------------


def test_logit_interval_matches_its_definition_and_approaches_wald():
    low, high = -1.0, 3.0
    value, se = 2.5, 0.2
    share = (value - low) / (high - low)
    slope = 1 / (share * (1 - share) * (high - low))
    ends = [np.log(share / (1 - share)) + s * 1.959963984540054 * slope * se for s in (-1, 1)]
    expected = [low + (high - low) / (1 + np.exp(-e)) for e in ends]
    np.testing.assert_allclose(logit_wald(value, se, np.inf, 0.95, (low, high)), expected)
    np.testing.assert_allclose(
        logit_wald(value, 1e-4, 9.0, 0.95, (low, high)), wald(value, 1e-4, 9.0, 0.95), atol=1e-7
    )


def test_logit_interval_at_and_beyond_the_edge():
    """No logit there: the Wald interval cut to the range, and stretched to an estimate outside it."""
    out = logit_wald([1.0, 1.02, 0.0, np.nan], [0.1, 0.1, 0.1, np.nan], np.inf, 0.95, (0.0, 1.0))
    np.testing.assert_allclose(out[:3], [[0.804, 1.0], [0.824, 1.02], [0.0, 0.196]], atol=1e-3)
    assert np.isnan(out[3]).all()
    np.testing.assert_array_equal(into_scale(np.array([[-0.2, 0.4]]), [0.1], (0.0, 1.0)), [[0.0, 0.4]])


@pytest.mark.parametrize("module", [direct, labels_only, direct_corrected])
def test_logit_interval_is_an_option_of_the_direct_family(module):
    data = from_frame(table(probes=20))
    out = module.estimate(data, interval="logit")
    inside = out.interval.values[np.isfinite(out.std_error.values)]
    assert ((inside > 0) & (inside < 1)).all()
    assert out.attrs["ci_kind"] == "logit"


def test_pitfall_21_scale_goes_through_every_number():
    """0-100 scales: estimate, every standard error and both kinds of interval are a hundred times those on 0-1."""
    frame = table(own=("a",))
    big = frame.assign(judge_score=100 * frame.judge_score, oracle_label=100 * frame.oracle_label)
    scales = {"judge_range": (0, 100), "oracle_range": (0, 100)}
    for inference in INFERENCE:
        for interval in ("wald", "logit"):
            for correction in ("theta_aug", "tmle"):
                chosen = {"interval": interval, "correction": correction} | options(inference)
                small = direct.estimate(from_frame(frame), **chosen)
                large = direct.estimate(from_frame(big, **scales), **chosen)
                for name in (
                    "estimate",
                    "std_error",
                    "interval",
                    "std_error_evaluation",
                    "std_error_calibration",
                ):
                    np.testing.assert_allclose(large[name], 100 * small[name], rtol=1e-7)
                np.testing.assert_allclose(large.calibration_share, small.calibration_share, rtol=1e-7)


# --- serial dependence ------------------------------------------------------------------------------------------------


def test_stationary_bootstrap_variance_is_that_of_resampled_blocks():
    """The closed form against 4,000 samples glued block by block: within 5 Monte Carlo SEs of a log variance."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=61)
    x = noise[1:] + 0.9 * noise[:-1]
    x = x - x.mean()
    for block in (1.0, 4.0, 40.0):  # at 40 of 60 the blocks that wrap round matter
        means = slow.stationary_means(x, block, 4000, rng)
        ratio = np.var(means, ddof=1) / stationary_bootstrap_se(x, mean_block=block).std_error ** 2
        assert abs(np.log(ratio)) < 5 * np.sqrt(2 / 4000)


def test_stationary_bootstrap_with_blocks_of_one_is_the_plain_standard_error():
    x = np.random.default_rng(1).normal(size=200)
    np.testing.assert_allclose(stationary_bootstrap_se(x, mean_block=1.0).std_error, x.std() / np.sqrt(200))


def test_swept_block_length_finds_the_long_run_variance():
    """AR(1) with coefficient 0.6: the true SE of the mean is twice the naive one; independent values need no blocks."""
    rng = np.random.default_rng(2)
    n, phi = 4000, 0.6
    ratios = []
    for _ in range(20):
        noise = rng.normal(size=n)
        x = np.empty(n)
        x[0] = noise[0] / np.sqrt(1 - phi**2)
        for i in range(1, n):
            x[i] = phi * x[i - 1] + noise[i]
        ratios.append(stationary_bootstrap_se(x).std_error * np.sqrt(n) * (1 - phi))
    assert 0.8 < np.mean(ratios) < 1.05  # the naive one sits at 0.5
    flat = [stationary_bootstrap_se(rng.normal(size=n)).std_error * np.sqrt(n) for _ in range(20)]
    assert 0.9 < np.mean(flat) < 1.1


def test_stationary_bootstrap_refuses_an_impossible_block_and_passes_on_nan():
    with pytest.raises(ValueError, match="mean_block is 0"):
        stationary_bootstrap_se(np.ones(10), mean_block=0)
    assert np.isnan(stationary_bootstrap_se(np.full(30, np.nan)).std_error)


# --- several policies at once -----------------------------------------------------------------------------------------


def many(correlation, n_policies=6, n=400, seed=0):
    rng = np.random.default_rng(seed)
    shared, own = rng.normal(size=n), rng.normal(size=(n_policies, n))
    y = 0.5 + 0.05 * (np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own)
    return from_arrays(np.full((n_policies, n), 0.5), policies=[f"p{k}" for k in range(n_policies)], oracle=y)


def test_band_of_one_policy_is_its_interval():
    out = labels_only.estimate(many(0.0, 1))
    band = simultaneous_bands(out)
    np.testing.assert_allclose(band.interval, out.interval, rtol=1e-4)
    assert band.attrs["critical_value"] >= stats.t.ppf(0.975, 399)


def test_critical_value_of_independent_and_of_identical_policies():
    """Independent: Sidak's, in closed form; identical: the pointwise one."""
    sidak = stats.norm.ppf(0.5 + 0.95 ** (1 / 6) / 2)
    assert simultaneous_bands(labels_only.estimate(many(0.0))).attrs["critical_value"] == pytest.approx(
        sidak, rel=0.015
    )
    assert simultaneous_bands(labels_only.estimate(many(1.0))).attrs["critical_value"] == pytest.approx(
        stats.t.ppf(0.975, 399), rel=0.01
    )


@pytest.mark.slow
def test_bands_cover_jointly(monkeypatch):
    """All six values at once, 600 data sets: exact five-sigma binomial bounds; pointwise intervals fail them."""
    monkeypatch.setattr("cje_core.uncertainty.BAND_DRAWS", 5000)
    joint = pointwise = 0
    for seed in range(600):
        out = labels_only.estimate(many(0.3, n=60, seed=seed))
        for name, interval in (("band", simultaneous_bands(out).interval), ("plain", out.interval)):
            low, high = interval.values.T
            hit = bool(((low <= 0.5) & (high >= 0.5)).all())
            joint, pointwise = joint + (name == "band") * hit, pointwise + (name == "plain") * hit
    low, high = stats.binom.ppf([stats.norm.sf(5), stats.norm.cdf(5)], 600, 0.95)
    assert low <= joint <= high
    assert pointwise < low


def test_bands_need_influence_and_skip_failures():
    data = from_frame(table(own=("a",), policies=("a", "b", "c")))
    out = direct.estimate(data)
    band = simultaneous_bands(out, ci_prob=0.9)
    assert (band.interval.diff("ci_bound").values > 0).all()
    out.std_error[1] = np.nan
    assert np.isnan(simultaneous_bands(out).interval.values[1]).all()
    with pytest.raises(ValueError, match="no influence"):
        simultaneous_bands(out.drop_vars("influence"))
    with pytest.raises(ValueError, match="ci_prob"):
        simultaneous_bands(out, ci_prob=1.0)
    nothing = simultaneous_bands(out.assign(std_error=out.std_error * np.nan))
    assert np.isnan(nothing.interval).all()
