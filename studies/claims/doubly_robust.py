"""Doubly robust estimates from logs and fresh draws: what the remainder is, the orthogonality score, beside Direct.

Worlds are finite: responses with masses under target and logger, a judge, a reward R(s), a reward model q of each
response, and a weight of each judge level. In the paper's set-up the score is a function of the response, and q one of
the score (`SCORED`), or, with covariates, of the response (`COVARIATES`); entries named "random-judge" are ours.
"""

import math
from typing import Any

import numpy as np

from cje_core.calibration.isotonic import isotonic
from cje_core.streams import generator
from studies.ledger.claim import N_MCSE, Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.judged import OURS
from studies.ledger.own import decided, first_broken
from studies.ledger.worlds import Family, FloatArray, batches, masses, number, over_worlds

ROWS = 20_000
FOLDS = 5


def world(z: FloatArray, size: int) -> dict[str, object]:
    """Responses, three judge levels given each, rewards of levels, a reward model, weights of levels."""
    p, q, model = z[: 3 * size].reshape(3, size)
    judge = z[3 * size : 6 * size].reshape(size, 3)
    reward, weight = z[6 * size :].reshape(2, 3)
    return {
        "target": np.exp(p).tolist(),
        "logger": np.exp(q).tolist(),
        "judge": np.exp(judge).tolist(),
        "reward": (1 / (1 + np.exp(-2 * reward))).tolist(),
        "model": (1 / (1 + np.exp(-2 * model))).tolist(),
        "weight": np.exp(weight / 2).tolist(),
    }


def with_function(z: FloatArray, size: int) -> dict[str, object]:
    """A world whose score is a function of the response, its heaviest level; so is the reward model."""
    w = world(z, size)
    return {**w, "judge": np.eye(3)[np.argmax(w["judge"], axis=1)].tolist()}  # type: ignore[call-overload]


def with_calibrator(z: FloatArray, size: int) -> dict[str, object]:
    """A world whose score is a function of the response, and the reward model one of the score."""
    return calibrated(with_function(z, size))


def calibrated(w: Params) -> dict[str, object]:
    """The same world with responses of equal scores given the first one's reward model."""
    level = np.argmax(w["judge"], axis=1).tolist()
    return {**w, "model": [w["model"][level.index(k)] for k in level]}


RANDOM = Family((2, 3), lambda size: 6 * size + 6, world, 0.6)
COVARIATES = Family((2, 3, 4), lambda size: 6 * size + 6, with_function, 0.6)
SCORED = COVARIATES._replace(world=with_calibrator)


