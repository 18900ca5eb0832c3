"""User files: what is refused, with one clear line that names file, row, field and mend."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from user_files import Row, refuse, rows, write

from cje_core.data import DataError, from_arrays
from cje_core.io import from_frame
from cje_core.io.files import read


@pytest.mark.parametrize("name", ["nowhere", "nowhere.jsonl", "nowhere.csv", "nowhere.parquet"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    refuse(lambda: read(tmp_path / name), name, "no such file", "check the path")


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    refuse(lambda: read(write(tmp_path / name, "")), name, "is empty", "at least one response")


def test_file_without_rows(tmp_path: Path) -> None:
    refuse(lambda: read(write(tmp_path / "x.jsonl", "\n\n")), "is empty")
    refuse(lambda: read(write(tmp_path / "x.csv", "policy,prompt_id,judge_score\n")), "is empty")


@pytest.mark.parametrize("name", ["x.txt", "x"])
def test_unknown_file_type(tmp_path: Path, name: str) -> None:
    refuse(lambda: read(write(tmp_path / name, "a")), name, "unknown", ".jsonl, .csv, .parquet")


@pytest.mark.parametrize(
    ("bad_line", "parts"),
    [
        ("not json", ["not JSON", "one JSON object per line"]),
        ('{"prompt_id": 1', ["not JSON", "one JSON object per line"]),
        ("[1, 2]", ["[1, 2]", "one JSON object per line"]),
        ("7", ["7", "one JSON object per line"]),
        ("null", ["one JSON object per line"]),
        ("[" * 100_000, ["not JSON"]),
    ],
)
def test_not_json(data_dir: Path, bad_line: str, parts: list[str]) -> None:
    path = data_dir / "other_responses.jsonl"
    write(path, json.dumps(rows()[0]) + "\n\n" + bad_line + "\n")
    refuse(lambda: read(data_dir), f"{path}, row 3", *parts)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"judge_score": float("inf")}, ["judge_score is inf", "finite"]),
        ({"judge_score": 10**400}, ["judge_score", "finite"]),
        ({"judge_score": "0.8"}, ["judge_score is '0.8'", "a number is expected, without quotes"]),
        ({"judge_score": True}, ["judge_score is True", "a number is expected"]),
        (
            {"judge_score": 1.25},
            ["judge_score is 1.25", "range [0, 1]", "judge_range=(LOW, HIGH)"],
        ),
        ({"judge_score": -0.5}, ["judge_score is -0.5", "outside the declared range [0, 1]"]),
        ({"oracle_label": 1.25}, ["oracle_label is 1.25", "oracle_range=(LOW, HIGH)"]),
        ({"oracle_label": float("-inf")}, ["oracle_label is -inf", "finite"]),
        ({"oracle_label": "good"}, ["oracle_label is 'good'", "a number is expected"]),
        ({"prompt_id": None}, ["prompt_id is missing"]),
        ({"prompt_id": [1]}, ["prompt_id is [1]", "string or an integer"]),
        ({"prompt_id": 1.5}, ["prompt_id is 1.5", "string or an integer"]),
        ({"prompt_id": True}, ["prompt_id is True", "string or an integer"]),
        ({"draw_idx": 0.5}, ["draw_idx is 0.5", "number the draws"]),
        ({"draw_idx": -1}, ["draw_idx is -1", "number the draws"]),
        ({"oracle_label": 0.5, "label_prob": 0.0}, ["label_prob is 0", "(0, 1]"]),
        ({"label_prob": 1.5}, ["label_prob is 1.5", "(0, 1]"]),
        ({"probe": "perhaps"}, ["probe is 'perhaps'", "true or false"]),
        ({"policy": "another"}, ["policy is 'another'", "the file name says 'other'"]),
    ],
)
def test_bad_field(data_dir: Path, change: Row, parts: list[str]) -> None:
    records = rows(n=40)  # one slip among 40 is a slip, not a scale
    records[2] |= change
    path = write(data_dir / "other_responses.jsonl", records)
    refuse(lambda: read(data_dir), f"{path}, row 3", *parts)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "frame"])
def test_a_response_without_a_grade_is_left_out_and_counted(tmp_path: Path, kind: str) -> None:
    """With its label, which says what the ungraded are worth; null, NaN, and a field that the row has not."""
    table = [r | {"policy": "p"} for r in rows(labels=12)]
    table[5]["judge_score"] = float("nan")
    table[7]["judge_score"] = None
    del table[8]["judge_score"]
    frame = pd.DataFrame(table).drop(columns="response")
    path = tmp_path / f"x.{kind}"
    if kind == "jsonl":
        write(path, table)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    data, left_out = read(frame if kind == "frame" else path)
    assert int(data.evaluated.sum()) == 9 and set(data.prompt.values) == {f"q{i}" for i in range(12)} - {
        "q5",
        "q7",
        "q8",
    }
    assert left_out["reason"].tolist() == ["ungraded: judge_score gave no number"] * 3
    assert left_out["oracle_label"].tolist() == [0.7] * 3
    first = 2 if kind == "csv" else 1
    assert left_out["row"].tolist() == [first + 5, first + 7, first + 8]


def test_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "model;prompt_id\na;b\n")
    refuse(lambda: read(path), "no column 'policy'", "model;prompt_id")
    refuse(lambda: read(write(tmp_path / "y.csv", "policy,prompt_id\na,b\n")), "no row has judge_score")
    refuse(lambda: read(pd.DataFrame({"policy": ["a"]})), "DataFrame: no column 'prompt_id'")
    refuse(lambda: read(write(tmp_path / "x.jsonl", rows())), "row 1: policy is missing")


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        ("abc", ["judge_score is 'abc'", "number"]),
        ("inf", ["judge_score is inf"]),
        ("7", ["outside the declared range"]),
    ],
)
def test_bad_csv_cell(tmp_path: Path, cell: str, parts: list[str]) -> None:
    path = write(tmp_path / "x.csv", f"policy,prompt_id,judge_score\np,a,0.5\np,b,{cell}\np,c,1e-1\n")
    refuse(lambda: read(path), f"{path}, row 3", *parts)


def test_ragged_csv(tmp_path: Path) -> None:
    head = "policy,prompt_id,judge_score\n"
    refuse(lambda: read(write(tmp_path / "x.csv", head + "p,a,0.5\np,b,0.5,9\n")), "row 3", "more cells")
    refuse(lambda: read(write(tmp_path / "y.csv", head + "p,a,0.5,9\np,b,0.5,9\n")), "row 2", "more cells")


def test_not_parquet(tmp_path: Path) -> None:
    refuse(
        lambda: read(write(tmp_path / "x.parquet", "hello there, no Parquet here")),
        "x.parquet",
        "not Parquet",
    )


def test_duplicate_response(data_dir: Path) -> None:
    path = write(data_dir / "other_responses.jsonl", [*rows(), rows()[4]])
    refuse(
        lambda: read(data_dir),
        f"{path}, row 13: policy 'other', prompt_id 'q4', draw_idx 0 is already in {path}, row 5",
        "draw_idx",
    )


def test_policy_without_any_row(data_dir: Path) -> None:
    write(data_dir / "silent_responses.jsonl", "")
    refuse(lambda: read(data_dir), "silent_responses.jsonl", "policy 'silent' has no rows", "remove it")


def test_probes_of_an_unknown_policy(data_dir: Path) -> None:
    path = write(data_dir.parent / "p" / "stranger_probe.jsonl", rows(labels=3)[:3])
    refuse(lambda: read(data_dir, probes=path.parent), f"{path}, row 1", "'stranger'", "without any row")


def test_unknown_calibration_policy(data_dir: Path) -> None:
    refuse(lambda: read(data_dir, calibration_policy="gold"), "calibration_policy='gold'", "base, other")


def test_everything_on_another_scale(data_dir: Path) -> None:
    for name in ("base", "other"):
        records = [r | {"judge_score": 100 * r["judge_score"]} for r in rows(labels=6)]
        write(data_dir / f"{name}_responses.jsonl", records)
    refuse(
        lambda: read(data_dir),
        "judge_score is 12.5",
        "20 of 24",
        "declare the scale with judge_range=(LOW, HIGH)",
    )


def test_mixed_scales(data_dir: Path) -> None:
    """0..1 in one file, 0..100 in the other: refused whatever is declared (pooled in silence by a peer)."""
    records = [r | {"judge_score": 100 * r["judge_score"]} for r in rows() if r["judge_score"] > 0]
    path = write(data_dir / "other_responses.jsonl", records)
    refuse(lambda: read(data_dir), f"{path}, row 1", "judge_score is 12.5", "mixed scales", "one scale")
    wide = {"judge_range": (0.0, 100.0)}
    base = data_dir / "base_responses.jsonl"
    refuse(lambda: read(data_dir, **wide), f"{base}, row 1", "mixed scales", "'base'", "one scale")  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [(1.0, 0.0), (0.0, 0.0), (0.0, float("inf"))])
def test_improper_scale(data_dir: Path, scale: tuple[float, float]) -> None:
    refuse(lambda: read(data_dir, judge_range=scale), "judge_range=(", "LOW below HIGH")


@pytest.mark.parametrize("name", ["other_responses.jsonl", "x.csv"])
def test_not_utf8(data_dir: Path, name: str) -> None:
    good = json.dumps(rows()[0]) if name.endswith("jsonl") else "policy,prompt_id,judge_score,response"
    path = write(data_dir / name, good.encode() + "\n{'é'}, caf\xe9".encode("latin-1"))
    source = data_dir if name.endswith("jsonl") else path
    refuse(lambda: read(source), f"{path}, row 2", "not UTF-8", "save the file as UTF-8")


def test_utf16_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", json.dumps(rows()[0]).encode("utf-16"))
    refuse(lambda: read(path), f"{path}, row 1", "not UTF-8")


def test_directory_without_response_files(tmp_path: Path) -> None:
    refuse(lambda: read(tmp_path), str(tmp_path), "{policy}_responses.jsonl", "it is empty")
    write(tmp_path / "notes.txt", "hello")
    refuse(lambda: read(tmp_path), "it holds notes.txt", "give the directory that has them")


def test_two_clusters_for_one_prompt(tmp_path: Path) -> None:
    records = [r | {"policy": p, "cluster": c} for p, c in (("a", "x"), ("b", "y")) for r in rows()]
    path = write(tmp_path / "x.jsonl", records)
    refuse(lambda: read(path), f"{path}, row 13", "cluster is 'y'", "one cluster")


def test_prompt_without_cluster(tmp_path: Path) -> None:
    records = [r | {"policy": "a"} | ({"cluster": 1} if i else {}) for i, r in enumerate(rows())]
    path = write(tmp_path / "x.jsonl", records)
    refuse(lambda: read(path), f"{path}, row 1", "cluster is missing", "each needs one")


def test_covariate_missing_or_no_number(data_dir: Path) -> None:
    refuse(
        lambda: read(data_dir, covariates=["age"]), "row 1", "age is missing", "leave covariates='age' out"
    )
    write(data_dir / "other_responses.jsonl", [r | {"age": "old"} for r in rows()])
    refuse(lambda: read(data_dir, covariates=["age"]), "age is 'old'", "a number is expected")


def test_response_length_needs_the_response(tmp_path: Path) -> None:
    table = pd.DataFrame({"policy": "p", "prompt_id": [0], "judge_score": [0.5]})
    refuse(lambda: read(table, covariates=["response_length"]), "response is missing", "response_length")


@pytest.mark.parametrize(
    ("value", "mend"),
    [
        (True, "write 1 or 0"),
        ("False", "write 1 or 0"),
        ("NA", "leave the cell empty"),
        ("", "leave the cell empty"),
        ("0.5", "without quotes"),
    ],
)
def test_a_label_that_is_no_number_is_told_what_to_write(tmp_path: Path, value: object, mend: str) -> None:
    path = write(tmp_path / "d" / "p.jsonl", [rows()[0] | {"oracle_label": value}])
    refuse(lambda: read(path.parent), f"{path}, row 1", "oracle_label", mend)


def test_words_in_a_csv_label_are_told_what_to_write(tmp_path: Path) -> None:
    for word, mend in (("True", "write 1 or 0"), ("NA", "leave the cell empty"), ("good", "without quotes")):
        path = write(tmp_path / "x.csv", f"policy,prompt_id,judge_score,oracle_label\np,1,0.5,{word}\n")
        refuse(lambda path=path: read(path), f"{path}, row 2", "oracle_label", mend)  # type: ignore[misc]


def test_calibration_policy_without_labels(data_dir: Path) -> None:
    refuse(
        lambda: read(data_dir, calibration_policy="other"),
        "calibration_policy='other'",
        "no labelled response to teach with; labels are under base",
    )
    assert read(data_dir, calibration_policy=["base", "other"])[0].attrs["calibration_policy"] == [
        "base",
        "other",
    ]


def test_a_label_without_its_probability_is_named() -> None:
    table = pd.DataFrame(
        {
            "policy": "a",
            "prompt_id": ["p", "q"],
            "judge_score": 0.5,
            "oracle_label": 0.5,
            "label_prob": [0.5, np.nan],
        }
    )
    refuse(
        lambda: from_frame(table), "policy 'a', prompt 'q' is nan", "for every labelled response, or for none"
    )


# --- names on one line, numbers that can be squared ---


@pytest.mark.parametrize("field", ["policy", "prompt_id", "cluster", "stratum"])
@pytest.mark.parametrize("broken", ["a\nb", "a\tb", "\x1b[31ma", "a\u2028b", "a\ud800"])
def test_a_control_character_in_a_name(tmp_path: Path, field: str, broken: str) -> None:
    table = [{**row, "policy": "p", "cluster": "c", "stratum": "s"} for row in rows()]
    table[2][field] = broken
    path = write(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in table))
    found = f"row 3: {field} is {broken!r}; a line break or other control character"
    refuse(lambda: read(path), f"{path}, {found}", "write it without")
    refuse(lambda: from_frame(pd.DataFrame(table, dtype=object)), f"the table, {found}")


@pytest.mark.parametrize("name", ["日本語 😀", "a b", "x\u00a0y", "naïve", "👩‍👧"])
def test_any_other_character_may_stand_in_a_name(tmp_path: Path, name: str) -> None:
    data, _ = read(write(tmp_path / "x.jsonl", [row | {"policy": name} for row in rows()]))
    assert data.policy.values.tolist() == [name]


def test_names_of_arrays_stand_on_one_line() -> None:
    with pytest.raises(DataError, match=r"policy is 'a\\nb'; a line break"):
        from_arrays([[0.5]], policies=["a\nb"])
    with pytest.raises(DataError, match=r"prompt is 'x\\x01y'; a line break"):
        from_arrays([[0.5]], policies=["a"], prompts=["x\x01y"])


@pytest.mark.parametrize("value", [1e300, -1e101, 10**200])
def test_a_number_whose_square_overflows(tmp_path: Path, value: float) -> None:
    table = [{**row, "policy": "p", "size": 1.0} for row in rows()]
    table[4]["size"] = value
    path = write(tmp_path / "x.jsonl", table)
    refuse(lambda: read(path, covariates=["size"]), f"{path}, row 5: size is", "overflow", "larger unit")
    refuse(lambda: read(path, oracle_range=(0, 1e200)), "oracle_range=(0, 1e+200)", "overflow")
    with pytest.raises(DataError, match="covariate is 1e"):
        from_arrays([[0.5]], policies=["a"], covariate=[[[abs(float(value))]]])
