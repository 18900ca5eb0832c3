"""Fits of one posterior: the calibrator on 100 labels and the values of four policies on 1,000 prompts, 1,000 draws.

The same model by the project's Gibbs sampler, by nutpie and by `pm.sample`; compiling the model is in the first call,
which is not in the median. Every call gets new data and a new seed. A fit is of 1,000 draws, which NUTS thins from a
run of 8,000; the rate is of effective ones: the smallest bulk effective sample size among the values of the policies,
by ArviZ, which is with PyMC in the memory of all three. Limit: one exponential number for each draw and prompt, since
each draw weighs the prompts anew.
"""

import itertools
from typing import Any

import numpy as np

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, Fresh

N_PROMPTS, N_DRAWS = 1000, 1000
SECONDS_TO_COMPILE = "its first call compiles for seconds"


def _fit(engine: str) -> Fresh:
    from cje_core.bayes.models.engines import az
    from cje_core.estimators import bayes_direct
    from cje_sim import simulate

    seeds = itertools.count(1)

    def draw() -> tuple[Any, int]:
        seed = next(seeds)
        options = {"n": N_PROMPTS, "oracle_fraction": 0.1, "label_design": "base"}
        return simulate("well_specified", rng=seed, **options), seed

    def fit(drawn: tuple[Any, int]) -> Any:
        data, seed = drawn
        return bayes_direct.estimate(data, rng=seed, engine=engine, n_draws=N_DRAWS)

    def effective(fitted: Any) -> float:
        draws = fitted["draws"].values
        answered = draws[np.isfinite(draws).all(axis=1)]
        return min(float(az.ess(one[None], method="bulk")) for one in answered)

    return Fresh(draw, fit, effective)


def gibbs() -> Fresh:
    """Of `cje_core.bayes`."""
    return _fit("gibbs")


def nutpie() -> Fresh:
    """NUTS in Rust on a gradient compiled by numba."""
    return _fit("nutpie")


def pm_sample() -> Fresh:
    """PyMC's own NUTS."""
    return _fit("pymc")


def limit() -> Call:
    """A Dirichlet weight for each prompt and draw costs one exponential number at least."""
    rng = np.random.default_rng(1)
    return lambda: rng.standard_exponential((N_DRAWS, N_PROMPTS))


def cases(profile: str) -> list[Case]:
    """One fit; by NUTS from the small profile on."""
    without = dict.fromkeys(("nutpie", "pm.sample"), SECONDS_TO_COMPILE) if profile == "smoke" else {}
    return [Case("100 labels, 1,000 draws", {}, N_DRAWS, left_out=without)]


BENCHMARK = Benchmark(
    title="Posterior fits",
    unit="effective draws",
    contenders=(
        Contender("Gibbs", gibbs),
        Contender("nutpie", nutpie, "ours", "nutpie"),
        Contender("pm.sample", pm_sample, "peer", "pymc"),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
)
