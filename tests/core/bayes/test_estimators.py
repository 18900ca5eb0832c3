"""The Bayesian estimators: statuses, options and their agreement with the functions below them."""

import numpy as np
import pytest
import xarray as xr

from cje_core.bayes.decisions import decide
from cje_core.bayes.prior import Prior
from cje_core.data import from_arrays
from cje_core.estimators import bayes_corrected, bayes_direct, direct, labels_only, projection_posterior
from cje_core.inference.estimate import Status, hdi
from cje_sim.scenarios import discrete_judge, transport_shift, useless_judge, well_specified

ESTIMATORS = {"direct": bayes_direct, "projection": projection_posterior, "corrected": bayes_corrected}


def world(n=200, m=60, *, labels="base", probes=0, seed=0, constant=False, binary=False):
    rng = np.random.default_rng(seed)
    score = rng.choice([0.1, 0.4, 0.7, 0.9], (2, n))
    label = np.clip(score**2 + rng.normal(0, 0.1, (2, n)), 0, 1)
    if binary:
        label = (rng.uniform(size=(2, n)) < score).astype(float)
    if constant:
        label[:] = 1.0
    seen = np.zeros((2, n), bool)
    seen[0 if labels == "base" else slice(None), :m] = True
    probe = np.zeros((2, n), bool)
    probe[1, n - probes :] = probes > 0
    return from_arrays(
        score,
        policies=["a", "b"],
        oracle=np.where(seen | probe, label, np.nan),
        probe=probe,
        calibration_policy="a",
    )


def statuses(out):
    return [Status(s) for s in out.status.values]


def test_own_labels_correct_and_the_other_borrows():
    out = bayes_direct.estimate(world(), rng=0)
    assert statuses(out) == [Status.OK, Status.TRANSPORT_ASSUMED]
    assert out.route.values.tolist() == ["corrected", "one_step"]
    assert out.attrs["ci_kind"] == "eti"
    np.testing.assert_allclose(out.estimate, out.draws.mean("replicate"))
    np.testing.assert_allclose(out.std_error, out.draws.std("replicate", ddof=1))
    np.testing.assert_allclose(out.interval, np.quantile(out.draws, [0.025, 0.975], axis=1).T, rtol=1e-12)
    both = bayes_direct.estimate(world(labels="both"), rng=0)
    assert statuses(both) == [Status.OK, Status.OK]
    plain = bayes_direct.estimate(world(labels="both"), rng=0, route="plug_in")
    assert plain.route.values.tolist() == ["plug_in", "plug_in"]


@pytest.mark.parametrize("name", ["direct", "projection"])
def test_fewer_than_13_labels_have_no_interval(name):
    for m, silent in ((12, True), (13, False)):
        out = ESTIMATORS[name].estimate(world(m=m), rng=0)
        assert (out.status.values[0] == Status.FEW_LABELS_POSTERIOR) == silent
        assert np.isfinite(out.estimate).all()
        for variable in ("interval", "std_error", "draws"):
            assert out[variable].isnull().all() if silent else out[variable].notnull().all(), variable
        assert np.isnan(decide(out).best).all() == silent, "no decision from what is no posterior"
    assert statuses(ESTIMATORS[name].estimate(world(m=3), rng=0)) == [Status.TOO_FEW_LABELS] * 2
    assert statuses(ESTIMATORS[name].estimate(world(m=0), rng=0)) == [Status.NO_LABELS] * 2


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("binary", [True, False])
def test_constant_labels(name, binary):
    data = world(constant=True, probes=20, binary=binary)
    out = ESTIMATORS[name].estimate(data, rng=0)
    known = out.status < Status.TOO_FEW_LABELS
    assert (out.status.where(known, drop=True) == Status.CONSTANT_LABELS).all()
    assert np.isnan(out.interval).all()
    assert np.isnan(out.std_error).all()
    assert np.isfinite(out.estimate.where(known, drop=True)).all()


