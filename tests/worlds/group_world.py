"""A world whose prompts fall into groups in which a score may be worth more or less than elsewhere; truths are exact.

Prompts of equal shares of the groups; under policy p scores are ``S ~ U(0, 1)^(1 / a_p)`` (density ``a s^(a - 1)``),
and ``E[Y | S, g] = .25 + .4 S + shift_g`` with uniform noise: the same for all policies, so calibrations transport,
inside groups too. ``E[S] = a / (a + 1)``, whence all values.
"""

import numpy as np

from cje_core.data import from_arrays

POWER = {"base": 1.0, "target": 2.0}
NOISE = 0.1  # half width


def arrays(n, n_labels, shift, seed, *, target_labels=0):
    """Scores and labels (policies, prompts), and the group of each prompt; see `draw`."""
    rng = np.random.default_rng(seed)
    group = rng.integers(len(shift), size=n)
    score = np.stack([rng.random(n) ** (1 / power) for power in POWER.values()])
    label = 0.25 + 0.4 * score + np.asarray(shift)[group] + rng.uniform(-NOISE, NOISE, score.shape)
    oracle = np.full(score.shape, np.nan)
    for p, count in enumerate((n_labels, target_labels)):
        seen = rng.choice(n, count, replace=False)
        oracle[p, seen] = label[p, seen]
    return score, oracle, group


def draw(n, n_labels, shift, seed, **others):
    """Evaluation data with the variable ``topic``; labels of the base policy, chosen at random, and of the target."""
    score, oracle, group = arrays(n, n_labels, shift, seed, **others)
    data = from_arrays(score, policies=list(POWER), oracle=oracle, calibration_policy="base")
    return data.assign(topic=("prompt", np.array([f"g{g}" for g in group])))


def value(policy, shift):
    """V(policy) over all prompts, or in one group given its shift alone."""
    power = POWER[policy]
    return 0.25 + 0.4 * power / (power + 1) + float(np.mean(shift))
