"""Tables in the columns of the logging schema: JSONL or Parquet, read by columns, every row known by its place.

A column holds numbers, texts, lists of numbers (one per token) or objects; what it holds instead stops the reading
with one line. A log-likelihood that is missing, NaN or infinite does not: such rows are left out later, and counted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.contract import CONTROL
from cje_core.data.errors import DataError, line
from cje_core.io.fields import ids, numbers, show
from cje_core.io.intake.raw import LINES, PARQUET
from cje_core.io.tables import load_jsonl

ObjectArray = npt.NDArray[np.object_]
# Texts of the schema: an inferred type would take a date for a time.
TEXTS = ("x_id", "prompt_id", "prompt", "continuation", "response", "cohort", "policy", "model", "template",
         "tokenizer", "error", "left_out")  # fmt: skip
LOGP = "a list of numbers, one per token, or their sum is expected (nats; null where it is unknown)"

SINGLE = "a number is expected (nats; null where it is unknown)"


class Ragged(NamedTuple):
    """Lists of numbers: row i holds ``values[offsets[i]:offsets[i + 1]]``."""

    values: FloatArray
    offsets: IntArray  # (rows + 1,)

    @property
    def length(self) -> IntArray:
        """(rows,) how many numbers each row holds."""
        return np.diff(self.offsets)

    def sums(self) -> FloatArray:
        """(rows,) sum of each row; NaN where a row holds nothing."""
        out = np.full(len(self.offsets) - 1, np.nan)
        some = self.length > 0
        if some.any():
            out[some] = np.add.reduceat(self.values, self.offsets[:-1][some])
        return out

    def counts(self, which: BoolArray) -> IntArray:
        """(rows,) how many numbers of each row are among `which`, a mask of the values."""
        if not which.any():
            return np.zeros(len(self.offsets) - 1, dtype=np.intp)
        return np.diff(np.concatenate([[0], np.cumsum(which)])[self.offsets])

    def take(self, rows: IntArray) -> "Ragged":
        """Some of the rows, in the order given."""
        if len(rows) == len(self.offsets) - 1 and (np.diff(rows) == 1).all():
            return self
        length = self.length[rows]
        offsets = np.concatenate([[0], np.cumsum(length)])
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], length)
        return Ragged(self.values[at], offsets)

    @classmethod
    def of(cls, lists: Sequence[npt.ArrayLike | None]) -> "Ragged":
        """Lists of numbers, None and a single number among them.

        Examples
        --------
        >>> Ragged.of([[1.0, 2.0], None, 3.0]).sums().tolist()
        [3.0, nan, 3.0]
        """
        rows = [np.empty(0) if one is None else np.atleast_1d(np.asarray(one, dtype=float)) for one in lists]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        return cls(np.concatenate(rows) if rows else np.empty(0), offsets)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file."""

    file: str
    row: IntArray  # line of a JSONL file, record counted from 1 in a Parquet file
    columns: Mapping[str, pa.Array | ObjectArray]

    def __len__(self) -> int:
        """Rows."""
        return len(self.row)

    def part(self, field: str, values: Sequence[Any]) -> "Table":
        """One column made of parts of another, at its places."""
        column = np.empty(len(self), dtype=object)
        column[:] = values
        return Table(self.file, self.row, {field: column})

    def name(self, *names: str) -> str | None:
        """Return the first of `names` of which any row has a value."""
        return next(
            (name for name in names if name in self.columns and not _null(self.columns[name]).all()), None
        )

    def required(self, *names: str) -> str:
        """Return the first of `names` that the file has, or stop."""
        found = next((name for name in names if name in self.columns), None)
        if found is None:
            held = line(", ".join(self.columns), 80)
            raise DataError(f"{self.file}: no column {names[0]!r} (it has {held}); add or rename the column")
        return found

    def objects(self, field: str) -> ObjectArray:
        """Values as Python objects, None where missing."""
        column = self.columns[field]
        if isinstance(column, np.ndarray):
            return column
        if _is_text(column):
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
        out = np.empty(len(column), dtype=object)
        out[:] = column.to_pylist()
        return out

    def stop(self, bad: npt.ArrayLike, field: str, mend: str | Callable[[int], str]) -> None:
        """Raise `DataError` for the first row where `bad` holds: place, field, value and mend."""
        mask = np.asarray(bad, dtype=bool)
        if mask.any():
            at = int(np.argmax(mask))
            column = self.columns[field]
            value = column[at] if isinstance(column, np.ndarray) else column[at].as_py()
            words = mend if isinstance(mend, str) else mend(at)
            raise DataError(f"{self.file}, row {self.row[at]}: {field} is {show(value)}; {words}")

    def frame(self, field: str) -> pd.DataFrame:
        """One column with the place of each row, for the checks of `cje_core.io.fields`."""
        column = self.columns[field]
        values = np.asarray(column) if _numeric(column) else self.objects(field)
        return pd.DataFrame({field: values, "file": self.file, "row": self.row})

    def texts(self, field: str, *, required: bool = False) -> ObjectArray:
        """Ids: text, integers as text, None where missing."""
        column = self.columns[field]
        if isinstance(column, pa.Array) and _is_text(column) and not (required and column.null_count):
            names = column.unique().drop_null().to_pylist()
            if not CONTROL.search("".join(names)):
                return self.objects(field)
        return np.asarray(ids(self.frame(field), field, required=required), dtype=object)

    def numbers(self, field: str) -> FloatArray:
        """Finite numbers, NaN where missing."""
        return numbers(self.frame(field), field)

    def flags(self, field: str) -> tuple[BoolArray, BoolArray]:
        """True or false (1 and 0 also count), and where it is known."""
        column = self.columns[field]
        if isinstance(column, pa.Array) and pa.types.is_boolean(column.type):
            return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False)), ~_null(column)
        values = self.objects(field)
        known = np.array([v is not None for v in values], dtype=bool)
        right = [
            v is None or isinstance(v, bool) or (isinstance(v, int | float) and v in (0, 1)) for v in values
        ]
        self.stop(~np.array(right, dtype=bool), field, "write true or false")
        return np.array([bool(v) for v in values], dtype=bool), known

    def singles(self, field: str) -> FloatArray:
        """Numbers, infinite ones too, NaN where missing; no lists."""
        column = self.columns[field]
        if _numeric(column):
            return np.asarray(column, dtype=float)
        values = self.objects(field)
        right = [v is None or _is_number(v) for v in values]
        self.stop(~np.array(right, dtype=bool), field, SINGLE)
        return np.array([np.nan if v is None else float(v) for v in values])

    def lists(
        self, field: str, mend: str = LOGP, *, scalars: bool = True
    ) -> tuple[FloatArray, Ragged | None]:
        """Numbers (NaN where missing or where a list stands), and the lists (None where there is none)."""
        column = self.columns[field]
        if scalars and _numeric(column):
            return np.asarray(column, dtype=float), None
        if isinstance(column, pa.Array) and (
            pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        ):
            inner = column.flatten()  # without what stands behind a null
            if _numeric(inner) or pa.types.is_integer(inner.type) or pa.types.is_null(inner.type):
                length = np.nan_to_num(
                    np.asarray(column.value_lengths().to_numpy(zero_copy_only=False), float)
                )
                offsets = np.concatenate([[0], np.cumsum(length.astype(np.int64))])
                values = np.asarray(inner.to_numpy(zero_copy_only=False), dtype=float)
                return np.full(len(column), np.nan), Ragged(values, offsets)
        objects = self.objects(field)
        right = [
            v is None
            or (scalars and _is_number(v))
            or (isinstance(v, list) and all(w is None or _is_number(w) for w in v))
            for v in objects
        ]
        self.stop(~np.array(right, dtype=bool), field, mend)
        listed = [
            [np.nan if w is None else float(w) for w in v] if isinstance(v, list) else None for v in objects
        ]
        if all(one is None for one in listed):
            return np.array([np.nan if v is None else float(v) for v in objects]), None
        mixed = "other rows hold lists: give a list in every row, or a sum in every row"
        self.stop([_is_number(v) for v in objects], field, mixed)
        return np.full(len(objects), np.nan), Ragged.of(listed)

    def parsed(self, field: str) -> ObjectArray:
        """Objects; a text is parsed as JSON, and stays text where it is none."""
        values = self.objects(field)
        known: dict[str, Any] = {}
        for value in values:
            if isinstance(value, str) and value not in known:
                known[value] = parse(value)
        out = np.empty(len(values), dtype=object)
        out[:] = [known[v] if isinstance(v, str) else v for v in values]
        return out


