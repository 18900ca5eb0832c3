"""The cost of a mean: the bound with missing labels, and labels that are not spread evenly.

Direct mode: n responses are judged and a share of them is labelled. ``q = E[Y | X, A, S]``, v its residual variance;
the variance of an efficient estimate is the bound divided by n.
"""

import numpy as np

from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import bound, project, variance
from cje_sim.exact.judged_means import parts, two_phase
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.judged import LEFT_RAISED, RIGHT_LOWERED, SMALL, inside, law, model, sums
from studies.ledger.worlds import Family, FloatArray, over_worlds

DIRECT = 'Proposition "Direct: EIF and one-step estimator", prop:direct-eif'
LAW = 'Proposition "Square Root Allocation Law", prop:sqrt-allocation'


def direct_is_canonical(w: Params) -> Sides:
    """The printed gradient against the projection, design known: bound plus squared distance, and bound."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    candidate = judge_models.augmented_mean(m, space)
    canonical = project(space, candidate, judge_models.tangent(m, space, known="l"))
    gap = float(space.probability @ (candidate - canonical) ** 2)
    return Sides(variance(space, canonical) + gap, variance(space, canonical))


def direct_is_canonical_again(w: Params) -> Sides:
    """Its variance against the bound from finite differences of the mean, design unknown."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    full = judge_models.tangent(m, space)
    return Sides(
        variance(space, judge_models.augmented_mean(m, space)),
        bound(space, judge_models.mean_label(m, space), full),
    )


N_RESPONSES = 1000.0


