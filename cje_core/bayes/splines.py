"""I-splines: a basis of nondecreasing functions from 0 to 1; a convex combination is monotone and stays in [0, 1].

An I-spline is the integral of an M-spline (Ramsay, 1988, "Monotone regression splines in action"). With weights w on
the simplex, w_0 for the constant 1 and a last weight for nothing at all,

    f(x) = w_0 + sum_j w_j I_j(x),      f(0) = w_0,      f(1) = 1 - w_last.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cje_core.checks import FloatArray

DEGREE = 2  # quadratic I-splines: f has a continuous slope
N_SPLINES = 8


def isplines(x: npt.ArrayLike, n_splines: int = N_SPLINES) -> FloatArray:
    """I-splines at points (K,) of [0, 1], shape (K, n_splines): columns rise from 0 at 0 to 1 at 1.

    The knots are uniform, since 60% of an LLM judge's scores may be one value, on which quantile knots collapse.

    Examples
    --------
    >>> isplines([0.0, 0.5, 1.0], 2).round(3).tolist()
    [[0.0, 0.0], [0.75, 0.25], [1.0, 1.0]]
    """
    if n_splines < DEGREE:
        raise ValueError(f"n_splines={n_splines}: at least {DEGREE} are needed for degree {DEGREE}")
    points = np.asarray(x, float)
    if points.ndim != 1 or not ((points >= 0) & (points <= 1)).all():
        raise ValueError("x must be a 1-d array of points in [0, 1]; map the scale first")
    return np.asarray(np.cumsum(_bsplines(n_splines)(points)[:, ::-1], axis=1)[:, ::-1][:, 1:])


@lru_cache(maxsize=32)
def _bsplines(n_splines: int) -> Any:
    """The B-splines whose sums, from the j-th on, are an integral of M-splines: they are of one degree more."""
    from scipy.interpolate import BSpline  # a tenth of a second that analyses without a posterior do not need

    inner = np.linspace(0.0, 1.0, n_splines - DEGREE + 2)
    knots = np.concatenate([np.zeros(DEGREE), inner, np.ones(DEGREE)])
    # evaluated as a spline with a row of coefficients each, a fifth of the cost of a sparse design matrix
    return BSpline(knots, np.eye(n_splines + 1), DEGREE)
