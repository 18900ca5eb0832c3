"""Slow, obvious second implementations of the off-policy estimators: loops over prompts, nothing shared with cje_core.

A world is a list of prompt dicts: ``fold``, ``score`` and ``label`` (or None) of the logged response, ``ratio`` (log
importance ratio, or None), ``fresh`` (list of scores of the target's draws), ``taught`` (list of (score, label) of the
labels of that prompt that teach).
"""

from math import exp, log, sqrt

import numpy as np
from oracles import calibrate

from cje_sim.scenarios import finite_model


def fit_on(world, folds, new_scores):
    """Calibrator taught by the labels of some folds, at new scores."""
    pairs = [pair for prompt in world if prompt["fold"] in folds for pair in prompt["taught"]]
    scores, labels = zip(*pairs, strict=True)
    return calibrate(scores, labels, [1.0] * len(pairs), new_scores)


def folds_of(world):
    return sorted({prompt["fold"] for prompt in world})


def rewards(world, folds=None):
    """R of the logged response of each prompt, by the pooled calibrator."""
    return fit_on(world, folds or folds_of(world), [prompt["score"] for prompt in world])


def outcomes(world):
    """Held-out q of the logged response, and the list of q over the fresh draws, of each prompt."""
    logged, fresh = [], []
    for prompt in world:
        others = [k for k in folds_of(world) if k != prompt["fold"]]
        logged.append(fit_on(world, others, [prompt["score"]])[0])
        fresh.append(fit_on(world, others, prompt["fresh"]))
    return logged, fresh


def fitted_outcomes(world, x, fresh_x):
    """q(X, A): a line through (x, f^(-k)(Z)) of the logged responses outside each fold, at those inside it."""
    scores, logged, fresh = [prompt["score"] for prompt in world], [], []
    for i, prompt in enumerate(world):
        others = [k for k in folds_of(world) if k != prompt["fold"]]
        target = fit_on(world, others, scores)
        train = [j for j, other in enumerate(world) if other["fold"] != prompt["fold"]]
        slope, level = np.polyfit([x[j] - x[0] for j in train], [target[j] for j in train], 1)
        logged.append(level + slope * (x[i] - x[0]))
        fresh.append([level + slope * (v - x[0]) for v in fresh_x[i]])
    return logged, fresh


def weights(world, cap=None):
    """Mean-one weights, None where the ratio is; with a cap, cut there and brought back to mean one."""
    raw = [None if prompt["ratio"] is None else exp(prompt["ratio"]) for prompt in world]
    used = [w for w in raw if w is not None]
    mean = sum(used) / len(used)
    out = [None if w is None else w / mean for w in raw]
    if cap is None:
        return out
    cut = [None if w is None else min(w, cap) for w in out]
    kept = [w for w in cut if w is not None]
    return [None if w is None else w * len(kept) / sum(kept) for w in cut]


def weighted_mean(weight, values):
    """``sum w v / sum w`` over the prompts that have a weight."""
    pairs = [(w, v) for w, v in zip(weight, values, strict=True) if w is not None]
    return sum(w * v for w, v in pairs) / sum(w for w, _ in pairs)


def ips(world, weight):
    return weighted_mean(weight, rewards(world))


def plain_ips(world, low):
    """Mean over the prompts with a ratio of ``low + exp(ratio) (R - low)``."""
    pairs = [
        (exp(p["ratio"]), r) for p, r in zip(world, rewards(world), strict=True) if p["ratio"] is not None
    ]
    return sum(low + w * (r - low) for w, r in pairs) / len(pairs)


def doubly_robust(world, weight, q=None):
    """Mean over prompts of the mean q of the fresh draws, plus the weighted mean of R - q."""
    logged, fresh = outcomes(world) if q is None else q
    drawn = [sum(values) / len(values) for values in fresh if values]
    residual = [r - m for r, m in zip(rewards(world), logged, strict=True)]
    return sum(drawn) / len(drawn) + weighted_mean(weight, residual)


def weighted_outcomes(world, omega):
    """MRDR's q: isotonic in the score on the labelled logged responses, weighted by omega, out of fold."""
    own = [(p, o) for p, o in zip(world, omega, strict=True) if p["label"] is not None and o is not None]
    logged, fresh = [], []
    for prompt in world:
        rest = [(p, o) for p, o in own if p["fold"] != prompt["fold"]]
        s, y, w = [p["score"] for p, _ in rest], [p["label"] for p, _ in rest], [o for _, o in rest]
        logged.append(calibrate(s, y, w, [prompt["score"]])[0])
        fresh.append(calibrate(s, y, w, prompt["fresh"]))
    return logged, fresh


