"""Posterior of a share of good responses behind a binary judge (Bayesian Rogan-Gladen), by importance resampling.

::

    Se ~ Beta(a, b), Sp ~ Beta(a, b), v ~ Uniform(0, 1)
    good labels passed ~ Binomial(good, Se)       bad labels failed ~ Binomial(bad, Sp)
    own good labels ~ Binomial(own, v)            where the policy's labels are a plain random sample of it
    other responses passed ~ Binomial(n, p),      p = v Se + (1 - v)(1 - Sp)

Importance sampling from two proposals, each good where the other fails, weighted by their mixture (the balance
heuristic of Veach and Guibas, 1995):

- Conjugate: Se and Sp from what the labels say of them; given these p is linear in v, so p from its beta distribution
  cut to what it can be, between 1 - Sp and Se. Exact where verdicts and labels agree, down to a useless judge.
- Laplace: a Student t around the mode in log odds. Where more, or fewer, responses pass than Se and Sp allow, the
  verdicts pull these two away from what the labels say, and few conjugate proposals follow.

Nothing is clipped: where Se + Sp is near 1 the posterior of v is as wide as its prior. Counts may be effective counts,
so they need not be whole.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.checks import BoolArray, FloatArray, Rng

OVERSAMPLING, LEAST = 10, 4000  # proposals per draw kept, and in all
FLAT = 1e-6  # |J| below which p does not move with v
EMPTY = 1e-9  # mass of the cut below which rounding decides, and v is proposed uniform
TAIL_DF = 4  # of the Student t
STEPS, NEAR = 50, 1e-6  # of Newton's method; gain in log density below which the mode is found


class Counts(NamedTuple):
    """Effective counts; ``own`` is 0 where labels say nothing of v."""

    passed: float  # unlabelled responses that the judge passes
    n: float
    good_passed: float
    good: float
    bad_failed: float
    bad: float
    own_good: float
    own: float


class Posterior(NamedTuple):
    """Draws, and the effective number of proposals behind them."""

    value: FloatArray  # (draws,) share of good responses
    sensitivity: FloatArray
    specificity: FloatArray
    effective: float


def sample(
    counts: Counts, *, n_draws: int = 2000, accuracy_prior: tuple[float, float] = (1.0, 1.0), rng: Rng = None
) -> Posterior:
    """Draw the share of good responses, sensitivity and specificity.

    `accuracy_prior` has the two parameters of the beta prior of Se and of Sp.

    Examples
    --------
    >>> seen = Counts(500.0, 1000.0, 900.0, 1000.0, 900.0, 1000.0, 0.0, 0.0)
    >>> sample(seen, rng=0).value.mean().round(2)
    np.float64(0.5)
    """
    rng = np.random.default_rng(rng)
    a, b = accuracy_prior
    if n_draws < 1 or not min(a, b) > 0:
        raise ValueError("n_draws must be at least 1 and both parameters of accuracy_prior positive")
    half = max(OVERSAMPLING * n_draws, LEAST) // 2
    mode, cover = _laplace(counts, a, b)
    by_labels = _accuracies(counts, a, b, half, rng)
    u = rng.random(half)
    by_mode = special.expit(_student_draws(mode, cover, half, rng))
    # log odds of an edge that floating point cannot hold would be infinite
    se, sp = _inside(np.hstack([by_labels, by_mode[1:]]))
    cut = _cut(counts, se, sp)
    value = _inside(np.concatenate([_conjugate(cut, u, se[:half], sp[:half]), by_mode[0]]))
    proposed = np.logaddexp(
        _conjugate_log_density(counts, a, b, cut, value, se, sp),
        _student_log_density(special.logit([value, se, sp]), mode, cover) - _log_jacobian(value, se, sp),
    )
    log_weight = _log_density(counts, a, b, value, se, sp) - proposed
    weight = np.exp(log_weight - log_weight.max())
    share = weight / weight.sum()
    # systematic resampling: one uniform, evenly spaced quantiles; shuffled, or neighbours would be alike
    points = (np.arange(n_draws) + rng.random()) / n_draws
    chosen = np.minimum(np.searchsorted(np.cumsum(share), points), len(share) - 1)
    rng.shuffle(chosen)
    return Posterior(value[chosen], se[chosen], sp[chosen], float(1.0 / (share**2).sum()))


def _log_density(
    counts: Counts, a: float, b: float, value: FloatArray, se: FloatArray, sp: FloatArray
) -> FloatArray:
    """Log posterior density of (v, Se, Sp), up to a constant."""
    p = value * se + (1.0 - value) * (1.0 - sp)
    out = special.xlogy(counts.passed, p) + special.xlog1py(counts.n - counts.passed, -p)
    for x, hits, trials in ((se, counts.good_passed, counts.good), (sp, counts.bad_failed, counts.bad)):
        out += special.xlogy(a - 1.0 + hits, x) + special.xlog1py(b - 1.0 + trials - hits, -x)
    out += special.xlogy(counts.own_good, value) + special.xlog1py(counts.own - counts.own_good, -value)
    return np.asarray(out)


def _log_jacobian(*shares: FloatArray) -> FloatArray:
    """Log of d(shares) / d(their log odds)."""
    return np.asarray(sum(np.log(x) + np.log1p(-x) for x in shares))


def _laplace(counts: Counts, a: float, b: float) -> tuple[FloatArray, FloatArray]:
    """Mode of the log odds of (v, Se, Sp) by Newton's method, and the inverse of the curvature there."""
    # hits and misses of each share, with the Jacobian of the log odds
    hits = np.array([counts.own_good + 1.0, a + counts.good_passed, a + counts.bad_failed])
    trials = np.array([counts.own + 2.0, a + b + counts.good, a + b + counts.bad])
    se, sp = (hits / trials)[1:].tolist()
    # from the share that explains the passed ones: from elsewhere Newton may end at a lower mode
    passed, youden = (counts.passed + 1.0) / (counts.n + 2.0), se + sp - 1.0
    v = float(np.clip((passed + sp - 1.0) / youden, 0.05, 0.95)) if abs(youden) > FLAT else 0.5
    odds = special.logit([v, se, sp])
    height = _height(counts, hits, trials, odds)
    for _ in range(STEPS):
        slope, curvature = _bends(counts, hits, trials, odds)
        # a direction that the density hardly bends in gets the width of a uniform share's log odds
        bend, axis = np.linalg.eigh(-curvature)
        cover = (axis / np.maximum(bend, 0.25)) @ axis.T
        step = cover @ slope
        gain = float(slope @ step)
        if gain < NEAR:
            break
        while (new := _height(counts, hits, trials, odds + step)) < height + 0.25 * gain and gain > NEAR:
            step, gain = 0.5 * step, 0.5 * gain
        odds, height = odds + step, new
    return odds, cover


