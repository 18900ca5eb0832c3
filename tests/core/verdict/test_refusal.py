"""Refusal of levels: what refuses, bounds by hand, the order that stays, and the Arena sample end to end."""

import numpy as np
import oracles_transport as oracles
import pytest
import xarray as xr
from gates_world import HEALTHY, world
from scipy import stats

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import (
    direct,
    direct_corrected,
)
from cje_core.inference.estimate import Status
from cje_core.io.files import read
from cje_core.offpolicy.overlap import overlap
from cje_core.transport.audit import audit
from cje_core.verdict import gates, refusal
from cje_core.verdict.guide import recommend
from cje_sim.scenarios import out_of_range


def estimated(*cells):
    """An estimate of policies a, b, ... from (value, half width, status, source)."""
    value, half, status, source = (np.array(column) for column in zip(*cells, strict=True))
    return xr.Dataset(
        {
            "estimate": ("policy", value),
            "interval": (("policy", "ci_bound"), np.stack([value - half, value + half], axis=1)),
            "status": ("policy", status),
            "source": ("policy", source),
        },
        coords={"policy": list("abcdefgh")[: len(cells)]},
    )


def test_levels_are_refused_by_the_audit_by_identification_and_by_failure():
    columns = {name: [value] * 5 for name, value in HEALTHY.items()}
    columns |= {"transport_code": [2.0, 0.0, 1.0, np.nan, 2.0], "unsupported_mass": [0.0, 0.2, 0.0, 0.0, 0.2]}
    found = gates.evaluate(columns, policies=list("abcde"))
    borrowed = (0.5, 0.1, Status.TRANSPORT_ASSUMED, "borrowed")
    estimate = estimated(
        borrowed, borrowed, borrowed, (np.nan, np.nan, Status.NO_RESPONSES, "none"),
        (0.5, 0.1, Status.OK, "own"),
    )  # fmt: skip
    out = refusal.level(found, estimate)
    assert out.level.values.tolist() == ["refused", "refused", "assumed", "refused", "reported"]
    assert out.source.values.tolist() == ["borrowed", "borrowed", "borrowed", "none", "own"]
    assert out.refused_by.values.tolist() == ["transport", "identification", "", "estimate", ""]
    assert out.caveat.sel(policy="c").item() == f"transport INCONCLUSIVE: {gates.BY_NAME['transport'].action}"
    assert out.caveat.sel(policy=["d", "e"]).values.tolist() == ["", ""]
    assert Status.NO_RESPONSES.message in out.reason.sel(policy="d").item()


def test_probes_make_the_value_whatever_the_audit_says():
    """The audit of a borrowed value never chooses between it and the probes: that would be a pretest."""
    columns = {name: [value] * 5 for name, value in HEALTHY.items()}
    columns["transport_code"] = [0.0, 1.0, 2.0, 2.0, 2.0]
    found = gates.evaluate(columns, policies=list("abcde"))
    borrowed = (0.5, 0.1, Status.TRANSPORT_ASSUMED, "borrowed")
    estimate = estimated(
        borrowed, borrowed, borrowed, (np.nan, np.nan, Status.UNINFORMATIVE_JUDGE, "none"), borrowed
    )
    probed = estimated(*[(0.4, 0.1, Status.OK, "probes")] * 4, (np.nan, np.nan, Status.NO_PROBES, "none"))
    out = refusal.level(found, estimate, probed)
    assert out.level.values.tolist() == ["reported"] * 4 + ["refused"]
    assert out.source.values.tolist() == ["probes"] * 4 + ["borrowed"]


def test_a_number_without_an_interval_and_one_without_labels_are_not_reported():
    found = gates.evaluate({name: [value] * 3 for name, value in HEALTHY.items()}, policies=list("abc"))
    estimate = estimated(
        (0.5, np.nan, Status.CONSTANT_LABELS, "own"),
        (0.5, 0.1, Status.OK, "judge"),
        (0.5, np.nan, Status.FEW_LABELS_POSTERIOR, "borrowed"),
    )
    out = refusal.level(found, estimate)
    assert out.level.values.tolist() == ["refused", "assumed", "refused"]
    assert out.source.values.tolist() == ["own", "judge", "borrowed"]
    assert out.refused_by.values.tolist() == ["interval", "", "interval"]
    probed = estimated(*[(0.4, 0.1, Status.OK, "probes")] * 3)
    assert refusal.level(found, estimate, probed).source.values.tolist() == ["probes"] * 3
    assert out.reason.sel(policy="a").item() == Status.CONSTANT_LABELS.message


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
    given = calibrated(data, Calibration(direction=direction))
    free = refusal.partial_identification(given).sel(policy="b")
    tight = refusal.partial_identification(given, monotone=True).sel(policy="b")
    plug_in = direct.estimate(given, borrowed="plug_in").estimate.sel(policy="b")
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


