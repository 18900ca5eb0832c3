"""Tables of promptfoo (``-o results.csv``, the web page's CSV, Google Sheets): a row is a test, a column its outputs.

Since 2026 an output is followed by columns ``Status``, ``Score``, ``Named Scores``, ``Metric: NAME``, ``Grader Reason``
and ``Comment``, of each prompt in turn; before, an output is ``[PASS] (0.80, metric: 0.50) text``, on the web page
``[PASS] text`` without a number. Scores have two decimals, and a grader that failed is not told from a grade of 0: the
results as JSON say more. A rating by hand overwrites the score, and its reason begins "Manual result": it is ``human``.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cje_core.data.errors import DataError
from cje_core.data.fields import line, show
from cje_core.data.intake.cells import csv_rows
from cje_core.data.intake.foreign import UNUSABLE, Asked, Contents, Item
from cje_core.data.intake.grades import number
from cje_core.data.intake.keys import FILLED, plain, prompt_name
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.recognize import File

TITLE = "table of promptfoo"
ROLES = {
    "policy": "`provider` of an output's column, with its prompt or configuration where one provider has several",
    "prompt": "the variables of the test, without those that the run fills in",
    "draw": "tests of the same variables",
    "scores": "`score` of the whole, named scores; `pass` where there is no number; `human`: rating by hand",
    "left out": "calls that ended with an error",
}
OUTPUT = re.compile(r"\[(PASS|FAIL|ERROR)\](?: \((\S+?)((?:, .*?: \S+?)*)\))?(?:\s|$)", re.DOTALL)
COLUMN = re.compile(r"\[(.+?)\] (.*)", re.DOTALL)  # provider and label of a prompt
# Columns of an output, in both layouts; those of Metric lie among them.
STATUS, SCORE, NAMED, METRIC, REASON = "Status", "Score", "Named Scores", "Metric: ", "Grader Reason"
OF_OUTPUT = (STATUS, SCORE, NAMED, REASON, "Reasoning", "Comment")
DESCRIPTION = "Description"
HUMAN, MANUAL = "human", "manual result"


class Column(NamedTuple):
    """Column of an output with the columns that follow it."""

    at: int
    header: str
    beside: dict[str, int]  # columns of this output by name


class Graded(NamedTuple):
    """What a cell says."""

    scores: dict[str, Any]
    text: str
    error: bool


def knows(file: File) -> bool:
    """Return whether a column has outputs of promptfoo."""
    if file.kind != ".csv":
        return False
    if {STATUS, SCORE, NAMED, REASON} <= file.names:
        return True
    if not any(COLUMN.match(name) for name in file.names) and REASON not in file.names:
        return False
    try:
        rows = csv_rows(file.path)
        next(rows, None)
        return any(OUTPUT.match(cell) for cell in next(rows, []))
    except DataError:
        return False


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each test and column of outputs."""
    if asked.policy:
        raise DataError(
            f"{files[0].path}: policy_field={asked.policy!r}: the policies are the columns of outputs; leave it out"
        )
    tables = {file.path: _table(file.path) for file in files}
    policies, said = _policies({path: columns for path, (_, columns, _) in tables.items()})
    first: dict[tuple[str, str], tuple[Path, int]] = {}
    draws: dict[tuple[str, str], int] = defaultdict(int)
    items = []
    for path, (header, columns, rows) in tables.items():
        for row, cells in enumerate(rows, 2):
            prompt = _prompt(header[: columns[0].at], cells, asked.prompt, f"{path}, row {row}")
            for column in columns:
                graded = _graded(column, cells, f"{path}, row {row}")
                if graded is None:
                    continue
                key = policies[path, column.at], prompt
                at = first.setdefault(key, (path, row))
                if at[0] != path:
                    raise DataError(
                        f"{path}, row {row}: a response of {show(key[0])} to {show(prompt)} is already in {at[0]}, row "
                        f"{at[1]}: two runs; keep one"
                    )
                why = f"{UNUSABLE}the call ended with an error" if graded.error else ""
                items.append(Item(str(path), row, *key, graded.scores, draws[key], graded.text, why=why))
                draws[key] += 1
    coarse = "scores have two decimals, and a grader that failed counts as 0: promptfoo's JSON results tell it apart"
    notes = [(str(path), f"{CAUTION}{coarse}") for path in tables] + said
    roles = {
        "policy": "column of outputs",
        "prompt": asked.prompt or "variables of the test",
        "draw": "rows of one test",
    }
    return Contents(items, roles, notes)


def _table(path: Path) -> tuple[list[str], list[Column], list[list[str]]]:
    """Return header, columns of outputs and rows of a file."""
    held = csv_rows(path)
    header, rows = next(held, []), list(held)
    followed = {at for at, name in enumerate(header[1:]) if name == STATUS}
    starts = sorted(
        followed or (at for at in range(len(header)) if _is_output(header[at], [c[at] for c in rows]))
    )
    other = next(
        (name for at, name in enumerate(header) if starts and COLUMN.match(name) and at not in starts), None
    )
    if other is not None:
        raise DataError(
            f"{path}: column {show(other)} has no outputs or no Status beside it; export the table again"
        )
    columns = []
    for at in starts:
        beside: dict[str, int] = {}
        for k in range(at + 1, len(header)):
            if header[k] not in OF_OUTPUT and not header[k].startswith(METRIC):
                break
            if header[k] in beside:
                break
            beside[header[k]] = k
        columns.append(Column(at, header[at], beside))
    if not columns:
        raise DataError(f"{path}: no column of outputs, whose cells begin with [PASS], [FAIL] or [ERROR]")
    return header, columns, rows


