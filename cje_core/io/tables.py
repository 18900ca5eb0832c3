"""Files -> tables whose every row knows its file and line: one parser for each format, and no rule about values.

`load` reads JSONL, CSV, Parquet, a directory of ``{policy}.jsonl``, a DataFrame or what a reader made of another
tool's file into one table: a column per wanted field (missing where a record lacks it), ``file``, and ``row``: the line
of a JSONL file, the record of a CSV file counted with its header as row 1, the record counted from 1 elsewhere. Columns
come typed from the quick parsers of `cje_core.io.columnar`, or as objects from Python's own, which take what is odd.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from cje_core.data.contract import CONTROL, ONE_LINE
from cje_core.data.errors import DataError, line
from cje_core.io.columnar import Parsed, constant, few_texts, parsed_csv, parsed_jsonl, text_column
from cje_core.io.fields import FINITE, READ, Foreign, Source, check_columns, ids, name_of, place, stop
from cje_core.io.intake.cells import csv_rows
from cje_core.io.intake.names import CAUTION, check_names, closest
from cje_core.io.intake.raw import KINDS, LINES, PARQUET, is_zipped, kind_of, stem_of
from cje_core.io.intake.rows import has_bytes, records_of

Remarks = list[tuple[Path, str]]  # what is to be said of a file as a whole
# A label, score or name that is lost to a misspelt field changes numbers; other fields only deserve a word.
FEW = ("policy",)  # texts of few names, which Parquet is read into without a text for each row
VITAL = ("policy", "prompt_id", "draw_idx", "judge_score", "oracle_label", "label_prob")


class Part(NamedTuple):
    """Adjacent rows of a Parquet file."""

    table: Any  # pyarrow's
    path: Path
    first: int  # number of the first row, counted from 1


def load(
    source: Source | Part,
    fields: Sequence[str],
    *,
    suffixes: Sequence[str],
    texts: Sequence[str],
    numbers: Sequence[str] = (),
) -> tuple[pd.DataFrame, Remarks]:
    """Read the wanted fields of a source.

    Parameters
    ----------
    source : path, DataFrame, Foreign or Part
    fields : sequence of str
        Fields to read, with ``policy`` and ``prompt_id``. In JSONL a field may also stand in ``metadata``.
    suffixes : sequence of str
        Of file names in a directory, ``{policy}{suffix}.jsonl``: the first that any file has counts; where none
        has one, ``{policy}.jsonl``. Each may be .jsonl, .json, .csv or .parquet, the first three gzipped too.
    texts : sequence of str
        The fields that a CSV file holds as text.
    numbers : sequence of str
        The fields that are numbers: where they are named, columns are typed if nothing is odd.

    Returns
    -------
    table : DataFrame
        Not empty; rows in order of file name and line.
    remarks : list of (Path, str)
        Files of a directory that were not read and why, and fields that may be misspelt.
    """
    remarks: Remarks = []
    if isinstance(source, Part):
        table = _typed(source, fields, texts, FEW if numbers else ())
    elif isinstance(source, Foreign):
        table = source.table[[f for f in (*fields, "file", "row") if f in source.table]]
    elif isinstance(source, pd.DataFrame):
        check_columns(source.columns, name_of(source))
        held = source.rename(columns=str).reset_index(drop=True)
        table = held[[f for f in fields if f in held]].astype(object)
        table = table.assign(file=name_of(source), row=np.arange(1, len(source) + 1))
        remarks = misspelt(Path(name_of(source)), table, list(map(str, held.columns)), fields, held)
    elif (path := Path(source)).is_dir():
        table, remarks = _load_directory(path, suffixes, fields, texts, numbers)
    else:
        table, remarks = load_file(path, fields, texts, numbers=numbers)
    if table.empty:
        name = source.path if isinstance(source, Part) else name_of(source)
        raise DataError(f"{name} is empty: it has no rows; give at least one response")
    # One array each serves all fields that no row has.
    number = np.full(len(table), np.nan)
    text = text_column(pa.nulls(len(table), pa.large_string())) if numbers else None
    absent = {field: number if field in numbers else text for field in fields if field not in table}
    return table.assign(**absent) if absent else table, remarks


def load_file(
    path: Path,
    fields: Sequence[str],
    texts: Sequence[str],
    required: Sequence[str] = ("policy", "prompt_id"),
    numbers: Sequence[str] = (),
) -> tuple[pd.DataFrame, Remarks]:
    """Fields of one file; empty where it has no row."""
    kind = kind_of(path)
    if (
        kind in (*LINES, ".csv")
        and numbers
        and (quick := _quick(path, kind, fields, texts, numbers)) is not None
    ):
        if kind == ".csv":
            check_columns(quick.columns, str(path), required)
        n = len(quick.table)
        table = quick.table.assign(file=constant(str(path), n), row=np.arange(quick.first, quick.first + n))
        return table, misspelt(path, table, quick.columns, fields, quick.strange)
    if kind in LINES:
        seen: dict[str, None] = {}
        table = load_jsonl(path, fields, seen)
        return table, misspelt(path, table, seen, fields, strange(path, seen, fields))
    if kind == ".csv":
        return _load_csv(path, fields, texts, required)
    if kind in PARQUET and not is_zipped(path):
        return _load_parquet(path, fields, texts, required, numbers)
    has_bytes(path)
    raise DataError(f"{path}: file type {kind!r} is unknown; give .jsonl, .csv, .parquet or a directory")


def _quick(
    path: Path, kind: str, fields: Sequence[str], texts: Sequence[str], numbers: Sequence[str]
) -> Parsed | None:
    """Typed columns of a file in which nothing is odd, else None."""
    parse = parsed_csv if kind == ".csv" else parsed_jsonl
    return parse(
        path, [f for f in fields if f in texts], [f for f in fields if f in numbers], (*fields, *READ)
    )


def strange(path: Path, names: Collection[str], fields: Sequence[str]) -> pd.DataFrame:
    """Columns of a JSONL file that are nearly those which are read: none but where a name is misspelt."""
    near = closest(names, (*fields, *READ))
    for name in near:
        if CONTROL.search(name):
            raise DataError(f"{path}: field {name!r}: {ONE_LINE}")
    return load_jsonl(path, list(near)) if near else pd.DataFrame()


def misspelt(
    path: Path, table: pd.DataFrame, names: Collection[str], fields: Sequence[str], held: pd.DataFrame
) -> Remarks:
    """Stop at a field whose name is another's but for case, or nearly another's in a row that lacks that one.

    `held` has the columns whose names are close to a field's.
    """
    check_names(names, (*fields, *READ), str(path))
    remarks: Remarks = []
    for name, field in closest(names, (*fields, *READ)).items():
        if name not in held:
            continue
        lacking = held[name].notna().to_numpy(dtype=bool, copy=True)
        if field in table:
            lacking &= table[field].isna().to_numpy(dtype=bool)
        if lacking.any() and field in VITAL:
            row = table.iloc[int(np.argmax(lacking))]
            raise DataError(f"{place(row)}: unknown field {name!r}: did you mean {field}? rename or drop it")
        if lacking.any():
            remarks.append((path, f"{CAUTION}field {name!r} is not read: is it {field} misspelt?"))
    return remarks


def misspelt_columns(path: Path, names: Collection[str], fields: Sequence[str]) -> Remarks:
    """Check the names alone, where rows are read later: a column that is nearly a field, and that field is absent."""
    rows = pd.DataFrame({name: [True] for name in names}).assign(file=str(path), row=1)
    return misspelt(path, rows, names, fields, rows)


def load_jsonl(path: Path, fields: Sequence[str], seen: dict[str, None] | None = None) -> pd.DataFrame:
    """Fields of a JSONL file, looked up in each object and then in its ``metadata``; may be empty.

    All names that any object has are added to `seen`.
    """
    columns: dict[str, list[Any]] = {field: [] for field in fields}
    rows = []
    nothing: dict[str, Any] = {}
    names = {} if seen is None else seen
    for number, record in records_of(path):
        rows.append(number)
        metadata = record.get("metadata")
        inner = metadata if isinstance(metadata, dict) else nothing
        if not record.keys() <= names.keys() or not inner.keys() <= names.keys():
            names.update(dict.fromkeys((*record, *inner)))
        for field, values in columns.items():
            value = record.get(field)
            values.append(inner.get(field) if value is None and inner else value)
    table = pd.DataFrame({field: pd.Series(values, dtype=object) for field, values in columns.items()})
    return table.assign(file=str(path), row=np.asarray(rows, dtype=int))


def response_files(path: Path, suffixes: Sequence[str]) -> tuple[list[Path], str, Remarks]:
    """Files of a directory that are read, the suffix of their names, and all others with the reason."""
    held = sorted(path.iterdir())
    files = [file for file in held if kind_of(file) in KINDS and file.is_file()]
    suffix = next((s for s in suffixes if any(stem_of(f).endswith(s) for f in files)), "")
    chosen = [f for f in files if stem_of(f).endswith(suffix)]
    remarks = []
    for file in held:
        if file.is_dir():
            remarks.append((file, "a directory in a directory is not read; give it by itself"))
        elif file not in files:
            remarks.append((file, "neither .jsonl, .json, .csv nor .parquet (gzipped or not): not read"))
        elif file not in chosen:
            reason = "file not named {policy}_responses.jsonl or {policy}_probe.jsonl as others beside it are"
            remarks.append((file, reason))
    return chosen, suffix, remarks


def policy_of(path: Path, suffix: str) -> str:
    """Policy that a file's name says.

    Examples
    --------
    >>> policy_of(Path("x/base_responses.jsonl.gz"), "_responses")
    'base'
    """
    return stem_of(path).removesuffix(suffix)


def check_policies(files: Sequence[Path], suffix: str) -> None:
    """Stop at two files of one policy."""
    named: dict[str, Path] = {}
    for file in files:
        other = named.setdefault(policy_of(file, suffix), file)
        if other is not file:
            raise DataError(
                f"{file}: {other.name} beside it has the same policy by its name; keep one, or join them"
            )


def _load_directory(
    path: Path, suffixes: Sequence[str], fields: Sequence[str], texts: Sequence[str], numbers: Sequence[str]
) -> tuple[pd.DataFrame, Remarks]:
    """One table from the files of a directory; each file must have rows, and its name is their policy."""
    chosen, suffix, remarks = response_files(path, suffixes)
    if not chosen:
        held = sorted(p.name for p in path.iterdir())
        shown = line(f"it holds {', '.join(held)}", 80) if held else "it is empty"
        wanted = f"{{policy}}{suffixes[0]}.jsonl or {{policy}}.jsonl"
        raise DataError(
            f"{path}: no file {wanted} in this directory ({shown}); give the directory that has them"
        )
    check_policies(chosen, suffix)
    tables = []
    for file in chosen:
        policy = policy_of(file, suffix)
        table, more = load_file(file, fields, texts, ("prompt_id",), numbers)
        remarks += more
        if table.empty:
            raise DataError(f"{file} is empty: policy {policy!r} has no rows; fill the file or remove it")
        if "policy" in table:
            other = table["policy"].notna() & (table["policy"] != policy)
            stop(table, other, "policy", f"but the file name says {policy!r}: correct one of them")
        tables.append(table.assign(policy=text_column(pa.repeat(pa.scalar(policy, pa.large_string()), len(table)))
                                   if numbers else policy))  # fmt: skip
    return pd.concat(tables, ignore_index=True), remarks


def _load_csv(
    path: Path, fields: Sequence[str], texts: Sequence[str], required: Sequence[str]
) -> tuple[pd.DataFrame, Remarks]:
    """Fields of a CSV file; an empty cell is a missing number but a legal (empty) prompt_id."""
    if not has_bytes(path):
        return pd.DataFrame(), []
    rows = csv_rows(path)
    header = next(rows, [])
    check_columns(header, str(path), required)
    near = closest(header, (*fields, *READ))
    wanted = [(field, header.index(field)) for field in (*fields, *near) if field in header]
    columns: list[list[Any]] = [[] for _ in wanted]
    number = 1
    for number, cells in enumerate(rows, 2):  # noqa: B007
        for values, (_, at) in zip(columns, wanted, strict=True):
            values.append(cells[at])
    table = {}
    for values, (field, _) in zip(columns, wanted, strict=True):
        if field not in texts:
            values = [_parse(cell) for cell in values]
        elif field != "prompt_id":
            values = [cell or None for cell in values]
        table[field] = pd.Series(values, dtype=object)
    frame = pd.DataFrame(table).assign(file=str(path), row=np.arange(2, number + 1))
    return frame.drop(columns=list(near)), misspelt(path, frame, header, fields, frame)


def _parse(cell: str) -> float | str | None:
    """Number in a cell, None where it is empty, the text itself where it is no number."""
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


def _load_parquet(
    path: Path, fields: Sequence[str], texts: Sequence[str], required: Sequence[str], numbers: Sequence[str]
) -> tuple[pd.DataFrame, Remarks]:
    """Fields of a Parquet file."""
    if not has_bytes(path):
        return pd.DataFrame(), []
    with opened(path, required) as file:
        kinds = {one.name: one.type for one in file.schema_arrow}
    few = [name for name in FEW if numbers and _is_text(kinds.get(name))]
    with opened(path, required, read_dictionary=few) as file:
        held = file.schema_arrow.names
        near = closest(held, (*fields, *READ))
        names = [field for field in (*fields, *near) if field in held]
        part = Part(file.read(columns=names, use_threads=False), path, 1)
        table = _typed(part, names, texts, FEW if numbers else ())
        return table.drop(columns=list(near)), misspelt(path, table, held, fields, table)


@contextmanager
def opened(path: Path, required: Sequence[str] = ("policy", "prompt_id"), **options: Any) -> Iterator[Any]:
    """A Parquet file, opened by pyarrow with `options`; what is wrong with it is a `DataError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    has_bytes(path)
    try:
        with pq.ParquetFile(path, **options) as file:
            check_columns(file.schema_arrow.names, str(path), required)
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as err:
        if getattr(err, "errno", None) is not None:
            raise  # the system's, as of a full disk; the file's own damage has no number
        raise DataError(
            f"{path}: not Parquet, or damaged ({line(str(err), 120)}); give its right suffix, or write it again"
        ) from None


def _is_text(kind: Any) -> bool:
    """Whether values of this type, if there is one, are text."""
    return kind is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _typed(
    part: Part, fields: Sequence[str], texts: Sequence[str], categories: Sequence[str] = ()
) -> pd.DataFrame:
    """Fields of rows from Parquet; integer ids become text before pandas can turn them into floats."""
    table: dict[str, Any] = {}
    for name in (field for field in fields if field in part.table.column_names):
        column = part.table.column(name)
        if pa.types.is_dictionary(column.type):
            few = few_texts(column) if name in categories else None
            if few is not None:
                table[name] = few
                continue
            column = column.cast(column.type.value_type)
        kind = column.type
        if _is_text(kind) or (name in texts and pa.types.is_integer(kind)):
            table[name] = text_column(column)
        elif pa.types.is_floating(kind) or (pa.types.is_integer(kind) and name not in texts):
            table[name] = np.asarray(column.to_numpy(), dtype=float)
        elif pa.types.is_boolean(kind) and not column.null_count:
            table[name] = column.to_numpy()
        else:
            table[name] = column.to_pandas().astype(object)
    rows = np.arange(part.first, part.first + part.table.num_rows)
    table |= {"file": constant(str(part.path), len(rows)), "row": rows}
    return pd.DataFrame(table, index=np.arange(len(rows)), copy=False)


def beside(
    source: Source, field: str, *, suffixes: Sequence[str] = ("_responses",), required: bool = True
) -> pd.DataFrame:
    """One field of a user's rows that no estimator reads: when a response came, or what kind of prompt it was.

    Parameters
    ----------
    source : path or DataFrame
        As in `cje_core.io.files.read`.
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
