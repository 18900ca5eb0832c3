"""First stage of the two-stage calibrator: a smooth index g(S, X) by penalised splines.

Estimand: ``E[Y | S, X]``, up to a nondecreasing transformation (the paper's section on reward calibration, "Reward
calibration (two-stage isotonic)"). The index is additive, ``g = intercept + sum_c s_c(z_c)``, each ``s_c`` a cubic
spline in one column of Z = (S, X): 8 knots once the slice has 32 rows, at its quantiles and distinct (judge scores
are heavily tied), constant outside the slice's range. A ridge penalty chosen by generalised cross-validation keeps
it smooth. The columns are cumulated B-splines (I-splines), each divided by its standard deviation: they span what the
B-splines span, but the penalty acts on the steps between neighbours, so between sparse levels g stays level where
penalised B-splines would fall back to the overall mean; and nonnegative coefficients make g nondecreasing in S given X.

The second stage is isotonic regression on the mid-rank ``ECDF(g)``, interpolated linearly
(`cje_core.calibration.oracle_slice`). The ECDF is linear between the training values of g, and so is f between their
ranks: the ranks cancel, and f is the isotonic regression on g itself, linear between knots. Values of g that differ
by rounding alone are made equal.

The knots depend on Z of the labelled slice and on no label, so folds and resamples share the basis and each refit
costs one small eigenproblem.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.two_stage_kernels import (
    ORDER,
    TIE,
    coef_into,
    fit_into,
    index_into,
    indices_into,
    locate_into,
    moved_sums_into,
    second_stages,
)
from cje_core.checks import FloatArray, IntArray

MIN_ROWS = 20  # labelled rows below which no first stage is fitted
N_KNOTS = 8
ROWS_PER_KNOT = 4


class Basis(NamedTuple):
    """Spline basis of the columns of Z that vary on the slice; it knows Z but no label."""

    column: IntArray  # (c,): which columns of Z
    knots: FloatArray  # extended knot vectors of these columns, one after another
    start: IntArray  # (c + 1,): where each begins
    scale: FloatArray  # (p,): standard deviation of the cumulated B-splines on the slice
    n_judge: int  # how many of the p columns belong to the judge score; they come first
    sign: float  # -1 where a higher judge score means a worse response


class FirstStage(NamedTuple):
    """A fitted index g."""

    basis: Basis
    beta: FloatArray  # (p,): of the scaled cumulated B-splines
    coef: FloatArray  # (q,): of the B-splines, the first of each column zero
    intercept: float
    quantum: float  # the index is rounded to multiples of this
    penalty: float
    edf: float  # effective degrees of freedom, intercept included


class Points(NamedTuple):
    """Rows of Z on a basis: per column the first nonzero B-spline and the values of the four."""

    first: IntArray  # (r, c)
    value: FloatArray  # (r, c, 4)


def make_basis(z: FloatArray, increasing: bool = True) -> Basis:
    """Basis for a labelled slice: judge scores, then covariates, shape (m, 1 + features).

    Examples
    --------
    >>> basis = make_basis(np.column_stack([np.linspace(0, 1, 40), np.ones(40)]))
    >>> basis.column.tolist(), len(basis.scale)  # the constant column is left out
    ([0], 9)
    """
    signed = _signed(z, 1.0 if increasing else -1.0)
    n_steps = min(N_KNOTS, max(len(z) // ROWS_PER_KNOT, 2)) - 1
    # observed quantiles by whole numbers, not interpolated ones: equal ones are equal to the last bit
    rank = np.maximum(-(-np.arange(n_steps + 1) * len(z) // n_steps) - 1, 0)
    column, extended = [], []
    for c in range(signed.shape[1]):
        knots = np.unique(np.sort(signed[:, c])[rank])
        if len(knots) > 1:
            column.append(c)
            extended.append(np.concatenate([[knots[0]] * (ORDER - 1), knots, [knots[-1]] * (ORDER - 1)]))
    start = np.cumsum([0] + [len(k) for k in extended]).astype(np.intp)
    n_columns = int(start[-1]) - (ORDER + 1) * len(column)
    basis = Basis(
        np.array(column, dtype=np.intp),
        np.concatenate(extended) if extended else np.empty(0),
        start,
        np.ones(n_columns),
        len(extended[0]) - ORDER - 1 if 0 in column else 0,
        1.0 if increasing else -1.0,
    )
    spread = design(basis, locate(basis, z)).std(axis=0)
    return basis._replace(scale=np.where(spread > 1e-9, spread, 1.0))


def _signed(z: FloatArray, sign: float) -> FloatArray:
    values = np.array(z, dtype=float, ndmin=1)
    values = values[:, None] if values.ndim == 1 else values
    values[:, 0] *= sign
    return values


def locate(basis: Basis, z: FloatArray) -> Points:
    """Rows of Z on the basis; values outside the slice's range count as its ends."""
    x = _signed(z, basis.sign)[:, basis.column]
    points = Points(np.empty(x.shape, dtype=np.intp), np.empty((*x.shape, ORDER)))
    locate_into(basis.knots, basis.start, x, points.first, points.value)
    return points


