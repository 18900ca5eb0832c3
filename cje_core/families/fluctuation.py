"""Logistic fluctuation: the targeting step of a TMLE, as numba kernels on arrays.

With outcomes and predictions on [0, 1], the fluctuation ``q_eps = expit(logit(q) + eps * H)`` has the clever covariate
H (Direct: ``H = 1 / e(Z)`` on labelled rows), and eps solves the score equation ``sum w H (y - q_eps) = 0`` (the
paper's remark "TMLE equivalence" in the EIF derivation for Direct mode). The score falls in eps, so the root is unique.
"""

import math

import numpy as np

from cje_core.checks import FloatArray
from cje_core.compiled import Kernel

# Predictions are kept this far from 0 and 1, where a logit says nothing (as in the R package tmle).
EDGE = 0.005
MAX_SHIFT = 40.0  # largest shift of a logit: by then a prediction is 0 or 1 to rounding


@Kernel
def logit_inside(share):  # type: ignore[no-untyped-def]
    """Logit of a share that is first moved to within ``[EDGE, 1 - EDGE]``."""
    inside = min(max(share, EDGE), 1.0 - EDGE)
    return math.log(inside / (1.0 - inside))


@Kernel
def expit(x):  # type: ignore[no-untyped-def]
    """``1 / (1 + exp(-x))``; arguments are bounded by the largest shift, so nothing overflows."""
    return 1.0 / (1.0 + math.exp(-x))


@Kernel
def fluctuate(offset, clever, outcome, weight, n):  # type: ignore[no-untyped-def]
    """Solve ``sum_i weight_i (outcome_i - expit(offset_i + eps * clever_i)) = 0`` for eps, over the first n rows.

    ``weight`` already holds the factor H of the score. Newton steps inside a bracket that each step narrows; outcomes
    that are all 0 or all 1 have no finite root and get the end of the bracket: predictions of 0 or 1 to rounding.
    """
    smallest, total = clever[0], 0.0
    for i in range(n):
        smallest = min(smallest, clever[i])
        total += weight[i]
    low, high = -MAX_SHIFT / smallest, MAX_SHIFT / smallest
    eps = 0.0
    for _ in range(200):
        score, slope = 0.0, 0.0
        for i in range(n):
            q = expit(offset[i] + eps * clever[i])
            score += weight[i] * (outcome[i] - q)
            slope += weight[i] * clever[i] * q * (1.0 - q)
        if abs(score) <= 1e-14 * total:
            break
        if score > 0:
            low = eps
        else:
            high = eps
        following = eps + score / slope if slope > 0 else 0.5 * (low + high)
        if not low < following < high:
            following = 0.5 * (low + high)
        if following == eps:
            break
        eps = following
    return eps


def targeted(
    guess: FloatArray,
    clever: FloatArray,
    own_guess: FloatArray,
    own_clever: FloatArray,
    label: FloatArray,
    own_weight: FloatArray,
    scale: tuple[float, float],
) -> tuple[FloatArray, FloatArray]:
    """Fluctuate the predictions of evaluated and of labelled rows so that the labelled residuals average to zero.

    Parameters
    ----------
    guess, clever : arrays, shape (r,)
        Predictions of the rows that enter the mean, on the outcome's scale, and their clever covariate 1 / e.
    own_guess, own_clever, label, own_weight : arrays, shape (m,)
        Out-of-fold predictions, clever covariate, labels and score weights (row weight / e) of the labelled rows.
    scale : (float, float)
        Declared range of the outcome.

    Returns
    -------
    guess, own_guess : arrays
        Fluctuated predictions, inside the scale; ``sum own_weight * (label - own_guess) = 0``.
    """
    guess, own_guess = guess.copy(), own_guess.copy()
    target_into(guess, clever, own_guess, own_clever, label, own_weight, scale[0], scale[1] - scale[0])
    return guess, own_guess


@Kernel
def target_into(guess, clever, own_guess, own_clever, label, own_weight, low, width):  # type: ignore[no-untyped-def]
    """`targeted` in place, on a scale of this width."""
    m = len(label)
    outcome = np.empty(m)
    for j in range(m):
        own_guess[j] = _logit((own_guess[j] - low) / width)
        outcome[j] = (label[j] - low) / width
    eps = fluctuate(own_guess, own_clever, outcome, own_weight, m)
    for j in range(m):
        own_guess[j] = low + width * expit(own_guess[j] + eps * own_clever[j])
    for i in range(len(guess)):
        guess[i] = low + width * expit(_logit((guess[i] - low) / width) + eps * clever[i])


@Kernel
def _logit(share):  # type: ignore[no-untyped-def]
    """`logit_inside`, where there is a share: NaN stays NaN."""
    return logit_inside(share) if share == share else share
