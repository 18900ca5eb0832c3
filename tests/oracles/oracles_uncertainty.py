"""Slow, obvious second implementations of Direct's routes, replicates and standard errors: loops and definitions."""

import math
from collections import Counter

import numpy as np
import oracles
import oracles_peers
import pandas as pd
from scipy import optimize, special, stats

from cje_core.calibration.folds import assign_folds
from cje_core.data.arrays import unpack

GRID = np.round(np.linspace(0, 1, 11), 1)


def table(n=60, seed=0, *, share=0.5, policies=("a", "b"), own=("a",), draws=1, probes=0):
    """A small world as a data frame: correlated scores, labels of `own` policies on a random share of prompts."""
    rng = np.random.default_rng(seed)
    rows = []
    for p, policy in enumerate(policies):
        labelled = rng.uniform(size=n) < share
        for i in range(n):
            for d in range(1 + (i % draws)):
                score = rng.choice(GRID)
                label = float(np.clip(0.2 + 0.6 * score - 0.1 * p + rng.normal(0, 0.15), 0, 1))
                is_probe = policy not in own and i < probes
                seen = (policy in own and labelled[i]) or is_probe
                rows.append((policy, f"p{i}", d, score, label if seen else np.nan, is_probe, True))
    names = ["policy", "prompt_id", "draw_idx", "judge_score", "oracle_label", "probe", "evaluated"]
    return pd.DataFrame(rows, columns=names)


def row_dicts(data):
    """Evaluation data as a list of row dicts, and the fold of each prompt."""
    rows = unpack(data)
    taught = np.zeros(len(rows.cluster_names), bool)
    taught[rows.cluster[rows.prompt[rows.teaches]]] = True
    folds = dict(enumerate(assign_folds(rows.cluster_names, taught)[rows.cluster].tolist()))
    responses = Counter(
        zip(rows.policy, rows.prompt, strict=True)
    )  # a prompt counts once, however many draws
    dicts = [
        {
            "policy": rows.policies[rows.policy[i]],
            "prompt": int(rows.prompt[i]),
            "cluster": int(rows.cluster[rows.prompt[i]]),
            "score": rows.score[i],
            "label": rows.label[i] if rows.labelled[i] else None,
            "teaches": rows.teaches[i],
            "weight": 1 / responses[rows.policy[i], rows.prompt[i]],
            "prob": rows.label_prob[i],
        }
        for i in range(len(rows.score))
    ]
    return dicts, folds


def logit(share):
    inside = min(max(share, 0.005), 0.995)
    return math.log(inside / (1 - inside))


def expit(x):
    return 1 / (1 + math.exp(-x))


def fitted(teach, times, new_scores):
    """Monotone calibrator of weighted labels, at new scores."""
    drawn = [t for t in teach if times[t["cluster"]] > 0]
    weights = [times[t["cluster"]] / t["prob"] for t in drawn]
    return oracles.calibrate([t["score"] for t in drawn], [t["label"] for t in drawn], weights, new_scores)


