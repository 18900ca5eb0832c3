"""Bootstrap of mean residuals in groups of probes under exact transport, with the calibrator refitted in each draw.

Under the null the calibration labels and the probes of a policy share one curve ``E[Y | index] = g``. It is estimated
by one isotonic regression of both samples; each draw takes new labels of both from it, refits the calibrator f* on the
calibration labels alone and forms the mean residuals ``r* = mean(Y* - f*)`` of the probes. So the draws have what the
residuals have: the noise of few probes, that of a calibrator of few labels, which groups share, and the bias of its
steps and of the interpolation between them. The index is held fixed, that of a two-stage calibrator too.

Law of new labels on the unit scale (`label_law`): Bernoulli(g) for labels at its two ends. Rows of one cluster take the
uniform numbers behind a donor cluster's labels, drawn below g where these are 1 and above where they are 0. Else
``Y* = g + s e*``, clipped to the scale, ``s = sqrt(g (1 - g))``, e* the standardised residuals of a cluster drawn from
both samples. The skewness of bounded labels has one sign below the middle of the scale and the other above, so e*
changes its sign where the mean g of the donor's cluster and its own lie on different sides; else clipping would take
a part of the variance. They are stretched by ``sqrt(N / (N - blocks))`` for what the fit took of them, and in a sample
whose residuals are larger than both samples' together by that ratio: labels of a policy may be noisier than those that
calibrate. Quieter ones are not drawn quieter, since few probes that met no rare outcome look quiet by chance.

The samples are drawn apart: labels and probes of one prompt that agree are taken as independent, which makes a test
of their difference conservative.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.isotonic import isotonic, pava_into
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel

CHUNK = 2**20  # labels drawn at once: 8 MB
ROUNDING = 1e-12  # of the scale: smaller spreads are none
MOST_STRETCH = 2.0  # N / (N - blocks), where a few clusters of many rows have many blocks


class Sample(NamedTuple):
    """Calibration labels, or the probes of a policy; labels on the unit scale."""

    score: FloatArray  # (n,) index of the calibrator: what the isotonic step sees
    label: FloatArray  # (n,)
    weight: FloatArray  # (n,) positive
    cluster: IntArray  # (n,) codes, which may skip numbers


class Law(NamedTuple):
    """Law of the new labels of n rows; see the module."""

    mean: FloatArray  # (n,) g
    spread: FloatArray  # (n,) s, with a sign: the side of the middle on which g is
    donor: FloatArray  # standardised residuals of the donor clusters, one after the other
    start: IntArray  # (donors,) place of the first residual of each
    size: IntArray  # (donors,) residuals of each
    cluster: IntArray  # (n,) 0, 1, ...
    place: IntArray  # (n,) place of each row inside its cluster
    binary: bool = (
        False  # `donor` is where the uniform number of each donor starts, `spread` how far it reaches
    )


class Draws(NamedTuple):
    """Mean residuals of groups of probes, and under the null."""

    value: FloatArray  # (groups,)
    null: FloatArray  # (draws, groups)

    @property
    def bias(self) -> FloatArray:
        """Mean under the null, (groups,)."""
        return np.asarray(self.null.mean(axis=0))

    @property
    def std_error(self) -> FloatArray:
        """Standard deviation under the null, (groups,); 0 where nothing varies but by rounding."""
        sd = self.null.std(axis=0)
        return np.where(sd > ROUNDING, sd, 0.0)


def bootstrap(
    labels: Sample, probes: Sample, group: IntArray, n_draws: int, rng: np.random.Generator
) -> Draws:
    """Draw mean residuals of groups of probes under the null that both samples share one isotonic curve.

    `group` (n,) of each probe is 0, 1, ...; each number occurs. A residual is the weighted mean of Y - f over the
    group, f the isotonic fit of the calibration labels, linear between their indices.

    Examples
    --------
    >>> def sample(n):
    ...     return Sample(np.repeat([0.0, 1.0], n), np.tile([0.0, 1.0], n), np.ones(2 * n), np.arange(2 * n))
    >>> drawn = bootstrap(sample(100), sample(25), np.repeat([0, 1], 25), 999, np.random.default_rng(0))
    >>> drawn.std_error.round(2).tolist(), round((0.25 / 25 + 0.25 / 100) ** 0.5, 2)
    ([0.11, 0.11], 0.11)
    """
    n_groups = int(group.max()) + 1
    knot, at = np.unique(labels.score, return_inverse=True)
    # f is linear between knots and constant outside: two knots of each probe, and the share of the upper one
    x = np.clip(probes.score, knot[0], knot[-1])
    upper = np.minimum(np.searchsorted(knot, x), len(knot) - 1)
    lower = np.maximum(upper - 1, 0)
    gap = knot[upper] - knot[lower]
    slope = np.divide(x - knot[lower], gap, out=np.ones(len(x)), where=gap > 0)
    share = probes.weight / np.bincount(group, probes.weight, n_groups)[group]
    fixed = at, labels.weight, len(knot), lower, upper, slope, group, share

    def residuals(label: FloatArray) -> FloatArray:
        out = np.zeros((len(label), n_groups))
        _refit_into(label, *fixed, out)
        return out

    law, null = label_law(labels, probes), np.empty((n_draws, n_groups))
    step = max(CHUNK // len(law.mean), 1)
    for first in range(0, n_draws, step):
        null[first : first + step] = residuals(draw_labels(law, min(step, n_draws - first), rng))
    value = residuals(np.concatenate([labels.label, probes.label])[None])[0]
    return Draws(np.where(np.abs(value) > ROUNDING, value, 0.0), null)


def label_law(labels: Sample, probes: Sample) -> Law:
    """Estimate the law of new labels of both samples, the calibration labels first."""
    m = len(labels.label)
    label = np.concatenate([labels.label, probes.label])
    # unequal weights cost precision, and the two samples need not have one unit: each counts by its effective size
    weight = np.concatenate([s.weight * s.weight.sum() / (s.weight**2).sum() for s in (labels, probes)])
    _, at = np.unique(np.concatenate([labels.score, probes.score]), return_inverse=True)
    total = np.bincount(at, weight)
    fitted, block = isotonic(np.bincount(at, weight * label) / total, total)
    block = block[at]
    g = np.clip(fitted[at], 0.0, 1.0)
    of_label, of_probe = (np.unique(s.cluster, return_inverse=True)[1] for s in (labels, probes))
    cluster = np.concatenate([of_label, of_probe + of_label.max() + 1])
    count = np.bincount(cluster)
    order = np.argsort(cluster, kind="stable")
    place = np.empty(len(cluster), dtype=np.intp)
    place[order] = np.arange(len(cluster)) - np.repeat(np.cumsum(count) - count, count)
    if np.isin(label, (0.0, 1.0)).all():
        first, width = np.where(label == 1.0, 0.0, g), np.where(label == 1.0, g, 1.0 - g)
        if count.max() == 1:
            first, width, order, count = np.zeros(1), np.ones(1), np.zeros(1, int), np.ones(1, int)
        return Law(
            g, width[order], first[order], np.cumsum(count) - count, count, cluster, place, binary=True
        )
    spread = np.sqrt(g * (1.0 - g))
    some = spread > np.sqrt(ROUNDING)  # at the ends of the scale nothing varies, and nothing is learned
    if not some.any():
        return Law(g, 0.0 * spread, np.zeros(1), np.zeros(1, int), np.ones(1, int), cluster, place)
    spread = np.where(some, spread, 0.0)
    error = np.divide(label - g, spread, out=np.zeros(len(g)), where=some)
    leverage = weight / np.bincount(block, weight)[block]
    stretch, everywhere = np.ones(len(g)), _variance(error[some], leverage[some], cluster[some])
    for mine in (np.arange(len(g)) < m, np.arange(len(g)) >= m):
        own = _variance(error[some & mine], leverage[some & mine], cluster[some & mine])
        if own > everywhere:
            stretch[mine] = np.sqrt(own / everywhere)
    # one sign for all of a cluster, so that its residuals keep their dependence
    side = np.where(np.bincount(cluster, g - 0.5)[cluster] < 0, -1.0, 1.0)
    kept = order[some[order]]
    donor = error[kept] * side[kept]
    _, start, size = np.unique(cluster[kept], return_index=True, return_counts=True)
    donor = (donor - donor.mean()) * np.sqrt(_freed(len(start), float(leverage[some].sum())))
    return Law(g, spread * stretch * side, donor, start, size, cluster, place)


def _variance(error: FloatArray, leverage: FloatArray, cluster: IntArray) -> float:
    """Variance of standardised residuals, by the degrees of freedom that the fit left to them; 0 without any."""
    if len(error) == 0:
        return 0.0
    return float((error**2).mean()) * _freed(len(np.unique(cluster)), float(leverage.sum()))


def _freed(n_clusters: int, leverage: float) -> float:
    """Return N / (N - leverage): by how much squared residuals of N clusters are too small."""
    return n_clusters / max(n_clusters - leverage, n_clusters / MOST_STRETCH)


def draw_labels(law: Law, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Draw new labels of all rows, shape (draws, n)."""
    chosen = rng.integers(0, len(law.start), (n_draws, int(law.cluster.max()) + 1))
    if law.binary:
        number = rng.random((n_draws, len(law.mean)))
        if len(law.donor) > 1:
            chosen = chosen[:, law.cluster]
            row = law.start[chosen] + law.place % law.size[chosen]
            number = law.donor[row] + law.spread[row] * number
        return (number < law.mean).astype(float)
    out = np.empty((n_draws, len(law.mean)))
    _draw_into(chosen, *law[:-1], out)
    return out


