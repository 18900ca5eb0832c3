"""One-sided test of a rank correlation, for labels that may come in clusters and with unequal probabilities."""

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.inference.sums import gapless

MAX_LEVERAGE = 0.9  # beyond it 1 / (1 - h) answers to rounding
SAME_WEIGHT = 1e-9  # relative
AGAINST = 0.05  # size of the two-sided test that calls a judge inverted
LEAST = 1.0 / math.factorial(170)  # of more clusters it is no number any longer
MIN_EFFECTIVE = 4.0  # clusters behind a weighted correlation; fewer leave t less than two degrees of freedom


class RankTest(NamedTuple):
    """Spearman's correlation and the p-value of "it is not positive".

    Where nothing can be tested (a side is constant, fewer than 3 clusters, fewer than 4 effective ones under unequal
    weights) it is NaN with a p-value of 1 and no degrees of freedom.
    """

    spearman: float
    p_value: float  # one-sided
    df: float

    def against(self, size: float = AGAINST) -> bool:
        """Whether the two-sided interval of probability ``1 - size`` lies below zero: ranked the wrong way."""
        return self.spearman < 0 and self.p_value > 1 - size / 2


def rank_test(
    score: FloatArray | IntArray, label: FloatArray, cluster: IntArray, weight: FloatArray | None = None
) -> RankTest:
    """Test whether a score, rising with the quality that is claimed, ranks the labels the right way.

    The score may come as the codes, from 0, of its values in order.

    With mid-ranks and m independent rows, ``t = rho sqrt((m - 2) / (1 - rho^2))`` is close to Student's with m - 2
    degrees of freedom where score and label are independent. For rows in G clusters m becomes ``m / d`` with the design
    effect ``d = G / (G - 1) sum_g (sum_{i in g} u_i)^2 / sum_i u_i^2`` of the terms ``u_i = x_i (y_i - rho x_i)`` of
    the correlation, x and y the standardised ranks, and the degrees of freedom are at most G - 2. The p-value is kept
    ``1 / G!`` away from 0 and from 1, which is as far as any order of G clusters can go.

    Rows that were labelled with unequal probabilities p come with weights ``w = 1 / p``, up to a factor: labels chosen
    for a score and for a trait that tells of the label are correlated with the score even where the judge is
    independent of the label. Ranks, means and rho are then weighted (a mid-rank is the weight below plus half of the
    weight tied), so that rho is that of all responses, and ``t = sum_i w_i x_i y_i / sqrt(V)``, V the larger of two
    sums ``sum_g (sum_{i in g} w_i x_i e_i)^2``: e is the residual ``(y - rho x) / (1 - h)`` in the first, h the
    leverage ``w (1 + x^2) / sum w`` (HC3), and, as if rho were zero, ``y / (1 - w / sum w)^2`` in the second. The
    degrees of freedom are the `effective_clusters` of w x, less two. That ranks were estimated is of second order at
    independence. Equal weights are none.

    Simulated with an independent judge, labels chosen with probabilities of .03 to .8 by the score, or by the score and
    a cause of the label together, 9 to 315 labels, continuous and binary, in clusters and not: of 27 worlds 26 reject
    in .000 to .049 at level .05 (3,000 data sets each, Monte Carlo SE up to .004), and one, 19 labels of which one or
    two weigh 20 times the others, in .057 (.005); the test without weights rejects in up to 1.000. The price is power:
    .64 where that of no weights has .74 (144 labels, chosen with .8 below the score .2 and .1 above), .18 where it has
    .38 (48 such labels). Simpler forms: ``docs/decisions.md``. Failure mode: responses of a kind whose
    labels are so rare that none was drawn are outside of every mean here.

    Examples
    --------
    >>> found = rank_test(np.arange(8.0), np.array([1.0, 0, 2, 3, 5, 4, 7, 6]), np.arange(8))
    >>> round(found.spearman, 3), round(found.p_value, 4)
    (0.929, 0.0004)
    >>> rank_test(np.ones(8), np.arange(8.0), np.arange(8)).p_value
    1.0
    """
    code, n_clusters = gapless(cluster)
    if n_clusters < 3 or (score == score[0]).all() or (label == label[0]).all():
        return RankTest(np.nan, 1.0, 0.0)
    rho, t, rows = rank_statistic(
        *_coded(score, label, weight),
        np.arange(n_clusters) if code is None else code,
        n_clusters,
        np.empty(len(label)),
    )
    if np.isnan(rho):
        return RankTest(np.nan, 1.0, 0.0)
    df = max(min(rows, n_clusters) - 2.0, 1.0)
    p_value = float(special.stdtr(df, -t))
    least = 1.0 / math.factorial(n_clusters) if n_clusters < 170 else LEAST
    return RankTest(rho, min(max(p_value, least), 1.0 - least), df)


