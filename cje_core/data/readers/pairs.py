"""Comparisons of two models (MT-Bench, Chatbot Arena): a model's rate of wins at a question against an opponent.

Rows of ``question_id, model_a, model_b, winner, judge``, or of FastChat's judge with ``g1_winner`` and ``g2_winner``,
the two orders. A win is 1, a tie .5; both orders and all rows of a judge are averaged. Each comparison is a score of
either model: the prompt is the question, turn and opponent, so that models are compared where they met the same one,
and the question is the cluster. ``judge`` names the score; people are a pattern (``expert_*``), their votes averaged.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.intake.foreign import Asked, Head, Item, text_of
from cje_core.data.intake.rows import rows_of

TITLE = "comparisons of two models"
SIDES = (("model_a", "model_b", ("winner",)), ("model_1", "model_2", ("g1_winner", "g2_winner")))


def knows(head: Head) -> bool:
    """Whether a row compares two models."""
    return any({first, second, *winners} <= head.names for first, second, winners in SIDES)


def items(paths: Sequence[Path], asked: Asked) -> list[Item]:
    """A response for each model, question, turn and opponent."""
    wins: dict[tuple[str, str, str], dict[str, list[float | None]]] = {}
    places: dict[tuple[str, str, str], tuple[str, int]] = {}
    for path in paths:
        for row, record in rows_of(path):
            models, outcomes = _outcomes(path, row, record)
            question = record.get(asked.prompt or "question_id")
            if question is None:
                raise DataError(
                    f"{path}, row {row}: {asked.prompt or 'question_id'} is missing; it names the prompt"
                )
            judge = _judge(record.get("judge"))
            turn = f", turn {text_of(record['turn'])}" if record.get("turn") is not None else ""
            for model, opponent, sign in ((*models, 1), (*models[::-1], -1)):
                key = model, text_of(question), f"{text_of(question)}{turn}, against {opponent}"
                places.setdefault(key, (str(path), row))
                of_judge = wins.setdefault(key, defaultdict(list))[judge]
                of_judge += [None if won is None else won if sign > 0 else 1.0 - won for won in outcomes]
    found = []
    for key, judges in wins.items():
        model, question, prompt = key
        scores = {judge: _mean(values) for judge, values in judges.items()}
        found.append(Item(*places[key], model, prompt, scores, cluster=question))
    return found


def _outcomes(path: Path, row: int, record: dict[str, Any]) -> tuple[tuple[str, str], list[float | None]]:
    """The two models, and of each order 1 where the first won, 0 where the second did, .5 for a tie."""
    for first, second, winners in SIDES:
        if record.get(first) is not None and record.get(second) is not None:
            models = text_of(record[first]), text_of(record[second])
            if models[0] == models[1]:
                raise DataError(f"{path}, row {row}: {models[0]!r} is compared with itself; drop the row")
            return models, [_won(record.get(name), (first, second), models) for name in winners]
    raise DataError(f"{path}, row {row}: a model is missing; a comparison has two")


def _won(winner: Any, sides: tuple[str, str], models: tuple[str, str]) -> float | None:
    word = text_of(winner)
    if word in (sides[0], models[0]):
        return 1.0
    if word in (sides[1], models[1]):
        return 0.0
    return (
        0.5 if word.lower().startswith("tie") or word.lower() in ("both_bad", "both bad", "bothbad") else None
    )


def _judge(given: Any) -> str:
    """Name of a judge: FastChat's is a list of model and prompt."""
    if isinstance(given, list):
        return "/".join(text_of(part) for part in given)
    return "judge" if given is None else text_of(given)


def _mean(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None
