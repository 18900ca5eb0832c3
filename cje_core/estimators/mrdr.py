"""MRDR: doubly robust value whose outcome model is fitted where the weights need it (stack member).

Estimand: V(policy) = E[Y]. The DR formula of `cje_core.estimators.dr_cpo` with q an isotonic regression of the label
on the judge score over the *labelled logged responses*, weighted by omega(W) and cross-fitted on the same folds:
omega = W, W^2, or (W - 1)^2 (the variance of DR in its outcome model is ``E[W^2 (Y - q)^2]`` up to a constant, so W^2
aims at it; W is milder). Every label keeps at least a thousandth of the mean omega, so that no score level is without
a fit. R - q is no longer a difference of two fits of one calibrator, so the correction acts.

Failure modes: with concentrated weights q rests on a few labels (use stabilised weights, the default); else those of
dr_cpo. Without labels on logged responses there is no estimate.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.553, 'tilt_0.1': 0.563}
"""

from dataclasses import replace
from functools import partial

import numpy as np

from cje_core.calibration.calibrator import fit
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.calibration.leave_out import Ground, LeaveOut
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.calibration.two_stage import make_basis
from cje_core.checks import FloatArray, IntArray, one_of
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
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


def labelled_places(logs: off_policy.Logs, p: int) -> IntArray | Status:
    """Which of the used logged responses of policy p have labels, or why too few of them do."""
    used = off_policy.used_rows(logs, p)
    labelled = np.flatnonzero(np.isfinite(logs.logged.label[used]))
    prompt = used[labelled]
    if len(np.unique(logs.rows.cluster[prompt])) < MIN_LABELLED_CLUSTERS:
        return Status.TOO_FEW_LABELS if len(prompt) else Status.NO_LABELS
    if np.ptp(logs.fold[prompt]) == 0:  # one fold holds them all: nothing is left to fit on
        return Status.TOO_FEW_LABELS
    return labelled


def with_labelled(logs: off_policy.Logs) -> off_policy.Logs:
    """Logs with the labelled logged responses of every policy.

    Policies whose logged responses have the same labels share what no weight changes.
    """
    if logs.labelled:
        return logs
    mode, increasing = logs.pooled.mode, logs.pooled.increasing
    shared: dict[bytes, off_policy.LabelledLogs] = {}  # by the prompts of the labels
    made: list[off_policy.LabelledLogs | Status] = []
    for p in range(len(logs.policies)):
        at = labelled_places(logs, p)
        if isinstance(at, Status):
            made.append(at)
            continue
        prompt = off_policy.used_rows(logs, p)[at]
        same = shared.get(prompt.tobytes())
        if same is None:
            z = logs.logged.z[prompt]
            basis = None if mode == "monotone" else make_basis(z, increasing)
            ground = Ground(z, logs.fold[prompt], logs.n_folds, increasing, basis)
            same = off_policy.LabelledLogs(at, ground, off_policy.places_on(logs, ground))
            shared[prompt.tobytes()] = same
        made.append(same._replace(at=at))
    return replace(logs, labelled=tuple(made))


def weighted_outcome(
    logs: off_policy.Logs,
    p: int,
    labelled: off_policy.LabelledLogs,
    weight: FloatArray,
    omega: str,
    fit_name: str,
) -> off_policy.Outcome:
    """The outcome model of policy p: labelled logged responses weighted by omega, cross-fitted."""
    mode, increasing = logs.pooled.mode, logs.pooled.increasing
    used, index = off_policy.used_rows(logs, p), off_policy.fresh_rows(logs, p)
    prompt = used[labelled.at]
    z, label, w = logs.logged.z[prompt], logs.logged.label[prompt], label_weight(weight[labelled.at], omega)
    fits = LeaveOut(labelled.ground, label, w, mode == "two_stage_monotone")
    at = np.concatenate([np.searchsorted(logs.seen, used), len(logs.seen) + index])
    fold = logs.fold[np.concatenate([used, logs.rows.prompt[index]])]
    q = fits.predict(labelled.places, fold, at=at)
    logged, fresh = np.full(len(logs.rows.prompts), np.nan), np.full(len(logs.rows.z), np.nan)
    logged[used], fresh[index] = q[: len(used)], q[len(used) :]

    def labels() -> OracleSlice:
        model = fit(z, label, w, mode=mode, increasing=increasing, basis=labelled.ground.basis)
        return logs.fitted.with_labels(model, z, label, w, prompt)

    return off_policy.Outcome(logged, fresh, fit=fit_name, labels=labels)


def stages(logs: off_policy.Logs, weights: str) -> off_policy.Logs:
    """Logs with the stages that MRDR with such weights reads."""
    if weights == "stabilised":
        logs = off_policy.with_weights(logs, "residual")
    return with_labelled(logs)


def policy_value(
    logs: off_policy.Logs, p: int, *, omega: str = "w", weights: str = "stabilised"
) -> off_policy.Value | Status:
    """MRDR of policy p, or the status that says why its outcome model cannot be fitted."""
    labelled = logs.labelled[p]
    if isinstance(labelled, Status):
        return labelled
    if weights == "stabilised":
        weight, facts = off_policy.stabilised_weights(logs, p, "residual")
    else:
        weight = off_policy.raw_weights(logs, p)
        facts = {"ess_fraction": ess_fraction(weight)}
    outcome = weighted_outcome(logs, p, labelled, weight, omega, f"mrdr {omega} {weights}")
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
    return Method(value, {"omega": omega, "weights": weights}, partial(stages, weights=weights))