def pieces(rows, policy, folds, kind, times=None, without=None, scale=(0.0, 1.0)):
    """Predictions of a policy's rows and of its labelled rows, each with its weight, under cluster weights `times`.

    ``kind`` is "plug_in", "hajek", "ht" or "tmle"; with `without` every prediction leaves that fold of labels out.
    """
    times = Counter({r["cluster"]: 1 for r in rows}) if times is None else times
    teach = [r for r in rows if r["teaches"]]
    mine = [r for r in rows if r["policy"] == policy and times[r["cluster"]] > 0]
    own = [r for r in mine if r["label"] is not None] if kind != "plug_in" else []
    kept = [t for t in teach if folds[t["prompt"]] != without]
    guess = fitted(kept, times, [r["score"] for r in mine])
    own_guess = []
    for r in own:
        others = (
            kept if without is not None else [t for t in teach if folds[t["prompt"]] != folds[r["prompt"]]]
        )
        own_guess += fitted(others, times, [r["score"]])
    low, width = scale[0], scale[1] - scale[0]
    if kind == "tmle":
        below, above = -60.0, 60.0  # the score falls in eps: bisection
        offset = [logit((g - low) / width) for g in own_guess]
        for _ in range(200):
            eps = (below + above) / 2
            score = sum(
                times[r["cluster"]]
                * r["weight"]
                / r["prob"]
                * ((r["label"] - low) / width - expit(o + eps / r["prob"]))
                for r, o in zip(own, offset, strict=True)
            )
            below, above = (eps, above) if score > 0 else (below, eps)
        guess = [
            low + width * expit(logit((g - low) / width) + eps / r["prob"])
            for r, g in zip(mine, guess, strict=True)
        ]
        own_guess = [low + width * expit(o + eps / r["prob"]) for r, o in zip(own, offset, strict=True)]
    evaluated = [(r, times[r["cluster"]] * r["weight"], g) for r, g in zip(mine, guess, strict=True)]
    labelled = [
        (r, times[r["cluster"]] * r["weight"] / r["prob"], g) for r, g in zip(own, own_guess, strict=True)
    ]
    return evaluated, labelled


def value(rows, policy, folds, kind, times=None, without=None, scale=(0.0, 1.0)):
    """A policy's value by the definition of its route."""
    evaluated, labelled = pieces(rows, policy, folds, kind, times, without, scale)
    total = sum(w for _, w, _ in evaluated)
    out = sum(w * g for _, w, g in evaluated) / total
    residual = sum(w * (r["label"] - g) for r, w, g in labelled)
    if kind == "hajek":
        out += residual / sum(w for _, w, _ in labelled)
    if kind == "ht":
        out += residual / total
    return out


def variance(rows, policy, folds, kind, times=None, scale=(0.0, 1.0)):
    """Row-wise variance of `value` without small-sample factors: evaluation + own residuals or the calibrator's fit."""
    times = Counter({r["cluster"]: 1 for r in rows}) if times is None else times
    evaluated, labelled = pieces(rows, policy, folds, kind, times, scale=scale)
    total = sum(w for _, w, _ in evaluated)
    mean = sum(w * g for _, w, g in evaluated) / total
    out = sum(times[r["cluster"]] * (r["weight"] * (g - mean) / total) ** 2 for r, _, g in evaluated)
    own_total = sum(w for _, w, _ in labelled)
    if kind != "plug_in":
        shift = sum(w * (r["label"] - g) for r, w, g in labelled) / own_total
        for r, _, g in labelled:
            out += times[r["cluster"]] * (r["weight"] / r["prob"] * (r["label"] - g - shift) / own_total) ** 2
        return out
    teach = [r for r in rows if r["teaches"] and times[r["cluster"]] > 0]
    level = fitted(teach, times, [t["score"] for t in teach])
    block_weight = Counter()
    for t, f in zip(teach, level, strict=True):
        block_weight[f] += times[t["cluster"]] / t["prob"]
    knots = sorted({t["score"] for t in teach})
    at_knot = dict(zip(knots, fitted(teach, times, knots), strict=True))
    mass = Counter()
    for r, w, _ in evaluated:
        left = max((k for k in knots if k <= r["score"]), default=knots[0])
        right = min((k for k in knots if k >= r["score"]), default=knots[-1])
        share = 1.0 if left >= right else (r["score"] - left) / (right - left)
        mass[at_knot[right]] += w * share / total
        mass[at_knot[left]] += w * (1 - share) / total
    for t, f in zip(teach, level, strict=True):
        out += times[t["cluster"]] * ((t["label"] - f) / t["prob"] * mass[f] / block_weight[f]) ** 2
    return out


def interpolate(x, knots, values):
    """Linear between sorted knots, constant outside."""
    if x <= knots[0]:
        return values[0]
    for left, right, a, b in zip(knots, knots[1:], values, values[1:], strict=False):
        if x <= right:
            return a + (b - a) * (x - left) / (right - left)
    return values[-1]


