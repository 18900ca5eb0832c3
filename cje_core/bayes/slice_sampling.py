"""Slice sampling (Neal, 2003) of what the kernels of the calibrator share: its ends, its shape, and the noise.

`moves_of` makes three updates from a likelihood ``log_likelihood(at, step, moves, *terms)``, that of the parameters
where ``at`` has moved by ``step * moves``: ``at_t`` is f at term t of the likelihood, or 1 - f where its ``sign_t`` is
-1. With ``f = a + (b - a) g`` they change ``g`` (at the terms), ``at``, the shape ``u`` and ``log_u`` in place;
``moves`` is room to work in.
"""

from typing import Any

import numpy as np

from cje_core.bayes.prior import LEAST, beta_split, ends_density, log_rise_density, rescale
from cje_core.compiled import njit

# Steps of a slice after which a weight stays: what is left of the interval is the matter of the split. With ten a sweep
# takes two fifths longer and draws are no less alike, but by a tenth to three tenths for thousands of labels.
SHRINKS = 4


@njit
def partner(rng, i, size):  # type: ignore[no-untyped-def]
    """Draw another of `size` weights than the i-th: half of the time its neighbour, else any.

    Neighbours have similar I-splines, so that labels leave them the longest steps: with them the effective draws of f
    are half as many again, and of the shape twice as many.
    """
    place = 2.0 * rng.random()
    if place < 1.0:
        return i + 1 if i + 1 < size else i - 1
    j = int((place - 1.0) * (size - 1))
    return j + 1 if j >= i else j


