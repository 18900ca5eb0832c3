"""``cje-lab analyze``: levels that are refused or kept, and the cautions, gates and advice beside them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis import mixed, printed, probes, world

from studies._analyze import analyze
from studies._analyze_json import to_json


def test_transport_failure_refuses_the_level(tmp_path: Path) -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.3)
    result = analyze(table, probes=audit)
    assert [result.level(p) for p in result.policies] == ["reported", "refused"]
    record = to_json(result)["policies"]["other"]
    assert record["transport"]["verdict"] == "FAIL" and record["flags"] == [
        "transport_assumed",
        "transport_fail",
    ]
    [pair] = to_json(result)["contrasts"]
    assert pair["level"] == "refused"
    text = printed(result, 80)
    corrected = record["estimates"]["direct_corrected"]
    assert f"{corrected['estimate']:.3f} [{corrected['interval'][0]:.3f}" in text
    assert "does not transport to other" in text.replace("\n", " ").replace("  ", " ")


def test_own_labels_keep_a_level_that_the_pooled_audit_fails() -> None:
    table, audit = mixed()
    found = analyze(table, probes=audit, calibration_policy="base")
    record = to_json(found)["policies"]["other"]
    assert record["transport"]["verdict"] == "FAIL" and record["estimates"]["direct"]["status"] == "ok"
    assert (record["level"], record["refused_by"], record["flags"]) == ("reported", [], [])
    text = " ".join(printed(found, 100).split())
    assert "not refused: the calibration does not transport to other" in text and "do not use" not in text
    table.loc[table["policy"] == "other", "oracle_label"] = np.nan  # nothing else than the labels did it
    assert analyze(table, probes=audit, calibration_policy="base").refused_by("other") == ["transport"]


@pytest.mark.parametrize("name", ["labels_only", "raw_judge", "ppi", "direct_corrected"])
def test_the_audit_of_a_calibrator_that_is_not_used_refuses_nothing(name: str) -> None:
    table, audit = mixed()
    found = analyze(table, probes=audit, calibration_policy="base", chosen=[name])
    assert found.verdict("other") == "FAIL" and found.refused_by("other") == []
    uses = name == "direct_corrected"
    assert ("identification" in found.gates["gate"].values) == uses
    assert ("the judge is taken at its word" in printed(found, 100)) == (name == "raw_judge")


def test_what_to_use_in_place_of_a_refused_level_is_what_was_computed() -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.3)
    with_it, without = (
        " ".join(printed(analyze(table, probes=audit, chosen=chosen), 100).split())
        for chosen in (["direct", "direct_corrected"], ["direct"])
    )
    assert "do not use its level, use its probe-corrected value" in with_it
    assert "do not use its level, add --estimator direct_corrected" in without
    assert "probe-corrected" not in without


def test_differences_of_borrowed_plug_ins_carry_a_caution() -> None:
    table = world(policies=("base", "other", "third"))
    pairs = to_json(analyze(table, borrowed="plug_in"))["contrasts"]
    assert all("76-88%" in pair["caution"] and "--borrowed one_step" in pair["caution"] for pair in pairs)
    text = " ".join(printed(analyze(table, borrowed="plug_in"), 100).split())
    assert text.count("--borrowed one_step") == 1
    stepped = analyze(table, borrowed="one_step")
    assert stepped.estimates["direct"]["route"].values.tolist() == ["theta_aug", "one_step", "one_step"]
    assert [pair["caution"] for pair in to_json(stepped)["contrasts"]] == [None] * 3
    assert "one_step" not in printed(stepped, 100)
    many = analyze(
        world(30, labels=20, policies=tuple("abcdef")), borrowed="plug_in"
    )  # too many pairs for a table
    assert "--borrowed one_step" in " ".join(printed(many, 100).split())
    own = world(policies=("base", "other"))
    own["oracle_label"] = own["judge_score"] ** 2
    assert to_json(analyze(own))["contrasts"][0]["caution"] is None


def test_gates_that_warn_are_printed_with_what_to_do() -> None:
    """Labels near the policy's scores are few: the level stands, with the gate's words in table and JSON."""
    result = analyze(world(100, labels=20))
    record = to_json(result)["policies"]["other"]
    assert record["gates"]["label_support"] == "warn" and record["level"] == "reported"
    warned = record["gate_warnings"]["label_support"]
    assert warned["value"] < warned["good"] == 30 and warned["action"].startswith("label responses")
    assert set(record["gate_warnings"]) == {g for g, s in record["gates"].items() if s in ("warn", "fail")}
    text = " ".join(printed(result, 100).split())
    assert f"label_support {warned['value']:g} (at least 30): {warned['action']}" in text
    assert "caution for base, other: " in text or "caution for other: " in text


def test_the_share_of_the_calibration_reaches_the_advice() -> None:
    result = analyze(world(400, labels=10))
    share = float(result.estimates["direct"]["calibration_share"].sel(policy="other"))
    assert share > 0.5
    advice = to_json(result)["policies"]["other"]["recommended"]["caution"]
    assert f"{share:.0%} of the variance is the calibration's: collect labels" in advice
    assert "direct" not in (bare := analyze(world(400, labels=10), chosen=["labels_only"])).estimates
    assert "of the variance" not in to_json(bare)["policies"]["other"]["recommended"]["caution"]


def test_the_alternative_of_the_guide_is_printed() -> None:
    table = world(200, labels=150)
    result = analyze(table, probes=probes(table, "other", 60, -0.3))
    assert to_json(result)["policies"]["other"]["recommended"]["alternative"] == "direct_corrected"
    assert "Alternative: direct_corrected" in " ".join(printed(result, 100).split())


def test_transport_verdicts_are_told_apart(tmp_path: Path) -> None:
    """PASS, INCONCLUSIVE and NOT_CHECKED are three things (a peer conflated two of them)."""
    table = world(400, labels=300, policies=("base", "few", "many", "none"))
    audit = pd.concat([probes(table, "few", 5, 0.03), probes(table, "many", 200, 0.0)])
    found = to_json(analyze(table, probes=audit))["policies"]
    verdicts = {name: found[name]["transport"]["verdict"] for name in found}
    assert (
        verdicts["many"] == "PASS" and verdicts["none"] == "NOT_CHECKED" and verdicts["base"] == "NOT_CHECKED"
    )
    assert found["many"]["flags"] == ["transport_assumed"]
    assert found["none"]["flags"] == ["transport_assumed", "transport_not_checked"]
    assert found["base"]["flags"] == []


def test_a_policy_without_an_estimate_has_no_level_to_report() -> None:
    result = analyze(world(labels=3))
    assert [result.level(p) for p in result.policies] == ["refused", "refused"]
    assert "does not transport" not in printed(result, 100)
