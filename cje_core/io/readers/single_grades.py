"""Single grades of FastChat's judge (MT-Bench): a model's answer to a turn of a question, graded from 1 to 10.

Rows of ``question_id, model, judge, turn, score``. The model is the policy, the question the prompt and the turn the
draw, so that questions are the sampling units. FastChat writes -1 where it found no grade in the judge's answer.
"""

from collections.abc import Sequence

from cje_core.data.errors import DataError
from cje_core.io.fields import show
from cje_core.io.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.io.intake.grades import number
from cje_core.io.intake.recognize import File
from cje_core.io.intake.rows import rows_of

TITLE = "single grades of MT-Bench"
ROLES = {
    "policy": "`model`",
    "prompt": "`question_id`",
    "draw": "`turn` - 1",
    "scores": "`judge`, 1 to 10",
    "left out": "-1, where the judge's answer has no grade",
}
UNGRADED = -1.0


def knows(file: File) -> bool:
    """Return whether a row is one model's grade."""
    return {"question_id", "model", "judge", "score", "turn"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each model, question and turn, with the grades of all judges."""
    items: dict[tuple[str, str, int], Item] = {}
    for path in (file.path for file in files):
        for row, record in rows_of(path):
            where = f"{path}, row {row}"
            policy = named_by(asked.policy or "model", [record], where, "policy")
            prompt = named_by(asked.prompt or "question_id", [record], where, "prompt")
            turn, grade = number(record.get("turn")), record.get("score")
            if turn is None or turn < 1 or turn != int(turn):
                raise DataError(f"{where}: turn is {show(record.get('turn'))}; FastChat counts them from 1")
            judge = record.get("judge")
            name = "/".join(map(text_of, judge)) if isinstance(judge, list) else text_of(judge)
            key = policy, prompt, int(turn) - 1
            item = items.setdefault(key, Item(str(path), row, policy, prompt, {}, key[2]))
            if name in item.scores:
                raise DataError(
                    f"{where}: {name} graded turn {int(turn)} of {show(prompt)} by {show(policy)} in {item.file}, row "
                    f"{item.row} too; keep one"
                )
            graded = None if number(grade) == UNGRADED else grade
            items[key] = item._replace(scores={**item.scores, name: graded})
    roles = {"policy": asked.policy or "model", "prompt": asked.prompt or "question_id", "draw": "turn"}
    return Contents(list(items.values()), roles)
