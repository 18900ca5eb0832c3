"""Audits and partial identification against repeated sampling.

Each check that passes is run again with an error planted (a standard error too small, a fit taken as known, ...) and
must then fail.
"""

import numpy as np
import pytest
from bare_arrays import calibrated_rows, drawn, rows_of
from exact_bounds import ALPHA, within
from scipy import stats

from cje_core.calibration.calibrated import calibrated
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import wald
from cje_core.inference.sums import cluster_se
from cje_core.transport import local_bootstrap
from cje_core.transport.audit import audit, mean_residual, two_sided
from cje_core.transport.audit_size import audit_power
from cje_core.transport.local_audits import score_bins
from cje_core.transport.local_bootstrap import Sample, cell_tests, joint_test
from cje_core.verdict import refusal
from cje_sim.scenarios import rare_probe_failures, transport_shift

pytestmark = pytest.mark.slow

N_REPLICATES = 2000
N_PROBES = 50
POLICIES = {  # sorted, as the arrays of an audit are
    "base": (3.0, 2.0, "none", 0.0),
    "compensating": (3.0, 2.0, "compensating", 0.15),
    "edge": (3.0, 2.0, "mean", -0.05),
    "far": (3.0, 2.0, "mean", -0.1),
    "same": (3.4, 1.9, "none", 0.0),
}
TRUE_RESIDUAL = {"compensating": 0.0, "edge": -0.05, "far": -0.1, "same": 0.0}


WORLD = {
    "n": 400,
    "oracle_fraction": 0.25,
    "n_probes": N_PROBES,
    "policies": POLICIES,
    "label_design": "base",
}


def world(r):
    """Rows of a world with 100 labels that teach and 50 probes of each other policy."""
    found = drawn(transport_shift, r, **WORLD)
    return rows_of(found.score, **found.fields)


NAMES = (*("residual", "std_error", "df", "fit_std_error", "fit_df", "std_error_with_fit", "df_with_fit"),)


def numbers(rows):
    """What the audit says of every policy, (names, policies), without a labelled shell."""
    fitted, out = fit_slice(rows, every_fold=False), np.full((len(rows.policies), len(NAMES)), np.nan)
    for p, name in enumerate(rows.policies):
        if name != "base":
            one = mean_residual(rows, fitted, np.flatnonzero((rows.policy == p) & rows.probe))
            of_fit = cluster_se(one.fit_noise.influence, rows.cluster), one.fit_noise.df
            out[p] = (
                *(one.value, one.std_error, one.df, *of_fit, one.std_error_with_fit, one.df_with_fit),
            )  # fmt: skip
    return out.T


def whole(found):
    """The arrays of `numbers` by name, and what follows from them."""
    out = dict(zip(NAMES, found, strict=True))
    out["residual_sd"] = out["std_error"] * np.sqrt(N_PROBES)
    out["p_value"] = two_sided(out["residual"], out["std_error"], out["df"])
    out["interval_with_fit"] = wald(out["residual"], out["std_error_with_fit"], out["df_with_fit"], 0.95)
    return out


def test_the_numbers_are_those_of_the_audit():
    for r in range(5):
        known = calibrated(transport_shift.simulate(**WORLD, rng=r))
        report = audit(known)
        found = whole(numbers(world(r)))
        assert report.policy.values.tolist() == list(POLICIES)
        for name, values in found.items():
            if name.startswith("interval"):  # by t: the room that PASS asks for has tests of its own
                fit = name.removeprefix("interval")
                parts = (report[part].values for part in ("residual", f"std_error{fit}", f"df{fit}"))
                np.testing.assert_allclose(values, wald(*parts, 0.95), rtol=1e-12)
            else:
                np.testing.assert_allclose(values, report[name].values, rtol=1e-12)


@pytest.fixture(scope="module")
def audits():
    """Audits of 2000 worlds with 100 labels that teach and 50 probes: name -> array (replicate, policy)."""
    each = [numbers(world(r)) for r in range(N_REPLICATES)]
    return whole(np.moveaxis(np.array(each), 1, 0))


def column(audits, name, policy):
    return audits[name][:, list(POLICIES).index(policy)]


# --- size ------------------------------------------------------------------------------------------------------------


def p_with_fit(audits, policy, shrink=1.0):
    """Zero-null p-values of the interval that adds the fit's noise."""
    ratio = np.abs(column(audits, "residual", policy)) / (
        shrink * column(audits, "std_error_with_fit", policy)
    )
    return 2 * stats.t.sf(ratio, column(audits, "df_with_fit", policy))


@pytest.mark.parametrize("policy", ["same", "compensating"])
def test_zero_null_with_the_fit_rejects_five_percent(audits, policy):
    """Mean residual zero: exactly so for compensating errors, which the mean audit must not see."""
    assert within((p_with_fit(audits, policy) < 0.05).mean(), 0.05, N_REPLICATES)