def design(basis: Basis, points: Points) -> FloatArray:
    """Scaled cumulated B-splines at the points, shape (r, p)."""
    rows, n_columns = points.first.shape
    dense = np.zeros((rows, int(basis.start[-1]) - ORDER * n_columns))
    at = points.first[:, :, None] + np.arange(ORDER)
    dense[np.arange(rows)[:, None, None], at] = points.value
    ends = basis.start - ORDER * np.arange(n_columns + 1)
    parts = [
        np.cumsum(dense[:, ends[c] : ends[c + 1]][:, ::-1], axis=1)[:, ::-1][:, 1:] for c in range(n_columns)
    ]
    return np.concatenate([np.empty((rows, 0)), *parts], axis=1) / basis.scale


def augmented(basis: Basis, points: Points, label: FloatArray) -> FloatArray:
    """Rows (1, design, label): a sum of their weighted outer products holds all that a ridge fit needs."""
    return np.column_stack([np.ones(len(label)), design(basis, points), label])


class SplineRows(NamedTuple):
    """What `two_stage_kernels.two_stage_fits` needs; without a first stage all is empty."""

    taught: FloatArray  # (m, p + 2): `augmented` rows of the labelled slice
    scale: FloatArray  # (p,), of the basis
    start: IntArray  # (c + 1,)
    n_monotone: int
    first: IntArray  # (L, c): the levels, that is the distinct rows of Z, on the basis
    value: FloatArray  # (L, c, 4)


def spline_rows(
    basis: Basis | None, level: FloatArray, z: FloatArray, label: FloatArray, *, monotone: bool = False
) -> SplineRows:
    """Arrays for bootstrap replicates of the two-stage calibrator; without a basis (monotone calibrator) empty ones.

    Levels (L, 1 + features) are the rows of Z at which the calibrator is wanted, the slice's among them; z and label
    are the labelled slice, `monotone` as in `fit_first_stage`.
    """
    if basis is None:
        nothing = np.empty(0)
        empty = np.empty((0, 0), dtype=np.intp)
        return SplineRows(np.empty((0, 0)), nothing, np.zeros(1, np.intp), 0, empty, np.empty((0, 0, ORDER)))
    taught = augmented(basis, locate(basis, z), label - label.mean())
    n_monotone = basis.n_judge if monotone else 0
    return SplineRows(taught, basis.scale, basis.start, n_monotone, *locate(basis, level))


def fit_first_stage(
    basis: Basis, z: FloatArray, label: FloatArray, weight: FloatArray, *, monotone: bool = False
) -> FirstStage:
    """Fit g on m labelled rows with positive weights.

    `monotone` makes g nondecreasing in S (nonincreasing for a decreasing basis) given X; the penalty is that of the
    unconstrained fit.
    """
    points = locate(basis, z)
    rows = augmented(basis, points, label)
    center = weight @ rows / weight.sum()  # a large offset costs no digits, of labels and of columns
    rows[:, 1:] -= center[1:]
    beta, coef = np.empty(len(basis.scale)), np.empty(int(basis.start[-1]) - ORDER * len(basis.column))
    moments = rows.T @ (weight[:, None] * rows)
    constant, penalty, edf = fit_into(moments, float(len(label)), basis.n_judge if monotone else 0, beta)
    intercept = float(constant + center[-1] - center[1:-1] @ beta)
    coef_into(beta, basis.scale, basis.start, coef)
    g = np.empty(len(label))
    index_into(points.first, points.value, coef, intercept, 0.0, g)
    return FirstStage(basis, beta, coef, intercept, TIE * float(np.ptp(g)), penalty, edf)


def evaluate(first_stage: FirstStage, z: FloatArray) -> FloatArray:
    """The index g of each row of Z, shape (r,); the value of a row does not depend on the rows beside it."""
    return evaluate_at(first_stage, locate(first_stage.basis, z))


