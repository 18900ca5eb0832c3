"""Long tables of scores as Langfuse, Phoenix and LangSmith export them: a row is one score of one trace.

Rows of a trace are one response; a score's name is ``name@source`` (Langfuse: ANNOTATION, EVAL, API; Phoenix: HUMAN,
LLM, CODE; LangSmith: app, model, api), and several of one name and source are averaged. Policy and prompt are found in
a column, or in ``metadata``, of the usual names, or of the one that is asked for; without a column of prompts each
trace is a prompt of its own. Traces of one policy and prompt are its draws, in order of their ids.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import line
from cje_core.data.intake.foreign import Asked, Head, Item, number, text_of
from cje_core.data.intake.rows import rows_of

TITLE = "table of scores, one a row"
TRACE = ("span_id", "observationId", "observation_id", "run_id", "traceId", "trace_id", "context.span_id")
NAME = ("annotation_name", "name", "key")
VALUE = ("score", "value", "result.score", "label", "stringValue", "string_value", "result.label")
SOURCE = ("source", "annotator_kind", "feedback_source.type", "feedback_source")
POLICY = ("policy", "model", "model_name", "modelId", "datasetRunName", "dataset_run_name", "experiment",
          "experiment_name", "session_name", "session_id")  # fmt: skip
PROMPT = ("prompt_id", "datasetItemId", "dataset_item_id", "example_id", "reference_example_id", "item_id")


def knows(head: Head) -> bool:
    """Whether a row is a score: it has a name, a value and a trace, and is no response in our own fields."""
    flat = {name.partition(".")[0] for name in head.names} | head.names
    return bool(flat & set(NAME)) and bool(flat & {*VALUE, "result"}) and bool(flat & set(TRACE))


def items(paths: Sequence[Path], asked: Asked) -> list[Item]:
    """A response for each trace."""
    traces: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in paths:
        for row, record in rows_of(path):
            _add(traces, path, row, _flat(record), asked)
    draws: dict[tuple[str, str], int] = defaultdict(int)
    made = []
    for trace, at in sorted(traces.items()):
        prompt = at["prompt"] if at["prompt"] is not None else trace[-1]
        draw = draws[at["policy"], prompt]
        draws[at["policy"], prompt] += 1
        scores = {name: sum(given) / len(given) if (given := [v for v in values if v is not None]) else None
                  for name, values in at["scores"].items()}  # fmt: skip
        made.append(Item(at["file"], at["row"], at["policy"], prompt, scores, draw))
    return made


def _add(
    traces: dict[tuple[str, ...], dict[str, Any]], path: Path, row: int, record: dict[str, Any], asked: Asked
) -> None:
    """Put a score to its trace."""
    name, trace = _first(record, NAME), _first(record, TRACE)
    if name is None or trace is None:
        raise DataError(
            f"{path}, row {row}: {'a name of the score' if name is None else 'a trace'} is missing"
        )
    wanted = (asked.policy,) if asked.policy else POLICY
    policy = _first(record, wanted)
    if policy is None:
        held = line(", ".join(sorted(record)), 120)
        said = f"no {asked.policy}" if asked.policy else "no column says the policy"
        raise DataError(
            f"{path}, row {row}: {said}; name one that does with policy_field=NAME (it has {held})"
        )
    prompt = _first(record, (asked.prompt,) if asked.prompt else PROMPT)
    if asked.prompt and prompt is None:
        raise DataError(f"{path}, row {row}: {asked.prompt} is missing; it names the prompt")
    source = _first(record, SOURCE)
    score = text_of(name) + (f"@{text_of(source)}" if source is not None else "")
    value = next((given for v in VALUE if (given := number(record.get(v))) is not None), None)
    key = (text_of(policy), text_of(trace))
    empty = {
        "file": str(path), "row": row, "policy": text_of(policy), "scores": defaultdict(list),
        "prompt": None if prompt is None else text_of(prompt),
    }  # fmt: skip
    at = traces.setdefault(key, empty)
    if at["prompt"] != empty["prompt"]:
        raise DataError(
            f"{path}, row {row}: trace {text_of(trace)} has another prompt in row {at['row']}; correct one"
        )
    at["scores"][score].append(value)


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Fields, those of ``metadata`` (also as text), and of objects as ``object.field``."""
    found = {name: value for name, value in record.items() if value is not None}
    for name, value in record.items():
        if isinstance(value, str) and value.startswith("{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, dict):
            inner = {str(k): v for k, v in value.items() if v is not None}
            found |= {f"{name}.{k}": v for k, v in inner.items()}
            if name == "metadata":
                found = inner | found
    return found


def _first(record: dict[str, Any], names: Sequence[str]) -> Any:
    given = (record.get(name) for name in names)
    return next((v for v in given if v is not None and not isinstance(v, dict | list) and v != ""), None)
