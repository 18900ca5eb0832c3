"""Estimates of many data sets of one shape (`cje_core.data.block`): an estimator's ``find``, data set by data set.

Simulation studies run estimators on thousands of data sets. Here each is rows of arrays, no labelled dataset is made,
and intervals and differences of all are computed at once.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.block import Block
from cje_core.families.finish import Finished, Found, finish
from cje_core.formulas.borrowed import Borrowed
from cje_core.inference.borrowed_limits import pair_limits
from cje_core.inference.estimate import Status, contain
from cje_core.inference.limits import PER_VALUE, error_skewness
from cje_core.inference.pairs import Apart, Pairs, lent_df, pair_levels


class BlockEstimate(NamedTuple):
    """Estimates of R data sets and P policies, the policies in the order of the block."""

    estimate: FloatArray  # (R, P)
    std_error: FloatArray
    df: FloatArray
    interval: FloatArray  # (R, P, 2)
    status: npt.NDArray[np.int8]
    found: list[Found]  # of each data set, its policies sorted by name
    finished: Finished  # likewise
    place: IntArray  # (P,) of each policy of the block among the sorted ones

    def pairs(self, first: IntArray, second: IntArray, ci_prob: float) -> Pairs:
        """Differences of the policies numbered `first` minus `second`, arrays (R, pairs); p-values only of t tests."""
        made, a, b = self.finished, self.place[first], self.place[second]
        n_sets, n_policies, n = made.influence.shape
        apart = made.influence[:, a] - made.influence[:, b]
        std_error = np.sqrt(np.vecdot(apart, apart)) / n
        flat = made.influence.reshape(-1, n)

        def correlation(i: IntArray, j: IntArray) -> FloatArray:
            joint, own, other = (np.vecdot(flat[x], flat[y]) for x, y in ((i, j), (i, i), (j, j)))
            return np.asarray(joint / np.sqrt(own * other))

        value = np.where(made.status >= Status.TOO_FEW_LABELS, np.nan, made.value)
        basis = made.basis._replace(value=value, std_error=made.std_error, df=made.df, kind=made.kind)
        levels = basis._replace(**{name: getattr(basis, name).ravel() for name in PER_VALUE})
        at = np.arange(n_sets)[:, None] * n_policies
        errors = Apart(std_error.ravel(), self._pair_df(a, b, apart).ravel(), error_skewness(apart).ravel())
        pairs = pair_levels(
            levels, (at + a).ravel(), (at + b).ravel(), errors, correlation, ci_prob, tested=False
        )
        out = Pairs(*(part.reshape(n_sets, len(first), *part.shape[1:]) for part in pairs))
        for r, one in enumerate(self.found):
            if one.splines is not None:
                _put_spline(out, r, one.splines, made, a, b, ci_prob)
        return out

    def _pair_df(self, first: IntArray, second: IntArray, apart: FloatArray) -> FloatArray:
        """Degrees of freedom of differences with influence `apart`, as `cje_core.inference.pairs` has them."""
        balance, df = self.finished.balance, self.finished.df
        both: FloatArray = np.minimum(df[:, first], df[:, second])
        if balance is None:
            return both
        weight = np.abs(balance[:, first] - balance[:, second])
        lent = np.isfinite(weight).all(axis=-1) & np.isfinite(both)
        both[lent] = lent_df(weight[lent], apart[lent])
        return both


def _put_spline(
    pairs: Pairs, r: int, parts: Borrowed, made: Finished, first: IntArray, second: IntArray, ci_prob: float
) -> None:
    """Put the limits of differences of data set r that the spline posterior makes, as `cje_core.inference.pairs`."""
    known: BoolArray = np.isfinite(parts.offset) & np.isfinite(made.interval[r]).all(axis=-1)
    chosen = known[first] & known[second] & ~(parts.own[first] & parts.own[second])
    chosen &= np.isfinite(pairs.std_error[r])
    limits, _ = pair_limits(parts, first[chosen], second[chosen], ci_prob, tested=False)
    pairs.interval[r, chosen] = contain(limits, pairs.difference[r, chosen])
    pairs.p_value[r, chosen] = pairs.probability[r, chosen] = np.nan


def data_sets(block: Block, *, fitted: bool = False) -> list[Calibrated]:
    """The data sets of a block, for `estimate_each`: each calibrates its judge once, for all estimators.

    Where they are not `fitted` here the first estimator that asks for it fits the calibrator.

    Examples
    --------
    >>> from cje_sim.scenarios import weak_judge
    >>> block = weak_judge.simulate.block([np.random.default_rng(0)] * 2, n=50)
    >>> len(data_sets(block))
    2
    """
    header = _header(block.policies, block.judge_range, block.oracle_range)
    found = [calibrated(header, rows=rows) for rows in block.rows()]
    for one in found if fitted else ():
        _ = one.slice
    return found


@cache  # a study asks for the same few, thousands of times
def _header(
    policies: tuple[str, ...], judge_range: tuple[float, float], oracle_range: tuple[float, float]
) -> xr.Dataset:
    """Names and ranges, what else than rows estimators ask for."""
    ranges = {"judge_range": list(judge_range), "oracle_range": list(oracle_range)}
    return xr.Dataset(coords={"policy": list(policies)}, attrs=ranges)


def estimate_each(
    find: Callable[..., Found],
    given: Sequence[Calibrated],
    *,
    ci_prob: float,
    rngs: Iterable[np.random.Generator],
    **options: Any,
) -> BlockEstimate:
    """Run an estimator's ``find`` on each data set of a block and finish all at once.

    Parameters
    ----------
    find : function
        Of an estimator's module.
    given : sequence of Calibrated
        From `data_sets`.
    rngs : iterable of Generator
        One for each data set.
    options : Any
        The estimator's.

    Examples
    --------
    >>> from cje_core.estimators import labels_only
    >>> from cje_sim.scenarios import weak_judge
    >>> block = weak_judge.simulate.block([np.random.default_rng(0)] * 2, n=50, oracle_fraction=0.5)
    >>> rngs = [np.random.default_rng(r) for r in range(2)]
    >>> estimate_each(labels_only.find, data_sets(block), ci_prob=0.95, rngs=rngs).estimate.shape
    (2, 4)
    """
    found = [find(one, ci_prob=ci_prob, rng=rng, **options) for one, rng in zip(given, rngs, strict=True)]
    data, rows = given[0].data, found[0].rows
    low, high = data.attrs["oracle_range"]
    made = finish(found, ci_prob, (float(low), float(high)))
    place = np.array([rows.policies.index(name) for name in data["policy"].values.tolist()], dtype=np.intp)
    return BlockEstimate(
        made.value[:, place],
        made.std_error[:, place],
        made.df[:, place],
        made.interval[:, place],
        made.status[:, place],
        found,
        made,
        place,
    )
