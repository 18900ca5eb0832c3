"""Simulation-based calibration: whether a sampler draws from the posterior that it claims.

Draw parameters from the prior, labels given them, posterior draws given the labels: the rank of the true quantity among
L independent posterior draws is uniform on 0..L (Talts, Betancourt, Simpson, Vehtari and Gelman, 2018). The ECDF of the
ranks is held against an exact simultaneous band (`cje_core.bayes.diagnostics.predictive.ecdf_band`).

Quantities: f at the judge levels .3, .85 and 1, its rise b - a, sigma, and V, the mean of f over a fixed mass of
responses on the levels. What the value posterior adds to it (Bayesian-bootstrap weights, residuals) has no prior and so
no SBC: its test is coverage.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from cje_core.bayes import gibbs
from cje_core.bayes.diagnostics.predictive import ecdf, prior_draws
from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.levels import Levels
from cje_core.bayes.prior import DEFAULT, Prior
from cje_core.checks import FloatArray, Rng
from cje_core.inference.sums import sum_by

AT = (0.3, 0.85, 1.0)
QUANTITIES = (*(f"f({x:g})" for x in AT), "b - a", "sigma", "V")
# Sweeps between the Gibbs draws that are ranked, of graded and of binary labels: ranks need independent draws. Over
# data sets from the prior the mean autocorrelation of no quantity passes .01 (tested); at a third of the distance that
# of f(0.3) is .05 for graded labels, that of b - a .07 for binary ones.
THIN, THIN_BINARY = 30, 40

Sampler = Callable[[Levels, np.random.Generator], Draws]


def gibbs_sampler(n_draws: int = 99, *, prior: Prior = DEFAULT) -> Sampler:
    """The Gibbs sampler, thinned enough for ranks.

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> gibbs_sampler(20)(levels, np.random.default_rng(1)).f.shape
    (20, 3)
    """

    def sampler(levels: Levels, rng: np.random.Generator) -> Draws:
        thin = THIN_BINARY if levels.binary else THIN
        return gibbs.sample(levels, n_draws=n_draws, thin=thin, prior=prior, rng=rng)

    return sampler


def simulate(template: Levels, draws: Draws, d: int, rng: np.random.Generator) -> Levels:
    """Labels of one draw of f and sigma, as many at each level as the template has."""
    f, n = draws.f[d], template.n
    if template.binary:
        hits = rng.binomial(n.astype(np.int64), np.clip(f, 0.0, 1.0)).astype(float)
        return template._replace(total=hits, squares=float(hits.sum()))
    at = np.repeat(np.arange(len(n)), n.astype(np.int64))
    y = f[at] + draws.sigma[d] * rng.standard_normal(len(at))
    return template._replace(total=sum_by(at, y, len(n)), squares=float(y @ y))


def quantities(draws: Draws, share: FloatArray) -> FloatArray:
    """Return the `QUANTITIES` of every draw, shape (draws, 6); V weighs the levels by `share` (K,), which sums to 1."""
    at = curve(np.array(AT), draws.ends, draws.shape)
    return np.column_stack([at, np.diff(draws.ends), draws.sigma, draws.f @ share])


def sbc(
    sampler: Sampler,
    template: Levels,
    *,
    n_sims: int,
    n_ranks: int = 99,
    mass: FloatArray | None = None,
    prior: Prior = DEFAULT,
    rng: Rng = None,
) -> xr.Dataset:
    """Ranks of the truth, drawn from `prior`, among L = `n_ranks` posterior draws.

    Parameters
    ----------
    sampler : callable
        ``sampler(levels, rng) -> Draws`` with at least `n_ranks` draws; that many are ranked, evenly spaced.
    template : Levels
        Judge levels, labels at each and kind of label; its sums are not used.
    mass : array, shape (K,), optional
        Share of responses on each level, for V. Default: uniform.

    Returns
    -------
    xr.Dataset
        ``rank(sim, quantity)``, integers 0..L; sigma only for continuous labels.

    Examples
    --------
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> ranks = sbc(gibbs_sampler(19), levels, n_sims=10, n_ranks=19, rng=1)["rank"]
    >>> int(ranks.min()) >= 0, int(ranks.max()) <= 19
    (True, True)
    """
    rng = np.random.default_rng(rng)
    share = np.full(len(template.level), 1.0 / len(template.level)) if mass is None else mass / mass.sum()
    names = [name for name in QUANTITIES if not (template.binary and name == "sigma")]
    known = [name in names for name in QUANTITIES]
    truths = prior_draws(template, n_draws=n_sims, prior=prior, rng=rng)
    truth = quantities(truths, share)[:, known]
    rank = np.empty((n_sims, len(names)), dtype=np.int64)
    for s in range(n_sims):
        draws = sampler(simulate(template, truths, s, rng), rng)
        if len(draws.f) < n_ranks:
            raise ValueError(f"the sampler gave {len(draws.f)} draws; n_ranks={n_ranks} needs as many")
        kept = np.linspace(0, len(draws.f) - 1, n_ranks).astype(int)
        rank[s] = (quantities(draws, share)[kept][:, known] < truth[s]).sum(axis=0)
    return xr.Dataset(
        {"rank": (("sim", "quantity"), rank)}, coords={"quantity": names}, attrs={"n_ranks": n_ranks}
    )


def verdict(ranks: xr.Dataset, *, prob: float = 0.95) -> xr.Dataset:
    """Hold the ECDF of the ranks of every quantity against a simultaneous band.

    `prob` is the least probability that a correct sampler passes on all quantities: each gets its Bonferroni share.
    Over ``quantity``: ``passed``; ``ecdf(quantity, point)`` with its ``lower, upper`` over ``point``. Attribute
    ``passed``: all of them.
    """
    steps = ranks.attrs["n_ranks"] + 1
    names = ranks["quantity"].values
    each = 1.0 - (1.0 - prob) / len(names)
    # rank r of 0..L is a uniform somewhere in (r, r + 1) / (L + 1): at the points j / (L + 1) the ECDF is exact
    at = (ranks["rank"].values.T + 0.5) / steps
    found = [ecdf(of_one, prob=each, n_points=steps) for of_one in at]
    out = xr.Dataset(
        {
            "passed": ("quantity", [bool(one.attrs["inside"]) for one in found]),
            "ecdf": (("quantity", "point"), np.stack([one["ecdf"].values for one in found])),
            "lower": found[0]["lower"],
            "upper": found[0]["upper"],
        },
        coords={"quantity": names},
    )
    return out.assign_attrs(passed=int(out["passed"].all()), prob=prob, n=ranks.sizes["sim"])
