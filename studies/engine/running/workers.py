"""Where blocks are computed: in processes of this machine, or on the workers of a Dask cluster.

A block is a pure function of (study, seed, cell, replicate range), see `cje_core.streams`: where it is computed, and
after which others, changes no bit of it. An exception in a replicate is its outcome, with its stage and seed.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from cloudpickle import dumps  # type: ignore[import-untyped]
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import ThreadpoolController

from cje_core.data.errors import said
from cje_core.io.large.cluster import LOST, ClusterError, connect
from cje_core.streams import Cell, Streams, streams_of
from studies.engine import blocks
from studies.engine.blocks import Block, Content
from studies.engine.manifest import code_digests
from studies.engine.outcome import CRASHED, Failure, Outcome, describe
from studies.engine.scenario import replicate_scenario, replicates_of_scenario
from studies.engine.study import Study, StudyError, at_home

WATCH = "watch the parent process"


def arrays_of(study: Study, outcome: Outcome) -> dict[str, npt.NDArray[np.float64]]:
    """Outcome of one replicate as checked arrays; a wrong shape is a programmer's error and raises."""
    rows, columns = len(study.methods), len(study.columns)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("estimate", "std_error", "status"), (rows, columns))
    shapes |= {"truth": (columns,), "interval": (rows, columns, 2), "seconds": (rows,)}
    arrays = {}
    for name, shape in shapes.items():
        value = getattr(outcome, name)
        if value is None:
            value = np.full(shape, 0.0 if name == "status" else np.nan)
        arrays[name] = np.asarray(value, float)
        if arrays[name].shape != shape:
            raise StudyError(f"study {study.name}: {name} has shape {arrays[name].shape}, expected {shape}")
    for name, value in outcome.extra.items():
        array = np.asarray(value, float)
        if name in arrays or array.shape not in ((), (columns,), (rows, columns)):
            raise StudyError(
                f"study {study.name}: diagnostic {name!r} of shape {array.shape} must have a name of its own "
                f"and shape (), ({columns},) or ({rows}, {columns})"
            )
        arrays[name] = array
    return arrays


def run_replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One replicate of one cell of a study at its profile; an exception becomes its outcome."""
    try:
        return (study.replicate or replicate_scenario)(study, cell, streams)
    except StudyError:
        raise
    except Exception as error:  # kept as data: the run goes on and counts it
        shape = len(study.methods), len(study.columns)
        return Outcome(
            np.full(shape, np.nan),
            np.full(shape[1], np.nan),
            status=np.full(shape, CRASHED),
            failures=(Failure("replicate", describe(error)),),
        )


def _outcomes(study: Study, block: Block) -> list[Outcome]:
    """All replicates of a block, at once where the study is the usual one and none of them raises."""
    streams = streams_of(block.seed, study.name, block.cell, range(block.start, block.stop))

    def one_by_one() -> list[Outcome]:
        return [run_replicate(study, block.cell, one) for one in streams]

    if study.replicate is not None:
        return one_by_one()
    try:
        return replicates_of_scenario(study, block.cell, streams)
    except StudyError:
        raise
    except (
        Exception
    ):  # one by one it shows which replicate raises, and in what; if none does, the block is at fault
        outcomes = one_by_one()
        if not any(outcome.failures for outcome in outcomes):
            raise
        return outcomes


def compute_block(study: Study, block: Block) -> Content:
    """Run all replicates of a block (or the theory of its cell)."""
    if block.is_theory:
        assert study.theory is not None
        try:
            exact = study.theory(block.cell)
        except Exception as error:
            cell = ", ".join(f"{k}={v}" for k, v in block.cell.items())
            raise StudyError(f"study {study.name}: theory fails at {cell}: {describe(error)}") from error
        return Content(block, {name: np.asarray(value, float) for name, value in exact.items()}, ())
    outcomes = _outcomes(study, block)
    rows = [arrays_of(study, outcome) for outcome in outcomes]
    shapes = {name: array.shape for row in rows for name, array in row.items()}
    stacked = {
        name: np.stack([row[name] if name in row else np.full(shape, np.nan) for row in rows])
        for name, shape in shapes.items()
    }
    failures = [
        {
            "replicate": block.start + k,
            "stage": failure.stage,
            "error": failure.error,
            "seed": block.seed,
            **({"peer": True} if failure.peer else {}),
        }
        for k, outcome in enumerate(outcomes)
        for failure in outcome.failures
    ]
    return Content(block, stacked, failures)


@lru_cache(maxsize=1)
def _pools(_modules: int) -> ThreadpoolController:
    """Return the thread pools of this process; they are looked for, in milliseconds, only after further imports."""
    return ThreadpoolController()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One BLAS and one numba thread: processes are the parallelism of a study."""
    import numba  # .4 s, and whoever only reads results computes no block

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with _pools(len(sys.modules)).limit(limits=1):
            yield
    finally:
        numba.set_num_threads(before)


def settle_in(owner: int) -> None:
    """In a worker process of `owner`: leave Ctrl-C to it, and do not outlive it.

    Idle workers of a killed parent would otherwise stay for minutes.
    """
    if os.getpid() == owner or any(thread.name == WATCH for thread in threading.enumerate()):
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name=WATCH, daemon=True).start()


