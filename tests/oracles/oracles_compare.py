"""Slow, obvious second implementations for contrasts, ranks and plans: loops and definitions."""

import math

import numpy as np
import oracles

from cje_core.calibration.folds import assign_folds
from cje_core.inference.estimate import label_estimate


def contrast_error(phi_a, phi_b, cluster):
    """Cluster-robust standard error of a difference."""
    sums = {}
    for a, b, g in zip(phi_a, phi_b, cluster, strict=True):
        sums[g] = sums.get(g, 0.0) + a - b
    return math.sqrt(sum(s * s for s in sums.values())) / len(phi_a)


def concordance(value, truth):
    """Concordant, discordant and truly ordered pairs."""
    concordant = discordant = ordered = 0
    for j in range(len(value)):
        for k in range(j):
            if truth[j] == truth[k] or truth[j] != truth[j] or truth[k] != truth[k]:
                continue
            ordered += 1
            if value[j] != value[j] or value[k] != value[k] or value[j] == value[k]:
                continue
            if (value[j] > value[k]) == (truth[j] > truth[k]):
                concordant += 1
            else:
                discordant += 1
    return concordant, discordant, ordered


def best_plan(budget, per_prompt, per_label, sigma2_eval, sigma2_cal, m_min):
    """Smallest variance over every affordable pair of whole numbers."""
    best = math.inf
    for m in range(m_min, int(budget / per_label) + 1):
        n = m
        while n * per_prompt + m * per_label <= budget * (1 + 1e-12):
            best = min(best, sigma2_eval / n + sigma2_cal / m)
            n += 1
    return best


def two_phase(score, label, names):
    """Components of one policy with own labels, one response per prompt: the two-phase formula by hand.

    ``label`` is None where there is none. Sample variances with divisors n - 1 and m - 1; the cross term carries the
    square roots of both factors, as the influence values do.
    """
    n = len(score)
    taught = [i for i in range(n) if label[i] is not None]
    fold = assign_folds(names, [y is not None for y in label])
    teach = lambda rows: ([score[i] for i in rows], [label[i] for i in rows], [1.0] * len(rows))  # noqa: E731
    f = oracles.calibrate(*teach(taught), score)
    residual = {}
    for i in taught:
        others = [j for j in taught if fold[j] != fold[i]]
        residual[i] = label[i] - oracles.calibrate(*teach(others), [score[i]])[0]
    m = len(taught)
    mean_f, mean_e = sum(f) / n, sum(residual.values()) / m
    var_f = sum((v - mean_f) ** 2 for v in f) / (n - 1)
    var_e = sum((e - mean_e) ** 2 for e in residual.values()) / (m - 1)
    cross = sum((f[i] - mean_f) * (residual[i] - mean_e) for i in taught) / m
    return var_f + 2 * cross * math.sqrt(n / (n - 1) * m / (m - 1)), var_e


def estimate_of(value, influence=None, *, draws=None, df=20.0, cluster=None, std_error=None):
    """An estimate with given values and joint uncertainty; policies a, b, ..."""
    names = [chr(97 + k) for k in range(len(value))]
    std_error = np.zeros(len(value)) if std_error is None else std_error
    n = 0 if influence is None else np.shape(influence)[1]
    out = label_estimate(
        names,
        {
            "estimate": value,
            "std_error": std_error,
            "interval": np.column_stack([value, value]),
            "status": np.zeros(len(value)),
            "route": ["x"] * len(value),
            "influence": influence,
            "draws": draws,
        },
        estimator="given",
        options={},
        ci_kind="wald",
        ci_prob=0.95,
        coords={"prompt": [str(i) for i in range(n)]} if influence is not None else None,
    )
    if influence is not None:
        out = out.assign_coords(cluster=("prompt", np.arange(n) if cluster is None else cluster))
        out["df"] = ("policy", np.broadcast_to(np.asarray(df, float), len(value)).copy())
    return out


def only(data, *policies):
    """Some policies of a data set, whose labels all teach."""
    return data.sel(policy=list(policies)).assign_attrs(calibration_policy=list(policies))