@Kernel
def _draw_into(chosen, mean, spread, donor, start, size, cluster, place, out):  # type: ignore[no-untyped-def]
    """New labels, given the donor of each cluster in each draw; a third of the time that NumPy takes.

    A larger cluster than its donor takes the donor's residuals again, in turn.
    """
    for d in range(len(out)):
        for i in range(len(mean)):
            k = chosen[d, cluster[i]]
            label = mean[i] + spread[i] * donor[start[k] + place[i] % size[k]]
            out[d, i] = min(max(label, 0.0), 1.0)


@Kernel
def _refit_into(label, at, weight, n_knots, lower, upper, slope, group, share, out):  # type: ignore[no-untyped-def]
    """Mean residuals of groups of probes by the isotonic fit of the calibration labels, for each row of labels.

    Labels come first, m of them, then probes; mean residuals are added to `out` (draws, groups), zero before.
    """
    m, n = len(at), len(lower)
    total, mean, fitted = np.zeros(n_knots), np.empty(n_knots), np.empty(n_knots)
    block_value, block_weight, block_end = np.empty(n_knots), np.empty(n_knots), np.empty(n_knots, np.int64)
    for i in range(m):
        total[at[i]] += weight[i]
    for d in range(len(label)):
        mean[:] = 0.0
        for i in range(m):
            mean[at[i]] += weight[i] * label[d, i]
        for k in range(n_knots):
            mean[k] /= total[k]
        pava_into(mean, total, n_knots, fitted, block_value, block_weight, block_end)
        for j in range(n):
            guess = slope[j] * fitted[upper[j]] + (1.0 - slope[j]) * fitted[lower[j]]
            out[d, group[j]] += share[j] * (label[d, m + j] - guess)


