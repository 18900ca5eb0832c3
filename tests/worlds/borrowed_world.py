"""Worlds and data sets in which policies borrow: labels of the base policy only; and what a run of them may show.

Data sets are cut from a few large draws of each scenario, so that one costs microseconds and
replicates are array-level.
"""

import numpy as np
from scipy import stats

from cje_core.data.arrays import Rows, unpack
from cje_sim.scenarios import (
    binary_oracle,
    discrete_judge,
    equal_policies,
    useless_judge,
    weak_judge,
    well_specified,
)

N_REPLICATES, PER_DRAW = 1000, 25
WORLDS = {
    "well_specified": well_specified,
    "weak_judge": weak_judge,
    "binary_oracle": binary_oracle,
    "discrete_judge": discrete_judge,
    "equal_policies": equal_policies,  # every difference is zero; an independent judge transports between such policies
    "useless_judge": useless_judge,  # unequal values, nothing transports: what is printed is wrong
}
NO_JUDGE = ("equal_policies", "useless_judge")  # the judge is independent of the label
TRANSPORT = [name for name in WORLDS if name != "useless_judge"]
CHANCE = 0.01  # of each bound: a method exactly at a limit passes it in 99% of the seeds


def data_sets(world, n, m, replicates=N_REPLICATES):
    """Rows of n prompts each, m of them labelled under the base policy."""
    for seed in range(-(-replicates // PER_DRAW)):
        size = n * PER_DRAW
        data = WORLDS[world].simulate(n=size, oracle_fraction=1.0, label_design="base", rng=seed)
        every = unpack(data)
        policies = len(every.policies)
        base = every.policies.index("base")
        names, zero = every.prompts[:n], np.zeros(policies * n, bool)
        for k in range(PER_DRAW):
            block = (np.arange(policies)[:, None] * size + k * n + np.arange(n)).ravel()
            policy = every.policy[block]
            taught = (policy == base) & (np.tile(np.arange(n), policies) < m)  # prompts come in no order
            yield Rows(
                every.policies, names, np.arange(n), names, policy, np.tile(np.arange(n), policies),
                every.score[block], every.z[block], np.where(taught, every.label[block], np.nan), taught, zero,
                ~zero, np.ones(len(block)), np.ones(len(block)), taught,
            )  # fmt: skip


def at_most(limit, runs, chance=CHANCE):
    """Largest share of `runs` that does not contradict a probability of at most `limit` (exact binomial).

    Runs are the unit: the policies and pairs of one run are dependent, and a mean over them varies no more than one of
    them does.
    """
    return float(stats.binom.ppf(1 - chance, int(runs), limit) / runs) if runs >= 1 else 1.0


def at_least(limit, runs, chance=CHANCE):
    """Smallest share of `runs` that does not contradict a probability of at least `limit`."""
    return 1.0 - at_most(1.0 - limit, runs, chance)


def is_share(found, expected, runs, chance=CHANCE / 10):
    """Whether a share of `runs` is what it was measured or is known to be, up to the exact binomial law."""
    return at_least(expected, runs, chance) <= found <= at_most(expected, runs, chance)
