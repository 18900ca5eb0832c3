"""Money: the square-root law, its clip, the spend-balance rule, and labels spread over more prompts."""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from cje_core.streams import generator
from cje_sim.exact.judged_means import parts, two_phase
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, over_worlds


def prices(z: FloatArray, size: int) -> dict[str, float]:
    """Costs, variance components and a budget, with the policies that share the labels."""
    return {
        "judge": float(np.exp(z[0])),
        "oracle": float(np.exp(z[1] + 2)),
        "eval": float(np.exp(z[2])),
        "cal": float(np.exp(z[3])),
        "budget": float(np.exp(z[4] + 6)),
        "policies": 1 + int(abs(z[5]) * 3),
    }


PRICES = Family((1,), lambda size: 6, prices)


def checked(w: Params) -> tuple[float, float, float, float, float]:
    """Costs, components, budget; all positive."""
    out = w["judge"], w["oracle"], w["eval"], w["cal"], w["budget"]
    if not min(out) > 1e-9:
        raise ClaimError("costs, components and budget must be positive")
    return out


def variance(n: float, m: float, w: Params) -> float:
    """``sigma2_eval / n + sigma2_cal / m``."""
    return float(w["eval"] / n + w["cal"] / m)


def law(w: Params) -> tuple[float, float]:
    """The closed form of n* and m*."""
    s, y, e, c, budget = checked(w)
    total = math.sqrt(s * e) + math.sqrt(y * c)
    return budget * math.sqrt(e / s) / total, budget * math.sqrt(c / y) / total


