"""A policy that games the judge: a share of its responses scores high and is worth little.

Ordinary responses have ``S ~ Kumaraswamy(a_p, b_p)`` and ``E[Y | S] = oracle_mean(S)``. A response of the policy
`attacker` is a hack with probability `share`; then ``S ~ Kumaraswamy(hack_law)``, near 1, and ``E[Y | S]`` is
`hack_mean` whatever S. So the attacker's E[Y | S] falls where scores are highest, and the base calibrator overrates it
by ``share * (E[f(S) | hack] - hack_mean)``.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'honest', 'adversarial']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
"""

import numpy as np
import xarray as xr

from cje_sim.judges import oracle_mean, score_quantile
from cje_sim.world import Prompts, Responses, ScoreLaw, chosen, column, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "honest": (3.4, 1.8), "adversarial": (3.0, 2.0)}
HACK_LAW = (12.0, 1.5)


def law(
    prompts: Prompts,
    *,
    score_law: ScoreLaw = SCORE_LAW,
    attacker: str = "adversarial",
    share: float = 0.5,
    hack_law: tuple[float, float] = HACK_LAW,
    hack_mean: float = 0.15,
) -> Responses:
    """Ordinary responses, and the hacks of one policy.

    Parameters
    ----------
    attacker, share : str, float
        The policy that games the judge, and the share of its responses that are hacks, in [0, 1].
    hack_law, hack_mean : pair of float, float
        Score law and mean oracle value, in [0, 1], of hacks.
    """
    u = prompts.uniforms(len(score_law))
    hack = chosen(score_law, attacker) & (prompts.rng.random(u.shape) < share)
    honest = score_quantile(u, column(score_law, 0), column(score_law, 1))
    judge = np.where(hack, score_quantile(u, *hack_law), honest)
    return Responses(policies=score_law, judge=judge, mean=np.where(hack, hack_mean, oracle_mean(judge)))


def truth(
    *,
    score_law: ScoreLaw = SCORE_LAW,
    attacker: str = "adversarial",
    share: float = 0.5,
    hack_mean: float = 0.15,
) -> xr.DataArray:
    """``V = E[oracle_mean(S)]``, for the attacker mixed with `share` of `hack_mean`.

    >>> truth().round(3).values.tolist()
    [0.697, 0.748, 0.424]
    """
    honest = link_truth(score_law)
    return honest.where(honest.policy != attacker, (1 - share) * honest + share * hack_mean)


simulate = world(law, label_design="base")
