"""Wide tables: a row is a response, its grades are columns. A format declares which columns are what (`Layout`).

The policy is named by a column, or each file is one. The prompt is named by its text, so that tables of two policies
pair. Rows of one policy and prompt are draws, unless they lie in two files or another column tells them apart: then
the reading stops, for they may be two arms. A column that numbers the rows, an identifier, a time or a cost is no
grade.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cje_core.data.errors import DataError
from cje_core.data.fields import NOTHING, line, show
from cje_core.data.intake.foreign import Asked, Contents, Item, field_of, named_by, text_of
from cje_core.data.intake.grades import OPPOSITES, number
from cje_core.data.intake.keys import arm_column, prompt_name
from cje_core.data.intake.names import closest
from cje_core.data.intake.raw import LINES, stem_of
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of

# Columns that count, name or cost a row. A column without a name, or "Unnamed: 0", is an index that pandas wrote.
BOOKKEEPING = re.compile(
    r"^$|^unnamed: \d+$|^level_\d+$|(^|[\W_])(ids?|idx|index|row|latency|costs?|price|tokens?|token_count|duration|"
    r"time|timestamp|ts|date|created_at|updated_at|seed|length)$",
    re.IGNORECASE,
)
MOST_WORDS, LONGEST_WORD = 12, 40  # different words of a column of categories, and letters of one
FEW_ROWS = 0.02  # share of rows in which a field is rare enough to be another misspelt
Row = tuple[Path, int, dict[str, Any]]


class Layout(NamedTuple):
    """Columns of a format."""

    policy: Sequence[Sequence[str]]  # alternatives, the surest first; columns of one name the policy together
    prompt: Sequence[str]
    response: Sequence[str]
    known: Collection[str]  # columns that the tool writes beside its grades
    grade: Callable[
        [str, Collection[str]], str | None
    ]  # score that a column holds, given all columns; None for none
    unpack: Callable[[dict[str, Any]], dict[str, Any]] | None = (
        None  # of a row whose cells hold objects, its columns
    )


def any_other(name: str, _: Collection[str]) -> str:
    """Take a column for the score of its name: of a tool whose grades have names of the user's choice."""
    return name


def columns_of(file: File) -> frozenset[str]:
    """Return the columns of a table, also of one whose document lists them (``{"columns": ..., "data": ...}``)."""
    listed = file.value("columns")
    if isinstance(listed, list) and {"columns", "data"} <= file.names:
        return frozenset(map(str, listed))
    return file.names


