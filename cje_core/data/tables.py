"""Files -> tables whose every row knows its file and line, and the checks that stop at the first bad row.

`load` reads JSONL, CSV, Parquet, a directory of ``{policy}.jsonl`` or a DataFrame into one table: a column of
objects per wanted field (None where a record lacks it), ``file``, and ``row``: the line of a JSONL file, the
record of a CSV file counted with its header as row 1, the record counted from 1 elsewhere. The checks turn
columns into ids, numbers and flags; each raises `DataError` with one line: file, row, field, what was found,
how to mend it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cje_core.checks import BoolArray, FloatArray
from cje_core.data.errors import DataError

Source = str | Path | pd.DataFrame
# What no covariate may be called.
FIELDS = ("policy", "prompt_id", "draw_idx", "judge_score", "oracle_label", "probe", "evaluated", "label_prob",
          "surprisal", "cluster", "stratum", "response", "file", "row")  # fmt: skip
FINITE = "a finite number is expected (or null where it is unknown)"
LARGEST = 1e100  # products of a few larger numbers leave the range of floats
OVERFLOW = f"numbers beyond {LARGEST:g} overflow when squared: give it in a larger unit"
# Line breaks and other control characters break a table's row, and half of a surrogate pair cannot be printed at all.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
ONE_LINE = "a line break or other control character has no place in a name: write it without"
NOTHING = ("", "na", "n/a", "<na>", "nan", "none", "null", "-")
WORDS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def load(
    source: Source, fields: Sequence[str], *, suffixes: Sequence[str], texts: Sequence[str]
) -> tuple[pd.DataFrame, list[Path]]:
    """Read the wanted fields of a source.

    Parameters
    ----------
    source : path or DataFrame
    fields : sequence of str
        Fields to read, with ``policy`` and ``prompt_id``. In JSONL a field may also stand in ``metadata``.
    suffixes : sequence of str
        Of file names in a directory, ``{policy}{suffix}.jsonl``: the first that any file has counts; where none
        has one, ``{policy}.jsonl``.
    texts : sequence of str
        The fields that a CSV file holds as text.

    Returns
    -------
    table : DataFrame
        Not empty; rows in order of file name and line.
    unread : list of Path
        JSONL files of a directory that were not read, since others carry the suffix.
    """
    unread: list[Path] = []
    if isinstance(source, pd.DataFrame):
        check_columns(source.columns, name_of(source))
        table = source[[f for f in fields if f in source]].astype(object).reset_index(drop=True)
        table = table.assign(file=name_of(source), row=np.arange(1, len(source) + 1))
    elif (path := Path(source)).is_dir():
        table, unread = _load_directory(path, suffixes, fields)
    elif (kind := path.suffix.lower()) in (".jsonl", ".ndjson", ".json"):
        table = load_jsonl(path, fields)
    elif kind == ".csv":
        table = _load_csv(path, fields, texts)
    elif kind in (".parquet", ".pq"):
        table = _load_parquet(path, fields, texts)
    else:
        _has_bytes(path)
        raise DataError(f"{path}: file type {kind!r} is unknown; give .jsonl, .csv, .parquet or a directory")
    if table.empty:
        raise DataError(f"{name_of(source)} is empty: it has no rows; give at least one response")
    for field in fields:
        if field not in table:
            table[field] = None
    return table, unread


def load_jsonl(path: Path, fields: Sequence[str]) -> pd.DataFrame:
    """Fields of a JSONL file, looked up in each object and then in its ``metadata``; may be empty."""
    columns: dict[str, list[Any]] = {field: [] for field in fields}
    rows = []
    nothing: dict[str, Any] = {}
    for number, record in _records(path):
        rows.append(number)
        metadata = record.get("metadata")
        inner = metadata if isinstance(metadata, dict) else nothing
        for field, values in columns.items():
            value = record.get(field)
            values.append(inner.get(field) if value is None and inner else value)
    table = pd.DataFrame({field: pd.Series(values, dtype=object) for field, values in columns.items()})
    return table.assign(file=str(path), row=np.asarray(rows, dtype=int))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line that is not blank."""
    if not _has_bytes(path):
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                record = json.loads(text) if text else None
            except UnicodeDecodeError as err:
                raise DataError(
                    f"{path}, row {number}: not UTF-8 ({err.reason}); save the file as UTF-8"
                ) from None
            except (ValueError, RecursionError) as err:
                what = err.msg if isinstance(err, json.JSONDecodeError) else type(err).__name__
                raise DataError(
                    f"{path}, row {number}: not JSON ({what}): {show(text)}; write one JSON object per line"
                ) from None
            if text and not isinstance(record, dict):
                raise DataError(f"{path}, row {number}: {show(record)}; write one JSON object per line")
            if isinstance(record, dict):
                yield number, record


