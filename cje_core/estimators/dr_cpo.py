"""DR: doubly robust value with calibrated rewards and raw weights (the paper's table, row dr-cpo).

Estimand: V(policy) = E[Y]. Formula (the paper's algorithm Calibrated-DR with self-normalised weights):

    V = mean_x g(x) + sum_i W_i (R_i - q_i) / sum_i W_i

q = f^(-k)(Z) the held-out calibrator, g(x) the mean of q over the policy's fresh draws for the prompt, R = f(Z). The
correction is the difference of two fits of one calibrator: near 0, so that V is the plug-in of Direct up to noise.

With ``outcome`` q is a model of its own, q(X, A), as in the paper's text: cross-fitted least squares of the rewards of
all logged responses on features of prompt and response (`cje_core.formulas.linear_outcome`). Then the correction acts,
and ``orthogonality``, the weighted mean of Y - q, tells where q is wrong for the policy: the gate can fail, as it
cannot where q is the calibrator that made R. The error of q itself is of second order where the weights are right, and
is not counted; that of the labels is, exactly.

Calibration error: +W on f, -W on f^(-k) at the logged responses and 1/n on f^(-k) at the fresh ones, jointly.

Failure modes: rewards are calibrated, not labelled, so neither part sees a calibration that does not transport to
the policy (audit it); under poor overlap the correction adds noise (the paper's remark "DR vs Direct"), see
``ips_part``, its interval and the status.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.546, 'tilt_0.1': 0.557}
"""

from collections.abc import Sequence
from functools import partial

from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.offpolicy.weights import ess_fraction

NEEDS = off_policy.NEEDS


def policy_value(
    logs: off_policy.Logs, p: int, *, outcome: tuple[str, ...] = (), smooth_g: bool = False
) -> off_policy.Value:
    """DR of policy p with raw weights; q is the model on the features `outcome`, by default the held-out calibrator."""
    weight = off_policy.raw_weights(logs, p)
    facts, q = {"ess_fraction": ess_fraction(weight)}, logs.outcomes[outcome]
    return off_policy.dr_value(logs, p, weight, facts, outcome=q, smooth_g=smooth_g)


@estimator(fresh=True)
def estimate(*, outcome: Sequence[str] = (), smooth_g: bool = False) -> Method:
    """Estimate each policy's value by DR with raw weights; see the module and its package.

    Parameters
    ----------
    outcome : sequence of str
        Features of prompt and response that q(X, A) is fitted on by least squares, "judge" for the judge score and any
        covariates of the data; see the module. Default: none, q is the held-out calibrator.
    smooth_g : bool
        Take the mean of q over fresh responses through a regression on the prompts' logged responses
        (`cje_core.families.off_policy.smooth`): shorter where only some prompts have fresh responses, the same where
        all do.

    Returns
    -------
    And ``ess_fraction(policy)`` of the weights used.
    """
    features = off_policy.feature_names(outcome)
    return Method(
        partial(policy_value, outcome=features, smooth_g=smooth_g),
        ({"smooth_g": True} if smooth_g else {}) | ({"outcome": list(features)} if features else {}),
        partial(off_policy.with_outcome, features=features),
    )
