"""Measures of whether a method answers at all: refused by rule and failed are told apart."""

from studies.engine.measures.intervals import PAWEL
from studies.engine.measures.replicates import Part, Replicates, mean, measure


@measure("share of all replicates run that gave an estimate", PAWEL, "proportion")
def convergence(r: Replicates) -> Part:
    """Convergence rate."""
    return mean(r.ok, r.ran)


@measure(
    "share of all replicates run that a rule left without a number, or without the interval that the method has",
    PAWEL,
    "proportion",
)
def refused(r: Replicates) -> Part:
    """Refusals by rule: the status says why. With `failed` and the intervals printed they are all replicates."""
    return mean(r.without & ~r.broken, r.ran)


@measure(
    "share of all replicates run that an exception, or a sampler that did not converge, left without an interval",
    PAWEL,
    "proportion",
)
def failed(r: Replicates) -> Part:
    """Failures of the computation, which no rule foresaw."""
    return mean(r.without & r.broken, r.ran)


@measure("replicates run without an estimate", PAWEL, "count")
def n_failed(r: Replicates) -> Part:
    """Replicates without an estimate, counted, for whatever reason."""
    part = mean(r.ran & ~r.ok, r.ran)
    return Part(part.value * part.n, part.share * part.n, part.n)
