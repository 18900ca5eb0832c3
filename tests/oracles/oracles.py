"""Slow, obvious second implementations of cje_core: loops and definitions, nothing shared with the package."""

from itertools import accumulate


def isotonic_minmax(mean, weight):
    """Isotonic regression by its min-max formula: f_k = max over a <= k of min over b >= k of mean(a..b)."""
    n = len(mean)
    average = []  # average[a][b - a] is the mean of a..b
    for a in range(n):
        sums = accumulate(m * w for m, w in zip(mean[a:], weight[a:], strict=True))
        average.append([s / total for s, total in zip(sums, accumulate(weight[a:]), strict=True)])
    return [max(min(average[a][k - a :]) for a in range(k + 1)) for k in range(n)]


def calibrate(scores, labels, weights, new_scores):
    """Monotone calibrator: pool ties, min-max isotonic, linear between knots, flat outside."""
    knots = sorted(set(scores))
    mean, total = [], []
    for knot in knots:
        rows = [i for i, s in enumerate(scores) if s == knot]
        total.append(sum(weights[i] for i in rows))
        mean.append(sum(weights[i] * labels[i] for i in rows) / total[-1])
    fitted = isotonic_minmax(mean, total)
    out = []
    for s in new_scores:
        if s <= knots[0]:
            out.append(fitted[0])
        elif s >= knots[-1]:
            out.append(fitted[-1])
        else:
            right = next(k for k, knot in enumerate(knots) if knot >= s)
            if knots[right] == s:
                out.append(fitted[right])
            else:
                share = (s - knots[right - 1]) / (knots[right] - knots[right - 1])
                out.append(fitted[right - 1] + share * (fitted[right] - fitted[right - 1]))
    return out


def theta(table, policy, folds, correct=True):
    """Value of one policy by the definition, from a list of row dicts.

    Rows have policy, prompt, score, label (or None), teaches, weight, prob; ``folds`` maps a prompt to its fold.
    """
    teach = [r for r in table if r["teaches"]]
    mine = [r for r in table if r["policy"] == policy]
    full = calibrate(
        [r["score"] for r in teach],
        [r["label"] for r in teach],
        [1 / r["prob"] for r in teach],
        [r["score"] for r in mine],
    )
    value = sum(r["weight"] * f for r, f in zip(mine, full, strict=True)) / sum(r["weight"] for r in mine)
    own = [r for r in mine if r["label"] is not None]
    if not (correct and own):
        return value
    top = bottom = 0.0
    for r in own:
        others = [t for t in teach if folds[t["prompt"]] != folds[r["prompt"]]]
        (guess,) = calibrate(
            [t["score"] for t in others],
            [t["label"] for t in others],
            [1 / t["prob"] for t in others],
            [r["score"]],
        )
        w = r["weight"] / r["prob"]
        top += w * (r["label"] - guess)
        bottom += w
    return value + top / bottom


def borrowed_standard_error(table, policy):
    """Standard error of a plug-in on a borrowed calibrator, unit weights and one row per prompt, by definition.

    Error of prompt i: its own share of the mean, times sqrt(G / (G - 1)); and, if it taught, the mass that the
    policy puts on its block over the block's size, times its residual, times sqrt(n_b / (n_b - 1)). A label alone in
    its block takes the pooled residual sd (sum of squares over labels minus blocks).
    """
    teach = [r for r in table if r["teaches"]]
    mine = [r for r in table if r["policy"] == policy]
    n = len({r["prompt"] for r in table})
    scores, labels = [t["score"] for t in teach], [t["label"] for t in teach]
    fitted = calibrate(scores, labels, [1.0] * len(teach), [r["score"] for r in mine])
    level = {
        t["prompt"]: f
        for t, f in zip(teach, calibrate(scores, labels, [1.0] * len(teach), scores), strict=True)
    }
    blocks = sorted(set(level.values()))
    size = {b: sum(v == b for v in level.values()) for b in blocks}
    # mass of a block: what the mean gains when that block alone is raised by one, read off the knots
    knots = sorted(set(scores))
    knot_value = dict(zip(knots, calibrate(scores, labels, [1.0] * len(teach), knots), strict=True))
    mass = dict.fromkeys(blocks, 0.0)
    for r in mine:
        left = max((k for k in knots if k <= r["score"]), default=knots[0])
        right = min((k for k in knots if k >= r["score"]), default=knots[-1])
        share = 1.0 if left >= right else (r["score"] - left) / (right - left)
        mass[knot_value[right]] += share / len(mine)
        mass[knot_value[left]] += (1 - share) / len(mine)
    pooled = sum((t["label"] - level[t["prompt"]]) ** 2 for t in teach) / (len(teach) - len(blocks))
    mean = sum(fitted) / len(mine)
    error = {r["prompt"]: 0.0 for r in table}
    for r, f in zip(mine, fitted, strict=True):
        error[r["prompt"]] += n * (f - mean) / len(mine) * (len(mine) / (len(mine) - 1)) ** 0.5
    for t in teach:
        b = level[t["prompt"]]
        noise = pooled**0.5
        if size[b] > 1:
            noise = (t["label"] - b) * (size[b] / (size[b] - 1)) ** 0.5
        error[t["prompt"]] += n * mass[b] / size[b] * noise
    return (sum(e**2 for e in error.values())) ** 0.5 / n
