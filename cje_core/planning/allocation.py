"""How many prompts to judge and how many to label: the paper's "Efficient Budget Allocation".

Estimand of a plan: the standard error of the values that `analyze` prints, and the smallest difference they detect,
with n evaluated prompts of which m are labelled. The paper's proposition "Square Root Allocation Law" takes

    Var(n, m) = sigma2_eval / n + sigma2_cal / m,    budget B = c_S P n + c_Y m,    m <= n

(P policies share the labels in its extension "Multi-Policy Amortization"), so that the optimum has ``m / n = sqrt(P
c_S sigma2_cal / (c_Y sigma2_eval))``, and there the labels' share of the variance equals their share of the spend.
The components come from one pilot (`cje_core.planning.components.variance_components`), of the default values or of
the paper's plug-in. Probes keep their number, and what they leave is a third term that neither n nor m moves.

How good the forecasts are: the mean standard error that 200 pilots forecast for twice and four times their size, over
the spread of 1,000 fresh studies; pilots of 1,000 prompts with 100 or 250 labels of base, default values, four worlds
(well_specified, weak_judge, binary_oracle, discrete_judge); Monte Carlo standard errors .02-.04, up to .08 where pilots
refuse. Levels: .96-1.07 with 250 labels, 1.00-1.11 with 100 (.95-1.16 for ``worse``, farthest from the labels).
Differences to base: .97-1.07 with 250, .90-1.14 with 100, with two exceptions, both cautious. To a policy almost equal
to base, 1.01-1.12 and 1.08-1.34: their spread is small, and the fit's noise that falls faster than 1 / m is much of it.
In weak_judge 1.04-1.35, and 1.41-1.67 for the almost equal policy; of its pilots 18% (100) and 44% find the judge
informative, the others forecast nothing borrowed.

Failure modes: the law leaves out what falls faster than 1 / m, so it flatters few labels; a pilot says nothing about
scores it never saw. `extrapolation` says when a plan leaves the pilot's range, `cje_core.planning.trial.simulate_plan`
checks it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.inference.influence import pooled_df
from cje_core.planning.power import detectable

BALANCE_TOLERANCE = 0.05  # difference of shares that is not worth moving money for
BEYOND = 1.1  # times the pilot's size from which a plan counts as outside
MOST = 1e10  # judged prompts or labels that a budget may pay for; floats count no further without error
FEW = 0.25  # share of the pilot's labels under which the 1/m law is an extrapolation too


# --- the square-root law ---------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """A design that a budget pays for."""

    n: int  # evaluated prompts
    m: int  # labelled prompts, m <= n
    cost: float
    std_error: float
    calibration_share: float  # omega, the labels' share of the variance
    spend_share: float  # the labels' share of the cost
    all_labelled: bool  # the constraint m <= n binds


def allocate(
    budget: float,
    cost_judge: float,
    cost_oracle: float,
    sigma2_eval: float,
    sigma2_cal: float,
    *,
    n_policies: int = 1,
    m_min: int = MIN_LABELLED_CLUSTERS,
) -> Plan:
    """Whole numbers n and m that minimise ``sigma2_eval / n + sigma2_cal / m`` within a budget.

    The exact optimum over integers, not the rounded square-root law: the continuous variance bounds the whole-number
    one from below, so only those m need a look at which it is below the variance of the rounded law.

    Parameters
    ----------
    budget : float
        B, in the unit of the costs.
    cost_judge, cost_oracle : float
        c_S per judged response and c_Y per labelled prompt.
    sigma2_eval, sigma2_cal : float
        Variance components, not negative.
    n_policies : int
        P policies answer every prompt and share the labels: one prompt costs ``P c_S``.
    m_min : int
        Fewest labelled prompts that give an estimate at all.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        When the budget does not pay for `m_min` labelled prompts, saying what would, or pays for more than 1e10 prompts
        or labels, which no study has.

    Examples
    --------
    >>> allocate(100.0, 0.01, 0.16, 0.012, 0.049)[:3]
    (1104, 556, 100.0)
    """
    for name, cost in (("budget", budget), ("cost_judge", cost_judge), ("cost_oracle", cost_oracle)):
        if not (np.isfinite(cost) and cost > 0):
            raise ValueError(f"{name} is {cost:g}; it must be a positive number")
    if not (sigma2_eval >= 0 and sigma2_cal >= 0 and 0 < sigma2_eval + sigma2_cal < np.inf):
        raise ValueError(
            f"variance components are {sigma2_eval:g} and {sigma2_cal:g}; they cannot be negative or both zero"
        )
    if n_policies < 1 or m_min < 1:
        raise ValueError(f"n_policies is {n_policies} and m_min {m_min}; both must be at least 1")
    price = float(cost_judge * n_policies), float(cost_oracle)
    if not budget / MOST <= min(price):
        raise ValueError(
            f"a budget of {budget:g} pays for more than {MOST:g} prompts or labels at {price[0]:g} and "
            f"{price[1]:g} each; give all three in one unit"
        )
    needed = m_min * (price[0] + price[1])
    if not needed * (1 - 1e-12) <= budget:
        raise ValueError(
            f"a budget of {budget:g} does not pay for {m_min} labelled prompts; it takes at least {needed:g}"
        )
    # in units about as large as the budget, by a power of two, so that nothing overflows and no digit changes
    _, exponent = np.frexp(budget)
    budget, per_prompt, cost_oracle = (float(np.ldexp(v, -exponent)) for v in (budget, *price))
    m_max = _affordable(budget, 0.0, per_prompt + cost_oracle)
    root_eval, root_cal = np.sqrt(per_prompt * sigma2_eval), np.sqrt(cost_oracle * sigma2_cal)
    law = budget * np.sqrt(sigma2_cal / cost_oracle) / (root_eval + root_cal)
    near = int(np.clip(np.floor(law), m_min, m_max))
    bound = sigma2_eval / _affordable(budget, near * cost_oracle, per_prompt) + sigma2_cal / near
    # continuous variance <= bound  <=>  a m^2 + b m + c <= 0, an interval around the law's m
    a = bound * cost_oracle
    b = sigma2_eval * per_prompt - sigma2_cal * cost_oracle - bound * budget
    root = np.sqrt(max(float(b * b - 4 * a * sigma2_cal * budget), 0.0))
    low = int(np.clip(np.floor((-b - root) / (2 * a)) - 1, m_min, near))
    high = int(np.clip(np.ceil((-b + root) / (2 * a)) + 1, near, m_max))
    m = np.arange(low, high + 1)
    n = _affordable(budget, m * cost_oracle, per_prompt)
    variance = sigma2_eval / n + sigma2_cal / m
    best = int(np.argmin(variance))
    n_best, m_best = int(n[best]), int(m[best])
    cost = per_prompt * n_best + cost_oracle * m_best
    return Plan(
        n=n_best,
        m=m_best,
        cost=float(round(price[0] * n_best + price[1] * m_best, 12)),
        std_error=float(np.sqrt(variance[best])),
        calibration_share=float(sigma2_cal / m_best / variance[best]),
        spend_share=float(cost_oracle * m_best / cost),
        all_labelled=bool(m_best == m_max and law >= m_max),
    )


def _affordable(budget: float, spent: npt.ArrayLike, price: float) -> npt.NDArray[np.int64]:
    """Units that what is left pays for; a rounding error of the division does not lose the last one."""
    left = (budget - np.asarray(spent, float)) / price
    return np.asarray(np.floor(left * (1 + 1e-12) + 1e-9), dtype=np.int64)


class Balance(NamedTuple):
    """The paper's spend-balance rule at one design."""

    calibration_share: float  # omega
    spend_share: float
    advice: str  # "balanced", "more labels", "more prompts" or "all labelled"


