"""Weights of the judge's levels: what their monotone projection preserves and gives away, and when a cap can bind.

Levels s rise; the logger has mass p(s), ``m(s) = E[W | s]`` mean one, ``R(s)`` the reward. ``m_up`` is the projection
of m on the nondecreasing functions (isotonic regression), whose blocks are the levels it pools. For the budgeted bound
the world has responses and prompts too, and ``phi(w) = g + w(S) (R - q) - V``; in the paper's set-up, ``S = s(X, A)``,
``R = q`` and the weights multiply zero. Entries named "random-judge" are ours.
"""

from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression, minimize

from cje_sim.exact.judged_means import rising
from studies.ledger import judged
from studies.ledger.claim import Params, Sides
from studies.ledger.judged import LEFT_RAISED, OURS, RIGHT_LOWERED, apart, inside, law, model, sums
from studies.ledger.worlds import Family, FloatArray, over_worlds

THEOREM = 'Theorem "Budgeted information bound", thm:budgeted'
STABILISATION = (
    'ours: of Section "Weight stabilization", which says that the projection "trades bias for variance" where the '
    "weights are not monotone"
)


def levels(z: FloatArray, k: int) -> Params:
    """Masses of k levels under logger and target, rewards, a function on the levels, another weight, a cap."""
    logger, target, reward, other, weights, cap = np.split(z, [k, 2 * k, 3 * k, 4 * k, 5 * k])
    return {
        "logger": inside(logger).tolist(),
        "target": inside(target).tolist(),
        "reward": inside(reward).tolist(),
        "other": inside(other).tolist(),
        "weights": inside(weights).tolist(),
        "cap": float(inside(cap)[0]),
    }


LEVELS = Family((2, 3, 5), lambda k: 5 * k + 1, levels)
CAPPED = judged.FAMILY._replace(effort=0.5)
CAPPED_RANDOM = judged.FAMILY_RANDOM._replace(effort=0.5)


def projected(w: Params) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masses p, weights m and their monotone projection."""
    p, target = law(w["logger"]), law(w["target"])
    m = target / p
    return p, m, rising(m, p)


def pooled(values: FloatArray) -> FloatArray:
    """Number of the block of each level: neighbours with equal projections are one block."""
    return np.concatenate([[0], np.cumsum(np.abs(np.diff(values)) > 1e-12)])


def reward_kept(w: Params) -> Sides:
    """``E[m_up R]`` and the value ``E[m R]``."""
    p, m, up = projected(w)
    reward = np.asarray(w["reward"], float)
    return apart(float(p @ (up * reward)), float(p @ (m * reward)))


def reward_kept_again(w: Params) -> Sides:
    """The same with SciPy's isotonic regression."""
    p, target = law(w["logger"]), law(w["target"])
    up = isotonic_regression(target / p, weights=p).x
    reward = np.asarray(w["reward"], float)
    return apart(float(p @ (up * reward)), float(target @ reward))


def block_means_kept(w: Params) -> Sides:
    """``E[m_up h]`` and ``E[m h]`` for a function h of the blocks."""
    p, m, up = projected(w)
    h = np.asarray(w["other"], float)[pooled(up)]
    return Sides(float(p @ (up * h)), float(p @ (m * h)))


def reward_lost(w: Params) -> Sides:
    """``E[m_up R]`` and ``E[m R]`` less the mean covariance of m and R within blocks."""
    p, m, up = projected(w)
    reward, block = np.asarray(w["reward"], float), pooled(up)
    cov = 0.0
    for b in range(block[-1] + 1):
        here = block == b
        share = p[here] / p[here].sum()
        cov += p[here].sum() * (share @ (m * reward)[here] - (share @ m[here]) * (share @ reward[here]))
    return apart(float(p @ (up * reward)), float(p @ (m * reward)) - cov)


def spread(p: FloatArray, values: FloatArray) -> float:
    """Variance under masses p."""
    return float(p @ (values - p @ values) ** 2)


def variance_of_weighted_rewards(w: Params) -> Sides:
    """``Var(m_up R)`` and ``Var(m R)``."""
    p, m, up = projected(w)
    reward = np.asarray(w["reward"], float)
    return apart(spread(p, up * reward), spread(p, m * reward), 0.1)


