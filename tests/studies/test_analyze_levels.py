"""``cje-lab analyze``: levels that are refused or kept, and the cautions, gates and advice beside them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from analysis import in_plot, mixed, printed, probes, world

from cje_core.workflow.analyze import analyze
from cje_core.workflow.posterior import stricter
from cje_sim.scenarios import rare_drops
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.told import answer


def test_transport_failure_refuses_what_is_borrowed_and_probes_stand_in() -> None:
    table = world(200, labels=150)
    result = analyze(table, probes=probes(table, "other", 60, -0.3))
    assert [result.level(p) for p in result.policies] == ["reported", "reported"]
    record = to_json(result)["policies"]["other"]
    assert (record["source"], record["transport"]["verdict"], record["flags"]) == ("probes", "FAIL", [])
    corrected = record["estimates"]["direct_corrected"]
    assert (
        record["value"]["from"] == "direct_corrected" and record["value"]["estimate"] == corrected["estimate"]
    )
    [pair] = to_json(result)["contrasts"]
    first, second = (to_json(result)["policies"][name]["value"]["estimate"] for name in ("base", "other"))
    assert pair["level"] == "reported" and np.isclose(pair["difference"], first - second)
    text = printed(result, 80)
    assert f"{corrected['estimate']:.3f} [{corrected['interval'][0]:.3f}" in text
    assert "other: the calibration does not transport to it" in " ".join(text.split())


def test_what_is_refused_is_no_number_in_any_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stricter arm refuses: nothing is printed of the level, and nothing of a difference with it."""
    failed = {"base": "FAIL", "other": "FAIL"}
    monkeypatch.setattr("cje_core.workflow.judging.stricter", lambda transport, believed: failed)
    result = analyze(world(200, labels=150))
    found = to_json(result)
    record = found["policies"]["other"]
    assert (record["level"], record["value"], record["refused_by"]) == ("refused", None, ["transport"])
    assert record["flags"] == ["transport_assumed", "transport_fail"]
    assert found["policies"]["base"]["level"] == "reported"  # its own labels need no transport
    [pair] = found["contrasts"]
    assert (pair["level"], pair["difference"], pair["interval"]) == ("refused", None, [None, None])
    text = " ".join(printed(result, 100).split())
    assert "label or probe 50 of its responses" in text
    hidden = f"{float(result.estimates['direct']['estimate'].sel(policy='other')):.3f}"
    assert hidden not in text and hidden not in in_plot(result)
    assert record["estimates"]["direct"]["status"] == "level_refused"
    assert record["estimates"]["direct"]["interval"] == [None, None]
    assert found["best"] is None  # one value is not the best of anything


@pytest.mark.slow
def test_own_labels_keep_a_level_that_the_pooled_audit_fails() -> None:
    table, audit = mixed()
    found = analyze(table, probes=audit, calibration_policy="base")
    record = to_json(found)["policies"]["other"]
    assert record["transport"]["verdict"] == "FAIL" and record["estimates"]["direct"]["status"] == "ok"
    assert (record["level"], record["refused_by"], record["flags"]) == ("reported", [], [])
    text = " ".join(printed(found, 100).split())
    assert "not refused: other: the calibration does not transport" in text and "do not use" not in text
    table.loc[table["policy"] == "other", "oracle_label"] = np.nan  # nothing else than the labels did it
    assert analyze(table, probes=audit, calibration_policy="base").source("other") == "probes"


@pytest.mark.parametrize("name", ["labels_only", "raw_judge", "ppi", "direct_corrected"])
def test_the_audit_of_a_calibrator_that_is_not_used_refuses_nothing(name: str) -> None:
    table, audit = mixed()
    found = analyze(table, probes=audit, calibration_policy="base", chosen=[name])
    assert found.verdict("other") == "FAIL" and found.refused_by("other") == []
    uses = name == "direct_corrected"
    assert ("identification" in found.gates["gate"].values) == uses
    assert ("the judge is taken at its word" in printed(found, 100)) == (name == "raw_judge")


def test_probes_make_the_value_also_where_nobody_asked_for_that_estimator() -> None:
    table = world(200, labels=150)
    result = analyze(table, probes=probes(table, "other", 60, -0.3), chosen=["direct"])
    assert result.standing("other") == "direct_corrected" and result.source("other") == "probes"
    assert "direct_corrected" not in analyze(table, chosen=["direct"]).estimates


