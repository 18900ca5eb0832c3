"""Direct plus the mean residual of probe labels: the level of a policy that the calibration does not transport to.

Estimand: V(policy) = E[Y]. Formula: mean f(S) over the policy's responses + mean over its probes of Y - f(S), the
transport correction of the paper's section on calibration transportability. Its influence function joins three
sources: the responses drawn, the probes, and the labels that taught f, whose leverage is the *difference* of the knot
masses of responses and probes (a calibration error common to both cancels).

Failure modes: it corrects the mean only, not the calibration within subgroups; the probes must be a random sample of
the policy's responses; with a handful of probes it is as wide as they are few.
"""

import numpy as np
import xarray as xr

from cje_core.calibration import calibration_part, fit_slice, mean_part, predict
from cje_core.data import unpack
from cje_core.estimators._assemble import PolicyResult, assemble
from cje_core.folds import MIN_LABELLED_CLUSTERS
from cje_core.result import Status
from cje_core.uncertainty import combine

NEEDS = {"judge", "oracle", "probe"}


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: np.random.Generator | int | None = None,
    direction: str = "increasing",
) -> xr.Dataset:
    """Estimate each probed policy's value by the probe-corrected plug-in; see the module.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data with probes.
    ci_prob : float
        Probability of the t interval.
    rng : Generator, int or None
        Unused: there is nothing random here.
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.

    Returns
    -------
    xr.Dataset
        Estimate contract; policies with fewer than 4 probed prompts have status NO_PROBES.
    """
    del rng
    rows = unpack(data)
    fitted = fit_slice(rows, direction=direction)
    results = []
    for p in range(len(rows.policies)):
        index = np.flatnonzero((rows.policy == p) & rows.evaluated)
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        if len(index) == 0:
            results.append(PolicyResult(Status.NO_RESPONSES, "none"))
        elif len(np.unique(rows.cluster[rows.prompt[probes]])) < MIN_LABELLED_CLUSTERS:
            results.append(PolicyResult(Status.NO_PROBES, "none"))
        elif fitted.calibrator is None:
            results.append(PolicyResult(fitted.status, "none"))
        else:
            f = fitted.calibrator
            weight, probe_weight = rows.weight[index], rows.weight[probes]
            plug_in, sampling = mean_part(rows, index, predict(f, rows.z[index]), weight)
            residual = rows.label[probes] - predict(f, rows.z[probes])
            shift, correction = mean_part(rows, probes, residual, probe_weight)
            both = np.concatenate([index, probes])
            share = np.concatenate([weight / weight.sum(), -probe_weight / probe_weight.sum()])
            parts = [sampling, correction, calibration_part(rows, fitted, rows.z[both], share)]
            status = Status.OK if fitted.status is Status.CONSTANT_LABELS else fitted.status
            results.append(
                PolicyResult(status, "probe_corrected", plug_in + shift, *combine(parts, rows.cluster))
            )
    options = {"direction": direction}
    return assemble(data, rows, results, estimator="direct_corrected", options=options, ci_prob=ci_prob)