def _load_directory(
    path: Path, suffixes: Sequence[str], fields: Sequence[str]
) -> tuple[pd.DataFrame, list[Path]]:
    """One table from the files of a directory; each file must have rows, and its name is their policy."""
    files = sorted(path.glob("*.jsonl"))
    suffix = next((s for s in suffixes if any(f.stem.endswith(s) for f in files)), "")
    chosen = [f for f in files if f.stem.endswith(suffix)]
    if not chosen:
        held = sorted(p.name for p in path.iterdir())
        shown = line(f"it holds {', '.join(held)}", 80) if held else "it is empty"
        wanted = f"{{policy}}{suffixes[0]}.jsonl or {{policy}}.jsonl"
        raise DataError(
            f"{path}: no file {wanted} in this directory ({shown}); give the directory that has them"
        )
    tables = []
    for file in chosen:
        policy = file.stem.removesuffix(suffix)
        table = load_jsonl(file, fields)
        if table.empty:
            raise DataError(f"{file} is empty: policy {policy!r} has no rows; fill the file or remove it")
        other = table["policy"].notna() & (table["policy"] != policy)
        stop(table, other, "policy", f"but the file name says {policy!r}: correct one of them")
        tables.append(table.assign(policy=policy))
    return pd.concat(tables, ignore_index=True), sorted(set(files) - set(chosen))


