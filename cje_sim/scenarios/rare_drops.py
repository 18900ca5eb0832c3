"""Graded labels of each policy's own that drop far and rarely: most samples show few drops, and many show none.

A response drops with its policy's probability. Then its label is ``dropped``, else it is uniform within ``width`` of
``usual``. The judge sees a share of the drops: those it scores between .1 and .3, every other response between .6 and
1.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'same', 'safer']
>>> truth().round(3).values.tolist()
[0.876, 0.876, 0.9]
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.world import Prompts, Responses, by_policy, world

DROPS = {"base": 0.03, "same": 0.03, "safer": 0.0}


def law(
    prompts: Prompts,
    *,
    drops: Mapping[str, float] = DROPS,
    usual: float = 0.9,
    width: float = 0.02,
    dropped: float = 0.1,
    seen: float = 0.5,
) -> Responses:
    """Draw labels, and scores of a judge who sees some of the drops.

    Parameters
    ----------
    drops : mapping of policy to probability
        How often its labels drop; the first is the base policy.
    usual, width : float
        Middle and half-width of the other labels.
    dropped : float
        Label of a drop.
    seen : float
        Share of the drops that the judge sees.
    """
    u = prompts.uniforms(len(drops))
    rate = np.array(list(drops.values()))[:, None]
    fell = prompts.rng.random(u.shape) < rate
    label = np.where(fell, dropped, usual + width * prompts.rng.uniform(-1, 1, u.shape))
    low = fell & (prompts.rng.random(u.shape) < seen)
    missed = rate * (1 - seen) / (1 - rate * seen)  # drops among the responses that the judge scores high
    expected = np.where(low, dropped, usual + missed * (dropped - usual))
    return Responses(
        policies=drops, judge=np.where(low, 0.1 + 0.2 * u, 0.6 + 0.4 * u), oracle=label, true_reward=expected
    )


def truth(*, drops: Mapping[str, float] = DROPS, usual: float = 0.9, dropped: float = 0.1) -> xr.DataArray:
    """Return ``V = (1 - p) usual + p dropped``, p the policy's probability of a drop."""
    return by_policy({policy: (1 - p) * usual + p * dropped for policy, p in drops.items()})


simulate = world(law, label_design="own", spread=None, atoms=None)