def evaluate_at(first_stage: FirstStage, points: Points) -> FloatArray:
    """The index g of rows that are located already."""
    out = np.empty(len(points.first))
    index_into(points.first, points.value, first_stage.coef, first_stage.intercept, first_stage.quantum, out)
    return out


class IndexMoves(NamedTuple):
    """How far labels move a calibrator through its index, and the calibrators with the index moved both ways."""

    along: FloatArray  # (m, a): what each label moves, along each of a axes
    step: FloatArray  # (a,): a standard error along each
    coef: FloatArray  # (2 a, q): of the B-splines, moved by a step, then back by it
    quantum: FloatArray  # (2 a,)
    knot: FloatArray  # (2 a, most knots): of the second stage refitted on each index, ends of blocks only
    value: FloatArray
    n_knots: IntArray

    def influence(self, points: Points, order: IntArray, weight: FloatArray) -> FloatArray:
        """What each label moves of ``sum_j weight_j f(z_j)``; `order` sorts the points by about their index."""
        sums = np.empty(len(self.coef))
        first, value = points.first[order], points.value[order]
        moved_sums_into(first, value, np.asarray(weight, float)[order], *self[2:], sums)
        n = len(self.step)
        return np.asarray(self.along @ ((sums[:n] - sums[n:]) / (2 * self.step)))


def index_moves(
    first_stage: FirstStage, z: FloatArray, label: FloatArray, weight: FloatArray, *, monotone: bool = False
) -> IndexMoves:
    """How each label moves the index g, for any functional of the calibrator.

    Row i of the labelled slice moves the coefficients by ``b_i = (A + penalty I)^-1 x_i w_i e_i / (1 - h_i)``, e the
    residual of g and h the leverage (at the penalty found, and within the coefficients that are not held at zero, if
    `monotone`). A functional is a rough function of the coefficients, since the second stage has steps: a derivative,
    or the jackknife that leaves one label out, answers to single steps. So its slope is the central difference over one
    standard error either way, along each principal axis of ``sum_i b_i b_i'``.
    """
    basis, m = first_stage.basis, len(label)
    free = np.ones(len(basis.scale), dtype=bool)
    if monotone:
        free[: basis.n_judge] = first_stage.beta[: basis.n_judge] > 0
    taught = locate(basis, z)
    share = weight / weight.sum()
    x = design(basis, taught)[:, free]
    x = x - share @ x
    inverse = np.linalg.inv(x.T @ (share[:, None] * x) + first_stage.penalty * np.eye(x.shape[1]))
    leverage = share * (1 + ((x @ inverse) * x).sum(axis=1))
    residual = (label - evaluate(first_stage, z)) / (1 - leverage)
    moves = np.zeros((m, len(free)))
    moves[:, free] = (share * residual)[:, None] * (x @ inverse)
    variance, axis = np.linalg.eigh(moves.T @ moves)
    kept = variance > 1e-12 * variance.max(initial=0.0)
    step = np.sqrt(variance[kept])
    shift = (axis[:, kept] * step).T
    n_moves = 2 * len(step)
    coef = np.empty((n_moves, int(basis.start[-1]) - ORDER * len(basis.column)))
    for beta, out in zip(first_stage.beta + np.concatenate([shift, -shift]), coef, strict=True):
        coef_into(beta, basis.scale, basis.start, out)
    quantum, g = np.empty(n_moves), np.empty((n_moves, m))
    indices_into(coef, *taught, quantum, g)
    knot, value, n_knots = np.empty((n_moves, m)), np.empty((n_moves, m)), np.zeros(n_moves, dtype=np.intp)
    label, weight = np.asarray(label, float), np.asarray(weight, float)
    second_stages(np.argsort(g, axis=1), g, label, weight, quantum, knot, value, n_knots)
    most = int(n_knots.max(initial=0))
    return IndexMoves(
        moves @ axis[:, kept], step, coef, quantum, knot[:, :most].copy(), value[:, :most].copy(), n_knots
    )


def index_influence(
    first_stage: FirstStage,
    z: FloatArray,
    label: FloatArray,
    weight: FloatArray,
    new_z: FloatArray,
    new_weight: FloatArray,
    *,
    monotone: bool = False,
) -> FloatArray:
    """How far each label moves ``sum_j new_weight_j f(new_z_j)`` through the index g, the second stage refitted, shape
    (m,).

    The functional's weights may have any sign; see `index_moves`.
    """
    points = locate(first_stage.basis, new_z)
    order = np.argsort(evaluate_at(first_stage, points))
    return index_moves(first_stage, z, label, weight, monotone=monotone).influence(points, order, new_weight)
