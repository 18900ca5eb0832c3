"""A file larger than memory: each prompt once, errors named as they are in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cje_core.data import DataError
from cje_core.io.files import read
from cje_core.io.large import spill
from cje_core.io.large.spill import hashes, spilled

SCALES = {"judge_score": (0.0, 1.0), "oracle_label": (0.0, 1.0)}
N = 60  # responses of each of two policies, in batches of 16 rows


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "BATCH", 16)
    monkeypatch.setattr(spill, "PART", 25)


def frame() -> pd.DataFrame:
    score = np.random.default_rng(1).uniform(0, 1, 2 * N).round(3)
    label = np.where(np.arange(2 * N) % 7 == 0, score, np.nan)
    prompt = [f"q{k}" for k in range(N)] * 2
    return pd.DataFrame(
        {"policy": ["p"] * N + ["q"] * N, "prompt_id": prompt, "judge_score": score, "oracle_label": label}
    )


def written(path: Path, table: pd.DataFrame) -> Path:
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    return path


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as caught:
        call()
    return str(caught.value)


def by_spill(path: Path, scales: dict[str, tuple[float, float]] = SCALES) -> int:
    with spilled(path, scales) as found:
        found.labelled()
        return sum(len(prompt) for prompt, _ in found.prompts())


def test_every_score_comes_once_with_its_prompt_and_policy(tmp_path: Path) -> None:
    table = frame().sample(frac=1, random_state=0)
    path = written(tmp_path / "x.parquet", table)
    with spilled(path, SCALES) as found:
        assert len(found.files) == 5 and found.n_rows == 2 * N
        parts = list(found.prompts())
        labels = found.labelled()
        again = list(found.prompts())  # a second reading is the same
    for one, other in zip(parts, again, strict=True):
        assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1], equal_nan=True)
    prompt = np.concatenate([part[0] for part in parts])
    score = np.concatenate([part[1] for part in parts], axis=1)
    names = [f"q{k}" for k in range(N)]
    order = np.argsort(hashes(pa.array(names, pa.large_string())))
    assert np.array_equal(np.sort(prompt), hashes(pa.array(names, pa.large_string()))[order])
    wide = table.pivot(index="policy", columns="prompt_id", values="judge_score").loc[found.policies, names]
    at = np.argsort(prompt)
    assert np.array_equal(score[:, at], wide.to_numpy()[:, order])
    taught = table[table["oracle_label"].notna()]
    assert labels.name.tolist() == taught["prompt_id"].tolist()
    assert labels.label.tolist() == taught["oracle_label"].tolist()


def test_hashes_depend_on_the_name_alone() -> None:
    names = ["", "a", "aa", "é", "prompt-1", "prompt-10", "prompt-01", "x" * 300, "x" * 301, "日本"]
    together = hashes(pa.array(names, pa.large_string()))
    alone = [hashes(pa.array([name], pa.large_string()))[0] for name in names]
    assert together.tolist() == [int(one) for one in alone]
    assert len(set(together.tolist())) == len(names)
    many = hashes(pa.array([f"prompt-{k}" for k in range(200_000)], pa.large_string()))
    assert len(np.unique(many)) == len(many)
    share = np.bincount((many >> np.uint64(60)).astype(int), minlength=16) / len(many)
    assert np.abs(share - 1 / 16).max() < 5 * np.sqrt(1 / 16 * 15 / 16 / len(many))


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        (71, "judge_score", np.inf),
        (72, "policy", None),
        (73, "policy", ""),
        (74, "prompt_id", None),
        (75, "prompt_id", "a\nb"),
        (76, "draw_idx", -1.0),
        (77, "label_prob", 1.5),
        (77, "label_prob", np.nan),
        (79, "probe", "perhaps"),
    ],
)
def test_a_bad_row_is_named_as_in_memory(tmp_path: Path, row: int, field: str, value: object) -> None:
    table = frame().assign(draw_idx=0.0, label_prob=0.5, probe=False)
    table[field] = table[field].astype(object)
    table.loc[row, field] = value
    table[field] = table[field].infer_objects() if field != "probe" else table[field].astype(str)
    path = written(tmp_path / "x.parquet", table)
    said = refusal(lambda: by_spill(path))
    assert said == refusal(lambda: read(path))
    assert f"x.parquet, row {row + 1}: {field}" in said


def test_values_off_the_scale_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", frame().assign(judge_score=frame()["judge_score"] * 50))
    said = refusal(lambda: by_spill(path))
    assert "x.parquet, row 1: judge_score is" in said and "judge_range=(LOW, HIGH)" in said
    assert by_spill(path, SCALES | {"judge_score": (0.0, 50.0)}) == N
    mixed = frame()
    mixed.loc[mixed["policy"] == "q", "judge_score"] *= 100
    path = written(tmp_path / "y.parquet", mixed)
    said = refusal(lambda: by_spill(path, SCALES | {"judge_score": (0.0, 100.0)}))
    assert "judge_score: mixed scales: all 60 values of policy 'p' lie in [0, 1]" in said
    assert "mixed scales" in refusal(lambda: read(path, judge_range=(0, 100)))


def test_two_responses_to_one_prompt_are_named(tmp_path: Path) -> None:
    table = frame().assign(draw_idx=3)
    table.loc[100, "prompt_id"] = "q5"
    path = written(tmp_path / "x.parquet", table)
    said = refusal(lambda: by_spill(path))
    assert said == refusal(lambda: read(path))
    assert "row 101: policy 'q', prompt_id 'q5', draw_idx 3 is already in" in said and "row 66" in said
    table.loc[100, "draw_idx"] = 4
    path = written(tmp_path / "y.parquet", table)
    assert "row 101" in refusal(lambda: by_spill(path)) and "takes one draw a prompt" in refusal(
        lambda: by_spill(path)
    )
    read(path)


def test_two_names_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "x.parquet", frame())
    monkeypatch.setattr(spill, "hashes", lambda names: hashes(names) % np.uint64(59))
    assert "has the 64-bit hash of" in refusal(lambda: by_spill(path))


def test_what_is_odd_but_legal_is_read_as_in_memory(tmp_path: Path) -> None:
    table = frame().assign(probe=np.where(np.arange(2 * N) % 20 == 1, "true", "no"))
    table["probe"] = table["probe"].replace("no", "false")
    path = written(tmp_path / "x.parquet", table)
    with spilled(path, SCALES) as found:
        labels = found.labelled()
    data, left_out = read(path)
    assert int(labels.probe.sum()) == int(data.probe.sum())
    assert pd.concat(found.left_out)["row"].tolist() == left_out["row"].tolist() != []


def test_files_that_are_none_are_refused_as_in_memory(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no Parquet")
    written(tmp_path / "bare.parquet", frame().drop(columns="policy"))
    written(tmp_path / "empty.parquet", frame().iloc[:0])
    for path in (*tmp_path.iterdir(), tmp_path / "absent.parquet"):
        assert refusal(lambda path=path: by_spill(path)) == refusal(lambda path=path: read(path))
    clustered = written(tmp_path / "cluster.parquet", frame().assign(cluster="c"))
    assert "cluster needs every row in memory" in refusal(lambda: by_spill(clustered))
