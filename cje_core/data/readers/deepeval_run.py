"""Test runs of deepeval: a run is a policy, an input a prompt, and each metric of a test case a score.

The hyperparameters that were logged with a run name its policy: the model, and those in which runs of one model differ.
A metric with an error has no score. Where test cases of one metric were graded by different models, each is a score of
its own, ``metric@model``. Metrics of the spans in a trace grade parts of a response and are left out.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
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
from cje_core.data.intake.grades import number
from cje_core.data.intake.nested import scalars
from cje_core.data.intake.raw import stem_of
from cje_core.data.intake.recognize import File
from cje_core.data.intake.runs import Run, arms, check_draws, numbered, setting

TITLE = "test run of deepeval"
ROLES = {
    "policy": "`hyperparameters.model` with those in which runs differ; else `identifier`, else the name of the file",
    "prompt": "`input` (of conversations `scenario`), with `expectedOutput` and `context` where one input has several",
    "draw": "test cases of one prompt in a run",
    "scores": "`metricsData`: `name`, with `@evaluationModel` where several models graded",
    "left out": "metrics with an error, metrics of spans in a trace, test cases without metrics",
}
LATEST = "testRunData"  # key under which deepeval keeps its latest run
SPANS = ("agentSpans", "toolSpans", "retrieverSpans", "llmSpans", "baseSpans")


class Case(NamedTuple):
    """A test case with its place."""

    path: Path
    row: int
    held: dict[str, Any]

    @property
    def where(self) -> str:
        """Place in messages."""
        return f"{self.path}, test case {self.row}"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Grades of the metrics; `DataError` where one is no object or has no name."""
        held = self.held.get("metricsData")
        if held is not None and not isinstance(held, list):
            raise DataError(f"{self.where}: metricsData is {show(held)}; deepeval writes a list of metrics")
        for one in held or []:
            if not isinstance(one, dict) or not one.get("name"):
                raise DataError(
                    f"{self.where}: a metric without a name ({show(one)}); give a run that deepeval wrote"
                )
        return held or []


