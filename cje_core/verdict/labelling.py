"""Which responses to label next, where no label says what a score is worth: regions of the judge's scale, and how many.

A level is refused for want of support where a policy's scores lie beyond the labelled ones, or in a gap between them.
The paper's answer is to label there. Its own labels then make the policy's value, so they must be drawn at random
within each region with known probabilities (``label_prob``), and the region that labels of others do cover gets some
too: a policy whose labels are all from the uncovered part would still borrow the rest, without anything that says so.

How many, by region r with share p_r of the policy's responses:

*Precision.* The value corrected by m_r labels in region r has the label error ``sum_r p_r^2 sigma_r^2 / m_r``. Least
labels for a half-width of at most ``margin`` is Neyman's allocation,

    m_r = (t / margin)^2 p_r sigma_r sum_s p_s sigma_s

with t of as many degrees of freedom as labels, less one; of a single region, ``(t sigma / margin)^2``. Sigma is the
standard deviation of labels around the held-out calibrator where labels are, and of the labels themselves where none
is, since nothing is known of residuals there.

*Reach.* m random labels beyond an end of the range leave more than x of the policy's mass beyond the outermost with
probability ``(1 - x / p_r)^m``, and in a gap leave a gap of mass x with probability at most ``(m + 1)(1 - x / p_r)^m``
(Bonferroni over the spacings): m is the least for which this is at most 5% at x = eta, the threshold of OutOfRange,
shared by the regions that are not covered.

The larger of the two, at least 4 per region, at most its responses.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.calibration.oracle_slice import OracleSlice, held_out
from cje_core.checks import FloatArray, probability
from cje_core.data.arrays import count_prompts
from cje_core.data.construct import dataset, in_order
from cje_core.transport.margin import harmless_margin
from cje_core.verdict.thresholds import BY_NAME

CHANCE = 0.01  # a gap counts if as many labels drawn like the policy's scores would leave one so seldom
MISSED = 0.05  # probability that labels bought as told do not reach far enough
FEW_OR_MANY = np.arange(1, 1000), np.arange(1000, 100_000)  # numbers of labels to try: hardly ever the second
SMALLEST = 0.005  # share of a policy's responses that is a region
NUMBERS = ("low", "high", "share", "n_responses", "n_labels", "sigma", "labels", "label_prob")


class Region(NamedTuple):
    """A part of the judge's scale."""

    kind: str  # below, gap, above or covered
    low: float
    high: float
    inside: FloatArray  # of each response, 1 or 0


def next_labels(
    data: xr.Dataset | Calibrated, *, margin: float | None = None, ci_prob: float = 0.95
) -> xr.Dataset:
    """Regions of each policy's judge scores, and how many responses to label in each; see the module.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    margin : float, optional
        Half-width to which the labels should make the value known, in units of the oracle scale; by default 5% of the
        width of ``oracle_range``.
    ci_prob : float
        Probability of that interval.

    Returns
    -------
    xr.Dataset
        Over ``policy, region`` (in order of score, the covered one last; empty text and NaN where a policy has fewer):
        ``kind`` (below, gap, above: no label there; covered), ``low`` and ``high`` of its scores, ``share`` of the
        policy's mass, ``n_responses``, ``n_labels`` that teach there, ``sigma``, ``labels`` to buy and ``label_prob``
        to declare for them, labels over responses. Over ``policy``: ``uncovered`` share, ``half_width`` with these
        labels, the spread of the responses included. Nothing where no calibrator could be fitted, and of policies
        without responses.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=300, oracle_fraction=0.5, label_design="base", rng=1)
    >>> found = next_labels(data)
    >>> bool((found["labels"].sum("region") > 0).all())
    True
    """
    probability(ci_prob)
    given = calibrated(data)
    data, rows, fitted = given.parts
    margin = harmless_margin(margin, tuple(data.attrs["oracle_range"]))
    found: list[list[tuple[str, FloatArray]]] = []
    uncovered, half_width = np.full((2, len(rows.policies)), np.nan)
    for p in range(len(rows.policies)):
        at = np.flatnonzero((rows.policy == p) & rows.evaluated)
        found.append([])
        if fitted.calibrator is None or len(at) == 0:
            continue
        score, share = rows.score[at], rows.weight[at] / rows.weight[at].sum()
        taught = fitted.z[:, 0]
        regions = split(score, share, taught)
        covered = np.array([region.kind == "covered" for region in regions])
        mass = np.array([share @ region.inside for region in regions])
        sigma = np.where(covered, *_spreads(fitted))
        available = np.array([count_prompts(rows, at[region.inside > 0]) for region in regions])
        wanted = np.maximum(_for_precision(mass, sigma, margin, ci_prob), _to_reach(regions, mass))
        labels = np.minimum(np.maximum(wanted, MIN_LABELLED_CLUSTERS), available)
        uncovered[p] = mass[~covered].sum()
        variance = (mass**2 * sigma**2 / np.maximum(labels, 1)).sum() + sigma.max() ** 2 / available.sum()
        half_width[p] = special.stdtrit(max(labels.sum() - 1, 1), 0.5 + ci_prob / 2) * np.sqrt(variance)
        for k, region in enumerate(regions):
            within = (taught >= region.low) & (taught <= region.high)
            known = within.sum() if region.kind == "covered" else 0
            numbers = (region.low, region.high, mass[k], available[k], known, sigma[k], labels[k])
            found[p].append((region.kind, np.array([*numbers, labels[k] / available[k]], float)))
    most = max((len(of) for of in found), default=0)
    kinds = np.array([[kind for kind, _ in of] + [""] * (most - len(of)) for of in found], dtype=str)
    table = np.full((len(NUMBERS), len(found), most), np.nan)
    for p, of in enumerate(found):
        for k, (_, row) in enumerate(of):
            table[:, p, k] = row
    cell = ("policy", "region")
    out = dataset(
        {
            "kind": (cell, kinds.reshape(len(found), most)),
            **{name: (cell, column) for name, column in zip(NUMBERS, table, strict=True)},
            "uncovered": ("policy", uncovered),
            "half_width": ("policy", half_width),
        },
        coords={"policy": rows.policies, "region": np.arange(most)},
        attrs={"margin": margin, "ci_prob": ci_prob, "eta": BY_NAME["identification"].good},
    )
    return in_order(out, data)


