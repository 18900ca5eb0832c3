"""Data larger than memory, pooled: the analysis of few rows that is the analysis of all.

Prompts with a label or a probe stay as they are. Of the others an analysis needs sums over each policy's responses of
functions of the judge score that are cubic, or less, between neighbouring *cuts*, the scores of labelled responses and
the knots of the balance: the calibrator is linear there, so are the tuned prediction and the mean score, their squares
are quadratic, one term of the balance is cubic, and shares below and above a cut jump at cuts alone. So all responses
of a policy between two cuts (a cell), and all at a cut, become at most three rows: the points and weights of Lobatto's
rule for the scores s inside, which gives every cubic its exact sum. Its points are the least score a, the largest b and

    x = sum s q(s) / sum q(s),   q(s) = (s - a)(b - s),   of weight  sum q(s) / q(x);

the weights of a and b follow from the count and the mean. A row ``stands_for`` its weight; each of the responses
behind it is one of a prompt without labels, so standard errors, degrees of freedom and tests count them as such.

Two policies' values share prompts, and rows of cells do not. What their errors have in common is added by a second
reading of the scores (`Pooled.joined`): the influence at an unlabelled prompt is, within a cell, a line in the score
whose values at a and b are known, so their products sum over prompts to a Gram matrix of policies by estimators, and
the prompts of cells are exchanged for the few columns of its square root: every sum of squares and products of
influence values is then that over all prompts. Each column comes with either sign, so sums of cubes are those over the
labelled prompts: limits of differences of graded values lack the skewness of the others, in tests up to a two-hundredth
of their width with a fifth of 400 prompts labelled.

All else is exact to rounding for the estimators that are offered ``always`` (`cje_core.estimators.Role`) and a monotone
calibrator;
clusters, several draws, covariates, logged responses and posteriors need the rows themselves.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data import DataError, from_arrays
from cje_core.families.direct.balance import KNOTS
from cje_core.formulas.covariance import covariance_root
from cje_core.formulas.room import REACH
from cje_core.io.files import check_known, check_teachers
from cje_core.io.large.spill import Hashes, Labels, Spill

FLAT = 1e-13  # mean of q in a cell, in squared widths, that is rounding
CHUNK = 250_000  # prompts whose influence values are in memory at a time


class Cells(NamedTuple):
    """Cells of the judge score, between the cuts and at them in turn; then the same of prompts that not all share."""

    cut: FloatArray  # sorted
    low: FloatArray  # (cells,) the scores that may lie inside
    high: FloatArray

    def code(self, score: FloatArray, apart: BoolArray) -> IntArray:
        """Cell of each score, of a prompt that not every policy has answered where it is `apart`."""
        after = np.searchsorted(self.cut, score)
        first = apart * (len(self.low) // 2)
        if not len(self.cut):
            return np.asarray(first + after)
        return np.asarray(first + 2 * after + (self.cut[np.minimum(after, len(self.cut) - 1)] == score))


class Points(NamedTuple):
    """Three points and weights of each policy in each cell, (policies, cells, 3); a weight of 0 is no point."""

    score: FloatArray
    weight: FloatArray


class Pooled(NamedTuple):
    """Pooled data, and what `joined` needs of their making."""

    data: xr.Dataset
    spill: Spill
    policies: IntArray  # (P,) of the data, in order: position in `Spill.policies`
    labelled: Hashes  # sorted: prompts that stay as they are, the first of the data
    cells: Cells
    points: Points
    column: IntArray  # (P, cells, 3): position of each point among the data's prompts, where there is one

    def joined(self, estimates: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
        """Estimates whose influence values have the sums of squares and products over all prompts."""
        names = self.data["prompt"].values.astype(str)
        canonical = np.argsort(np.argsort(names, kind="stable"), kind="stable")
        errors = [one["influence"].values for one in estimates.values()]
        # errors of the responses drawn, in the form of influence values
        drawn = {
            name: len(names) * one["borrowed_response"].values
            for name, one in estimates.items()
            if "borrowed_response" in one
        }
        influence = np.stack([*errors, *drawn.values()])[:, :, canonical]
        n_kept = len(self.labelled)
        gram = self._gram(np.nan_to_num(influence))
        root = covariance_root(gram).reshape(*influence.shape[:2], len(gram))
        root[np.isnan(influence).any(axis=2)] = np.nan
        root = np.concatenate([root, -root], axis=2) / np.sqrt(2)
        n = n_kept + 2 * len(gram)
        moved = np.concatenate([influence[:, :, :n_kept], root], axis=2) * (n / len(names))
        kept = np.concatenate([names[:n_kept], _unused(names, 2 * len(gram))])
        found = {}
        responses = dict(zip(drawn, moved[len(estimates) :], strict=True))
        for (name, estimate), values in zip(estimates.items(), moved, strict=False):
            variables = {"influence": (("policy", "prompt"), values)}
            if name in responses:
                sums = responses[name] / n
                variables["borrowed_response"] = (("policy", "component"), covariance_root(sums @ sums.T))
            if "balance" in estimate:
                lent = estimate["balance"].values[:, canonical][:, :n_kept]
                rest = np.where(np.isnan(lent).any(axis=1), np.nan, 0.0)[:, None]
                variables["balance"] = (
                    ("policy", "prompt"),
                    np.hstack([lent, np.tile(rest, (1, 2 * len(gram)))]),
                )
            found[name] = (
                estimate.drop_dims("prompt")
                .drop_dims("component", errors="ignore")
                .assign(variables)
                .assign_coords(prompt=kept, cluster=("prompt", kept))
                .assign_attrs(n_clusters=self.data.attrs["n_prompts"])
            )
        return found

    def _gram(self, influence: FloatArray) -> FloatArray:
        """Sum over unlabelled prompts of the products of their influence values; of shape (E, P, prompts) pooled."""
        n_estimates, n_policies, _ = influence.shape
        score, weight = self.points
        start = score[:, :, 0]
        width = score[:, :, 1] - start
        at = influence[:, np.arange(n_policies)[:, None, None], self.column[:, :, :2]]
        weight = weight[:, :, :2]
        number = self.data["stands_for"].values[:, :, 0]
        each = np.sqrt(number[np.arange(n_policies)[:, None, None], self.column[:, :, :2]])
        at = np.where(weight > 0, at / each, 0.0)
        rise = at[..., 1] - at[..., 0]
        slope = np.divide(rise, width, out=np.zeros_like(rise), where=weight[..., 1] > 0)
        gram = np.zeros((n_estimates * n_policies,) * 2)
        for prompt, scores in self.spill.prompts():
            free = scores[self.policies][:, ~_find(self.labelled, prompt)[1]]
            for first in range(0, free.shape[1], CHUNK):
                some = free[:, first : first + CHUNK].astype(float)
                apart = np.isnan(some).any(axis=0)
                values = np.zeros((n_estimates, n_policies, some.shape[1]))
                for p, own in enumerate(some):
                    there = np.flatnonzero(~np.isnan(own))
                    cell = self.cells.code(own[there], apart[there])
                    beyond = own[there] - start[p, cell]
                    for e in range(n_estimates):
                        values[e, p, there] = at[e, p, cell, 0] + slope[e, p, cell] * beyond
                flat = values.reshape(len(gram), -1)
                gram += flat @ flat.T
        return gram


def pool(
    spill: Spill,
    *,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    calibration_policy: str | Sequence[str] | None = None,
) -> Pooled:
    """Pool the responses of a file; see the module.

    Parameters
    ----------
    spill : Spill
    judge_range, oracle_range, calibration_policy
        As in `cje_core.io.files.read`.
    """
    teachers = [calibration_policy] if isinstance(calibration_policy, str) else calibration_policy
    policies = np.argsort(np.array(spill.policies), kind="stable")
    names = [spill.policies[p] for p in policies]
    check_known(teachers or (), names, str(spill.path))
    rank = np.argsort(policies)
    labels = spill.labelled()
    labels = labels._replace(policy=rank[labels.policy])
    labelled, first, at = np.unique(labels.prompt, return_index=True, return_inverse=True)
    if len(set(labels.name.tolist())) > len(labelled):
        raise DataError(f"{spill.path}: two labelled prompts have one 64-bit hash; rename one")
    cells = _cells(
        labels, _spread(spill, policies), [names.index(name) for name in teachers or names], judge_range
    )
    kept, points, n_prompts = _summed(spill, policies, labelled, cells)

    score, weight, column = _rows(points)
    judge, stands_for = np.hstack([kept, score]), np.hstack([np.ones(kept.shape), weight])
    oracle, prob = np.full((2, *judge.shape), np.nan)
    probe = np.zeros(judge.shape, dtype=bool)
    oracle[labels.policy, at], prob[labels.policy, at] = labels.label, labels.prob
    probe[labels.policy, at] = labels.probe
    data = from_arrays(
        judge,
        policies=names,
        prompts=np.concatenate([labels.name[first], _unused(labels.name, score.shape[1])]),
        oracle=oracle,
        probe=probe,
        label_prob=prob if spill.has_prob else None,
        stands_for=stands_for,
        judge_range=judge_range,
        oracle_range=oracle_range,
        calibration_policy=teachers,
    ).assign_attrs(n_prompts=n_prompts)
    if teachers:
        check_teachers(data, teachers)
    return Pooled(data, spill, policies, labelled, cells, points, column + len(labelled))


def _spread(spill: Spill, policies: IntArray) -> FloatArray:
    """Standard deviation of each policy's scores."""
    start, sums = np.nan, np.zeros((3, len(policies)))
    for _, scores in spill.prompts():
        own = scores[policies].astype(float)
        start = (
            np.nanmean(own) if np.isnan(start) else start
        )  # squares of deviations from there lose no digits
        own -= start
        sums += ((~np.isnan(own)).sum(axis=1), np.nansum(own, axis=1), np.nansum(own**2, axis=1))
    first, second = sums[1:] / np.maximum(sums[0], 1)
    return np.asarray(np.sqrt(np.maximum(second - first**2, 0.0)))