@pytest.mark.parametrize("name", ["direct", "corrected"])
def test_labels_that_correct_and_never_vary_give_no_interval(name):
    """Twenty labels of 1 at one score, whose residuals have no spread: the value is that of 20 and a pseudo-label."""
    data = world(labels="both", probes=20)
    flat = data.copy(deep=True)
    flat["judge"][1], flat["oracle"][1] = 0.9, flat["oracle"][1].where(flat["oracle"][1].isnull(), 1.0)
    out = ESTIMATORS[name].estimate(flat, rng=0).sel(policy="b")
    assert Status(int(out.status)) is Status.CONSTANT_LABELS and 1 - 1 / 20 < out.estimate < 1
    assert np.isnan(out.interval).all() and np.isnan(out.std_error) and np.isnan(out.draws).all()
    # the other way round, labels that teach may be constant where those that correct are not
    taught = data.copy(deep=True)
    taught["oracle"][0] = taught["oracle"][0].where(taught["oracle"][0].isnull(), 1.0)
    out = ESTIMATORS[name].estimate(taught, rng=0).sel(policy="b")
    assert Status(int(out.status)) is Status.OK and np.isfinite(out.interval).all()


@pytest.mark.parametrize(("name", "options"), [("direct", {"route": "plug_in"}), ("projection", {})])
def test_labels_that_neither_teach_nor_correct_leave_transport_assumed(name, options):
    out = ESTIMATORS[name].estimate(world(labels="both"), rng=0, **options)
    assert statuses(out) == [Status.OK, Status.TRANSPORT_ASSUMED]


def test_the_parameters_come_along():
    data = world()
    out = bayes_direct.estimate(data, rng=0, n_draws=400, route="plug_in")
    assert set(out.calibrator.dims) == {"replicate", "level"} and out.level.values.tolist() == [
        0.1,
        0.4,
        0.7,
        0.9,
    ]
    counts = np.array([(data.judge.values[1] == s).sum() for s in out.level.values])
    mean = (out.calibrator.mean("replicate").values * counts).sum() / counts.sum()
    assert float(out.estimate[1]) == pytest.approx(mean, abs=5 * float(out.std_error[1]) / np.sqrt(400))
    np.testing.assert_allclose(out["shape"].sum("spline"), 1.0)
    assert ((out.ends >= 0) & (out.ends <= 1)).all() and float(out.flat_judge) < 0.01
    assert float(out.sigma.mean()) == pytest.approx(0.1, abs=0.05) and "rhat" not in out
    assert "sigma" not in bayes_direct.estimate(world(binary=True), rng=0)


def test_what_may_not_be_borrowed():
    """An independent judge, a constant one, scores beyond all labels; own labels and probes are not refused."""
    rng = np.random.default_rng(2)
    data = world(probes=30)
    noise = data.assign(judge=data.judge.copy(data=rng.choice([0.1, 0.4, 0.7, 0.9], data.judge.shape)))
    for judged in (noise, data.assign(judge=data.judge * 0 + 0.5), data.assign(judge=1 - data.judge)):
        out = bayes_direct.estimate(judged, rng=0)
        assert statuses(out)[1] is Status.UNINFORMATIVE_JUDGE and np.isfinite(out.interval[0]).all()
        assert np.isnan(out.draws[1]).all() and np.isnan(decide(out).best).all()
        assert not statuses(bayes_corrected.estimate(judged, rng=0, n_draws=50))[1].failed
    above = data.copy(deep=True)
    above["judge"][1] = np.where(np.arange(200) < 100, 0.95, 0.4)[:, None]
    above["judge"][0] = np.minimum(above["judge"][0], 0.7)
    assert statuses(bayes_direct.estimate(above, rng=0)) == [Status.OK, Status.LOW_SUPPORT]


def test_a_useless_judge_makes_a_flat_curve_likely():
    found = [
        float(
            bayes_direct.estimate(
                useless_judge.simulate(n=1000, oracle_fraction=0.25, rng=seed), rng=0
            ).flat_judge
        )
        for seed in range(5)
    ]
    assert np.mean(found) > 0.1
    never = bayes_direct.estimate(world(), rng=0, model=bayes_direct.Model(Prior(atom=0.0)))
    assert float(never.flat_judge) == 0


