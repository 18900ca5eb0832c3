"""Throughput of a simulation study: replicates of `studies.interval_coverage`, a replicate being one of each cell.

Each simulates its data, other ones in every call, and runs every method of the study, with the bootstrap of the quick
profile and without it. Limit: one uniform number from NumPy's generator for each score and each label that a
replicate simulates.
"""

import itertools
from typing import Any

import numpy as np

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, Fresh

BOOTSTRAP = "direct_bootstrap"


def _cells(profile: str) -> list[Any]:
    from studies.engine.study import load

    return list(load("interval_coverage").at(profile).cells())


def engine(profile: str, replicates: int, bootstrap: bool) -> Fresh:
    """`studies.engine.running.workers.compute_block` of each cell."""
    from dataclasses import replace

    from studies.engine.blocks import Block
    from studies.engine.running.workers import compute_block, one_thread
    from studies.engine.study import Profile, load

    study = load("interval_coverage").at(profile)
    if not bootstrap:
        methods = {name: method for name, method in study.methods.items() if name != BOOTSTRAP}
        study = replace(study, methods=methods, profiles=dict.fromkeys(study.profiles, Profile(replicates)))
    starts = itertools.count(0, replicates)

    def blocks() -> list[Block]:
        start = next(starts)
        return [Block(study.name, 1, cell, start, start + replicates) for cell in study.cells()]

    def compute(drawn: list[Block]) -> None:
        with one_thread():
            for block in drawn:
                compute_block(study, block)

    return Fresh(blocks, compute)


def limit(profile: str, replicates: int, bootstrap: bool) -> Call:
    """Two numbers for each response of three policies."""
    rng, sizes = np.random.default_rng(1), [int(str(cell["n"])) for cell in _cells(profile)]
    return lambda: [rng.random((2, 3, n)) for n in sizes for _ in range(replicates)]


def cases(profile: str) -> list[Case]:
    """Cells of the study's smoke profile, or of its quick one in the full profile."""
    at, replicates = ("quick", 10) if profile == "full" else ("smoke", {"smoke": 1}.get(profile, 5))
    return [
        Case(
            f"{len(_cells(at))} cells, {'with' if bootstrap else 'without'} bootstrap",
            {"profile": at, "replicates": replicates, "bootstrap": bootstrap},
            replicates * len(_cells(at)),
        )
        for bootstrap in (True, False)
    ]


BENCHMARK = Benchmark(
    title="Study throughput",
    unit="replicates",
    contenders=(Contender("cje-lab", engine), Contender("limit", limit, "limit")),
    cases=cases,
)
