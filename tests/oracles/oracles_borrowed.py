"""Slow, obvious second implementation of what is borrowed: the balanced one-step and the test of the judge."""

import math

import numpy as np
import oracles
from scipy import optimize, stats


def averaged_quantile(values, share):
    """The value with that share of the sorted sample at or below it, averaged with the next where it is exact."""
    ordered, at = sorted(values), share * len(values)
    if abs(at - round(at)) < 1e-9:
        return (ordered[round(at) - 1] + ordered[round(at)]) / 2
    return ordered[math.ceil(at) - 1]


def terms(score, knots):
    """1, S and a natural cubic of S on three knots."""

    def cube(knot):
        return max(score - knot, 0.0) ** 3

    if len(knots) < 3:
        return [1.0, score]
    a, b, c = knots
    return [1.0, score, (cube(a) - cube(c)) / (c - a) - (cube(b) - cube(c)) / (c - b)]


def calibrated(teach, labels, scores):
    return oracles.calibrate([t["score"] for t in teach], labels, [1 / t["prob"] for t in teach], scores)


def widening(p_value):
    """How much longer 1.96 gets where a normal statistic is looked at only if it exceeds 1.645: by a fine search."""

    def upper(z):
        return math.erfc(z / math.sqrt(2)) / 2

    def first(holds):
        """The least number, to 1e-5, from which on a condition holds: a search by ever smaller steps."""
        low, step = -9.0, 1.0
        while step >= 1e-5:
            while not holds(low + step):
                low += step
            step /= 10
        return low

    def quantile(tail):
        return first(lambda z: upper(z) <= tail)

    gap = quantile(p_value) - quantile(0.05)
    q = first(lambda q: upper(q) <= 0.05 * upper(q - gap))
    assert q < 37  # beyond, the tails are zero to rounding
    return max(q / quantile(0.025), 1.0)


def balanced(rows, policy, folds, p_value=0.0):
    """Value, standard error and weights of the labels by cluster and prompt, from row dicts (see `oracles.theta`).

    Residuals leave their fold out of the fit; those of the regression on the terms are multiplied, cluster by cluster,
    by the inverse root of one minus its hat matrix. The coefficient of a label is its balancing weight plus what moving
    it alone does to mean f over the policy less the balanced mean f. The labels' error is longer along the rank
    correlation by what its test with this `p_value` selects.
    """
    teach = [r for r in rows if r["teaches"]]
    mine = [r for r in rows if r["policy"] == policy]
    labels = [t["label"] for t in teach]
    total = sum(r["weight"] for r in mine)
    held_out = []
    for t in teach:
        others = [u for u in teach if folds[u["prompt"]] != folds[t["prompt"]]]
        held_out += calibrated(others, [u["label"] for u in others], [t["score"]])
    residual = np.array(labels) - held_out
    knots = sorted({averaged_quantile([t["score"] for t in teach], q) for q in (0.1, 0.5, 0.9)})
    b = np.array([terms(t["score"], knots) for t in teach])
    w = np.array([1 / t["prob"] for t in teach])
    goal = sum(r["weight"] / total * np.array(terms(r["score"], knots)) for r in mine)
    balance = np.linalg.pinv(b.T @ np.diag(w) @ b) @ goal @ (b * w[:, None]).T

    def difference(y):
        evaluated = calibrated(teach, y, [r["score"] for r in mine] + [t["score"] for t in teach])
        mean = sum(r["weight"] * f for r, f in zip(mine, evaluated, strict=False)) / total
        return mean - sum(a * f for a, f in zip(balance, evaluated[len(mine) :], strict=True))

    step = 1e-7
    leverage = []
    for j in range(len(teach)):
        moved = list(labels)
        moved[j] += step
        leverage.append((difference(moved) - difference(labels)) / step)
    coefficient = balance + leverage
    f = calibrated(teach, labels, [r["score"] for r in mine])
    mean = sum(r["weight"] * v for r, v in zip(mine, f, strict=True)) / total
    error, labelled, behind, share = {}, {}, {}, {}
    for r, v in zip(mine, f, strict=True):
        g = r["cluster"]
        share[g] = share.get(g, 0.0) + r["weight"] / total
        error[g] = error.get(g, 0.0) + r["weight"] / total * (v - mean)
    factor = effective(share.values())
    error = {g: e * math.sqrt(factor / (factor - 1)) for g, e in error.items()}
    root = np.sqrt(w)
    x = b * root[:, None]
    hat = x @ np.linalg.pinv(x)
    rest = root * residual - hat @ (root * residual)
    for g in {t["cluster"] for t in teach}:
        mine = [j for j, t in enumerate(teach) if t["cluster"] == g]
        left, axis = np.linalg.eigh(np.eye(len(mine)) - hat[np.ix_(mine, mine)])
        noise = axis @ np.diag(left**-0.5) @ axis.T @ rest[mine] / root[mine]
        labelled[g] = float(coefficient[mine] @ noise)
    for t, a in zip(teach, balance, strict=True):
        at = t["cluster"], t["prompt"]
        behind[at] = behind.get(at, 0.0) + float(a)
    if p_value > 0:
        along = correlation_moves(teach, w)
        share_of_it = sum(labelled[g] * along[g] for g in along) / sum(v**2 for v in along.values())
        longer = widening(p_value) - 1
        labelled = {g: e + longer * share_of_it * along[g] for g, e in labelled.items()}
    for g, e in labelled.items():
        error[g] = error.get(g, 0.0) + e
    std_error = math.sqrt(sum(e**2 for e in error.values()))
    return mean + float(balance @ residual), std_error, behind


