"""Responses read by columns: the quick way for a source in which nothing is odd.

`clean` gives checked columns, or None; whoever gets None reads record by record (`cje_core.data.tables`), which
knows every odd value and names the row of an error. So nothing is refused here, and what is accepted is what the
records would give: every doubt is a None. One thing is read here that Python's parser refuses: in a field that
nobody asked for, nesting or digits beyond that parser's own limits.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cje_core.checks import BoolArray, FloatArray
from cje_core.data.errors import DataError
from cje_core.data.fields import CONTROL, EXACT, FOLD, LARGEST, LENGTH, READ, WORDS, Foreign, Scales, Source
from cje_core.data.intake.names import check_names
from cje_core.data.intake.raw import HEAD, LINES, PARQUET, is_zipped, keys_of, kind_of, raw_bytes
from cje_core.data.tables import Remarks, policy_of, response_files

IDS = ("policy", "prompt_id", "cluster", "stratum", "cohort", "fold_id")
NUMBERS = ("draw_idx", "judge_score", "oracle_label", "label_prob", "surprisal", "log_ratio")
SPARSE = 64  # cells for each row, beyond which marking every one costs more than sorting
BLOCK = 1 << 22  # bytes that are parsed at once; a longer record is odd


class Codes(NamedTuple):
    """Names in place of text: ``names[codes[k]]`` is the text of row k; names are sorted, and each is used."""

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


class _Odd(Exception):
    """Something that only the reading of records can judge."""


def clean(
    source: Source, scales: Scales, covariates: Sequence[str] = (), remarks: Remarks | None = None
) -> Columns | None:
    """Columns of responses in which nothing is odd, else None.

    Parameters
    ----------
    source : path or DataFrame
        As in `cje_core.data.files.read`; a DataFrame is read record by record.
    scales : mapping
        Declared range of ``judge_score`` and ``oracle_label``.
    covariates : sequence of str
        Numeric fields; ``response_length`` is counted where no row brings it.
    remarks : list, optional
        Gets what is to be said of whole files, as of `cje_core.data.tables.load`.
    """
    if isinstance(source, pd.DataFrame | Foreign):
        return None
    said: Remarks = []
    try:
        columns = _checked(_load(Path(source), covariates, said), scales, covariates)
        for field, (low, high) in scales.items():
            if low <= 0 and high >= 10 and field in columns.numbers:
                _odd_if(_has_unit_policy(columns.policy, columns.numbers[field]))
    except (_Odd, pa.ArrowException, UnicodeDecodeError, OSError, DataError):
        return None
    if remarks is not None:
        remarks += said
    return columns


def clean_part(table: pa.Table, scales: Scales) -> Columns | None:
    """The same for some rows of a table; whether policies are on one scale is for all of them to say."""
    try:
        return _checked(table, scales, ())
    except (_Odd, pa.ArrowException):
        return None


def _odd_if(found: object) -> None:
    """Leave the source to the reading of records."""
    if found:
        raise _Odd


# --- files ---


def _load(path: Path, covariates: Sequence[str], remarks: Remarks) -> pa.Table:
    """Wanted fields of a file or directory, null or absent where a record has none."""
    fields = [*IDS, "probe", *NUMBERS, *covariates, *(["response"] if LENGTH in covariates else [])]
    if path.is_dir():
        files, suffix, unread = response_files(path, ("_responses",))
        names = [policy_of(file, suffix) for file in files]
        _odd_if(not files or len(set(names)) < len(names) or any(kind_of(f) not in LINES for f in files))
        remarks += unread
        tables = [_with_policy(f, name, fields, remarks) for f, name in zip(files, names, strict=True)]
        kinds = {f: t.schema.field(f).type for t in tables for f in fields if f in t.column_names}
        for k, table in enumerate(tables):
            for field in (field for field in kinds if field not in table.column_names):
                table = table.append_column(field, pa.nulls(len(table), kinds[field]))
            tables[k] = table.select(list(kinds))
        return pa.concat_tables(tables)
    kind = kind_of(path)
    readers = {
        **dict.fromkeys(LINES, _jsonl),
        **dict.fromkeys(PARQUET, _parquet),
        ".csv": _csv,
    }
    _odd_if(kind not in readers or (kind in PARQUET and is_zipped(path)))
    return readers[kind](path, fields, remarks)


def _with_policy(path: Path, name: str, fields: Sequence[str], remarks: Remarks) -> pa.Table:
    """Fields of a file that its policy names; rows may repeat the name."""
    table = _jsonl(path, fields, remarks)
    _odd_if(CONTROL.search(name))
    if "policy" in table.column_names:
        given = table["policy"].drop_null().unique().to_pylist()
        _odd_if(not set(given) <= {name})
        table = table.drop_columns("policy")
    # Integer ids of one file and text of another are the same ids.
    for field in (field for field in IDS[1:] if field in table.column_names):
        at = table.column_names.index(field)
        table = table.set_column(at, field, table[field].cast(pa.string()))
    column = pa.DictionaryArray.from_arrays(np.zeros(len(table), dtype=np.int32), [name])
    return table.append_column("policy", column)


def _jsonl(path: Path, fields: Sequence[str], remarks: Remarks) -> pa.Table:
    """Fields of JSONL with one object on every line, looked up in the object and then in its ``metadata``."""
    import pyarrow.json

    raw = raw_bytes(path).removeprefix(b"\xef\xbb\xbf")
    _check_text(raw)
    # Where a brace ends each line and the next begins with one, a line holds at least one object, and as many
    # lines as objects means one each: in JSON no brace follows another without a comma or bracket between.
    lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    joints = raw.count(b"}\n{") + (raw.count(b"}\r\n{") if b"\r" in raw else 0)
    _odd_if(not raw.startswith(b"{") or joints != lines - 1 or "metadata" in fields)
    held = keys_of(raw, fields)
    _odd_if(held is None)
    assert held is not None
    remarks += [(path, reason) for reason in check_names(held, (*fields, *READ), str(path))]
    fields = [field for field in fields if field in held]
    kinds = {**dict.fromkeys(fields, pa.float64()), **_kinds_of_ids(raw), "probe": pa.bool_()}
    if "response" in fields:
        kinds["response"] = pa.string()
    schema = [(field, kinds[field]) for field in fields]
    if "metadata" in held:  # a field that no record has costs as much as one that all have
        schema.append(("metadata", pa.struct(schema)))
    table = pyarrow.json.read_json(
        pa.BufferReader(raw),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore"
        ),
    )
    _odd_if(table.num_rows != lines)
    if "metadata" in held:
        if table["metadata"].null_count < lines:
            for at, field in enumerate(fields):
                value = pc.coalesce(table[field], pc.struct_field(table["metadata"], field))
                table = table.set_column(at, field, value)
        table = table.drop_columns("metadata")
    for field in (field for field in fields if kinds[field] == pa.float64()):
        values = table[field].to_numpy()
        _odd_if(np.any(np.signbit(values) & (values == 0)))  # the integer -0 is 0, the float -0.0 is not
    return table


def _check_text(raw: bytes) -> None:
    """Whether `raw` is UTF-8 without the zero byte, at which parsers end; nothing at all is odd too."""
    _odd_if(not raw or b"\0" in raw)
    if not raw.isascii():
        raw.decode("utf-8")


def _kinds_of_ids(raw: bytes) -> dict[str, Any]:
    """Integer or text: the type of each id among the first records."""
    head = raw[:HEAD].split(b"\n")
    if len(raw) > HEAD:
        head.pop()  # it may be cut
    try:
        records = [json.loads(record) for record in head if record]
    except (ValueError, RecursionError):
        raise _Odd from None
    places = [*records, *(m for m in (r.get("metadata") for r in records) if isinstance(m, dict))]
    held = {field: {type(place.get(field)) for place in places} - {type(None)} for field in IDS}
    return {field: pa.int64() if held[field] == {int} else pa.string() for field in IDS}


def _csv(path: Path, fields: Sequence[str], remarks: Remarks) -> pa.Table:
    """Fields of CSV without a quote or a blank line."""
    import pyarrow.csv

    raw = raw_bytes(path).removeprefix(b"\xef\xbb\xbf")
    _check_text(raw)
    ends = raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw
    _odd_if(b'"' in raw or b"\r" in ends or b"\n\n" in ends or ends.startswith(b"\n"))
    names = ends[: ends.find(b"\n")].decode().split(",")
    _odd_if(len(set(names)) < len(names) or not {"policy", "prompt_id"} <= set(names) or "" in names)
    remarks += [(path, reason) for reason in check_names(names, (*fields, *READ), str(path))]
    texts = (*IDS, "probe", "response")
    kinds = {f: pa.string() if f in texts else pa.float64() for f in fields if f in names}
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
            _odd_if(pc.any(pc.equal(table[field], "")).as_py())
    if "probe" in kinds:
        words = {text: WORDS.get(text.strip().lower()) for text in table["probe"].unique().to_pylist()}
        _odd_if(None in words.values())
        true = pa.array([text for text, word in words.items() if word], pa.string())
        at = table.column_names.index("probe")
        table = table.set_column(at, "probe", pc.is_in(table["probe"], value_set=true))
    return table


def _parquet(path: Path, fields: Sequence[str], remarks: Remarks) -> pa.Table:
    """Fields of a Parquet file."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
    _odd_if(len(set(schema.names)) < len(schema) or not {"policy", "prompt_id"} <= set(schema.names))
    remarks += [(path, reason) for reason in check_names(schema.names, (*fields, *READ), str(path))]
    # of prompts there are too many names for the dictionaries that Parquet's reader makes
    few = [field for field in IDS if field in schema.names and field != "prompt_id"]
    texts = [field for field in few if _is_text(schema.field(field).type)]
    return pyarrow.parquet.read_table(
        path,
        columns=[field for field in fields if field in schema.names],
        read_dictionary=texts,
        use_threads=False,
    )


