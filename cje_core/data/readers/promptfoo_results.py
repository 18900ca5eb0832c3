"""Results of promptfoo (``-o results.json`` or ``.jsonl``): each metric is a score, and a person's rating another.

A rating by hand overwrites the whole result's score, so that is never taken where components stand beside it: the judge
is a metric, the weighted mean of the assertions that carry it, or an assertion by its type (a second of one type is
``llm-rubric#2``), or a named score that a script or a derived metric gave; the rating is ``human``. A column of the
results, provider and prompt template, is a policy; a test is a prompt, and its repeats are draws. Where the grader
itself failed, promptfoo writes a score of 0 under the mark ``graderError``: that is no score.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
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
from cje_core.data.intake.keys import FILLED, plain
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of

TITLE = "results of promptfoo"
ROLES = {
    "policy": "`provider`, with its prompt template or configuration where one provider has several (`promptIdx`)",
    "prompt": "`testIdx`, the variables of the test",
    "draw": "repeats of a test",
    "scores": "`metric` (weighted mean of its assertions), type of an assertion, named score; `human`: rating by hand",
    "left out": "calls that ended with an error; grades under `graderError` are none",
}
HUMAN = "human"
MANUAL = "manual result"  # begins the reason of a result that a person rated
ERROR = 2  # of `failureReason`; 1 is an assertion that failed


class Result(NamedTuple):
    """A result with its place."""

    path: Path
    row: int
    held: dict[str, Any]

    @property
    def where(self) -> str:
        """Place in messages."""
        return f"{self.path}, result {self.row}"

    @property
    def test(self) -> int:
        """Number of the test; repeats have numbers of their own."""
        return _index(self.held, "testIdx")


def knows(file: File) -> bool:
    """Return whether a file begins as results of promptfoo do."""
    return {"testIdx", "promptIdx", "gradingResult"} <= file.names or {"evalId", "results"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read all results, with the grades of their metrics and assertions."""
    results = [one for file in files for one in _results(file)]
    results.sort(key=lambda one: (str(one.path), one.test, one.row))
    policies, role = _policies(results)
    prompt_of = _prompts(results)
    draws: dict[tuple[str, str], int] = defaultdict(int)
    first: dict[tuple[str, str], Result] = {}
    items = []
    for one, policy in zip(results, policies, strict=True):
        if asked.policy:
            policy = named_by(asked.policy, [one.held], one.where, "policy")
        prompt = (
            named_by(asked.prompt, [one.held, _of(one.held, "vars")], one.where, "prompt")
            if asked.prompt
            else prompt_of[str(one.path), one.test]
        )
        key = policy, prompt
        before = first.setdefault(key, one)
        _check_repeat(before, one, key)
        response, ended = _of(one.held, "response").get("output"), _ended(one.held)
        items.append(
            Item(
                str(one.path),
                one.row,
                *key,
                {} if ended else _scores(one.held),
                draws[key],
                response if isinstance(response, str) else None,
                why=f"{UNUSABLE}the call ended with an error" if ended else "",
            )
        )
        draws[key] += 1
    roles = {
        "policy": asked.policy or role,
        "prompt": asked.prompt or "testIdx and vars",
        "draw": "repeats of a test",
    }
    return Contents(items, roles, aggregates=_aggregates(results))


def _results(file: File) -> list[Result]:
    """Return the results of a file with their places."""
    if "results" not in file.names:
        return [Result(file.path, row, one) for row, one in rows_of(file.path)]
    inner: Any = file.document.get("results") if isinstance(file.document, dict) else None
    if isinstance(inner, dict):
        inner = inner.get("results")
    if not isinstance(inner, list) or not all(isinstance(one, dict) for one in inner):
        raise DataError(f"{file.path}: no list of results in it; give what promptfoo eval -o wrote")
    return [Result(file.path, row, one) for row, one in enumerate(inner, 1)]


def _column(one: Result) -> tuple[str, str]:
    """Provider and prompt template of a result."""
    return _provider(one), _template(one)


def _policies(results: Sequence[Result]) -> tuple[list[str], str]:
    """Policy of each result: its provider, and its template or configuration where the provider has several."""
    templates = list(dict.fromkeys(template for _, template in map(_column, results)))
    of_provider: dict[str, set[str]] = defaultdict(set)
    indices: dict[tuple[str, str, str], set[int]] = defaultdict(set)  # of one provider and template in a file
    for one in results:
        provider, template = _column(one)
        of_provider[provider].add(template)
        indices[str(one.path), provider, template].add(_index(one.held, "promptIdx"))
    twice = {key[1:] for key, held in indices.items() if len(held) > 1}
    names, role = [], "provider"
    for one in results:
        provider, template = name, _ = _column(one)
        if len(of_provider[provider]) > 1:
            name, role = f"{name}, prompt {templates.index(template) + 1}", "provider and prompt template"
        if (provider, template) in twice:
            same = sorted(indices[str(one.path), provider, template])
            name = f"{name}, configuration {same.index(_index(one.held, 'promptIdx')) + 1}"
            role = "provider and promptIdx"
        names.append(name)
    return names, role


def _provider(one: Result) -> str:
    given = one.held.get("provider")
    name = (given.get("label") or given.get("id")) if isinstance(given, dict) else given
    if not name:
        raise DataError(f"{one.where}: provider is missing; it is the policy")
    return text_of(name)


