"""Monotone maps from the judge score to weights, each fitted without one fold."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cje_core.calibration.leave_out import Ground, LeaveOut
from cje_core.checks import FloatArray, IntArray


class FoldMap(NamedTuple):
    """A fitted candidate: weight as a function of the score, linear between knots and constant outside them."""

    fold: int  # the fold it predicts; -1 for the map of all rows
    candidate: str  # "up" or "down"
    knot: FloatArray  # scores it bends at, increasing
    value: FloatArray  # its mean over the rows it was fitted on is one


@dataclass(frozen=True, eq=False)
class HeldOutMaps:
    """Isotonic maps of weights on a score, up and down, each fitted without one fold and of mean one where fitted.

    Parameters
    ----------
    weight, score : arrays, shape (n,)
    fold : int array, shape (n,)
    n_folds : int
    """

    weight: FloatArray
    score: FloatArray
    fold: IntArray
    n_folds: int

    @cached_property
    def mean_outside(self) -> FloatArray:
        """(n_folds,) mean weight of the rows outside each fold; 0 where there are none."""
        outside = [self.weight[self.fold != k] for k in range(self.n_folds)]
        return np.array([w.mean() if len(w) else 0.0 for w in outside])

    @cached_property
    def _fitted(self) -> dict[str, LeaveOut]:
        ones, z = np.ones(len(self.weight)), self.score[:, None]
        return {
            name: LeaveOut(Ground(z, self.fold, self.n_folds, name == "up", None), self.weight, ones)
            for name in ("up", "down")
        }

    def at(self, candidate: str, score: FloatArray, fold: IntArray) -> FloatArray:
        """The map that never saw a row's fold, at its score; 1 where the other folds hold no weight, and of "base"."""
        out = np.ones(len(score))
        some = self.mean_outside[fold] > 0
        if candidate != "base" and some.any():
            fits = self._fitted[candidate]
            out[some] = fits.predict(fits.ground.places(score[some, None]), fold[some])
            out[some] /= self.mean_outside[fold[some]]
        return out

    def map(self, candidate: str, k: int) -> tuple[FloatArray, FloatArray]:
        """Knots and values of the map without fold k."""
        knot, value = self._fitted[candidate].knots(k)
        value = value / self.mean_outside[k]
        return (knot, value) if candidate == "up" else (-knot[::-1], value[::-1])