def test_a_borrowed_value_is_assumed_and_the_judge_at_its_word_too() -> None:
    result = analyze(world())
    assert [result.level(p) for p in result.policies] == ["reported", "assumed"]
    text = " ".join(printed(result, 100).split())
    assert "assumed: borrowed" in text and "reported: labels or probes" in text and "refused:" not in text
    assert to_json(result)["contrasts"][0]["level"] == "assumed"
    raw = analyze(world(), chosen=["raw_judge"])
    assert [raw.level(p) for p in raw.policies] == ["assumed", "assumed"]


@pytest.mark.slow
def test_the_stricter_verdict_of_the_two_arms_stands_and_is_said() -> None:
    table = world(200, labels=150)
    result = analyze(table, probes=probes(table, "other", 60, 0.0), bayes="gibbs")
    assert result.verdict("other") == "PASS"
    believed = result.posterior
    assert believed is not None
    for share, verdict in ((0.01, "FAIL"), (0.5, "INCONCLUSIVE"), (0.99, "PASS"), (np.nan, "PASS")):
        decision = believed.decision.assign(within_margin=believed.decision["within_margin"] * 0 + share)
        doubtful = believed._replace(decision=decision)
        assert stricter(result.transport, doubtful)["other"] == verdict
        told = " ".join(printed(replace(result, posterior=doubtful), 100).split())
        assert ("disagree: transport to other" in told) == (verdict != "PASS")


@pytest.mark.slow
def test_differences_of_borrowed_plug_ins_carry_a_caution() -> None:
    table = world(policies=("base", "other", "third"))
    plugged = analyze(table, borrowed="plug_in")
    pairs = to_json(plugged)["contrasts"]
    assert all("80-88%" in pair["caution"] and "--borrowed balanced" in pair["caution"] for pair in pairs)
    assert " ".join(printed(plugged, 100).split()).count("--borrowed balanced") == 1
    default = analyze(table)
    assert default.estimates["direct"]["route"].values.tolist() == ["theta_aug", "spline", "spline"]
    assert [pair["caution"] for pair in to_json(default)["contrasts"]] == [None] * 3
    assert "plug-in" not in printed(default, 100)
    many = analyze(world(30, labels=20, policies=tuple("abcdef")), borrowed="plug_in")  # too many for a table
    assert "--borrowed balanced" in " ".join(printed(many, 100).split())
    own = world(policies=("base", "other"))
    own["oracle_label"] = own["judge_score"] ** 2
    assert to_json(analyze(own, borrowed="plug_in"))["contrasts"][0]["caution"] is None


def test_gates_that_warn_are_printed_with_what_to_do() -> None:
    """Labels near the policy's scores are few: the level stands, with the gate's words in table and JSON."""
    result = analyze(world(100, labels=20))
    record = to_json(result)["policies"]["other"]
    assert record["gates"]["label_support"] == "warn" and record["level"] == "assumed"
    warned = record["gate_warnings"]["label_support"]
    assert warned["value"] < warned["good"] == 30 and warned["action"].startswith("label responses")
    assert set(record["gate_warnings"]) == {g for g, s in record["gates"].items() if s in ("warn", "fail")}
    text = " ".join(printed(result, 100).split())
    assert f"label_support {warned['value']:g} (at least 30): {warned['action']}" in text
    assert "caution for base, other: " in text or "caution for other: " in text


def test_labels_that_may_have_missed_rare_failures_carry_a_caution() -> None:
    """In terminal, page and JSON, for the policy whose labels show no drop, and only for it."""
    result = analyze(rare_drops.simulate(n=300, oracle_fraction=0.1, drops={"base": 0.2, "same": 0.0}, rng=1))
    records = to_json(result)["policies"]
    bound = records["same"]["unseen_bound"]
    share = 1 - 0.05 ** (1 / 30)
    value = records["same"]["value"]["estimate"]
    assert bound == pytest.approx(value * (1 - share)) and bound < records["same"]["value"]["interval"][0]
    assert records["base"]["unseen_bound"] is None
    caution = (
        f"30 labels cannot rule out that up to 10% of answers fail; the value could be as low as {bound:.2f}"
    )
    text = " ".join(printed(result, 100).split())
    assert text.count("cannot rule out") == 1 and f"caution for same: {caution}" in text
    assert f"Caution for same: {caution}." in answer(result, to_json(result))


