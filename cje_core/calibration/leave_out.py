"""Calibrators that leave out one oracle fold, or two: all of them in one compiled pass.

A held-out prediction ``f^(-k)(Z)`` needs K fits. A delete-one-fold jackknife of an estimator that cross-fits needs
``f^(-j,-k)`` besides, in the rerun without fold j for the rows of fold k. These are symmetric in j and k, and
``f^(-j,-j)`` is ``f^(-j)``, which is also the rerun's pooled calibrator: K (K + 1) / 2 fits serve all reruns, and
whoever asks for one again gets the same.

The fits share what does not change between them: the distinct scores and their sums of labels by fold (monotone), or
the splines and their moments by fold (two-stage). What changes neither with labels nor with weights is apart in
`Ground`, so that many calibrators on the same rows share it. Between the first and the last knot of a block f is
constant: only these two are kept, and a prediction searches a few dozen knots in place of one per label.

The formulas are those of `cje_core.calibration.calibrator.fit`, on the basis of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from cje_core.calibration.isotonic import ends_of_blocks, pava_into, predict_at
from cje_core.calibration.two_stage import Basis, Points, design, locate
from cje_core.calibration.two_stage_kernels import (
    ORDER,
    TIE,
    coef_into,
    fit_into,
    index_at,
    rounded,
    second_stages,
)
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel


class Places(NamedTuple):
    """Rows where calibrators of one ground are evaluated."""

    score: FloatArray  # (r,) signed judge scores, the index of the monotone calibrator
    points: Points  # on the basis; without columns for the monotone calibrator


class Fits(NamedTuple):
    """F fitted calibrators; their knots are the ends of constant blocks."""

    coef: FloatArray  # (F, q) of the B-splines
    intercept: FloatArray  # (F,)
    quantum: FloatArray  # (F,)
    knot: FloatArray  # (F, most knots)
    value: FloatArray  # (F, most knots)
    n_knots: IntArray  # (F,); 0 where no label was left to fit on


@dataclass(frozen=True, eq=False)
class Ground:
    """Labelled rows, without their labels and weights.

    Parameters
    ----------
    z : array, shape (m, 1 + features)
        Judge scores, then covariates.
    fold : int array, shape (m,)
    n_folds : int
        Folds are 0..n_folds-1.
    increasing : bool
        Whether a higher judge score means a better response.
    basis : Basis or None
        Of the first stage; None for the monotone calibrator.
    """

    z: FloatArray
    fold: IntArray
    n_folds: int
    increasing: bool
    basis: Basis | None

    def places(self, z: FloatArray) -> Places:
        """Rows of Z on this ground."""
        score = (1.0 if self.increasing else -1.0) * z[:, 0]
        if self.basis is None:
            return Places(score, Points(np.empty((len(z), 0), dtype=np.intp), np.empty((len(z), 0, ORDER))))
        return Places(score, locate(self.basis, z))

    @cached_property
    def own(self) -> Places:
        """The labelled rows themselves."""
        return self.places(self.z)

    @cached_property
    def levels(self) -> tuple[FloatArray, IntArray]:
        """Distinct signed scores, and fold and score of each row as one code."""
        level, code = np.unique(self.own.score, return_inverse=True)
        return level, self.fold * len(level) + code

    @cached_property
    def columns(self) -> tuple[FloatArray, list[tuple[IntArray, FloatArray]]]:
        """Means of the columns of the design, and of each fold its rows and ``(1, design less means)``."""
        assert self.basis is not None
        x = design(self.basis, self.own.points)
        center = x.mean(axis=0)
        x = np.column_stack([np.ones(len(x)), x - center])
        return center, [(at, x[at]) for at in (np.flatnonzero(self.fold == k) for k in range(self.n_folds))]


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """The calibrators of a labelled slice without one fold, or two; each is fitted when first asked for.

    Parameters
    ----------
    ground : Ground
    label, weight : arrays, shape (m,)
        Oracle labels and positive row weights.
    monotone : bool
        Whether a two-stage index may not fall in S.
    """

    ground: Ground
    label: FloatArray
    weight: FloatArray
    monotone: bool = False

    def predict(
        self, places: Places, fold: IntArray, *, without: int | None = None, at: IntArray | None = None
    ) -> FloatArray:
        """``f^(-fold)`` of each row, or ``f^(-without, -fold)``; NaN where no label is left.

        Parameters
        ----------
        places : Places
            Rows of Z, by `Ground.places`.
        fold : int array, shape (r,)
            Of each row.
        without : int, optional
            Fold that no fit may see.
        at : int array, shape (r,), optional
            Which of the places; default: all.
        """
        if (fold < 0).any():
            raise ValueError("a prompt without labels has no fold here; fit the slice with every_fold=True")
        fits = self._once if without is None else self._twice
        which = _table(self.ground.n_folds)[-1 if without is None else without][fold]
        out = np.empty(len(fold))
        predict_into(
            np.arange(len(fold)) if at is None else at, which, places.score, *places.points,
            self.ground.basis is None, *fits, out,
        )  # fmt: skip
        return out

    def knots(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Index and value at the knots of ``f^(-k)``, the ends of its constant blocks."""
        n = self._once.n_knots[k]
        return self._once.knot[k, :n], self._once.value[k, :n]

    @cached_property
    def _once(self) -> Fits:
        return self._fit([(k, k) for k in range(self.ground.n_folds)])

    @cached_property
    def _twice(self) -> Fits:
        """Without two folds, after those without one."""
        n = self.ground.n_folds
        pairs = self._fit([(j, k) for j in range(n) for k in range(j + 1, n)])
        once, width = self._once, max(self._once.knot.shape[1], pairs.knot.shape[1])
        return Fits(
            np.concatenate([once.coef, pairs.coef]),
            np.concatenate([once.intercept, pairs.intercept]),
            np.concatenate([once.quantum, pairs.quantum]),
            np.concatenate([_wide(once.knot, width), _wide(pairs.knot, width)]),
            np.concatenate([_wide(once.value, width), _wide(pairs.value, width)]),
            np.concatenate([once.n_knots, pairs.n_knots]),
        )

    def _fit(self, left_out: Sequence[tuple[int, int]]) -> Fits:
        """Fit without each pair of folds."""
        ground, pairs = self.ground, np.array(left_out, dtype=np.intp).reshape(-1, 2)
        n_fits = len(pairs)
        if ground.basis is None:
            level, code = ground.levels
            total, summed = (
                np.bincount(code, w, ground.n_folds * len(level)).reshape(ground.n_folds, -1)
                for w in (self.weight, self.weight * self.label)
            )
            fits = _empty(n_fits, len(level), 0)
            monotone_fits(pairs, level, total, summed, fits.knot, fits.value, fits.n_knots)
            return _trimmed(fits)
        basis, points = ground.basis, ground.own.points
        center = float(self.label @ self.weight / self.weight.sum())  # a large offset costs no digits
        middle, by_fold = ground.columns
        moments = np.empty((ground.n_folds, len(basis.scale) + 2, len(basis.scale) + 2))
        for k, (at, x) in enumerate(by_fold):
            row = np.column_stack([x, self.label[at] - center])
            moments[k] = row.T @ (self.weight[at, None] * row)
        seen = np.array([float(len(at)) for at, _ in by_fold])
        fits = _empty(n_fits, len(self.label), int(basis.start[-1]) - ORDER * len(basis.column))
        g = np.empty((n_fits, len(self.label)))
        first_stages(
            pairs, moments, seen, center, middle, basis.scale, basis.start, basis.n_judge if self.monotone else 0,
            *points, ground.fold, fits.coef, fits.intercept, fits.quantum, g,
        )  # fmt: skip
        order = np.argsort(g, axis=1)  # NumPy's sort is four times as fast as a compiled one
        second_stages(order, g, self.label, self.weight, fits.quantum, fits.knot, fits.value, fits.n_knots)
        return _trimmed(fits)


