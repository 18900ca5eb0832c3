"""Bytes of a file, also a gzipped one, its kind by name in any case, and JSON in which no key occurs twice."""

import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cje_core.data.errors import DataError

LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
HEAD = 1 << 16  # bytes of a file that show what it is
# Of an object; what was matched is not tried in other ways, which takes seven times as long where texts are long.
JSON_KEY = re.compile(rb'"((?:[^"\\]++|\\.)*+)"\s*+:')
NAME_END = re.compile(rb'"\s*:')  # of a key, or in or before a text
SPACED_END = re.compile(rb'"\s+:')
BACKSLASH = ord("\\")
KINDS = (*LINES, ".csv", *PARQUET)


class TwiceError(ValueError):
    """A key that an object has twice."""


def kind_of(path: Path) -> str:
    """Suffix of a file, lower case, without a ``.gz`` after it.

    Examples
    --------
    >>> kind_of(Path("a.JSONL")), kind_of(Path("b.csv.gz")), kind_of(Path("c"))
    ('.jsonl', '.csv', '')
    """
    return Path(_unzipped(path.name)).suffix.lower()


def stem_of(path: Path) -> str:
    """Name of a file without its kind.

    Examples
    --------
    >>> stem_of(Path("gpt-4.1_responses.jsonl.gz"))
    'gpt-4.1_responses'
    """
    return Path(_unzipped(path.name)).stem


def is_zipped(path: Path) -> bool:
    """Whether the name ends in ``.gz``."""
    return path.suffix.lower() == ".gz"


def _unzipped(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name


@contextmanager
def readable(path: Path) -> Iterator[IO[bytes]]:
    """The file, opened and unzipped; what is wrong with it is a `DataError`."""
    try:
        file: Any = gzip.open(path) if is_zipped(path) else path.open("rb")  # noqa: SIM115
        with file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged ({error}); compress it again, or give it unzipped") from None
    except OSError as error:
        raise DataError(f"{path}: {(error.strerror or str(error)).lower()}; check the path") from None


def raw_bytes(path: Path) -> bytes:
    """All of a file, unzipped."""
    with readable(path) as file:
        return bytes(file.read())


def parsed(text: str | bytes, fields: Collection[str] | None = None) -> Any:
    """JSON value of a text; an object with a key twice is a `TwiceError`, whose text is the key.

    Of `fields`, where they are given: of other keys the last counts, as in any JSON reader.

    Examples
    --------
    >>> parsed('{"a": 1, "b": [2]}')
    {'a': 1, 'b': [2]}
    >>> parsed('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    cje_core.data.intake.raw.TwiceError: a
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = [name for k, name in enumerate(names) if name in names[:k]]
            for name in twice:
                if fields is None or name in fields:
                    raise TwiceError(name)
        return found

    return json.loads(text, object_pairs_hook=once)


def keys_of(raw: bytes, fields: Collection[str]) -> set[str] | None:
    """Names that objects of a JSON text have, at any depth, and perhaps others; None where one is in escapes.

    Where the fields and the names of the first objects are all names there are, counting them says so, many times
    quicker than a look at each.

    Examples
    --------
    >>> sorted(keys_of(b'{"a": 2, "b": {"c": "d"}}', ["a"]))
    ['a', 'b', 'c']
    """
    # A quote within a text is escaped, so it and what follows it end no name.
    wanted = raw.count(b'":') - (raw.count(b'\\":') if b"\\" in raw else 0)
    spaced = SPACED_END.search(raw) is not None  # a name, or what a text quotes
    counts: dict[str, int] = {}
    for some in (head_keys(raw), {*fields, "metadata"}):
        if any("\\" in name for name in some):
            return None
        counts |= {name: raw.count(b'"' + name.encode() + b'":') for name in some if name not in counts}
        if sum(counts.values()) == wanted and not spaced:
            return {name for name, count in counts.items() if count}
    names = set[bytes]()
    for end in NAME_END.finditer(raw):
        if _escaped(raw, end.start()):  # a quote within a text
            continue
        start = raw.rfind(b'"', 0, end.start())
        name = raw[start + 1 : end.start()]
        if b"\\" in name or _escaped(raw, start):
            return None
        names.add(name)
    return {name.decode(errors="replace") for name in names}


def _escaped(raw: bytes, at: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    before = at
    while before > 0 and raw[before - 1] == BACKSLASH:
        before -= 1
    return (at - before) % 2 == 1


def head_keys(raw: bytes) -> set[str]:
    """Names that the first objects of a JSON text have, at any depth."""
    return {name.decode() for name in set(JSON_KEY.findall(raw[:HEAD])) if name.isascii()}
