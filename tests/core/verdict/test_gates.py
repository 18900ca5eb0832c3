"""Gates: every state of every gate, and the metrics they read, collected from the pieces."""

import numpy as np
import pytest
import xarray as xr
from gates_world import HEALTHY
from scipy import stats

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import (
    calibrated_ips,
    dr_cpo,
)
from cje_core.families.off_policy.residual_tails import variance_df
from cje_core.inference import sources
from cje_core.inference.estimate import Status
from cje_core.io.files import read
from cje_core.offpolicy.weight_map import cap_curves, guard_by_fold
from cje_core.offpolicy.weights import guard_curve, stabilise
from cje_core.verdict import gates, thresholds

# --- the table -------------------------------------------------------------------------------------------------------


def test_the_papers_thresholds():
    """Its table of default gates, and the critical levels where its text or its library has one."""
    found = {g.name: (g.good, g.critical) for g in gates.GATES}
    assert found["ess"] == (0.30, 0.10)
    assert found["hill"] == (2.0, 1.0)
    assert found["affinity"] == (0.85, 0.50)
    assert found["ttc"] == (0.70, 0.30)
    assert found["identification"][0] == 0.05
    assert found["cap_engaged"][0] == 0.5
    assert found["multiplicity"][0] == 5


def test_pitfall_17_one_table_and_every_metric_in_it_once():
    metrics = [g.metric for g in gates.GATES]
    assert len(set(metrics)) == len(metrics) and set(metrics) == set(HEALTHY)
    assert all(g.action and g.source for g in gates.GATES)
    assert (gates.evaluate(HEALTHY).state == "pass").all()


def test_pitfall_17_nan_and_missing_are_unknown_and_never_a_pass():
    for metrics in ({}, dict.fromkeys(HEALTHY, np.nan)):
        found = gates.evaluate(metrics)
        assert (found.state == "unknown").all()
        assert not found.blocked.any() and (found.action == "").all()
        assert gates.ope_ok(found).state.item() == "unknown"


@pytest.mark.parametrize("gate", gates.GATES, ids=lambda g: g.name)
def test_states_on_both_sides_of_both_thresholds(gate):
    beyond = -1 if gate.least else 1
    for good, value in ((True, gate.good), (False, gate.good + beyond * 1e-6)):
        found = gates.evaluate(HEALTHY | {gate.metric: value}).sel(gate=gate.name)
        worst = gate.good == gate.critical
        assert found.state.item() == ("pass" if good else "fail" if worst else "warn")
        assert (found.action.item() == "") == good
    if np.isfinite(gate.critical):
        for fails, value in ((False, gate.critical), (True, gate.critical + beyond * 1e-6)):
            state = gates.evaluate(HEALTHY | {gate.metric: value}).state.sel(gate=gate.name).item()
            assert (state == "fail") == fails
    else:
        state = gates.evaluate(HEALTHY | {gate.metric: gate.good + beyond * 1e6}).state.sel(gate=gate.name)
        assert state.item() == "warn"


