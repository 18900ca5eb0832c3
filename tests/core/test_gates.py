"""Gates, refusal and the guide: every state of every gate, bounds by hand, and the Arena sample end to end."""

import numpy as np
import oracles_transport as oracles
import pytest
import xarray as xr
from scipy import stats

from cje_core import gates, refusal
from cje_core.calibration import fit_slice, predict
from cje_core.data import from_arrays
from cje_core.estimators import (
    calibrated_ips,
    direct,
    direct_corrected,
    dr_cpo,
    labels_only,
    ppi,
    raw_judge,
    rogan_gladen,
)
from cje_core.guide import recommend
from cje_core.io import read
from cje_core.overlap import overlap
from cje_core.reliability import coverage_badge, reliability
from cje_core.result import Status
from cje_core.rows import unpack
from cje_core.transport import audit
from cje_core.weight_map import cap_curves
from cje_core.weights import guard_curve, stabilise
from cje_sim.scenarios import out_of_range, transport_shift

HEALTHY = {
    "ess_fraction": 0.5,
    "hill": 3.0,
    "affinity": 0.95,
    "ttc": 0.9,
    "uncovered_bins": 0.0,
    "drift_alarm": 0.0,
    "labels_near": 200.0,
    "unsupported_mass": 0.0,
    "transport_code": 0.0,
    "orthogonality_gap": 0.0,
    "guard_engaged": 0.2,
    "cap_sensitivity": 0.1,
    "unadjusted_policies": 3.0,
}


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
        "own": (Status.OK, "theta_aug", 0.0),
        "equal": (Status.CONSTANT_LABELS, "mean_label", 0.0),
        "inverted": (Status.INVERTED_JUDGE, "theta_aug", 0.0),
        "lent": (Status.TRANSPORT_ASSUMED, "plug_in", 2.0),
        "stepped": (Status.TRANSPORT_ASSUMED, "one_step", 2.0),
        "uncorrected": (Status.OK, "plug_in", 2.0),
        "turned": (Status.INVERTED_JUDGE, "plug_in", 2.0),
        "weighted": (Status.POOR_OVERLAP, "calibrated_ips", 2.0),
        "none": (Status.NO_LABELS, "none", 2.0),
    }
    names = list(cases)
    table = xr.Dataset({"verdict": ("policy", ["FAIL"] * len(names))}, coords={"policy": names})
    status, route, code = (list(column) for column in zip(*cases.values(), strict=True))
    found = xr.Dataset({"status": ("policy", status), "route": ("policy", route)}, coords={"policy": names})
    np.testing.assert_array_equal(
        gates.collect(names, transport=table, estimate=found).transport_code, np.array(code)
    )
    assert gates.borrows(found).values.tolist() == [c == 2.0 for c in code]


def test_every_route_of_every_estimator_is_known():
    """A new route must be entered as borrowing or own, unless its status tells (OK or TRANSPORT_ASSUMED)."""
    data = transport_shift.simulate(n=200, oracle_fraction=0.5, n_probes=30, rng=0)
    for module in (labels_only, raw_judge, ppi, rogan_gladen, direct, direct_corrected):
        found = module.estimate(data)
        known = found.status.isin([Status.OK, Status.TRANSPORT_ASSUMED]) | (found.status >= 64)
        assert (known | found.route.isin(gates.OWN + gates.BORROWING)).all()
        assert found.route.isin([*gates.OWN, *gates.BORROWING, "none"]).all(), module.__name__


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
    expected = guard_curve(stabilise(weight / weight.mean(), sorted_score, reward, fitted.fold), reward)
    xr.testing.assert_allclose(curve, expected)
    assert np.isfinite(gates.collect(["base", "new"], cap=cap_curves(data)).cap_sensitivity.values[1])
    assert cap_curves(data.assign(labelled=data.labelled & False)) == {}


# --- levels ----------------------------------------------------------------------------------------------------------


def test_levels_are_refused_by_the_audit_by_identification_and_by_failure():
    columns = {name: [value] * 4 for name, value in HEALTHY.items()}
    columns |= {"transport_code": [2.0, 0.0, 1.0, np.nan], "unsupported_mass": [0.0, 0.2, 0.0, 0.0]}
    found = gates.evaluate(columns, policies=list("abcd"))
    estimate = xr.Dataset(
        {"status": ("policy", [Status.OK, Status.OK, Status.OK, Status.NO_RESPONSES])},
        coords={"policy": list("abcd")},
    )
    out = refusal.level(found, estimate)
    assert out.level.values.tolist() == ["refused", "refused", "reported", "refused"]
    assert out.refused_by.values.tolist() == ["transport", "identification", "", "estimate"]
    assert out.caveat.sel(policy="c").item() == f"transport INCONCLUSIVE: {gates.BY_NAME['transport'].action}"
    assert out.caveat.sel(policy="d").item() == "transport unknown"
    assert Status.NO_RESPONSES.message in out.reason.sel(policy="d").item()
    assert refusal.level(gates.evaluate(HEALTHY | {"ess_fraction": 0.0})).level.item() == "reported"


