"""Slow, obvious second implementations of cje_core: loops and definitions, nothing shared with the package."""


def isotonic_minmax(mean, weight):
    """Isotonic regression by its min-max formula: f_k = max over a <= k of min over b >= k of mean(a..b)."""
    n = len(mean)

    def average(a, b):
        return sum(mean[i] * weight[i] for i in range(a, b + 1)) / sum(weight[i] for i in range(a, b + 1))

    return [max(min(average(a, b) for b in range(k, n)) for a in range(k + 1)) for k in range(n)]


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
