"""Files -> tables whose every row knows its file and line.

`load` reads JSONL, CSV, Parquet, a directory of ``{policy}.jsonl`` or a DataFrame into one table: a column of
objects per wanted field (None where a record lacks it), ``file``, and ``row``: the line of a JSONL file, the
record of a CSV file counted with its header as row 1, the record counted from 1 elsewhere.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cje_core.data.errors import DataError
from cje_core.data.fields import FINITE, Source, check_columns, ids, line, name_of, show, stop

PARQUET = (".parquet", ".pq")


class Part(NamedTuple):
    """Adjacent rows of a Parquet file."""

    table: Any  # pyarrow's
    path: Path
    first: int  # number of the first row, counted from 1


def load(
    source: Source | Part, fields: Sequence[str], *, suffixes: Sequence[str], texts: Sequence[str]
) -> tuple[pd.DataFrame, list[Path]]:
    """Read the wanted fields of a source.

    Parameters
    ----------
    source : path, DataFrame or Part
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
    if isinstance(source, Part):
        table = _objects(source, fields, texts)
    elif isinstance(source, pd.DataFrame):
        check_columns(source.columns, name_of(source))
        table = source[[f for f in fields if f in source]].astype(object).reset_index(drop=True)
        table = table.assign(file=name_of(source), row=np.arange(1, len(source) + 1))
    elif (path := Path(source)).is_dir():
        table, unread = _load_directory(path, suffixes, fields)
    elif (kind := path.suffix.lower()) in (".jsonl", ".ndjson", ".json"):
        table = load_jsonl(path, fields)
    elif kind == ".csv":
        table = _load_csv(path, fields, texts)
    elif kind in PARQUET:
        table = _load_parquet(path, fields, texts)
    else:
        _has_bytes(path)
        raise DataError(f"{path}: file type {kind!r} is unknown; give .jsonl, .csv, .parquet or a directory")
    if table.empty:
        name = source.path if isinstance(source, Part) else name_of(source)
        raise DataError(f"{name} is empty: it has no rows; give at least one response")
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


def response_files(path: Path, suffixes: Sequence[str]) -> tuple[list[Path], str, list[Path]]:
    """Files of a directory that are read, the suffix of their names, and the JSONL files that are not read."""
    files = sorted(path.glob("*.jsonl"))
    suffix = next((s for s in suffixes if any(f.stem.endswith(s) for f in files)), "")
    chosen = [f for f in files if f.stem.endswith(suffix)]
    return chosen, suffix, sorted(set(files) - set(chosen))


def _load_directory(
    path: Path, suffixes: Sequence[str], fields: Sequence[str]
) -> tuple[pd.DataFrame, list[Path]]:
    """One table from the files of a directory; each file must have rows, and its name is their policy."""
    chosen, suffix, unread = response_files(path, suffixes)
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
    return pd.concat(tables, ignore_index=True), unread


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
    """Fields of a Parquet file."""
    if not _has_bytes(path):
        return pd.DataFrame()
    with opened(path) as file:
        names = [field for field in fields if field in file.schema_arrow.names]
        return _objects(Part(file.read(columns=names, use_threads=False), path, 1), fields, texts)


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Any]:
    """A Parquet file, opened by pyarrow with `options`; what is wrong with it is a `DataError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _has_bytes(path)
    try:
        with pq.ParquetFile(path, **options) as file:
            check_columns(file.schema_arrow.names, str(path))
            yield file
    except pa.ArrowException as err:
        raise DataError(
            f"{path}: not Parquet ({line(str(err), 120)}); give the file its right suffix"
        ) from None


def _objects(part: Part, fields: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """Fields of rows from Parquet; integer ids become text before pandas can turn them into floats."""
    import pyarrow as pa

    table = {}
    for name in (field for field in fields if field in part.table.column_names):
        column = part.table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name in texts and pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        table[name] = column.to_pandas().astype(object)
    rows = np.arange(part.first, part.first + part.table.num_rows)
    return pd.DataFrame(table).assign(file=str(part.path), row=rows)


def _has_bytes(path: Path) -> bool:
    """Whether the file holds anything; raise if it cannot be read."""
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError as err:
        raise DataError(f"{path}: {(err.strerror or str(err)).lower()}; check the path") from None


def beside(
    source: Source, field: str, *, suffixes: Sequence[str] = ("_responses",), required: bool = True
) -> pd.DataFrame:
    """One field of a user's rows that no estimator reads: when a response came, or what kind of prompt it was.

    Parameters
    ----------
    source : path or DataFrame
        As in `cje_core.data.files.read`.
    field : str
        Its name; all its values are numbers, or all are text (ISO dates sort as text).
    suffixes : sequence of str
        As in `load`.
    required : bool
        Whether a row without it stops the reading; else it is None there.

    Returns
    -------
    DataFrame
        ``policy``, ``prompt_id`` (text), `field`, ``file`` and ``row`` of each row, in the order of the file.

    Raises
    ------
    DataError
        With file, row and field.
    """
    keys = ("policy", "prompt_id")
    # A field of this project may be asked for too (cluster, stratum); what names the row is read as ever.
    table, _ = load(source, list(dict.fromkeys([*keys, field])), suffixes=suffixes, texts=keys)
    for key in keys:
        table[key] = ids(table, key, required=True)
    given = [
        None if v is pd.NA or v != v else v for v in table[field].tolist()
    ]  # only NaN differs from itself
    missing = np.array([v is None for v in given])
    if missing.all():
        raise DataError(f"{name_of(source)}: no row has the field {field!r}; add it, or name another")
    if required:
        stop(table, missing, field, "every row needs one, to be put in order or in its group")
    number = np.array([isinstance(v, Real) and not isinstance(v, bool) for v in given])
    text = np.array([isinstance(v, str) for v in given])
    alike = number if number[np.argmin(missing)] else text
    stop(table, ~(alike | missing), field, "write numbers in every row, or text in every row")
    if alike is number:
        given = [None if v is None else float(v) for v in given]
        stop(table, [v is not None and not np.isfinite(v) for v in given], field, FINITE)
    kept = table[["policy", "prompt_id", "file", "row"]]
    return kept.assign(**{field: pd.Series(given, index=table.index, dtype=object)})