def records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and fields of the rows of a table, also of the layouts in which pandas writes one as JSON."""
    if file.kind in LINES and {"columns", "data"} <= file.names:
        held = file.document if isinstance(file.document, dict) else {}
        names, data = held.get("columns"), held.get("data")
        if not isinstance(names, list) or not isinstance(data, list):
            raise DataError(f"{file.path}: columns or data is no list; give the table as the tool wrote it")
        for row, cells in enumerate(data, 1):
            if not isinstance(cells, list) or len(cells) != len(names):
                raise DataError(f"{file.path}, row {row}: it has not a cell for each of {len(names)} columns")
            yield row, dict(zip(map(str, names), cells, strict=True))
        return
    by_column = _columns(file)
    if by_column is not None:
        rows = list(dict.fromkeys(index for column in by_column.values() for index in column))
        if not all(column.keys() == set(rows) for column in by_column.values()):
            raise DataError(f"{file.path}: columns hold different rows; write it with orient='records'")
        for at, index in enumerate(rows, 1):
            yield at, {name: column[index] for name, column in by_column.items()}
        return
    yield from rows_of(file.path)


def _columns(file: File) -> dict[str, dict[str, Any]] | None:
    """Return the columns of a document that has an object for each, as ``to_json`` writes; None of other files."""
    values = [file.value(name) for name in file.names]
    if file.kind != ".json" or not values or not all(isinstance(value, dict) for value in values):
        return None
    try:
        held = file.document
    except DataError:  # JSON lines
        return None
    whole = isinstance(held, dict) and all(isinstance(column, dict) for column in held.values())
    return held if whole else None


def read_wide(files: Sequence[File], asked: Asked, layout: Layout) -> Contents:
    """Read a response for each row of the files.

    Parameters
    ----------
    files : sequence of File
    asked : Asked
    layout : Layout

    Returns
    -------
    Contents

    Raises
    ------
    DataError
        Where a row has no prompt or policy, and where a second response of one is no draw of it.
    """
    unpack = layout.unpack or dict
    rows: list[Row] = [(file.path, row, unpack(record)) for file in files for row, record in records(file)]
    columns = list(dict.fromkeys(name for _, _, record in rows for name in record))
    _check_spelling(rows, columns)
    scores, notes = _scores(rows, columns, layout)
    fields = [asked.policy] if asked.policy else _policy_fields(files, layout)
    prompt_field = asked.prompt or next((name for name in layout.prompt if name in columns), layout.prompt[0])
    of_file = policies_of([file.path for file in files])
    items: list[Item] = []
    held: list[dict[str, Any]] = []
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for path, row, record in rows:
        where = f"{path}, row {row}"
        parts = [named_by(name, [record], where, "policy") for name in fields]
        policy = ", ".join(parts) or of_file[path]
        named_by(prompt_field, [record], where, "prompt")  # stops where it is missing
        value = field_of(record, prompt_field)
        if value != value:
            raise DataError(
                f"{where}: {prompt_field} is NaN, and is to name the prompt; correct it, or drop the row"
            )
        prompt = text_of(value) if isinstance(value, int | float) else prompt_name(value)
        group = groups[policy, prompt]
        response = next((record[name] for name in layout.response if isinstance(record.get(name), str)), None)
        grades = {name: record.get(column) for name, column in scores.items()}
        items.append(Item(str(path), row, policy, prompt, grades, len(group), response))
        group.append(len(held))
        held.append(record)
    if not asked.policy:
        _check_candidates(items, held, layout, fields)
    used = {*layout.known, *fields, prompt_field, *layout.response}
    used |= {name for name in columns if layout.grade(name, columns) is None}
    check_repeats(items, held, groups, used, asked, scores.values())
    roles = {
        "policy": ", ".join(fields) or "the name of the file",
        "prompt": prompt_field,
        "draw": "rows of one policy and prompt",
    }
    return Contents(items, roles, notes)


def policies_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the names of files that are a policy each: of their path, what differs between them.

    Examples
    --------
    >>> list(policies_of([Path("a/base.csv"), Path("a/new.csv")]).values())
    ['base', 'new']
    >>> list(policies_of([Path("runs/1/out/t.json"), Path("runs/2/out/t.json")]).values())
    ['1', '2']
    """
    stems = {path: stem_of(path) for path in paths}
    if len(set(stems.values())) == len(stems):
        return stems
    parts = {path: [*path.parent.parts, stem] for path, stem in stems.items()}
    least = min(map(len, parts.values()))
    first = next(k for k in range(least + 1) if k == least or len({own[k] for own in parts.values()}) > 1)
    last = next(k for k in range(least + 1) if k == least or len({own[-1 - k] for own in parts.values()}) > 1)
    return {path: "/".join(own[first : len(own) - last]) for path, own in parts.items()}


def _policy_fields(files: Sequence[File], layout: Layout) -> list[str]:
    columns = [columns_of(file) for file in files]
    for names in layout.policy:
        if all(set(names) <= held for held in columns):
            return list(names)
    return []


