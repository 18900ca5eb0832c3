"""Do recorded likelihood ratios calibrate? Means of test functions under the logs against means under the target.

With ``r = log p_target(A | X) - log p_logger(A | X)`` every function h satisfies the change of measure

    ``E_logger[exp(r) h] = E_target[h 1{r < inf}]``

("Causal Judge Evaluation", ratio calibration: ``E_0[W h] = E_target[h]`` for a test class h). Two forms of it need no
overlap to be tested, since their terms are bounded whatever the tail of ``exp(r)``:

- two-sided, where r is recorded for fresh draws too: put ``h = g / (1 + exp(r))``, which vanishes where the logger
  does not go, so that ``E_logger[expit(r) g] = E_target[expit(-r) g]`` for every bounded g. It says that among as many
  logged as fresh responses the share ``expit(r)`` is fresh: a classifier with logit r is calibrated.
- one-sided, where r is recorded for logged responses only: ``E_logger[min(exp(r), c) h] <= E_target[h]`` for h >= 0.
  Missing coverage and the cap lower the left side, so an excess is an error of r. A shortfall has no meaning: ratios
  that are too small are the true ratios to another target, which gives the rest to responses the logger never gives.
  The same bound with target and logger exchanged, r of fresh draws and -r for r, finds them.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.checks import FloatArray, IntArray


class Comparison(NamedTuple):
    """Means of q weighted test functions in both samples, shapes (q,)."""

    logged: FloatArray
    fresh: FloatArray
    std_error: FloatArray  # of logged - fresh, clustered; 0 for a function that does not vary


def bounded_weight(log_ratio: FloatArray, *, fresh: bool) -> FloatArray:
    """Compute the two-sided weight ``expit(r)`` of logged responses or ``expit(-r)`` of fresh ones; r may be infinite.

    Examples
    --------
    >>> bounded_weight(np.array([0.0, np.inf]), fresh=True).tolist()
    [0.5, 0.0]
    """
    return np.asarray(special.expit(-log_ratio if fresh else log_ratio))


def capped_weight(log_ratio: FloatArray, cap: float) -> FloatArray:
    """Compute ``min(exp(r), cap)`` without overflow.

    Examples
    --------
    >>> capped_weight(np.array([0.0, 900.0]), 30.0).round(9).tolist()
    [1.0, 30.0]
    """
    return np.asarray(np.exp(np.minimum(log_ratio, np.log(cap))))


def centred_ranks(logged: FloatArray, fresh: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rank two samples together, ties by their mean, on a scale from -1 to 1.

    Examples
    --------
    >>> [part.tolist() for part in centred_ranks(np.array([1.0, 5.0]), np.array([5.0, 9.0]))]
    [[-0.75, 0.0], [0.0, 0.75]]
    """
    both = np.concatenate([logged, fresh])
    _, code, count = np.unique(both, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - count / 2
    rank = 2 * middle[code] / len(both) - 1
    return rank[: len(logged)], rank[len(logged) :]


def compare(logged: FloatArray, fresh: FloatArray, cluster: IntArray) -> Comparison:
    """Compare the means of weighted test functions over prompts that have a logged and a fresh response.

    Under correct ratios the difference of each prompt has mean zero, so ``z = difference / std_error`` is standard
    normal in the limit. With D_g the sum of the differences of cluster g and G clusters, the standard error is
    ``sqrt(G / (G - 1) sum (D_g - mean D)^2) / n``.

    Parameters
    ----------
    logged, fresh : arrays, shape (q, n)
        Weight times test function of each prompt's logged response, and its mean over the prompt's fresh ones.
    cluster : int array, shape (n,)
        Codes of the prompts' clusters.

    Examples
    --------
    >>> compare(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), np.arange(2)).std_error.tolist()
    [0.5]
    """
    q, n = logged.shape
    code = np.unique(cluster, return_inverse=True)[1]
    n_clusters = int(code.max()) + 1
    error = np.zeros(q)
    for j in range(q):
        total = np.bincount(code, weights=logged[j] - fresh[j], minlength=n_clusters)
        if n_clusters > 1:
            error[j] = np.sqrt(n_clusters / (n_clusters - 1) * ((total - total.mean()) ** 2).sum()) / n
    return Comparison(logged.mean(axis=1), fresh.mean(axis=1), error)


def max_t(z: FloatArray, df: float) -> float:
    """Compute the p-value of the largest of q statistics by Bonferroni: ``q P(t_df > max z)``, at most 1.

    NaN statistics do not count; without any the p-value is NaN. For a two-sided test give z and -z.

    Examples
    --------
    >>> round(max_t(np.array([1.0, 2.5, np.nan]), 1e9), 4)
    0.0124
    """
    known = z[np.isfinite(z)]
    if not len(known):
        return float("nan")
    return float(min(1.0, len(known) * special.stdtr(df, -known.max())))