@lru_cache
def _table(n_folds: int) -> IntArray:
    """Place of each fit among `Fits`: row j without fold j too, last row without one fold alone."""
    table = np.empty((n_folds + 1, n_folds), dtype=np.intp)
    table[-1] = np.arange(n_folds)
    np.fill_diagonal(table[:-1], np.arange(n_folds))
    upper = np.triu_indices(n_folds, 1)
    table[upper] = table[upper[::-1]] = n_folds + np.arange(len(upper[0]))
    return table


def _empty(n_fits: int, n_knots: int, n_coef: int) -> Fits:
    """Room for fits."""
    knot, value = np.zeros((n_fits, n_knots)), np.zeros((n_fits, n_knots))
    coef, none = np.zeros((n_fits, n_coef)), np.zeros(n_fits, dtype=np.intp)
    return Fits(coef, np.zeros(n_fits), np.zeros(n_fits), knot, value, none)


def _wide(values: FloatArray, width: int) -> FloatArray:
    """Columns of zeros up to a width."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))


def _trimmed(fits: Fits) -> Fits:
    """Knots without the room that none of the fits needs."""
    most = int(fits.n_knots.max(initial=0))
    return fits._replace(knot=fits.knot[:, :most].copy(), value=fits.value[:, :most].copy())


@Kernel
def monotone_fits(left_out, level, total, summed, knot, value, n_knots):  # type: ignore[no-untyped-def]
    """Isotonic regressions on the score from sums by fold and level."""
    size = len(level)
    mean, weight, scratch = np.empty(size), np.empty(size), np.empty((2, size))
    block_end = np.empty(size, dtype=np.int64)
    for f in range(len(left_out)):
        n = 0
        for s in range(size):
            w = y = 0.0
            for k in range(len(total)):
                if k != left_out[f, 0] and k != left_out[f, 1]:
                    w += total[k, s]
                    y += summed[k, s]
            if w > 0:
                knot[f, n], mean[n], weight[n] = level[s], y / w, w
                n += 1
        pava_into(mean, weight, n, value[f], scratch[0], scratch[1], block_end)
        n_knots[f] = ends_of_blocks(knot[f], value[f], n)


@Kernel
def first_stages(  # type: ignore[no-untyped-def]
    left_out, moments, seen, center, middle, scale, start, n_monotone, first, value, fold, coef, intercept, quantum, g
):  # fmt: skip
    """Ridge fits from moments by fold, and the index of each row; infinite, to be sorted last, where left out."""
    beta = np.empty(len(scale))
    for f in range(len(left_out)):
        j, k = left_out[f]
        kept, n_rows = np.zeros(moments.shape[1:]), 0.0
        for i in range(len(moments)):
            if i != j and i != k:
                kept += moments[i]
                n_rows += seen[i]
        if n_rows > 0:
            constant, _, _ = fit_into(kept, n_rows, n_monotone, beta)
            coef_into(beta, scale, start, coef[f])
            intercept[f] = constant + center
            for i in range(len(beta)):
                intercept[f] -= middle[i] * beta[i]
        low, high = np.inf, -np.inf
        for i in range(len(fold)):
            if fold[i] == j or fold[i] == k:
                g[f, i] = np.inf
            else:
                g[f, i] = index_at(first[i], value[i], coef[f], intercept[f])
                low, high = min(low, g[f, i]), max(high, g[f, i])
        quantum[f] = TIE * (high - low) if n_rows > 0 else 0.0


@Kernel
def predict_into(  # type: ignore[no-untyped-def]
    rows, which, score, first, value, monotone, coef, intercept, quantum, knot, fitted, n_knots, out
):  # fmt: skip
    """Prediction of each of some rows by the fit that it names."""
    for i in range(len(which)):
        f, r = which[i], rows[i]
        if n_knots[f] == 0:
            out[i] = np.nan
            continue
        at = score[r]
        if not monotone:
            at = rounded(index_at(first[r], value[r], coef[f], intercept[f]), quantum[f])
        out[i] = predict_at(at, knot[f], fitted[f], n_knots[f])
