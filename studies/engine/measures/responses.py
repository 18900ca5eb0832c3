"""Measures of whether a method answers at all."""

from studies.engine.measures.intervals import PAWEL
from studies.engine.measures.replicates import Part, Replicates, mean, measure


@measure("share of all replicates run that gave an estimate", PAWEL, "proportion")
def convergence(r: Replicates) -> Part:
    """Convergence rate."""
    return mean(r.ok, r.ran)


@measure(
    "share of all replicates without an estimate: a status (or an exception) in a number's place",
    PAWEL,
    "proportion",
)
def refused(r: Replicates) -> Part:
    """Refusals: 1 - convergence."""
    return mean(r.ran & ~r.ok, r.ran)


@measure("replicates run without an estimate", PAWEL, "count")
def n_failed(r: Replicates) -> Part:
    """Refusals, counted."""
    part = refused(r)
    return Part(part.value * part.n, part.share * part.n, part.n)
