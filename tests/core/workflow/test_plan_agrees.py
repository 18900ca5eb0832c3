"""`plan` and `analyze` on the same pilots: what one refuses the other refuses, and they take the same values."""

from functools import cache

import numpy as np
import pytest
from pilot_worlds import equal, table, worlds
from scipy import stats

from cje_core.data import DataError
from cje_core.inference.estimate import Status
from cje_core.planning import components as splitting
from cje_core.planning.forecast import mde_surface, std_error_at
from cje_core.workflow.analyze import analyze
from cje_core.workflow.plan import plan
from cje_sim.scenarios import well_specified
from studies.cli.planning.as_json import to_json

WORLDS = worlds()
# some run in the fast suite, the others in the slow one
FAST = ("plain", "own_labels_too_few", "useless_judge", "probes_9")
NAMES = [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in WORLDS]
MONEY = {"budget": 12.0, "cost_judge": 0.02, "cost_oracle": 0.2}
ROUTES = {"own": {"theta_aug"}, "probes": {"probe_tuned"}, "borrowed": {"balanced", "plug_in"}}
NUMBERS = (
    "sigma2_eval", "sigma2_cal", "variance_probes", "calibration_share", "pilot_std_error", "planned_std_error",
    "planned_std_error_se", "probes_for_audit", "std_error_if_labelled", "labels_to_match_borrowing",
    "simulated_std_error", "simulated_mcse", "reported_std_error", "held",
)  # fmt: skip


@cache
def analysed(name):
    return analyze(WORLDS[name].table, chosen=["direct"], **{"borrowed": "balanced"} | WORLDS[name].options)


@cache
def planned_for(name):
    return plan(WORLDS[name].table, **MONEY, **WORLDS[name].options, replicates=20)