def knows(file: File) -> bool:
    """Return whether a file is a test run."""
    return LATEST in file.names or {"testCases", "metricsScores"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each test case, with the scores of its metrics."""
    runs = [(file, _run(file)) for file in files]
    policies, role = _policies(runs)
    cases = [
        (policy, held, list(_cases(file, held))) for policy, (file, held) in zip(policies, runs, strict=True)
    ]
    every = [case for _, _, own in cases for case in own]
    graders = _graders(every)
    prompts = _prompts(every)
    items = []
    for policy, held, own in cases:
        for case in own:
            inner = (case.held.get("metadata"), held.get("hyperparameters"), held)
            places = [case.held, *(place for place in inner if isinstance(place, dict))]
            name = named_by(asked.policy, places, case.where, "policy") if asked.policy else policy
            prompt = prompts[_key(case)]
            if asked.prompt:
                prompt = named_by(asked.prompt, places, case.where, "prompt")
            scores, output = _scores(case, graders), case.held.get("actualOutput")
            response = output if isinstance(output, str) else None
            why = "" if scores else f"{UNUSABLE}the test case has no metric"
            items.append(Item(str(case.path), case.row, name, prompt, scores, response=response, why=why))
    field = asked.policy or role
    if not asked.policy:
        metadata = (case.held.get("metadata") for case in every)
        check_draws(items, [dict(scalars("metadata", held or {})) for held in metadata], field)
    roles = {"policy": field, "prompt": asked.prompt or "input", "draw": "test cases of one input in a run"}
    notes = [note for file, held in runs for note in _notes(file, held)]
    aggregates = [one for file, held in runs for one in _aggregates(file, held, graders)]
    return Contents(numbered(items, field), roles, notes, aggregates)


def _run(file: File) -> dict[str, Any]:
    """Return the test run of a file, also of the one that deepeval keeps as its latest."""
    held = file.document
    held = held.get(LATEST, held) if isinstance(held, dict) else held
    if not isinstance(held, dict) or not isinstance(held.get("testCases"), list):
        raise DataError(f"{file.path}: no list testCases in it; give a test run that deepeval wrote")
    return held


def _policies(runs: Sequence[tuple[File, dict[str, Any]]]) -> tuple[list[str], str]:
    """Policy of each run, and the fields that name it."""
    logged = [_settings(held) for _, held in runs]
    if all("model" in settings for settings in logged):
        models, role = [settings.pop("model") for settings in logged], "hyperparameters.model"
    elif all(held.get("identifier") for _, held in runs):
        models, role = [text_of(held["identifier"]) for _, held in runs], "identifier"
    else:
        models, role = [stem_of(file.path) for file, _ in runs], "the name of the file"
    policies, differ = arms([Run(name, "", settings) for name, settings in zip(models, logged, strict=True)])
    return policies, role + "".join(f" and {name}" for name in differ)


def _settings(run: dict[str, Any]) -> dict[str, str]:
    held = run.get("hyperparameters")
    return {text_of(k): setting(v) for k, v in held.items()} if isinstance(held, dict) else {}


def _cases(file: File, run: dict[str, Any]) -> Iterator[Case]:
    """Test cases of a run, those of one turn first."""
    conversations = run.get("conversationalTestCases")
    for row, case in enumerate(
        [*run["testCases"], *(conversations if isinstance(conversations, list) else [])], 1
    ):
        if not isinstance(case, dict):
            raise DataError(f"{file.path}, test case {row}: {show(case)}; a test case is an object")
        yield Case(file.path, row, case)


def _input(case: Case) -> str:
    for name in ("input", "scenario", "name"):
        if case.held.get(name):
            return text_of(case.held[name])
    raise DataError(f"{case.where}: input is missing; it is the prompt")


def _key(case: Case) -> str:
    """What a test case asks: its input, and what is expected; the context that was retrieved is the response's."""
    asked = {name: case.held.get(name) for name in ("expectedOutput", "expectedOutcome", "context")}
    return json.dumps([_input(case), {name: value for name, value in asked.items() if value}], sort_keys=True)


def _prompts(cases: Sequence[Case]) -> dict[str, str]:
    """Name of each prompt: its input, and the rest where one input has several."""
    keys = dict.fromkeys(map(_key, cases))
    several = Counter(json.loads(key)[0] for key in keys)
    return {key: key if several[json.loads(key)[0]] > 1 else json.loads(key)[0] for key in keys}


def _graders(cases: Sequence[Case]) -> dict[str, set[str]]:
    """Models that graded each metric."""
    found: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        for metric in case.metrics:
            if metric.get("error") is None:
                found[text_of(metric["name"])].add(text_of(metric.get("evaluationModel") or "no model"))
    return found


def _scores(case: Case, graders: dict[str, set[str]]) -> dict[str, Any]:
    """Score of each metric; a second of one name and model is ``name#2``."""
    scores: dict[str, Any] = {}
    for metric in case.metrics:
        name = text_of(metric["name"])
        if len(graders[name]) > 1:
            name += f"@{text_of(metric.get('evaluationModel') or 'no model')}"
        again = 1 + sum(other == name or other.startswith(f"{name}#") for other in scores)
        value = None if metric.get("error") is not None else metric.get("score")
        scores[name if again == 1 else f"{name}#{again}"] = value
    return scores


def _notes(file: File, run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    spans = 0
    for case in _cases(file, run):
        for kind in SPANS:
            held = field_of(case.held, f"trace.{kind}")
            inner = [span for span in held if isinstance(span, dict)] if isinstance(held, list) else []
            spans += sum(bool(span.get("metricsData")) for span in inner)
    if spans:
        yield (
            str(file.path),
            f"{spans} spans of traces have metrics: they grade parts of a response and are no scores",
        )


def _aggregates(file: File, run: dict[str, Any], graders: dict[str, set[str]]) -> Iterator[Aggregate]:
    """Means of the scores that the run itself lists for each metric."""
    held = run.get("metricsScores")
    for one in held if isinstance(held, list) else []:
        name = one.get("metric") if isinstance(one, dict) else None
        listed = one.get("scores") if isinstance(one, dict) else None
        values = [
            v for value in (listed if isinstance(listed, list) else []) if (v := number(value)) is not None
        ]
        if isinstance(name, str) and values and len(graders.get(name, ())) == 1:
            yield Aggregate(str(file.path), name, "mean of metricsScores", sum(values) / len(values))
