"""Projections of a sample of weights: dispersion, the guard, firm non-expansiveness, effective sample size."""

import math

import numpy as np

from cje_core.calibration.isotonic import iso_mean_one, isotonic
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, over_worlds


def sample(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Weights in the order of their scores, and folds."""
    w, fold, other = z.reshape(3, size)
    return {
        "weight": np.exp(w).tolist(),
        "other": np.exp(other).tolist(),
        "fold": [int(v > 0) for v in fold],
        "share": [1.0, 1.0, 1.0],
    }


SAMPLES = Family((2, 3, 4, 6), lambda size: 3 * size, sample)


def mean_one(values: FloatArray) -> FloatArray:
    """Weights divided by their mean."""
    if not (values >= 0).all() or not values.mean() > 1e-9:
        raise ClaimError("the weights have no mean")
    return np.asarray(values / values.mean())


def projected(w: FloatArray, up: bool = True) -> FloatArray:
    """Exact projection on rising or falling weights of mean one."""
    return iso_mean_one(w, np.arange(len(w), dtype=float), up)


def stack_variance(w: Params) -> Sides:
    """Variance of an in-sample stack of exact projections, guarded at rho = 1 relative, against the raw weights'."""
    raw = mean_one(np.asarray(w["weight"], float))
    share = (
        np.abs(np.asarray(w["other"], float))[:2]
        if len(raw) == 2
        else np.abs(np.asarray(w["other"], float))[:3]
    )
    parts = np.stack([np.ones_like(raw), projected(raw), projected(raw, False)])[: len(share)]
    return Sides(float((share / share.sum() @ parts).var()), float(raw.var()))


def out_of_fold(w: Params) -> Sides:
    """Variance of the rising candidate predicted out of fold and divided by its mean, against the raw weights'."""
    raw = mean_one(np.asarray(w["weight"], float))
    fold, place = np.asarray(w["fold"]), np.arange(len(raw), dtype=float)
    if len(set(fold.tolist())) < 2:
        raise ClaimError("one fold")
    out = np.empty_like(raw)
    for k in (0, 1):
        train = fold != k
        fit = isotonic(raw[train], np.ones(int(train.sum())))[0]
        out[fold == k] = np.interp(place[fold == k], place[train], fit / fit.mean())
    return Sides(float(mean_one(out).var()), float(raw.var()))


def guarded_out_of_fold(w: Params) -> Sides:
    """The same after the relative guard at rho = 1."""
    found = out_of_fold(w)
    alpha = min(1.0, math.sqrt(found.right / max(found.left, 1e-300)))
    return Sides(alpha**2 * found.left, found.right)


def out_of_fold_slowly(w: Params) -> Sides:
    """The same with the max-min formula for the isotonic fit, and plain sums."""
    from cje_sim.exact.judged_means import rising

    raw = [v * len(w["weight"]) / sum(w["weight"]) for v in w["weight"]]
    out = []
    for i, k in enumerate(w["fold"]):
        train = [j for j, f in enumerate(w["fold"]) if f != k]
        fit = rising(np.array([raw[j] for j in train]), np.ones(len(train)))
        out.append(float(np.interp(i, train, fit * len(train) / fit.sum())))
    out = [v * len(out) / sum(out) for v in out]
    return Sides(sum((v - 1) ** 2 for v in out) / len(out), sum((v - 1) ** 2 for v in raw) / len(raw))


def guarded(w: Params, absolute: bool) -> Sides:
    """Variance after the guard at rho = 1 against that of the mean-one weights; the stack is any mean-one vector."""
    stack, raw = (mean_one(np.asarray(w[name], float)) for name in ("weight", "other"))
    if not (stack.var() > 1e-9 and raw.var() > 1e-9):
        raise ClaimError("constant weights")
    limit = 1.0 if absolute else float(raw.var())
    alpha = min(1.0, float(np.sqrt(limit / stack.var())))
    return Sides(float((1 + alpha * (stack - 1)).var()), float(raw.var()))


def guard_slowly(w: Params) -> Sides:
    """The absolute guard by search: the largest blend on a grid that keeps the variance at most 1."""
    stack, raw = (np.asarray(w[n], float) / np.mean(w[n]) for n in ("weight", "other"))
    grid = np.linspace(0, 1, 2001)
    spread = [float(np.mean((a * (stack - 1)) ** 2)) for a in grid]
    return Sides(max(v for v in spread if v <= 1.0), float(np.mean((raw - 1) ** 2)))


def wide(w: Params) -> Params:
    """The same world, if the raw weights have a variance of at least one."""
    if mean_one(np.asarray(w["other"], float)).var() < 1:
        raise ClaimError("the variance is below one")
    return w


def firmness(w: Params) -> Sides:
    """``|P x - P y|^2`` against ``<P x - P y, x - y>`` of the exact projection."""
    x, y = np.asarray(w["weight"], float), np.asarray(w["other"], float)
    size = float((x - y) @ (x - y))
    if not size > 1e-3:
        raise ClaimError("the vectors agree")
    move = projected(x) - projected(y)
    return Sides(1 + float(move @ move) / size, 1 + float(move @ (x - y)) / size)


def composed(w: Params) -> Sides:
    """Distance of two vectors after the isotonic fit and a cut to [0, 1], against before."""
    x, y = np.asarray(w["weight"], float), np.asarray(w["other"], float)
    one = np.ones(len(x))
    a, b = (np.clip(isotonic(v, one)[0], 0, 1) for v in (x, y))
    before = float(np.linalg.norm(x - y))
    if not before > 1e-3:
        raise ClaimError("the vectors agree")
    return Sides(1 + float(np.linalg.norm(a - b)) / before, 2.0)


def rescaled(w: Params) -> Sides:
    """Distance of two vectors after the isotonic fit divided by its mean, against before."""
    x, y = np.asarray(w["weight"], float), np.asarray(w["other"], float)
    one = np.ones(len(x))
    a, b = (mean_one(isotonic(v, one)[0]) for v in (x, y))
    return Sides(float(np.linalg.norm(a - b)), float(np.linalg.norm(x - y)))


def rescaled_slowly(w: Params) -> Sides:
    """The same with the max-min formula and plain sums."""
    from cje_sim.exact.judged_means import rising

    x, y = np.asarray(w["weight"], float), np.asarray(w["other"], float)
    a, b = (rising(v, np.ones(len(v))) for v in (x, y))
    a, b = a * len(a) / a.sum(), b * len(b) / b.sum()
    return Sides(float(sum((a - b) ** 2) ** 0.5), float(sum((x - y) ** 2) ** 0.5))


def ess_identity(w: Params) -> Sides:
    """Kish's ESS fraction against ``1 / (1 + CV^2)``."""
    v = np.asarray(w["weight"], float)
    return Sides(float(v.sum() ** 2 / (v**2).sum() / len(v)), float(1 / (1 + v.var() / v.mean() ** 2)))


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="prop-calips-dispersion",
        source="Proposition (Cal-IPS: dispersion control), prop:calips, exact projections",
        statement=r"$Var_n(\hat W) \le Var_n(W^{m1})$ for every stack of in-sample exact projections and the constant",
        why="Each candidate has at most the raw variance (majorisation), and a convex mixture of vectors has at most "
        "the largest standard deviation of its parts.",
        family=SAMPLES,
        sides=stack_variance,
        planted="half the variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="calips-dispersion-out-of-fold",
        source="ours: step 1 of weight stabilisation (predict out of fold, rescale) without the guard of prop:calips",
        statement=r"the variance of weights projected out of fold and divided by their mean is at most the raw "
        r"weights'",
        why="A fold's map is fitted on other rows: large weights of one fold are predicted for rows whose own "
        "weights are "
        "small, and the division by the mean then blows them up.",
        family=SAMPLES,
        sides=out_of_fold,
        second=out_of_fold_slowly,
        planted="half the variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="calips-dispersion-guarded",
        source="prop:calips (dispersion) with its guard, weights out of fold",
        statement=r"after the relative guard at $\rho = 1$ the variance is at most the raw weights'",
        why="An identity: the guard's factor is chosen so (`lem-guard`), whatever it is given.",
        family=SAMPLES,
        sides=guarded_out_of_fold,
        planted="half the variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="lem-guard",
        source="Lemma (guard stability), lem:guard, relative cap",
        statement=r"$Var(W^{blend}) \le \rho Var(W^{m1})$ at $\rho = 1$",
        why=r"$Var(1 + \alpha(W - 1)) = \alpha^2 Var(W)$ and $\alpha^2 \le Var(W^{m1}) / Var(W)$.",
        family=SAMPLES,
        sides=lambda w: guarded(w, False),
        planted="half the variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="lem-guard-absolute",
        source="Implementation note after lem:guard: the absolute cap is more conservative when Var(W^m1) > 1",
        statement=r"where $Var(W^{m1}) > 1$, the absolute cap $\rho = 1$ too gives $Var(W^{blend}) \le "
        r"Var(W^{m1})$",
        why=r"The cap bounds the variance by $\rho$; that is below $\rho Var(W^{m1})$ exactly if $Var(W^{m1}) \ge 1$.",
        family=SAMPLES,
        sides=lambda w: guarded(wide(w), True),
        second=guard_slowly,
        planted="half the variance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="lem-firm-nonexpansive",
        source="Lemma (firm non-expansiveness of projections), lem:firm, exact IsoMeanOne",
        statement=r"$\|\Pi x - \Pi y\|^2 \le \langle \Pi x - \Pi y, x - y \rangle$",
        why="The set of rising vectors of mean one is closed and convex.",
        family=SAMPLES,
        sides=firmness,
        planted="half the inner product",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="lem-firm-composition",
        source="lem:firm, compositions",
        statement=r"the isotonic fit followed by a cut to [0, 1] does not expand distances",
        why="Each does not.",
        family=SAMPLES,
        sides=composed,
        planted="half the distance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="lem-firm-rescaled",
        source="ours: lem:firm asked of the rescaled isotonic fit, which App. E.4 does not claim",
        statement=r"the rescaled isotonic fit does not expand distances",
        why="Division by the mean is no projection: near weights of small mean it is steep.",
        family=SAMPLES,
        sides=rescaled,
        second=rescaled_slowly,
        planted="half the distance",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="ess-identity",
        source="Section 2, variance and overlap",
        statement=r"$ESS / n = 1 / (1 + CV^2(W))$",
        why="Algebra; the mean need not be one.",
        family=SAMPLES,
        sides=ess_identity,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
)
