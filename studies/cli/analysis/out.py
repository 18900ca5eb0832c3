"""The directory of ``--out``: files are written all or none, what is not ours stays, and nothing stale is left.

A list in the directory, ``.cje-lab-files``, says what each command wrote there, with the digest of its bytes. A file
that is not on it, or that was changed since, is another's.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cje_core.data import DataError
from cje_core.disk.whole import put

LISTING = ".cje-lab-files"
Listed = dict[str, dict[str, list[str]]]  # command, file name, digests of the bytes that it may hold


def check_out(
    out: Path | None,
    option: str = "--out",
    *,
    apart: Sequence[Path | None] = (),
    files: Iterable[str] = (),
) -> None:
    """Stop before the work if `out` cannot become a directory, is one of those `apart`, or holds others' `files`.

    Parameters
    ----------
    out : Path, optional
    option : str
        As the message names it.
    apart : sequence of Path or None
        What is read.
    files : iterable of str
        Names that will be written; see `write_files`.

    Raises
    ------
    DataError
    """
    if out is None:
        return
    for place in apart:
        if place is not None and place.is_dir() and out.resolve() == place.resolve():
            raise DataError(
                f"{option} {out}: the next run would read what is written there as data; name another"
            )
    for path in (out, *out.parents):
        try:
            there = path.exists()
        except OSError:  # a name that is too long: said when it is written, after what was found is printed
            return
        if there:
            if not path.is_dir():
                raise DataError(f"{option} {out}: {path} is a file; name a directory")
            break
    _check_ours(out, files, _listed(out), option)


def write_files(out: Path, files: Mapping[str, bytes], *, by: str | None = None) -> None:
    """Write `files` into `out`, all of them or none: to a folder beside them first, from which they are moved.

    Parameters
    ----------
    out : Path
    files : mapping of str to bytes
        Content by name, which may begin with folders.
    by : str, optional
        Command that writes. What it wrote there before and does not write now is taken away, and files of others are
        never replaced. Without it nothing is listed.

    Raises
    ------
    DataError
        Where a file of another stands in the way, or the disk takes no more: then what stood there stays.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write_files(Path(directory), {"a.txt": b"1", "b.txt": b"2"}, by="example")
    ...     write_files(Path(directory), {"a.txt": b"3"}, by="example")
    ...     sorted(path.name for path in Path(directory).iterdir())
    ['.cje-lab-files', 'a.txt']
    """
    made = [path for path in (out, *out.parents) if not _there(path)]
    scratch = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        listed = _listed(out)
        if by is not None:
            _check_ours(out, files, listed)
        scratch = Path(tempfile.mkdtemp(prefix=".cje-lab-", dir=out))
        for name, content in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
        with (scratch / next(iter(files))).open("rb") as handle:
            os.fsync(handle.fileno())
        new = {name: [_digest(content)] for name, content in files.items()}
        earlier = listed.get(by or "", {})
        if (
            by is not None
        ):  # both, so that a run which dies between two moves leaves files that are known as ours
            both = {name: [*earlier.get(name, []), *new.get(name, [])] for name in {*earlier, *new}}
            _list(out, {**listed, by: both})
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).replace(out / name)
        for name in set(earlier) - set(files):
            if _is_ours(out / name, earlier[name]):
                (out / name).unlink(missing_ok=True)
        if by is not None:
            _list(out, {**listed, by: new})
    except OSError as error:
        mend = "name another directory"
        raise DataError(f"--out {out}: {(error.strerror or str(error)).lower()}; {mend}") from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        for path in made:  # empty ones alone: nothing was written
            with contextlib.suppress(OSError):
                path.rmdir()


def _check_ours(out: Path, names: Iterable[str], listed: Listed, option: str = "--out") -> None:
    """Stop where a file would be replaced that no command of ours wrote, or that was changed since."""
    for name in names:
        known = [digest for files in listed.values() for digest in files.get(name, [])]
        if (out / name).exists() and not _is_ours(out / name, known):
            said = "was changed since it was written" if known else "is not a file of ours"
            raise DataError(
                f"{option} {out}: {name} there {said}, and would be lost; move it, or name another directory"
            )


def _is_ours(path: Path, digests: Sequence[str]) -> bool:
    try:
        return bool(digests) and _digest(path.read_bytes()) in digests
    except OSError:
        return False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _list(out: Path, listed: Listed) -> None:
    put(out / LISTING, json.dumps(listed, indent=0, sort_keys=True).encode())


def _listed(out: Path) -> Listed:
    """What each command wrote into a directory; nothing where the list is not one."""
    try:
        held = json.loads((out / LISTING).read_bytes())
    except (OSError, ValueError):
        return {}
    found: Listed = {}
    for command, files in held.items() if isinstance(held, dict) else ():
        names = files if isinstance(files, dict) else {}
        found[command] = {
            name: [str(digest) for digest in digests]
            for name, digests in names.items()
            if Path(name).name == name and isinstance(digests, list)
        }
    return found
