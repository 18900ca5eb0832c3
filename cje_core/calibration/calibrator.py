"""Judge-to-oracle calibrators: R = f(Z), Z = (S, X) the judge score and covariates.

Every calibrator is an isotonic regression of the oracle label on a scalar *index* of Z (the paper's section on reward
calibration). The monotone calibrator's index is the judge score itself, so f is nondecreasing in S; the two-stage
calibrator's is a smooth first stage g(S, X), see `cje_core.calibration.two_stage`. The knots of the isotonic step are
the distinct index values of the labelled slice, between knots f is linear and outside it is constant, at fit and at
prediction alike; so the slice mean is preserved exactly: ``sum_L w f(Z) = sum_L w Y``.

Modes: ``monotone``; ``two_stage``, the paper's, free in S; ``two_stage_monotone``, whose f never falls in S at given X.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.isotonic import interpolate, isotonic, locate
from cje_core.calibration.two_stage import Basis, FirstStage, evaluate, fit_first_stage, make_basis
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.inference.sums import sum_by

MODES = ("monotone", "two_stage", "two_stage_monotone")  # of a fitted calibrator


class Calibrator(NamedTuple):
    """A fitted calibrator: an index of Z and an isotonic map of it; ``sign`` is -1 for a decreasing one."""

    mode: str  # one of MODES: how the index comes about
    knot: FloatArray  # distinct index values of the labelled slice, increasing
    value: FloatArray  # fitted label at each knot
    weight: FloatArray  # label weight at each knot
    block: IntArray  # constant block of each knot
    sign: float
    first_stage: FirstStage | None = None  # of the two-stage modes


def fit(
    z: FloatArray,
    label: FloatArray,
    weight: FloatArray | None = None,
    *,
    mode: str = "monotone",
    increasing: bool = True,
    basis: Basis | None = None,
) -> Calibrator:
    """Calibrator of ``E[Y | Z]`` on the labelled slice.

    Parameters
    ----------
    z : array, shape (m,) or (m, 1 + features)
        Judge scores, then covariates, ``m >= 1``.
    label, weight : arrays, shape (m,)
        Oracle labels, and positive row weights (inverse label probabilities; default: 1).
    mode : {"monotone", "two_stage", "two_stage_monotone"}
    increasing : bool
        Whether a higher judge score means a better response.
    basis : Basis, optional
        Of the first stage. Default: the basis of `z`; folds pass that of the whole slice.

    Examples
    --------
    >>> f = fit(np.array([0.1, 0.5, 0.5, 0.9]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> predict(f, np.array([0.0, 0.3, 0.5, 2.0])).round(6).tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    if len(z) == 0:
        raise ValueError("a calibrator needs at least one labelled row")
    w = np.ones(len(z)) if weight is None else np.asarray(weight, float)
    sign = 1.0 if increasing else -1.0
    first_stage = None
    if mode != "monotone":
        basis = make_basis(z, increasing) if basis is None else basis
        first_stage = fit_first_stage(basis, z, label, w, monotone=mode == "two_stage_monotone")
    knot, code = np.unique(signed_index(sign, first_stage, z), return_inverse=True)
    return on_levels(mode, knot, code, label, w, sign, first_stage)


def on_levels(
    mode: str,
    knot: FloatArray,
    code: IntArray,
    label: FloatArray,
    weight: FloatArray,
    sign: float,
    first_stage: FirstStage | None = None,
) -> Calibrator:
    """Calibrator whose index has these values; ``code`` is that of each label."""
    total = sum_by(code, weight, len(knot))
    value, block = isotonic(sum_by(code, weight * label, len(knot)) / total, total)
    return Calibrator(mode, knot, value, total, block, sign, first_stage)


def index(calibrator: Calibrator, z: FloatArray) -> FloatArray:
    """The scalar that the isotonic step sees, shape (r,)."""
    return signed_index(calibrator.sign, calibrator.first_stage, z)


def signed_index(sign: float, first_stage: FirstStage | None, z: FloatArray) -> FloatArray:
    """`index` of a calibrator that need not be fitted yet."""
    if first_stage is not None:
        return evaluate(first_stage, z)
    values = np.asarray(z, float)
    score = values if values.ndim == 1 else values[:, 0]
    return score if sign > 0 else -score


def predict(calibrator: Calibrator, z: FloatArray) -> FloatArray:
    """Calibrated reward R = f(Z) of each row of z: linear between knots, constant outside them."""
    return interpolate(index(calibrator, z), calibrator.knot, calibrator.value)


def knot_mass(calibrator: Calibrator, z: FloatArray, weight: FloatArray) -> FloatArray:
    """Weight (of any sign) that rows of Z put on each knot, (K,): ``sum_i weight_i f(z_i) = sum_k mass_k value_k``."""
    return mass_at(calibrator, index(calibrator, z), weight)


def mass_at(calibrator: Calibrator, g: FloatArray, weight: FloatArray) -> FloatArray:
    """`knot_mass` of rows that have these values of the index."""
    mass = np.zeros(len(calibrator.knot))
    mass_into(g, weight, calibrator.knot, mass)
    return mass


@Kernel
def mass_into(g, weight, knot, mass):  # type: ignore[no-untyped-def]
    """Add the weight of each row to the knots beside it: all to an end that it lies beyond."""
    last, place = len(knot) - 1, np.empty(len(g), dtype=np.int32)
    locate(g, knot, len(knot), place)
    for i in range(len(g)):
        left = place[i]
        if left == last or g[i] <= knot[0]:
            mass[left] += weight[i]
        else:
            share = (g[i] - knot[left]) / (knot[left + 1] - knot[left])
            mass[left] += weight[i] * (1.0 - share)
            mass[left + 1] += weight[i] * share


def label_leverage(calibrator: Calibrator, mass: FloatArray, z: FloatArray, weight: FloatArray) -> FloatArray:
    """How far one unit of residual in each of the m labelled rows moves ``sum_k mass_k f_k``, shape (m,).

    The infinitesimal jackknife of isotonic regression: inside a block the fit is a weighted mean, so labelled row i
    of block b moves the functional by ``mass(b) * w_i / weight(b)`` times its residual ``Y_i - f_b``. Moves of the
    block boundaries are of second order. The mass (K,) is from `knot_mass`; z and weight are those of the fit.
    """
    block = calibrator.block
    per_block = np.bincount(block, mass) / np.bincount(block, calibrator.weight)
    return np.asarray(per_block[block[np.searchsorted(calibrator.knot, index(calibrator, z))]] * weight)
