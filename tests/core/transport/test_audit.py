"""The audit of the mean residual: family adjustments, exact bounds, order, and bad input of every audit."""

import numpy as np
import oracles
import pytest
import statsmodels.api as sm
import xarray as xr
from audit_world import world
from scipy import stats

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.transport.audit import audit, residuals
from cje_core.transport.audit_size import audit_power, audit_size, sequential_audit
from cje_core.transport.local_audits import binned_audit, subgroup_audit
from cje_sim.scenarios import well_specified


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
    # PASS leaves room: on a scale from -2 to 3, for a share of outcomes that six probes may have missed at either end
    missed = stats.beta(0.5, 6).ppf(0.975)
    mean, error = float(report.mean_label), float(report.std_error)
    arms = np.hypot(stats.t.ppf(0.975, report.df) * error, missed * np.array([mean + 2, 3 - mean]))
    np.testing.assert_allclose(report.interval, float(report.residual) + arms * [-1, 1], rtol=1e-3)
    failed = audit(world(probes=30, shift=(0.0, 0.6, 0.0))).sel(policy="b")  # FAIL does not
    half = float(failed.interval.values[1] - failed.residual)
    assert failed.verdict == "FAIL"
    np.testing.assert_allclose(half, stats.t.ppf(0.975, failed.df) * failed.std_error)
    np.testing.assert_allclose(report.df, 5)  # probed clusters less one: f is given


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
    # one score, so f does not vary over the probes: given f the interval is the exact bound alone
    np.testing.assert_allclose(few.interval, [few.residual - (1 - 0.025 ** (1 / 5)), few.residual])
    low, high = few.interval_with_fit.values
    assert low < few.interval[0] and high > few.interval[1]
    wrong = audit(constant_probes(0.0, 50)).sel(policy="b")
    assert wrong.verdict == "FAIL" and float(wrong.residual) == pytest.approx(-f)
    assert float(wrong.interval[1]) == pytest.approx(-f + (1 - 0.025 ** (1 / 50)))
    assert float(wrong.interval_with_fit[1]) > float(wrong.interval[1])
    assert audit(constant_probes(1.0, 200), margin=0.15).sel(policy="b").verdict == "PASS"
    between = audit(constant_probes(0.5, 50)).sel(policy="b")  # constant inside the scale: nothing bounds it
    assert between.verdict == "NOT_CHECKED" and np.isnan(between.interval).all()


@pytest.mark.slow
def test_the_exact_bound_covers():
    """Probes of probability .95 at five clusters, so that most samples are constant: at least 95% hold the truth.

    Given f that is .95 less this f, with the fit's noise it is zero.
    """
    rng, hits, constant = np.random.default_rng(1), np.zeros(2), 0
    for seed in range(400):
        data = constant_probes(1.0, 5, seed=seed)
        oracle = data["oracle"].values.copy()
        oracle[1, :5, 0] = rng.binomial(1, 0.95, 5)
        found = audit(data.assign(oracle=(data["oracle"].dims, oracle))).sel(policy="b")
        if np.ptp(oracle[1, :5, 0]) == 0:
            constant += 1
            f = 1 - float(found.residual)
            for k, (name, truth) in enumerate({"interval": 0.95 - f, "interval_with_fit": 0.0}.items()):
                low, high = found[name].values
                hits[k] += low <= truth <= high
    assert constant > 250
    assert (hits / constant > 0.95 - 5 * np.sqrt(0.95 * 0.05 / constant)).all()


def test_what_the_planner_asks_for_adds_up():
    data = world()
    report = audit(data).sel(policy="b")
    rows = unpack(data)
    mine = rows.probe & (rows.policy == 1)
    left = rows.label[mine] - predict(fit_slice(rows).calibrator, rows.z[mine])
    np.testing.assert_allclose(report.residual_sd, left.std(ddof=1))
    np.testing.assert_allclose(report.std_error**2, report.residual_sd**2 / report.n_probes)
    total = report.residual_sd**2 / report.n_probes + report.fit_std_error**2
    # probes and labels sit on the same prompts, whose noise is independent here: the parts add up to a few percent
    np.testing.assert_allclose(report.std_error_with_fit**2, total, rtol=0.2)
    reach = (float(report.mean_label) + 2, 3 - float(report.mean_label))
    size = audit_size(0.8, residual_sd=float(report.residual_sd), margin=report.attrs["margin"], reach=reach)
    np.testing.assert_allclose(report.probes_to_pass, size.n_probes)


