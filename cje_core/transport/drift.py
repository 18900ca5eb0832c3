"""Does the judge still score as it did? Rank drift on an anchor set, and change detection on residual batches.

The paper's section "Judge calibration, coverage, and drift" asks for two things.

*Rank drift*: Kendall's tau between historical and current scores of the same anchor responses, with a permutation
p-value. That p-value tests *independence*: a small one says that the two rankings still agree, and a large one alarms
only when next to nothing of the ranking is left. The alarm here is therefore a confidence statement about tau
itself (its upper bound falls below a declared minimum), and, since ranks cannot see a judge that became harsher
towards everything, a sign-flip test of the mean change stands beside it.

*Residual drift*: residuals ``Y - f(Z)`` come in batches (weeks, releases). Each batch mean is standardised by a
baseline of early batches, ``z_t = (mean_t - center) / (sd / sqrt(n_t))``, and enters a two-sided CUSUM (quick for
lasting shifts of about twice the slack) and an EWMA (smooth drifts). Control limits and p-values come from the very
chart, with its batch sizes, its number of batches and its *estimated* center and spread, of the same residuals in other
orders: when nothing changes every order is as likely, so the false-alarm probability over the whole horizon is what
was asked for, whatever the law of a residual. A textbook limit takes the center as known and alarms far too often after
a short baseline, and one that takes residuals as normal does where they are skewed. Over several streams (anchor sets,
policies) the p-values are adjusted by Benjamini-Hochberg.
"""

from functools import lru_cache
from itertools import permutations

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import FloatArray, probability
from cje_core.compiled import Kernel
from cje_core.data.construct import dataset
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND, wald

ENUMERATED = 7  # anchors up to which all permutations are visited (5040 of them)
EXACT = 100  # anchors up to which the exact law of Kendall's tau without ties is used
CHARTS = ("cusum", "ewma")
TIE = 1e-9  # a chart that differs from the one seen by rounding alone is as high
MOST_DRAWN = 200_000_000  # residuals drawn per stream over all orders
FDR = 0.05  # over the streams of a residual chart


