"""The cost of a mean: missing labels, the square-root law, and labels that are not spread evenly.

Direct mode: n responses are judged and a share of them is labelled. ``q = E[Y | X, A, S]``, v its residual variance;
the variance of an efficient estimate is the bound divided by n.
"""

import numpy as np

from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import bound, project, variance
from cje_sim.exact.judged_means import parts, two_phase
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.judged import LEFT_RAISED, RIGHT_LOWERED, SMALL, FloatArray, inside, law, model, sums
from studies.ledger.worlds import Family, over_worlds

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


def prices(z: FloatArray, size: int) -> Params:
    """Variances, prices, and the share labelled by somebody else's plan; the budget is one."""
    del size
    names = ("evaluation", "calibration", "judging", "labelling", "share")
    return dict(zip(names, inside(z).tolist(), strict=True))


PRICES = Family((1,), lambda size: 5, prices)


def spent(w: Params, n: float, m: float) -> float:
    """Variance of a plan."""
    return float(w["evaluation"] / n + w["calibration"] / m)


def share_of(w: Params) -> float:
    """The law's m / n, before m <= n is asked."""
    if min(float(w[name]) for name in ("evaluation", "calibration", "judging", "labelling", "share")) <= 0:
        raise ClaimError("variances, prices and shares must be positive")
    return float(np.sqrt(w["judging"] * w["calibration"] / (w["labelling"] * w["evaluation"])))


def affordable(w: Params, share: float) -> float:
    """Responses that a budget of one pays for, a share of them labelled."""
    return float(1 / (w["judging"] + w["labelling"] * share))


def closed_form(w: Params) -> Sides:
    """Variances of the law's plan, with m = n = 1 / (c_S + c_Y) where its share exceeds one, and of another plan."""
    best, other = min(1.0, share_of(w)), min(1.0, float(w["share"]))
    n, k = affordable(w, best), affordable(w, other)
    return Sides(spent(w, n, best * n), spent(w, k, other * k))


def printed_corner(w: Params) -> Sides:
    """Variances of the printed plan, n by the closed form and m = min(m, n), and of another plan."""
    ratio, other = share_of(w), min(1.0, float(w["share"]))
    n, k = affordable(w, ratio), affordable(w, other)
    return Sides(spent(w, n, min(1.0, ratio) * n), spent(w, k, other * k))


def printed_corner_again(w: Params) -> Sides:
    """The printed plan by its printed formulas, and the best of a fine grid of plans."""
    root = np.sqrt(w["judging"] * w["evaluation"]) + np.sqrt(w["labelling"] * w["calibration"])
    n = np.sqrt(w["evaluation"] / w["judging"]) / root
    m = min(np.sqrt(w["calibration"] / w["labelling"]) / root, n)
    grid = np.geomspace(1e-3, 1.0, 20_001)
    k = 1 / (w["judging"] + w["labelling"] * grid)
    return Sides(
        spent(w, float(n), float(m)), float((w["evaluation"] / k + w["calibration"] / (grid * k)).min())
    )


def interior(w: Params) -> Params:
    """The same prices with a calibration variance for which the law's share is at most one."""
    return {**w, "calibration": float(w["calibration"]) / max(1.0, share_of(w)) ** 2}


def designs(z: FloatArray, k: int) -> Params:
    """Masses of k levels of (x, a, s), residual standard deviations, a design of the labels."""
    mass, noise, design = np.split(inside(z), [k, 2 * k])
    return {"mass": mass.tolist(), "noise": noise.tolist(), "design": design.tolist()}


DESIGNS = Family((2, 3, 5), lambda k: 3 * k, designs)


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


CLAIMS = (
    over_worlds(
        name="prop-direct-eif",
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
        name="additive-variance",
        source=LAW + ": the decomposition",
        statement=r"The bound is $Var(q) / n + E[v] / m$ exactly: $\sigma^2_{eval} = Var(q)$, $\sigma^2_{cal} = E[v]$.",
        why=r"The two parts of the gradient are uncorrelated, and $e = m / n$.",
        family=SMALL,
        sides=additive,
        second=additive_again,
        relation="==",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="sqrt-allocation",
        source=LAW,
        statement=r"$m/n = \min\{1, \sqrt{c_S \sigma^2_{cal} / (c_Y \sigma^2_{eval})}\}$ with n what the budget "
        r"pays for has the least variance of all plans.",
        why=r"With $r = m/n$ the variance is $(\sigma^2_{eval} + \sigma^2_{cal}/r)(c_S + c_Y r)/B$, convex in $r$.",
        family=PRICES,
        sides=closed_form,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="sqrt-allocation-corner",
        source=LAW + ': "if the unconstrained optimum exceeds n, set m* = n", n by the closed form',
        statement=r"$n^*$ of the closed form with $m = \min(m^*, n^*)$ has the least variance of all plans.",
        why=r"Cutting m leaves money unspent: at the corner $n = m = B / (c_S + c_Y)$.",
        family=PRICES,
        sides=printed_corner,
        second=printed_corner_again,
        condition="the law's share is at most one",
        restrict=interior,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="even-labels",
        source=LAW + ": its premise, labels at random",
        statement=r"Of all designs with the same number of labels, labels spread evenly have the smallest $E[v / e]$.",
        why=r"$E[v/e] E[e] \ge (E \sqrt v)^2$ with equality for $e \propto \sqrt v$.",
        family=DESIGNS,
        sides=even,
        second=even_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="even-labels-repaired",
        source="repairs even-labels",
        statement=r"$e = \min(1, c \sqrt v)$ has the smallest $E[v / e]$ of all designs with the same mean.",
        why=r"Convex in e; the condition of Karush, Kuhn and Tucker.",
        family=DESIGNS,
        sides=neyman,
        repairs="even-labels",
        **RIGHT_LOWERED,
    ),
)