def test_the_share_of_the_calibration_reaches_the_advice() -> None:
    result = analyze(world(800, labels=25))
    share = float(result.estimates["direct"]["calibration_share"].sel(policy="other"))
    assert share > 0.5
    advice = to_json(result)["policies"]["other"]["recommended"]["caution"]
    assert f"{share:.0%} of the variance comes from the labels: collect labels" in advice
    assert "direct" not in (bare := analyze(world(800, labels=25), chosen=["labels_only"])).estimates
    assert "of the variance" not in to_json(bare)["policies"]["other"]["recommended"]["caution"]


def test_the_advice_of_the_guide_is_printed() -> None:
    table = world(200, labels=150)
    result = analyze(table, probes=probes(table, "other", 60, -0.3))
    assert to_json(result)["policies"]["other"]["recommended"]["estimator"] == "direct_corrected"
    assert "guide for other: use direct_corrected: its probes" in " ".join(printed(result, 100).split())


def test_transport_verdicts_are_told_apart() -> None:
    """PASS, INCONCLUSIVE and NOT_CHECKED are three things (a peer conflated two of them)."""
    table = world(400, labels=300, policies=("base", "few", "many", "none"))
    audit = pd.concat([probes(table, "few", 5, 0.03), probes(table, "many", 200, 0.0)])
    found = to_json(analyze(table, probes=audit))["policies"]
    verdicts = {name: found[name]["transport"]["verdict"] for name in found}
    assert (
        verdicts["many"] == "PASS" and verdicts["none"] == "NOT_CHECKED" and verdicts["base"] == "NOT_CHECKED"
    )
    assert found["many"]["flags"] == found["few"]["flags"] == []  # probes are in their values
    assert found["none"]["flags"] == ["transport_assumed", "transport_not_checked"]
    assert found["base"]["flags"] == []


def test_a_policy_without_an_estimate_has_no_level_to_report() -> None:
    result = analyze(world(labels=3))
    assert [result.level(p) for p in result.policies] == ["refused", "refused"]
    assert "does not transport" not in printed(result, 100)


def test_an_estimator_that_is_wider_than_the_labels_alone_says_so() -> None:
    rng = np.random.default_rng(4)
    table = world(300, labels=0)
    good = rng.random(len(table)) < 0.6
    passed = rng.random(len(table)) < np.where(good, 0.7, 0.5)  # a judge that hardly tells good from bad
    table["judge_score"] = passed.astype(float)
    table["oracle_label"] = np.where(table["prompt_id"] < 100, good.astype(float), np.nan)
    result = analyze(table, chosen=["direct", "rogan_gladen"])
    wide = result.estimates["rogan_gladen"]["width_vs_labels"].sel(policy="base").item()
    assert wide > 1
    text = " ".join(printed(result, 100).split())
    assert f"times as wide as labels_only: base {wide:.1f}" in text
    assert "times as wide" not in printed(analyze(table, chosen=["direct"]), 100)


def contradicting(shift: float) -> pd.DataFrame:
    """Two labelled policies of which one is graded higher by `shift` at the same score, and a third without labels."""
    table = world(200, labels=120, policies=("base", "clone", "third"))
    at = (table["policy"] == "clone") & (table["prompt_id"] < 120)
    noise = np.random.default_rng(7).normal(0, 0.05, int(at.sum()))
    table.loc[at, "oracle_label"] = (table.loc[at, "judge_score"] ** 2 + shift + noise).clip(0, 1)
    return table


@pytest.mark.slow
def test_labels_that_contradict_each_other_lend_nothing_until_one_is_chosen() -> None:
    """The caution is on the page, in JSON and ledger; choosing whose labels to borrow brings a level back."""
    from cje_core.workflow.steps.report import ledgers

    result = analyze(contradicting(0.3))
    found = to_json(result)
    record = found["policies"]["third"]
    assert (record["level"], record["value"], record["refused_by"]) == ("refused", None, ["agreement"])
    assert "labels_disagree" in record["flags"] and record["recommended"]["estimator"] == "none"
    assert {pair["level"] for pair in found["contrasts"]} == {"refused", "reported"}
    assert [entry["policy"] for entry in found["agreement"] if entry["contradicts"]] == ["base", "clone"]
    text = " ".join(printed(result, 100).split())
    assert "disagree about what a score is worth" in text and "choose one with --calibration-policy" in text
    assert "the labels that it borrows from contradict each other" in text
    assert set(ledgers(result)) == set(result.estimates)
    assert result.level("base") == result.level("clone") == "reported"
    chosen = analyze(contradicting(0.3), calibration_policy="base")
    record = to_json(chosen)["policies"]["third"]
    assert record["level"] == "assumed" and "labels_disagree" in record["flags"]
    assert "disagree about what a score is worth" in " ".join(printed(chosen, 100).split())
    assert record["value"]["estimate"] < 0.5 < to_json(result)["policies"]["clone"]["value"]["estimate"]