def test_size_check_sees_a_calibrator_taken_as_known(audits):
    """The audit's own p-value is given f, whose residual is not zero: it rejects too often to be about transport."""
    p = column(audits, "p_value", "same")
    ratio = np.abs(column(audits, "residual", "same")) / (
        column(audits, "residual_sd", "same") / np.sqrt(N_PROBES)
    )
    np.testing.assert_allclose(p, 2 * stats.t.sf(ratio, N_PROBES - 1))
    assert not within((p < 0.05).mean(), 0.05, N_REPLICATES)


def test_size_check_sees_an_error_a_fifth_too_small(audits):
    assert not within((p_with_fit(audits, "same", 0.8) < 0.05).mean(), 0.05, N_REPLICATES)


def grades(rng, n_grades, n):
    """Scores of a judge with so many grades, or a continuous one (0)."""
    score = rng.random(n)
    return score if n_grades == 0 else np.minimum(np.floor(score * n_grades), n_grades - 1) / (n_grades - 1)


def outcomes(rng, score, kind, shift=0.0):
    """Labels of mean .15 + .7 score, or near .7 + .2 score but for one in twenty."""
    mean = np.clip(0.15 + 0.7 * score + shift, 0.02, 0.98)
    if kind == "skewed":
        usual = 0.7 + 0.2 * score + shift + 0.02 * rng.standard_normal(len(score))
        return np.where(rng.random(len(score)) < 0.05, 0.1, usual).clip(0, 1)
    if kind == "sure":  # at both ends of the scale, and a coin toss in the middle
        mean = np.where(score < 0.45, 0.03, np.where(score < 0.65, 0.5, 0.97))
    return (
        rng.beta(6 * mean, 6 * (1 - mean))
        if kind == "beta"
        else (rng.random(len(score)) < mean).astype(float)
    )


def local_findings(kind, n_grades, m, n, n_sets, shift=None):
    """Data sets in which the bins, and one of four random groups, are found at 5% by 199 draws."""
    rng, found = np.random.default_rng(m + n), np.zeros(2, int)
    for _ in range(n_sets):
        score, probed = grades(rng, n_grades, m), grades(rng, n_grades, n)
        group = rng.permutation(np.arange(n) % 4)
        move = {None: 0.0, "bins": np.where(probed < 0.5, 0.25, -0.25), "groups": -0.3 * (group == 0)}[shift]
        labels = Sample(score, outcomes(rng, score, kind), np.ones(m), np.arange(m))
        probes = Sample(probed, outcomes(rng, probed, kind, move), np.ones(n), np.arange(n))
        bins = score_bins(probed, np.arange(n), 10)
        if bins.max() > 0:
            found[0] += joint_test(local_bootstrap.bootstrap(labels, probes, bins, 199, rng))[1] <= 0.05
        p_value = cell_tests(local_bootstrap.bootstrap(labels, probes, group, 199, rng))
        found[1] += (adjust_p(p_value, "bh") <= 0.05).any()
    return found


LOCAL_SETS = 200
LOCAL_CELLS = [
    ("binary", 2, 15, 60), ("binary", 3, 30, 100), ("binary", 0, 60, 60), ("sure", 0, 300, 60), ("beta", 2, 15, 30),
    ("beta", 5, 30, 100), ("skewed", 2, 100, 30), ("skewed", 5, 30, 100),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "n_grades", "m", "n"), LOCAL_CELLS)
def test_local_audits_find_nothing_under_exact_transport(kind, n_grades, m, n):
    """At most 8% where the judge has few grades or few labels calibrate, by a binomial bound."""
    most = stats.binom.isf(1e-5, LOCAL_SETS, 0.08)
    assert (local_findings(kind, n_grades, m, n, LOCAL_SETS) <= most).all()


def test_size_check_of_local_audits_sees_a_calibrator_without_noise(monkeypatch):
    """Calibration labels that are not drawn anew, but lie on the curve."""
    drawn, m, n_sets = local_bootstrap.draw_labels, 30, 100

    def draw(law, n_draws, rng):
        new = drawn(law, n_draws, rng)
        new[:, :m] = law.mean[:m]
        return new

    monkeypatch.setattr(local_bootstrap, "draw_labels", draw)
    assert local_findings("binary", 3, m, 100, n_sets)[0] > stats.binom.isf(1e-5, n_sets, 0.08)


def test_local_audits_find_errors_that_cancel_and_a_group():
    """As often as the F test with the error of f, where that keeps its size: in nine of ten data sets at least."""
    assert local_findings("beta", 5, 250, 60, 60, "bins")[0] >= 54
    assert local_findings("beta", 5, 250, 60, 60, "groups")[1] >= 54


# --- power -----------------------------------------------------------------------------------------------------------


def planned(audits, policy, margin, *, fit=True):
    """Verdict probabilities that the planner gives for what the audits of this policy report on average."""

    def typical(name):
        return float(np.sqrt((column(audits, name, policy) ** 2).mean()))

    power = audit_power(
        N_PROBES,
        residual_sd=typical("residual_sd"),
        true_residual=TRUE_RESIDUAL[policy],
        margin=margin,
        fit_std_error=typical("fit_std_error") if fit else 0.0,
        fit_df=float(column(audits, "fit_df", policy).mean()),
    )
    return {**power.probability.to_series().droplevel([0, 1]).to_dict(), "reject": power.reject_zero.item()}


