"""The labelled slice as sufficient statistics per judge level, both scales mapped to [0, 1].

LLM judges give 13-20 distinct scores, so m labels collapse to K levels with counts n_k, label sums s_k and one sum of
squares; the likelihood of any calibrator f needs no more, and a sampler's cost does not depend on m. A continuous
judge is binned to `MAX_LEVELS` equal cells first.

Labels of one cluster are not independent. Where clusters hold several labels, all counts are divided by the design
effect of the isotonic residuals, ``sum_g (sum_{i in g} r_i)^2 / sum_i r_i^2``, if that is above 1: the likelihood is
raised to a power that gives it the information the clusters have (a magnitude adjustment). Known label probabilities
depend on the score alone, so they leave E[Y | S], and this likelihood, as they are.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.inference.sums import sum_by

MAX_LEVELS = 64


class Levels(NamedTuple):
    """Judge levels with the labels seen at each; ``level``, ``total`` and ``squares`` are on [0, 1] scales."""

    level: FloatArray  # (K,) increasing; 1 is the judge's best score
    n: FloatArray  # (K,) effective labels at each level (0 where there is none)
    total: FloatArray  # (K,) sum of labels, on the same count
    squares: float  # sum of squared labels, on the same count
    binary: bool  # labels are 0 and 1 only
    low: float  # oracle scale: label = low + width * y
    width: float


class Graded(NamedTuple):
    """`Levels`, and where every row stands on them."""

    levels: Levels
    at: IntArray  # level of each row of Rows
    label: FloatArray  # label of each row on [0, 1]; NaN where there is none
    share: float = 1.0  # what one label counts: 1 / design effect
    columns: FloatArray | None = None  # (rows, C) columns of the covariate effect, where the model has one


def eighteen_labels() -> tuple[Levels, IntArray, FloatArray]:
    """18 binary labels at three scores, as levels, and each label's level and value: what examples are made of.

    Examples
    --------
    >>> levels, at, label = eighteen_labels()
    >>> levels.n.tolist(), levels.total.tolist()  # labels, and the good among them
    ([4.0, 6.0, 8.0], [1.0, 3.0, 7.0])
    """
    n, good = np.array([4, 6, 8]), np.array([1, 3, 7])
    label = np.concatenate([np.arange(k) < g for k, g in zip(n, good, strict=True)]).astype(float)
    counts = n.astype(float), good.astype(float)
    levels = Levels(np.array([0.2, 0.5, 0.8]), *counts, squares=label.sum(), binary=True, low=0.0, width=1.0)
    return levels, np.repeat(np.arange(3), n), label


def grade(
    rows: Rows,
    fitted: OracleSlice,
    *,
    judge_range: tuple[float, float],
    oracle_range: tuple[float, float],
    max_levels: int = MAX_LEVELS,
) -> Graded:
    """Put rows and teaching labels on judge levels.

    `fitted` says which labels teach, and in which direction the judge points; its calibrator tells their design effect.
    The ranges are the declared scales. More than `max_levels` distinct scores are binned to that many equal cells.
    """
    low, high = judge_range
    bottom, top = oracle_range

    def unit(score: FloatArray) -> FloatArray:
        x = (score - low) / (high - low)
        return np.asarray(np.clip(x if fitted.increasing else 1.0 - x, 0.0, 1.0))

    own, taught = unit(rows.score), unit(fitted.z[:, 0])
    every = np.concatenate([own, taught])
    level = np.unique(every)
    if len(level) > max_levels:
        cell = np.minimum((every * max_levels).astype(np.intp), max_levels - 1)
        known = np.bincount(cell, minlength=max_levels) > 0
        code = (np.cumsum(known) - 1)[cell]
        level = (np.flatnonzero(known) + 0.5) / max_levels
    else:
        code = np.searchsorted(level, every)
    y = (fitted.label - bottom) / (top - bottom)
    at_label = code[len(own) :]
    share = 1.0 / design_effect(fitted, rows.cluster)
    levels = Levels(
        level=level,
        n=share * sum_by(at_label, np.ones(len(y)), len(level)),
        total=share * sum_by(at_label, y, len(level)),
        squares=share * float((y**2).sum()),
        binary=bool(np.isin(y, (0.0, 1.0)).all()) if len(y) else False,
        low=float(bottom),
        width=float(top - bottom),
    )
    return Graded(levels, code[: len(own)], (rows.label - bottom) / (top - bottom), share)


def design_effect(fitted: OracleSlice, cluster: IntArray) -> float:
    """Variance of a sum of the slice's residuals under the prompts' clusters (n,), over that without; at least 1."""
    if fitted.calibrator is None:
        return 1.0
    residual = fitted.label - predict(fitted.calibrator, fitted.z)
    _, code = np.unique(cluster[fitted.prompt], return_inverse=True)
    together = float((np.bincount(code, residual) ** 2).sum())
    apart = float((residual**2).sum())
    return max(together / apart, 1.0) if apart > 0 else 1.0
