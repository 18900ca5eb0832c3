"""The public PyMC model: its prior can be drawn, its laws are densities, and the bounded likelihood is sampled rightly.

Compiling costs more than sampling, so all that needs the compiled bounded model is in one file, hence one process.
"""

import warnings

import numpy as np
import oracles_bayes_models as oracles
import pytest
import xarray as xr
from scipy import integrate, stats

import cje_core
import cje_sim
from cje_core.bayes import prior as priors
from cje_core.bayes.diagnostics import sbc
from cje_core.bayes.gibbs import curve
from cje_core.bayes.levels import Levels
from cje_core.bayes.models import nuts, slice
from cje_core.bayes.models.calibrator import RootOfLog, UnitSquare
from cje_core.bayes.models.engines import pm, pt, quiet
from cje_core.bayes.models.likelihoods import bounded_log_density, draw_bounded, likelihood_of, noise_sd
from cje_core.bayes.models.nuts import NutsOptions
from cje_core.bayes.prior import Prior
from cje_core.data import DataError
from cje_core.estimators import bayes_direct

LEVEL = np.round(np.linspace(0.05, 1.0, 12), 2)
M, RANKS, SIMS = 24, 24, 120
THIN = 12  # draws between those that are ranked: three times the autocorrelation time


def judged(seed, m=M):
    """Judge levels of m labels, drawn evenly."""
    return np.random.default_rng(seed).integers(len(LEVEL), size=m)


def seen_by(at, y):
    """Levels and single labels of graded labels y on the judge levels `at`."""
    n = np.bincount(at, minlength=len(LEVEL)).astype(float)
    total = np.bincount(at, weights=y, minlength=len(LEVEL))
    return Levels(LEVEL, n, total, float(y @ y), False, 0.0, 1.0), slice.Labelled(at, y)


@pytest.mark.slow
def test_prior_draws_of_the_model_are_those_of_the_prior():
    prior = Prior(concentration=2.0, flat=0.3, n_splines=4)
    levels, seen = seen_by(judged(1), np.linspace(0.1, 0.9, M))
    with quiet(), slice.observations(levels, seen, prior).build():
        drawn = nuts.group(pm.sample_prior_predictive(2000, random_seed=1), "prior").isel(chain=0)
    ends, shape = priors.draw(prior, 2000, np.random.default_rng(2))
    level = 2 * stats.norm.sf(5)
    for ours, theirs in ((drawn["ends"].values, ends), (drawn["shape"].values, shape)):
        for k in range(ours.shape[1]):
            assert stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue > level
    rise = np.diff(drawn["ends"].values)[:, 0]
    assert stats.ks_2samp(rise, np.diff(ends)[:, 0]).pvalue > level


