"""Small user files for the tests of what reads them, what is read, and the one line that refuses a bad one."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cje_core.data import DataError
from cje_core.data.files import read
from cje_core.data.intake.foreign import Asked, foreign
from cje_core.workflow.reading.doctor import examine

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


def refuse(call: Callable[[], Any], *parts: str) -> None:
    """The call raises `DataError` with one line that holds all parts."""
    with pytest.raises(DataError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} not in {message!r}"


def as_csv(path: Path, records: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(k for r in records for k in r)))
        writer.writeheader()
        writer.writerows(records)
    return path


def of(
    path: Path,
    judge: str | None = None,
    oracle: str | None = None,
    range_: tuple[float, float] = (0, 1),
    **asked: Any,
) -> dict[str, Any]:
    """Scores and labels by policy, in order of prompts."""
    made = foreign(path, judge=judge, oracle=oracle, asked=Asked(**asked))
    assert made is not None
    data, left_out = read(made, judge_range=range_, oracle_range=range_)
    out: dict[str, Any] = {"left out": left_out}
    for policy in data.policy.values.tolist():
        at = data.sel(policy=policy).stack(row=["prompt", "draw"])
        at = at.isel(row=at.evaluated.values)
        out[policy] = (at.judge.values.tolist(), [None if v != v else v for v in at.oracle.values.tolist()])
    return out


def agree(path: Path) -> str:
    """The problem that doctor and the command that it proposes both have; nothing where both read the same."""
    found = examine(path)
    if found.problem:
        refuse(lambda: of(path, found.judge, found.oracle), found.problem)
        return found.problem
    read_as = of(path, found.judge, found.oracle) if found.judge else {}
    assert {p: len(v[0]) for p, v in read_as.items() if p != "left out"} == dict(found.policies)
    return ""
