"""Standard errors of means whose terms came in time and depend on their neighbours.

The paper's section "Optional: dependence-robust implementation details".
"""

from typing import NamedTuple

import numpy as np

from cje_core.checks import FloatArray


class SerialError(NamedTuple):
    """Standard error under serial dependence, with the sweep that chose the block length."""

    std_error: float
    mean_block: float
    swept: FloatArray  # mean block lengths tried
    swept_error: FloatArray  # the standard error at each


def stationary_bootstrap_se(influence: FloatArray, *, mean_block: float | None = None) -> SerialError:
    """Standard error of a mean of serially dependent influence values, by the stationary bootstrap.

    Blocks of geometric length glued to length n (Politis and Romano 1994; the paper's section "Optional:
    dependence-robust implementation details"). Their bootstrap variance of a mean needs no resampling: it is
    ``(c_0 + 2 sum_k b_k c_k) / n`` with autocovariances c_k and ``b_k = (1 - k/n)(1 - p)^k + (k/n)(1 - p)^(n - k)``,
    ``p = 1 / mean_block``. The block length comes from a sweep: the middle of the five neighbouring lengths over which
    the standard error varies least (minimum volatility).

    Parameters
    ----------
    influence : array, shape (n,)
        In order of time.
    mean_block : float, optional
        Mean block length, at least 1 (1: independent prompts).

    Returns
    -------
    SerialError
        NaN where an influence value is.

    Examples
    --------
    >>> noise = np.random.default_rng(1).standard_normal(2000)
    >>> walk = np.convolve(noise, [1.0, 0.8, 0.6, 0.4, 0.2], mode="valid")  # neighbours are alike
    >>> found = stationary_bootstrap_se(walk - walk.mean())
    >>> bool(found.std_error > 1.5 * walk.std() / len(walk) ** 0.5)
    True
    """
    n = len(influence)
    if mean_block is not None and not 1 <= mean_block <= n:
        raise ValueError(f"mean_block={mean_block}: it must lie between 1 and the {n} prompts")
    centered = influence - influence.mean()
    spectrum = np.abs(np.fft.rfft(centered, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum, 2 * n)[:n] / n

    def error(block: float) -> float:
        lag, keep = np.arange(1, n), 1 - 1 / block
        weight = (1 - lag / n) * keep**lag + lag / n * keep ** (n - lag)
        return float(np.sqrt(max(covariance[0] + 2 * (weight * covariance[1:]).sum(), 0.0) / n))

    longest = max(n ** (2 / 3) / 2, 1.0)
    swept = np.geomspace(1.0, longest, 17) if mean_block is None else np.array([float(mean_block)])
    errors = np.array([error(block) for block in swept])
    if mean_block is None:
        volatility = [np.std(errors[i - 2 : i + 3]) for i in range(2, len(errors) - 2)]
        chosen = 2 + int(np.argmin(volatility))
    else:
        chosen = 0
    return SerialError(float(errors[chosen]), float(swept[chosen]), swept, errors)
