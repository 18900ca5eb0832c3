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
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.models.specification import Specification
from cje_core.bayes.prior import DEFAULT, Prior, check, shapes
from cje_core.bayes.splines import isplines
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows

LABELS = ("basis", "label")  # data with one row for each label


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
    """What `teaching_log_likelihood` and the scale of its noise take as data, by name.

    The labels of all levels are J + 2 rows of a least-squares problem, by the QR decomposition of the design, and
    what they vary ``within`` levels: no size depends on the data.
    """
    n, x = levels.n, isplines(levels.level, prior.n_splines)
    mean = np.divide(levels.total, n, out=np.zeros(len(n)), where=n > 0)
    rows = np.sqrt(n)[:, None] * np.column_stack([np.ones(len(n)), x, mean])
    some = np.zeros((rows.shape[1], rows.shape[1]))  # there may be fewer levels than columns
    reduced: Any = np.linalg.qr(np.vstack([rows, some]), mode="r")
    return {
        "unit": reduced[:, 0],
        "design": reduced[:, 1:-1],
        "target": reduced[:, -1],
        "within": np.asarray(max(levels.squares - float(n @ mean**2), 0.0)),
        "m": np.asarray(n.sum()),
        "scale": np.asarray(prior.scale),
    }


class Calibrator(NamedTuple):
    """Variables of f in a model: ``f = a + rise basis @ u``."""

    ends: Any
    u: Any

    @property
    def a(self) -> Any:
        """F at 0."""
        return weighed(self.ends, (1.0, 0.0))

    @property
    def rise(self) -> Any:
        """F at 1 less f at 0."""
        return weighed(self.ends, (-1.0, 1.0))

    def at(self, basis: Any) -> Any:
        """F where the I-splines are the rows of `basis`."""
        return self.a + self.rise * weighed(basis, self.u)


def weighed(rows: Any, weight: Any) -> Any:
    """Sum of each row by weights.

    This, and no product of matrices, index or stack: what PyTensor makes of those and of their gradients takes numba
    twice the time.
    """
    return (rows * weight).sum(axis=-1)


def calibrator(held: Mapping[str, Any], size: int) -> Calibrator:
    """Ends and shape of f with the prior of `cje_core.bayes.prior`, in the model at hand.

    The prior enters as potentials on uniform ends and on a uniform shape. The latter is made of exponentials over their
    sum: each weight has a logarithm of its own, and the sum is told by nothing and harms nothing. A weight that the
    prior wants near 0 has a logarithm that is exponential on a scale of 20; NUTS moves its root ``z``, below 0 with
    ``log x = z - z^2 / 2``, whose tail is a normal one (else the effective draws are half as many, and some diverge).

    `held` has the data of `prior_data`; `size` is J.
    """
    ends = pm.Uniform("ends", 0.0, 1.0, shape=2)
    flat, rise = held["flat"], pt.maximum(weighed(ends, (-1.0, 1.0)), 0.0)
    pm.Potential("ends_prior", pt.log(flat + (1.0 - flat) * size * (size + 1.0) * rise ** (size - 1)))
    z = pm.Flat("z", shape=size)
    below = pt.minimum(z, 0.0)
    log_x = z - 0.5 * below**2
    u = pm.Deterministic("shape", pt.special.softmax(log_x))
    # x ~ Gamma(1, 1) in the coordinate z
    pm.Potential("increments", (log_x - pt.exp(log_x) + pt.log1p(-below)).sum())
    log_u = pt.special.log_softmax(log_x)
    # Density over that of uniform increments, up to a constant. Times all weights, as here, the density of a component
    # is bounded, so its logarithm may be taken back without a look at the largest.
    inside = pt.exp(held["log_mass"] + weighed(held["table"], log_u))
    pm.Potential("shape_prior", pt.log(inside.mean()) - log_u.sum())
    return Calibrator(ends, u)


def calibration(levels: Levels, prior: Prior = DEFAULT) -> Specification:
    """Monotone calibration on sufficient statistics per judge level.

    ::

        a, b ~ p(a, b),  u ~ mixture of Dirichlet     f_k = a + (b - a) sum_j u_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)                   sigma ~ HalfNormal(scale)              continuous labels
        Y_i ~ Bernoulli(f_k(i))                                                              binary labels

    For continuous labels the levels are reduced to J + 2 rows (`normal_data`), for binary ones their number is no part
    of what is compiled: one compiled model serves every sample, every grid of levels and every prior.

    Variables are ``ends``, ``shape`` (see `calibrator`) and, for continuous labels, ``sigma``. f is
    `cje_core.bayes.gibbs.curve` of them: as a variable of the model it would fix the number of levels at compile time.
    """
    static = (levels.binary, prior.n_splines)
    if levels.binary:
        basis = isplines(levels.level, prior.n_splines)
        data = prior_data(prior) | {"basis": basis, "n": levels.n, "total": levels.total}
        return Specification(_calibration, static, data, loose=("basis", "n", "total"))
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
    left = held["target"] - f.a * held["unit"] - f.rise * weighed(held["design"], f.u)
    return -held["m"] * pt.log(sigma) - (held["within"] + (left**2).sum()) / (2.0 * sigma**2)


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
    return Specification(_observations, (levels.binary, prior), data, loose=LABELS)


def _observations(held: Mapping[str, Any], binary: bool, prior: Prior) -> None:
    f = calibrator(prior_data(prior), prior.n_splines)
    _labels(f.at(held["basis"]), held, binary, prior)


def _observation_data(levels: Levels, seen: Labelled, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    data = {
        "basis": isplines(levels.level, prior.n_splines)[seen.at],
        "label": seen.label.astype(np.int64) if levels.binary else seen.label,
    }
    return data if seen.share == 1.0 else data | {"share": np.asarray(seen.share)}


def _labels(mean: Any, held: Mapping[str, Any], binary: bool, prior: Prior) -> None:
    """Observed labels ``y``, their likelihood raised to the power ``share`` where the data have one."""
    law, given = _law(mean, binary, prior)
    law("y", **given, observed=held["label"])
    if "share" in held:
        pm.Potential("clusters", (held["share"] - 1.0) * pm.logp(law.dist(**given), held["label"]).sum())


def _law(mean: Any, binary: bool, prior: Prior) -> tuple[Any, dict[str, Any]]:
    """Distribution of labels with some means, and its parameters."""
    if binary:
        return pm.Bernoulli, {"p": pt.clip(mean, EDGE, 1.0 - EDGE)}
    return pm.Normal, {"mu": mean, "sigma": pm.HalfNormal("sigma", prior.scale)}


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
    variables are ``ends``, ``shape``, ``beta`` and, for continuous labels, ``sigma``. What a label counts is among the
    data: labels with clusters and without have one compiled model.
    """
    data = _observation_data(levels, seen._replace(share=1.0), prior)
    data |= {"columns": columns, "share": np.asarray(seen.share)}
    static = (levels.binary, prior, columns.shape[1], effect_scale)
    return Specification(_two_stage, static, data, loose=(*LABELS, "columns"))


def _two_stage(
    held: Mapping[str, Any], binary: bool, prior: Prior, n_columns: int, effect_scale: float
) -> None:
    curve = calibrator(prior_data(prior), prior.n_splines)
    beta = pm.Normal("beta", 0.0, effect_scale, shape=n_columns)
    f = curve.at(held["basis"])
    odds = pt.exp(weighed(held["columns"], beta))
    law, given = _law(f * odds / (1.0 - f + f * odds), binary, prior)
    pm.Potential("likelihood", held["share"] * pm.logp(law.dist(**given), held["label"]).sum())
