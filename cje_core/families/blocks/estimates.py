"""From values of a block to intervals and differences: `cje_core.families.assemble` for many data sets at once."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.data.block import Block
from cje_core.families.intervals import NOTHING, Evidence, bounds, weigh_evidence
from cje_core.formulas.borrowed import Borrowed
from cje_core.formulas.room import crowding, share_beyond, unseen_weight
from cje_core.inference.borrowed_limits import pair_limits
from cje_core.inference.borrowed_limits import value_limits as borrowed_value_limits
from cje_core.inference.estimate import Status, contain, into_scale, percentile
from cje_core.inference.limits import PER_VALUE, Basis, error_skewness
from cje_core.inference.pairs import Apart, Pairs, lent_df, pair_levels

# statuses that explain a missing standard error by themselves, beside the failures
SILENT = (Status.CONSTANT_LABELS, Status.FEW_RESAMPLES)


class Numbers(NamedTuple):
    """What the intervals of a block are made from, arrays (R, P)."""

    value: FloatArray
    influence: FloatArray  # (R, P, n)
    std_error: FloatArray
    df: FloatArray
    status: IntArray
    balance: FloatArray | None = None  # (R, P, n), see `cje_core.inference.pairs.lent_df`


class BlockEstimate(NamedTuple):
    """Estimates of R data sets and P policies, the policies in the order of the block."""

    estimate: FloatArray  # (R, P)
    std_error: FloatArray
    df: FloatArray
    interval: FloatArray  # (R, P, 2)
    status: npt.NDArray[np.int8]
    influence: FloatArray  # (R, P, n)
    basis: Basis  # (R, P), of the intervals
    balance: FloatArray | None
    splines: list[Borrowed | None] | None = (
        None  # of each data set, where values are borrowed by the spline posterior
    )

    def pairs(self, first: IntArray, second: IntArray, ci_prob: float) -> Pairs:
        """Differences of the policies numbered `first` minus `second`, arrays (R, pairs); p-values only of t tests."""
        n_sets, n_policies, n = self.influence.shape
        apart = self.influence[:, first] - self.influence[:, second]
        std_error = standard_error(apart)
        flat = self.influence.reshape(-1, n)

        def correlation(a: IntArray, b: IntArray) -> FloatArray:
            joint, own, other = (np.einsum("ki,ki->k", flat[i], flat[j]) for i, j in ((a, b), (a, a), (b, b)))
            return np.asarray(joint / np.sqrt(own * other))

        value = np.where(self.status >= Status.TOO_FEW_LABELS, np.nan, self.estimate)
        parts = self.basis._replace(value=value, std_error=self.std_error, df=self.df)
        levels = parts._replace(**{name: getattr(parts, name).ravel() for name in PER_VALUE})
        at = np.arange(n_sets)[:, None] * n_policies
        found = pair_levels(
            levels,
            (at + first).ravel(),
            (at + second).ravel(),
            Apart(
                std_error.ravel(),
                self._pair_df(first, second, apart).ravel(),
                error_skewness(apart).ravel(),
            ),
            correlation,
            ci_prob,
            tested=False,
        )
        found = Pairs(*(part.reshape(n_sets, len(first), *part.shape[1:]) for part in found))
        for r, lent in enumerate(self.splines or ()):
            if lent is not None:
                known = np.isfinite(lent.offset) & np.isfinite(self.interval[r]).all(axis=-1)
                chosen = known[first] & known[second] & ~(lent.own[first] & lent.own[second])
                chosen &= np.isfinite(found.std_error[r])
                limits, _ = pair_limits(lent, first[chosen], second[chosen], ci_prob, tested=False)
                found.interval[r, chosen] = contain(limits, found.difference[r, chosen])
                found.p_value[r, chosen] = found.probability[r, chosen] = np.nan
        return found

    def _pair_df(self, first: IntArray, second: IntArray, apart: FloatArray) -> FloatArray:
        """Degrees of freedom of differences with influence `apart`, as `cje_core.inference.pairs` has them."""
        df: FloatArray = np.minimum(self.df[:, first], self.df[:, second])
        if self.balance is None or not np.isfinite(self.balance).any():
            return df
        balance = np.abs(self.balance[:, first] - self.balance[:, second])
        lent = np.isfinite(balance).all(axis=-1) & np.isfinite(df)
        df[lent] = lent_df(balance[lent], apart[lent])
        return df


class Labelled(NamedTuple):
    """What the labels of a block show at a glance."""

    number: IntArray  # (R, P)
    equal: BoolArray  # (R, P): there are some, and all are equal
    ends: BoolArray  # (R, P): all are at the two ends of the scale
    shared: BoolArray  # (R,): a prompt has labels of two policies


@lru_cache(maxsize=1)  # the methods of a study come one after the other
def labelled(block: Block) -> Labelled:
    """Count and compare the labels."""
    n_sets, n_policies, _ = block.label.shape
    number = np.zeros((n_sets, n_policies), dtype=np.int64)
    equal, ends = np.zeros((2, n_sets, n_policies), dtype=np.bool_)
    out = Labelled(number, equal, ends, np.zeros(n_sets, dtype=np.bool_))
    _look_at(block.label, *block.oracle_range, out)
    return out


@Kernel
def _look_at(labels, low, high, out):  # type: ignore[no-untyped-def]
    for r in range(len(labels)):
        taken = np.zeros(labels.shape[2], dtype=np.bool_)
        for p in range(labels.shape[1]):
            count, others, inside, first = 0, 0, 0, np.nan
            for i in range(labels.shape[2]):
                y = labels[r, p, i]
                if not np.isnan(y):
                    first = y if count == 0 else first
                    count += 1
                    others += y != first
                    inside += y != low and y != high
                    out.shared[r] |= taken[i]
                    taken[i] = True
            out.number[r, p], out.equal[r, p], out.ends[r, p] = count, count > 0 and others == 0, inside == 0


@lru_cache(maxsize=1)
def own_mean(block: Block) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted mean of each policy's own labels, its influence and degrees of freedom."""
    weight = np.divide(1.0, block.label_prob, out=np.zeros(block.label.shape), where=np.isfinite(block.label))
    return weighted_mean(block.label, weight)


