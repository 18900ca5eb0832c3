"""The runner: which blocks are missing, run them in processes, merge.

Every block is a pure function of (study, seed, cell, replicate range), see `cje_core.streams`, and is written
once, see `studies.engine.blocks`. So serial, parallel and resumed runs agree bit for bit, and a run that stops for
whatever reason loses at most the blocks in hand.
"""

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import xarray as xr
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits

from cje_core.streams import Cell, Level, Streams
from studies.engine import blocks
from studies.engine.blocks import Block, Content
from studies.engine.manifest import check_same, definition, provenance, read_manifest, write_manifest
from studies.engine.outcome import CRASHED, Failure, Outcome, describe
from studies.engine.scenario import replicate_scenario, replicates_of_scenario
from studies.engine.study import Study, StudyError

PILOT_CELLS = 8
STALE = 3600.0  # seconds after which a temporary file is nobody's
WATCH = "watch the parent process"


class InterruptedRunError(RuntimeError):
    """Ctrl-C; the message says what is kept and how to resume."""


@dataclass(frozen=True)
class Summary:
    """What a run did: replicates run now and found, exceptions kept as data, statistical failures, files."""

    study: str
    directory: Path
    replicates_run: int
    replicates_found: int
    crashes: int
    first_crash: str
    seconds: float
    results: xr.Dataset


def _arrays(study: Study, outcome: Outcome) -> dict[str, npt.NDArray[np.float64]]:
    """Outcome of one replicate as checked arrays; a wrong shape is a programmer's error and raises."""
    rows, columns = len(study.methods), len(study.columns)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("estimate", "std_error", "status"), (rows, columns))
    shapes |= {"truth": (columns,), "interval": (rows, columns, 2), "seconds": (rows,)}
    arrays = {}
    for name, shape in shapes.items():
        value = getattr(outcome, name)
        missing = np.full(shape, 0.0 if name == "status" else np.nan)
        arrays[name] = missing if value is None else np.asarray(value, float)
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


def run_replicate(study: Study, seed: int, cell: Cell, replicate: int) -> Outcome:
    """One replicate of one cell of a study at its profile; an exception becomes its outcome."""
    try:
        return (study.replicate or replicate_scenario)(
            study, cell, Streams(seed, study.name, cell, replicate)
        )
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
    numbers = range(block.start, block.stop)
    if study.replicate is None:
        streams = [Streams(block.seed, study.name, block.cell, r) for r in numbers]
        try:
            return replicates_of_scenario(study, block.cell, streams)
        except StudyError:
            raise
        except Exception:  # which replicate raises, and in what, shows one by one
            return [run_replicate(study, block.seed, block.cell, r) for r in numbers]
    return [run_replicate(study, block.seed, block.cell, r) for r in numbers]


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
    rows = [_arrays(study, outcome) for outcome in outcomes]
    shapes = {name: array.shape for row in rows for name, array in row.items()}
    stacked = {
        name: np.stack([row.get(name, np.full(shape, np.nan)) for row in rows])
        for name, shape in shapes.items()
    }
    failures = [
        {"replicate": block.start + k, "stage": failure.stage, "error": failure.error, "seed": block.seed}
        for k, outcome in enumerate(outcomes)
        for failure in outcome.failures
    ]
    return Content(block, stacked, failures)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One BLAS and one numba thread: processes are the parallelism of a study."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)


def _settle_in(owner: int) -> None:
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


def _do_block(study: Study, block: Block, directory: Path, owner: int) -> Block:
    _settle_in(owner)
    with one_thread():
        content = compute_block(study, block)
    blocks.write_block(directory, content)
    return block


def _time_replicate(study: Study, seed: int, cell: Cell, owner: int) -> float:
    """Seconds of one warm replicate (the first pays for imports and compiled kernels)."""
    _settle_in(owner)
    with one_thread():
        run_replicate(study, seed, cell, 0)
        start = time.perf_counter()
        run_replicate(study, seed, cell, 0)
    return time.perf_counter() - start


