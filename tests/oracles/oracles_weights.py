"""Slow, obvious second implementations of weights, overlap and typicality: loops and definitions."""

import math
from itertools import combinations, product

import numpy as np
from oracles import calibrate, isotonic_minmax


def mean_one(log_ratios):
    """Ratios over their mean; None where there is none."""
    ratios = [None if r is None else math.exp(r) for r in log_ratios]
    known = [r for r in ratios if r is not None]
    return [None if r is None else r / (math.fsum(known) / len(known)) for r in ratios]


def variance(values):
    mean = math.fsum(values) / len(values)
    return math.fsum((v - mean) ** 2 for v in values) / len(values)


def ess_fraction(weights):
    return sum(weights) ** 2 / sum(w * w for w in weights) / len(weights)


def iso_mean_one(weights, scores, increasing=True):
    """Pool equal scores, min-max isotonic fit, shift to mean one."""
    sign = 1 if increasing else -1
    levels = sorted({sign * s for s in scores})
    members = [[w for w, s in zip(weights, scores, strict=True) if sign * s == level] for level in levels]
    fitted = isotonic_minmax([sum(m) / len(m) for m in members], [len(m) for m in members])
    shift = 1 - sum(weights) / len(weights)
    return [fitted[levels.index(sign * s)] + shift for s in scores]


def simplex_grid(sigma, steps):
    """Least value of b' sigma b over a grid of the simplex."""
    n = len(sigma)
    best = math.inf
    for head in product(range(steps + 1), repeat=n - 1):
        if sum(head) <= steps:
            b = [h / steps for h in (*head, steps - sum(head))]
            best = min(best, sum(b[i] * sigma[i][j] * b[j] for i in range(n) for j in range(n)))
    return best


def simplex_by_supports(sigma):
    """Least-norm minimiser of b' sigma b over the simplex: a least-squares solution for every support."""
    n, found = len(sigma), []
    scaled = sigma * n / np.trace(sigma)
    for size in range(1, n + 1):
        for support in combinations(range(n), size):
            kkt = np.ones((size + 1, size + 1))
            kkt[:size, :size], kkt[size, size] = scaled[np.ix_(support, support)], 0.0
            solution = np.linalg.lstsq(kkt, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            if solution.min() >= -1e-12:
                b = np.zeros(n)
                b[list(support)] = np.maximum(solution, 0.0)
                b /= b.sum()
                found.append((float(b @ scaled @ b), float(b @ b), b))
    least = min(value for value, _, _ in found)
    return min((f for f in found if f[0] <= least + 1e-13), key=lambda f: f[1])[2]


def candidates(weights, scores, folds, names):
    """Out-of-fold candidates, row by row: the calibrator of the weights, divided by its mean on the training rows."""
    out = []
    for name in names:
        column = []
        for i in range(len(weights)):
            train = [j for j in range(len(weights)) if folds[j] != folds[i]]
            if name == "base":
                column.append(1.0)
                continue
            sign = 1 if name == "up" else -1
            x, w = [sign * scores[j] for j in train], [weights[j] for j in train]
            (value,) = calibrate(x, w, [1.0] * len(w), [sign * scores[i]])
            fitted = calibrate(x, w, [1.0] * len(w), x)
            column.append(value / (sum(fitted) / len(fitted)))
        out.append(column)
    return out


def stack_variance(columns, delta, beta):
    """Sample variance of ``sum_c beta_c W_c * (Delta - mean Delta)``."""
    mean = sum(delta) / len(delta)
    u = [
        sum(b * column[i] for b, column in zip(beta, columns, strict=True)) * (delta[i] - mean)
        for i in range(len(delta))
    ]
    return variance(u) * len(u) / (len(u) - 1)


def hill(log_weights, k):
    x = sorted(log_weights, reverse=True)
    return 1 / (sum(x[j] - x[k] for j in range(k)) / k)


def affinity(first, second, n_bins):
    """Plug-in affinity of two lists of (score, mass), bins of equal width over the range of both."""
    scores = [s for s, _ in first + second]
    low, high = min(scores), max(scores)

    def shares(sample):
        total = sum(m for _, m in sample)
        out = [0.0] * n_bins
        for s, m in sample:
            place = int((s - low) / (high - low) * n_bins + 1e-9) if high > low else 0
            out[min(place, n_bins - 1)] += m / total
        return out

    return sum(math.sqrt(p * q) for p, q in zip(shares(first), shares(second), strict=True))


def ttc(fresh, logged, level=0.9):
    """Share of logged surprisals at or below the smallest fresh one whose ECDF reaches the level."""
    threshold = min(s for s in fresh if sum(f <= s for f in fresh) >= level * len(fresh))
    return sum(s <= threshold for s in logged) / len(logged), threshold


def cle(weights, surprisals, threshold, alpha):
    """Factor by the definition: alpha / sqrt(beta) * sqrt(1 + chi2_T)."""
    inside = [w for w, s in zip(weights, surprisals, strict=True) if s <= threshold]
    beta = len(inside) / len(weights)
    mean = sum(inside) / len(inside)
    chi2 = sum((w / mean - 1) ** 2 for w in inside) / len(inside)
    return alpha / math.sqrt(beta) * math.sqrt(1 + chi2)
