"""Slow, obvious second implementations for teacher forcing: quadrature, enumeration, one draw at a time."""

import itertools

import numpy as np
from scipy import integrate, stats

from cje_sim.tokens.teacher_forcing import Noise


def law_of(noise: Noise):
    """SciPy's law of one error about its shift."""
    if noise.law == "laplace":
        return stats.laplace(scale=noise.sd / np.sqrt(2))
    if noise.law == "student_t":
        return stats.t(noise.df, scale=noise.sd * np.sqrt((noise.df - 2) / noise.df))
    return stats.norm(scale=noise.sd)


def unit_moment(noise: Noise, order: float) -> float:
    """``E exp(order * error)`` of one response or token, by quadrature of the density on both sides of its kink."""
    law = law_of(noise)

    def integrand(x: np.ndarray) -> np.ndarray:
        return np.exp(order * (x + noise.shift) + law.logpdf(x))

    reach = 60 * noise.sd * (1 + abs(order) * noise.sd)
    if noise.law == "laplace":  # decays like exp(-(sqrt(2)/sd - order) x)
        reach = 40 / (np.sqrt(2) / noise.sd - abs(order))
    bounds = np.linspace(-reach, reach, 41)
    pieces = (integrate.fixed_quad(integrand, a, b, n=40)[0] for a, b in itertools.pairwise(bounds))
    return float(sum(pieces))


def moment(noises: list[Noise], order: float, lengths: list[int]) -> float:
    """``E W^order``: every length, every pattern of touched and untouched mechanisms."""
    total = 0.0
    for length in lengths:
        for touched in itertools.product([False, True], repeat=len(noises)):
            product = 1.0
            for noise, hit in zip(noises, touched, strict=True):
                product *= noise.share if hit else 1 - noise.share
                if hit:
                    product *= unit_moment(noise, order) ** (length if noise.per == "token" else 1)
            total += product / len(lengths)
    return total


def summed_errors(noise: Noise, n: int, length: int, seed: int) -> np.ndarray:
    """Errors of n touched responses, as sums of `length` draws of SciPy's law (or 1)."""
    count = length if noise.per == "token" else 1
    draws = law_of(noise).rvs((n, count), random_state=seed)
    return (draws + noise.shift).sum(axis=1)


def clone_ess_relative_se(noises: list[Noise], n: int, log_moment) -> float:
    """Delta-method SE of ``mean(W)^2 / mean(W^2)`` over its limit, from the exact moments up to the fourth.

    The influence function, over the limit, is ``2 W/m1 - W^2/m2 - 1``.
    """
    m1, m2, m3, m4 = (np.exp(log_moment(noises, float(k))) for k in (1, 2, 3, 4))
    variance = 4 * (m2 / m1**2 - 1) + (m4 / m2**2 - 1) - 4 * (m3 / (m1 * m2) - 1)
    return float(np.sqrt(variance / n))
