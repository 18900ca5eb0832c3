"""How many probes an audit takes: power, size, and buying labels one by one until it decides.

The audit of `cje_core.transport.audit` passes when the interval ``residual +- t_df SE`` lies inside ``[-margin,
margin]`` and fails when it lies outside entirely. It decides given the fitted f, so with n probes of residual
standard deviation s ``SE^2 = s^2 / n``, and `true_residual` is that of this f. For the interval that adds the fit's
noise (the audit's ``interval_with_fit``) give `fit_std_error`, the standard error c of the mean of f on this policy:
``SE^2 = s^2 / n + c^2``, of which probes shrink the first term only; once ``t_df c`` exceeds the margin no number of
probes takes that interval inside it.

`audit_power` integrates the normal law of the mean residual over the chi-square law of the estimated variances, so the
t quantile and its degrees of freedom are those of the audit. `sequential_audit` is valid at every
number of labels at once, so labels may be bought until it decides.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, probability
from cje_core.compiled import Kernel
from cje_core.data.construct import dataset
from cje_core.inference.estimate import CI_BOUND
from cje_core.transport.margin import MARGIN, check_margin

UNSEEN_WEIGHT = (
    0.5  # of an outcome that n probes did not show: its share is Beta(1/2, n), as of Jeffreys' prior
)
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE")
N_NODES = 64  # quadrature nodes for each estimated variance
MIN_PROBES = 4  # the audit gives no number below this
MOST_PROBES = 1_000_000

_NODE, _WEIGHT = np.polynomial.legendre.leggauss(N_NODES)
LEVEL, LEVEL_WEIGHT = (_NODE + 1) / 2, _WEIGHT / 2  # quadrature over (0, 1)


class _Design(NamedTuple):
    """What the audit's power depends on, apart from the number of probes and the mean residual."""

    margin: float
    residual_sd: float
    fit_std_error: float
    fit_df: float
    ci_prob: float
    reach: tuple[float, float]


def audit_power(
    n_probes: npt.ArrayLike,
    *,
    residual_sd: float,
    true_residual: npt.ArrayLike = 0.0,
    margin: float = MARGIN,
    fit_std_error: float = 0.0,
    fit_df: float = np.inf,
    ci_prob: float = 0.95,
    reach: tuple[float, float] = (0.0, 0.0),
) -> xr.Dataset:
    """Probability of each verdict of the transport audit.

    Parameters
    ----------
    n_probes : int or array
        Probed prompts, at least 4.
    residual_sd : float
        Standard deviation of ``Y - f(Z)`` over the policy's prompts, as `cje_core.transport.audit.audit` reports it.
    true_residual : float or array
        True mean of ``Y - f(Z)``: 0 where the calibration transports.
    margin, ci_prob : float
        Of the audit.
    fit_std_error, fit_df : float
        Zero for the audit's verdict; the audit's own for its interval with the fit's noise.
    reach : pair of float
        Distances of the policy's mean label to the lower and the upper end of the oracle's scale, for which PASS leaves
        room (`cje_core.transport.audit.audit`); 0 for none.

    Returns
    -------
    xr.Dataset
        Over ``n_probes, true_residual``: ``probability`` (with dimension ``verdict``), and ``reject_zero``, the power
        of the zero-null t-test.

    Examples
    --------
    >>> power = audit_power([50, 200], residual_sd=0.15)
    >>> power.probability.sel(verdict="PASS", true_residual=0.0).round(2).values
    array([0.28, 0.99])
    """
    sizes, shifts = np.atleast_1d(np.asarray(n_probes)), np.atleast_1d(np.asarray(true_residual, float))
    design = _check(margin, residual_sd, fit_std_error, fit_df, ci_prob, reach)
    if not (sizes >= MIN_PROBES).all():
        raise ValueError(f"n_probes={sizes.min()}: the audit needs at least {MIN_PROBES} probed prompts")
    table = np.stack([[_verdicts(float(n), float(s), design) for s in shifts] for n in sizes])
    return xr.Dataset(
        {
            "probability": (("n_probes", "true_residual", "verdict"), table[..., :3]),
            "reject_zero": (("n_probes", "true_residual"), table[..., 3]),
        },
        coords={"n_probes": sizes, "true_residual": shifts, "verdict": list(VERDICTS)},
        attrs=design._asdict(),
    )