def correlation_moves(teach, weight):
    """What the labels of each cluster add to the weighted rank correlation: its slope in the cluster's weight."""
    score, label = [t["score"] for t in teach], [t["label"] for t in teach]

    def standardised(values):
        total = sum(weight)
        ranks = [
            sum(v * ((u < value) + (u == value) / 2) for u, v in zip(values, weight, strict=True))
            for value in values
        ]
        mean = sum(v * r for v, r in zip(weight, ranks, strict=True)) / total
        spread = math.sqrt(sum(v * (r - mean) ** 2 for v, r in zip(weight, ranks, strict=True)) / total)
        return [(r - mean) / spread for r in ranks]

    x, y = standardised(score), standardised(label)
    rho = sum(v * a * c for v, a, c in zip(weight, x, y, strict=True)) / sum(weight)
    moves = {}
    for t, v, a, c in zip(teach, weight, x, y, strict=True):
        moves[t["cluster"]] = moves.get(t["cluster"], 0.0) + v * a * (c - rho * a)
    return moves


def labels_df(behind):
    """Effective clusters of labels with these weights by cluster and prompt, less one, at least 2."""
    size = {}
    for (g, _), a in behind.items():
        size[g] = size.get(g, 0.0) + abs(a)
    return max(effective(size.values()) - 1, 2.0)


def lent_df(first, second, phi, cluster):
    """Degrees of freedom of a difference: labelled clusters by what is left of their weights, the others by count.

    `first` and `second` are the weights of labels from `balanced`, `phi` is the influence of the difference.
    """
    labels, taught = labels_df({at: first[at] - second[at] for at in first}), {g for g, _ in first}
    by_cluster = {}
    for g, v in zip(cluster, phi, strict=True):
        by_cluster[g] = by_cluster.get(g, 0.0) + v
    lent, drawn = (
        sum(v**2 for g, v in by_cluster.items() if (g in taught) == inside) for inside in (True, False)
    )
    others = len(by_cluster) - len(taught) - 1
    welch = (lent + drawn) ** 2 / (lent**2 / labels + drawn**2 / others)
    # never narrower than the labels alone make it
    widest = stats.t.ppf(0.975, labels) * math.sqrt(lent / (lent + drawn))
    if stats.t.ppf(0.975, welch) >= widest:
        return welch
    return optimize.brentq(lambda df: stats.t.ppf(0.975, df) - widest, labels, 1e9)


def effective(leverage):
    leverage = list(leverage)
    return sum(v**2 for v in leverage) ** 2 / sum(v**4 for v in leverage)


def mid_ranks(values):
    return [sum(v < u for v in values) + (sum(v == u for v in values) + 1) / 2 for u in values]


def spearman(a, b):
    """Correlation of mid-ranks."""
    x, y = mid_ranks(a), mid_ranks(b)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((u - mx) * (v - my) for u, v in zip(x, y, strict=True))
    return top / math.sqrt(sum((u - mx) ** 2 for u in x) * sum((v - my) ** 2 for v in y))


def weighted_rank_test(score, label, cluster, weight):
    """Weighted Spearman correlation, its t and degrees of freedom; see `cje_core.inference.rank_test`."""
    rows = range(len(score))
    w = [float(v) / float(sum(weight)) for v in weight]

    def standardised(values):
        ranks = [
            sum(w[j] * ((values[j] < values[i]) + (values[j] == values[i]) / 2) for j in rows) for i in rows
        ]
        mean = sum(w[i] * ranks[i] for i in rows)
        spread = math.sqrt(sum(w[i] * (ranks[i] - mean) ** 2 for i in rows))
        return [(r - mean) / spread for r in ranks]

    x, y = standardised(score), standardised(label)
    rho = sum(w[i] * x[i] * y[i] for i in rows)
    left = {}
    for i in rows:
        by_cluster = left.setdefault(cluster[i], [0.0, 0.0, 0.0])
        by_cluster[0] += w[i] * x[i] * (y[i] - rho * x[i]) / (1 - min(w[i] * (1 + x[i] ** 2), 0.9))
        by_cluster[1] += w[i] * x[i] * y[i] / (1 - min(w[i], 0.9)) ** 2
        by_cluster[2] += abs(w[i] * x[i])
    variance = max(sum(v[k] ** 2 for v in left.values()) for k in (0, 1))
    df = max(min(effective(v[2] for v in left.values()), len(left)) - 2, 1)
    return rho, rho / math.sqrt(variance), df
