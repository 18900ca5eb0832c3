"""What borrowed levels and differences say when the calibration may be off by up to delta, and where decisions flip.

A policy without labels of its own has the value ``V = E[f(S)] + b``: E[f(S)] is what the data speak about, and the
*transport residual* ``b = E[Y - f(S)]`` of that policy is what they cannot. The rest of the library sets b = 0; here
``|b| <= delta``, for a delta of the reader's choice.

**Interval.** The estimate's error is a t variable plus b / SE, so the shortest interval of fixed length around the
estimate that covers for every such b is the bias-aware one (Donoho 1994; Armstrong and Kolesar 2018),

    ``V +- cv(delta / SE) SE,   cv(t) the c that solves P(|T_df + t| <= c) = ci_prob``.

Its half-length lies between ``delta + q SE`` with the one-sided and with the two-sided quantile q. At delta = 0 it is
the printed interval, and without sampling error (n -> infinity) the identified set ``V +- delta`` (`bounds`). In a
difference each borrowed policy contributes its own residual: the bound is ``k delta`` with k = 0, 1 or 2 of the two
policies borrowing (policies may borrow one calibrator and still be off in opposite directions).

**Tipping point.** A decision, for instance the sign of a difference D, stands as long as the interval leaves out c = 0.
It flips at the bound b* that solves ``|D - c| = cv(b* / SE) SE``, that is at ``delta* = b* / k``: zero if the data do
not decide even when transport holds, infinite if neither policy borrows. "p is best" stands as long as all of p's
differences do, so its tipping point is their smallest; `analyze` takes it of intervals that hold all together
(`cje_core.inference.ranks`), by which it decides who is best.

An interval that is not symmetric (logit, percentile, bounded) has a standard error per side, the one that its printed
end implies; so curves start where the printed interval ends, whatever its kind. Known range of the oracle: no interval
leaves it. A policy without an estimate has NaN throughout, and one whose own labels correct it a flat curve.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import CI_BOUND
from cje_core.inference.sources import borrows

BISECTIONS = 60  # of a bracket of about one standard error: to the last bit


def half_width(
    bias: npt.ArrayLike, std_error: npt.ArrayLike, df: npt.ArrayLike, ci_prob: float
) -> FloatArray:
    """Half the length of the bias-aware interval, ``cv(bias / SE) SE``; arguments broadcast.

    Parameters
    ----------
    bias : array
        Bound on the absolute bias, >= 0, in the estimate's units.
    std_error : array
        >= 0; 0 gives the identified set.
    df : array
        Degrees of freedom of the t variable; ``inf`` is the normal one.

    Examples
    --------
    >>> half_width([0.0, 1.0, 100.0], 1.0, np.inf, 0.95).round(3).tolist()
    [1.96, 2.646, 101.645]
    >>> float(half_width(0.1, 0.0, np.inf, 0.95))
    0.1
    """
    b, error, nu = np.broadcast_arrays(*(np.asarray(a, float) for a in (bias, std_error, df)))
    with np.errstate(invalid="ignore"):
        if (b < 0).any():
            raise ValueError("delta: it bounds an absolute bias, so none of it may be negative")
    ratio = np.divide(b, error, out=np.full(b.shape, np.inf), where=error > 0)
    return np.asarray(b + error * beyond_bias(ratio, nu, ci_prob))


def beyond_bias(ratio: FloatArray, df: FloatArray, ci_prob: float) -> FloatArray:
    """Quantile u with ``F_t(u) - F_t(-u - 2 ratio) = ci_prob``: standard errors beyond a bias of `ratio` of them.

    Between the two-sided quantile (no bias) and the one-sided one.
    """
    found = _quantile(lambda u: -u - 2 * ratio, df, ci_prob)
    unbiased = special.stdtrit(df, 0.5 + ci_prob / 2)  # to the last bit at a bound of zero
    return np.asarray(np.where(ratio == 0, unbiased, found))


def _quantile(tail: Callable[[FloatArray], FloatArray], df: FloatArray, ci_prob: float) -> FloatArray:
    """Solve ``F_t(u) - F_t(tail(u)) = ci_prob`` for u between the one-sided and the two-sided quantile."""
    low, high = special.stdtrit(df, ci_prob), special.stdtrit(df, 0.5 + ci_prob / 2)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        with np.errstate(invalid="ignore"):
            enough = special.stdtr(df, middle) - special.stdtr(df, tail(middle)) >= ci_prob
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)


def tipping_bias(
    gap: npt.ArrayLike, std_error: npt.ArrayLike, df: npt.ArrayLike, ci_prob: float
) -> FloatArray:
    """Bound on the bias at which the bias-aware interval first reaches a point `gap` away: inverse of `half_width`.

    The gap is ``|V - c|``, distance of the estimate from the point that matters; 0 where the interval holds it without
    any bias. The other arguments are as in `half_width`.

    Examples
    --------
    >>> tipping_bias([2.646, 1.9], 1.0, np.inf, 0.95).round(2).tolist()
    [1.0, 0.0]
    """
    g, error, nu = np.broadcast_arrays(*(np.asarray(a, float) for a in (gap, std_error, df)))
    ratio = np.divide(g, error, out=np.full(g.shape, np.inf), where=error > 0)
    # t = gap / SE - u: the probability falls as t rises, so it falls as u does
    beyond = _quantile(lambda u: u - 2 * ratio, nu, ci_prob)
    unbiased = special.stdtrit(nu, 0.5 + ci_prob / 2)
    out = np.where(ratio <= unbiased, 0.0, g - error * beyond)
    return np.asarray(np.where(np.isfinite(g) & np.isfinite(error), np.maximum(out, 0.0), np.nan))


def bounds(
    value: npt.ArrayLike, bias: npt.ArrayLike, oracle_range: tuple[float, float] = (-np.inf, np.inf)
) -> FloatArray:
    """Identified set of a level whose transport residual is at most `bias`, shape (..., 2): what n -> infinity leaves.

    ``[V - bias, V + bias]``, V = E[f(S)], within the range of the oracle; value and bias broadcast. The set of a
    difference of two policies whose residuals are free of each other is ``[low_a - high_b, high_a - low_b]`` of their
    sets.

    Examples
    --------
    >>> bounds(0.9, [0.0, 0.05, 0.2], (0.0, 1.0)).round(6).tolist()
    [[0.9, 0.9], [0.85, 0.95], [0.7, 1.0]]
    """
    center, b = np.broadcast_arrays(np.asarray(value, float), np.asarray(bias, float))
    return np.asarray(np.clip(np.stack([center - b, center + b], axis=-1), *oracle_range))


class _Printed(NamedTuple):
    """Values as they are printed, with what their intervals imply, each of shape (rows,)."""

    value: FloatArray
    below: FloatArray  # standard error that the lower end implies
    above: FloatArray
    df: FloatArray
    n_borrowed: FloatArray  # residuals that enter: k


def _printed(
    value: FloatArray, interval: FloatArray, df: FloatArray, k: FloatArray, ci_prob: float
) -> _Printed:
    spends_none = np.isnan(df) & np.isfinite(interval).all(axis=1)
    df = np.where(spends_none, np.inf, df)
    quantile = special.stdtrit(df, 0.5 + ci_prob / 2)
    return _Printed(value, (value - interval[:, 0]) / quantile, (interval[:, 1] - value) / quantile, df, k)


def _curve(printed: _Printed, delta: FloatArray, ci_prob: float, limits: tuple[float, float]) -> FloatArray:
    """Bias-aware intervals, shape (rows, deltas, 2)."""
    bias = printed.n_borrowed[:, None] * delta
    df = printed.df[:, None]
    ends = [
        printed.value[:, None] + sign * half_width(bias, error[:, None], df, ci_prob)
        for sign, error in ((-1.0, printed.below), (1.0, printed.above))
    ]
    return np.clip(np.stack(ends, axis=-1), *limits)


def _check(estimate: xr.Dataset, delta: npt.ArrayLike) -> tuple[FloatArray, float]:
    grid = np.atleast_1d(np.asarray(delta, float))
    if grid.ndim != 1 or not (grid >= 0).all():
        raise ValueError("delta must be a number or a list of numbers, none of them negative")
    return grid, float(estimate.attrs["ci_prob"])


def _borrowed(estimate: xr.Dataset, borrowed: Sequence[bool] | None) -> FloatArray:
    """1.0 for a policy that borrows, 0.0 for another, in the estimate's order."""
    found = borrows(estimate).values if borrowed is None else np.asarray(borrowed, bool)
    if found.shape != (estimate.sizes["policy"],):
        raise ValueError(
            f"borrowed has shape {found.shape}; give one True or False for each of {estimate.sizes['policy']} policies"
        )
    return found.astype(float)


