"""A judge that knows nothing: the probability that the calibrator is flat, and its draws given that.

The prior of the ends (`cje_core.bayes.prior`) is continuous, so a curve always rises or falls, and of three policies
with the same value the one whose scores lie in the middle is never the best. Decisions need the possibility that f is
constant. With prior probability ``atom`` the ends are equal, f = c uniform on [0, 1], everything else as it was; by
Savage and Dickey (Dickey, 1971) the posterior odds are

    atom / (1 - atom) * p(r = 0 | labels) / p(r = 0),       r = b - a,   p(r = 0) = flat

with the densities of the continuous prior. p(r = 0 | labels) is the mean over its draws of the conditional density of r
at 0 given the shape, sigma, covariate effects, and f's mean over the labels: along that line the likelihood is compared
with that at r = 0, so any sampler's draws will do (`mix`).
"""

from functools import cache

import numpy as np

from cje_core.bayes import covariates
from cje_core.bayes.gibbs import THIN, WARMUP, Draws, truncated_normal
from cje_core.bayes.levels import Graded
from cje_core.bayes.prior import Prior, draw_shapes, ends_density
from cje_core.bayes.slice_sampling import draw_log_sigma
from cje_core.bayes.splines import isplines
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import njit
from cje_core.data.arrays import Rows

USED = 100  # draws that the density is a mean over
NODES = 24  # Gauss-Legendre nodes on each side of 0
REACH = 6.0  # posterior standard deviations of r: beyond them its density is 0
EDGE = 1e-12  # keeps a Bernoulli probability off 0 and 1


def probability(rows: Rows, graded: Graded, draws: Draws, prior: Prior) -> float:
    """Posterior probability that the calibrator is flat, from draws of the posterior without the atom."""
    rise = np.diff(draws.ends)[:, 0]
    center, reach = float(rise.mean()), REACH * float(rise.std())
    if prior.atom == 0 or abs(center) > reach:
        return 0.0
    kept = np.linspace(0, len(rise) - 1, min(USED, len(rise))).astype(np.intp)
    # one row per label under covariates, per judge level that has labels else: f there, how often, the sum of labels
    levels = graded.levels
    at = graded.at[rows.teaches] if draws.beta is not None else np.flatnonzero(levels.n)
    g = (draws.shape[kept] @ isplines(levels.level, prior.n_splines).T)[:, at]
    n, total = levels.n[at], levels.total[at]
    if draws.beta is not None:
        label = graded.label[rows.teaches]
        n, total = np.full(len(label), graded.share), graded.share * label
    mean = g @ n / n.sum()
    value = draws.ends[kept, 0] * (1.0 - mean) + draws.ends[kept, 1] * mean
    # r moves the ends to value - r mean and value + r (1 - mean), which stay in [0, 1]
    with np.errstate(divide="ignore"):
        high = np.minimum(value / mean, (1.0 - value) / (1.0 - mean))
        low = -np.minimum((1.0 - value) / mean, value / (1.0 - mean))
    high, low = np.minimum(high, max(center + reach, 0.0)), np.maximum(low, min(center - reach, 0.0))
    node, mass = _quadrature()
    r = np.concatenate([low[:, None] * node, high[:, None] * node, np.zeros((len(kept), 1))], axis=1)
    weight = np.concatenate([-low[:, None] * mass, high[:, None] * mass], axis=1)
    log = _log_likelihood(rows, graded, draws, kept, value, r, g - mean[:, None], n, total)
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    density = _densities(r.ravel(), prior.n_splines, prior.flat).reshape(r.shape)
    joint = likelihood * density
    at_zero = float(np.mean(joint[:, -1] / (joint[:, :-1] * weight).sum(axis=1)))
    odds_flat = prior.atom / (1.0 - prior.atom) * at_zero / prior.flat
    return odds_flat / (1.0 + odds_flat)