def joint_test(drawn: Draws) -> tuple[float, float]:
    """Return ``Q = (r - m*)' V*^+ (r - m*)`` of all groups and its p-value; NaN where nothing varies.

    m* and V* are the mean and covariance of the draws; p is the share of draws whose Q is at least as large.
    """
    moves = drawn.null - drawn.bias
    if not drawn.std_error.any():
        return np.nan, np.nan
    inverse = np.linalg.pinv(moves.T @ moves / len(moves), rcond=1e-9, hermitian=True)
    off = drawn.value - drawn.bias
    statistic = float(off @ inverse @ off)
    null = np.einsum("di,ij,dj->d", moves, inverse, moves)
    return statistic, float(share_above(null[:, None], np.array([statistic]))[0])


def cell_tests(drawn: Draws) -> FloatArray:
    """Return two-sided p-values of the groups by ``|r - m*|``, shape (groups,); NaN where nothing varies."""
    p_value = share_above(np.abs(drawn.null - drawn.bias), np.abs(drawn.value - drawn.bias))
    return np.where(drawn.std_error > 0, p_value, np.nan)


def share_above(null: FloatArray, value: FloatArray) -> FloatArray:
    """Return ``(1 + #{null >= value}) / (draws + 1)`` by column; equal up to rounding counts as equal."""
    return np.asarray((1.0 + (null >= value * (1.0 - 1e-9)).sum(axis=0)) / (len(null) + 1.0))
