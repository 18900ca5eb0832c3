"""The PyMC models against exact answers, the Gibbs sampler and quadrature, and what only NUTS samples.

Compiling costs more than sampling, so these are one file, hence one process, and models of several policies have three.
"""

import covariate_world
import numpy as np
import oracles_bayes_models as oracles
import pytest
from pytensor import config
from scipy import stats

from cje_core.bayes import covariates, gibbs, shifts
from cje_core.bayes.levels import grade
from cje_core.bayes.models import draws, nuts, policies, slice
from cje_core.bayes.models.engines import az, pm, quiet
from cje_core.bayes.models.nuts import NutsOptions
from cje_core.bayes.prior import Prior
from cje_core.calibration.calibrated import Calibration
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import bayes_corrected, bayes_direct
from cje_core.families import posterior
from cje_core.inference.estimate import Status
from cje_core.io import files

LEVELS = np.round(np.linspace(0.05, 1.0, 12), 2)
UNIT = (0.0, 1.0)


def graded(data, covariates=()):
    rows = unpack(data, covariates)
    return rows, grade(rows, fit_slice(rows), judge_range=UNIT, oracle_range=UNIT)


def world(seed, n=400, m=120, *, binary=False, effect=0.0, shift=(0.0,)):
    """Policies p0, p1, ...: labels of the first teach, the others' are probes; x is a covariate."""
    rng = np.random.default_rng(seed)
    size = (len(shift), n)
    judge, x = rng.choice(LEVELS, size=size), rng.standard_normal(size)
    f = np.clip(0.15 + 0.7 * judge**2, 0.01, 0.99)
    mean = 1 / (1 + (1 / f - 1) * np.exp(-effect * x)) + np.array(shift)[:, None]
    y = rng.binomial(1, np.clip(mean, 0, 1)) if binary else np.clip(mean + rng.normal(0, 0.1, size), 0, 1)
    oracle = np.full(size, np.nan)
    oracle[:, :m] = y[:, :m]
    probe = np.zeros(size, bool)
    probe[1:, :m] = True
    names = [f"p{p}" for p in range(len(shift))]
    return from_arrays(
        judge, policies=names, oracle=oracle, probe=probe, covariate=np.stack([x, 0 * x + 3.0], -1),
        features=["x", "same"], calibration_policy="p0",
    )  # fmt: skip


def close(found, mean, sd, n_eff=400, n_sd=5.0):
    """Mean and sd of draws within 5 Monte Carlo standard errors of the reference (itself of `n_eff` draws at least)."""
    error = np.sqrt(2.0 / n_eff)
    assert np.abs(found.mean(axis=0) - mean).max() < n_sd * error * np.max(sd)
    ratio = found.std(axis=0) / sd
    assert np.abs(ratio - 1).max() < n_sd * error


@pytest.mark.slow
def test_observations_have_the_posterior_of_sufficient_statistics_and_leave_one_out():
    rows, slice_ = graded(world(3))
    seen = slice.labelled(rows, slice_)
    model = slice.observations(slice_.levels, seen)
    trace = nuts.run(model, NutsOptions(n_draws=2000), rng=1)
    draws = nuts.to_draws(trace, slice_.levels, 2000)
    reference = gibbs.sample(slice_.levels, n_draws=4000, rng=2)
    value = slice_.levels.n / slice_.levels.n.sum()
    close(draws.f @ value, (reference.f @ value).mean(), (reference.f @ value).std())
    # without C, which takes longer to compile than these to run
    with model.build(), quiet(), config.change_flags(mode="FAST_COMPILE"):
        trace = pm.compute_log_likelihood(trace, progressbar=False)
        replicated = pm.sample_posterior_predictive(trace, var_names=["y"], progressbar=False, random_seed=3)
    labels = nuts.group(replicated, "posterior_predictive")["y"].values
    assert abs(labels.mean() - seen.label.mean()) < 5 * seen.label.std() / np.sqrt(len(seen.label))
    pointwise = nuts.group(trace, "log_likelihood")["y"].values.reshape(-1, len(seen.label))
    exact = oracles.pointwise_log_likelihood(seen, nuts.posterior(trace), slice_.levels)
    np.testing.assert_allclose(pointwise, exact, rtol=1e-8, atol=1e-8)
    score = az.loo(trace)
    elpd = score.elpd_loo if hasattr(score, "elpd_loo") else score.elpd
    smoothed = -np.log(np.exp(-exact).mean(axis=0)).sum()
    assert abs(elpd - smoothed) < 1.0


