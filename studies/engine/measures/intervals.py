"""Measures of intervals: what they hold, on which side they miss, how long they are.

Coverage is taken among the intervals that were printed, and is shown beside the shares that were refused and that
failed (`studies.engine.measures.responses`). Two more coverages count a missing interval as a miss, or as the whole
line, which holds every truth (the choices of Pawel, Bartos, Siepe and Lohmann 2024).
"""

import numpy as np

from cje_core.checks import FloatArray
from studies.engine.measures.estimates import MORRIS, bias
from studies.engine.measures.replicates import Part, Replicates, mean, measure

SIDES = "1 - coverage of Morris, White and Crowther (2019), by side"
BURTON = "Burton, Altman, Royston and Holder (2006)"
PAWEL = "Pawel, Bartos, Siepe and Lohmann (2024), on failures in simulation studies"


def center(r: Replicates) -> FloatArray:
    """Truth; one that is not known is never held."""
    return np.where(np.isfinite(r.truth), r.truth, np.inf)


@measure("share of the intervals printed that hold the truth", MORRIS, "proportion")
def coverage(r: Replicates) -> Part:
    """Coverage among the replicates that printed an interval; its trials are those."""
    return mean(r.holds(center(r)), r.with_interval)


@measure(
    "share of all replicates run whose interval holds the truth: a missing interval is a miss",
    PAWEL,
    "proportion",
)
def coverage_all(r: Replicates) -> Part:
    """Coverage over all replicates, counting missing intervals as misses."""
    return mean(r.holds(center(r)), r.judged)


@measure(
    "share of the intervals printed that hold truth + bias: what is left when bias is taken out",
    MORRIS,
    "proportion",
)
def coverage_bias_free(r: Replicates) -> Part:
    """Bias-eliminated coverage; the MCSE takes the bias as known, as Morris et al. do."""
    return mean(r.holds(center(r) + np.nan_to_num(bias(r).value)), r.with_interval)


@measure(
    "share of all replicates whose interval lies above the truth; a failure is on neither side",
    SIDES,
    "proportion",
)
def miss_left(r: Replicates) -> Part:
    """Misses of an interval that lies too high: the truth is left of it."""
    return mean(r.with_interval & (r.lower > r.truth), r.judged)


@measure(
    "share of all replicates whose interval lies below the truth",
    SIDES,
    "proportion",
)
def miss_right(r: Replicates) -> Part:
    """Misses of an interval that lies too low: the truth is right of it."""
    return mean(r.with_interval & (r.upper < r.truth), r.judged)


@measure("mean width of the intervals", BURTON)
def width(r: Replicates) -> Part:
    """Width, over the intervals there are."""
    return mean(np.where(r.with_interval, r.upper - r.lower, 0.0), r.with_interval)


@measure(
    "mean of width + 2 / alpha * distance by which the truth is missed; smaller is better",
    "Gneiting and Raftery (2007), eq. 43",
)
def interval_score(r: Replicates) -> Part:
    """Interval score: proper, so no shifted or scaled interval does better on average than the right one."""
    missed = np.maximum(r.lower - r.truth, 0) + np.maximum(r.truth - r.upper, 0)
    score = r.upper - r.lower + 2 / (1 - r.ci_prob) * np.nan_to_num(missed)
    return mean(np.where(r.with_interval, score, 0.0), r.with_interval)


@measure(
    "share of all replicates run whose interval holds the truth, a missing interval counting as the whole line",
    PAWEL,
    "proportion",
)
def coverage_unbounded(r: Replicates) -> Part:
    """Coverage over all replicates, counting missing intervals as intervals without ends."""
    return mean(r.holds(center(r)) | (r.judged & ~r.with_interval), r.judged)
