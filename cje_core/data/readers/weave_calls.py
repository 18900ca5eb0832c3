"""Calls of W&B Weave (JSON lines of an export or of the API): an evaluation's calls of a model on an example.

A call of ``Evaluation.predict_and_score`` is a response. The model that it names is the policy, with its version or
settings where several of one name were evaluated; the example is the prompt; trials are draws. Scores are the scorers'
results by path. Annotations by hand, on the call or on the model's call within it, are scores apart, ``NAME@human``.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cje_core.data.errors import DataError
from cje_core.data.fields import show
from cje_core.data.intake.foreign import (
    UNUSABLE,
    Aggregate,
    Asked,
    Contents,
    Item,
    field_of,
    named_by,
    text_of,
)
from cje_core.data.intake.grades import joined, number
from cje_core.data.intake.nested import scalars, without_texts
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import Run, arms, numbered, setting

TITLE = "calls of a Weave evaluation"
ROLES = {
    "policy": "`inputs.model`, with version or settings where models of one name differ",
    "prompt": "`inputs.example`",
    "draw": "trials of an example in one evaluation",
    "scores": "`output.scores` and scorers that ran later, by path; `NAME@human`: annotations",
    "left out": "calls with an exception or without output, texts and lists, reactions and notes",
}
SCORED = re.compile(r"(?:^|/)Evaluation\.predict_and_score(?::|$)")
EVALUATED = re.compile(r"(?:^|/)Evaluation\.evaluate(?::|$)")
REF = re.compile(r"weave:///.+/(?:object|op)/([^/]+):([^/:]+)")  # name and version of an object
ROW = re.compile(r"weave:///.+/attr/rows/id/([^/]+)")  # of a dataset; it is a digest of the row
ANNOTATION = "wandb.annotation."
SCORER = "wandb.runnable."
HUMAN = "@human"
MEANS = (".mean", ".true_fraction")  # of an evaluation's summary


class Call(NamedTuple):
    """A call with its place."""

    file: str
    row: int
    held: dict[str, Any]

    @property
    def where(self) -> str:
        """Place in messages."""
        return f"{self.file}, row {self.row}"


def knows(file: File) -> bool:
    """Return whether a row is a call."""
    return {"op_name", "trace_id", "inputs", "output"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each scored call."""
    calls = [Call(str(file.path), row, held) for file in files for row, held in rows_of(file.path)]
    scored = [call for call in calls if SCORED.search(text_of(call.held.get("op_name")))]
    if not scored:
        raise DataError(
            f"{files[0].path}: no call of Evaluation.predict_and_score in it; export the calls of an evaluation"
        )
    models = [_model(call) for call in scored]
    policies, differ = arms(models)
    later, others = _feedback(calls, scored)
    items = []
    for call, arm in zip(scored, policies, strict=True):
        inner = (
            field_of(call.held, name) for name in ("inputs", "inputs.model", "inputs.example", "attributes")
        )
        places = [call.held, *(place for place in inner if isinstance(place, dict))]
        policy = named_by(asked.policy, places, call.where, "policy") if asked.policy else arm
        prompt = named_by(asked.prompt, places, call.where, "prompt") if asked.prompt else _example(call)
        answer, why = field_of(call.held, "output.output"), _ended(call)
        response = answer if isinstance(answer, str) else None
        scores = {name: joined(held) for name, held in later[_id(call)].items()} | _scores(call)
        items.append(Item(call.file, call.row, policy, prompt, {} if why else scores, 0, response, why=why))
    field = asked.policy or "inputs.model" + "".join(f" and {name}" for name in differ)
    items = numbered(items, field, [text_of(call.held.get("parent_id")) for call in scored])
    items, notes = without_texts(items, several=True)
    if others:
        notes.append((others.most_common(1)[0][0], f"{others.total()} grades were added to other calls"))
    roles = {"policy": field, "prompt": asked.prompt or "inputs.example", "draw": "trial"}
    return Contents(items, roles, notes, list(_aggregates(calls)))


