"""Bytes of a file, also a gzipped one, its kind by name in any case, and JSON in which no key occurs twice."""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cje_core.data.errors import DataError

LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
HEAD = 1 << 16  # bytes of a file that show what it is
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


def parsed(text: str | bytes) -> Any:
    """JSON value of a text; an object with a key twice is a `TwiceError`, whose text is the key.

    Examples
    --------
    >>> parsed('{"a": 1, "b": [2]}')
    {'a': 1, 'b': [2]}
    >>> parsed('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    cje_core.io.intake.raw.TwiceError: a
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise TwiceError(next(name for k, name in enumerate(names) if name in names[:k]))
        return found

    return json.loads(text, object_pairs_hook=once)
