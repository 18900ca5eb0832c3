"""Comparisons of two models (MT-Bench, Chatbot Arena): a model's rate of wins at a question against an opponent.

Rows of ``question_id, model_a, model_b, winner, judge``, or of FastChat's judge with ``g1_winner`` and ``g2_winner``,
the two orders. A win is 1, a tie or an inconsistent verdict .5; both orders and all rows of a judge are averaged, and a
comparison of which one order failed has no grade. Each comparison is a score of either model: the prompt is the
question, turn and opponent, so that models are compared where they met the same one, and the question is the cluster.
``judge`` names the score; people are a pattern (``expert_*``), their votes averaged.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.io.fields import show
from cje_core.io.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.io.intake.recognize import File
from cje_core.io.intake.rows import rows_of

TITLE = "comparisons of two models"
ROLES = {
    "policy": "each of the two models",
    "prompt": "`question_id`, turn and opponent",
    "draw": "0: rows of one judge are averaged",
    "scores": "`judge`; win 1, tie .5",
    "left out": "verdicts that are no winner, such as error",
}
SIDES = (("model_a", "model_b", ("winner",)), ("model_1", "model_2", ("g1_winner", "g2_winner")))
TIES = ("inconsistent", "both_bad", "both bad", "bothbad")
FAILED = ("error", "none", "nan", "", "null", "invalid", "unknown", "skip", "skipped")


def knows(file: File) -> bool:
    """Return whether a row compares two models."""
    return any({first, second, *winners} <= file.names for first, second, winners in SIDES)


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each model, question, turn and opponent."""
    if asked.policy:
        raise DataError(
            f"{files[0].path}: policy_field={asked.policy!r}: a comparison has two policies, its models; leave it out"
        )
    wins: dict[tuple[str, str, str], dict[str, list[float | None]]] = {}
    places: dict[tuple[str, str, str], tuple[str, int]] = {}
    for path in (file.path for file in files):
        for row, record in rows_of(path):
            models, outcomes = _outcomes(path, row, record)
            question = named_by(asked.prompt or "question_id", [record], f"{path}, row {row}", "prompt")
            judge = _judge(record.get("judge"))
            turn = f", turn {text_of(record['turn'])}" if record.get("turn") is not None else ""
            known = [won for won in outcomes if won is not None]
            # One order of two that failed says nothing: it would count the other order's verdict in full.
            won = sum(known) / len(known) if len(known) == len(outcomes) else None
            for model, opponent, share in (
                (*models, won),
                (*models[::-1], None if won is None else 1.0 - won),
            ):
                key = model, question, f"{question}{turn}, against {opponent}"
                places.setdefault(key, (str(path), row))
                wins.setdefault(key, defaultdict(list))[judge].append(share)
    items = []
    for key, judges in wins.items():
        model, question, prompt = key
        scores = {judge: _mean(values) for judge, values in judges.items()}
        items.append(Item(*places[key], model, prompt, scores, cluster=question))
    prompt_role = f"{asked.prompt or 'question_id'}, turn and opponent"
    return Contents(
        items, {"policy": "both models", "prompt": prompt_role, "draw": "none: rows are averaged"}
    )


def _outcomes(path: Path, row: int, record: dict[str, Any]) -> tuple[tuple[str, str], list[float | None]]:
    """Return the two models, and of each order 1 where the first won, 0 where the second did, .5 for a tie."""
    for first, second, winners in SIDES:
        if record.get(first) is not None and record.get(second) is not None:
            models = text_of(record[first]), text_of(record[second])
            if models[0] == models[1]:
                raise DataError(f"{path}, row {row}: {models[0]!r} is compared with itself; drop the row")
            return models, [
                _won(record.get(n), (first, second), models, f"{path}, row {row}") for n in winners
            ]
    raise DataError(f"{path}, row {row}: a model is missing; a comparison has two")


def _won(winner: Any, sides: tuple[str, str], models: tuple[str, str], where: str) -> float | None:
    if winner is None:
        return None
    word = text_of(winner).strip()
    if word in (sides[0], models[0]):
        return 1.0
    if word in (sides[1], models[1]):
        return 0.0
    if word.lower().startswith("tie") or word.lower() in TIES:
        return 0.5
    if word.lower() not in FAILED:
        raise DataError(
            f"{where}: winner {show(winner)} is neither model, nor a tie, nor an error; correct it"
        )
    return None


def _judge(given: Any) -> str:
    """Name of a judge: FastChat's is a list of model and prompt."""
    if isinstance(given, list):
        return "/".join(text_of(part) for part in given)
    return "judge" if given is None else text_of(given)


def _mean(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None