def world(n=300, seed=0, decreasing=False):
    """Labels of policy a between scores .3 and .7; policy b reaches beyond on both sides."""
    rng = np.random.default_rng(seed)
    score = np.stack([rng.uniform(0.3, 0.7, n), rng.uniform(0.2, 0.9, n)])
    mean = 0.8 - 0.6 * score if decreasing else 0.1 + 0.6 * score
    label = (mean + rng.normal(0, 0.1, score.shape)).clip(0, 1)
    seen = np.zeros(score.shape, bool)
    seen[0, :150] = True
    return from_arrays(score, policies=["a", "b"], oracle=np.where(seen, label, np.nan))


def test_bounds_against_their_definition():
    data = world()
    out = refusal.partial_identification(data)
    rows = unpack(data)
    fitted = fit_slice(rows)
    for p, policy in enumerate(rows.policies):
        at = rows.policy == p
        slow = oracles.bounds(
            rows.score[at], predict(fitted.calibrator, rows.z[at]), rows.weight[at],
            fitted.z[:, 0].min(), fitted.z[:, 0].max(), (0.0, 1.0),
        )  # fmt: skip
        np.testing.assert_allclose(out.bounds.sel(policy=policy), slow)
    width = out.bounds.sel(ci_bound="upper") - out.bounds.sel(ci_bound="lower")
    np.testing.assert_allclose(
        width, out.out_of_range
    )  # mass out of range times the width of the oracle scale
    np.testing.assert_allclose(out.out_of_range, out.below + out.above)
    assert (out.interval.sel(ci_bound="lower") < out.bounds.sel(ci_bound="lower")).all()


@pytest.mark.parametrize("direction", ["increasing", "decreasing"])
def test_monotone_bounds_are_tighter_and_hold_the_plug_in(direction):
    data = world(decreasing=direction == "decreasing")
    free = refusal.partial_identification(data, direction=direction).sel(policy="b")
    tight = refusal.partial_identification(data, direction=direction, monotone=True).sel(policy="b")
    plug_in = direct.estimate(data, inference="influence", direction=direction).estimate.sel(policy="b")
    low, high = tight.bounds.values
    assert free.bounds.values[0] < low < float(plug_in) < high < free.bounds.values[1]
    rows = unpack(data)
    fitted = fit_slice(rows, direction=direction)
    at = rows.policy == 1
    value, score = predict(fitted.calibrator, rows.z[at]), rows.score[at]
    worse = score < fitted.z.min() if direction == "increasing" else score > fitted.z.max()
    np.testing.assert_allclose(low, np.where(worse, 0.0, value).mean())


def test_a_policy_wholly_out_of_range_has_the_scale_for_bounds_and_no_error():
    """Nothing of f enters, so none of its noise does."""
    data = world()
    data["judge"] = data.judge.where(data.policy == "a", 0.95)
    out = refusal.partial_identification(data).sel(policy="b")
    np.testing.assert_allclose([out.bounds, out.interval], [[0, 1]] * 2, atol=1e-12)
    np.testing.assert_allclose(out.std_error, 0, atol=1e-12)
    np.testing.assert_allclose([out.above, out.below], [1, 0])


def test_imbens_manski_between_one_and_two_sides():
    one, two = stats.t.ppf([0.95, 0.975], 12)
    values = [refusal.imbens_manski(w, 0.1, 12, 0.95) for w in (0.0, 0.05, 0.2, 5.0)]
    assert np.all(np.diff(values) < 0)
    np.testing.assert_allclose([values[0], values[-1]], [two, one], rtol=1e-6)
    c = values[1]
    np.testing.assert_allclose(stats.t.cdf(c + 0.5, 12) - stats.t.cdf(-c, 12), 0.95)
    assert np.isnan(refusal.imbens_manski(0.1, 0.0, 12, 0.95))


