"""Tails of sums of token scores by other ways than `cje_sim.exact.sums`: two closed forms and tilted Monte Carlo."""

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr

from cje_sim.exact.sums import FloatArray, cumulant, log1m, saddlepoint
from cje_sim.tokens.laws import Rng, iid_policy, log_normalise, sample_sums


def log_cdf_saddlepoint(values: FloatArray, log_law: FloatArray, length: int, x: float) -> float:
    """Lugannani-Rice approximation of ``log P(sum <= x)``, in closed form at any depth.

    ``F(x) = Phi(w) + phi(w) (1/w - 1/u)`` with ``w = sign(theta) sqrt(2 (theta x - L K(theta)))`` and
    ``u = theta sqrt(L K''(theta))``; relative error O(1/L) uniformly in x for laws without coarse atoms.
    """
    if x >= length * values.max():
        return 0.0
    if x < length * values.min():
        return -np.inf
    theta = saddlepoint(values, log_law, x / length)
    k, _, variance = cumulant(values, log_law, theta)
    w = np.sign(theta) * np.sqrt(max(2 * (theta * x - length * k), 0.0))
    u = theta * np.sqrt(length * variance)
    if abs(w) < 1e-3:  # the formula is 0/0 at the mean; its limit is an Edgeworth term
        _, mean, second = cumulant(values, log_law, 0.0)
        third = float(np.exp(log_law) @ (values - mean) ** 3)
        slope = third / (6 * second**1.5 * np.sqrt(length))
        return float(np.log(0.5 + (w + slope) / np.sqrt(2 * np.pi)))
    if w > 0:
        upper = np.sqrt(np.pi / 2) * erfcx(w / np.sqrt(2)) - 1 / w + 1 / u
        return log1m(float(np.log(upper) - w * w / 2 - np.log(2 * np.pi) / 2))
    mills = np.sqrt(np.pi / 2) * erfcx(-w / np.sqrt(2)) + 1 / w - 1 / u
    return float(np.log(mills) - w * w / 2 - np.log(2 * np.pi) / 2) if mills > 0 else float(log_ndtr(w))


def log_cdf_bahadur_rao(values: FloatArray, log_law: FloatArray, length: int, x: float) -> float:
    """``-L I(x/L) - log(|theta| sqrt(2 pi L K''))``: Cramer's rate with its prefactor, for x below the
    mean.
    """
    theta = saddlepoint(values, log_law, x / length)
    k, _, variance = cumulant(values, log_law, theta)
    if theta >= 0:
        raise ValueError(f"x is {x}; the large-deviation form needs x below the mean of the sum")
    return float(length * k - theta * x - np.log(-theta * np.sqrt(2 * np.pi * length * variance)))


class RareEvent(NamedTuple):
    """Log of the estimated probability and its relative Monte Carlo standard error."""

    log_prob: float
    relative_se: float


def log_cdf_monte_carlo(
    values: FloatArray, log_law: FloatArray, length: int, x: float, *, n: int, rng: Rng = None
) -> RareEvent:
    """Estimate ``P(v_1 + ... + v_L <= x)`` from `n` responses of the law tilted so that the event is typical.

    Each is weighted by ``exp(L K(theta) - theta S)``; for a tail event the relative error stays bounded as the
    probability falls (Siegmund 1976).

    Parameters
    ----------
    values, log_law : arrays, shape (V,)
        Finite score and log-probability of each token.
    length : int
    x : float
        Below the mean of the sum, or the tilt is 0 (plain Monte Carlo).
    n : int
        Responses drawn, at least 2.
    rng : Generator, int or None

    Returns
    -------
    RareEvent
        ``log_prob = -inf`` and an infinite relative error if no response fell in the event.
    """
    rng = np.random.default_rng(rng)
    if n < 2:
        raise ValueError(f"n is {n}; it must be at least 2")
    theta = min(saddlepoint(values, log_law, x / length), 0.0)
    policy = iid_policy(log_normalise(log_law + theta * values), length)
    table = np.broadcast_to(values[:, None], (1, 2, policy.vocab, 1))
    total = sample_sums(policy, table, n, rng=rng).sums[:, 0]
    # Relative to the weight at the edge of the event: at most 1 inside it.
    weight = np.where(total <= x, np.exp(np.minimum(theta * (x - total), 0.0)), 0.0)
    mean = float(weight.mean())
    if mean == 0:
        return RareEvent(float(-np.inf), float(np.inf))
    relative_se = float(weight.std(ddof=1) / np.sqrt(n) / mean)
    return RareEvent(
        float(np.log(mean) + length * cumulant(values, log_law, theta)[0] - theta * x), relative_se
    )
