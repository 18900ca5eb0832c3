"""IPS: plain importance sampling of calibrated rewards, without normalisation (Horvitz and Thompson 1952).

Estimand: V(policy) = E[Y], from logged responses alone. Formula (the paper's equation of Calibrated IPS, with the raw
ratio in place of the stabilised weight):

    V = a + (1/n) sum_i W_i (R_i - a),      W_i = exp(log p_target - log p_logger),  R = f(Z)

over the n logged responses that have both log-likelihoods, a the lower end of the oracle range. On the paper's scale
[0, 1] that is ``mean(W R)``; elsewhere a makes the value follow the label's scale, which ``mean(W R)`` does not.
Influence: ``a + W_i (R_i - a) - V`` plus the calibration term, see `cje_core.families.off_policy.value`, with degrees
of freedom of the weights, as for SNIPS. ``mean_weight`` estimates ``E[W] = 1``: where it is far from 1 the value is off
by the same factor.

Failure modes: those of SNIPS; besides, a constant error in the log-likelihoods, which cancels in SNIPS, multiplies
the value by its exponential; nothing keeps the value inside the range (it is cut there, but with ``interval="wald"``);
and where rewards vary little beside their distance from a, SNIPS has the smaller variance.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> result = estimate(data)
>>> result["mean_weight"].to_series().round(3).to_dict()
{'base': 1.0, 'clone': 1.066, 'tilt_0.1': 1.16}
>>> result["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.594, 'tilt_0.1': 0.666}
"""

import numpy as np

from cje_core.checks import FloatArray
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.inference.sums import sum_by
from cje_core.offpolicy.weights import ess_fraction

NEEDS = off_policy.NEEDS
LARGEST = 150.0  # nats: a larger log ratio counts as this, so that fourth powers of weights stay finite


def policy_value(logs: off_policy.Logs, p: int) -> off_policy.Value:
    """Return the plain importance-sampling value of policy p."""
    n, used = len(logs.rows.prompts), off_policy.used_rows(logs, p)
    weight = np.exp(np.minimum(logs.log_ratio[p, used], LARGEST))
    low = logs.oracle_range[0]

    def scaled(reward: FloatArray) -> FloatArray:
        return np.asarray(low + weight * (reward[used] - low))

    def mean_of(reward: FloatArray) -> off_policy.Source:
        return off_policy.hajek(n, used, np.ones(len(used)), scaled(reward))

    def sources() -> tuple[off_policy.Source, off_policy.Source]:
        # the noise of a term is proportional to its weight: few effective weights leave few degrees of freedom
        leverage = sum_by(used, weight / weight.sum(), n)
        return off_policy.no_source(n), mean_of(logs.reward)._replace(leverage=leverage)

    return off_policy.Value(
        0.0,
        off_policy.hajek_mean(np.ones(len(used)), scaled(logs.reward)),
        sources,
        lambda: mean_of(logs.outcomes[()].logged).influence,
        lambda: [off_policy.Term(off_policy.CALIBRATOR, logs.fitted, "logged", weight / len(used))],
        facts={"ess_fraction": ess_fraction(weight), "mean_weight": float(weight.mean())},
    )


@estimator(fresh=False)
def estimate() -> Method:
    """Estimate each policy's value by importance sampling without normalisation; see the module and its package.

    Returns
    -------
    And ``ess_fraction(policy)`` of the weights, and ``mean_weight(policy)``, whose expectation is 1.
    """
    return Method(policy_value)
