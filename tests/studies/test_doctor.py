"""``cje-lab doctor`` names what a file is, and the command that it prints runs; other tools' files are analyzed."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner
from user_files import rows, write

from studies.cli.app import app
from studies.demo import arena

HELD = Path(__file__).parents[1] / "reference" / "readers"
GUESSED = {
    "inspect": ("judge", "human"),
    "lm_eval": ("llm_judge,flexible-extract", "exact_match,flexible-extract"),
    "langfuse": ("quality@EVAL", "quality@ANNOTATION"),
    "phoenix": ("correctness@LLM", "correctness@HUMAN"),
    "langsmith": ("helpful@model", "thumb@app"),
    "mt_bench": ("gpt-4/pair-v2", "expert_*"),
}


def told(path: Path, *more: str) -> dict:
    found = CliRunner().invoke(app, ["doctor", str(path), "--json", *more])
    return json.loads(found.output) | {"exit": found.exit_code}


@pytest.mark.parametrize("name", GUESSED)
def test_scores_of_other_tools_are_told_apart(name: str) -> None:
    judge, oracle = GUESSED[name]
    record = told(HELD / name)
    assert record["exit"] == 0 and judge in record["scores"] and record["usable"] >= 40
    assert shlex.split(record["command"]) == [
        "cje-lab",
        "analyze",
        str(HELD / name),
        "--judge",
        judge,
        "--oracle",
        oracle,
    ]


def test_a_table_of_ones_own_with_its_scale(tmp_path: Path) -> None:
    scored = [
        r | {"policy": "p", "judge_score": 1 + i % 5, "oracle_label": 10.0 * i}
        for i, r in enumerate(rows(n=11))
    ]
    record = told(write(tmp_path / "x y.jsonl", scored))
    assert record["what"] == "table of responses" and record["policies"] == {"p": 11}
    assert record["scores"]["judge_score"] == {"n": 11, "low": 1.0, "high": 5.0}
    expected = [
        "cje-lab",
        "analyze",
        str(tmp_path / "x y.jsonl"),
        "--judge-range",
        "1",
        "5",
        "--oracle-range",
        "0",
        "100",
    ]
    assert shlex.split(record["command"]) == expected


def test_the_command_that_it_prints_runs(tmp_path: Path) -> None:
    command = shlex.split(told(HELD / "inspect")["command"])
    found = CliRunner().invoke(app, [*command[1:], "--json"])
    assert found.exit_code == 0, found.output
    flow = json.loads(found.stdout)["row_flow"]
    assert {p: (at["read"], at["left_out"], at["judged"]) for p, at in flow.items()} == {
        "mockllm/base": (30, 2, 28), "mockllm/better": (30, 2, 28)
    }  # fmt: skip
    assert all(at["worst"] < at["best"] for at in flow.values())
    page = CliRunner().invoke(app, command[1:]).output
    assert "left out" in page and "worth least, most" in page


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["doctor", str(arena.HELD)])
    assert found.exit_code == 2 and "or give a directory in it: probes, responses" in found.output
    found = CliRunner().invoke(app, ["doctor", str(tmp_path / "none")])
    assert found.exit_code and "no such file" in str(found.exception)
    rows_of_two = [{"name": n, "score": 0.5, "trace_id": t, "model": "m"} for t in "ab" for n in ("x", "y")]
    path = write(tmp_path / "x.jsonl", rows_of_two)
    found = CliRunner().invoke(app, ["analyze", str(path)])
    assert "which score is the judge's?" in str(found.exception) and "x, y" in str(found.exception)


def test_options_of_other_tools_beside_a_table_of_ones_own() -> None:
    found = CliRunner().invoke(app, ["analyze", str(arena.HELD / "responses"), "--judge", "x"])
    assert found.exit_code and "--judge x" in str(found.exception) and "rename yours" in str(found.exception)
