"""The estimate: one object for frequentist and Bayesian intervals.

An estimate is an ``xr.Dataset`` over ``policy`` and ``ci_bound = [lower, upper]`` with ``estimate``, ``std_error``,
``interval``, ``status``, ``route`` and ``source``; optionally ``influence(policy, prompt)`` (contrasts and clusters
come for free) and ``draws(policy, replicate)`` (a bootstrap distribution and a posterior are the same object).
"""

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special
from xarray.indexes import PandasIndex

from cje_core.checks import FloatArray
from cje_core.data.construct import dataset
from cje_core.data.meanings import ESTIMATE, attributes

CI_BOUND = ["lower", "upper"]
# made once: an index costs a study a tenth of a millisecond
BOUNDS = xr.IndexVariable("ci_bound", CI_BOUND, attributes("ci_bound", ESTIMATE))  # type: ignore[no-untyped-call]
BOUND_INDEX = PandasIndex(BOUNDS.to_index(), "ci_bound", BOUNDS.dtype)


class Status(IntEnum):
    """What happened to one policy's estimate; each member carries its message.

    Members below `TOO_FEW_LABELS` (64) come with a value, the rest are failures with NaN. A failure is data: it travels
    to the table and the plot, and a study shows its share beside the coverage of the intervals printed.
    """

    message: str

    def __new__(cls, value: int, message: str = "") -> "Status":
        """Make a member that knows its message; ``Status(value)`` looks one up."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.message = message
        return member

    OK = 0, "estimated"
    TRANSPORT_ASSUMED = (
        1,
        "too few labelled prompts of its own: the calibration is borrowed and assumed to transport",
    )
    INVERTED_JUDGE = (
        2,
        "the judge ranks against the oracle (the interval of Spearman's correlation lies below 0): check its scale, or "
        "declare the direction decreasing",
    )
    CONSTANT_JUDGE = 3, "all judge scores of the labelled slice are equal: the judge carries no information"
    CONSTANT_LABELS = (
        4,
        "all oracle labels are equal: no spread was seen, so there is no standard error, and no interval but the exact "
        "bound of labels that all lie at one end of the scale",
    )
    ONE_CLUSTER = (
        5,
        "all evaluated responses share one cluster: their spread, and so any interval, cannot be estimated",
    )
    FEW_RESAMPLES = (
        6,
        "too few resamples (bootstrap or leave-out) held enough labels for an interval: use inference='influence'",
    )
    COVARIATES_DROPPED = (
        7,
        "fewer than 20 labels: too few to learn from covariates, the monotone calibrator was used",
    )
    ILL_CONDITIONED = (
        8,
        "the judge hardly tells good from bad (the interval of Youden's J reaches 0): the value is not identified",
    )
    POOR_OVERLAP = 9, "fewer than ten effective logged responses: the weights rest on a handful of them"
    FEW_LABELS_POSTERIOR = (
        10,
        "fewer than 13 labelled prompts: the prior speaks, not the data, so there is no interval; label more",
    )
    NOT_CONVERGED = (
        11,
        "the sampler did not converge: raise n_draws, or use engine='gibbs' where the estimator has it",
    )

    TOO_FEW_LABELS = 64, "fewer than 4 labelled prompts: label more before asking for a number"
    NO_LABELS = 65, "no oracle labels that this estimator can use"
    NO_RESPONSES = 66, "no response of this policy enters the mean"
    NO_PROBES = 67, "no probe labels for this policy"
    NO_LOG_PROBS = 68, "no logged response has the log-likelihoods of this policy and of the logger"
    NOT_BINARY = 69, "oracle labels are not binary: misclassification correction is not defined"
    ONE_CLASS = 70, "only one class among the labels: sensitivity and specificity cannot both be estimated"
    NO_TRUTH = 71, "the data do not carry the true regression: the oracle bound exists in simulations only"
    UNINFORMATIVE_JUDGE = (
        72,
        "the labels do not show that higher scores mean better responses: nothing can be borrowed, label this policy",
    )
    LOW_SUPPORT = (
        73,
        "too many of the policy's responses lie where hardly any label taught the calibrator: label this policy",
    )
    SHRUNK_WEIGHTS = (
        75,
        "the stabilised weights shrink this policy's value towards the logger's: use snips, or fresh responses",
    )
    LEVEL_REFUSED = 74, "a gate or an audit refuses this level: see what refused it"

    @property
    def failed(self) -> bool:
        """Whether this status comes without an estimate."""
        return self >= Status.TOO_FEW_LABELS


# of the variable ``status``
FLAGS = {
    "flag_values": np.array([int(s) for s in Status], dtype=np.int8),
    "flag_meanings": " ".join(s.name.lower() for s in Status),
}
# Dimensions of what an estimate holds; anything else is over policies, or says its own.
DIMS = {
    "interval": ("policy", "ci_bound"),
    "influence": ("policy", "prompt"),
    "balance": ("policy", "prompt"),
    "draws": ("policy", "replicate"),
}
ESTIMAND = "V(policy) = E[Y under the policy]"
OVERLAP_POPULATION = (
    "not V(policy): E[Y] over the overlap population of policy and logger, density ~ p p0 / (p + p0)"
)


class Row(NamedTuple):
    """One policy of an estimate, by position: a labelled selection of every variable costs a hundred times as much."""

    data: xr.Dataset
    at: int

    @classmethod
    def of(cls, data: xr.Dataset, policy: str) -> "Row":
        """The row of a policy by name."""
        return cls(data, data.variables["policy"].values.astype(str).tolist().index(policy))

    def take(self, name: str) -> Any:
        """Its part of a variable over ``policy``."""
        variable = self.data.variables[name]
        return variable.values.take(self.at, axis=variable.dims.index("policy"))


def label_estimate(
    policies: Sequence[str],
    values: Mapping[str, Any],
    *,
    estimator: str,
    options: Mapping[str, Any],
    ci_kind: str,
    ci_prob: float,
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    indexes: Mapping[str, xr.Index] | None = None,
) -> xr.Dataset:
    """Put labels on arrays: the only place where an estimate is built.

    Parameters
    ----------
    policies : sequence of str, length P
    values : mapping of str
        ``estimate``, ``std_error``, ``status``, shape (P,), in units of the oracle scale, NaN where the status is a
        failure; ``interval``, shape (P, 2); ``route``, how each number came about, for instance ``"theta_aug"``.
        Optional: ``source``, what each value rests on (`cje_core.inference.sources`); ``influence``, shape (P,
        prompts), scaled so that the estimate's error is their mean, with the coordinate ``prompt``; ``balance``, alike,
        the weights of the labels that a borrowed value takes from others (NaN where it takes none); ``draws``, shape
        (P, replicates); more, over policies or as ``(dims, array)``. None is left out.
    estimator, options, ci_kind, ci_prob
        Recorded as attributes; `attrs` are more of these.
    coords : mapping, optional
        More coordinates.
    indexes : mapping, optional
        Of those coordinates that have one already, which come as its variables.
    """
    kinds = {"estimate": float, "std_error": float, "interval": float, "route": str, "source": str}
    kinds |= {"influence": float, "balance": float, "draws": float, "status": np.int8}
    variables: dict[str, tuple[Any, ...]] = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            variables[name] = (*value[:2], attributes(name, ESTIMATE))
        elif value is not None:
            variables[name] = (
                DIMS.get(name, ("policy",)), np.asarray(value, kinds.get(name)), attributes(name, ESTIMATE)
            )  # fmt: skip
    variables["status"] = (*variables["status"][:2], FLAGS | attributes("status", ESTIMATE))
    named = {
        "policy": list(policies),
        "ci_bound": BOUNDS,
        **(coords or {}),
        "method": ((), estimator),  # what `xr.concat(estimates, "method")` makes its coordinate of
    }
    return dataset(
        variables,
        {name: _coordinate(name, held) for name, held in named.items()},
        indexes={"ci_bound": BOUND_INDEX, **(indexes or {})},
        attrs={
            "estimator": estimator,
            "options": AS_JSON.encode(dict(options)),
            "ci_kind": ci_kind,
            "ci_prob": float(ci_prob),
            "estimand": ESTIMAND,
            **(attrs or {}),
        },
    )


def _coordinate(name: str, held: Any) -> Any:
    """A coordinate that says what it is; an index that is made already does, or is left as it is."""
    if isinstance(held, xr.Variable):
        return held
    dims, values = held if isinstance(held, tuple) else (name, held)
    return dims, values, attributes(name, ESTIMATE)


def _plain(option: object) -> object:
    """Give an option of NumPy's as the Python number that it is."""
    if isinstance(option, np.generic):
        return option.item()
    raise TypeError(f"an option is {option!r}; use a number, a word or a tuple of them")


