"""Equal policies and an independent judge: it prefers one policy's style, no score says anything about any label.

``S ~ Kumaraswamy(a_p, b_p)``, a law of its own for every policy, and ``E[Y | S] = value`` for all of them: the
calibration transports, for there is nothing in it. Every true difference is zero, so whoever orders two policies
orders them falsely. The world of `cje_sim.scenarios.useless_judge` with one value.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'favoured', 'disliked']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
"""

import xarray as xr

from cje_sim.scenarios import useless_judge
from cje_sim.world import Prompts, Responses, ScoreLaw, by_policy, world

SCORE_LAW = {"base": (3.0, 2.0), "favoured": (4.0, 1.6), "disliked": (2.0, 3.0)}


def law(prompts: Prompts, *, score_law: ScoreLaw = SCORE_LAW, value: float = 0.6) -> Responses:
    """Scores of a law per policy, and one value.

    Parameters
    ----------
    value : float
        Value of every policy, in [0, 1].
    """
    return useless_judge.law(prompts, policies={name: (a, b, value) for name, (a, b) in score_law.items()})


def truth(*, score_law: ScoreLaw = SCORE_LAW, value: float = 0.6) -> xr.DataArray:
    """``V(policy) = value``, a parameter.

    >>> truth().values.tolist()
    [0.6, 0.6, 0.6]
    """
    return by_policy(dict.fromkeys(score_law, value))


simulate = world(law, label_design="base", atoms=0.3)
