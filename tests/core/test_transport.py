"""Audits: family adjustments, bins and subgroups against obvious implementations; power, size, buying labels."""

import itertools

import numpy as np
import oracles_transport as oracles
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from cje_core.audit_planning import audit_power, audit_size, sequential_audit
from cje_core.calibration import fit_slice, predict
from cje_core.data import from_arrays, from_frame
from cje_core.local_transport import binned_audit, score_bins, subgroup_audit
from cje_core.rows import unpack
from cje_core.transport import audit, residuals
from cje_sim.scenarios import transport_shift, well_specified


def world(n=400, probes=120, *, seed=0, policies=("a", "b", "c"), shift=(0.0, 0.0, 0.0), teach=None, **extra):
    """Labels of the first policy teach, the first `probes` prompts of each other one audit."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 101, (len(policies), n)) / 100
    label = 0.2 + 0.6 * score + np.array(shift)[:, None] + rng.normal(0, 0.1, score.shape)
    probe = np.zeros(score.shape, bool)
    probe[1:, :probes] = True
    taught = np.zeros(score.shape, bool)
    taught[0, : (n if teach is None else teach)] = True
    return from_arrays(
        score,
        policies=policies,
        oracle=np.where(probe | taught, label, np.nan),
        probe=probe,
        oracle_range=(-2, 3),
        **extra,
    )


def without_noise(data):
    """The same world, its calibrator learned from the true curve."""
    return data.assign(oracle=data.oracle.where(~data.labelled, 0.2 + 0.6 * data.judge))


# --- audit -----------------------------------------------------------------------------------------------------------


def test_pitfall_35_family_adjustments_of_the_zero_null():
    report = audit(world(shift=(0.0, 0.02, -0.04), probes=60))
    p = report.p_value.values[1:]
    assert report.verdict.values[0] == "NOT_CHECKED"
    assert np.isnan(report.p_bonferroni.values[0])
    np.testing.assert_allclose(report.p_bonferroni.values[1:], np.minimum(2 * p, 1))
    np.testing.assert_allclose(report.p_bh.values[1:], stats.false_discovery_control(p))
    smaller, larger = np.sort(p)
    np.testing.assert_allclose(np.sort(report.p_holm.values[1:]), [2 * smaller, max(2 * smaller, larger)])


def test_the_default_margin_is_a_share_of_the_oracle_scale():
    """5% of the width, in oracle units: the verdicts do not hang on the unit."""
    data = world(shift=(0.0, 0.1, 0.4))
    report = audit(data)
    assert report.attrs["margin"] == 0.25 and report.verdict.values.tolist() == [
        "NOT_CHECKED",
        "PASS",
        "FAIL",
    ]
    wide = audit(data.assign(oracle=20 * data.oracle).assign_attrs(oracle_range=[-40.0, 60.0]))
    assert wide.attrs["margin"] == 5.0 and wide.verdict.equals(report.verdict)


def test_pitfall_35_t_quantile_and_not_normal():
    report = audit(world(probes=6)).sel(policy="b")
    half = float(report.interval.values[1] - report.residual)
    np.testing.assert_allclose(half, stats.t.ppf(0.975, report.df) * report.std_error)
    assert float(report.df) < 7


def constant_probes(label, m, at=0.95, seed=0):
    """Binary labels of a teach E[Y | S] = S; policy b has m probes at one score, all with one label."""
    rng = np.random.default_rng(seed)
    judge = np.stack([rng.choice([0.05, 0.5, 0.95], 600), np.full(600, at)])
    oracle = np.stack([rng.binomial(1, judge[0]).astype(float), np.full(600, np.nan)])
    oracle[1, :m] = label
    probe = np.zeros((2, 600), bool)
    probe[1, :m] = True
    return from_arrays(judge, policies=["a", "b"], oracle=oracle, probe=probe, calibration_policy="a")


def test_probes_without_spread_are_bounded_exactly_and_never_trusted():
    """Five hits where f is .95 prove nothing; fifty misses prove a shift; fifty hits may or may not pass."""
    few = audit(constant_probes(1.0, 5)).sel(policy="b")
    assert few.verdict == "INCONCLUSIVE" and np.isnan(few.std_error) and np.isnan(few.p_value)
    f = 1 - float(few.residual)
    assert (
        float(few.interval[0]) < few.residual - (1 - 0.025 ** (1 / 5)) + 1e-9 < few.residual < few.interval[1]
    )
    wrong = audit(constant_probes(0.0, 50)).sel(policy="b")
    assert wrong.verdict == "FAIL" and float(wrong.residual) == pytest.approx(-f)
    assert float(wrong.interval[1]) > -f + (1 - 0.025 ** (1 / 50))
    assert audit(constant_probes(1.0, 200), margin=0.15).sel(policy="b").verdict == "PASS"
    between = audit(constant_probes(0.5, 50)).sel(policy="b")  # constant inside the scale: nothing bounds it
    assert between.verdict == "NOT_CHECKED" and np.isnan(between.interval).all()


@pytest.mark.slow
def test_the_exact_bound_covers():
    """Probes of probability .97 at five clusters, so that most samples are constant: at least 95% hold the truth."""
    rng, hits, constant = np.random.default_rng(1), 0, 0
    for seed in range(400):
        data = constant_probes(1.0, 5, seed=seed)
        oracle = data["oracle"].values.copy()
        oracle[1, :5, 0] = rng.binomial(1, 0.95, 5)
        found = audit(data.assign(oracle=(data["oracle"].dims, oracle))).sel(policy="b")
        if np.ptp(oracle[1, :5, 0]) == 0:
            constant += 1
            hits += float(found.interval[0]) <= 0.0 <= float(found.interval[1])
    assert constant > 250
    assert hits / constant > 0.95 - 5 * np.sqrt(0.95 * 0.05 / constant)


def test_what_the_planner_asks_for_adds_up():
    data = world()
    report = audit(data).sel(policy="b")
    rows = unpack(data)
    mine = rows.probe & (rows.policy == 1)
    left = rows.label[mine] - predict(fit_slice(rows).calibrator, rows.z[mine])
    np.testing.assert_allclose(report.residual_sd, left.std(ddof=1))
    total = report.residual_sd**2 / report.n_probes + report.fit_std_error**2
    # probes and labels sit on the same prompts, whose noise is independent here: the parts add up to a few percent
    np.testing.assert_allclose(report.std_error**2, total, rtol=0.2)


def test_audit_hands_on_covariates():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 300, 1, 1))
    score = rng.integers(0, 21, (2, 300)) / 20
    label = np.clip(0.5 * score + 0.1 * x[..., 0, 0] + 0.3, -1, 2)
    probe = np.zeros((2, 300), bool)
    probe[1, :100] = True
    seen = probe | (np.arange(2)[:, None] == 0)
    data = from_arrays(
        score, policies=["a", "b"], oracle=np.where(seen, label, np.nan), probe=probe,
        covariate=x, features=["length"], oracle_range=(-1, 2),
    )  # fmt: skip
    plain = audit(data).sel(policy="b")
    with_covariate = audit(data, covariates=["length"]).sel(policy="b")
    assert float(with_covariate.residual_sd) < 0.7 * float(plain.residual_sd)
    assert float(audit(data, calibrator="monotone").sel(policy="b").residual) == float(plain.residual)


def test_residuals_are_those_of_the_audit_and_name_their_rows():
    data = world()
    found = residuals(data)
    report = audit(data)
    for policy in ("b", "c"):
        mine = found.residual.values[found.policy.values == policy]
        np.testing.assert_allclose(mine.mean(), report.residual.sel(policy=policy))
    assert found.prompt.values[:2].tolist() == ["0", "1"]
    assert not residuals(world(probes=0)).sizes["row"]


def test_audit_ignores_the_order_of_the_data():
    data = world()
    shuffled = data.isel(prompt=np.random.default_rng(1).permutation(data.sizes["prompt"]), policy=[2, 0, 1])
    for check in (audit, binned_audit):
        xr.testing.assert_allclose(check(data), check(shuffled).sel(policy=data.policy.values))


# --- bins ------------------------------------------------------------------------------------------------------------


def test_binned_statistic_is_the_lack_of_fit_test_when_f_is_known():
    """Labels without noise leave f known; what remains is the classical test on the probes."""
    data = without_noise(world(n=2000, probes=100, seed=3))
    report = binned_audit(data, n_bins=8).sel(policy="b")
    rows = unpack(data)
    mine = np.flatnonzero(rows.probe & (rows.policy == 1))
    f = predict(fit_slice(rows).calibrator, rows.z[mine])
    bins = score_bins(rows.score[mine], mine, 8)
    slow = oracles.lack_of_fit(rows.label[mine].tolist(), f.tolist(), bins.tolist())
    np.testing.assert_allclose(report.statistic, slow, rtol=1e-6)
    q, m = int(report.n_bins), len(mine)
    assert (q, float(report.df_bins)) == (8, 8)
    np.testing.assert_allclose(report.p_value, stats.f.sf(slow / q, q, m - q), rtol=1e-4)
    np.testing.assert_allclose(
        (report.residual * report.n_probes).sum() / m, (rows.label[mine] - f).mean(), rtol=1e-9
    )


def test_audit_scope_compensating_errors_pass_the_mean_and_fail_the_bins():
    data = transport_shift.simulate(n=2000, oracle_fraction=0.5, n_probes=400, rng=1)
    mean, bins = audit(data), binned_audit(data)
    assert mean.p_value.sel(policy="compensating") > 0.05
    assert bins.p_bh.sel(policy="compensating") < 1e-4
    assert bins.p_bh.sel(policy="same") > 0.05
    assert np.isnan(bins.p_value.sel(policy="base"))  # no probes, no test


def test_pitfall_39_bins_are_for_display_and_never_smaller_than_five():
    report = binned_audit(world(probes=23), n_bins=10)
    filled = report.n_probes.values[report.n_probes.values > 0]
    assert filled.min() >= 5
    assert not {"verdict", "flagged"} & set(report)
    assert int(report.n_bins.sel(policy="b")) < 10


def test_bins_share_ties_and_merge_small_neighbours():
    score = np.repeat([0.1, 0.5, 0.9], [3, 9, 4])
    code = score_bins(score, np.arange(16), 10)
    assert [code[score == s].tolist() for s in (0.1, 0.5, 0.9)] == [[0] * 3, [0] * 9, [0] * 4]
    code = score_bins(np.repeat([0.1, 0.9], [5, 5]), np.arange(10), 10)
    assert code.tolist() == [0] * 5 + [1] * 5
    clustered = score_bins(np.repeat([0.1, 0.9], [5, 5]), np.repeat([0, 1], 5), 10)
    assert set(clustered) == {0}  # ten rows, two clusters


def test_equal_labels_within_bins_give_no_infinite_statistic():
    """Binary labels agree within many bins; the pooled variance keeps the statistic finite."""
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    rng = np.random.default_rng(5)
    base = (rng.random(200) < score).astype(float)
    target = np.where(score == 0.5, rng.random(200) < 0.5, score > 0.5).astype(float)
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    data = from_arrays([score, score], policies=["a", "b"], oracle=[base, target], probe=probe)
    report = binned_audit(data).sel(policy="b")
    assert np.isfinite(report.statistic) and 0 < report.p_value < 0.05


def test_bins_of_probes_that_repeat_the_labels_that_taught_have_no_error():
    """One block per score level: what taught and what audits cancel bin by bin; with one sign wrong they double."""
    rng = np.random.default_rng(7)
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    label = (score + rng.normal(0, 0.1, 200)).clip(-1, 2)
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    data = from_arrays(
        [score, score], policies=["a", "b"], oracle=[label, label], probe=probe, oracle_range=(-1, 2)
    )
    report = binned_audit(data).sel(policy="b").isel(bin=slice(5))
    np.testing.assert_allclose(report.residual, 0, atol=1e-12)
    assert (report.std_error < 0.5 * 0.1 / np.sqrt(40)).all()


def test_bins_of_a_clustered_design_count_clusters():
    """Each probe copied into a second prompt of its cluster changes nothing but the count."""
    data = without_noise(world(n=200, probes=80, teach=100))
    rows = unpack(data)
    frame = pd.DataFrame(
        {
            "policy": np.array(rows.policies)[rows.policy],
            "prompt_id": rows.prompts[rows.prompt],
            "judge_score": rows.score,
            "oracle_label": rows.label,
            "probe": rows.probe,
            "evaluated": rows.evaluated,
        }
    )
    twice = pd.concat([frame, frame.assign(prompt_id=frame.prompt_id + "+")])
    twice = twice.assign(cluster=twice.prompt_id.str.rstrip("+"))
    single = binned_audit(data, n_bins=5)
    double = binned_audit(from_frame(twice, oracle_range=(-2, 3), calibration_policy="a"), n_bins=5)
    np.testing.assert_allclose(single.residual.sel(policy="b"), double.residual.sel(policy="b"), rtol=1e-9)
    for name in ("std_error", "df", "p_value"):
        np.testing.assert_allclose(single[name].sel(policy="b"), double[name].sel(policy="b"), rtol=1e-9)


# --- subgroups -------------------------------------------------------------------------------------------------------


def test_subgroup_audit_is_the_audit_of_the_subgroup():
    group = np.where(np.arange(400) % 3 == 0, "code", "prose")
    data = world(stratum=group)
    report = subgroup_audit(data)
    probe = data.probe & xr.DataArray(group == "code", dims="prompt")
    alone = audit(data.assign(probe=probe, oracle=data.oracle.where(data.labelled | probe)))
    for name in ("residual", "std_error", "df", "p_value"):
        np.testing.assert_allclose(report[name].sel(group="code"), alone[name])
    np.testing.assert_allclose(subgroup_audit(data, group=group).residual, report.residual)
    assert report.group.values.tolist() == ["code", "prose"]


def test_subgroup_errors_that_cancel_are_flagged_under_one_fdr():
    data = world(n=600, probes=300)
    group = np.where(np.arange(600) % 2 == 0, "even", "odd")
    move = xr.DataArray(np.where(group == "even", 0.08, -0.08), dims="prompt")
    moved = data.assign(oracle=data.oracle.where(~(data.probe & (data.policy == "c")), data.oracle + move))
    assert abs(float(audit(moved).residual.sel(policy="c"))) < 0.03
    report = subgroup_audit(moved, group=group)
    assert report.flagged.sel(policy="c").all() and not report.flagged.sel(policy=["a", "b"]).any()
    tested = np.isfinite(report.p_value.values)
    assert tested.sum() == 4
    np.testing.assert_allclose(
        report.p_bh.values[tested], stats.false_discovery_control(report.p_value.values[tested])
    )


def test_pitfall_36_too_few_probes_of_a_group_are_nan_and_never_flagged():
    group = np.where(np.arange(400) < 3, "rare", "common")
    report = subgroup_audit(world(shift=(0, 0.5, 0.5)), group=group)
    assert np.isnan(report.p_value.sel(group="rare")).all() and not report.flagged.sel(group="rare").any()
    assert report.n_probes.sel(group="rare").values.tolist() == [0, 3, 3]


# --- power and size --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "sd", "shift", "fit_error", "fit_df"),
    [(50, 0.15, 0.0, 0.0, np.inf), (40, 0.15, -0.1, 0.02, 8.0), (200, 0.2, 0.03, 0.005, 20.0)],
)
def test_power_against_draws_of_the_statistics(n, sd, shift, fit_error, fit_df):
    rng = np.random.default_rng(11)
    n_draws = 200_000
    probes = sd**2 / n * rng.chisquare(n - 1, n_draws) / (n - 1)
    fit = fit_error**2 * (
        rng.chisquare(fit_df, n_draws) / fit_df if np.isfinite(fit_df) else np.ones(n_draws)
    )
    mean = shift + rng.normal(0, np.hypot(sd / np.sqrt(n), fit_error), n_draws)
    welch = (probes + fit) ** 2 / (probes**2 / (n - 1) + fit**2 / fit_df)
    widths = [(probes + fit, welch), (probes, n - 1), (fit, fit_df)]
    half = np.max([stats.t.ppf(0.975, df) * np.sqrt(variance) for variance, df in widths], axis=0)
    simulated = [
        np.mean((mean - half >= -0.05) & (mean + half <= 0.05)),
        np.mean((mean - half > 0.05) | (mean + half < -0.05)),
    ]
    power = audit_power(n, residual_sd=sd, true_residual=shift, fit_std_error=fit_error, fit_df=fit_df)
    exact = power.probability.values[0, 0]
    assert np.isclose(exact.sum(), 1)
    bound = 5 * np.sqrt(0.25 / n_draws)
    np.testing.assert_allclose(exact[:2], simulated, atol=bound)
    np.testing.assert_allclose(power.reject_zero.item(), np.mean(np.abs(mean) > half), atol=bound)


def test_zero_null_has_its_level_exactly_without_fit_noise():
    np.testing.assert_allclose(
        audit_power([5, 50, 500], residual_sd=0.2).reject_zero.values.ravel(), 0.05, atol=1e-4
    )


def test_size_is_the_fewest_probes():
    plan = audit_size(0.8, residual_sd=0.16, true_residual=[0.0, 0.01, -0.1], fit_std_error=0.008, fit_df=12)
    assert plan.verdict.values.tolist() == ["PASS", "PASS", "FAIL"]
    for i in range(3):
        n, verdict = int(plan.n_probes[i]), plan.verdict.values[i]
        at = audit_power(
            [n - 1, n],
            residual_sd=0.16,
            true_residual=plan.true_residual.values[i],
            fit_std_error=0.008,
            fit_df=12,
        ).probability.sel(verdict=verdict)
        assert float(at[0, 0]) < 0.8 <= float(at[1, 0])
        np.testing.assert_allclose(plan.probability[i], at[1, 0])


def test_pitfall_37_a_plan_that_cannot_be_met_says_so():
    """The fit's own error fills the margin: no number of probes passes; nor does a shift on the margin's edge."""
    plan = audit_size(0.8, residual_sd=0.15, true_residual=[0.0, 0.05], fit_std_error=0.03, fit_df=8)
    assert np.isnan(plan.n_probes).all() and (plan.limit < 0.8).all()


def test_several_policies_share_the_miss():
    one, three = (audit_size(0.8, residual_sd=0.15, n_policies=k).isel(true_residual=0) for k in (1, 3))
    assert float(three.n_labels) == 3 * float(three.n_probes) > 3 * float(one.n_probes)
    assert float(three.probability) >= 1 - 0.2 / 3


# --- buying labels one by one ----------------------------------------------------------------------------------------


def test_betting_interval_against_its_definition():
    rng = np.random.default_rng(4)
    x = rng.beta(2, 3, 60)
    n_grid = 41
    candidates = np.linspace(0, 1, n_grid)
    slow = oracles.betting_interval(x.tolist(), 0.1, candidates.tolist())
    fast = sequential_audit(x, alpha=0.1, bounds=(0.0, 1.0), n_grid=n_grid).interval.values
    step = 1 / (n_grid - 1)
    expected = [(max(low - step, 0), min(high + step, 1)) for low, high in slow]
    np.testing.assert_allclose(fast, expected, atol=1e-12)


def test_first_bet_is_fair_whatever_the_label():
    """Before any label nothing is known; one label can never exclude its own mean. Enumerated over two-point laws."""
    for n, p in itertools.product([1, 2, 3, 8], [0.1, 0.5]):
        missed = 0.0
        for labels in itertools.product([0.0, 1.0], repeat=n):
            low, high = sequential_audit(labels, alpha=0.4, bounds=(0.0, 1.0)).interval.values[-1]
            missed += np.prod([p if y else 1 - p for y in labels]) * (not low <= p <= high)
        assert missed <= 0.4


def test_sequential_verdicts_stop_and_stay():
    rng = np.random.default_rng(0)
    steady = rng.normal(0, 0.1, 600).clip(-1, 1)
    passed, failed = sequential_audit(steady), sequential_audit((steady - 0.3).clip(-1, 1))
    for out, verdict in ((passed, "PASS"), (failed, "FAIL")):
        stop = int(out.stop)
        assert out.final == verdict and 0 < stop < 600
        assert (out.verdict[stop - 1 :] == verdict).all() and (
            out.verdict[: stop - 1] == "INCONCLUSIVE"
        ).all()
    width = np.diff(passed.interval.values, axis=1)
    assert (np.diff(width.ravel()) <= 1e-15).all()
    short = sequential_audit(steady[:10])
    assert (int(short.stop), short.final.item()) == (0, "INCONCLUSIVE")


def test_fit_error_widens_by_its_half_width():
    x = np.random.default_rng(0).normal(0, 0.1, 300).clip(-1, 1)
    plain, wide = sequential_audit(x), sequential_audit(x, fit_error=0.02)
    np.testing.assert_allclose(wide.interval - plain.interval, [[-0.02, 0.02]] * 300)
    assert int(wide.stop) == 0 or int(wide.stop) > int(plain.stop)


def test_grid_only_widens():
    x = np.random.default_rng(2).normal(-0.1, 0.2, 200).clip(-1, 1)
    fine, coarse = (sequential_audit(x, n_grid=k).interval.values for k in (20001, 101))
    assert (coarse[:, 0] <= fine[:, 0] + 1e-12).all() and (coarse[:, 1] >= fine[:, 1] - 1e-12).all()
    assert np.abs(coarse - fine).max() <= 2 * 2 / 100


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit(world(), margin=0.0), "margin is 0.0"),
        (lambda: audit(world(), margin=float("nan")), "margin is nan"),
        (lambda: audit(world(), ci_prob=1.0), "strictly between"),
        (lambda: audit(world(), calibrator="spline"), "calibrator is 'spline'"),
        (lambda: binned_audit(world(), n_bins=1), "at least 2"),
        (lambda: subgroup_audit(world()), "not a variable over prompt"),
        (lambda: subgroup_audit(world(), group=["a"]), "one name for each of the 400"),
        (lambda: subgroup_audit(world(), group=["a"] * 400, fdr=0.0), "fdr is 0.0"),
        (lambda: audit_power(3, residual_sd=0.1), "at least 4 probed"),
        (lambda: audit_power(50, residual_sd=0.0), "without spread"),
        (lambda: audit_power(50, residual_sd=0.1, fit_std_error=-1.0), "cannot be negative"),
        (lambda: audit_power(50, residual_sd=0.1, fit_df=0.0), "fit_df"),
        (lambda: audit_power(50, residual_sd=0.1, margin=-1), "margin"),
        (lambda: audit_power(50, residual_sd=0.1, ci_prob=0), "ci_prob"),
        (lambda: audit_size(1.0, residual_sd=0.1), "power is 1.0"),
        (lambda: audit_size(residual_sd=0.1, n_policies=0), "at least 1"),
        (lambda: sequential_audit([]), "non-empty"),
        (lambda: sequential_audit([0.1, np.nan]), "finite"),
        (lambda: sequential_audit([0.1, 2.0]), "outside bounds"),
        (lambda: sequential_audit([0.1], margin=0), "margin"),
        (lambda: sequential_audit([0.1], alpha=0), "alpha"),
        (lambda: sequential_audit([0.1], fit_error=-0.1), "half-width"),
        (lambda: sequential_audit([0.1], n_grid=2), "at least 3"),
    ],
)
def test_bad_input_raises_with_the_mend(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_no_fit_means_not_checked_everywhere():
    data = world(teach=2)
    assert (audit(data).verdict == "NOT_CHECKED").all()
    assert np.isnan(binned_audit(data).p_value).all()
    assert np.isnan(subgroup_audit(data, group=["a"] * 400).p_value).all()
    assert np.isnan(residuals(data).residual).all()


def test_well_specified_probes_of_several_policies_run_through():
    data = well_specified.simulate(n=300, oracle_fraction=0.3, label_design="base", n_probes=50, rng=0)
    assert (audit(data).verdict.sel(policy=["better", "worse"]) != "NOT_CHECKED").all()
