"""What a measure is computed from, and what it gives: means over replicates with each replicate's share of the error.

A measure is a smooth function of means over replicates, so every replicate has an influence value c_r;
``MCSE = sqrt(sum_r c_r^2)`` with c_r over sqrt(n (n - 1)). That is the infinitesimal jackknife (Jaeckel 1972),
and for a mean the delete-one jackknife itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.inference.estimate import Status
from studies.engine.outcome import BROKEN


class Part(NamedTuple):
    """One measure of all cells.

    Parameters
    ----------
    value : array (...)
    share : array (R, ...)
        Each replicate's share of the error: the MCSE is the root of the sum of their squares.
    n : array (...)
        Replicates that it rests on.
    """

    value: FloatArray
    share: FloatArray
    n: FloatArray


class Measure(NamedTuple):
    """A performance measure.

    Parameters
    ----------
    name : str
    formula : str
        With e = estimate - truth, over the replicates that gave an estimate unless it says otherwise.
    source : str
        Who defines it.
    kind : {"mean", "proportion", "count"}
        A proportion has exact bounds, a count is a proportion times the replicates run.
    of : function Replicates -> Part
    """

    name: str
    formula: str
    source: str
    kind: str
    of: "Callable[[Replicates], Part]"


REGISTRY: dict[str, Measure] = {}


def measure(
    formula: str, source: str, kind: str = "mean"
) -> "Callable[[Callable[[Replicates], Part]], Callable[[Replicates], Part]]":
    """Make a function the measure of its name: there is no other place to enter it."""

    def enter(of: "Callable[[Replicates], Part]") -> "Callable[[Replicates], Part]":
        name = of.__name__
        REGISTRY[name] = Measure(name, formula, source, kind, of)
        return of

    return enter


@dataclass(frozen=True)
class Replicates:
    """Results as arrays with the replicate first, and the replicates that a measure may use.

    Parameters
    ----------
    estimate, std_error, truth, null : arrays, shape (R, ...)
        `null` is the value that a test rejects or does not.
    interval : array, shape (R, ..., 2)
    ran : array of bool, shape (R, ...)
        Replicates that were run.
    ci_prob : float
        Nominal probability of the intervals.
    status : array of int, shape (R, ...)
        Codes of ``cje_core.inference.estimate.Status`` or of the runner; 0 (ok) by default.
    """

    estimate: FloatArray
    std_error: FloatArray
    interval: FloatArray
    truth: FloatArray
    null: FloatArray
    ran: BoolArray
    ci_prob: float
    status: IntArray = field(default_factory=lambda: np.zeros((), int))

    @cached_property
    def ok(self) -> BoolArray:
        """Run, and gave an estimate."""
        return self.ran & np.isfinite(self.estimate)

    @cached_property
    def error(self) -> FloatArray:
        """Estimate - truth; 0 where there is none."""
        return np.where(self.ok, self.estimate - self.truth, 0.0)

    @cached_property
    def with_se(self) -> BoolArray:
        """Gave an estimate with a standard error."""
        return self.ok & np.isfinite(self.std_error)

    @property
    def lower(self) -> FloatArray:
        """Left ends of the intervals."""
        return self.interval[..., 0]

    @property
    def upper(self) -> FloatArray:
        """Right ends of the intervals."""
        return self.interval[..., 1]

    @cached_property
    def with_interval(self) -> BoolArray:
        """Gave an estimate with an interval."""
        return self.ok & np.isfinite(self.lower) & np.isfinite(self.upper)

    @cached_property
    def offers(self) -> BoolArray:
        """Methods that have intervals: none in any replicate with an estimate is no miss, but a method without."""
        return np.asarray(self.with_interval.any(axis=0) | ~self.ok.any(axis=0))

    @cached_property
    def without(self) -> BoolArray:
        """Run, without an estimate, or without an interval where the method has intervals or a status took it away."""
        flagged = ~np.isin(self.status, (Status.OK, Status.TRANSPORT_ASSUMED))
        return self.ran & (~self.ok | (~self.with_interval & (self.offers | flagged)))

    @cached_property
    def broken(self) -> BoolArray:
        """Spoilt by an exception, or by a sampler that did not converge."""
        return np.broadcast_to(np.isin(self.status, BROKEN), self.ran.shape)

    @cached_property
    def judged(self) -> BoolArray:
        """Run by a method that has intervals."""
        return self.ran & self.offers

    def holds(self, target: FloatArray) -> BoolArray:
        """Whether there is an interval and it holds the target; one that is not a number is never held."""
        return self.with_interval & (self.lower <= target) & (target <= self.upper)

    @cached_property
    def rejects(self) -> BoolArray:
        """Whether there is an interval and the null lies outside it."""
        return self.with_interval & ((self.lower > self.null) | (self.upper < self.null))


def mean(values: FloatArray | BoolArray, use: BoolArray) -> Part:
    """Mean over axis 0 of the entries in use; the others' share is 0.

    The sum of the squared shares is the usual estimate sd^2 / n of the mean's variance.
    """
    values = np.asarray(values, float)
    n = use.sum(axis=0)
    total = np.where(use, values, 0.0).sum(axis=0)
    average = np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)
    scale = np.sqrt(n * np.where(n > 1, n - 1.0, np.nan))
    return Part(average, np.where(use, values - average, 0.0) / scale, n.astype(float))


def root(part: Part) -> Part:
    """Square root of a mean, by the delta method."""
    value = np.sqrt(part.value)
    slope = np.divide(0.5, value, out=np.full(value.shape, np.nan), where=value > 0)
    return Part(value, part.share * slope, part.n)


def spread(error: FloatArray, use: BoolArray) -> Part:
    """Standard deviation, with n - 1, of the entries in use."""
    part = mean((error - mean(error, use).value) ** 2, use)
    n = part.n
    factor = np.divide(n, n - 1, out=np.full(n.shape, np.nan), where=n > 1)
    return root(Part(part.value * factor, part.share * factor, n))
