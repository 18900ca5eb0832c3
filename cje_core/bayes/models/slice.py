"""The PyMC models of one slice: the reference for the fast samplers, and the place to criticise the calibration.

Notation: Y oracle label and S judge score, both mapped to [0, 1]; X covariates; f calibrator; k judge level; a and b
the ends of f, u its shape on the simplex (`cje_core.bayes.prior`); I_j I-splines (`cje_core.bayes.splines`). Each model
is a `cje_core.bayes.models.specification.Specification`. Models of several policies are in
`cje_core.bayes.models.policies`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.bayes.covariates import EFFECT_SCALE
from cje_core.bayes.flat import EDGE
from cje_core.bayes.gibbs import sums
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.models.specification import Specification
from cje_core.bayes.prior import DEFAULT, Prior, check, shapes
from cje_core.bayes.splines import isplines
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows


class Labelled(NamedTuple):
    """The labelled responses one by one: what `Levels` sums up."""

    at: IntArray  # (m,) judge level of each
    label: FloatArray  # (m,) on [0, 1]
    share: float = 1.0  # what one label counts: 1 / design effect


def labelled(rows: Rows, graded: Graded) -> Labelled:
    """The teaching labels of `rows`."""
    taught = rows.teaches
    return Labelled(graded.at[taught], graded.label[taught], graded.share)


def prior_data(prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `calibrator` takes as data, by name."""
    check(prior)
    table, log_mass = shapes(prior.n_splines, prior.concentration)
    return {"table": table, "log_mass": log_mass, "flat": np.asarray(prior.flat)}


