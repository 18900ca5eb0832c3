"""Slow, obvious second implementations of the peers: loops over row dicts, nothing shared with the package.

A row has prompt, cluster, score (in oracle units where a judge's value counts), label (or None), weight, prob. All rows
belong to one policy and are evaluated.
"""

from math import sqrt
from statistics import NormalDist

from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep


def weighted_mean(pairs):
    """Mean of (weight, value) pairs."""
    return sum(w * v for w, v in pairs) / sum(w for w, _ in pairs)


def error_of_mean(rows, values, weights, small_sample=True):
    """Error that each cluster adds to a weighted mean, and its degrees of freedom (None for a normal quantile)."""
    total, mean = sum(weights), weighted_mean(list(zip(weights, values, strict=True)))
    error, lever = {}, {}
    for r, v, w in zip(rows, values, weights, strict=True):
        error[r["cluster"]] = error.get(r["cluster"], 0.0) + w / total * (v - mean)
        lever[r["cluster"]] = lever.get(r["cluster"], 0.0) + w / total
    squares = [w**2 for w in lever.values()]
    m = sum(squares) ** 2 / sum(s**2 for s in squares)
    if small_sample:
        error = {c: e * sqrt(m / (m - 1)) for c, e in error.items()}
    return mean, error, (m - 1 if small_sample else None)


def join(sources):
    """Standard error and Welch-Satterthwaite df of a sum of errors, each a (cluster -> error, df) pair."""
    total = {}
    for error, _ in sources:
        for c, e in error.items():
            total[c] = total.get(c, 0.0) + e
    variance = [sum(e**2 for e in error.values()) for error, _ in sources]
    spread = sum(v**2 / df for v, (_, df) in zip(variance, sources, strict=True) if df is not None)
    return sqrt(sum(e**2 for e in total.values())), (
        sum(variance) ** 2 / spread if spread > 0 else float("inf")
    )


def prediction_powered(rows, lam, *, quantile="t", fold=None):
    """Value, lambda, standard error and df of the (power-tuned) prediction-powered mean by its definition.

    ``lam`` is a number, "tuned" or "cross_fitted" (then ``fold`` maps a cluster to its fold).
    """
    labelled = [r for r in rows if r["label"] is not None]
    rest = [r for r in rows if r["label"] is None]
    probs = {r["prob"] for r in labelled}
    if len(probs) > 1 or len({r["cluster"] for r in rest}) < 4:
        rest = rows
    v = [r["weight"] / r["prob"] for r in labelled]
    v = [w / sum(v) for w in v]
    u = [r["weight"] for r in rest]
    u = [w / sum(u) for w in u]

    # How much each row counts in mean_L S - mean_U S.
    def share(r):
        out = sum(w for t, w in zip(labelled, v, strict=True) if t is r)
        return out - sum(w for t, w in zip(rest, u, strict=True) if t is r)

    separate = all(r not in rest for r in labelled)
    scores = [r["score"] for r in rows]
    center = sum(scores) / len(scores)
    if separate:
        variance = sum((s - center) ** 2 for s in scores) / (len(scores) - 1)
        spread = variance * sum(share(r) ** 2 for r in rows)
    else:
        spread = sum(share(r) ** 2 * (r["score"] - center) ** 2 for r in rows)

    def best(train):
        chosen = [(r, w) for r, w in zip(labelled, v, strict=True) if r in train]
        y = weighted_mean([(w, r["label"]) for r, w in chosen])
        s = weighted_mean([(w, r["score"]) for r, w in chosen])
        top = sum(w * share(r) * (r["label"] - y) * (r["score"] - s) for r, w in chosen)
        top *= sum(w**2 for w in v) / sum(w**2 for _, w in chosen)
        return min(max(top / spread, 0.0), 1.0)

    if lam == "tuned":
        used = [best(labelled)] * len(labelled)
    elif lam == "cross_fitted":
        used = [best([t for t in labelled if fold[t["cluster"]] != fold[r["cluster"]]]) for r in labelled]
    else:
        used = [lam] * len(labelled)
    average = sum(w * k for w, k in zip(v, used, strict=True))
    small = quantile == "t"
    judge_mean, judge_error, judge_df = error_of_mean(rest, [r["score"] for r in rest], u, small)
    residual = [r["label"] - k * (r["score"] - judge_mean) for r, k in zip(labelled, used, strict=True)]
    value, label_error, label_df = error_of_mean(labelled, residual, v, small)
    if small and lam == "tuned":
        df = max(label_df - 1, label_df / 2)
        label_error = {c: e * sqrt(label_df / df) for c, e in label_error.items()}
        label_df = df
    judge_error = {c: average * e for c, e in judge_error.items()}
    se, df = join([(judge_error, judge_df), (label_error, label_df)])
    return value, average, se, df


