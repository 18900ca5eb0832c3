"""Rows of a file as objects: JSON lines, an array of objects, CSV or Parquet, each with its number."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError, line
from cje_core.io.fields import show
from cje_core.io.intake.cells import csv_rows
from cje_core.io.intake.raw import (
    LINES,
    PARQUET,
    TwiceError,
    is_zipped,
    kind_of,
    parsed,
    raw_bytes,
    readable,
)


def rows_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and fields of every row of a file; empty cells of CSV are None.

    Raises
    ------
    DataError
        With file and row.
    """
    kind = kind_of(path)
    if kind in LINES:
        yield from records_of(path)
    elif kind == ".csv":
        rows = csv_rows(path)
        header = next(rows, [])
        for name in header:
            if header.count(name) > 1:
                raise DataError(f"{path}: column {name!r} occurs {header.count(name)} times; keep one")
        for number, cells in enumerate(rows, 2):
            yield number, {name: cell or None for name, cell in zip(header, cells, strict=True)}
    elif kind in PARQUET and not is_zipped(path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            records = pq.read_table(path, use_threads=False).to_pylist()
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            OverflowError,
        ) as error:  # dates beyond the calendar too
            raise DataError(f"{path}: not Parquet, or damaged ({line(str(error), 120)})") from None
        yield from enumerate(records, 1)
    else:
        raise DataError(f"{path}: file type {kind!r} is unknown; give .jsonl, .json, .csv or .parquet")


def records_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line that is not blank, or of every object of an array."""
    if not has_bytes(path):
        return
    if kind_of(path) == ".json" and raw_bytes(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        array = object_of(path, raw_bytes(path), 1)
        for number, record in enumerate(array, 1):
            if not isinstance(record, dict):
                raise DataError(f"{path}, row {number}: {show(record)}; write an array of JSON objects")
            yield number, record
        return
    with readable(path) as lines:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            record = object_of(path, text, number)
            if not isinstance(record, dict):
                raise DataError(f"{path}, row {number}: {show(record)}; write one JSON object per line")
            yield number, record


def object_of(path: Path, raw: bytes, number: int) -> Any:
    """JSON value of bytes; what is wrong with them is a `DataError` that names file and row."""
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as err:
        raise DataError(f"{path}, row {number}: not UTF-8 ({err.reason}); save the file as UTF-8") from None
    try:
        return parsed(text)
    except TwiceError as err:
        raise DataError(f"{path}, row {number}: field {str(err)!r} occurs twice; keep one") from None
    except (ValueError, RecursionError) as err:
        what = err.msg if isinstance(err, json.JSONDecodeError) else type(err).__name__
        raise DataError(
            f"{path}, row {number}: not JSON ({what}): {show(text)}; write one JSON object per line"
        ) from None


def has_bytes(path: Path) -> bool:
    """Whether the file holds anything; raise if it cannot be read."""
    with readable(path) as file:
        return bool(file.read(1))
