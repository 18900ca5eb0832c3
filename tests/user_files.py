"""Small user files for the tests of what reads them, and the one line with which a bad one is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cje_core.data import DataError

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
