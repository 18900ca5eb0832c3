"""Importance weights on the judge's scale: conditional means, monotone projections, stacking, the variance guard.

Populations are finite: levels of the judge with their mass under the logger, the mean weight ``m*(s) = E0[W | S = s]``
and the calibrated reward R(s); stabilised weights are the limits of the paper's (monotone candidates, their stack of
least variance, the guard). Samples are vectors of weights and scores.
"""

import numpy as np

from cje_core.calibration.isotonic import isotonic
from cje_core.offpolicy.simplex import simplex_qp
from cje_core.streams import generator
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, masses, over_worlds

ROWS = 4000  # simulated rows of a batch


def levels(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Judge levels with masses, mean weights and rewards in (0, 1); responses within a level differ in W by "
    "`spread`.
    """
    q, m, reward, spread = z.reshape(4, size)
    return {
        "logger": np.exp(q).tolist(),
        "weight": np.exp(m).tolist(),
        "reward": (1 / (1 + np.exp(-reward))).tolist(),
        "spread": np.tanh(np.abs(spread)).tolist(),
    }


LEVELS = Family((2, 3, 5), lambda size: 4 * size, levels)


def population(w: Params) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mass, mean weight (mean one) and reward of each level."""
    q = masses(w["logger"])
    m, r = np.asarray(w["weight"], float), np.asarray(w["reward"], float)
    if not (q.min() > 1e-6 and (m >= 0).all() and float(q @ m) > 0):
        raise ClaimError("a level has no mass")
    return q, m / float(q @ m), r


def candidates(q: FloatArray, m: FloatArray) -> FloatArray:
    """The constant, the rising and the falling projection of the weights, shape (3, levels)."""
    return np.stack([np.ones_like(m), isotonic(m, q)[0], isotonic(m[::-1], q[::-1])[0][::-1]])


def stacked(q: FloatArray, m: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights of the stack of least variance of W R, and its shares."""
    parts = candidates(q, m)
    moved = parts * r
    moved = moved - (moved @ q)[:, None]
    share = simplex_qp((moved * q) @ moved.T)
    return share @ parts, share


def calibrated_value(w: Params) -> Sides:
    """Limit of calibrated IPS against V, both ``E0[weight R]``; with ``consistent`` the weights tend to those of R2."""
    q, m, r = population(w)
    if w.get("consistent"):  # the rising projection, which is m* where that rises
        return Sides(float(q @ (isotonic(m, q)[0] * r)), float(q @ (m * r)))
    weight, _ = stacked(q, m, r)
    spread = float(q @ (weight - 1) ** 2)
    weight = 1 + min(1.0, spread**-0.5 if spread > 1 else 1.0) * (weight - 1)
    return Sides(float(q @ (weight * r)), float(q @ (m * r)))


def calibrated_sample(w: Params) -> Sides:
    """The same on simulated rows: candidates out of fold, the stack by a grid over the simplex."""
    from cje_core.offpolicy.weights import stabilise

    q, m, r = population(w)
    grid = [(1 - b - c, b, c) for b in np.linspace(0, 1, 41) for c in np.linspace(0, 1 - b, 41)]

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        level = rng.choice(len(q), ROWS, p=q)
        raw, reward = m[level] / m[level].mean(), r[level]
        parts = stabilise(raw, level.astype(float), reward, rng.integers(0, 5, ROWS)).candidate
        sigma = np.cov(parts * reward)
        share = np.array(min(grid, key=lambda b: float(np.array(b) @ sigma @ np.array(b))))
        stack = share @ parts / (share @ parts).mean()
        weight = 1 + min(1.0, 1 / max(float(stack.std()), 1e-9)) * (stack - 1)
        return float((weight * reward).mean()), float((raw * reward).mean())

    return batches(batch, generator(0, "claims", "weights", "calibrated"))


def constant_wins(w: Params) -> Sides:
    """Whether the stack is the constant, against ``cov(R, w_c R) >= Var(R)`` of both candidates; both as 0 or 1."""
    q, m, r = population(w)
    weight, _ = stacked(q, m, r)
    center = float(q @ r)
    variance = float(q @ (r - center) ** 2)
    gaps = [float(q @ ((r - center) * c * r)) - variance for c in candidates(q, m)[1:]]
    spread = [float(q @ (c - 1) ** 2) for c in candidates(q, m)[1:]]
    if any(abs(g) < 1e-6 * variance and s > 1e-12 for g, s in zip(gaps, spread, strict=True)):
        raise ClaimError("a tie")
    return Sides(1.0 + float(np.ptp(weight) < 1e-9), 1.0 + float(min(gaps) >= -1e-12))


def rising_candidate(w: Params) -> Sides:
    """V against the value of the rising projection, for a reward that rises."""
    q, m, r = population(w)
    r = np.sort(r)
    return Sides(float(q @ (m * r)), float(q @ (isotonic(m, q)[0] * r)))


def conditional_value(w: Params) -> Sides:
    """``E0[m*(S) R]`` against ``E0[W R]``, with two responses in each level."""
    q, m, r = population(w)
    s = np.asarray(w["spread"], float)
    pairs = q / 2 * (m * (1 - s) + m * (1 + s))
    return Sides(float(q @ (m * r)), float(pairs @ r))


def conditional_variance(w: Params) -> Sides:
    """``Var(m*(S) R)`` against ``Var(W R)``."""
    q, m, r = population(w)
    s = np.asarray(w["spread"], float)
    value = float(q @ (m * r))
    low, high = m * (1 - s) * r, m * (1 + s) * r
    return Sides(float(q @ (m * r - value) ** 2), float(q @ ((low - value) ** 2 + (high - value) ** 2)) / 2)


def density_ratio(w: Params) -> Sides:
    """``E0[W | S]`` at the first level against the ratio of the judge's laws there, over responses two a level."""
    q, m, _ = population(w)
    s = np.asarray(w["spread"], float)
    target = np.concatenate([q * m * (1 - s), q * m * (1 + s)]) / 2
    logger = np.concatenate([q, q]) / 2
    level = np.tile(np.arange(len(q)), 2)
    conditional = float((target / logger)[level == 0] @ logger[level == 0]) / float(logger[level == 0].sum())
    return Sides(conditional, float(target[level == 0].sum()) / float(logger[level == 0].sum()))


def inflation(w: Params) -> Sides:
    """Variance of SNIPS over that of as many target draws, against ``E0[W^2]``; Y is R with noise-free levels."""
    q, m, r = population(w)
    value = float(q @ (m * r))
    square = (r - value) ** 2 + w.get("noise", 0.0) ** 2
    base = float(q @ (m * square))
    if not base > 1e-9:
        raise ClaimError("the outcome is constant")
    return Sides(float(q @ (m**2 * square)) / base, float(q @ m**2))


def inflation_by_simulation(w: Params) -> Sides:
    """The same from simulated logged and target rows."""
    q, m, r = population(w)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        logged, drawn = rng.choice(len(q), ROWS, p=q), rng.choice(len(q), ROWS, p=masses((q * m).tolist()))
        value = r[drawn].mean()
        return float((m[logged] ** 2 * (r[logged] - value) ** 2).mean() / r[drawn].var()), float(
            (m[logged] ** 2).mean()
        )

    return batches(batch, generator(0, "claims", "weights", "inflation"))


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="conditional-weight-variance",
        source="eq:orth and below: Var(W U) >= Var(m* U) for every U(S)",
        statement=r"$Var(m^*(S) R(S)) \le Var(W R(S))$",
        why=r"$m^*(S) R = E_0[W R | S]$, and conditioning lowers the variance.",
        family=LEVELS,
        sides=conditional_variance,
        planted="half of the right side",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="weight-density-ratio",
        source="Section 3, remark (transport view)",
        statement=r"$m^*(s) = p_{S|\pi'}(s) / p_{S|\pi_0}(s)$",
        why=r"$E_0[W 1\{S=s\}] = P_{\pi'}(S=s)$, divided by $P_0(S=s)$.",
        family=LEVELS,
        sides=density_ratio,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="prop-calips-mean",
        source="Proposition (Cal-IPS: mean correctness), prop:calips",
        statement=r"calibrated IPS with exact weights and known rewards R(S) tends to $V(\pi') = E_0[W R]$",
        why=r"The stack minimises a variance; nothing in it keeps $E_0[\hat W R]$. Where it chooses the constant the "
        r"estimate is the logger's value, and a projection on the wrong direction pools what differs. The paper's "
        r"conditions: its proof lets $\hat W \to m^*_\rho$ (R2 of the appendix), the monotone projection of W, "
        r"which is $m^* = E_0[W | S]$ where that is monotone; the algorithm it prints stacks by least variance and "
        r"violates R2, also where $m^*$ itself is among the candidates. Our world: a judge of 2 to 5 levels, weights "
        r"and rewards of each level known.",
        rule="limits of stack and guard for finite judges, against enumeration; then the estimator's own weights "
        "on rows",
        family=LEVELS._replace(effort=0.3),
        sides=calibrated_value,
        relation="==",
        second=calibrated_sample,
        condition=r"R2 is satisfied and $m^*(S) = E_0[W | S]$ rises with S",
        restrict=lambda w: {**w, "weight": sorted(w["weight"]), "consistent": 1},
        planted="1.2 V as the limit",
        falsified=lambda s: Sides(s.left, 1.2 * s.right),
    ),
    over_worlds(
        name="calips-constant-wins",
        source="ours: on prop:calips: when does the stack put all weight on a constant?",
        statement=r"the stack is constant exactly if $cov(R, w_c R) \ge Var(R)$ for the rising and the falling "
        r"candidate $w_c$",
        why=r"The constant is a vertex of the simplex; it is the minimum of the convex $\beta'\Sigma\beta$ "
        r"exactly if no "
        r"direction towards another vertex descends: $\Sigma_{0c} \ge \Sigma_{00}$.",
        family=LEVELS._replace(effort=0.3),
        sides=constant_wins,
        relation="==",
        planted="always",
        falsified=lambda s: Sides(s.left, 2.0),
    ),
    over_worlds(
        name="calips-rising-bias",
        source="ours: on prop:calips: the sign of the bias",
        statement=r"with the rising candidate alone and R rising, the limit is at least V",
        why=r"For the projection on a convex cone $\langle m^* - \Pi m^*, h \rangle \le 0$ for every h of the "
        r"cone; take "
        r"h = R. Equality where $m^*$ rises or R is constant on each pooled block.",
        family=LEVELS,
        sides=rising_candidate,
        planted="V times 1.1",
        falsified=lambda s: Sides(1.1 * s.left, s.right),
    ),
    over_worlds(
        name="calips-repaired",
        source="ours: in place of prop:calips",
        statement=r"$E_0[m^*(S) R(S)] = E_0[W R(S)] = V$: weights averaged within the judge's levels, not projected on "
        r"monotone ones",
        why=r"An identity, the tower property: the search can only show a slip of "
        r"the code. The price: no variance is saved beyond `conditional-weight-variance`; all that "
        r"monotone stacks save beyond it is bias where $m^*$ is not monotone.",
        family=LEVELS,
        sides=conditional_value,
        relation="==",
        repairs="prop-calips-mean",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="gate-ess-inflation",
        source="tab:gates and threshold calibration (i): ESS/n >= f bounds variance inflation to 1/f",
        statement=r"$n Var(SNIPS) / Var_{\pi'}(Y) \le E_0[W^2]$, the limit of $n/ESS$",
        why=r"The inflation is $E_{\pi'}[W (Y-V)^2] / E_{\pi'}[(Y-V)^2]$, a mean of W that weighs responses by their "
        r"squared error: up to the largest weight. It is $E_{\pi'}[W] = E_0[W^2]$ where squared errors and W are "
        r"unrelated.",
        family=LEVELS,
        sides=inflation,
        second=inflation_by_simulation,
        condition=r"$(Y - V)^2$ has the same mean at every weight (here: noise of one size around V)",
        restrict=lambda w: {**w, "reward": [0.5] * len(w["reward"]), "noise": 1.0},
        planted="half the bound",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
)
