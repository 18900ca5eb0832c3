"""SNIPS: self-normalised importance sampling of calibrated rewards (the paper's table "Accuracy & Uncertainty", SNIPS).

Estimand: V(policy) = E[Y], from logged responses alone. Formula: ``V = sum_i W_i R_i / sum_i W_i`` over the logged
responses that have both log-likelihoods, W the mean-one importance weights and R = f(Z) the calibrated reward.
Influence (Hajek): ``W_i (R_i - V) / mean W`` plus the calibration term, see `cje_core.families.off_policy.value`. With
``clip`` the weights are cut at that value and brought back to mean one (the reference implementation of the paper
clips at 100).

Failure modes: poor overlap, where the value rests on a handful of responses (status POOR_OVERLAP below ten effective
ones) and the standard error, which sees only those, is too small as well; errors of teacher forcing in the
log-likelihoods; a calibration learned on the logger that does not hold under the weights.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.557, 'tilt_0.1': 0.574}
"""

from functools import partial

from cje_core.estimators import Role
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.offpolicy.weights import clip as clip_weights
from cje_core.offpolicy.weights import ess_fraction

NEEDS = off_policy.NEEDS
ROLE = Role(offered="logs", place=4)


def policy_value(logs: off_policy.Logs, p: int, *, clip: float | None = None) -> off_policy.Value:
    """SNIPS of policy p, with clipped weights if `clip` is given."""
    weight = off_policy.raw_weights(logs, p)
    if clip is not None:
        weight = clip_weights(weight, clip)
    return off_policy.ips_value(logs, p, weight, {"ess_fraction": ess_fraction(weight)})


@estimator(fresh=False)
def estimate(*, clip: float | None = None) -> Method:
    """Estimate each policy's value by SNIPS; see the module and its package.

    Parameters
    ----------
    clip : float, optional
        Cap on the mean-one weights.

    Returns
    -------
    And ``ess_fraction(policy)`` of the weights used.
    """
    return Method(partial(policy_value, clip=clip), {"clip": clip})
