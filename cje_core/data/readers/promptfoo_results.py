"""Results of promptfoo (``-o results.json`` or ``.jsonl``): each assertion is a score, and a person's rating another.

A rating by hand overwrites the whole result's score, so that is never taken where components stand beside it: the judge
is a component, by its ``metric`` or the type of its assertion (a second of one type is ``llm-rubric#2``), the rating is
``human``. The provider is the policy (with several prompt templates each of the two together), the variables of a test
the prompt; repeats are its draws. Where the grader itself failed, promptfoo writes a score of 0 under the mark
``graderError``: that is no score.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.intake.foreign import UNUSABLE, Asked, Head, Item, number, text_of
from cje_core.data.intake.raw import raw_bytes
from cje_core.data.intake.rows import object_of, rows_of

TITLE = "results of promptfoo"
HUMAN = "human"
ERROR = 2  # of `failureReason`; 1 is an assertion that failed


def knows(head: Head) -> bool:
    """Whether a file begins as results of promptfoo do."""
    if head.kind == ".jsonl":
        return {"testIdx", "promptIdx", "gradingResult"} <= head.names
    return head.kind == ".json" and {"evalId", "results"} <= head.names


def items(paths: Sequence[Path], asked: Asked) -> list[Item]:
    """All results, with the components of their gradings."""
    found = [(path, row, one) for path in paths for row, one in _results(path)]
    templates: dict[str, int] = {}
    for _, _, one in found:
        templates.setdefault(_template(one), len(templates) + 1)
    of_test = _tests(found)
    taken: dict[tuple[str, str], int] = defaultdict(int)
    made = []
    for path, row, one in sorted(found, key=lambda f: (str(f[0]), _index(f[2], "testIdx"), f[1])):
        policy = _provider(path, row, one)
        if len(templates) > 1:
            policy += f", prompt {templates[_template(one)]}"
        prompt = of_test[_variables(one)]
        draw = taken[policy, prompt]
        taken[policy, prompt] += 1
        response, ended = _of(one, "response").get("output"), _ended(one)
        made.append(
            Item(
                str(path),
                row,
                policy,
                prompt,
                {} if ended else _scores(one),
                draw,
                response if isinstance(response, str) else None,
                why=f"{UNUSABLE}the call ended with an error" if ended else "",
            )
        )
    return made


def _results(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Number and object of each result of a file."""
    if path.suffix.lower() == ".jsonl":
        return list(rows_of(path))
    whole = object_of(path, raw_bytes(path), 1)
    inner: Any = whole.get("results") if isinstance(whole, dict) else None
    if isinstance(inner, dict):
        inner = inner.get("results")
    if not isinstance(inner, list) or not all(isinstance(one, dict) for one in inner):
        raise DataError(f"{path}: no list of results in it; give what promptfoo eval -o wrote")
    return list(enumerate(inner, 1))


def _ended(result: dict[str, Any]) -> bool:
    """Whether the call failed: ``error`` alone does not say it, an assertion that fails writes its reason there."""
    no_output = _of(result, "response").get("output") is None
    return result.get("failureReason") == ERROR or (no_output and bool(result.get("error")))


def _scores(result: dict[str, Any]) -> dict[str, float | None]:
    """Score of each component; the whole's only where there is no component."""
    grading = _of(result, "gradingResult")
    scores: dict[str, float | None] = {}
    parts = grading.get("componentResults")
    for part in parts if isinstance(parts, list) else []:
        if not isinstance(part, dict):
            continue
        assertion = _of(part, "assertion")
        kind = text_of(assertion.get("type") or "assertion")
        name = HUMAN if kind == HUMAN else text_of(assertion.get("metric") or kind)
        if name == HUMAN:  # the last rating is the one that counts
            scores[HUMAN] = _score(part)
            continue
        number_of = 1 + sum(other == name or other.startswith(f"{name}#") for other in scores)
        scores[name if number_of == 1 else f"{name}#{number_of}"] = _score(part)
    if not scores:
        scores["score"] = _score(grading or result)
    return scores


def _score(part: dict[str, Any]) -> float | None:
    if _of(part, "metadata").get("graderError") is True:
        return None
    value = part.get("score")
    return number(part.get("pass") if value is None else value)


def _provider(path: Path, row: int, result: dict[str, Any]) -> str:
    given = result.get("provider")
    name = (given.get("label") or given.get("id")) if isinstance(given, dict) else given
    if not name:
        raise DataError(f"{path}, result {row}: provider is missing; it is the policy")
    return text_of(name)


def _tests(found: Sequence[tuple[Path, int, dict[str, Any]]]) -> dict[str, str]:
    """Prompt of each set of variables: the number of the first test that has them."""
    first: dict[str, int] = {}
    for _, _, one in found:
        key, at = _variables(one), _index(one, "testIdx")
        first[key] = min(at, first.get(key, at))
    names: dict[str, str] = {}
    for key, at in sorted(first.items(), key=lambda entry: (entry[1], entry[0])):
        name = f"test {at}"
        names[key] = name if name not in names.values() else f"{name} of {key}"
    return names


def _variables(result: dict[str, Any]) -> str:
    given = result.get("vars") or _of(result, "testCase").get("vars")
    return json.dumps(given, sort_keys=True) if given else f"testIdx {result.get('testIdx')}"


def _template(result: dict[str, Any]) -> str:
    prompt = result.get("prompt")
    given = result.get("promptId") or (
        prompt.get("label") or prompt.get("raw") if isinstance(prompt, dict) else prompt
    )
    return text_of(given)


def _index(result: dict[str, Any], name: str) -> int:
    value = result.get(name)
    return value if isinstance(value, int) else -1


def _of(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
