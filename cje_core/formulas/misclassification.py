"""Limits of misclassification-corrected values and of their differences, by inverting tests on Wilson arms.

With p the pass rate of a policy, f = 1 - Sp the false-pass rate, Se the sensitivity and J = Se - f, the share of good
responses is ``theta = (p - f) / J``. Both limits keep every number at which a linear form D, whose mean is 0 at the
truth, is no further from 0 than its own spread (Fieller 1954, without his normal ratio)::

    value        D(theta) = p - (1 - theta) f - theta Se          u = (p, -(1 - theta) f, -theta Se)
    difference   D(delta) = p_a - p_b - delta (Se - f)            u = (p_a, -p_b, delta f, -delta Se)

The square of the spread is ``u' R u``, where every proportion in u is replaced by the distance to that end of its
Wilson interval which would bring D to 0 (MOVER: Zou and Donner 2008), and R has the correlations of their errors. No
ratio is linearised and no nuisance is left: two policies with one confusion matrix differ by ``(p_a - p_b) / J``
whatever their levels are. Policies with two matrices are combined from the limits of their values, by MOVER.

On each side of the estimate D keeps its sign, so ``D^2 - u' R u`` is a quadratic in theta (in delta: one on each side
of 0) and the limits are its roots.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cje_core.checks import FloatArray, IntArray
from cje_core.formulas.covariance import correlations
from cje_core.formulas.proportions import charged, wilson

PASSED, FALSELY, GOOD = range(3)  # places of p, f and Se


class Shares(NamedTuple):
    """The pass rate, the false-pass rate and the sensitivity behind each policy's value; NaN without an interval."""

    value: FloatArray  # (P, 3)
    size: FloatArray  # (P, 3) effective observations
    df: FloatArray  # (P, 3)
    joint: FloatArray  # (P, 3, P, 3) covariance of their errors
    matrix: IntArray  # (P,) equal numbers: one confusion matrix


