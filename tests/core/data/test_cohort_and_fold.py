"""`cohort` and `fold_id` of responses: carried to each prompt, honoured by cross-fitting, refused where they clash."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from user_files import Row, refuse, rows, write

from cje_core.calibration.calibrated import calibrated
from cje_core.calibration.folds import assign_folds, stable_hash
from cje_core.data import DataError
from cje_core.data.arrays import unpack
from cje_core.estimators import direct, ppi_plus_plus
from cje_core.io import from_frame
from cje_core.io.files import read


def with_fields(n: int = 12, **fields) -> list[Row]:
    return [
        row | {"policy": "p"} | {name: value(i) for name, value in fields.items()}
        for i, row in enumerate(rows(labels=8, n=n))
    ]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_both_are_carried_to_the_prompts(tmp_path: Path, suffix: str) -> None:
    records = with_fields(cohort=lambda i: "new" if i % 3 else "old", fold_id=lambda i: i % 4)
    path = tmp_path / f"data{suffix}"
    frame = pd.DataFrame(records).drop(columns="response")
    {".jsonl": lambda: write(path, records), ".csv": lambda: frame.to_csv(path, index=False)}.get(
        suffix, lambda: frame.to_parquet(path)
    )()
    data, _ = read(path)
    at = data.sel(prompt=[f"q{i}" for i in range(12)])
    assert at.cohort.values.tolist() == ["new" if i % 3 else "old" for i in range(12)]
    assert at.fold.values.tolist() == [i % 4 for i in range(12)]
    assert data.cohort.dims == data.fold.dims == ("prompt",)
    record_by_record, _ = read(pd.DataFrame(records))
    assert data.equals(record_by_record)
    assert data.cohort.equals(from_frame(frame).cohort) and data.fold.equals(from_frame(frame).fold)


def test_a_prompt_may_have_no_cohort(tmp_path: Path) -> None:
    records = with_fields(cohort=lambda i: "new" if i else None)
    data, _ = read(write(tmp_path / "data.jsonl", records))
    assert data.cohort.sel(prompt="q0").item() == ""
    plain, _ = read(write(tmp_path / "plain.jsonl", with_fields()))
    assert "cohort" not in plain and "fold" not in plain


@pytest.mark.parametrize(
    ("field", "value", "parts"),
    [
        ("fold_id", "b", ["fold_id is 'b'", "number the folds 0, 1, 2, ..."]),
        ("fold_id", -2, ["fold_id is '-2'", "number the folds"]),
        ("fold_id", 0.5, ["fold_id is 0.5", "write a string or an integer"]),
        ("cohort", ["new"], ["cohort is ['new']", "write a string or an integer"]),
        ("cohort", "a\nb", ["cohort is 'a\\nb'", "line break"]),
    ],
)
def test_bad_values_stop(tmp_path: Path, field: str, value: object, parts: list[str]) -> None:
    records = with_fields(cohort=lambda i: "new", fold_id=lambda i: i % 3)
    records[4][field] = value
    path = write(tmp_path / "data.jsonl", records)
    refuse(lambda: read(path), f"{path}, row 5: ", *parts)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_folds_of_some_prompts_only_stop(tmp_path: Path, suffix: str) -> None:
    """A row may leave its fold to another row of the prompt, and a prompt that is probed only has none."""
    records = with_fields(fold_id=lambda i: i % 3)
    again = [row | {"policy": "q", "fold_id": None, "oracle_label": None} for row in records]
    path = tmp_path / f"data{suffix}"

    def given(rows: list[Row]) -> Path:
        frame = pd.DataFrame(rows).drop(columns="response").astype({"fold_id": "Int64"})
        {".jsonl": lambda: write(path, rows), ".csv": lambda: frame.to_csv(path, index=False)}.get(
            suffix, lambda: frame.to_parquet(path)
        )()
        return path

    probe = {"policy": "q", "prompt_id": "elsewhere", "judge_score": 0.4, "oracle_label": 0.5}
    data, _ = read(given([*records, *again]), probes=write(tmp_path / "probe.jsonl", [probe]))
    assert data.fold.sel(prompt=["q4", "elsewhere"]).values.tolist() == [1, -1]
    gone = {4: {"fold_id": None}}
    place = 6 if suffix == ".csv" else 5
    some = [row | gone.get(i, {}) for i, row in enumerate(records)]
    refuse(
        lambda: read(given(some)),
        f"{path}, row {place}: fold_id is missing; other prompts have one, so each needs",
    )


@pytest.mark.parametrize("field", ["cohort", "fold_id"])
def test_one_prompt_has_one(tmp_path: Path, field: str) -> None:
    records = with_fields(cohort=lambda i: "new", fold_id=lambda i: i % 3)
    records.append(records[3] | {"policy": "q", field: 2})
    path = write(tmp_path / "data.jsonl", records)
    refuse(lambda: read(path), f"{path}, row 13: {field} is '2'", f"give each prompt one {field}")


def test_folds_given_are_the_folds(tmp_path: Path) -> None:
    given = np.array([7, 7, -1, 3, 3, -1])
    folds = assign_folds(list("abcdef"), [True] * 6, given=given)
    assert folds[[0, 1, 3, 4]].tolist() == [1, 1, 0, 0]
    assert folds[[2, 5]].tolist() == [stable_hash(name) % 2 for name in "cf"]
    nobody = np.full(6, -1)
    assert (
        assign_folds(list("abcdef"), [True] * 6, given=nobody) == assign_folds(list("abcdef"), [True] * 6)
    ).all()


def test_estimators_fit_on_the_folds_given() -> None:
    rng = np.random.default_rng(4)
    score = rng.random(60)
    frame = pd.DataFrame({"policy": "p", "prompt_id": np.arange(60), "judge_score": score})
    frame["oracle_label"] = np.where(np.arange(60) < 40, (score + rng.random(60)) / 2, np.nan)
    chosen = frame.assign(fold_id=np.arange(60) % 3)
    data = from_frame(chosen)
    fitted = calibrated(data).slice
    by_name = dict(zip(unpack(data).prompts.tolist(), fitted.fold.tolist(), strict=True))
    assert by_name == {str(i): i % 3 for i in range(60)}
    assert calibrated(from_frame(frame)).slice.fold.max() == 4
    estimates = [
        direct.estimate(from_frame(table), correction="none", inference="jackknife")
        for table in (frame, chosen)
    ]
    assert estimates[0].std_error.item() != estimates[1].std_error.item()
    tuned = [ppi_plus_plus.estimate(from_frame(table), lam="cross_fitted") for table in (frame, chosen)]
    assert tuned[0].estimate.item() != tuned[1].estimate.item()


def test_folds_that_leave_nothing_to_fit_on_stop() -> None:
    with pytest.raises(DataError, match=r"all prompts into one fold \(2\)"):
        assign_folds(["a", "b"], [True, True], given=np.array([2, 2]))
    with pytest.raises(DataError, match=r"all labels into one fold"):
        assign_folds(["a", "b", "c"], [True, True, False], given=np.array([2, 2, 1]))
    table = pd.DataFrame({"policy": "p", "prompt_id": [0, 1, 2], "judge_score": 0.5, "cluster": "c"})
    with pytest.raises(DataError, match=r"cluster 'c' has prompts in folds 0 and 1"):
        unpack(from_frame(table.assign(fold_id=[0, 1, 1])))
    refuse(lambda: from_frame(table.assign(fold_id=[0, 1, 0.5])), "row 3: fold_id is 0.5", "number the folds")
    assert json.dumps(from_frame(table.assign(fold_id=[0, 0, -1])).fold.values.tolist()) == "[0, 0, -1]"