@pytest.mark.slow
def test_hierarchical_pools_what_is_equal_and_parts_what_differs():
    rng = np.random.default_rng(6)
    judge = rng.choice(LEVELS, size=(3, 150))
    same = np.clip(0.15 + 0.7 * judge + rng.normal(0, 0.1, judge.shape), 0, 1)
    other = same.copy()
    other[2] = np.clip(same[2] - 0.6 * judge[2], 0, 1)
    found, start = {}, {"deviation": 0.5, "scale": Prior().scale}
    for name, oracle, deviation in (("forced", same, 1e-3), ("same", same, 0.5), ("other", other, 0.5)):
        apart = np.kron(np.eye(3), np.ones(150)) > 0  # prompts of their own, so every label counts once
        data = from_arrays(
            np.where(apart, np.tile(judge, 3), np.nan), policies=["a", "b", "c"],
            oracle=np.where(apart, np.tile(oracle, 3), np.nan),
        )  # fmt: skip
        rows, slice_ = graded(data)
        labels = policies.by_policy(rows, slice_, rows.labelled)
        np.testing.assert_allclose(labels.n.sum(axis=0), slice_.levels.n)
        assert labels.squares.sum() == pytest.approx(slice_.levels.squares)
        model = policies.hierarchical(labels, deviation=deviation)
        model = model._replace(start=start)  # one compiled model serves all three
        trace = nuts.run(model, NutsOptions(n_draws=2000), rng=1)
        ends, shape, tau = (
            nuts.pooled(nuts.posterior(trace), name) for name in ("own_ends", "own_shape", "tau")
        )
        own = [gibbs.curve(slice_.levels.level, ends[:, p], shape[:, p]) for p in range(3)]
        found[name] = (np.stack(own, axis=1), tau, slice_.levels, labels)
    f, _, levels, _ = found["forced"]  # no deviation allowed: all policies have the pooled posterior
    reference = gibbs.sample(levels, n_draws=4000, rng=2)
    for p in range(3):
        close(f[:, p], reference.f.mean(axis=0), reference.f.std(axis=0))
    f, tau_same, levels, labels = found["same"]
    gap = np.abs(f.mean(axis=0) - reference.f.mean(axis=0)).max()
    alone = [
        gibbs.sample(
            levels._replace(n=labels.n[p], total=labels.total[p], squares=labels.squares[p]), rng=p
        ).f
        for p in range(3)
    ]
    alone_gap = max(np.abs(one.mean(axis=0) - reference.f.mean(axis=0)).max() for one in alone)
    assert gap < 0.7 * alone_gap  # shrunk towards the pooled curve
    assert f.std(axis=0).mean() < np.mean([one.std(axis=0).mean() for one in alone])  # and borrowing strength
    f, tau_other, _, _ = found["other"]
    assert (f[:, 0, -1] - f[:, 2, -1]).mean() == pytest.approx(0.6, abs=0.1)
    assert tau_other.mean() > 2 * tau_same.mean()


@pytest.mark.slow
def test_joint_transport_warns_and_meets_the_cut_posterior_where_f_is_known():
    data = world(7, n=3000, m=60, shift=(0.0, -0.1, 0.0))
    many = world(8, n=3000, m=3000, shift=(0.0, -0.1, 0.0))
    oracle = data["oracle"].values.copy()
    oracle[0], judge = many["oracle"].values[0], data["judge"].values.copy()
    judge[0] = many["judge"].values[0]
    data = from_arrays(
        judge[:, :, 0], policies=["p0", "p1", "p2"], oracle=oracle[:, :, 0], probe=data["probe"].values[:, :, 0],
        calibration_policy="p0",
    )  # fmt: skip
    rows, slice_ = graded(data)
    probes = policies.by_policy(rows, slice_, rows.probe)
    assert probes.n.sum(axis=1).tolist() == [0, 60, 60]
    with pytest.warns(UserWarning, match="bend f"):
        model = policies.joint_transport(slice_.levels, probes)
    trace = nuts.run(model, NutsOptions(n_draws=2000), rng=1)
    delta = nuts.pooled(nuts.posterior(trace), "delta")[:, 1:]
    draws = gibbs.sample(slice_.levels, n_draws=4000, rng=2)
    cut = shifts.shifts(rows, slice_, draws, rng=3).delta[1:]
    assert np.abs(delta.mean(axis=0) - cut.mean(axis=1)).max() < 0.25 * cut.std(axis=1).max()
    assert np.abs(delta.std(axis=0) / cut.std(axis=1) - 1).max() < 0.25
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="share their judge levels"):
        policies.joint_transport(slice_.levels, probes._replace(level=probes.level / 2))


# --- through the estimators, and with covariates ---