def one_step(rows, policy, folds):
    """Plug-in plus the slice's held-out residuals, weighted by the density ratio on the blocks of each fold's fit."""
    teach = [r for r in rows if r["teaches"]]
    mine = [r for r in rows if r["policy"] == policy]
    times = Counter({r["cluster"]: 1 for r in rows})
    out = value(rows, policy, folds, "plug_in")
    total = sum(r["weight"] for r in mine)
    weights, residuals = [], []
    for held in teach:
        others = [t for t in teach if folds[t["prompt"]] != folds[held["prompt"]]]
        knots = sorted({t["score"] for t in others})
        level = [round(v, 10) for v in fitted(others, times, knots)]  # rounding must not split a block
        mass, size = Counter(), Counter()
        for t in others:
            size[level[knots.index(t["score"])]] += 1 / t["prob"]
        for r in mine:
            for k in range(len(knots)):  # hat functions: what one unit at this knot adds to the mean
                hat = [float(j == k) for j in range(len(knots))]
                mass[level[k]] += r["weight"] / total * interpolate(r["score"], knots, hat)
        ratio = [mass[v] / size[v] for v in level]
        weights.append(interpolate(held["score"], knots, ratio) / held["prob"])
        residuals.append(held["label"] - interpolate(held["score"], knots, level))
    return out + sum(w * r for w, r in zip(weights, residuals, strict=True)) / sum(weights)


def delete_group_variance(left_out, size, full):
    """Weighted delete-one-group jackknife, pseudo-value by pseudo-value."""
    m, k = sum(size), len(size)
    pseudo, center = [], k * full
    for v, s in zip(left_out, size, strict=True):
        h = m / s
        pseudo.append(h * full - (h - 1) * v)
        center -= (1 - s / m) * v
    return sum((p - center) ** 2 / (m / s - 1) for p, s in zip(pseudo, size, strict=True)) / k


def cluster_standard_error(influence, cluster):
    """Sum influence within clusters, square, add, over n."""
    sums = Counter()
    for phi, g in zip(influence, cluster, strict=True):
        sums[g] += phi
    return math.sqrt(sum(s**2 for s in sums.values())) / len(influence)


def stationary_means(values, mean_block, n_boot, rng):
    """Means of stationary bootstrap samples, index by index (Politis and Romano 1994)."""
    n = len(values)
    out = []
    for _ in range(n_boot):
        total, at = 0.0, 0
        for i in range(n):
            at = int(rng.integers(n)) if i == 0 or rng.uniform() < 1 / mean_block else (at + 1) % n
            total += values[at]
        out.append(total / n)
    return out


def pooled_df(variance, df):
    """Welch's degrees of freedom, or those at which the 97.5% quantile makes the sum as wide as its widest source."""
    total = sum(variance)
    welch = total**2 / sum(v**2 / nu for v, nu in zip(variance, df, strict=True))
    widest = max(stats.t.isf(0.025, nu) * math.sqrt(v / total) for v, nu in zip(variance, df, strict=True))
    if stats.t.isf(0.025, welch) >= widest:
        return welch
    return optimize.brentq(
        lambda nu: stats.t.isf(0.025, nu) - widest, min(df) / 2, 1e12, xtol=1e-13, rtol=1e-14
    )