def variance_of_weighted_rewards_again(w: Params) -> Sides:
    """The same with SciPy's isotonic regression, as variances of listed levels."""
    p, target = law(w["logger"]), law(w["target"])
    m, reward = target / p, np.asarray(w["reward"], float)
    found = []
    for weight in (isotonic_regression(m, weights=p).x, m):
        centre = np.average(weight * reward, weights=p)
        found.append(float(np.average((weight * reward - centre) ** 2, weights=p)))
    return apart(found[0], found[1], 0.1)


def cap_is_vacuous(w: Params) -> Sides:
    """``Var(m_up)`` and ``Var(m)``: a cap of rho Var(m), rho >= 1, does not bind."""
    p, m, up = projected(w)
    return apart(spread(p, up), spread(p, m), 0.1)


def blend(p: FloatArray, m: FloatArray, cap: float) -> FloatArray:
    """``1 + alpha (m_up - 1)`` with the largest alpha <= 1 whose variance is at most `cap`."""
    up = rising(m, p)
    found = spread(p, up)
    return 1 + min(1.0, np.sqrt(cap / found) if found > 0 else 1.0) * (up - 1)


def solved_projection(p: FloatArray, m: FloatArray, cap: float) -> FloatArray:
    """The projection on nondecreasing weights of mean one and variance at most `cap`, by a general solver."""
    constraints: Any = [
        {"type": "eq", "fun": lambda u: p @ u - 1},
        {"type": "ineq", "fun": lambda u: np.diff(u)},
        {"type": "ineq", "fun": lambda u: cap - p @ (u - 1) ** 2},
    ]

    def distance(u: FloatArray) -> float:
        return float(p @ (u - m) ** 2)

    options: Any = {"ftol": 1e-14, "maxiter": 500}
    solved = minimize(distance, np.ones(len(p)), method="SLSQP", constraints=constraints, options=options)
    return np.asarray(solved.x)


def blend_is_nearest(w: Params) -> Sides:
    """Squared distances from m of the blend and of another member of the capped set, the cap a share of Var(m)."""
    p, m, _ = projected(w)
    cap = float(w["cap"]) * spread(p, m)
    near = blend(p, m, cap)
    other = law(w["weights"])
    other = np.sort(other) / (p @ np.sort(other))
    other = 1 + min(1.0, np.sqrt(cap / max(spread(p, other), 1e-300))) * (other - 1)
    return apart(float(p @ (near - m) ** 2), float(p @ (other - m) ** 2))


def blend_is_nearest_again(w: Params) -> Sides:
    """The blend against a general solver of the same projection."""
    p, m, _ = projected(w)
    cap = float(w["cap"]) * spread(p, m)
    solved = solved_projection(p, m, cap)
    return apart(float(p @ (blend(p, m, cap) - m) ** 2), float(p @ (solved - m) ** 2))


def budgeted_variance(w: Params, share: float) -> float:
    """``Var(phi)`` with weights projected on the monotone functions of variance at most `share` of Var(m)."""
    t = sums(model(w))
    there = t.level_mass > 0
    p, m = t.level_mass[there], t.judged_weight[there]
    weights = np.zeros(len(there))
    weights[there] = blend(p, m, share * spread(p, m))
    return t.variance(t.by_prompt + weights * (t.reward - t.by_response))


def budgeted_limit(w: Params) -> Sides:
    """``Var(phi^(rho))`` for a large rho, and ``Var(phi_sur)``."""
    t = sums(model(w))
    return apart(budgeted_variance(w, 1e12), t.variance(t.printed))


def budgeted_limit_again(w: Params) -> Sides:
    """The same with SciPy's isotonic regression and plain sums over the cells."""
    t = sums(model(w))
    there = t.level_mass > 0
    weights = np.zeros(len(there))
    weights[there] = isotonic_regression(t.judged_weight[there], weights=t.level_mass[there]).x
    found = []
    for weight in (weights, t.judged_weight):
        cells = np.broadcast_to(t.by_prompt + weight * (t.reward - t.by_response), t.joint.shape).ravel()
        centre = np.average(cells, weights=t.joint.ravel())
        found.append(float(np.average((cells - centre) ** 2, weights=t.joint.ravel())))
    return apart(*found)


def nonincreasing(w: Params) -> Sides:
    """``Var(phi^(rho))`` at a larger and at a smaller rho, both at least one."""
    small, large = sorted(1 / float(x) for x in (w["share"], w["reward"][0]))
    return apart(budgeted_variance(w, large), budgeted_variance(w, small))


