"""Samples of lm-evaluation-harness (``samples_*.jsonl``): a metric under a filter is a score, ``metric,filter``.

The directory of a file names the model, which is the policy; ``doc_id`` is the prompt, after its task where there are
several. A file has one line for each document and filter; lines of one document are one response.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.intake.foreign import Asked, Head, Item, number, text_of
from cje_core.data.intake.rows import rows_of

TITLE = "samples of lm-evaluation-harness"
# What a line holds beside its metrics, in versions that do not list these.
OTHER = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
         "prompt_hash", "target_hash"}  # fmt: skip
NAME = re.compile(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT.*)?\.jsonl(?:\.gz)?", re.IGNORECASE)


def knows(head: Head) -> bool:
    """Whether a file's first line is a sample of the harness."""
    return head.kind == ".jsonl" and {"doc_id", "resps", "filtered_resps"} <= head.names


def items(paths: Sequence[Path], asked: Asked) -> list[Item]:
    """A response for each model, task and document, with the metrics of all filters."""
    tasks = {path: _task(path) for path in paths}
    several = len(set(tasks.values())) > 1
    found: dict[tuple[Path, str], Item] = {}
    for path, task in tasks.items():
        for row, record in rows_of(path):
            if record.get("doc_id") is None:
                raise DataError(f"{path}, row {row}: doc_id is missing; every sample has one")
            prompt = f"{task}/" * several + text_of(record["doc_id"])
            scores = _scores(record)
            key = path, prompt
            if key in found:
                _check_new(found[key], scores, path, row)
                found[key] = found[key]._replace(scores={**found[key].scores, **scores})
                continue
            policy = record.get(asked.policy) if asked.policy else path.resolve().parent.name
            if policy is None:
                raise DataError(f"{path}, row {row}: {asked.policy} is missing; it names the policy")
            found[key] = Item(str(path), row, text_of(policy), prompt, scores, response=_response(record))
    return list(found.values())


def _check_new(item: Item, scores: Mapping[str, float | None], path: Path, row: int) -> None:
    """Stop at a second line of one document and filter."""
    for name in scores.keys() & item.scores.keys():
        raise DataError(
            f"{path}, row {row}: {name} of document {item.prompt} is already in row {item.row}; keep one"
        )


def _scores(record: dict[str, Any]) -> dict[str, float | None]:
    listed = record.get("metrics")
    names = listed if isinstance(listed, list) else [name for name in record if name not in OTHER]
    names = [name for name in names if isinstance(name, str)]
    under = text_of(record.get("filter") or "none")
    values = {
        text_of(name): record.get(name) for name in names if not isinstance(record.get(name), list | dict)
    }
    return {f"{name},{under}": number(value) for name, value in values.items()}


def _response(record: dict[str, Any]) -> str | None:
    value: Any = record.get("filtered_resps")
    while isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None


def _task(path: Path) -> str:
    """Task that a file's name says.

    Examples
    --------
    >>> _task(Path("samples_gsm8k_2025-01-02T03-04-05.678901.jsonl"))
    'gsm8k'
    """
    match = NAME.fullmatch(path.name)
    return match[1] if match else path.name
