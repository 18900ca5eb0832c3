"""Posteriors chain by chain: the groups that ArviZ reads, each number against a slow second implementation."""

import numpy as np
import pytest
from scipy import stats

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.data import from_arrays
from cje_core.estimators import (
    bayes_corrected,
    bayes_direct,
    bayes_rogan_gladen,
    direct,
    projection_posterior,
)
from cje_core.families import chains, posterior
from cje_core.streams import generator
from cje_core.workflow import posterior as analysis


def world(binary=False, n=120, seed=3, noise=0.05):
    rng = np.random.default_rng(seed)
    judge, length = rng.integers(1, 10, (2, n)) / 10, rng.random((2, n))
    mean = np.clip(0.2 + 0.6 * judge + 0.1 * length, 0, 1)
    label = (
        (rng.random((2, n)) < mean).astype(float) if binary else mean + noise * rng.standard_normal((2, n))
    )
    seen, probe = np.zeros((2, n), dtype=bool), np.zeros((2, n), dtype=bool)
    seen[0, :60], probe[1, 60:90] = True, True
    return from_arrays(
        10 * judge,
        policies=["base", "other"],
        oracle=np.where(seen | probe, 4 * label, np.nan),
        probe=probe,
        covariate=length[..., None],
        features=["length"],
        judge_range=(0, 10),
        oracle_range=(0, 4) if binary else (-1, 5),
    )


@pytest.mark.parametrize("binary", [False, True])
def test_the_first_chain_is_the_estimate_s_own_and_the_others_are_not(binary):
    data = world(binary)
    tree = chains.sample(data, n_draws=200, rng=np.random.default_rng(7))
    whole = bayes_direct.estimate(data, rng=np.random.default_rng(7), n_draws=200)
    value = tree["posterior"]["value"]
    speaks = whole["draws"].notnull().all("replicate")
    np.testing.assert_array_equal(value["policy"], whole["policy"][speaks])
    np.testing.assert_array_equal(value.sel(chain=0).T, whole["draws"][speaks])
    ends = tree["posterior"]["ends"].values
    assert len({one.tobytes() for one in ends}) == 4


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("covariate", [False, True])
def test_likelihood_of_single_labels_against_a_loop(binary, covariate):
    data = world(binary)
    how = Calibration(["length"]) if covariate else None
    tree = chains.sample(data, calibration=how, n_draws=6, n_chains=2, rng=1)
    drawn, label = tree["posterior"], tree["observed_data"]["y"].values
    np.testing.assert_allclose(
        label,
        data["oracle"].sel(policy="base").values[:60, 0][np.argsort(data.prompt[:60].values)],
        rtol=1e-12,
    )
    judged, level = tree["constant_data"]["judge"].values, drawn["level"].values
    by_prompt = data["covariate"].sel(policy="base").isel(draw=0, feature=0)
    x = by_prompt.sel(prompt=tree["constant_data"]["label_prompt"].values).values
    x = (x - x.mean()) / x.std()
    low, width = data.attrs["oracle_range"][0], np.ptp(data.attrs["oracle_range"])
    for c in range(2):
        for d in range(6):
            at = drawn.isel(chain=c, draw=d)
            for i in range(0, 60, 7):
                f = (float(at["calibrator"][np.argmin(abs(level - judged[i]))]) - low) / width
                if covariate:
                    odds = f / (1 - f) * np.exp(float(at["covariate_effect"][0]) * x[i])
                    f = odds / (1 + odds)
                if binary:
                    expected = stats.bernoulli.logpmf(round((label[i] - low) / width), f)
                else:
                    expected = stats.norm.logpdf(label[i], low + width * f, float(at["sigma"]))
                assert tree["log_likelihood"]["y"].values[c, d, i] == pytest.approx(
                    expected, rel=1e-4, abs=1e-5
                )


def test_replicated_labels_have_the_mean_and_spread_of_their_draws():
    tree = chains.sample(world(), n_draws=400, rng=2)
    again, drawn = tree["posterior_predictive"]["y"], tree["posterior"]
    at = np.argmin(abs(drawn["level"].values[:, None] - tree["constant_data"]["judge"].values), axis=0)
    expected = drawn["calibrator"].values[:, :, at]
    z = (again.values - expected) / drawn["sigma"].values[..., None]
    assert abs(z.mean()) < 5 / np.sqrt(z.size) and abs(z.var() - 1) < 5 * np.sqrt(2 / z.size)


def test_independent_draws_are_dealt_and_those_of_a_chain_are_not():
    data = world(binary=True)
    found = bayes_rogan_gladen.estimate(data, rng=1, n_draws=402)
    tree = chains.independent(found)
    assert dict(tree["posterior"]["value"].sizes)["draw"] == 100
    np.testing.assert_array_equal(
        tree["posterior"]["value"].values.reshape(400, -1).T[0],
        found["draws"].values[np.isfinite(found.draws).all("replicate")][0, :400],
    )
    with pytest.raises(ValueError, match="sampler's chain"):
        chains.independent(bayes_direct.estimate(data, rng=1, n_draws=50))
    with pytest.raises(ValueError, match="no draws"):
        chains.independent(direct.estimate(data))


