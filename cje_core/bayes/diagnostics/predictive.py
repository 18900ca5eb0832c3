"""Does the calibration model fit, and how much does its prior say? Checks on draws of any sampler.

* *Prior predictive*: curves and labels before any data (`prior_draws`, `curves`).
* *Posterior predictive*: mean, spread and ends of replicated label sets against the observed (`predictive_check`).
* *Calibration*: probability integral transforms ``u_i = F(Y_i | S_i, data)`` are uniform under the model. Their ECDF is
  held against a simultaneous band (`ecdf_band`; Säilynoja, Bürkner and Vehtari, 2022), exact for independent uniforms.
  The normal likelihood is a working one: a PIT outside its band says that the *noise* is not normal (ends of the
  scale, mostly), which leaves the posterior of the mean, and so of the value, consistent.

Convergence is judged in `cje_core.bayes.models.nuts`, prior sensitivity in
`cje_core.bayes.diagnostics.power_scaling`. Nothing here imports PyMC.
"""

from functools import lru_cache

import numpy as np
import xarray as xr
from scipy import special, stats

from cje_core.bayes import prior as priors
from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.levels import Levels
from cje_core.bayes.prior import DEFAULT, Prior
from cje_core.checks import FloatArray, IntArray, Rng

TINY = 1e-12  # a probability that Gibbs has put on the very edge


def prior_draws(levels: Levels, *, n_draws: int = 1000, prior: Prior = DEFAULT, rng: Rng = None) -> Draws:
    """Draw the calibrator from its prior; of `levels` only the levels and the kind of label are used."""
    rng = np.random.default_rng(rng)
    ends, shape = priors.draw(prior, n_draws, rng)
    sigma = np.full(n_draws, np.nan) if levels.binary else prior.scale * np.abs(rng.standard_normal(n_draws))
    return Draws(curve(levels.level, ends, shape), ends, shape, sigma, {})


def curves(levels: Levels, draws: Draws, *, ci_prob: float = 0.95, n_examples: int = 20) -> xr.Dataset:
    """The calibrator level by level, by draws of its prior or its posterior, and the labels seen there; oracle units.

    Over ``level`` (judge mapped to [0, 1]): ``mean``, the pointwise equal-tailed ``interval(level, ci_bound)``,
    ``n_labels`` (effective), ``label_mean`` (NaN without labels), and `n_examples` draws, evenly spread over all, as
    ``example(example, level)``.
    """
    tails = [0.5 - ci_prob / 2, 0.5 + ci_prob / 2]
    seen = np.divide(levels.total, levels.n, out=np.full(len(levels.n), np.nan), where=levels.n > 0)
    chosen = np.unique(np.linspace(0, len(draws.f) - 1, n_examples).astype(int))
    interval = levels.low + levels.width * np.quantile(draws.f, tails, axis=0).T
    return xr.Dataset(
        {
            "mean": ("level", levels.low + levels.width * draws.f.mean(axis=0)),
            "interval": (("level", "ci_bound"), interval),
            "n_labels": ("level", levels.n),
            "label_mean": ("level", levels.low + levels.width * seen),
            "example": (("example", "level"), levels.low + levels.width * draws.f[chosen]),
        },
        coords={"level": levels.level, "ci_bound": ["lower", "upper"]},
        attrs={"ci_prob": ci_prob},
    )


STATISTICS = ("mean", "sd", "share_below_0", "share_above_1", "rank_correlation")


def predictive_check(
    levels: Levels, at: IntArray, label: FloatArray, draws: Draws, *, rng: Rng = None
) -> xr.Dataset:
    """Replicate labels once per draw, of the posterior or of the prior, and compare statistics with the observed.

    Labels (m,) are on [0, 1], the judge level of each is `at` (m,). Over ``statistic`` (mean, sd, share outside [0, 1]
    at either side, rank correlation with the level): ``replicate(statistic, replicate)``, ``observed``, ``p_value``,
    the share of replicates above the observed (ties half). A working normal likelihood puts labels outside [0, 1]; how
    many is what the two shares say.

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> from cje_core.bayes import gibbs
    >>> draws = gibbs.sample(levels, n_draws=200, rng=1)
    >>> found = predictive_check(levels, at, label, draws, rng=1)
    >>> found["observed"].sel(statistic="mean").round(3).item()
    0.611
    """
    rng = np.random.default_rng(rng)
    order = stats.rankdata(at)

    def describe(y: FloatArray) -> list[float]:
        constant = np.ptp(y) == 0 or np.ptp(order) == 0
        with_level = np.nan if constant else np.corrcoef(order, stats.rankdata(y))[0, 1]
        return [y.mean(), y.std(), (y < 0).mean(), (y > 1).mean(), with_level]

    replicate = np.empty((len(STATISTICS), len(draws.f)))
    for d in range(len(draws.f)):  # draw by draw: no labels x draws array
        mean = draws.f[d, at]
        if levels.binary:
            y = (rng.random(len(mean)) < mean).astype(float)
        else:
            y = mean + draws.sigma[d] * rng.standard_normal(len(mean))
        replicate[:, d] = describe(y)
    observed = np.array(describe(np.asarray(label, float)))[:, None]
    above = (replicate > observed).mean(axis=1) + 0.5 * (replicate == observed).mean(axis=1)
    known = np.isfinite(observed[:, 0])
    return xr.Dataset(
        {
            "replicate": (("statistic", "replicate"), replicate),
            "observed": ("statistic", observed[:, 0]),
            "p_value": ("statistic", np.where(known, above, np.nan)),
        },
        coords={"statistic": list(STATISTICS)},
    )