def spend_balance(
    n: float,
    m: float,
    sigma2_eval: float,
    sigma2_cal: float,
    cost_judge: float,
    cost_oracle: float,
    *,
    n_policies: int = 1,
    tolerance: float = BALANCE_TOLERANCE,
) -> Balance:
    """Compare the labels' share of the variance with their share of the spend; at the optimum they agree.

    Parameters
    ----------
    n, m : float
        Evaluated and labelled prompts, m <= n.
    sigma2_eval, sigma2_cal, cost_judge, cost_oracle, n_policies
        As in `allocate`.
    tolerance : float
        Difference of the two shares that counts as balanced.

    Returns
    -------
    Balance
        ``more labels`` where omega exceeds the spend share (under-labelled), ``more prompts`` where it falls short;
        ``all labelled`` where more labels would help but every prompt has one, so both must grow together. Omega is
        what falls with m, of a mean label too, where the ``calibration_share`` of `cje_core.estimators.direct` is 0.

    Examples
    --------
    >>> spend_balance(1000, 50, 1.0, 0.45, 0.064, 1.0).advice  # the paper's worked example: omega = 90%
    'more labels'
    """
    if not 0 < m <= n:
        raise ValueError(f"n is {n:g} and m is {m:g}; m must lie in (0, n]")
    from_cal, from_eval = sigma2_cal / m, max(sigma2_eval, 0.0) / n
    omega = from_cal / (from_cal + from_eval)
    _, exponent = np.frexp(max(cost_judge, cost_oracle))  # a power of two off both, so that no sum overflows
    per_prompt, per_label = float(np.ldexp(cost_judge, -exponent)), float(np.ldexp(cost_oracle, -exponent))
    spend = per_label * m / (per_label * m + per_prompt * n_policies * n)
    if abs(omega - spend) <= tolerance:
        advice = "balanced"
    elif omega < spend:
        advice = "more prompts"
    else:
        advice = "all labelled" if m == n else "more labels"
    return Balance(float(omega), float(spend), advice)


