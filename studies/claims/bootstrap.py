"""The bootstrap of the label slice: whether its loop ends, what it accepts, and the repair of both.

A resample draws as many clusters as there are, with replacement; its number of labels is Binomial(M, m / M).
"""

import math

import numpy as np
from scipy import stats

from cje_core.streams import generator
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, over_worlds

N_MIN = 30  # labels that a resample must have, algorithm Bootstrap-Direct


def clusters(z: FloatArray, size: int) -> dict[str, int]:
    """Clusters, and how many of them hold a label."""
    total = 4 + int(40 * abs(z[0]))
    return {"clusters": total, "labels": 1 + int(total * abs(math.tanh(z[1])) * 0.999)}


CLUSTERS = Family((1,), lambda size: 2, clusters)


def accepted(w: Params, least: int) -> float:
    """Probability that a resample of clusters has `least` labels: Binomial(M, m / M)."""
    total, m = int(w["clusters"]), int(w["labels"])
    if not 0 < m <= total:
        raise ClaimError("labels must lie among the clusters")
    return float(stats.binom.sf(least - 1, total, m / total))


def loop_ends(w: Params) -> Sides:
    """A millionth against the probability that a resample is accepted at n_min = 30."""
    return Sides(1e-6, accepted(w, N_MIN))


def loop_by_simulation(w: Params) -> Sides:
    """The same by importance sampling: resamples drawn as if n_min labels were expected, reweighted.

    Draws of the plain law cannot tell a probability of 1e-6 from 1e-8; under the tilt every draw counts.
    """
    total, m = int(w["clusters"]), int(w["labels"])
    rate = m / total
    tilted = max(rate, min(N_MIN / total, 0.98))

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        drawn = (rng.random((2000, total)) < tilted).sum(axis=1)
        log = drawn * math.log(rate / tilted)
        if rate < 1:
            log = log + (total - drawn) * math.log((1 - rate) / (1 - tilted))
        return 1e-6, float(np.where(drawn >= N_MIN, np.exp(log), 0.0).mean())

    return batches(batch, generator(0, "claims", "bootstrap", "loop"))


def repaired_least(w: Params) -> int:
    """``min(30, ceil(m / 2))``, the repaired n_min."""
    return min(N_MIN, math.ceil(int(w["labels"]) / 2))


def loop_repaired(w: Params) -> Sides:
    """``1 - exp(-m / 8)`` against the probability of acceptance at the repaired n_min."""
    return Sides(-math.expm1(-w["labels"] / 8), accepted(w, repaired_least(w)))


def conditioned_repaired(w: Params) -> Sides:
    """Variance of a mean label over all resamples, less the rejected share, against that of the accepted ones."""
    return variances(w, repaired_least(w), math.exp(-w["labels"] / 8))


def conditioned(w: Params) -> Sides:
    """Variance of a mean label over accepted resamples against that of all, within 5%."""
    return variances(w, N_MIN, 0.05)


def variances(w: Params, least: int, room: float) -> Sides:
    """Variance of a mean label over all resamples, less a share `room`, against that over those of `least` labels."""
    total, m = int(w["clusters"]), int(w["labels"])
    if not 6 <= m < total:
        raise ClaimError("too few labels")
    counts = np.arange(1, total + 1)
    mass = stats.binom.pmf(counts, total, m / total)
    all_of = float(mass @ (1 / counts)) / float(mass.sum())
    kept = counts >= least
    if not mass[kept].sum() > 0.02:
        raise ClaimError("hardly a resample is accepted")
    return Sides((1 - room) * all_of, float(mass[kept] @ (1 / counts[kept])) / float(mass[kept].sum()))


def conditioned_by_simulation(w: Params) -> Sides:
    """The same from resamples of labels of variance one: variances of their means."""
    total, m = int(w["clusters"]), int(w["labels"])
    label = stats.zscore(np.arange(m) % 2)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        index = rng.integers(0, total, (20_000, total))
        seen = index < m
        count = seen.sum(axis=1)
        mean = np.where(seen, label[np.minimum(index, m - 1)], 0.0).sum(axis=1) / np.maximum(count, 1)
        accept = count >= N_MIN
        if accept.sum() < 20:
            return 0.0, 0.0
        return 0.95 * float((mean[count > 0] ** 2).mean()), float((mean[accept] ** 2).mean())

    return batches(batch, generator(0, "claims", "bootstrap", "conditioned"))


def with_labels(w: Params) -> Params:
    """The same clusters and 30 more, as many labels at least."""
    return {"clusters": int(w["clusters"]) + N_MIN, "labels": N_MIN + int(w["labels"])}


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="alg-bootstrap-terminates",
        source="Algorithm Bootstrap-Direct: resample until n_min = 30 labels",
        statement="the loop ends: a resample is accepted with a probability of at least a millionth",
        why=r"The labels of a resample are Binomial(M, m/M): never more than M, and far below 30 where m is.",
        family=CLUSTERS,
        sides=loop_ends,
        second=loop_by_simulation,
        condition="there are at least 30 labels",
        restrict=with_labels,
        planted="with probability .9",
        falsified=lambda s: Sides(0.9, s.right),
    ),
    over_worlds(
        name="bootstrap-terminates-repaired",
        source="ours: in place of the loop of Bootstrap-Direct",
        statement=r"with $n_{min} = \min(30, \lceil m/2 \rceil)$ a resample is accepted with a probability of at least "
        r"$1 - e^{-m/8}$",
        why="Chernoff's lower tail at half the mean (docs/claims/bootstrap_stopping.md).",
        family=CLUSTERS,
        sides=loop_repaired,
        repairs="alg-bootstrap-terminates",
        planted="with probability .9 at any number of labels",
        falsified=lambda s: Sides(0.9, s.right),
    ),
    over_worlds(
        name="bootstrap-conditioning",
        source="ours: what Algorithm Bootstrap-Direct's rejection of resamples does, of which the paper says nothing",
        statement="accepted resamples have the variance of all resamples, within 5%",
        why="They are those with more labels: near 30 labels the interval is that of a larger slice.",
        family=CLUSTERS._replace(effort=0.5),
        sides=conditioned,
        second=conditioned_by_simulation,
        planted="twice the variance",
        falsified=lambda s: Sides(2 * s.left, s.right),
    ),
    over_worlds(
        name="bootstrap-conditioning-repaired",
        source="ours: in place of the loop of Bootstrap-Direct",
        statement=r"with $n_{min} = \min(30, \lceil m/2 \rceil)$ the variance over accepted resamples is at least "
        r"$1 - e^{-m/8}$ of that over all",
        why="Only a share of the resamples is rejected; the bound on that share is enough here, by search.",
        family=CLUSTERS._replace(effort=0.5),
        sides=conditioned_repaired,
        repairs="bootstrap-conditioning",
        planted="all of it",
        falsified=lambda s: Sides(1.2 * s.left, s.right),
    ),
)
