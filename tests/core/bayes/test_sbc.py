"""Simulation-based calibration of the samplers, and that it catches a wrong one."""

import numpy as np
import pytest
from repeated_world import COUNT, template
from scipy import stats

from cje_core.bayes import gibbs
from cje_core.bayes.diagnostics import predictive, sbc
from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.prior import Prior


def test_simulated_labels_have_the_model_s_moments():
    level = template()
    draws = predictive.prior_draws(level, n_draws=1, rng=1)
    rng = np.random.default_rng(2)
    sets = [sbc.simulate(level, draws, 0, rng) for _ in range(2000)]
    total = np.array([one.total for one in sets])
    error = draws.sigma[0] * np.sqrt(COUNT / 2000)
    assert (np.abs(total.mean(axis=0) - COUNT * draws.f[0]) <= 5 * error).all()
    squares = np.array([one.squares for one in sets])
    expected = (COUNT * (draws.f[0] ** 2 + draws.sigma[0] ** 2)).sum()
    assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(2000)
    hits = sbc.simulate(template(True), draws, 0, rng)
    assert (hits.total <= COUNT).all() and hits.squares == hits.total.sum()


def test_ranks_are_where_they_should_be():
    """A sampler whose draws all lie below, or all above, the truth; and too few draws."""

    def constant(value):
        def sampler(levels, rng):
            ends, shape = np.full((99, 2), value), np.full((99, 8), 1 / 8)
            return Draws(curve(levels.level, ends, shape), ends, shape, np.full(99, 1e-9), {})

        return sampler

    ranks = sbc.sbc(constant(0.0), template(), n_sims=5, rng=1)["rank"].drop_sel(quantity="b - a")
    assert (ranks == 99).all()  # f = 0 everywhere and sigma almost: all draws below the truth
    ranks = sbc.sbc(constant(1.0), template(True), n_sims=5, rng=1)["rank"]
    assert ranks["quantity"].values.tolist() == ["f(0.3)", "f(0.85)", "f(1)", "b - a", "V"]
    assert (ranks.drop_sel(quantity="b - a") == 0).all()
    with pytest.raises(ValueError, match="gave 99 draws"):
        sbc.sbc(constant(1.0), template(), n_sims=1, n_ranks=100, rng=1)


@pytest.mark.slow
def test_verdict_passes_uniform_ranks_as_often_as_it_says():
    import xarray as xr

    rng = np.random.default_rng(3)
    n_sets = 400
    passed = sum(
        sbc.verdict(
            xr.Dataset(
                {"rank": (("sim", "quantity"), rng.integers(0, 100, (200, 3)))},
                coords={"quantity": ["a", "b", "c"]},
                attrs={"n_ranks": 99},
            ),
            prob=0.9,
        ).attrs["passed"]
        for _ in range(n_sets)
    )
    # exact for three independent quantities
    share = predictive.ecdf_band(200, 1 - 0.1 / 3, 100).attrs["coverage"] ** 3
    assert stats.binom.ppf(1e-6, n_sets, share) <= passed <= stats.binom.isf(1e-6, n_sets, share)


# Draws that are ranked, `sbc.THIN` or `sbc.THIN_BINARY` sweeps apart, and simulations. A misfit whose density of ranks
# is the Legendre polynomial of degree k shows with its coefficient times L! (L + 1)! / ((L - k)! (L + 1 + k)!), so its
# noncentrality grows with the square of that and with the simulations: 2,100 of 24 draws see draws that are off in
# location (k = 1), spread (2) or skewness (3) 1.86, 1.41 and 1.02 times as well as 1,000 of 99 do, for half of the
# sweeps.
N_RANKS, N_SIMS = 24, 2100
PLANTED_SIMS = 500  # what a quarter of the simulations see, all of them do


def gibbs_verdict(n_sims, *, binary=False, **options):
    """Verdict on the Gibbs sampler, of another prior where one is given."""
    sampler = sbc.gibbs_sampler(N_RANKS, **options)
    ranks = sbc.sbc(sampler, template(binary), n_sims=n_sims, n_ranks=N_RANKS, mass=COUNT, rng=11)
    return sbc.verdict(ranks)


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_gibbs_passes_simulations(binary):
    found = gibbs_verdict(N_SIMS, binary=binary)
    assert found.attrs["passed"], found["passed"].to_pandas()


@pytest.mark.slow
@pytest.mark.parametrize(("binary", "distance"), [(False, sbc.THIN), (True, sbc.THIN_BINARY)])
def test_draws_that_are_ranked_are_independent(binary, distance):
    """Mean autocorrelation over data sets from the prior, at the distance of the ranked draws and at a third of it."""
    level, n_sets, n_draws = template(binary), 40, 1500
    rng = np.random.default_rng(5)
    truth = predictive.prior_draws(level, n_draws=n_sets, rng=rng)
    found = []
    for s in range(n_sets):
        seen = sbc.simulate(level, truth, s, rng)
        draws = gibbs.sample(seen, n_draws=n_draws, thin=distance // 3, rng=rng)
        at = curve(np.array(sbc.AT), draws.ends, draws.shape)
        noise = () if binary else (draws.sigma,)
        x = np.column_stack([at, np.diff(draws.ends), *noise, draws.f @ COUNT])
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        found.append([(x[:-lag] * x[lag:]).mean(axis=0) for lag in (1, 3)])
    near, apart = np.mean(found, axis=0)
    print(f"mean autocorrelation {apart}, at a third of the distance {near}")
    error = 5 / np.sqrt(n_sets * n_draws)  # of independent draws
    assert np.abs(apart).max() < 0.01 + error
    assert near.max() > 0.01 + error  # what is not yet independent would show


@pytest.mark.slow
def test_a_planted_prior_mismatch_fails():
    found = gibbs_verdict(PLANTED_SIMS, prior=Prior(scale=0.05))
    assert not found["passed"].sel({"quantity": "sigma"})
    rising = gibbs_verdict(PLANTED_SIMS, prior=Prior(flat=0.05))
    assert not rising["passed"].sel({"quantity": "b - a"})