def _range(estimate: xr.Dataset, oracle_range: tuple[float, float] | None) -> tuple[float, float]:
    low, high = oracle_range or estimate.attrs.get("oracle_range", (-np.inf, np.inf))
    return float(low), float(high)


def _degrees(estimate: xr.Dataset) -> FloatArray:
    """Degrees of freedom; of intervals that come from draws, none are spent."""
    if "df" in estimate and "draws" not in estimate:
        return np.asarray(estimate["df"].values, float)
    return np.full(estimate.sizes["policy"], np.inf)


def levels(
    estimate: xr.Dataset,
    delta: npt.ArrayLike,
    *,
    borrowed: Sequence[bool] | None = None,
    oracle_range: tuple[float, float] | None = None,
) -> xr.Dataset:
    """Bias-aware interval of every level, as a curve in delta.

    Parameters
    ----------
    estimate : xr.Dataset
        Any estimate; probability and kind of its intervals are kept.
    delta : array, shape (D,)
        Bounds on the transport residual, in oracle units; 0 gives the printed interval.
    borrowed : sequence of bool, optional
        Which policies borrow, in the estimate's order (default: `cje_core.inference.sources.borrows`).
    oracle_range : (low, high), optional
        Intervals are cut to it. Default: the estimate's own attribute, else no cut.

    Returns
    -------
    xr.Dataset
        ``interval(policy, delta, ci_bound)``, ``estimate(policy)``, ``borrowed(policy)``.

    Examples
    --------
    >>> from cje_core.inference.estimate import label_estimate
    >>> values = {"estimate": [0.5], "std_error": [0.1], "interval": [[0.304, 0.696]], "status": [1]}
    >>> values |= {"route": ["plug_in"], "source": ["borrowed"]}
    >>> found = label_estimate(["a"], values, estimator="direct", options={}, ci_kind="wald", ci_prob=0.95)
    >>> levels(found, [0, 0.1])["interval"].values.round(3).tolist()
    [[[0.304, 0.696], [0.235, 0.765]]]
    """
    grid, ci_prob = _check(estimate, delta)
    k = _borrowed(estimate, borrowed)
    interval = estimate["interval"].transpose("policy", "ci_bound").values
    printed = _printed(np.asarray(estimate["estimate"], float), interval, _degrees(estimate), k, ci_prob)
    limits = _range(estimate, oracle_range)
    return xr.Dataset(
        {
            "interval": (("policy", "delta", "ci_bound"), _curve(printed, grid, ci_prob, limits)),
            "estimate": ("policy", printed.value),
            "borrowed": ("policy", k > 0),
        },
        coords={"policy": estimate["policy"].values, "delta": grid, "ci_bound": CI_BOUND},
        attrs={"ci_prob": ci_prob, "estimator": estimate.attrs["estimator"]},
    )


