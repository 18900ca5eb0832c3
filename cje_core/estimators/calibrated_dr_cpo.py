"""Calibrated DR: doubly robust value with stabilised weights (the paper's algorithm Calibrated-DR).

Estimand: V(policy) = E[Y]. Formula: ``V = mean_x g(x) + mean_i W_i (R_i - q_i)`` with W the stabilised weights
(`cje_core.weights.stabilise`, Delta = R - q); q, g, R and the error terms as in `cje_core.estimators.dr_cpo`.

Failure modes: those of dr_cpo; stabilised weights are not the importance weights, so where q is wrong the correction
is incomplete and the estimate is no longer doubly robust.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from cje_core.estimators import _ope, _ope_run

NEEDS = _ope.NEEDS


def policy_value(logs: _ope.Logs, p: int, *, weighting: _ope.Stabilisation = _ope.DEFAULT) -> _ope.Value:
    """Calibrated DR of policy p."""
    residual = logs.reward - logs.outcome.logged
    weight, facts = _ope.stabilised_weights(logs, p, residual, weighting)
    return _ope.dr_value(logs, p, weight, route="calibrated_dr_cpo", facts=facts)


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
    """Estimate each policy's value by calibrated DR; see the module.

    Parameters
    ----------
    data, ci_prob, rng, inference, covariates, calibrator, direction, interval
        As in `cje_core.estimators.snips.estimate`.
    candidates, projection, guard, rho
        As in `cje_core.weights.stabilise`.

    Returns
    -------
    xr.Dataset
        As `cje_core.estimators.dr_cpo.estimate`, with ``beta(policy, candidate)``, ``alpha`` and ``guard_engaged`` (1
        or 0).
    """
    del rng
    weighting = _ope.Stabilisation(tuple(candidates), projection, guard, rho)
    return _ope_run.run(
        data,
        partial(policy_value, weighting=weighting),
        _ope_run.Shared(ci_prob, inference, covariates, calibrator, direction, interval),
        estimator="calibrated_dr_cpo",
        options=weighting._asdict(),
        fresh=True,
        axes={"beta": ("candidate", candidates)},
    )