AS_JSON = json.JSONEncoder(sort_keys=True, default=_plain)


def wald(
    estimate: npt.ArrayLike, std_error: npt.ArrayLike, df: npt.ArrayLike, ci_prob: npt.ArrayLike
) -> FloatArray:
    """Interval estimate +- t_{df} * SE, shape (..., 2); ``df = inf`` gives the normal one.

    Examples
    --------
    >>> wald(0.0, 1.0, np.inf, 0.95).round(3).tolist()
    [-1.96, 1.96]
    """
    quantile = special.stdtrit(np.asarray(df, float), 0.5 + np.asarray(ci_prob) / 2)
    half, center = quantile * np.asarray(std_error, float), np.asarray(estimate, float)
    return np.stack([center - half, center + half], axis=-1)


def logit_wald(
    estimate: npt.ArrayLike,
    std_error: npt.ArrayLike,
    df: npt.ArrayLike,
    ci_prob: npt.ArrayLike,
    scale: tuple[float, float],
) -> FloatArray:
    """Interval on the logit of the declared scale, mapped back: it never leaves the scale.

    With ``share = (estimate - low) / (high - low)`` the delta method gives the logit the standard error
    ``SE / ((high - low) share (1 - share))``. An estimate at or beyond an end of the scale has no logit: NaN. Near an
    end the delta method fails, see `cje_core.families.intervals`.

    Examples
    --------
    >>> logit_wald(0.9, 0.1, np.inf, 0.95, (0.0, 1.0)).round(3).tolist()
    [0.505, 0.988]
    """
    low, high = scale
    center, error = np.asarray(estimate, float), np.asarray(std_error, float)
    share = (center - low) / (high - low)
    share = np.where((share > 0) & (share < 1), share, np.nan)
    bounds = wald(special.logit(share), error / ((high - low) * share * (1 - share)), df, ci_prob)
    return np.asarray(low + (high - low) * special.expit(bounds))