@pytest.mark.parametrize("size", [1, 2])
def test_the_mean_residual_is_a_regression_on_a_constant(size):
    """Clusters of one size: statsmodels' factor is G / (G - 1), and f is that of a loop."""
    data = world(
        n=80, probes=40, policies=("a", "b"), shift=(0.0, 0.1), teach=60, cluster=np.arange(80) // size
    )
    report = audit(data).sel(policy="b")
    rows = unpack(data)
    taught, mine = np.flatnonzero(rows.teaches), np.flatnonzero(rows.probe)
    f = oracles.calibrate(
        *(a[taught].tolist() for a in (rows.score, rows.label)), [1.0] * 60, rows.score[mine].tolist()
    )
    cluster = rows.cluster[rows.prompt[mine]]
    fit = sm.OLS(rows.label[mine] - f, np.ones(40)).fit(cov_type="cluster", cov_kwds={"groups": cluster})
    np.testing.assert_allclose([report.residual, report.std_error], [fit.params[0], fit.bse[0]], rtol=1e-9)


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
    with_covariate = audit(calibrated(data, Calibration(["length"]))).sel(policy="b")
    assert float(with_covariate.residual_sd) < 0.7 * float(plain.residual_sd)
    assert float(audit(calibrated(data, Calibration(mode="monotone"))).sel(policy="b").residual) == float(
        plain.residual
    )


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


def test_well_specified_probes_of_several_policies_run_through():
    data = well_specified.simulate(n=300, oracle_fraction=0.3, label_design="base", n_probes=50, rng=0)
    assert (audit(data).verdict.sel(policy=["better", "worse"]) != "NOT_CHECKED").all()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit(world(), margin=0.0), "margin=0: it must be a positive number"),
        (lambda: audit(world(), margin=float("nan")), "margin=nan: it must be a positive number"),
        (lambda: audit(world(), ci_prob=1.0), "strictly between"),
        (lambda: audit(calibrated(world(), Calibration(mode="spline"))), "calibrator='spline'"),
        (lambda: binned_audit(world(), n_bins=1), "at least 2"),
        (lambda: subgroup_audit(world()), "not a variable over prompt"),
        (lambda: subgroup_audit(world(), group=["a"]), "one name for each of the 400"),
        (lambda: subgroup_audit(world(), group=["a"] * 400, fdr=0.0), "fdr=0.0"),
        (lambda: audit_power(3, residual_sd=0.1), "at least 4 probed"),
        (lambda: audit_power(50, residual_sd=0.0), "without spread"),
        (lambda: audit_power(50, residual_sd=0.1, fit_std_error=-1.0), "cannot be negative"),
        (lambda: audit_power(50, residual_sd=0.1, fit_df=0.0), "fit_df"),
        (lambda: audit_power(50, residual_sd=0.1, margin=-1), "margin"),
        (lambda: audit_power(50, residual_sd=0.1, ci_prob=0), "ci_prob"),
        (lambda: audit_size(1.0, residual_sd=0.1), "power=1.0"),
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


def test_a_covariate_does_not_undo_a_clear_fail():
    """Four noise covariates on 40 labels make f noisy: the interval with its noise cannot decide, the verdict does."""
    rng = np.random.default_rng(4)
    score = rng.random((2, 300))
    label = (0.2 + 0.6 * score + rng.normal(0, 0.15, score.shape)).clip(0, 1)
    label[1] = (label[1] - 0.25).clip(0, 1)
    probe = np.zeros((2, 300), bool)
    probe[1, :50] = True
    taught = np.zeros((2, 300), bool)
    taught[0, :40] = True
    noise = rng.normal(size=(2, 300, 1, 4))
    data = from_arrays(
        score, policies=["a", "b"], oracle=np.where(probe | taught, label, np.nan), probe=probe, covariate=noise,
        features=["p", "q", "r", "s"], calibration_policy="a",
    )  # fmt: skip
    plain, noisy = (
        audit(calibrated(data, Calibration(names))).sel(policy="b") for names in ([], ["p", "q", "r", "s"])
    )
    assert plain.verdict == noisy.verdict == "FAIL"
    for report in (plain, noisy):
        np.testing.assert_allclose(report.df, 49)
    assert np.diff(noisy.interval_with_fit) > 1.5 * np.diff(noisy.interval)


def test_equal_probes_plan_no_audit():
    """They show no spread: from none no number of probes follows."""
    rng = np.random.default_rng(0)
    score = rng.uniform(size=(2, 60))
    label = np.where(np.arange(60) < np.array([[40], [8]]), np.array([[0.0], [1.0]]), np.nan)
    label[0, :40] = score[0, :40]
    probe = np.zeros((2, 60), dtype=bool)
    probe[1, :8] = True
    found = audit(from_arrays(score, policies=["a", "b"], oracle=label, probe=probe)).sel(policy="b")
    assert found.residual_sd > 0 and np.isnan(found.probes_to_pass)


def test_a_margin_as_wide_as_the_scale_passes_nothing():
    with pytest.raises(
        ValueError, match="margin=1: it must be smaller than the oracle scale, which is 1 wide"
    ):
        audit(well_specified.simulate(n=50, rng=0), margin=1.0)