def test_probes():
    out = bayes_corrected.estimate(world(probes=30), rng=0, n_draws=500)
    assert statuses(out) == [Status.NO_PROBES, Status.OK]
    assert np.isfinite(out["shift"].values).tolist() == [False, True]
    assert 0 <= float(out["within_margin"][1]) <= 1
    tenfold = world(probes=30)
    tenfold = tenfold.assign(oracle=10 * tenfold.oracle).assign_attrs(oracle_range=[0.0, 10.0])
    wide = bayes_corrected.estimate(tenfold, rng=0, n_draws=500)  # the default margin is a share of the scale
    np.testing.assert_allclose(wide["within_margin"], out["within_margin"])
    np.testing.assert_allclose(wide["shift"], 10 * out["shift"])
    few = bayes_corrected.estimate(world(probes=3), rng=0, n_draws=50)
    assert statuses(few) == [Status.NO_PROBES] * 2
    low = bayes_corrected.estimate(world(m=8, probes=30), rng=0, n_draws=50)
    assert statuses(low)[1] == Status.FEW_LABELS_POSTERIOR
    assert np.isnan(low.interval).all()


def test_corrected_value_is_plug_in_plus_shift():
    """Shift and value come from the same draws of f: the value varies less than independent parts would."""
    data = world(probes=30)
    out = bayes_corrected.estimate(data, rng=3, n_draws=4000).sel(policy="b")
    plug_in = bayes_direct.estimate(data, rng=3, n_draws=4000, route="plug_in").sel(policy="b")
    noise = 5 * np.hypot(out.std_error, plug_in.std_error) / np.sqrt(4000 / 3)
    assert abs(out.estimate - plug_in.estimate - out["shift"]) < noise


@pytest.mark.parametrize("name", ESTIMATORS)
def test_hdi_is_the_shortest_interval_of_the_draws(name):
    data = world(labels="both", probes=20)
    eti = ESTIMATORS[name].estimate(data, rng=0, ci_prob=0.8)
    short = ESTIMATORS[name].estimate(data, rng=0, ci_prob=0.8, interval="hdi")
    assert short.attrs["ci_kind"] == "hdi"
    np.testing.assert_array_equal(eti.draws, short.draws)
    np.testing.assert_array_equal(short.interval[1], hdi(short.draws[1].values, 0.8))


def test_levels_without_labels_are_reported():
    rng = np.random.default_rng(0)
    score = np.stack([rng.choice([0.2, 0.8], 60), rng.choice([0.2, 0.5, 0.8], 60)])
    label = np.where(np.arange(60) < 40, np.clip(score[0] + rng.normal(0, 0.1, 60), 0, 1), np.nan)
    data = from_arrays(score, policies=["a", "b"], oracle=np.stack([label, np.full(60, np.nan)]))
    out = bayes_direct.estimate(data, rng=0)
    np.testing.assert_allclose(out["unlabelled_mass"], [0, (score[1] == 0.5).mean()])


def test_binary_labels_take_the_bernoulli_likelihood():
    data = world(labels="both", binary=True)
    out = bayes_direct.estimate(data, rng=0)
    assert statuses(out) == [Status.OK, Status.OK]
    assert (out.interval.values >= -0.05).all() and (out.interval.values <= 1.05).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_options_out_of_range(name):
    data = world(probes=20)
    for bad, text in (
        ({"interval": "wald"}, "interval"),
        ({"n_draws": 1}, "n_draws"),
        ({"ci_prob": 1.0}, "ci_prob"),
    ):
        with pytest.raises(ValueError, match=text):
            ESTIMATORS[name].estimate(data, **bad)
    if name != "projection":
        with pytest.raises(ValueError, match="engine"):
            ESTIMATORS[name].estimate(data, engine="stan")
    if name == "direct":
        with pytest.raises(ValueError, match="route"):
            bayes_direct.estimate(data, route="x")
    if name == "corrected":
        with pytest.raises(ValueError, match="margin"):
            bayes_corrected.estimate(data, margin=0.0)


def test_agrees_with_direct_where_labels_are_many():
    """Bernstein-von Mises: with 500 labels the posterior is the sampling distribution of theta_aug."""
    data = well_specified.simulate(n=1000, oracle_fraction=0.5, rng=0)
    bayes, frequentist = bayes_direct.estimate(data, rng=0, n_draws=4000), direct.estimate(data)
    gap = (bayes.estimate - frequentist.estimate) / frequentist.std_error
    assert (abs(gap) < 0.3).all(), gap.values
    np.testing.assert_allclose(bayes.std_error, frequentist.std_error, rtol=0.12)


