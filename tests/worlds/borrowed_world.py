"""Worlds and data sets in which policies borrow: labels of the base policy only; and what a run of them may show.

Data sets are cut from a few large draws of each scenario, so that one costs microseconds and
replicates are array-level.
"""

from functools import lru_cache

import numpy as np
from bare_arrays import names_of
from scipy import stats

from cje_core.data.arrays import Rows
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


SHARED = 500  # prompts of a data set with 50 labels and of one with 250


@lru_cache(maxsize=2 * N_REPLICATES // PER_DRAW)  # what is drawn for few labels is there for many
def population(world, n, seed):
    """Policies by name, and scores and labels (policy, prompt) of n prompts, all of the base labelled."""
    options = {"n": n, "oracle_fraction": 1.0, "label_design": "base"}
    drawn = WORLDS[world].simulate.block([np.random.default_rng(seed)], **options)
    by = np.argsort(drawn.policies)[:, None], names_of(n)[1]
    return sorted(drawn.policies), drawn.score[0][by], drawn.label[0][by]


def data_sets(world, n, m, replicates=N_REPLICATES):
    """Rows of n prompts each, m of them labelled under the base policy."""
    names, prompt = names_of(n * PER_DRAW)[0][:n], np.arange(n)
    for seed in range(-(-replicates // PER_DRAW)):
        draw = population if n == SHARED else population.__wrapped__
        policies, scores, labels = draw(world, n * PER_DRAW, seed)
        if seed == 0:
            size = len(policies) * n
            policy, ones, no = np.repeat(np.arange(len(policies)), n), np.ones(size), np.zeros(size, bool)
            first = np.tile(prompt, len(policies)) < m  # they come in no order
            taught = (policy == policies.index("base")) & first
            same = Rows(
                policies, names, prompt, names, policy, np.tile(prompt, len(policies)), ones, ones[:, None], ones,
                taught, no, ~no, ones, ones, taught,
            )  # fmt: skip
        for k in range(PER_DRAW):
            score, label = (values[:, k * n : (k + 1) * n].ravel() for values in (scores, labels))
            yield same._replace(score=score, z=score[:, None], label=np.where(taught, label, np.nan))


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
