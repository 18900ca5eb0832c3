"""How far to lean on the judge: the tuned prediction behind the default of Direct.

Estimand: V = E[Y] of a policy with own labels L. Formula, with g a prediction of the label that was not fitted on the
row it is compared with (the paper's equation for theta_aug has g = f, the isotonic calibrator, in full weight):

    V_hat = mean over all rows of g  +  mean over L of (Y - g_own)
    g = mean(Y) + w_curve (c(S) - c(mean S)) + w_cal (f(Z) - mean(f)),      w >= 0,  w_curve + w_cal <= 1

* ``c`` is the logistic curve through the policy's own labels (`cje_core.families.direct.curve`), never against the
  declared direction; for row i of L it is fitted without the labels of i's cluster.
* ``f(Z) - mean(f)`` is the calibrator, any mode, about its mean label; for row i of L it is ``f^(-k)`` about the mean
  of the labels it was fitted on.
* The weights minimise the estimated variance of V_hat: least squares of the label's influence on the predictions'
  influence, by cluster, over the simplex (with few labels: see below). No weight at all gives the label mean; all
  weight on the calibrator gives theta_aug. This is power tuning ("PPI++: Efficient Prediction-Powered Inference") with
  two predictions.

Why two: with 25 labels an isotonic fit is noisy where a smooth curve would do, and where that will not do the
calibrator wins by much more than the curve can lose. Why no line: few labels that lean on one pay for it where a strong
judge bends, up to a sixth of the interval score; where it does not, the curve loses 1-2% (``docs/decisions.md``). Why
centred: the level of a held-out fit is one more noisy number, which the label mean already supplies; kept in, it widens
the interval by m / (m - 1) even when the judge is useless.

Few labels: the weights are averaged with those of the curve alone, in proportion 10 / m (of the calibrator alone, if
most of its labels are not the policy's own), so up to 10 labelled clusters one prediction takes part. Below 6 none:
so few labels cannot judge a judge. Unequal label weights count as Kish's number, ``(sum w)^2 / sum w^2``.

Uncertainty: the weights were fitted on the labels that judge them, so the label part is charged one degree of freedom
per weight in use (`charge`), like a regression; an average of two fits is charged the average.

Failure modes: with nearly constant labels (one failure among 25) every t interval is too short, this one too, which
is why binary ones are counted (`cje_core.families.intervals`); labels missing not at random bias everything.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import OracleSlice, held_out, mean_labels
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.data.arrays import Rows, taken
from cje_core.families.direct.curve import judge_curve
from cje_core.inference.influence import MeanOver, Part, mean_and_moves, mean_of_rows
from cje_core.inference.sums import gapless

MIN_TUNED = 6  # labelled clusters, by Kish's count, below which no prediction is weighed
SHRINKAGE = 10  # labelled clusters that the single prediction is worth


class TunedPrediction(NamedTuple):
    """A prediction of the label on two sets of rows; its level cancels in V_hat, its weights say where it came from."""

    # mean label and weighted curve, and the calibrator about its mean label (zero where it was not weighed): of the
    # evaluated rows, and of the own labelled ones, fitted without them
    offset: FloatArray
    calibrated: FloatArray
    own_offset: FloatArray
    own_calibrated: FloatArray
    weight_curve: float
    weight_calibrator: float
    spent: float  # share of the labels' degrees of freedom that the weights in use cost, see `charge`

    @property
    def evaluated(self) -> FloatArray:
        """The prediction g on the evaluated rows."""
        return self.offset + self.weight_calibrator * self.calibrated

    @property
    def own(self) -> FloatArray:
        """The prediction g on the own labelled rows, fitted without them."""
        return self.own_offset + self.weight_calibrator * self.own_calibrated


def tuned_prediction(
    rows: Rows,
    fitted: OracleSlice,
    index: IntArray,
    own: IntArray,
    own_weight: FloatArray,
    scale: tuple[float, float],
    means: tuple[MeanOver, MeanOver] | None = None,
) -> TunedPrediction:
    """The prediction that makes a policy's corrected value most precise; see the module.

    `index` and `own` are the policy's evaluated rows, and those of them with a label, which weigh `own_weight`, prompt
    weight over label probability. Then ``mean(evaluated) + mean(label - own)`` (with `mean_part`) is the value, and
    `charge` goes on its second part. ``scale`` is the declared one of the labels; ``means`` are those over the two sets
    of rows, where the caller has them.
    """
    if fitted.calibrator is None:
        raise ValueError("tuning needs a calibrator; this slice has too few labels to fit one")
    of_responses, of_labels = means or (
        mean_of_rows(rows, index, taken(rows.weight, index)),
        mean_of_rows(rows, own, own_weight),
    )
    code, n_clusters = gapless(rows.cluster[rows.prompt[own]])
    center, fold_center = mean_labels(fitted)
    calibrated = predict(fitted.calibrator, taken(rows.z, index)) - center
    own_calibrated = held_out(fitted, rows.z[own], rows.prompt[own])
    own_calibrated -= fold_center[fitted.fold[rows.prompt[own]]]
    curve, own_curve = np.zeros(len(index)), np.zeros(len(own))
    level, weight_curve, weight_calibrator, spent = tune(
        of_responses, of_labels, taken(rows.score, index), rows.score[own], rows.label[own], own_weight,
        np.arange(n_clusters) if code is None else code, n_clusters, calibrated, own_calibrated,
        1.0 if fitted.increasing else -1.0, scale[0], scale[1] - scale[0], len(fitted.label) > 2 * len(own),
        curve, own_curve,
    )  # fmt: skip
    for part in (curve, own_curve):
        part *= weight_curve
        part += level
    return TunedPrediction(
        curve, calibrated, own_curve, own_calibrated, weight_curve, weight_calibrator, spent
    )


@Kernel
def tune(  # type: ignore[no-untyped-def]
    of_responses, of_labels, score, own_score, label, own_weight, cluster, n_clusters, calibrated, own_calibrated,
    sign, low, width, lent, curve, own_curve,
):  # fmt: skip
    """Return mean label, the weights of curve and calibrator, and what they cost, see `charge`.

    Filled are the curve and, set to zero where it cannot be weighed, the calibrator: both about their means.

    Parameters
    ----------
    of_responses, of_labels : MeanOver
    score, calibrated, curve : arrays, shape (r,)
        Of the evaluated rows.
    own_score, label, own_weight, own_calibrated, own_curve : arrays, shape (m,)
        Of the labelled rows; the calibrator that has not seen the row's fold, NaN where there is none.
    cluster : int array, shape (m,)
        0..n_clusters-1.
    sign, low, width : float
        See `judge_curve`.
    lent : bool
        Whether most labels of the calibrator are not the policy's own.
    """
    target = np.empty(of_labels.n_clusters)
    level = mean_and_moves(of_labels, label, of_labels.cluster, target)
    mass, total, squares, known = np.zeros(n_clusters), 0.0, 0.0, True
    for j in range(len(label)):
        mass[cluster[j]] += own_weight[j]
        total += own_weight[j]
        known = known and np.isfinite(own_calibrated[j])
    for g in range(n_clusters):
        squares += mass[g] ** 2
    n_effective = np.round(total**2 / squares, 9)  # whole for equal weights
    if not (known and n_effective >= MIN_TUNED):
        calibrated[:], own_calibrated[:] = 0.0, 0.0
    if not n_effective >= MIN_TUNED:
        return level, 0.0, 0.0, 0.0
    kish_weight = own_weight * (n_effective / total)
    judge_curve(
        score, of_responses.share, own_score, label, kish_weight, cluster, n_clusters, sign, low, width, curve,
        own_curve,
    )  # fmt: skip
    a, b, d, p, q, size = moments(
        of_responses, of_labels, curve, own_curve, calibrated, own_calibrated, target
    )
    alone = min(SHRINKAGE / n_effective, 1.0)
    u, v = simplex_weights(a, b, d, p, q, 1e-9 * size)
    one, other = (0.0, 1.0) if lent else (1.0, 0.0)
    first, second = simplex_weights(one * a, 0.0, other * d, one * p, other * q, 1e-9 * size)
    n_used = (1 - alone) * ((u != 0) + (v != 0)) + alone * ((first != 0) + (second != 0))
    spent = n_used / (n_effective - 1) if n_used else 0.0
    return level, (1 - alone) * u + alone * first, (1 - alone) * v + alone * second, spent


@Kernel
def moments(  # type: ignore[no-untyped-def]
    of_responses, of_labels, curve, own_curve, calibrated, own_calibrated, target
):
    """Products of the influences of two predictions, by cluster, and of the labels' ``target``: aa, ab, bb, at, bt, tt.

    The influence of a prediction is that of its mean over the labels less that over the responses.
    """
    one, two = np.empty(len(target)), np.empty(len(target))
    lent = np.empty(len(target))
    mean_and_moves(of_labels, own_curve, of_labels.cluster, one)
    mean_and_moves(of_responses, curve, of_responses.cluster, lent)
    one -= lent
    mean_and_moves(of_labels, own_calibrated, of_labels.cluster, two)
    mean_and_moves(of_responses, calibrated, of_responses.cluster, lent)
    two -= lent
    a = b = d = p = q = size = 0.0
    for g in range(len(target)):
        a += one[g] * one[g]
        b += one[g] * two[g]
        d += two[g] * two[g]
        p += one[g] * target[g]
        q += two[g] * target[g]
        size += target[g] * target[g]
    return a, b, d, p, q, size


def charge(part: Part, spent: float) -> Part:
    """Charge a part for weights fitted on its own rows: variance over ``1 - spent``, degrees of freedom times it.

    With m equally weighted labelled clusters and q weights in use this is the regression's factor
    ``(m - 1) / (m - 1 - q)`` on the variance and ``df = m - 1 - q``.

    Examples
    --------
    >>> charged = charge(Part(np.array([3.0, -3.0]), 24.0), 2 / 24)
    >>> charged.df, (charged.influence**2 / 9).round(4).tolist()
    (22.0, [1.0909, 1.0909])
    """
    return Part(part.influence / np.sqrt(1 - spent), part.df * (1 - spent))


@Kernel
def simplex_weights(a, b, d, p, q, floor):  # type: ignore[no-untyped-def]
    """Two weights ``w >= 0, sum w <= 1`` that minimise ``w' gram w - 2 w' cross``; zero where one would gain nothing.

    ``gram = [[a, b], [b, d]]`` is positive semidefinite and ``cross = [p, q]``; a gain no larger than `floor` is
    rounding, not gain. The least of the minima over the faces of the triangle: its inside, its three sides (corners
    included).

    Examples
    --------
    >>> simplex_weights.function(1.0, 0.0, 1.0, 0.3, -1.0, 0.0)
    (0.3, 0.0)
    >>> simplex_weights.function(1.0, 0.0, 1.0, 2.0, 1.5, 0.0)
    (0.75, 0.25)
    """
    on_first = min(max(p / a, 0.0), 1.0) if a > 0 else 0.0
    on_second = min(max(q / d, 0.0), 1.0) if d > 0 else 0.0
    between = a + d - 2 * b
    share = min(max((p - q + d - b) / between, 0.0), 1.0) if between > 0 else 0.0
    inside = (0.0, 0.0)
    determinant = a * d - b * b
    if determinant > 1e-12 * a * d:
        u, v = (p * d - q * b) / determinant, (q * a - p * b) / determinant
        if u > 0 and v > 0 and u + v < 1:
            inside = (u, v)
    best, lowest = (0.0, 0.0), 0.0
    for u, v in ((on_first, 0.0), (0.0, on_second), (share, 1 - share), inside):
        value = a * u * u + 2 * b * u * v + d * v * v - 2 * (p * u + q * v)
        if value < lowest - floor:
            best, lowest = (u, v), value
    return best
