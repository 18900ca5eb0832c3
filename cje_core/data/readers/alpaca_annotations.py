"""Annotations of AlpacaEval (``annotations.json``): a model's output against a reference's, one comparison a row.

``preference`` is 1 where the reference (``generator_1``) is better, 2 where the model (``generator_2``) is, and between
the two where the annotator weighs; 1.5, and 0 in old files, is a tie and null no preference. The score is the
model's win rate, ``preference`` - 1. AlpacaEval's win rate leaves out the same rows; its length-controlled one differs.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import NOTHING, show
from cje_core.data.intake.foreign import Aggregate, Asked, Contents, Item, named_by, text_of
from cje_core.data.intake.grades import number
from cje_core.data.intake.keys import prompt_name
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.wide import check_repeats

TITLE = "annotations of AlpacaEval"
ROLES = {
    "policy": "`generator_2`; `generator_1` is the reference, one in all files",
    "prompt": "`instruction` (its text; a long one by its beginning and a number)",
    "draw": "outputs of one model to one instruction",
    "scores": "`annotator`, `preference` - 1: win 1, tie .5",
    "left out": "rows without a preference; the reference, whose win rate is the rest",
}
# Columns of an annotation; what AlpacaEval writes of the call begins with "preference_".
KNOWN = ("instruction", "output_1", "output_2", "generator_1", "generator_2", "dataset", "datasplit", "annotator",
         "preference", "preference_price_per_example", "preference_time_per_example", "preference_date",
         "preference_version", "preference_raw_completion", "price_per_example", "time_per_example", "date",
         "raw_completion", "is_switched_outputs", "referenced_models")  # fmt: skip
FIRST, SECOND = "generator_1", "generator_2"
TIE = 0.0  # in old files; 1.5 since


def knows(file: File) -> bool:
    """Return whether a row is a comparison of two outputs to an instruction."""
    return {"instruction", "output_1", "output_2", "preference"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each model, instruction and output, with the preferences of all annotators."""
    if asked.policy == FIRST:
        raise DataError(f"{files[0].path}: policy_field={FIRST!r}: it names the reference, whose wins are the losses; "
                        f"leave it out, or name {SECOND}")  # fmt: skip
    items: dict[tuple[str, str, str], Item] = {}
    held: list[dict[str, Any]] = []
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    preferences: dict[str, set[float | None]] = defaultdict(set)
    reference: tuple[str, str] | None = None
    for path in (file.path for file in files):
        for row, record in rows_of(path):
            where = f"{path}, row {row}"
            policy = named_by(asked.policy or SECOND, [record], where, "policy")
            prompt = prompt_name(named_by(asked.prompt or "instruction", [record], where, "prompt"))
            reference = reference or (text_of(record.get(FIRST)), where)
            if text_of(record.get(FIRST)) != reference[0]:
                raise DataError(
                    f"{where}: the reference is {show(record.get(FIRST))}, and {show(reference[0])} in {reference[1]}: "
                    "win rates against two references have no common meaning; give the files of one"
                )
            output, name = record.get("output_2"), text_of(record.get("annotator") or "preference")
            key = policy, prompt, json.dumps(output, sort_keys=True)
            if key not in items:
                group = groups[policy, prompt]
                text = output if isinstance(output, str) else None
                items[key] = Item(str(path), row, policy, prompt, {}, len(group), text)
                group.append(len(held))
                held.append(record)
            item = items[key]
            if name in item.scores:
                raise DataError(
                    f"{where}: {name} annotated this output of {show(policy)} to {show(prompt)} in {item.file}, row "
                    f"{item.row} too; keep one"
                )
            preferences[str(path)].add(number(record.get("preference")))
            items[key] = item._replace(scores={**item.scores, name: _won(record.get("preference"), where)})
    made = list(items.values())
    check_repeats(made, held, groups, KNOWN, asked)
    notes = [
        (
            file,
            f"{CAUTION}no preference is above 1, and some are 0: AlpacaEval writes 2 for a win, and 0 is a tie",
        )
        for file, values in preferences.items()
        if 0.0 in values and max(value or 0.0 for value in values) <= 1
    ]
    roles = {"policy": asked.policy or SECOND, "prompt": asked.prompt or "instruction",
             "draw": "outputs of one model to one instruction"}  # fmt: skip
    return Contents(made, roles, notes, [one for file in files for one in _aggregates(file.path, made)])


def _won(preference: Any, where: str) -> float | None:
    """Return the model's win of a preference."""
    value = number(preference)
    if preference is None or str(preference).strip().lower() in NOTHING:
        return None
    if value == TIE:
        return 0.5
    if value is None or not 1 <= value <= 2:
        raise DataError(
            f"{where}: preference is {show(preference)}; it is from 1 to 2, or 0 for a tie; correct it"
        )
    return value - 1


def _aggregates(path: Path, items: Sequence[Item]) -> Iterator[Aggregate]:
    """Yield the win rate of the leaderboard that AlpacaEval wrote beside its annotations."""
    beside = path.parent / "leaderboard.csv"
    own = [item for item in items if item.file == str(path)]
    if len({item.policy for item in own}) != 1 or len({name for item in own for name in item.scores}) != 1:
        return
    try:
        with beside.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error):
        return
    for row in rows:
        rate = number(row.get("win_rate"))
        if row.get("") == own[0].policy and rate is not None:
            yield Aggregate(str(path), next(iter(own[0].scores)), f"win_rate in {beside.name}", rate / 100)
