"""Slow, obvious second implementations for the study machinery: loops and textbook formulas."""

import math

import numpy as np


def sd(values):
    """Standard deviation with n - 1, by the definition."""
    center = sum(values) / len(values)
    return math.sqrt(sum((v - center) ** 2 for v in values) / (len(values) - 1))


def measures(estimate, std_error, interval, truth, status, ci_prob):
    """Value and MCSE of each measure for one method and policy, replicate by replicate.

    Values follow Morris, White and Crowther (2019), Table 6; MCSEs too, where theirs make no assumption on the
    distribution of the estimates.
    """
    rows = [i for i in range(len(estimate)) if status[i] != -1]
    ok = [i for i in rows if math.isfinite(estimate[i])]
    error = [estimate[i] - truth[i] for i in ok]
    n = len(ok)
    out = {"bias": (sum(error) / n, sd(error) / math.sqrt(n)), "empirical_se": (sd(error), None)}
    mse = sum(e**2 for e in error) / n
    mcse_mse = math.sqrt(sum((e**2 - mse) ** 2 for e in error) / (n * (n - 1)))
    out["mse"] = mse, mcse_mse
    relative = [(estimate[i] - truth[i]) / truth[i] for i in ok]
    out["relative_bias"] = sum(relative) / n, sd(relative) / math.sqrt(n)
    out["rmse"] = math.sqrt(mse), mcse_mse / (2 * math.sqrt(mse))
    with_se = [i for i in ok if math.isfinite(std_error[i])]
    variances = [std_error[i] ** 2 for i in with_se]
    model = math.sqrt(sum(variances) / len(variances))
    out["model_se"] = model, math.sqrt(sd(variances) ** 2 / (4 * len(variances) * model**2))
    out["se_calibration"] = model / sd([estimate[i] - truth[i] for i in with_se]), None
    out["model_se_error"] = out["se_calibration"][0] - 1, None
    bias = out["bias"][0]
    printed = [i for i in ok if math.isfinite(interval[i][0]) and math.isfinite(interval[i][1])]
    for name, shift in (("coverage", 0.0), ("coverage_bias_free", bias)):
        hits = 0
        for i in printed:
            if interval[i][0] <= truth[i] + shift <= interval[i][1]:
                hits += 1
        p = hits / len(printed)
        out[name] = p, math.sqrt(p * (1 - p) / (len(printed) - 1))
    for name, missed in (
        ("miss_left", lambda i: interval[i][0] > truth[i]),
        ("miss_right", lambda i: interval[i][1] < truth[i]),
    ):
        p = sum(math.isfinite(estimate[i]) and missed(i) for i in rows) / len(rows)
        out[name] = p, math.sqrt(p * (1 - p) / (len(rows) - 1))
    have = [i for i in ok if math.isfinite(interval[i][0]) and math.isfinite(interval[i][1])]
    widths = [interval[i][1] - interval[i][0] for i in have]
    out["width"] = sum(widths) / len(widths), sd(widths) / math.sqrt(len(widths))
    scores = []
    for i in have:
        low, high = interval[i]
        score = high - low
        if truth[i] < low:
            score += 2 / (1 - ci_prob) * (low - truth[i])
        if truth[i] > high:
            score += 2 / (1 - ci_prob) * (truth[i] - high)
        scores.append(score)
    out["interval_score"] = sum(scores) / len(scores), sd(scores) / math.sqrt(len(scores))
    failed = len(rows) - n
    share = failed / len(rows)
    error_of_share = math.sqrt(share * (1 - share) / (len(rows) - 1))
    out["n_failed"] = failed, len(rows) * error_of_share
    out["convergence"] = 1 - share, error_of_share
    hits = sum(interval[i][0] <= truth[i] <= interval[i][1] for i in printed)
    silent = [i for i in rows if i not in printed]
    for name, p in (
        ("coverage_all", hits / len(rows)),
        ("refused", sum(status[i] not in (-2, 11) for i in silent) / len(rows)),
        ("failed", sum(status[i] in (-2, 11) for i in silent) / len(rows)),
    ):
        out[name] = p, math.sqrt(p * (1 - p) / (len(rows) - 1))
    answers = [i for i in ok if math.isfinite(interval[i][0])]
    held = sum(interval[i][0] <= truth[i] <= interval[i][1] for i in answers) + len(rows) - len(answers)
    rejected = [i for i in answers if interval[i][0] > 0 or interval[i][1] < 0]
    for name, p in (("coverage_unbounded", held / len(rows)), ("power", len(rejected) / len(rows))):
        out[name] = p, math.sqrt(p * (1 - p) / (len(rows) - 1))
    wrong = [float(estimate[i] * truth[i] < 0) for i in rejected]
    out["type_s"] = sum(wrong) / len(wrong), sd(wrong) / math.sqrt(len(wrong))
    larger = [abs(estimate[i] / truth[i]) for i in rejected]
    out["type_m"] = sum(larger) / len(larger), sd(larger) / math.sqrt(len(larger))
    for name, m in (
        *dict.fromkeys(("coverage", "coverage_bias_free"), len(printed)).items(),
        *dict.fromkeys(("coverage_all", "miss_left", "miss_right", "failed"), len(rows)).items(),
        *dict.fromkeys(("coverage_unbounded", "power", "refused", "convergence"), len(rows)).items(),
        ("type_s", len(rejected)),
    ):
        if out[name][0] in (0, 1):
            out[name] = out[name][0], distance_to_the_exact_bound(m)
    if failed in (0, len(rows)):
        out["n_failed"] = failed, len(rows) * distance_to_the_exact_bound(len(rows))
    return out


def distance_to_the_exact_bound(n):
    """Of n hits in n: the p at which so many have probability .025, by bisection; its distance to 1 over 1.96."""
    low, high = 0.0, 1.0
    for _ in range(200):
        p = (low + high) / 2
        low, high = (p, high) if p**n < 0.025 else (low, p)
    return (1 - low) / 1.959963984540054


def jackknife_mcse(statistic, *columns):
    """Delete-one-replicate jackknife standard error of ``statistic(*columns)``."""
    n = len(columns[0])
    values = np.array([statistic(*(np.delete(c, i) for c in columns)) for i in range(n)])
    return math.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum())
