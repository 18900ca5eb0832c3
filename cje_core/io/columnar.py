"""Responses as columns: the quick parsers of a file in which nothing is odd, and columns of checked rows by code.

A quick parser gives typed columns or None, and then Python's parser reads the file: no value is judged here. One thing
is read here that Python's parser refuses: in a field that nobody asked for, digits beyond that parser's own limits.
"""

import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cje_core.checks import BoolArray, FloatArray
from cje_core.data.contract import NO_FOLD
from cje_core.data.errors import DataError
from cje_core.io.fields import NUMBERS, SHARED, place, show, stop
from cje_core.io.intake.names import closest
from cje_core.io.intake.raw import HEAD, raw_bytes

BLOCK = 1 << 22  # bytes that are parsed at once; a longer record is odd
SPARSE = 64  # cells for each row, beyond which marking every one costs more than sorting
# What stands where no row of a prompt says what its rows share; else every prompt needs one.
ABSENT = {"cohort": ""}
TWINS = "remove one, name two arms apart, or number the draws of one policy in draw_idx"
TEXT = pd.StringDtype("pyarrow", na_value=np.nan)


class Codes(NamedTuple):
    """Names in place of text: ``names[codes[k]]`` is the text of row k, -1 where there is none; names are sorted."""

    codes: npt.NDArray[np.int32]  # (rows,)
    names: pa.LargeStringArray


class Columns(NamedTuple):
    """Checked responses; a row is a response."""

    policy: Codes
    prompt: Codes
    draw: npt.NDArray[np.intp]  # (rows,) position in `draws`
    draws: npt.NDArray[np.int64]  # sorted
    numbers: dict[str, FloatArray]  # (rows,) each; the score, what else any row has, and the covariates
    probe: BoolArray  # (rows,)
    evaluated: BoolArray  # (rows,) whether a response enters its policy's mean
    per_prompt: dict[str, npt.NDArray[np.object_]]  # (prompts,) what all rows of a prompt share

    @property
    def shape(self) -> tuple[int, int, int]:
        """Policies, prompts and draws."""
        return len(self.policy.names), len(self.prompt.names), len(self.draws)

    @property
    def cell(self) -> npt.NDArray[np.intp]:
        """(rows,) position of each row in flattened arrays of `shape`."""
        _, prompts, draws = self.shape
        return (self.policy.codes * np.intp(prompts) + self.prompt.codes) * draws + self.draw


# --- parsers ---


class Parsed(NamedTuple):
    """Typed columns of a file, all its names, and the columns whose names are close to a field's."""

    table: pd.DataFrame
    columns: list[str]
    strange: pd.DataFrame
    first: int  # number of the first row


class _Odd(Exception):
    """Something that only Python's parser can read, or name the row of."""


def _odd_if(found: object) -> None:
    """Leave the file to Python's parser."""
    if found:
        raise _Odd


def parsed_jsonl(
    path: Path, texts: Sequence[str], numbers: Sequence[str], known: Collection[str]
) -> Parsed | None:
    """Fields of JSONL with one object on every line, looked up in the object and then in its ``metadata``; or None.

    Parameters
    ----------
    path : Path
    texts, numbers : sequence of str
        The fields that are read, by kind.
    known : collection of str
        All names that a record may have.
    """
    try:
        raw = raw_bytes(path).removeprefix(b"\xef\xbb\xbf")
        _check_text(raw)
        # Where a brace ends each line and the next begins with one, a line holds at least one object, and as many
        # lines as objects means one each: in JSON no brace follows another without a comma or bracket between.
        lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
        joints = raw.count(b"}\n{") + (raw.count(b"}\r\n{") if b"\r" in raw else 0)
        _odd_if(not raw.startswith(b"{") or joints != lines - 1)
        table = _objects(raw, texts, numbers)
        _odd_if(table.num_rows != lines)
        return _parsed(table, texts, numbers, known, 1)
    except (_Odd, pa.ArrowException, UnicodeDecodeError):
        return None


