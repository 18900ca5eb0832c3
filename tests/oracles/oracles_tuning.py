"""Slow, obvious versions of power tuning: loops over rows, refits by hand, a general-purpose optimiser."""

import numpy as np
from scipy import optimize

from cje_core.calibration.oracle_slice import fit, predict


def policy_rows(rows, p):
    """Evaluated rows of policy p, those of them with a label, and the weight of each label."""
    index = [r for r in range(len(rows.policy)) if rows.policy[r] == p and rows.evaluated[r]]
    own = [r for r in index if rows.labelled[r]]
    return index, own, [rows.weight[r] / rows.label_prob[r] for r in own]


def line(rows, index, own, weight, increasing=True):
    """The line about the mean score, refitted without the cluster of each own label in turn."""
    total = sum(rows.weight[r] for r in index)
    center = sum(rows.weight[r] * rows.score[r] for r in index) / total
    cluster = [rows.cluster[rows.prompt[r]] for r in own]

    def slope(keep):
        root = np.sqrt([weight[i] for i in keep])
        scores, labels = ([values[own[i]] for i in keep] for values in (rows.score, rows.label))
        if np.ptp(scores) == 0:
            return 0.0
        design = np.column_stack([np.ones(len(keep)), scores]) * root[:, None]
        b = np.linalg.lstsq(design, np.array(labels) * root)[0][1]
        return max(b, 0.0) if increasing else min(b, 0.0)

    everyone = range(len(own))
    held = []
    for i in everyone:
        b = slope([j for j in everyone if cluster[j] != cluster[i]])
        held.append(b * (rows.score[own[i]] - center))
    b = slope(everyone)
    return np.array([b * (rows.score[r] - center) for r in index]), np.array(held)


def calibrated(rows, fitted, index, own):
    """The calibrator about its mean label, refitted without the fold of each own label in turn."""

    def about(train, z):
        z_train, label, weight = fitted.z[train], fitted.label[train], fitted.weight[train]
        model = fit(z_train, label, weight, mode=fitted.mode, increasing=fitted.increasing)
        return predict(model, z) - np.average(label, weights=weight)

    fold = fitted.fold[fitted.prompt]
    held = [about(fold != fitted.fold[rows.prompt[r]], rows.z[[r]])[0] for r in own]
    return about(np.full(len(fold), True), rows.z[index]), np.array(held)


def variance(rows, index, own, weight, evaluated, residual):
    """Cluster-robust variance of ``mean(evaluated) + mean(residual)``, each with its own factor m / (m - 1)."""
    moves = np.zeros((2, rows.cluster.max() + 1))
    sets = ((index, [rows.weight[r] for r in index], evaluated), (own, weight, residual))
    for k, (chosen, w, values) in enumerate(sets):
        share = np.array(w) / sum(w)
        mean = sum(share * values)
        leverage = np.zeros(rows.cluster.max() + 1)
        for r, s, v in zip(chosen, share, values, strict=True):
            moves[k, rows.cluster[rows.prompt[r]]] += s * (v - mean)
            leverage[rows.cluster[rows.prompt[r]]] += s
        effective = sum(leverage**2) ** 2 / sum(leverage**4)
        moves[k] *= np.sqrt(effective / (effective - 1))
    return sum(moves.sum(axis=0) ** 2)


def kish(rows, own, weight):
    """Kish's effective number of labelled clusters."""
    total = np.zeros(rows.cluster.max() + 1)
    for r, w in zip(own, weight, strict=True):
        total[rows.cluster[rows.prompt[r]]] += w
    return sum(total) ** 2 / sum(total**2)


def best_weights(objective, fixed=None):
    """Minimiser of a smooth function of two weights over the simplex, by SLSQP; one may be fixed at zero."""
    found = optimize.minimize(
        objective,
        np.array([0.0 if k == fixed else 0.3 for k in range(2)]),
        method="SLSQP",
        bounds=[(0, 0 if k == fixed else 1) for k in range(2)],
        constraints=[{"type": "ineq", "fun": lambda w: 1 - w.sum()}],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return found.x
