"""Samples of lm-evaluation-harness (``samples_*.jsonl``): a metric under a filter is a score, ``metric,filter``.

The directory of a file names the model, which is the policy; ``doc_id`` is the prompt, after its task where there are
several. A file has one line for each document and filter; lines of one document are one response. A metric that is a
list of truth values, one for each instruction (IFEval), counts by its mean; other lists are no grades.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.io.fields import show
from cje_core.io.intake.foreign import Aggregate, Asked, Contents, Item, named_by, text_of
from cje_core.io.intake.grades import number
from cje_core.io.intake.recognize import File
from cje_core.io.intake.rows import rows_of

TITLE = "samples of lm-evaluation-harness"
ROLES = {
    "policy": "the directory of the file",
    "prompt": "`doc_id`, after the task where there are several",
    "draw": "0",
    "scores": "`metric,filter`; of a list of truth values the mean",
    "left out": "other lists; two runs of one task are refused",
}
# What a line holds beside its metrics, in versions that do not list these.
OTHER = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
         "prompt_hash", "target_hash"}  # fmt: skip
NAME = re.compile(r"samples_(.+?)(?:_(\d{4}-\d\d-\d\dT.*?))?\.jsonl(?:\.gz)?", re.IGNORECASE)


def knows(file: File) -> bool:
    """Return whether a file's first line is a sample of the harness."""
    return {"doc_id", "resps", "filtered_resps"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each model, task and document, with the metrics of all filters."""
    tasks = {file.path: _task(file.path) for file in files}
    several = len(set(tasks.values())) > 1
    found: dict[tuple[str, str], Item] = {}
    lists: dict[tuple[str, str], str] = {}
    for path, task in tasks.items():
        directory = path.resolve().parent.name
        for row, record in rows_of(path):
            where = f"{path}, row {row}"
            if record.get("doc_id") is None:
                raise DataError(f"{where}: doc_id is missing; every sample has one")
            prompt = (
                named_by(asked.prompt, [record], where, "prompt")
                if asked.prompt
                else text_of(record["doc_id"])
            )
            policy = named_by(asked.policy, [record], where, "policy") if asked.policy else directory
            scores = _scores(record, str(path), lists)
            key = policy, f"{task}/" * several + prompt
            if key in found:
                _check_new(found[key], scores, path, row)
                found[key] = found[key]._replace(scores={**found[key].scores, **scores})
                continue
            found[key] = Item(str(path), row, *key, scores, response=_response(record))
    aggregates = [one for path, task in tasks.items() for one in _aggregates(path, task)]
    roles = {
        "policy": asked.policy or "the directory of the file",
        "prompt": asked.prompt or "doc_id",
        "draw": "none",
    }
    return Contents(
        list(found.values()), roles, [(file, said) for (file, _), said in lists.items()], aggregates
    )


def _check_new(item: Item, scores: Mapping[str, Any], path: Path, row: int) -> None:
    """Stop at a second line of one document and filter, and at a second run."""
    if item.file != str(path):
        raise DataError(
            f"{path}, row {row}: document {show(item.prompt)} of {show(item.policy)} is already in {item.file}: two "
            "runs of one task; keep the one that counts, or give the directory of one run"
        )
    for name in scores.keys() & item.scores.keys():
        raise DataError(
            f"{path}, row {row}: {name} of document {item.prompt} is already in row {item.row}; keep one"
        )


def _scores(record: dict[str, Any], file: str, lists: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Metrics of a line; `lists` gets what is to be said of those that are lists."""
    listed = record.get("metrics")
    names = listed if isinstance(listed, list) else [name for name in record if name not in OTHER]
    under = text_of(record.get("filter") or "none")
    scores: dict[str, Any] = {}
    for name in (name for name in names if isinstance(name, str)):
        value, full = record.get(name), f"{name},{under}"
        if isinstance(value, list) and value and all(isinstance(one, bool) for one in value):
            lists[file, name] = f"{name} has a value for each instruction: a response counts by their mean"
            value = sum(value) / len(value)
        elif isinstance(value, list | dict):
            lists[file, name] = f"{name} is no number of a response ({show(value)}): it is no score"
            continue
        scores[full] = value
    return scores


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


def _aggregates(path: Path, task: str) -> Iterator[Aggregate]:
    """Means of the results file that the same run wrote beside its samples."""
    match = NAME.fullmatch(path.name)
    beside = path.parent / f"results_{match[2]}.json" if match and match[2] else None
    if beside is None or not beside.is_file():
        return
    try:
        held = json.loads(beside.read_text(encoding="utf-8")).get("results", {}).get(task, {})
    except (ValueError, AttributeError, OSError, RecursionError):
        return
    for name, value in held.items() if isinstance(held, dict) else ():
        if "," in name and not name.partition(",")[0].endswith("_stderr") and number(value) is not None:
            yield Aggregate(str(path), name, f"result in {beside.name}", float(value))
