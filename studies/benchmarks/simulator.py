"""Drawing token sequences: Zipf tokens (exponent 1.2), independent, 64 a response.

Limit: as many uniform integers below the vocabulary's size from NumPy's generator, which need no table of a law.
"""

import numpy as np

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call

LENGTH = 64


def zipf_tokens(vocab: int, n: int) -> Call:
    """`cje_sim.tokens.laws.TokenPolicy.sample`."""
    from cje_sim.tokens.laws import iid_policy, zipf

    policy, rng = iid_policy(zipf(vocab, 1.2), LENGTH), np.random.default_rng(1)
    return lambda: policy.sample(n, rng=rng)


def uniform_integers(vocab: int, n: int) -> Call:
    """The generator alone."""
    rng = np.random.default_rng(1)
    return lambda: rng.integers(0, vocab, (n, LENGTH), dtype=np.int32)


def cases(profile: str) -> list[Case]:
    """A vocabulary whose tables stay in the cache, and one whose do not."""
    n = {"smoke": 100, "small": 10_000}.get(profile, 100_000)
    return [Case(f"V = {vocab:,}", {"vocab": vocab, "n": n}, n * LENGTH) for vocab in (1000, 50_000)]


BENCHMARK = Benchmark(
    title="Simulator",
    unit="tokens",
    contenders=(Contender("cje-lab", zipf_tokens), Contender("limit", uniform_integers, "limit")),
    cases=cases,
)
