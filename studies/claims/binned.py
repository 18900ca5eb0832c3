"""Binned audits of transport: which variance their joint test takes, and whether it keeps its size."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from cje_core.streams import generator
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, over_worlds


def bin_tests(rates: FloatArray, each: int, rng: np.random.Generator, reps: int) -> dict[str, float]:
    """Shares of rejections at 5% by tests over bins of binary residuals whose mean is zero in every bin.

    ``pooled`` and ``own``: the sum of squared residuals over one estimated variance, or over each bin's own, to a
    chi-squared; a bin without variance counts if its residual is not 0. ``anova``: the pooled sum to an F law by the
    bins' own variances, the calibrator known; ``floored``: the same by those of the null where they add up to more.
    """
    hits = rng.binomial(each, rates, size=(reps, len(rates)))
    square = (hits / each - rates) ** 2
    own = hits / each * (1 - hits / each) / (each - 1)  # of a bin's mean
    edge = stats.chi2.isf(0.05, len(rates))
    pooled_sum = (square / np.maximum(own.mean(axis=1, keepdims=True), 1e-12)).sum(axis=1)
    own_sum = (square / np.maximum(own, 1e-12)).sum(axis=1)
    return {
        "pooled": float((pooled_sum > edge).mean()),
        "own": float((own_sum > edge).mean()),
        "anova": float(anova_type(square, own, each).mean()),
        "floored": float(anova_type(square, larger(own, rates, each), each).mean()),
    }


def larger(own: FloatArray, rates: FloatArray, each: int) -> FloatArray:
    """Variances of the bins' means, shape (n, bins): those of the null where the estimated ones add up to less."""
    null = rates * (1 - rates) / each
    return np.where(own.sum(axis=1, keepdims=True) < null.sum(), null, own)


def anova_type(square: FloatArray, own: FloatArray, each: int) -> npt.NDArray[np.bool_]:
    """Whether squared mean residuals of bins of equal size, shape (..., bins), are rejected at 5%, f known.

    ``own``: variances of the bins' means. Never without any variance: 0 / 0 is no test.
    """
    total, squares = own.sum(axis=-1), (own**2).sum(axis=-1)
    some = total > 0
    shape = total**2 / np.where(some, squares, 1.0) * (each + 1)
    df = np.clip(shape / (each - 1), 1.0, own.shape[-1])
    ratio = square.sum(axis=-1) / np.where(some, total, 1.0)
    p_value = special.fdtrc(df, np.where(some, shape, 1.0), ratio)
    return np.asarray(some & (p_value < 0.05), dtype=np.bool_)


