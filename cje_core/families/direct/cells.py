"""Resampling weights of Direct's bootstrap: labelled clusters one by one, the others pooled in cells.

What a replicate needs of clusters without a label is a sum of predictions, and these depend on the judge's levels
alone. So such clusters are pooled, and a replicate costs what its labels and cells cost, not its rows:

* by *pattern*: clusters with the same levels under all policies. The number of draws in each cell is multinomial, and
  the replicate has exactly the distribution that drawing clusters one by one gives it.
* by *interval* (one policy, a judge with hardly any ties): between neighbouring labelled levels every refitted
  calibrator is a line, so the sum over a cell's N draws has mean ``N g(mean)`` and variance ``N Var(g)`` inside the
  cell, both exact given the fit and N. Their deviations, over all cells, are sums of independent bounded terms and get
  one normal. Only the third and higher cumulants of the part of the variance that lies *inside* cells are not those of
  rows: with rho its share of the variance and gamma its skewness, an Edgeworth term of at most ``rho^1.5 gamma / 15``
  in the distribution function.

With exponential weights a cell of m clusters has a gamma(m) weight, its inside a flat Dirichlet share: variance
``W^2 Var(g) / (m + 1)``.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.calibration.two_stage import SplineRows
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.families.direct.bootstrap_kernels import TMLE
from cje_core.inference.sums import sum_by

CELL_COST = 2  # a cell's Poisson number costs as much as drawing, counting and adding this many clusters
MIN_POOLED = 1_000  # clusters without a label, below which their number does not matter
MIN_INTERVALS = 10_000  # the same for cells that mix levels
CHUNK = 2_000_000  # weights in memory at a time
BELOW = 6  # standard deviations by which Poisson numbers aim below the draws that they must not exceed


class DirectRows(NamedTuple):
    """What the bootstrap of Direct needs, as flat arrays; ``cluster`` indexes the sampling units 0..G-1.

    Rows of one policy are adjacent: those of policy p are ``start[p]:start[p + 1]``.
    """

    level: (
        FloatArray  # sorted distinct scores (times the calibrator's sign); two-stage: codes of the rows of Z
    )
    spline: SplineRows  # first stage of a two-stage calibrator; empty for the monotone one
    route: IntArray  # per policy: PLUG_IN, LABEL_MEAN, HAJEK, HORVITZ or TMLE of the kernels
    power: FloatArray  # per policy: factor of the calibrated prediction, 1 unless tuned
    centered: (
        IntArray  # per policy: 1 if the prediction is taken about the mean label of its fit (tuned), else 0
    )
    low: float  # declared oracle range
    high: float
    n_clusters: int
    # evaluated rows
    start: IntArray
    cluster: IntArray
    at: IntArray  # index into level
    weight: FloatArray
    offset: FloatArray  # what the prediction holds besides the calibrator (tuned), else 0
    clever: FloatArray  # clever covariate 1 / e
    # of a row that stands for a cell of many: variance of their levels, covariance with their offsets, variance of
    # these, and 1 / (members + 1) for exponential weights or 0 for counts; empty where no cell mixes levels
    inside: FloatArray  # (rows, 4)
    # rows that teach the calibrator
    teach_cluster: IntArray
    teach_at: IntArray
    teach_label: FloatArray
    teach_weight: FloatArray
    teach_fold: IntArray
    # labelled rows of the policies themselves (residual correction, label means)
    own_start: IntArray
    own_cluster: IntArray
    own_at: IntArray
    own_label: FloatArray
    own_weight: FloatArray  # row weight / e
    own_clever: FloatArray
    own_offset: FloatArray
    own_fold: IntArray


EVALUATED = ("cluster", "at", "weight", "offset", "clever")
TEACHING = ("teach_cluster", "teach_at", "teach_label", "teach_weight", "teach_fold")
OWN = (
    "own_cluster", "own_at", "own_label", "own_weight", "own_clever", "own_offset", "own_fold",
)  # fmt: skip


class Cells(NamedTuple):
    """Sampling units as they are drawn: labelled clusters alone, in front, then cells of others."""

    size: IntArray  # (C,) clusters in each cell
    cell_of: IntArray  # (G,)
    n_labelled: int


def compress(rows: DirectRows, *, positive: bool, straight: bool) -> tuple[DirectRows, Cells]:
    """Rows with cells in place of clusters, where that is cheaper; else the rows as they are.

    Parameters
    ----------
    positive : bool
        For exponential weights.
    straight : bool
        Whether only sums of predictions are wanted, not of their squares.
    """
    labelled = np.zeros(rows.n_clusters, dtype=bool)
    labelled[rows.teach_cluster] = labelled[rows.own_cluster] = True
    free = np.flatnonzero(~labelled)
    alone = Cells(np.ones(rows.n_clusters, dtype=np.intp), np.arange(rows.n_clusters), 0)
    n_policies = len(rows.route)
    policy = np.repeat(np.arange(n_policies), np.diff(rows.start))
    key = rows.cluster * n_policies + policy
    if (
        len(free) < MIN_POOLED
        or np.bincount(key, minlength=1).max() > 1
        or not (rows.weight == 1).all()
        or np.ptp(rows.clever) > 0
    ):
        return rows, alone
    line = straight and n_policies == 1 and not len(rows.spline.taught) and rows.route[0] != TMLE
    place = np.zeros(
        rows.n_clusters, dtype=np.intp
    )  # labelled clusters go by level: memory is then read in order
    place[rows.own_cluster] = rows.own_at
    place[rows.teach_cluster] = rows.teach_at
    ordered = np.flatnonzero(labelled)
    ordered = ordered[np.argsort(place[ordered], kind="stable")]
    cells = _cells(ordered, free, _pattern(rows, policy, free))
    if CELL_COST * (len(cells.size) - cells.n_labelled) <= len(free):
        return _pool(rows, cells.cell_of), cells
    if line and len(free) >= MIN_INTERVALS:
        cells = _cells(ordered, free, _interval(rows, free))
        if CELL_COST * (len(cells.size) - cells.n_labelled) <= len(free):
            return _pool_lines(rows, labelled, cells, positive), cells
    return rows, alone


def _cells(labelled: IntArray, free: IntArray, code: IntArray) -> Cells:
    """Labelled clusters alone, in the order given, then the free ones by their code 0.."""
    cell_of = np.empty(len(labelled) + len(free), dtype=np.intp)
    cell_of[labelled] = np.arange(len(labelled))
    cell_of[free] = len(labelled) + code
    return Cells(np.bincount(cell_of).astype(np.intp), cell_of, len(labelled))


def _pattern(rows: DirectRows, policy: IntArray, free: IntArray) -> IntArray:
    """Code of each free cluster's levels under all policies; an offset is a function of policy and level."""
    n_policies = len(rows.route)
    pattern = np.full((rows.n_clusters, n_policies), -1, dtype=np.int32)
    pattern[rows.cluster, policy] = rows.at
    if n_policies == 1:
        return _dense(pattern[free, 0] + 1)
    _, code = np.unique(pattern[free], axis=0, return_inverse=True)
    return np.asarray(code.ravel(), dtype=np.intp)