def best_n(w: Params, policies: int = 1) -> float:
    """Brute force: the n of least variance when the rest of the budget buys labels, no constraint m <= n."""
    s, y, _, _, budget = checked(w)
    top = budget / (policies * s)
    found = minimize_scalar(
        lambda t: math.log(variance(top * t, budget * (1 - t) / y, w)),
        bounds=(1e-6, 1 - 1e-6),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return float(top * found.x)


def square_root(w: Params) -> Sides:
    """Variance of the closed form against that of brute force."""
    s, y, _, _, budget = checked(w)
    n = best_n(w)
    return Sides(variance(*law(w), w), variance(n, (budget - s * n) / y, w) * (1 + 1e-9))


def ratio(w: Params) -> Sides:
    """The boxed ratio against that of the closed form."""
    s, y, e, c, _ = checked(w)
    n, m = law(w)
    return Sides(math.sqrt(s / y) * math.sqrt(c / e), m / n)


def spend_balance(w: Params) -> Sides:
    """Share of the calibration variance against the oracle's share of the spend, at the optimum."""
    s, y, _, c, _ = checked(w)
    n, m = law(w)
    return Sides(c / m / variance(n, m, w), y * m / (s * n + y * m))


def shift(w: Params) -> Sides:
    """Off the optimum: variance after moving a thousandth of the spend where the rule says, against before.

    The allocation spends the share ``1 / (1 + policies)`` of the budget on labels.
    """
    s, y, _, c, budget = checked(w)
    share = 1 / (1 + w["policies"])
    n, m = budget * (1 - share) / s, budget * share / y
    omega = c / m / variance(n, m, w)
    if abs(omega - share) < 0.01:
        raise ClaimError("balanced already")
    moved = share + math.copysign(1e-3, omega - share)
    return Sides(variance(budget * (1 - moved) / s, budget * moved / y, w), variance(n, m, w))


def clipped(w: Params) -> Sides:
    """Where the law wants m > n: variance of n*, m = n* against that of the whole budget at m = n.

    With ``whole`` the clip keeps the budget, not n*: ``n = m = B / (c_S + c_Y)`` against brute force.
    """
    if w.get("whole"):
        return clip_repaired(w)
    s, y, _, _, budget = checked(w)
    n, m = law(w)
    if not m > 1.02 * n:
        raise ClaimError("the constraint does not bind")
    both = budget / (s + y)
    return Sides(variance(n, n, w), variance(both, both, w))


def clipped_by_grid(w: Params) -> Sides:
    """The same against the best of all whole numbers m <= n that the budget buys."""
    s, y, _, _, budget = checked(w)
    n_law = law(w)[0]
    scale = 1000 * (s + y) / budget  # in units that leave a thousand pairs
    least = math.inf
    for m in range(1, 1200):
        n = (budget * scale - y * m) / s
        if n >= m:
            least = min(least, w["eval"] / n + w["cal"] / m)
    return Sides(variance(n_law, n_law, w), least * scale)


def clip_repaired(w: Params) -> Sides:
    """Variance of ``n = m = B / (c_S + c_Y)`` against brute force over m <= n, where the law wants m > n."""
    s, y, _, _, budget = checked(w)
    n, m = law(w)
    if not m > 1.02 * n:
        raise ClaimError("the constraint does not bind")
    both = budget / (s + y)
    grid = both * np.linspace(1e-3, 1, 400)
    least = min(variance((budget - y * x) / s, x, w) for x in grid)
    return Sides(variance(both, both, w), least * (1 + 1e-9))


def amortised(w: Params) -> Sides:
    """The ratio ``sqrt(P c_S sigma2_cal / (c_Y sigma2_eval))`` against brute force at P judged policies."""
    s, y, e, c, budget = checked(w)
    n = best_n(w, w["policies"])
    m = (budget - w["policies"] * s * n) / y
    return Sides(round(math.sqrt(w["policies"] * s * c / (y * e)) / (m / n), 4), 1.0)


def additive(w: Params) -> Sides:
    """Exact variance of the efficient mean of n scores and m labels, against ``sigma2_eval / n + sigma2_cal / m``."""
    law_ = np.asarray(w["law"], float) / np.sum(w["law"])
    found = parts(law_, np.arange(law_.shape[1], dtype=float))
    n, m = 1000.0, 100.0
    return Sides(two_phase(found.whole, found.bound, n, m), (found.whole - found.bound) / n + found.bound / m)


def judged(z: FloatArray, size: int) -> dict[str, list[list[float]]]:
    """Joint law of a judge with `size` levels and a label with two."""
    return {"law": np.exp(z).reshape(size, 2).tolist()}


JUDGED = Family((2, 3, 5), lambda size: 2 * size, judged)


def spread_at_labels(w: Params) -> Sides:
    """Variance at twice the scored prompts, against that at n, at the same number of labels."""
    law_ = np.asarray(w["law"], float) / np.sum(w["law"])
    found = parts(law_, np.arange(law_.shape[1], dtype=float))
    return Sides(
        two_phase(found.whole, found.bound, 2000, 100), two_phase(found.whole, found.bound, 1000, 100)
    )


def spread_at_budget(w: Params) -> Sides:
    """Variance with twice the prompts and the labels that are left of the budget, against before.

    Before: 1,000 prompts, 250 labels, a label at 16 scores; 1,000 prompts more cost 62.5 labels.
    """
    law_ = np.asarray(w["law"], float) / np.sum(w["law"])
    found = parts(law_, np.arange(law_.shape[1], dtype=float))
    after = two_phase(found.whole, found.bound, 2000, 250 - 1000 / 16)
    return Sides(after, two_phase(found.whole, found.bound, 1000, 250))


def spread_by_simulation(w: Params) -> Sides:
    """The same from simulated means, E[Y | S] known: scores of all prompts, labels of the first."""
    law_ = np.asarray(w["law"], float) / np.sum(w["law"])
    value = law_[:, 1] / law_.sum(axis=1)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        out = []
        for n, m in ((2000, 188), (1000, 250)):
            cell = rng.choice(law_.size, (200, n), p=law_.ravel())
            s, y = cell // 2, cell % 2
            theta = value[s].mean(axis=1) + (y[:, :m] - value[s[:, :m]]).mean(axis=1)
            out.append(float(theta.var()))
        return out[0], out[1]

    return batches(batch, generator(0, "claims", "budget", "spread"))


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="prop-sqrt-allocation",
        source="Proposition (Square Root Allocation Law), prop:sqrt-allocation, closed form",
        statement=r"$n^*, m^*$ have the least $\sigma^2_{eval}/n + \sigma^2_{cal}/m$ that the budget buys",
        why="Lagrange; by Cauchy and Schwarz the least is "
        r"$(\sqrt{c_S\sigma^2_{eval}} + \sqrt{c_Y\sigma^2_{cal}})^2 / B$.",
        family=PRICES._replace(effort=0.2),
        sides=square_root,
        planted="half the variance of brute force",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="sqrt-ratio",
        source="prop:sqrt-allocation, boxed ratio",
        statement=r"$m^*/n^* = \sqrt{c_S/c_Y} \sqrt{\sigma^2_{cal}/\sigma^2_{eval}}$",
        why="Division of the closed forms.",
        family=PRICES,
        sides=ratio,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="sqrt-clip",
        source="prop:sqrt-allocation, 'If the unconstrained optimum exceeds n, set m* = n'",
        statement="where the law wants more labels than prompts, setting m = n has the least variance of all "
        "affordable m <= n; read with n* kept",
        why="The clip leaves the money of the labels that it does not buy unspent.",
        family=PRICES,
        sides=clipped,
        second=clipped_by_grid,
        condition=r"the budget is kept in place of n*: $n = m = B / (c_S + c_Y)$",
        restrict=lambda w: {**w, "whole": 1},
        planted="half of the other's variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="sqrt-clip-repaired",
        source="ours: prop:sqrt-allocation, 'set m* = n' read with the budget kept",
        statement=r"there $n = m = B / (c_S + c_Y)$ has the least variance",
        why="The variance is convex along the budget line, so the constrained optimum is the corner nearest to "
        "the free "
        "one.",
        family=PRICES,
        sides=clip_repaired,
        repairs="sqrt-clip",
        planted="half of brute force",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="spend-balance",
        source="app:budget, Spend-Balance Rule",
        statement=r"at the optimum $\omega = c_Y m / (c_S n + c_Y m)$",
        why=r"Both are $\sqrt{c_Y\sigma^2_{cal}} / (\sqrt{c_S\sigma^2_{eval}} + \sqrt{c_Y\sigma^2_{cal}})$.",
        family=PRICES,
        sides=spend_balance,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="spend-balance-direction",
        source="app:budget, under- and over-labelled",
        statement=r"moving money towards labels where $\omega$ exceeds their share of the spend, away where it is "
        r"less, "
        "lowers the variance",
        why=r"With the share x on labels the variance is $a/(1-x) + b/x$, convex, and its slope has the sign of "
        r"$x - \omega$.",
        family=PRICES,
        sides=shift,
        planted="by half",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="multi-policy-amortisation",
        source="app:budget, Multi-Policy Amortization",
        statement=r"$m^*/n = \sqrt{P c_S \sigma^2_{cal} / (c_Y \sigma^2_{eval})}$ for P policies and shared labels",
        why="The law with P times the judge's cost; ratio to brute force, to four digits.",
        family=PRICES._replace(effort=0.2),
        sides=amortised,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="variance-additive",
        source="prop:sqrt-allocation, its premise",
        statement=r"$Var(\hat\theta) = \sigma^2_{eval}/n + \sigma^2_{cal}/m$ with $\sigma^2_{eval} = Var E[Y|S]$ and "
        r"$\sigma^2_{cal} = E Var(Y|S)$, for the efficient mean",
        why=r"$Var(Y)/n + E Var(Y|S)(1/m - 1/n)$, rearranged. The m labelled prompts are among the n: the same "
        r"data teach "
        "and are evaluated, and the sum is exact all the same.",
        family=JUDGED,
        sides=additive,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="spread-labels",
        source="Sample size planning: for a fixed label budget, larger n with a lower fraction wins",
        statement="at a fixed number of labels the variance falls with the number of scored prompts",
        why=r"$\partial Var / \partial n = -Var E[Y|S] / n^2$.",
        family=JUDGED,
        sides=spread_at_labels,
        planted="by nine tenths",
        falsified=lambda s: Sides(s.left, 0.1 * s.right),
    ),
    over_worlds(
        name="spread-labels-budget",
        source="ours: 'spread labels across more samples', for which the paper fixes the number of labels, at a fixed "
        "budget",
        statement="the same holds when the prompts must be paid from the same budget (a label at 16 scores, 25% "
        "of 1,000 "
        "labelled at first)",
        why="More prompts cost labels; by the spend-balance rule that pays only where labels have more than "
        "their share.",
        family=JUDGED,
        sides=spread_at_budget,
        second=spread_by_simulation,
        planted="by nine tenths",
        falsified=lambda s: Sides(s.left, 0.1 * s.right),
    ),
)