def audit_size(
    power: float = 0.8,
    *,
    residual_sd: float,
    true_residual: npt.ArrayLike = 0.0,
    margin: float = MARGIN,
    fit_std_error: float = 0.0,
    fit_df: float = np.inf,
    ci_prob: float = 0.95,
    n_policies: int = 1,
    reach: tuple[float, float] = (0.0, 0.0),
) -> xr.Dataset:
    """Fewest probes with which the audit reaches its right verdict.

    The right verdict is PASS for a mean residual within the margin and FAIL for one beyond it. With several policies
    each may miss with probability ``(1 - power) / n_policies``, so that all verdicts are reached together with
    probability `power`, whatever their dependence.

    Parameters
    ----------
    power : float
        In (0, 1).
    residual_sd, true_residual, margin, fit_std_error, fit_df, ci_prob, reach
        As in `audit_power`.
    n_policies : int
        Policies audited, alike in all the above.

    Returns
    -------
    xr.Dataset
        Over ``true_residual``: ``verdict``, ``n_probes`` per policy, ``n_labels`` for all policies, ``probability`` of
        the verdict at that number (per policy), ``limit``, its value with a million probes. Where even those do not
        suffice, because the mean residual sits on the margin's edge or a given fit error fills it, ``n_probes`` is NaN.

    Examples
    --------
    >>> plan = audit_size(0.8, residual_sd=0.15, true_residual=[0.0, 0.15])
    >>> plan.n_probes.values, plan.verdict.values.tolist()
    (array([97., 20.]), ['PASS', 'FAIL'])
    """
    probability(power, "power")
    if n_policies < 1:
        raise ValueError(f"n_policies={n_policies}: give at least 1")
    design = _check(margin, residual_sd, fit_std_error, fit_df, ci_prob, reach)
    shifts = np.atleast_1d(np.asarray(true_residual, float))
    needed = 1 - (1 - power) / n_policies
    which = np.where(np.abs(shifts) <= margin, 0, 1)
    n_probes, reached, limit = np.full((3, len(shifts)), np.nan)
    for i, (value, verdict) in enumerate(zip(shifts, which, strict=True)):
        limit[i] = _verdicts(MOST_PROBES, float(value), design)[verdict]
        if limit[i] >= needed:
            n_probes[i] = _fewest(float(value), int(verdict), needed, design)
            reached[i] = _verdicts(n_probes[i], float(value), design)[verdict]
    columns = {"verdict": np.array(VERDICTS)[which], "n_probes": n_probes, "n_labels": n_probes * n_policies}
    columns |= {"probability": reached, "limit": limit}
    return xr.Dataset(
        {name: ("true_residual", column) for name, column in columns.items()},
        coords={"true_residual": shifts},
        attrs={**design._asdict(), "power": power, "n_policies": n_policies},
    )


def probes_to_pass(
    residual_sd: float,
    *,
    margin: float = MARGIN,
    power: float = 0.8,
    ci_prob: float = 0.95,
    reach: tuple[float, float] = (0.0, 0.0),
) -> float:
    """Fewest probes with which the audit passes an f that is right on average; NaN without a positive standard
    deviation.

    The number of `audit_size` at mean residual zero. It grows like ``(z_{power} + z_{ci})^2 (residual_sd / margin)^2``
    with the quantiles of an interval that must fit inside the margin on both sides, some 10.5 at the defaults.

    Examples
    --------
    >>> probes_to_pass(0.2), probes_to_pass(0.4)
    (171.0, 675.0)
    """
    if not residual_sd > 0:
        return np.nan
    design = _check(margin, residual_sd, 0.0, np.inf, ci_prob, reach)
    if _verdicts(MOST_PROBES, 0.0, design)[0] < power:
        return np.nan
    z = special.ndtri(0.5 + ci_prob / 2) + special.ndtri(0.5 + power / 2)
    return _fewest(0.0, 0, power, design, max(int((z * residual_sd / margin) ** 2), MIN_PROBES))


