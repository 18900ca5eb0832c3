"""Projection posterior: the plug-in value under Bayesian-bootstrap weights and isotonic regression.

Estimand: V(policy) = E[Y]. Each draw weights the clusters of prompts by exponential variables, refits isotonic
regression to the labels of the calibration policies and averages it over the policy's responses with the same weights
(`cje_core.bayes.projection`). It has no prior on the shape: the nonparametric comparator of `bayes_direct`.

A policy is refused as in `bayes_direct`: UNINFORMATIVE_JUDGE where the labels do not show that the judge ranks them the
right way, LOW_SUPPORT where too much of the policy's responses lies beyond them. It is spared where its own labels are
all that taught the fit, and there alone: it is never corrected by own labels, since the in-sample residual of weighted
isotonic regression is zero, so that with labels of several policies and an independent judge it is their mean.

Failure modes: it covers too little when labels are few (a weighted fit cannot leave the labels seen) and at the ends of
the judge's scale, where isotonic regression is biased.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data, n_draws=200, rng=1)
>>> dict(found["draws"].sizes), found.attrs["ci_kind"]
({'policy': 4, 'replicate': 200}, 'eti')
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from cje_core.bayes.projection import projected_values
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.informative import taught_alone
from cje_core.checks import Rng
from cje_core.families import posterior
from cje_core.inference.estimate import Status

NEEDS = {"judge", "oracle"}


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    n_draws: int = 1000,
    interval: str = "eti",
    calibration: Calibration | None = None,
) -> xr.Dataset:
    """Estimate each policy's value by its projection posterior; see the module and its package.

    Of `calibration` only the direction is looked at.
    """
    rng = np.random.default_rng(rng)
    given = calibrated(data, calibration)
    if given.calibration.covariates:  # none enter: support is that of the judge scores
        given = calibrated(given.data, replace(given.calibration, covariates=()))
    data = given.data
    posterior.check_options(ci_prob=ci_prob, n_draws=n_draws, interval=interval)
    setting = posterior.prepare(given)
    n_policies = len(setting.rows.policies)
    draws = None
    if not setting.fitted.status.failed:
        draws = projected_values(setting.rows, setting.fitted, setting.graded, n_draws=n_draws, rng=rng)
    status = [
        posterior.policy_status(setting, p, correcting=None, convergence=Status.OK) for p in range(n_policies)
    ]
    return posterior.to_estimate(
        data,
        setting,
        draws,
        posterior.refuse(setting, status, ~taught_alone(setting.rows, setting.fitted)),
        ["projection"] * n_policies,
        estimator="projection_posterior",
        options={"n_draws": n_draws, "direction": given.calibration.direction, "interval": interval},
        ci_prob=ci_prob,
        extra={},
    )
