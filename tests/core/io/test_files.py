"""User files: what is read, of responses and of probes; what is left out with a reason; the real data."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from user_files import Row, refuse, rows, write

from cje_core.io.files import read

# --- what is read ---


def test_directory(data_dir: Path) -> None:
    data, left_out = read(data_dir)
    assert data.policy.values.tolist() == ["base", "other"]
    assert dict(data.sizes) == {"policy": 2, "prompt": 12, "draw": 1}
    assert data.labelled.sum(("prompt", "draw")).values.tolist() == [6, 0]
    assert data.attrs["calibration_policy"] == ["base"]
    assert left_out.empty


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
    data, left_out = read(data_dir, probes=path)
    assert data.sizes["prompt"] == 12
    assert data.probe.sum(("prompt", "draw")).values.tolist() == [0, 5]
    assert data.evaluated.sum() == 24
    assert (data.oracle.sel(policy="other").values[data.probe.sel(policy="other").values] == 0.125).all()
    assert data.labelled.sel(policy="other").sum() == 0
    assert data.attrs["calibration_policy"] == ["base"]
    assert left_out.empty


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
    data, left_out = read(tmp_path / "x.csv")
    assert int(data.probe.sum()) == 3 and int(data.labelled.sum()) == 3
    assert left_out["row"].tolist() == [8, 10, 12]  # marked, without label: in the mean, no audit
    assert data.evaluated.all()


def test_probe_without_label_is_left_out(data_dir: Path) -> None:
    path = write(data_dir.parent / "p" / "other.jsonl", rows(labels=2)[:4])
    data, left_out = read(data_dir, probes=path.parent)
    assert int(data.probe.sum()) == 2
    assert left_out[["row", "policy", "prompt_id"]].values.tolist() == [
        [3, "other", "q2"],
        [4, "other", "q3"],
    ]
    assert left_out["file"].unique().tolist() == [str(path)]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"judge_score": 0.875}, ["judge_score is 0.875", "scores the same response differently"]),
        ({"response": "some other text"}, ["response is", "its own draw_idx"]),
        ({"prompt_id": "new", "judge_score": None}, ["judge_score is missing", "must bring the score"]),
        ({"oracle_label": 7.0}, ["oracle_label is 7", "outside the declared range [0, 1]", "oracle_range="]),
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


# --- real data, size ---


def test_arena_sample(arena: Path) -> None:
    data, left_out = read(
        arena / "fresh_draws", probes=arena / "probe_slice", logged=arena / "logged_data.jsonl"
    )
    assert dict(data.sizes) == {"policy": 4, "prompt": 1000, "draw": 1}
    assert data.labelled.sum(("prompt", "draw")).values.tolist() == [480, 0, 0, 0]
    assert data.probe.sum(("prompt", "draw")).values.tolist() == [0, 50, 50, 50]
    assert np.isfinite(data.logp_target).sum("prompt").values.tolist() == [0, 1000, 1000, 1000]
    assert left_out.empty


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