# --- columns ---


def _checked(table: pa.Table, scales: Scales, covariates: Sequence[str]) -> Columns:
    """Columns of a table; `_Odd` where the reading of records would stop, leave a row out or look closer."""
    _odd_if(table.num_rows == 0)
    texts = {field: _codes(table[field]) for field in IDS if _given(table, field)}
    _odd_if(not {"policy", "prompt_id"} <= set(texts) or "" in texts["policy"].names.to_pylist())
    names = list(dict.fromkeys([*NUMBERS, *covariates]))
    numbers = {field: _numbers(table[field]) for field in names if _given(table, field)}
    if LENGTH in covariates and LENGTH not in numbers:
        _odd_if(not _given(table, "response") or table["response"].null_count)
        words = [float(len(text.split())) for text in _plain(table["response"]).to_pylist()]
        numbers[LENGTH] = np.array(words)
    for field in ("judge_score", *covariates):
        _odd_if(field not in numbers or np.isnan(numbers[field]).any())
    probe = np.zeros(table.num_rows, dtype=bool)
    if _given(table, "probe"):
        _odd_if(not pa.types.is_boolean(table["probe"].type))
        probe = table["probe"].fill_null(False).to_numpy()
    label = numbers.get("oracle_label", np.full(1, np.nan))
    _odd_if((probe & np.isnan(label)).any())
    for field, (low, high) in scales.items():
        values = numbers.get(field, label[:0])
        _odd_if((values < low).any() or (values > high).any())
    if "label_prob" in numbers:
        prob = numbers["label_prob"]
        _odd_if(((prob < 0) | (prob > 1) | (~np.isnan(label) & (prob == 0))).any())
        _odd_if((~np.isnan(label) & ~probe & np.isnan(prob)).any())
    draws, at = np.zeros(1, dtype=int), np.zeros(table.num_rows, dtype=np.intp)
    if "draw_idx" in numbers:
        draw = np.nan_to_num(numbers.pop("draw_idx"))
        _odd_if(((draw < 0) | (draw != np.floor(draw)) | (draw > EXACT)).any())
        draws, at = np.unique(draw.astype(int), return_inverse=True)
    policy, prompt = texts.pop("policy"), texts.pop("prompt_id")
    _odd_if("fold_id" in texts and not all(map(FOLD.fullmatch, texts["fold_id"].names.to_pylist())))
    columns = Columns(policy, prompt, at, draws, numbers, probe, {})
    _odd_if(_has_twins(columns))
    for field, text in texts.items():
        columns.per_prompt[field] = _per_prompt(text, prompt)
    given = {f: v for f, v in numbers.items() if f in covariates or not np.isnan(v).all()}
    return columns._replace(numbers=given)


