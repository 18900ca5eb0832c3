"""What calibrated DR converges to when its weights are a function of the score.

Exact in finite models; ``W = pi'/pi_0``, ``m(S) = E[W | S]``, ``R(S) = E[Y | S]``, ``q = E[R | X, A]``; the nuisances
``W_hat(S)`` and ``q_hat(X, A)`` are fixed and need not be right.
"""

from fractions import Fraction

import numpy as np

from cje_sim.exact.efficiency import FloatArray
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
from studies.ledger.worlds import Family, over_worlds

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
    tuple(SHAPES), lambda n: length(n) + SHAPES[n][2] + SHAPES[n][0] * SHAPES[n][1], with_nuisances
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
)
