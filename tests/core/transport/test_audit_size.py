"""Planning an audit: its power and size against draws, and buying labels one by one."""

import itertools

import numpy as np
import oracles_transport as oracles
import pytest
from scipy import stats

from cje_core.transport.audit_size import audit_power, audit_size, probes_to_pass, sequential_audit

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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_coarse_grid_holds_the_exact_confidence_set(seed):
    """Every mean that a very fine grid keeps lies inside the interval of a coarse one, at every label."""
    x = np.random.default_rng(seed).normal(0.03, 0.05, 400).clip(-1, 1)
    fine = sequential_audit(x, n_grid=20001).interval.values
    for n_grid in (3, 4, 11, 21):
        low, high = sequential_audit(x, n_grid=n_grid).interval.values.T
        step = 2 / (n_grid - 1)
        assert (low <= fine[:, 0] + 1e-4).all() and (high >= fine[:, 1] - 1e-4).all() and (low < high).all()
        assert (high - low <= np.diff(fine, axis=1).ravel() + 2 * step + 1e-12).all()


def test_probes_to_pass_is_the_size_of_the_plan():
    for sd, margin, power, ci_prob in ((0.2, 0.05, 0.8, 0.95), (0.02, 0.05, 0.9, 0.95), (0.5, 0.1, 0.8, 0.9)):
        plan = audit_size(power, residual_sd=sd, margin=margin, ci_prob=ci_prob)
        found = probes_to_pass(sd, margin=margin, power=power, ci_prob=ci_prob)
        assert found == float(plan.n_probes.item())
        z = stats.norm.ppf(0.5 + ci_prob / 2) + stats.norm.ppf(0.5 + power / 2)
        assert (
            0 <= found - (z * sd / margin) ** 2 < 10
        )  # the normal law's number, and the few more of the t quantile
    assert (
        np.isnan(probes_to_pass(0.0)) and np.isnan(probes_to_pass(np.nan)) and np.isnan(probes_to_pass(1e4))
    )
