"""How many prompts to judge and how many to label: the paper's "Efficient Budget Allocation".

Estimand of a plan: the standard error of the values that `analyze` prints, and the smallest difference they detect,
with n evaluated prompts of which m are labelled. The paper's proposition "Square Root Allocation Law" takes

    Var(n, m) = sigma2_eval / n + sigma2_cal / m,    budget B = c_S P n + c_Y m,    m <= n

(P policies share the labels in its extension "Multi-Policy Amortization"), so that the optimum has ``m / n = sqrt(P
c_S sigma2_cal / (c_Y sigma2_eval))``, and there the labels' share of the variance equals their share of the spend.
The components come from one pilot (`cje_core.planning.components.variance_components`), of the default values or of
the paper's plug-in. Probes are a further purchase, which `cje_core.planning.probes` adds to the law.

What a design will show is forecast in `cje_core.planning.forecast`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS

BALANCE_TOLERANCE = 0.05  # difference of shares that is not worth moving money for
MOST = 1e10  # judged prompts or labels that a budget may pay for; floats count no further without error


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
    n_min: int = 0,
) -> Plan:
    """Whole numbers n and m that minimise ``sigma2_eval / n + sigma2_cal / m`` within a budget.

    The exact optimum over integers, not the rounded square-root law: the continuous variance bounds the whole-number
    one from below, so only those m need a look at which it is below the variance of the rounded law.

    Parameters
    ----------
    budget, cost_judge, cost_oracle : float
        B, c_S per judged response and c_Y per labelled prompt, in one unit.
    sigma2_eval, sigma2_cal : float
        Variance components, not negative.
    n_policies : int
        P policies answer every prompt and share the labels: one prompt costs ``P c_S``.
    m_min : int
        Fewest labelled prompts that give an estimate at all.
    n_min : int
        Fewest prompts, for instance those whose responses are probed.

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
    needed = max(n_min, m_min) * price[0] + m_min * price[1]
    if not needed * (1 - 1e-12) <= budget:
        raise ValueError(
            f"a budget of {budget:g} does not pay for {m_min} labelled prompts; it takes at least {needed:g}"
        )
    # in units about as large as the budget, by a power of two, so that nothing overflows and no digit changes
    _, exponent = np.frexp(budget)
    budget, per_prompt, cost_oracle = (float(np.ldexp(v, -exponent)) for v in (budget, *price))
    m_max = _affordable(budget, 0.0, per_prompt + cost_oracle)
    if n_min > m_max:  # prompts that are bought in any case leave less for labels
        m_max = _affordable(budget, n_min * per_prompt, cost_oracle)
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
        all_labelled=bool(m_best == m_max >= n_min and law >= m_max),
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

    Costs and components are as in `allocate`; shares within `tolerance` count as balanced. ``more labels``
    where omega exceeds the spend share (under-labelled), ``more prompts`` where it falls short; ``all labelled`` where
    more labels would help but every prompt has one, so both must grow together. Omega is what falls with m, of a mean
    label too, where the ``calibration_share`` of `cje_core.estimators.direct` is 0.

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
    advice = "more prompts" if omega < spend else "all labelled" if m == n else "more labels"
    return Balance(float(omega), float(spend), "balanced" if abs(omega - spend) <= tolerance else advice)


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