def bins(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Label rates of bins, with 40 labels in each."""
    return {"rates": (0.02 + 0.96 / (1 + np.exp(-2 * z))).tolist()}


@lru_cache(maxsize=8)
def squared_normals(size: int) -> FloatArray:
    """Squares of 8,192 quasi-random normal vectors, shape (8192, size)."""
    return np.asarray(stats.norm.ppf(stats.qmc.Sobol(size, seed=0).random(2**13)) ** 2)


def pooled(w: Params) -> Sides:
    """Size with a pooled variance, by moments of the statistic in large bins, against .06.

    It is a weighted sum of chi-squares with weights ``v_b / mean v``: over the same Sobol points in every world.
    """
    rates = np.asarray(w["rates"], float)
    if not (rates.min() > 0.01 and rates.max() < 0.99):
        raise ClaimError("a bin is degenerate")
    v = rates * (1 - rates)
    normal = squared_normals(len(rates))
    edge = stats.chi2.isf(0.05, len(rates))
    return Sides(float((normal @ (v / v.mean()) > edge).mean()), 0.06)


def pooled_by_binomials(w: Params) -> Sides:
    """The same from binomial labels, 2,000 in a bin."""
    rates = np.asarray(w["rates"], float)
    return batches(
        lambda rng: (bin_tests(rates, 2000, rng, 25_000)["pooled"], 0.06),
        generator(0, "claims", "audits", "bins"),
    )


ROOM = 0.0625  # size at 5% that counts as kept: a quarter over


def own_variance(w: Params) -> Sides:
    """Size with each bin's own estimated variance, by enumeration of all counts, against .0625."""
    each, rates = int(w["each"]), np.asarray(w["rates"], float)
    if not (each >= 2 and len(rates) >= 1 and (each + 1) ** len(rates) <= 200_000):
        raise ClaimError("too many counts to enumerate")
    count = np.arange(each + 1)
    total, mass = np.zeros(1), np.ones(1)
    for rate in rates:
        own = count / each * (1 - count / each) / (each - 1)
        statistic = (count / each - rate) ** 2 / np.maximum(own, 1e-12)
        total = np.add.outer(total, statistic).ravel()
        mass = np.multiply.outer(mass, stats.binom.pmf(count, each, rate)).ravel()
    return Sides(float(mass[total > stats.chi2.isf(0.05, len(rates))].sum()), ROOM)


def own_variance_by_simulation(w: Params) -> Sides:
    """The same from binomial labels."""
    rates = np.asarray(w["rates"], float)
    return batches(
        lambda rng: (bin_tests(rates, int(w["each"]), rng, 2000)["own"], ROOM),
        generator(0, "claims", "audits", "own variance"),
    )


def own_bins(z: FloatArray, size: int) -> dict[str, object]:
    """Label rates of bins, with 40 to 200 labels in each."""
    return {**bins(z[:-1], size), "each": 40 + round(160 * math.tanh(abs(float(z[-1])) / 2))}


MOST_COUNTS = 200_000  # that are enumerated
POINTS = 2**14  # quasi-random ones beyond


def counts(rates: FloatArray, each: int) -> tuple[npt.NDArray[np.int_], FloatArray, float]:
    """Counts of labels of 1 in each bin, shape (n, bins), their masses, and the error of a sum of masses.

    All counts but those of mass below 1e-9 in a bin, or Sobol points of the binomials where they are too many.
    """
    mass = [stats.binom.pmf(np.arange(each + 1), each, rate) for rate in rates]
    kept = [np.flatnonzero(m > 1e-9) for m in mass]
    if math.prod(map(len, kept)) <= MOST_COUNTS:
        at = np.stack([g.ravel() for g in np.meshgrid(*kept, indexing="ij")], axis=1)
        return at, np.prod([m[at[:, b]] for b, m in enumerate(mass)], axis=0), 0.0
    point = uniforms(len(rates))
    at = np.stack([np.searchsorted(np.cumsum(m), point[:, b]) for b, m in enumerate(mass)], axis=1)
    return np.minimum(at, each), np.full(POINTS, 1 / POINTS), math.sqrt(0.05 * 0.95 / POINTS)


@lru_cache(maxsize=8)
def uniforms(size: int) -> FloatArray:
    """Sobol points, shape (POINTS, size)."""
    return np.asarray(stats.qmc.Sobol(size, seed=0).random(POINTS))


def _size(w: Params, *, floored: bool) -> Sides:
    """Size of the ANOVA-type test, by enumeration, against .0625."""
    each, rates = int(w["each"]), np.asarray(w["rates"], float)
    if not (each >= 2 and len(rates) >= 1 and rates.min() > 0 and rates.max() < 1):
        raise ClaimError("a bin is degenerate")
    at, mass, error = counts(rates, each)
    own = at / each * (1 - at / each) / (each - 1)
    own = larger(own, rates, each) if floored else own
    return Sides(float(mass[anova_type((at / each - rates) ** 2, own, each)].sum()), ROOM, error)


def estimated_variance(w: Params) -> Sides:
    """Size with the bins' estimated variances alone."""
    return _size(w, floored=False)


def null_variance(w: Params) -> Sides:
    """Size with at least the variances of the null: calibrator known."""
    return _size(w, floored=True)


def _simulated(w: Params, test: str) -> Sides:
    """The same from binomial labels."""
    rates = np.asarray(w["rates"], float)
    return batches(
        lambda rng: (bin_tests(rates, int(w["each"]), rng, 2000)[test], ROOM),
        generator(0, "claims", "audits", test),
    )


def enough_of_the_rarer(w: Params) -> Params:
    """The same with as many labels a bin as let each expect `RARER` of its rarer label."""
    rarer = min(min(rate, 1 - rate) for rate in w["rates"])
    return {**w, "each": max(int(w["each"]), math.ceil(RARER / rarer))}


RARER = 60  # labels of the rarer kind that a bin expects


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="binned-pooled-variance",
        source="ours: decile-binned residual checks (Section 2) with one variance for all bins",
        statement="a chi-squared test over bins with a pooled variance keeps its size: at most 6% at 5%",
        why=r"With binary labels the bins' variances p(1-p) differ; the statistic is then $\sum_b (v_b/\bar "
        r"v)\chi^2_1$, with "
        "the right mean and heavier tails.",
        family=Family((2, 3, 5), lambda size: size, bins, 0.3),
        sides=pooled,
        second=pooled_by_binomials,
        planted="at most 2%",
        falsified=lambda s: Sides(s.left, 0.02),
    ),
    over_worlds(
        name="binned-own-variance",
        source="ours: whether each bin's own variance mends binned-pooled-variance",
        statement="a chi-squared test over bins of 40 to 200 labels, each with its own estimated variance, keeps its "
        "size: at most 6.25% at 5%",
        rule="random label rates, then an optimiser; enumeration of all counts in each world",
        why="Where labels are nearly sure, a bin's few failures set both its residual and its variance: a bin that saw "
        "none is sure of itself. The limit is a chi-squared, and it is far away.",
        family=Family((1, 2), lambda size: size + 1, own_bins, 0.1),
        sides=own_variance,
        second=own_variance_by_simulation,
        planted="at most 1%",
        falsified=lambda s: Sides(s.left, 0.01),
    ),
    over_worlds(
        name="binned-anova-type",
        source="ours: does an F law by the bins' own variances mend binned-pooled-variance?",
        statement="the pooled sum over one to four bins of 40 to 200 labels, referred to an F law with the degrees of "
        "freedom of the bins' own estimated variances, keeps its size: at most 6.25% at 5%",
        rule="random label rates, then an optimiser; enumeration of all counts in each world, or Sobol points of them",
        why=r"$\sum_b (v_b/\bar v)\chi^2_1$ has the mean of a chi-squared of $(\sum v_b)^2/\sum v_b^2$ degrees and "
        "its variance (Box); but where few labels differ from the rest, those few set the residual and the variance.",
        family=Family((1, 2, 3, 4), lambda size: size + 1, own_bins, 0.1),
        sides=estimated_variance,
        second=lambda w: _simulated(w, "anova"),
        condition=f"every bin expects {RARER} labels of its rarer kind or more",
        restrict=enough_of_the_rarer,
        planted="at most 1%",
        falsified=lambda s: s._replace(right=0.01),
    ),
    over_worlds(
        name="binned-null-variance",
        source="ours: in place of binned-anova-type; a textbook test of binned residuals, calibrator known",
        statement="the same by the null's variances, p(1-p) at the calibrated rates p, where the estimated ones add "
        "up to less, keeps its size: at most 6.25% at 5% with one to four bins of 40 to 200 labels",
        rule="random label rates, then an optimiser; enumeration of all counts in each world, or Sobol points of them",
        why="A calibration that transports says how much a binary label varies. By the larger of this and the "
        "estimate only what a score test and Wald's both find is rejected, up to the F law: by the estimate alone too "
        "few failures are surprising, since they make it too small; by the null's alone too many, since their count is "
        "skewed.",
        family=Family((1, 2, 3, 4), lambda size: size + 1, own_bins, 0.1),
        sides=null_variance,
        second=lambda w: _simulated(w, "floored"),
        repairs="binned-anova-type",
        planted="at most 1%",
        falsified=lambda s: s._replace(right=0.01),
    ),
)
