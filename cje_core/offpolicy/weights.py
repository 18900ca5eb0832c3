"""Importance weights of the logged responses: from log-likelihoods to stabilised weights.

Estimand of a mean-one weight W: ``mean(W * Y) -> V(policy)``, since ``E_logger[W Y] = E_policy[Y]``. The ratio stays in
logs until one logsumexp makes it mean one (the paper's section on numerics):

    W_m1 = exp(log W - logsumexp(log W) + log n)                    n = logged responses that are usable

Weight stabilisation (the paper's section of that name) projects W_m1 on functions of the judge score S: candidates
{1, up, down} are fitted out of fold, stacked by ``min_beta beta' cov(W_c * Delta) beta`` on the simplex, and blended
with 1 by a variance guard. It cannot create coverage: stabilised weights with an effective sample size near n can rest
on responses that the target never gives. And the stack looks at variance alone. With D = Delta - E[Delta] the
slope of ``Var((1 + t (W_c - 1)) D)`` at t = 0 is ``2 Cov(W_c, D^2)``, so it takes the constant weight, and returns the
logger's value with no sign in effective sample size or standard error, if and only if

    Cov(W_c, D^2) >= 0,   i.e.   E_logger[W_c D^2] >= Var_logger(Delta),   for every candidate W_c

(``E_logger[W_c D]`` drops out since D has mean zero). What decides is where Delta spreads under the logger, not which
policy is better: weights linear in the reward, ``W = 1 + c D``, give ``c E[D^3]``. Rewards with a long lower tail lose
a worse target, those with a long upper tail a better one; for ``Delta = R - q`` it is the target that prefers responses
with large residuals of either sign. ``objective="fit"`` stacks by the out-of-fold error
``mean (W - sum_c beta_c W_c)^2`` instead and keeps most of the difference.

A response without both log-likelihoods has weight NaN, never 0: zero says that the target cannot give it. Rows with NaN
take no part in any sum here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.calibration.isotonic import iso_mean_one, isotonic
from cje_core.checks import FloatArray, one_of
from cje_core.data.arrays import Logged
from cje_core.inference.influence import kish_ess
from cje_core.inference.sums import sum_by
from cje_core.offpolicy.held_out_maps import FoldMap, HeldOutMaps
from cje_core.offpolicy.simplex import simplex_qp as simplex_qp

CANDIDATES = ("base", "up", "down")
RIDGE = 1e-8  # on the diagonal of the stack's matrix, relative to its mean
KNOWN = {
    "projection": ("rescale", "exact"),
    "objective": ("variance", "fit"),
    "guard": ("absolute", "relative", "none"),
}


def log_ratios(logged: Logged) -> FloatArray:
    """Log importance ratio ``log p_target - log p_logger`` of each logged response, in nats, shape (policies, n).

    NaN where the response is not usable for that policy (`cje_core.data.arrays.Logged.usable`).
    """
    return np.where(logged.usable, logged.logp_target - logged.logp_logger, np.nan)


def place_of(data: xr.Dataset, policy: str) -> int:
    """Row of a policy in `Logged`."""
    names = sorted(data.policy.values.astype(str).tolist())
    if policy not in names:
        raise ValueError(f"no policy {policy!r} in the data; there are: {', '.join(names)}")
    return names.index(policy)


def mean_one(log_ratio: npt.ArrayLike) -> FloatArray:
    """Self-normalised weights of one policy: ``exp(log W - logsumexp(log W) + log n)`` over the rows that have one.

    Ratios (n,) are NaN where unknown; an infinite one, which no finite log-likelihoods give, is a `ValueError`.

    Examples
    --------
    >>> mean_one([0.0, np.log(3.0), np.nan]).round(6).tolist()
    [0.5, 1.5, nan]
    >>> mean_one([-9000.0, -9000.0]).tolist()  # both ratios underflow; their weights do not
    [1.0, 1.0]
    """
    values = np.asarray(log_ratio, float)
    if np.isinf(values).any():
        raise ValueError("a log ratio is infinite; write NaN where a log-likelihood is unknown")
    out = np.full(values.shape, np.nan)
    used = np.isfinite(values)
    if used.any():
        # The maximum comes out first: log W of -9000 carries a rounding error of 1e-12.
        scaled = np.exp(values[used] - values[used].max())
        out[used] = scaled / scaled.mean()
    return out


def ess_fraction(weight: npt.ArrayLike) -> float:
    """Effective sample size over sample size, ``(sum w)^2 / (n sum w^2)``; NaN without weights.

    Examples
    --------
    >>> ess_fraction([2.0, 0.0, np.nan])
    0.5
    """
    w = _present(weight)
    top = w.max(initial=0.0)
    if not top > 0:
        return float("nan")
    w = w / top  # so that no square overflows
    return kish_ess(w) / len(w)


def clip(weight: npt.ArrayLike, cap: float) -> FloatArray:
    """Weights clipped at `cap`, then brought back to mean one.

    The estimand changes: what was clipped is spread over all rows, so the bias is ``E[(W - cap)_+ (V - Y)]`` to first
    order.

    Examples
    --------
    >>> clip([4.0, 0.0, 0.0, 0.0], 1.0).tolist()
    [4.0, 0.0, 0.0, 0.0]
    >>> clip([3.0, 1.0, 0.0, 0.0], 1.0).tolist()
    [2.0, 2.0, 0.0, 0.0]
    """
    if not cap > 0:
        raise ValueError(f"cap={cap}: weights can only be clipped at a positive value")
    w = np.asarray(weight, float)
    return _to_mean_one(np.minimum(w, cap))


def overlap_weights(log_ratio: npt.ArrayLike) -> FloatArray:
    """Overlap weights ``r / (1 + r)``, r the importance ratio, normalised to mean one.

    **The estimand changes**: ``mean(W * Y)`` tends to the mean outcome over the *overlap population*, responses with
    density proportional to ``p_logger p_target / (p_logger + p_target)``, and not to ``V(policy)``. The weights before
    normalisation lie in (0, 1), so they have every moment whatever the overlap is.

    Ratios are as in `mean_one`, and their level counts: add no constant.

    Examples
    --------
    >>> overlap_weights([0.0, 0.0, 800.0]).round(6).tolist()
    [0.75, 0.75, 1.5]
    """
    # In logs: where every ratio is below e^-745 the weights themselves are all zero.
    return mean_one(special.log_expit(np.asarray(log_ratio, float)))


def overlap_mass(log_ratio: npt.ArrayLike) -> float:
    """Share of two policies that lies in their overlap, ``2 mean r / (1 + r)`` over the logged responses.

    It estimates ``2 int p_logger p_target / (p_logger + p_target)``: 1 for equal policies, 0 for policies that share no
    response. Ratios are as in `overlap_weights`; NaN without any.

    Examples
    --------
    >>> overlap_mass([0.0, 0.0]), overlap_mass([-800.0, np.nan])
    (1.0, 0.0)
    """
    ratio = _present(log_ratio)
    return float(2 * special.expit(ratio).mean()) if len(ratio) else float("nan")


# --- stabilisation ---


class Stabilised(NamedTuple):
    """Stabilised weights, and what has to be kept to say how they came about."""

    weight: FloatArray  # (n,), mean one; NaN where the raw weight is
    beta: FloatArray  # (C,) weights of the candidates
    alpha: float  # blend of the guard: weight = 1 + alpha (stack - 1)
    engaged: bool  # whether the guard acted, alpha < 1
    candidate: FloatArray  # (C, n) out-of-fold candidates
    stack: FloatArray  # (n,) before the guard, mean one
    maps: tuple[FoldMap, ...]
    limit: float  # cap of the guard on the variance of the weights; infinite without a guard


def stabilise(
    weight: npt.ArrayLike,
    score: npt.ArrayLike,
    delta: npt.ArrayLike,
    fold: npt.ArrayLike,
    *,
    projection: str = "rescale",
    candidates: Sequence[str] = CANDIDATES,
    objective: str = "variance",
    guard: str = "absolute",
    rho: float = 1.0,
) -> Stabilised:
    """Weight stabilisation: out-of-fold monotone candidates, variance-optimal stack, guard.

    For each fold the isotonic maps of the weight on the score are fitted on the other folds and brought to mean one
    there; the stack minimises the variance of ``W * Delta``, Delta centred; the stack has mean one, and so has the
    guarded blend. Where the other folds hold no weight there is nothing to fit on: the candidates are 1.

    Parameters
    ----------
    weight : array, shape (n,)
        Mean-one weights, NaN where unknown.
    score : array, shape (n,)
        Judge score; finite where the weight is.
    delta : array, shape (n,)
        What the estimator multiplies: reward R for IPS, ``R - q`` for DR. Rows with NaN do not enter the stack's
        covariance.
    fold : int array, shape (n,)
    projection : {"rescale", "exact"}
        "rescale" (the paper's): the stack of out-of-fold candidates divided by its mean. "exact": beta from the
        out-of-fold candidates, weights from the exact projection (`iso_mean_one`) of all rows, so that variance and
        effective sample size are never worse than those of `weight`, for every sample; in exchange a row's weight
        depends on its own ratio, and follows noise in the direction of the reward.
    candidates : sequence of {"base", "up", "down"}
        "base" is the weight 1.
    objective : {"variance", "fit"}
        What the stack minimises: the variance of ``W * Delta`` (the paper's; biased towards the logger's value) or the
        distance from `weight`.
    guard : {"absolute", "relative", "none"}
        The variance may not exceed rho ("absolute", the paper's algorithm) or rho times that of `weight` ("relative",
        the paper's lemma on the variance guard).
    rho : float
        Positive.

    Examples
    --------
    >>> score = np.arange(6) / 6
    >>> out = stabilise([0.2, 0.6, 1.0, 1.0, 1.4, 1.8], score, score, [0, 1, 0, 1, 0, 1])
    >>> out.beta.round(3).tolist(), out.weight.round(3).tolist(), out.engaged
    ([0.5, 0.0, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], False)
    """
    w, s, d, k = (np.asarray(v, float) for v in (weight, score, delta, fold))
    check_options(projection=projection, candidates=candidates, objective=objective, guard=guard, rho=rho)
    used = np.isfinite(w)
    if not np.isfinite(s[used]).all():
        raise ValueError("a row has a weight but no judge score; give the weight NaN or the row a score")
    names, code = np.unique(k[used], return_inverse=True)
    held = HeldOutMaps(w[used], s[used], code, len(names))
    candidate = np.full((len(candidates), len(w)), np.nan)
    maps = []
    for row, name in zip(candidate, candidates, strict=True):
        row[used] = held.at(name, held.score, held.fold)
        maps += [
            FoldMap(int(names[j]), name, *held.map(name, j))
            for j in range(len(names) if name != "base" else 0)
            if held.mean_outside[j] > 0
        ]
    if projection == "exact" and used.any():
        maps += [_fit_map(w[used], s[used], -1, name) for name in candidates if name != "base"]
    found = stack_candidates(
        w,
        s,
        d,
        candidate,
        projection=projection,
        candidates=candidates,
        objective=objective,
        guard=guard,
        rho=rho,
    )
    return found._replace(maps=tuple(maps))


def check_options(
    *, projection: str, candidates: Sequence[str], guard: str, rho: float, objective: str = "variance"
) -> None:
    """Raise on an option of `stabilise` that means nothing."""
    for name, value in (("projection", projection), ("objective", objective), ("guard", guard)):
        one_of(value, name, KNOWN[name])
    if not candidates or not set(candidates) <= set(CANDIDATES):
        raise ValueError(f"candidates are {tuple(candidates)}; use some of {', '.join(CANDIDATES)}")
    if not rho > 0:
        raise ValueError(f"rho={rho}: it must be positive")


def stack_candidates(
    w: FloatArray,
    s: FloatArray,
    d: FloatArray,
    candidate: FloatArray,
    *,
    projection: str,
    candidates: Sequence[str],
    objective: str = "variance",
    guard: str,
    rho: float,
) -> Stabilised:
    """The rest of `stabilise`, from out-of-fold candidates (C, n): stack, projection and guard."""
    used = np.isfinite(w)
    beta = _stack(candidate, d if objective == "variance" else None, w)
    parts = candidate
    if projection == "exact" and used.any():
        parts = np.full_like(candidate, np.nan)
        for c, name in enumerate(candidates):
            parts[c, used] = 1.0
            if name != "base":
                parts[c] = iso_mean_one(w, s, name == "up")
    stack = _to_mean_one(beta @ parts)
    raw = w[used].var() if guard == "relative" and used.any() else 1.0
    limit = np.inf if guard == "none" else float(rho * raw)
    alpha = guard_blend(stack, limit)
    out = _to_mean_one(1.0 + alpha * (stack - 1.0))
    return Stabilised(out, beta, alpha, alpha < 1.0, candidate, stack, (), limit)


def _fit_map(weight: FloatArray, score: FloatArray, fold: int, candidate: str) -> FoldMap:
    """Isotonic map of the weights on the score, divided by its mean over these rows."""
    knot, code = np.unique(score, return_inverse=True)
    size = np.bincount(code).astype(float)
    mean = sum_by(code, weight, len(knot)) / size
    if candidate == "up":
        value, _ = isotonic(mean, size)
    else:
        value = isotonic(mean[::-1], size[::-1])[0][::-1]
    return FoldMap(fold, candidate, knot, value * size.sum() / (value * size).sum())


def _stack(candidate: FloatArray, delta: FloatArray | None, weight: FloatArray) -> FloatArray:
    """Simplex weights of least variance of ``W_c * (Delta - mean Delta)``, or of least distance from the weights."""
    rows = np.asarray(np.isfinite(candidate).all(axis=0))
    if delta is not None:
        rows &= np.isfinite(delta)
    n = int(rows.sum())
    if n < 2:
        return np.full(len(candidate), 1.0 / len(candidate))
    if n < len(rows):
        candidate, weight, delta = candidate[:, rows], weight[rows], None if delta is None else delta[rows]
    if delta is None:
        left = candidate - weight
        sigma = left @ left.T / n
    else:
        moved = candidate * (delta - delta.mean())
        moved -= moved.mean(axis=1, keepdims=True)
        sigma = moved @ moved.T / (n - 1)
    return simplex_qp(sigma + RIDGE * np.trace(sigma) / len(sigma) * np.eye(len(sigma)))


def guard_blend(stack: npt.ArrayLike, limit: float) -> float:
    """Blend ``alpha = min(1, sqrt(limit / Var(stack)))`` that keeps ``Var(1 + alpha (stack - 1)) <= limit``."""
    spread = float(_present(stack).var()) if len(_present(stack)) else 0.0
    return float(np.sqrt(limit / spread)) if spread > limit else 1.0


def guard_curve(
    stabilised: Stabilised, delta: npt.ArrayLike, rhos: npt.ArrayLike = (0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
) -> xr.Dataset:
    """How the answer moves with the variance cap rho: the sensitivity curve that the cap gate asks for.

    Delta (n,) is as in `stabilise`: the rest of a DR estimate does not move with rho. The caps on the variance of the
    weights are absolute; ``inf`` is no guard. Of what was stabilised only the stack before the guard is used.

    Returns
    -------
    xr.Dataset
        Over ``rho``: ``alpha``, ``ess_fraction``, ``value = mean(W Delta)``, ``std_error`` of that mean from
        ``W (Delta - value)``, and ``shift``, the value less that without a guard (oracle units).
    """
    d, stack = np.asarray(delta, float), stabilised.stack
    rows = np.isfinite(stack) & np.isfinite(d)
    grid = np.asarray(rhos, float)
    table = np.full((len(grid), 4), np.nan)
    for j, limit in enumerate(grid if rows.any() else []):
        alpha = guard_blend(stack, float(limit))
        w = 1.0 + alpha * (stack - 1.0)
        value = (w[rows] * d[rows]).sum() / w[rows].sum()
        spread = np.sqrt((w[rows] ** 2 * (d[rows] - value) ** 2).sum()) / w[rows].sum()
        table[j] = alpha, ess_fraction(w), value, spread
    names = ("alpha", "ess_fraction", "value", "std_error")
    out = xr.Dataset({name: ("rho", table[:, k]) for k, name in enumerate(names)}, coords={"rho": grid})
    free = (stack[rows] * d[rows]).sum() / stack[rows].sum() if rows.any() else np.nan
    return out.assign(shift=out["value"] - free)


def _present(weight: npt.ArrayLike) -> FloatArray:
    w = np.asarray(weight, float)
    return np.asarray(w[np.isfinite(w)])


def _to_mean_one(weight: FloatArray) -> FloatArray:
    """Weights divided by their mean over the rows that are not NaN."""
    present = _present(weight)
    return weight / float(present.mean()) if len(present) else weight