def _id(call: Call) -> str:
    return text_of(call.held.get("id"))


def _model(call: Call) -> Run:
    """Name and settings of the model that a call is of, whatever it was evaluated on."""
    model = field_of(call.held, "inputs.model")
    if isinstance(model, str) and (match := REF.match(model)):
        return Run(match[1], "", {"version": match[2]})
    if isinstance(model, dict):
        name = model.get("name") or model.get("_class_name") or model.get("_type")
        settings = {k: setting(v) for k, v in model.items() if k != "name" and not k.startswith("_")}
    else:
        name, settings = model, {}
    if not name:
        raise DataError(f"{call.where}: inputs.model is missing; it is the policy")
    return Run(text_of(name), "", settings)


def _example(call: Call) -> str:
    example = field_of(call.held, "inputs.example")
    if example in (None, "", {}):
        raise DataError(f"{call.where}: inputs.example is missing; it is the prompt")
    if isinstance(example, str):
        match = ROW.match(example)
        return match[1] if match else example
    return json.dumps(example, sort_keys=True, default=str)


def _ended(call: Call) -> str:
    """Why a call cannot be used: Weave writes an output without scores where the model failed."""
    if call.held.get("exception") and not field_of(call.held, "output.scores"):
        return f"{UNUSABLE}the call ended with an exception"
    output = call.held.get("output")
    if not isinstance(output, dict):
        return f"{UNUSABLE}the call has no output"
    failed = output.get("output", output.get("model_output")) is None and not output.get("scores")
    return f"{UNUSABLE}the model gave no output" if failed else ""


def _scores(call: Call) -> dict[str, Any]:
    held = field_of(call.held, "output.scores")
    if held is not None and not isinstance(held, dict):
        raise DataError(f"{call.where}: output.scores is {show(held)}; Weave writes an object of scorers")
    return dict(scalars("", held or {}))


def _feedback(
    calls: Sequence[Call], scored: Sequence[Call]
) -> tuple[dict[str, dict[str, list[Any]]], Counter[str]]:
    """Values by scored call and name of what was added to calls later, and how many are of other calls, by file."""
    own = {_id(call) for call in scored}
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    others: Counter[str] = Counter()
    for call in calls:
        held = field_of(call.held, "summary.weave.feedback")
        for one in held if isinstance(held, list) else []:
            values = dict(_added(call, one)) if isinstance(one, dict) else {}
            key = next((k for k in (_id(call), text_of(call.held.get("parent_id"))) if k in own), None)
            if key is None:
                others[call.file] += bool(values)
                continue
            for name, value in values.items():
                found[key][name].append(value)
    return found, others


def _added(call: Call, feedback: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Scores of one feedback: a person's annotation, or what a scorer gave that ran later."""
    kind = text_of(feedback.get("feedback_type") or "")
    if kind.startswith(SCORER):
        yield from scalars(kind.removeprefix(SCORER), field_of(feedback, "payload.output"))
    if kind.startswith(ANNOTATION):
        values = [value for _, value in scalars("", field_of(feedback, "payload.value"))]
        if len(values) != 1:
            raise DataError(f"{call.where}: annotation {show(kind)} has {len(values)} values; it has one")
        yield kind.removeprefix(ANNOTATION) + HUMAN, values[0]


def _aggregates(calls: Sequence[Call]) -> Iterator[Aggregate]:
    """Means that an evaluation's own summary holds, where a file has one evaluation."""
    whole = [call for call in calls if EVALUATED.search(text_of(call.held.get("op_name")))]
    count = Counter(call.file for call in whole)
    for call in whole:
        for path, value in scalars("", call.held.get("output")) if count[call.file] == 1 else ():
            for end in MEANS:
                if path.endswith(end) and (mean := number(value)) is not None:
                    yield Aggregate(
                        call.file, path.removesuffix(end), f"summary of the evaluation, {end[1:]},", mean
                    )