def _check_text(raw: bytes) -> None:
    """Whether `raw` is UTF-8 without the zero byte, at which parsers end; nothing at all is odd too."""
    _odd_if(not raw or b"\0" in raw)
    if not raw.isascii():
        raw.decode("utf-8")


def _objects(raw: bytes, texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    """All fields of the objects: wanted ones by their kind, the others as they are, so that no name is missed."""
    import pyarrow.json

    places = _first_records(raw)
    wanted = {
        **dict.fromkeys(texts, pa.string()),
        **dict.fromkeys(numbers, pa.float64()),
        "probe": pa.bool_(),
    }
    for field in texts:  # ids may be integers
        if {type(place.get(field)) for place in places} - {type(None)} == {int}:
            wanted[field] = pa.int64()
    held = {name for place in places for name in place}
    while True:
        # A wanted field that no record has costs as much as one that all have, so only those that are met are declared.
        schema = [(field, kind) for field, kind in wanted.items() if field in held]
        if "metadata" in held:
            schema.append(("metadata", pa.struct(schema)))
        table = pyarrow.json.read_json(
            pa.BufferReader(raw),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=BLOCK),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(schema), unexpected_field_behavior="infer"
            ),
        )
        met = set(_names(table)) & {*wanted, "metadata"}
        if met <= held:
            return table
        held |= met


def _first_records(raw: bytes) -> list[dict[str, Any]]:
    """First objects and their ``metadata``."""
    head = raw[:HEAD].split(b"\n")
    if len(raw) > HEAD:
        head.pop()  # it may be cut
    try:
        records = [json.loads(record) for record in head if record]
    except (ValueError, RecursionError):
        raise _Odd from None
    _odd_if(not all(isinstance(record, dict) for record in records))
    inner = [record.get("metadata") for record in records]
    _odd_if(any(one is not None and not isinstance(one, dict) for one in inner))
    return [*records, *(one for one in inner if isinstance(one, dict))]


def _names(table: pa.Table) -> list[str]:
    """Names of all fields, and of those in ``metadata``."""
    names = list(table.column_names)
    if "metadata" in names and pa.types.is_struct(table.schema.field("metadata").type):
        names += [field.name for field in table.schema.field("metadata").type]
    return names


def parsed_csv(
    path: Path, texts: Sequence[str], numbers: Sequence[str], known: Collection[str]
) -> Parsed | None:
    """Fields of CSV without a quote or a blank line; or None."""
    import pyarrow.csv

    try:
        raw = raw_bytes(path).removeprefix(b"\xef\xbb\xbf")
        _check_text(raw)
        ends = raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw
        _odd_if(b'"' in raw or b"\r" in ends or b"\n\n" in ends or ends.startswith(b"\n"))
        names = ends[: ends.find(b"\n")].decode().split(",")
        _odd_if(len(set(names)) < len(names) or "" in names)
        near = closest(names, known)
        kinds = {
            f: pa.large_string() if f in (*texts, *near) else pa.float64()
            for f in (*texts, *numbers, *near)
            if f in names
        }
        table = pyarrow.csv.read_csv(
            pa.BufferReader(ends),
            read_options=pyarrow.csv.ReadOptions(use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=kinds, include_columns=list(kinds), null_values=[""], strings_can_be_null=False
            ),
        )
        for field, kind in kinds.items():
            if kind == pa.float64():  # what says nan, and not only that, is parsed as one
                _odd_if(table[field].null_count < np.isnan(table[field].to_numpy()).sum())
            elif field != "prompt_id":  # an empty cell is a missing name, but a legal prompt_id
                empty = pc.equal(table[field], "")
                if pc.any(empty).as_py():
                    at = table.column_names.index(field)
                    known_text = pc.if_else(empty, pa.scalar(None, table[field].type), table[field])
                    table = table.set_column(at, field, known_text)
        parsed = _parsed(table, texts, numbers, known, 2)
        return parsed._replace(columns=names)
    except (_Odd, pa.ArrowException, UnicodeDecodeError):
        return None