def sequential_audit(
    residual: npt.ArrayLike,
    *,
    margin: float = MARGIN,
    alpha: float = 0.05,
    bounds: tuple[float, float] = (-1.0, 1.0),
    fit_error: float = 0.0,
    n_grid: int = 2001,
) -> xr.Dataset:
    """Audit probe labels as they come in, valid at every number of labels at once.

    The hedged betting confidence sequence of Waudby-Smith and Ramdas ("Estimating means of bounded random variables by
    betting"): for each candidate mean m two bettors stake against it, upwards and downwards, with predictable
    plug-in bets, ``K_t(m) = max(prod(1 + l_i (r_i - m)), prod(1 - l_i (r_i - m))) / 2``; m leaves the interval, for
    good, when ``K_t(m) >= 1 / alpha``. By Ville's inequality the true mean ever leaves with probability at most alpha,
    however often one looks and whenever one stops. Candidates lie on a grid, the truth need not: the wealth of the
    bettor upwards falls with m and that of the other rises, so a candidate rejected upwards takes all means below it
    along, one rejected downwards all above. The interval runs from the highest candidate rejected upwards to the
    lowest rejected downwards, each bettor moving its own end alone, and thus holds the exact confidence set whatever
    the grid; a coarse one is wider by up to a step on either side.

    The guarantee treats f as given. For residuals of a calibrator learned on few labels it speaks about
    ``E[Y - f(Z)]`` of *that* f, which is indeed the bias of the plug-in that uses it. A statement about the transport
    of the calibration as such must allow for the error of f: give `fit_error`.

    Parameters
    ----------
    residual : array, shape (n,)
        ``Y - f(Z)`` in the order the labels were bought: prompts drawn at random, one value per prompt (average its
        draws), f fitted before the first of them.
    margin : float
        Largest harmless mean residual.
    alpha : float
        Error probability over the whole sequence.
    bounds : pair of float
        Range a residual cannot leave: by default that of an oracle scale of width one.
    fit_error : float
        A half-width that the error of the mean of f exceeds with probability ``alpha_fit`` (a t quantile times the
        audit's ``fit_std_error``): the interval is widened by it on both sides and misses with probability at most
        ``alpha + alpha_fit``.
    n_grid : int
        Candidate means, at least 3.

    Returns
    -------
    xr.Dataset
        Over ``label`` (1..n): ``interval`` (running intersection), ``verdict`` so far. Scalars: ``stop``, the number of
        labels at which the verdict was first PASS or FAIL (0: never), and ``final``, that verdict or INCONCLUSIVE. A
        verdict once reached stays, as the interval only shrinks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = sequential_audit(rng.normal(-0.3, 0.2, 200).clip(-1, 1))
    >>> found.final.item(), found.stop.item() < 60
    ('FAIL', True)
    """
    values = np.asarray(residual, float)
    low, high = bounds
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError("residual must be a non-empty sequence of finite numbers, one per label")
    if not (low < high and values.min() >= low and values.max() <= high):
        raise ValueError(
            f"residuals run from {values.min():g} to {values.max():g}, outside bounds ({low:g}, {high:g})"
        )
    check_margin(margin)
    probability(alpha, "alpha")
    if not fit_error >= 0:
        raise ValueError(f"fit_error={fit_error}: it is a half-width and cannot be negative")
    if n_grid < 3:
        raise ValueError(f"n_grid={n_grid}: give at least 3 candidate means")
    interval = np.empty((len(values), 2))
    _betting((values - low) / (high - low), alpha, n_grid, interval)
    interval = low + (high - low) * interval + np.array([-fit_error, fit_error])
    inside = (interval[:, 0] >= -margin) & (interval[:, 1] <= margin)
    outside = (interval[:, 0] > margin) | (interval[:, 1] < -margin)
    verdict = np.select([inside, outside], ["PASS", "FAIL"], default="INCONCLUSIVE")
    decided = np.flatnonzero(inside | outside)
    return dataset(
        {
            "interval": (("label", "ci_bound"), interval),
            "verdict": ("label", verdict),
            "stop": ((), int(decided[0]) + 1 if len(decided) else 0),
            "final": ((), verdict[decided[0]] if len(decided) else "INCONCLUSIVE"),
        },
        coords={"label": np.arange(1, len(values) + 1), "ci_bound": CI_BOUND},
        attrs={"margin": margin, "alpha": alpha, "fit_error": fit_error},
    )


def _check(
    margin: float,
    residual_sd: float,
    fit_std_error: float,
    fit_df: float,
    ci_prob: float,
    reach: tuple[float, float],
) -> _Design:
    check_margin(margin)
    if not residual_sd > 0:
        raise ValueError(f"residual_sd={residual_sd}: without spread there is no sample size to plan")
    if not fit_std_error >= 0:
        raise ValueError(f"fit_std_error={fit_std_error}: a standard error cannot be negative")
    if not fit_df > 0:
        raise ValueError(f"fit_df={fit_df}: it must be positive (infinite for a known error)")
    probability(ci_prob)
    if not min(reach) >= 0:
        raise ValueError(f"reach={reach}: a distance to an end of the scale cannot be negative")
    return _Design(margin, residual_sd, fit_std_error, fit_df, ci_prob, reach)