def _cells(
    labels: Labels, spread: FloatArray, teachers: Sequence[int], judge_range: tuple[float, float]
) -> Cells:
    """Cells between the labelled scores, the knots of the balance and the ends of the policies' usual scores."""
    taught = labels.score[~labels.probe & np.isin(labels.policy, teachers)]
    knots = np.quantile(taught, KNOTS, method="averaged_inverted_cdf") if len(taught) else taught
    groups = [
        (p, (labels.policy == p) & kind) for p in range(len(spread)) for kind in (labels.probe, ~labels.probe)
    ]
    seen = [(labels.score[own], REACH * spread[p]) for p, own in groups if own.any()]
    ends = [(score.min() - reach, score.max() + reach) for score, reach in seen]
    cut = np.unique(np.concatenate([labels.score, knots, np.clip(ends, *judge_range).ravel()]))
    low, high = np.empty((2, 2 * len(cut) + 1))
    low[1::2] = high[1::2] = cut
    low[0], high[-1] = judge_range
    low[2::2], high[:-1:2] = np.nextafter(cut, np.inf), np.nextafter(cut, -np.inf)
    return Cells(cut, np.tile(low, 2), np.tile(high, 2))


def _find(among: Hashes, prompt: Hashes) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Where each prompt stands among the sorted ones, and whether it does."""
    at = np.searchsorted(among, prompt)
    if not len(among):
        return at, np.zeros(len(prompt), dtype=bool)
    return at, np.asarray(among[np.minimum(at, len(among) - 1)] == prompt)


def _summed(
    spill: Spill, policies: IntArray, labelled: Hashes, cells: Cells
) -> tuple[FloatArray, Points, int]:
    """Scores of the labelled prompts, Lobatto's points of the others' scores, and the number of prompts."""
    kept = np.full((len(policies), len(labelled)), np.nan)
    middle = cells.low / 2 + cells.high / 2
    sums, n_prompts = np.zeros((4, len(policies), len(middle))), 0
    least, largest = np.full((2, len(policies), len(middle)), [[[np.inf]], [[-np.inf]]])
    for prompt, scores in spill.prompts():
        n_prompts += len(prompt)
        at, found = _find(labelled, prompt)
        kept[:, at[found]] = scores[policies][:, found]
        free = scores[policies][:, ~found].astype(float)
        apart = np.isnan(free).any(axis=0)
        for p, own in enumerate(free):
            there = ~np.isnan(own)
            own = own[there]
            cell = cells.code(own, apart[there])
            np.minimum.at(least[p], cell, own)
            np.maximum.at(largest[p], cell, own)
            own -= middle[cell]
            sums[0, p] += np.bincount(cell, minlength=len(middle))
            power = own.copy()
            for moment in sums[1:, p]:
                moment += np.bincount(cell, power, minlength=len(middle))
                power *= own
    return kept, _points(sums, least, largest, cells), n_prompts


def _points(sums: FloatArray, least: FloatArray, largest: FloatArray, cells: Cells) -> Points:
    """Lobatto's rule from a count and sums of powers of deviations from the middle of each cell, and the extremes."""
    count, seen = sums[0], sums[0] > 0
    middle = cells.low / 2 + cells.high / 2
    a, b = np.where(seen, least - middle, 0.0), np.where(seen, largest - middle, 0.0)
    first, second, third = sums[1:] / np.maximum(count, 1)
    mass = -second + (a + b) * first - a * b  # mean of q
    inside = mass > FLAT * (cells.high - cells.low) ** 2
    mass = np.where(inside, mass, 1.0)
    x = np.clip((-third + (a + b) * second - a * b * first) / mass, a, b)
    bent = (x - a) * (b - x)
    inside &= bent > 0
    weight = np.where(inside, mass / np.where(inside, bent, 1.0), 0.0)
    wide = b > a
    last = np.where(wide, (first - a - weight * (x - a)) / np.where(wide, b - a, 1.0), 0.0)
    share = np.stack([1 - weight - last, last, weight], axis=-1)
    score = np.stack([a, b, x], axis=-1) + middle[:, None]
    score[..., 0], score[..., 1] = np.where(seen, least, middle), np.where(seen, largest, middle)
    return Points(score, np.maximum(share, 0.0) * count[..., None])


