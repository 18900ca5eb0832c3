"""A judge with few distinct scores, most of them on one: the normal case with LLM judges.

S takes finitely many levels with probabilities of its policy's own, ``E[Y | S = level]`` is one table for all
policies. The default levels and shares are like those of a judge that answers .85 six times in ten. Everything is a
finite sum.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'clone', 'better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from cje_sim.judges import draw_levels
from cje_sim.world import Prompts, Responses, by_policy, world

LEVELS = (0.1, 0.2, 0.5, 0.7, 0.85, 0.9, 0.95, 1.0)
MEANS = (0.1, 0.12, 0.4, 0.52, 0.72, 0.78, 0.85, 0.9)
SHARES = {
    "base": (0.01, 0.01, 0.04, 0.09, 0.6, 0.05, 0.12, 0.08),
    "clone": (0.01, 0.01, 0.04, 0.08, 0.6, 0.05, 0.13, 0.08),
    "better": (0.0, 0.01, 0.02, 0.05, 0.5, 0.12, 0.18, 0.12),
    "worse": (0.3, 0.15, 0.15, 0.1, 0.25, 0.02, 0.02, 0.01),
}


def law(
    prompts: Prompts,
    *,
    levels: Sequence[float] = LEVELS,
    means: Sequence[float] = MEANS,
    shares: Mapping[str, Sequence[float]] = SHARES,
) -> Responses:
    """Levels by their shares, labels around one table.

    Parameters
    ----------
    levels, means : sequences of float, equal length
        The judge's scores, rising, and ``E[Y | S]`` at each.
    shares : mapping of policy to sequence of float
        Probability of each level; the first policy is the base.
    """
    level = draw_levels(prompts.uniforms(len(shares)), list(shares.values()))
    mean = np.asarray(means, dtype=float)[level]
    return Responses(
        policies=shares, judge=np.asarray(levels, dtype=float)[level], mean=mean, true_reward=mean
    )


def truth(*, means: Sequence[float] = MEANS, shares: Mapping[str, Sequence[float]] = SHARES) -> xr.DataArray:
    """``V(policy) = sum over levels of share * E[Y | level]``.

    >>> truth().round(4).values.tolist()
    [0.71, 0.7133, 0.7498, 0.3816]
    """
    return by_policy({policy: float(np.dot(row, means)) for policy, row in shares.items()})


simulate = world(law)