def pit(
    levels: Levels,
    at: IntArray,
    label: FloatArray,
    draws: Draws,
    *,
    leave_one_out: bool = True,
    rng: Rng = None,
) -> FloatArray:
    """Probability integral transform of each label (m,), randomised between the two ends for binary labels.

    Labels as in `predictive_check`. `leave_one_out` weighs draw d by ``1 / p(Y_i | f^(d))``, so that the label does not
    vouch for itself; without it the PIT uses each label twice and looks better than it is.

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> from cje_core.bayes import gibbs
    >>> draws = gibbs.sample(levels, n_draws=200, rng=1)
    >>> values = pit(levels, at, label, draws, rng=1)
    >>> values.shape, bool(((values >= 0) & (values <= 1)).all())
    ((18,), True)
    """
    rng = np.random.default_rng(rng)
    y = np.asarray(label, float)
    top, below, total = np.zeros(len(y)), np.zeros(len(y)), np.zeros(len(y))
    for d in range(len(draws.f)):
        f = draws.f[d, at]
        if levels.binary:
            inside = np.clip(f, TINY, 1.0 - TINY)
            density = np.where(y > 0.5, inside, 1.0 - inside)
            high, low = np.where(y > 0.5, 1.0, 1.0 - inside), np.where(y > 0.5, 1.0 - inside, 0.0)
        else:
            z = (y - f) / draws.sigma[d]
            density = np.exp(-0.5 * np.minimum(z * z, 600.0)) / draws.sigma[d]
            high = low = special.ndtr(z)
        weight = 1.0 / density if leave_one_out else np.ones(len(y))
        total += weight
        top += weight * high
        below += weight * low
    share = rng.random(len(y)) if levels.binary else 1.0
    return np.asarray((below + share * (top - below)) / total)


def ecdf(values: FloatArray, *, prob: float = 0.95, n_points: int = 100) -> xr.Dataset:
    """ECDF of values (n,) that should be uniform on [0, 1], and its simultaneous band (`ecdf_band`).

    Over ``point``: ``ecdf``, ``lower``, ``upper``; attribute ``inside``, whether it stays inside.
    """
    band = ecdf_band(len(values), prob, n_points)
    seen = np.searchsorted(np.sort(values), band["point"].values, side="right") / len(values)
    inside = bool(((seen >= band["lower"].values) & (seen <= band["upper"].values)).all())
    return band.assign(ecdf=("point", seen)).assign_attrs(inside=int(inside), n=len(values), prob=prob)


def ecdf_band(n: int, prob: float = 0.95, n_points: int = 100) -> xr.Dataset:
    """Simultaneous band of the ECDF of n independent uniforms at ``1 / n_points, ..., 1 - 1 / n_points``.

    At each point the band is the equal-tailed binomial interval of one level gamma; gamma is the largest for which all
    points hold at once with probability `prob`. That probability is exact: counts at increasing points are a Markov
    chain of binomial steps. ``lower, upper`` over ``point`` are shares; attributes ``gamma``, and ``coverage``, the
    exact probability.

    Examples
    --------
    >>> band = ecdf_band(100, 0.95, 10)
    >>> band.lower.values[4].round(2).item(), band.upper.values[4].round(2).item(), band.attrs["coverage"] >= 0.95
    (0.37, 0.63, True)
    """
    if n < 1 or n_points < 2 or not 0 < prob < 1:
        raise ValueError(
            f"n={n}, n_points={n_points}, prob={prob}: need n >= 1, n_points >= 2 and 0 < prob < 1"
        )
    lower, upper, gamma, coverage = _band(n, prob, n_points)
    point = np.arange(1, n_points) / n_points
    return xr.Dataset(
        {"lower": ("point", lower / n), "upper": ("point", upper / n)},
        coords={"point": point},
        attrs={"gamma": gamma, "coverage": coverage, "n": n, "prob": prob},
    )


@lru_cache(maxsize=32)
def _band(n: int, prob: float, n_points: int) -> tuple[IntArray, IntArray, float, float]:
    point = np.arange(1, n_points) / n_points
    high = np.log(1.0 - prob)  # no correction
    low = high - np.log(2.0 * n_points)  # Bonferroni
    for _ in range(14):
        middle = 0.5 * (low + high)
        if band_coverage(*_limits(n, point, np.exp(middle)), point, n) >= prob:
            low = middle
        else:
            high = middle
    gamma = float(np.exp(low))
    lower, upper = _limits(n, point, gamma)
    return lower, upper, gamma, band_coverage(lower, upper, point, n)


def _limits(n: int, point: FloatArray, gamma: float) -> tuple[IntArray, IntArray]:
    lower, upper = (np.asarray(stats.binom.ppf(q, n, point)) for q in (gamma / 2, 1 - gamma / 2))
    return lower.astype(np.intp), upper.astype(np.intp)


def band_coverage(lower: IntArray, upper: IntArray, point: FloatArray, n: int) -> float:
    """Probability that n uniforms have between ``lower_k`` and ``upper_k`` values below ``point_k``, for all k."""
    log_factorial = special.gammaln(np.arange(n + 1) + 1.0)
    at, mass, before = np.zeros(1, dtype=np.intp), np.ones(1), 0.0
    for k in range(len(point)):
        step = (point[k] - before) / (1.0 - before)
        now = np.arange(lower[k], upper[k] + 1)
        moved, left = now[None, :] - at[:, None], n - now
        log_pmf = (
            log_factorial[n - at][:, None]
            - log_factorial[np.maximum(moved, 0)]
            - log_factorial[left][None, :]
            + moved * np.log(step)
            + left[None, :] * np.log1p(-step)
        )
        mass = mass @ np.where(moved >= 0, np.exp(log_pmf), 0.0)
        at, before = now, float(point[k])
    return float(mass.sum())
