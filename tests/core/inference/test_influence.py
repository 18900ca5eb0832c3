"""From influence values to intervals: every formula against its loop, its closed form or statsmodels."""

import numpy as np
import oracles_uncertainty as slow
import pandas as pd
import pytest
import statsmodels.api as sm
from oracles_uncertainty import row_dicts, table
from scipy import special, stats
from statsmodels.stats.sandwich_covariance import cov_cluster

from cje_core.data import from_arrays
from cje_core.estimators import direct, direct_corrected, labels_only
from cje_core.inference.estimate import Status, into_scale, logit_wald, wald
from cje_core.inference.influence import (
    Part,
    combine,
    cr1_factor,
    make_part,
    pooled_df,
    pooled_df_of_one,
    simultaneous_bands,
)
from cje_core.inference.serial import stationary_bootstrap_se
from cje_core.inference.sums import cluster_se
from cje_core.io import from_frame

INFERENCE = ["influence", "jackknife", "cluster", "plugin_iid", "bootstrap"]


def options(inference):
    return {"inference": direct.Bootstrap(n=60) if inference == "bootstrap" else inference, "rng": 0}


# --- one standard error ----------------------------------------------------------------------------------------------


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
    np.testing.assert_allclose(cluster_se(part.influence, cluster), fit.bse[0])
    raw = y - y.mean()
    np.testing.assert_allclose(cluster_se(raw, cluster), slow.cluster_standard_error(raw, cluster))
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


def test_degrees_of_freedom_of_one_sum_are_those_of_many():
    """To the bit: sources that do not act, are known or tell nothing, and enough others to reach the cap and not."""
    rng = np.random.default_rng(1)
    variance = np.where(rng.random((2000, 2)) < 0.1, 0.0, rng.lognormal(sigma=3.0, size=(2000, 2)))
    df = np.where(rng.random((2000, 2)) < 0.1, np.inf, 1 + rng.lognormal(sigma=2.0, size=(2000, 2)))
    cases = [*zip(variance.tolist(), df.tolist(), strict=True)]
    cases += [([a, b], [c, d]) for a in (0.0, 1.0, np.nan, np.inf) for b in (0.0, 2.0, np.nan)
              for c in (0.0, 3.0, np.inf, np.nan) for d in (5.0, np.nan)]  # fmt: skip
    for v, nu in cases:
        with np.errstate(all="ignore"):
            expected = float(pooled_df(v, nu))
        np.testing.assert_array_equal(pooled_df_of_one(v, nu), expected, str((v, nu)))
    ordinary = (variance > 0).all(axis=1) & np.isfinite(df).all(axis=1)
    v, nu = variance[ordinary], df[ordinary]
    welch = v.sum(axis=1) ** 2 / (v**2 / nu).sum(axis=1)
    capped = pooled_df(v, nu) < welch * (1 - 1e-9)
    assert 0 < capped.sum() < len(capped)  # both ways were met


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