def _has_twins(columns: Columns) -> bool:
    """Whether two rows are of one policy, prompt and draw; of a few cells by marks, of many by sorting."""
    size = math.prod(columns.shape)
    if size > SPARSE * len(columns.draw):
        return len(np.unique(columns.cell)) < len(columns.draw)
    seen = np.zeros(size, dtype=bool)
    seen[columns.cell] = True
    return bool(np.count_nonzero(seen) < len(columns.draw))


def _given(table: pa.Table, field: str) -> bool:
    """Whether any row has the field."""
    return field in table.column_names and table[field].null_count < table.num_rows


def _is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text of a column that may be dictionary-encoded."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    _odd_if(not _is_text(column.type))
    return column


def _codes(column: pa.ChunkedArray) -> Codes:
    """Text or integers, none of them missing, as codes into sorted names without a control character."""
    _odd_if(column.null_count)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.chunk(0).dictionary
    if not all(chunk.dictionary.equals(values) for chunk in column.chunks):
        column = column.unify_dictionaries()
        values = column.chunk(0).dictionary
    _odd_if(values.null_count or not (_is_text(values.type) or pa.types.is_integer(values.type)))
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
    used = np.bincount(codes, minlength=len(values)) > 0
    values = values.cast(pa.large_string())
    order = pc.sort_indices(values).to_numpy()  # by bytes of UTF-8, which is the order of code points
    order = order[used[order]]
    names = values.take(pa.array(order))
    _odd_if(pc.any(pc.equal(names[1:], names[:-1])).as_py() or not _on_one_line(names))
    rank = np.empty(len(values), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return Codes(rank[codes], names)


def _on_one_line(names: pa.LargeStringArray) -> bool:
    """Whether names are without a control character; printable ASCII is so without a Python object for each."""
    letters = np.frombuffer(names.buffers()[2] or b"", np.uint8)
    return bool(((letters >= 0x20) & (letters < 0x7F)).all()) or not CONTROL.search(
        "".join(names.to_pylist())
    )


def _numbers(column: pa.ChunkedArray) -> FloatArray:
    """Floats, NaN where missing, none of them infinite or so large that its square is."""
    kind = column.type
    _odd_if(not (pa.types.is_float64(kind) or pa.types.is_float32(kind) or pa.types.is_integer(kind)))
    values = np.asarray(column.to_numpy(), dtype=float)
    _odd_if((np.abs(values) > LARGEST).any())
    return values


def _has_unit_policy(policy: Codes, values: FloatArray) -> bool:
    """Whether some policy's values all lie in [0, 1], on a scale up to 10 or more, and some between."""
    n = len(policy.names)
    above = np.bincount(policy.codes[values > 1], minlength=n)
    between = np.bincount(policy.codes[(values > 0) & (values < 1)], minlength=n)
    return bool(((above == 0) & (between > 0)).any())


def _per_prompt(text: Codes, prompt: Codes) -> npt.NDArray[np.object_]:
    """The one name that all rows of a prompt share."""
    code = np.empty(len(prompt.names), dtype=np.int32)
    code[prompt.codes] = text.codes
    _odd_if((code[prompt.codes] != text.codes).any())
    return np.array(text.names.to_pylist(), dtype=object)[code]