def own_error(rows, policy, folds, kind, scale=(0.0, 1.0)):
    """Standard error and df of a value with own labels: errors of the mean prediction and of the mean residual.

    Each is summed by cluster and has its own factor m / (m - 1), m the effective clusters; ``kind`` as in `pieces`, or
    "label_mean".
    """
    evaluated, labelled = pieces(rows, policy, folds, "hajek" if kind == "label_mean" else kind, scale=scale)
    if kind == "label_mean":
        mine, weight = [r for r, _, _ in evaluated], [r["weight"] for r, _, _ in evaluated]
        sources = [oracles_peers.error_of_mean(mine, [r["label"] for r in mine], weight)]
    else:
        sources = [
            oracles_peers.error_of_mean([r for r, _, _ in chosen], values, [w for _, w, _ in chosen])
            for chosen, values in (
                (evaluated, [g for _, _, g in evaluated]),
                (labelled, [r["label"] - g for r, _, g in labelled]),
            )
        ]
    if (
        kind == "ht"
    ):  # the sum over labels is divided by the weight of all rows, which clusters change as well
        total = sum(w for _, w, _ in evaluated)
        shift = sum(w * (r["label"] - g) for r, w, g in labelled) / total
        error, lever = Counter(), Counter()
        for r, w, g in labelled:
            error[r["cluster"]] += w * (r["label"] - g) / total
            lever[r["cluster"]] += w / total
        for r, w, _ in evaluated:
            error[r["cluster"]] -= shift * w / total
        m = sum(v**2 for v in lever.values()) ** 2 / sum(v**4 for v in lever.values())
        sources[1] = shift, {g: e * math.sqrt(m / (m - 1)) for g, e in error.items()}, m - 1
    std_error, _ = oracles_peers.join([source[1:] for source in sources])
    variance = [sum(e**2 for e in error.values()) for _, error, _ in sources]
    return std_error, pooled_df(variance, [df for _, _, df in sources])


def mean_prediction(teach, labels, scores, weight):
    """Weighted mean of the monotone calibrator of some labels."""
    guess = oracles.calibrate([t["score"] for t in teach], labels, [1 / t["prob"] for t in teach], scores)
    return sum(w * g for w, g in zip(weight, guess, strict=True)) / sum(weight)


def label_slopes(rows, policy):
    """Slope of the policy's mean prediction in each label, by difference quotients: it is piecewise linear in each."""
    teach, mine = [r for r in rows if r["teaches"]], [r for r in rows if r["policy"] == policy]
    labels = [t["label"] for t in teach]
    arguments = [r["score"] for r in mine], [r["weight"] for r in mine]
    before, step, out = mean_prediction(teach, labels, *arguments), 1e-6, []
    for j in range(len(labels)):
        moved = [*labels[:j], labels[j] + step, *labels[j + 1 :]]
        out.append((mean_prediction(teach, moved, *arguments) - before) / step)
    return out


def block_slopes(rows, policy):
    """Slope of the policy's mean prediction in each label where labels of equal fit move together, by their weights.

    Where neighbouring blocks touch, as those of binary labels at an end do, one label alone has a slope on either side.
    """
    teach, mine = [r for r in rows if r["teaches"]], [r for r in rows if r["policy"] == policy]
    labels, weight = [t["label"] for t in teach], [1 / t["prob"] for t in teach]
    fit = oracles.calibrate([t["score"] for t in teach], labels, weight, [t["score"] for t in teach])
    block = [round(f, 12) for f in fit]
    arguments = [r["score"] for r in mine], [r["weight"] for r in mine]
    before, step, of_block = mean_prediction(teach, labels, *arguments), 1e-6, {}
    for b in set(block):
        moved = [y + step * (c == b) for y, c in zip(labels, block, strict=True)]
        size = sum(w for w, c in zip(weight, block, strict=True) if c == b)
        of_block[b] = (mean_prediction(teach, moved, *arguments) - before) / step / size
    return [of_block[b] * w for b, w in zip(block, weight, strict=True)]


def hat_mass(rows, policy):
    """Mean of a hat function at each knot of the calibrator over the policy's responses."""
    knots = sorted({r["score"] for r in rows if r["teaches"]})
    mine = [r for r in rows if r["policy"] == policy]
    total = sum(r["weight"] for r in mine)
    hats = [[float(j == k) for j in range(len(knots))] for k in range(len(knots))]
    return [sum(r["weight"] * interpolate(r["score"], knots, hat) for r in mine) / total for hat in hats]


