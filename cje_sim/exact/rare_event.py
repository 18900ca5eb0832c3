"""Rare-event Monte Carlo: tail probabilities of sums of token scores by exponential tilting.

An independent check of the exact computations, at depths that plain sampling cannot reach: draw responses from the
token law tilted so that the event is typical, weight each by ``exp(L K(theta) - theta S)``. For a tail event the
relative error stays bounded as the probability falls (Siegmund 1976).
"""

from typing import NamedTuple

import numpy as np

from cje_sim.exact.sums import cumulant, saddlepoint
from cje_sim.tokens.laws import FloatArray, Rng, iid_policy, log_normalise, sample_sums


class RareEvent(NamedTuple):
    """Log of the estimated probability and its relative Monte Carlo standard error."""

    log_prob: float
    relative_se: float


def log_cdf_monte_carlo(
    values: FloatArray, log_law: FloatArray, length: int, x: float, *, n: int, rng: Rng = None
) -> RareEvent:
    """Estimate ``P(v_1 + ... + v_L <= x)`` from `n` tilted responses.

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
        raise ValueError(f"n={n}: it must be at least 2")
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