@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
def test_two_stage_by_nuts_is_two_stage_by_gibbs_and_is_compiled_once(binary):
    rows, seen = covariate_world.prepared(covariate_world.world(6, m=60, effect=1.0, binary=binary)[0], ["x"])
    run = draws.two_stage(rows, seen, NutsOptions(n_draws=2000), rng=1)
    other = covariates.sample(rows, seen, n_draws=4000, rng=2)
    assert run.diagnostics["rhat"] < 1.02 and run.diagnostics["ess_bulk"] > 200
    for ours, theirs in ((other.beta, run.beta), (other.f, run.f)):
        error = theirs.std(axis=0) * np.sqrt(1 / 200 + 1 / 1000)
        assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 5 * error).all()
        assert np.abs(ours.std(axis=0) / theirs.std(axis=0) - 1).max() < 5 / np.sqrt(2 * 200)
    compiled = len(nuts._compiled)
    again = covariate_world.prepared(covariate_world.world(7, n=90, m=40, binary=binary)[0], ["x"])
    draws.two_stage(*again, NutsOptions(n_draws=40, tune=20), rng=1)
    assert len(nuts._compiled) == compiled


@pytest.mark.slow
def test_clusters_count_in_nuts_as_in_gibbs():
    rows, seen = covariate_world.prepared(covariate_world.world(7, m=40, effect=0.5, copies=3)[0], ["x"])
    assert seen.share == pytest.approx(1 / 3)
    run = draws.two_stage(rows, seen, NutsOptions(n_draws=2000), rng=1)
    other = covariates.sample(rows, seen, n_draws=4000, rng=2)
    assert abs(run.beta.mean() - other.beta.mean()) < 5 * other.beta.std() * np.sqrt(1 / 200 + 1 / 1000)
    assert abs(run.beta.std() / other.beta.std() - 1) < 5 / np.sqrt(2 * 200)


@pytest.mark.slow
def test_partial_pooling_lets_a_policy_differ(monkeypatch):
    """The judge flatters policy b: one curve for all is wrong for it, one curve per policy for none."""
    monkeypatch.setattr(posterior, "MIN_RUN", 4000)  # the gates pass with half of what users get
    rng = np.random.default_rng(8)
    judge = rng.choice(LEVELS, (3, 500))
    mean = np.clip(0.2 + 0.7 * judge - 0.4 * judge * np.array([[0], [1], [0]]), 0.0, 1.0)
    y = np.clip(mean + rng.normal(0, 0.1, mean.shape), 0.0, 1.0)
    label = np.where(np.arange(500) < np.array([[150], [40], [40]]), y, np.nan)
    data = from_arrays(judge, policies=["a", "b", "c"], oracle=label)
    truth = mean.mean(axis=1)
    partial = bayes_direct.Model(pooling="partial")
    own = bayes_direct.estimate(data, rng=1, route="plug_in", model=partial)
    one = bayes_direct.estimate(data, rng=1, route="plug_in")
    assert (abs(own.estimate - truth) < 4 * own.std_error).all()
    assert abs(one.estimate[1] - truth[1]) > 4 * one.std_error[1]
    top = own["own_calibrator"].isel(level=-1).mean("replicate")
    assert float(top[0] - top[1]) == pytest.approx(0.4, abs=0.1)
    assert "rhat" in own and own.attrs["options"].count("nutpie")
    corrected = bayes_direct.estimate(data, rng=1, model=partial)
    assert (abs(corrected.estimate - truth) < 4 * corrected.std_error).all()
    assert [Status(s) for s in corrected.status.values] == [Status.OK] * 3


@pytest.mark.slow
def test_feedback_hides_a_part_of_the_shift(arena, monkeypatch):
    monkeypatch.setattr(posterior, "MIN_RUN", 4000)
    data = files.read(arena / "fresh_draws", probes=arena / "probe_slice")[0]
    cut = bayes_corrected.estimate(data, rng=1).sel(policy="unhelpful")
    with pytest.warns(UserWarning, match="bend f"):
        joint = bayes_corrected.estimate(data, rng=1, model=bayes_corrected.Model(feedback=True))
    failed = Status(int(joint.status.sel(policy="base")))
    joint = joint.sel(policy="unhelpful")
    assert failed is Status.NO_PROBES and Status(int(joint.status)) in (Status.OK, Status.NOT_CONVERGED)
    assert float(cut["shift"]) < float(joint["shift"]) - 0.01 < -0.1
    assert float(joint["within_margin"]) < 0.01