def read_table(path: str | Path) -> Table:
    """Columns of a JSONL or Parquet file, at least one row.

    Raises
    ------
    DataError
        With one line: a file that is not there, is empty, or is neither JSONL nor Parquet.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if path.is_dir() or kind not in (*PARQUET, *LINES):
        what = "a directory" if path.is_dir() else f"of type {kind!r}"
        raise DataError(f"{path} is {what}; give one .jsonl or .parquet file")
    try:
        with path.open("rb"):
            pass  # Arrow's own error does not say what is wrong with a path
        table = _parquet(path) if kind in PARQUET else _jsonl(path)
    except OSError as err:
        raise DataError(f"{path}: {(err.strerror or str(err)).lower()}; check the path") from None
    if len(table) == 0:
        raise DataError(f"{path} is empty: it has no rows; give at least one row")
    return table


def first_fields(path: Path) -> set[str]:
    """Names of the fields of a Parquet file, or of the first object of a JSONL file; empty where it has none."""
    try:
        if path.suffix.lower() in PARQUET:
            import pyarrow.parquet

            return set(pyarrow.parquet.read_schema(path).names)
        with path.open("rb") as lines:
            first = next((text for text in lines if text.strip()), b"")
        record = json.loads(first.decode("utf-8-sig"))
    except (
        OSError,
        ValueError,
        RecursionError,
    ):  # Arrow's errors are ValueErrors; whoever reads it will say what is wrong
        return set()
    return set(record) if isinstance(record, dict) else set()


def _parquet(path: Path) -> Table:
    import pyarrow.parquet

    try:
        read = pyarrow.parquet.read_table(path, use_threads=False)
    except pa.ArrowException as err:
        raise DataError(
            f"{path}: not Parquet ({line(str(err), 120)}); give the file its right suffix"
        ) from None
    return Table(str(path), np.arange(1, read.num_rows + 1), _arrays(path, read))


def _arrays(path: Path, table: pa.Table) -> dict[str, pa.Array]:
    twice = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: column {twice!r} occurs more than once; rename or drop all but one")
    out = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        whole = column.combine_chunks()
        out[name] = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return out


def _jsonl(path: Path) -> Table:
    """By columns where each line is one object and each field of one type, else record by record."""
    import pyarrow.json

    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    joints = raw.count(b"}\n{") + raw.count(b"}\r\n{")
    if raw.startswith(b"{") and joints == lines - 1 and b"\0" not in raw:
        texts = pa.schema([(name, pa.string()) for name in TEXTS if f'"{name}"'.encode() in raw])
        try:
            raw.decode("utf-8")
            read = pyarrow.json.read_json(
                pa.BufferReader(raw),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(raw), 1)),
                parse_options=pyarrow.json.ParseOptions(explicit_schema=texts),
            )
        except (pa.ArrowException, UnicodeDecodeError):
            pass  # read record by record, which names the row of what is wrong
        else:
            if read.num_rows == lines and "metadata" not in read.column_names:
                return Table(str(path), np.arange(1, lines + 1), _arrays(path, read))
    return _records(path)


def _records(path: Path) -> Table:
    names: dict[str, None] = {}
    whole = load_jsonl(path, ["metadata"])  # every line is one object, or stops here
    with path.open("rb") as lines:
        for text in lines if len(whole) else ():
            record = json.loads(text.decode("utf-8-sig").strip() or "{}")
            inner = record.get("metadata")
            names |= dict.fromkeys(record) | (dict.fromkeys(inner) if isinstance(inner, dict) else {})
    table = load_jsonl(path, [name for name in names if name not in ("file", "row")])
    return Table(
        str(path),
        table["row"].to_numpy(),
        {name: table[name].to_numpy(object) for name in names if name in table},
    )


def _null(column: pa.Array | ObjectArray) -> BoolArray:
    if isinstance(column, np.ndarray):
        return np.array([v is None for v in column], dtype=bool)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)


def _is_text(column: pa.Array | ObjectArray) -> bool:
    """Whether a column holds nothing but texts and nulls."""
    if isinstance(column, np.ndarray):
        return False
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _numeric(column: pa.Array | ObjectArray) -> bool:
    """Whether a column is of numbers that NumPy holds as they are."""
    if isinstance(column, np.ndarray):
        return False
    whole = pa.types.is_integer(column.type) and not column.null_count
    return bool(pa.types.is_floating(column.type) or whole)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse(text: str) -> Any:
    """JSON of a text, or the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
