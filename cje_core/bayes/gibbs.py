"""The calibration posterior by Gibbs sampling, in numba: what the PyMC model samples, a hundred times cheaper.

Model (with `cje_core.bayes.splines`, the prior of `cje_core.bayes.prior`, labels and judge mapped to [0, 1])::

    a, b ~ p(a, b),  u ~ mixture of Dirichlet distributions
    f_k = a + (b - a) sum_j u_j I_j(level_k)                    monotone, rising or falling, in [0, 1]
    Y_i ~ Normal(f_k(i), sigma), sigma ~ HalfNormal(scale)      or Y_i ~ Bernoulli(f_k(i)) for binary labels

The normal likelihood is a working one: it makes f a (quasi-)posterior of the regression E[Y | S] whatever the shape
of the noise, as least squares does. A beta likelihood is not: labels have mass at 0 and 1, and E[Y | S] under it is
inconsistent.

A sweep of the normal likelihood draws, each given the rest: the rise b - a around the mean of f over the labels; both
ends by the same amount; three increments (b - a) u_j of the curve, the first, the last and another, each against the
end that it leads to, the other increments kept; every weight of the shape against a partner (their sum is kept); the
component of the mixture that the shape is from; and sigma. In all but the last two f is linear in what moves: a draw
from the truncated normal that the likelihood is, accepted by the ratio of the prior. Weights and increments have a
second move, for those that the prior wants near 0: a draw from their beta distribution, accepted by the ratio of the
rest. sigma is drawn by slice sampling on its logarithm. (Labels tell little of f beyond the outermost scores, so an
end that takes the whole curve with it hardly moves: the increments give f three times the effective draws in 1.4
times the time.)

A sweep of binary labels draws b, a, both, weights and component, by slice sampling (`cje_core.bayes.slice_sampling`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cje_core.bayes.levels import Levels
from cje_core.bayes.prior import (
    DEFAULT,
    LEAST,
    Prior,
    beta_split,
    check,
    draw_component,
    ends_density,
    log_rise_density,
    rescale,
    shapes,
)
from cje_core.bayes.slice_sampling import draw_log_sigma, moves_of, partner
from cje_core.bayes.splines import isplines
from cje_core.checks import FloatArray, IntArray, Rng
from cje_core.compiled import njit

RUN = 16  # probabilities per product: 1e-19 each would not underflow
TINY = 1e-150  # nor would the product of two numbers that are larger
WARMUP, THIN = 300, 4  # sweeps; at these R-hat of every level is below 1.01 (tested)


class Sums(NamedTuple):
    """What the normal likelihood of a curve needs of `Levels`, with X the I-splines of the levels."""

    gram: FloatArray  # X' diag(n) X
    mass: FloatArray  # X' n
    cross: FloatArray  # X' total
    m: float
    total: float
    squares: float


def sums(levels: Levels, x: FloatArray) -> Sums:
    """Sums of the slice over the I-splines x (K, J) of its levels."""
    n, total = levels.n, levels.total
    return Sums((x * n[:, None]).T @ x, x.T @ n, x.T @ total, n.sum(), total.sum(), levels.squares)


class Draws(NamedTuple):
    """Posterior draws of the calibrator, on [0, 1] scales."""

    f: FloatArray  # (draws, K): f at each level
    ends: FloatArray  # (draws, 2): f at 0 and at 1
    shape: FloatArray  # (draws, J): weights u of the I-splines
    sigma: FloatArray  # (draws,); NaN for binary labels
    diagnostics: dict[str, float]  # of the sampler that made them; empty for Gibbs
    beta: FloatArray | None = None  # (draws, C): covariate effect in log odds (`models.two_stage`)
    own: FloatArray | None = None  # (draws, policies, K): each policy's own f (`policy_models.hierarchical`)
    flat: float = 0.0  # posterior probability that f is constant (`cje_core.bayes.flat`)

    def each(self, change: Callable[[str, FloatArray], FloatArray]) -> "Draws":
        """Put ``change(name, draws)`` in place of the draws of each parameter that there is."""
        names = ("f", "ends", "shape", "sigma", "beta", "own")
        made: dict[str, Any] = {
            name: change(name, one) for name in names if (one := getattr(self, name)) is not None
        }
        return self._replace(**made)


def curve(level: FloatArray, ends: FloatArray, shape: FloatArray) -> FloatArray:
    """Calibrator at some levels for every draw of its parameters, shape (draws, K)."""
    return _along(isplines(level, shape.shape[1]), ends, shape)


def _along(x: FloatArray, ends: FloatArray, shape: FloatArray) -> FloatArray:
    """Calibrator where the I-splines are x (K, J)."""
    # not by BLAS, whose threads would spin for a product this small
    g = np.einsum("dj,jk->dk", shape, np.ascontiguousarray(x.T))
    return np.asarray(ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * g)


def sample(
    levels: Levels,
    *,
    n_draws: int = 1000,
    n_warmup: int = WARMUP,
    thin: int = THIN,
    prior: Prior = DEFAULT,
    rng: Rng = None,
) -> Draws:
    """Draw from the posterior of the calibrator: every `thin`-th sweep is kept after `n_warmup`, `n_draws` in all.

    Examples
    --------
    >>> seen = Levels(np.array([0.2, 0.8]), np.array([20.0, 20.0]), np.array([4.0, 16.0]), 20.0, True, 0.0, 1.0)
    >>> sample(seen, n_draws=2000, rng=0).f.mean(axis=0).round(1).tolist()
    [0.2, 0.8]
    """
    rng = np.random.default_rng(rng)
    if min(n_draws, thin) < 1 or n_warmup < 0:
        raise ValueError("n_draws and thin must be at least 1, n_warmup at least 0")
    check(prior)
    mixture = shapes(prior.n_splines, prior.concentration)
    ends, shape = np.empty((n_draws, 2)), np.empty((n_draws, prior.n_splines))
    sigma, x = np.full(n_draws, np.nan), isplines(levels.level, prior.n_splines)
    if levels.binary:
        terms = _binary_terms(x, levels)
        _binary_chain(rng, terms, mixture, prior.flat, n_warmup, thin, ends, shape)
    else:
        seen = sums(levels, x)
        _normal_chain(rng, seen, mixture, prior.flat, prior.scale, n_warmup, thin, (ends, shape, sigma))
    return Draws(_along(x, ends, shape), ends, shape, sigma, {})


@njit
def truncated_normal(rng, low, high):  # type: ignore[no-untyped-def]
    """Standard normal restricted to [low, high], by the rejection schemes of Robert (1995)."""
    if low > 0 or high < 0:
        flip = high < 0
        a, b = (-high, -low) if flip else (low, high)
        if (b - a) * (a + b) < 2.0:  # nearly flat: uniform proposals
            while True:
                x = a + (b - a) * rng.random()
                if -2.0 * rng.standard_exponential() <= a * a - x * x:
                    break
        else:
            rate = 0.5 * (a + np.sqrt(a * a + 4.0))
            while True:
                x = a + rng.standard_exponential() / rate
                if x <= b and -2.0 * rng.standard_exponential() <= -((x - rate) ** 2):
                    break
        return -x if flip else x
    if high - low < 2.5:
        while True:
            x = low + (high - low) * rng.random()
            if -2.0 * rng.standard_exponential() <= -x * x:
                return x
    while True:
        x = rng.standard_normal()
        if low <= x <= high:
            return x


@njit
def _cut_normal(rng, mean, precision, low, high):  # type: ignore[no-untyped-def]
    """Normal draw between two bounds; uniform where nothing is told."""
    if precision * (high - low) ** 2 < 1e-12:
        return low + (high - low) * rng.random()
    sd = 1.0 / np.sqrt(precision)
    new = mean + sd * truncated_normal(rng, (low - mean) / sd, (high - mean) / sd)
    return min(max(new, low), high)


@njit
def _products(u, mass, slope, cross):  # type: ignore[no-untyped-def]
    """Products of u with three vectors; by BLAS, sums of eight numbers would take twice as long."""
    g1, g2, gy = 0.0, 0.0, 0.0
    for j in range(len(u)):
        g1 += u[j] * mass[j]
        g2 += u[j] * slope[j]
        gy += u[j] * cross[j]
    return g1, g2, gy


@njit
def _draw_increment(rng, x, log_x, room, rise, likelihood, alpha, power, size, flat):  # type: ignore[no-untyped-def]
    """Draw the increment x = |b - a| u_i against the room between the scale's bound and an end, which moves with it.

    The other increments stay; see `cje_core.bayes.prior.log_rise_density`. The first proposal is from the normal
    likelihood (mean, precision), the second from ``x^(alpha - 1)``.
    """
    mean, precision = likelihood
    sign, both, others = np.sign(rise), x + room, max(abs(rise) - x, 0.0)
    outer = log_rise_density(rise, power, size, flat)
    new = _cut_normal(rng, mean, precision, 0.0, both)
    if 0.0 < new < both:
        found = log_rise_density(sign * (others + new), power, size, flat)
        odds = found - outer + (alpha - 1.0) * (np.log(max(new, LEAST)) - log_x)
        if odds >= 0.0 or -rng.standard_exponential() <= odds:
            x, outer = new, found
    new = both * np.exp(-rng.standard_exponential() / alpha)
    if others + new > 0.0:
        odds = log_rise_density(sign * (others + new), power, size, flat) - outer
        odds -= 0.5 * precision * (new - x) * (new + x - 2.0 * mean)
        if odds >= 0.0 or -rng.standard_exponential() <= odds:
            x = new
    return x


@njit
def _normal_chain(rng, seen, mixture, flat, scale, n_warmup, thin, out):  # type: ignore[no-untyped-def]
    gram, mass, cross, m, total, squares = seen
    (table, log_mass), (ends, shape, sigma) = mixture, out
    size = len(cross)
    u = np.full(size, 1.0 / size)
    log_u, log_p = np.log(u), np.empty(len(log_mass))
    slope = gram @ u  # half the gradient of sum n g^2
    across = gram.T.copy()  # the same but for rounding, side by side
    a, b, component = 0.4, 0.6, 0
    log_sigma = np.log(0.5 * scale)
    for sweep in range(n_warmup + thin * len(ends)):
        precision = np.exp(-2.0 * log_sigma)
        g1, g2, gy = _products(u, mass, slope, cross)
        # f = value + rise (g - share): with share the mean of g over the labels their level stays where it is
        share = min(max(g1 / m, 0.01), 0.99) if m > 0.0 else 0.5
        value = a + (b - a) * share
        curve = max(g2 - 2.0 * share * g1 + share * share * m, 0.0)
        center = gy - share * total - value * (g1 - share * m)
        low = -min((1.0 - value) / share, value / (1.0 - share))
        high = min(value / share, (1.0 - value) / (1.0 - share))
        rise = _cut_normal(rng, center / curve if curve > 0.0 else 0.0, precision * curve, low, high)
        if rng.random() * ends_density(b - a, size, flat) < ends_density(rise, size, flat):
            a = min(max(value - rise * share, 0.0), 1.0)
            b = min(max(value + rise * (1.0 - share), 0.0), 1.0)
        rise = b - a
        mean = (total - m * a - rise * g1) / m if m > 0.0 else 0.0
        step = _cut_normal(rng, mean, precision * m, -min(a, b), 1.0 - max(a, b))
        a += step
        b = min(max(a + rise, 0.0), 1.0)
        rise = b - a
        power = 1.0 - table[component].sum()
        for kind in range(3):
            if rise == 0.0:
                break
            i = 0 if kind == 0 else size - 1 if kind == 1 else int(rng.random() * size)
            start = kind == 0 or (kind == 2 and sweep % 2 == 0)  # a moves, else b
            sign, old = np.sign(rise), abs(rise) * u[i]
            bend, pull = gram[i, i], cross[i] - a * mass[i] - rise * slope[i]
            low, high = (1.0 - a, a) if start else (b, 1.0 - b)  # room of a falling and of a rising curve
            if start:
                bend = max(bend + m - 2.0 * mass[i], 0.0)
                pull -= total - m * a - rise * g1
            mean = old + sign * pull / bend if bend > 0.0 else 0.0
            log_old = log_u[i] + np.log(abs(rise))
            alpha, likelihood = table[component, i], (mean, precision * bend)
            new = _draw_increment(
                rng, old, log_old, high if sign > 0.0 else low, rise, likelihood, alpha, power, size, flat
            )
            if new != old:
                grown = sign * (max(abs(rise) - old, 0.0) + new)
                step, shrink = sign * (new - old), rise / grown
                rescale(u, log_u, i, new / abs(grown), shrink)
                for k in range(size):
                    slope[k] = shrink * slope[k] + step / grown * across[i, k]
                g1 = shrink * g1 + step / grown * mass[i]
                if start:
                    a = min(max(a - step, 0.0), 1.0)
                else:
                    b = min(max(b + step, 0.0), 1.0)
                rise = b - a
        for i in range(size):
            j = partner(rng, i, size)
            both = u[i] + u[j]
            bend = precision * rise * rise * (gram[i, i] + gram[j, j] - 2.0 * gram[i, j])
            slant = a * (mass[i] - mass[j]) + rise * (slope[i] - slope[j]) - cross[i] + cross[j]
            steep = precision * rise * slant
            first, second = table[component, i], table[component, j]
            start, old, left = u[i], u[i], u[j]
            log_old, log_left = log_u[i], log_u[j]
            mean = old - steep / bend if bend > 0.0 else 0.0
            new = _cut_normal(rng, mean, bend, 0.0, both)
            if 0.0 < new < both:
                log_i, log_j = np.log(max(new, LEAST)), np.log(max(both - new, LEAST))
                odds = (first - 1.0) * (log_i - log_u[i]) + (second - 1.0) * (log_j - log_u[j])
                if odds >= 0.0 or -rng.standard_exponential() <= odds:
                    old, left, log_old, log_left = new, both - new, log_i, log_j
            if (sweep + i) % 2 == 0:
                new, other = beta_split(rng, both, first, second)
                move = new - start  # the likelihood from where the slope belongs to
                back = old - start
                odds = -steep * (move - back) - 0.5 * bend * (move * move - back * back)
                if odds >= 0.0 or -rng.standard_exponential() <= odds:
                    old, left = new, other
                    log_old, log_left = np.log(max(new, LEAST)), np.log(max(other, LEAST))
            if old != start or left != u[j]:
                u[i], u[j], log_u[i], log_u[j] = old, left, log_old, log_left
                for k in range(size):
                    slope[k] += (old - start) * (across[i, k] - across[j, k])
        component = draw_component(rng, log_u, table, log_mass, log_p)
        if sweep % 50 == 0:  # rounding does not pile up
            u /= u.sum()
            log_u = np.log(np.maximum(u, LEAST))
            slope = gram @ u
        g1, g2, gy = _products(u, mass, slope, cross)
        rest = squares - 2.0 * (a * total + rise * gy) + a * a * m + 2.0 * a * rise * g1 + rise * rise * g2
        log_sigma = draw_log_sigma(rng, log_sigma, m, max(rest, 1e-12), scale)
        if sweep >= n_warmup and (sweep - n_warmup) % thin == thin - 1:
            d = (sweep - n_warmup) // thin
            ends[d, 0], ends[d, 1] = a, b
            for j in range(size):
                shape[d, j] = u[j]
            sigma[d] = np.exp(log_sigma)


def _binary_terms(x: FloatArray, levels: Levels) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Bernoulli likelihood as ``sum_t count_t log p_t``, p_t = f or 1 - f at a level; equal counts in runs.

    A run of at most `RUN` terms shares one logarithm, that of their product. Given are the I-splines at each term's
    level, (J, T); 1 for a term f and -1 for a term 1 - f, (T,); the count of each run, and the first term after it.
    """
    times = np.concatenate([levels.total, levels.n - levels.total])
    order = np.argsort(times, kind="stable")
    order = order[times[order] > 0]
    change = np.flatnonzero(np.diff(times[order])) + 1
    count, end = [], []
    for start, stop in zip([0, *change], [*change, len(order)], strict=True):
        for first in range(start, stop, RUN):
            count.append(times[order[first]])
            end.append(min(first + RUN, stop))
    hit = np.repeat([1.0, -1.0], len(levels.n))
    basis = np.vstack([x, x])[order].T
    return np.ascontiguousarray(basis), hit[order], np.array(count), np.array(end, dtype=np.intp)