def test_bounds_hold_the_truth_where_the_calibrator_extends_flat():
    truth = out_of_range.truth()
    data = out_of_range.simulate(n=4000, rng=0)
    badge = coverage_badge(data)
    policy = str(badge.policy.values[np.argmax(badge.out_of_range.values)])
    assert badge.out_of_range.sel(policy=policy) > 0.05
    out = refusal.partial_identification(data).interval.sel(policy=policy)
    assert out[0] <= truth.sel(policy=policy) <= out[1]


def test_pairs_stay_ordered_where_a_level_is_refused():
    names = list("abcd")
    intervals = [[0.7, 0.8], [0.6, 0.9], [0.3, 0.5], [0.6, 0.65]]

    def piece(values):
        return xr.Dataset(
            {"interval": (("policy", "ci_bound"), np.array(values, float))}, coords={"policy": names}
        )

    levels = xr.Dataset(
        {
            "refused_by": ("policy", ["", "transport", "identification", "estimate, transport"]),
            "level": ("policy", ["reported", "refused", "refused", "refused"]),
        },
        coords={"policy": names},
    )
    corrected = piece([[0, 0], [0.1, 0.2], [0, 0], [np.nan, np.nan]])
    bounds = piece([[0, 0], [0, 0], [0.15, 0.75], [0, 0]])
    out = refusal.rank_only(piece(intervals), levels, bounds=bounds, corrected=corrected)
    assert out.basis.values.tolist() == ["estimate", "corrected", "bounds", "none"]
    order = dict(
        zip(zip(out["first"].values, out["second"].values, strict=True), out.order.values, strict=True)
    )
    assert order["a", "b"] == "higher"  # .7 to .8 against .1 to .2
    assert order["a", "c"] == "not ordered" and order["b", "c"] == "not ordered"
    assert order["a", "d"] == "not ordered"
    np.testing.assert_allclose(out.interval.values[0], [0.5, 0.7])
    assert out.refused.values.tolist() == [True] * 6
    bare = refusal.rank_only(piece(intervals), levels)
    assert bare.basis.values.tolist() == ["estimate", "none", "none", "none"]


def test_bad_input_raises_and_no_fit_is_nan():
    with pytest.raises(ValueError, match="ci_prob"):
        refusal.partial_identification(world(), ci_prob=0.0)
    few = world().isel(prompt=slice(0, 3))
    assert np.isnan(refusal.partial_identification(few).bounds).all()


# --- the guide -------------------------------------------------------------------------------------------------------


def healthy_overlap(names, **changed):
    columns = {
        name: ("policy", np.full(len(names), HEALTHY[name]))
        for name in ("ess_fraction", "hill", "affinity", "ttc")
    }
    return xr.Dataset(columns | changed, coords={"policy": names})


def with_logs(data):
    n = data.sizes["prompt"]
    return data.assign(
        logp_target=(("policy", "prompt"), np.full((2, n), -5.0)),
        logp_logger=("prompt", np.full(n, -5.0)),
        logged_judge=("prompt", np.full(n, 0.5)),
    )


