"""The calibration-aware jackknife where the isotonic fit has a kink: two judge levels that are worth about the same."""

import math

import numpy as np
from scipy import stats

from cje_core.streams import generator
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, over_worlds


def two_levels(z: FloatArray, size: int) -> dict[str, float]:
    """Two judge levels: sqrt(m) times the gap of their values in label SDs, the upper's share, folds."""
    return {
        "gap": abs(2 * float(z[0])),
        "upper": 0.1 + 0.8 / (1 + math.exp(-float(z[1]))),
        "folds": 2 + round(3 * abs(float(z[2]))),
    }


LEVELS = Family((1,), lambda size: 3, two_levels)


def ramp(mean: float, sd: float) -> tuple[float, float]:
    """Mean and mean square of ``max(0, D)``, D normal."""
    at = mean / sd
    density, mass = float(stats.norm.pdf(at)), float(stats.norm.cdf(at))
    return mean * mass + sd * density, (mean**2 + sd**2) * mass + mean * sd * density


def ramp_product(mean: float, sd: float, correlation: float) -> float:
    """``E[max(0, D) max(0, D')]`` of equal normals: given their common part they are independent; trapezia over it."""
    common = np.linspace(-10, 10, 4001)
    m, s = mean + sd * math.sqrt(correlation) * common, sd * math.sqrt(1 - correlation)
    given = m * stats.norm.cdf(m / s) + s * stats.norm.pdf(m / s)
    return float(np.trapezoid(given**2 * stats.norm.pdf(common), common))


def kinked(w: Params) -> tuple[float, float, float]:
    """Expected jackknife, variance of the fit, and of the fit without one fold, times m, in large samples.

    The isotonic fit of the upper level is ``P + (1 - a) max(0, D)``: P the mean of all labels, a the level's share, D
    the difference of the levels' means, independent of P. Without one fold of K the variance of D is K / (K - 1) times
    as large, and two of these differences have correlation (K - 2) / (K - 1).
    """
    k, a, gap = int(w["folds"]), w["upper"], w["gap"]
    if not (k >= 2 and 0.01 < a < 0.99 and abs(gap) < 1e3):
        raise ClaimError("two folds and labels of both levels are needed")
    sd = math.sqrt(1 / (a * (1 - a)))
    left_out = sd * math.sqrt(k / (k - 1))
    mean, square = ramp(gap, sd)
    mean_out, square_out = ramp(gap, left_out)
    apart = square_out - ramp_product(gap, left_out, (k - 2) / (k - 1))
    return (
        1 + (1 - a) ** 2 * (k - 1) ** 2 / k * apart,
        1 + (1 - a) ** 2 * (square - mean**2),
        k / (k - 1) + (1 - a) ** 2 * (square_out - mean_out**2),
    )


def kink(w: Params) -> Sides:
    """Expected jackknife of the upper level's fit, and the fit's variance."""
    expected, variance, _ = kinked(w)
    return Sides(expected, variance)


def efron_stein(w: Params) -> Sides:
    """``(K - 1) / K`` times the variance of the fit without one fold, and the expected jackknife."""
    expected, _, without = kinked(w)
    return Sides((1 - 1 / int(w["folds"])) * without, expected)


def pooled(mean: FloatArray, share: FloatArray) -> FloatArray:
    """The isotonic fit of the upper of two levels (last axis): its mean, or that of all if they are out of order."""
    together = mean @ share
    return np.where(mean[..., 1] >= mean[..., 0], mean[..., 1], together)


def kink_by_simulation(w: Params) -> Sides:
    """The sides of `kink` from simulated means of folds, fitted with and without each."""
    k, a = int(w["folds"]), w["upper"]
    share = np.array([1 - a, a])

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        fold = np.array([0.0, w["gap"]]) + rng.standard_normal((40_000, k, 2)) * np.sqrt(k / share)
        total = fold.sum(axis=1, keepdims=True)
        without = pooled((total - fold) / (k - 1), share)
        return (k - 1) * float(without.var(axis=1).mean()), float(pooled(total[:, 0] / k, share).var())

    return batches(batch, generator(0, "claims", "jackknife", "kink"))