@njit
def _binary_log_density(q, step, moves, count, end):  # type: ignore[no-untyped-def]
    """Log likelihood with ``q`` moved by ``step * moves``; runs share a logarithm while their powers are far from 0."""
    out, whole, t = 0.0, 1.0, 0
    for g in range(len(end)):
        product, stop = 1.0, end[g]
        while t < stop:
            p = q[t] + step * moves[t]
            if p <= 0.0:
                return -np.inf
            product *= p
            t += 1
        times = int(count[g])
        part = _power(product, times) if times == count[g] else 0.0
        if part > TINY:
            whole *= part
            if whole < TINY:
                out += np.log(whole)
                whole = 1.0
        else:
            out += count[g] * np.log(product)
    return out + np.log(whole)


@njit
def _power(x, k):  # type: ignore[no-untyped-def]
    out = 1.0
    while k > 0:
        if k & 1:
            out *= x
        x *= x
        k >>= 1
    return out


_move_ends, _, _move_shape = moves_of(_binary_log_density)


@njit
def _binary_chain(rng, runs, mixture, flat, n_warmup, thin, ends, shape):  # type: ignore[no-untyped-def]
    basis, hit, count, end = runs
    table, log_mass = mixture
    size = len(basis)
    u = np.full(size, 1.0 / size)
    log_u, log_p = np.log(u), np.empty(len(log_mass))
    a, b, component = 0.4, 0.6, 0
    g = u @ basis
    q = 0.5 * (1.0 - hit) + hit * (a + (b - a) * g)
    now = _binary_log_density(q, 0.0, q, count, end)
    moves, terms = np.empty_like(q), (count, end)
    for sweep in range(n_warmup + thin * len(ends)):
        a, b, now = _move_ends(rng, terms, now, a, b, q, g, hit, moves, size, flat, False)
        rise = b - a
        now = _move_shape(rng, terms, now, rise, q, g, hit, moves, basis, u, log_u, table[component])
        component = draw_component(rng, log_u, table, log_mass, log_p)
        if sweep % 50 == 0:
            u /= u.sum()
            g = u @ basis
            q = 0.5 * (1.0 - hit) + hit * (a + rise * g)
            now = _binary_log_density(q, 0.0, q, count, end)
        if sweep >= n_warmup and (sweep - n_warmup) % thin == thin - 1:
            d = (sweep - n_warmup) // thin
            ends[d, 0], ends[d, 1] = a, b
            for j in range(size):
                shape[d, j] = u[j]
