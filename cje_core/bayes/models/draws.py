"""Draws of the larger models by NUTS, in the form that values and shifts are made of.

`cje_core.bayes.models.nuts` runs the calibration of the judge alone; here are its extensions: covariates
(`cje_core.bayes.models.slice.two_stage`), one calibrator per policy (`cje_core.bayes.models.policies.hierarchical`),
and the joint posterior of calibration and shifts (`cje_core.bayes.models.policies.joint_transport`). For nutpie each
is compiled once per process, for its likelihood and the sizes of its parameters, and given new data after that.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cje_core.bayes.covariates import EFFECT_SCALE
from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.levels import Graded
from cje_core.bayes.models import nuts, policies, slice
from cje_core.bayes.models.engines import pm
from cje_core.bayes.prior import Prior
from cje_core.bayes.shifts import Shifts, probed
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.data.arrays import Rows

_compiled: dict[tuple[Any, ...], Any] = {}  # a few megabytes each


def two_stage(
    rows: Rows,
    graded: Graded,
    *,
    engine: str = "nutpie",
    n_draws: int = 1000,
    prior: Prior | None = None,
    effect_scale: float = EFFECT_SCALE,
    seed: int = 0,
) -> Draws:
    """Draws of the calibration on Z = (S, X).

    Parameters
    ----------
    rows : Rows
        Unpacked with covariates.
    graded : Graded
        With the ``columns`` of the effect (`cje_core.bayes.covariates.effects`) for every row.
    engine, n_draws, prior, seed
        As in `cje_core.bayes.models.nuts.sample`.
    effect_scale : float
        Prior standard deviation of a coefficient, in log odds.

    Returns
    -------
    Draws
        With ``beta``; f is the calibrator where the effect is 0.
    """
    prior = prior or Prior()
    if graded.columns is None:
        raise ValueError("graded has no columns of the covariate effect; give it those of `effects`")
    seen, columns = slice.labelled(rows, graded), graded.columns[rows.teaches]

    def build() -> pm.Model:
        return slice.two_stage(graded.levels, seen, columns, prior, effect_scale=effect_scale)

    key = ("two_stage", graded.levels.binary, prior, columns.shape[1], effect_scale, seen.share == 1.0)
    data = slice.two_stage_data(graded.levels, seen, columns, prior)
    trace = _trace(key, build, data, engine, n_draws, seed)
    draws = nuts.to_draws(trace, graded.levels, n_draws)
    return draws._replace(beta=nuts.pooled(nuts.posterior(trace), "beta")[:n_draws])


def hierarchical(
    rows: Rows,
    graded: Graded,
    *,
    engine: str = "nutpie",
    n_draws: int = 1000,
    prior: Prior | None = None,
    deviation: float = 0.5,
    seed: int = 0,
) -> Draws:
    """Draws of one calibrator per policy, partially pooled.

    Parameters
    ----------
    rows, graded : Rows, Graded
    engine, n_draws, prior, seed
        As in `cje_core.bayes.models.nuts.sample`.
    deviation : float
        Prior scale of the spread of the policies' log odds and log weights.

    Returns
    -------
    Draws
        With ``own``; f is the calibrator of the population of policies.
    """
    prior = prior or Prior()
    labels = policies.by_policy(rows, graded, rows.teaches)._replace(binary=graded.levels.binary)

    def build() -> pm.Model:
        return policies.hierarchical(labels, prior, deviation=deviation)

    key = ("hierarchical", labels.binary, prior.n_splines, len(labels.n))
    data = policies.hierarchical_data(labels, prior, deviation)
    trace = _trace(key, build, data, engine, n_draws, seed)
    found = nuts.posterior(trace)
    ends, shape = (nuts.pooled(found, name)[:n_draws] for name in ("own_ends", "own_shape"))
    own = np.stack(
        [curve(graded.levels.level, ends[:, p], shape[:, p]) for p in range(len(labels.n))], axis=1
    )
    return nuts.to_draws(trace, graded.levels, n_draws)._replace(own=own)


def joint(
    rows: Rows,
    graded: Graded,
    *,
    engine: str = "nutpie",
    n_draws: int = 1000,
    prior: Prior | None = None,
    scale: float = 0.05,
    seed: int = 0,
) -> tuple[Draws, Shifts]:
    """Draws of calibrator and shifts from one posterior, in which probes bend the calibrator.

    Parameters
    ----------
    rows, graded : Rows, Graded
    engine, n_draws, prior, seed
        As in `cje_core.bayes.models.nuts.sample`.
    scale : float
        Of the half-Cauchy on the spread of the shifts, on the [0, 1] oracle scale.

    Returns
    -------
    Draws
    Shifts
        Student-t(3) shifts; NaN for a policy with fewer than 4 probed clusters.

    Warns
    -----
    UserWarning
        Always: of the feedback.
    """
    prior = prior or Prior()
    policies.warn_of_feedback(stacklevel=3)
    n_probes, n_clusters = probed(rows)
    checked = np.flatnonzero(n_clusters >= MIN_LABELLED_CLUSTERS)  # others would only draw from the prior
    every = policies.by_policy(rows, graded, rows.probe)
    probes = every._replace(n=every.n[checked], total=every.total[checked], squares=every.squares[checked])

    def build() -> pm.Model:
        return policies.joint_transport(graded.levels, probes, prior, scale=scale, warn=False)

    data = policies.joint_transport_data(graded.levels, probes, prior)
    key = ("joint", prior.n_splines, len(checked), scale)
    trace = _trace(key, build, data, engine, n_draws, seed)
    draws = nuts.to_draws(trace, graded.levels, n_draws)
    found = nuts.posterior(trace)
    delta = np.full((len(rows.policies), len(draws.f)), np.nan)
    delta[checked] = nuts.pooled(found, "delta")[:n_draws].T
    return draws, Shifts(delta, nuts.pooled(found, "tau")[:n_draws], n_probes)


def _trace(
    key: tuple[Any, ...],
    build: Callable[[], pm.Model],
    data: Mapping[str, Any],
    engine: str,
    n_draws: int,
    seed: int,
) -> Any:
    """Trace of a model; nutpie's compiled one is kept under `key`, its name and what `data` cannot change."""
    if engine != "nutpie":
        return nuts.fit(build(), engine=engine, n_draws=n_draws, seed=seed)
    if key not in _compiled:
        _compiled[key] = nuts.compile_model(build())
    return nuts.sample_compiled(_compiled[key], data, n_draws=n_draws, seed=seed)