def _in_processes(tasks: Sequence[Any], jobs: int) -> Iterator[Any]:
    with parallel_config(backend="loky", inner_max_num_threads=1):
        results = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(tasks)
    try:
        yield from results
    finally:
        results.close()


def _pilot(study: Study, seed: int, todo: Sequence[Block], replicates: int, jobs: int) -> str | None:
    """Projected time and precision from a few timed replicates; None for a run too small to be worth it."""
    cells = list(study.cells())
    chosen = [cells[i] for i in np.unique(np.linspace(0, len(cells) - 1, PILOT_CELLS).astype(int))]
    left = sum(block.stop - block.start for block in todo)
    if left < 20 * 2 * len(chosen):  # the pilot may cost 5% of the run
        return None
    tasks = [delayed(_time_replicate)(study, seed, cell, os.getpid()) for cell in chosen]
    seconds = float(np.mean(list(_in_processes(tasks, jobs))))
    mcse = 100 * math.sqrt(study.ci_prob * (1 - study.ci_prob) / replicates)
    return (
        f"{seconds:.3g} s per replicate; {left} replicates to run in {len(cells)} cells on {jobs} "
        f"job{'s' * (jobs > 1)}: about {seconds * left / jobs:.0f} s; coverage near {study.ci_prob:.0%} of "
        f"{replicates} replicates has an MCSE of {mcse:.1f} points"
    )


def collect(directory: Path) -> tuple[list[Content], list[Path]]:
    """Return all blocks that verify, and the files that do not."""
    pairs = list(blocks.read_all(directory))
    return [c for _, c in pairs if c is not None], [path for path, c in pairs if c is None]


