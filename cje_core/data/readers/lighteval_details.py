"""Details of lighteval (``details_TASK_DATE.parquet``, or JSON lines of them): answers of a model to a task's examples.

The directories between ``details`` and the date of the run name the model, which is the policy. The example is the
prompt: its id, or its text where the version wrote none. Metrics of an example are scores; what a metric over the whole
corpus kept of it, and a judge's texts, are none.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import show
from cje_core.data.intake.foreign import Aggregate, Asked, Contents, Item, field_of, named_by, text_of
from cje_core.data.intake.grades import number
from cje_core.data.intake.nested import without_texts
from cje_core.data.intake.raw import stem_of
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import numbered

TITLE = "details of lighteval"
ROLES = {
    "policy": "the directories between `details` and the date of the run; else the directory of the file",
    "prompt": "`doc.id`, else `doc.query` or `example`; after the task where there are several",
    "draw": "examples of one text in a run",
    "scores": "`metric` or `metrics`, by name",
    "left out": "what corpus metrics kept of an example, texts and lists; two runs of one task are refused",
}
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d.*")
NAME = re.compile(r"(?:details_)?(.+?)(?:_(\d{4}-\d\d-\d\dT.*))?")
PROMPT = ("doc.id", "doc.query", "example", "full_prompt")
ANSWER = ("model_response.text", "predictions")


def knows(file: File) -> bool:
    """Return whether a row is an example with its metrics, of this or of an earlier version."""
    return {"doc", "metric", "model_response"} <= file.names or {
        "metrics",
        "full_prompt",
        "predictions",
    } <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each example, with all its metrics."""
    several = len({_task(file.path) for file in files}) > 1
    items = []
    corpus: dict[tuple[str, str], None] = {}
    for path in (file.path for file in files):
        task, model = f"{_task(path)}/" * several, _model(path)
        for row, record in rows_of(path):
            where = f"{path}, row {row}"
            places = [
                record,
                *(one for one in (record.get("doc"), record.get("specifics")) if isinstance(one, dict)),
            ]
            policy = named_by(asked.policy, places, where, "policy") if asked.policy else model
            prompt = (
                named_by(asked.prompt, places, where, "prompt") if asked.prompt else _prompt(record, where)
            )
            held = record.get("metric", record.get("metrics"))
            if not isinstance(held, dict):
                raise DataError(f"{where}: metrics are {show(held)}; lighteval writes an object of them")
            for name, value in held.items():
                if isinstance(value, dict):
                    corpus.setdefault((str(path), text_of(name)))
            scores = {text_of(name): value for name, value in held.items() if not isinstance(value, dict)}
            items.append(Item(str(path), row, policy, task + prompt, scores, response=_response(record)))
    field = asked.policy or "the directory of the file"
    items, notes = without_texts(numbered(items, field))
    notes += [
        (path, f"{name} is a metric over the whole corpus, and no grade of an example")
        for path, name in corpus
    ]
    roles = {
        "policy": field,
        "prompt": asked.prompt or "doc.id or the example's text",
        "draw": "examples of one text",
    }
    return Contents(items, roles, notes, [one for file in files for one in _aggregates(file.path)])


def _task(path: Path) -> str:
    """Task that a file's name says.

    Examples
    --------
    >>> _task(Path("details_custom|gsm8k|0_2025-01-02T03-04-05.678901.parquet"))
    'custom|gsm8k|0'
    """
    match = NAME.fullmatch(stem_of(path))
    assert match is not None
    return match[1]


def _model(path: Path) -> str:
    """Model that the directories of a file say.

    Examples
    --------
    >>> _model(Path("/out/details/org/m/2025-01-02T03-04-05.6/details_x_2025-01-02T03-04-05.6.parquet"))
    'org/m'
    """
    parts = list(path.resolve().parent.parts)
    if len(parts) > 1 and DATE.fullmatch(parts[-1]):
        parts.pop()
        if "details" in parts[:-1]:
            return "/".join(parts[len(parts) - parts[::-1].index("details") :])
    return parts[-1]


def _filled(record: dict[str, Any], name: str) -> bool:
    return field_of(record, name) not in (None, "")


def _prompt(record: dict[str, Any], where: str) -> str:
    for name in PROMPT:
        if _filled(record, name):
            return text_of(field_of(record, name))
    raise DataError(f"{where}: neither doc.id nor the example's text is there; it is the prompt")


def _response(record: dict[str, Any]) -> str | None:
    held = next((value for name in ANSWER if (value := field_of(record, name))), None)
    first = held[0] if isinstance(held, list) else None
    return first if isinstance(first, str) else None


def _aggregates(path: Path) -> Iterator[Aggregate]:
    """Means of the results that the same run wrote, where they lie as lighteval puts them."""
    parent, match = path.resolve().parent, NAME.fullmatch(stem_of(path))
    if match is None or match[2] is None or "details" not in parent.parts:
        return
    at = len(parent.parts) - 1 - parent.parts[::-1].index("details")
    results = Path(*parent.parts[:at], "results", *parent.parts[at + 1 : -1], f"results_{match[2]}.json")
    document = File(results).document if results.is_file() else {}
    of_tasks = document.get("results") if isinstance(document, dict) else None
    held = of_tasks.get(match[1]) if isinstance(of_tasks, dict) else None
    for name, value in held.items() if isinstance(held, dict) else ():
        if not name.endswith("_stderr") and (mean := number(value)) is not None:
            yield Aggregate(str(path), name, f"result in {results.name}", mean)