def clever_covariate(world, weight, decreasing, prompt, score):
    """Isotonic regression of W on the score, fitted without the prompt's fold, over the mean weight there."""
    sign = -1.0 if decreasing else 1.0
    rest = [
        (sign * p["score"], w)
        for p, w in zip(world, weight, strict=True)
        if w is not None and p["fold"] != prompt["fold"]
    ]
    mean = sum(w for _, w in rest) / len(rest)
    fitted = calibrate([s for s, _ in rest], [w for _, w in rest], [1.0] * len(rest), [sign * score])
    return max(fitted[0] / mean, 1e-6)


def tmle(world, weight, decreasing, q=None):
    """Fluctuation by bisection; h is the clever covariate."""
    logged, fresh = outcomes(world) if q is None else q
    used = [i for i, w in enumerate(weight) if w is not None]
    h = {i: clever_covariate(world, weight, decreasing, world[i], world[i]["score"]) for i in used}
    r = rewards(world)

    def moved(q, covariate, eps):
        q = min(max(q, 1e-6), 1 - 1e-6)
        return 1 / (1 + exp(-(log(q / (1 - q)) + eps * covariate)))

    low, high = -50.0, 50.0
    for _ in range(200):
        eps = (low + high) / 2
        score = sum(h[i] * (r[i] - moved(logged[i], h[i], eps)) for i in used)
        low, high = (eps, high) if score > 0 else (low, eps)
    drawn = []
    for prompt, values in zip(world, fresh, strict=True):
        covariates = [clever_covariate(world, weight, decreasing, prompt, s) for s in prompt["fresh"]]
        star = [moved(q, c, eps) for q, c in zip(values, covariates, strict=True)]
        drawn += [sum(star) / len(star)] if star else []
    return sum(drawn) / len(drawn)


def best_stack(columns, ridge, steps=60):
    """Least variance of three influence columns over a grid of the simplex, and where it is."""
    n = len(columns[0])
    centred = [[v - sum(c) / n for v in c] for c in columns]
    sigma = [[sum(a * b for a, b in zip(x, y, strict=True)) / n for y in centred] for x in centred]
    extra = ridge * (sigma[0][0] + sigma[1][1] + sigma[2][2]) / 3
    best = None
    for i in range(steps + 1):
        for j in range(steps + 1 - i):
            a = [i / steps, j / steps, (steps - i - j) / steps]
            value = sum(a[p] * a[q] * sigma[p][q] for p in range(3) for q in range(3))
            value += extra * sum(v * v for v in a)
            if best is None or value < best[0]:
                best = (value, a)
    return best


def snips_standard_error(world, weight, *, plain=False):
    """Standard error of SNIPS, singleton clusters: Hajek influence with its factor, plus labels through their blocks.

    Sampling: share_i (R_i - V), squared and summed, times m / (m - 1) with m = (sum share^2)^2 / sum share^4. With
    `plain` and ratios for weights it is (W_i R_i - V) / n, n the weights there are; a label's share is W / n. Labels:
    a label of block b moves V by the weight that the logged responses put on the block over the block's size,
    times its residual, times sqrt(n_b / (n_b - 1)). Every logged score must be one that was labelled, so that no weight
    lies between blocks.
    """
    r = rewards(world)
    value = weighted_mean(weight, r)
    total = sum(w for w in weight if w is not None)
    share = [0.0 if w is None else w / total for w in weight]
    m = sum(s**2 for s in share) ** 2 / sum(s**4 for s in share)
    moves = [s * (v - value) for s, v in zip(share, r, strict=True)]
    if plain:
        n = sum(w is not None for w in weight)
        share = [0.0 if w is None else w / n for w in weight]
        value = sum(s * v for s, v in zip(share, r, strict=True))
        moves = [0.0 if w is None else (w * v - value) / n for w, v in zip(weight, r, strict=True)]
    sampling = [move * sqrt(m / (m - 1)) for move in moves]
    pairs = [(i, s, y) for i, prompt in enumerate(world) for s, y in prompt["taught"]]
    own = fit_on(world, folds_of(world), [s for _, s, _ in pairs])
    moved = [0.0] * len(world)
    for (i, _, y), f in zip(pairs, own, strict=True):
        size = sum(abs(g - f) < 1e-12 for g in own)
        mass = sum(s for s, v in zip(share, r, strict=True) if abs(v - f) < 1e-12)
        moved[i] += mass / size * (y - f) * sqrt(size / (size - 1))
    return sqrt(sum((a + b) ** 2 for a, b in zip(sampling, moved, strict=True)))


def overlap_population(policy, **law):
    """Mean label over the overlap population of a policy and the logger, and how much of them it is: finite sums."""
    pi, score_law, label_law = finite_model.tables(**law)
    p = finite_model.POLICIES.index(policy)
    shared = finite_model.PROMPTS[:, None] * pi[0] * pi[p] / (pi[0] + pi[p])
    mean = np.einsum("xas,xasy,y->xa", score_law, label_law, finite_model.ORACLE_LEVELS)
    return float((shared * mean).sum() / shared.sum()), float(2 * shared.sum())