@lru_cache(maxsize=1)
def own_evidence(block: Block) -> Evidence:
    """What the labels of each policy say by themselves, arrays (R, P): `cje_core.families.intervals.evidence_of`."""
    mean, influence, df = own_mean(block)
    count, equal, ends, _ = labelled(block)
    error = standard_error(influence)
    found = weigh_evidence(ends, equal, mean, error, df, count.astype(float), block.oracle_range)
    unseen, crowded = np.zeros((2, *count.shape))
    _weigh(block.score, block.label, *block.oracle_range, unseen, crowded)
    return found._replace(there=count >= MIN_LABELLED_CLUSTERS, unseen_weight=unseen, crowding=crowded)


@Kernel
def _weigh(scores, labels, low, high, unseen, crowded):  # type: ignore[no-untyped-def]
    """Fill in, (R, P), what `cje_core.formulas.room` says of the labels of each policy."""
    for r in range(len(labels)):
        for p in range(labels.shape[1]):
            there = ~np.isnan(labels[r, p])
            if there.sum() >= MIN_LABELLED_CLUSTERS:
                label, score = labels[r, p], scores[r, p]
                beyond = share_beyond(score, np.ones(len(score)), score[there])
                unseen[r, p] = unseen_weight(label[there], beyond, low, high)
                crowded[r, p] = crowding(label[there], low, high)


def own_status(block: Block) -> IntArray:
    """(R, P) whether a policy has enough labels of its own, and whether they show a spread."""
    count, equal = labelled(block)[:2]
    few = [count == 0, count < MIN_LABELLED_CLUSTERS, equal]
    return np.select(few, [Status.NO_LABELS, Status.TOO_FEW_LABELS, Status.CONSTANT_LABELS], Status.OK)


