"""Slow, obvious second implementation of ratio calibration: one prompt and one response at a time."""

import math


def expit(r):
    """1 / (1 + exp(-r)), for infinite r too."""
    return 0.0 if r < -700 else 1.0 / (1.0 + math.exp(-r))


def rank(value, pool):
    """Share of a pool below a value less the share above it: from -1 to 1, ties in the middle."""
    return (sum(x < value for x in pool) - sum(x > value for x in pool)) / len(pool)


def z_statistics(prompts, cap=None):
    """Statistics by test function of ``1``, ``log ratio`` (two-sided) and the features.

    `prompts` lists (cluster, (r, features), [(r, features) of each fresh response]); with a `cap` the one-sided form,
    whose features go both ways.
    """
    logged_pool = [[one[1][1][k] for one in prompts] for k in range(len(prompts[0][1][1]))]
    pools = [pool + [draw[1][k] for one in prompts for draw in one[2]] for k, pool in enumerate(logged_pool)]

    def functions(r, features):
        ranks = [rank(x, pool) for x, pool in zip(features, pools, strict=True)]
        if cap is None:
            return [1.0, math.tanh(r / 2), *ranks]
        return [1.0, *(value for x in ranks for value in ((1 + x) / 2, (1 - x) / 2))]

    def logged_weight(r):
        return expit(r) if cap is None else cap if r > math.log(cap) else math.exp(r)

    by_cluster = {}
    for cluster, (r, features), draws in prompts:
        left = [logged_weight(r) * h for h in functions(r, features)]
        right = [0.0] * len(left)
        for ratio, own in draws:
            weight = expit(-ratio) if cap is None else 1.0
            for j, h in enumerate(functions(ratio, own)):
                right[j] += weight * h / len(draws)
        total = by_cluster.setdefault(cluster, [0.0] * len(left))
        for j in range(len(left)):
            total[j] += left[j] - right[j]
    out = []
    for column in zip(*by_cluster.values(), strict=True):
        n, mean = len(column), sum(column) / len(column)
        variance = sum((x - mean) ** 2 for x in column) * n / (n - 1)
        out.append(sum(column) / math.sqrt(variance) if variance > 0 else math.nan)
    return out
