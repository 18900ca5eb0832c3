"""Slow, obvious second implementations of audits, drift charts and partial identification: loops and definitions."""

from itertools import permutations
from math import log, sqrt

import numpy as np


def mean_residual(label, predicted, weight):
    return sum(w * (y - f) for w, y, f in zip(weight, label, predicted, strict=True)) / sum(weight)


def probe_value(responses, probes):
    """Tuned value of one policy: prompt -> f of every response, prompt -> (f, label) of the probes among them.

    Least squares of Y on f by hand; HC3 errors with the coefficients of V in the labels, found by nudging each label.
    """
    n, m = len(responses), len(probes)

    def value(labels):
        f_mean, y_mean = sum(f for f, _ in probes.values()) / m, sum(labels) / m
        top = sum((f - f_mean) * (y - y_mean) for (f, _), y in zip(probes.values(), labels, strict=True))
        lam = min(max(top / sum((f - f_mean) ** 2 for f, _ in probes.values()), 0.0), 1.0)
        everywhere = sum(responses.values()) / n
        left = sum(y - lam * f for (f, _), y in zip(probes.values(), labels, strict=True)) / m
        return lam * everywhere + left, lam

    labels = [y for _, y in probes.values()]
    total, lam = value(labels)
    everywhere = sum(responses.values()) / n
    f_mean = sum(f for f, _ in probes.values()) / m
    squares = sum((f - f_mean) ** 2 for f, _ in probes.values())
    left = [y - lam * f for f, y in probes.values()]
    moves = {p: lam * (f - everywhere) / n * sqrt(n / (n - 1)) for p, f in responses.items()}
    for k, (prompt, (f, _)) in enumerate(probes.items()):
        nudged = labels.copy()
        nudged[k] += 1e-6
        coefficient = (value(nudged)[0] - total) / 1e-6
        leverage = 1 / m + ((f - f_mean) ** 2 / squares if 0 < lam < 1 else 0.0)
        moves[prompt] += coefficient * (left[k] - sum(left) / m) / (1 - leverage)
    return total, sqrt(sum(v**2 for v in moves.values())), lam


def betting_interval(x, alpha, candidates):
    """Running confidence set of the mean of x in [0, 1]: (lowest, highest) candidate not yet excluded, per step."""
    alive = set(candidates)
    wealth = {m: [1.0, 1.0] for m in candidates}
    out = []
    for t in range(1, len(x) + 1):
        seen = x[: t - 1]
        means = [(0.5 + sum(seen[: i + 1])) / (i + 2) for i in range(t - 1)]
        variance = (0.25 + sum((v - m) ** 2 for v, m in zip(seen, means, strict=True))) / t
        bet = sqrt(2 * log(2 / alpha) / (variance * t * log(1 + t)))
        for m in candidates:
            up = min(bet, 0.5 / m) if m > 0 else bet
            down = min(bet, 0.5 / (1 - m)) if m < 1 else bet
            wealth[m][0] *= 1 + up * (x[t - 1] - m)
            wealth[m][1] *= 1 - down * (x[t - 1] - m)
            if max(wealth[m]) / 2 >= 1 / alpha:
                alive.discard(m)
        out.append((min(alive), max(alive)) if alive else (None, None))
    return out


def tau_b(x, y):
    n = len(x)
    sign = np.sign
    pairs = [(i, j) for i in range(n) for j in range(i)]
    both = sum(sign(x[i] - x[j]) * sign(y[i] - y[j]) for i, j in pairs)
    left = sum(x[i] != x[j] for i, j in pairs)
    right = sum(y[i] != y[j] for i, j in pairs)
    return both / sqrt(left * right)


def permutation_p(x, y):
    """Two-sided exact p-value of Kendall's tau by visiting every order of y."""
    observed = abs(tau_b(x, y))
    values = [abs(tau_b(x, [y[i] for i in order])) for order in permutations(range(len(y)))]
    return sum(v >= observed - 1e-12 for v in values) / len(values)


def charts(z, slack, smoothing):
    """Two-sided CUSUM and standardised EWMA of one series; None stands for an empty batch."""
    up = down = smooth = variance = 0.0
    cusum, ewma = [], []
    for value in z:
        if value is None:
            cusum.append(None)
            ewma.append(None)
            continue
        up = max(0.0, up + value - slack)
        down = max(0.0, down - value - slack)
        smooth = (1 - smoothing) * smooth + smoothing * value
        variance = (1 - smoothing) ** 2 * variance + smoothing**2
        cusum.append(max(up, down))
        ewma.append(abs(smooth) / sqrt(variance))
    return cusum, ewma


def run_length(limit, slack, shift, n_states=400):
    """Average run length of a one-sided CUSUM of N(shift, 1) by the Markov chain of Brook and Evans."""
    from scipy import stats

    width = 2 * limit / (2 * n_states - 1)
    centers = np.arange(n_states) * width
    upper = centers[None, :] + width / 2 - centers[:, None] + slack - shift
    lower = upper - width
    move = stats.norm.cdf(upper) - stats.norm.cdf(lower)
    move[:, 0] = stats.norm.cdf(upper[:, 0])
    return float(np.linalg.solve(np.eye(n_states) - move, np.ones(n_states))[0])


def bounds(score, predicted, weight, low_score, high_score, scale):
    """Bounds of the mean outcome with nothing known out of range."""
    out = []
    for extreme in scale:
        values = [
            f if low_score <= s <= high_score else extreme for s, f in zip(score, predicted, strict=True)
        ]
        out.append(sum(w * v for w, v in zip(weight, values, strict=True)) / sum(weight))
    return out


def isotonic_curve(index, label, weight):
    """Index levels and the isotonic fit at each."""
    from scipy.optimize import isotonic_regression

    levels = sorted(set(index))
    total = [sum(w for x, w in zip(index, weight, strict=True) if x == at) for at in levels]
    sums = [sum(w * y for x, y, w in zip(index, label, weight, strict=True) if x == at) for at in levels]
    means = [s / t for s, t in zip(sums, total, strict=True)]
    return levels, isotonic_regression(means, weights=total).x.tolist()


def group_residuals(labels, probes, group):
    """Mean of Y - f over the probes of each group; labels and probes are (index, label, weight), f of the labels."""
    levels, fitted = isotonic_curve(*labels)
    out = []
    for g in sorted(set(group)):
        mine = [k for k, name in enumerate(group) if name == g]
        guesses = [float(np.interp(probes[0][k], levels, fitted)) for k in mine]
        out.append(mean_residual([probes[1][k] for k in mine], guesses, [probes[2][k] for k in mine]))
    return out


def joint_p(value, null):
    """Share of draws at least as far from the mean of the draws, by their own covariance, as the value."""
    n, q = len(null), len(value)
    mean = [sum(r[b] for r in null) / n for b in range(q)]
    v = [[sum((r[a] - mean[a]) * (r[b] - mean[b]) for r in null) / n for b in range(q)] for a in range(q)]
    far = [
        float(d @ np.linalg.lstsq(np.array(v), d, rcond=1e-9)[0])
        for d in (np.array(r) - np.array(mean) for r in [value, *null])
    ]
    return far[0], (1 + sum(f >= far[0] * (1 - 1e-9) for f in far[1:])) / (n + 1)
