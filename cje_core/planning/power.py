"""Power of a contrast and the minimum detectable effect (the paper's "Planner: MDE and label/log budgets").

The paper's formula for two independent estimates of equal standard error is ``MDE = (z_.8 + z_.975) sqrt(2) SE``.
Here the test is the one that the reported t interval makes, with its degrees of freedom, and power is that of the
noncentral t distribution with both tails counted; so it is what it says with ten labels too, where the formula's
tests have power .70 and not .80. Infinite degrees of freedom give the paper's number.
"""

import numpy as np
import numpy.typing as npt
from scipy import special

from cje_core.checks import FloatArray

CLOSE = 1e-12  # of a detectable effect, relative
MOST_STEPS = 60  # more than any effect was seen to take, 57 where SciPy's noncentral t is not smooth


def power_at(
    effect: npt.ArrayLike, std_error: npt.ArrayLike, df: npt.ArrayLike = np.inf, *, ci_prob: float = 0.95
) -> FloatArray:
    """Power of the two-sided t test (size ``1 - ci_prob``) of no difference, both tails counted.

    Effect and standard error are those *of the difference*; df are the degrees of freedom of its interval, infinite for
    a normal one. All broadcast.

    Examples
    --------
    >>> round(float(power_at(2.8016, 1.0)), 4), round(float(power_at(2.8016, 1.0, 9)), 4)
    (0.8, 0.7038)
    """
    from statsmodels.stats.power import ttest_power  # loads SciPy's distributions, .7 s

    ratio = np.abs(np.asarray(effect, float) / np.asarray(std_error, float))
    shift, freedom = np.broadcast_arrays(ratio, np.asarray(df, float))
    known, out = np.isfinite(shift) & (freedom > 0), np.full(shift.shape, np.nan)
    if known.any():
        each = (shift[known], 1, (1 - ci_prob) / 2, freedom[known])
        # tail by tail, since SciPy's noncentral t is NaN where next to nothing lies below a point
        above = ttest_power(*each, alternative="larger")
        out[known] = np.nan_to_num(above, nan=1.0) + np.nan_to_num(ttest_power(*each, alternative="smaller"))
    return out


def detectable(
    std_error: npt.ArrayLike, df: npt.ArrayLike = np.inf, *, power: float = 0.8, ci_prob: float = 0.95
) -> FloatArray:
    """Smallest true difference that the two-sided test (`power_at`) finds with the given power.

    `power` lies above the size of the test and below one; the standard error is that of the difference. Solved for all
    df together: statsmodels' `solve_power` takes one at a time, 50 times as long, and stops at five digits.
    """
    if not 0 < 1 - ci_prob < power < 1:
        raise ValueError(f"power is {power:g} and ci_prob {ci_prob:g}; 1 - ci_prob < power < 1 is needed")
    error, freedom = np.broadcast_arrays(np.asarray(std_error, float), np.asarray(df, float))
    known = np.isfinite(error) & (freedom > 0)
    distinct, code = np.unique(freedom[known], return_inverse=True)

    def over(effect: FloatArray) -> FloatArray:
        return power_at(effect, 1.0, distinct, ci_prob=ci_prob) - power

    low = np.zeros(len(distinct))
    high = np.asarray(-2 * special.stdtrit(distinct, (1 - ci_prob) / 2), dtype=float)
    below, above = np.full(len(distinct), 1 - ci_prob - power), over(high)
    while (short := above < 0).any():
        high[short] *= 2
        above = over(high)
    # regula falsi: the power rises with the effect, and an end that stays a second time counts half (Illinois)
    found, stayed = high, np.zeros(len(distinct))
    for _ in range(MOST_STEPS):
        before, found = found, high - above * (high - low) / (above - below)
        value = over(found)
        short = value < 0
        side = np.where(short, 1, -1)
        half, stayed = np.where(side == stayed, 0.5, 1.0), side
        low, below = np.where(short, found, low), np.where(short, value, below * half)
        high, above = np.where(short, high, found), np.where(short, above * half, value)
        if not (np.abs(found - before) > CLOSE * found).any():  # nor where SciPy has no number
            break
    out = np.full(error.shape, np.nan)
    out[known] = error[known] * found[code]
    return out


def mde(
    std_error: npt.ArrayLike,
    df: npt.ArrayLike = np.inf,
    *,
    power: float = 0.8,
    ci_prob: float = 0.95,
    paired_correlation: float | None = None,
) -> FloatArray:
    """Minimum detectable effect between two policies whose estimates have the same standard error.

    Parameters
    ----------
    std_error : array
        Standard error of each of the two values.
    df, power, ci_prob
        As in `detectable`. Infinite df give the paper's ``(z_power + z_.975) sqrt(2) SE``.
    paired_correlation : float, optional
        Correlation of the two estimates, which share prompts and perhaps labels; by default they are independent, as
        in the paper.

    Examples
    --------
    >>> round(float(mde(0.01)), 5)
    0.03962
    """
    if paired_correlation is not None and not -1 <= paired_correlation < 1:
        raise ValueError(f"paired_correlation={paired_correlation:g}: it must lie in [-1, 1)")
    scale = np.sqrt(2 * (1 - (paired_correlation or 0.0)))
    return detectable(scale * np.asarray(std_error, float), df, power=power, ci_prob=ci_prob)