def additive(w: Params) -> Sides:
    """The bound over n, and ``Var q / n + E v / m`` with m labels."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    full = judge_models.tangent(m, space)
    t, labels = sums(m), N_RESPONSES * float(w["share"])
    phi = project(space, judge_models.augmented_mean(m, space), full)
    whole = t.variance(np.broadcast_to(t.reward, t.joint.shape))
    return Sides(variance(space, phi) / N_RESPONSES, whole / N_RESPONSES + t.mean(t.noise) / labels)


def additive_again(w: Params) -> Sides:
    """The same by the two-phase formula on the listed cells."""
    m = model(w, complete=False)
    joint = (m.prompt[:, None, None] * m.logger[:, :, None] * m.judge)[..., None] * m.label
    cells = joint.reshape(-1, len(m.values))
    split = parts(cells[cells.sum(axis=1) > 0], m.values)
    t, labels = sums(m), N_RESPONSES * float(w["share"])
    whole = t.variance(np.broadcast_to(t.reward, t.joint.shape))
    return Sides(
        two_phase(split.whole, split.bound, N_RESPONSES, labels),
        whole / N_RESPONSES + t.mean(t.noise) / labels,
    )


def designs(z: FloatArray, k: int) -> Params:
    """Masses of k levels of (x, a, s), residual standard deviations, a design of the labels, Var(q), prices."""
    mass, noise, design, money = np.split(inside(z), [k, 2 * k, 3 * k])
    found = {"mass": mass.tolist(), "noise": noise.tolist(), "design": design.tolist()}
    return found | dict(zip(("evaluation", "judging", "labelling"), money.tolist(), strict=True))


DESIGNS = Family((2, 3, 5), lambda k: 3 * k + 3, designs)


def proportional(mass: FloatArray, noise: FloatArray, mean: float) -> FloatArray:
    """Label probabilities ``min(1, c sd)`` whose mean is `mean`."""
    order = np.argsort(-noise)
    e = np.ones(len(mass))
    for k in range(len(mass)):  # the k noisiest levels are labelled always
        rest = order[k:]
        left = mean - mass[order[:k]].sum()
        scale = left / (mass[rest] @ noise[rest])
        if scale * noise[rest].max() <= 1:
            e[rest] = scale * noise[rest]
            break
    return e


def neyman(w: Params) -> Sides:
    """``E[v / e]`` of labels in proportion to the residual standard deviation, and of the design given: equal cost."""
    mass, noise, design = law(w["mass"]), np.asarray(w["noise"], float), np.asarray(w["design"], float)
    if not ((design > 0) & (design <= 1)).all() or not (noise > 0).all():
        raise ClaimError("label probabilities lie in (0, 1], standard deviations are positive")
    best = proportional(mass, noise, float(mass @ design))
    return Sides(float(mass @ (noise**2 / best)), float(mass @ (noise**2 / design)))


def even(w: Params) -> Sides:
    """``E[v / e]`` of labels spread evenly, and of the design given, at equal cost."""
    mass, noise, design = law(w["mass"]), np.asarray(w["noise"], float), np.asarray(w["design"], float)
    return Sides(float(mass @ noise**2 / (mass @ design)), float(mass @ (noise**2 / design)))


def even_again(w: Params) -> Sides:
    """The same level by level."""
    total = sum(w["mass"])
    share = sum(p / total * e for p, e in zip(w["mass"], w["design"], strict=True))
    left = sum(p / total * s * s / share for p, s in zip(w["mass"], w["noise"], strict=True))
    right = sum(p / total * s * s / e for p, s, e in zip(w["mass"], w["noise"], w["design"], strict=True))
    return Sides(left, right)


def cost_bound(w: Params) -> Sides:
    """``(sqrt(c_S Var q) + sqrt(c_Y) E sd)^2``, and variance times cost of a design, per unit of budget."""
    mass, noise, design = law(w["mass"]), np.asarray(w["noise"], float), np.asarray(w["design"], float)
    if not (design > 0).all():
        raise ClaimError("label probabilities must be positive")
    evaluation, judging, labelling = (float(w[name]) for name in ("evaluation", "judging", "labelling"))
    if min(evaluation, judging, labelling) <= 0:
        raise ClaimError("variances and prices must be positive")
    least = (np.sqrt(judging * evaluation) + np.sqrt(labelling) * (mass @ noise)) ** 2
    variance = evaluation + mass @ (noise**2 / design)
    return Sides(float(least), float(variance * (judging + labelling * (mass @ design))))


def cost_attained(w: Params) -> Sides:
    """Variance times cost of ``e = sqrt(c_S v / (c_Y Var q))``, judging so cheap that e <= 1; the bound."""
    noise = np.asarray(w["noise"], float)
    if not (noise > 0).all() or float(w["evaluation"]) <= 0 or float(w["labelling"]) <= 0:
        raise ClaimError("standard deviations, variances and prices must be positive")
    judging = min(float(w["judging"]), float(w["labelling"] * w["evaluation"] / noise.max() ** 2))
    best = noise * np.sqrt(judging / (w["labelling"] * w["evaluation"]))
    sides = cost_bound({**w, "judging": judging, "design": best.tolist()})
    return Sides(sides.right, sides.left)


CLAIMS = (
    over_worlds(
        name="direct-eif-canonical",
        source=DIRECT,
        statement=r"$q - \theta + \frac{L}{e} (Y - q)$ is the canonical gradient of the mean with labels missing "
        r"at random.",
        why=r"It lies in the tangent space and is a gradient; a known design takes away directions along which the "
        r"mean does not move.",
        family=SMALL,
        sides=direct_is_canonical,
        second=direct_is_canonical_again,
        relation="==",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="direct-bound-additive",
        source=LAW + ": its premise, at the efficiency bound",
        statement=r"The bound is $Var(q) / n + E[v] / m$ exactly: $\sigma^2_{eval} = Var(q)$, $\sigma^2_{cal} = E[v]$.",
        why=r"The two parts of the gradient are uncorrelated, and $e = m / n$.",
        family=SMALL,
        sides=additive,
        second=additive_again,
        relation="==",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="even-labels",
        source="ours: whether another design of the labels than the square-root law's, labels at random, is cheaper; "
        "the paper allows for e(Z)",
        statement=r"Of all designs with the same number of labels, labels spread evenly have the smallest $E[v / e]$.",
        why=r"$E[v/e] E[e] \ge (E \sqrt v)^2$ with equality for $e \propto \sqrt v$.",
        family=DESIGNS,
        sides=even,
        second=even_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="even-labels-repaired",
        source="ours: repairs even-labels",
        statement=r"$e = \min(1, c \sqrt v)$ has the smallest $E[v / e]$ of all designs with the same mean.",
        why=r"Convex in e; the condition of Karush, Kuhn and Tucker.",
        family=DESIGNS,
        sides=neyman,
        repairs="even-labels",
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="cost-bound",
        source="ours: repairs even-labels (docs/claims/label_budget.md)",
        statement=r"Variance times budget is at least $(\sqrt{c_S Var(q)} + \sqrt{c_Y} E \sqrt v)^2$ in any "
        r"design; the square-root law for labels at random has $\sqrt{E v}$ for $E \sqrt v$.",
        why=r"Cauchy-Schwarz on $(Var(q) + E[v/e]) (c_S + c_Y E[e])$.",
        family=DESIGNS,
        sides=cost_bound,
        repairs="even-labels",
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="cost-bound-attained",
        source="ours: repairs even-labels (docs/claims/label_budget.md)",
        statement=r"$e = \sqrt{c_S v / (c_Y Var(q))}$ attains it where that is at most one.",
        why=r"Equality in Cauchy-Schwarz: $c_Y e^2 / v = c_S / Var(q)$.",
        family=DESIGNS,
        sides=cost_attained,
        relation="==",
        repairs="even-labels",
        **LEFT_RAISED,
    ),
)