def realised(audits, policy, margin):
    """Shares decided by the interval with the fit's noise, whose law over slices the planner gives."""
    low, high = column(audits, "interval_with_fit", policy).T
    return {
        "PASS": ((low >= -margin) & (high <= margin)).mean(),
        "FAIL": ((low > margin) | (high < -margin)).mean(),
        "reject": (p_with_fit(audits, policy) < 0.05).mean(),
    }


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.09, 0.12, 0.2])
def test_power_curve_is_the_planners(audits, margin):
    for policy in ("same", "edge", "far"):
        plan, seen = planned(audits, policy, margin), realised(audits, policy, margin)
        for verdict, rate in seen.items():
            assert within(rate, plan[verdict], N_REPLICATES), (policy, verdict, rate, plan[verdict])


def test_power_check_sees_a_plan_that_forgets_the_fit(audits):
    plan, seen = planned(audits, "far", 0.05, fit=False), realised(audits, "far", 0.05)
    assert not within(seen["reject"], plan["reject"], N_REPLICATES)
    assert not within(seen["FAIL"], plan["FAIL"], N_REPLICATES)


@pytest.mark.parametrize(("policy", "margin"), [("edge", 0.05), ("far", 0.1)])
def test_equivalence_errs_at_most_one_tail_on_the_margin(audits, policy, margin):
    """On the edge of the margin a PASS and a FAIL are both wrong: each at most 2.5%."""
    seen = realised(audits, policy, margin)
    bound = stats.binom.ppf(1 - ALPHA / 2, N_REPLICATES, 0.025) / N_REPLICATES
    assert seen["PASS"] <= bound and seen["FAIL"] <= bound


def test_pitfall_35_a_zero_null_pass_rewards_few_probes(audits):
    """A bias on the margin would be let through most of the time by "not significantly different from zero"."""
    assert (p_with_fit(audits, "edge") > 0.05).mean() > 0.5
    assert realised(audits, "edge", 0.05)["PASS"] <= 0.01


# --- partial identification ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reach", "worst"), [(0.72, 0.0), (0.8, 1.0), (0.7, 0.0)])
def test_interval_covers_a_value_on_the_bound(reach, worst):
    """Scores of b end at `reach`, labels at .7; beyond, every label is the scale's end: the least covered value."""
    rng = np.random.default_rng(8)
    n, covered, short = 250, 0, 0
    n_replicates = 500
    uniform = (0.2, reach)
    share = (reach - 0.7) / (reach - 0.2)
    truth = (1 - share) * (0.1 + 0.6 * 0.45) + share * worst
    for _ in range(n_replicates):
        score = np.stack([rng.uniform(0.2, 0.7, n), rng.uniform(*uniform, n)])
        label = (0.1 + 0.6 * score + rng.normal(0, 0.15, score.shape)).clip(0, 1)
        oracle = np.where(np.arange(2)[:, None] == 0, label, np.nan)
        out = refusal.partial_identification(calibrated_rows(rows_of(score, oracle, ["a", "b"], teach=["a"])))
        (low, high), (least, most) = (out[name].values[1] for name in ("interval", "bounds"))
        covered += low <= truth <= high
        half = 0.5 * out.critical.values[1] * out.std_error.values[1]
        short += least - half[0] <= truth <= most + half[1]
    floor = stats.binom.ppf(ALPHA / 2, n_replicates, 0.95)
    assert covered >= floor
    assert short < floor  # the check sees an interval half as long


RARER = {"base": 0.0, "same": 0.0, "failing": 0.08}


def pass_rate(n_probes, n_sets, **law):
    """Shares of PASS of a policy that fails rarely, and of one that does not, of as many data sets."""
    rng = np.random.default_rng(n_probes)
    n = 400
    data = [
        rare_probe_failures.simulate(n=n, oracle_fraction=0.5, n_probes=n_probes, rng=rng, **law)
        for _ in range(n_sets)
    ]
    found = [audit(one) for one in data]
    return np.mean(
        [[one.verdict.sel(policy=p) == "PASS" for p in ("failing", "same")] for one in found], axis=0
    )


@pytest.mark.parametrize(
    ("n_probes", "n_sets", "law"),
    [(15, 100, {}), (30, 300, {}), (30, 300, {"failed": 0.2, "failures": RARER})],
)
def test_a_policy_that_fails_rarely_does_not_pass(n_probes, n_sets, law):
    """Beyond the margin by 7% zeros or 8% at .2: PASS in 3% at most; without room in 11% to 35%."""
    failing, _ = pass_rate(n_probes, n_sets, **law)
    assert failing * n_sets <= stats.binom.isf(1e-6, n_sets, 0.03)


def test_a_policy_that_does_not_fail_passes():
    _, same = pass_rate(60, 100)
    assert same == 1.0