def weighted_mean(values: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Hajek means over the last axis, their influence (small-sample factor included) and degrees of freedom.

    `cje_core.inference.influence.mean_part` where each prompt is a cluster; NaN without any weight. Values count
    where their weight is positive.
    """
    n = values.shape[-1]
    mean, df, influence = np.empty(values.shape[:-1]), np.empty(values.shape[:-1]), np.empty(values.shape)
    _means(
        *(np.ascontiguousarray(x).reshape(-1, n) for x in (values, weight)),
        *(mean.reshape(-1), df.reshape(-1), influence.reshape(-1, n)),
    )
    return mean, influence, df


@Kernel
def _means(values, weight, mean, df, influence):  # type: ignore[no-untyped-def]
    n = values.shape[1]
    for row in range(len(values)):
        total = weight[row].sum()
        unit = 1 / total if total > 0 else 0.0
        value = squares = fourths = 0.0
        for i in range(n):
            share = weight[row, i] * unit
            if share > 0:
                value += share * values[row, i]
                square = share * share
                squares += square
                fourths += square * square
        effective = squares**2 / fourths if fourths > 0 else 0.0
        known = effective >= 1 + 1e-9
        mean[row], df[row] = value if total > 0 else np.nan, effective - 1 if known else np.nan
        factor = n * unit * np.sqrt(effective / (effective - 1)) if known else np.nan
        for i in range(n):
            moved = weight[row, i] * (values[row, i] - value) if weight[row, i] > 0 else 0.0
            influence[row, i] = factor * moved


def standard_error(influence: FloatArray) -> FloatArray:
    """`cje_core.inference.sums.cluster_se` where each prompt is a cluster."""
    return np.asarray(np.sqrt(np.einsum("...i,...i", influence, influence)) / influence.shape[-1])


def blank(values: FloatArray, where: BoolArray) -> FloatArray:
    """Give the rows `where` NaN in a copy, if there are any."""
    return np.where(where[..., None], np.nan, values) if where.any() else values


def assemble_block(
    block: Block,
    numbers: Numbers,
    *,
    ci_prob: float,
    kind: str = "auto",
    evidence: Evidence | None = None,
    draws: list[dict[int, FloatArray]] | None = None,
    splines: list[Borrowed | None] | None = None,
) -> BlockEstimate:
    """Intervals of values, arrays (R, P); failures are NaN.

    Parameters
    ----------
    evidence : Evidence, optional
        Own labels that the values rest on, where they do.
    draws : list of mappings, optional
        Of each data set, from policy to bootstrap replicates, which then make its standard error and interval.
    """
    scale = block.oracle_range
    value, influence, std_error, df, status, balance = numbers
    failed = status >= Status.TOO_FEW_LABELS
    value, std_error, df = (np.where(failed, np.nan, part) for part in (value, std_error, df))
    df = np.where(failed, np.inf, df)
    named = failed | np.isin(status, SILENT)
    status = np.where(~np.isfinite(std_error) & ~named, Status.ONE_CLUSTER, status)
    if kind != "wald":
        value = np.clip(value, *scale)
    silent = status == Status.CONSTANT_LABELS
    std_error = np.where(silent, np.nan, std_error)
    influence = blank(influence, silent | failed)
    found = bounds(
        value,
        std_error,
        df,
        skewness=0.0 if evidence is None else error_skewness(influence),
        evidence=NOTHING if evidence is None else evidence,
        kind=kind,
        ci_prob=ci_prob,
        scale=scale,
    )
    interval, kinds = found.interval, found.basis.kind.copy()
    splines = splines if kind == "auto" else None
    for r, parts in enumerate(splines or ()):
        if parts is None:
            continue
        for p in np.flatnonzero(np.isfinite(parts.offset) & ~parts.own & ~failed[r]).tolist():
            interval[r, p] = into_scale(borrowed_value_limits(parts, p, ci_prob, scale), value[r, p], scale)
            kinds[r, p] = "spline"
    if draws is not None and any(draws):
        drawn = np.full(value.shape, False)
        for r, of_set in enumerate(draws):
            for p, values in of_set.items():
                drawn[r, p] = not silent[r, p]
                if drawn[r, p]:
                    std_error[r, p] = np.std(values, ddof=1)
                    interval[r, p] = percentile(values[None], value[r, p : p + 1], ci_prob)[0]
        if kind != "wald":
            interval[drawn] = into_scale(interval[drawn], value[drawn], scale)
        rest = ~drawn & ~silent & np.array([bool(of_set) for of_set in draws])[:, None]
        interval[rest], std_error[rest] = np.nan, np.nan
        kinds[drawn | rest] = "drawn"
    held = found.basis._replace(
        kind=kinds,
        effective=np.where(kinds == "clopper_pearson", found.basis.effective, np.nan),
        unseen_by=np.where(kinds == "gamma", found.basis.unseen_by, np.nan),
    )
    return BlockEstimate(
        value,
        std_error,
        df,
        interval,
        status.astype(np.int8),
        influence,
        held,
        None if balance is None else blank(balance, failed),
        splines,
    )
