"""Draws of each model by NUTS, in the form that values and shifts are made of.

The calibration of the judge alone, which `cje_core.bayes.gibbs` samples as well, and its extensions: covariates, one
calibrator per policy, and the joint posterior of calibration and shifts. All take how NUTS is run, the prior of the
calibrator, and ``rng`` as in `cje_core.bayes.models.nuts.run`; their draws carry the numbers of
`cje_core.bayes.models.nuts.diagnose`.
"""

from typing import Any

import numpy as np

from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.models import nuts, policies, slice
from cje_core.bayes.models.likelihoods import noise_sd
from cje_core.bayes.models.nuts import DEFAULT as NUTS
from cje_core.bayes.models.nuts import NutsOptions
from cje_core.bayes.prior import DEFAULT, Prior
from cje_core.bayes.shifts import Shifts, probed
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import Rng
from cje_core.data.arrays import Rows


def trace(
    rows: Rows, graded: Graded, options: NutsOptions = NUTS, *, prior: Prior = DEFAULT, rng: Rng = None
) -> Any:
    """Sample the calibration, with covariates where `graded` has columns; return the trace with every chain."""
    if graded.columns is None:
        return nuts.run(slice.calibration(graded.levels, prior), options, rng=rng)
    seen, columns = slice.labelled(rows, graded), graded.columns[rows.teaches]
    return nuts.run(slice.two_stage(graded.levels, seen, columns, prior), options, rng=rng)


def calibration(
    levels: Levels, options: NutsOptions = NUTS, *, prior: Prior = DEFAULT, rng: Rng = None
) -> Draws:
    """Draws of the calibrator."""
    found = nuts.run(slice.calibration(levels, prior), options, rng=rng)
    return nuts.to_draws(found, levels, options.n_draws)


def bounded(
    rows: Rows, graded: Graded, options: NutsOptions = NUTS, *, prior: Prior = DEFAULT, rng: Rng = None
) -> Draws:
    """Draw the calibrator with the bounded likelihood ``beta`` of graded labels (`cje_core.bayes.models.likelihoods`).

    ``sigma`` of the draws is the root mean square, over the labels, of the standard deviation that the law gives them.
    """
    seen = slice.labelled(rows, graded)
    run = nuts.run(slice.observations(graded.levels, seen, prior, likelihood="beta"), options, rng=rng)
    draws, found = nuts.to_draws(run, graded.levels, options.n_draws), nuts.posterior(run)
    share, spread = (nuts.pooled(found, name)[: options.n_draws] for name in ("at_ends", "dispersion"))
    sigma = noise_sd(draws.f[:, seen.at], share, spread)
    return draws._replace(sigma=sigma, flat=np.nan)  # whether f is constant is not asked


def two_stage(
    rows: Rows, graded: Graded, options: NutsOptions = NUTS, *, prior: Prior = DEFAULT, rng: Rng = None
) -> Draws:
    """Draws of the calibration on Z = (S, X), as `cje_core.bayes.covariates.sample` makes them by Gibbs."""
    if graded.columns is None:
        raise ValueError("graded has no columns of the covariate effect; give it those of `effects`")
    return draws_of(trace(rows, graded, options, prior=prior, rng=rng), graded, options)


def draws_of(found: Any, graded: Graded, options: NutsOptions = NUTS) -> Draws:
    """Return the draws that `trace` sampled, with the covariate effects where it has them."""
    draws = nuts.to_draws(found, graded.levels, options.n_draws)
    if graded.columns is None:
        return draws
    return draws._replace(beta=nuts.pooled(nuts.posterior(found), "beta")[: options.n_draws])


def hierarchical(
    rows: Rows, graded: Graded, options: NutsOptions = NUTS, *, prior: Prior = DEFAULT, rng: Rng = None
) -> Draws:
    """Draws of one calibrator per policy, ``own``, partially pooled; f is that of the population of policies."""
    labels = policies.by_policy(rows, graded, rows.teaches)._replace(binary=graded.levels.binary)
    run = nuts.run(policies.hierarchical(labels, prior), options, rng=rng)
    found = nuts.posterior(run)
    ends, shape = (nuts.pooled(found, name)[: options.n_draws] for name in ("own_ends", "own_shape"))
    own = np.stack(
        [curve(graded.levels.level, ends[:, p], shape[:, p]) for p in range(len(labels.n))], axis=1
    )
    return nuts.to_draws(run, graded.levels, options.n_draws)._replace(own=own)


def joint(
    rows: Rows,
    graded: Graded,
    options: NutsOptions = NUTS,
    *,
    prior: Prior = DEFAULT,
    scale: float = 0.05,
    rng: Rng = None,
) -> tuple[Draws, Shifts]:
    """Draws of calibrator and shifts from one posterior, in which probes bend the calibrator: a `UserWarning` says so.

    Shifts are Student-t(3), NaN for a policy with fewer than 4 probed clusters; `scale` is that of the half-Cauchy on
    their spread, on the [0, 1] oracle scale.
    """
    n_probes, n_clusters = probed(rows)
    checked = np.flatnonzero(n_clusters >= MIN_LABELLED_CLUSTERS)  # others would only draw from the prior
    every = policies.by_policy(rows, graded, rows.probe)
    probes = every._replace(n=every.n[checked], total=every.total[checked], squares=every.squares[checked])
    model = policies.joint_transport(graded.levels, probes, prior, scale=scale, stacklevel=4)
    run = nuts.run(model, options, rng=rng)
    draws = nuts.to_draws(run, graded.levels, options.n_draws)
    found = nuts.posterior(run)
    delta = np.full((len(rows.policies), len(draws.f)), np.nan)
    delta[checked] = nuts.pooled(found, "delta")[: options.n_draws].T
    return draws, Shifts(delta, nuts.pooled(found, "tau")[: options.n_draws], n_probes)
