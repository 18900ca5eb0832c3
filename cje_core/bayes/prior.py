"""The prior of the calibrator: where it starts and ends, and how it gets there.

::

    f(s) = a + (b - a) g(s),   g(s) = sum_j u_j I_j(s)          a = f(0), b = f(1), g from 0 to 1
    p(a, b) = flat + (1 - flat) J (J + 1) max(b - a, 0)^(J - 1)  on the unit square
    u ~ sum_g mass_g Dirichlet(concentration * table_g)          on the simplex of J weights

The two halves of p(a, b) are a square on which nothing is preferred, and the ends of a curve whose J + 2 increments are
uniform on a simplex: the latter alone insists on an informative judge (it gives b - a < 0.2 a probability of 2e-5), and
no amount of labels that a study has makes up for it. Falling curves have a quarter of the mass: a prior on rising
curves alone never contains a contrast of zero between policies whose scores differ.

The shapes g are a mixture, since one Dirichlet is either nearly a straight line (large concentration) or nearly a step
(small): five flat ones of different concentration, and bumps, which are steep at one place of the scale.

Ends that are *equal* (a judge that knows nothing) have the probability ``atom`` in what the estimators report
(`cje_core.bayes.flat` mixes it into the draws of a completely pooled calibrator); the samplers themselves, and checks
of them (prior draws, simulation-based calibration, power scaling), are of the continuous part.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.bayes.splines import N_SPLINES
from cje_core.checks import FloatArray
from cje_core.compiled import njit

FLAT = (0.1, 0.2, 0.4, 0.8, 1.6)  # Dirichlet parameters of the flat shapes, mass .1 each
CENTER = (0.0, 0.25, 0.5, 0.75, 1.0)  # where the bumps are steep; mass .05 for each of the totals
TOTAL = (2.0, 8.0)
BUMP_SD, BUMP_SHARE = 0.15, 0.8  # the rest of a bump's weight is spread evenly
LN2 = float(np.log(2.0))
LEAST = 1e-300  # weights below it count as it: their logarithm is finite


class Prior(NamedTuple):
    """Prior of the calibration model."""

    concentration: float = 1.0  # times the table of the shapes: above 1 straighter, below 1 more of a step
    scale: float = 0.3  # of sigma, on the [0, 1] oracle scale
    n_splines: int = N_SPLINES
    flat: float = 0.5  # share of the uniform part in the density of the ends
    atom: float = 0.1  # probability that the ends are equal, in what the estimators report


DEFAULT = Prior()


def check(prior: Prior) -> None:
    """Stop at a prior that is none."""
    if not (prior.concentration > 0 and prior.scale > 0):
        raise ValueError(f"{prior}: concentration and scale must be positive")
    if not (0 < prior.flat <= 1 and 0 <= prior.atom < 1):
        raise ValueError(f"{prior}: flat must lie in (0, 1] and atom in [0, 1)")


@lru_cache(maxsize=32)
def shapes(n_splines: int, concentration: float) -> tuple[FloatArray, FloatArray]:
    """Mixture of Dirichlet distributions of the shape.

    Their parameters (components, J), and the log of each one's probability, with the constant of its density.
    """
    place = (np.arange(n_splines) + 0.5) / n_splines
    bump = np.exp(-((place - np.array(CENTER)[:, None]) ** 2) / (2.0 * BUMP_SD**2))
    bump = BUMP_SHARE * bump / bump.sum(axis=1, keepdims=True) + (1.0 - BUMP_SHARE) / n_splines
    parts = [np.full((1, n_splines), alpha) for alpha in FLAT] + [total * bump for total in TOTAL]
    table = concentration * np.concatenate(parts)
    mass = np.repeat([0.5 / len(FLAT), 0.5 / (len(CENTER) * len(TOTAL))], [len(FLAT), len(table) - len(FLAT)])
    constant = special.gammaln(table.sum(axis=1)) - special.gammaln(table).sum(axis=1)
    return table, np.log(mass) + constant


def log_shape_density(u: FloatArray, prior: Prior) -> FloatArray:
    """Log density of shapes (draws, J) on the simplex."""
    table, log_mass = shapes(prior.n_splines, prior.concentration)
    log_u = np.log(np.maximum(u, LEAST))
    return np.asarray(special.logsumexp(log_mass + log_u @ (table - 1.0).T, axis=1))


def draw(prior: Prior, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw `n` independent ends, shape (n, 2), and shapes, shape (n, J), from the prior."""
    return draw_ends(prior.flat, prior.n_splines, n, rng), draw_shapes(prior, n, rng)