def _pairs(
    estimate: xr.Dataset, borrowed: Sequence[bool] | None, ci_prob: float
) -> tuple[xr.Dataset, _Printed]:
    found = contrasts(estimate, ci_prob=ci_prob)
    k = pd.Series(_borrowed(estimate, borrowed), estimate["policy"].values.astype(str))
    number = k[found["first"].values].to_numpy() + k[found["second"].values].to_numpy()
    interval = found["interval"].transpose("pair", "ci_bound").values
    return found, _printed(found["difference"].values, interval, found["df"].values, number, ci_prob)


def differences(
    estimate: xr.Dataset,
    delta: npt.ArrayLike,
    *,
    borrowed: Sequence[bool] | None = None,
    oracle_range: tuple[float, float] | None = None,
) -> xr.Dataset:
    """Bias-aware interval of every difference, as a curve in delta: the bound is delta for each policy that borrows.

    Arguments are as in `levels`; the estimate must carry ``influence`` or ``draws``.

    Returns
    -------
    xr.Dataset
        ``interval(pair, delta, ci_bound)``, ``difference(pair)`` and ``n_borrowed(pair)``, pairs and their coordinates
        ``first`` and ``second`` as in `cje_core.inference.contrasts.contrasts`.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=300, oracle_fraction=0.5, label_design="base", rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> curves = differences(estimate, [0, 0.05, 0.1])
    >>> curves["n_borrowed"].values.tolist()
    [1, 1, 1, 2, 2, 2]
    """
    grid, ci_prob = _check(estimate, delta)
    found, printed = _pairs(estimate, borrowed, ci_prob)
    span = float(np.ptp(_range(estimate, oracle_range)))
    return xr.Dataset(
        {
            "interval": (("pair", "delta", "ci_bound"), _curve(printed, grid, ci_prob, (-span, span))),
            "difference": ("pair", printed.value),
            "n_borrowed": ("pair", printed.n_borrowed.astype(int)),
        },
        coords={"first": found["first"], "second": found["second"], "delta": grid, "ci_bound": CI_BOUND},
        attrs={"ci_prob": ci_prob, "estimator": estimate.attrs["estimator"]},
    )