class Parcel(NamedTuple):
    """A study on its way to a worker process.

    Parameters
    ----------
    pickled : bytes
    source : Path or None
        A user's file, which the worker must be able to import.
    edition : tuple
        Names and times of that file and those beside it: a worker that knows older ones imports them again.
    """

    pickled: bytes
    source: Path | None
    edition: tuple[tuple[str, int], ...]


def wrapped(study: Study) -> Parcel:
    """Return a study as worker processes take it."""
    beside = sorted(study.source.parent.glob("*.py")) if study.source else ()
    return Parcel(dumps(study), study.source, tuple((str(path), path.stat().st_mtime_ns) for path in beside))


@lru_cache(maxsize=4)
def unwrapped(parcel: Parcel) -> Study:
    """Return the study in a parcel; a process that computes many of its blocks unpacks it once."""
    if parcel.source is not None:
        at_home(parcel.source)
    study: Study = pickle.loads(parcel.pickled)
    return study


def _do_block(parcel: Parcel, block: Block, directory: Path, owner: int) -> Block:
    settle_in(owner)
    with one_thread():
        content = compute_block(unwrapped(parcel), block)
    blocks.write_block(directory, content)
    return block


def in_processes(tasks: Sequence[Any], jobs: int) -> Iterator[Any]:
    """Yield what tasks return, as they end; each process has one BLAS and one numba thread.

    A process whose memory has grown by what it compiled is replaced by a new one; that is nobody's trouble.
    """
    with parallel_config(backend="loky", inner_max_num_threads=1):
        results = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(tasks)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            yield from results
    finally:
        results.close()


def on_processes(study: Study, todo: Sequence[Block], directory: Path, jobs: int) -> Iterator[Block]:
    """Compute and write blocks in `jobs` processes, each with one BLAS and one numba thread; yield them as they end."""
    parcel = wrapped(study)
    # processes that an earlier run has left stand where this one stood then
    there = directory.absolute()
    tasks = [delayed(_do_block)(parcel, block, there, os.getpid()) for block in todo]
    try:
        yield from in_processes(tasks, jobs)
    except TerminatedWorkerError:
        raise StudyError(
            f"a worker process of {study.name} was killed (out of memory?); finished blocks are kept in "
            f"{directory}: the same command, perhaps with fewer --jobs, resumes"
        ) from None


def sweep(todo: Sequence[Block], directory: Path, jobs: int) -> None:
    """End the worker processes, and take away what they had half-written of these blocks, this run's alone."""
    if jobs > 1:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
    for block in todo:
        path = directory / block.path
        for half in path.parent.glob(f".{path.name}.*.tmp"):
            half.unlink(missing_ok=True)


def _on_a_worker(study: Study, block: Block) -> Content:
    with one_thread():
        return compute_block(study, block)


def _arrived(future: Any, address: str, name: str) -> Content:
    """Return what a worker has computed; a cluster that goes away is no trouble of the disk."""
    try:
        content: Content = future.result()
    except LOST as error:
        raise StudyError(
            f"--dask {address}: it was lost ({said(error)}); the same command resumes {name}"
        ) from None
    return content


@contextlib.contextmanager
def cluster(study: Study, address: str) -> Iterator[Any]:
    """A client of a running Dask cluster whose workers run the code that runs here, a user's file sent to them.

    Raises
    ------
    StudyError
        Without `distributed`, where no scheduler answers, where there is no worker or one runs other code.
    """
    try:
        client = connect(address)
    except ClusterError as error:
        raise StudyError(f"--dask {address}: {error}") from None
    with client:
        here = code_digests(study)
        if study.source is not None:
            beside = [path for path in (study.source.parent / name for name in here) if path.is_file()]
            for path in sorted(beside, key=lambda path: path == study.source):  # it imports the others
                client.upload_file(path)
        for worker, there in client.run(code_digests, study).items():
            if there != here:
                names = ", ".join(n for n in {**here, **there} if here.get(n) != there.get(n))
                raise StudyError(
                    f"--dask {address}: worker {worker} runs other code ({names}); install the same"
                )
        yield client


def on_dask(study: Study, todo: Sequence[Block], directory: Path, address: str) -> Iterator[Block]:
    """Compute blocks on the workers of a running Dask cluster and write them here; yield them as they come.

    The workers need this project, with the code that runs here; they need no disk in common with it. A user's study
    file is sent to them. The blocks of a worker that dies are computed by another one.

    Raises
    ------
    StudyError
        As `cluster`, and where workers keep dying.
    """
    if not todo:
        return
    with cluster(study, address) as client:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        waiting = client.map(_on_a_worker, [study] * len(todo), todo, pure=False)
        try:
            for future in as_completed(waiting, loop=client.loop):  # type: ignore[no-untyped-call]
                content = _arrived(future, address, study.name)
                blocks.write_block(directory, content)
                yield content.block
                future.release()
        except KilledWorker as error:
            raise StudyError(
                f"--dask {address}: workers died over one block of {study.name} ({error}); finished blocks are kept "
                f"in {directory}: the same command resumes"
            ) from None
        finally:
            client.cancel(waiting)