def moves_of(log_likelihood: Any) -> tuple[Any, Any, Any]:
    """`move_ends`, `move_increments` and `move_shape` for a likelihood.

    They close over it: a compiled chain that passed it on as an argument could not be cached.
    """
    import numba

    @numba.njit
    def move_ends(rng, terms, now, a, b, at, g, sign, moves, size, flat, shift_only):  # type: ignore[no-untyped-def]
        """Draw b, a, and both by the same amount (with `shift_only` that alone): a, b and the log likelihood there."""
        for kind in range(2 if shift_only else 0, 3):
            for t in range(len(at)):
                moves[t] = sign[t] * (g[t] if kind == 0 else 1.0 - g[t] if kind == 1 else 1.0)
            low = -b if kind == 0 else -a if kind == 1 else -min(a, b)
            high = 1.0 - b if kind == 0 else 1.0 - a if kind == 1 else 1.0 - max(a, b)
            height = now + np.log(ends_density(b - a, size, flat)) - rng.standard_exponential()
            while True:
                step = low + (high - low) * rng.random()
                found = log_likelihood(at, step, moves, *terms)
                rise = b - a + (step if kind == 0 else -step if kind == 1 else 0.0)
                if found + np.log(ends_density(rise, size, flat)) >= height or high - low < 1e-14:
                    break
                if step < 0.0:
                    low = step
                else:
                    high = step
            if found > -np.inf:
                a = min(max(a + (0.0 if kind == 0 else step), 0.0), 1.0)
                b = min(max(b + (0.0 if kind == 1 else step), 0.0), 1.0)
                for t in range(len(at)):
                    at[t] += step * moves[t]
                now = found
        return a, b, now

    @numba.njit
    def move_increments(rng, terms, now, a, b, at, g, sign, moves, basis, u, log_u, dirichlet, flat):  # type: ignore[no-untyped-def]
        """Draw the first increment of the curve against a, and the last against b: a, b and the log likelihood there.

        The other increments ``|b - a| u_j`` stay. Labels tell little of f beyond the outermost scores, where an end
        that takes the whole curve with it hardly moves.
        """
        size, power = len(u), 1.0 - dirichlet.sum()
        for kind in range(2):
            rise, i = b - a, kind * (size - 1)
            if rise == 0.0:
                break
            direction = np.sign(rise)
            for t in range(len(at)):
                moves[t] = sign[t] * direction * (basis[i, t] - (1.0 if kind == 0 else 0.0))
            start = abs(rise) * u[i]
            rest, end = max(abs(rise) - start, 0.0), a if kind == 0 else 1.0 - b
            low, high = 0.0, start + (end if rise > 0.0 else 1.0 - end)
            less = dirichlet[i] - 1.0
            height = now + log_rise_density(rise, power, size, flat) - rng.standard_exponential()
            height += less * (log_u[i] + np.log(abs(rise)))
            for _ in range(SHRINKS):
                new = low + (high - low) * rng.random()
                grown = direction * (rest + new)
                found = log_likelihood(at, new - start, moves, *terms) if grown != 0.0 else -np.inf
                level = found
                if found > -np.inf:
                    level += log_rise_density(grown, power, size, flat) + less * np.log(max(new, LEAST))
                if level >= height:
                    now, shrink, step = found, rise / grown, (new - start) / (rest + new)
                    rescale(u, log_u, i, new / (rest + new), shrink)
                    for t in range(len(at)):
                        g[t] = shrink * g[t] + step * basis[i, t]
                        at[t] += (new - start) * moves[t]
                    if kind == 0:
                        a = min(max(a - direction * (new - start), 0.0), 1.0)
                    else:
                        b = min(max(b + direction * (new - start), 0.0), 1.0)
                    break
                if new < start:
                    low = new
                else:
                    high = new
        return a, b, now

    @numba.njit
    def move_shape(rng, terms, now, rise, at, g, sign, moves, basis, u, log_u, dirichlet):  # type: ignore[no-untyped-def]
        """Draw every weight against a partner (their sum is kept), given ``rise = b - a``: the log likelihood there.

        The slice on the weight is followed by a split of both from their beta distribution, accepted by the ratio of
        the likelihood, for weights that the prior wants near 0. `dirichlet` has the parameters of the component.
        """
        size = len(u)
        for i in range(size):
            j = partner(rng, i, size)
            both = u[i] + u[j]
            for t in range(len(at)):
                moves[t] = sign[t] * rise * (basis[i, t] - basis[j, t])
            first, second = dirichlet[i], dirichlet[j]
            start, old, rest = u[i], u[i], u[j]
            log_old, log_rest = log_u[i], log_u[j]
            height = now + (first - 1.0) * log_u[i] + (second - 1.0) * log_u[j] - rng.standard_exponential()
            low, high = 0.0, both
            for _ in range(SHRINKS):
                new = low + (high - low) * rng.random()
                found = log_likelihood(at, new - start, moves, *terms)
                level = found
                log_i, log_j = np.log(max(new, LEAST)), np.log(max(both - new, LEAST))
                if found > -np.inf:
                    level += (first - 1.0) * log_i
                    level += (second - 1.0) * log_j
                if level >= height:
                    old, rest, now, log_old, log_rest = new, both - new, found, log_i, log_j
                    break
                if new < start:
                    low = new
                else:
                    high = new
            new, other = beta_split(rng, both, first, second)
            found = log_likelihood(at, new - start, moves, *terms)
            if -rng.standard_exponential() <= found - now:
                old, rest, now = new, other, found
                log_old, log_rest = np.log(max(new, LEAST)), np.log(max(other, LEAST))
            if old != start or rest != u[j]:
                for t in range(len(at)):
                    g[t] += (old - start) * (basis[i, t] - basis[j, t])
                    at[t] += (old - start) * moves[t]
                u[i], u[j], log_u[i], log_u[j] = old, rest, log_old, log_rest
        return now

    return move_ends, move_increments, move_shape


def shrink_of(log_density: Any) -> Any:
    """Draw from an interval by shrinking it to where ``log_density(u, *terms)`` reaches a height."""
    import numba

    @numba.njit
    def shrink(rng, u, low, high, height, terms):  # type: ignore[no-untyped-def]
        while True:
            new = low + (high - low) * rng.random()
            if log_density(new, *terms) >= height:
                return new
            if new < u:
                low = new
            else:
                high = new

    return shrink


@njit
def _sigma_log_density(u, m, rest, scale):  # type: ignore[no-untyped-def]
    """Log density of u = log sigma; the Jacobian is the 1 in 1 - m."""
    variance = np.exp(2.0 * u)
    return (1.0 - m) * u - 0.5 * (rest / variance + variance / (scale * scale))


_shrink_sigma = shrink_of(_sigma_log_density)


@njit
def draw_log_sigma(rng, u, m, rest, scale):  # type: ignore[no-untyped-def]
    """Log sigma by stepping out; the width follows the posterior's, about 1 / sqrt(2m)."""
    height = _sigma_log_density(u, m, rest, scale) - rng.standard_exponential()
    width = 2.0 / np.sqrt(m + 1.0)
    low = u - width * rng.random()
    high = low + width
    while _sigma_log_density(low, m, rest, scale) > height:
        low -= width
    while _sigma_log_density(high, m, rest, scale) > height:
        high += width
    return _shrink_sigma(rng, u, low, high, height, (m, rest, scale))