def into_scale(interval: FloatArray, estimate: npt.ArrayLike, scale: tuple[float, float]) -> FloatArray:
    """Cut intervals (..., 2) to the declared scale, then widen them where needed to contain the estimate.

    Examples
    --------
    >>> into_scale(np.array([[0.9, 1.2], [0.95, 1.1]]), [0.97, 1.02], (0.0, 1.0)).tolist()
    [[0.9, 1.0], [0.95, 1.02]]
    """
    return contain(np.clip(interval, *scale), np.asarray(estimate, float))


def contain(interval: FloatArray, estimate: FloatArray) -> FloatArray:
    """Widen intervals (..., 2) where needed to contain the estimate."""
    return np.stack([np.minimum(interval[..., 0], estimate), np.maximum(interval[..., 1], estimate)], axis=-1)


def percentile(draws: FloatArray, estimate: npt.ArrayLike, ci_prob: float) -> FloatArray:
    """Percentile interval of draws (P, replicates), widened where needed so that it contains the estimate."""
    center = np.asarray(estimate, float)
    tails = np.array([0.5 - ci_prob / 2, 0.5 + ci_prob / 2])
    out = np.full((len(draws), 2), np.nan)
    usable = np.isfinite(draws).all(axis=1) & np.isfinite(center)
    if usable.any():
        out[usable] = contain(np.quantile(draws[usable], tails, axis=1).T, center[usable])
    return out


