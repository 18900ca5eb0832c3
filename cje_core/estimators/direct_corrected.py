"""Direct plus the mean residual of probe labels: the level of a policy that the calibration does not transport to.

Estimand: V(policy) = E[Y]. Formula: mean f(Z) over the policy's responses + mean over its probes of Y - f(Z), the
transport correction of the paper's section on calibration transportability. Its influence function joins three
sources: the responses drawn, the probes, and the labels that taught f, whose leverage is the *difference* of the knot
masses of responses and probes (a calibration error common to both cancels).

Failure modes: it corrects the mean only, not the calibration within subgroups; the probes must be a random sample of
the policy's responses; with a handful of probes it is as wide as they are few.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from cje_core.calibration import calibration_part, fit_slice, mean_part, predict
from cje_core.estimators._assemble import PolicyResult, assemble
from cje_core.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.result import Status
from cje_core.rows import unpack
from cje_core.uncertainty import combine, influence_se

NEEDS = {"judge", "oracle", "probe"}


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: np.random.Generator | int | None = None,
    covariates: Sequence[str] = (),
    calibrator: str = "default",
    direction: str = "increasing",
    interval: str = "auto",
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
    covariates : sequence of str
        Features that the calibrator sees beside the judge score.
    calibrator, direction : str
        See `cje_core.calibration.fit_slice`.
    interval : {"auto", "wald", "logit", "clopper_pearson"}
        ``auto``: binomial tails on effective counts where own labels are binary or an end of the oracle range is near,
        else the t interval (``wald``); see `cje_core.estimators._intervals`.

    Returns
    -------
    xr.Dataset
        Estimate contract; policies with fewer than 4 probed prompts have status NO_PROBES. With
        ``std_error_evaluation`` (responses drawn), ``std_error_calibration`` (probes and labels) and
        ``calibration_share``.
    """
    del rng
    rows = unpack(data, covariates)
    fitted = fit_slice(rows, direction=direction, calibrator=calibrator)
    results = []
    for p in range(len(rows.policies)):
        index = np.flatnonzero((rows.policy == p) & rows.evaluated)
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        if len(index) == 0:
            results.append(PolicyResult(Status.NO_RESPONSES, "none"))
        elif count_clusters(rows, probes) < MIN_LABELLED_CLUSTERS:
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
            influence, std_error, df = combine(parts, rows.cluster)
            # labels that teach may be constant, the probes may not: nothing would say how far off their mean is
            taught = Status.OK if fitted.status is Status.CONSTANT_LABELS else fitted.status
            status = Status.CONSTANT_LABELS if np.ptp(rows.label[probes]) == 0 else taught
            results.append(
                PolicyResult(
                    status,
                    "probe_corrected",
                    plug_in + shift,
                    influence,
                    std_error,
                    df,
                    se_evaluation=influence_se(sampling.influence, rows.cluster),
                    se_calibration=influence_se(influence - sampling.influence, rows.cluster),
                )
            )
    options = {
        "covariates": list(covariates),
        "calibrator": fitted.mode,
        "direction": direction,
        "interval": interval,
    }
    return assemble(
        data,
        rows,
        results,
        estimator="direct_corrected",
        options=options,
        ci_prob=ci_prob,
        interval_scale=interval,
        behind=rows.probe,
        decomposed=True,
    )