def cap_costs(w: Params) -> Sides:
    """``Var(phi_sur)`` and ``Var(phi^(rho))``, rho at least one."""
    t = sums(model(w))
    return apart(t.variance(t.printed), budgeted_variance(w, 1 / float(w["share"])))


def weights_rise(w: Params) -> Params:
    """The same world with the judge's levels in the order of their weights."""
    order = np.argsort(sums(model(w)).judged_weight, kind="stable")
    judge, label = np.asarray(w["judge"], float)[..., order], np.asarray(w["label"], float)[:, :, order]
    reward = np.asarray(w["reward"], float)[order]
    return {**w, "judge": judge.tolist(), "label": label.tolist(), "reward": reward.tolist()}


def capped_is_dearer(w: Params) -> Sides:
    """``Var(phi^(1))`` and ``Var(phi^(rho))`` at a cap below one that binds."""
    return apart(budgeted_variance(w, 1.0), budgeted_variance(w, float(w["share"])))


def optimal_in_the_set(w: Params) -> Sides:
    """``Var(phi^(1))`` and the variance with weights one, which lie in the capped set."""
    return apart(budgeted_variance(w, 1.0), budgeted_variance(w, 0.0))


def optimal_in_the_set_again(w: Params) -> Sides:
    """The same in rational arithmetic, but for the projection."""
    space = judged.outcomes(w)
    t = sums(model(w))
    there = t.level_mass > 0
    weights = np.zeros(len(there))
    weights[there] = isotonic_regression(t.judged_weight[there], weights=t.level_mass[there]).x
    q = judged.expected(space, lambda o: o.reward, lambda o: (o.x, o.a))
    g = judged.expected(space, lambda o: o.weight * q[o.x, o.a], lambda o: o.x)
    found = []
    for weight in (weights, np.ones(len(there))):
        cells = np.array([float(g[o.x]) + weight[o.s] * float(o.reward - q[o.x, o.a]) for o in space])
        mass = np.array([float(o.probability) for o in space])
        found.append(float(mass @ cells**2 - (mass @ cells) ** 2))
    return apart(*found)


def budgeted_again(w: Params, share: float) -> float:
    """``Var(phi)`` with the capped weights from a general solver."""
    t = sums(model(w))
    there = t.level_mass > 0
    p, m = t.level_mass[there], t.judged_weight[there]
    weights = np.zeros(len(there))
    weights[there] = solved_projection(p, m, share * spread(p, m))
    return t.variance(t.by_prompt + weights * (t.reward - t.by_response))


def rising_weights(w: Params) -> Params:
    """The same levels with target masses such that the weights rise."""
    p = law(w["logger"])
    return {**w, "target": (np.sort(law(w["target"]) / p) * p).tolist()}


TRIVIAL = r"For $S = s(X, A)$ it holds trivially: $R = q$, so $\varphi^{(\rho)} = g - V = \varphi_{sur}$."

