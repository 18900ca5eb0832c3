"""Judgments of Arena-Hard (v0.1 and v2): a model's answer against a baseline's, in two games of either order.

In the first game A is the baseline and B the model, in the second they are swapped. A game that the model wins is 1, a
tie .5; the score is the mean of the two games, and a comparison of which one game has no verdict has none. Arena-Hard
counts a large win (``A>>B``) as three games; here it counts as one, so that a question is one response and the value
the model's rate of wins. A caution says the mean that the weights of Arena-Hard give.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import line, show
from cje_core.data.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of

TITLE = "judgments of Arena-Hard"
ROLES = {
    "policy": "`model`, against one baseline (files of v0.1 do not name it)",
    "prompt": "`uid`, `question_id`",
    "draw": "0",
    "scores": "`judge`, mean of two games: win 1, tie .5; a large win counts as one",
    "left out": "comparisons of which a game has no verdict; a caution has Arena-Hard's own mean",
}
# Win of A, and games that Arena-Hard counts it as.
VERDICTS = {"A>>B": (1.0, 3), "A>B": (1.0, 1), "A=B": (0.5, 1), "B=A": (0.5, 1), "A<B": (0.0, 1), "B>A": (0.0, 1),
            "A<<B": (0.0, 3), "B>>A": (0.0, 3), "B<A": (1.0, 1), "B<<A": (1.0, 3)}  # fmt: skip
APART = 0.0005  # of two means, from which the second is told


def knows(file: File) -> bool:
    """Return whether a row is a judgment of two games."""
    return {"model", "judge", "games"} <= file.names and bool({"question_id", "uid"} & file.names)


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each model and question, with the verdicts of all judges."""
    items: dict[tuple[str, str], Item] = {}
    baselines: dict[str, str] = {}
    games: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    categories: dict[str, set[str]] = defaultdict(set)
    prompt_field = asked.prompt or ("uid" if "uid" in files[0].names else "question_id")
    for path in (file.path for file in files):
        for row, record in rows_of(path):
            where = f"{path}, row {row}"
            policy = named_by(asked.policy or "model", [record], where, "policy")
            prompt = named_by(prompt_field, [record], where, "prompt")
            baseline = text_of(record.get("baseline"))
            if baselines.setdefault(prompt, baseline) != baseline:
                raise DataError(
                    f"{where}: the baseline is {show(baseline)}, and {show(baselines[prompt])} in another row of "
                    f"{show(prompt)}: give the judgments against one"
                )
            judge = text_of(record.get("judge"))
            categories[str(path)].add(text_of(record.get("category") or ""))
            item = items.setdefault((policy, prompt), Item(str(path), row, policy, prompt, {}))
            if judge in item.scores:
                raise DataError(
                    f"{where}: {judge} judged {show(policy)} on {show(prompt)} in {item.file}, row {item.row} too; "
                    "keep one"
                )
            verdicts = _verdicts(record.get("games"), where)
            known = [one for one in verdicts if one is not None]
            score = sum(won for won, _ in known) / 2 if len(known) == 2 else None
            if score is not None:
                games[str(path), policy, judge] += known
            items[policy, prompt] = item._replace(scores={**item.scores, judge: score})
    roles = {
        "policy": asked.policy or "model",
        "prompt": prompt_field,
        "draw": "none: two games are averaged",
    }
    mixed = [
        (
            file,
            f"{CAUTION}questions of {line(', '.join(sorted(own)), 80)} are in one mean; Arena-Hard has one for each",
        )
        for file, own in categories.items()
        if len(own) > 1
    ]
    return Contents(list(items.values()), roles, [*mixed, *_weighted(games)])


def _verdicts(held: Any, where: str) -> list[tuple[float, int] | None]:
    """Return the model's win of each game, and the games that Arena-Hard counts it as."""
    if not isinstance(held, list) or len(held) != 2:
        n = len(held) if isinstance(held, list) else "no"
        raise DataError(f"{where}: {n} games; a judgment has two, of either order")
    verdicts: list[tuple[float, int] | None] = []
    for game, swapped in zip(held, (False, True), strict=True):
        verdict = game.get("score") if isinstance(game, dict) else game
        if verdict is None or verdict == "":
            verdicts.append(None)
            continue
        if not isinstance(verdict, str) or verdict.strip() not in VERDICTS:
            raise DataError(
                f"{where}: verdict {show(verdict)} is none of {', '.join(VERDICTS)}; write null where there is none"
            )
        of_a, weight = VERDICTS[verdict.strip()]
        verdicts.append((of_a if swapped else 1.0 - of_a, weight))
    return verdicts


def _weighted(games: dict[tuple[str, str, str], list[tuple[float, int]]]) -> list[tuple[str, str]]:
    """Say where Arena-Hard's mean differs from the mean of games."""
    notes = []
    for (file, policy, judge), own in games.items():
        mean = sum(won for won, _ in own) / len(own)
        weighted = sum(won * weight for won, weight in own) / sum(weight for _, weight in own)
        if abs(mean - weighted) > APART:
            said = f"{mean:.3f}, and {weighted:.3f} where a large win counts three times, as in Arena-Hard"
            notes.append((file, f"{CAUTION}mean of {policy} by {judge} is {said}"))
    return notes