# Student t about the mode with `TAIL_DF` degrees of freedom. That of SciPy takes longer to write its own documentation,
# for each mode anew, than to draw.
def _student_draws(mode: FloatArray, cover: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    """Draws (3, size)."""
    wide = np.sqrt(rng.chisquare(TAIL_DF, size) / TAIL_DF)
    normal = rng.multivariate_normal(np.zeros(len(mode)), cover, size)
    return np.asarray(mode[:, None] + normal.T / wide)


def _student_log_density(odds: FloatArray, mode: FloatArray, cover: FloatArray) -> FloatArray:
    """Log density at log odds (3, n)."""
    apart, half = odds - mode[:, None], 0.5 * (TAIL_DF + len(mode))
    squared = (apart * (np.linalg.inv(cover) @ apart)).sum(axis=0)
    constant = special.gammaln(half) - special.gammaln(0.5 * TAIL_DF)
    constant -= 0.5 * (len(mode) * np.log(TAIL_DF * np.pi) + np.linalg.slogdet(cover)[1])
    return np.asarray(constant - half * np.log1p(squared / TAIL_DF))


def _height(counts: Counts, hits: FloatArray, trials: FloatArray, odds: FloatArray) -> float:
    """Log density of log odds, up to a constant."""
    v, se, sp = special.expit(odds).tolist()
    p = v * se + (1.0 - v) * (1.0 - sp)
    told = special.xlogy(counts.passed, p) + special.xlog1py(counts.n - counts.passed, -p)
    return float(told + hits @ odds - trials @ np.logaddexp(0.0, odds))


def _bends(
    counts: Counts, hits: FloatArray, trials: FloatArray, odds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """First and second derivatives of `_height`."""
    at = special.expit(odds)
    v, se, sp = at.tolist()
    moves_v, moves_se, moves_sp = slope = at * (1.0 - at)  # d share / d its log odds
    p = v * se + (1.0 - v) * (1.0 - sp)
    first = counts.passed / p - (counts.n - counts.passed) / (1.0 - p)
    second = -counts.passed / p**2 - (counts.n - counts.passed) / (1.0 - p) ** 2
    of_p = np.array([se + sp - 1.0, v, v - 1.0]) * slope
    bend = np.diag(of_p * (1.0 - 2.0 * at))
    bend[0, 1] = bend[1, 0] = moves_v * moves_se
    bend[0, 2] = bend[2, 0] = moves_v * moves_sp
    found = second * np.outer(of_p, of_p) + first * bend - np.diag(trials * slope)
    return first * of_p + hits - trials * at, found


class _Cut(NamedTuple):
    """Beta distribution of p between two ends."""

    shape: tuple[float, float]
    low: FloatArray  # its distribution function at 1 - Sp
    mass: FloatArray  # of it up to Se; negative for an inverted judge
    uncut: BoolArray  # where v is proposed uniform


def _cut(counts: Counts, se: FloatArray, sp: FloatArray) -> _Cut:
    """What p can be, given Se and Sp."""
    shape = 1.0 + counts.passed, 1.0 + counts.n - counts.passed
    low, high = (special.betainc(*shape, end) for end in (1.0 - sp, se))
    return _Cut(shape, low, high - low, (np.abs(se + sp - 1.0) < FLAT) | (np.abs(high - low) < EMPTY))


def _inside(share: FloatArray) -> FloatArray:
    return np.clip(share, 1e-12, 1.0 - 1e-12)


def _accuracies(counts: Counts, a: float, b: float, size: int, rng: np.random.Generator) -> FloatArray:
    """Se and Sp, shape (2, size), from what the labels say of them."""
    se = rng.beta(a + counts.good_passed, b + counts.good - counts.good_passed, size)
    sp = rng.beta(a + counts.bad_failed, b + counts.bad - counts.bad_failed, size)
    return np.stack([se, sp])


def _conjugate(cut: _Cut, u: FloatArray, se: FloatArray, sp: FloatArray) -> FloatArray:
    """Proposals of v for the first ``len(u)`` of the pairs (Se, Sp) that were cut, from uniform u."""
    low, mass, uncut = (one[: len(u)] for one in cut[1:])
    p = special.betaincinv(*cut.shape, low + u * mass)
    inside = np.clip((p + sp - 1.0) / np.where(uncut, 1.0, se + sp - 1.0), 0.0, 1.0)
    return np.where(uncut, u, inside)


def _conjugate_log_density(
    counts: Counts, a: float, b: float, cut: _Cut, value: FloatArray, se: FloatArray, sp: FloatArray
) -> FloatArray:
    out = _log_beta(se, a + counts.good_passed, b + counts.good - counts.good_passed)
    out += _log_beta(sp, a + counts.bad_failed, b + counts.bad - counts.bad_failed)
    youden = se + sp - 1.0
    of_p = _log_beta(value * youden + 1.0 - sp, *cut.shape)
    of_p += np.log(np.where(cut.uncut, 1.0, youden / np.where(cut.uncut, 1.0, cut.mass)))
    return np.asarray(out + np.where(cut.uncut, 0.0, of_p))


def _log_beta(x: FloatArray, a: float, b: float) -> FloatArray:
    """Log density of Beta(a, b): that of SciPy checks its arguments for longer than it computes."""
    return np.asarray(special.xlogy(a - 1.0, x) + special.xlog1py(b - 1.0, -x) - special.betaln(a, b))
