"""MRDR: doubly robust value whose outcome model is fitted where the weights need it (stack member).

Estimand: V(policy) = E[Y]. The DR formula of `cje_core.estimators.dr_cpo` with q an isotonic regression of the label
on the judge score over the *labelled logged responses*, weighted by omega(W) and cross-fitted on the same folds:
omega = W, W^2, or (W - 1)^2 (the variance of DR in its outcome model is ``E[W^2 (Y - q)^2]`` up to a constant, so W^2
aims at it; W is milder). Every label keeps at least a thousandth of the mean omega, so that no score level is without
a fit. R - q is no longer a difference of two fits of one calibrator, so the correction acts.

Failure modes: with concentrated weights q rests on a few labels (use stabilised weights, the default); else those of
dr_cpo. Without labels on logged responses there is no estimate.
"""

from functools import partial

import numpy as np

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.calibration.oracle_slice import OracleSlice, fit
from cje_core.checks import FloatArray, one_of
from cje_core.families import off_policy
from cje_core.families.off_policy_estimate import Method, estimator
from cje_core.inference.estimate import Status
from cje_core.offpolicy.weights import ess_fraction

NEEDS = off_policy.NEEDS
OMEGA = ("w", "w_squared", "w_minus_one_squared")
WEIGHTS = ("stabilised", "raw")
LEAST = 1e-3  # smallest omega, relative to its mean


def label_weight(weight: FloatArray, omega: str) -> FloatArray:
    """omega(W) of each labelled response, of mean one and bounded away from 0.

    Examples
    --------
    >>> label_weight(np.array([0.0, 1.0, 2.0]), "w_squared").round(4).tolist()
    [0.001, 0.6, 2.4]
    """
    value = {"w": weight, "w_squared": weight**2, "w_minus_one_squared": (weight - 1) ** 2}[omega]
    mean = value.mean()
    return np.maximum(value / mean, LEAST) if mean > 0 else np.ones(len(weight))


def weighted_slice(logs: off_policy.Logs, p: int, weight: FloatArray, omega: str) -> OracleSlice | Status:
    """The labelled logged responses of policy p, weighted by omega, with their calibrator."""
    used = off_policy.used_rows(logs, p)
    labelled = np.isfinite(logs.logged.label[used])
    prompt = used[labelled]
    if len(np.unique(logs.rows.cluster[prompt])) < MIN_LABELLED_CLUSTERS:
        return Status.TOO_FEW_LABELS if len(prompt) else Status.NO_LABELS
    if len(np.unique(logs.fitted.fold[prompt])) < 2:  # one fold holds them all: nothing is left to fit on
        return Status.TOO_FEW_LABELS
    z, label, w = logs.logged.z[prompt], logs.logged.label[prompt], label_weight(weight[labelled], omega)
    model = fit(z, label, w, mode=logs.fitted.mode, increasing=logs.fitted.increasing)
    return logs.fitted._replace(calibrator=model, z=z, label=label, weight=w, prompt=prompt)


def policy_value(
    logs: off_policy.Logs, p: int, *, omega: str = "w", weights: str = "stabilised"
) -> off_policy.Value | Status:
    """MRDR of policy p, or the status that says why its outcome model cannot be fitted."""
    if weights == "stabilised":
        weight, facts = off_policy.stabilised_weights(logs, p, logs.reward - logs.outcome.logged)
    else:
        weight = off_policy.raw_weights(logs, p)
        facts = {"ess_fraction": ess_fraction(weight)}
    taught = weighted_slice(logs, p, weight, omega)
    if isinstance(taught, Status):
        return taught
    outcome = off_policy.cross_fit(logs.rows, logs.logged, taught)
    return off_policy.dr_value(logs, p, weight, facts, outcome=outcome)


@estimator(fresh=True)
def estimate(*, omega: str = "w", weights: str = "stabilised") -> Method:
    """Estimate each policy's value by MRDR; see the module and its package.

    Parameters
    ----------
    omega : {"w", "w_squared", "w_minus_one_squared"}
    weights : {"stabilised", "raw"}
        Of the correction and of omega.

    Returns
    -------
    And what `cje_core.estimators.calibrated_dr_cpo` says of stabilised weights.
    """
    for name, chosen, known in (("omega", omega, OMEGA), ("weights", weights, WEIGHTS)):
        one_of(chosen, name, known)
    value = partial(policy_value, omega=omega, weights=weights)
    return Method(value, {"omega": omega, "weights": weights})
