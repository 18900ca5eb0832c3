"""Recognize the format of a file by its first record, parsed; guesses from bytes decide nothing."""

import csv
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.intake.raw import KINDS, LINES, PARQUET, is_zipped, kind_of, raw_bytes, readable
from cje_core.data.intake.rows import object_of

SPACE = " \t\r\n"
MOST_FILES = 20_000  # of a directory, beyond which it is no directory of results
MAGIC = b"PK"  # begins a zip
OWN = {"prompt_id", "judge_score"}  # of a response in our own fields


@dataclass(frozen=True)
class File:
    """A file that may be another tool's.

    ``names`` are the fields of its first record: a line of JSON, the first object of an array, the document itself, or
    a row of a table. ``inner`` are those of the first record's ``metadata``.
    """

    path: Path

    @cached_property
    def kind(self) -> str:
        """Suffix of the name."""
        return kind_of(self.path)

    @property
    def names(self) -> frozenset[str]:
        """Fields of the first record."""
        return frozenset(self._first)

    @property
    def inner(self) -> frozenset[str]:
        """Fields in ``metadata`` of the first record."""
        held = self._first.get("metadata")
        return frozenset(held) if isinstance(held, dict) else frozenset()

    @property
    def is_own(self) -> bool:
        """Whether a record is a response in our own fields."""
        return {"prompt_id", "judge_score"} <= self.names | self.inner

    @property
    def is_zip(self) -> bool:
        """Whether the file begins as a zip does."""
        try:
            with readable(self.path) as file:
                return bytes(file.read(2)) == MAGIC
        except DataError:
            return False

    @cached_property
    def document(self) -> Any:
        """JSON value of the whole file; `DataError` where it is none."""
        return object_of(self.path, raw_bytes(self.path), 1)

    def value(self, name: str) -> Any:
        """Value of a field of the first record, as far as it could be parsed."""
        return self._first.get(name)

    @cached_property
    def _first(self) -> dict[str, Any]:
        try:
            if self.kind in PARQUET and not is_zipped(self.path):
                return _parquet_names(self.path)
            if self.kind == ".csv":
                return _csv_names(self.path)
            return _json_record(self.path) if self.kind in LINES else {}
        except DataError:  # for the parser of the format to say
            return {}


def _csv_names(path: Path) -> dict[str, Any]:
    """Return the names in the header, which may hold line breaks."""
    with readable(path) as file:
        lines = (line.decode("utf-8-sig", errors="replace") for line in file)
        try:
            header = next(csv.reader(lines), [])
        except csv.Error:
            return {}
    return dict.fromkeys(header)


def _parquet_names(path: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return dict.fromkeys(map(str, pq.read_schema(path).names))
    except (pa.ArrowException, OSError):
        return {}


def _json_record(path: Path) -> dict[str, Any]:
    """Fields of the first line, of the first object of an array, or of the document that the file is."""
    with readable(path) as file:
        line = next((text for text in file if text.strip(b"\xef\xbb\xbf \t\r\n")), b"")
    text = line.decode("utf-8-sig", errors="replace")
    record, complete = first_record(text)
    if complete:
        return record
    return first_record(raw_bytes(path).decode("utf-8-sig", errors="replace"))[0]


def first_record(text: str) -> tuple[dict[str, Any], bool]:
    """Fields of the first object of a JSON text, up to where it is damaged or cut, and whether it is complete.

    Examples
    --------
    >>> first_record('[{"a": 1, "b": {"c": 2}}, {"d": 3}]')
    ({'a': 1, 'b': {'c': 2}}, True)
    >>> first_record('{"a": 1, "b": [2, {"c": ')
    ({'a': 1, 'b': None}, False)
    """
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        at = _skip(text, at + 1)
    if text[at : at + 1] != "{":
        return {}, False
    fields: dict[str, Any] = {}
    try:
        value, _ = decoder.raw_decode(text, at)
        return value, True
    except (ValueError, RecursionError):
        at += 1
    while True:
        try:
            name, at = decoder.raw_decode(text, _skip(text, at))
            at = _skip(text, at)
            if not isinstance(name, str) or text[at : at + 1] != ":":
                return fields, False
            fields[name] = None
            fields[name], at = decoder.raw_decode(text, _skip(text, at + 1))
        except (ValueError, RecursionError):
            return fields, False
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            return fields, False
        at += 1


def _skip(text: str, at: int) -> int:
    """Position of the next character that is no white space."""
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def files_in(path: Path) -> list[File]:
    """Files of a directory and its directories that may be read, in order of name; hidden ones are left out."""
    found = []
    for file in path.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if not hidden and file.is_file():
            found.append(File(file))
            if len(found) > MOST_FILES:
                raise DataError(
                    f"{path}: more than {MOST_FILES:,} files lie in it; give a directory nearer to them"
                )
    return sorted(found, key=lambda file: file.path)


def is_readable_kind(file: File) -> bool:
    """Whether the suffix is one that some reader takes."""
    return file.kind in (*KINDS, ".eval")