def run_study(
    study: Study,
    *,
    profile: str,
    out: Path,
    seed: int = 1,
    jobs: int = 1,
    levels: Mapping[str, Sequence[Level]] | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
    track: Callable[[Iterator[Block], int], Iterator[Block]] = lambda done, total: done,
) -> Summary:
    """Run what is missing of a study and merge.

    Parameters
    ----------
    study : Study
    profile : {"smoke", "quick", "paper"}
    out : Path
        The study's files go to ``out / study.name``: ``manifest.json``, ``blocks/``, ``results.nc`` and, if a
        replicate raised, ``failures.jsonl``.
    seed : int, >= 0
    jobs : int, >= 1
        Processes, each with one BLAS and one numba thread. Results do not depend on it.
    levels : mapping factor -> levels, optional
        Levels in place of the profile's.
    command : str
        Recorded in the manifest.
    say, track : functions
        Take a line for the log; wrap the iterator of finished blocks (a progress bar).

    Raises
    ------
    StudyError
        If the directory cannot be written, or holds results of another definition.
    InterruptedRunError
        On Ctrl-C.
    """
    if seed < 0 or jobs < 1:
        raise StudyError(f"seed={seed}, jobs={jobs}: they must be at least 0 and 1")
    study = study.at(profile, levels or {})
    replicates = study.profiles[profile].replicates
    directory = out / study.name
    started = time.time()
    try:
        run = {
            "profile": profile,
            "command": command,
            "factors": {name: list(values) for name, values in study.factors.items()},
            "cells": sum(1 for _ in study.cells()),
            "replicates": replicates,
            "jobs": jobs,
            "started": _stamp(started),
            "finished": None,
        }
        manifest = _open_directory(directory, study, seed, run)
        found, broken = collect(directory)
        for path in directory.rglob(".*.tmp"):  # of a killed run
            if started - path.stat().st_mtime > STALE:
                path.unlink()
        for path in broken:
            say(f"block {path.relative_to(directory)} does not verify; it is run again")
            path.unlink()
        before = sum(content.block.stop - content.block.start for content in found)
        todo = blocks.missing(study, seed, replicates, [content.block for content in found])
        if found:
            say(f"{before} replicates found in {directory}; {len(todo)} blocks left to run")
        finished = 0
        try:
            line = _pilot(study, seed, todo, replicates, jobs) if profile != "smoke" else None
            if line:
                say(line)
            tasks = [delayed(_do_block)(study, block, directory, os.getpid()) for block in todo]
            for _ in track(_in_processes(tasks, jobs), len(todo)):
                finished += 1
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"interrupted: {len(found) + finished} of {len(found) + len(todo)} blocks of {study.name} "
                f"are kept in {directory}; the same command resumes"
            ) from None
        except TerminatedWorkerError:
            raise StudyError(
                f"a worker process of {study.name} was killed (out of memory?); finished blocks are kept in "
                f"{directory}: the same command, perhaps with fewer --jobs, resumes"
            ) from None
        contents, _ = collect(directory)
        ds = blocks.merge(study, contents)
        crashes = _write_failures(directory, contents)
        run["finished"] = _stamp(time.time())
        run["seconds"] = round(time.time() - started, 2)
        ds.attrs["manifest"] = json.dumps(manifest)
        blocks.write_results(directory / "results.nc", ds)
        write_manifest(directory, manifest)
    except OSError as error:
        raise StudyError(f"cannot write to {directory}: {error.strerror or error}") from None
    return Summary(
        study=study.name,
        directory=directory,
        replicates_run=sum(block.stop - block.start for block in todo),
        replicates_found=before,
        crashes=len(crashes),
        first_crash=crashes[0]["error"] if crashes else "",
        seconds=time.time() - started,
        results=ds,
    )


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _open_directory(directory: Path, study: Study, seed: int, run: dict[str, Any]) -> dict[str, Any]:
    """Check that the blocks that may be there are of this definition, and note the run in the manifest."""
    new = definition(study, seed)
    manifest = read_manifest(directory)
    if manifest is None:
        if any((directory / "blocks").glob("*/*.parquet")):
            raise StudyError(
                f"{directory} holds blocks but no manifest.json; delete it or choose another --out"
            )
        manifest = {"definition": new, "runs": []}
    check_same(directory, manifest["definition"], new)
    manifest |= {"seed": seed, **provenance()}
    manifest["runs"].append(run)
    write_manifest(directory, manifest)
    return manifest


def _write_failures(directory: Path, contents: Sequence[Content]) -> list[dict[str, Any]]:
    """Write ``failures.jsonl``, one line per exception with all that is needed to run it again."""
    rows = [{"cell": dict(c.block.cell), **failure} for c in contents for failure in c.failures]
    path = directory / "failures.jsonl"
    if rows:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        blocks.write_whole(path, lambda handle: handle.write(text.encode()))
    else:
        path.unlink(missing_ok=True)
    return rows


def status(directory: Path) -> dict[str, Any]:
    """How far the last run asked for in a study's directory has come."""
    manifest = read_manifest(directory)
    if manifest is None:
        raise StudyError(f"{directory} holds no study (no manifest.json); give the --out of a run")
    contents, broken = collect(directory)
    last = manifest["runs"][-1]
    asked = last["factors"]
    done = [
        c for c in contents if not c.block.is_theory and all(v in asked[k] for k, v in c.block.cell.items())
    ]
    counts = [min(c.block.stop, last["replicates"]) - c.block.start for c in done]
    estimates = np.concatenate([np.ravel(c.arrays["estimate"]) for c in done] or [np.empty(0)])
    return {
        "study": manifest["definition"]["study"],
        "profile": last["profile"],
        "seed": manifest["seed"],
        "finished": last["finished"],
        "cells": last["cells"],
        "replicates_asked": last["cells"] * last["replicates"],
        "replicates_done": sum(max(count, 0) for count in counts),
        "blocks": len(contents),
        "blocks_broken": len(broken),
        "crashes": sum(len(content.failures) for content in contents),
        "estimates": estimates.size,
        "estimates_failed": int((~np.isfinite(estimates)).sum()),
    }