def split(score: FloatArray, share: FloatArray, taught: FloatArray) -> list[Region]:
    """Regions of a policy's scores (r,) with shares of its mass, given the m scores that carry labels.

    Beyond the range of the labels, a region is what holds more than 0.5% of the mass. Between two neighbouring
    labelled scores it is a gap of mass x above eta that m labels drawn like the policy's scores would hardly leave,
    ``(m + 1)(1 - x)^m < .01``.

    Examples
    --------
    >>> score = np.linspace(0, 1, 101)
    >>> found = split(score, np.full(101, 1 / 101), np.r_[np.linspace(0.1, 0.3, 60), np.linspace(0.6, 0.9, 60)])
    >>> [(region.kind, round(region.low, 2), round(region.high, 2)) for region in found]
    [('below', 0.0, 0.09), ('gap', 0.31, 0.59), ('above', 0.91, 1.0), ('covered', 0.1, 0.9)]
    """
    level = np.unique(taught)
    place = np.searchsorted(level, score, side="left")
    on = level[np.minimum(place, len(level) - 1)] == score
    between = np.where(on, -1, place)  # 0: below all, k: between levels k - 1 and k, len(level): above all
    mass = np.bincount(between[~on], weights=share[~on], minlength=len(level) + 1)
    m = len(taught)
    gap = (mass > BY_NAME["identification"].good) & ((m + 1) * (1 - np.minimum(mass, 1)) ** m < CHANCE)
    gap[[0, -1]] = mass[[0, -1]] > SMALLEST
    regions, taken = [], np.zeros(len(score), dtype=bool)
    for run in np.split(np.flatnonzero(gap), np.flatnonzero(np.diff(np.flatnonzero(gap)) > 1) + 1):
        if not len(run):
            continue
        first, last = int(run[0]), int(run[-1])
        # what lies on a labelled level between two of these parts belongs to them: one label there is no support
        low, high = (
            level[k] if 0 <= k < len(level) else side for k, side in ((first - 1, -np.inf), (last, np.inf))
        )
        inside = (score > low) & (score < high)
        kind = "below" if first == 0 else "above" if last == len(level) else "gap"
        regions.append(
            Region(kind, float(score[inside].min()), float(score[inside].max()), inside.astype(float))
        )
        taken |= inside
    rest = ~taken
    if rest.any():
        regions.append(Region("covered", float(level[0]), float(level[-1]), rest.astype(float)))
    return regions


def _spreads(fitted: OracleSlice) -> tuple[float, float]:
    """Standard deviation of labels around the held-out calibrator, and of the labels themselves."""
    weight = fitted.weight / fitted.weight.sum()
    residual = fitted.label - held_out(fitted, fitted.z, fitted.prompt)
    mean = weight @ fitted.label
    return float(np.sqrt(weight @ residual**2)), float(np.sqrt(weight @ (fitted.label - mean) ** 2))


def _for_precision(mass: FloatArray, sigma: FloatArray, margin: float, ci_prob: float) -> FloatArray:
    """Neyman's allocation for a half-width of `margin`; t follows the labels, from the normal quantile upwards."""
    part = mass * sigma
    critical = special.ndtri(0.5 + ci_prob / 2)
    for _ in range(20):  # t falls as m rises: a few rounds reach the fixed point
        labels = np.ceil((critical / margin) ** 2 * part * part.sum() - 1e-9)
        critical = special.stdtrit(max(labels.sum() - 1, 2), 0.5 + ci_prob / 2)
    return np.asarray(labels)


def _to_reach(regions: list[Region], mass: FloatArray) -> FloatArray:
    """Labels after which the mass out of range, and the largest gap, are at most eta; 0 for covered regions."""
    open_ = [k for k, region in enumerate(regions) if region.kind != "covered"]
    least = np.zeros(len(regions))
    for k in open_:
        eta = BY_NAME["identification"].good / len(open_)
        if mass[k] <= eta:
            continue
        for m in FEW_OR_MANY:
            missed = (1 - eta / mass[k]) ** m
            if regions[k].kind == "gap":
                missed = missed * (m + 1)
            enough = m[missed <= MISSED]
            if enough.size:
                break
        least[k] = enough[0]
    return least