def test_thresholds_from_the_difference_to_be_found():
    """Monte Carlo apart, the bound itself: at the threshold the SE of the bound makes the MDE that was asked for."""
    mde, n, sigma = 0.03, 2000, 0.25
    made = {g.name: g for g in thresholds.from_mde(mde, n=n, sigma=sigma)}
    factor = (stats.norm.ppf(0.8) + stats.norm.ppf(0.975)) * np.sqrt(2)

    def detectable(alpha, beta, shape):  # by the paper's equation
        return factor * sigma * alpha / np.sqrt(beta * n) * np.sqrt(shape)

    for name in ("ttc", "ttc_two_sided"):
        np.testing.assert_allclose(detectable(0.9, made[name].good, 1.0), mde)
        np.testing.assert_allclose(detectable(0.9, made[name].critical, 1.0), 2 * mde)
    np.testing.assert_allclose(detectable(1.0, 1.0, 1 / made["ess"].good), mde)
    np.testing.assert_allclose(detectable(1.0, 1.0, made["affinity"].good ** -2), mde)
    np.testing.assert_allclose(detectable(1.0, 1.0, made["affinity"].critical ** -2), 2 * mde)
    assert [g.name for g in made.values()] == [g.name for g in gates.GATES]
    same = [g for g in gates.GATES if g.name not in ("ess", "affinity", "ttc", "ttc_two_sided")]
    assert [made[g.name] for g in same] == same
    strict = gates.evaluate(HEALTHY, gates=thresholds.from_mde(0.01, n=n, sigma=sigma))
    assert (strict.state.sel(gate=["ess", "ttc", "affinity"]) == "fail").all()
    assert "difference of 0.01" in strict.source.sel(gate="ttc").item()
    for wrong in ({"mde": 0.0}, {"n": np.nan}, {"sigma": -1.0}):
        with pytest.raises(ValueError, match="must be positive"):
            thresholds.from_mde(**{"mde": 0.1, "n": 10, "sigma": 1.0} | wrong)


def test_affinity_bounds_the_spread_of_weights():
    """1 + chi2 >= A^-2 for any two laws, which makes the affinity's threshold necessary."""
    rng = np.random.default_rng(1)
    for concentration in (0.05, 0.3, 1.0, 5.0):
        p, q = (rng.dirichlet(np.full(20, concentration), 200) + 1e-12 for _ in range(2))
        p, q = (law / law.sum(axis=1, keepdims=True) for law in (p, q))
        assert ((p**2 / q).sum(axis=1) * np.sqrt(p * q).sum(axis=1) ** 2 >= 1 - 1e-9).all()


def test_own_thresholds_are_one_replacement():
    strict = [g._replace(good=0.6) if g.name == "ess" else g for g in gates.GATES]
    assert gates.evaluate(HEALTHY, gates=strict).state.sel(gate="ess").item() == "warn"


def test_off_policy_verdict_names_what_blocks_it():
    cases = {
        "a": {},
        "b": {"ess_fraction": 0.2},
        "c": {"ess_fraction": 0.05},
        "d": {"ttc": 0.69},
        "e": {"hill": np.nan},
    }
    columns = {name: [case.get(name, HEALTHY[name]) for case in cases.values()] for name in HEALTHY}
    found = gates.ope_ok(gates.evaluate(columns, policies=list(cases)))
    assert found.state.values.tolist() == ["ok", "ok", "blocked", "blocked", "unknown"]
    assert found.ok.values.tolist() == [True, True, False, False, False]
    assert found.reason.values.tolist()[2:] == [
        "ess 0.05 (at least 0.3)",
        "ttc 0.69 (at least 0.7)",
        "hill unknown",
    ]


def test_pitfall_18_flags_travel_and_direct_does_not_hear_of_overlap():
    found = gates.evaluate(HEALTHY | {"ess_fraction": 0.01, "transport_code": 1.0, "drift_alarm": 1.0})
    assert gates.flags(found, "policy") == ["drift_fail", "transport_warn"]
    wide = gates.flags(found, "policy", applies_to=("level", "comparison", "off_policy", "dr"))
    assert wide == ["ess_fail", "drift_fail", "transport_warn"]


# --- metrics from the pieces -----------------------------------------------------------------------------------------


def test_collect_reads_what_is_there_and_leaves_the_rest_unknown():
    badge = xr.Dataset(
        {
            "out_low": ("policy", [0.2, 0.2, 0.0]),
            "out_high": ("policy", [0.1, 0.1, 0.0]),
            "flat_low": ("policy", [True, False, True]),
            "flat_high": ("policy", [False, False, True]),
            "labels_near": ("policy", [10, 50, 50]),
        },
        coords={"policy": ["a", "b", "c"]},
    )
    found = gates.collect(["c", "a", "b", "new"], coverage=badge, drift={"a": 1})
    np.testing.assert_allclose(found.unsupported_mass, [0.0, 0.2, 0.0, np.nan])
    np.testing.assert_allclose(found.labels_near, [50, 10, 50, np.nan])
    np.testing.assert_allclose(found.drift_alarm, [np.nan, 1, np.nan, np.nan])
    assert np.isnan(found.ess_fraction).all() and np.isnan(found.transport_code).all()


