"""Thousands of damaged files: each is read as a plain parser reads it, or refused in one line; no row is lost unsaid.

A damaged file that is read cannot be told from a legal one: what is read is held against a slow reader of the damaged
bytes (JSON lines, CSV), against pyarrow (Parquet), or, where a checksum lies over all that is read (zips), against the
file before the damage.
"""

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xarray as xr
from user_files import rows

from cje_core.data import DataError
from cje_core.io.files import read
from cje_core.io.intake.foreign import UNGRADED, UNUSABLE, Asked, foreign

N = 5200
SEED = 20261123
HELD = Path(__file__).parents[2] / "reference" / "readers"
TOKENS = [b'"', b",", b"{", b"}", b"\n", b"\r", b"0", b"9", b"-", b".", b"e9", b"null", b"NaN", b"\\u0000", b"\xff",
          b"\x00", b"\xed\xa0\x80", b"\\ud800", b"Infinity", b"[", b"]", b":", b"judge_score", b"true"]  # fmt: skip
Cells = dict[tuple[str, str, int], tuple[float, float]]


def damaged(rng: random.Random, raw: bytes) -> bytes:
    """One to three changes: a bit, a slice out, a slice twice, a token in, an end off, two slices exchanged."""
    out = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice([1, 1, 2, 8, 40]))
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:end]
        elif kind == 2:
            out[at:at] = out[at:end]
        elif kind == 3:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 4 and rng.random() < 0.3:
            del out[at:]
        elif out:
            other = rng.randrange(len(out))
            out[at:end], out[other : other + 4] = out[other : other + 4], out[at:end]
    return bytes(out)


def cells(data: xr.Dataset) -> Cells:
    """Score and label of every response that has a score."""
    found = np.argwhere(np.isfinite(data["judge"].values))
    judge, oracle = data["judge"].values, data["oracle"].values
    policy, prompt, draw = (data[name].values.tolist() for name in ("policy", "prompt", "draw"))
    return {
        (str(policy[p]), str(prompt[q]), int(draw[d])): (float(judge[p, q, d]), float(oracle[p, q, d]))
        for p, q, d in found.tolist()
    }


def plain(records: list[dict]) -> Cells:
    """The same of records, by the rules for absent fields alone."""
    out: Cells = {}
    for record in records:
        inner = record.get("metadata") if isinstance(record.get("metadata"), dict) else {}
        field = {n: inner.get(n) if record.get(n) is None else record.get(n) for n in
                 ("policy", "prompt_id", "draw_idx", "judge_score", "oracle_label")}  # fmt: skip
        label = field["oracle_label"]
        draw = field["draw_idx"]
        key = (
            str(field["policy"]),
            str(field["prompt_id"]),
            0 if draw in (None, "") or draw != draw else int(float(draw)),
        )
        assert key not in out
        if field["judge_score"] in (None, "") or float(field["judge_score"]) != float(field["judge_score"]):
            continue  # ungraded: left out
        out[key] = float(field["judge_score"]), float("nan") if label in (None, "") else float(label)
    return out


def of_jsonl(raw: bytes) -> Cells:
    text = raw.decode("utf-8-sig")
    return plain([json.loads(line) for line in text.split("\n") if line.strip()])


def of_csv(raw: bytes) -> Cells:
    text = io.StringIO(raw.decode("utf-8-sig"), newline="")
    held = [row for row in csv.reader(text) if row]
    assert all(len(row) == len(held[0]) for row in held)
    return plain([dict(zip(held[0], row, strict=True)) for row in held[1:]])


def of_parquet(raw: bytes) -> Cells:
    return plain(pq.read_table(io.BytesIO(raw)).to_pylist())


def same(found: Cells, expected: Cells) -> bool:
    return found.keys() == expected.keys() and all(
        np.array_equal(found[key], expected[key], equal_nan=True) for key in expected
    )


