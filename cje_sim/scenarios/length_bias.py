"""A judge that rewards length: without the covariate it ranks a verbose policy above a better, concise one.

Quality ``Q ~ Kumaraswamy(a_p, b_p)`` and standardised log length ``X ~ N(mu_p, 1)`` are independent given the policy.
The oracle looks at quality alone, ``E[Y | Q, X] = oracle_mean(Q)``; the judge reports ``S = expit(logit(Q) + bias *
X)``. So ``E[Y | S, X] = oracle_mean(expit(logit(S) - bias * X))``: monotone in S given X and in an additive index, the
form of the paper's two-stage calibration. E[Y | S] alone differs between policies, so a monotone calibrator does not
transport.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'concise', 'verbose']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 30)
"""

import numpy as np
import xarray as xr

from cje_sim.judges import inflate, oracle_mean
from cje_sim.world import Laws, Prompts, Responses, column, link_truth, world

POLICIES = {"base": (3.0, 2.0, 0.0), "concise": (3.5, 1.9, -0.8), "verbose": (2.8, 2.1, 1.0)}


def law(
    prompts: Prompts,
    *,
    policies: Laws = POLICIES,
    bias: float = 0.5,
    link: str = "sigmoid",
    low: float = 0.1,
    high: float = 0.95,
) -> Responses:
    """Quality and length, the covariate ``length``.

    Parameters
    ----------
    policies : mapping of policy to (a, b, mu)
        Quality law and mean standardised log length; the first is the base policy.
    bias : float
        Points that one unit of length adds to the judge's logit.
    """
    quality = prompts.scores(policies)
    shared, own = prompts.rng.standard_normal(prompts.n), prompts.rng.standard_normal(quality.shape)
    length = column(policies, 2) + np.sqrt(prompts.corr) * shared + np.sqrt(1 - prompts.corr) * own
    return Responses(
        policies=policies,
        judge=inflate(quality, bias * length),
        mean=oracle_mean(quality, link, low, high),
        covariate={"length": length},
    )


def truth(
    *, policies: Laws = POLICIES, link: str = "sigmoid", low: float = 0.1, high: float = 0.95
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature; length does not enter.

    >>> truth().round(3).values.tolist()
    [0.697, 0.748, 0.667]
    """
    return link_truth(policies, link, low, high)


simulate = world(law)