def test_pitfall_16_a_ttc_that_rests_on_a_few_draws_is_unknown():
    table = xr.Dataset(
        {"ttc": ("policy", [0.72, 0.72]), "ttc_ess": ("policy", [8.0, 800.0])}, coords={"policy": ["a", "b"]}
    )
    np.testing.assert_allclose(gates.collect(["a", "b"], overlap=table).ttc, [np.nan, 0.72])


def test_pitfall_36_not_checked_is_not_a_pass():
    verdicts = ["PASS", "INCONCLUSIVE", "FAIL", "NOT_CHECKED"]
    table = xr.Dataset({"verdict": ("policy", verdicts)}, coords={"policy": list("abcd")})
    found = gates.evaluate(gates.collect(list("abcd"), transport=table)).sel(gate="transport")
    assert found.state.values.tolist() == ["pass", "warn", "fail", "unknown"]
    own = xr.Dataset(
        {"status": ("policy", [Status.OK, Status.TRANSPORT_ASSUMED])}, coords={"policy": ["d", "e"]}
    )
    settled = gates.collect(["d", "e"], transport=table, estimate=own)
    np.testing.assert_allclose(settled.transport_code, [0.0, np.nan])


def test_what_own_labels_correct_is_not_refused_by_the_audit_of_a_pooled_calibrator():
    """Borrowed values hear the audit; those corrected by labels of the policy's own are unbiased without transport."""
    cases = {
        "own": (Status.OK, "own", 0.0),
        "equal": (Status.CONSTANT_LABELS, "own", 0.0),
        "inverted": (Status.INVERTED_JUDGE, "own", 0.0),
        "probed": (Status.OK, "probes", 0.0),
        "judged": (Status.OK, "judge", 0.0),
        "lent": (Status.TRANSPORT_ASSUMED, "borrowed", 2.0),
        "uncorrected": (Status.OK, "borrowed", 2.0),
        "turned": (Status.INVERTED_JUDGE, "borrowed", 2.0),
        "logger": (Status.OK, "logs", 0.0),
        "weighted": (Status.POOR_OVERLAP, "logs", 2.0),
        "lent logs": (Status.TRANSPORT_ASSUMED, "logs", 2.0),
        "none": (Status.NO_LABELS, "none", 2.0),
    }
    names = list(cases)
    table = xr.Dataset({"verdict": ("policy", ["FAIL"] * len(names))}, coords={"policy": names})
    status, source, code = (list(column) for column in zip(*cases.values(), strict=True))
    found = xr.Dataset({"status": ("policy", status), "source": ("policy", source)}, coords={"policy": names})
    np.testing.assert_array_equal(
        gates.collect(names, transport=table, estimate=found).transport_code, np.array(code)
    )
    assert sources.borrows(found).values.tolist() == [c == 2.0 for c in code]


def test_an_estimate_that_does_not_say_what_it_rests_on_is_judged_by_its_status():
    found = xr.Dataset({"status": ("policy", [Status.OK, Status.TRANSPORT_ASSUMED, Status.INVERTED_JUDGE])})
    assert sources.borrows(found).values.tolist() == [False, True, True]
    assert not sources.earned(found).any()


def test_many_policies_need_adjusted_comparisons():
    few, many = list("abcde"), list("abcdef")

    def state(names, adjusted):
        found = gates.evaluate(gates.collect(names, adjusted=adjusted)).state.sel(gate="multiplicity").values
        assert len(set(found)) == 1
        return found[0]

    assert [state(few, a) for a in (None, False, True)] == ["pass"] * 3
    assert [state(many, a) for a in (None, False, True)] == ["unknown", "warn", "pass"]


