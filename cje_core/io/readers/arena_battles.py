"""Battles of the Chatbot Arena as on Kaggle (LMSYS, 55k): two models answer a prompt, a person says which is better.

The winner is one of three columns of 0 and 1. The votes are of people: they are the score ``human``, a label of either
model's answer, and the file has no judge. A column that is added to it holds a judge's probability that ``model_a``
wins; ``model_b`` has the rest. Prompts and responses are JSON lists of turns.
"""

import json
from collections.abc import Sequence
from typing import Any

from cje_core.data.errors import DataError
from cje_core.io.fields import show
from cje_core.io.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.io.intake.grades import number
from cje_core.io.intake.keys import prompt_name
from cje_core.io.intake.names import CAUTION
from cje_core.io.intake.recognize import File
from cje_core.io.intake.rows import rows_of

TITLE = "battles of the Chatbot Arena with a column for each winner"
ROLES = {
    "policy": "each of the two models",
    "prompt": "`id` of the battle; battles of one text of `prompt` are one cluster",
    "draw": "0",
    "scores": "`human`: a person's vote, win 1, tie .5, for the oracle; the judge's is a column that you add, its "
    "probability that `model_a` wins",
    "left out": "nothing; rows without exactly one winner are refused",
}
WINNERS = ("winner_model_a", "winner_model_b", "winner_tie")
WON = (1.0, 0.0, 0.5)  # win of model_a
HUMAN = "human"
KNOWN = {
    "",
    "id",
    "question_id",
    "model_a",
    "model_b",
    "prompt",
    "response_a",
    "response_b",
    "language",
    *WINNERS,
}


def knows(file: File) -> bool:
    """Return whether a row compares two models, with a column for each winner."""
    return {"model_a", "model_b", *WINNERS} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response of either model for each battle."""
    if asked.policy:
        raise DataError(
            f"{files[0].path}: policy_field={asked.policy!r}: a battle has two policies, its models; leave it out"
        )
    items = []
    seen: dict[str, str] = {}
    judged = False
    for path in (file.path for file in files):
        for row, record in rows_of(path):
            where = f"{path}, row {row}"
            prompt = named_by(asked.prompt or "id", [record], where, "prompt")
            if prompt in seen:
                raise DataError(f"{where}: battle {show(prompt)} is already in {seen[prompt]}; keep one")
            seen[prompt] = where
            models = [named_by(name, [record], where, "policy") for name in ("model_a", "model_b")]
            if models[0] == models[1]:
                raise DataError(f"{where}: {show(models[0])} is compared with itself; drop the row")
            votes = {HUMAN: _won(record, where), **_added(record, where)}
            judged |= len(votes) > 1
            cluster = None if record.get("prompt") is None else prompt_name(text_of(record["prompt"]))
            for side, model in enumerate(models):
                scores = {name: one if one is None or side == 0 else 1.0 - one for name, one in votes.items()}
                text = _text(record.get(("response_a", "response_b")[side]))
                items.append(Item(str(path), row, model, prompt, scores, response=text, cluster=cluster))
    votes_only = [(str(files[0].path), f"{CAUTION}the votes are of people, and no judge is in the file: add a column "
                   "of a judge's probability that model_a wins, and take these votes with oracle=human")]  # fmt: skip
    roles = {"policy": "both models", "prompt": asked.prompt or "id", "draw": "none"}
    return Contents(items, roles, [] if judged else votes_only)


def _won(record: dict[str, Any], where: str) -> float:
    """Return the win of model_a by the person's vote."""
    votes = [number(record.get(name)) for name in WINNERS]
    if sorted(votes, key=str) != [0.0, 0.0, 1.0]:
        held = ", ".join(f"{name} {show(record.get(name))}" for name in WINNERS)
        raise DataError(f"{where}: {held}: one of the three is 1, the others 0; correct the row")
    return WON[votes.index(1.0)]


def _added(record: dict[str, Any], where: str) -> dict[str, float | None]:
    """Return the numbers of further columns: probabilities that model_a wins."""
    added = {name: number(value) for name, value in record.items() if name not in KNOWN}
    for name, value in added.items():
        if value is not None and not 0 <= value <= 1:
            raise DataError(
                f"{where}: {name} is {value:g}; a judge's probability that model_a wins is in [0, 1]: drop it"
            )
        if value is None and record[name] is not None:
            raise DataError(
                f"{where}: {name} is {show(record[name])}; a further column is a judge's number: drop it"
            )
    return added


def _text(turns: Any) -> str | None:
    """Return the turns of a response as one text; a turn may be null."""
    if isinstance(turns, str):
        try:
            turns = json.loads(turns)
        except (ValueError, RecursionError):
            return str(turns)
    return "\n".join(turn for turn in turns if isinstance(turn, str)) if isinstance(turns, list) else None
