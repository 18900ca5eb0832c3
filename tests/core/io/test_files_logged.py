"""User files: logged responses, aligned with the prompts, and their covariates."""

from pathlib import Path

import numpy as np
import pytest
from user_files import Row, refuse, rows, write

from cje_core.io.files import read


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
    data, left_out = read(data_dir, logged=path)
    order = [f"q{i}" for i in range(12)]
    assert data.logp_logger.sel(prompt=order).values.tolist() == [-10.0 - i for i in range(12)]
    assert data.logp_target.sel(prompt=order, policy="other").values.tolist() == [
        -11.0 - i for i in range(12)
    ]
    assert np.isnan(data.logp_target.sel(policy="base")).all()
    assert left_out.empty


def test_missing_log_likelihoods_are_left_out(data_dir: Path) -> None:
    records = logged_rows()
    records[0]["base_policy_logprob"] = None
    records[1]["target_policy_logprobs"]["other"] = None
    records[2]["metadata"] = {"prompt_id": "elsewhere"}
    records[3]["target_policy_logprobs"]["stranger"] = -3.0
    data, left_out = read(data_dir, logged=write(data_dir.parent / "logged.jsonl", records))
    assert int(np.isfinite(data.logp_logger).sum()) == 10
    assert int(np.isfinite(data.logp_target).sum()) == 9
    first = left_out[left_out["policy"] != "stranger"]
    assert first[["row", "policy", "prompt_id"]].values.tolist() == [
        [1, "", "q0"],
        [2, "other", "q1"],
        [3, "", "elsewhere"],
    ]
    assert left_out.loc[left_out["policy"] == "stranger", "row"].tolist() == [4]  # the row that names it
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


def test_other_files_of_a_directory_are_left_out(data_dir: Path) -> None:
    write(data_dir / "logged_data.jsonl", logged_rows())
    data, left_out = read(data_dir)
    assert data.policy.values.tolist() == ["base", "other"]
    assert left_out["file"].tolist() == [str(data_dir / "logged_data.jsonl")]
    assert left_out["row"].isna().all()
