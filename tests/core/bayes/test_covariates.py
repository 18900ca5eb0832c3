"""The calibration with covariates: effect columns, the sampler, and what it mends."""

import numpy as np
import oracles_bayes
import pytest
from covariate_world import prepared, world

from cje_core.bayes import covariates, gibbs
from cje_core.bayes.covariates import effects
from cje_core.bayes.prior import Prior
from cje_core.calibration.calibrated import Calibration
from cje_core.data.arrays import unpack
from cje_core.estimators import bayes_corrected, bayes_direct
from cje_core.inference.estimate import Status

# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n_columns"), [("linear", 1), ("spline", 4)])
def test_effects_are_centred_on_the_labels_and_span_the_covariate(kind, n_columns):
    rows = unpack(world(4, m=300)[0], ["x", "same"])
    columns = effects(rows, kind)
    assert columns.shape == (800, 2 * n_columns) and rows.teaches.sum() == 300
    np.testing.assert_allclose(columns[rows.teaches].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(columns[:, n_columns:], 0.0, atol=1e-12)  # a constant has no effect
    x, total = rows.z[rows.teaches, 1], columns[rows.teaches, :n_columns].sum(axis=1)
    assert np.corrcoef(x, total)[0, 1] > 0.97
    assert np.ptp(total) == pytest.approx(np.ptp(x) / x.std() if kind == "linear" else 4.0)


def test_effects_need_covariates():
    rows = unpack(world(9)[0])
    with pytest.raises(ValueError, match="no covariates"):
        effects(rows)
    rows, graded = prepared(world(9)[0], ["x"])
    with pytest.raises(ValueError, match="linear, spline"):
        effects(rows, "cubic")
    with pytest.raises(ValueError, match="no columns"):
        covariates.sample(rows, graded._replace(columns=None))


# --- sampler ----------------------------------------------------------------------------------------------------------


def agrees(chain, mean, error):
    """Mean of a chain within 5 standard errors of the reference's, both simulated."""
    for k in range(chain.shape[1]):
        x = chain[:, k]
        mcse = x.std() / np.sqrt(oracles_bayes.effective_draws(x))
        assert abs(x.mean() - mean[k]) < 5 * np.hypot(mcse, error[k]), (k, x.mean(), mean[k])


@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
def test_posterior_against_importance_sampling(binary):
    """Few labels, so that prior draws reach the posterior; a strong effect, so that it is told from none."""
    rows, graded = prepared(world(1, n=30, m=12, effect=2.0, binary=binary)[0], ["x", "same"])
    prior = Prior(n_splines=2)
    draws = covariates.sample(rows, graded, n_draws=20_000, prior=prior, effect_scale=1.0, rng=2)
    taught = rows.teaches
    mean, error = oracles_bayes.two_stage_by_importance(
        graded.levels.level[graded.at[taught]], graded.columns[taught], graded.label[taught], binary,
        prior=prior, effect_scale=1.0,
    )  # fmt: skip
    means = oracles_bayes.row_means(rows, graded, draws)[:, taught]
    agrees(np.column_stack([means, draws.beta, *([] if binary else [draws.sigma])]), mean, error)
    assert mean[12] > 10 * error[12]
    # planted: half the prior's scale is told apart
    with pytest.raises(AssertionError):
        other = covariates.sample(rows, graded, n_draws=20_000, prior=prior, effect_scale=0.5, rng=2)
        agrees(other.beta, mean[12:14], error[12:14])


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("concentration", [1.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_without_an_effect_it_is_the_calibration_of_the_judge(binary, concentration):
    rows, graded = prepared(world(5, binary=binary)[0], ["same"])
    prior = Prior(concentration)
    draws = covariates.sample(rows, graded, n_draws=4000, prior=prior, rng=1)
    reference = gibbs.sample(graded.levels, n_draws=4000, prior=prior, rng=2)
    for k in np.flatnonzero(graded.levels.n):
        ours, theirs = draws.f[:, k], reference.f[:, k]
        n_eff = [oracles_bayes.effective_draws(x) for x in (ours, theirs)]
        error = theirs.std() * np.sqrt(sum(1 / n for n in n_eff))
        assert abs(ours.mean() - theirs.mean()) < 5 * error, k
        assert abs(ours.std() / theirs.std() - 1) < 5 * np.sqrt(sum(1 / n for n in n_eff) / 2 * 2), k
    # nothing is told of the coefficient of a constant: it keeps its prior
    n_eff = oracles_bayes.effective_draws(draws.beta[:, 0])
    assert abs(draws.beta.mean()) < 5 * 0.5 / np.sqrt(n_eff)
    assert draws.beta.std() == pytest.approx(0.5, rel=5 / np.sqrt(n_eff))


@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
def test_chains_from_different_streams_meet(binary):
    rows, graded = prepared(world(6, effect=1.0, binary=binary)[0], ["x"], "spline")
    chains = [covariates.sample(rows, graded, n_draws=1000, rng=seed) for seed in range(4)]
    for name in ("f", "beta"):
        stacked = np.stack([getattr(one, name) for one in chains])
        worst = max(oracles_bayes.rhat(stacked[:, :, k]) for k in range(stacked.shape[2]))
        assert worst < 1.02, (name, worst)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
def test_two_thousand_draws_have_400_effective_ones(binary):
    """Of f at every level and of the ends, which had 239 before the outermost increments moved against them."""
    rows, graded = prepared(world(6, m=60, effect=1.0, binary=binary)[0], ["x"])
    draws = covariates.sample(rows, graded, n_draws=20_000, rng=0)
    columns = np.column_stack([draws.f, draws.ends, draws.shape, draws.beta])
    fewest = min(oracles_bayes.effective_draws(x) for x in columns.T) / 10
    print(f"{fewest:.0f} effective draws of 2,000")
    assert fewest > 400


def test_copies_in_a_cluster_add_no_certainty():
    """Every response three times in its cluster: each label counts a third."""
    single, thrice = (prepared(world(7, m=60, effect=0.5, copies=k)[0], ["x"]) for k in (1, 3))
    assert thrice[1].share == pytest.approx(1 / 3)
    one, three = (covariates.sample(*each, n_draws=4000, rng=1) for each in (single, thrice))
    for a, b in ((one.beta, three.beta), (one.f, three.f), (one.sigma[:, None], three.sigma[:, None])):
        for k in range(a.shape[1]):
            noise = np.sqrt(sum(1 / oracles_bayes.effective_draws(x[:, k]) for x in (a, b)))
            assert abs(a[:, k].mean() - b[:, k].mean()) < 5 * a[:, k].std() * noise
            assert abs(a[:, k].std() / b[:, k].std() - 1) < 5 * noise
    loose = covariates.sample(thrice[0], thrice[1]._replace(share=1.0), n_draws=4000, rng=1)
    assert loose.beta.std() < 0.75 * three.beta.std()


# --- estimators -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "spline"])
def test_covariates_mend_what_the_judge_alone_misses(kind):
    """Policy b's responses differ in x: borrowed without x its value is off, with x it is not."""
    data, truth = world(4, n=1500, m=600, effect=1.0, center=(0.0, 1.0), binary=True)
    with_x = bayes_direct.estimate(
        data, rng=1, calibration=Calibration(["x", "same"]), model=bayes_direct.Model(effect=kind)
    )
    without = bayes_direct.estimate(data, rng=1)
    assert [Status(s) for s in with_x.status.values] == [Status.OK, Status.TRANSPORT_ASSUMED]
    assert abs(with_x.estimate[1] - truth[1]) < 4 * with_x.std_error[1]
    assert abs(without.estimate[1] - truth[1]) > 4 * without.std_error[1]
    assert with_x.sizes["effect"] == (2 if kind == "linear" else 8)
    if kind == "linear":
        beta = with_x["covariate_effect"].values[:, 0]
        scale = data["covariate"].values[0, :600, 0, 0].std()  # the effect is per sd of the labelled rows
        assert abs(beta.mean() - scale) < 4 * beta.std() < 1


@pytest.mark.slow
def test_a_shift_that_is_the_covariate_s_disappears_with_it():
    data, _ = world(8, n=1500, m=600, effect=1.0, center=(0.0, 1.5), binary=True, probes=200)
    flat = bayes_corrected.Model("flat")
    plain, with_x = (
        bayes_corrected.estimate(data, rng=1, model=flat, calibration=Calibration(names)).sel(policy="b")
        for names in ([], ["x"])
    )
    assert plain["shift_interval"][0] > 0.05 and abs(with_x["shift"]) < 0.05
    assert with_x["shift_interval"][0] < 0 < with_x["shift_interval"][1]


def test_a_response_far_from_the_labels_has_a_finite_value():
    data, _ = world(4, effect=1.0)
    far = data["covariate"].copy(deep=True)
    far[1, :2, 0, 0] = [1e5, -1e5]
    out = bayes_direct.estimate(data.assign(covariate=far), rng=1, calibration=Calibration(["x"]))
    assert np.isfinite(out.draws).all() and ((out.draws > 0) & (out.draws < 1)).all()
