"""What ``cje-lab analyze`` says of refused levels, of what its numbers rest on, and of gates set by a target."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis import Cli, printed, probes, world, write

from cje_core import analyze
from studies.cli.analysis.as_json import to_json


def beyond(n: int = 400) -> pd.DataFrame:
    """Labels of base between scores .3 and .6; far lies above them for the most part, and is better."""
    rng = np.random.default_rng(11)
    score = {"base": rng.uniform(0.3, 0.6, n), "far": rng.uniform(0.55, 0.95, n)}
    parts = []
    for policy, s in score.items():
        label = np.clip(s + rng.normal(0, 0.05, n), 0, 1)
        label[150 if policy == "base" else 0 :] = np.nan
        parts.append(
            pd.DataFrame({"policy": policy, "prompt_id": range(n), "judge_score": s, "oracle_label": label})
        )
    return pd.concat(parts, ignore_index=True)


@pytest.mark.slow
def test_a_level_refused_for_support_comes_with_reach_order_and_labels_to_buy(
    cli: Cli, tmp_path: Path
) -> None:
    data = write(beyond(), tmp_path / "data")
    code, out, _ = cli(data)
    words = " ".join(out.split())
    assert code == 0
    assert "label next: far: " in words and "each at random: its level is then known to about" in words
    assert "order: far is above base, by " in words
    told = json.loads(cli(data, "--json")[1])
    far = told["policies"]["far"]
    assert far["level"] == "refused" and far["value"] is None
    share = far["support"]["out_of_range"]
    assert f"support of far: {share:.0%} of its scores lie above 0.6, the highest with a label" in words
    assert "calibration coverage" in out and "INCONCLUSIVE" in out
    assert far["support"]["above"]["share"] == pytest.approx(far["support"]["out_of_range"])
    above, covered = far["label_next"]["regions"]
    assert (above["where"], covered["where"]) == ("above", "covered")
    assert above["label_prob"] == pytest.approx(above["labels"] / above["n_responses"])
    assert above["n_labels"] == 0 and covered["n_labels"] == 150
    assert told["policies"]["base"]["label_next"] is None
    [pair] = told["order"]
    assert (pair["first"], pair["second"], pair["order"]) == ("base", "far", "lower")
    assert pair["interval"][1] < 0


def test_the_assumptions_ledger_is_on_the_page_and_in_the_json(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    out = cli(data)[1]
    assert "assumption" in out and "mean sufficiency" in out and "NOT_CHECKED" in out
    assert "\noverlap" not in out  # nothing here weights logged responses
    rows = {row["assumption"]: row for row in json.loads(cli(data, "--json")[1])["assumptions"]}
    assert list(rows) == [
        "overlap", "transport", "mean_sufficiency", "monotonicity", "calibration_coverage", "shared_prompts",
    ]  # fmt: skip
    assert rows["overlap"]["estimators"] == [] and "direct" in rows["transport"]["estimators"]
    for row in rows.values():
        assert [at["policy"] for at in row["policies"]] == ["base", "other"]
        assert all((at["action"] == "") == (at["verdict"] == "PASS") for at in row["policies"])


def test_policies_with_prompts_of_their_own_are_told_and_can_be_restricted(cli: Cli, tmp_path: Path) -> None:
    table = world()
    table = table[~((table["policy"] == "other") & (table["prompt_id"] < 20))]
    data = write(table, tmp_path / "data")
    words = " ".join(cli(data)[1].split())
    assert "shared prompts INCONCLUSIVE: base: restrict all policies to the shared prompts" in words
    assert "40 of its 60 prompts are shared by all policies" in words
    told = json.loads(cli(data, "--shared-prompts", "--json")[1])
    assert {k: v["responses"] for k, v in told["manifest"]["counts"].items()} == {"base": 40, "other": 40}
    verdicts = [at["verdict"] for at in told["assumptions"][-1]["policies"]]
    assert verdicts == ["PASS", "PASS"]
    apart = table[(table["policy"] == "base") == (table["prompt_id"] < 30)]
    code, _, err = cli(write(apart, tmp_path / "apart"), "--shared-prompts")
    assert code == 2
    assert (
        err
        == "cje-lab: --shared-prompts finds no prompt that all policies answered; compare fewer policies\n"
    )


@pytest.mark.slow
def test_gates_follow_a_target_difference(cli: Cli, tmp_path: Path, arena: Path) -> None:
    sources = (arena / "fresh_draws", "--logged", arena / "logged_data.jsonl", "--calibration-policy", "base")
    told = {mde: json.loads(cli(*sources, *mde, "--json")[1]) for mde in ((), ("--target-mde", "0.2"))}
    plain, wide = told.values()
    assert plain["manifest"]["gates"]["ess"]["good"] == 0.30
    found = wide["manifest"]["gates"]["ess"]
    assert found["good"] < 0.05 and found["critical"] == pytest.approx(found["good"] / 4)
    assert "CLE bound" in found["source"]
    clone = [at["policies"]["clone"]["gates"]["ess"] for at in (plain, wide)]
    assert clone == ["warn", "pass"]
    value = plain["policies"]["clone"]["gate_values"]["ess"]
    assert value == wide["policies"]["clone"]["gate_values"]["ess"]
    assert plain["policies"]["clone"]["estimates"] == wide["policies"]["clone"]["estimates"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target-mde", "0"), "--target-mde 0: it must be positive and finite"),
        (("--target-mde", "0.1"), "--target-mde 0.1: it sets what the logs must cover; give --logged FILE"),
    ],
)
def test_bad_targets_are_one_line(cli: Cli, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = cli(write(world(), tmp_path / "data"), *words)
    assert (code, out, err) == (2, "", f"cje-lab: {said}\n")


@pytest.mark.slow
def test_drift_of_batches_enters_the_judge_gate(cli: Cli, tmp_path: Path) -> None:
    """Twenty probes in each of three months; in the last the labels of one policy are .3 lower."""
    table = world(200, labels=100, policies=("base", "other", "third"))
    data = write(table, tmp_path / "data")
    both = []
    for policy in ("other", "third"):
        rows = probes(table, policy, 60, 0.0)
        rows["month"] = np.repeat(["2026-01", "2026-02", "2026-03"], 20)
        if policy == "other":
            rows.loc[rows["month"] == "2026-03", "oracle_label"] -= 0.3
        both.append(rows.assign(oracle_label=rows["oracle_label"].clip(0, 1)))
    audit = write(pd.concat(both), tmp_path / "probes", "{policy}_probe.jsonl")
    code, out, _ = cli(data, "--probes", audit, "--batch", "month")
    words = " ".join(out.split())
    assert code == 0
    assert "drift over 3 batches of probes: not checked for base; found for other; none found for third" in (
        words.replace(", found", "; found").replace(", none", "; none")
    )
    assert "label afresh and recalibrate" in words
    told = json.loads(
        cli(data, "--probes", audit, "--batch", "month", "--json", "--out", tmp_path / "out")[1]
    )["policies"]
    assert (tmp_path / "out/drift.png").read_bytes().startswith(b"\x89PNG")
    states = {name: at["gates"]["drift"] for name, at in told.items()}
    assert states == {"base": "unknown", "other": "fail", "third": "pass"}
    assert "drift_fail" in told["other"]["flags"] and told["base"]["drift"] is None
    assert told["other"]["drift"]["batches"] == 3 and told["other"]["drift"]["p_joint_bh"] < 0.05
    plain = json.loads(cli(data, "--probes", audit, "--json")[1])["policies"]
    assert "drift" not in plain["other"]["gates"] and plain["other"]["drift"] is None
    assert {n: at["value"] for n, at in plain.items()} == {n: at["value"] for n, at in told.items()}
    code, out, err = cli(data, "--probes", audit, "--batch", "week")
    assert (code, out) == (2, "") and "no row has the field 'week'" in err and err.count("\n") == 1


def test_nothing_is_added_where_no_level_is_refused() -> None:
    found = analyze(world())
    told = to_json(found)
    assert told["order"] == [] and all(at["label_next"] is None for at in told["policies"].values())
    text = printed(found, 100)
    assert "label next" not in text and "order:" not in text
