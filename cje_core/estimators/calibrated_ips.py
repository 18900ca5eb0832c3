"""Calibrated IPS: importance sampling with stabilised weights and calibrated rewards (the paper's algorithm Cal-IPS).

Estimand: V(policy) = E[Y]. Formula: ``V = mean_i W_i R_i`` with W the stabilised weights (`cje_core.weights.stabilise`,
Delta = R) of mean one and R = f(Z). Influence in Hajek form, ``W_i (R_i - V)``, plus the calibration term. The paper
prints ``W R^OOF - V``, which leaves out that the weights are normalised.

Failure modes: stabilisation is shrinkage towards the logger's value. Where ``Cov(W, (R - E[R])^2) >= 0`` under the
logger, whichever policy is better (`cje_core.weights`: with a long lower tail of rewards it is the worse target), the
stack takes the constant weight, effective sample size rises to n and the estimate tends to the *logger's* value;
neither the standard error nor the effective sample size shows that. The raw weights' effective sample size, which
decides the status, does.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from cje_core.estimators import _ope, _ope_run

NEEDS = _ope.NEEDS


def policy_value(logs: _ope.Logs, p: int, *, weighting: _ope.Stabilisation = _ope.DEFAULT) -> _ope.Value:
    """Calibrated IPS of policy p."""
    weight, facts = _ope.stabilised_weights(logs, p, logs.reward, weighting)
    return _ope.ips_value(logs, p, weight, route="calibrated_ips", facts=facts)


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: np.random.Generator | int | None = None,
    candidates: Sequence[str] = _ope.DEFAULT.candidates,
    projection: str = _ope.DEFAULT.projection,
    guard: str = _ope.DEFAULT.guard,
    rho: float = _ope.DEFAULT.rho,
    inference: str = "influence",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
    direction: str = "increasing",
    interval: str = "auto",
) -> xr.Dataset:
    """Estimate each policy's value by calibrated IPS; see the module.

    Parameters
    ----------
    data, ci_prob, rng, inference, covariates, calibrator, direction, interval
        As in `cje_core.estimators.snips.estimate`.
    candidates, projection, guard, rho
        As in `cje_core.weights.stabilise`.

    Returns
    -------
    xr.Dataset
        As `cje_core.estimators.snips.estimate`, with ``beta(policy, candidate)``, ``alpha`` and ``guard_engaged`` (1
        or 0).
    """
    del rng
    weighting = _ope.Stabilisation(tuple(candidates), projection, guard, rho)
    return _ope_run.run(
        data,
        partial(policy_value, weighting=weighting),
        _ope_run.Shared(ci_prob, inference, covariates, calibrator, direction, interval),
        estimator="calibrated_ips",
        options=weighting._asdict(),
        fresh=False,
        axes={"beta": ("candidate", candidates)},
    )
