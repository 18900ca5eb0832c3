"""Target scores where the base policy has none: the calibrator must extrapolate.

``S = floor_p + (ceiling_p - floor_p) U`` with ``U ~ Kumaraswamy(a_p, b_p)``, and ``E[Y | S] = oracle_mean(S)`` for all
policies. The base policy's scores stay inside its own range, so labels under the base say nothing about the share of a
target's scores beyond it (`outside`), the quantity in the paper's bound on out-of-range bias and its REFUSE-LEVEL
gate.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'inside', 'above', 'below']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
"""

import numpy as np
import xarray as xr

from cje_sim.judges import LINKS, expected_over_scores, oracle_mean
from cje_sim.world import Laws, Prompts, Responses, by_policy, column, world

POLICIES = {
    "base": (2.0, 2.0, 0.45, 0.9),
    "inside": (3.0, 2.0, 0.45, 0.9),
    "above": (3.0, 1.2, 0.45, 1.0),
    "below": (1.5, 3.0, 0.0, 0.9),
}


def law(
    prompts: Prompts, *, policies: Laws = POLICIES, link: str = "linear", low: float = 0.1, high: float = 0.95
) -> Responses:
    """Scores squeezed into a policy's own range.

    Parameters
    ----------
    policies : mapping of policy to (a, b, floor, ceiling)
        Score law and the range it is squeezed into; the first is the base policy.
    """
    floor, ceiling = column(policies, 2), column(policies, 3)
    judge = floor + (ceiling - floor) * prompts.scores(policies)
    return Responses(policies=policies, judge=judge, mean=oracle_mean(judge, link, low, high))


def truth(
    *, policies: Laws = POLICIES, link: str = "linear", low: float = 0.1, high: float = 0.95
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature.

    >>> truth().round(3).values.tolist()
    [0.686, 0.728, 0.82, 0.382]
    """

    def value(a: float, b: float, floor: float, ceiling: float) -> float:
        width = ceiling - floor
        kinks = [(k - floor) / width for k in LINKS[link][1] if floor < k < ceiling]
        return expected_over_scores(lambda u: oracle_mean(floor + width * u, link, low, high), a, b, kinks)

    return by_policy({policy: value(*squeezed) for policy, squeezed in policies.items()})


def outside(*, policies: Laws = POLICIES) -> xr.DataArray:
    """Probability of a score beyond the base policy's range.

    >>> outside().round(3).values.tolist()
    [0.0, 0.0, 0.386, 0.73]
    """
    _, _, *inside = next(iter(policies.values()))

    def beyond(a: float, b: float, floor: float, ceiling: float) -> float:
        edges = np.clip((np.array(inside) - floor) / (ceiling - floor), 0, 1)
        below, top = 1 - (1 - edges**a) ** b
        return float(below + 1 - top)

    return by_policy({policy: beyond(*squeezed) for policy, squeezed in policies.items()}, "outside")


simulate = world(law, label_design="base")
