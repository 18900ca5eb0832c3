"""Doubly robust estimates from logs and fresh draws: what the remainder is, and against what they are robust.

Worlds are those of `studies.ledger.rewarded`; entries named "random-judge" are ours.
"""

from typing import Any

import numpy as np

from cje_core.streams import generator
from studies.ledger.claim import Claim, Params, Sides
from studies.ledger.judged import OURS
from studies.ledger.rewarded import COVARIATES, INDEXED, RANDOM, SCORED, calibrated, parts
from studies.ledger.worlds import FloatArray, batches, over_worlds

ROWS = 20_000


def level_weights(p: FloatArray, q: FloatArray, judge: FloatArray) -> FloatArray:
    """``m*(s)``; 1 where neither policy reaches the level."""
    seen = q @ judge
    return np.divide(p @ judge, seen, out=np.ones_like(seen), where=seen > 0)


def limit(w: Params) -> tuple[float, float]:
    """Limit of ``mean g(X) + mean weight(S) (R(S) - q(X, A))``, and V = E_pi'[R]."""
    p, q, judge, reward, model, weight = parts(w)
    joint = q[:, None] * judge
    correction = float((joint * (weight * (reward - model[:, None]))).sum())
    return float(p @ model) + correction, float(p @ judge @ reward)


def remainder(w: Params) -> Sides:
    """Error of the limit and the lemma's ``P[(W - m*)(q* - q)]``, both moved from 0."""
    p, q, judge, reward, model, weight = parts(w)
    mstar = level_weights(p, q, judge)
    best = judge @ reward
    value, truth = limit(w)
    printed = float(((q[:, None] * judge) * (weight - mstar) * (best - model)[:, None]).sum())
    return Sides(10 + value - truth, 10 + printed)