CLAIMS = (
    over_worlds(
        name="stabilisation-keeps-value",
        source=STABILISATION,
        statement=r"The monotone projection of the weights keeps the value: $E[m_\uparrow R] = E[m R]$.",
        why=r"It keeps the mean of the weights within blocks; the reward's covariance with them is lost: this is the "
        r"bias that the paper grants.",
        family=LEVELS,
        sides=reward_kept,
        second=reward_kept_again,
        relation="==",
        condition="the weights rise with the level",
        restrict=rising_weights,
        **LEFT_RAISED,
    ),
    over_worlds(
        name="stabilisation-keeps-blocks",
        source="ours: repairs stabilisation-keeps-value (docs/claims/weight_stabilisation.md)",
        statement=r"$E[m_\uparrow h] = E[m h]$ for every h that is constant on the pooled blocks.",
        why=r"The projection replaces m by its mean within blocks.",
        family=LEVELS,
        sides=block_means_kept,
        relation="==",
        repairs="stabilisation-keeps-value",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="stabilisation-gives-away",
        source="ours: repairs stabilisation-keeps-value (docs/claims/weight_stabilisation.md)",
        statement=r"$E[m_\uparrow R] = E[m R] - \sum_b P(b)\, Cov_b(m, R)$ over the blocks b.",
        why=r"Within a block $E_b[m_\uparrow R] = E_b[m] E_b[R]$.",
        family=LEVELS,
        sides=reward_lost,
        relation="==",
        repairs="stabilisation-keeps-value",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="stabilisation-variance",
        source=STABILISATION,
        statement=r"Stabilised weights lower the variance of the weighted reward: $Var(m_\uparrow R) \le Var(m R)$.",
        why=r"They lower the variance of the weights; a weight can still move onto levels of high reward.",
        family=LEVELS,
        sides=variance_of_weighted_rewards,
        second=variance_of_weighted_rewards_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="budgeted-cap-vacuous",
        source="ours: repairs thm-budgeted-limit (docs/claims/variance_cap.md)",
        statement=r"$Var(m_\uparrow) \le Var(m)$: for $\rho \ge 1$ the cap never binds, the curve in $\rho$ is flat.",
        why=r"Pooling replaces values by their means (Jensen).",
        family=LEVELS,
        sides=cap_is_vacuous,
        repairs="thm-budgeted-limit",
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="thm-budgeted-limit",
        source=THEOREM,
        statement=r"$\lim_{\rho \to \infty} Var(\varphi^{(\rho)}) = Var(\varphi_{sur})$",
        why=TRIVIAL,
        family=CAPPED,
        sides=budgeted_limit,
        second=budgeted_limit_again,
        relation="==",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="budgeted-nonincreasing",
        source=THEOREM,
        statement=r"$Var(\varphi^{(\rho)})$ is nonincreasing in $\rho \ge 1$.",
        why=TRIVIAL
        + r" (With a judge that is random it is constant too: for $\rho \ge 1$ the cap never binds, "
        r"budgeted-cap-vacuous.)",
        family=CAPPED,
        sides=nonincreasing,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="budgeted-trade",
        source=THEOREM + r', "limiting weight variance trades a bit of asymptotic efficiency"',
        statement=r"A cap $\rho \ge 1$ never lowers the variance: $Var(\varphi_{sur}) \le Var(\varphi^{(\rho)})$.",
        why=TRIVIAL + r" What is traded is nothing: the sides are equal.",
        family=CAPPED,
        sides=cap_costs,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="budgeted-optimal",
        source=THEOREM,
        statement=r"Weights one, which are in the capped set for every $\rho$, have no smaller variance than "
        r"$\varphi^{(\rho)}$, $\rho \ge 1$.",
        why=TRIVIAL,
        family=CAPPED,
        sides=optimal_in_the_set,
        second=optimal_in_the_set_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="budgeted-limit-random-judge",
        source=OURS + " (thm-budgeted-limit)",
        statement=r"$\lim_{\rho \to \infty} Var(\varphi^{(\rho)}) = Var(\varphi_{sur})$ with a judge that is random "
        r"given $(X, A)$.",
        why=r"The set keeps its monotonicity at every $\rho$: the limit has $m_\uparrow$, not m.",
        family=CAPPED_RANDOM,
        sides=budgeted_limit,
        second=budgeted_limit_again,
        relation="==",
        condition="m rises with the judge's level",
        restrict=weights_rise,
        **LEFT_RAISED,
    ),
    over_worlds(
        name="budgeted-trade-random-judge",
        source=OURS
        + r" (budgeted-trade), and for a cap that binds, $\rho < 1$, which the paper leaves undefined",
        statement=r"A cap that binds ($\rho < 1$) raises the variance: $Var(\varphi^{(1)}) \le Var(\varphi^{(\rho)})$.",
        why=r"It shrinks the weights of a residual, and with them the variance: what it costs is bias.",
        family=CAPPED_RANDOM,
        sides=capped_is_dearer,
        second=lambda w: apart(*(budgeted_again(w, share) for share in (1.0, float(w["share"])))),
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="budgeted-optimal-random-judge",
        source=OURS + " (budgeted-optimal)",
        statement=r"No weights in the capped set have a smaller variance than $\varphi^{(\rho)}$ with a judge that is "
        r"random given $(X, A)$.",
        why=r"$m_\rho$ is nearest to m, not cheapest: weights one are in the set for every $\rho$.",
        family=CAPPED_RANDOM,
        sides=optimal_in_the_set,
        second=optimal_in_the_set_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="budgeted-blend",
        source="ours: repairs thm-budgeted-limit (docs/claims/variance_cap.md)",
        statement=r"Where the cap binds the projection is the blend $1 + \alpha (m_\uparrow - 1)$ of the guard.",
        why=r"The nearest point of a cone cut by a ball around its apex is that of the cone, scaled.",
        family=LEVELS,
        sides=blend_is_nearest,
        second=blend_is_nearest_again,
        repairs="thm-budgeted-limit",
        **LEFT_RAISED,
    ),
)