def parts(w: Params) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Target, logger, law of the judge given the response, rewards, model and weights."""
    p, q = masses(w["target"]), masses(w["logger"])
    judge = np.stack([masses(row) for row in w["judge"]])
    if not q.min() > 1e-5:
        raise ClaimError("a response has no mass")
    return p, q, judge, *(np.asarray(w[name], float) for name in ("reward", "model", "weight"))  # type: ignore[return-value]


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


def added_variance(w: Params) -> Sides:
    """Variance of Direct (fresh rewards of a known calibrator), against that of DR with its own logs; one row each."""
    p, q, judge, reward, _, _ = parts(w)
    fresh = p @ judge
    value = float(fresh @ reward)
    best = judge @ reward
    direct = float(fresh @ (reward - value) ** 2)
    ratio = (p / q)[:, None]
    term = ratio * (reward - best[:, None])
    noise = float((q[:, None] * judge * term**2).sum())
    return Sides(direct, direct + noise)


def orthogonality(seed: int, held_out: bool = True) -> tuple[float, float]:
    """Largest absolute term of the orthogonality score, and the bias of DR, with weights that are noise."""
    rng = generator(0, "claims", "orthogonality", seed)
    n = 400
    s = np.sort(rng.random(n))
    y = np.clip(0.2 + 0.6 * s + 0.2 * rng.standard_normal(n), 0, 1)
    fold = rng.permutation(n) % FOLDS
    reward = np.empty(n)
    for k in range(FOLDS):
        train = fold != k
        reward[~train] = np.interp(s[~train], s[train], isotonic(y[train], np.ones(int(train.sum())))[0])
    model = reward  # "q-hat = f-hat^(-k)(Z)", the same cross-fitted calibrator
    if not held_out:  # of the false variant: fitted to the row itself too
        model = isotonic(y, np.ones(n))[0]
    weight = np.exp(2 * rng.standard_normal(n))
    weight /= weight.mean()
    return float(np.abs(weight * (reward - model)).max()), float((weight * (y - reward)).mean())


def decide_orthogonality(trial: Trial) -> Evidence:
    """The score in data sets whose weights are noise."""
    found = [orthogonality(seed, held_out=not trial.planted) for seed in range(trial.size(5, 50, 500))]
    worst = max(u for u, _ in found)
    terms = np.array([b for _, b in found])
    return Evidence(
        holds=worst == 0.0,
        measured=f"largest term {worst:g}",
        expected="0 in every row",
        text=f"{len(found)} data sets of 400 rows with weights that are log-normal noise: every term of the score "
        f"is 0, its "
        "interval is [0, 0] and the gate passes. The same weights on the labels' own residuals have a mean of SD "
        f"{number(float(terms.std()))}: that is what a score would have to look at.",
    )


PROMPT = np.array([0.3, 0.3, 0.4])
LOGGER = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.6, 0.2, 0.2]])
TARGET = np.array([[0.2, 0.3, 0.5], [0.3, 0.2, 0.5], [0.1, 0.3, 0.6]])
SCORE = np.array([[0, 1, 2], [0, 0, 1], [1, 2, 2]])  # of each prompt and response
VALUE = np.array([0.2, 0.5, 0.8])  # mean of the binary label by score
LEVELS = np.eye(3)[SCORE]
LEVEL_MASS = np.einsum("x,xa,xas->s", PROMPT, LOGGER, LEVELS)
LEVEL_TARGET = np.einsum("x,xa,xas->s", PROMPT, TARGET, LEVELS)
BY_PROMPT = np.einsum("xa,xas->xs", TARGET, LEVELS)  # law of the score under the target, of each prompt


def printed_limit() -> float:
    """Var(phi_sur): ``R = q``, so it is the variance of ``g(X)``."""
    g = BY_PROMPT @ VALUE
    return float(PROMPT @ g**2 - (PROMPT @ g) ** 2)


def rows_and_share(w: Params) -> tuple[int, float]:
    """Logged rows and the share of them that is labelled, of a world of `learned_limit`."""
    rows, share = int(w["rows"]), float(w["labelled"])
    if not 0 < share <= 1 or rows * share * LEVEL_MASS.min() < 20:
        raise ClaimError("the share of labels lies in (0, 1], and each score needs 20 labels")
    return rows, share


def learned_limit(w: Params) -> Sides:
    """``n Var`` of DR with a share of the rows labelled, by the delta method, and Var(phi_sur)."""
    _, share = rows_and_share(w)
    noise = VALUE * (1 - VALUE)
    return Sides(
        printed_limit() + float((LEVEL_TARGET**2 * noise / LEVEL_MASS).sum()) / share, printed_limit()
    )


def simulated_limit(w: Params, replicates: int, rng: np.random.Generator) -> Sides:
    """``n Var`` of DR from simulated logs at these parameters, and Var(phi_sur)."""
    n, share = rows_and_share(w)
    cells = rng.multinomial(n, (PROMPT[:, None] * LOGGER).ravel(), size=replicates).reshape(-1, 3, 3)
    labels = rng.binomial(np.einsum("rxa,xas->rs", cells, LEVELS).astype(int), share)
    fit = rng.binomial(labels, VALUE) / np.maximum(labels, 1)
    # R(S) = q(X, A) in every row, so that the weighted residuals of DR are nought and the mean of g(X) is left
    theta = (cells.sum(axis=2) * (fit @ BY_PROMPT.T)).sum(axis=1) / n
    found = n * float(theta.var(ddof=1))
    return Sides(found, printed_limit(), found * math.sqrt(2 / (replicates - 1)))


def learned_by_simulation(w: Params) -> Sides:
    """The sides of `learned_limit` from 40,000 simulated logs."""
    return simulated_limit(w, 40_000, generator(0, "claims", "doubly robust", "learned"))


def decide_learned(trial: Trial) -> Evidence:
    """Variance of DR with learned rewards over that of phi_sur, all logged rows labelled."""
    sizes = ({"rows": rows, "labelled": 1.0} for rows in range(100, 5000, 100))
    world_ = first_broken(sizes, learned_limit, "==")
    if world_ is None:
        raise ClaimError("no size of this world breaks the statement")
    reps = trial.size(4000, 40_000, 400_000)
    found, theory = simulated_limit(world_, reps, trial.rng("learned")), learned_limit(world_)
    ratio, mcse = found.left / found.right, found.mcse / found.right
    if trial.planted:
        ratio, mcse = ratio / 2, mcse / 2
    return Evidence(
        holds=abs(ratio - 1) < N_MCSE * mcse,
        measured=f"n Var / Var(phi_sur) {ratio:.3f} ({mcse:.3f})",
        expected="1",
        mcse=mcse,
        text=f"Three prompts with three responses each, scores that are a function of both, binary labels of all "
        f"{world_['rows']} logged rows, rewards learned as means of the labels by score: n times the "
        f"variance is {ratio:.3f} ({mcse:.3f}) times Var(phi_sur), over {reps:,} replicates. The delta method with the "
        f"label noise of those means gives {theory.left / theory.right:.3f}.",
        counterexample=world_,
    )


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
        source="Lemma (second-order remainder for DR), lem:remainder, with the covariates of two-stage calibration",
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
        source="thm:dr-eff, the weights, with the covariates of two-stage calibration",
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
    over_worlds(
        name="dr-is-direct",
        source="Q3: DR is Direct plus variance from the weights",
        statement="with a known calibrator, a right reward model and exact weights DR has at least the variance "
        "of Direct",
        why="Logs and fresh draws are independent; the correction has mean 0 and adds its variance, nought here: "
        "for S = s(X, A) every residual is 0, and DR is Direct. (A judge that is random given (X, A) would add E[W^2 "
        "Var(R | X, A)].)",
        family=SCORED,
        sides=added_variance,
        planted="half of DR's variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    Claim(
        name="orthogonality-zero",
        source="app:diag-ortho with q-hat = f-hat^(-k)(Z), as the experiments have it (found by the estimators)",
        statement="the orthogonality score is 0 in every row, whatever the weights: its gate always passes",
        rule="the score's terms in data sets whose weights are noise",
        why=r"$U_i = \hat W_i (R^{OOF}_i - \hat q^{OOF}_i)$, and both are the cross-fitted calibrator's "
        r"prediction for row i.",
        decide=decide_orthogonality,
        planted="it is 0 with a calibrator that was fitted to the row too",
    ),
    decided(
        name="thm-dr-eff",
        source="Theorem (calibrated DR: limits and efficiency), thm:dr-eff",
        statement=r"with rewards learned from labels of the logged rows $n Var(V_{DR}) \to Var(\phi_{sur})$",
        rule="simulated variance of DR with level means; the delta method",
        why=r"For $S = s(X, A)$, $\phi_{sur} = g - V$ takes $R^*$ as known. Learning it adds $E[m^2 v] / e$, e the "
        "share of labels. The appendix says that the bounds leave this part out; the theorem's limit does not.",
        decide=decide_learned,
        sides=learned_limit,
        second=learned_by_simulation,
        relation="==",
        planted="half of the variance",
    ),
)