def tipping_points(
    estimate: xr.Dataset, *, borrowed: Sequence[bool] | None = None, ci_prob: float | None = None
) -> xr.Dataset:
    """Delta at which the sign of each difference, and the choice of the best policy, is no longer decided.

    Arguments are as in `differences`; `ci_prob`, of each difference's interval, is the estimate's by default, and that
    of `cje_core.inference.ranks.simultaneous_prob` where all differences are decided together.

    Returns
    -------
    xr.Dataset
        Over ``pair`` (as in `cje_core.inference.contrasts.contrasts`): ``tipping``, 0 where the printed interval
        holds zero already, infinite where a decided difference rests on no borrowed policy, NaN where there is no
        interval; ``better``, the policy that is ahead at delta = 0 (empty where that is not decided). Scalars:
        ``best``, the policy with the largest estimate, and ``best_tipping``, the smallest tipping point of its
        differences to the others that have an estimate (NaN if it is the only one).

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=300, oracle_fraction=0.5, label_design="base", rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> found = tipping_points(estimate)
    >>> list(found)
    ['tipping', 'better', 'n_borrowed', 'best', 'best_tipping']
    """
    ci_prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    found, printed = _pairs(estimate, borrowed, ci_prob)
    above_zero = printed.value > 0
    error = np.where(above_zero, printed.below, printed.above)  # of the side that looks at zero
    bias = tipping_bias(np.abs(printed.value), error, printed.df, ci_prob)
    k = printed.n_borrowed
    tipping = np.divide(bias, k, out=np.where(bias > 0, np.inf, bias), where=k > 0)
    first, second = (found[name].values.astype(str) for name in ("first", "second"))
    better = np.where(tipping > 0, np.where(above_zero, first, second), "")
    value = estimate["estimate"].values
    best, best_tipping = "", np.nan
    if np.isfinite(value).any():
        best = str(estimate["policy"].values[int(np.nanargmax(value))])
        valued = estimate["policy"].values.astype(str)[np.isfinite(value)]
        its = ((first == best) & np.isin(second, valued)) | ((second == best) & np.isin(first, valued))
        best_tipping = float(tipping[its].min()) if its.any() else np.nan
    return xr.Dataset(
        {
            "tipping": ("pair", tipping),
            "better": ("pair", better),
            "n_borrowed": ("pair", k.astype(int)),
            "best": best,
            "best_tipping": best_tipping,
        },
        coords={"first": found["first"], "second": found["second"]},
        attrs={"ci_prob": ci_prob, "estimator": estimate.attrs["estimator"]},
    )