def rank_drift(
    historical: npt.ArrayLike,
    current: npt.ArrayLike,
    *,
    min_tau: float = 0.8,
    ci_prob: float = 0.95,
    fdr: float = 0.05,
    n_permutations: int = 9999,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Compare two scorings of the same anchors, stream by stream.

    Parameters
    ----------
    historical, current : arrays, shape (anchors,) or (streams, anchors)
        Judge scores of the same responses then and now; NaN where either is missing.
    min_tau : float
        Smallest agreement that is harmless: a judge that is not deterministic has tau < 1 against itself, so the
        test-retest tau of the judge is the number to declare.
    ci_prob : float
        Probability of the interval of tau (jackknife over anchors, t, cut to [-1, 1]).
    fdr : float
        Level of the adjusted mean-change test.
    n_permutations : int
        Draws (from `rng`) where the permutations are too many to visit.

    Returns
    -------
    xr.Dataset
        Over ``stream``: ``tau`` (tau-b), ``interval``, ``p_value`` (two-sided permutation test of independence),
        ``exact`` (whether all permutations count), ``change`` (mean current minus historical), ``p_change`` (two-sided
        sign-flip), ``p_change_bh``, ``n_anchors``, and ``alarm``: 1 if the interval of tau lies below `min_tau` or
        ``p_change_bh <= fdr``, else 0, or NaN where tau is not known (fewer than 4 anchors, constant scores).

    Examples
    --------
    >>> rank_drift([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]).tau.round(2).item()
    0.8
    """
    rng = np.random.default_rng(rng)
    then, now = np.atleast_2d(np.asarray(historical, float)), np.atleast_2d(np.asarray(current, float))
    if then.shape != now.shape or then.ndim != 2:
        raise ValueError(
            f"historical has shape {then.shape}, current {now.shape}; they must score the same anchors"
        )
    if n_permutations < 1:
        raise ValueError(f"n_permutations={n_permutations}: give at least 1")
    probability(ci_prob)
    probability(fdr, "fdr")
    n_streams = len(then)
    tau, p_value, change, p_change = np.full((4, n_streams), np.nan)
    interval = np.full((n_streams, 2), np.nan)
    exact = np.zeros(n_streams, dtype=bool)
    n_anchors = np.zeros(n_streams, dtype=int)
    for s in range(n_streams):
        both = np.isfinite(then[s]) & np.isfinite(now[s])
        x, y = then[s, both], now[s, both]
        n_anchors[s] = len(x)
        if len(x) < 4:
            continue
        change[s], p_change[s] = (y - x).mean(), _sign_flip(y - x, n_permutations, rng)
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            continue
        tau[s], interval[s] = _tau_interval(x, y, ci_prob)
        p_value[s], exact[s] = _tau_p_value(x, y, n_permutations, rng)
    p_change_bh = adjust_p(p_change, "bh")
    loud = (interval[:, 1] < min_tau) | (p_change_bh <= fdr)
    columns = {"tau": tau, "p_value": p_value, "exact": exact, "change": change, "n_anchors": n_anchors}
    columns |= {"p_change": p_change, "p_change_bh": p_change_bh}
    columns["alarm"] = np.select([loud, np.isnan(tau)], [1.0, np.nan], default=0.0)
    return dataset(
        {
            **{name: ("stream", column) for name, column in columns.items()},
            "interval": (("stream", "ci_bound"), interval),
        },
        coords={"stream": np.arange(n_streams), "ci_bound": CI_BOUND},
        attrs={"min_tau": min_tau, "ci_prob": ci_prob, "fdr": fdr},
    )


def residual_drift(
    residual: npt.ArrayLike,
    batch: npt.ArrayLike,
    *,
    stream: npt.ArrayLike | None = None,
    n_baseline: int = 1,
    false_alarm: float = 0.05,
    slack: float = 0.5,
    smoothing: float = 0.2,
    n_simulated: int = 9999,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """CUSUM and EWMA charts of residual batches, with limits for the whole horizon.

    Parameters
    ----------
    residual : array, shape (r,)
        ``Y - f(Z)`` of labels that did not teach f, one per sampling unit.
    batch, stream : arrays, shape (r,)
        Batch of each residual (batches follow each other in sorted order), and its policy or anchor set (default: one).
    n_baseline : int
        How many first batches make the baseline. The baseline's mean becomes the center, so the charts look for change
        and not for a bias that was there from the start (that is the audit's).
    false_alarm : float
        Probability, per stream and chart, of any alarm over the horizon when nothing changes.
    slack : float
        CUSUM allowance in standard errors of a batch mean: half the shift to be found.
    smoothing : float
        EWMA weight of the newest batch, in (0, 1].
    n_simulated : int
        Orders drawn per stream (from `rng`); fewer where a stream has more than 20,000 residuals.

    Returns
    -------
    xr.Dataset
        Over ``stream, batch`` (NaN in the baseline and for empty batches): ``z``, and over ``chart`` too: ``path``
        (the larger side of the two-sided chart). Over ``stream, chart``: ``limit``, ``p_value`` (of the highest point),
        ``p_bh``, ``first_alarm`` (position of the first batch beyond the limit, or -1), ``alarm`` (1 if
        ``p_bh`` is at most .05, else 0). For both charts of a stream at once: over ``stream``, ``p_joint`` (of the
        smaller of its two p-values) and, over ``stream, chart``, ``joint_limit``: either chart passes its own with
        probability `false_alarm`. Over ``stream``: ``center``, ``sd``. All NaN for a stream whose baseline is
        constant or has fewer than 4 residuals, or that has nothing after it.

    Examples
    --------
    >>> batch = np.repeat(np.arange(10), 20)
    >>> residual = np.random.default_rng(1).normal(0, 0.1, 200) + 0.15 * (batch >= 6)  # a shift from batch 6 on
    >>> found = residual_drift(residual, batch, n_simulated=999, rng=1)
    >>> list(found)
    ['z', 'path', 'limit', 'p_value', 'p_bh', 'first_alarm', 'alarm', 'joint_limit', 'center', 'sd', 'p_joint']
    """
    rng = np.random.default_rng(rng)
    values = np.asarray(residual, float)
    which = np.zeros(len(values), dtype=int) if stream is None else np.asarray(stream)
    batches = np.asarray(batch)
    if not values.ndim == 1 == batches.ndim == which.ndim or not len(values) == len(batches) == len(which):
        raise ValueError("residual, batch and stream must be sequences of the same length")
    if not np.isfinite(values).all():
        raise ValueError("a residual is missing or infinite; leave out rows without a label")
    probability(false_alarm, "false_alarm")
    if not (slack >= 0 and 0 < smoothing <= 1):
        raise ValueError(f"slack={slack}, smoothing={smoothing}: use slack >= 0 and smoothing in (0, 1]")
    names, code = np.unique(which, return_inverse=True)
    labels, time = np.unique(batches, return_inverse=True)
    if not 1 <= n_baseline < len(labels):
        raise ValueError(
            f"n_baseline={n_baseline}: with {len(labels)} batches it must be 1 to {len(labels) - 1}"
        )
    n_streams, n_batches = len(names), len(labels)
    z = np.full((n_streams, n_batches), np.nan)
    path = np.full((n_streams, n_batches, len(CHARTS)), np.nan)
    limit, joint_limit, p_value = np.full((3, n_streams, len(CHARTS)), np.nan)
    first = np.full((n_streams, len(CHARTS)), -1)
    center, sd, p_joint = np.full((3, n_streams), np.nan)
    by_stream = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    for s, mine in enumerate(by_stream):
        baseline = time[mine] < n_baseline
        early, later = values[mine[baseline]], mine[~baseline]
        if len(early) < 4 or np.ptp(early) == 0 or len(later) == 0:
            continue
        center[s], sd[s] = early.mean(), early.std(ddof=1)
        size = np.bincount(time[later], minlength=n_batches)[n_baseline:].astype(float)
        total = np.bincount(time[later], weights=values[later], minlength=n_batches)[n_baseline:]
        mean = np.divide(total, size, out=np.full(len(size), np.nan), where=size > 0)
        z[s, n_baseline:] = (mean - center[s]) / sd[s] * np.sqrt(size)
        path[s, n_baseline:] = _paths(z[s : s + 1, n_baseline:], slack, smoothing)[0]
        in_order = values[later][np.argsort(time[later], kind="stable")]
        highest = _permuted_maxima(early, in_order, size, slack, smoothing, n_simulated, rng)
        limit[s] = np.quantile(highest, 1 - false_alarm, axis=0, method="higher")
        seen = np.nanmax(path[s], axis=0, initial=0.0)
        p_value[s] = (1 + (highest >= seen - TIE * np.abs(seen)).sum(axis=0)) / (len(highest) + 1)
        joint_limit[s], smaller = _jointly(highest, false_alarm)
        p_joint[s] = (1 + (smaller <= p_value[s].min()).sum()) / (len(highest) + 1)
        over = path[s] > limit[s]
        first[s] = np.where(over.any(axis=0), over.argmax(axis=0), -1)
    p_bh = np.stack([adjust_p(p_value[:, c], "bh") for c in range(len(CHARTS))], axis=1)
    alarm = np.where(np.isnan(p_bh), np.nan, p_bh <= FDR)
    by_chart = {"limit": limit, "p_value": p_value, "p_bh": p_bh, "first_alarm": first, "alarm": alarm}
    by_chart["joint_limit"] = joint_limit
    said = {"false_alarm": false_alarm, "fdr": FDR, "slack": slack, "smoothing": smoothing}
    return dataset(
        {
            "z": (("stream", "batch"), z),
            "path": (("stream", "batch", "chart"), path),
            **{name: (("stream", "chart"), column) for name, column in by_chart.items()},
            "center": ("stream", center),
            "sd": ("stream", sd),
            "p_joint": ("stream", p_joint),
        },
        coords={"stream": names, "batch": labels, "chart": list(CHARTS)},
        attrs={**said, "n_baseline": n_baseline},
    )


def cusum_arl(limit: float, slack: float = 0.5, shift: float = 0.0) -> float:
    """Average run length of a one-sided CUSUM of N(shift, 1) values, by Siegmund's approximation.

    ``(exp(-2 d b) + 2 d b - 1) / (2 d^2)`` with ``d = shift - slack`` and ``b = limit + 1.166``. A two-sided chart in
    control alarms twice as often.

    Examples
    --------
    >>> round(cusum_arl(5.0)), round(cusum_arl(5.0, shift=1.0), 1)  # to a false alarm, to find one standard error
    (938, 10.3)
    """
    d, b = shift - slack, limit + 1.166
    return float(b**2 if d == 0 else (np.exp(-2 * d * b) + 2 * d * b - 1) / (2 * d**2))


def _signs(x: FloatArray) -> npt.NDArray[np.int8]:
    return np.sign(x[:, None] - x[None, :]).astype(np.int8)


def _tau_interval(x: FloatArray, y: FloatArray, ci_prob: float) -> tuple[float, FloatArray]:
    """Kendall's tau-b and its jackknife interval; leaving an anchor out removes its row of concordances."""
    a, b = _signs(x), _signs(y)
    both, left, right = (a * b).sum(axis=1), (a * a).sum(axis=1), (b * b).sum(axis=1)
    n = len(x)
    tau = float(both.sum() / np.sqrt(float(left.sum()) * float(right.sum())))
    scale = np.sqrt((left.sum() - 2 * left).astype(float) * (right.sum() - 2 * right))
    rest = np.divide(both.sum() - 2 * both, scale, out=np.full(n, tau), where=scale > 0)
    std_error = np.sqrt((n - 1) / n * ((rest - rest.mean()) ** 2).sum())
    return tau, np.clip(wald(tau, std_error, n - 1, ci_prob), -1, 1)


def _tau_p_value(
    x: FloatArray, y: FloatArray, n_permutations: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Two-sided permutation p-value of the concordance ``|sum of sign(x_i - x_j) sign(y_i - y_j)|``."""
    n = len(x)
    a, b = _signs(x), _signs(y)
    observed = abs(int((a * b).sum()))
    if len(np.unique(x)) == n == len(np.unique(y)) and n <= EXACT:
        fewest = (n * (n - 1) - observed) // 4  # discordant or concordant pairs, whichever are fewer
        return min(2 * float(_inversions(n)[fewest]), 1.0), True
    if n <= ENUMERATED:
        orders = np.array(list(permutations(range(n))), dtype=np.intp)
        return float(_at_least(a, b, orders, observed) / len(orders)), True
    more, left = 0, n_permutations
    while left > 0:  # in chunks: no matrix of all permutations
        orders = rng.permuted(np.tile(np.arange(n), (min(left, 500), 1)), axis=1)
        more += _at_least(a, b, orders, observed)
        left -= len(orders)
    return (1 + more) / (1 + n_permutations), False


@lru_cache(maxsize=4)
def _inversions(n: int) -> FloatArray:
    """Probability that an order of n has at most k = 0, 1, ... inversions, up to the middle.

    The j-th that comes in stands before 0 to j - 1 of the others, each as likely: a sum of independent uniforms.
    Towards the middle the terms grow, so that a difference of their sums loses nothing.

    Examples
    --------
    >>> _inversions(3).round(3).tolist()  # of 6 orders one has no inversion, two have one
    [0.167, 0.5]
    """
    law, half = np.ones(1), n * (n - 1) // 4 + 1
    for j in range(2, n + 1):
        total = np.cumsum(np.concatenate([law, np.zeros(j - 1)]))
        total[j:] -= total[:-j].copy()
        law = total[:half] / j
    return np.cumsum(law)


@Kernel
def _at_least(a, b, orders, observed):  # type: ignore[no-untyped-def]
    """How many of the orders of y have a concordance of at least ``observed`` in absolute value."""
    count, n = 0, a.shape[0]
    for k in range(orders.shape[0]):
        order = orders[k]
        total = 0
        for i in range(n):
            for j in range(i):
                total += a[i, j] * b[order[i], order[j]]
        if abs(2 * total) >= observed:
            count += 1
    return count


def _sign_flip(difference: FloatArray, n_draws: int, rng: np.random.Generator) -> float:
    """Two-sided sign-flip p-value of a zero mean: if then and now are exchangeable, each sign is a fair coin."""
    n = len(difference)
    tolerance = 1e-12 * np.abs(difference).sum()  # equal sums added in another order must count as equal
    observed = abs(difference.sum()) - tolerance
    if n <= 12:
        flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return float((np.abs((2 * flips - 1) @ difference) >= observed).mean())
    more, left = 0, n_draws
    while left > 0:
        chunk = min(left, max(1, 1_000_000 // n))
        signs = 2 * rng.integers(0, 2, (chunk, n), dtype=np.int8) - 1
        more += int((np.abs(signs @ difference) >= observed).sum())
        left -= chunk
    return (1 + more) / (1 + n_draws)


def _permuted_maxima(
    early: FloatArray,
    later: FloatArray,
    size: FloatArray,
    slack: float,
    smoothing: float,
    n_simulated: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Highest point of each chart when the residuals come in another order, shape (draws, charts).

    `early` are those of the baseline and `later`, in order of batch, those after it; batches of `size` may be empty. An
    order that leaves the baseline without spread counts as one that alarms.
    """
    together, n_early = np.concatenate([early, later]), len(early)
    draws = int(np.clip(MOST_DRAWN // len(together), 199, n_simulated))
    seen = size > 0
    ends = np.concatenate([[0], np.cumsum(size[seen])[:-1]]).astype(np.intp)
    root = np.sqrt(size[seen])
    out = np.empty((draws, len(CHARTS)))
    step = max(1, 1_000_000 // len(together))
    for start in range(0, draws, step):
        order = rng.permuted(np.tile(together, (min(step, draws - start), 1)), axis=1)
        base = order[:, :n_early]
        spread = np.ptp(base, axis=1) > 0
        sd = np.where(spread, base.std(axis=1, ddof=1), 1.0)
        mean = np.add.reduceat(order[:, n_early:], ends, axis=1) / size[seen]
        z = (mean - base.mean(axis=1)[:, None]) / sd[:, None] * root
        highest = _paths(z, slack, smoothing).max(axis=1, initial=0.0)  # empty batches move no chart
        out[start : start + len(order)] = np.where(spread[:, None], highest, np.inf)
    return out


def _jointly(highest: FloatArray, false_alarm: float) -> tuple[FloatArray, FloatArray]:
    """Limits, one per chart, that either passes with probability `false_alarm`; the smaller p-value of each horizon.

    Both charts get the same level by themselves; which one is read off the simulated horizons, in which they are as
    dependent as they are.
    """
    n = len(highest)
    ordered = np.sort(highest, axis=0)
    at_least = np.stack(
        [n - np.searchsorted(ordered[:, c], highest[:, c], side="left") for c in range(len(CHARTS))], axis=1
    )
    smaller = ((1 + at_least) / (n + 1)).min(axis=1)
    each = float(np.quantile(smaller, false_alarm, method="lower"))
    return np.quantile(highest, 1 - each, axis=0, method="higher"), smaller


def _paths(z: FloatArray, slack: float, smoothing: float) -> FloatArray:
    """Both charts of standardised batches (rows, time), shape (rows, time, charts); empty batches leave them still."""
    # time first: each step reads and writes what lies together
    out = np.full((z.shape[1], len(CHARTS), len(z)), np.nan)
    up, down, smooth, variance = np.zeros((4, len(z)))
    for (cusum, ewma), new in zip(out, np.ascontiguousarray(z.T), strict=True):
        seen = np.isfinite(new)
        np.copyto(up, np.maximum(0.0, up + new - slack), where=seen)
        np.copyto(down, np.maximum(0.0, down - new - slack), where=seen)
        np.copyto(smooth, (1 - smoothing) * smooth + smoothing * new, where=seen)
        np.copyto(variance, (1 - smoothing) ** 2 * variance + smoothing**2, where=seen)
        spread = np.sqrt(np.where(variance > 0, variance, 1.0))
        np.copyto(cusum, np.maximum(up, down), where=seen)
        np.copyto(ewma, np.abs(smooth) / spread, where=seen)
    return np.moveaxis(out, -1, 0)