def _is_output(name: str, cells: Sequence[str]) -> bool:
    """Return whether cells are marked as outputs: one of a column with a provider, or most of another."""
    marked = [bool(OUTPUT.match(cell)) for cell in cells if cell]
    return any(marked) and (COLUMN.match(name) is not None or 2 * sum(marked) >= len(marked))


def _policies(columns: dict[Path, list[Column]]) -> tuple[dict[tuple[Path, int], str], list[tuple[str, str]]]:
    """Return the policy of each column, and what a number in its name means."""
    parts = {}
    for path, own in columns.items():
        for column in own:
            match = COLUMN.fullmatch(column.header)
            parts[path, column.at] = (match[1], match[2]) if match else ("", column.header)
    of_provider: dict[str, list[str]] = defaultdict(list)
    for provider, label in parts.values():
        if label not in of_provider[provider]:
            of_provider[provider].append(label)
    names, notes = {}, []
    for (path, at), (provider, label) in parts.items():
        labels = of_provider[provider]
        name = provider or "output"
        if len(labels) > 1:
            name = f"{name}, prompt {labels.index(label) + 1}"
            notes.append((str(path), f"{name} is column {line(show(label), 100)}"))
        same = [k for (file, k), part in parts.items() if file == path and part == (provider, label)]
        names[path, at] = f"{name}, configuration {same.index(at) + 1}" if len(same) > 1 else name
    return names, notes


def _prompt(header: Sequence[str], cells: Sequence[str], field: str | None, where: str) -> str:
    """Return the prompt of a test: its variables but for those that the run fills in, one of them by itself."""
    held = dict(zip(header, cells, strict=False))
    if field is not None:
        if not held.get(field):
            raise DataError(
                f"{where}: {field} is missing, and is to name the prompt; it has {', '.join(header)}"
            )
        return prompt_name(held[field])
    shared = {
        name: value for name, value in held.items() if plain(name) not in FILLED and name != DESCRIPTION
    }
    shared = shared or {name: value for name, value in held.items() if value}
    if not shared:
        return where.rpartition(", ")[2]
    return prompt_name(next(iter(shared.values())) if len(shared) == 1 else shared)


def _graded(column: Column, cells: Sequence[str], where: str) -> Graded | None:
    """Return the grades of an output; None where the test has none."""
    beside = {name: cells[at] for name, at in column.beside.items()}
    text = cells[column.at]
    if STATUS in beside:
        status = beside[STATUS]
        if not status:
            if any(beside.values()):
                raise DataError(
                    f"{where}: Status of {show(column.header)} is missing, and other columns are not; correct it"
                )
            return None
        if status not in ("PASS", "FAIL", "ERROR"):
            raise DataError(f"{where}: Status is {show(status)}; it is PASS, FAIL or ERROR; correct it")
        score = _number(beside.get(SCORE, ""), SCORE, where)
        named = dict(_named(beside.get(NAMED, ""), where))
        for name, value in beside.items():
            if name.startswith(METRIC):
                named[name.removeprefix(METRIC)] = _number(value, name, where)
    else:
        if not text:
            return None
        match = OUTPUT.match(text)
        if match is None:
            raise DataError(
                f"{where}: {show(text)} is no output of promptfoo; it begins with [PASS], [FAIL] or [ERROR]"
            )
        status, text = match[1], text[match.end() :].strip()
        score = None if match[2] is None else _number(match[2], "score", where)
        pairs = [part.rpartition(": ") for part in (match[3] or "").split(", ") if part]
        named = {name: _number(value, name, where) for name, _, value in pairs}
    reason = beside.get(REASON) or text.rpartition(f"{'Pass' if status == 'PASS' else 'Fail'} Reason: ")[2]
    by_hand = reason.strip().lower().startswith(MANUAL)
    error = status == "ERROR" and not by_hand
    whole = {"pass": float(status == "PASS")} if score is None and STATUS not in beside else {"score": score}
    scores = {**named, **({HUMAN: next(iter(whole.values()))} if by_hand else whole)}
    return Graded({} if error else scores, text, error)


def _named(cell: str, where: str) -> Iterator[tuple[str, float | None]]:
    """Yield the named scores of a cell, which is a JSON object."""
    if not cell:
        return
    try:
        held = json.loads(cell)
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise DataError(f"{where}: Named Scores is {show(cell)}; it is a JSON object; correct it")
    for name, value in held.items():
        yield name, number(value)


def _number(text: str, name: str, where: str) -> float | None:
    """Return a number of a cell; None where it is empty or promptfoo had none."""
    if text in ("", "undefined", "NaN"):
        return None
    value = number(text)
    if value is None:
        raise DataError(f"{where}: {name} is {show(text)}; a number is expected; correct it")
    return value
