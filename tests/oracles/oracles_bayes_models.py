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


def bounded_posterior(level, at, y, *, n, seed):
    """Posterior mean and sd of f at the levels 0, 6 and 11, of the share at the ends and of the dispersion.

    By importance sampling with the prior as proposal, in chunks; returns ((mean, sd), effective draws).
    """
    from cje_core.bayes.prior import Prior, draw

    rng, kept, weight = np.random.default_rng(seed), [], []
    inner = (y > 0) & (y < 1)
    for _ in range(n // 20_000):
        ends, shape = draw(Prior(), 20_000, rng)
        share, spread = rng.beta(1, 4, (2, 20_000))
        f = np.clip(curve(level, ends, shape), 1e-6, 1 - 1e-6)
        k = (1 / spread - 1)[:, None]
        mean = f[:, at]
        log = stats.beta.logpdf(y[inner], mean[:, inner] * k, (1 - mean[:, inner]) * k).sum(axis=1)
        log += inner.sum() * np.log1p(-share) + (~inner).sum() * np.log(share)
        log += np.log(np.where(y[~inner] > 0.5, mean[:, ~inner], 1 - mean[:, ~inner])).sum(axis=1)
        kept.append(np.column_stack([f[:, [0, 6, 11]], share, spread]))
        weight.append(log)
    x, log = np.concatenate(kept), np.concatenate(weight)
    w = np.exp(log - log.max())
    w /= w.sum()
    center = w @ x
    return (center, np.sqrt(w @ (x - center) ** 2)), 1 / (w**2).sum()
