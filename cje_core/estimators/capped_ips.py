"""Capped IPS: self-normalised importance sampling with weights cut at a cap, a member of the paper's stack.

Estimand: V(policy) = E[Y], up to the cap's bias. Formula: ``V = sum_i W_i R_i / sum_i W_i``, ``W = min(W_m1, cap)``
brought back to mean one; the default cap sqrt(n), n the logged responses used, makes both the bias and the largest
weight over n vanish as n grows. Influence as for SNIPS.

Failure mode: what lies above the cap is spread over all rows, which pulls the value towards the logger's: bias
``E[(W - cap)_+ (V - Y)]`` to first order, invisible to the standard error. Under poor overlap the interval is
therefore narrow and wrong; a stack that minimises variance will prefer it.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.557, 'tilt_0.1': 0.566}
"""

from functools import partial

import numpy as np

from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.offpolicy.weights import clip, ess_fraction

NEEDS = off_policy.NEEDS


def policy_value(logs: off_policy.Logs, p: int, *, cap: float | None = None) -> off_policy.Value:
    """Capped IPS of policy p; `cap` defaults to the root of the number of logged responses used."""
    raw = off_policy.raw_weights(logs, p)
    weight = clip(raw, np.sqrt(len(raw)) if cap is None else cap)
    return off_policy.ips_value(logs, p, weight, {"ess_fraction": ess_fraction(weight)})


@estimator(fresh=False)
def estimate(*, cap: float | None = None) -> Method:
    """Estimate each policy's value by capped IPS; see the module and its package.

    Parameters
    ----------
    cap : float, optional
        Largest mean-one weight; default sqrt(n).

    Returns
    -------
    And ``ess_fraction(policy)`` of the weights used.
    """
    return Method(partial(policy_value, cap=cap), {"cap": cap})