def rogan_gladen(rows, slice_rows, cut):
    """Share of good responses (not clipped), Se, Sp, joint standard error and df by the delta method."""
    passed = [float(r["score"] >= cut) for r in rows]
    p, p_error, p_df = error_of_mean(rows, passed, [r["weight"] for r in rows])
    good = [r for r in slice_rows if r["label"] == 1]
    bad = [r for r in slice_rows if r["label"] == 0]
    se, se_error, se_df = error_of_mean(
        good, [float(r["score"] >= cut) for r in good], [r["weight"] / r["prob"] for r in good]
    )
    sp, sp_error, sp_df = error_of_mean(
        bad, [float(r["score"] < cut) for r in bad], [r["weight"] / r["prob"] for r in bad]
    )
    youden = se + sp - 1
    theta = (p + sp - 1) / youden
    sources = [
        ({c: e / youden for c, e in p_error.items()}, p_df),
        ({c: e * (1 - theta) / youden for c, e in sp_error.items()}, sp_df),
        ({c: -e * theta / youden for c, e in se_error.items()}, se_df),
    ]
    std_error, df = join(sources)
    return theta, se, sp, std_error, df


def lee(p, se, sp, n, n_good, n_bad, ci_prob):
    """Interval of Lee et al., written out: adjusted counts as successes and failures, then the delta method."""
    z = NormalDist().inv_cdf(0.5 + ci_prob / 2)
    n_tilde, good_tilde, bad_tilde = n + z * z, n_good + 2, n_bad + 2
    p_tilde = (p * n + z * z / 2) / n_tilde
    se_tilde, sp_tilde = (se * n_good + 1) / good_tilde, (sp * n_bad + 1) / bad_tilde
    j = se_tilde + sp_tilde - 1
    theta = (p_tilde - (1 - sp_tilde)) / j
    var_p = p_tilde * (1 - p_tilde) / n_tilde
    var_se = se_tilde * (1 - se_tilde) / good_tilde
    var_sp = sp_tilde * (1 - sp_tilde) / bad_tilde
    shift = 2 * z * z * (theta * var_se - (1 - theta) * var_sp)
    half = z * sqrt(var_p + theta**2 * var_se + (1 - theta) ** 2 * var_sp) / abs(j)
    return max(0.0, min(1.0, theta + shift - half)), max(0.0, min(1.0, theta + shift + half))


