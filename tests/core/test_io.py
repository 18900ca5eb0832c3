"""User files: what is read, what is refused with one clear line, what is left out with a reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cje_core.data import DataError, from_frame
from cje_core.io import read

Row = dict[str, Any]


def rows(policy_mean: float = 0.7, *, labels: int = 0, n: int = 12) -> list[Row]:
    """`n` responses, the first `labels` of them labelled; the numbers are binary fractions, so exact."""
    out: list[Row] = []
    for i in range(n):
        row = {"prompt_id": f"q{i}", "response": "word " * i, "judge_score": (i % 8) / 8, "draw_idx": 0}
        out.append(row | ({"oracle_label": policy_mean} if i < labels else {}))
    return out


def write(path: Path, records: list[Row] | str | bytes) -> Path:
    """JSONL of the records, or the text or bytes as given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(records, bytes):
        path.write_bytes(records)
    elif isinstance(records, str):
        path.write_text(records, encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two policies, six labels on base."""
    write(tmp_path / "data" / "base_responses.jsonl", rows(labels=6))
    write(tmp_path / "data" / "other_responses.jsonl", rows())
    return tmp_path / "data"


def refuse(call: Callable[[], Any], *parts: str) -> None:
    """The call raises `DataError` with one line that holds all parts."""
    with pytest.raises(DataError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} not in {message!r}"


# --- what is read ---


def test_directory(data_dir: Path) -> None:
    data, ledger = read(data_dir)
    assert data.policy.values.tolist() == ["base", "other"]
    assert dict(data.sizes) == {"policy": 2, "prompt": 12, "draw": 1}
    assert data.labelled.sum(("prompt", "draw")).values.tolist() == [6, 0]
    assert data.attrs["calibration_policy"] == ["base"]
    assert ledger.empty


def test_all_formats_agree(tmp_path: Path, data_dir: Path) -> None:
    expected, _ = read(data_dir)
    table = pd.concat(
        [pd.DataFrame(rows(labels=6)).assign(policy="base"), pd.DataFrame(rows()).assign(policy="other")]
    )
    table.to_csv(tmp_path / "one.csv", index=False)
    table.to_parquet(tmp_path / "one.parquet")
    write(
        tmp_path / "one.jsonl",
        [{str(k): v for k, v in r.items() if v == v} for r in table.to_dict("records")],
    )
    plain = tmp_path / "plain"
    for name in ("base", "other"):
        write(plain / f"{name}.jsonl", (data_dir / f"{name}_responses.jsonl").read_text())
    for source in (tmp_path / "one.csv", tmp_path / "one.parquet", tmp_path / "one.jsonl", plain, table):
        xr.testing.assert_identical(read(source)[0], expected)


def test_order_of_rows_and_columns_never_matters(data_dir: Path) -> None:
    expected, _ = read(data_dir)
    table = pd.concat(
        [pd.DataFrame(rows(labels=6)).assign(policy="base"), pd.DataFrame(rows()).assign(policy="other")]
    )
    rng = np.random.default_rng(1)
    for _ in range(5):
        shuffled = table.iloc[rng.permutation(len(table))][list(rng.permutation(table.columns))]
        xr.testing.assert_identical(read(shuffled)[0], expected)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "frame"])
@pytest.mark.parametrize("ids", [[0, 1, 2], ["", "0", "a"], ["007", "7", "NA"], [0, "", "x"]])
def test_any_string_or_integer_is_a_prompt_id(tmp_path: Path, kind: str, ids: list[object]) -> None:
    """Falsy ids are ids (a peer replaced 0 and "" by a hash); "007" is not 7, "NA" is not missing."""
    table = pd.DataFrame(
        {"policy": "p", "prompt_id": pd.Series(ids, dtype=object), "judge_score": [0.25, 0.5, 0.75]}
    )
    source: Path | pd.DataFrame = tmp_path / f"x.{kind}"
    if kind == "jsonl":
        write(tmp_path / "x.jsonl", [{str(k): v for k, v in r.items()} for r in table.to_dict("records")])
    elif kind == "csv":
        table.to_csv(tmp_path / "x.csv", index=False)
    elif kind == "parquet":
        one_type = (
            table.infer_objects()
            if all(isinstance(i, int) for i in ids)
            else table.astype({"prompt_id": str})
        )
        one_type.to_parquet(tmp_path / "x.parquet")
    else:
        source = table
    data, _ = read(source)
    assert data.prompt.values.tolist() == sorted(map(str, ids))
    scores = data.judge.sel(prompt=[str(i) for i in ids]).values.ravel()
    assert scores.tolist() == [0.25, 0.5, 0.75]


def test_ids_of_a_frame_that_pandas_made_floats() -> None:
    """A merge turns integer ids into floats; 0.0 is still prompt 0, and NaN is missing."""
    table = pd.DataFrame({"policy": "p", "prompt_id": [0.0, 7.0], "judge_score": [0.25, 0.5]})
    assert read(table)[0].prompt.values.tolist() == ["0", "7"]
    refuse(lambda: read(table.assign(prompt_id=[np.nan, 7.0])), "DataFrame, row 1", "prompt_id is missing")


def test_a_missing_label_is_no_label(tmp_path: Path) -> None:
    text = '{"prompt_id": 1, "judge_score": 1, "oracle_label": null}\n\n{"prompt_id": 2, "judge_score": 0}\n'
    path = write(
        tmp_path / "d" / "p.jsonl", text + '{"prompt_id": 3, "judge_score": 0.5, "oracle_label": NaN}'
    )
    data, _ = read(path.parent)
    assert not data.labelled.any()
    assert data.attrs["calibration_policy"] == []


def test_byte_order_mark_line_separators_and_metadata(tmp_path: Path) -> None:
    """U+2028 inside a string ends no line; a field may stand in ``metadata``."""
    text = '\ufeff{"response": "a\u2028b", "judge_score": 0.5, '
    text += '"metadata": {"prompt_id": 0, "oracle_label": 0.25}}\n'
    data, _ = read(write(tmp_path / "d" / "p.jsonl", text).parent)
    assert data.prompt.values.tolist() == ["0"]
    assert data.oracle.item() == 0.25


def test_response_length_counts_words(data_dir: Path) -> None:
    data, _ = read(data_dir, covariates=["response_length"])
    length = data.covariate.sel(policy="base", feature="response_length", draw=0)
    assert length.sel(prompt=[f"q{i}" for i in range(12)]).values.tolist() == list(range(12))


def test_given_response_length_wins_over_counting(tmp_path: Path) -> None:
    records = [r | {"response_length": 3.5, "policy": "p"} for r in rows()]
    data, _ = read(write(tmp_path / "x.jsonl", records), covariates=["response_length"])
    assert (data.covariate == 3.5).all()


def test_declared_scales(tmp_path: Path) -> None:
    records = [r | {"judge_score": 100 * r["judge_score"]} for r in rows(4.0, labels=6)]
    path = write(tmp_path / "d" / "p.jsonl", records).parent
    data, _ = read(path, judge_range=(0, 100), oracle_range=(1, 5))
    assert data.attrs["judge_range"] == [0.0, 100.0]
    assert data.judge.max() == 87.5  # never rescaled
    assert data.oracle.max() == 4.0


def test_clusters_are_shared_by_the_rows_of_a_prompt(tmp_path: Path) -> None:
    base = [r | {"policy": "base", "cluster": i // 3} for i, r in enumerate(rows(labels=6))]
    other = [r | {"policy": "other"} for r in rows()]
    data, _ = read(write(tmp_path / "x.jsonl", base + other))
    assert data.cluster.sel(prompt=["q0", "q2", "q3", "q11"]).values.tolist() == ["0", "0", "1", "3"]


# --- probes ---


def test_probe_of_an_evaluated_response_is_joined(data_dir: Path) -> None:
    probe = [r | {"oracle_label": 0.125} for r in rows()[:5]]
    path = write(data_dir.parent / "probes" / "other_probe.jsonl", probe).parent
    data, ledger = read(data_dir, probes=path)
    assert data.sizes["prompt"] == 12
    assert data.probe.sum(("prompt", "draw")).values.tolist() == [0, 5]
    assert data.evaluated.sum() == 24
    assert (data.oracle.sel(policy="other").values[data.probe.sel(policy="other").values] == 0.125).all()
    assert data.labelled.sel(policy="other").sum() == 0
    assert data.attrs["calibration_policy"] == ["base"]
    assert ledger.empty


def test_probe_of_another_response_is_not_evaluated(data_dir: Path) -> None:
    fresh = [
        {"policy": "other", "prompt_id": "new", "judge_score": 0.5, "oracle_label": 0.25},
        {"policy": "other", "prompt_id": "q0", "draw_idx": 1, "judge_score": 1.0, "oracle_label": 0.75},
    ]
    data, _ = read(data_dir, probes=write(data_dir.parent / "probes.jsonl", fresh))
    assert data.evaluated.sum() == 24
    for prompt, draw in (("new", 0), ("q0", 1)):
        row = data.sel(policy="other", prompt=prompt, draw=draw)
        assert row.probe.item() and not row.evaluated.item() and not row.labelled.item()


def test_marked_rows_of_data_are_probes(tmp_path: Path) -> None:
    table = pd.DataFrame(rows(labels=6)).assign(policy="p", probe=[True, False] * 6)
    table.to_csv(tmp_path / "x.csv", index=False)
    data, ledger = read(tmp_path / "x.csv")
    assert int(data.probe.sum()) == 3 and int(data.labelled.sum()) == 3
    assert ledger["row"].tolist() == [8, 10, 12]  # marked, without label: in the mean, no audit
    assert data.evaluated.all()


def test_probe_without_label_goes_to_the_ledger(data_dir: Path) -> None:
    path = write(data_dir.parent / "p" / "other.jsonl", rows(labels=2)[:4])
    data, ledger = read(data_dir, probes=path.parent)
    assert int(data.probe.sum()) == 2
    assert ledger[["row", "policy", "prompt_id"]].values.tolist() == [[3, "other", "q2"], [4, "other", "q3"]]
    assert ledger["file"].unique().tolist() == [str(path)]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"judge_score": 0.875}, ["judge_score is 0.875", "scores the same response differently"]),
        ({"response": "some other text"}, ["response is", "its own draw_idx"]),
        ({"prompt_id": "new", "judge_score": None}, ["judge_score is missing", "must bring the score"]),
        ({"oracle_label": 7.0}, ["oracle_label is 7", "outside the declared range [0, 1]", "--oracle-range"]),
    ],
)
def test_probe_that_contradicts_data(data_dir: Path, change: Row, parts: list[str]) -> None:
    path = write(data_dir.parent / "p" / "other_probe.jsonl", [rows()[2] | {"oracle_label": 0.5} | change])
    refuse(lambda: read(data_dir, probes=path.parent), f"{path}, row 1", *parts)


def test_probe_rows_used_to_fit(data_dir: Path) -> None:
    path = write(data_dir.parent / "p" / "base_probe.jsonl", rows(labels=3)[:3])
    fitted = f"{data_dir / 'base_responses.jsonl'}, row 1"
    refuse(
        lambda: read(data_dir, probes=path.parent), f"{path}, row 1", "oracle_label", fitted, "used to fit"
    )


# --- logged responses ---


def logged_rows() -> list[Row]:
    return [
        {
            "metadata": {"prompt_id": f"q{i}"},
            "judge_score": 0.5,
            "base_policy_logprob": -10.0 - i,
            "target_policy_logprobs": {"other": -11.0 - i},
        }
        for i in range(12)
    ]


def test_logged_log_likelihoods_are_aligned(data_dir: Path) -> None:
    records = logged_rows()
    path = write(
        data_dir.parent / "logged.jsonl", [records[i] for i in np.random.default_rng(0).permutation(12)]
    )
    data, ledger = read(data_dir, logged=path)
    order = [f"q{i}" for i in range(12)]
    assert data.logp_logger.sel(prompt=order).values.tolist() == [-10.0 - i for i in range(12)]
    assert data.logp_target.sel(prompt=order, policy="other").values.tolist() == [
        -11.0 - i for i in range(12)
    ]
    assert np.isnan(data.logp_target.sel(policy="base")).all()
    assert ledger.empty


def test_missing_log_likelihoods_go_to_the_ledger(data_dir: Path) -> None:
    records = logged_rows()
    records[0]["base_policy_logprob"] = None
    records[1]["target_policy_logprobs"]["other"] = None
    records[2]["metadata"] = {"prompt_id": "elsewhere"}
    records[3]["target_policy_logprobs"]["stranger"] = -3.0
    data, ledger = read(data_dir, logged=write(data_dir.parent / "logged.jsonl", records))
    assert int(np.isfinite(data.logp_logger).sum()) == 10
    assert int(np.isfinite(data.logp_target).sum()) == 9
    first = ledger[ledger["policy"] != "stranger"]
    assert first[["row", "policy", "prompt_id"]].values.tolist() == [
        [1, "", "q0"],
        [2, "other", "q1"],
        [3, "", "elsewhere"],
    ]
    assert (ledger["policy"] == "stranger").sum() == 12
    reason = first["reason"].tolist()[2]
    assert "without a response in DATA: judge fresh responses" in reason


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"base_policy_logprob": float("nan")}, ["base_policy_logprob is missing or NaN", "null"]),
        ({"base_policy_logprob": float("-inf")}, ["base_policy_logprob is -inf", "finite"]),
        ({"base_policy_logprob": 3.0}, ["base_policy_logprob is 3", "at most 0"]),
        ({"target_policy_logprobs": {"other": float("nan")}}, ["target_policy_logprobs['other']", "null"]),
        ({"target_policy_logprobs": {"other": "-3"}}, ["target_policy_logprobs['other'] is '-3'", "number"]),
        ({"target_policy_logprobs": [-3.0]}, ["target_policy_logprobs is [-3.0]", "object"]),
        ({"judge_score": None}, ["judge_score is missing"]),
        ({"metadata": {"prompt_id": "q0"}}, ["prompt_id is 'q0'", "one logged response per prompt"]),
        ({"metadata": {}}, ["prompt_id is missing"]),
        ({"n_tokens": 0}, ["n_tokens is 0", "at least one token"]),
    ],
)
def test_bad_logged_rows(data_dir: Path, change: Row, parts: list[str]) -> None:
    records = logged_rows()
    records[4] |= change
    path = write(data_dir.parent / "logged.jsonl", records)
    refuse(lambda: read(data_dir, logged=path), f"{path}, row 5", *parts)


def test_logged_covariates_are_aligned(data_dir: Path) -> None:
    records = [row | {"response": "a " * i, "age": 2.0 * i} for i, row in enumerate(logged_rows())]
    path = write(data_dir.parent / "logged.jsonl", records[::-1])
    for name in ("base", "other"):
        write(data_dir / f"{name}_responses.jsonl", [r | {"age": 1} for r in rows(labels=6)])
    data, _ = read(data_dir, logged=path, covariates=["response_length", "age"])
    order = [f"q{i}" for i in range(12)]
    assert data.logged_covariate.dims == ("prompt", "feature")
    assert data.logged_covariate.sel(prompt=order).values.tolist() == [[i, 2 * i] for i in range(12)]
    assert "logged_covariate" not in read(data_dir, logged=path)[0]
    # a fresh response of the same words has the same length: one formula for both
    assert data.covariate.sel(policy="base", prompt="q5", draw=0, feature="response_length") == 5


def test_logged_rows_without_covariates(data_dir: Path) -> None:
    path = write(data_dir.parent / "logged.jsonl", logged_rows())
    data, _ = read(data_dir, logged=path, covariates=["response_length"])
    assert "logged_covariate" not in data and "covariate" in data


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"response": None}, ["response is missing", "response_length"]),
        ({"response_length": "long"}, ["response_length is 'long'", "a number is expected"]),
        ({"response_length": 3}, ["response_length is missing", "in every logged row or in none"]),
    ],
)
def test_bad_logged_covariates(data_dir: Path, change: Row, parts: list[str]) -> None:
    records = [row | {"response": "a b"} for row in logged_rows()]
    records[4] |= change
    path = write(data_dir.parent / "logged.jsonl", records)
    row = "row 1" if change.get("response_length") == 3 else "row 5"
    refuse(lambda: read(data_dir, logged=path, covariates=["response_length"]), f"{path}, {row}", *parts)


# --- what is refused: file, row, field, mend ---


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
        ({"judge_score": None}, ["judge_score is missing", "judge the response"]),
        ({"judge_score": float("nan")}, ["judge_score is missing or NaN"]),
        ({"judge_score": float("inf")}, ["judge_score is inf", "finite"]),
        ({"judge_score": 10**400}, ["judge_score", "finite"]),
        ({"judge_score": "0.8"}, ["judge_score is '0.8'", "a number is expected, without quotes"]),
        ({"judge_score": True}, ["judge_score is True", "a number is expected"]),
        (
            {"judge_score": 1.25},
            ["judge_score is 1.25", "range [0, 1]", "--judge-range LOW HIGH"],
        ),
        ({"judge_score": -0.5}, ["judge_score is -0.5", "outside the declared range [0, 1]"]),
        ({"oracle_label": 1.25}, ["oracle_label is 1.25", "--oracle-range LOW HIGH"]),
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


def test_field_absent_from_a_row(data_dir: Path) -> None:
    records = rows()
    del records[5]["judge_score"]
    path = write(data_dir / "other_responses.jsonl", records)
    refuse(lambda: read(data_dir), f"{path}, row 6: judge_score is missing")


def test_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "model;prompt_id\na;b\n")
    refuse(lambda: read(path), "no column 'policy'", "model;prompt_id")
    refuse(
        lambda: read(write(tmp_path / "y.csv", "policy,prompt_id\na,b\n")), "row 2: judge_score is missing"
    )
    refuse(lambda: read(pd.DataFrame({"policy": ["a"]})), "DataFrame: no column 'prompt_id'")
    refuse(lambda: read(write(tmp_path / "x.jsonl", rows())), "row 1: policy is missing")


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        ("abc", ["judge_score is 'abc'", "number"]),
        ("", ["judge_score is missing"]),
        ("nan", ["judge_score is missing or NaN"]),
        ("inf", ["judge_score is inf"]),
        ("7", ["outside the declared range"]),
    ],
)
def test_bad_csv_cell(tmp_path: Path, cell: str, parts: list[str]) -> None:
    path = write(tmp_path / "x.csv", f"policy,prompt_id,judge_score\np,a,0.5\np,b,{cell}\np,c,1e-1\n")
    refuse(lambda: read(path), f"{path}, row 3", *parts)


def test_ragged_csv(tmp_path: Path) -> None:
    head = "policy,prompt_id,judge_score\n"
    refuse(lambda: read(write(tmp_path / "x.csv", head + "p,a,0.5\np,b,0.5,9\n")), "not CSV", "line 3")
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
    refuse(lambda: read(data_dir, calibration_policy="gold"), "--calibration-policy gold", "base, other")


def test_everything_on_another_scale(data_dir: Path) -> None:
    for name in ("base", "other"):
        records = [r | {"judge_score": 100 * r["judge_score"]} for r in rows(labels=6)]
        write(data_dir / f"{name}_responses.jsonl", records)
    refuse(
        lambda: read(data_dir),
        "judge_score is 12.5",
        "20 of 24",
        "declare the scale with --judge-range LOW HIGH",
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
    refuse(lambda: read(data_dir, judge_range=scale), "--judge-range", "LOW below HIGH")


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


def test_other_files_of_a_directory_are_in_the_ledger(data_dir: Path) -> None:
    write(data_dir / "logged_data.jsonl", logged_rows())
    data, ledger = read(data_dir)
    assert data.policy.values.tolist() == ["base", "other"]
    assert ledger["file"].tolist() == [str(data_dir / "logged_data.jsonl")]
    assert ledger["row"].isna().all()


def test_two_clusters_for_one_prompt(tmp_path: Path) -> None:
    records = [r | {"policy": p, "cluster": c} for p, c in (("a", "x"), ("b", "y")) for r in rows()]
    path = write(tmp_path / "x.jsonl", records)
    refuse(lambda: read(path), f"{path}, row 13", "cluster is 'y'", "one cluster")


def test_prompt_without_cluster(tmp_path: Path) -> None:
    records = [r | {"policy": "a"} | ({"cluster": 1} if i else {}) for i, r in enumerate(rows())]
    path = write(tmp_path / "x.jsonl", records)
    refuse(lambda: read(path), f"{path}, row 1", "cluster is missing", "each needs one")


def test_covariate_missing_or_no_number(data_dir: Path) -> None:
    refuse(lambda: read(data_dir, covariates=["age"]), "row 1", "age is missing", "leave --covariate age out")
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


def table_of(**columns: object) -> pd.DataFrame:
    """Two responses, with other columns beside or in place of the usual ones."""
    given: dict[str, object] = {"policy": "p", "prompt_id": [1, 2], "judge_score": [0.25, 0.5]}
    return pd.DataFrame(given | columns)


def test_covariates_named_twice_or_like_a_field(data_dir: Path) -> None:
    frame = table_of(age=[1.0, 2.0])
    for call in (
        lambda names: read(data_dir, covariates=names),
        lambda names: from_frame(frame, covariates=names),
    ):
        refuse(lambda call=call: call(["age", "age"]), "covariate age is given twice")  # type: ignore[misc]
        for name in ("judge_score", "policy", "oracle_label", "surprisal", "row"):
            refuse(lambda call=call, name=name: call([name]), f"covariate {name}", "meaning of its own")  # type: ignore[misc]


def test_a_flag_that_pandas_calls_missing_is_false() -> None:
    data, _ = read(table_of(oracle_label=[1.0, 0.0], probe=pd.array([True, pd.NA], dtype="boolean")))
    assert data.probe.values.ravel().tolist() == [True, False]


def test_two_columns_of_one_name() -> None:
    frame = table_of()
    twice = pd.concat([frame, frame[["judge_score"]]], axis=1)
    refuse(lambda: read(twice), "DataFrame: column 'judge_score' occurs 2 times")
    refuse(lambda: from_frame(twice), "the table: column 'judge_score' occurs 2 times")


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"policy": ["p", None]}, ["row 2", "policy is missing", "every row needs one"]),
        ({"prompt_id": [1.0, np.nan]}, ["row 2", "prompt_id is missing"]),
        ({"prompt_id": [1.5, 2.0]}, ["row 1", "prompt_id is 1.5", "a string or an integer"]),
        ({"judge_score": ["high", 0.5]}, ["row 1", "judge_score is 'high'", "a number is expected"]),
        ({"judge_score": [0.5, np.nan]}, ["row 2", "judge_score is missing", "leave the row out"]),
        ({"judge_score": [0.5, np.inf]}, ["row 2", "judge_score is inf", "finite"]),
        ({"oracle_label": [True, False]}, ["row 1", "oracle_label is True", "write 1 or 0"]),
        ({"oracle_label": [1, 0], "probe": [True, None]}, ["row 2", "probe is missing", "true or false"]),
        ({"oracle_label": [1, 0], "probe": [np.nan, 1.0]}, ["row 1", "probe is missing", "true or false"]),
        (
            {"probe": pd.array([False, pd.NA], dtype="boolean")},
            ["row 2", "probe is missing", "true or false"],
        ),
        ({"probe": ["maybe", "no"]}, ["row 1", "probe is 'maybe'", "true or false"]),
        ({"evaluated": [2, 1]}, ["row 1", "evaluated is 2", "true or false"]),
        ({"cluster": ["c", np.nan]}, ["row 2", "cluster is missing"]),
        ({"draw_idx": [0.5, 1.0]}, ["row 1", "draw_idx is 0.5", "0, 1, 2"]),
        ({"age": [None, 3.0]}, ["a judge score but a missing", "covariate"]),
    ],
)
def test_bad_rows_of_a_frame_are_one_line(columns: dict[str, object], parts: list[str]) -> None:
    covariates = [name for name in columns if name == "age"]
    refuse(lambda: from_frame(table_of(**columns), covariates=covariates), *parts)


def test_a_frame_with_columns_of_any_type_reads_as_its_plain_twin() -> None:
    """Nullable and integer columns, float ids, flags as 0 and 1, an index of its own."""
    plain = table_of(oracle_label=[1.0, 0.0], probe=[True, False], cluster=["3", "3"])
    typed = pd.DataFrame(
        {
            "policy": pd.Categorical(["p", "p"]),
            "prompt_id": [1.0, 2.0],
            "judge_score": pd.array([0.25, 0.5], dtype="Float64"),
            "oracle_label": pd.array([1, 0], dtype="Int64"),
            "probe": [1, 0],
            "cluster": [3, 3],
            "unused": ["x", "y"],
        },
        index=[7, 7],
    )
    xr.testing.assert_identical(from_frame(typed), from_frame(plain))


# --- real data, size ---


def test_arena_sample(arena: Path) -> None:
    data, ledger = read(
        arena / "fresh_draws", probes=arena / "probe_slice", logged=arena / "logged_data.jsonl"
    )
    assert dict(data.sizes) == {"policy": 4, "prompt": 1000, "draw": 1}
    assert data.labelled.sum(("prompt", "draw")).values.tolist() == [480, 0, 0, 0]
    assert data.probe.sum(("prompt", "draw")).values.tolist() == [0, 50, 50, 50]
    assert np.isfinite(data.logp_target).sum("prompt").values.tolist() == [0, 1000, 1000, 1000]
    assert ledger.empty


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_million_rows_in_seconds(tmp_path: Path, kind: str) -> None:
    import time

    n = 1_000_000
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "policy": np.repeat(["a", "b"], n // 2),
            "prompt_id": np.tile(np.arange(n // 2), 2),
            "judge_score": rng.random(n),
        }
    )
    table["oracle_label"] = np.where(rng.random(n) < 0.05, rng.random(n), np.nan)
    path = tmp_path / f"x.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    start = time.process_time()
    data, _ = read(path)
    seconds = time.process_time() - start
    assert data.sizes["prompt"] == n // 2
    assert seconds < 30, f"{seconds:.1f} s CPU"
