"""Bayesian probe correction: the posterior plug-in, corrected by the residuals of the policy's probes.

Estimand: V(policy) = E[Y]. For draw d of the calibrator f (`cje_core.bayes.gibbs`) the probes correct the plug-in
``sum_i w_i f(S_i)``: the Bayesian counterpart of ``direct_corrected``, after the paper's proposition on mean transport.
By default each policy is corrected by itself, one-step on log odds with the weights of the Bayesian bootstrap, so that
no draw leaves the oracle's scale. Other priors of `Model` draw the mean residual delta under a hierarchy over the
probed policies (`cje_core.bayes.shifts`), so that policies that transport share strength. The probes never inform f,
unless the joint posterior is asked for.

Failure modes: the probes must be a random sample of the policy's responses. A pooled prior pulls a true shift towards
those of the others, also a large one that few probes show, and takes residuals as normal: with five probed policies,
one of them shifted by -.25, and 20 binary probes each, the interval of that policy covers .72 under ``student`` and .97
under the default (`docs/decisions.md`); with three policies the scale tau is hardly identified.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("transport_shift", n=300, n_probes=40, rng=1)
>>> found = estimate(data, n_draws=200, rng=1)
>>> dict(found["draws"].sizes), found.attrs["ci_kind"]
({'policy': 5, 'replicate': 200}, 'eti')
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core.bayes.prior import Prior
from cje_core.bayes.shifts import probe_corrected, shifted
from cje_core.bayes.value import values
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.checks import Rng
from cje_core.estimators import Role
from cje_core.families import posterior
from cje_core.families.posterior import CalibratorPosterior
from cje_core.inference.estimate import Status
from cje_core.transport.margin import harmless_margin

NEEDS = {"judge", "oracle", "probe"}
ROLE = Role("probe-corrected posterior", place=9)


class Model(NamedTuple):
    """What the posterior assumes of shifts and calibrator.

    With `feedback` both have one joint posterior (`cje_core.bayes.models.policies.joint_transport`) in place of the cut
    one, with Student-t shifts. Probes then bend f and hide part of their policy's shift; a `UserWarning` says so.
    """

    prior: str = "flat"  # of the shifts over policies; or, pooled, "student", "normal", "horseshoe"
    tau_scale: float = 0.05  # of the half-Cauchy on the spread of pooled ones, oracle mapped to [0, 1]
    feedback: bool = False
    curve: Prior = Prior()  # of the calibrator; with feedback there is no atom
    effect: str = "linear"  # of the covariates on the log odds; or "spline"


DEFAULT = Model()


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    model: Model = DEFAULT,
    margin: float | None = None,
    engine: str | None = None,
    n_draws: int = 2000,
    interval: str = "eti",
    calibration: Calibration | None = None,
    calibrator: CalibratorPosterior | None = None,
) -> xr.Dataset:
    """Estimate each probed policy's value by its corrected posterior; see the module and its package.

    Parameters
    ----------
    margin : float, optional
        Harmless shift, in oracle units (default: 5% of the width of ``oracle_range``).
    engine, n_draws, calibration, calibrator
        As in `cje_core.estimators.bayes_direct.estimate`; ``nutpie`` is the default with feedback as well, where
        `calibrator` is not used.

    Returns
    -------
    And ``shift``, ``shift_interval(policy, ci_bound)`` and ``shift_draws(policy, replicate)`` on the oracle scale, and
    ``within_margin``, the probability that the shift is smaller than the margin. Policies with fewer than 4 probed
    prompts have status NO_PROBES.
    """
    rng = np.random.default_rng(rng)
    given = calibrated(data, calibration)
    data = given.data
    posterior.check_options(ci_prob=ci_prob, n_draws=n_draws, interval=interval)
    harmless = harmless_margin(margin, data.attrs["oracle_range"])
    if model.feedback and (given.calibration.covariates or model.prior not in ("flat", "student")):
        raise ValueError(
            "the joint posterior has Student-t shifts and no covariates; leave out feedback or these"
        )
    engine = posterior.choose_engine(engine, extended=model.feedback)
    setting = posterior.prepare(given, effect=model.effect)
    rows, levels = setting.rows, setting.graded.levels
    n_policies = len(rows.policies)
    draws, convergence = None, Status.OK
    delta = np.full((n_policies, n_draws), np.nan)
    if not setting.fitted.status.failed:
        sampling: dict[str, Any] = {"engine": engine, "n_draws": n_draws, "prior": model.curve, "rng": rng}
        if model.feedback:
            f, delta, convergence = posterior.joint(setting, scale=model.tau_scale, **sampling)
            never = np.zeros(n_policies, dtype=bool)
            plug_in = values(rows, setting.graded, f, corrected=never, one_step=False, rng=rng)
            draws, delta = shifted(plug_in, delta, levels)
        else:
            f, convergence, _ = calibrator or posterior.calibrate(setting, **sampling)
            draws, delta = probe_corrected(
                rows, setting.graded, f, prior=model.prior, scale=model.tau_scale, rng=rng
            )
    probed = np.isfinite(delta).all(axis=1)
    status = []
    for p in range(n_policies):
        correcting = rows.probe if probed[p] else None
        said = posterior.policy_status(setting, p, correcting=correcting, convergence=convergence)
        status.append(said if said.failed or probed[p] else Status.NO_PROBES)
    shift = levels.width * delta
    bounds = np.quantile(shift, (0.5 - ci_prob / 2, 0.5 + ci_prob / 2), axis=1).T
    within = np.where(probed, (np.abs(shift) < harmless).mean(axis=1), np.nan)
    return posterior.to_estimate(
        data,
        setting,
        draws,
        status,
        ["probe_corrected"] * n_policies,
        estimator="bayes_corrected",
        options={
            **model._asdict(),
            "curve": model.curve._asdict(),
            "margin": harmless,
            "engine": engine,
            "n_draws": n_draws,
            "interval": interval,
            "direction": given.calibration.direction,
            "covariates": list(given.calibration.covariates),
        },
        ci_prob=ci_prob,
        extra={
            "shift": ("policy", shift.mean(axis=1)),
            "shift_interval": (("policy", "ci_bound"), bounds),
            "shift_draws": (("policy", "replicate"), shift),
            "within_margin": ("policy", within),
        },
    )