def _parsed(
    table: pa.Table, texts: Sequence[str], numbers: Sequence[str], known: Collection[str], first: int
) -> Parsed:
    """Columns of the wanted fields, a missing one taken from ``metadata``, and of those that look like one."""
    names = _names(table)
    near = closest(names, known)
    inner = table["metadata"] if len(names) > len(table.column_names) else None
    columns: dict[str, Any] = {}
    for field in dict.fromkeys((*texts, *numbers, *near)):
        column = table[field] if field in table.column_names else None
        if inner is not None and inner.type.get_field_index(field) >= 0:
            of_inner = pc.struct_field(inner, field)
            column = of_inner if column is None else pc.coalesce(column, of_inner)
        if column is None:
            continue
        if field in near:
            columns[field] = pd.Series(~column.is_null().to_numpy()).where(lambda held: held).astype(object)
        elif field in numbers:
            columns[field] = np.asarray(column.to_numpy(), dtype=float)
        elif pa.types.is_boolean(column.type):
            columns[field] = column.fill_null(False).to_numpy()
        else:
            columns[field] = text_column(column)
    # Rows without any wanted field are rows too.
    frame = pd.DataFrame(columns, index=np.arange(table.num_rows), copy=False)
    return Parsed(
        frame.drop(columns=list(near), errors="ignore"), names, frame[[n for n in near if n in frame]], first
    )


def text_column(values: pa.Array | pa.ChunkedArray) -> pd.api.extensions.ExtensionArray:
    """Text of Arrow as a column of pandas, without a Python object for each; integers are written as text."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    chunks = [values] if isinstance(values, pa.Array) else values.chunks
    text = pa.chunked_array(chunks, values.type)
    if not pa.types.is_large_string(text.type):
        text = text.cast(pa.large_string())
    return pd.arrays.ArrowStringArray(text, dtype=TEXT)  # type: ignore[call-arg]  # the stubs lack it


def few_texts(values: pa.ChunkedArray) -> pd.Categorical | None:
    """Text of Arrow's dictionaries as a column of pandas; None where they are no set of names."""
    values = values.unify_dictionaries()  # row groups have dictionaries of their own
    names = values.chunk(0).dictionary.to_pylist() if values.num_chunks else []
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        return None
    codes = [chunk.indices.fill_null(-1).to_numpy() for chunk in values.chunks]
    return pd.Categorical.from_codes(np.concatenate(codes) if codes else [], pd.Index(names, dtype=object))


def constant(text: str, n: int) -> pd.Categorical:
    """One text for every row, in a byte each."""
    return pd.Categorical.from_codes(np.zeros(n, dtype=np.int8), pd.Index([text], dtype=object))


# --- rows by code ---


def columns_of(table: pd.DataFrame, covariates: Sequence[str] = ()) -> Columns:
    """Columns of checked rows; stop at two of one response, and at a prompt whose rows differ in what they share.

    Parameters
    ----------
    table : DataFrame
        As `cje_core.io.files.records` checks it.
    covariates : sequence of str
    """
    policy, prompt = codes_of(table["policy"]), codes_of(table["prompt_id"])
    if len(table) and policy.names[0].as_py() == "":  # names are sorted
        stop(table, policy.codes == 0, "policy", "name the policy")
    draws, draw = np.zeros(1, dtype=np.int64), np.zeros(len(table), dtype=np.intp)
    if table["draw_idx"].any():
        draws, draw = np.unique(table["draw_idx"].to_numpy(), return_inverse=True)
    elif len(table):
        draws = table["draw_idx"].to_numpy()[:1].astype(np.int64)
    names = [name for name in NUMBERS[1:] if name in table]
    numbers = {name: table[name].to_numpy(dtype=float) for name in dict.fromkeys([*names, *covariates])}
    numbers = {
        name: values for name, values in numbers.items()
        if name in ("judge_score", *covariates) or not np.isnan(values).all()
    }  # fmt: skip
    probe = table["probe"].to_numpy(dtype=bool) if "probe" in table else np.zeros(len(table), dtype=bool)
    evaluated = (
        table["evaluated"].to_numpy(dtype=bool) if "evaluated" in table else np.ones(len(table), dtype=bool)
    )
    columns = Columns(policy, prompt, draw, draws, numbers, probe, evaluated, {})
    _check_twins(table, columns)
    for field in SHARED:
        if field in table and table[field].notna().any():
            columns.per_prompt[field] = _per_prompt(table, field, columns)
    return columns


