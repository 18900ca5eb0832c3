"""Bayesian Direct: a monotone calibration posterior, corrected by labels.

Estimand: V(policy) = E[Y]. The calibrator f has the posterior of `cje_core.bayes.gibbs` (I-splines between two ends
with a prior of their own; normal working likelihood, Bernoulli for binary labels), fitted on the labels of the
calibration policies. Every value is a one-step corrected posterior: a policy with 13 labelled prompts of its own is
corrected by these (route ``corrected``), the Bayesian counterpart of the paper's equation for theta_aug; another
borrows, and is corrected by the labels that taught f, weighted to its scores (route ``one_step``, status
TRANSPORT_ASSUMED). `cje_core.bayes.value` has the formulas. Draws of one replicate share f and the weights of the
prompts, so differences are those of joint draws. The point estimate is the posterior mean, the interval equal-tailed or
of highest density.

With probability ``atom`` a priori f is constant (`cje_core.bayes.flat`); ``flat_judge`` is what the labels make of it.

With covariates X the calibrator is monotone in S at given X (`cje_core.bayes.covariates`); with partial pooling every
policy has its own, drawn towards the others' (`cje_core.bayes.models.policies.hierarchical`); graded labels may have
a law that stays inside the scale (`cje_core.bayes.models.likelihoods`): see `Model`.

Failure modes: with fewer than 13 labelled prompts the prior speaks, so there is no interval (FEW_LABELS_POSTERIOR). A
policy may not borrow from a judge whose scores do not rank the labels (UNINFORMATIVE_JUDGE), nor where hardly any label
is (LOW_SUPPORT). No posterior knows of transport: a borrowed value is as wrong as its calibration. Route ``plug_in``
leaves out all corrections: it inherits the prior's pull where labels are few, and believes in monotonicity.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data, n_draws=200, rng=1)
>>> dict(found["draws"].sizes), found.attrs["ci_kind"]
({'policy': 4, 'replicate': 200}, 'eti')
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.bayes.prior import Prior
from cje_core.bayes.value import values
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.checks import Rng, one_of
from cje_core.estimators import Role
from cje_core.families import posterior
from cje_core.families.posterior import CalibratorPosterior
from cje_core.inference.estimate import Status

NEEDS = {"judge", "oracle"}
ROLE = Role("posterior", place=8)
ROUTES = ("one_step", "plug_in")


class Model(NamedTuple):
    """What the posterior assumes of the calibrator."""

    curve: Prior = Prior()
    effect: str = "linear"  # of the covariates on the log odds; or "spline"
    pooling: str = "complete"  # or "partial": one per policy with labels, which share strength
    likelihood: str = "normal"  # of graded labels; "beta" keeps them inside the scale


DEFAULT = Model()


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    route: str = "one_step",
    model: Model = DEFAULT,
    engine: str | None = None,
    n_draws: int = 1000,
    interval: str = "eti",
    calibration: Calibration | None = None,
    calibrator: CalibratorPosterior | None = None,
) -> xr.Dataset:
    """Estimate each policy's value by its posterior; see the module and its package.

    Parameters
    ----------
    route : {"one_step", "plug_in"}
        ``plug_in`` leaves out the correction by labels.
    engine : {"gibbs", "nutpie", "pymc"}, optional
        Sampler of one and the same posterior: numba (milliseconds), nutpie (compiled once per process), PyMC's NUTS.
        Default: ``gibbs``, or ``nutpie`` with partial pooling or the ``beta`` likelihood, which Gibbs does not sample.
    calibration : Calibration, optional
        Covariates and direction of the calibrator, see `cje_core.calibration.calibrated`; its mode is not looked at.
    calibrator : CalibratorPosterior, optional
        Posterior of the calibrator, if drawn with these options already (`cje_core.families.posterior.calibrate`).

    Returns
    -------
    And ``unlabelled_mass(policy)``, the share of responses on judge levels without any label, where f is the prior's;
    draws of the parameters: ``calibrator(replicate, level)`` in oracle units over the judge's scores, its
    ``ends(replicate, end)`` in oracle units and its ``shape(replicate, spline)``, ``sigma(replicate)`` for labels that
    are not binary, ``covariate_effect(replicate, effect)``, with partial pooling ``own_calibrator(policy, replicate,
    level)``, else ``flat_judge``, the posterior probability that f is constant. With NUTS also ``rhat, ess_bulk,
    ess_tail, divergences, bfmi``, the worst over the parameters.
    """
    rng = np.random.default_rng(rng)
    given = calibrated(data, calibration)
    data = given.data
    one_of(route, "route", ROUTES)
    posterior.check_options(ci_prob=ci_prob, n_draws=n_draws, interval=interval)
    setting = posterior.prepare(given, effect=model.effect, pooling=model.pooling)
    likelihood = posterior.choose_likelihood(setting, model.likelihood)
    engine = posterior.choose_engine(engine, extended=model.pooling == "partial" or likelihood == "beta")
    rows = setting.rows
    own = rows.evaluated & rows.labelled
    corrected = posterior.enough(rows, own) & (route == "one_step")
    draws, f, convergence = None, None, Status.OK
    if not setting.fitted.status.failed:
        curve, one_step = model.curve, route == "one_step"
        f, convergence, _ = calibrator or posterior.calibrate(
            setting, engine=engine, n_draws=n_draws, prior=curve, rng=rng, likelihood=likelihood
        )
        draws = values(rows, setting.graded, f, corrected=corrected, one_step=one_step, rng=rng)
    status = [
        posterior.policy_status(setting, p, correcting=own if corrected[p] else None, convergence=convergence)
        for p in range(len(corrected))
    ]
    status = posterior.refuse(setting, status, ~corrected & ~posterior.enough(rows, rows.teaches))
    options = {
        **model._asdict(),
        "curve": model.curve._asdict(),
        "route": route,
        "engine": engine,
        "n_draws": n_draws,
        "interval": interval,
        "direction": given.calibration.direction,
        "covariates": list(given.calibration.covariates),
    }
    return posterior.to_estimate(
        data,
        setting,
        draws,
        status,
        ["corrected" if c else route for c in corrected],
        estimator="bayes_direct",
        options=options,
        ci_prob=ci_prob,
        extra={} if f is None else posterior.trace(data, setting, f),
    )
