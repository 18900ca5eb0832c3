"""The PyMC models of one slice: the reference for the fast samplers, and the place to criticise the calibration.

Notation: Y oracle label and S judge score, both mapped to [0, 1]; X covariates; f calibrator; k judge level; w weights
on the simplex; I_j I-splines (`cje_core.bayes.splines`). Data enter as ``pm.Data``, so a compiled model can be given
new data. Models of several policies are in `cje_core.bayes.policy_models`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.bayes.covariates import EFFECT_SCALE
from cje_core.bayes.engines import pm, pt
from cje_core.bayes.gibbs import Prior, design
from cje_core.bayes.levels import Graded, Levels
from cje_core.rows import Rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

EDGE = 1e-12  # keeps a Bernoulli probability off 0 and 1


class Labelled(NamedTuple):
    """The labelled responses one by one."""

    at: IntArray  # (m,) judge level of each
    label: FloatArray  # (m,) on [0, 1]
    share: float = 1.0  # what one label counts: 1 / design effect


def labelled(rows: Rows, graded: Graded) -> Labelled:
    """The teaching labels of `rows`, one by one: what `Levels` sums up."""
    taught = rows.teaches
    return Labelled(graded.at[taught], graded.label[taught], graded.share)


def data_of(levels: Levels, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `calibration` takes as data, by name: to give a compiled model another data set, or another prior."""
    x = design(levels.level, prior.n_splines)
    concentration = {"concentration": np.full(prior.n_splines + 2, prior.concentration)}
    if levels.binary:
        return concentration | {"design": x, "n": levels.n, "total": levels.total}
    return concentration | {
        "gram": (x * levels.n[:, None]).T @ x,
        "cross": x.T @ levels.total,
        "m": np.asarray(levels.n.sum()),
        "squares": np.asarray(levels.squares),
        "scale": np.asarray(prior.scale),
    }


def simplex(concentration: Any, size: int) -> Any:
    """Weights ``w ~ Dirichlet(concentration)`` of the model at hand, as gammas over their sum.

    NUTS takes a third of the steps that it takes on PyMC's transform of the simplex, whose coordinates lean on each
    other: each increment has a logarithm of its own here, and the sum is told by nothing and so harms nothing.
    """
    increment = pm.Gamma("increment", concentration, 1.0, shape=size)
    return pm.Deterministic("w", increment / increment.sum())


def calibration(levels: Levels, prior: Prior | None = None) -> pm.Model:
    """Monotone calibration on sufficient statistics per judge level.

    ::

        w ~ Dirichlet(concentration)          f_k = w_0 + sum_j w_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)           sigma ~ HalfNormal(scale)              continuous labels
        Y_i ~ Bernoulli(f_k(i))                                                      binary labels

    With m labels, counts n, sums s and the design matrix X of the levels, the normal log likelihood is
    ``-m log sigma - (yy - 2 (X's)'w + w'(X' diag(n) X) w) / (2 sigma^2)``: no shape depends on the data, so one
    compiled model serves every sample, every grid of levels and every prior.

    Parameters
    ----------
    levels : Levels
    prior : Prior, optional

    Returns
    -------
    pm.Model
        With ``w`` (from ``increment``, see `simplex`) and, for continuous labels, ``sigma``; its data are those of
        `data_of`. f is ``design @ w``: as a variable of the model it would fix the number of levels at compile time.
    """
    prior = prior or Prior()
    values = data_of(levels, prior)
    with pm.Model() as model:
        held = {name: pm.Data(name, value) for name, value in values.items()}
        w = simplex(held["concentration"], prior.n_splines + 2)
        if levels.binary:
            n, total = held["n"], held["total"]
            inside = pt.clip(pt.dot(held["design"], w), EDGE, 1.0 - EDGE)
            seen = total * pt.log(inside) + (n - total) * pt.log1p(-inside)
            pm.Potential("likelihood", seen.sum())
        else:
            sigma = pm.HalfNormal("sigma", held["scale"])
            pm.Potential("likelihood", teaching_log_likelihood(w, sigma, held))
    return model


def teaching_log_likelihood(w: Any, sigma: Any, held: Mapping[str, Any]) -> Any:
    """Log likelihood of normal teaching labels from the data of `data_of`; no constant."""
    rest = held["squares"] - 2.0 * pt.dot(held["cross"], w) + pt.dot(w, pt.dot(held["gram"], w))
    return -held["m"] * pt.log(sigma) - rest / (2.0 * sigma**2)


def observation_data(levels: Levels, seen: Labelled, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `observations` takes as data, by name.

    The prior is not among them: PyMC would take parameters below mutable data for stale, and draw them from the prior
    when it is asked for posterior predictive draws of a trace that another sampler made.
    """
    data = {
        "design": design(levels.level, prior.n_splines),
        "at": seen.at.astype(np.int64),
        "label": seen.label.astype(np.int64) if levels.binary else seen.label,
    }
    return data if seen.share == 1.0 else data | {"share": np.asarray(seen.share)}


def observations(levels: Levels, seen: Labelled, prior: Prior | None = None) -> pm.Model:
    """The posterior of `calibration`, label by label: for leave-one-out scores and posterior predictive draws.

    Where labels come in clusters each counts ``seen.share``, as in `calibration`: the likelihood is raised to that
    power. Replicated labels and leave-one-out scores are those of single labels all the same.

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
        w = simplex(prior.concentration, prior.n_splines + 2)
        _labels(pt.dot(held["design"], w)[held["at"]], held, levels.binary, prior)
    return model


def _labels(mean: Any, held: dict[str, Any], binary: bool, prior: Prior) -> None:
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
    effect_scale: float = EFFECT_SCALE,
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
        ``cje_core.bayes.covariates.effects(rows, kind).taught``.
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
        w = simplex(prior.concentration, prior.n_splines + 2)
        beta = pm.Normal("beta", 0.0, effect_scale, shape=columns.shape[1])
        f = pt.dot(held["design"], w)[held["at"]]
        odds = pt.exp(pt.dot(held["columns"], beta))
        _labels(f * odds / (1.0 - f + f * odds), held, levels.binary, prior)
    return model


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
