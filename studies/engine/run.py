"""The runner: which blocks are missing, have them computed, merge.

Every block is a pure function of (study, seed, cell, replicate range), see `cje_core.streams`, and is written
once, see `studies.engine.blocks`. So serial, parallel, sharded, distributed and resumed runs agree bit for bit, and a
run that stops for whatever reason loses at most the blocks in hand.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from joblib import delayed

from cje_core.streams import Cell, Level, canonical
from studies.engine import blocks
from studies.engine.blocks import Block, Content
from studies.engine.protocol import plan
from studies.engine.running.directory import (
    collect,
    count,
    merged,
    note,
    open_directory,
    own,
    stamp,
    verified,
)
from studies.engine.running.possible import refuse_impossible
from studies.engine.running.precision import replicates_for
from studies.engine.running.workers import (
    Parcel,
    cluster,
    compute_block,
    in_processes,
    on_dask,
    on_processes,
    one_thread,
    settle_in,
    sweep,
    unwrapped,
    wrapped,
)
from studies.engine.study import Study, StudyError, at_home

PILOT_CELLS, PILOT_REPLICATES = 8, 5


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
    first_place: str  # of that exception, in words of the command that runs it again
    seconds: float
    results: xr.Dataset | None  # of a shard there are none before the merge


def summary_of(
    name: str,
    directory: Path,
    contents: Sequence[Content],
    replicates: tuple[int, int],
    seconds: float,
    results: xr.Dataset | None,
) -> Summary:
    """Return the summary of a run: `replicates` run now and found."""
    everything = [(content.block.cell, failure) for content in contents for failure in content.failures]
    failures = [(cell, failure) for cell, failure in everything if not failure.get("peer")]
    cell, first = failures[0] if failures else ({}, {"error": "", "replicate": 0})
    levels = ",".join(f"{factor}={level}" for factor, level in cell.items())
    place = f"--cell {levels} --replicate {first['replicate']}" if failures else ""
    error = str(first["error"])
    return Summary(name, directory, *replicates, len(failures), error, place, seconds, results)


def _time_replicate(parcel: Parcel, seed: int, cell: Cell, owner: int) -> float:
    """Seconds of one replicate in a block of the study, warm (the first pays for imports and compiled kernels).

    What a block costs whatever its size, and what each replicate adds, from one replicate alone and a few together.
    """
    settle_in(owner)
    study = unwrapped(parcel)

    def seconds(replicates: int) -> float:
        start = time.perf_counter()
        compute_block(study, Block(study.name, seed, cell, 0, replicates))
        return time.perf_counter() - start

    with one_thread():
        seconds(1)
        alone, together = seconds(1), PILOT_REPLICATES
        if study.replicate is not None or study.block < together:
            return alone
        each = min(max((seconds(together) - alone) / (together - 1), 0.0), alone)
    return each + (alone - each) / study.block


def _foretell(
    study: Study, seed: int, todo: Sequence[Block], replicates: int, jobs: int, say: Callable[[str], None]
) -> None:
    """Say the projected time and precision of a run, from a few timed replicates, unless it is too small for it."""
    cells = list(study.cells())
    chosen = [cells[i] for i in np.unique(np.linspace(0, len(cells) - 1, PILOT_CELLS).astype(int))]
    left = sum(block.stop - block.start for block in todo)
    timed = 2 if study.replicate is not None else 2 + PILOT_REPLICATES
    if left < 20 * timed * len(chosen):  # the pilot may cost 5% of the run
        return
    tasks = [delayed(_time_replicate)(wrapped(study), seed, cell, os.getpid()) for cell in chosen]
    seconds = float(np.mean(list(in_processes(tasks, jobs))))
    mcse = 100 * math.sqrt(study.ci_prob * (1 - study.ci_prob) / replicates)
    say(
        f"{seconds:.3g} s per replicate; {left} replicates to run in {len(cells)} cells on {jobs} "
        f"job{'s' * (jobs > 1)}: about {seconds * left / jobs:.0f} s; coverage near {study.ci_prob:.0%} of "
        f"{replicates} replicates has an MCSE of {mcse:.1f} points"
    )


@dataclass(frozen=True)
class Log:
    """Where a run says what it does.

    Parameters
    ----------
    command : str
        Recorded in the manifest.
    say : function
        Takes a line for the log.
    track : function
        Wraps the iterator of finished blocks, whose number it is told: a progress bar.
    opened : function
        Takes the study's directory before its first block is computed: what a killed run should leave there too.
    """

    command: str = ""
    say: Callable[[str], None] = lambda line: None
    track: Callable[[Iterator[Block], int], Iterator[Block]] = lambda done, total: done
    opened: Callable[[Path], None] = lambda directory: None


class Shard(NamedTuple):
    """Part `number` of `of` equal parts of the blocks of a run; parts count from 1."""

    number: int
    of: int


QUIET = Log()


def run_study(
    study: Study,
    *,
    profile: str,
    out: Path,
    seed: int = 1,
    jobs: int | str = 1,
    levels: Mapping[str, Sequence[Level]] | None = None,
    shard: Shard | None = None,
    mcse: float | None = None,
    log: Log = QUIET,
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
    jobs : int >= 1, or str
        Processes, each with one BLAS and one numba thread, or the address of a Dask scheduler. Results do not depend
        on it.
    levels : mapping factor -> levels, optional
        Levels in place of the profile's.
    shard : Shard, optional
        Compute this part of the blocks only, and leave the merge to `merge`: parts may run at the same time, in one
        directory or in several.
    mcse : float, optional
        Go on after the profile's replicates until every coverage of every cell has this Monte Carlo standard error,
        see `studies.engine.running.precision`.
    log : Log

    Raises
    ------
    StudyError
        If a cell cannot be, or the directory cannot be written, is in use by another run, or holds results of another
        definition.
    InterruptedRunError
        On Ctrl-C.
    """
    _check(seed, jobs, shard, mcse)
    if study.source is not None:  # another user's study may have been loaded since
        at_home(study.source)
    planned, study = study.at(profile), study.at(profile, levels or {})
    refuse_impossible(study)
    directory, part = out / study.name, "" if shard is None else f"{shard.number}-of-{shard.of}"
    started = time.time()
    wanted = {canonical(cell): study.profiles[profile].replicates_in(cell) for cell in study.cells()}
    record = _record(study, profile, log.command, jobs, started)
    if isinstance(jobs, str) and not directory.exists():
        with cluster(study, jobs):
            pass  # a cluster that does not answer leaves no file behind
    with own(directory, part):
        manifest = open_directory(directory, study, seed)
        record["protocol"] = plan(planned, profile, manifest["definition"])
        note(directory, manifest, record, part)
        log.opened(directory)
        contents = verified(directory, started, log.say)
        before = count(contents)
        run = _Run(study, seed, directory, jobs, shard, log)
        wanted, contents, ran = _filled(run, wanted, contents, mcse, foretell=profile != "smoke")
        record |= {"replicates": max(wanted.values()), "asked": sum(wanted.values())}
        record |= {"mcse": mcse} if mcse is not None else {}
        record |= {"finished": stamp(time.time()), "seconds": round(time.time() - started, 2)}
        note(directory, manifest, record, part)
        ds = merged(study, directory, manifest, contents) if shard is None else None
    return summary_of(study.name, directory, contents, (ran, before), time.time() - started, ds)


