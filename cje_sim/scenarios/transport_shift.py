"""Policies for which the base calibrator is wrong in a stated way: on average or in shape.

``S ~ Kumaraswamy(a_p, b_p)`` and ``E[Y | S]`` is the base curve changed by `cje_sim.judges.shifted_mean`. A ``mean``
shift is what the paper's transport audit tests; ``shape`` and ``compensating`` shifts have residual mean exactly zero,
so the level is right and the audit must pass, though the curve is wrong at almost every score.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'same', 'lower', 'flatter', 'compensating']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray, expected_over_scores, oracle_mean, score_quantile, shifted_mean
from cje_sim.world import Prompts, Responses, by_policy, world

POLICIES = {
    "base": (3.0, 2.0, "none", 0.0),
    "same": (3.4, 1.9, "none", 0.0),
    "lower": (3.0, 2.0, "mean", -0.1),
    "flatter": (3.0, 2.0, "shape", 0.6),
    "compensating": (3.0, 2.0, "compensating", 0.1),
}
Law = tuple[float, float, str, float]


def law(
    prompts: Prompts, *, policies: Mapping[str, Law] = POLICIES, low: float = 0.15, high: float = 0.85
) -> Responses:
    """Scores of a law per policy, labels around a curve per policy.

    Parameters
    ----------
    policies : mapping of policy to (a, b, kind, size)
        Score law and shift, see `cje_sim.judges.shifted_mean`; the first is the base policy.
    low, high : float
        Ends of the base curve, see `cje_sim.judges.oracle_mean`.
    """
    judge = prompts.scores(policies)
    curves = [_curve(tuple(shifted), low, high) for shifted in policies.values()]
    mean = np.stack([curve(row) for curve, row in zip(curves, judge, strict=True)])
    return Responses(policies=policies, judge=judge, mean=mean)


def truth(*, policies: Mapping[str, Law] = POLICIES, low: float = 0.15, high: float = 0.85) -> xr.DataArray:
    """``V(policy) = E[shifted curve(S)]``, by quadrature.

    >>> (truth() - truth()[0]).round(6).values + 0.0  # same, lower, flatter, compensating against base
    array([ 0.      ,  0.035821, -0.1     ,  0.      ,  0.      ])
    """

    def value(a: float, b: float, kind: str, size: float) -> float:
        median = float(score_quantile(0.5, a, b))
        return expected_over_scores(_curve((a, b, kind, size), low, high), a, b, [median])

    return by_policy({policy: value(*shifted) for policy, shifted in policies.items()})


@lru_cache(maxsize=64)  # the same for every data set; to check it takes quadrature and a grid
def _curve(shifted: Law, low: float, high: float) -> Callable[[FloatArray], FloatArray]:
    """``E[Y | S]`` of one policy."""
    a, b, kind, size = shifted
    return shifted_mean(lambda s: oracle_mean(s, "sigmoid", low, high), kind, size, a, b)


simulate = world(law, label_design="base")
