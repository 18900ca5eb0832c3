"""Fits of one posterior: the calibrator on 100 labels and the values of four policies on 1,000 prompts, 1,000 draws.

The same model by the project's Gibbs sampler, by nutpie and by `pm.sample`; compiling the model is in the first call,
which is not in the median. Every lap draws new data and a new seed, since the engines of PyMC return their last trace
for the same model, data and seed: a lap of the same data would time a look-up. Drawing the data is in the lap. Limit:
one exponential number for each draw and prompt, since each draw weighs the prompts anew.
"""

import itertools

import numpy as np

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call

N_PROMPTS, N_DRAWS = 1000, 1000
SECONDS_TO_COMPILE = "its first call compiles for seconds"


def _fit(engine: str) -> Call:
    from cje_core.estimators import bayes_direct
    from cje_sim import simulate

    seeds = itertools.count(1)

    def lap() -> object:
        seed = next(seeds)
        data = simulate("well_specified", n=N_PROMPTS, oracle_fraction=0.1, label_design="base", rng=seed)
        return bayes_direct.estimate(data, rng=seed, engine=engine, n_draws=N_DRAWS)

    return lap


def gibbs() -> Call:
    """Of `cje_core.bayes`."""
    return _fit("gibbs")


def nutpie() -> Call:
    """NUTS in Rust on a gradient compiled by numba."""
    return _fit("nutpie")


def pm_sample() -> Call:
    """PyMC's own NUTS."""
    return _fit("pymc")


def limit() -> Call:
    """A Dirichlet weight for each prompt and draw costs one exponential number at least."""
    rng = np.random.default_rng(1)
    return lambda: rng.standard_exponential((N_DRAWS, N_PROMPTS))


def cases(profile: str) -> list[Case]:
    """One fit; by NUTS from the small profile on."""
    without = dict.fromkeys(("nutpie", "pm.sample"), SECONDS_TO_COMPILE) if profile == "smoke" else {}
    return [Case("100 labels, 1,000 draws", {}, left_out=without)]


BENCHMARK = Benchmark(
    title="Posterior fits",
    unit="fits",
    contenders=(
        Contender("Gibbs", gibbs),
        Contender("nutpie", nutpie, "ours", "nutpie"),
        Contender("pm.sample", pm_sample, "peer", "pymc"),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
    per="minute",
)
