"""Event logs of openai/evals (JSON lines): a run is a policy, a sample a prompt, and its graded events are scores.

``match`` is whether a sample's answer was right; each number or word of a ``metrics`` event is a score by its name, and
several of one sample are averaged. The completion function names the policy, with the arguments of the eval in which
runs of one function differ; in a model-graded eval the last of several functions is the judge, and no part of it.
"""

from collections import defaultdict
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
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.nested import scalars, without_texts
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import Run, arms, setting, unique

TITLE = "event log of openai/evals"
ROLES = {
    "policy": "`spec.completion_fns` without a model-graded eval's judge, with `spec.run_config` where runs differ",
    "prompt": "`sample_id`, after `spec.eval_name` where there are several",
    "draw": "0: two runs of one eval are refused",
    "scores": "`match` (`data.correct`), each number or word of `metrics` by its name",
    "left out": "events that grade nothing; samples that ended with an error",
}
MATCH = "match"
GRADED = "modelgraded"  # in the class of an eval whose last completion function is the judge
MEANS = {"accuracy": MATCH}  # of the final report, where it names another score than the events


class Log(NamedTuple):
    """A log: what its run was, and its events with their rows."""

    file: File
    spec: dict[str, Any]
    events: list[tuple[int, dict[str, Any]]]
    report: dict[str, Any]


def knows(file: File) -> bool:
    """Return whether a file begins with the specification of a run."""
    spec = file.value("spec")
    return isinstance(spec, dict) and "completion_fns" in spec


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each sample, with the grades of all its events."""
    logs = [_log(file) for file in files]
    runs = [_run(log) for log in logs]
    policies, differ = arms(runs)
    several = len({run.task for run in runs}) > 1
    items: list[Item] = []
    twice: list[tuple[str, str]] = []
    for log, run, arm in zip(logs, runs, policies, strict=True):
        grades, first, failed, answers = _samples(log)
        config = log.spec.get("run_config")
        places = [log.spec, config if isinstance(config, dict) else {}]
        policy = named_by(asked.policy, places, str(log.file.path), "policy") if asked.policy else arm
        if asked.prompt not in (None, "sample_id"):
            raise DataError(
                f"{log.file.path}: prompt_field={asked.prompt!r}: a sample has sample_id alone; leave it out"
            )
        for sample, row in first.items():
            held = grades.get(sample, {})
            why = f"{UNUSABLE}the sample ended with an error" if sample in failed and not held else ""
            items.append(
                Item(str(log.file.path), row, policy, f"{run.task}/" * several + sample,
                     {name: joined(values) for name, values in held.items()}, response=answers.get(sample), why=why)
            )  # fmt: skip
        names = sorted({name for held in grades.values() for name, values in held.items() if len(values) > 1})
        if names:
            twice.append(
                (
                    str(log.file.path),
                    f"{CAUTION}samples have several grades of {', '.join(names)}: their mean counts",
                )
            )
    field = asked.policy or "completion_fns" + "".join(f" and {name}" for name in differ)
    items, notes = without_texts(unique(items, field), several=True)
    roles = {"policy": field, "prompt": "sample_id" + " and eval_name" * several, "draw": "none"}
    return Contents(items, roles, [*notes, *twice], [one for log in logs for one in _aggregates(log)])


def _log(file: File) -> Log:
    spec: dict[str, Any] = {}
    report: dict[str, Any] = {}
    events = []
    for row, record in rows_of(file.path):
        if isinstance(record.get("spec"), dict):
            if spec:
                raise DataError(f"{file.path}, row {row}: a second run begins; give a log of one run each")
            spec = record["spec"]
        elif "final_report" in record:
            report = record["final_report"] if isinstance(record["final_report"], dict) else {}
        elif record.get("type") is not None:
            events.append((row, record))
        else:
            raise DataError(f"{file.path}, row {row}: type is missing; every event has one")
    return Log(file, spec, events, report)


def _run(log: Log) -> Run:
    """Model, eval and settings of a run."""
    functions = log.spec.get("completion_fns")
    names = [text_of(one) for one in functions] if isinstance(functions, list) else []
    evaluated = field_of(log.spec, "run_config.eval_spec")
    evaluated = evaluated if isinstance(evaluated, dict) else {}
    if GRADED in text_of(evaluated.get("cls") or "") and len(names) > 1:
        names = names[:-1]
    if not names:
        raise DataError(f"{log.file.path}: completion_fns is {show(functions)}; it names the policy")
    settings = dict(scalars("args", evaluated.get("args") or {}))
    task = text_of(log.spec.get("eval_name") or "")
    return Run("+".join(names), task, {name: setting(value) for name, value in settings.items()})


Samples = tuple[dict[str, dict[str, list[Any]]], dict[str, int], set[str], dict[str, str]]


def _samples(log: Log) -> Samples:
    """Grades by sample and name, the first row of each sample, those with an error, and answers."""
    grades: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    first: dict[str, int] = {}
    failed: set[str] = set()
    answers: dict[str, str] = {}
    for row, event in log.events:
        kind, data = event.get("type"), event.get("data")
        if event.get("sample_id") is None:
            raise DataError(f"{log.file.path}, row {row}: sample_id is missing; every event has one")
        sample = text_of(event["sample_id"])
        first.setdefault(sample, row)
        if not isinstance(data, dict):
            if kind in (MATCH, "metrics"):
                raise DataError(
                    f"{log.file.path}, row {row}: data is {show(data)}; a graded event has an object"
                )
            data = {}
        if kind == MATCH:
            grades[sample][MATCH].append(data.get("correct"))
        elif kind == "metrics":
            for name, value in scalars("", data):
                grades[sample][name].append(value)
        elif kind == "error":
            failed.add(sample)
        elif kind == "sampling" and isinstance(data.get("sampled"), str):
            answers.setdefault(sample, data["sampled"])  # a judge's own words come later
    return grades, first, failed, answers


def _aggregates(log: Log) -> Iterator[Aggregate]:
    """Means of the final report."""
    held = {name for _, event in log.events if isinstance(event.get("data"), dict) for name in event["data"]}
    for name, value in log.report.items():
        score = name if name in held else MEANS.get(name)
        if score is not None and (mean := number(value)) is not None:
            yield Aggregate(str(log.file.path), score, f"{name} of the final report", mean)
