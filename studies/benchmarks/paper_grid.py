"""The thirteen estimators of the paper's main table on its grid of sample sizes and labelled shares.

Data of the world arena_like, logged and fresh; a call runs every estimator once in every cell of the case. Nothing else
runs this grid: the reference library dropped the off-policy estimators. Limit: one copy of the scores, labels and
log-likelihoods of all runs.
"""

import itertools

import numpy as np

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, Fresh

SIZES, SHARES, SEEDS = (500, 1000, 2000, 3000, 5000), (0.05, 0.1, 0.25, 0.5, 1.0), 50
N_ESTIMATORS = 13


def thirteen(sizes: list[int], shares: list[float]) -> Fresh:
    """The rows of `cje_core.workflow.paper.PAPER`."""
    from cje_core.workflow.paper import PAPER, paper_estimator
    from cje_sim import simulate

    chosen, seeds = [paper_estimator(name) for name in PAPER], itertools.count(1)

    def cells() -> list[object]:
        seed = next(seeds)
        return [
            simulate("arena_like", n=n, oracle_fraction=share, label_design="base", rng=seed)
            for n, share in itertools.product(sizes, shares)
        ]

    return Fresh(
        cells,
        lambda drawn: [module.estimate(data, **options) for data in drawn for module, options in chosen],
    )


def limit(sizes: list[int], shares: list[float]) -> Call:
    """A copy of what each run reads: four numbers for each of five policies and prompts."""
    data = [np.ones((4, 5, n)) for n in sizes]
    copies = [np.empty_like(cell) for cell in data]

    def call() -> None:
        for _ in range(N_ESTIMATORS * len(shares)):
            for copy, cell in zip(copies, data, strict=True):
                np.copyto(copy, cell)

    return call


def cases(profile: str) -> list[Case]:
    """The whole grid is extrapolated from one seed of each of its cells."""
    if profile == "full":
        runs = N_ESTIMATORS * len(SIZES) * len(SHARES)
        whole = (float(runs * SEEDS), f"the paper's grid of {runs * SEEDS:,} runs")
        return [Case("25 cells, n = 500 to 5,000", {"sizes": SIZES, "shares": SHARES}, runs, whole=whole)]
    sizes = (250,) if profile == "smoke" else (1000, 5000)
    return [Case(f"n = {n:,}, 25% labels", {"sizes": [n], "shares": [0.25]}, N_ESTIMATORS) for n in sizes]


BENCHMARK = Benchmark(
    title="The paper's grid",
    unit="runs",
    contenders=(Contender("cje-lab", thirteen), Contender("limit", limit, "limit")),
    cases=cases,
)
