"""Slow second answers for the Bayesian models: likelihood label by label, quadrature, refits."""

import numpy as np
from scipy import integrate, stats

from cje_core.bayes.gibbs import curve


def pointwise_log_likelihood(seen, posterior, levels):
    """Log likelihood of each label at each draw, (draws, m), chain by chain."""
    ends, shape = (
        posterior[name].transpose("chain", "draw", ...).values.reshape(-1, posterior[name].shape[-1])
        for name in ("ends", "shape")
    )
    mean = np.clip(curve(levels.level, ends, shape)[:, seen.at], 1e-12, 1 - 1e-12)
    if levels.binary:
        return stats.bernoulli.logpmf(seen.label[None, :], mean)
    sigma = posterior["sigma"].transpose("chain", "draw").values.reshape(-1, 1)
    return stats.norm.logpdf(seen.label[None, :], mean, sigma)


def jensen_shannon(values, first, second):
    """Cumulative Jensen-Shannon distance by numerical integration of the weighted ECDFs, both directions."""

    def one_sided(x):
        order = np.argsort(x)
        x, p, q = x[order], first[order], second[order]
        grid = np.linspace(x[0], x[-1], 200_001)
        at = np.searchsorted(x, grid, side="right")
        big_p, big_q = (np.concatenate([[0.0], np.cumsum(w)])[at] for w in (p, q))
        middle = (big_p + big_q) / 2

        def part(a, b):
            log = np.log2(np.where(a > 0, a, 1.0) / np.where(middle > 0, middle, 1.0))
            return integrate.trapezoid(a * log + (b - a) / (2 * np.log(2)), grid)

        return np.sqrt((part(big_p, big_q) + part(big_q, big_p)) / integrate.trapezoid(big_p + big_q, grid))

    return max(one_sided(values), one_sided(-values))


def uniform_ecdfs(n, point, n_sets, rng):
    """ECDF of n uniforms at some points, for many sets, (n_sets, points)."""
    out = np.empty((n_sets, len(point)))
    for s in range(n_sets):
        out[s] = np.searchsorted(np.sort(rng.random(n)), point, side="right") / n
    return out
