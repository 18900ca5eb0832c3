"""Slow, obvious second implementation of a pilot's components where labels are borrowed, or would be of its own."""

import math

import numpy as np
import oracles_borrowed as slow


def _slice(rows, policy, folds):
    """Labelled rows, the policy's rows, held-out residuals, terms, and balancing weights."""
    teach = [r for r in rows if r["teaches"]]
    mine = [r for r in rows if r["policy"] == policy]
    residual = []
    for t in teach:
        others = [u for u in teach if folds[u["prompt"]] != folds[t["prompt"]]]
        residual += [t["label"] - slow.calibrated(others, [u["label"] for u in others], [t["score"]])[0]]
    knots = sorted({slow.averaged_quantile([t["score"] for t in teach], q) for q in (0.1, 0.5, 0.9)})
    b = np.array([slow.terms(t["score"], knots) for t in teach])
    goal = sum(np.array(slow.terms(r["score"], knots)) for r in mine) / len(mine)
    return teach, mine, np.array(residual), b, goal @ np.linalg.pinv(b.T @ b) @ b.T


def borrowed(rows, policy, folds, n):
    """``sigma2_eval`` and ``sigma2_cal`` of the balanced one-step, and ``sigma2_cal`` of its difference to the slice.

    One response per prompt, labels of one policy and of equal weight, whose own value has the mean of the same noise.

    The coefficient of a label is its balancing weight plus what moving it does to the mean of f over the policy less
    the balanced mean of f; its noise is the residual of r on the terms over the root of one minus its leverage (HC2).
    """
    teach, mine, residual, b, balance = _slice(rows, policy, folds)
    labels = [t["label"] for t in teach]
    hat = b @ np.linalg.pinv(b.T @ b) @ b.T
    noise = (residual - hat @ residual) / np.sqrt(1 - np.diag(hat))

    def difference(y):
        f = slow.calibrated(teach, y, [r["score"] for r in mine] + [t["score"] for t in teach])
        return sum(f[: len(mine)]) / len(mine) - float(balance @ f[len(mine) :])

    step, calibration, versus, evaluation = 1e-7, {}, {}, {}
    for j, t in enumerate(teach):
        moved = list(labels)
        moved[j] += step
        coefficient = balance[j] + (difference(moved) - difference(labels)) / step
        calibration[t["cluster"]] = coefficient * noise[j]
        versus[t["cluster"]] = (coefficient - 1 / len(teach)) * noise[j]
    f = slow.calibrated(teach, labels, [r["score"] for r in mine])
    factor = math.sqrt(len(mine) / (len(mine) - 1))
    for r, value in zip(mine, f, strict=True):
        evaluation[r["cluster"]] = factor * (value - sum(f) / len(f)) / len(f)
    cross = sum(evaluation[g] * calibration.get(g, 0.0) for g in evaluation)
    m = len(teach)
    return (
        n * (sum(e**2 for e in evaluation.values()) + 2 * cross),
        m * sum(c**2 for c in calibration.values()),
        m * sum(c**2 for c in versus.values()),
    )


def own(rows, policy, folds):
    """``sigma2_eval`` and ``sigma2_cal`` of own labels, from balanced moments of the labels and held-out residuals."""
    teach, _, residual, _, balance = _slice(rows, policy, folds)
    labels = np.array([t["label"] for t in teach])
    whole, left = (
        sum(a * (v - balance @ x) ** 2 for a, v in zip(balance, x, strict=True)) for x in (labels, residual)
    )
    left = min(left, whole)
    return whole - left, left
