"""Results of OpenCompass (``results/MODEL/DATASET.json`` with details): a verdict on each example of a dataset.

The directory of a file names the model, which is the policy; an example of the dataset is the prompt and its replicas
are draws. Scores are the verdicts: truth values, and `score`, also those of a rule and of a judge in one result
(``rule_evaluation.correct``, ``llm_evaluation.llm_correct``). A judge's bare letter counts as OpenCompass declares it:
A is correct and B is not; other letters need a scale. Numbers of other fields are answers or indices, and no grades.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.io.fields import show
from cje_core.io.intake.foreign import Aggregate, Asked, Contents, Item, named_by, text_of
from cje_core.io.intake.grades import number
from cje_core.io.intake.nested import scalars
from cje_core.io.intake.raw import stem_of
from cje_core.io.intake.recognize import File
from cje_core.io.intake.runs import unique

TITLE = "results of OpenCompass"
ROLES = {
    "policy": "the directory of the file",
    "prompt": "key of `details`, `example_abbr`, or place in the list; after the dataset where there are several",
    "draw": "replicas of an example",
    "scores": "truth values and `score` of a detail, by their path; a judge's letter in `prediction`: A 1, B 0",
    "left out": "answers, indices and texts; results without details; predictions, which have no grade",
}
EXAMPLE = "example_abbr"
LETTER = "prediction"  # of a judge: the answer is the judge's where results count those it attempted
ATTEMPTED = {"attempted_ratio", "accuracy_given_attempted"}
SCALE = {"a": 1.0, "b": 0.0, "correct": 1.0, "incorrect": 0.0}
NUMBERS = {"score"}  # verdicts that are no truth values
VERDICTS = {"correct", "is_correct", "cascade_correct", "llm_correct", *NUMBERS}  # whatever their value is
KIND = "type"  # key beside the details that says how they were made
DETAIL = {EXAMPLE, "pred", "predictions", "prediction", "references", "answer", "refr", "correct", "is_correct",
          "cascade_correct", "rule_evaluation", "origin_prompt", "prompt"}  # fmt: skip
MEAN = re.compile(r"(accuracy|score)(?: \(\d+ runs average\))?")


def knows(file: File) -> bool:
    """Return whether a file is results with details, or predictions."""
    return _is_predictions(file) or _is_results(file)


def _is_results(file: File) -> bool:
    held = file.value("details")
    first = next((detail for _, detail in _details(held) if isinstance(detail, dict)), {})
    return bool(DETAIL & first.keys()) and len(file.names) > 1


def _is_predictions(file: File) -> bool:
    first = file.value("0")
    return isinstance(first, dict) and {"origin_prompt", LETTER} <= first.keys()


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each example and replica."""
    results = [file for file in files if _is_results(file)]
    if not results:
        raise DataError(
            f"{files[0].path}: predictions of OpenCompass have no grade; give the directory results/ of the run, made "
            "with OpenCompass's option dump-eval-details"
        )
    several = len({stem_of(file.path) for file in results}) > 1
    items: list[Item] = []
    notes = [(str(file.path), "predictions have no grade") for file in files if not _is_results(file)]
    aggregates: list[Aggregate] = []
    for file in results:
        document = file.document
        if not isinstance(document, dict):
            raise DataError(f"{file.path}: it holds no object; give results that OpenCompass wrote")
        made, uneven = _items(file, document, f"{stem_of(file.path)}/" * several, asked)
        items += made
        if uneven:
            said = "differ in how many replicas have them, so it is open which: they are no scores there"
            notes.append((str(file.path), f"{', '.join(sorted(uneven))} {said}"))
        aggregates += _aggregates(file.path, document, made)
    field = asked.policy or "the directory of the file"
    roles = {"policy": field, "prompt": asked.prompt or "key of details", "draw": "replica"}
    return Contents(unique(items, field), roles, notes, aggregates, SCALE)


def _details(held: Any) -> Iterator[tuple[str, Any]]:
    """Key and fields of each detail."""
    pairs = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, detail in pairs:
        if key != KIND:
            yield text_of(detail.get(EXAMPLE, key) if isinstance(detail, dict) else key), detail


def _items(file: File, document: dict[str, Any], task: str, asked: Asked) -> tuple[list[Item], set[str]]:
    """Responses of a file, and the scores that only some replicas have."""
    path, letters = file.path, bool(ATTEMPTED & document.keys())
    items: list[Item] = []
    uneven: set[str] = set()
    for row, (key, detail) in enumerate(_details(document["details"]), 1):
        where = f"{path}, detail {row}"
        if not isinstance(detail, dict):
            raise DataError(f"{where}: {show(detail)}; a detail is an object")
        replicas, partial = _replicas(detail)
        alone = {name: value for name, value in detail.items() if not isinstance(value, list)}
        if replicas != [detail] and (single := _verdicts(alone, letters)):
            raise DataError(
                f"{where}: {min(single)} is {show(alone.get(min(single)))}, and its other fields are lists"
            )
        uneven |= {name for name in partial if _verdicts({name: next(iter(detail[name]), None)}, letters)}
        prompt = named_by(asked.prompt, [detail], where, "prompt") if asked.prompt else key
        policy = (
            named_by(asked.policy, [detail, document], where, "policy")
            if asked.policy
            else path.resolve().parent.name
        )
        for draw, replica in enumerate(replicas):
            answer = replica.get("pred", replica.get("origin_prediction"))
            response = answer if isinstance(answer, str) else None
            items.append(
                Item(str(path), row, policy, task + prompt, _verdicts(replica, letters), draw, response)
            )
    if not any(item.scores for item in items):
        raise DataError(f"{path}: no verdict in its details; its evaluator writes none for each example")
    return items, uneven


def _replicas(detail: dict[str, Any]) -> tuple[list[dict[str, Any]], set[str]]:
    """Fields of each replica, and the fields that only some replicas have.

    OpenCompass collects the replicas of an example in lists, by field, under the name of the example.
    """
    lists = {name: value for name, value in detail.items() if isinstance(value, list)}
    if EXAMPLE not in detail or not lists:
        return [detail], set()
    n = max(map(len, lists.values()))
    partial = {name for name, value in lists.items() if len(value) < n}
    return [
        {name: value[k] for name, value in lists.items() if name not in partial} for k in range(n)
    ], partial


def _verdicts(detail: Mapping[str, Any], letters: bool) -> dict[str, Any]:
    """Verdicts among the fields of a replica, by their path."""
    found = {}
    for name, value in scalars("", detail):
        known = name.rpartition(".")[2] in VERDICTS or (letters and name == LETTER)
        if known or isinstance(value, bool):
            found[name] = value
    return found


def _aggregates(path: Path, document: dict[str, Any], items: Sequence[Item]) -> Iterator[Aggregate]:
    """Mean that the file holds, where it is that of one verdict."""
    names = dict.fromkeys(name for item in items for name in item.scores)
    final = [name for name in names if name in ("cascade_correct", LETTER)] or [
        name for name in names if "." not in name
    ]
    if len(final) != 1 or final[0] in NUMBERS:
        return
    for key, value in document.items():
        if MEAN.fullmatch(key) and (mean := number(value)) is not None:
            # Some evaluators write a share, and most of them percent.
            yield Aggregate(str(path), final[0], key, mean / 100.0 if mean > 1.0 else mean)