def test_densities_of_ends_and_increments_are_those_of_the_prior():
    prior = Prior(concentration=2.0, flat=0.3, n_splines=4)
    levels, seen = seen_by(judged(1), np.linspace(0.1, 0.9, M))
    model = slice.observations(levels, seen, prior).build()
    rng = np.random.default_rng(3)
    ends, x = rng.uniform(0.05, 0.95, 2), rng.standard_gamma(0.7, 4)
    found = [float(one.eval()) for one in (pm.logp(model["ends"], ends), pm.logp(model["increments"], x))]
    density = priors.ends_density.py_func(ends[1] - ends[0], 4, 0.3)
    shape = priors.log_shape_density((x / x.sum())[None], prior)[0]
    expected = [np.log(density), shape - x.sum() - np.log(6.0)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("transform", [UnitSquare(), RootOfLog()])
def test_transforms_invert_and_have_their_jacobians(transform):
    value, step = np.array([-2.5, 0.7]), 1e-6
    there = transform.backward(value).eval()
    np.testing.assert_allclose(transform.forward(there).eval(), value, rtol=1e-9)
    slope = (transform.backward(value + step).eval() - transform.backward(value - step).eval()) / (2 * step)
    assert transform.log_jac_det(value).eval() == pytest.approx(np.log(slope).sum(), rel=1e-6)


@pytest.mark.parametrize(("mean", "at_ends", "dispersion"), [(0.3, 0.2, 0.1), (0.9, 0.05, 0.4)])
def test_bounded_law_is_a_law_with_its_mean_and_spread(mean, at_ends, dispersion):
    y = np.linspace(0, 1, 9)
    parts = (np.asarray(one, float) for one in (y, mean, at_ends, dispersion))
    density = np.exp(bounded_log_density(*map(pt.as_tensor, parts)).eval())
    np.testing.assert_allclose(density[[0, -1]], [at_ends * (1 - mean), at_ends * mean], rtol=1e-12)
    beta = stats.beta(mean * (1 / dispersion - 1), (1 - mean) * (1 / dispersion - 1))
    np.testing.assert_allclose(density[1:-1], (1 - at_ends) * beta.pdf(y[1:-1]), rtol=1e-9)
    drawn = draw_bounded(np.full(40_000, mean), at_ends, dispersion, rng=np.random.default_rng(1))
    sd = float(noise_sd(np.full((1, 1), mean), np.array([at_ends]), np.array([dispersion]))[0])
    exact = at_ends * mean + (1 - at_ends) * integrate.quad(lambda y: y**2 * beta.pdf(y), 0, 1)[0]
    assert sd**2 == pytest.approx(exact - mean**2, rel=1e-6)
    assert abs(drawn.mean() - mean) < 5 * sd / 200
    assert drawn.var() == pytest.approx(sd**2, abs=5 * ((drawn - mean) ** 2).std() / 200)
    assert ((drawn >= 0) & (drawn <= 1)).all()


def test_likelihoods_that_do_not_fit_are_refused():
    assert [likelihood_of(True, None), likelihood_of(False, None)] == ["bernoulli", "normal"]
    with pytest.raises(ValueError, match="labels are binary; use 'bernoulli'"):
        likelihood_of(True, "beta")
    with pytest.raises(ValueError, match="labels are graded"):
        likelihood_of(False, "bernoulli")
    data = cje_sim.simulate("discrete_judge", n=60, oracle_fraction=0.3, rng=1)
    with pytest.raises(ValueError, match="likelihood='beta'"):
        bayes_direct.estimate(data, engine="gibbs", model=bayes_direct.Model(likelihood="beta"))
    with pytest.raises(ValueError, match="partial pooling"):
        bayes_direct.estimate(data, model=bayes_direct.Model(likelihood="beta", pooling="partial"))
    with pytest.raises(DataError, match="no calibration to model"):
        cje_core.calibration_model(cje_sim.simulate("discrete_judge", n=60, oracle_fraction=0.02, rng=1))


@pytest.mark.slow
def test_bounded_posterior_is_that_of_importance_sampling_for_both_engines():
    rng, at = np.random.default_rng(4), judged(4)
    y = draw_bounded(0.2 + 0.6 * LEVEL[at], 0.15, 0.1, rng=rng)
    levels, seen = seen_by(at, y)
    exact, n_eff = oracles.bounded_posterior(LEVEL, at, y, n=400_000, seed=5)
    assert n_eff > 1000
    for options in (NutsOptions("nutpie", n_draws=4000), NutsOptions("pymc", n_draws=2000, chains=2)):
        engine = options.engine
        trace = nuts.run(slice.observations(levels, seen, likelihood="beta"), options, rng=1)
        found = nuts.posterior(trace)
        f = nuts.to_draws(trace, levels, options.n_draws).f
        ours = np.column_stack(
            [f[:, [0, 6, 11]], nuts.pooled(found, "at_ends"), nuts.pooled(found, "dispersion")]
        )
        error = exact[1] * np.sqrt(1 / n_eff + 1 / 200)  # effective draws, at least
        assert (np.abs(ours.mean(axis=0) - exact[0]) < 5 * error).all(), engine
        assert np.abs(ours.std(axis=0) / exact[1] - 1).max() < 5 * np.sqrt((1 / n_eff + 1 / 200) / 2), engine


@pytest.mark.slow
def test_bounded_likelihood_passes_simulations():
    """Labels drawn by PyMC from the prior predictive; ranks of the truth among draws of its posterior."""
    at = judged(6)
    levels, seen = seen_by(at, np.full(M, 0.5))
    model = slice.observations(levels, seen, likelihood="beta")
    with quiet(), model.build(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        trace = pm.sample_prior_predictive(SIMS, random_seed=7)
    truth = nuts.group(trace, "prior").isel(chain=0)
    labels = nuts.group(trace, "prior_predictive")["y"].isel(chain=0).values

    def quantities(ends, shape, at_ends, dispersion):
        f = curve(np.array([0.3, 0.85]), ends, shape)
        return np.column_stack([f, np.diff(ends), at_ends, dispersion])

    names = ("ends", "shape", "at_ends", "dispersion")
    true = quantities(*(truth[name].values for name in names))
    rank = np.empty(true.shape, dtype=int)
    for s in range(SIMS):
        run = nuts.run(
            slice.observations(*seen_by(at, labels[s]), likelihood="beta"),
            NutsOptions(n_draws=THIN * RANKS, tune=200, chains=2),
            rng=s,
        )
        draws = quantities(*(nuts.pooled(nuts.posterior(run), name)[::THIN] for name in names))
        rank[s] = (draws[:RANKS] < true[s]).sum(axis=0)
    ranks = xr.Dataset(
        {"rank": (("sim", "quantity"), rank)},
        coords={"quantity": ["f(0.3)", "f(0.85)", "b - a", "at_ends", "dispersion"]},
        attrs={"n_ranks": RANKS},
    )
    found = sbc.verdict(ranks)
    assert found.attrs["passed"], found["passed"].to_pandas()
