"""Posterior of a share of good responses behind a binary judge (Bayesian Rogan-Gladen), by importance resampling.

::

    Se ~ Beta(a, b), Sp ~ Beta(a, b), v ~ Uniform(0, 1)
    good labels passed ~ Binomial(good, Se)       bad labels failed ~ Binomial(bad, Sp)
    own good labels ~ Binomial(own, v)            where the policy's labels are a plain random sample of it
    other responses passed ~ Binomial(n, p),      p = v Se + (1 - v)(1 - Sp)

Given Se and Sp, p is linear in v, so without own labels its posterior is a beta distribution cut to the values that p
can take, between 1 - Sp and Se. Draws are made that way, with Se and Sp from their conjugate posteriors, and weighted
by what is left: the mass of that cut, and the own labels. Nothing is clipped: where Se + Sp is near 1 the posterior of
v is as wide as its prior. Counts may be effective counts, so they need not be whole.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]

OVERSAMPLING = 10  # proposals per draw kept
FLAT = 1e-6  # |J| below which p does not move with v


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
    counts: Counts,
    *,
    n_draws: int = 2000,
    accuracy_prior: tuple[float, float] = (1.0, 1.0),
    rng: np.random.Generator | int | None = None,
) -> Posterior:
    """Draw the share of good responses, sensitivity and specificity.

    Parameters
    ----------
    counts : Counts
    n_draws : int
    accuracy_prior : pair of float
        Beta prior of Se and of Sp.
    rng : Generator, int or None

    Returns
    -------
    Posterior

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
    size = OVERSAMPLING * n_draws
    se = rng.beta(a + counts.good_passed, b + counts.good - counts.good_passed, size)
    sp = rng.beta(a + counts.bad_failed, b + counts.bad - counts.bad_failed, size)
    shape = 1.0 + counts.passed, 1.0 + counts.n - counts.passed
    youden = se + sp - 1.0
    low, high = (special.betainc(*shape, end) for end in (1.0 - sp, se))
    u = rng.random(size)
    p = special.betaincinv(*shape, low + u * (high - low))
    flat = np.abs(youden) < FLAT
    safe = np.where(flat, 1.0, youden)
    value = np.where(flat, u, np.clip((p + sp - 1.0) / safe, 0.0, 1.0))
    density = np.exp(
        special.xlogy(shape[0] - 1, se) + special.xlog1py(shape[1] - 1, -se) - special.betaln(*shape)
    )
    mass = np.where(flat, density, (high - low) / safe)  # the integral over v of the likelihood of p
    log_own = special.xlogy(counts.own_good, value) + special.xlog1py(counts.own - counts.own_good, -value)
    weight = mass * np.exp(log_own - log_own.max())
    total = weight.sum()
    if total <= 0:  # the verdicts contradict the labels beyond what floating point can say
        nothing = np.full(n_draws, np.nan)
        return Posterior(nothing, nothing, nothing, 0.0)
    share = weight / total
    # systematic resampling: one uniform, evenly spaced quantiles; shuffled, or neighbours would be alike
    points = (np.arange(n_draws) + rng.random()) / n_draws
    chosen = np.minimum(np.searchsorted(np.cumsum(share), points), size - 1)
    rng.shuffle(chosen)
    return Posterior(value[chosen], se[chosen], sp[chosen], float(1.0 / (share**2).sum()))