def share_with_arms(sample, cut, weight, ci_prob):
    """Share that the judge passes, the arms of its Wilson interval on charged counts, and its error by cluster."""
    hit = [float(r["score"] >= cut) for r in sample]
    share, error, df = error_of_mean(sample, hit, weight)
    total, by_cluster, kept = sum(weight), {}, {}
    for r, h, w in zip(sample, hit, weight, strict=True):
        by_cluster[r["cluster"]] = by_cluster.get(r["cluster"], 0) + w / total * (h - share)
        kept[r["cluster"]] = kept.get(r["cluster"], 0) + w / total
    variance = sum(v**2 for v in by_cluster.values())
    most = 1 / sum((w / total) ** 2 for w in weight)
    count = min(max(share * (1 - share) / variance, 1 / sum(v**2 for v in kept.values())), most)
    level = 0.5 + ci_prob / 2
    count *= min(1.0, stats.t.ppf(level, count - 1) / stats.t.ppf(level, df)) ** 2
    z2 = NormalDist().inv_cdf(level) ** 2
    root = sqrt(z2 * z2 + 4 * count * share * (1 - share) * z2)
    ends = [(2 * count * share + z2 + sign * root) / (2 * (count + z2)) for sign in (-1, 1)]
    return share, [share - ends[0], ends[1] - share], error


def correlated(a, b):
    """Correlation of two errors by cluster."""
    scale = sqrt(sum(v**2 for v in a.values()) * sum(v**2 for v in b.values()))
    return sum(v * b.get(c, 0) for c, v in a.items()) / scale


def judged_shares(samples, slice_rows, cut, ci_prob):
    """`share_with_arms` of the samples of each policy, of the bad labels and of the good ones."""
    by_class = ([r for r in slice_rows if r["label"] == k] for k in (1, 0))
    good, bad = ((rows, [r["weight"] / r["prob"] for r in rows]) for rows in by_class)
    every = [(rows, [r["weight"] for r in rows]) for rows in samples] + [bad, good]
    return [share_with_arms(rows, cut, weight, ci_prob) for rows, weight in every]


def kept_by_scan(parts, signs, span, step):
    """Least and largest x in `span` at which ``sum_k signs(x)[k] share_k`` is within its spread of 0."""
    kept, joint = [], [[correlated(a[2], b[2]) for b in parts] for a in parts]
    for k in range(round(span[0] / step), round(span[1] / step) + 1):
        factor = signs(k * step)
        distance = sum(s * share for s, (share, _, _) in zip(factor, parts, strict=True))
        # a share is moved the way that brings the sum to 0
        u = [s * arm[0 if s * distance > 0 else 1] for s, (_, arm, _) in zip(factor, parts, strict=True)]
        spread = sum(x * y * r for x, row in zip(u, joint, strict=True) for y, r in zip(u, row, strict=True))
        if distance**2 <= spread:
            kept.append(k * step)
    return min(kept), max(kept)


def fieller(rows, slice_rows, cut, ci_prob, step=1e-3):
    """Least and largest share that a test on Wilson arms keeps, by a scan; see `rogan_gladen`."""
    parts = judged_shares([rows], slice_rows, cut, ci_prob)
    return kept_by_scan(parts, lambda at: (1, at - 1, -at), (0, 1), step)


def fieller_difference(first, second, slice_rows, cut, ci_prob, step=1e-3):
    """Least and largest difference of two shares under one confusion matrix that such a test keeps, by a scan."""
    parts = judged_shares([first, second], slice_rows, cut, ci_prob)
    return kept_by_scan(parts, lambda at: (1, -1, at, -at), (-1, 1), step)


def newcombe(se, n_good, sp, n_bad, ci_prob):
    """Interval of Se + Sp - 1, the difference of the shares called good among the good and among the bad."""
    good, bad = (se * n_good, n_good), ((1 - sp) * n_bad, n_bad)
    return confint_proportions_2indep(*good, *bad, compare="diff", method="newcomb", alpha=1 - ci_prob)


def efficient(rows):
    """Mean true reward plus the Hajek mean of label minus true reward; value, standard error, df."""
    labelled = [r for r in rows if r["label"] is not None]
    first, first_error, first_df = error_of_mean(rows, [r["true"] for r in rows], [r["weight"] for r in rows])
    shift, shift_error, shift_df = error_of_mean(
        labelled, [r["label"] - r["true"] for r in labelled], [r["weight"] / r["prob"] for r in labelled]
    )
    return first + shift, *join([(first_error, first_df), (shift_error, shift_df)])
