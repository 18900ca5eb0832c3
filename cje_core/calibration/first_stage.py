"""A first stage of the user's choice: the index g(S, X) by any regressor, cross-fitted on the folds of the slice.

The paper's two-stage calibrator (its section on reward calibration) is isotonic regression on a smooth index g. Here g
is any object with ``fit(X, y)`` and ``predict(X)``, as those of scikit-learn, and every response of fold k, labelled or
not, has the index of a regressor that never saw that fold:

    S*_i = g^(-k(i))(S_i, X_i)        f = isotonic regression of Y on S*

So the index of a response is that of a score by a judge who never saw its label, and all else (calibrator, tests of the
judge, transport audits, off-policy estimators, posteriors) takes S* in the place of the judge score. It is cut at the
oracle range and mapped affinely to the judge's, which changes no isotonic fit.

What errors count: f is that of Direct with a monotone calibrator, given the indices. Own labels and probes correct
whatever the index is. Of borrowed values the error of having learned g itself is not counted, nor is it in f^(-k) that
the indices of other folds were learned with labels of fold k; both fall with the number of labels, and a regressor that
interpolates its labels makes them large.
"""

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cje_core.checks import FloatArray, IntArray
from cje_core.data.errors import DataError


class Regressor(Protocol):
    """A regressor as scikit-learn has them; ``fit`` may take ``sample_weight``."""

    def fit(self, X: FloatArray, y: FloatArray) -> Any:
        """Learn from rows X, shape (m, 1 + features), and labels y, shape (m,)."""

    def predict(self, X: FloatArray) -> npt.ArrayLike:
        """Return the index of each row of X."""


@dataclass(frozen=True)
class LearnedIndex:
    """A first stage g(S, X) by a regressor; see the module.

    Parameters
    ----------
    regressor : object with ``fit(X, y)`` and ``predict(X)``
        It predicts the label. Copied before each fit, so that it stays as it is.
    covariates : sequence of str
        Features that it sees beside the judge score, which comes first in X.
    """

    regressor: Regressor
    covariates: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raise where the regressor cannot be one."""
        for name in ("fit", "predict"):
            if not callable(getattr(self.regressor, name, None)):
                raise DataError(
                    f"first_stage={self.regressor!r}: it needs a method {name}(); give a regressor"
                )
        if isinstance(self.covariates, str):
            raise DataError(f"covariates={self.covariates!r}: give a list of names")
        object.__setattr__(self, "covariates", tuple(self.covariates))

    @property
    def name(self) -> str:
        """What the regressor calls itself, else its class: never its address, which no two runs share."""
        kind = type(self.regressor)
        return kind.__name__ if kind.__repr__ is object.__repr__ else repr(self.regressor)


class Taught(NamedTuple):
    """Labelled rows that a regressor learns from."""

    z: FloatArray  # (m, 1 + features)
    label: FloatArray  # (m,)
    weight: FloatArray  # (m,)
    fold: IntArray  # (m,)


def cross_fitted(regressor: Regressor, taught: Taught, z: FloatArray, fold: IntArray) -> FloatArray:
    """Predict each row of Z by a copy of the regressor that was fitted without the row's fold, shape (r,)."""
    weighted = "sample_weight" in inspect.signature(regressor.fit).parameters
    if not weighted and np.ptp(taught.weight) > 0:
        raise DataError(
            f"first_stage={regressor!r}: fit() takes no sample_weight, and the labels were drawn with different "
            "probabilities; give a regressor that takes it"
        )
    out = np.empty(len(z))
    for k in np.unique(fold):
        train, mine = taught.fold != k, fold == k
        if not train.any():
            raise DataError(
                f"first_stage: all labels lie in fold {k}, so nothing is left to learn without it"
            )
        model = copy.deepcopy(regressor)
        options = {"sample_weight": taught.weight[train]} if weighted else {}
        fitted = model.fit(taught.z[train], taught.label[train], **options)
        predicted = np.asarray((model if fitted is None else fitted).predict(z[mine]), dtype=float).reshape(
            -1
        )
        if predicted.shape != (mine.sum(),) or not np.isfinite(predicted).all():
            raise DataError(
                f"first_stage={regressor!r}: predict() gave shape {predicted.shape} for {mine.sum()} rows, or numbers "
                "that are not finite; it must give one finite number a row"
            )
        out[mine] = predicted
    return out


def to_judge_range(
    index: FloatArray, oracle_range: tuple[float, float], judge_range: tuple[float, float]
) -> FloatArray:
    """Map predictions of the label to the judge's scale, cut at the oracle range.

    Examples
    --------
    >>> to_judge_range(np.array([-1.0, 0.5, 1.0]), (0.0, 1.0), (1.0, 5.0)).tolist()
    [1.0, 3.0, 5.0]
    """
    (low, high), (bottom, top) = oracle_range, judge_range
    return np.asarray(bottom + np.clip((index - low) / (high - low), 0.0, 1.0) * (top - bottom))
