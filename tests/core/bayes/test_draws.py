"""The models that only NUTS samples, through the estimators; and NUTS against Gibbs on covariates."""

import numpy as np
import pytest
from covariate_world import LEVELS, prepared, world

from cje_core.bayes import covariates
from cje_core.bayes.models import draws
from cje_core.bayes.models import nuts as sampling
from cje_core.bayes.models.nuts import NutsOptions
from cje_core.calibration.calibrated import Calibration
from cje_core.data import files, from_arrays
from cje_core.estimators import bayes_corrected, bayes_direct
from cje_core.inference.estimate import Status


@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
def test_two_stage_by_nuts_is_two_stage_by_gibbs_and_is_compiled_once(binary):
    rows, graded = prepared(world(6, m=60, effect=1.0, binary=binary)[0], ["x"])
    nuts = draws.two_stage(rows, graded, NutsOptions(n_draws=2000), rng=1)
    gibbs = covariates.sample(rows, graded, n_draws=4000, rng=2)
    assert nuts.diagnostics["rhat"] < 1.02 and nuts.diagnostics["ess_bulk"] > 200
    for ours, theirs in ((gibbs.beta, nuts.beta), (gibbs.f, nuts.f)):
        error = theirs.std(axis=0) * np.sqrt(1 / 200 + 1 / 1000)
        assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 5 * error).all()
        assert np.abs(ours.std(axis=0) / theirs.std(axis=0) - 1).max() < 5 / np.sqrt(2 * 200)
    compiled = len(sampling._compiled)
    again = prepared(world(7, n=90, m=40, binary=binary)[0], ["x"])
    draws.two_stage(*again, NutsOptions(n_draws=40), rng=1)
    assert len(sampling._compiled) == compiled


@pytest.mark.slow
def test_clusters_count_in_nuts_as_in_gibbs():
    rows, graded = prepared(world(7, m=40, effect=0.5, copies=3)[0], ["x"])
    assert graded.share == pytest.approx(1 / 3)
    nuts = draws.two_stage(rows, graded, NutsOptions(n_draws=2000), rng=1)
    gibbs = covariates.sample(rows, graded, n_draws=4000, rng=2)
    assert abs(nuts.beta.mean() - gibbs.beta.mean()) < 5 * gibbs.beta.std() * np.sqrt(1 / 200 + 1 / 1000)
    assert abs(nuts.beta.std() / gibbs.beta.std() - 1) < 5 / np.sqrt(2 * 200)


@pytest.mark.slow
def test_partial_pooling_lets_a_policy_differ():
    """The judge flatters policy b: one curve for both is wrong for each, one curve per policy for neither."""
    rng = np.random.default_rng(8)
    judge = rng.choice(LEVELS, (2, 500))
    mean = np.clip(0.2 + 0.7 * judge - 0.4 * judge * np.array([[0], [1]]), 0.0, 1.0)
    y = np.clip(mean + rng.normal(0, 0.1, mean.shape), 0.0, 1.0)
    label = np.where(np.arange(500) < np.array([[150], [40]]), y, np.nan)
    data = from_arrays(judge, policies=["a", "b"], oracle=label)
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
    assert [Status(s) for s in corrected.status.values] == [Status.OK] * 2


@pytest.mark.slow
def test_feedback_hides_a_part_of_the_shift(arena):
    data = files.read(arena / "fresh_draws", probes=arena / "probe_slice")[0]
    cut = bayes_corrected.estimate(data, rng=1).sel(policy="unhelpful")
    with pytest.warns(UserWarning, match="bend f"):
        joint = bayes_corrected.estimate(data, rng=1, model=bayes_corrected.Model(feedback=True))
    failed = Status(int(joint.status.sel(policy="base")))
    joint = joint.sel(policy="unhelpful")
    assert failed is Status.NO_PROBES and Status(int(joint.status)) in (Status.OK, Status.NOT_CONVERGED)
    assert float(cut["shift"]) < float(joint["shift"]) - 0.01 < -0.1
    assert float(joint["within_margin"]) < 0.01


def test_what_gibbs_does_not_sample_is_refused():
    data, _ = world(9)
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
        ({"prior": "flat"}, {}, "joint posterior"),
        ({}, {"engine": "gibbs"}, "'nutpie' or 'pymc'"),
    ):
        with pytest.raises(ValueError, match=text):
            bayes_corrected.estimate(data, model=bayes_corrected.Model(feedback=True, **assumed), **options)
    rows, graded = prepared(data, ["x"])
    with pytest.raises(ValueError, match="columns"):
        draws.two_stage(rows, graded._replace(columns=None))