def test_orthogonality_gap_is_the_distance_of_its_interval_from_zero():
    interval = [[-0.1, 0.1], [0.02, 0.1], [-0.3, -0.05], [np.nan, np.nan]]
    found = gates.collect(
        list("abcd"),
        estimate=xr.Dataset(
            {"orthogonality_interval": (("policy", "ci_bound"), interval)}, coords={"policy": list("abcd")}
        ),
    )
    np.testing.assert_allclose(found.orthogonality_gap, [0.0, 0.02, 0.05, np.nan])
    assert gates.evaluate(found).state.sel(gate="orthogonality").values.tolist() == [
        "pass",
        "warn",
        "warn",
        "unknown",
    ]


def test_cap_curve_of_real_weights():
    rng = np.random.default_rng(0)
    score = rng.uniform(size=500)
    weight = np.exp(3 * score + rng.normal(0, 0.3, 500))
    weight /= weight.mean()
    steep = stabilise(weight, score, score, np.arange(500) % 5)
    curve = guard_curve(steep._replace(stack=weight), score, rhos=(0.25, 0.5, 1.0, 2.0, np.inf))
    error = curve.std_error.values[1:4]  # half the cap, the cap, twice the cap
    np.testing.assert_allclose(gates.cap_sensitivity(curve), error.max() / error.min() - 1)
    assert gates.cap_sensitivity(curve) > 0.02
    flat = guard_curve(steep._replace(stack=np.ones(500)), score)
    np.testing.assert_allclose(gates.cap_sensitivity(flat), 0.0, atol=1e-12)
    assert np.isnan(gates.cap_sensitivity(flat.isel(rho=[0])))
    found = gates.collect(["a", "b"], cap={"b": curve})
    assert np.isnan(found.cap_sensitivity.values[0]) and np.isfinite(found.cap_sensitivity.values[1])


def test_the_guard_is_asked_fold_by_fold():
    """One fold of wild weights makes the guard act once, on everything; it is one fold in five that needs it."""
    fold = np.arange(500) % 5
    rng = np.random.default_rng(2)
    stack = np.where(fold == 0, rng.exponential(size=500) ** 4, 1.0 + rng.normal(0, 0.3, 500))
    stack /= stack.mean()
    flat = stabilise(np.ones(500), rng.uniform(size=500), np.ones(500), fold)
    wild = flat._replace(stack=stack, limit=1.0)
    assert stack.var() > 1.0
    by_fold = guard_by_fold(wild, fold, 6)
    expected = [float(stack[fold == k].var() > 1.0) for k in range(5)]
    np.testing.assert_array_equal(by_fold, [*expected, np.nan])
    assert expected == [1, 0, 0, 0, 0]
    engaged = xr.Dataset({"guard_engaged": ("policy", [1.0, np.nan, 1.0])}, coords={"policy": list("abc")})
    curve = guard_curve(wild, np.ones(500)).assign(guard_by_fold=("fold", by_fold))
    found = gates.collect(list("abc"), estimate=engaged, cap={"a": curve, "b": curve})
    np.testing.assert_allclose(found.guard_engaged, [0.2, np.nan, 1.0])
    assert gates.evaluate(found).state.sel(gate="cap_engaged").values.tolist() == ["pass", "unknown", "warn"]


def test_residual_gates_read_doubly_robust_estimates(arena):
    data, _ = read(arena / "fresh_draws", logged=arena / "logged_data.jsonl", calibration_policy="base")
    estimate = dr_cpo.estimate(data)
    names = [str(name) for name in data.policy.values]
    found = gates.evaluate(gates.collect(names, estimate=estimate))
    usable = np.isfinite(data.logp_target.sel(policy="clone").values + data.logp_logger.values)
    judged = np.isfinite(data.logged_judge.values)
    np.testing.assert_allclose(
        estimate.residual_nan.sel(policy="clone"), 1 - (usable & judged).sum() / judged.sum()
    )
    assert (
        found.state.sel(gate="residual_tails", policy="unhelpful").item() != "pass"
    )  # six effective responses
    holed = data.assign(logp_target=data.logp_target.where(np.arange(data.sizes["prompt"]) % 10 > 0))
    state = gates.evaluate(gates.collect(names, estimate=dr_cpo.estimate(holed))).state
    assert state.sel(gate="residual_nan", policy="clone").item() == "fail"


