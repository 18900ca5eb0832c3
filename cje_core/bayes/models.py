"""The PyMC models of one slice: the reference for the fast samplers, and the place to criticise the calibration.

Notation: Y oracle label and S judge score, both mapped to [0, 1]; X covariates; f calibrator; k judge level; w weights
on the simplex; I_j I-splines (`cje_core.bayes.splines`). Data enter as ``pm.Data``, so a compiled model can be given
new data. Models of several policies are in `cje_core.bayes.policy_models`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor.tensor as pt

from cje_core.bayes.gibbs import Prior, design
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.splines import isplines
from cje_core.data import Rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

EDGE = 1e-12  # keeps a Bernoulli probability off 0 and 1
EFFECT_SPLINES = 4  # columns per covariate of a spline effect
EFFECTS = ("linear", "spline")


class Labelled(NamedTuple):
    """The labelled responses one by one."""

    at: IntArray  # (m,) judge level of each
    label: FloatArray  # (m,) on [0, 1]


def labelled(rows: Rows, graded: Graded) -> Labelled:
    """The teaching labels of `rows`, one by one: what `Levels` sums up."""
    taught = rows.teaches
    return Labelled(graded.at[taught], graded.label[taught])


def data_of(levels: Levels, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `calibration` takes as data, by name: to give a compiled model another data set, or another prior."""
    data = {
        "design": design(levels.level, prior.n_splines),
        "n": levels.n,
        "total": levels.total,
        "concentration": np.full(prior.n_splines + 2, prior.concentration),
    }
    if levels.binary:
        return data
    return data | {"squares": np.asarray(levels.squares), "scale": np.asarray(prior.scale)}


def calibration(levels: Levels, prior: Prior | None = None) -> pm.Model:
    """Monotone calibration on sufficient statistics per judge level.

    ::

        w ~ Dirichlet(concentration)          f_k = w_0 + sum_j w_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)           sigma ~ HalfNormal(scale)              continuous labels
        Y_i ~ Bernoulli(f_k(i))                                                      binary labels

    With m labels the normal log likelihood is ``-m log sigma - (yy - 2 s'f + f' diag(n) f) / (2 sigma^2)``: no shape of
    a parameter depends on the data, so one compiled model serves every sample, every grid of levels and every prior.

    Parameters
    ----------
    levels : Levels
    prior : Prior, optional

    Returns
    -------
    pm.Model
        With ``w`` and, for continuous labels, ``sigma``; its data are those of `data_of`. f is ``design @ w``: as a
        variable of the model it would fix the number of levels at compile time.
    """
    prior = prior or Prior()
    values = data_of(levels, prior)
    with pm.Model() as model:
        held = {name: pm.Data(name, value) for name, value in values.items()}
        w = pm.Dirichlet("w", held["concentration"], shape=prior.n_splines + 2)
        f = pt.dot(held["design"], w)
        n, total = held["n"], held["total"]
        if levels.binary:
            inside = pt.clip(f, EDGE, 1.0 - EDGE)
            seen = total * pt.log(inside) + (n - total) * pt.log1p(-inside)
            pm.Potential("likelihood", seen.sum())
        else:
            sigma = pm.HalfNormal("sigma", held["scale"])
            pm.Potential("likelihood", normal_log_likelihood(f, sigma, n, total, held["squares"]))
    return model


def normal_log_likelihood(f: Any, sigma: Any, n: Any, total: Any, squares: Any) -> Any:
    """Log likelihood of normal labels with means f, from counts, sums and the sum of squares; no constant."""
    rest = squares - 2.0 * pt.dot(total, f) + pt.dot(n, f**2)
    return -n.sum() * pt.log(sigma) - rest / (2.0 * sigma**2)


