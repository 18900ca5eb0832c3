"""Which interval a value gets: t, on the logit, binomial tails on effective counts, or t with room for unseen drops.

The t interval believes its standard error. Near an end of the scale that error is itself a guess from the few labels
that differ from the end: with 15 binary labels of mean .94 none differs in 40% of samples and one in 38%.
``clopper_pearson`` takes the two binomial tails at an effective count m*, at least 1,

    m* = c min(1, t_{c-1} / t_df)^2        c = m_L / r        r = SE^2 / SE_L^2   (below 1: (k r + 1) / (k + 1))

with t_d the t quantile of d degrees of freedom and df those of SE. m_L and SE_L are the count and the standard error of
the policy's own labels by themselves, so r is what the judge is worth; it is estimated from the k labels in the
minority, so one more, at which the judge would have been worth nothing, is put beside them. Labels alone (r = 1) get
the exact interval of Clopper and Pearson, equal labels at an end of the scale likewise (r = 1 is all that is known
then), and df that fall behind the count pay the ratio of the t quantiles (Korn and Graubard 1998). Where the labels are
not binary, or not the policy's own, ``c = 1 + s (1 - s) / SE^2`` on the unit scale, s half way from the value to the
middle of what the scale leaves of the t interval (`cje_core.inference.limits.matched_count`).

Binary labels alone, mean .94, by enumeration over the binomial (equal labels without an interval are misses; the score
is that of Gneiting and Raftery; the last column is the least coverage over means .88 to .98 and 10 to 100 labels):

===================  ===================  ==================  =====
interval             coverage, 15 and 30  score, 15 and 30    least
===================  ===================  ==================  =====
t                    .60   .84            1.15   .535         .19
t on the logit       .99   .97            .354   .235         .94
Wilson               .94   .97            .311   .208         .90
Wilson with t        .94   .97            .326   .214         .91
Jeffreys             .99   .97            .257   .183         .88
mid-P                .99   .97            .277   .190         .92
Clopper-Pearson      .99   .99            .307   .204         .95
betting              1.00  1.00           .414   .275
===================  ===================  ==================  =====

Logit with the exact interval at equal labels; betting: hedged capital of Waudby-Smith and Ramdas, 2,000 replicates.
Mid-P and Jeffreys buy their score with means at which they fail, so Clopper-Pearson it is; at mean .5 its width is .92,
.99 and 1.02 of the t interval's with 15, 30 and 100 labels. Direct and PPI++ with a useless, weak, good or
excellent judge (600 to 1,000 replicates a cell, n = 500, Monte Carlo SE at most .006): .98 to .99 with 15 and 30 labels
where the t interval covers .57 to .62 and .81 to .85; at mean .5 and 30 labels .96 to .98, .99 to 1.05 times as wide.
Without the label put beside (k r for k r + 1) they fall to .96 with a good judge. Where the count is matched to a
standard error the interval helps as far as that error holds: borrowed plug-in and off-policy values of binary labels of
mean .95, 60 and 200 labels, .89 to .94 (t .80 to .87).

``logit`` is the t interval on the logit scale as long as the plain t interval lies inside the scale, and
``clopper_pearson`` where it reaches an end: there the logit's delta method divides by next to nothing, at an end itself
there is no logit, and equal labels have no standard error. Binary labels of the policy's own, mean .9, .95 and .99, 15,
30 and 60 of them, 300 responses, PPI++ (1,500 data sets a cell) and Direct (750), a judge that knows nothing and one
that finds half of the failures: the logit throughout covers .09 to .97, below .93 in 28 of 36 cells (equal labels, up
to .86 of the data sets, get no interval; Monte Carlo SE at most .018), the logit that gives way .93 to 1.00,
``clopper_pearson`` throughout .95 to 1.00 (at most .009). Labels alone, 15 to 100, by enumeration: .935 at the least.
The mean of a borrowed calibrator stays as uncovered as its standard error leaves it: .05 to .91, ``clopper_pearson``
.05 to .93 (750 data sets a cell, at most .018).

Graded labels of the policy's own get ``gamma``: t limits with the skewness g of the error (`cje_core.inference.limits`)
and room for outcomes that no label showed. With k = 1 / g^2 rare outcomes behind the error, the arm towards their side
is that of the exact limit of a Poisson count (Fay and Feuer 1997), ``(G - k) g SE t / z``, G the upper quantile of
Gamma(k + 1); the other arm is t for few of them and goes over to the lower quantile of Gamma(k) at k = 30. Room is
added to each arm by

    arm <- sqrt(arm^2 + (u distance)^2)        u = the upper alpha / 2 quantile of Beta(c, n)

with the distance to the end of the scale and the weight c of `cje_core.formulas.room`, which is 0 where neither the
labels nor the judge's scores give a reason to expect such outcomes. There a caution states how far the value could be
(`cje_core.inference.limits.unseen_bound`): no label among n shows less than a share 1 - .05^(1/n) of failures. The
weight of labels crowded against an end shrinks with the error that a judge leaves, since its scores show the tail.

Labels alone, 1,000 data sets a cell, Monte Carlo SE at most .016: coverage, and among the data sets that miss the share
with a caution whose bound covers (- where fewer than ten miss):

=============================  ========================================  ================================
labels                         coverage, n = 15 30 60 100 200 400         cautioned, of those that miss
=============================  ========================================  ================================
.9 +- .02, 3% at .1            .37  .59  .85  .94  .99  .97               1.00 1.00 .99  .88  -    -
Beta(60, 2), 1% zeros          1.00 1.00 .94  .67  .86  .98               -    -    .98  .99  .98  -
=============================  ========================================  ================================

Where three drops are expected the interval holds by itself (from 100 and 300 labels on); t covers .88 and .64 at 100.
A judge that sees half of the drops lends its tail: Direct covers .98, .99 and .99 with 30, 60 and 100 labels (t .58,
.83, .84), at 1.9, 1.7 and 1.5 times the width. Width over t without such tails: .9 +- .02 1.01, 1.00 and 1.00 with 30,
100 and 200 labels, Beta(2, 2) 1.03, 1.00, 1.00, Beta(8.4, 3.6) 1.07, 1.01, 1.01, Beta(10.8, 1.2) 1.44, 1.05, 1.03. A
weight of .05 for crowded labels would make that 1.15, but covers 10% drops among 12 labels in .75 of data sets. What
would cover drops that nothing announces, extreme order statistics or betting, costs 2 to 5 times the width.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.checks import BoolArray, FloatArray
from cje_core.compiled import Kernel
from cje_core.data.arrays import Rows, taken
from cje_core.formulas.proportions import charged
from cje_core.formulas.room import crowding, share_beyond, unseen_weight
from cje_core.inference.estimate import wald
from cje_core.inference.influence import mean_and_moves, mean_of_rows
from cje_core.inference.limits import Basis, unseen_bound, value_limits

INTERVALS = ("auto", "wald", "logit", "clopper_pearson")
KINDS = np.array(["wald", "logit", "clopper_pearson", "gamma", "none"])
WALD, LOGIT, TAILS, GAMMA, NONE = range(len(KINDS))
NEAR = 1.5  # a t interval that reaches an end of the scale when stretched by this factor is near it


class Bounds(NamedTuple):
    """Intervals of values, and what limits at another level rest on."""

    interval: FloatArray  # (..., 2)
    basis: Basis  # of kind "none" where there is no interval
    unseen: FloatArray  # `cje_core.inference.limits.unseen_bound`


class Evidence(NamedTuple):
    """The own labels behind each value, arrays of one shape (or numbers)."""

    binary: BoolArray | bool  # all of them at the two ends of the scale
    constant: BoolArray | bool
    effective: FloatArray | float  # count of clusters
    minority: FloatArray | float  # how many of them are at the rarer end
    std_error: FloatArray | float  # of the labels' mean
    clusters: FloatArray | float = np.nan  # with labels
    there: BoolArray | bool = True  # whether there are enough to count
    unseen_weight: FloatArray | float = 0.0  # of graded labels, `cje_core.formulas.room.unseen_weight`
    crowding: FloatArray | float = 0.0  # of graded labels, `cje_core.formulas.room.crowding`


NOTHING = Evidence(False, False, np.nan, np.nan, np.nan, there=False)


def bounds(
    value: npt.ArrayLike,
    std_error: npt.ArrayLike,
    df: npt.ArrayLike,
    *,
    skewness: npt.ArrayLike = 0.0,
    evidence: Evidence = NOTHING,
    kind: str,
    ci_prob: float,
    scale: tuple[float, float],
) -> Bounds:
    """Intervals of values; see the module.

    Parameters
    ----------
    value, std_error, df : arrays of one shape
        A standard error is NaN where no spread was seen; equal binary labels have an exact interval all the same.
    skewness : array or float
        Of the errors (`cje_core.inference.limits.error_skewness`); read where the value rests on graded own labels.
    evidence : Evidence
        The policy's own labels, where the value rests on any.
    kind : {"auto", "wald", "logit", "clopper_pearson"}
        ``auto`` is ``clopper_pearson`` where the policy's own labels are binary, ``gamma`` where they are graded; of
        other values ``clopper_pearson`` where the t interval is near an end of the scale, else ``wald``. ``logit``
        gives way to ``clopper_pearson`` where the t interval is not inside the scale.
    """
    v, error, nu = np.broadcast_arrays(*(np.asarray(x, float) for x in (value, std_error, df)))
    e = Evidence(*(np.broadcast_to(p, v.shape) if np.ndim(p) < v.ndim else np.asarray(p) for p in evidence))
    low, high = scale
    plain = wald(v, error, nu, ci_prob)
    binary = np.asarray(e.there & e.binary)
    if kind == "auto":
        stretched = NEAR * plain + (1 - NEAR) * v[..., None]
        near = (stretched[..., 0] < low) | (stretched[..., 1] > high)
        chosen = np.where(e.there & ~binary, GAMMA, np.where(near | binary, TAILS, WALD))
    else:
        chosen = np.full(v.shape, list(KINDS).index(kind))
        if kind == "logit":  # also where there is no t interval
            chosen[~((plain[..., 0] > low) & (plain[..., 1] < high))] = TAILS
    chosen[(chosen == TAILS) & ~(binary | (error > 0))] = WALD
    tied = ((chosen <= LOGIT) | (chosen == GAMMA)) & ~np.isfinite(plain).all(axis=-1)
    chosen[tied | ~np.isfinite(v)] = NONE

    own = (chosen == TAILS) & binary
    effective, graded = np.full(v.shape, np.nan), chosen == GAMMA
    if own.any():
        effective[own] = _own_count(
            Evidence(*(np.asarray(part)[own] for part in e)), error[own], nu[own], ci_prob
        )
    unseen_by = np.where(graded, e.clusters, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        # a judge that tells labels apart shows their tail: room goes, as c^(2/3) does, with the error that is left
        crowded = e.crowding * np.minimum(error / e.std_error, 1.0) ** 1.5
    parts = np.fmax(e.unseen_weight, crowded), skewness
    weight, skewed = (np.where(graded, part, 0.0) for part in parts)
    basis = Basis(v, error, nu, KINDS[chosen], effective, unseen_by, weight, skewed, scale)
    interval = value_limits(basis, ci_prob)
    return Bounds(interval, basis, unseen_bound(basis, interval))


def evidence_of(rows: Rows, p: int, behind: BoolArray, scale: tuple[float, float]) -> Evidence:
    """What the labels of policy p among the rows `behind` say; `NOTHING` where they are too few to count."""
    of_policy = slice(*np.searchsorted(rows.policy, (p, p + 1)))
    own = of_policy.start + np.flatnonzero(behind[of_policy])
    clusters = count_clusters(rows, own)
    if clusters < MIN_LABELLED_CLUSTERS:
        return NOTHING
    label = rows.label[own]
    prob = np.where(rows.labelled[own], rows.label_prob[own], 1.0)  # probes have none
    by_label = mean_of_rows(rows, own, rows.weight[own] / prob)
    all_own = of_policy.start + np.flatnonzero(rows.evaluated[of_policy])
    binary, mean, variance, unseen, crowd = look_at_labels(
        by_label, label, rows.score[own], taken(rows.score, all_own), taken(rows.weight, all_own), *scale
    )
    std_error = math.sqrt(variance) / by_label.n
    if binary:
        return weigh_evidence(
            True, bool(np.ptp(label) == 0), mean, std_error, by_label.effective - 1, clusters, scale
        )
    found = NOTHING._replace(clusters=clusters, there=True, unseen_weight=unseen, crowding=crowd)
    return found._replace(std_error=std_error) if crowd else found  # otherwise nobody asks for it


@Kernel
def look_at_labels(by_label, label, own_score, score, weight, low, high):  # type: ignore[no-untyped-def]
    """Return whether all labels are at the ends of the scale, their mean, the sum of squares of its influence by
    cluster, and what `cje_core.formulas.room` says of graded ones.
    """
    binary = ((label == low) | (label == high)).all()
    moves, variance = np.empty(by_label.n_clusters), 0.0
    mean = mean_and_moves(by_label, label, by_label.cluster, moves)
    for g in range(len(moves)):
        variance += moves[g] ** 2
    if binary:
        return binary, mean, variance, 0.0, 0.0
    beyond = (
        share_beyond(score, weight, own_score) if len(score) else 0.0
    )  # where all that there is are labels
    return binary, mean, variance, unseen_weight(label, beyond, low, high), crowding(label, low, high)


def weigh_evidence(
    binary: BoolArray | bool,
    constant: BoolArray | bool,
    mean: FloatArray | float,
    std_error: FloatArray | float,
    df: FloatArray | float,
    clusters: FloatArray | float,
    scale: tuple[float, float],
) -> Evidence:
    """Evidence of labels with a mean, its standard error and degrees of freedom, and a number of clusters."""
    low, high = scale
    share = np.clip((np.asarray(mean, float) - low) / (high - low), 0.0, 1.0)
    error = np.asarray(std_error, float)
    spread = ~np.asarray(constant) & (error > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_spread = 1 + share * (1 - share) * ((high - low) / error) ** 2
    count = np.where(spread, by_spread, np.asarray(df, float) + 1)
    return Evidence(binary, constant, count, count * np.minimum(share, 1 - share), error, clusters)


def _own_count(evidence: Evidence, std_error: FloatArray, df: FloatArray, ci_prob: float) -> FloatArray:
    """Effective count of the policy's own binary labels, with what the judge adds."""
    effective, minority = np.asarray(evidence.effective, float), np.asarray(evidence.minority, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (std_error / np.asarray(evidence.std_error, float)) ** 2
        ratio = np.where(ratio < 1, (minority * ratio + 1) / (minority + 1), ratio)
        return np.where(evidence.constant, effective, charged(effective / ratio, df, ci_prob))
