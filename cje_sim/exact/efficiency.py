"""Semiparametric efficiency in finite models, as linear algebra: no gradient is guessed, every bound is a projection.

A *sample space* lists N outcomes with positive probability; every variable is a column of values, every function of the
data a vector (N,), and ``L2_0(P)`` is R^N with the inner product ``E[f g]``. A *tangent space* is a matrix (N, k) whose
columns span the scores of a model. Then

- the scores of one conditional law, known to be anything, are `scores`: mean zero given what it is conditioned on;
- a restriction ``E[Y | cell] = R(label of the cell)`` keeps the scores that move the cells' means together:
  `mean_restricted`;
- the canonical gradient is the projection of any gradient on the tangent space, `project` (weighted least squares), or
  the Riesz representer of the derivatives along it, `riesz`, for which no gradient need be known;
- the efficiency bound of the mean of one observation is its variance.

A parameter restricted to a cone (a monotone regression) enters by its local directions: `monotone_directions`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Functional = Callable[[FloatArray], float]

STEP = 1e-5  # of central differences: their error, of order step^2, and rounding, 1e-16 / step, balance near 1e-10
RANK = 1e-9  # singular values below this share of the largest count as zero
FLOOR = 1e-3  # ... or of this, where the largest is itself rounding: scores are of order 1


@dataclass(frozen=True)
class Space:
    """A finite sample space: probabilities (N,), all positive, and each variable's value at each outcome, (N,).

    `levels` has, of the variables of the table it was listed from, the place on their axis and its length.
    """

    probability: FloatArray
    columns: dict[str, FloatArray]
    levels: dict[str, tuple[IntArray, int]]

    def __getitem__(self, name: str) -> FloatArray:
        """Column of a variable."""
        return self.columns[name]


def sample_space(table: FloatArray, variables: Mapping[str, npt.ArrayLike]) -> Space:
    """List the outcomes of a joint law that have positive probability.

    Parameters
    ----------
    table : array
        Joint probabilities, one axis per variable.
    variables : mapping of name to array
        The values of each axis, in order.

    Raises
    ------
    ValueError
        Where the table is no law, or an axis and its values have different lengths.

    Examples
    --------
    >>> space = sample_space(np.array([[0.5, 0.0], [0.25, 0.25]]), {"x": [0, 1], "y": [0, 1]})
    >>> space.probability.tolist(), space["x"].tolist()
    ([0.5, 0.25, 0.25], [0.0, 1.0, 1.0])
    """
    law = np.asarray(table, float)
    axes = [np.asarray(values, float) for values in variables.values()]
    if law.shape != tuple(map(len, axes)):
        raise ValueError(
            f"the table has shape {law.shape}, its variables {tuple(map(len, axes))}; they must agree"
        )
    if (law < 0).any() or abs(law.sum() - 1) > 1e-9:
        raise ValueError(f"a law has probabilities >= 0 that sum to 1; these sum to {law.sum():.12g}")
    there = law > 0
    grid = np.meshgrid(*axes, indexing="ij")
    columns = {name: values[there] for name, values in zip(variables, grid, strict=True)}
    places = zip(variables, np.nonzero(there), law.shape, strict=True)
    return Space(law[there], columns, {name: (place, size) for name, place, size in places})


def cells(space: Space, given: Iterable[str]) -> IntArray:
    """Number the cells in which all of these variables are constant, (N,); without any there is one.

    Examples
    --------
    >>> space = sample_space(np.full((2, 2), 0.25), {"x": [0, 1], "y": [0, 1]})
    >>> cells(space, ["x"]).tolist(), cells(space, []).tolist()
    ([0, 0, 1, 1], [0, 0, 0, 0])
    """
    names = list(given)
    if not names:
        return np.zeros(len(space.probability), np.int64)
    cell = np.zeros(len(space.probability), np.int64)
    for name in names:
        place, size = space.levels[name] if name in space.levels else _levels(space[name])
        cell = cell * size + place
    return np.asarray(np.unique(cell, return_inverse=True)[1], np.int64)


def conditional(space: Space, function: FloatArray, given: Iterable[str] = ()) -> FloatArray:
    """Conditional mean of a function (N,), or of each column of (N, k), as a function of the outcome.

    Examples
    --------
    >>> space = sample_space(np.array([[0.4, 0.1], [0.1, 0.4]]), {"x": [0, 1], "y": [0, 1]})
    >>> conditional(space, space["y"], ["x"]).tolist()
    [0.2, 0.2, 0.8, 0.8]
    """
    return _given_cells(space.probability, function, cells(space, given))


def variance(space: Space, function: FloatArray) -> float:
    """Variance of a function (N,)."""
    return float(space.probability @ (function - space.probability @ function) ** 2)


def scores(space: Space, of: Iterable[str], given: Iterable[str] = ()) -> FloatArray:
    """Scores of the law of some variables given others, unrestricted: functions of both with mean zero given `given`.

    Returns
    -------
    array, (N, k)
        Spanning, not a basis: one column per cell of all variables named.

    Examples
    --------
    >>> space = sample_space(np.full((2, 2), 0.25), {"x": [0, 1], "y": [0, 1]})
    >>> dimension(space, scores(space, ["y"], ["x"])), dimension(space, scores(space, ["x", "y"]))
    (2, 3)
    """
    of, given = list(of), list(given)
    cell = cells(space, of + given)
    indicators = (cell[:, None] == np.arange(cell.max() + 1)).astype(float)
    return np.asarray(indicators - conditional(space, indicators, given))


def mean_restricted(
    space: Space, tangent: FloatArray, moment: FloatArray, given: Iterable[str], shared: Iterable[str] | None
) -> FloatArray:
    """Scores of a tangent space that move ``E[moment | given]`` only as a function of `shared`.

    With scores of Y given (x, a, s), ``moment = Y`` and ``shared = ["s"]`` this is the tangent space of the mean
    restriction ``E[Y | x, a, s] = R(s)``, R unknown; with ``shared = None`` the conditional mean is known.

    Returns
    -------
    array, (N, j)

    Examples
    --------
    >>> space = sample_space(np.full((2, 2), 0.25), {"x": [0, 1], "y": [0, 1]})
    >>> free = scores(space, ["y"], ["x"])
    >>> [dimension(space, mean_restricted(space, free, space["y"], ["x"], known)) for known in (["x"], [], None)]
    [2, 1, 0]
    """
    moved = conditional(space, tangent * moment[:, None], given)
    if shared is not None:
        # least squares on the cells of `shared`: zero exactly if `moved` is a function of them
        moved = moved - conditional(space, moved, shared)
    root = np.sqrt(space.probability)[:, None]
    return tangent @ _null_space(root * moved)


def monotone_directions(values: FloatArray, tolerance: float = 1e-9) -> FloatArray:
    """Directions (k, j) of a nondecreasing function that stay inside the cone to both sides of it.

    A model of monotone regressions has, where the regression rises strictly, every direction: an inequality that does
    not bind restricts nothing. Where neighbours are equal only directions that keep them equal have two sides.

    Examples
    --------
    >>> monotone_directions(np.array([0.1, 0.1, 0.5])).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    if (np.diff(values) < -tolerance).any():
        raise ValueError(f"values {values.tolist()} fall; a monotone regression must not")
    block = np.concatenate([[0], np.cumsum(np.diff(values) > tolerance)])
    return np.asarray(block[:, None] == np.arange(block[-1] + 1), float)