def _scores(
    rows: Sequence[Row], columns: Sequence[str], layout: Layout
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the column of each score, and what is to be said of other columns."""
    passed = {
        *layout.known,
        *layout.prompt,
        *layout.response,
        *(name for names in layout.policy for name in names),
    }
    file = str(rows[0][0]) if rows else ""
    scores: dict[str, str] = {}
    others: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        score = None if column in passed else layout.grade(column, columns)
        if score is None:
            continue
        held = [value for _, _, record in rows if not _is_missing(value := record.get(column))]
        if BOOKKEEPING.search(score) or _counts_rows(rows, column):
            others["number, name or cost the rows"].append(column or "(without a name)")
        elif not _is_grade(held):
            others["hold texts"].append(column)
        elif score in scores:
            raise DataError(
                f"{file}: columns {scores[score]!r} and {column!r} are both score {score}; rename one"
            )
        else:
            scores[score] = column
    notes = [
        (file, f"columns that {why} are no scores: {line(', '.join(own), 160)}")
        for why, own in others.items()
    ]
    return scores, notes


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in NOTHING
    return value is None or (isinstance(value, float) and value != value)


def _is_grade(held: Sequence[Any]) -> bool:
    """Return whether the values of a column are numbers, or categories."""
    if any(isinstance(value, dict | list) for value in held):
        return False
    if 2 * sum(number(value) is not None for value in held) >= len(held):
        return True
    words = {str(value).strip().lower() for value in held}
    few = len(words) <= MOST_WORDS and max(map(len, words)) <= LONGEST_WORD
    return few and (2 * len(words) <= len(held) or words <= OPPOSITES.keys())


def _counts_rows(rows: Sequence[Row], column: str) -> bool:
    """Return whether a column counts the rows of each file from 0 or from 1."""
    of_file: dict[Path, list[Any]] = defaultdict(list)
    for path, _, record in rows:
        of_file[path].append(number(record.get(column)))
    counted = [[float(k + first) for k in range(len(own))] for own in of_file.values() for first in (0, 1)]
    return all(own in counted for own in of_file.values()) and max(map(len, of_file.values())) > 2


def _check_spelling(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Stop at a field of few rows that is nearly one which these rows lack."""
    counts = Counter(name for _, _, record in rows for name in record)
    rare = {
        name for name in columns if counts[name] <= max(1, FEW_ROWS * len(rows)) and counts[name] < len(rows)
    }
    near = closest(rare, [name for name in columns if name not in rare]) if rare else {}
    for path, row, record in rows if near else ():
        for name in near.keys() & record.keys():
            if near[name] not in record:
                raise DataError(
                    f"{path}, row {row}: unknown field {name!r}: did you mean {near[name]}? rename or drop it"
                )


def _check_candidates(
    items: Sequence[Item], held: Sequence[Mapping[str, Any]], layout: Layout, fields: Sequence[str]
) -> None:
    """Stop where responses of one policy differ in another column that names a policy in other tables."""
    for names in layout.policy:
        for name in (name for name in names if name not in fields):
            values: dict[str, set[str]] = defaultdict(set)
            for item, record in zip(items, held, strict=True):
                if not _is_missing(value := field_of(record, name)):
                    values[item.policy].add(text_of(value))
                if len(own := sorted(values[item.policy])) > 1:
                    raise DataError(
                        f"{item.file}, row {item.row}: responses of {show(item.policy)} differ in {name} "
                        f"({line(', '.join(own), 80)}): name the policy with policy_field={name}"
                    )


def check_repeats(
    items: Sequence[Item],
    held: Sequence[Mapping[str, Any]],
    groups: Mapping[tuple[str, str], Sequence[int]],
    used: Collection[str],
    asked: Asked,
    grades: Collection[str] = (),
) -> None:
    """Stop at a second response to a prompt that lies in another file, or that another column tells apart.

    Parameters
    ----------
    items : sequence of Item
    held : sequence of mapping
        Row of each item.
    groups : mapping
        Positions of the items of each policy and prompt.
    used : collection of str
        Columns that name no arm.
    asked : Asked
    grades : collection of str
        Columns of grades.
    """
    several = [group for group in groups.values() if len(group) > 1]
    for group in several:
        first = items[group[0]]
        other = next((items[k] for k in group if items[k].file != first.file), None)
        if other is not None:
            raise DataError(
                f"{other.file}, row {other.row}: a response of {show(other.policy)} to {show(other.prompt)} is already "
                f"in {first.file}, row {first.row}: two runs; keep one, or name what tells them apart with "
                "policy_field=NAME"
            )
    if not several or asked.policy:
        return
    if len(several) == 1:  # of one prompt alone, an identifier looks as an arm does
        used = {*used, *(name for record in held for name in record if BOOKKEEPING.search(name))}
    told = arm_column([[[held[k]] for k in group] for group in several], used, grades)
    if told is not None:
        second, (name, values) = items[several[0][1]], told
        raise DataError(
            f"{second.file}, row {second.row}: {name} tells responses of one policy and prompt apart "
            f"({line(', '.join(values), 80)}): name the policy with policy_field={name}, or drop the column if they "
            "are draws"
        )
