"""Cluster bootstrap of Direct: the calibrator is refitted in every replicate.

Estimand: the sampling distribution of the estimates of all policies, jointly (the paper's algorithm Bootstrap-Direct
in the section on uncertainty). A replicate is a vector of weights over clusters: multinomial counts (the paper's) or
independent exponential weights (the Bayesian bootstrap, which never loses a label and so rejects nothing).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.checks import BoolArray, FloatArray, one_of
from cje_core.families.direct.bootstrap_kernels import direct_replicates
from cje_core.families.direct.cells import DirectRows, compress, draw_counts

KINDS = ("percentile", "bayesian", "bca", "studentised")
N_MIN = 30  # labels that a replicate needs, the paper's; at most half of them unless n_min is given


@dataclass(frozen=True)
class Bootstrap:
    """Inference by resampling: the kind of interval, and the number n of replicates.

    Parameters
    ----------
    kind : {"percentile", "bayesian", "bca", "studentised"}
        ``bayesian``: exponential cluster weights in place of counts, percentile.
    n : int
        The paper's B.
    n_min : int, optional
        Fewest labels that a replicate may hold, counted as often as drawn, the paper's 30; a slice with far fewer has
        no valid replicate (status FEW_RESAMPLES), one with somewhat fewer only those with the most labels. Default: 30,
        or half the labels where that is less.
    """

    kind: str = "percentile"
    n: int = 2000
    n_min: int | None = None

    def __post_init__(self) -> None:
        """Stop at what cannot be drawn."""
        one_of(self.kind, "bootstrap", KINDS)
        if self.n < 2:
            raise ValueError(f"n={self.n}: a bootstrap distribution needs at least 2 replicates")
        if self.n_min is not None and self.n_min < 1:
            raise ValueError(f"n_min={self.n_min}: a replicate needs at least one label")


class Replicates(NamedTuple):
    """Bootstrap replicates of all policies."""

    draws: FloatArray  # (P, B); NaN where B replicates could not be had
    std_error: FloatArray  # (P, B) analytic standard error of each; (P, 0) unless studentised
    n_rejected: int


def bootstrap_direct(
    rows: DirectRows,
    n_boot: int,
    rng: np.random.Generator,
    *,
    weights: str = "multinomial",
    studentised: bool = False,
    n_min: int | None = None,
    max_attempts: int = 20,
) -> Replicates:
    """Cluster bootstrap with calibrator refit (the paper's algorithm Bootstrap-Direct), all policies jointly.

    Each replicate reweights the G clusters, refits the calibrator on the labels drawn (fold ids stay with
    their clusters, so out-of-fold stays out-of-fold) and recomputes every policy's value. A multinomial replicate
    needs at least ``n_min`` teaching labels, and as many own labels of each corrected policy: by default ``min(30,
    half the labels)``, since the paper's fixed 30 never ends with far fewer labels. Rejected replicates are redrawn
    and counted, because rejecting conditions on the easy samples.

    Parameters
    ----------
    n_boot : int
        Replicates B.
    weights : {"multinomial", "exponential"}
    studentised : bool
        Also return each replicate's analytic standard error.
    n_min : int, optional
        The same number whatever the labels.
    max_attempts : int
        Give up after ``max_attempts * B`` resamples; the draws not filled by then are NaN.
    """
    n_policies = len(rows.route)
    draws = np.full((n_policies, n_boot), np.nan)
    std_error = np.full((n_policies, n_boot if studentised else 0), np.nan)
    positive = weights == "exponential"
    n_teach, n_own = len(rows.teach_label), np.diff(rows.own_start)
    teach_min, own_min = min(N_MIN, n_teach // 2), np.minimum(N_MIN, n_own // 2)
    if n_min is not None:
        teach_min, own_min = n_min, np.where(n_own > 0, n_min, 0)
    if positive:  # no weight is zero, so no label is lost
        teach_min, own_min = 0, np.zeros_like(own_min)
    pooled, cells = compress(rows, positive=positive, straight=not studentised)
    done = rejected = 0
    for counts in draw_counts(cells, n_boot * max_attempts, n_boot, rng, positive=positive):
        noise = rng.standard_normal((len(counts), n_policies)) if len(pooled.inside) else None
        values, variances, valid = replicate_values(
            pooled, counts, noise, teach_min=teach_min, own_min=own_min, variance=studentised
        )
        usable = np.flatnonzero(valid)[: n_boot - done]
        draws[:, done : done + len(usable)] = values[usable].T
        if studentised:
            std_error[:, done : done + len(usable)] = np.sqrt(variances[usable].T)
        last = len(counts) if done + len(usable) < n_boot else int(usable[-1]) + 1
        rejected += int((~valid[:last]).sum())
        done += len(usable)
        if done == n_boot:
            break
    return Replicates(draws, std_error, rejected)


def replicate_values(
    rows: DirectRows,
    counts: FloatArray,
    noise: FloatArray | None = None,
    *,
    teach_min: float = 0.0,
    own_min: npt.ArrayLike = 0.0,
    variance: bool = False,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Values and, if asked for, analytic variances of all policies under given cluster weights (replicates, G).

    Weights of one give the estimate itself. ``noise``, shape (replicates, policies), is standard normal where cells
    mix levels (`DirectRows.inside`); without it they count with their means.
    """
    n_policies = len(rows.route)
    values = np.full((len(counts), n_policies), np.nan)
    variances = np.full((len(counts) if variance else 0, n_policies), np.nan)
    valid = np.empty(len(counts), dtype=np.bool_)
    minimum = np.broadcast_to(np.asarray(own_min, float), n_policies).copy()
    n_folds = int(max(rows.teach_fold.max(initial=0), rows.own_fold.max(initial=0))) + 1
    drawn = np.zeros((len(counts), n_policies)) if noise is None else noise
    direct_replicates(counts, drawn, rows, n_folds, float(teach_min), minimum, values, variances, valid)
    return values, variances, valid