def small(kind: str) -> bytes:
    """A legal file of two policies."""
    table = [r | {"policy": p} for p in ("base", "other") for r in rows(labels=3, n=6)]
    frame = pd.DataFrame(table).drop(columns="response")
    if kind in ("jsonl", "jsonl.gz"):
        text = "".join(json.dumps(r) + "\n" for r in table).encode()
        return gzip.compress(text, mtime=0) if kind == "jsonl.gz" else text
    if kind == "json":
        return json.dumps(table, indent=1).encode()
    if kind == "csv":
        return frame.to_csv(index=False).encode()
    out = io.BytesIO()
    frame.to_parquet(out)
    return out.getvalue()


OWN: dict[str, Callable[[bytes], Cells]] = {
    "jsonl": of_jsonl,
    "csv": of_csv,
    "parquet": of_parquet,
    "jsonl.gz": lambda raw: of_jsonl(gzip.decompress(raw)),
    "json": lambda raw: plain(json.loads(raw.decode("utf-8-sig"))),
}


def refused(error: DataError) -> None:
    message = str(error)
    assert "\n" not in message and "\r" not in message and len(message) < 700, message
    message.encode("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "share"), [("jsonl", 0.3), ("csv", 0.25), ("parquet", 0.1), ("jsonl.gz", 0.05), ("json", 0.05)]
)
def test_own_formats(tmp_path: Path, kind: str, share: float) -> None:
    rng = random.Random(f"{SEED}/{kind}")
    raw, path = small(kind), tmp_path / f"x.{kind}"
    n_read = 0
    for _ in range(round(N * share)):
        bad = damaged(rng, raw)
        path.write_bytes(bad)
        try:
            data, _ = read(path)
        except DataError as error:
            refused(error)
            continue
        n_read += 1
        assert same(cells(data), OWN[kind](bad)), bad
    path.write_bytes(raw)
    assert same(cells(read(path)[0]), OWN[kind](raw))
    assert n_read or kind in ("jsonl.gz",)


FOREIGN = {
    "inspect/base.eval": ("judge", "human", 0.05),
    "promptfoo/results.json": ("right", "human", 0.05),
    "lm_eval/org__base/samples_qa_2026-11-24T03-38-30.593232.jsonl": ("llm_judge,strict-match", None, 0.05),
    "langfuse/scores.csv": ("quality@EVAL", "quality@ANNOTATION", 0.05),
    "mt_bench/human_votes.jsonl": ("expert_*", None, 0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_tools(tmp_path: Path, name: str) -> None:
    """Every item is read or left out with a reason; of a zip, whose members have checksums, nothing else is read."""
    judge, oracle, share = FOREIGN[name]
    rng = random.Random(f"{SEED}/{name}")
    raw, path = (HELD / name).read_bytes(), tmp_path / Path(name).name
    path.write_bytes(raw)
    asked = Asked(scale={"unclear": None})
    whole = foreign(path, judge=judge, oracle=oracle, asked=asked)
    assert whole is not None
    for _ in range(round(N * share)):
        path.write_bytes(damaged(rng, raw))
        try:
            made = foreign(path, judge=judge, oracle=oracle, asked=asked)
        except DataError as error:
            refused(error)
            continue
        if made is None:  # no longer known as the tool's
            with pytest.raises(DataError) as caught:
                read(path)
            refused(caught.value)
            continue
        dropped = made.left_out["reason"].str.startswith((UNGRADED, UNUSABLE))
        assert len(made.table) + int(dropped.sum()) > 0 and made.table["judge_score"].map(np.isfinite).all()
        if name.endswith(".eval"):
            pd.testing.assert_frame_equal(made.table, whole.table)


def test_a_planted_loss_is_caught() -> None:
    """The comparison sees one response that is gone, and one label."""
    raw = small("jsonl")
    whole = of_jsonl(raw)
    assert not same(of_jsonl(raw[raw.index(b"\n") + 1 :]), whole)
    assert not same(of_jsonl(raw.replace(b'"oracle_label"', b'"other"', 1)), whole)