def calibration_error(rows, policy):
    """What a label adds to the error of a borrowed mean, by cluster, and the degrees of freedom.

    Its slope times its residual, which is larger by the root of n / (n - 1) in a block of n labels; alone in a block a
    label takes the spread of all residuals.
    """
    teach = [r for r in rows if r["teaches"]]
    fit = oracles.calibrate(
        [t["score"] for t in teach],
        [t["label"] for t in teach],
        [1 / t["prob"] for t in teach],
        [t["score"] for t in teach],
    )
    size = Counter(round(f, 12) for f in fit)
    left = [t["label"] - f for t, f in zip(teach, fit, strict=True)]
    pooled = math.sqrt(sum(e**2 for e in left) / (len(teach) - len(size)))
    error, lever, by_prompt = Counter(), Counter(), Counter()
    for t, f, e, slope in zip(teach, fit, left, block_slopes(rows, policy), strict=True):
        n = size[round(f, 12)]
        error[t["cluster"]] += slope * (e * math.sqrt(n / (n - 1)) if n > 1 else pooled)
        by_prompt[t["cluster"], t["prompt"]] += abs(slope)
    for (g, _), v in by_prompt.items():
        lever[g] += v
    effective = sum(v**2 for v in lever.values()) ** 2 / sum(v**4 for v in lever.values())
    return dict(error), max(effective - 1, 2.0)


def group_shifts(value, weight, cluster, group, n_groups):
    """DerSimonian and Laird on the means of groups, by loops; a cluster is one label in the group of its first."""
    members = [[] for _ in range(n_groups)]
    for g in sorted(set(cluster)):
        inside = [i for i, c in enumerate(cluster) if c == g]
        size = sum(weight[i] for i in inside)
        members[group[inside[0]]].append((size, sum(weight[i] * value[i] for i in inside) / size))
    seen = [m for m in members if m]
    n = sum(map(len, seen))
    average = sum(s for m in seen for s, _ in m) / n
    center_of = [oracles_peers.weighted_mean(m) if m else 0.0 for m in members]
    within = (
        sum(s * (v - c) ** 2 for m, c in zip(members, center_of, strict=True) for s, v in m)
        / average
        / (n - len(seen))
    )
    w = [sum(s for s, _ in m) ** 2 / sum(s**2 for s, _ in m) / within if m else 0.0 for m in members]
    center = sum(a * b for a, b in zip(w, center_of, strict=True)) / sum(w)
    q = sum(a * (b - center) ** 2 for a, b in zip(w, center_of, strict=True))
    tau2 = max(0.0, (q - (len(seen) - 1)) / (sum(w) - sum(a * a for a in w) / sum(w)))
    return [tau2 / (tau2 + 1 / a) * (b - center) if a else 0.0 for a, b in zip(w, center_of, strict=True)]


def bca(draws, estimate, acceleration, prob):
    """Efron's interval, its levels one by one."""
    z0 = special.ndtri(sum(d < estimate for d in draws) / len(draws))
    tail = special.ndtri([(1 - prob) / 2, (1 + prob) / 2])
    levels = [special.ndtr(z0 + (z0 + z) / (1 - acceleration * (z0 + z))) for z in tail]
    return np.quantile(draws, levels)


def studentised(draws, errors, estimate, std_error, prob):
    """The pivot's quantiles by sorting, turned round."""
    pivot = sorted((d - estimate) / e for d, e in zip(draws, errors, strict=True))

    def quantile(level):
        at = level * (len(pivot) - 1)
        low = math.floor(at)
        return pivot[low] + (at - low) * (pivot[min(low + 1, len(pivot) - 1)] - pivot[low])

    return [estimate - quantile((1 + prob) / 2) * std_error, estimate - quantile((1 - prob) / 2) * std_error]


def logit_interval(value, std_error, quantile, scale):
    """Limits on the logit, by the delta method, mapped back."""
    low, high = scale
    share = (value - low) / (high - low)
    slope = 1 / (share * (1 - share) * (high - low))
    ends = [math.log(share / (1 - share)) + sign * quantile * slope * std_error for sign in (-1, 1)]
    return [low + (high - low) / (1 + math.exp(-end)) for end in ends]
