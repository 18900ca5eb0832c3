"""What the frequentist and the Bayesian misclassification correction share: verdicts, routes, refusals, counts.

The judge passes a response whose score reaches the threshold; a label is good at the top of ``oracle_range`` and bad at
its bottom. Sensitivity and specificity come from a policy's own labels (route ``own_labels``); with fewer than 4
labelled prompts from those of the calibration policies (``borrowed``).
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, hajek, kish_ess, mean_part
from cje_core.inference.sums import sum_by

ACCURACY = ("sensitivity", "specificity", "youden")


class Verdicts(NamedTuple):
    """The judge's and the oracle's verdict on each row."""

    threshold: float
    passed: BoolArray  # (r,) the score reaches the threshold
    good: BoolArray  # (r,) the label is the top of its scale
    binary: BoolArray  # (r,) the label is one of the two ends


class Evidence(NamedTuple):
    """The rows that one policy's correction rests on."""

    status: Status  # OK, or TRANSPORT_ASSUMED where the confusion matrix is borrowed
    route: str
    evaluated: IntArray  # rows of the policy that enter its mean
    labels: IntArray  # labelled rows, and those of them by class
    good: IntArray
    bad: IntArray
    n_clusters: int  # of the labelled rows


class Proportion(NamedTuple):
    """A weighted proportion, the effective number of observations behind it, and its error."""

    value: float
    n: float
    part: Part


def judge_verdicts(given: Calibrated, threshold: float | None) -> Verdicts:
    """Cut the judge at `threshold`; None is the middle of ``judge_range``."""
    (low, high), (bottom, top), rows = given.judge_range, given.scale, given.rows
    cut = (low + high) / 2 if threshold is None else float(threshold)
    if not low < cut <= high:
        raise ValueError(f"threshold={threshold}: it must lie above {low:g} and at most at {high:g}")
    good = rows.label == top
    return Verdicts(cut, rows.score >= cut, good, good | (rows.label == bottom))


def gather(rows: Rows, verdicts: Verdicts, p: int) -> Evidence | Status:
    """Rows behind the correction of policy p, or the status that says why there is none."""
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    if len(index) == 0:
        return Status.NO_RESPONSES
    labels, route, status = index[rows.labelled[index]], "own_labels", Status.OK
    if count_clusters(rows, labels) < MIN_LABELLED_CLUSTERS:
        labels, route, status = np.flatnonzero(rows.teaches), "borrowed", Status.TRANSPORT_ASSUMED
    n_clusters = count_clusters(rows, labels)
    if n_clusters < MIN_LABELLED_CLUSTERS:
        return Status.TOO_FEW_LABELS if len(labels) else Status.NO_LABELS
    if not verdicts.binary[labels].all():
        return Status.NOT_BINARY
    good = verdicts.good[labels]
    if good.all() or not good.any():
        return Status.ONE_CLASS
    return Evidence(status, route, index, labels, labels[good], labels[~good], n_clusters)


def source_of(route: str) -> str:
    """What a value by this route rests on (`cje_core.inference.sources`)."""
    return "own" if route == "own_labels" else "borrowed"


def label_weight(rows: Rows) -> FloatArray:
    """Weight of each row among labels: prompt weight over label probability."""
    return np.asarray(rows.weight / np.where(rows.labelled, rows.label_prob, 1.0))


def proportion(rows: Rows, index: IntArray, hit: BoolArray, weight: FloatArray) -> Proportion:
    """Weighted share of hits among some rows.

    The effective count is ``v (1 - v)`` over the cluster-robust variance, kept between Kish's counts of clusters and
    of rows; with equal weights and no clusters it is the number of rows.
    """
    values = hit[index].astype(float)
    value, part = mean_part(rows, index, values, weight[index])
    value = min(max(value, 0.0), 1.0)
    cluster, n_clusters = rows.cluster[rows.prompt[index]], len(rows.cluster_names)
    least, most = kish_ess(sum_by(cluster, weight[index], n_clusters)), kish_ess(weight[index])
    variance = float((hajek(cluster, weight[index], values, n_clusters).error ** 2).sum())
    count = value * (1 - value) / variance if 0 < value < 1 and variance > 0 else least
    return Proportion(value, min(max(count, least), max(least, most)), part)
