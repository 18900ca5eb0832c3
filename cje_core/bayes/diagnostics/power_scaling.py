"""Prior sensitivity by power scaling (Kallioinen, Paananen, Bürkner and Vehtari, 2023).

How far does the posterior of a value, a shift or f move when the prior, or the likelihood, is raised to a power alpha
near 1? Importance weights on the draws that there are answer it, of any sampler. Nothing here imports PyMC.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from scipy import special

from cje_core.bayes.diagnostics.predictive import TINY
from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import Levels
from cje_core.bayes.prior import DEFAULT, LEAST, Prior, ends_density, log_shape_density
from cje_core.checks import FloatArray

SENSITIVE = 0.05  # sensitivity at which Kallioinen et al. call a posterior sensitive
ALPHA = 1.01


def log_prior(draws: Draws, prior: Prior) -> FloatArray:
    """Log prior density of each draw, up to a constant, in log odds of the ends and log ratios of the shape: (draws,).

    A power of a density depends on the coordinates. On the square and on the simplex themselves a uniform density is
    flat and no power would move it; in log odds its power alpha is Beta(alpha, alpha) for each end, and in log ratios
    a Dirichlet distribution of parameters A becomes that of alpha A, which hold f closer to its prior mean. sigma stays
    on its own scale: the power alpha divides its scale by sqrt(alpha).
    """
    ends, shape = np.clip(draws.ends, TINY, 1.0 - TINY), np.maximum(draws.shape, LEAST)
    out = (
        np.log(ends * (1.0 - ends)).sum(axis=1) + np.log(shape).sum(axis=1) + log_shape_density(shape, prior)
    )
    out += np.log([ends_density(rise, prior.n_splines, prior.flat) for rise in np.diff(draws.ends)[:, 0]])
    if np.isnan(draws.sigma).any():
        return np.asarray(out)
    return np.asarray(out - 0.5 * (draws.sigma / prior.scale) ** 2)


def log_likelihood(draws: Draws, levels: Levels) -> FloatArray:
    """Log likelihood of the slice under each draw, up to a constant, shape (draws,)."""
    if levels.binary:
        inside = np.clip(draws.f, TINY, 1.0 - TINY)
        return np.asarray(np.log(inside) @ levels.total + np.log1p(-inside) @ (levels.n - levels.total))
    rest = levels.squares - 2.0 * draws.f @ levels.total + draws.f**2 @ levels.n
    return np.asarray(-levels.n.sum() * np.log(draws.sigma) - 0.5 * rest / draws.sigma**2)


def power_scaling(
    draws: Draws,
    levels: Levels,
    quantities: Mapping[str, FloatArray],
    *,
    prior: Prior = DEFAULT,
    alpha: float = ALPHA,
) -> xr.Dataset:
    """Sensitivity of posterior quantities to the power of the prior and of the likelihood.

    The posterior with the prior (or the likelihood) raised to alpha, near 1 and above it, and to 1 / alpha has the
    draws at hand with weights ``p^(alpha - 1)`` and ``p^(1 / alpha - 1)``. Sensitivity is the cumulative Jensen-Shannon
    distance between the weighted and the plain ECDF, per unit of log2(alpha), mean of the two directions.

    Parameters
    ----------
    draws, levels, prior
        Of the posterior, and the slice and prior it was made of.
    quantities : mapping of name to array, shape (draws,)
        One number per draw *of the same f*: draws of a value (`cje_core.bayes.value.values`), of a shift
        (`cje_core.bayes.shifts.shifts`), of f at a level.

    Returns
    -------
    xr.Dataset
        Over ``quantity``: ``sensitivity(component, quantity)`` and the change of the posterior mean and sd per unit of
        log2(alpha), ``mean_slope`` and ``sd_slope``, components ``prior`` and ``likelihood``; ``diagnosis``: "ok",
        "strong prior or weak likelihood" (the prior's sensitivity alone reaches .05), "prior-data conflict" (both do).

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> from cje_core.bayes import gibbs
    >>> draws = gibbs.sample(levels, n_draws=2000, rng=1)
    >>> found = power_scaling(draws, levels, {"f(0.5)": draws.f[:, 1]})
    >>> list(found)
    ['sensitivity', 'mean_slope', 'sd_slope', 'diagnosis']
    """
    if not alpha > 1:
        raise ValueError(f"alpha={alpha}: it must be above 1")
    names = list(quantities)
    found = np.full((3, 2, len(names)), np.nan)
    for c, log_density in enumerate((log_prior(draws, prior), log_likelihood(draws, levels))):
        up = special.softmax((alpha - 1.0) * log_density)
        down = special.softmax((1.0 / alpha - 1.0) * log_density)
        for q, name in enumerate(names):
            values = np.asarray(quantities[name], float)
            if values.shape != up.shape:
                raise ValueError(
                    f"{name} has shape {values.shape}; it needs one number for each of {len(up)} draws"
                )
            if not np.isfinite(values).all():
                continue
            plain = np.full(len(values), 1.0 / len(values))
            found[0, c, q] = (jensen_shannon(values, plain, up) + jensen_shannon(values, plain, down)) / 2
            mean_up, mean_down = up @ values, down @ values
            found[1, c, q] = (mean_up - mean_down) / 2
            spread = [np.sqrt(w @ (values - w @ values) ** 2) for w in (up, down)]
            found[2, c, q] = (spread[0] - spread[1]) / 2
    found /= np.log2(alpha)
    dims = ("component", "quantity")
    return xr.Dataset(
        {
            "sensitivity": (dims, found[0]),
            "mean_slope": (dims, found[1]),
            "sd_slope": (dims, found[2]),
            "diagnosis": ("quantity", [_diagnose(*found[0, :, q]) for q in range(len(names))]),
        },
        coords={"component": ["prior", "likelihood"], "quantity": names},
        attrs={"alpha": alpha},
    )


def _diagnose(prior: float, likelihood: float) -> str:
    if np.isnan(prior):
        return "not estimated"
    if prior < SENSITIVE:
        return "ok"
    return "prior-data conflict" if likelihood >= SENSITIVE else "strong prior or weak likelihood"


def jensen_shannon(values: FloatArray, first: FloatArray, second: FloatArray) -> float:
    """Cumulative Jensen-Shannon distance of two weightings of the same draws, in [0, 1].

    Square root of the divergence between the two ECDFs over its upper bound, the larger one of values and of their
    negatives (Nguyen and Vreeken, 2015; normalised as by Kallioinen et al.).

    Examples
    --------
    >>> half, none = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    >>> round(jensen_shannon(np.array([0.0, 1.0]), half, half), 3)
    0.0
    >>> jensen_shannon(np.array([0.0, 1.0]), half, none) > 0.2
    True
    """
    return max(_one_sided(values, first, second), _one_sided(-values, first, second))


def _one_sided(values: FloatArray, first: FloatArray, second: FloatArray) -> float:
    order = np.argsort(values, kind="stable")
    width = np.diff(values[order])
    p, q = np.cumsum(first[order])[:-1], np.cumsum(second[order])[:-1]
    bound = float(width @ (p + q))
    if bound <= 0:
        return 0.0
    middle = 0.5 * (p + q)
    # the two linear terms of the divergence cancel in the sum
    both = special.rel_entr(p, middle) + special.rel_entr(q, middle)
    return float(np.sqrt(max(width @ both, 0.0) / np.log(2.0) / bound))
