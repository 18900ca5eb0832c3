"""Calibrated DR: doubly robust value with stabilised weights (the paper's algorithm Calibrated-DR).

Estimand: V(policy) = E[Y]. Formula: ``V = mean_x g(x) + mean_i W_i (R_i - q_i)`` with W the stabilised weights
(`cje_core.offpolicy.weights.stabilise`, Delta = R - q); q, g, R and the error terms as in `cje_core.estimators.dr_cpo`.

Failure modes: those of dr_cpo; stabilised weights are not the importance weights, so where q is wrong the correction
is incomplete and the estimate is no longer doubly robust.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.549, 'tilt_0.1': 0.562}
"""

from collections.abc import Sequence
from functools import partial

from cje_core.estimators import Role
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator

NEEDS = off_policy.NEEDS
ROLE = Role(offered="logs", place=6)


def policy_value(
    logs: off_policy.Logs,
    p: int,
    *,
    weighting: off_policy.Stabilisation = off_policy.DEFAULT,
    outcome: tuple[str, ...] = (),
    smooth_g: bool = False,
) -> off_policy.Value:
    """Calibrated DR of policy p; `outcome` as in `cje_core.estimators.dr_cpo`."""
    weight, facts = off_policy.stabilised_weights(logs, p, "residual", weighting, outcome)
    return off_policy.dr_value(logs, p, weight, facts, outcome=logs.outcomes[outcome], smooth_g=smooth_g)


@estimator(fresh=True)
def estimate(
    *,
    weighting: off_policy.Stabilisation = off_policy.DEFAULT,
    outcome: Sequence[str] = (),
    smooth_g: bool = False,
) -> Method:
    """Estimate each policy's value by calibrated DR; see the module and its package.

    Parameters
    ----------
    weighting : Stabilisation
        Its fields are as in `cje_core.offpolicy.weights.stabilise`.
    outcome : sequence of str
        Features of q(X, A), see `cje_core.estimators.dr_cpo`.
    smooth_g : bool
        Take the mean of q over fresh responses through a regression on the prompts' logged responses
        (`cje_core.families.off_policy.smooth`): shorter where only some prompts have fresh responses, the same where
        all do.

    Returns
    -------
    And ``ess_fraction(policy)`` of the stabilised weights, ``beta(policy, candidate)``, ``alpha`` and
    ``guard_engaged`` (1 or 0).
    """
    features = off_policy.feature_names(outcome)
    options = weighting._asdict() | ({"smooth_g": True} if smooth_g else {})
    return Method(
        partial(policy_value, weighting=weighting, outcome=features, smooth_g=smooth_g),
        options | ({"outcome": list(features)} if features else {}),
        partial(off_policy.with_weights, delta="residual", weighting=weighting, outcome=features),
    )