def remainder_by_simulation(w: Params) -> Sides:
    """The same from simulated logs and fresh draws."""
    p, q, judge, reward, model, weight = parts(w)
    mstar, best = level_weights(p, q, judge), judge @ reward
    joint, fresh = (q[:, None] * judge).ravel(), (p[:, None] * judge).ravel()

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        cell, drawn = rng.choice(len(joint), ROWS, p=joint), rng.choice(len(fresh), ROWS, p=fresh)
        a, s = cell // 3, cell % 3
        value = model[drawn // 3].mean() + (weight[s] * (reward[s] - model[a])).mean()
        error = value - reward[drawn % 3].mean()
        return 10 + float(error), 10 + float(((weight - mstar)[s] * (best - model)[a]).mean())

    return batches(batch, generator(0, "claims", "doubly robust", "remainder"))


def remainder_repaired(w: Params) -> Sides:
    """Error of the limit and ``E0[(w(S) - W)(R(S) - q(X, A))]``, both moved from 0."""
    p, q, judge, reward, model, weight = parts(w)
    value, truth = limit(w)
    ratio = (p / q)[:, None]
    right = float(((q[:, None] * judge) * (weight - ratio) * (reward - model[:, None])).sum())
    return Sides(10 + value - truth, 10 + right)


def right_weights(w: Params) -> Sides:
    """Double robustness in the weights: error of the limit with ``m*(S)`` for weights and any reward model; from 0."""
    p, q, judge, *_ = parts(w)
    value, truth = limit({**w, "weight": level_weights(p, q, judge).tolist()})
    return Sides(10 + value, 10 + truth)


def right_weights_by_simulation(w: Params) -> Sides:
    """The same from simulated rows."""
    p, q, judge, reward, model, _ = parts(w)
    mstar = level_weights(p, q, judge)
    joint, fresh = (q[:, None] * judge).ravel(), (p[:, None] * judge).ravel()

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        cell, drawn = rng.choice(len(joint), ROWS, p=joint), rng.choice(len(fresh), ROWS, p=fresh)
        a, s = cell // 3, cell % 3
        value = model[drawn // 3].mean() + (mstar[s] * (reward[s] - model[a])).mean()
        return 10 + float(value), 10 + float(reward[drawn % 3].mean())

    return batches(batch, generator(0, "claims", "doubly robust", "weights"))


def right_model(w: Params) -> Sides:
    """Double robustness in the model: error of the limit with ``q* = E[R|X,A]`` and any weights of S; from 0."""
    _, _, judge, reward, *_ = parts(w)
    value, truth = limit({**w, "model": (judge @ reward).tolist()})
    return Sides(10 + value, 10 + truth)


def right_model_by_simulation(w: Params) -> Sides:
    """The same from simulated rows."""
    p, q, judge, reward, _, weight = parts(w)
    best = judge @ reward
    joint, fresh = (q[:, None] * judge).ravel(), (p[:, None] * judge).ravel()

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        cell, drawn = rng.choice(len(joint), ROWS, p=joint), rng.choice(len(fresh), ROWS, p=fresh)
        a, s = cell // 3, cell % 3
        value = best[drawn // 3].mean() + (weight[s] * (reward[s] - best[a])).mean()
        return 10 + float(value), 10 + float(reward[drawn % 3].mean())

    return batches(batch, generator(0, "claims", "doubly robust", "model"))


def model_weights(w: Params) -> Params:
    """The same world with weights that do not depend on the level."""
    return {**w, "weight": [1.0, 1.0, 1.0]}


PLANTED: dict[str, Any] = {
    "planted": "right side times 1.1",
    "falsified": lambda s: Sides(s.left, 1.1 * s.right),
}

CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="lem-remainder",
        source="Lemma (second-order remainder for DR), lem:remainder, in the limit",
        statement=r"$V_{DR} - V = P[(\hat W(S) - m^*(S))(q^*(X,A) - \hat q)]$ for any weights and any calibrator "
        r"$\hat q(S)$ for reward model",
        why=r"The error is $E_0[(\hat W(S) - W)(R(S) - \hat q(S))]$; for $S = s(X, A)$, $q^* = R$, and the mean of W "
        r"given S is $m^*$.",
        family=SCORED,
        sides=remainder,
        relation="==",
        second=remainder_by_simulation,
        **PLANTED,
    ),
    over_worlds(
        name="lem-remainder-covariates",
        source="ours: lem:remainder with covariates in the reward model but weights of S alone (Section 3 "
        "stabilises over "
        "S; its index Z(S, X) is lem-remainder-index)",
        statement=r"$V_{DR} - V = P[(\hat W(S) - m^*(S))(q^*(X,A) - \hat q(X,A))]$ for any weights and reward model, "
        r"such as one with the response's length",
        why=r"The error is $E_0[(\hat W(S) - W)(R(S) - \hat q(X,A))]$. Replacing W by $m^*(S)$ needs $\hat q$ to be a "
        r"function of S. It holds too, whatever $\hat q$ is, where the judge tells the responses apart.",
        family=COVARIATES,
        sides=remainder,
        relation="==",
        second=remainder_by_simulation,
        condition=r"$\hat q$ is a function of S",
        restrict=calibrated,
        **PLANTED,
    ),
    over_worlds(
        name="lem-remainder-index",
        source="Lemma (second-order remainder for DR), lem:remainder, with the two-stage index: 'the theory "
        "generalizes "
        "by replacing S with Z(S,X) throughout'",
        statement=r"$V_{DR} - V = P[(\hat W(Z) - m^*(Z))(q^*(X,A) - \hat q(Z))]$ for any weights and calibrator of an "
        r"index $Z = Z(S, X)$, the reward one of Z too",
        why=r"As `lem-remainder`, with Z for S: docs/claims/dr_remainder.md, line (7).",
        family=INDEXED,
        sides=remainder,
        relation="==",
        second=remainder_by_simulation,
        **PLANTED,
    ),
    over_worlds(
        name="lem-remainder-random-judge",
        source=OURS + " (lem-remainder)",
        statement=r"$V_{DR} - V = P[(\hat W(S) - m^*(S))(q^*(X,A) - \hat q(X,A))]$ with a judge that is random given "
        r"$(X, A)$",
        why=r"Replacing R by $q^*$ needs $\hat W$ to be a function of (X, A), replacing W by $m^*$ needs $\hat q$ to "
        r"be one of S: with a random judge neither is.",
        family=RANDOM,
        sides=remainder,
        relation="==",
        second=remainder_by_simulation,
        **PLANTED,
    ),
    over_worlds(
        name="lem-remainder-repaired",
        source="ours: in place of lem-remainder-covariates and lem-remainder-random-judge",
        statement=r"$V_{DR} - V = E_0[(\hat W(S) - W)(R(S) - \hat q(X,A))]$, whatever the judge",
        why=r"$V = E_0[W R]$ and $E[\hat g] = E_0[W \hat q]$; collect terms.",
        family=RANDOM,
        sides=remainder_repaired,
        relation="==",
        repairs="lem-remainder-covariates",
        **PLANTED,
    ),
    over_worlds(
        name="dr-robust-in-weights",
        source="thm:dr-eff and 'consistent if either the propensity model or the outcome model is correct': the "
        "weights",
        statement=r"with $\hat W = m^*(S)$ calibrated DR tends to V, whatever the calibrator $\hat q(S)$",
        why=r"The error is $-E_0[(m^*(S) - W)\hat q(S)]$, and m* is the right weight for functions of S.",
        family=SCORED,
        sides=right_weights,
        relation="==",
        second=right_weights_by_simulation,
        **PLANTED,
    ),
    over_worlds(
        name="dr-robust-in-weights-covariates",
        source="ours: thm:dr-eff, the weights, with covariates in the reward model but weights of S alone (Section 3 "
        "stabilises over S)",
        statement=r"with $\hat W = m^*(S)$ calibrated DR tends to V, whatever the reward model $\hat q(X,A)$",
        why=r"The error is $-E_0[(m^*(S) - W)\hat q(X,A)]$: m* is the right weight for functions of S alone.",
        family=COVARIATES,
        sides=right_weights,
        relation="==",
        second=right_weights_by_simulation,
        condition=r"$\hat q$ is a function of S",
        restrict=calibrated,
        **PLANTED,
    ),
    over_worlds(
        name="dr-robust-in-model",
        source="thm:dr-eff and 'consistent if either the propensity model or the outcome model is correct': the model",
        statement=r"with $\hat q = q^*_R = E[R|X,A]$ calibrated DR tends to V, whatever the weights $\hat W(S)$",
        why=r"For $S = s(X, A)$, $q^* = R$: nothing is weighted.",
        family=SCORED,
        sides=right_model,
        relation="==",
        second=right_model_by_simulation,
        **PLANTED,
    ),
    over_worlds(
        name="dr-robust-in-model-random-judge",
        source=OURS + " (dr-robust-in-model)",
        statement=r"with $\hat q = q^*_R = E[R|X,A]$ and a judge that is random given $(X, A)$ calibrated DR tends to "
        r"V, whatever the weights $\hat W(S)$",
        why=r"The error is $E_0[\hat W(S)(R(S) - q^*(X,A))]$; a weight of S is correlated with the judge's noise, "
        r"which R carries and $q^*$ does not.",
        family=RANDOM,
        sides=right_model,
        relation="==",
        second=right_model_by_simulation,
        condition="the weights are constant",
        restrict=model_weights,
        **PLANTED,
    ),
)