@cache
def told(name):
    """The JSON of the plan."""
    return to_json(planned_for(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_policies_are_refused_for_the_same_reason(name):
    analysis, planned = analysed(name), planned_for(name)
    refused = [policy for policy in analysis.policies if analysis.level(policy) == "refused"]
    assert planned.policies == analysis.policies and planned.refused == refused
    result = told(name)
    shown = {row.split()[0]: row for row in repr(planned).splitlines()[2:]}
    for policy in refused:
        reason = str(analysis.levels["reason"].sel(policy=policy).item())
        record = result["policies"][policy]
        assert reason and planned.silent(policy) == record["needs_labels"] == record["no_forecast"] == reason
        assert record["refused_by"] == analysis.refused_by(policy) and record["level"] == "refused"
        assert [number for number in NUMBERS if record[number] is not None] == []
        assert record["pilot_interval"] == [None, None]
        assert 0 < record["std_error_of_own_labels_at_most"] <= np.ptp(planned.data.attrs["oracle_range"]) / 4
        assert shown[policy].split()[1:3] == ["-", "-"] and shown[policy].endswith(reason)
        assert sum(step.startswith(f"no forecast for {policy}: {reason}") for step in result["next"]) == 1
        assert policy not in planned.probes
        surface = mde_surface(
            planned.components.sel(policy=policy, drop=True), [100], [0.5], cost_judge=1, cost_oracle=1
        )
        assert np.isnan(surface["mde"].values).all()
    for pair in result["contrasts"]:
        if {pair["first"], pair["second"]} & set(refused):
            assert pair["planned_mde"] is pair["simulated_power"] is pair["held"] is None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_forecast_is_the_value_that_is_printed(name, monkeypatch):
    """At the pilot's own size; with what the judge's test adds to its interval a borrowed value is the printed one."""
    analysis, planned = analysed(name), planned_for(name)
    monkeypatch.setattr(splitting, "_unselected", lambda lender: lender)
    cautious = splitting.variance_components(planned.calibrated, borrowed=planned.borrowed)
    shape = planned.components.attrs
    m = min(shape["m"], shape["n"])
    forecast = std_error_at(shape["n"], m, planned.components)
    for policy in analysis.policies:
        value, at = analysis.value.sel(policy=policy), planned.components.sel(policy=policy)
        record = told(name)["policies"][policy]
        if planned.silent(policy):
            # refused, or bounded by the number of equal labels alone: no spread to plan with
            assert np.isnan(at["std_error"]) and np.isnan(value["std_error"])
            exact = policy not in planned.refused
            assert np.isfinite(value["interval"].values).all() == exact
            assert not exact or (value["status"] == at["status"] == Status.CONSTANT_LABELS)
            continue
        assert np.isfinite(value["interval"].values).all() and analysis.level(policy) != "refused"
        assert str(at["route"].item()) in ROUTES[analysis.source(policy)]
        np.testing.assert_allclose(record["pilot_interval"], value["interval"])
        np.testing.assert_allclose(record["pilot_std_error"], value["std_error"])
        if str(value["route"].item()) == "label_mean":
            # planned as what fewer labels will give: the value printed with one label less, which moves a variance of
            # m labels by z^2 / m, z its residual over their spread; z < 3.2 here, so the error by 5 / m
            rows = WORLDS[name].table
            mine = rows.index[(rows["policy"] == policy) & rows["oracle_label"].notna()]
            less = rows.assign(oracle_label=rows["oracle_label"].drop(mine[0]))
            fewer = analyze(
                less, chosen=["direct"], **{"borrowed": "balanced"} | WORLDS[name].options
            ).value.sel(policy=policy)
            assert fewer["route"] == "theta_aug"
            np.testing.assert_allclose(at["std_error"], fewer["std_error"], rtol=5 / len(mine))
            continue
        assert float(at["std_error"]) <= float(value["std_error"]) * (1 + 1e-9)
        taken = cautious.sel(policy=policy)
        np.testing.assert_allclose(taken["std_error"], value["std_error"], rtol=1e-9)
        if at["route"] != "balanced" and value["interval_kind"] == "wald":
            df = forecast["df"].sel(policy=policy)
            half = stats.t.isf(0.025, df) * forecast["std_error"].sel(policy=policy)
            np.testing.assert_allclose(half, np.ptp(value["interval"].values) / 2, rtol=1e-6)


@pytest.mark.slow
def test_the_worlds_hold_every_kind_of_refusal_and_of_value():
    """Else the walk above shows little."""
    analyses = [analysed(name) for name in WORLDS]
    refusals = {gate for one in analyses for policy in one.policies for gate in one.refused_by(policy)}
    assert refusals >= {"identification", "agreement", "estimate", "interval"}
    routes = {str(route) for one in analyses for route in one.value["route"].values}
    assert routes >= {"theta_aug", "label_mean", "probe_tuned", "balanced", "plug_in"}


@pytest.mark.slow
def test_no_probes_are_advised_for_an_audit_that_has_failed():
    for name, failed in (("probes_mismatched", True), ("probes_30", False)):
        assert (analysed(name).verdict("other") == "FAIL") == failed
        steps = told(name)["next"]
        assert any("probe labels for an audit" in step and "other" in step for step in steps) != failed
        assert any("does not transport to other" in step for step in steps) == failed


def test_without_labels_neither_has_a_number():
    for labels in ({"base": 0, "other": 0}, {"base": 3, "other": 0}):
        bare = table(labels)
        assert (analyze(bare, chosen=["direct"]).levels["level"] == "refused").all()
        with pytest.raises(DataError, match="a plan needs a pilot with at least 4"):
            plan(bare, **MONEY)


def test_labels_that_are_all_equal_are_bounded_by_one_and_planned_by_neither():
    flat = table({"base": 50, "other": 0}, relation=equal(1.0))
    analysis = analyze(flat, chosen=["direct"])
    assert analysis.level("base") == "reported" and analysis.level("other") == "refused"
    assert np.isnan(analysis.value["std_error"].values).all()
    with pytest.raises(DataError, match="no variance to plan with: all oracle labels are equal"):
        plan(flat, **MONEY)


@pytest.mark.parametrize("asked", [{"cohort": {"stratum": "0"}}, {"shared_prompts": True}])
def test_labels_of_prompts_that_are_not_planned_plan_nothing(asked) -> None:
    data = well_specified.simulate(n=200, oracle_fraction=0.4, label_scheme="stratified", rng=1)
    with pytest.raises(
        DataError, match=f"{min(asked)}= lets labels of some prompts teach .*; leave it out, and give"
    ):
        plan(data, budget=500, cost_judge=1, cost_oracle=5, **asked)