def _load_csv(path: Path, fields: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """Fields of a CSV file; an empty cell is a missing number but a legal (empty) prompt_id."""
    if not _has_bytes(path):
        return pd.DataFrame()
    try:
        # All columns, though few are wanted: with `usecols` pandas accepts rows that have too many cells.
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        row = _undecodable_row(path)
        raise DataError(f"{path}, row {row}: not UTF-8 ({err.reason}); save the file as UTF-8") from None
    except ValueError as err:  # the parser's errors are ValueErrors
        raise DataError(
            f"{path}: not CSV ({line(str(err), 120)}); give every row the header's columns"
        ) from None
    check_columns(table.columns, str(path))
    if not isinstance(table.index, pd.RangeIndex):
        raise DataError(
            f"{path}, row 2: more cells than the header has columns; quote cells that hold a comma"
        )
    table = table[[field for field in fields if field in table]]
    for field in table.columns:
        # Python's own float is exact; the parser's need not be.
        cells = [_parse(cell) for cell in table[field]] if field not in texts else table[field]
        table[field] = pd.Series(cells, dtype=object)
        if field in texts and field != "prompt_id":
            table[field] = table[field].where(table[field] != "", None)
    return table.assign(file=str(path), row=np.arange(2, len(table) + 2))


def _parse(cell: str) -> float | str | None:
    """Number in a cell, None where it is empty, the text itself where it is no number."""
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


def _undecodable_row(path: Path) -> int:
    """Line of the first bytes that are not UTF-8."""
    with path.open("rb") as lines:
        for number, text in enumerate(lines, 1):
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                return number
    raise AssertionError("only called for a file that does not decode")


def _load_parquet(path: Path, fields: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """Fields of a Parquet file; integer ids become text before pandas can turn them into floats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not _has_bytes(path):
        return pd.DataFrame()
    try:
        columns = pq.read_schema(path).names
        raw = pq.read_table(path, columns=[f for f in fields if f in columns])
    except pa.ArrowException as err:
        raise DataError(
            f"{path}: not Parquet ({line(str(err), 120)}); give the file its right suffix"
        ) from None
    check_columns(columns, str(path))
    table = {}
    for name in raw.column_names:
        column = raw.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name in texts and pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        table[name] = column.to_pandas().astype(object)
    return pd.DataFrame(table).assign(file=str(path), row=np.arange(1, raw.num_rows + 1))


def _has_bytes(path: Path) -> bool:
    """Whether the file holds anything; raise if it cannot be read."""
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError as err:
        raise DataError(f"{path}: {(err.strerror or str(err)).lower()}; check the path") from None


def check_columns(
    columns: Iterable[object], name: str, required: Sequence[str] = ("policy", "prompt_id")
) -> None:
    """Stop at a table without the columns that say whose response a row is, or with two of one name."""
    names = [str(c) for c in columns]
    for field in names:
        if names.count(field) > 1:
            raise DataError(
                f"{name}: column {field!r} occurs {names.count(field)} times; rename or drop all but one"
            )
    for field in required:
        if field not in names:
            held = line(", ".join(names), 80)
            raise DataError(f"{name}: no column {field!r} (it has {held}); add or rename the column")


# --- columns ---


def ids(table: pd.DataFrame, field: str, *, required: bool) -> pd.Series:
    """Ids as text; 0 and "" are ids like any other, None and NaN are missing (and an error if `required`)."""
    kinds = set(map(type, table[field].to_numpy(dtype=object)))
    if kinds <= {str}:
        _stop_control(table, field)
        return table[field]
    values: list[Any] = table[field].tolist()
    if not kinds <= {str, int, type(None)}:
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
        values = [None if v is pd.NA or (isinstance(v, float) and np.isnan(v)) else v for v in values]
        legal = [v is None or (isinstance(v, str | Integral) and not isinstance(v, bool)) for v in values]
        stop(table, ~np.array(legal), field, "write a string or an integer")
    if required:
        stop(table, [v is None for v in values], field, "every row needs one")
    _stop_control(table, field)
    return pd.Series([None if v is None else str(v) for v in values], index=table.index, dtype=object)


def _stop_control(table: pd.DataFrame, field: str) -> None:
    """Stop at a name with a control character; first one search, since a million rows need no look at each."""
    texts = [v if isinstance(v, str) else "" for v in table[field]]
    if CONTROL.search("".join(texts)):
        stop(table, [CONTROL.search(v) is not None for v in texts], field, ONE_LINE)


def numbers(table: pd.DataFrame, field: str) -> FloatArray:
    """Column as float, NaN where missing; infinity, what overflows and anything but a number stop the reading."""
    values = table[field].to_numpy()
    if values.dtype.kind in "fiu":  # numbers already: a million rows need no look at each
        return _in_reach(table, field, np.asarray(values, dtype=float))
    values = table[field].to_numpy(dtype=object)
    kinds = set(map(type, values))
    missing = (type(None), type(pd.NA))
    wrong = {k for k in kinds if k in (bool, np.bool_) or not issubclass(k, (Real, Decimal, *missing))}
    if wrong:
        stop(table, [type(v) in wrong for v in values], field, lambda row: _instead_of(row[field]))
    if kinds & set(missing):
        values = np.array([np.nan if isinstance(v, missing) else v for v in values], dtype=object)
    try:
        out = values.astype(float)
    except OverflowError:  # an integer beyond the range of floats
        out = np.array([float(v) if abs(v) < 1e300 else np.inf for v in values])
    return _in_reach(table, field, np.asarray(out, dtype=float))


def _in_reach(table: pd.DataFrame, field: str, values: FloatArray) -> FloatArray:
    """`values`, none of them infinite or so large that its square would be."""
    stop(table, np.isinf(values), field, FINITE)
    stop(table, np.abs(values) > LARGEST, field, OVERFLOW)
    return values


def _instead_of(value: object) -> str:
    """What to write in place of something that is no number."""
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return "a number is expected: write 1 or 0"
    if word in NOTHING:
        return "a number is expected: leave the cell empty (null in JSON) where it is unknown"
    return "a number is expected, without quotes"


def flags(table: pd.DataFrame, field: str) -> BoolArray:
    """Column of true or false (1 and 0 also count), false where missing."""
    if table[field].dtype == bool:
        return table[field].to_numpy()
    missing = table[field].isna()
    values = zip(table[field], missing, strict=True)
    words = [False if absent else WORDS.get(str(v).strip().lower()) for v, absent in values]
    stop(table, [word is None for word in words], field, "write true or false")
    return np.array(words, dtype=bool)


def typed(frame: pd.DataFrame, covariates: Sequence[str] = ()) -> pd.DataFrame:
    """Columns of a table of responses with their types, by the checks that files go through.

    Parameters
    ----------
    frame : DataFrame
        As in `cje_core.data.from_frame`.
    covariates : sequence of str

    Returns
    -------
    DataFrame
        Ids as text, numbers as float, ``draw_idx`` as int, flags as bool; other columns are left out.
    """
    check_covariates(covariates)
    check_columns(frame.columns, "the table", ("policy", "prompt_id", "judge_score", *covariates))
    if frame.empty:
        raise DataError("the table has no rows; give at least one response")
    table = frame.reset_index(drop=True).assign(file="the table", row=np.arange(1, len(frame) + 1))
    out: dict[str, Any] = {}
    for field in ("policy", "prompt_id", "cluster", "stratum"):
        if field in table:
            out[field] = ids(table, field, required=True).astype(str)
    for field in ("judge_score", "oracle_label", "draw_idx", "label_prob", "surprisal", *covariates):
        if field in table:
            out[field] = numbers(table, field)
    stop(table, np.isnan(out["judge_score"]), "judge_score", "judge the response or leave the row out")
    if "draw_idx" in out:
        draw = out["draw_idx"]
        stop(table, ~((draw >= 0) & (draw == np.floor(draw))), "draw_idx", "number the draws 0, 1, 2, ...")
        out["draw_idx"] = draw.astype(int)
    for field in ("probe", "evaluated"):
        if field in table:
            stop(table, table[field].isna(), field, "write true or false")
            out[field] = flags(table, field)
    return pd.DataFrame(out)


def check_covariates(names: Sequence[str]) -> None:
    """Stop at a covariate that is given twice or is a field with another meaning."""
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DataError(f"covariate {name} is given twice; give it once")
        if name in FIELDS:
            raise DataError(
                f"covariate {name}: this field has a meaning of its own; name another, or copy it"
            )


# --- messages ---


def stop(table: pd.DataFrame, bad: npt.ArrayLike, field: str, mend: str | Callable[[Any], str]) -> None:
    """Raise `DataError` for the first row where `bad` holds: place, field, value, and the (row's) mend."""
    mask = np.asarray(bad, dtype=bool)
    if mask.any():
        row = table.iloc[int(np.argmax(mask))]
        words = mend if isinstance(mend, str) else mend(row)
        raise DataError(f"{place(row)}: {field} is {show(row.get(field))}; {words}")


def place(row: Any) -> str:
    """Where a row came from."""
    return f"{row['file']}, row {row['row']}"


def name_of(source: Source) -> str:
    """A source's name in messages."""
    return "DataFrame" if isinstance(source, pd.DataFrame) else str(source)


def show(value: Any) -> str:
    """Value as a short literal."""
    if value is None or value is pd.NA:
        return "missing"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return "missing or NaN" if np.isnan(value) else repr(float(value)).removesuffix(".0")
    return line(repr(value), 40)


def line(text: str, width: int) -> str:
    """Text on one line, shortened to `width`."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."