def strange_covariate():
    """Scores alike under both policies; half of b's covariates lie beyond every labelled one."""
    rng = np.random.default_rng(4)
    judge, x = rng.uniform(size=(2, 200)), rng.uniform(size=(2, 200))
    judge[0, :2], x[0, :2] = [0, 1], [0, 1]
    x[1, :100] += 2
    label = np.where(np.arange(200) < np.array([[150], [0]]), judge, np.nan)
    return from_arrays(judge, policies=["a", "b"], oracle=label, covariate=x[..., None], features=["x"])


@pytest.mark.parametrize("calibrator", ["default", "monotone"])
def test_a_covariate_out_of_range_claims_nothing_either(calibrator):
    data = strange_covariate()
    given = calibrated(data, Calibration(["x"], calibrator))
    out = refusal.partial_identification(given).sel(policy="b")
    rows = unpack(data, ["x"])
    at = rows.policy == 1
    f = predict(fit_slice(rows, calibrator=calibrator).calibrator, rows.z[at])
    far = rows.z[at, 1] > rows.z[rows.teaches, 1].max()
    assert far.mean() == 0.5
    np.testing.assert_allclose([out.out_of_range, out.outside.sel(column="x")], 0.5)
    assert out.outside.sel(column="judge score") == out.above == out.below == 0
    np.testing.assert_allclose(out.bounds, [np.where(far, end, f).mean() for end in (0.0, 1.0)])
    tight = refusal.partial_identification(given, monotone=True)
    np.testing.assert_allclose(tight.bounds.sel(policy="b"), out.bounds)
    without = refusal.partial_identification(data).sel(policy="b")
    assert without.out_of_range == 0 and without.outside.sizes["column"] == 1


def test_the_reason_names_what_lies_outside():
    data = strange_covariate()
    found = gates.evaluate({name: [value] * 2 for name, value in HEALTHY.items()}, policies=["a", "b"])
    estimate = direct.estimate(data, calibration=Calibration(["x"]))
    assert Status(int(estimate.status.sel(policy="b"))) is Status.LOW_SUPPORT
    bounds = refusal.partial_identification(calibrated(data, Calibration(["x"])))
    named = refusal.name_outside(refusal.level(found, estimate), bounds).reason.sel(policy="b").item()
    assert named == f"{Status.LOW_SUPPORT.message} (outside the labels' range: x 50% of responses)"


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
        status = [Status.OK, Status.OK, Status.OK, Status.UNINFORMATIVE_JUDGE]
        columns = {
            "interval": (("policy", "ci_bound"), np.array(values, float)),
            "status": ("policy", status),
        }
        return xr.Dataset(columns, coords={"policy": names})

    levels = xr.Dataset(
        {
            "refused_by": ("policy", ["", "transport", "identification", "estimate, transport"]),
            "level": ("policy", ["reported", "refused", "refused", "refused"]),
            "source": ("policy", ["own", "borrowed", "borrowed", "none"]),
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
    probed = levels.assign(refused_by=("policy", ["", "", "estimate", "estimate"]))
    probed["source"] = ("policy", ["own", "probes", "none", "none"])
    out = refusal.rank_only(piece(intervals), probed, bounds=bounds, corrected=corrected)
    # b's probes make its value, whatever it would borrow; nothing is known of a policy that may not borrow
    assert out.basis.values.tolist() == ["estimate", "corrected", "none", "none"]
    np.testing.assert_array_equal(out.used.sel(policy="b"), [0.1, 0.2])


def test_bad_input_raises_and_no_fit_is_nan():
    with pytest.raises(ValueError, match="ci_prob"):
        refusal.partial_identification(world(), ci_prob=0.0)
    few = world().isel(prompt=slice(0, 3))
    assert np.isnan(refusal.partial_identification(few).bounds).all()


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
    assert levels.level.sel(policy=["base", *targets]).values.tolist() == [
        "reported",
        "assumed",
        "assumed",
        "refused",
    ]
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
    assert (
        guide.estimator.sel(policy=["base", *targets]).values.tolist()
        == ["direct"] + ["direct_corrected"] * 3
    )
    assert "transport FAIL" in guide.reason.sel(policy="unhelpful").item()