def _interval(rows: DirectRows, free: IntArray) -> IntArray:
    """Code of the place of each free cluster's level among the labelled ones: between two of them, or at one."""
    core = np.unique(np.concatenate([rows.teach_at, rows.own_at]))
    after = np.searchsorted(core, rows.at)
    at_knot = core[np.minimum(after, len(core) - 1)] == rows.at
    place = np.zeros(rows.n_clusters, dtype=np.intp)  # 0: no evaluated response
    place[rows.cluster] = 1 + 2 * after + at_knot
    return _dense(place[free])


def _dense(code: IntArray) -> IntArray:
    """Codes 0.. in the order of nonnegative integers, without gaps."""
    seen = np.zeros(int(code.max()) + 1, dtype=np.intp)
    seen[code] = 1
    return np.asarray((np.cumsum(seen) - 1)[code])


def _pool(rows: DirectRows, cell_of: IntArray) -> DirectRows:
    """Cells for clusters, keeping the rows of the first cluster of each cell: they stand for the whole cell."""
    first = np.full(int(cell_of.max()) + 1, len(cell_of), dtype=np.intp)
    np.minimum.at(first, cell_of, np.arange(len(cell_of)))
    return _kept(rows, cell_of, first[cell_of[rows.cluster]] == rows.cluster)


def _kept(rows: DirectRows, cell_of: IntArray, keep: BoolArray) -> DirectRows:
    """Cells for clusters, and of the evaluated rows only those to keep."""
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    teach = np.argsort(cell_of[rows.teach_cluster], kind="stable")
    policy, own_policy = (
        np.repeat(np.arange(len(rows.route)), np.diff(start)) for start in (rows.start, rows.own_start)
    )
    kept = np.flatnonzero(keep)
    kept = kept[np.lexsort((cell_of[rows.cluster[kept]], policy[kept]))]
    own = np.lexsort((cell_of[rows.own_cluster], own_policy))
    chosen = {
        name: getattr(rows, name)[index]
        for names, index in ((EVALUATED, kept), (TEACHING, teach), (OWN, own))
        for name in names
    }
    for name in ("cluster", "teach_cluster", "own_cluster"):
        chosen[name] = cell_of[chosen[name]]
    return rows._replace(start=kept_before[rows.start].astype(np.intp), **chosen)