@pytest.mark.parametrize("inference", ["influence", "jackknife", "cluster"])
@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
def test_clusters_are_respected(inference, correction):
    """Each prompt copied, as a new prompt of the same cluster: no information is added, and no SE falls."""
    frame = table(n=60, seed=2)
    frame["cluster"] = frame.prompt_id
    copied = pd.concat([frame, frame.assign(prompt_id="z" + frame.prompt_id)])
    form = (
        "balanced" if inference == "influence" and correction != "none" else None
    )  # which knows clusters of labels
    alone, twice = (
        direct.estimate(from_frame(t), inference=inference, correction=correction, borrowed=form)
        for t in (frame, copied)
    )
    np.testing.assert_allclose(twice.estimate, alone.estimate, atol=1e-12)
    np.testing.assert_allclose(
        twice.std_error, alone.std_error, rtol=0.05
    )  # n_b / (n_b - 1) of the blocks moves
    naive = direct.estimate(
        from_frame(copied.drop(columns="cluster")), inference=inference, correction=correction, borrowed=form
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


@pytest.mark.parametrize("inference", ["influence", "cluster", "plugin_iid"])
def test_twice_the_data_has_the_standard_error_over_root_two(inference):
    """Copies as new clusters. The plug-in is unchanged; small-sample factors leave some per cent."""
    frame = table(n=300, seed=5, share=0.6)
    copied = pd.concat([frame, frame.assign(prompt_id="z" + frame.prompt_id)])
    once, twice = (
        direct.estimate(from_frame(t), inference=inference, correction="none") for t in (frame, copied)
    )
    np.testing.assert_allclose(twice.estimate, once.estimate, atol=1e-12)
    np.testing.assert_allclose(twice.std_error * np.sqrt(2), once.std_error, rtol=0.03)


@pytest.mark.slow
def test_twice_the_data_halves_the_jackknife_variance():
    """Of five folds it has the noise of a chi-square with 4 df, so it is averaged over names, which deal the folds."""
    frame, deals = table(n=300, seed=5, share=0.6), 100
    copied = pd.concat([frame, frame.assign(prompt_id="z" + frame.prompt_id)])
    variance = np.array(
        [
            [
                direct.estimate(
                    from_frame(t.assign(prompt_id=f"{deal} " + t.prompt_id)),
                    inference="jackknife",
                    correction="none",
                ).std_error_calibration.values
                ** 2
                for t in (frame, copied)
            ]
            for deal in range(deals)
        ]
    )  # (deals, once or twice, policies)
    once, twice = variance.mean(axis=0)
    relative = variance.std(axis=0, ddof=1) / variance.mean(axis=0)
    # the spread of a chi-square over its df: it has kurtosis 6, so a standard deviation of r draws errs by sqrt(5 / 4r)
    np.testing.assert_allclose(relative, np.sqrt(2 / 4), rtol=5 * np.sqrt(5 / (4 * deals)))
    np.testing.assert_allclose(2 * twice / once, 1, atol=5 * np.hypot(*relative).max() / np.sqrt(deals))


# --- every kind of inference -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", INFERENCE)
@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
@pytest.mark.parametrize("interval", ["wald", "logit"])
def test_pitfall_19_40_one_estimate_and_intervals_that_contain_it(inference, correction, interval):
    data = from_frame(table(n=70, seed=6, draws=2))
    out = direct.estimate(
        data, correction=correction, interval=interval, borrowed="plug_in", **options(inference)
    )
    given = direct.estimate(data, correction=correction, borrowed="plug_in")
    np.testing.assert_array_equal(out.estimate, given.estimate)
    low, high = out.interval.values.T
    assert (low < out.estimate).all()
    assert (high > out.estimate).all()
    np.testing.assert_allclose(low + high - 2 * out.estimate, 0, atol=0.1)


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


def test_pitfall_22_labels_of_another_policy_only():
    frame = table(own=("b",))
    for inference in INFERENCE:
        out = direct.estimate(from_frame(frame), **options(inference)).sel(policy="a")
        assert out.status == Status.TRANSPORT_ASSUMED
        assert np.isfinite(out.interval).all()


def test_pitfall_28_one_cluster_has_no_standard_error_in_any_kind_of_inference():
    frame = table(own=("a",))
    frame = frame[(frame.policy == "a") | (frame.prompt_id == "p7")]
    for inference in INFERENCE:
        out = direct.estimate(from_frame(frame), **options(inference))
        assert out.status.sel(policy="b") == Status.ONE_CLUSTER
        assert np.isnan(out.std_error.sel(policy="b"))


# --- interval scales -------------------------------------------------------------------------------------------------


def test_logit_interval_matches_its_definition_and_approaches_wald():
    low, high = -1.0, 3.0
    value, se = 2.5, 0.2
    expected = slow.logit_interval(value, se, 1.959963984540054, (low, high))
    np.testing.assert_allclose(logit_wald(value, se, np.inf, 0.95, (low, high)), expected)
    np.testing.assert_allclose(
        logit_wald(value, 1e-4, 9.0, 0.95, (low, high)), wald(value, 1e-4, 9.0, 0.95), atol=1e-7
    )


def test_no_logit_at_and_beyond_the_edge():
    out = logit_wald([1.0, 1.02, 0.0, np.nan, 0.5], [0.1] * 5, np.inf, 0.95, (0.0, 1.0))
    assert np.isnan(out).all(axis=1).tolist() == [True] * 4 + [False]
    np.testing.assert_array_equal(into_scale(np.array([[-0.2, 0.4]]), [0.1], (0.0, 1.0)), [[0.0, 0.4]])


@pytest.mark.parametrize("module", [direct, labels_only, direct_corrected])
def test_logit_interval_is_an_option_of_the_direct_family(module):
    data = from_frame(table(probes=20))
    out = module.estimate(data, interval="logit")
    inside = out.interval.values[np.isfinite(out.std_error.values)]
    assert ((inside > 0) & (inside < 1)).all()
    assert out.attrs["ci_kind"] == "logit"


@pytest.mark.slow
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


# --- serial dependence -----------------------------------------------------------------------------------------------


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="mean_block=0"):
        stationary_bootstrap_se(np.ones(10), mean_block=0)
    assert np.isnan(stationary_bootstrap_se(np.full(30, np.nan)).std_error)


# --- several policies at once ----------------------------------------------------------------------------------------


def many(correlation, n_policies=6, n=400, seed=0):
    rng = np.random.default_rng(seed)
    shared, own = rng.normal(size=n), rng.normal(size=(n_policies, n))
    y = 0.5 + 0.05 * (np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own)
    return from_arrays(np.full((n_policies, n), 0.5), policies=[f"p{k}" for k in range(n_policies)], oracle=y)


def test_band_of_one_policy_is_its_interval():
    out = labels_only.estimate(many(0.0, 1))
    band = simultaneous_bands(out)
    np.testing.assert_allclose(band.interval, out.interval, rtol=1e-4)
    low, high = (band.interval - out.interval).values[0]
    assert (
        low <= 0 <= high
    )  # to the bit: where the quantile that is drawn is below Student's, Student's is taken


def test_bands_are_drawn_with_the_rng_that_is_given():
    out = labels_only.estimate(many(0.3))
    critical = [
        simultaneous_bands(out, **options).attrs["critical_value"]
        for options in ({}, {}, {"rng": 1}, {"rng": np.random.default_rng(1)}, {"rng": 2})
    ]
    assert critical[0] == critical[1] and critical[2] == critical[3]
    assert len(set(critical)) == 3
    np.testing.assert_allclose(critical, critical[0], rtol=0.02)


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
    monkeypatch.setattr("cje_core.inference.influence.BAND_DRAWS", 5000)
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