def _template(one: Result) -> str:
    """Identity of the prompt template; what is rendered from it differs by test and is none."""
    prompt = one.held.get("prompt")
    label = prompt.get("label") if isinstance(prompt, dict) else None
    return text_of(one.held.get("promptId") or label or one.held.get("promptIdx"))


def _prompts(results: Sequence[Result]) -> dict[tuple[str, int], str]:
    """Prompt of each file's tests: tests of the same variables and assertions are repeats of the first of them."""
    together: dict[tuple[str, int], list[Result]] = defaultdict(list)
    for one in results:
        together[str(one.path), one.test].append(one)
    first: dict[str, int] = {}
    keys = {}
    for test, own in together.items():
        keys[test] = key = _key(own)
        first[key] = min(test[1], first.get(key, test[1]))
    names: dict[str, str] = {}
    for key, at in sorted(first.items(), key=lambda entry: (entry[1], entry[0])):
        name = f"test {at}"
        names[key] = name if name not in names.values() else f"{name} of {key}"
    return {test: names[key] for test, key in keys.items()}


def _key(own: Sequence[Result]) -> str:
    """What a test is: the variables that all its results share, but for those that the run fills in, and its checks."""
    variables = [_of(one.held, "vars") or _of(_of(one.held, "testCase"), "vars") for one in own]
    shared = {
        name: value
        for name, value in variables[0].items()
        if plain(name) not in FILLED and all(other.get(name) == value for other in variables)
    }
    case = _of(own[0].held, "testCase")
    checks = {name: case[name] for name in ("description", "assert") if case.get(name)}
    if not shared:
        return f"testIdx {own[0].test}"
    return json.dumps([shared, checks] if checks else shared, sort_keys=True)


def _check_repeat(before: Result, one: Result, key: tuple[str, str]) -> None:
    """Stop at a further response that is no repeat: of another file, or of another column of the same test."""
    if one is before:
        return
    if one.path != before.path:
        what = f"is already in {before.where}: two runs"
    elif one.test == before.test:
        what = f"is already in result {before.row}, another column of test {one.test}"
    else:
        return
    raise DataError(
        f"{one.where}: a response of {show(key[0])} to {show(key[1])} {what}; keep one, or name what tells them apart "
        "with policy_field=NAME"
    )


def _ended(result: dict[str, Any]) -> bool:
    """Whether the call failed: ``error`` alone does not say it, an assertion that fails writes its reason there."""
    no_output = _of(result, "response").get("output") is None
    return result.get("failureReason") == ERROR or (no_output and bool(result.get("error")))


def _scores(result: dict[str, Any]) -> dict[str, Any]:
    """Grade of each metric, assertion without one, and named score; the whole's only where there is none of these."""
    grading = _of(result, "gradingResult")
    scores: dict[str, Any] = {}
    weighted: dict[str, list[tuple[float, float | None]]] = defaultdict(list)
    failed = False
    held = grading.get("componentResults")
    parts = [one for one in (held if isinstance(held, list) else []) if isinstance(one, dict)]
    for part in parts:
        assertion = _of(part, "assertion")
        kind, metric = text_of(assertion.get("type") or "assertion"), assertion.get("metric")
        failed |= _of(part, "metadata").get("graderError") is True
        if kind == HUMAN:  # the last rating is the one that counts
            scores[HUMAN] = _score(part)
        elif metric:
            weight = number(assertion.get("weight"))
            weighted[text_of(metric)].append((1.0 if weight is None else weight, number(_score(part))))
        else:
            again = 1 + sum(other == kind or other.startswith(f"{kind}#") for other in scores)
            scores[kind if again == 1 else f"{kind}#{again}"] = _score(part)
    scores |= {name: _weighted(held) for name, held in weighted.items()}
    if not scores:
        by_hand = text_of(grading.get("reason") or "").lower().startswith(MANUAL)
        scores[HUMAN if by_hand else "score"] = _score(grading or result)
    by_script = {name: value for part in parts for name, value in _of(part, "namedScores").items()}
    for named in (_of(grading, "namedScores"), _of(result, "namedScores")):
        for name, value in named.items():
            if name not in weighted:
                # A metric that is derived from a grade which failed is none either.
                scores[name] = None if failed and name not in by_script else value
    scores = by_script | scores
    return scores


def _score(part: dict[str, Any]) -> Any:
    if _of(part, "metadata").get("graderError") is True:
        return None
    value = part.get("score")
    return part.get("pass") if value is None else value


def _weighted(parts: Sequence[tuple[float, float | None]]) -> float | None:
    """Mean by weight; none where a part failed, and the plain mean where no part weighs anything."""
    total = sum(weight for weight, _ in parts)
    values = [value for _, value in parts if value is not None]
    if len(values) < len(parts):
        return None
    if total <= 0:
        return sum(values) / len(values)
    return sum(weight * value for (weight, _), value in zip(parts, values, strict=True)) / total


def _aggregates(results: Sequence[Result]) -> list[Aggregate]:
    """Means of the named scores as the results have them: they say whether weights are read as promptfoo does."""
    held: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in results:
        if not _ended(one.held):
            named = field_of(one.held, "gradingResult.namedScores")
            for name, value in (named if isinstance(named, dict) else {}).items():
                if (score := number(value)) is not None:
                    held[str(one.path), name].append(score)
    return [
        Aggregate(file, name, "mean of namedScores", sum(values) / len(values))
        for (file, name), values in held.items()
    ]


def _index(result: dict[str, Any], name: str) -> int:
    value = result.get(name)
    return value if isinstance(value, int) else -1


def _of(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