@cache
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Nodes on [0, 1] and their mass."""
    node, mass = np.polynomial.legendre.leggauss(NODES)
    return 0.5 * (node + 1.0), 0.5 * mass


def _log_likelihood(
    rows: Rows, graded: Graded, draws: Draws, kept: IntArray, value: FloatArray, r: FloatArray, slope: FloatArray,
    n: FloatArray, total: FloatArray,
) -> FloatArray:  # fmt: skip
    """Log likelihood of ``f = value + r slope`` at some rises r (draws, R), up to a constant; (draws, R).

    `slope` (draws, K) has the mean 0 over the labels, n of them at each place with the sum `total`. So the normal one
    is a parabola in r, unless covariates bend f.
    """
    variance = draws.sigma[kept, None] ** 2
    if draws.beta is None and not graded.levels.binary:
        found = r * (slope @ total)[:, None] + (value * total.sum())[:, None]
        square = r**2 * (slope**2 @ n)[:, None] + (value**2 * n.sum())[:, None]
        return np.asarray(-0.5 * (graded.levels.squares - 2.0 * found + square) / variance)
    f = value[:, None, None] + r[:, :, None] * slope[:, None, :]
    if draws.beta is not None:
        assert graded.columns is not None
        odds = np.exp(draws.beta[kept] @ graded.columns[rows.teaches].T)[:, None, :]
        f = f * odds / (1.0 - f + f * odds)
    if graded.levels.binary:
        inside = np.clip(f, EDGE, 1.0 - EDGE)
        return np.asarray(np.log(inside) @ total + np.log1p(-inside) @ (n - total))
    return np.asarray(-0.5 * (graded.levels.squares - 2.0 * f @ total + f**2 @ n) / variance)


@njit
def _densities(rise, size, flat):  # type: ignore[no-untyped-def]
    out = np.empty(len(rise))
    for i in range(len(rise)):
        out[i] = ends_density(rise[i], size, flat)
    return out


def sample(rows: Rows, graded: Graded, *, n_draws: int, prior: Prior, rng: np.random.Generator) -> Draws:
    """Draws of the calibrator given that it is flat; the shape has its prior."""
    if graded.columns is not None:
        found = covariates.sample(rows, graded, n_draws=n_draws, prior=prior, equal_ends=True, rng=rng)
        return found._replace(shape=draw_shapes(prior, n_draws, rng))
    levels = graded.levels
    sigma = np.full(n_draws, np.nan)
    if levels.binary:
        value = rng.beta(1.0 + levels.total.sum(), 1.0 + (levels.n - levels.total).sum(), n_draws)
    else:
        value = np.empty(n_draws)
        _flat_chain(
            float(levels.n.sum()), float(levels.total.sum()), levels.squares, prior.scale, WARMUP, THIN, rng, value,
            sigma,
        )  # fmt: skip
    return Draws(
        np.repeat(value[:, None], len(levels.level), axis=1),
        np.column_stack([value, value]),
        draw_shapes(prior, n_draws, rng),
        sigma,
        {},
    )


@njit
def _flat_chain(m, total, squares, scale, n_warmup, thin, rng, value, sigma):  # type: ignore[no-untyped-def]
    log_sigma = np.log(0.5 * scale)
    mean = total / m
    for sweep in range(n_warmup + thin * len(value)):
        sd = np.exp(log_sigma) / np.sqrt(m)
        c = mean + sd * truncated_normal(rng, -mean / sd, (1.0 - mean) / sd)
        rest = squares - 2.0 * c * total + c * c * m
        log_sigma = draw_log_sigma(rng, log_sigma, m, max(rest, 1e-12), scale)
        if sweep >= n_warmup and (sweep - n_warmup) % thin == thin - 1:
            value[(sweep - n_warmup) // thin] = c
            sigma[(sweep - n_warmup) // thin] = np.exp(log_sigma)


def mix(rows: Rows, graded: Graded, draws: Draws, *, prior: Prior, rng: np.random.Generator) -> Draws:
    """Put flat draws among those of the continuous posterior, as many as the atom's posterior probability says.

    The draws are of one calibrator for all policies, and come back with ``flat``, that probability.
    """
    share = probability(rows, graded, draws, prior)
    chosen = np.flatnonzero(rng.random(len(draws.f)) < share)
    if len(chosen) == 0:
        return draws._replace(flat=share)
    flat = sample(rows, graded, n_draws=len(chosen), prior=prior, rng=rng)

    def mixed(name: str, continuous: FloatArray) -> FloatArray:
        out = continuous.copy()
        out[chosen] = getattr(flat, name)
        return out

    return draws.each(mixed)._replace(flat=share)
