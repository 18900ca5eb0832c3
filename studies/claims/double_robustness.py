"""What calibrated DR converges to when its weights are a function of the score.

Exact in finite models; ``W = pi'/pi_0``, ``m(S) = E[W | S]``, ``R(S) = E[Y | S]``, ``q = E[R | X, A]``; the nuisances
``W_hat(S)`` and ``q_hat(X, A)`` are fixed and need not be right.
"""

from fractions import Fraction

import numpy as np

from cje_core.streams import generator
from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import FloatArray, Functional, Space, bound, scores, variance
from cje_sim.exact.judge_models import JudgeModel
from studies.ledger.claim import Params, Sides
from studies.ledger.judged import (
    FUNCTION,
    LEFT_RAISED,
    SHAPES,
    Sums,
    apart,
    as_function,
    expected,
    inside,
    length,
    model,
    outcomes,
    sums,
    world,
)
from studies.ledger.worlds import Family, batches, over_worlds

WIDE = 5.0  # limits with weights up to 3 lie within (-5, 5)


def with_nuisances(z: FloatArray, size: int) -> Params:
    """A world with weights of the judge's levels and a fitted regression, neither of them right."""
    x, a, s, _ = SHAPES[size]
    own, weights, fit = np.split(z, [length(size), length(size) + s])
    return {
        **world(own, size),
        "weights": (3 * inside(weights)).tolist(),
        "fit": inside(fit).reshape(x, a).tolist(),
    }


NUISANCES = Family(
    (1, 2, 3), lambda n: length(n) + SHAPES[n][2] + SHAPES[n][0] * SHAPES[n][1], with_nuisances
)


def doubly_robust(w: Params) -> tuple[float, Sums, FloatArray, FloatArray]:
    """What ``g_hat + W_hat (R - q_hat)`` converges to for fixed nuisances; sums; nuisances over (x, a, s)."""
    m = model(w)
    t, weights, fit = sums(m), np.asarray(w["weights"], float), np.asarray(w["fit"], float)
    limit = float(m.prompt @ (m.target * fit).sum(axis=1)) + t.mean(weights * (t.reward - fit[:, :, None]))
    return limit, t, weights, fit[:, :, None]


def printed_remainder(w: Params) -> Sides:
    """The limit of DR, and V plus the lemma's remainder ``P[(W_hat - m)(q - q_hat)]``."""
    limit, t, weights, fit = doubly_robust(w)
    return apart(limit, t.value + t.mean((weights - t.judged_weight) * (t.by_response - fit)), WIDE)


def printed_remainder_again(w: Params) -> Sides:
    """The same in rational arithmetic."""
    space = outcomes({k: v for k, v in w.items() if k not in ("weights", "fit")})
    weights = [Fraction(str(v)) for v in w["weights"]]
    fit = [[Fraction(str(v)) for v in row] for row in w["fit"]]
    judged = expected(space, lambda o: o.weight, lambda o: o.s)
    q = expected(space, lambda o: o.reward, lambda o: (o.x, o.a))
    value = expected(space, lambda o: o.weight * o.y)[0]
    limit = expected(space, lambda o: o.weight * fit[o.x][o.a] + weights[o.s] * (o.reward - fit[o.x][o.a]))[0]
    rest = expected(space, lambda o: (weights[o.s] - judged[o.s]) * (q[o.x, o.a] - fit[o.x][o.a]))[0]
    return apart(float(limit), float(value + rest), WIDE)


def repaired_remainder(w: Params) -> Sides:
    """The limit of DR, and ``V + P[(W_hat - W)(q - q_hat)] + E Cov(W_hat(S), R(S) | X, A)``."""
    limit, t, weights, fit = doubly_robust(w)
    cov = t.mean(
        weights * (t.reward - t.by_response)
    )  # of W_hat(S) and R(S) given (x, a): R - q has mean zero there
    return apart(limit, t.value + t.mean((weights - t.weight) * (t.by_response - fit)) + cov, WIDE)


def as_function_fitted_by_score(w: Params) -> Params:
    """... and with a regression that is a function of the score."""
    m = model(as_function(w))
    row = np.linspace(0.2, 0.7, m.judge.shape[-1])
    return {**as_function(w), "fit": row[m.judge.argmax(axis=-1)].tolist()}


def estimator(m: JudgeModel, space: Space, *, projected: bool) -> Functional:
    """DR as a function of the observed law: label means by level, their means by response, exact weights or m(S)."""
    x, a, s = (space[name].astype(int) for name in "xas")
    shape = m.judge.shape
    cell = np.ravel_multi_index((x, a, s), shape)
    labelled = space["l"] == 1
    exact = np.broadcast_to((m.target / m.logger)[:, :, None], shape)

    def functional(p: FloatArray) -> float:
        joint = np.bincount(cell, p, minlength=m.judge.size).reshape(shape)
        seen = np.bincount(s[labelled], p[labelled], minlength=shape[2])
        total = np.bincount(s[labelled], (p * space["y"])[labelled], minlength=shape[2])
        reward = total / np.where(seen > 0, seen, 1.0)
        mass = joint.sum(axis=2)
        q = (joint * reward).sum(axis=2) / np.where(mass > 0, mass, 1.0)
        level = joint.sum(axis=(0, 1))
        judged = (joint * exact).sum(axis=(0, 1)) / np.where(level > 0, level, 1.0)
        weight = judged if projected else exact
        direct = mass.sum(axis=1) @ (m.target * q).sum(axis=1)
        return float(direct + (joint * weight * (reward - q[:, :, None])).sum())

    return functional