def test_labels_that_agree_lend() -> None:
    result = analyze(contradicting(0.0))
    assert result.level("third") == "assumed"
    assert "disagree about" not in printed(result, 100)
    assert not any(entry["contradicts"] for entry in to_json(result)["agreement"])


@pytest.mark.slow
def test_probes_that_make_no_value_are_named_with_the_reason() -> None:
    table = world()
    few = printed(analyze(table, probes=probes(table, "other", 3, 0.0)), 200)
    assert "not used: probes of other (prompts: 3): a value takes 4; probe more" in few
    same = probes(table, "other", 30, 0.0).assign(oracle_label=0.5)
    result = analyze(table, probes=same)
    assert "not used: probes of other (prompts: 30): their labels are all 0.500, which" in printed(
        result, 300
    )
    assert "not used" not in printed(analyze(table, probes=probes(table, "other", 30, 0.0)), 200)


@pytest.mark.slow
def test_equal_probes_inside_the_scale_make_no_value_and_none_of_the_outputs_says_they_do() -> None:
    """Level, guide, flags and notes agree; at an end of the scale the probes have an exact bound and make the value."""
    table = world()
    same = probes(table, "other", 12, 0.0).assign(oracle_label=0.5)
    record = to_json(analyze(table, probes=same))["policies"]["other"]
    assert (record["level"], record["source"], record["value"]["from"]) == ("assumed", "borrowed", "direct")
    assert record["recommended"]["estimator"] == "direct"
    assert "its probes make no value" in record["recommended"]["caution"]
    assert "probes_not_used" in record["flags"] and record["transport"]["verdict"] == "NOT_CHECKED"
    assert record["estimates"]["direct_corrected"]["interval"] == [None, None]
    end = to_json(analyze(table, probes=same.assign(oracle_label=1.0)))["policies"]["other"]
    assert (end["level"], end["source"]) == ("reported", "probes")
    assert end["recommended"]["estimator"] == "direct_corrected" and "probes_not_used" not in end["flags"]


def test_probes_of_unknown_prompts_are_counted_and_named() -> None:
    table = world()
    audit = probes(table, "other", 30, 0.0)
    audit.loc[audit["prompt_id"] < 6, "prompt_id"] += 1000
    result = analyze(table, probes=audit)
    text = printed(result, 300)
    assert (
        "caution for other: 6 of its 30 probed prompts have no response in the data (1000, 1001, 1002,"
        in text
    )
    found = to_json(result)["policies"]
    assert found["other"]["probes_of_unknown_prompts"] == [str(1000 + k) for k in range(6)]
    assert found["base"]["probes_of_unknown_prompts"] == []
    assert "probed prompts" not in printed(analyze(table, probes=probes(table, "other", 30, 0.0)), 300)


@pytest.mark.slow
def test_a_refused_policy_has_no_posterior_number_and_best_says_who_was_compared() -> None:
    result = analyze(contradicting(0.3), bayes="gibbs")
    found, text = to_json(result), " ".join(printed(result, 100).split())
    record = found["policies"]["third"]
    for name in ("direct", "bayes_direct"):
        number = float(result.estimates[name]["estimate"].sel(policy="third"))
        assert np.isfinite(number)  # there is one to hide
        assert record["estimates"][name] == {
            "estimate": None,
            "std_error": None,
            "interval": [None, None],
            "status": "level_refused",
        }
        assert f"{number:.3f} [" not in text and f"{number:.3f} [" not in in_plot(result)
    assert record["estimates"]["raw_judge"]["estimate"] is not None  # what the judge says claims nothing
    assert found["best"]["compared"] == ["base", "clone"] and found["best"]["decided"]
    assert list(found["best"]["left_out"]) == ["third"] and "contradict" in found["best"]["left_out"]["third"]
    assert found["best"]["p_best"] == {"compared": ["base", "clone"], "left_out": {"third": "level refused"}}
    assert (
        "best: clone: ahead of base by intervals that together leave out 0; not compared: third (level refused)"
        in text
    )
    assert "P(best): among base, clone; not compared: third (level refused)" in text
