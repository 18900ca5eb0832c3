"""Second, slow implementations of the intervals on counts: statsmodels' of one count, and MOVER one pair at a time."""

import numpy as np
from scipy import stats
from statsmodels.stats.proportion import proportion_confint


def tail_interval(k, n, prob):
    """Shares at which the count k is not in either tail of probability (1 - prob) / 2."""
    return proportion_confint(k, n, 1 - prob, method="beta")


def mover(estimate, a, b, prob):
    """Interval and p-value of the difference of two policies with whole counts of binary labels on [0, 1]."""
    value = {name: float(estimate.estimate.sel(policy=name)) for name in (a, b)}
    count = {name: round(float(estimate.effective_count.sel(policy=name))) for name in (a, b)}
    phi = {name: estimate.influence.sel(policy=name).values for name in (a, b)}
    r = (phi[a] @ phi[b]) / np.sqrt((phi[a] @ phi[a]) * (phi[b] @ phi[b]))
    s_a, s_b = (np.sqrt(value[x] * (1 - value[x])) for x in (a, b))
    if r > 0:  # Newcombe's method 10: the covariance less half a pair
        r = max(r - 1 / (2 * min(count[a], count[b]) * s_a * s_b), 0)
    d = value[a] - value[b]

    def at(level):
        (low_a, high_a), (low_b, high_b) = (
            tail_interval(round(value[x] * count[x]), count[x], level) for x in (a, b)
        )

        def reach(x, y):
            return np.sqrt(max(x**2 + y**2 - 2 * r * x * y, 0))

        return [
            d - reach(value[a] - low_a, high_b - value[b]),
            d + reach(high_a - value[a], value[b] - low_b),
        ]

    smallest, largest = 0.0, 1.0
    for _ in range(30):
        alpha = (smallest + largest) / 2
        low, high = at(1 - alpha)
        smallest, largest = (alpha, largest) if low <= 0 <= high else (smallest, alpha)
    return at(prob), largest


def beta_quantile(c, n, prob=0.95):
    """Share of outcomes that n labels without one leave room for."""
    return stats.beta(c, n).isf((1 - prob) / 2) if c > 0 else 0.0


def gamma_limits(value, std_error, df, skewness, n, c, prob=0.95):
    """Limits of a value on [0, 1] whose error is skewed, with room of weight c beside n labels; cut to the scale."""
    tail = (1 - prob) / 2
    t, z, size = stats.t.isf(tail, df), stats.norm.isf(tail), max(abs(skewness), 1e-3)
    k = 1 / size**2
    far = (stats.gamma.isf(tail, k + 1) - k) * size * t / z
    close = (k - stats.gamma.ppf(tail, k)) * size * t / z
    share = min(k / 30, 1.0)
    close = (1 - share) * t + share * close
    down, up = (far, close) if skewness < 0 else (close, far)
    if c == 0:
        return [value - std_error * down, value + std_error * up]
    u = beta_quantile(c, n, prob)
    down, up = np.hypot(std_error * down, u * value), np.hypot(std_error * up, u * (1 - value))
    return [max(value - down, 0.0), min(value + up, 1.0)]


def unseen(label, score, weight, seen, scale=(0.0, 1.0)):
    """Weight of outcomes that labels did not show: of a far label or a tail of the scores, and of a crowd at an end."""
    low, high = scale
    n, ordered = len(label), sorted(label)
    share = weight / np.sum(weight)
    center = np.sum(share * score)
    spread = np.sqrt(np.sum(share * (score - center) ** 2))
    beyond = sum(
        w
        for s, w in zip(score, share, strict=True)
        if not min(seen) - 2 * spread <= s <= max(seen) + 2 * spread
    )
    median, far = ordered[n // 2], 0.0
    for end, extreme, quartile in (
        (low, ordered[0], ordered[n // 4]),
        (high, ordered[-1], ordered[n - 1 - n // 4]),
    ):
        times = abs(extreme - median) / abs(quartile - median) if quartile != median else np.inf
        part = abs(extreme - median) / abs(end - median) if end != median else 0.0
        far = max(far, np.clip(times / 10 - 1, 0, 1) * np.clip(4 * part - 1, 0, 1) / 2)
    tail = min((n * 4 * beyond / 3.69) ** 1.5, 1.0)
    deviation = np.std(label, ddof=1)
    near = min(np.mean(label) - low, high - np.mean(label)) / deviation
    crowd = 0.2 * min(1, 30 / n) ** 1.5 * np.clip((3 - near) / 1.5, 0, 1)
    return max(far, tail), crowd