def asymptotic(m: JudgeModel, *, projected: bool) -> float:
    """Variance of DR's influence function, by finite differences in the observed law."""
    space = judge_models.observed(m)
    everything = scores(space, ("x", "a", "s", "l", "y"))
    return bound(space, estimator(m, space, projected=projected), everything)


def limit_variance(w: Params) -> Sides:
    """Asymptotic variance of calibrated DR, nuisances estimated, and the printed bound; a share of labels."""
    m = model(as_function(w), complete=False)
    t = sums(m)
    return apart(asymptotic(m, projected=True), t.variance(t.printed))


N_ROWS = 20_000


def limit_variance_again(w: Params) -> Sides:
    """N times the variance of DR on simulated logs, and the printed bound."""
    m = model(as_function(w), complete=False)
    space, t = judge_models.observed(m), sums(m)
    value, right = estimator(m, space, projected=True), t.variance(t.printed)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        drawn = rng.multinomial(N_ROWS, space.probability, size=40) / N_ROWS
        found = N_ROWS * float(np.var([value(p) for p in drawn], ddof=1))
        return 2 + found, 2 + right

    return batches(batch, generator(0, "claims", "double_robustness", "variance"))


def repaired_variance(w: Params) -> Sides:
    """Asymptotic variance of DR with exact weights and estimated rewards, and the bound under mean sufficiency."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    return Sides(asymptotic(m, projected=False), variance(space, judge_models.canonical(m, space)))


def weighted_means(w: Params) -> Sides:
    """The closed forms of both: ``E[m^2 E[v | S]] / e`` and ``E[m^2 / E[1/v | S]] / e`` besides what they share."""
    m = model(w, complete=False)
    t, share = sums(m), float(w["share"])
    common = t.variance(t.by_prompt) + t.mean(t.weight**2 * (t.reward - t.by_response) ** 2)
    precision = t.given_level(1 / t.noise)
    harmonic = np.where(precision > 0, 1 / np.where(precision > 0, precision, 1.0), 0.0)
    plain, best = (
        common + float(t.level_mass @ (t.judged_weight**2 * v)) / share
        for v in (t.given_level(t.noise), harmonic)
    )
    return Sides(plain, best)


BINARY = Family((4,), length, world, 0.2)
ANY = Family((1, 2), length, world, 0.2)


CLAIMS = (
    over_worlds(
        name="lem-remainder",
        source='Lemma "Second-order remainder for DR with cross-fitting", lem:remainder',
        statement=r"For fixed $\hat W(S), \hat q$ the limit of calibrated DR is $V + P[(\hat W - m)(q - \hat q)]$.",
        why=r"For $\hat W = m$ and $\hat q = q$ the printed remainder is zero, the limit is "
        r"$V + E\,Cov(m(S), R(S) | X, A)$.",
        family=NUISANCES,
        sides=printed_remainder,
        second=printed_remainder_again,
        relation="==",
        condition=FUNCTION + r" and $\hat q$ of the score",
        restrict=as_function_fitted_by_score,
        **LEFT_RAISED,
    ),
    over_worlds(
        name="lem-remainder-repaired",
        source="repairs lem-remainder",
        statement=r"The limit is $V + P[(\hat W - W)(q - \hat q)] + E\,Cov(\hat W(S), R(S) | X, A)$: with weights of "
        r"the score DR is not robust to them even where $\hat q = q$.",
        why=r"$P \hat g = P[W \hat q]$ and $V = P[W q]$; add and subtract $P[\hat W q]$.",
        family=NUISANCES,
        sides=repaired_remainder,
        relation="==",
        **LEFT_RAISED,
        repairs="lem-remainder",
    ),
    over_worlds(
        name="thm-dr-eff",
        source='Theorem "Calibrated DR: limits and efficiency", thm:dr-eff',
        statement=r"Calibrated DR has asymptotic variance $Var(\varphi_{sur})$, where the score is a function of "
        r"prompt and response (else it is biased: lem-remainder) and a share of responses is labelled.",
        why=r"R is estimated: the influence function has $m(S) \frac{L}{E[L | S]} (Y - R)$ besides.",
        family=ANY,
        sides=limit_variance,
        second=limit_variance_again,
        relation="==",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="thm-dr-eff-repaired",
        source="repairs thm-dr-eff",
        statement=r"DR with exact weights W and label means $\hat R(s)$ attains the bound under mean sufficiency for "
        r"binary labels at random.",
        why=r"Then $v = R (1 - R)$ is a function of S, and label means are the efficient weights' means.",
        family=BINARY,
        sides=repaired_variance,
        relation="==",
        repairs="thm-dr-eff",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="dr-attains-bound",
        source='Theorem "Efficiency via Model Restriction", part (ii), of DR with plain label means',
        statement=r"DR with exact weights W and label means $\hat R(s)$ attains the bound under mean sufficiency.",
        why=r"Where v varies within a level the bound asks for means weighted by $1/v$.",
        family=ANY,
        sides=repaired_variance,
        second=weighted_means,
        relation="==",
        **LEFT_RAISED,
    ),
)