def optimal_fraction(
    cost_judge: float, cost_oracle: float, sigma2_eval: float, sigma2_cal: float, *, n_policies: int = 1
) -> float:
    """Labelled share m / n of the square-root law, at most 1.

    Examples
    --------
    >>> round(optimal_fraction(0.064, 1.0, 1.0, 0.45), 2)  # the paper's worked example
    0.17
    """
    if sigma2_eval <= 0:
        return 1.0
    return float(min(np.sqrt(n_policies * cost_judge * sigma2_cal / (cost_oracle * sigma2_eval)), 1.0))


# --- forecasts and the minimum detectable effect ---------------------------------------------------------------------


def std_error_at(
    n: xr.DataArray | float, m: xr.DataArray | float, components: xr.Dataset, *, probe_growth: float = 1.0
) -> xr.Dataset:
    """Forecast for n evaluated and m labelled prompts, the rest of the pilot's design kept.

    Parameters
    ----------
    n, m : numbers or DataArrays
        NaN results where m > n or fewer than 4 prompts are labelled.
    components : xr.Dataset
        From `cje_core.planning.components.variance_components` or `cje_core.planning.own_labels.if_labelled`.
    probe_growth : float
        Probes of the plan over those of the pilot.

    Returns
    -------
    xr.Dataset
        ``std_error``; ``std_error_se``, its own standard error as far as it comes from the pilot's noise; ``df`` of
        the interval (`cje_core.inference.influence.pooled_df`, the parts' df growing with n and m);
        ``calibration_share``.
    """
    n, m = xr.DataArray(n).astype(float), xr.DataArray(m).astype(float)
    c = components
    from_eval, from_cal = c["sigma2_eval"] / n, c["sigma2_cal"] / m
    from_probes = c["variance_probes"] / probe_growth
    variance = from_eval + from_cal + from_probes
    spread = (
        (c["sigma2_eval_se"] / n) ** 2
        + (c["sigma2_cal_se"] / m) ** 2
        + 2 * c["sigma2_covariance"] / (n * m)
        + (c["variance_probes_se"] / probe_growth) ** 2
    )
    possible = (m <= n) & (m >= MIN_LABELLED_CLUSTERS) & (variance > 0)
    variance = variance.where(possible)
    # m effective clusters give m - 1 degrees of freedom, and their number grows with the sample
    df_eval = np.maximum((c["df_eval"] + 1) * n / c.attrs["n"] - 1, 1.0)
    df_cal = np.maximum((c["df_cal"] + 1) * m / max(c.attrs["m"], 1) - 1, 1.0)
    alone = (c["sigma2_eval"] - c["sigma2_cross"]) / n  # the parts' own variances, as `combine` weighs them
    df_probes = np.maximum(c["df_probes"] + c["probe_count"] * (probe_growth - 1), 1.0)
    each = (alone, from_cal, from_probes, df_eval, df_cal, df_probes)
    df = xr.apply_ufunc(_pooled, *each, vectorize=True, output_dtypes=[float])
    out = xr.Dataset(
        {
            "std_error": np.sqrt(variance),
            "std_error_se": np.sqrt(np.maximum(spread, 0.0)) / (2 * np.sqrt(variance)),
            "df": df.where(possible),
            "calibration_share": (from_cal / variance),
        }
    )
    return out.drop_vars([name for name in ("status", "route") if name in out.coords])


def _pooled(
    v_eval: float, v_cal: float, v_probes: float, df_eval: float, df_cal: float, df_probes: float
) -> float:
    return pooled_df([v_eval, v_cal, v_probes], [df_eval, df_cal, df_probes])


def extrapolation(n: float, m: float, components: xr.Dataset) -> list[str]:
    """What of a plan lies outside the pilot's range, one phrase each; empty if nothing does.

    Inside are n up to the pilot's prompts and m between a quarter of its labelled prompts and all of them (a subset
    of the pilot could have been that study), and a tenth more.
    """
    pilot_n, pilot_m = components.attrs["n"], components.attrs["m"]
    found = []
    if n > BEYOND * pilot_n:
        found.append(f"n = {n:.0f} is {n / pilot_n:.1f} times the pilot's {pilot_n} prompts")
    if m > BEYOND * pilot_m:
        found.append(f"m = {m:.0f} is {m / pilot_m:.1f} times the pilot's {pilot_m} labelled prompts")
    if m < FEW * pilot_m:
        found.append(
            f"m = {m:.0f} is under a quarter of the pilot's {pilot_m} labelled prompts, and the 1/m law flatters "
            "few labels"
        )
    return found