def normal_data(levels: Levels, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `teaching_log_likelihood` and the scale of its noise take as data, by name."""
    seen = sums(levels, prior.n_splines)._asdict() | {"scale": prior.scale}
    return {name: np.asarray(value) for name, value in seen.items()}


class Calibrator(NamedTuple):
    """Variables of f in a model: ``f = a + (b - a) basis @ u``."""

    a: Any
    b: Any
    u: Any

    def at(self, basis: Any) -> Any:
        """F where the I-splines are the rows of `basis`."""
        return self.a + (self.b - self.a) * pt.dot(basis, self.u)


def calibrator(held: Mapping[str, Any], size: int) -> Calibrator:
    """Ends and shape of f with the prior of `cje_core.bayes.prior`, in the model at hand.

    The prior enters as potentials on uniform ends and on a uniform shape. The latter is made of exponentials over their
    sum: each weight has a logarithm of its own, and the sum is told by nothing and harms nothing. A weight that the
    prior wants near 0 has a logarithm that is exponential on a scale of 20; NUTS moves its root ``z``, below 0 with
    ``log x = z - z^2 / 2``, whose tail is a normal one (else the effective draws are half as many, and some diverge).

    `held` has the data of `prior_data`; `size` is J.
    """
    ends = pm.Uniform("ends", 0.0, 1.0, shape=2)
    rise = pt.maximum(ends[1] - ends[0], 0.0)
    flat = held["flat"]
    pm.Potential("ends_prior", pt.log(flat + (1.0 - flat) * size * (size + 1.0) * rise ** (size - 1)))
    z = pm.Flat("z", shape=size)
    below = pt.minimum(z, 0.0)
    log_x = z - 0.5 * below**2
    u = pm.Deterministic("shape", pt.exp(log_x - pt.logsumexp(log_x)))
    # x ~ Gamma(1, 1) in the coordinate z
    pm.Potential("increments", (log_x - pt.exp(log_x) + pt.log1p(-below)).sum())
    log_u = log_x - pt.logsumexp(log_x)
    pm.Potential("shape_prior", pt.logsumexp(held["log_mass"] + pt.dot(held["table"] - 1.0, log_u)))
    return Calibrator(ends[0], ends[1], u)


def calibration(levels: Levels, prior: Prior = DEFAULT) -> Specification:
    """Monotone calibration on sufficient statistics per judge level.

    ::

        a, b ~ p(a, b),  u ~ mixture of Dirichlet     f_k = a + (b - a) sum_j u_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)                   sigma ~ HalfNormal(scale)              continuous labels
        Y_i ~ Bernoulli(f_k(i))                                                              binary labels

    With counts n, sums s and the I-splines X of the levels, the sum of squared residuals is a quadratic form of (a, b -
    a, u) in X'diag(n)X, X'n and X's: no shape depends on the data, so one compiled model serves every sample, every
    grid of levels and every prior.

    Variables are ``ends``, ``shape`` (see `calibrator`) and, for continuous labels, ``sigma``. f is
    `cje_core.bayes.gibbs.curve` of them: as a variable of the model it would fix the number of levels at compile time.
    """
    static = (levels.binary, prior.n_splines)
    if levels.binary:
        basis = isplines(levels.level, prior.n_splines)
        data = prior_data(prior) | {"basis": basis, "n": levels.n, "total": levels.total}
        return Specification(_calibration, static, data)
    # sigma starts where its prior says: one compiled model serves all, from the scale of the default
    start = {"scale": DEFAULT.scale}
    return Specification(_calibration, static, prior_data(prior) | normal_data(levels, prior), start)


def _calibration(held: Mapping[str, Any], binary: bool, n_splines: int) -> None:
    f = calibrator(held, n_splines)
    if binary:
        seen = bernoulli_log_likelihood(f.at(held["basis"]), held["n"], held["total"])
    else:
        seen = teaching_log_likelihood(f, pm.HalfNormal("sigma", held["scale"]), held)
    pm.Potential("likelihood", seen)


def bernoulli_log_likelihood(f: Any, n: Any, total: Any) -> Any:
    """Log likelihood of n binary labels with means f, of which `total` are 1."""
    inside = pt.clip(f, EDGE, 1.0 - EDGE)
    return (total * pt.log(inside) + (n - total) * pt.log1p(-inside)).sum()


def teaching_log_likelihood(f: Calibrator, sigma: Any, held: Mapping[str, Any]) -> Any:
    """Log likelihood of normal teaching labels from the data of `normal_data`; no constant."""
    a, rise, u = f.a, f.b - f.a, f.u
    by_f = a * held["total"] + rise * pt.dot(held["cross"], u)
    own = held["m"] * a**2 + 2.0 * a * rise * pt.dot(held["mass"], u)
    own = own + rise**2 * pt.dot(u, pt.dot(held["gram"], u))
    return -held["m"] * pt.log(sigma) - (held["squares"] - 2.0 * by_f + own) / (2.0 * sigma**2)


def observations(levels: Levels, seen: Labelled, prior: Prior = DEFAULT) -> Specification:
    """The posterior of `calibration`, label by label: for leave-one-out scores and posterior predictive draws.

    Where labels come in clusters each counts ``seen.share``, as in `calibration`: the likelihood is raised to that
    power. Replicated labels and leave-one-out scores are those of single labels all the same. The prior is not among
    the data: PyMC would take parameters below mutable data for stale, and draw them from the prior when it is asked for
    posterior predictive draws of a trace that another sampler made. Counts and sums of `levels` are not used. The
    observed variable is ``y``, so ``pm.compute_log_likelihood`` and ``pm.sample_posterior_predictive`` apply.

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> model = observations(levels, Labelled(at, label))
    >>> type(model).__name__
    'Specification'
    """
    data = _observation_data(levels, seen, prior)
    return Specification(_observations, (levels.binary, prior), data)


def _observations(held: Mapping[str, Any], binary: bool, prior: Prior) -> None:
    f = calibrator(prior_data(prior), prior.n_splines)
    _labels(f.at(held["basis"])[held["at"]], held, binary, prior)


def _observation_data(levels: Levels, seen: Labelled, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    data = {
        "basis": isplines(levels.level, prior.n_splines),
        "at": seen.at.astype(np.int64),
        "label": seen.label.astype(np.int64) if levels.binary else seen.label,
    }
    return data if seen.share == 1.0 else data | {"share": np.asarray(seen.share)}


def _labels(mean: Any, held: Mapping[str, Any], binary: bool, prior: Prior) -> None:
    """Observed labels ``y``, their likelihood raised to the power ``share`` where the data have one."""
    label = held["label"]
    if binary:
        law = pm.Bernoulli.dist(p=pt.clip(mean, EDGE, 1.0 - EDGE))
        pm.Bernoulli("y", p=pt.clip(mean, EDGE, 1.0 - EDGE), observed=label)
    else:
        sigma = pm.HalfNormal("sigma", prior.scale)
        law = pm.Normal.dist(mean, sigma)
        pm.Normal("y", mean, sigma, observed=label)
    if "share" in held:
        pm.Potential("clusters", (held["share"] - 1.0) * pm.logp(law, label).sum())


def two_stage(
    levels: Levels,
    seen: Labelled,
    columns: FloatArray,
    prior: Prior = DEFAULT,
    *,
    effect_scale: float = EFFECT_SCALE,
) -> Specification:
    """Calibration on Z = (S, X): the model of `cje_core.bayes.covariates`, covariates multiply the odds.

    The effect is on the odds and not on Y itself, so that E[Y | S, X] stays in [0, 1] for every X; where f is 0 or 1
    no covariate moves it. `columns` (m, C) are those of the teaching labels (`cje_core.bayes.covariates.effects`);
    variables are ``ends``, ``shape``, ``beta`` and, for continuous labels, ``sigma``.
    """
    data = _observation_data(levels, seen, prior) | {"columns": columns}
    return Specification(_two_stage, (levels.binary, prior, columns.shape[1], effect_scale), data)


def _two_stage(
    held: Mapping[str, Any], binary: bool, prior: Prior, n_columns: int, effect_scale: float
) -> None:
    curve = calibrator(prior_data(prior), prior.n_splines)
    beta = pm.Normal("beta", 0.0, effect_scale, shape=n_columns)
    f = curve.at(held["basis"])[held["at"]]
    odds = pt.exp(pt.dot(held["columns"], beta))
    _labels(f * odds / (1.0 - f + f * odds), held, binary, prior)
