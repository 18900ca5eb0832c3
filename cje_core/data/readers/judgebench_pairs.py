"""Judgments of JudgeBench (JSON lines of ``run_judge.py``): a judge's verdicts on pairs whose better answer is known.

They test the judge and no policy: the judge is the policy and a pair the prompt. ``judge`` is the share of orders in
which it prefers answer A, a tie counting half, and none where an order failed; ``label`` is 1 where A is the better
answer; ``correct`` is JudgeBench's own verdict on the judge, in which ties and failed orders are no votes.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import show
from cje_core.data.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.data.intake.raw import stem_of
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import TEST_OF_A_JUDGE, unique

TITLE = "judgments of JudgeBench, which test a judge"
ROLES = {
    "policy": "`judge_name`, with the judge's model that the file's name says",
    "prompt": "`pair_id`",
    "draw": "0",
    "scores": "`judge`: share of orders that prefer answer A; `label`: 1 where A is better; `correct`: judge is right",
    "left out": "`judge` where an order failed",
}
MODEL = re.compile(r"judge_model=([^,]+)$")
PREFERS_A = {"A>B": 1.0, "A>>B": 1.0, "A=B": 0.5, "B>A": 0.0, "B>>A": 0.0}


def knows(file: File) -> bool:
    """Return whether a row is a pair with a label."""
    return {"pair_id", "label", "response_A", "response_B"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each pair."""
    items = []
    for path in (file.path for file in files):
        for row, pair in rows_of(path):
            where = f"{path}, row {row}"
            orders, label = _orders(pair, where), _preference(pair.get("label"), f"{where}: label")
            policy = (
                named_by(asked.policy, [pair], where, "policy") if asked.policy else _judge(path, pair, where)
            )
            prompt = named_by(asked.prompt or "pair_id", [pair], where, "prompt")
            if label is None:
                raise DataError(f"{where}: label is missing; every pair of JudgeBench has one")
            votes = [(known > 0.5) - (known < 0.5) for known in orders if known is not None]
            correct = float(sum(votes) * ((label > 0.5) - (label < 0.5)) > 0)
            judged = (
                None if None in orders else sum(known for known in orders if known is not None) / len(orders)
            )
            scores = {"judge": judged, "label": label, "correct": correct}
            items.append(Item(str(path), row, policy, prompt, scores))
    field = asked.policy or "judge_name and the judge's model"
    roles = {"policy": field, "prompt": asked.prompt or "pair_id", "draw": "none"}
    return Contents(unique(items, field), roles, [(str(files[0].path), TEST_OF_A_JUDGE)])


def _judge(path: Path, pair: dict[str, Any], where: str) -> str:
    name, match = named_by("judge_name", [pair], where, "policy"), MODEL.search(stem_of(path))
    return f"{name}/{match[1]}" if match else name


def _orders(pair: dict[str, Any], where: str) -> list[float | None]:
    """Preference for answer A in each order; the second one shows the answers the other way round."""
    held = pair.get("judgments")
    if not isinstance(held, list) or len(held) not in (1, 2):
        raise DataError(f"{where}: judgments are {show(held)}; run_judge.py writes one or two for each pair")
    orders = []
    for k, judgment in enumerate(held):
        decision = judgment.get("decision") if isinstance(judgment, dict) else judgment
        known = _preference(decision, f"{where}: decision")
        orders.append(1.0 - known if k and known is not None else known)
    return orders


def _preference(verdict: Any, what: str) -> float | None:
    if verdict is None:
        return None
    known = PREFERS_A.get(text_of(verdict).replace(" ", ""))
    if known is None:
        raise DataError(f"{what} is {show(verdict)}; it is A>B, B>A, A=B or null")
    return known