def observation_data(levels: Levels, seen: Labelled, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `observations` takes as data, by name.

    The prior is not among them: PyMC would take parameters below mutable data for stale, and draw them from the prior
    when it is asked for posterior predictive draws of a trace that another sampler made.
    """
    return {
        "design": design(levels.level, prior.n_splines),
        "at": seen.at.astype(np.int64),
        "label": seen.label.astype(np.int64) if levels.binary else seen.label,
    }


def observations(levels: Levels, seen: Labelled, prior: Prior | None = None) -> pm.Model:
    """The posterior of `calibration`, label by label: for leave-one-out scores and posterior predictive draws.

    Each label counts once: this is the posterior of `calibration` where labels have no weights.

    ::

        w ~ Dirichlet(concentration)          f_k = w_0 + sum_j w_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)           sigma ~ HalfNormal(scale)              continuous labels
        Y_i ~ Bernoulli(f_k(i))                                                      binary labels

    Parameters
    ----------
    levels : Levels
        Its levels and kind of label; counts and sums are not used.
    seen : Labelled
    prior : Prior, optional

    Returns
    -------
    pm.Model
        With the observed variable ``y``, so ``pm.compute_log_likelihood`` and ``pm.sample_posterior_predictive`` apply.
    """
    prior = prior or Prior()
    values = observation_data(levels, seen, prior)
    with pm.Model() as model:
        held = {name: pm.Data(name, value) for name, value in values.items()}
        w = pm.Dirichlet("w", np.full(prior.n_splines + 2, prior.concentration))
        _labels(pt.dot(held["design"], w)[held["at"]], held["label"], levels.binary, prior)
    return model


def _labels(mean: Any, label: Any, binary: bool, prior: Prior) -> None:
    if binary:
        pm.Bernoulli("y", p=pt.clip(mean, EDGE, 1.0 - EDGE), observed=label)
    else:
        pm.Normal("y", mean, pm.HalfNormal("sigma", prior.scale), observed=label)


class Effects(NamedTuple):
    """Columns of the covariate effect h(X) = columns @ beta, centred on the labelled rows."""

    taught: FloatArray  # (m, C) of the teaching labels
    every: FloatArray  # (r, C) of all rows


def effects(rows: Rows, kind: str = "linear") -> Effects:
    """Columns of the covariate effect.

    Parameters
    ----------
    rows : Rows
        Unpacked with covariates.
    kind : {"linear", "spline"}
        One column per covariate, in standard deviations of the labelled rows; or I-splines of the covariate over its
        labelled range, constant outside it. With normal coefficients the latter are a random walk over the range.

    Returns
    -------
    Effects

    Raises
    ------
    ValueError
        Without covariates, or for an unknown kind.
    """
    if kind not in EFFECTS:
        raise ValueError(f"kind is {kind!r}; use one of {', '.join(EFFECTS)}")
    x, taught = rows.z[:, 1:], rows.teaches
    if x.shape[1] == 0:
        raise ValueError("rows have no covariates; unpack the data with covariates=[...]")
    if not taught.any():
        raise ValueError("no label teaches; there is nothing to scale the covariates by")
    if kind == "linear":
        spread = x[taught].std(axis=0)
        columns = x / np.where(spread > 0, spread, 1.0)
    else:
        low, high = x[taught].min(axis=0), x[taught].max(axis=0)
        unit = np.clip((x - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
        columns = np.hstack([isplines(one, EFFECT_SPLINES) for one in unit.T])
    columns = columns - columns[taught].mean(axis=0)
    return Effects(columns[taught], columns)


def two_stage_data(
    levels: Levels, seen: Labelled, columns: FloatArray, prior: Prior
) -> dict[str, npt.NDArray[Any]]:
    """What `two_stage` takes as data, by name."""
    return observation_data(levels, seen, prior) | {"columns": columns}


def two_stage(
    levels: Levels,
    seen: Labelled,
    columns: FloatArray,
    prior: Prior | None = None,
    *,
    effect_scale: float = 0.5,
) -> pm.Model:
    """Calibration on Z = (S, X): monotone in S at given X, covariates multiply the odds.

    ::

        w ~ Dirichlet(concentration)              f(s) = w_0 + sum_j w_j I_j(s)
        beta_c ~ Normal(0, effect_scale)          h(x) = sum_c beta_c B_c(x)
        logit E[Y | s, x] = logit f(s) + h(x)     that is  f e^h / (1 - f + f e^h)
        Y_i ~ Normal(E[Y | S_i, X_i], sigma)      sigma ~ HalfNormal(scale);  Bernoulli for binary labels

    The effect is on the odds and not on Y itself, so that E[Y | S, X] stays in [0, 1] for every X; where f is 0 or 1
    no covariate moves it.

    Parameters
    ----------
    levels : Levels
    seen : Labelled
    columns : array, shape (m, C)
        ``effects(rows, kind).taught``.
    prior : Prior, optional
    effect_scale : float
        Prior standard deviation of a coefficient, in log odds.

    Returns
    -------
    pm.Model
        With ``w``, ``beta`` and, for continuous labels, ``sigma``.
    """
    prior = prior or Prior()
    values = two_stage_data(levels, seen, columns, prior)
    with pm.Model() as model:
        held = {name: pm.Data(name, value) for name, value in values.items()}
        w = pm.Dirichlet("w", np.full(prior.n_splines + 2, prior.concentration))
        beta = pm.Normal("beta", 0.0, effect_scale, shape=columns.shape[1])
        f = pt.dot(held["design"], w)[held["at"]]
        odds = pt.exp(pt.dot(held["columns"], beta))
        _labels(f * odds / (1.0 - f + f * odds), held["label"], levels.binary, prior)
    return model


def two_stage_means(
    weight: FloatArray, beta: FloatArray, levels: Levels, rows: Rows, graded: Graded, columns: FloatArray
) -> FloatArray:
    """Plug-in value of every policy under `two_stage`, draw by draw.

    Parameters
    ----------
    weight, beta : arrays, shapes (draws, J + 2) and (draws, C)
    levels : Levels
    rows, graded : Rows, Graded
    columns : array, shape (r, C)
        ``effects(rows, kind).every``.

    Returns
    -------
    array, shape (policies, draws)
        On the [0, 1] oracle scale; NaN for a policy without evaluated responses.
    """
    used = rows.evaluated
    basis = design(levels.level, weight.shape[1] - 2)
    policy, share, at, x = rows.policy[used], rows.weight[used], graded.at[used], columns[used]
    size = len(rows.policies)
    total = np.bincount(policy, weights=share, minlength=size)
    out = np.full((size, len(weight)), np.nan)
    for d in range(len(weight)):  # draw by draw: no rows x draws array
        f, odds = (basis @ weight[d])[at], np.exp(x @ beta[d])
        sums = np.bincount(policy, weights=share * f * odds / (1.0 - f + f * odds), minlength=size)
        np.divide(sums, total, out=out[:, d], where=total > 0)
    return out


def graph(model: pm.Model) -> Any:
    """Draw a model as a graph of its variables.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    graphviz.Digraph

    Raises
    ------
    ImportError
        Without the Python package graphviz, which this project does not require.
    """
    try:
        return pm.model_to_graphviz(model)
    except ImportError as err:
        raise ImportError(
            "a graph needs graphviz: pip install graphviz, and its `dot` program to render it"
        ) from err
