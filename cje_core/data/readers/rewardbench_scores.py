"""Scores of RewardBench and RewardBench 2 (columns or JSON lines): rewards of answers whose right ones are known.

They test a reward model or a judge and no policy: the model is the policy, an example the prompt, and its answers are
draws, the chosen before the rejected ones. ``judge`` is an answer's reward, ``label`` is 1 for a chosen one, and
``correct`` is RewardBench's own result of the example, in which a judge's tie or failure counts half.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import show
from cje_core.data.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.data.intake.grades import number
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.raw import stem_of
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import TEST_OF_A_JUDGE, unique

TITLE = "scores of RewardBench, which test a judge"
ROLES = {
    "policy": "`model`; else the name of the file",
    "prompt": "`id`, else `prompt`",
    "draw": "answers, the chosen first",
    "scores": "`judge`: reward of the answer; `label`: 1 for a chosen one; `correct`: `results`",
    "left out": "rewards of -1 of a generative judge, which failed there",
}
PAIR = ("scores_chosen", "scores_rejected")
FAILED = -1.0  # rating of an answer on which a generative judge gave none


def knows(file: File) -> bool:
    """Return whether a record holds results of examples, in columns or in rows."""
    columns = isinstance(file.value("results"), list) and isinstance(file.value("subset"), list)
    return columns or {"results", *PAIR} <= file.names or {"results", "scores", "num_correct"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each answer."""
    items: list[Item] = []
    differ: dict[str, int] = defaultdict(int)
    for file in files:
        seen: dict[str, int] = defaultdict(int)
        for row, record in _rows(file):
            where = f"{file.path}, example {row}"
            if asked.policy or record.get("model") is not None:
                policy = named_by(asked.policy or "model", [record], where, "policy")
            else:
                policy = stem_of(file.path).removesuffix("_outputs")
            prompt = (
                named_by(asked.prompt, [record], where, "prompt") if asked.prompt else _prompt(record, where)
            )
            seen[prompt] += record.get("id") is None
            if seen[prompt] > 1:  # examples without an id may ask one question
                prompt = f"{prompt}, {seen[prompt]}"
            answers = _answers(record, where)
            differ[str(file.path)] += _differs(answers)
            items += [
                Item(str(file.path), row, policy, prompt, scores, k) for k, scores in enumerate(answers)
            ]
    field = asked.policy or "model"
    roles = {"policy": field, "prompt": asked.prompt or "id", "draw": "answers of an example"}
    said = f"{CAUTION}results of %d examples are not what their rewards say"
    notes = [(str(files[0].path), TEST_OF_A_JUDGE), *((file, said % n) for file, n in differ.items() if n)]
    return Contents(unique(items, field), roles, notes)


def _rows(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Examples of a file; columns are lists of one length, beside what holds for all."""
    if not isinstance(file.value("results"), list):
        yield from rows_of(file.path)
        return
    held = file.document
    columns = {name: value for name, value in held.items() if isinstance(value, list)}
    shared = {name: value for name, value in held.items() if name not in columns}
    n = len(columns["results"])
    for name, values in columns.items():
        if len(values) != n:
            raise DataError(
                f"{file.path}: {name} has {len(values)} values, and results {n}; give what RewardBench wrote"
            )
    for k in range(n):
        yield k + 1, shared | {name: values[k] for name, values in columns.items()}


def _prompt(record: dict[str, Any], where: str) -> str:
    for name in ("id", "prompt"):
        value = record.get(name)
        if value not in (None, "", []):
            return json.dumps(value, sort_keys=True) if isinstance(value, list | dict) else text_of(value)
    raise DataError(f"{where}: neither id nor prompt is there")


def _answers(record: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Scores of each answer; of the example alone where the judge compared its answers."""
    correct = record.get("results")
    if all(name in record for name in PAIR):
        rewards, n_right = [record[name] for name in PAIR], 1
    elif record.get("scores") is not None:
        held, right = record["scores"], record.get("num_correct")
        if not isinstance(held, list) or not isinstance(right, int) or not 0 < right <= len(held):
            raise DataError(
                f"{where}: scores are {show(held)} and num_correct is {show(right)}; the right answers come first"
            )
        rewards, n_right = held, right
    else:
        return [{"correct": correct}]
    judged = "generative" in text_of(record.get("model_type") or "").lower()
    return [
        {"judge": _reward(value, judged), "label": float(k < n_right), "correct": correct}
        for k, value in enumerate(rewards)
    ]


def _differs(answers: Sequence[dict[str, Any]]) -> bool:
    """Whether the result of an example with one right answer is not what the rewards of its answers say."""
    rewards = [number(one.get("judge")) for one in answers]
    result = number(answers[0]["correct"])
    if result is None or None in rewards or sum(one["label"] for one in answers) != 1.0:
        return False
    known = [reward for reward in rewards if reward is not None]
    return (result > 0.0) != (known[0] == max(known) if len(known) > 2 else known[0] > known[1])


def _reward(value: Any, judged: bool) -> Any:
    """Reward of an answer, which some versions write as a list of one."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return None if judged and number(value) == FAILED else value