def _check(seed: int, jobs: int | str, shard: Shard | None, mcse: float | None) -> None:
    if seed < 0 or (isinstance(jobs, int) and jobs < 1):
        raise StudyError(f"seed={seed}, jobs={jobs}: they must be at least 0 and 1")
    if shard is not None and not 1 <= shard.number <= shard.of:
        raise StudyError(f"shard {shard.number}/{shard.of}: the parts of {shard.of} are 1 to {shard.of}")
    if shard is not None and mcse is not None:
        raise StudyError(
            "a shard cannot know when the whole is precise enough: merge the shards, then use mcse"
        )
    if mcse is not None and not 1e-4 <= mcse < 0.5:
        raise StudyError(f"mcse={mcse}: take a Monte Carlo standard error of a proportion, such as 0.01")


def _record(study: Study, profile: str, command: str, jobs: int | str, started: float) -> dict[str, Any]:
    """What the manifest says of a run that begins."""
    replicates = [study.profiles[profile].replicates_in(cell) for cell in study.cells()]
    return {
        "profile": profile,
        "command": command,
        "factors": {name: list(values) for name, values in study.factors.items()},
        "cells": len(replicates),
        "replicates": max(replicates),
        "asked": sum(replicates),
        "jobs": jobs if isinstance(jobs, int) else "dask",
        "started": stamp(started),
        "finished": None,
    }


