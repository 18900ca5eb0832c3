"""What asymptotic variance calibrated DR has, and which version of it attains the bound.

The score is a function of (X, A), as in the paper; what is true of any judge says so.

Exact in finite models: the estimator is a function of the observed law, its influence function is found by finite
differences, nuisances are estimated. ``W = pi'/pi_0``, ``m(S) = E[W | S]``, ``R(S) = E[Y | S]``, ``v = Var(Y | X, A,
S)``.
"""

import numpy as np

from cje_core.streams import generator
from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import FloatArray, Functional, Space, bound, scores, variance
from cje_sim.exact.judge_models import JudgeModel
from studies.ledger.claim import Params, Sides
from studies.ledger.judged import (
    LEFT_RAISED,
    apart,
    length,
    model,
    scored,
    sums,
    world,
)
from studies.ledger.worlds import Family, batches, over_worlds


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
    m = model(w, complete=False)
    t = sums(m)
    return apart(asymptotic(m, projected=True), t.variance(t.printed))


N_ROWS = 20_000


def limit_variance_again(w: Params) -> Sides:
    """N times the variance of DR on simulated logs, and the printed bound."""
    m = model(w, complete=False)
    space, t = judge_models.observed(m), sums(m)
    value, right = estimator(m, space, projected=True), t.variance(t.printed)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        drawn = rng.multinomial(N_ROWS, space.probability, size=40) / N_ROWS
        found = N_ROWS * float(np.var([value(p) for p in drawn], ddof=1))
        return 2 + found, 2 + right

    return batches(batch, generator(0, "claims", "attainment", "variance"))


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


BINARY = Family((4,), length, world, 0.2)  # any judge
ANY = Family((1, 2), length, scored, 0.2)


CLAIMS = (
    over_worlds(
        name="dr-variance",
        source="ours: thm-dr-eff over worlds",
        statement=r"Calibrated DR has asymptotic variance $Var(\varphi_{sur})$, where a share of responses is "
        r"labelled.",
        why=r"R is estimated: the influence function has $m(S) \frac{L}{E[L | S]} (Y - R)$ besides. The appendix says "
        r"that the bounds leave the first stage out; the theorem's limit does not.",
        family=ANY,
        sides=limit_variance,
        second=limit_variance_again,
        relation="==",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="dr-variance-repaired",
        source="ours: repairs dr-variance and thm-dr-eff",
        statement=r"DR with exact weights W and label means $\hat R(s)$ attains the bound under mean sufficiency for "
        r"binary labels at random, whether the score is a function of (X, A) or not.",
        why=r"Then $v = R (1 - R)$ is a function of S, and label means are the efficient weights' means.",
        family=BINARY,
        sides=repaired_variance,
        relation="==",
        repairs="dr-variance",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="dr-attains-bound",
        source="ours: whether the estimator of dr-variance-repaired attains the bound for every label; the theorem's "
        "part (ii) is about one-step and TMLE estimators",
        statement=r"DR with exact weights W and label means $\hat R(s)$ attains the bound under mean sufficiency.",
        why=r"Where v varies within a level the bound asks for means weighted by $1/v$.",
        family=ANY,
        sides=repaired_variance,
        second=weighted_means,
        relation="==",
        **LEFT_RAISED,
    ),
)