def effect_at(
    n: xr.DataArray | float,
    m: xr.DataArray | float,
    components: xr.Dataset,
    *,
    power: float = 0.8,
    ci_prob: float = 0.95,
) -> xr.DataArray:
    """Minimum detectable effect of a design.

    That of the difference for components of contrasts, with the standard error that its test takes (``*_tested``, which
    promise less than the spread would); for levels, between two independent estimates as precise. NaN where it is wider
    than the oracle scale (attribute ``scale_width`` of the components): no two means lie that far apart, so the design
    detects nothing at this power.
    """
    if "sigma2_cal_tested" in components:
        components = components.assign(
            {name: components[f"{name}_tested"] for name in ("sigma2_eval", "sigma2_cal")}
        )
    forecast = std_error_at(n, m, components)
    scale = 1.0 if "first" in components.coords else np.sqrt(2.0)
    found = detectable(
        scale * forecast["std_error"].values, forecast["df"].values, power=power, ci_prob=ci_prob
    )
    within = found <= components.attrs.get("scale_width", np.inf)
    return forecast["std_error"].copy(data=np.where(within, found, np.nan))


def mde_surface(
    components: xr.Dataset,
    n_grid: npt.ArrayLike,
    fraction_grid: npt.ArrayLike,
    *,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int = 1,
    power: float = 0.8,
    ci_prob: float = 0.95,
) -> xr.Dataset:
    """Standard error, minimum detectable effect and cost over sample size and labelled share, for contours.

    Parameters
    ----------
    components : xr.Dataset
        From `cje_core.planning.components.variance_components`; levels give the effect between two independent
        estimates.
    n_grid, fraction_grid : arrays
        Evaluated prompts and m / n.
    cost_judge, cost_oracle, n_policies
        As in `allocate`.

    Returns
    -------
    xr.Dataset
        Over ``n``, ``fraction`` (and the dimension of the components): ``std_error``, ``mde``, ``df``, ``m``,
        ``cost`` and ``extrapolates``. NaN where fewer than 4 prompts would be labelled; ``mde`` also where nothing on
        the oracle scale can be detected.
    """
    n = xr.DataArray(np.asarray(n_grid, float), dims="n", coords={"n": np.asarray(n_grid)})
    share = np.asarray(fraction_grid, float)
    if not ((share > 0) & (share <= 1)).all():
        raise ValueError("fraction_grid must lie in (0, 1]: it is the labelled share m / n")
    fraction = xr.DataArray(share, dims="fraction", coords={"fraction": share})
    m = (n * fraction).round()
    pilot_n, pilot_m = components.attrs["n"], components.attrs["m"]
    return (
        std_error_at(n, m, components)[["std_error", "df"]]
        .assign(
            mde=effect_at(n, m, components, power=power, ci_prob=ci_prob),
            m=m,
            cost=cost_judge * n_policies * n + cost_oracle * m,
            extrapolates=(n > BEYOND * pilot_n) | (m > BEYOND * pilot_m) | (m < FEW * pilot_m),
        )
        .assign_attrs(power=power, ci_prob=ci_prob, pilot_n=pilot_n, pilot_m=pilot_m)
    )


def labels_needed(
    target_mde: float, n: int, components: xr.Dataset, *, power: float = 0.8, ci_prob: float = 0.95
) -> xr.DataArray:
    """Fewest labelled prompts among n that detect a difference of `target_mde`.

    Returns
    -------
    xr.DataArray
        Over the dimension of the components; NaN where labelling all n prompts does not do it.
    """
    if not target_mde > 0:
        raise ValueError(f"target_mde={target_mde:g}: it must be positive")

    def reached(m: xr.DataArray) -> xr.DataArray:
        return effect_at(float(n), m, components, power=power, ci_prob=ci_prob) <= target_mde

    low = xr.full_like(components["sigma2_cal"], MIN_LABELLED_CLUSTERS - 1)  # never enough
    high = xr.full_like(low, float(n))
    possible = reached(high)
    while bool((high - low > 1).any()):
        middle = (low + high) // 2
        enough = reached(middle)
        low, high = low.where(enough, middle), high.where(~enough, middle)
    return high.where(possible)