def exchanged(sides: Sides) -> Sides:
    """Left and right side exchanged."""
    return sides._replace(left=sides.right, right=sides.left)


def steep(w: Params) -> Params:
    """The same with values so far apart that no set of labels pools them."""
    k, a = int(w["folds"]), w["upper"]
    return {**w, "gap": w["gap"] + 9 * math.sqrt(k / (k - 1) / (a * (1 - a)))}


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="prop-oua-isotonic",
        source="Proposition (calibration-aware jackknife), prop:oua: 'isotonic regression's non-smoothness complicates "
        "formal guarantees'",
        statement=r"$m\,E[\widehat{Var}_{cal}] \to m\,Var(V(\hat f))$ with an isotonic calibrator and fixed folds; "
        "here V is the fitted value of the upper of two judge levels",
        why=r"The fit is $P + (1 - a) \max(0, D)$: P the mean of all labels, D the difference of the levels' means, "
        r"independent of P. Where the link rises strictly, $D > 0$ in the end and the functional is linear. Where the "
        r"two levels are worth the same it has a kink at the truth, no Hadamard derivative, and the limit of the ratio "
        r"is not 1: the jackknife's is $E[d^2] - E[dd']$ of two correlated ramps, not the variance of one "
        r"(with two folds they agree at the kink itself, with more they do not). Where "
        r"the link rises by a multiple of $m^{-1/2}$ the ratio lies on either side of 1 (`prop-oua-whole`).",
        rule="closed forms in the limit of large samples, by quadrature; simulated means of folds",
        family=LEVELS._replace(effort=0.2),
        sides=kink,
        second=kink_by_simulation,
        relation="==",
        condition="the link rises strictly (here: by nine standard errors of the difference and more)",
        restrict=steep,
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="prop-oua-upward",
        source="ours: repairs prop-oua-isotonic (docs/claims/jackknife.md)",
        statement=r"$E[\widehat{Var}_{cal}] \ge \frac{K-1}{K} Var(V(\hat f^{(-k)}))$ for any calibrator, smooth or "
        "not, labels independent",
        why="Efron and Stein's inequality. A kink can only make the expected jackknife too large for the estimate "
        "without one fold. For the estimate itself it can be too small, where the gap of two levels is of the order of "
        "its standard error (`prop-oua-whole`).",
        rule="closed forms in the limit of large samples, by quadrature",
        family=LEVELS._replace(effort=0.2),
        sides=efron_stein,
        repairs="prop-oua-isotonic",
        planted="left side times 1.5",
        falsified=lambda s: Sides(1.5 * s.left, s.right),
    ),
    over_worlds(
        name="prop-oua-whole",
        source="ours: prop-oua-upward asked of the estimate itself, not of that without one fold",
        statement=r"$m\,E[\widehat{Var}_{cal}] \ge m\,Var(V(\hat f))$ in large samples; V is the fitted value of the "
        "upper of two judge levels",
        why=r"Without one fold the difference of the levels' means has a larger variance, and at a gap of about its "
        r"standard error that moves the ramp $\max(0, D)$ away from its straight part. How much is lost is line (9) of "
        "docs/claims/jackknife.md.",
        rule="closed forms in the limit of large samples, by quadrature; simulated means of folds",
        family=LEVELS._replace(effort=0.2),
        sides=lambda w: exchanged(kink(w)),
        second=lambda w: exchanged(kink_by_simulation(w)),
        condition="the link rises strictly (here: by nine standard errors of the difference and more)",
        restrict=steep,
        planted="left side times 1.1",
        falsified=lambda s: Sides(1.1 * s.left, s.right),
    ),
)