def arms(shares: Shares, policy: IntArray, level: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute how far the Wilson intervals of policies' shares reach below and above them, (n, 3) each."""
    value, prob = shares.value[policy], level[:, None]
    bounds = wilson(value, charged(shares.size[policy], shares.df[policy], prob), prob)
    return value - bounds[..., 0], bounds[..., 1] - value


def value_limits(
    value: FloatArray, below: FloatArray, above: FloatArray, correlation: FloatArray
) -> FloatArray:
    """Compute the shares of good responses that a test does not reject, (..., 2) within [0, 1].

    `value`, `below` and `above` (..., 3) are (p, f, Se) and their arms, `correlation` (..., 3, 3). A p outside of what
    f and Se allow is tested as the nearest that they allow, so the interval of a clipped value has some width; an end
    of [0, 1] that is not rejected is a limit. J = 0 rejects nothing.
    """
    p, false_pass, good = np.moveaxis(value, -1, 0)
    youden, zero = good - false_pass, np.zeros(value.shape[:-1])
    p = np.clip(p, np.minimum(false_pass, good), np.maximum(false_pass, good))
    theta = np.clip(
        np.divide(p - false_pass, youden, out=np.full_like(zero, 0.5), where=youden != 0), 0.0, 1.0
    )
    limits = []
    for end in (0.0, 1.0):
        too_high = ((youden > 0) == (end == 0))[..., None]  # D > 0 between theta and this end
        down, up = np.where(too_high, below, above), np.where(too_high, above, below)
        constant = np.stack([down[..., PASSED], -up[..., FALSELY], zero], axis=-1)
        slope = np.stack([zero, up[..., FALSELY], -up[..., GOOD]], axis=-1)
        limits.append(
            _limit((p - false_pass, -youden), (constant, slope), correlation, theta, np.full_like(theta, end))
        )
    return np.where((youden == 0)[..., None], [0.0, 1.0], np.stack(limits, axis=-1))


def difference_limits(
    value: FloatArray, below: FloatArray, above: FloatArray, correlation: FloatArray
) -> FloatArray:
    """Compute the differences under one confusion matrix that a test does not reject, (..., 2) within [-1, 1].

    `value`, `below` and `above` (..., 4) are (p_a, p_b, f, Se) and their arms, `correlation` (..., 4, 4). The pass
    rates enter as observed, clipped values would hide the noise of a policy near an end; only a difference beyond +-J
    is tested as +-J. J = 0 rejects nothing.
    """
    first, second, false_pass, good = np.moveaxis(value, -1, 0)
    youden, zero = good - false_pass, np.zeros(value.shape[:-1])
    apart = np.clip(first - second, -np.abs(youden), np.abs(youden))
    delta = np.divide(apart, youden, out=np.zeros_like(zero), where=youden != 0)
    limits = []
    for end in (-1.0, 1.0):
        too_high = ((youden > 0) == (end < 0))[..., None]  # D > 0 between delta and this end
        down, up = np.where(too_high, below, above), np.where(too_high, above, below)
        constant = np.stack([down[..., 0], -up[..., 1], zero, zero], axis=-1)
        # where 0 lies between, the arms of f and Se change sides there: keep the piece that holds the limit
        between = delta * end < 0
        short = between & (apart**2 > _product(constant, correlation, constant))
        start, stop = np.where(between & ~short, 0.0, delta), np.where(short, 0.0, end)
        negative = (short == (end > 0))[..., None]  # the sign of delta on that piece
        arm_f, arm_good = np.where(negative, up, down)[..., 2], np.where(negative, down, up)[..., 3]
        slope = np.stack([zero, zero, arm_f, -arm_good], axis=-1)
        limits.append(_limit((apart, -youden), (constant, slope), correlation, start, stop))
    return np.where((youden == 0)[..., None], [-1.0, 1.0], np.stack(limits, axis=-1))


def pair_limits(shares: Shares, first: IntArray, second: IntArray) -> Callable[[FloatArray], FloatArray]:
    """Make the function of levels (pairs,) that gives limits (pairs, 2) of ``theta[first] - theta[second]``.

    They contain the difference of the values clipped to [0, 1].
    """
    theta, slope = _linearised(shares.value)
    error = np.einsum("pi,piqj,qj->pq", slope, shares.joint, slope)
    one = (shares.matrix[first] == shares.matrix[second])[:, None]
    own = np.arange(len(shares.value))
    inside = correlations(shares.joint[own, :, own])  # (P, 3, 3)
    # (p_a, p_b, f, Se): policies and places of the four
    policy = np.stack([first, second, first, first], axis=-1)
    place = np.array([PASSED, PASSED, FALSELY, GOOD])
    joint = shares.joint[policy[:, :, None], place[:, None], policy[:, None, :], place]
    together, together_values = correlations(joint), correlations(error)[first, second]
    difference = theta[first] - theta[second]

    def limits(level: FloatArray) -> FloatArray:
        low_a, high_a = arms(shares, first, level)
        low_b, high_b = arms(shares, second, level)

        def four(a: FloatArray, b: FloatArray) -> FloatArray:
            return np.stack([a[:, PASSED], b[:, PASSED], a[:, FALSELY], a[:, GOOD]], axis=-1)

        values = four(shares.value[first], shares.value[second])
        shared = difference_limits(values, four(low_a, low_b), four(high_a, high_b), together)
        of_a = np.abs(value_limits(shares.value[first], low_a, high_a, inside[first]) - theta[first, None])
        of_b = np.abs(value_limits(shares.value[second], low_b, high_b, inside[second]) - theta[second, None])
        reach = of_a**2 + of_b[:, ::-1] ** 2 - 2 * together_values[:, None] * of_a * of_b[:, ::-1]
        apart = difference[:, None] + np.array([-1.0, 1.0]) * np.sqrt(np.maximum(reach, 0.0))
        found = np.clip(np.where(one, shared, apart), -1.0, 1.0)
        return np.stack([np.minimum(found[:, 0], difference), np.maximum(found[:, 1], difference)], axis=-1)

    return limits


def _linearised(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values clipped to [0, 1], (P,), and the slopes of the unclipped in (p, f, Se), (P, 3)."""
    p, false_pass, good = value.T
    with np.errstate(divide="ignore", invalid="ignore"):
        theta = (p - false_pass) / (good - false_pass)
        slope = np.stack([np.ones_like(p), theta - 1.0, -theta], axis=-1) / (good - false_pass)[:, None]
    return np.clip(theta, 0.0, 1.0), slope


def _product(left: FloatArray, correlation: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("...i,...ij,...j->...", left, correlation, right))


def _limit(
    distance: tuple[FloatArray, FloatArray],
    moves: tuple[FloatArray, FloatArray],
    correlation: FloatArray,
    start: FloatArray,
    end: FloatArray,
) -> FloatArray:
    """Solve for the last x from `start`, which is not rejected, towards `end` that is not rejected either.

    D is ``distance[0] + distance[1] x``, its terms' arms are ``moves[0] + moves[1] x``.
    """
    constant = distance[0] ** 2 - _product(moves[0], correlation, moves[0])
    half = distance[0] * distance[1] - _product(moves[0], correlation, moves[1])
    square = distance[1] ** 2 - _product(moves[1], correlation, moves[1])
    # the two roots without cancellation
    q = -(half + np.copysign(np.sqrt(np.maximum(half**2 - square * constant, 0.0)), half))
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = np.stack([q / square, constant / q])
    low, high = np.minimum(start, end), np.maximum(start, end)
    inside = np.clip(roots, low, high)
    beside = np.nan_to_num(np.abs(roots - inside), nan=np.inf)
    root = np.where(beside[0] <= beside[1], inside[0], inside[1])
    rejected = square * end**2 + 2 * half * end + constant > 0
    return np.where(rejected, root, end)
