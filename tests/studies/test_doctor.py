"""``cje-lab doctor`` names what a file is, and the command that it prints runs; other tools' files are analyzed."""

import gzip
import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner
from user_files import rows, write

from studies.cli.app import app
from studies.demo import arena

HELD = Path(__file__).parents[1] / "reference" / "readers"
GUESSED = {
    "inspect": ("judge", "human"),
    "lm_eval": ("llm_judge,strict-match", "exact_match,flexible-extract"),
    "promptfoo": ("right", "human"),
    "langfuse": ("quality@EVAL", "quality@ANNOTATION"),
    "phoenix": ("correctness@LLM", "correctness@HUMAN"),
    "langsmith": ("helpful@model", "thumb@app"),
    "mt_bench": ("gpt-4/pair-v2", "expert_*"),
}


def told(path: Path, *more: str) -> dict:
    found = CliRunner().invoke(app, ["doctor", "--json", *more, "--", str(path)])
    return json.loads(found.output) | {"exit": found.exit_code}


@pytest.mark.parametrize("name", GUESSED)
def test_scores_of_other_tools_are_told_apart(name: str) -> None:
    judge, oracle = GUESSED[name]
    scale = ["--scale", "unclear="] if name == "inspect" else []
    record = told(HELD / name, *scale)
    assert record["exit"] == 0 and judge in record["scores"] and record["usable"] >= 40
    assert shlex.split(record["command"]) == [
        "cje-lab",
        "analyze",
        str(HELD / name),
        "--judge",
        judge,
        "--oracle",
        oracle,
        *scale,
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


def own(place: Path, kind: str) -> Path:
    """Responses in our own fields, in every form that they may have."""
    table = pd.DataFrame(rows(n=30)).assign(policy="p")
    place.mkdir()
    records = [{k: v for k, v in r.items() if v == v} for r in table.to_dict("records")]
    if kind == "directory":
        for policy in ("a", "b"):
            write(place / f"{policy}.jsonl", [{**r, "policy": policy} for r in records])
        return place
    if kind == "range":
        table["judge_score"] = 1 + 4 * table["judge_score"]
        kind = "csv"
    path = place / f"-it's one.{kind}"
    if kind == "parquet":
        table.to_parquet(path)
    else:
        text = table.to_csv(index=False) if kind.startswith("csv") else json.dumps(records)
        if kind.startswith("jsonl"):
            text = "".join(json.dumps(r) + "\n" for r in records)
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    return path


OWN = ("directory", "jsonl", "jsonl.gz", "json", "csv", "csv.gz", "parquet", "range")


def names_of_policies(command: str) -> set[str]:
    """Policies of the analysis that a printed command makes."""
    found = CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"])
    assert found.exit_code == 0, (command, found.output, found.exception)
    return set(json.loads(found.stdout)["policies"])


@pytest.mark.parametrize("name", [*GUESSED, "inspect_json", *OWN])
def test_the_printed_command_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also of a path that begins with a dash and holds a quote and a blank."""
    place = HELD / name
    if name in OWN:
        place = own(tmp_path / "x", name)
        monkeypatch.chdir(place.parent)
        place = Path(place.name)
    record = told(place, *(["--scale", "unclear="] if name.startswith("inspect") else []))
    assert record["exit"] == 0 and not record["parts"]
    assert names_of_policies(record["command"]) == set(record["policies"])


@pytest.mark.slow
def test_a_directory_of_several_is_told_part_by_part(tmp_path: Path) -> None:
    """Probes and logs of the same policies are given with the responses; those of others are not."""
    record = told(arena.HELD)
    assert record["exit"] == 0 and record["problem"]
    (part,) = record["parts"]
    held = [str(arena.HELD / name) for name in ("responses", "probes", "logged.jsonl")]
    assert shlex.split(part["command"])[2:] == [held[0], "--probes", held[1], "--logged", held[2]]
    shutil.copytree(HELD / "inspect", tmp_path / "mixed" / "logs")
    shutil.copy(HELD / "inspect" / "base.eval", tmp_path / "mixed")
    shutil.copy(HELD / "langfuse" / "scores.csv", tmp_path / "mixed")
    shutil.copytree(arena.HELD / "probes", tmp_path / "mixed" / "probes")
    write(tmp_path / "mixed" / "mine.jsonl", [r | {"policy": "p"} for r in rows(n=9)])
    (tmp_path / "mixed" / "notes.txt").write_text("nothing")
    record = told(tmp_path / "mixed")
    assert record["exit"] == 0 and [Path(part["path"]).name for part in record["parts"]] == [
        "base.eval", "logs", "mine.jsonl", "scores.csv"
    ]  # fmt: skip
    for part in record["parts"]:
        assert names_of_policies(part["command"]) == set(part["policies"])
    page = CliRunner().invoke(app, ["doctor", str(tmp_path / "mixed")]).output
    assert page.count("in it:") == page.count("run:  ") == 4 and "cannot be read as it is" in page


def test_logged_responses_are_told_from_fresh_ones() -> None:
    found = CliRunner().invoke(app, ["doctor", str(arena.HELD / "logged.jsonl")])
    assert found.exit_code == 2 and f"give it with --logged {arena.HELD / 'logged.jsonl'}" in found.output


@pytest.mark.slow
def test_rows_of_an_analysis_of_another_tool(tmp_path: Path) -> None:
    command = shlex.split(told(HELD / "inspect", "--scale", "unclear=")["command"])
    found = CliRunner().invoke(app, [*command[1:], "--json"])
    assert found.exit_code == 0, found.output
    flow = json.loads(found.stdout)["row_flow"]
    assert {p: (at["read"], at["left_out"], at["judged"]) for p, at in flow.items()} == {
        "mockllm/base": (30, 2, 28), "mockllm/better": (30, 2, 28)
    }  # fmt: skip
    assert all(at["worst"] < at["best"] for at in flow.values())
    page = CliRunner().invoke(app, command[1:]).output
    assert "left out" in page and "worth least, most" in page


@pytest.mark.slow
def test_labels_of_items_without_a_score_value_them_on_screen_page_and_json(tmp_path: Path) -> None:
    """Traces that people rated and the judge did not: a third column beside worst and best."""
    rng = np.random.default_rng(2)
    table = []
    for k in range(60):
        trace = {"trace_id": f"t{k}", "model": "m", "item_id": f"q{k}"}
        score = round(float(rng.random()), 2)
        table += [trace | {"name": "judge", "score": score}] if k >= 10 else []
        table += [trace | {"name": "human", "score": score if k >= 10 else 0.1}] if k < 30 else []
    path = write(tmp_path / "x.jsonl", table)
    command = [*shlex.split(told(path)["command"])[1:], "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0 and "as labelled ones are" in found.output
    flow = json.loads((tmp_path / "out" / "estimates.json").read_text())["row_flow"]["m"]
    assert flow["ungraded_labels"] == 10 and flow["worst"] < flow["calibrated"] < flow["best"]
    assert "with the ungraded as their labels have them" in (tmp_path / "out" / "index.html").read_text()


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["doctor", str(tmp_path / "none")])
    assert found.exit_code and "no such file" in str(found.exception)
    rows_of_two = [{"name": n, "score": 0.5, "trace_id": t, "model": "m"} for t in "ab" for n in ("x", "y")]
    path = write(tmp_path / "x.jsonl", rows_of_two)
    found = CliRunner().invoke(app, ["analyze", str(path)])
    assert "which score is the judge's?" in str(found.exception) and "x, y" in str(found.exception)


def test_options_of_other_tools_beside_a_table_of_ones_own() -> None:
    found = CliRunner().invoke(app, ["analyze", str(arena.HELD / "responses"), "--judge", "x"])
    assert found.exit_code and "--judge x" in str(found.exception) and "rename yours" in str(found.exception)
