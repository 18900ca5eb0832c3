"""I-splines: a basis of nondecreasing functions from 0 to 1; a convex combination is monotone and stays in [0, 1].

An I-spline is the integral of an M-spline (Ramsay, 1988, "Monotone regression splines in action"). With weights w on
the simplex, w_0 for the constant 1 and a last weight for nothing at all,

    f(x) = w_0 + sum_j w_j I_j(x),      f(0) = w_0,      f(1) = 1 - w_last.
"""

import numpy as np
import numpy.typing as npt
from scipy.interpolate import BSpline

from cje_core.checks import FloatArray

DEGREE = 2  # quadratic I-splines: f has a continuous slope
N_SPLINES = 8


def isplines(x: npt.ArrayLike, n_splines: int = N_SPLINES, *, degree: int = DEGREE) -> FloatArray:
    """I-spline basis on uniform knots over [0, 1].

    Uniform knots, since 60% of an LLM judge's scores may be one value, on which quantile knots collapse.

    Parameters
    ----------
    x : array, shape (K,)
        Points in [0, 1].
    n_splines : int
        J, at least ``degree``.
    degree : int

    Returns
    -------
    array, shape (K, J)
        Columns rise from 0 at 0 to 1 at 1.

    Examples
    --------
    >>> isplines([0.0, 0.5, 1.0], 2, degree=2).round(3).tolist()
    [[0.0, 0.0], [0.75, 0.25], [1.0, 1.0]]
    """
    if n_splines < degree:
        raise ValueError(f"n_splines={n_splines}: at least {degree} are needed for degree {degree}")
    points = np.asarray(x, float)
    if points.ndim != 1 or not ((points >= 0) & (points <= 1)).all():
        raise ValueError("x must be a 1-d array of points in [0, 1]; map the scale first")
    inner = np.linspace(0.0, 1.0, n_splines - degree + 2)
    knots = np.concatenate([np.zeros(degree), inner, np.ones(degree)])
    # the sum of the last B-splines of one degree more, from the j-th on, is an integral of M-splines
    basis = BSpline.design_matrix(points, knots, degree).toarray()
    return np.asarray(np.cumsum(basis[:, ::-1], axis=1)[:, ::-1][:, 1:])
