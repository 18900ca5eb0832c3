"""The spline posterior of borrowed values (`cje_core.formulas.borrowed`) on the rows of a data set.

Values, their influence and what limits at any level and differences need. Defined where each label of the slice is its
own cluster, labels were equally probable, and nothing but the judge score is used; elsewhere the balanced one-step
(`cje_core.families.direct.balance`) is what a policy borrows. Several policies may lend: their labels are one slice,
and scores are scaled by all of their responses.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.families.direct.balance import MIN_EFFECTIVE
from cje_core.formulas.borrowed import (
    Borrowed,
    Curve,
    Functional,
    at_nodes,
    between,
    effective,
    label_errors,
    locate,
    make_curve,
    own_functional,
    project,
)
from cje_core.formulas.covariance import covariance_root
from cje_core.inference.influence import MeanOver, Part
from cje_core.inference.sums import cluster_sums, sum_by


class Taught(NamedTuple):
    """The curve through the labels of a slice, and the scales that it maps between."""

    curve: Curve
    sign: float  # -1 where lower scores are better
    low: float  # of the oracle
    width: float
    prompt: IntArray  # (m,) of each label


class SplineValue(NamedTuple):
    """A value as it moves with the curve, in units of the oracle."""

    functional: Functional
    response: FloatArray  # (prompts,) influence of the responses drawn
    own: bool


def is_defined(rows: Rows, fitted: OracleSlice) -> bool:
    """Return whether the posterior is defined for this slice; see the module."""
    return bool(
        rows.teaches.any()
        and fitted.mode == "monotone"
        and fitted.z.shape[1] == 1
        and np.ptp(fitted.weight) == 0
        and len(np.unique(rows.cluster[fitted.prompt])) == len(fitted.prompt)
    )


def teach(rows: Rows, fitted: OracleSlice, judge: tuple[float, float], scale: tuple[float, float]) -> Taught:
    """Fit the curve to the labels of a slice; `judge` and `scale` are the ranges of judge and oracle."""
    of_source = np.isin(rows.policy, np.unique(rows.policy[rows.teaches])) & rows.evaluated
    score, weight = rows.score[of_source], rows.weight[of_source]
    if not len(score):
        score, weight = fitted.z[:, 0], fitted.weight
    sign = 1.0 if fitted.increasing else -1.0
    return teach_arrays(fitted.z[:, 0], fitted.label, fitted.prompt, (score, weight), judge, scale, sign)


def teach_arrays(
    score: FloatArray,
    label: FloatArray,
    prompt: IntArray,
    of_source: tuple[FloatArray, FloatArray],
    judge: tuple[float, float],
    scale: tuple[float, float],
    sign: float = 1.0,
) -> Taught:
    """Fit the curve to labels (m,); `of_source` are scores and weights of all responses of the labelled policies."""
    values, weight = of_source
    share = weight / weight.sum()
    center = float(share @ values)
    spread = float(np.sqrt(share @ (values - center) ** 2))
    low, width = scale[0], scale[1] - scale[0]
    ends = sorted(sign * end for end in judge)
    curve = make_curve(sign * score, (label - low) / width, (sign * center, spread), (ends[0], ends[1]))
    return Taught(curve, sign, low, width, prompt)


def borrow(
    taught: Taught, score: FloatArray, of_responses: MeanOver
) -> tuple[float, Part, Part, SplineValue]:
    """Value of a policy without labels, its errors from responses and from labels, and its functional.

    The error of the labels is NaN where fewer than `effective` 1.5 of them carry the value. Its influence is
    ``c_j e_j / (1 - h_j)``, in proportion so that its squares sum to the variance of the labels and of the curve.
    """
    mean, sampling, functional = _mean_of_curve(taught, score, of_responses)
    n, (c, curve, width) = of_responses.n, (functional.coefficient, taught.curve, taught.width)
    variance, df = label_errors(
        c, functional.fitted, functional.rest_draw, curve.variance, curve.square, curve.df
    )
    moves = c * np.copysign(np.sqrt(curve.square), curve.rest)
    size = float(moves @ moves)
    if size <= 1e-9 * variance:
        moves = c * np.sqrt(curve.variance)
        size = float(moves @ moves)
    moves *= width * np.sqrt(variance / size)
    labels = Part(n * sum_by(taught.prompt, moves, n), df, sum_by(taught.prompt, c, n))
    if effective(c) < MIN_EFFECTIVE:
        labels = Part(np.full(n, np.nan), np.nan)
    lent = SplineValue(_scaled(functional, taught), sampling.influence, False)
    return taught.low + mean + width * functional.offset, sampling, labels, lent


def own_value(
    taught: Taught,
    score: FloatArray,
    of_responses: MeanOver,
    own: BoolArray,
    of_labels: MeanOver,
    lam: float,
    value: float,
) -> SplineValue:
    """The value of a policy whose labels `own` (m,) are among the slice's, as it moves with the curve.

    `lam` is the weight of the judge in it, see `cje_core.formulas.borrowed.own_functional`.
    """
    _, sampling, responses = _mean_of_curve(taught, score, of_responses)
    _, own_sampling, labels = _mean_of_curve(taught, _scores(taught, own), of_labels)
    unit_value = (value - taught.low) / taught.width
    functional = own_functional(responses, labels, own, lam, unit_value)
    response = lam * sampling.influence + (1 - lam) * own_sampling.influence
    return SplineValue(_scaled(functional, taught), response, True)


def _scores(taught: Taught, own: BoolArray) -> FloatArray:
    """Judge scores of some labels."""
    curve = taught.curve
    return np.asarray(taught.sign * between(curve.right[own], curve.part[own], curve.node))


def _mean_of_curve(taught: Taught, score: FloatArray, over: MeanOver) -> tuple[float, Part, Functional]:
    """Weighted mean of f over scores in units of the oracle (above its low end), its sampling error, its functional."""
    curve = taught.curve
    right, part = locate(taught.sign * score, curve.node)
    f = curve.selection @ curve.draw
    mean, sampling = over.part(taught.width * between(right, part, f))
    return mean, sampling, project(curve, at_nodes(right, part, over.share, len(curve.node)))


def _scaled(functional: Functional, taught: Taught) -> Functional:
    """The functional in units of the oracle."""
    width = taught.width
    return functional._replace(
        draw=width * functional.draw,
        rest_draw=width * functional.rest_draw,
        offset=taught.low + width * functional.offset,
    )


def join(
    taught: Taught, values: Sequence[SplineValue | None], cluster: IntArray | None, *, pooled: bool = False
) -> Borrowed:
    """Put the values of one curve side by side; policies without one are NaN. `cluster` is that of each prompt.

    Where prompts are `pooled`, their products are not known yet: ``response`` is then the error of each
    (`cje_core.workflow.reading.pooled.Pooled.joined`).
    """
    curve, width = taught.curve, taught.width
    known = next(one for one in values if one is not None)
    draw, _, coefficient, *_ = (np.full(np.shape(x), np.nan) for x in known.functional)
    blank = Functional(draw, draw, coefficient, coefficient, np.nan)
    parts = [blank if one is None else one.functional for one in values]
    draws, rest_draws, coefficients, fitted = (
        np.stack(column) for column in zip(*(one[:4] for one in parts), strict=True)
    )
    n = len(known.response)
    sums = (
        cluster_sums(np.stack([np.zeros(n) if one is None else one.response for one in values]), cluster) / n
    )
    return Borrowed(
        draws,
        rest_draws,
        coefficients,
        fitted,
        np.array([one.offset for one in parts]),
        sums if pooled else covariance_root(sums @ sums.T),
        np.array([one is not None and one.own for one in values]),
        curve.selection,
        width**2 * curve.variance,
        width**2 * curve.square,
        curve.df,
    )
