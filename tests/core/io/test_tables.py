"""User data in a frame: any type of column is read, and a bad row is refused in one line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from user_files import refuse

from cje_core.io import from_frame
from cje_core.io.files import read


def test_ids_of_a_frame_that_pandas_made_floats() -> None:
    """A merge turns integer ids into floats; 0.0 is still prompt 0, and NaN is missing."""
    table = pd.DataFrame({"policy": "p", "prompt_id": [0.0, 7.0], "judge_score": [0.25, 0.5]})
    assert read(table)[0].prompt.values.tolist() == ["0", "7"]
    refuse(lambda: read(table.assign(prompt_id=[np.nan, 7.0])), "DataFrame, row 1", "prompt_id is missing")


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
        ({"judge_score": [0.5, np.nan]}, ["row 2", "judge_score is missing", "evaluated=False"]),
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


def test_row_groups_whose_names_come_in_another_order(tmp_path: Path) -> None:
    """Each has a dictionary of its own, of the same length: a code means another policy in each."""
    table = pd.DataFrame({
        "policy": ["p", "q", "q", "p", "r", "p"], "prompt_id": ["a", "a", "b", "b", "c", "c"],
        "judge_score": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5],
    })  # fmt: skip
    table.to_parquet(tmp_path / "x.parquet", row_group_size=2)
    xr.testing.assert_identical(read(tmp_path / "x.parquet")[0], read(table)[0])