def _check_twins(table: pd.DataFrame, columns: Columns) -> None:
    """Stop at two rows of one policy, prompt and draw; of a few cells by marks, of many by sorting."""
    size, cell = math.prod(columns.shape), columns.cell
    if size > SPARSE * len(cell):
        twins = len(np.unique(cell)) < len(cell)
    else:
        seen = np.zeros(size, dtype=bool)
        seen[cell] = True
        twins = bool(np.count_nonzero(seen) < len(cell))
    if not twins:
        return
    second = int(np.argmax(pd.Series(cell).duplicated().to_numpy()))
    again, first = table.iloc[second], table.iloc[int(np.argmax(cell == cell[second]))]
    raise DataError(
        f"{place(again)}: policy {again.policy!r}, prompt_id {show(again.prompt_id)}, draw_idx {again.draw_idx} is "
        f"already in {place(first)}; {TWINS}"
    )


def codes_of(column: pd.Series) -> Codes:
    """Text as codes into sorted names, each of which is used."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        used = column.cat.remove_unused_categories()
        names = pa.array(used.cat.categories.tolist(), pa.large_string())
        order = pc.sort_indices(names).to_numpy()
        return Codes(_rank(order)[used.cat.codes.to_numpy()], names.take(pa.array(order)))
    held = column.array if column.dtype == TEXT else column.tolist()
    values = pa.array(held, pa.large_string(), from_pandas=True)
    encoded = pa.chunked_array([values] if isinstance(values, pa.Array) else values.chunks, pa.large_string())
    encoded = encoded.dictionary_encode()  # chunks share one dictionary
    if not all(chunk.dictionary.equals(encoded.chunk(0).dictionary) for chunk in encoded.chunks):
        encoded = encoded.unify_dictionaries()
    names = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], pa.large_string())
    order = pc.sort_indices(names).to_numpy()  # by bytes of UTF-8, which is the order of code points
    parts = [chunk.indices.fill_null(len(order)).to_numpy() for chunk in encoded.chunks]
    codes = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    return Codes(_rank(order)[codes], names.take(pa.array(order)))


def _rank(order: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Position of each code in sorted order; the last is of no code."""
    rank = np.full(len(order) + 1, -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


def _per_prompt(table: pd.DataFrame, field: str, columns: Columns) -> npt.NDArray[np.object_]:
    """Value that all rows of a prompt share, any of which may leave it to the others."""
    text, of_row = codes_of(table[field]), columns.prompt.codes
    known = text.codes >= 0
    code = np.full(len(columns.prompt.names), -1, dtype=np.int32)
    code[of_row[known][::-1]] = text.codes[known][::-1]  # the first row of a prompt counts
    stop(
        table,
        known & (text.codes != code[of_row]),
        field,
        lambda row: f"another row of prompt_id {show(row.prompt_id)} differs; give each prompt one {field}",
    )
    missing = code < 0
    absent = ABSENT.get(field, str(NO_FOLD))
    if field not in ABSENT:
        needed = missing[of_row]
        if field == "fold_id":  # what only audits teaches no fold
            needed &= columns.evaluated
        stop(table, needed, field, "other prompts have one, so each needs one")
    names = np.array([*text.names.to_pylist(), absent], dtype=object)
    return names[code]