def test_residual_tails_say_where_an_interval_can_be_trusted():
    """Products of a lognormal weight and an outcome, 400 responses, 2,000 samples of a light and of a heavy tail.

    The light one passes the gate and its normal interval covers 95%; the heavy one is told, and covers far less.
    """
    rng = np.random.default_rng(3)
    gate = thresholds.BY_NAME["residual_tails"]
    for df, lost in zip(
        (gate.good, gate.critical), thresholds.LOST, strict=True
    ):  # least that lose so little
        assert stats.t.sf(1.95996, df) * 2 <= 0.05 + lost < stats.t.sf(1.95996, df - 1) * 2
    covered, df = {}, {}
    for sd in (0.3, 2.0):
        moves = np.exp(rng.normal(-(sd**2) / 2, sd, (2000, 400)))
        centred = moves - moves.mean(axis=1, keepdims=True)
        covered[sd] = np.mean(np.abs(moves.mean(axis=1) - 1) <= 1.96 * centred.std(axis=1, ddof=1) / 20)
        df[sd] = np.array([variance_df(row) for row in centred])
    error = 5 * np.sqrt(0.05 * 0.95 / 2000)
    assert (df[0.3] >= gate.good).mean() > 0.99 and abs(covered[0.3] - 0.95) < error
    assert np.median(df[2.0]) < gate.critical and (df[2.0] < gate.good).mean() > 0.95
    assert covered[2.0] < 0.95 - 0.03 - error  # .83
    assert np.isinf(variance_df(np.zeros(5)))


def test_cap_curves_are_those_of_the_stabilised_weights_of_each_policy():
    rng = np.random.default_rng(4)
    score, n = rng.uniform(size=300), 300
    logp = -rng.uniform(20, 60, n)
    target = np.stack([np.full(n, np.nan), np.minimum(logp + 4 * score - 2 + rng.normal(0, 0.5, n), 0)])
    label = np.where(np.arange(n) < 120, np.clip(score + rng.normal(0, 0.1, n), 0, 1), np.nan)
    data = from_arrays(
        np.stack([score, score]), policies=["base", "new"], oracle=np.stack([label, np.full(n, np.nan)]),
        logged={"logp_target": target, "logp_logger": logp, "logged_judge": score},
    )  # fmt: skip
    (policy, curve), *others = cap_curves(data).items()
    assert policy == "new" and others == []
    rows = unpack(data)
    fitted = fit_slice(rows)
    order = np.argsort(data.prompt.values)
    weight, sorted_score = np.exp((target[1] - logp)[order]), score[order]
    reward = predict(fitted.calibrator, sorted_score[:, None])
    stable = stabilise(weight / weight.mean(), sorted_score, reward, fitted.fold)
    expected = guard_curve(stable, reward)
    xr.testing.assert_allclose(curve.drop_vars("guard_by_fold"), expected)
    np.testing.assert_array_equal(curve.guard_by_fold, guard_by_fold(stable, fitted.fold, 5))
    assert np.isfinite(gates.collect(["base", "new"], cap=cap_curves(data)).cap_sensitivity.values[1])
    assert cap_curves(data.assign(labelled=data.labelled & False)) == {}


def test_pitfall_16_gates_read_the_estimators_own_diagnostics(arena):
    data, _ = read(arena / "fresh_draws", logged=arena / "logged_data.jsonl", calibration_policy="base")
    names = [str(name) for name in data.policy.values]
    for module, gate in ((calibrated_ips, "cap_engaged"), (dr_cpo, "orthogonality")):
        found = gates.evaluate(gates.collect(names, estimate=module.estimate(data)))
        assert found.state.sel(gate=gate, policy="clone").item() != "unknown"