def _verdicts(n: float, shift: float, design: _Design) -> tuple[float, float, float, float]:
    """P(PASS), P(FAIL), P(INCONCLUSIVE) and P(zero null rejected)."""
    probes = design.residual_sd**2 / n
    fit = design.fit_std_error**2
    level_t = 0.5 + design.ci_prob / 2
    probe_hat = probes * special.chdtri(n - 1, 1 - LEVEL) / (n - 1)
    half: FloatArray = special.stdtrit(n - 1, level_t) * np.sqrt(probe_hat)[:, None]
    mass = LEVEL_WEIGHT[:, None]
    if fit > 0:
        known = np.isinf(design.fit_df)
        fit_hat = np.array([fit]) if known else fit * special.chdtri(design.fit_df, 1 - LEVEL) / design.fit_df
        p, c = probe_hat[:, None], fit_hat[None, :]
        mass = mass * (1.0 if known else LEVEL_WEIGHT)
        df = (p + c) ** 2 / (p**2 / (n - 1) + c**2 / design.fit_df)
        # as in `pooled_df`: no narrower than either source of error alone would make it
        half = np.maximum(half, special.stdtrit(df, level_t) * np.sqrt(p + c))
        half = np.maximum(half, special.stdtrit(design.fit_df, level_t) * np.sqrt(c))
    sigma = np.sqrt(probes + fit)

    def between(low: FloatArray, high: FloatArray) -> float:
        inside = special.ndtr((high - shift) / sigma) - special.ndtr((low - shift) / sigma)
        return float((mass * np.maximum(inside, 0.0)).sum())

    unseen = special.betainccinv(UNSEEN_WEIGHT, n, 1 - level_t)
    below, above = (np.hypot(half, unseen * distance) for distance in design.reach)
    passed = between(below - design.margin, design.margin - above)
    failed = 1 - between(-design.margin - half, design.margin + half)
    return passed, failed, max(1 - passed - failed, 0.0), 1 - between(-half, half)


def _fewest(shift: float, verdict: int, needed: float, design: _Design, guess: int = MIN_PROBES) -> float:
    """Smallest n whose verdict has the needed probability: bracketed from a guess, then bisection (it rises with n)."""
    low, high = MIN_PROBES, guess
    while _verdicts(high, shift, design)[verdict] < needed:
        low, high = high + 1, 2 * high if guess == MIN_PROBES else high + guess // 8 + 8
    if high == guess > MIN_PROBES and _verdicts(lower := int(0.8 * guess), shift, design)[verdict] < needed:
        low = max(lower, MIN_PROBES)
    while low < high:
        middle = (low + high) // 2
        if _verdicts(middle, shift, design)[verdict] >= needed:
            high = middle
        else:
            low = middle + 1
    return float(high)


@Kernel
def _betting(x, alpha, n_grid, interval):  # type: ignore[no-untyped-def]
    """Running interval for the mean of x in [0, 1]; candidates i / (n_grid - 1), wealth in logs.

    Each bettor's wealth is followed at one candidate, the next that it may reject; that of a candidate whose turn comes
    is made of the labels seen so far, or, where the other bettor has rejected it, of those until then.
    """
    step = 1.0 / (n_grid - 1)
    bet = np.empty(len(x))
    low, high = 0, n_grid - 1  # lowest candidate not yet rejected upwards, highest not yet rejected downwards
    up, down = 0.0, 0.0  # wealth there
    up_until, down_until = np.full(n_grid, len(x)), np.full(n_grid, len(x))
    threshold = np.log(2.0 / alpha)  # each bettor holds half of the stake
    total, squares = 0.0, 0.0
    below, above = 0.0, 1.0
    for t in range(len(x)):
        variance = (0.25 + squares) / (t + 1)  # of what was seen before this label: bets are predictable
        bet[t] = np.sqrt(2 * np.log(2.0 / alpha) / (variance * (t + 1) * np.log(t + 2.0)))
        up += _won_upwards(x[t], bet[t], low * step)
        down += _won_downwards(x[t], bet[t], high * step)
        while low < n_grid and up >= threshold:
            down_until[low] = t + 1
            low += 1
            up = 0.0
            for s in range(min(t + 1, up_until[low]) if low < n_grid else 0):
                up += _won_upwards(x[s], bet[s], low * step)
        while high >= 0 and down >= threshold:
            up_until[high] = t + 1
            high -= 1
            down = 0.0
            for s in range(min(t + 1, down_until[high]) if high >= 0 else 0):
                down += _won_downwards(x[s], bet[s], high * step)
        total += x[t]
        mean = (0.5 + total) / (t + 2)
        squares += (x[t] - mean) ** 2
        if low - 1 < high + 1:  # else every mean was rejected, which happens with probability alpha at most
            below, above = max((low - 1) * step, 0.0), min((high + 1) * step, 1.0)
        interval[t, 0], interval[t, 1] = below, above


@Kernel
def _won_upwards(x, bet, m):  # type: ignore[no-untyped-def]
    """What a bet that the mean is above m adds to the log of its wealth."""
    return np.log1p((bet if m <= 0.0 else min(bet, 0.5 / m)) * (x - m))


@Kernel
def _won_downwards(x, bet, m):  # type: ignore[no-untyped-def]
    """The same below m."""
    return np.log1p(-(bet if m >= 1.0 else min(bet, 0.5 / (1.0 - m))) * (x - m))