class _Run(NamedTuple):
    study: Study
    seed: int
    directory: Path
    jobs: int | str
    shard: Shard | None
    log: Log


def _filled(
    run: _Run, wanted: dict[str, int], contents: list[Content], mcse: float | None, *, foretell: bool
) -> tuple[dict[str, int], list[Content], int]:
    """Compute what is missing, to a precision round by round; what was wanted at last, all blocks, and what ran."""
    ran = 0
    while True:
        todo = blocks.missing(run.study, run.seed, wanted, [content.block for content in contents])
        if run.shard is not None:
            mine = _part(run.study, run.seed, wanted, run.shard)
            todo = [block for block in todo if _place(run.study, block) in mine]
        if contents and not ran:
            found = count(contents)
            run.log.say(f"{found} replicates found in {run.directory}; {len(todo)} blocks left to run")
        if foretell and isinstance(run.jobs, int):
            _foretell(run.study, run.seed, todo, max(wanted.values()), run.jobs, run.log.say)
        _compute(run.study, todo, run.directory, run.jobs, run.log)
        ran += sum(block.stop - block.start for block in todo)
        if todo:
            contents, _ = collect(run.directory)
        more = wanted if mcse is None else replicates_for(run.study, contents, wanted, mcse)
        if more == wanted:
            return wanted, contents, ran
        grown = sum(more[cell] > wanted[cell] for cell in wanted)
        run.log.say(
            f"coverage to an MCSE of {100 * (mcse or 0):.2g} points: {sum(more.values()) - sum(wanted.values())} "
            f"replicates more in {grown} of {len(wanted)} cells"
        )
        wanted = more


def _compute(study: Study, todo: Sequence[Block], directory: Path, jobs: int | str, log: Log) -> None:
    """Compute and write blocks."""
    finished = 0
    run = on_dask if isinstance(jobs, str) else on_processes
    try:
        for _ in log.track(run(study, todo, directory, jobs), len(todo)):  # type: ignore[arg-type]
            finished += 1
    except KeyboardInterrupt:
        if isinstance(jobs, int):
            sweep(todo, directory, jobs)
        kept = sum(1 for _ in (directory / "blocks").glob("*/*.parquet"))
        raise InterruptedRunError(
            f"interrupted: {kept} of {kept + len(todo) - finished} blocks of {study.name} "
            f"are kept in {directory}; the same command resumes"
        ) from None


def _place(study: Study, block: Block) -> tuple[str, int]:
    """Where a block, or what is left of one, lies in the grid: the cell and the number of its range; -1 the theory."""
    return canonical(dict(block.cell)), -1 if block.is_theory else block.start // study.block


def _part(study: Study, seed: int, wanted: Mapping[str, int], shard: Shard) -> set[tuple[str, int]]:
    """Places of a shard's blocks: every `of`-th of all, whatever is there already; theory is dealt first."""
    everything = sorted(blocks.missing(study, seed, wanted, []), key=lambda block: not block.is_theory)
    return {_place(study, block) for block in everything[shard.number - 1 :: shard.of]}