def test_too_few_labels_leave_no_posterior():
    data = world().isel(prompt=slice(100, 120))
    assert not chains.sample(data, n_draws=10, rng=1).children


def test_both_estimators_of_an_analysis_take_one_calibrator():
    given = calibrated(world())
    found = analysis.posterior(given, engine="gibbs", margin=0.1, seed=5)
    for name, estimator in (("bayes_direct", bayes_direct), ("bayes_corrected", bayes_corrected)):
        rng = generator(5, "analyze", "posterior")
        alone = estimator.estimate(given, rng=rng, n_draws=analysis.N_DRAWS)
        np.testing.assert_array_equal(found.estimates[name]["draws"], alone["draws"])


@pytest.mark.slow  # imports PyMC
def test_an_analysis_by_nuts_samples_once(monkeypatch):
    """Two estimates and the file of chains come of one trace, which is passed on: NUTS remembers nothing."""
    import xarray as xr

    from cje_core.bayes import gibbs
    from cje_core.bayes.models import nuts

    monkeypatch.setattr(posterior, "MIN_RUN", 2000)
    given, sampled = calibrated(world()), []

    def run(model, options, *, rng):
        sampled.append(model)
        drawn = gibbs.sample(posterior.prepare(given).graded.levels, n_draws=2000, rng=rng)
        apart = {
            name: (("chain", "draw", *extra), getattr(drawn, name).reshape(4, 500, *size))
            for name, extra, size in (
                ("ends", ["end"], (2,)),
                ("shape", ["spline"], (8,)),
                ("sigma", [], ()),
            )
        }
        energy = rng.standard_normal((4, 500))
        steps = {
            "energy": (("chain", "draw"), energy),
            "diverging": (("chain", "draw"), np.zeros((4, 500), bool)),
        }
        groups = {"posterior": xr.Dataset(apart), "sample_stats": xr.Dataset(steps)}
        return nuts.to_arviz(xr.DataTree.from_dict(groups))

    monkeypatch.setattr(nuts, "run", run)
    found = analysis.posterior(given, engine="nutpie", margin=0.1, seed=5)
    tree = analysis.to_tree(found, given, 5)
    assert len(sampled) == 1
    known = nuts.posterior(found.calibrator.trace)["ends"].values
    low, high = given.data.attrs["oracle_range"]
    np.testing.assert_allclose(tree["posterior"]["ends"].values, low + (high - low) * known, rtol=1e-12)


@pytest.mark.slow
# what ArviZ says of leaving out an influential label in a sample of sixty
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
@pytest.mark.filterwarnings(
    "ignore::matplotlib.MatplotlibDeprecationWarning"
)  # of ArviZ 0.23 under matplotlib 3.11
@pytest.mark.parametrize("engine", ["gibbs", "nutpie", "pymc"])
def test_arviz_reads_every_engine(engine, monkeypatch):
    """Finite R-hat and effective sample sizes, leave-one-out scores, means that agree, and its own figures."""
    from matplotlib import pyplot as plt

    from cje_core.bayes.models import nuts
    from cje_core.bayes.models.engines import az

    monkeypatch.setattr(posterior, "MIN_RUN", 2000)  # of NUTS, four chains: twice the draws that are kept
    monkeypatch.setattr(nuts, "TARGET_ACCEPT", 0.9)  # a fit that is to be trusted takes twice the steps
    data = world(noise=0.2)  # less noise makes a sharper posterior, through which NUTS takes twice the steps
    trace = nuts.to_arviz(chains.sample(data, engine=engine, with_shifts=True, n_draws=250, rng=1))
    found = az.summary(trace)
    assert np.isfinite(found[["r_hat", "ess_bulk", "ess_tail"]]).all(axis=None)
    # Gibbs mixes slowly in the ends and the shape, which trade with each other beyond the labels, and not in f
    told = found.index.str.contains(r"^(?:value|shift|corrected_value|calibrator|sigma)")
    assert found["r_hat"][told].max() < 1.05
    # the three sample one posterior: the means of its values agree within five Monte Carlo standard errors
    other = nuts.to_arviz(chains.sample(data, n_draws=250, rng=2))
    both = [one["posterior"]["value"] for one in (trace, other)]
    means = [one.mean(("chain", "draw")).values for one in both]
    errors = [
        one.std(("chain", "draw")).values
        / np.sqrt([float(az.ess(one.isel(policy=p).values)) for p in range(2)])
        for one in both
    ]
    assert (abs(means[0] - means[1]) < 5 * np.hypot(*errors)).all()
    left_out = az.loo(trace)
    assert np.isfinite(float(left_out["elpd_loo"] if az.__version__.startswith("0.") else left_out.elpd))
    if az.__version__.startswith("0."):
        az.plot_ppc(trace, num_pp_samples=20)
        az.plot_forest(trace, var_names=["value"])
        plt.close("all")
    if engine == "gibbs":
        for estimate in (bayes_rogan_gladen, projection_posterior):
            one = estimate.estimate(world(binary=True), rng=1)
            told = az.summary(nuts.to_arviz(chains.independent(one)))
            assert np.isfinite(told[["r_hat", "ess_bulk"]]).all(axis=None)