def _pool_lines(rows: DirectRows, labelled: BoolArray, cells: Cells, positive: bool) -> DirectRows:
    """The only policy's free rows as one row per cell, at the cell's mean level, and the moments inside it."""
    free = ~labelled[rows.cluster]
    cell = cells.cell_of[rows.cluster[free]] - cells.n_labelled
    x, offset, n = rows.level[rows.at[free]], rows.offset[free], len(cells.size) - cells.n_labelled
    count = np.bincount(cell, minlength=n)
    has = np.flatnonzero(count)
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, cell, x)
    np.maximum.at(high, cell, x)

    def mean(values: FloatArray) -> FloatArray:
        return sum_by(cell, values, n) / np.maximum(count, 1)

    center = np.clip(mean(x), low, high)  # a cell of one level keeps it to the bit
    about = mean(offset)
    dx, do = x - center[cell], offset - about[cell]
    moments = [mean(dx * dx), mean(dx * do), mean(do * do), positive / (cells.size[cells.n_labelled :] + 1.0)]
    labelled_rows = np.flatnonzero(~free)
    core = np.concatenate([rows.teach_at, rows.own_at, rows.at[labelled_rows]])
    level = np.unique(np.concatenate([rows.level[core], center[has]]))
    moved = np.searchsorted(level, rows.level)
    kept = _kept(rows, cells.cell_of, ~free)
    ones = np.ones(len(has))
    inside = np.zeros((len(labelled_rows) + len(has), 4))
    inside[len(labelled_rows) :] = np.stack(moments, axis=1)[has]
    return kept._replace(
        level=level,
        start=np.array([0, len(inside)]),
        cluster=np.concatenate([kept.cluster, cells.n_labelled + has]),
        at=np.concatenate([moved[kept.at], np.searchsorted(level, center[has])]),
        weight=np.concatenate([kept.weight, ones]),
        offset=np.concatenate([kept.offset, about[has]]),
        clever=np.concatenate([kept.clever, ones * rows.clever[0]]),
        teach_at=moved[kept.teach_at],
        own_at=moved[kept.own_at],
        inside=inside,
    )


def draw_counts(
    cells: Cells, n_total: int, n_first: int, rng: np.random.Generator, *, positive: bool
) -> Iterator[FloatArray]:
    """Resampling weights of cells, in chunks of shape (chunk, C) that stay small whatever n and B are.

    Chunks depend on the cells and on ``n_first`` alone and are drawn one after the other, so no number of threads can
    change a weight.
    """
    n_clusters, n_cells = len(cells.cell_of), len(cells.size)
    member = (cells.cell_of[cells.cell_of >= cells.n_labelled] - cells.n_labelled).astype(np.int32)
    chunk = int(np.clip(CHUNK // n_cells, 1, n_first))
    for start in range(0, n_total, chunk):
        rounds = min(chunk, n_total - start)
        if positive:
            yield rng.standard_gamma(cells.size.astype(float), size=(rounds, n_cells))
            continue
        counts = np.zeros((rounds, n_cells))
        if n_cells == n_clusters:
            drawn = rng.integers(0, n_clusters, size=(rounds, n_clusters), dtype=np.int32)
            _count_into(drawn.ravel(), np.full(rounds, n_clusters), counts)
        else:
            n_own = rng.binomial(n_clusters, cells.n_labelled / n_clusters, size=rounds)
            drawn = rng.integers(0, max(cells.n_labelled, 1), size=int(n_own.sum()), dtype=np.int32)
            _count_into(drawn, n_own, counts)
            counts[:, cells.n_labelled :] = _multinomial(
                n_clusters - n_own, cells.size[cells.n_labelled :], member, rng
            )
        yield counts


def _multinomial(
    n: IntArray, size: IntArray, member: npt.NDArray[np.int32], rng: np.random.Generator
) -> FloatArray:
    """Numbers of n draws (one n per replicate) that fall into each cell, shape (replicates, C).

    Independent Poisson numbers are multinomial given their sum. They aim a little low, are drawn anew where the sum
    exceeds n nevertheless (which depends on the sum alone), and the draws still missing are made one by one: exact, at
    the cost of the cells and of ``sqrt(n)`` draws.
    """
    rate = np.maximum(n - BELOW * np.sqrt(n), 0.0) / len(member)
    counts = rng.poisson(rate[:, None] * size).astype(float)
    missing = n - counts.sum(axis=1).astype(np.intp)
    while (over := np.flatnonzero(missing < 0)).size:
        counts[over] = rng.poisson(rate[over, None] * size)
        missing[over] = n[over] - counts[over].sum(axis=1).astype(np.intp)
    drawn = rng.integers(0, len(member), size=int(missing.sum()), dtype=np.int32)
    _count_into(member[drawn], missing, counts)
    return np.asarray(counts)


@Kernel
def _count_into(drawn, length, counts):  # type: ignore[no-untyped-def]
    """Add one for each draw; the next ``length[b]`` belong to replicate b."""
    at = 0
    for b in range(len(length)):
        for _ in range(length[b]):
            counts[b, drawn[at]] += 1.0
            at += 1