def dimension(space: Space, tangent: FloatArray) -> int:
    """Dimension of a span."""
    return int(_orthonormal(space, tangent).shape[1])


def project(space: Space, function: FloatArray, tangent: FloatArray) -> FloatArray:
    """Projection of a function on a span in ``L2(P)``: weighted least squares.

    Of any gradient on the tangent space of a model it is the canonical gradient (efficient influence function).

    Examples
    --------
    >>> space = sample_space(np.full((2, 2), 0.25), {"x": [0, 1], "y": [0, 1]})
    >>> project(space, space["x"] + space["y"], scores(space, ["y"], ["x"])).tolist()
    [-0.5, 0.5, -0.5, 0.5]
    """
    root = np.sqrt(space.probability)
    basis = _orthonormal(space, tangent)
    return np.asarray(basis @ (basis.T @ (root * function)) / root).round(15)


def riesz(space: Space, tangent: FloatArray, derivatives: FloatArray) -> FloatArray:
    """Canonical gradient from the derivatives (k,) of a functional along the columns of a tangent space.

    The one function of the span with ``E[phi t] = d Psi(t)`` for each column t; no gradient need be known before.

    Raises
    ------
    ValueError
        Where the derivatives are not linear on the span: it has no gradient.

    Examples
    --------
    >>> space = sample_space(np.full(4, 0.25), {"y": [0, 1, 2, 3]})
    >>> span = scores(space, ["y"])
    >>> riesz(space, span, derivatives(space, lambda p: float(p @ space["y"]), span)).round(6).tolist()
    [-1.5, -0.5, 0.5, 1.5]
    """
    root = np.sqrt(space.probability)
    left, singular, right = np.linalg.svd(root[:, None] * tangent, full_matrices=False)
    kept = singular > RANK * max(FLOOR, singular.max(initial=0.0))
    coordinates = right[kept] @ derivatives / singular[kept]
    missed = np.abs(right[kept].T @ (singular[kept] * coordinates) - derivatives).max(initial=0.0)
    if missed > 1e-6 * max(1.0, np.abs(derivatives).max(initial=0.0)):
        raise ValueError(f"no gradient on this tangent space: derivatives are missed by {missed:.2g}")
    return np.asarray(left[:, kept] @ coordinates / root)


