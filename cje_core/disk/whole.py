"""Files that are whole or absent: filled under another name, synced, renamed.

A process that is killed leaves a file ``.NAME.PID-....tmp`` beside the place, and what stood there before.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Temporary file that takes the place of `path` at the end, unless the block raises.

    Parameters
    ----------
    path : Path
        Directories above it are made.

    Raises
    ------
    OSError
        Where it cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with whole(Path(directory, "new", "one.txt")) as temporary:
    ...         done = temporary.write_text("all of it")
    ...     sorted(str(p.relative_to(directory)) for p in Path(directory).rglob("*"))
    ['new', 'new/one.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # many hosts, one disk
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill the file of `path`, opened for bytes; see `whole`."""
    with whole(path) as temporary, temporary.open("wb") as handle:
        write(handle)


def put(path: Path, content: bytes) -> None:
    """Write bytes, whole or not at all; see `whole`."""
    write_whole(path, lambda handle: handle.write(content))