def hdi(draws: FloatArray, ci_prob: float) -> FloatArray:
    """Shortest interval that holds the given share of the draws (highest density, if unimodal), shape (2,).

    Widened where needed so that it contains the mean of the draws.

    Examples
    --------
    >>> hdi(np.array([0.5, 1.0, 1.1, 1.2, 1.6]), 0.6).tolist()
    [1.0, 1.2]
    """
    ordered = np.sort(draws)
    inside = min(int(np.ceil(ci_prob * len(ordered))), len(ordered))
    width = ordered[inside - 1 :] - ordered[: len(ordered) - inside + 1]
    first = int(np.argmin(width))
    return contain(ordered[[first, first + inside - 1]], np.asarray(draws.mean()))


def bca(draws: FloatArray, estimate: float, acceleration: float, ci_prob: float) -> FloatArray:
    """Bias-corrected accelerated interval (Efron 1987) of one estimate, widened to contain it, shape (2,).

    The quantile levels are ``Phi(z0 + (z0 + z) / (1 - a (z0 + z)))``, z0 the normal quantile of the share of draws
    below the estimate (ties count half), a the acceleration, for instance `cje_core.inference.influence.acceleration`
    of the influence values.
    """
    below = (draws < estimate).mean() + 0.5 * (draws == estimate).mean()
    z0 = special.ndtri(np.clip(below, 0.5 / len(draws), 1 - 0.5 / len(draws)))
    shifted = z0 + special.ndtri([0.5 - ci_prob / 2, 0.5 + ci_prob / 2])
    level = special.ndtr(z0 + shifted / (1 - acceleration * shifted))
    return contain(np.quantile(draws, np.sort(level)), np.asarray(estimate, float))


def studentised(
    draws: FloatArray, draw_error: FloatArray, estimate: float, std_error: float, ci_prob: float
) -> FloatArray:
    """Bootstrap-t interval of one estimate, widened to contain it, shape (2,).

    ``estimate - q * SE`` at the upper and lower quantiles q of ``(draw - estimate) / draw_error``: each replicate's
    value and its own standard error, by the very formula that gave `std_error`.
    """
    pivot = (draws - estimate) / draw_error
    quantiles = np.quantile(pivot, [0.5 + ci_prob / 2, 0.5 - ci_prob / 2])
    return contain(estimate - quantiles * std_error, np.asarray(estimate, float))


def clopper_pearson(share: npt.ArrayLike, count: npt.ArrayLike, ci_prob: npt.ArrayLike) -> FloatArray:
    """Interval of a share out of any positive (effective) count by the two binomial tails, shape (..., 2).

    With ``x = share * count`` the bounds are the ``alpha / 2`` quantile of Beta(x, count - x + 1) and the ``1 - alpha /
    2`` quantile of Beta(x + 1, count - x): for whole x the interval of Clopper and Pearson, which covers at least
    `ci_prob` whatever the share; for effective counts that of Korn and Graubard (1998). A share of 1 has the lower
    bound ``(alpha / 2)^(1 / count)``, and this one holds for any variable on [0, 1]: if its mean is d below 1 it
    differs from 1 with probability d or more, so `count` draws of 1 have probability ``(1 - d)^count`` at most.

    Examples
    --------
    >>> clopper_pearson([0.9, 1.0], 10, 0.95).round(3).tolist()
    [[0.555, 0.997], [0.692, 1.0]]
    """
    n = np.asarray(count, float)
    x = np.clip(np.asarray(share, float), 0.0, 1.0) * n
    tail = 0.5 - np.asarray(ci_prob) / 2
    with np.errstate(invalid="ignore"):
        lower = special.betaincinv(np.where(x > 0, x, 1.0), n - x + 1, tail)
        upper = special.betaincinv(x + 1, np.where(x < n, n - x, 1.0), 1 - tail)
    return np.stack([np.where(x <= 0, 0 * x, lower), np.where(x >= n, 1 + 0 * x, upper)], axis=-1)