def draw_shapes(prior: Prior, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw `n` independent shapes from the prior, shape (n, J)."""
    return draw_dirichlet_mixture(*shapes(prior.n_splines, prior.concentration), n, rng)


def draw_ends(flat: float, n_splines: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw `n` independent pairs (a, b) from ``p(a, b)``, shape (n, 2)."""
    # uniform increments on J + 2 places: the first, those between, the last
    rising = rng.dirichlet([1.0, n_splines, 1.0], size=n)
    rising = np.column_stack([rising[:, 0], 1.0 - rising[:, 2]])
    return np.where(rng.random(n)[:, None] < flat, rng.random((n, 2)), rising)


def draw_dirichlet_mixture(
    table: FloatArray, log_mass: FloatArray, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draw `n` independent points of the simplex, shape (n, J), from a mixture that `shapes` returned."""
    mass = np.exp(log_mass - special.gammaln(table.sum(axis=1)) + special.gammaln(table).sum(axis=1))
    parameter = table[rng.choice(len(table), n, p=mass)]
    # gammas of parameters near 0 underflow: Gamma(k) is Gamma(k + 1) U^(1/k), taken in logarithms
    log = np.log(rng.standard_gamma(parameter + 1.0)) + np.log(1.0 - rng.random(parameter.shape)) / parameter
    return np.asarray(special.softmax(log, axis=1))


# --- for the kernels --------------------------------------------------------------------------------------------------


@njit
def ends_density(rise, size, flat):  # type: ignore[no-untyped-def]
    """Density of ends that are b - a = rise apart, with `size` splines."""
    if rise <= 0.0:
        return flat
    return flat + (1.0 - flat) * size * (size + 1.0) * rise ** (size - 1)


@njit
def log_rise_density(rise, power, size, flat):  # type: ignore[no-untyped-def]
    """Log density of the increments ``x_j = |b - a| u_j``, one end given, but for their product.

    Where weights have Dirichlet parameters alpha_j it is ``p(a, b) |b - a|^power prod_j x_j^(alpha_j - 1)`` with power
    1 - sum_j alpha_j, since the Jacobian of (b - a, u) is |b - a|^(1 - J).
    """
    return np.log(ends_density(rise, size, flat)) + power * np.log(abs(rise))


@njit
def rescale(u, log_u, i, new, shrink):  # type: ignore[no-untyped-def]
    """Set the weight u_i to `new`, and multiply the others by `shrink`, in place."""
    log_shrink = np.log(shrink)
    for k in range(len(u)):
        u[k] *= shrink
        log_u[k] += log_shrink
    u[i] = new
    log_u[i] = np.log(max(new, LEAST))


@njit
def draw_component(rng, log_u, table, log_mass, log_p):  # type: ignore[no-untyped-def]
    """One component of the mixture, given the shape; `log_p` is room to work in."""
    top = -np.inf
    for g in range(len(log_mass)):
        total = log_mass[g]
        for j in range(len(log_u)):
            total += (table[g, j] - 1.0) * log_u[j]
        log_p[g] = total
        top = max(top, total)
    total = 0.0
    for g in range(len(log_mass)):
        total += np.exp(log_p[g] - top)
        log_p[g] = total
    point = total * rng.random()
    for g in range(len(log_mass)):
        if point < log_p[g]:
            return g
    return len(log_mass) - 1


@njit
def log_gamma_draw(rng, shape):  # type: ignore[no-untyped-def]
    """Log of a standard gamma draw; that of a small shape may lie below the smallest number."""
    if shape >= 1.0:
        return np.log(rng.standard_gamma(shape))
    return np.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape


@njit
def beta_split(rng, both, first, second):  # type: ignore[no-untyped-def]
    """Parts of `both`, split as Beta(first, second): for small parameters by Johnk (1964), in logarithms.

    Either part may be far smaller than what rounding would leave of `both` less the other.
    """
    if first + second <= 1.5:  # more than half of the proposals are taken
        while True:
            gap = rng.standard_exponential() / first
            low = rng.standard_exponential() / second
            if (gap >= LN2) == (low >= LN2):  # whether exp(-gap) + exp(-low) <= 1 needs no exponentials
                if gap >= LN2:
                    break
            elif np.exp(-gap) + np.exp(-low) <= 1.0:
                break
        gap -= low
    else:
        gap = log_gamma_draw(rng, second) - log_gamma_draw(rng, first)
    small = np.exp(-abs(gap))
    large = both / (1.0 + small)
    return (large * small, large) if gap > 0.0 else (large, large * small)