def _rows(points: Points) -> tuple[FloatArray, FloatArray, IntArray]:
    """Points as rows: scores and weights (policies, prompts), and the column of each point, (policies, cells, 3).

    What a prompt of all policies has stands in columns that all have (a point may be split for that: neither its sums
    nor its effective numbers change), other points in columns of their policy's own.
    """
    used = points.weight > 0
    half = used.shape[1] // 2
    of_all, apart = used[:, :half].sum(axis=(1, 2)), used[:, half:].sum(axis=(1, 2))
    shared = int(of_all.max())
    score, weight = np.full((2, len(used), shared + int(apart.sum())), np.nan)
    weight[:] = 1.0
    column = np.zeros(used.shape, dtype=np.intp)
    starts = shared + np.cumsum(apart) - apart
    for p, (n, start, n_apart) in enumerate(zip(of_all, starts, apart, strict=True)):
        at = np.concatenate([np.arange(n), start + np.arange(n_apart)])
        column[p][used[p]] = at
        score[p, at], weight[p, at] = points.score[p][used[p]], points.weight[p][used[p]]
        if 0 < n < shared:
            score[p, n:shared] = score[p, n - 1]
            weight[p, n - 1 : shared] = weight[p, n - 1] / (shared - n + 1)
    return score, weight, column


def _unused(names: npt.NDArray[np.str_], n: int) -> npt.NDArray[np.str_]:
    """Names that none of these is."""
    prefix = "unlabelled "
    while any(name.startswith(prefix) for name in names.tolist()):
        prefix = f"_{prefix}"
    return np.char.add(prefix, np.arange(n).astype(str))