def test_without_a_judge_the_posterior_is_that_of_the_labels():
    """A constant judge: value and spread of the labelled mean, inflated as a t quantile."""
    data = world(m=50, labels="both")
    flat = data.assign(judge=data.judge * 0 + 0.5)
    out = bayes_direct.estimate(flat, rng=0, n_draws=4000)
    labels = labels_only.estimate(flat)
    assert statuses(out) == [Status.CONSTANT_JUDGE] * 2
    np.testing.assert_allclose(
        out.estimate, labels.estimate, atol=5 * float(labels.std_error.max()) / np.sqrt(4000)
    )
    # nu counts the one parameter of f as well as the mean: a little wider
    width = out.interval.diff("ci_bound").squeeze("ci_bound", drop=True)
    ratio = width / labels.interval.diff("ci_bound").squeeze("ci_bound", drop=True)
    assert ((ratio > 0.93) & (ratio < 1.1)).all(), ratio.values


def test_clusters_widen_a_borrowed_value():
    """Labels doubled inside their clusters: the calibrator knows no more, and neither does what it predicts."""
    data = discrete_judge.simulate(n=150, oracle_fraction=0.4, label_design="base", rng=1)
    copy = data.assign_coords(prompt=[f"{p}-copy" for p in data.prompt.values])
    both = xr.concat([data, copy], dim="prompt").assign_attrs(data.attrs)
    both = both.assign(cluster=("prompt", np.tile(data.prompt.values, 2)))
    single = bayes_direct.estimate(data, rng=0)
    tied = bayes_direct.estimate(both, rng=0)
    loose = bayes_direct.estimate(both.drop_vars("cluster"), rng=0)
    np.testing.assert_allclose(tied.std_error, single.std_error, rtol=0.15)
    assert (loose.std_error < 0.85 * single.std_error).all()


def test_shift_of_a_failing_policy_is_found():
    data = transport_shift.simulate(n=500, n_probes=50, rng=2)
    out = bayes_corrected.estimate(data, rng=0)
    probed = out.sel(policy=np.isfinite(out["shift"].values))
    truth = transport_shift.truth().sel(policy=probed.policy.values)
    assert (abs(probed.estimate - truth) < 5 * probed.std_error).all()


@pytest.mark.parametrize("name", ["direct", "projection"])
def test_a_policy_that_may_not_borrow_is_refused(name, monkeypatch):
    """Constant and random judges, three failures, scores beyond all labels; the judge is tested once."""
    from cje_core.families import posterior

    rng = np.random.default_rng(0)
    informative = world()
    random = informative.copy(deep=True)
    random["judge"].values[:] = np.random.default_rng(4).permuted(informative["judge"].values, axis=1)
    constant = informative.assign(judge=informative["judge"] * 0 + 0.5)
    rare = informative.assign(
        oracle=(informative["judge"].dims, (rng.uniform(size=(2, 200, 1)) < 0.03) * 1.0)
    )
    rare["oracle"] = rare["oracle"].where(informative["labelled"])
    rare["oracle"].values[0, :3] = 1.0
    beyond = informative.copy(deep=True)
    beyond["judge"].values[1] = 0.99
    expected = {
        "informative": (informative, Status.TRANSPORT_ASSUMED),
        "random": (random, Status.UNINFORMATIVE_JUDGE),
        "constant": (constant, Status.UNINFORMATIVE_JUDGE),
        "three failures": (rare, Status.UNINFORMATIVE_JUDGE),
        "beyond": (beyond, Status.LOW_SUPPORT),
    }
    asked = []
    test = posterior.informative
    monkeypatch.setattr(posterior, "informative", lambda *a: asked.append(1) or test(*a))
    for case, (data, status) in expected.items():
        out = ESTIMATORS[name].estimate(data, rng=0, n_draws=50)
        assert Status(int(out.status.sel(policy="b"))) is status, case
        assert np.isnan(out.estimate.sel(policy="b")) == status.failed
        assert np.isnan(out.interval.sel(policy="b")).all() == status.failed
        assert np.isfinite(out.estimate.sel(policy="a")), case
    assert len(asked) == len(expected)


def test_the_projection_of_several_policies_labels_is_refused_with_a_judge_that_ranks_none():
    data = world(labels="both")
    data["judge"].values[:] = np.random.default_rng(0).permuted(data["judge"].values, axis=1)
    both = data.assign_attrs(calibration_policy=["a", "b"])
    out = projection_posterior.estimate(both, rng=0, n_draws=50)
    assert statuses(out) == [Status.UNINFORMATIVE_JUDGE] * 2
