"""Calibrated IPS: importance sampling with stabilised weights and calibrated rewards (the paper's algorithm Cal-IPS).

Estimand: V(policy) = E[Y]. Formula: ``V = mean_i W_i R_i`` with W the stabilised weights
(`cje_core.offpolicy.weights.stabilise`, Delta = R) of mean one and R = f(Z). Influence in Hajek form, ``W_i (R_i -
V)``, plus the calibration term. The paper prints ``W R^OOF - V``, which leaves out that the weights are normalised.

Failure modes: stabilisation is shrinkage towards the logger's value. Where ``Cov(W, (R - E[R])^2) >= 0`` under the
logger, whichever policy is better (`cje_core.offpolicy.weights`: with a long lower tail of rewards it is the worse
target), the stack takes the constant weight, effective sample size rises to n and the estimate tends to the
*logger's* value; neither the standard error nor the effective sample size shows that. The raw weights' effective
sample size, which decides the status, does.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from cje_core.families import off_policy, off_policy_estimate

NEEDS = off_policy.NEEDS


def policy_value(
    logs: off_policy.Logs, p: int, *, weighting: off_policy.Stabilisation = off_policy.DEFAULT
) -> off_policy.Value:
    """Calibrated IPS of policy p."""
    weight, facts = off_policy.stabilised_weights(logs, p, logs.reward, weighting)
    return off_policy.ips_value(logs, p, weight, route="calibrated_ips", facts=facts)


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: np.random.Generator | int | None = None,
    candidates: Sequence[str] = off_policy.DEFAULT.candidates,
    projection: str = off_policy.DEFAULT.projection,
    guard: str = off_policy.DEFAULT.guard,
    rho: float = off_policy.DEFAULT.rho,
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
        As in `cje_core.offpolicy.weights.stabilise`.

    Returns
    -------
    xr.Dataset
        As `cje_core.estimators.snips.estimate`, with ``beta(policy, candidate)``, ``alpha`` and ``guard_engaged`` (1
        or 0).
    """
    del rng
    weighting = off_policy.Stabilisation(tuple(candidates), projection, guard, rho)
    return off_policy_estimate.run(
        data,
        partial(policy_value, weighting=weighting),
        off_policy_estimate.Shared(ci_prob, inference, covariates, calibrator, direction, interval),
        estimator="calibrated_ips",
        options=weighting._asdict(),
        fresh=False,
        axes={"beta": ("candidate", candidates)},
    )
