"""Borrowed labels weighted so that their judge scores match another policy's: the balanced one-step.

Estimand: ``V = E[Y]`` of a policy without labels of its own, valid if ``E[Y | Z]`` is that of the labelled slice. Its
plug-in ``mean f(Z)`` is off by the error of the fit f, and an isotonic fit is steepest where it followed the noise, so
plug-ins of policies at the two ends of the judge's scale are driven apart. Held-out residuals
``r_j = Y_j - f^(-k)(Z_j)`` of the slice show by how much:

    V = sum_i share_i f(Z_i) + sum_j a_j r_j,    a_j = bbar' (B'WB)^- b_j w_j

where b_j holds a constant, the judge score, one natural cubic term of it (knots at the .10, .50 and .90 quantiles of
the labelled scores; left out where these are not three distinct values) and the covariates in a line; bbar is the mean
of b over the policy's responses and w_j the inverse label probability. The weights a sum to one and give the labelled
slice the policy's means of all these terms ("balance", as in the calibration of survey weights), so whatever part of
``E[r | Z]`` they span is removed, and no density ratio is estimated.

Influence: ``f(Z_i) - mean f`` on the responses and ``c_j e_j`` on the labels. Here e are the residuals of r on B with
squares made unbiased (HC2: ``e_j / sqrt(1 - h_j)``, h the leverage; for a cluster of labels ``(I - H_gg)^(-1/2) e_g``:
Bell and McCaffrey 2002), and ``c_j = a_j + leverage_j``, the leverage of label j on ``sum_i share_i f(Z_i) - sum_j a_j
f(Z_j)``: what of the fit's own error the correction does not take out again. With covariates the labels also move the
index of the fit (`cje_core.calibration.two_stage.index_influence`) at that difference of two means.

Values are printed only where the judge passes its test, so what of the labels' influence phi moves with the statistic
is larger by `Informative.widening` (`cje_core.calibration.informative` says why), with psi that of the correlation:

    phi + (widening - 1) psi <phi, psi> / <psi, psi>

over clusters of labels. This is linear in phi, so differences follow from levels. The labels' degrees of freedom are
the `effective_clusters` of a, less one, but never below 2; a difference has those of the difference of the policies' a
(`cje_core.inference.pairs.lent_df`). Those of c follow the blocks of the fit, which the noise has made.

Why neither c = a, the fit's own residuals, a balanced index, HC3 nor the degrees of freedom of c, and what covers how
often: ``docs/decisions.md``.

Failure modes: scores that no label reached, where the terms of B extrapolate (`supported` refuses them); transport that
fails.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrator import index, knot_mass, label_leverage, predict
from cje_core.calibration.informative import Informative
from cje_core.calibration.oracle_slice import OracleSlice, held_out, outside
from cje_core.calibration.two_stage import index_influence
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.data.arrays import Rows
from cje_core.inference.influence import Part, cr1_factor, effective_clusters
from cje_core.inference.sums import sum_by

KNOTS = (0.1, 0.5, 0.9)  # quantiles of the labelled scores
MAX_LEVERAGE = 0.95  # beyond it 1 / (1 - h) answers to rounding
RANK = 1e-7  # singular values of the scaled terms below this share of the largest do not count
MAX_OUTSIDE, ALLOWANCE = 0.05, 3.0  # share of responses outside the range of the labels, see `supported`
MIN_EFFECTIVE = 1.5  # labelled clusters behind a value: below, it is all but one label that speaks


class Terms(NamedTuple):
    """The functions of Z that are balanced."""

    center: FloatArray  # (1 + features,)
    scale: FloatArray
    knot: FloatArray  # (3,) in scaled units, or empty for a line


class Lesson(NamedTuple):
    """What a labelled slice lends to any policy: its residuals, and terms that are orthonormal under its weights."""

    terms: Terms
    turn: FloatArray  # (k, r): the columns of ``evaluate(terms, z) @ turn`` are orthonormal
    row: FloatArray  # (m, r): those of the labelled rows
    weight: FloatArray  # (m,), summing to one; 0 where a label lends nothing
    residual: FloatArray  # (m,): held-out residuals r
    noise: FloatArray  # (m,): what the terms leave of them, with unbiased squares (HC2)
    n_clusters: int


def make_terms(z: FloatArray) -> Terms:
    """Terms for labelled rows z, shape (m, 1 + features)."""
    center, scale = z.mean(axis=0), z.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    ordered = np.sort((z[:, 0] - center[0]) / scale[0])
    knot = np.array([middle_quantile(ordered, level) for level in KNOTS])
    return Terms(center, scale, knot if (np.diff(knot) > 0).all() else np.empty(0))


def middle_quantile(ordered: FloatArray, level: float) -> float:
    """Quantile of sorted values that changes neither with their direction nor when each is counted twice.

    ``averaged_inverted_cdf`` of `numpy.quantile`, in a tenth of the time.

    Examples
    --------
    >>> middle_quantile(np.array([1.0, 2.0, 3.0, 9.0]), 0.5)
    2.5
    """
    at = len(ordered) * level - 1
    low = int(np.floor(at))
    first, after = (float(ordered[min(max(k, 0), len(ordered) - 1)]) for k in (low, low + 1))
    return (first + after) / 2 if at == low else after


def evaluate(terms: Terms, z: FloatArray) -> FloatArray:
    """The terms at each row of z: 1, S, covariates, a natural cubic of S (linear beyond the outer knots)."""
    out = np.empty((len(z), 1 + z.shape[1] + (len(terms.knot) > 0)))
    terms_into(z, *terms, out)
    return out


@Kernel
def terms_into(z, center, scale, knot, out):  # type: ignore[no-untyped-def]
    """`evaluate` (filled)."""
    n_columns = z.shape[1]
    for i in range(len(z)):
        out[i, 0] = 1.0
        for c in range(n_columns):
            out[i, 1 + c] = (z[i, c] - center[c]) / scale[c]
        if len(knot):
            x = out[i, 1]
            first, middle, last = max(x - knot[0], 0.0), max(x - knot[1], 0.0), max(x - knot[2], 0.0)
            first, middle, last = first * first * first, middle * middle * middle, last * last * last
            out[i, 1 + n_columns] = (first - last) / (knot[2] - knot[0]) - (middle - last) / (
                knot[2] - knot[1]
            )


def make_lesson(
    rows: Rows, fitted: OracleSlice, within: BoolArray | None = None, shift: FloatArray | None = None
) -> Lesson:
    """Residuals, terms and leverages of the slice: the same for every policy that borrows.

    Only the labels ``within`` lend (the others teach f all the same, and have weight 0); ``shift`` (m,) is taken from
    each label's residual besides f.
    """
    lends = np.ones(len(fitted.label), dtype=bool) if within is None else within
    terms = make_terms(fitted.z[lends])
    b = evaluate(terms, fitted.z)
    weight = np.where(lends, fitted.weight, 0.0)
    weight /= weight.sum()
    root = np.sqrt(weight)[:, None]
    size = np.sqrt(((root * b) ** 2).sum(axis=0))
    size = np.where(size > 0, size, 1.0)
    _, spread, axis = np.linalg.svd(root * b / size, full_matrices=False)
    kept = spread > RANK * spread[0]
    turn = (axis[kept] / spread[kept, None]).T / size[:, None]
    row = b @ turn
    residual = fitted.label - held_out(fitted, fitted.z, fitted.prompt)
    if shift is not None:
        residual -= shift
    rest = residual - row @ (row.T @ (weight * residual))
    _, cluster = np.unique(rows.cluster[fitted.prompt], return_inverse=True)
    noise = rest + _taken_up(row, weight, rest, cluster)
    return Lesson(terms, turn, row, weight, residual, noise, len(np.unique(cluster[lends])))


def _taken_up(row: FloatArray, weight: FloatArray, rest: FloatArray, cluster: IntArray) -> FloatArray:
    """What the fit took from the residuals e: added to them, it makes their squares unbiased.

    With X the rows of cluster g times sqrt(w), ``X'X`` their Gram matrix and orthonormal columns over all clusters,
    ``(I - X X')^(-1/2) e = e + X F X'e``. F has the eigenvectors of ``X'X`` and, for its eigenvalues h (the leverages,
    cut at `MAX_LEVERAGE`), the eigenvalues ``1 / (s + s^2)``, ``s = sqrt(1 - h)``.
    """
    n_clusters, rank = int(cluster.max()) + 1, row.shape[1]
    if n_clusters == len(row):  # each label's own: its leverage is the only eigenvalue
        alone = weight * (row**2).sum(axis=1)
        left = np.sqrt(1 - np.minimum(alone, MAX_LEVERAGE))
        return np.asarray(rest * alone / (left + left**2))
    gram, score = np.zeros((n_clusters, rank, rank)), np.zeros((n_clusters, rank))
    np.add.at(gram, cluster, weight[:, None, None] * row[:, :, None] * row[:, None, :])
    np.add.at(score, cluster, (weight * rest)[:, None] * row)
    leverage, axis = np.linalg.eigh(gram)
    left = np.sqrt(1 - np.minimum(leverage, MAX_LEVERAGE))
    turned = np.einsum("grs,gr->gs", axis, score) / (left + left**2)
    moved = np.einsum("grs,gs->gr", axis, turned)
    return np.asarray((row * moved[cluster]).sum(axis=1))


def balancing_weights(lesson: Lesson, z: FloatArray, share: FloatArray) -> FloatArray:
    """Weights a of the labelled rows that match the terms of the responses z, themselves weighted by `share`."""
    goal = share @ evaluate(lesson.terms, z) @ lesson.turn
    return np.asarray(lesson.weight * (lesson.row @ goal))


def balanced_residual(
    rows: Rows, fitted: OracleSlice, lesson: Lesson, z: FloatArray, share: FloatArray, judge: Informative
) -> tuple[float, Part]:
    """Balanced mean of the slice's held-out residuals for the policy with responses z, and its error.

    Responses (r, 1 + features) have weights `share` (r,) that sum to one; `judge` says what its test selects. The error
    is NaN where fewer than `MIN_EFFECTIVE` labelled clusters carry the mean.
    """
    f = fitted.calibrator
    assert f is not None
    n = len(rows.prompts)
    balance = balancing_weights(lesson, z, share)
    difference = (np.concatenate([z, fitted.z]), np.concatenate([share, -balance]))
    coefficient = balance + label_leverage(f, knot_mass(f, *difference), fitted.z, fitted.weight)
    effective = effective_clusters(sum_by(fitted.prompt, np.abs(coefficient), n), rows.cluster)
    value = float((balance * lesson.residual).sum())
    if effective < MIN_EFFECTIVE:
        return value, Part(np.full(n, np.nan), np.nan)
    moves = coefficient * lesson.noise
    if f.first_stage is not None:
        monotone = fitted.mode == "two_stage_monotone"
        taught = (fitted.z, fitted.label, fitted.weight)
        moves = moves + index_influence(f.first_stage, *taught, *difference, monotone=monotone)
    if judge.widening > 1:
        moves = widened(moves, judge, rows.cluster[fitted.prompt])
    lent = sum_by(fitted.prompt, balance, n)
    df = max(effective_clusters(lent, rows.cluster) - 1, 2.0)
    return value, Part(n * sum_by(fitted.prompt, moves, n), df, lent)


def density_ratio_residual(
    rows: Rows, fitted: OracleSlice, z: FloatArray, share: FloatArray
) -> tuple[float, Part]:
    """Residual of the slice's labels, reweighted to a policy that borrows them: what its plug-in is off by.

    The weight of label i is the density ratio of the policy's index to the slice's, constant on the blocks of the fit
    f^(-k) that never saw it (and linear between its knots); weights sum to one. A fit is steepest where it followed
    the noise, so the policies at the two ends of the judge's scale are driven apart; held-out residuals show by how
    much.
    """
    fold = fitted.fold[fitted.prompt]
    ratio, residual = np.zeros(len(fold)), np.zeros(len(fold))
    for k in np.unique(fold):
        held = fold == k
        f = fitted.without(int(k))
        assert f is not None  # a slice has labels in two folds or more
        n_blocks = int(f.block[-1]) + 1
        of_block = sum_by(f.block, knot_mass(f, z, share), n_blocks) / sum_by(f.block, f.weight, n_blocks)
        ratio[held] = np.interp(index(f, fitted.z[held]), f.knot, of_block[f.block])
        residual[held] = fitted.label[held] - predict(f, fitted.z[held])
    weight = ratio * fitted.weight
    if not weight.any():  # no label lies where the policy does
        return 0.0, Part(np.full(len(rows.prompts), np.nan), np.nan)
    weight = weight / weight.sum()
    shift = float((weight * residual).sum())
    n = len(rows.prompts)
    effective = max(effective_clusters(sum_by(fitted.prompt, weight, n), rows.cluster), 3.0)
    influence = n * sum_by(fitted.prompt, weight * (residual - shift), n)
    return shift, Part(influence * np.sqrt(cr1_factor(effective)), effective - 1)


def widened(moves: FloatArray, judge: Informative, cluster: IntArray) -> FloatArray:
    """The labels' influence, larger by `Informative.widening` along that of the test's statistic."""
    along, error = (sum_by(cluster, values, int(cluster.max()) + 1) for values in (judge.moves, moves))
    norm = float(along @ along)
    return moves + (judge.widening - 1) * float(error @ along) / norm * judge.moves if norm > 0 else moves


def supported(taught: FloatArray, n_clusters: int, z: FloatArray, share: FloatArray) -> bool:
    """Whether `n_clusters` clusters of labelled rows `taught` reach far enough to say something of the responses z.

    They do not where more than `MAX_OUTSIDE` of the responses lie outside the range of the labelled scores and
    covariates, with an allowance of three times the ``2 / (G + 1)`` that G labels leave out, on average, of their own
    law (for each column of Z). Outside is strict: a level of a discrete judge that carries one label is reached,
    however rare; how little is known there is for the standard error and its degrees of freedom to say. Why not
    quantiles of the labelled scores: ``docs/decisions.md``.
    """
    beyond = outside(taught, z).any(axis=1)
    left_out = 2 * z.shape[1] / (n_clusters + 1)
    return bool(share[beyond].sum() <= MAX_OUTSIDE + ALLOWANCE * left_out)