def test_guide_counts_clusters_and_the_labels_that_teach():
    """Ten labels in two clusters correct nothing; fifty labels that do not teach leave Direct without a calibrator."""
    rng = np.random.default_rng(0)
    judge = rng.uniform(size=(2, 60))
    label = np.where(np.arange(60) < np.array([[30], [10]]), judge, np.nan)
    few = from_arrays(judge, policies=["a", "b"], oracle=label, cluster=np.minimum(np.arange(60) // 5, 30))
    assert "its own labels correct it" not in recommend(few).reason.sel(policy="b").item()
    assert recommend(few).n_own_labels.sel(policy="b") == 2
    stranger = from_arrays(
        judge,
        policies=["a", "b"],
        oracle=np.where(np.arange(60) < np.array([[2], [50]]), judge, np.nan),
        calibration_policy="a",
    )
    found = recommend(stranger)
    assert found.estimator.values.tolist() == ["none", "none"]
    assert found.alternative.values.tolist() == ["", "labels_only"]
    assert direct.estimate(stranger).status.values.tolist() == [Status.TOO_FEW_LABELS] * 2


def test_guide_by_what_is_at_hand():
    data = world()
    plain = recommend(data)
    assert plain.estimator.values.tolist() == ["direct", "direct"]
    assert "audit" in plain.caution.sel(policy="b").item() and plain.caution.sel(policy="a").item() == ""

    logged = with_logs(data)
    assert (
        recommend(logged, overlap=healthy_overlap(["a", "b"])).alternative.values.tolist()
        == ["stacked_dr"] * 2
    )
    assert recommend(logged).alternative.values.tolist() == ["", ""]

    stale = logged.assign(evaluated=logged.evaluated & (logged.policy == "a"))
    found = recommend(stale, overlap=healthy_overlap(["a", "b"])).sel(policy="b")
    assert (found.estimator, found.alternative) == ("calibrated_ips", "snips")
    low = recommend(stale, overlap=healthy_overlap(["a", "b"], ttc=("policy", [0.9, 0.5]))).sel(policy="b")
    assert low.estimator == "none" and "ttc 0.5 (at least 0.7)" in low.reason.item()
    assert recommend(stale).sel(policy="b").estimator == "none"  # overlap not computed is not good enough
    silent = data.assign(evaluated=data.evaluated & (data.policy == "a"))
    assert "no log-probabilities" in recommend(silent).sel(policy="b").reason.item()
    bare = data.assign(labelled=data.labelled & False)
    assert recommend(bare).estimator.values.tolist() == ["none", "none"]


def test_guide_follows_the_audit_and_the_calibration_share():
    data = transport_shift.simulate(n=800, oracle_fraction=0.4, n_probes=200, rng=0)
    report = audit(data)
    assert report.verdict.sel(policy="lower") == "FAIL"
    found = recommend(data, transport=report, calibration_share={"lower": 0.9, "same": 0.1, "flatter": 0.4})
    assert found.alternative.sel(policy="lower").item() == "direct_corrected"
    assert "refused" in found.caution.sel(policy="lower").item()
    assert (
        "90% of the variance is the calibration's: collect labels" in found.caution.sel(policy="lower").item()
    )
    assert found.caution.sel(policy="same").item().endswith("collect prompts")
    assert "variance" not in found.caution.sel(policy="flatter").item()


# --- the Arena sample, end to end ------------------------------------------------------------------------------------


def test_arena_gates_guide_and_refusal(arena):
    """Acceptance: raw ESS, failing overlap gates, Direct recommended, the level of unhelpful refused."""
    data, _ = read(
        arena / "fresh_draws",
        probes=arena / "probe_slice",
        logged=arena / "logged_data.jsonl",
        calibration_policy="base",
    )
    names = [str(name) for name in data.policy.values]
    cover, transport = overlap(data), audit(data)
    estimate = direct.estimate(data, inference="influence", ci_prob=0.975)
    pieces = {"overlap": cover, "coverage": coverage_badge(data), "reliability": reliability(data)}
    metrics = gates.collect(names, **pieces, transport=transport, estimate=estimate, adjusted=True)
    found = gates.evaluate(metrics)
    ess = found.sel(gate="ess")
    targets = ["clone", "parallel_universe_prompt", "unhelpful"]
    np.testing.assert_allclose(ess.value.sel(policy=targets), [0.2146, 0.0034, 0.0078], rtol=0, atol=1e-4)
    assert ess.state.sel(policy=targets).values.tolist() == ["warn", "fail", "fail"]
    ope = gates.ope_ok(found)
    assert not ope.ok.any() and ope.state.sel(policy=targets[1:]).values.tolist() == ["blocked", "blocked"]

    levels = refusal.level(found, estimate)
    assert levels.level.sel(policy=["base", *targets]).values.tolist() == ["reported"] * 3 + ["refused"]
    assert levels.refused_by.sel(policy="unhelpful").item() == "transport"
    order = refusal.rank_only(estimate, levels, corrected=direct_corrected.estimate(data, ci_prob=0.975))
    against = order["second"].values == "unhelpful"
    assert (order.order.values[against] == "higher").all() and (
        order.order.values[~against] == "not ordered"
    ).all()
    np.testing.assert_allclose(
        refusal.partial_identification(data).out_of_range.sel(policy="unhelpful"), 0.013
    )

    guide = recommend(data, overlap=cover, transport=transport)
    assert (guide.estimator == "direct").all()
    assert guide.alternative.sel(policy="unhelpful").item() == "direct_corrected"


def test_pitfall_16_gates_read_the_estimators_own_diagnostics(arena):
    data, _ = read(arena / "fresh_draws", logged=arena / "logged_data.jsonl", calibration_policy="base")
    names = [str(name) for name in data.policy.values]
    for module, gate in ((calibrated_ips, "cap_engaged"), (dr_cpo, "orthogonality")):
        found = gates.evaluate(gates.collect(names, estimate=module.estimate(data)))
        assert found.state.sel(gate=gate, policy="clone").item() != "unknown"