def derivative(space: Space, functional: Functional, score: FloatArray, step: float = STEP) -> float:
    """Pathwise derivative of a functional of the law, by a central difference along ``p (1 + t score)``.

    `functional` takes probabilities (N,) on the same outcomes. Along a score of a restricted model the path may leave
    the model at second order, which a derivative does not see.

    Examples
    --------
    >>> space = sample_space(np.full(4, 0.25), {"y": [0, 1, 2, 3]})
    >>> round(derivative(space, lambda p: float(p @ space["y"]), space["y"] - 1.5), 9)  # Cov(y, y)
    1.25
    """
    p, scale = space.probability, step / max(np.abs(score).max(), 1e-300)
    above, below = (functional(p * (1 + sign * scale * score)) for sign in (1, -1))
    return float((above - below) / (2 * scale))


def derivatives(space: Space, functional: Functional, tangent: FloatArray) -> FloatArray:
    """Pathwise derivatives (k,) along the columns of a tangent space."""
    return np.array([derivative(space, functional, score) for score in tangent.T])


def bound(space: Space, functional: Functional, tangent: FloatArray) -> float:
    """Efficiency bound: the variance of the canonical gradient, from derivatives alone.

    Examples
    --------
    >>> space = sample_space(np.full(4, 0.25), {"y": [0, 1, 2, 3]})
    >>> round(bound(space, lambda p: float(p @ space["y"]), scores(space, ["y"])), 6)  # Var Y
    1.25
    """
    return variance(space, riesz(space, tangent, derivatives(space, functional, tangent)))


def cramer_rao(
    law: Callable[[FloatArray], FloatArray], functional: Functional, at: FloatArray, step: float = STEP
) -> float:
    """Efficiency bound of a parametrised finite model, by Fisher information: a second way, without tangent spaces.

    ``d Psi' I^+ d Psi`` with ``I = sum_o dp(o) dp(o)' / p(o)`` and central differences in the parameters.

    Parameters
    ----------
    law : function of parameters (k,)
        Probabilities (N,), all positive; several parameters may give one law (the pseudo-inverse does not mind).
    functional : function of probabilities (N,)
    at : array, (k,)

    Examples
    --------
    >>> softmax = lambda t: np.exp(t) / np.exp(t).sum()
    >>> round(cramer_rao(softmax, lambda p: float(p @ [0, 1, 2, 3]), np.zeros(4)), 6)
    1.25
    """
    steps = step * np.eye(len(at))
    moved = np.stack([(law(at + h) - law(at - h)) / (2 * step) for h in steps])
    slopes = np.array([(functional(law(at + h)) - functional(law(at - h))) / (2 * step) for h in steps])
    information = (moved / law(at)) @ moved.T
    return float(slopes @ np.linalg.pinv(information, rcond=1e-7, hermitian=True) @ slopes)


def _levels(column: FloatArray) -> tuple[IntArray, int]:
    """Number of each outcome's value among the distinct values, and how many there are."""
    values, place = np.unique(column, return_inverse=True)
    return np.asarray(place, np.int64), len(values)


def _given_cells(probability: FloatArray, function: FloatArray, cell: IntArray) -> FloatArray:
    """Mean within each cell, spread over the outcomes."""
    indicators = cell[:, None] == np.arange(cell.max() + 1)
    share = probability @ indicators
    sums = (indicators * probability[:, None]).T @ function
    means = sums / (share if function.ndim == 1 else share[:, None])
    return np.asarray(means[cell])


def _orthonormal(space: Space, tangent: FloatArray) -> FloatArray:
    """Orthonormal columns (N, rank) of a span, multiplied by the root of the probabilities."""
    weighted = np.sqrt(space.probability)[:, None] * tangent
    left, singular, _ = np.linalg.svd(weighted, full_matrices=False)
    return np.asarray(left[:, singular > RANK * max(FLOOR, singular.max(initial=0.0))])


def _null_space(matrix: FloatArray) -> FloatArray:
    """Coefficients (k, j) that a matrix sends to zero."""
    _, singular, right = np.linalg.svd(matrix, full_matrices=True)
    rank = int((singular > RANK * max(FLOOR, singular.max(initial=0.0))).sum())
    return np.asarray(right[rank:].T)
