"""SNIPS: self-normalised importance sampling of calibrated rewards (the paper's table "Accuracy & Uncertainty", SNIPS).

Estimand: V(policy) = E[Y], from logged responses alone. Formula: ``V = sum_i W_i R_i / sum_i W_i`` over the logged
responses that have both log-likelihoods, W the mean-one importance weights and R = f(Z) the calibrated reward.
Influence (Hajek): ``W_i (R_i - V) / mean W`` plus the calibration term, see `cje_core.families.off_policy`. With
``clip`` the weights are cut at that value and brought back to mean one (the reference implementation of the paper
clips at 100).

Failure modes: poor overlap, where the value rests on a handful of responses (status POOR_OVERLAP below ten effective
ones) and the standard error, which sees only those, is too small as well; errors of teacher forcing in the
log-likelihoods; a calibration learned on the logger that does not hold under the weights.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from cje_core.families import off_policy, off_policy_estimate
from cje_core.offpolicy.weights import clip as clip_weights
from cje_core.offpolicy.weights import ess_fraction

NEEDS = off_policy.NEEDS


def policy_value(logs: off_policy.Logs, p: int, *, clip: float | None = None) -> off_policy.Value:
    """SNIPS of policy p, with clipped weights if `clip` is given."""
    weight = off_policy.raw_weights(logs, p)
    if clip is not None:
        weight = clip_weights(weight, clip)
    return off_policy.ips_value(logs, p, weight, route="snips", facts={"ess_fraction": ess_fraction(weight)})


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: np.random.Generator | int | None = None,
    clip: float | None = None,
    inference: str = "influence",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
    direction: str = "increasing",
    interval: str = "auto",
) -> xr.Dataset:
    """Estimate each policy's value by SNIPS; see the module.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data with logged responses.
    ci_prob : float
        Probability of the interval.
    rng : Generator, int or None
        Unused: there is nothing random here.
    clip : float, optional
        Cap on the mean-one weights.
    inference : {"influence", "jackknife"}
        See `cje_core.families.off_policy`.
    covariates : sequence of str
        Features that join the judge score in the calibrator.
    calibrator : str
        See `cje_core.calibration.oracle_slice.fit_slice`.
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.
    interval : {"auto", "wald", "logit", "clopper_pearson"}
        ``auto``: the t interval (``wald``), or binomial tails at the count that has this standard error where an end of
        the oracle range is near; see `cje_core.families.intervals`.

    Returns
    -------
    xr.Dataset
        Estimate contract, with ``n_logged_used``, ``ess_fraction_raw``, ``ess_fraction`` (after clipping) and
        ``calibration_share`` of each policy.
    """
    del rng
    return off_policy_estimate.run(
        data,
        partial(policy_value, clip=clip),
        off_policy_estimate.Shared(ci_prob, inference, covariates, calibrator, direction, interval),
        estimator="snips",
        options={"clip": clip},
        fresh=False,
    )
