"""Laws of oracle labels with mean f, which PyMC can evaluate and sample: binary, normal, and bounded graded ones.

``beta`` keeps graded labels inside the scale and knows labels at its two ends, with mean f throughout::

    Y = 0 or 1 with probability e (1 - f) and e f,  else  Y ~ Beta(f k, (1 - f) k),  k = (1 - d) / d
    e ~ Beta(1, 4)      share of labels that are verdicts at an end
    d ~ Beta(1, 4)      dispersion: Var(Y | f) = f (1 - f) (e + (1 - e) d)

A plain Beta regression has no place for labels at the ends, and moving them inside biases f; here they inform it as
binary labels do. The normal law is a working one: its posterior mean of f is right for labels of any law with mean f,
but its replicated labels leave the scale.
"""

from typing import Any

import numpy as np

from cje_core.bayes.flat import EDGE
from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.prior import Prior
from cje_core.checks import FloatArray, one_of

LIKELIHOODS = ("bernoulli", "normal", "beta")
DISPERSION = (
    1.0,
    4.0,
)  # parameters of the priors of e and d: a fifth each on average, and any share possible
SMALLEST = 1e-9  # a draw this near an end is not at it: labels there belong to the other part of the law


def likelihood_of(binary: bool, likelihood: str | None) -> str:
    """Return the likelihood to use: the one named, else ``bernoulli`` for binary labels and ``normal`` for graded ones.

    Raises
    ------
    ValueError
        For an unknown name, for ``bernoulli`` where labels are graded, and for another where they are binary.
    """
    if likelihood is None:
        return "bernoulli" if binary else "normal"
    one_of(likelihood, "likelihood", LIKELIHOODS)
    if binary != (likelihood == "bernoulli"):
        kind, fits = ("binary", "'bernoulli'") if binary else ("graded", "'normal' or 'beta'")
        raise ValueError(f"likelihood={likelihood!r}: the labels are {kind}; use {fits}")
    return likelihood


def labels(mean: Any, likelihood: str, prior: Prior) -> Any:
    """Return the unregistered law of labels with these means, after declaring its own parameters in the model at hand.

    Parameters
    ----------
    mean : tensor
        f of each label, in [0, 1].
    likelihood : {"bernoulli", "normal", "beta"}
        ``normal`` declares ``sigma``, ``beta`` declares ``at_ends`` (e) and ``dispersion`` (d).
    """
    inside = pt.clip(mean, EDGE, 1.0 - EDGE)
    if likelihood == "bernoulli":
        return pm.Bernoulli.dist(p=inside)
    if likelihood == "normal":
        return pm.Normal.dist(mu=mean, sigma=pm.HalfNormal("sigma", prior.scale))
    at_ends, dispersion = pm.Beta("at_ends", *DISPERSION), pm.Beta("dispersion", *DISPERSION)
    return pm.CustomDist.dist(
        inside,
        at_ends,
        dispersion,
        logp=bounded_log_density,
        random=draw_bounded,
        class_name="BetaWithEnds",
    )


def bounded_log_density(y: Any, mean: Any, at_ends: Any, dispersion: Any) -> Any:
    """Return the log density of the ``beta`` law at labels y; at 0 and 1 it is the log of a probability."""
    k = 1.0 / dispersion - 1.0
    within = pt.clip(y, SMALLEST, 1.0 - SMALLEST)
    a, b = mean * k, (1.0 - mean) * k
    beta = (a - 1.0) * pt.log(within) + (b - 1.0) * pt.log1p(-within)
    beta += pt.gammaln(k) - pt.gammaln(a) - pt.gammaln(b)
    end = pt.log(at_ends) + pt.switch(y > 0.5, pt.log(mean), pt.log1p(-mean))
    return pt.switch((y <= 0.0) | (y >= 1.0), end, pt.log1p(-at_ends) + beta)


def draw_bounded(mean: Any, at_ends: Any, dispersion: Any, rng: Any = None, size: Any = None) -> FloatArray:
    """Draw labels of the ``beta`` law."""
    mean, at_ends, dispersion = np.broadcast_arrays(mean, at_ends, dispersion)
    shape = mean.shape if size is None else tuple(size)
    k = 1.0 / dispersion - 1.0
    graded = np.clip(rng.beta(mean * k, (1.0 - mean) * k, shape), SMALLEST, 1.0 - SMALLEST)
    verdict = (rng.random(shape) < mean).astype(float)
    return np.asarray(np.where(rng.random(shape) < at_ends, verdict, graded))


def noise_sd(mean: FloatArray, at_ends: FloatArray, dispersion: FloatArray) -> FloatArray:
    """Return, for each draw, the root mean square of the ``beta`` law's standard deviation over labels.

    Parameters
    ----------
    mean : array, shape (draws, labels)
    at_ends, dispersion : arrays, shape (draws,)
    """
    spread = (mean * (1.0 - mean)).mean(axis=1)
    return np.asarray(np.sqrt(spread * (at_ends + (1.0 - at_ends) * dispersion)))
