"""Calibrated IPS: importance sampling with stabilised weights and calibrated rewards (the paper's algorithm Cal-IPS).

Estimand: V(policy) = E[Y]. Formula: ``V = mean_i W_i R_i`` with W the stabilised weights
(`cje_core.offpolicy.weights.stabilise`, Delta = R) of mean one and R = f(Z). Influence in Hajek form, ``W_i (R_i -
V)``, plus the calibration term. The paper prints ``W R^OOF - V``, which leaves out that the weights are normalised.

Failure modes: stabilisation is shrinkage towards the logger's value. Where ``Cov(W, (R - E[R])^2) >= 0`` under the
logger, whichever policy is better (`cje_core.offpolicy.weights`: with a long lower tail of rewards it is the worse
target), the stack takes the constant weight, effective sample size rises to n and the estimate tends to the
*logger's* value; neither the standard error nor the effective sample size shows that. The raw weights' effective
sample size, which decides the status, does.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.527, 'tilt_0.1': 0.523}
"""

from functools import partial

from cje_core.families import off_policy
from cje_core.families.off_policy_estimate import Method, estimator

NEEDS = off_policy.NEEDS


def policy_value(
    logs: off_policy.Logs, p: int, *, weighting: off_policy.Stabilisation = off_policy.DEFAULT
) -> off_policy.Value:
    """Calibrated IPS of policy p."""
    weight, facts = off_policy.stabilised_weights(logs, p, "reward", weighting)
    return off_policy.ips_value(logs, p, weight, facts)


@estimator(fresh=False)
def estimate(*, weighting: off_policy.Stabilisation = off_policy.DEFAULT) -> Method:
    """Estimate each policy's value by calibrated IPS; see the module and its package.

    Parameters
    ----------
    weighting : Stabilisation
        Its fields are as in `cje_core.offpolicy.weights.stabilise`.

    Returns
    -------
    And ``ess_fraction(policy)`` of the stabilised weights, ``beta(policy, candidate)``, ``alpha`` and
    ``guard_engaged`` (1 or 0).
    """
    return Method(partial(policy_value, weighting=weighting), weighting._asdict())
