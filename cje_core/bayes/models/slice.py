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
import xarray as xr

from cje_core.bayes.covariates import EFFECT_SCALE
from cje_core.bayes.flat import EDGE
from cje_core.bayes.levels import Graded, Levels, grade
from cje_core.bayes.models.calibrator import Calibrator, calibrator, prior_data, weighed
from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.models.likelihoods import labels, likelihood_of
from cje_core.bayes.models.specification import Specification
from cje_core.bayes.prior import DEFAULT, Prior
from cje_core.bayes.splines import isplines
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.data.errors import DataError

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


def observations(
    levels: Levels, seen: Labelled, prior: Prior = DEFAULT, *, likelihood: str | None = None
) -> Specification:
    """Specify the calibration label by label: prior, likelihood and observed labels ``y`` as PyMC knows them.

    All that plain PyMC does with a model works on ``observations(...).build()``: prior and prior predictive draws,
    posterior predictive draws, leave-one-out scores, graphs. With the default likelihood it has the posterior of
    `calibration`. Where labels come in clusters each counts ``seen.share``, as in `calibration`: the likelihood is
    raised to that power. Replicated labels and leave-one-out scores are those of single labels all the same.

    Parameters
    ----------
    levels : Levels
        Judge levels; their counts and sums are not used.
    seen : Labelled
        Labels one by one.
    likelihood : {"bernoulli", "normal", "beta"}, optional
        Law of the labels, see `cje_core.bayes.models.likelihoods`.

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> model = observations(levels, Labelled(at, label))
    >>> type(model).__name__
    'Specification'
    """
    law = likelihood_of(levels.binary, likelihood)
    # The prior is not among the data: PyMC would take parameters below mutable data for stale, and draw them from the
    # prior when it is asked for posterior predictive draws of a trace that another sampler made.
    return Specification(_observations, (law, prior), _observation_data(levels, seen, prior), loose=LABELS)


def _observations(held: Mapping[str, Any], likelihood: str, prior: Prior) -> None:
    f = calibrator(prior_data(prior), prior.n_splines)
    law = labels(f.at(held["basis"]), likelihood, prior)
    pm.modelcontext(None).register_rv(law, "y", observed=held["label"])
    if "share" in held:
        pm.Potential("clusters", (held["share"] - 1.0) * pm.logp(law, held["label"]).sum())


def _observation_data(levels: Levels, seen: Labelled, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    data = {
        "basis": isplines(levels.level, prior.n_splines)[seen.at],
        "label": seen.label.astype(np.int64) if levels.binary else seen.label,
    }
    return data if seen.share == 1.0 else data | {"share": np.asarray(seen.share)}


def calibration_model(
    data: xr.Dataset | Calibrated,
    *,
    calibration: Calibration | None = None,
    likelihood: str | None = None,
    prior: Prior = DEFAULT,
) -> pm.Model:
    """Build the PyMC model of the judge's calibration on the labels that fit it: `observations` of evaluation data.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        Evaluation data; labels and scores are mapped to [0, 1].
    calibration : Calibration, optional
        Direction of the judge; covariates are not in this model.
    likelihood : {"bernoulli", "normal", "beta"}, optional
        Default: ``bernoulli`` for binary labels, ``normal`` for graded ones.

    Returns
    -------
    pm.Model
        Variables ``ends`` (f at the lowest and the highest score), ``increments`` and ``shape`` (how f rises between),
        the parameters of the likelihood, and ``y``, the labels. `cje_core.bayes.gibbs.curve` makes f of them.

    Raises
    ------
    DataError
        Where too few labels fit the calibrator.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("binary_oracle", n=200, rng=1)
    >>> model = calibration_model(data)
    >>> [variable.name for variable in model.free_RVs], [variable.name for variable in model.observed_RVs]
    (['ends', 'increments'], ['y'])
    """
    given = calibrated(data, calibration)
    if given.monotone.status.failed:
        raise DataError(f"no calibration to model: {given.monotone.status.message}")
    judge_range, oracle_range = (tuple(given.data.attrs[name]) for name in ("judge_range", "oracle_range"))
    graded = grade(given.rows, given.monotone, judge_range=judge_range, oracle_range=oracle_range)
    return observations(graded.levels, labelled(given.rows, graded), prior, likelihood=likelihood).build()


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
    law = labels(f * odds / (1.0 - f + f * odds), likelihood_of(binary, None), prior)
    pm.Potential("likelihood", held["share"] * pm.logp(law, held["label"]).sum())
