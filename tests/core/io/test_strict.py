"""What is nearly right: misspelt fields, doubled keys, names that differ by blanks; each an error or a line."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from user_files import refuse, rows, write

from cje_core.data import DataError
from cje_core.io.files import read
from cje_core.workflow.analyze import analyze

LABELLED = [r | {"policy": "p"} for r in rows(labels=6)]


def renamed(old: str, new: str) -> list[dict[str, object]]:
    return [{new if k == old else k: v for k, v in row.items()} for row in LABELLED]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "frame"])
@pytest.mark.parametrize(
    ("old", "new"),
    [("oracle_label", "Oracle_Label"), ("oracle_label", "oracleLabel"), ("draw_idx", " draw_idx")],
)
def test_a_field_that_is_ours_but_for_case(tmp_path: Path, kind: str, old: str, new: str) -> None:
    table = pd.DataFrame(renamed(old, new))
    path: Path | pd.DataFrame = tmp_path / f"x.{kind}"
    if kind == "jsonl":
        write(tmp_path / "x.jsonl", renamed(old, new))
    elif kind == "csv":
        table.to_csv(tmp_path / "x.csv", index=False)
    elif kind == "parquet":
        table.to_parquet(tmp_path / "x.parquet")
    else:
        path = table
    refuse(lambda: read(path), f"unknown field {new!r}: did you mean {old}?")


def test_one_misspelt_row_among_many(tmp_path: Path) -> None:
    """Also where the first rows, which a quick look sees, are right: a label is not lost."""
    many = [{"policy": "p", "prompt_id": k, "judge_score": 0.5, "oracle_label": 0.5} for k in range(3000)]
    many[2500]["Oracle_Label"] = many[2500].pop("oracle_label")
    text = "".join(json.dumps(row) + "\n" for row in many)
    for blanks in ("", " ", "  ", "\t"):
        path = write(tmp_path / "x.jsonl", text.replace('"Oracle_Label"', f'"Oracle_Label"{blanks}'))
        refuse(lambda path=path: read(path), "unknown field 'Oracle_Label'")  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_field_that_is_close_is_said(tmp_path: Path, kind: str) -> None:
    table = pd.DataFrame(renamed("oracle_label", "oracle_lable"))
    path = tmp_path / f"x.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    else:
        write(path, renamed("oracle_label", "oracle_lable"))
    refuse(
        lambda: read(path),
        "row 1" if kind == "jsonl" else "row 2",
        "'oracle_lable'",
        "did you mean oracle_label?",
    )


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "frame"])
def test_a_label_under_a_misspelt_name_in_one_row(tmp_path: Path, kind: str) -> None:
    """Beside the right name in the others: the row that would lose its label is named."""
    table = [r | {"policy": "p"} for r in rows(labels=8)]
    table[6]["oracle_lable"] = table[6].pop("oracle_label")
    frame, path = pd.DataFrame(table).drop(columns="response"), tmp_path / f"x.{kind}"
    if kind == "jsonl":
        write(path, table)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    row = 8 if kind == "csv" else 7
    refuse(
        lambda: read(frame if kind == "frame" else path),
        f"row {row}: unknown field 'oracle_lable'",
        "oracle_label",
    )
    both = [r | {"policy": "p", "oracle_labels": 1} for r in rows(labels=12)]  # no row lacks the right name
    assert int(read(write(tmp_path / "y.jsonl", both))[0].labelled.sum()) == 12


def test_the_judge_misspelt_in_every_row_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [r | {"policy": "p"} for r in renamed("judge_score", "judge_scor")])
    refuse(lambda: read(path), "row 1: unknown field 'judge_scor': did you mean judge_score?")


def test_keys_and_columns_that_occur_twice(tmp_path: Path) -> None:
    text = '{"policy": "p", "prompt_id": 1, "judge_score": 0.1, "judge_score": 0.9}\n'
    refuse(lambda: read(write(tmp_path / "x.jsonl", text)), "row 1", "field 'judge_score' occurs twice")
    text = '{"policy": "p", "prompt_id": 1, "metadata": {"judge_score": 0.1, "judge_score": 0.9}}\n'
    refuse(lambda: read(write(tmp_path / "y.jsonl", text)), "row 1", "field 'judge_score' occurs twice")
    text = "policy,prompt_id,judge_score,judge_score\np,a,0.1,0.9\n"
    refuse(lambda: read(write(tmp_path / "x.csv", text)), "column 'judge_score' occurs 2 times")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "policy,prompt_id,judge_score,oracle_label\np,a,0.5,1\np,b,0.5\n",
            ["row 3", "fewer cells", "(3, not 4)"],
        ),
        ("policy,prompt_id,judge_score\np,a,0.5,1\n", ["row 2", "more cells", "(4, not 3)"]),
        ('policy,prompt_id,judge_score\np,"a,0.5\np,b,0.5\n', ["row 2", "not CSV"]),
    ],
)
def test_ragged_rows(tmp_path: Path, text: str, parts: list[str]) -> None:
    refuse(lambda: read(write(tmp_path / "x.csv", text)), *parts)


def test_a_directory_reads_every_format_and_lists_what_it_does_not(tmp_path: Path) -> None:
    """In any case, and gzipped; the data are those of one table."""
    table = pd.DataFrame([r | {"policy": p} for p in "abcdefg" for r in rows(labels=3)])
    inside = tmp_path / "d"
    inside.mkdir()
    of = {p: table[table.policy == p].drop(columns="policy") for p in "abcdefg"}
    lines = {p: "".join(json.dumps(r) + "\n" for r in rows(labels=3)) for p in of}
    (inside / "a_responses.jsonl").write_text(lines["a"])
    (inside / "b_responses.JSONL").write_text(lines["b"])
    of["c"].to_csv(inside / "c_responses.csv", index=False)
    of["d"].to_parquet(inside / "d_responses.Parquet")
    (inside / "e_responses.jsonl.gz").write_bytes(gzip.compress(lines["e"].encode()))
    (inside / "f_responses.json").write_text(json.dumps(rows(labels=3), indent=1))
    (inside / "g_responses.csv.GZ").write_bytes(gzip.compress(of["g"].to_csv(index=False).encode()))
    (inside / "notes.txt").write_text("read me")
    (inside / "other.jsonl").write_text(lines["a"])
    (inside / "deeper").mkdir()
    data, left_out = read(inside)
    expected, _ = read(table)
    xr.testing.assert_identical(data, expected)
    assert {Path(f).name: r.split(" ")[0] for f, r in zip(left_out["file"], left_out["reason"], strict=True)} == {
        "notes.txt": "neither", "other.jsonl": "file", "deeper": "a"
    }  # fmt: skip


def test_two_files_of_one_policy(tmp_path: Path) -> None:
    write(tmp_path / "d" / "a.jsonl", rows())
    pd.DataFrame(rows()).to_csv(tmp_path / "d" / "a.csv", index=False)
    refuse(lambda: read(tmp_path / "d"), "a.jsonl", "a.csv", "same policy by its name")


def test_names_that_differ_by_case_or_blanks(tmp_path: Path) -> None:
    records = [r | {"policy": p} for p in ("Base", "base") for r in rows()] + [
        LABELLED[0] | {"prompt_id": "q1 "}
    ]
    said = read(write(tmp_path / "x.jsonl", records))[1]["reason"].tolist()
    assert len(said) == 2 and all(reason.startswith("caution: ") for reason in said)
    assert "policies 'Base' and 'base'" in said[0] and "two prompt_ids" in said[1]
    assert "q1" not in said[1]  # an id may be secret, and what is said here goes into every output


def test_logged_policies_that_match_nothing(tmp_path: Path, data_dir: Path) -> None:
    row = {
        "prompt_id": "q1",
        "judge_score": 0.5,
        "base_policy_logprob": -3.0,
        "target_policy_logprobs": {"Others": -4.0},
    }
    path = write(tmp_path / "logged.jsonl", [row])
    refuse(
        lambda: read(data_dir, logged=path), "logged.jsonl", "of no policy of DATA", "Others", "base, other"
    )


def test_logged_rows_with_a_field_that_is_ours_but_for_case(tmp_path: Path, data_dir: Path) -> None:
    row = {
        "prompt_id": "q1",
        "judge_score": 0.5,
        "base_policy_logprob": -3.0,
        "target_policy_logprobs": {"other": -4.0},
    }
    path = write(tmp_path / "logged.jsonl", [row | {"N_tokens": 3}])
    refuse(lambda: read(data_dir, logged=path), "unknown field 'N_tokens': did you mean n_tokens?")
    said = read(data_dir, logged=write(tmp_path / "logged.jsonl", [row | {"n_token": 3}]))[1]
    assert "is it n_tokens misspelt?" in said["reason"].iloc[0] and int(said["row"].isna().sum()) == 1


def test_a_large_file_is_held_to_names_too(tmp_path: Path) -> None:
    pd.DataFrame(renamed("oracle_label", "Oracle_Label")).to_parquet(tmp_path / "x.parquet")
    refuse(lambda: analyze(tmp_path / "x.parquet", large=True), "unknown field 'Oracle_Label'")


def test_a_counter_over_all_rows_is_numbered_anew() -> None:
    """The square of the rows in cells otherwise; scores, labels and the order of a prompt's draws are kept."""
    n = 1500
    rng = np.random.default_rng(3)
    table = pd.DataFrame({
        "policy": np.repeat(["a", "b"], n), "prompt_id": np.tile(np.repeat(np.arange(n // 3), 3), 2),
        "judge_score": rng.random(2 * n), "draw_idx": rng.permutation(2 * n),
    })  # fmt: skip
    data, left_out = read(table)
    assert dict(data.sizes) == {"policy": 2, "prompt": n // 3, "draw": 3}
    assert len(left_out) == 1 and "numbered anew" in left_out["reason"].item()
    for (policy, prompt), group in table.sort_values("draw_idx").groupby(["policy", "prompt_id"]):
        at = data.judge.sel(policy=policy, prompt=str(prompt))
        assert at.values.tolist() == group["judge_score"].tolist()


@pytest.mark.parametrize("draw", [1e30, 2.0**60, -1.0, 0.5])
def test_draws_beyond_counting(tmp_path: Path, draw: float) -> None:
    path = write(tmp_path / "x.jsonl", [LABELLED[0] | {"draw_idx": draw}])
    refuse(lambda: read(path), "row 1", "draw_idx is", "number the draws 0, 1, 2")
    refuse(lambda: read(pd.DataFrame([LABELLED[0] | {"draw_idx": draw}])), "draw_idx is")


def test_one_line_each(tmp_path: Path, data_dir: Path) -> None:
    refuse(lambda: read(data_dir, covariates="x"), "covariates='x': a text", "['x']")
    refuse(lambda: read(data_dir, oracle_range=(0, 1e308)), "oracle_range=(0, 1e+308)", "overflow")
    for text in (
        '{"policy": "\\ud800", "prompt_id": 1, "judge_score": 0.5}\n',
        '{"policy": "p", "prompt_id": "\\udfff", "judge_score": 0.5}\n',
    ):
        refuse(lambda text=text: read(write(tmp_path / "x.jsonl", text)), "row 1", "control character")  # type: ignore[misc]
    pd.DataFrame(LABELLED * 1).to_parquet(tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    refuse(lambda: read(write(tmp_path / "y.parquet", whole[: len(whole) // 2])), "not Parquet, or damaged")
    zipped = gzip.compress(b"x" * 1000)
    refuse(lambda: read(write(tmp_path / "z.jsonl.gz", zipped[:-9])), "z.jsonl.gz", "damaged")
    with pytest.raises(DataError):
        read(write(tmp_path / "no.jsonl.gz", b"not zipped"))