def rank_moves(
    score: FloatArray | IntArray, label: FloatArray, weight: FloatArray | None = None
) -> FloatArray:
    """How far each row moves the correlation of `rank_test`: ``w x (y - rho x)``, up to a factor; they sum to zero.

    Examples
    --------
    >>> rank_moves(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])).round(3).tolist()
    [0.75, 0.0, -0.75]
    """
    moves = np.empty(len(label))
    rank_statistic(*_coded(score, label, weight), np.arange(len(label)), len(label), moves)
    return moves


def _coded(
    score: FloatArray | IntArray, label: FloatArray, weight: FloatArray | None
) -> tuple[IntArray, IntArray, FloatArray]:
    """Codes of scores and of labels in their order, and the weights."""
    at, label_at = (
        np.unique(values, return_inverse=True)[1] if values.dtype.kind == "f" else values.astype(np.intp)
        for values in (score, label)
    )
    return at, label_at, np.ones(len(label)) if weight is None else weight


@Kernel
def rank_statistic(at, label_at, weight, cluster, n_clusters, moves):  # type: ignore[no-untyped-def]
    """Return Spearman's rho, its t statistic and the rows behind it, for codes of scores and labels; see `rank_test`.

    Filled: how far each row moves rho, see `rank_moves`. NaN where too few effective clusters have unequal weights.
    """
    m, mean_weight = len(at), weight.mean()
    equal = weight.max() - weight.min() <= SAME_WEIGHT * mean_weight
    w = np.ones(m) if equal else weight / mean_weight
    x, y = standard_ranks(at, w), standard_ranks(label_at, w)
    rho = 0.0
    for j in range(m):
        rho += w[j] * x[j] * y[j]
    rho = min(max(rho / m, -1.0), 1.0)
    sums, largest = np.zeros((3, n_clusters)), 0.0
    for j in range(m):
        moves[j] = w[j] * x[j] * (y[j] - rho * x[j])
        alone = 0.0 if equal else min(w[j] * (1 + x[j] ** 2) / m, MAX_LEVERAGE)
        free = 1.0 if equal else 1 - min(w[j] / m, MAX_LEVERAGE)
        sums[0, cluster[j]] += moves[j] / (1 - alone)
        sums[1, cluster[j]] += w[j] * x[j] * y[j] / free**2
        sums[2, cluster[j]] += abs(w[j] * x[j])
        largest += moves[j] ** 2
    apart, lost, behind, fourth = 0.0, 0.0, 0.0, 0.0
    for g in range(n_clusters):
        apart += sums[0, g] ** 2
        lost += sums[1, g] ** 2
        behind += sums[2, g] ** 2
        fourth += sums[2, g] ** 4
    if equal:
        rows = float(m)
        if n_clusters < m:
            between = apart * n_clusters / (n_clusters - 1)
            # terms that cancel within every cluster leave no spread between them
            rows = m * largest / between if min(largest, between) > 1e-12 * m else float(n_clusters)
        return rho, rho * np.sqrt(max(rows - 2.0, 1.0) / max(1.0 - rho**2, 1e-300)), rows
    rows = behind**2 / fourth
    if rows < MIN_EFFECTIVE:
        return np.nan, np.nan, rows
    return rho, m * rho / np.sqrt(max(apart, lost, 1e-300)), rows


@Kernel
def standard_ranks(code, weight):  # type: ignore[no-untyped-def]
    """Weight below each value plus half of the weight tied with it, of mean zero and variance one.

    The values are numbered in their order; the weights are of mean one.
    """
    m, n_codes = len(code), code.max() + 1
    below = np.zeros(n_codes + 1)
    for j in range(m):
        below[code[j] + 1] += weight[j]
    for c in range(n_codes):
        below[c + 1] += below[c]
    rank, mean, variance = np.empty(m), 0.0, 0.0
    for j in range(m):
        rank[j] = (below[code[j]] + below[code[j] + 1]) / 2
        mean += weight[j] * rank[j]
    for j in range(m):
        rank[j] -= mean / m
        variance += weight[j] * rank[j] ** 2
    return rank / np.sqrt(variance / m)