def test_clusters_need_no_compiled_model_of_their_own():
    keys, shares = set(), []
    for copies in (1, 3):
        rows, seen = covariate_world.prepared(covariate_world.world(7, m=40, copies=copies)[0], ["x"])
        model = slice.two_stage(seen.levels, slice.labelled(rows, seen), seen.columns[rows.teaches])
        keys.add(model.key)
        shares.append(float(model.data["share"]))
    assert len(keys) == 1 and shares == pytest.approx([1.0, 1 / 3])


def test_what_gibbs_does_not_sample_is_refused():
    data, _ = covariate_world.world(9)
    with_x = {"calibration": Calibration(["x"])}
    for assumed, options, text in (
        ({"pooling": "partial"}, {"engine": "gibbs"}, "'nutpie' or 'pymc'"),
        ({"pooling": "partial"}, with_x, "no model with covariates and partial pooling"),
        ({"pooling": "some"}, {}, "complete, partial"),
        ({"effect": "cubic"}, with_x, "linear, spline"),
    ):
        with pytest.raises(ValueError, match=text):
            bayes_direct.estimate(data, model=bayes_direct.Model(**assumed), **options)
    for assumed, options, text in (
        ({}, with_x, "joint posterior"),
        ({"prior": "normal"}, {}, "joint posterior"),
        ({}, {"engine": "gibbs"}, "'nutpie' or 'pymc'"),
    ):
        with pytest.raises(ValueError, match=text):
            bayes_corrected.estimate(data, model=bayes_corrected.Model(feedback=True, **assumed), **options)
    rows, seen = covariate_world.prepared(data, ["x"])
    with pytest.raises(ValueError, match="columns"):
        draws.two_stage(rows, seen._replace(columns=None))


# --- sums and priors ---


@pytest.mark.parametrize("binary", [False, True])
def test_sums_by_policy_are_those_of_the_slice_and_copies_in_clusters_add_nothing(binary):
    found = []
    for copies in (1, 3):
        data, _ = covariate_world.world(3, probes=20, copies=copies, binary=binary)
        rows, each = graded(data)
        sums = policies.by_policy(rows, each, rows.teaches)
        assert sums.binary == binary and not sums.n[1].any()
        for name in ("n", "total", "squares"):
            np.testing.assert_allclose(getattr(sums, name)[0], getattr(each.levels, name), rtol=1e-12)
        found.append(policies.by_policy(rows, each, rows.labelled | rows.probe))
    assert found[0].n.sum(axis=1).tolist() == [150, 20]
    for name in ("n", "total", "squares"):
        # the design effect of identical copies is 3 up to the factor clusters / (clusters - 1) of its estimate
        once, thrice = (getattr(one, name) for one in found)
        np.testing.assert_allclose(thrice, once, rtol=2 / 150)


def models_and_priors():
    """Every model with the laws that its docstring gives its variables; no parameter is at its default."""
    data, _ = covariate_world.world(3, n=40, m=20, probes=20)
    rows, seen = covariate_world.prepared(data, ["x"])
    prior = Prior(concentration=2.0, scale=0.2, n_splines=3)
    labels = policies.by_policy(rows, seen, rows.labelled)
    probes = policies.by_policy(rows, seen, rows.probe)
    taught = slice.labelled(rows, seen)
    noise = {
        "sigma": stats.halfnorm(scale=0.2)
    }  # ends and shape have potentials: `test_nuts` has their prior
    yield slice.calibration(seen.levels, prior), noise
    yield slice.observations(seen.levels, taught, prior), noise
    columns = seen.columns[rows.teaches]
    yield (
        slice.two_stage(seen.levels, taught, columns, prior, effect_scale=0.7),
        noise | {"beta": stats.norm(scale=0.7)},
    )
    yield (
        policies.hierarchical(labels, prior, deviation=0.4),
        noise
        | {"tau": stats.halfnorm(scale=0.4)}
        | {f"{name}_deviations": stats.norm() for name in ("end", "shape")},
    )
    with pytest.warns(UserWarning, match="bend f"):
        joint = policies.joint_transport(seen.levels, probes, prior, scale=0.07)
    spread = {"tau": stats.halfcauchy(scale=0.07), "sigma_probe": stats.halfnorm(scale=0.2)}
    yield joint, noise | spread | {"standard_delta": stats.t(3)}


@pytest.mark.slow
def test_priors_are_those_of_the_docstrings():
    level = 2 * stats.norm.sf(5)
    for specification, laws in models_and_priors():
        model = specification.build()
        drawn = pm.draw([model[name] for name in laws], draws=4000, random_seed=1)
        for (name, law), values in zip(laws.items(), drawn, strict=True):
            first = values.reshape(4000, -1)[:, 0]
            assert stats.kstest(first, law.cdf).pvalue > level, name
