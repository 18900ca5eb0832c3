"""Rows of a file read and checked on the workers of a Dask cluster, for `cje_core.io.large.spill`.

A task is a few row groups of the file: what it returns, 14 bytes a response and the labelled rows, depends on them
alone. Tasks are taken in the order of the file, a few ahead of the one that is waited for, so memory stays bounded and
the result has the bits of a reading in one process. The workers see the file by the same path, and run this version.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError, said
from cje_core.io.fields import Scales
from cje_core.io.large.cluster import LOST, ClusterError, connect, workers
from cje_core.io.large.spill import Share, by_columns, shares_of
from cje_core.io.tables import opened

ROWS = 1 << 20  # of a task, or one row group
AHEAD = 2  # tasks a worker has in hand


@contextmanager
def shares_on(address: str, path: Path, scales: Scales) -> Iterator[Iterator[Share]]:
    """`cje_core.io.large.spill.shares_of` a whole file by the workers of the Dask scheduler at `address`.

    Raises
    ------
    DataError
        Without `distributed`, where no scheduler answers, where there is no worker, or one runs other code, sees
        another file or none; while rows are read, where workers die or the scheduler is lost.
    """
    try:
        client = connect(address)
    except ClusterError as error:
        raise DataError(f"dask={address!r}: {error}") from None
    with client:
        here = _seen(path.resolve())
        try:
            there = client.run(_seen, path.resolve())
        except ImportError as error:
            raise DataError(
                f"dask={address!r}: a worker lacks this project ({error}); install it there"
            ) from None
        for worker, (runs, size) in there.items():
            if runs != here[0]:
                raise DataError(
                    f"dask={address!r}: worker {worker} runs cje-lab {runs}, here is {here[0]}; install the same"
                )
            if size != here[1]:
                found = "no such file" if size is None else f"another file there, of {size} bytes"
                raise DataError(f"{path}: worker {worker} sees {found}; put it on a disk that all share")
        yield _in_order(client, address, path, scales, AHEAD * workers(client))


def _seen(path: Path) -> tuple[str, int | None]:
    """The version that runs, with a digest of the code that reads, and the size of a file where there is one."""
    code = blake2b(digest_size=4)
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        code.update(file.read_bytes())
    return f"{version('cje-lab')} ({code.hexdigest()})", path.stat().st_size if path.is_file() else None


def _in_order(client: Any, address: str, path: Path, scales: Scales, ahead: int) -> Iterator[Share]:
    from distributed.scheduler import KilledWorker

    with opened(path) as file:
        rows = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    waiting: deque[Any] = deque()
    tasks = iter(_tasks(rows))
    try:
        while True:
            while len(waiting) < ahead and (task := next(tasks, None)):
                waiting.append(client.submit(_read, path.resolve(), path, scales, *task, pure=False))
            if not waiting:
                return
            future = waiting.popleft()
            yield from future.result()
            future.release()
    except KilledWorker as error:
        raise DataError(
            f"dask={address!r}: workers died over {path} ({said(error)}); give them more memory"
        ) from None
    except LOST as error:
        raise DataError(f"dask={address!r}: it was lost ({said(error)})") from None


def _tasks(rows: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Row groups of each task, and the number of its first row, counted from 1, by the groups' numbers of rows.

    Examples
    --------
    >>> list(_tasks([2**19, 2**19, 5, 2**21, 7]))
    [([0, 1], 1), ([2, 3], 1048577), ([4], 3145734)]
    """
    groups: list[int] = []
    for k, end in enumerate(accumulate(rows)):
        groups.append(k)
        held = sum(rows[group] for group in groups)
        if held >= ROWS or k + 1 == len(rows):
            yield groups, end - held + 1
            groups = []


def _read(place: Path, name: Path, scales: Scales, groups: list[int], first: int) -> list[Share]:
    """What a task does; errors name the file as the user does."""
    with opened(place) as file:
        kinds = {one.name: one.type for one in file.schema_arrow}
    with opened(place, **by_columns(kinds)) as file:
        return list(shares_of(file, name, scales, groups, first))
