"""``cje-lab analyze``: statistical failure is data, bad input is one line."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis import Cli, Frame, named_in_plot, printed, probes, world, write

from cje_core.workflow.analyze import analyze
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.out import check_out
from studies.cli.analysis.save import save

# --- statistical failure is data ---


def few_labels(table: Frame) -> Frame:
    table.loc[3:59, "oracle_label"] = np.nan
    return table


def constant_judge(table: Frame) -> Frame:
    return table.assign(judge_score=0.5)


def equal_labels(table: Frame) -> Frame:
    table.loc[table["oracle_label"].notna(), "oracle_label"] = 0.5
    return table


def inverted_judge(table: Frame) -> Frame:
    return table.assign(judge_score=1 - table["judge_score"])


def no_labels(table: Frame) -> Frame:
    return table.assign(oracle_label=np.nan)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "status", "has_value"),
    [
        (few_labels, "too_few_labels", False),
        (constant_judge, "constant_judge", True),
        (equal_labels, "constant_labels", True),
        (inverted_judge, "inverted_judge", True),
        (no_labels, "no_labels", False),
    ],
)
def test_statistical_failure_is_named_in_table_json_and_plot(
    cli: Cli, tmp_path: Path, break_it: Callable[[Frame], Frame], status: str, has_value: bool
) -> None:
    data = write(break_it(world()), tmp_path / "data")
    code, out, err = cli(data, "--out", tmp_path / "out")
    assert code == 0 and "Traceback" not in err
    assert status in out and "Message" not in out
    result = json.loads((tmp_path / "out" / "estimates.json").read_text())["policies"]
    direct = result["base"]["estimates"]["direct"]
    assert direct["status"] == status and status in result["base"]["flags"]
    assert (direct["estimate"] is not None) == has_value
    for policy in ("base", "other"):
        assert result[policy]["estimates"]["raw_judge"]["estimate"] is not None
    assert named_in_plot(analyze(data), status)


def test_failure_of_one_policy_leaves_the_others_alone() -> None:
    """A policy whose own labels are all equal is flagged; the labels of another still teach."""
    table = world(policies=("base", "other", "third"))
    own = table["policy"] == "third"
    table.loc[own, "oracle_label"] = np.where(np.arange(own.sum()) < 3, 0.5, np.nan)
    found = to_json(analyze(table, calibration_policy="base"))["policies"]
    assert found["third"]["estimates"]["labels_only"]["status"] == "too_few_labels"
    assert found["third"]["estimates"]["direct"]["estimate"] is not None
    for policy in ("base", "other"):
        assert found[policy]["estimates"]["direct"]["estimate"] is not None


@pytest.mark.slow
def test_names_that_matplotlib_or_rich_could_misread(tmp_path: Path) -> None:
    names = ("$a^2$", "[bold]b[/bold]", "模型", "x_y%z")
    result = analyze(world(policies=names))
    save(result, tmp_path / "out")
    text = printed(result, 120)
    for name in names:
        assert name in text


# --- bad input: one line on stderr, exit code 2, nothing written ---


def bad_missing_file(data: Path) -> list[object]:
    return [data / "nowhere"]


def bad_empty_file(data: Path) -> list[object]:
    (data / "x.jsonl").write_text("")
    return [data / "x.jsonl"]


def bad_json(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text("{nope\n")
    return [data]


def bad_missing_score(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1}\n')
    return [data]


def bad_score(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": 1.5}\n')
    return [data]


def bad_label(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": 1, "oracle_label": -1}\n')
    return [data]


def bad_nan(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": NaN}\n')
    return [data]


def bad_duplicate(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": 1}\n' * 2)
    return [data]


def bad_probe(data: Path) -> list[object]:
    return [data, "--probes", data]


def bad_silent_policy(data: Path) -> list[object]:
    (data / "silent_responses.jsonl").write_text("\n")
    return [data]


def bad_mixed_scales(data: Path) -> list[object]:
    table = world().query("policy == 'other'").assign(judge_score=lambda t: 100 * t["judge_score"])
    write(table, data)
    return [data]


def bad_encoding(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_bytes(b'{"prompt_id": "caf\xe9", "judge_score": 1}\n')
    return [data]


def bad_directory(data: Path) -> list[object]:
    (data / "sub").mkdir()
    return [data / "sub"]


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (bad_missing_file, ["nowhere", "no such file", "check the path"]),
        (bad_empty_file, ["x.jsonl", "is empty", "at least one response"]),
        (bad_json, ["other_responses.jsonl, row 1", "not JSON", "one JSON object per line"]),
        (bad_missing_score, ["other_responses.jsonl, row 1", "judge_score is missing", "judge them"]),
        (bad_score, ["other_responses.jsonl, row 1", "judge_score is 1.5", "--judge-range LOW HIGH"]),
        (bad_label, ["other_responses.jsonl, row 1", "oracle_label is -1", "--oracle-range LOW HIGH"]),
        (bad_nan, ["other_responses.jsonl, row 1", "judge_score is missing or NaN", "judge them"]),
        (bad_duplicate, ["other_responses.jsonl, row 2", "prompt_id '1'", "draw_idx"]),
        (bad_probe, ["base_responses.jsonl, row 1", "oracle_label", "used to fit", "remove one"]),
        (bad_silent_policy, ["silent_responses.jsonl", "policy 'silent' has no rows", "remove it"]),
        (bad_mixed_scales, ["other_responses.jsonl, row 1", "judge_score", "mixed scales", "one scale"]),
        (bad_encoding, ["other_responses.jsonl, row 1", "not UTF-8", "save the file as UTF-8"]),
        (bad_directory, ["sub", "{policy}_responses.jsonl", "give the directory"]),
        (lambda d: [d, "--calibration-policy", "gold"], ["--calibration-policy gold", "base, other"]),
        (lambda d: [d, "--estimator", "oracle_of_delphi"], ["--estimator oracle_of_delphi", "labels_only"]),
        (lambda d: [d, "--margin", "-1"], ["--margin -1", "positive"]),
        (lambda d: [d, "--borrowed", "stolen"], ["--borrowed stolen", "balanced, one_step, plug_in"]),
        (lambda d: [d, *["--covariate", "response_length"] * 2], ["response_length is given twice"]),
        (lambda d: [d, "--covariate", "judge_score"], ["covariate judge_score", "meaning of its own"]),
        (lambda d: [d, "--judge-range", "1", "0"], ["--judge-range 1 0", "LOW below HIGH"]),
        (lambda d: [d, "--judge-range", "zero", "1"], ["--judge-range"]),
        (lambda d: [d, "--logged", d / "gone.jsonl"], ["gone.jsonl", "no such file"]),
        (lambda d: [], ["DATA"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    cli: Cli, tmp_path: Path, make: Callable[[Path], list[object]], parts: list[str]
) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(*make(data), "--out", tmp_path / "out")
    assert code == 2 and out == ""
    assert len(err.splitlines()) == 1 and err.startswith("cje-lab: "), err
    for part in parts:
        assert part in err
    assert not (tmp_path / "out").exists()


def test_out_that_is_a_file(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    (tmp_path / "taken").write_text("mine")
    for out in (tmp_path / "taken", tmp_path / "taken" / "deeper"):
        code, _, err = cli(data, "--out", out)
        assert code == 2 and "is a file" in err and len(err.splitlines()) == 1
    assert (tmp_path / "taken").read_text() == "mine"
    check_out(tmp_path / "new" / "deep")


def test_left_out_rows_are_named(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    (data / "notes.jsonl").write_text("{}\n")
    code, out, _ = cli(data)
    assert code == 0 and f"left out: {data / 'notes.jsonl'}: file not named" in " ".join(out.split())
    left_out = json.loads(cli(data, "--json")[1])["manifest"]["left_out"]
    assert [entry["file"] for entry in left_out] == [str(data / "notes.jsonl")]


def test_left_out_rows_are_named_by_file_row_and_field(tmp_path: Path) -> None:
    table = world()
    absent = probes(table, "other", 9, 0.0)
    absent.loc[absent["prompt_id"] != 4, "oracle_label"] = None
    one = probes(table, "base", 1, 0.0).assign(oracle_label=None)
    audit = write(pd.concat([absent, one]), tmp_path / "p", "{policy}_probe.jsonl")
    text = printed(analyze(table, probes=audit), 300)
    words = "a probe without oracle_label audits nothing"
    assert f"left out: {audit / 'base_probe.jsonl'}, row 1: {words} (policy base)" in text
    assert (
        f"left out: {audit / 'other_probe.jsonl'}, 8 rows (1, 2, 3, 4, 6, ...): {words} (policy other)"
        in text
    )
