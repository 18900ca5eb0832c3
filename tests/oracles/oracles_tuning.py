"""Slow, obvious versions of power tuning: loops over rows, refits by hand, a general-purpose optimiser."""

import numpy as np
from scipy import optimize

from cje_core.calibration.calibrator import fit, predict


def policy_rows(rows, p):
    """Evaluated rows of policy p, those of them with a label, and the weight of each label."""
    index = [r for r in range(len(rows.policy)) if rows.policy[r] == p and rows.evaluated[r]]
    own = [r for r in index if rows.labelled[r]]
    return index, own, [rows.weight[r] / rows.label_prob[r] for r in own]


def curve(rows, index, own, weight, scale, increasing=True, refit=False):
    """The logistic curve about its value at the mean score, by loops and a general root finder.

    Of an own label in turn without its cluster: the top of the parabola that touches what is maximised at the fit on
    all labels, or (``refit``) the maximum.
    """
    total = sum(rows.weight[r] for r in index)
    center = sum(rows.weight[r] * rows.score[r] for r in index) / total
    spread = np.sqrt(sum(rows.weight[r] * (rows.score[r] - center) ** 2 for r in index) / total)
    sign, (low, high) = 1 if increasing else -1, scale
    x = np.array([sign * (rows.score[r] - center) / spread for r in own])
    y = np.array([(rows.label[r] - low) / (high - low) for r in own])
    w = np.array(weight) * kish(rows, own, weight) / sum(weight)
    cluster = [rows.cluster[rows.prompt[r]] for r in own]
    prior = np.diag([0, 1 / 2.5**2])

    def probability(theta, x):
        return 1 / (1 + np.exp(-theta[0] - theta[1] * x))

    design = np.column_stack([np.ones(len(own)), x])

    def gradient(theta, keep):
        return design[keep].T @ (w[keep] * (y[keep] - probability(theta, x[keep]))) - prior @ theta

    def hessian(theta, keep):
        p = probability(theta, x[keep])
        return -design[keep].T @ np.diag(w[keep] * p * (1 - p)) @ design[keep] - prior

    def top(keep):
        found = optimize.root(gradient, [0.0, 0.0], (keep,), jac=hessian, options={"xtol": 1e-14})
        assert np.abs(gradient(found.x, keep)).max() < 1e-10
        return found.x

    def about(theta, x):
        rising = np.array([theta[0], max(theta[1], 0.0)])
        return (high - low) * (probability(rising, x) - probability(rising, 0.0))

    every = [sign * (rows.score[r] - center) / spread for r in index]

    def pieces(theta, v, keep):
        """At v a straight piece between the labelled scores (or the end) on both sides."""
        knots = [min(every), max(every), *(x[i] for i in keep)]
        left, right = max(k for k in knots if k <= v), min(k for k in knots if k >= v)
        share = (v - left) / (right - left) if right > left else 0.0
        return (1 - share) * about(theta, left) + share * about(theta, right)

    everyone = np.arange(len(own))
    theta, held = top(everyone), []
    for i in everyone:
        keep = [j for j in everyone if cluster[j] != cluster[i]]
        step = np.linalg.solve(hessian(theta, keep), gradient(theta, keep))
        others = [j for j in everyone if cluster[j] != cluster[i] or x[j] != x[i]]
        held.append(pieces(top(keep) if refit else theta - step, x[i], others))
    flat = [pieces(theta, v, everyone) for v in every]
    return np.array(flat), np.array(held)


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
