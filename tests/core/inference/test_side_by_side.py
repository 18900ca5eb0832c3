"""`compare`: frequentist and Bayesian estimates on one dimension, against loops over methods and policies."""

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt

import cje_core
import cje_sim
from cje_core import compare
from cje_core.estimators import bayes_direct, direct, labels_only
from cje_core.figures import forest
from cje_core.inference.estimate import Status
from cje_core.streams import generator
from cje_sim.scenarios import well_specified


@pytest.fixture(scope="module")
def estimates():
    data = well_specified.simulate(n=300, oracle_fraction=0.3, label_design="base", rng=4)
    return [
        direct.estimate(data),
        bayes_direct.estimate(data, rng=1, n_draws=400),
        labels_only.estimate(data),
    ]


@pytest.fixture(scope="module")
def truth():
    return well_specified.truth()


def overlap(first, second):
    """Shared over joint length, by cases."""
    (a, b), (c, d) = first, second
    if np.isnan([a, b, c, d]).any():
        return np.nan
    if max(b, d) == min(a, c):
        return 1.0
    return max(min(b, d) - max(a, c), 0) / (max(b, d) - min(a, c))


def test_against_loops(estimates, truth):
    found = compare(estimates, truth=truth)
    assert found.method.values.tolist() == ["direct", "bayes_direct", "labels_only"]
    assert found.ci_kind.values.tolist() == [e.attrs["ci_kind"] for e in estimates]
    for k, one in enumerate(estimates):
        for policy in found.policy.values:
            at, theirs = found.isel(method=k).sel(policy=policy), one.sel(policy=policy)
            for name in ("estimate", "std_error", "status", "route", "interval"):
                np.testing.assert_array_equal(at[name].values, theirs[name].values)
            low, high = theirs.interval.values
            goal = float(truth.sel(policy=policy))
            first = float(np.diff(estimates[0].sel(policy=policy).interval.values)[0])
            np.testing.assert_allclose(at.width, high - low, rtol=0, atol=0)
            np.testing.assert_allclose(at.width_ratio, (high - low) / first, rtol=1e-15)
            assert bool(at.covers) == (low <= goal <= high)
            missed = max(low - goal, 0) + max(goal - high, 0)
            np.testing.assert_allclose(at.interval_score, high - low + 2 / 0.05 * missed, rtol=1e-12)
            for other in range(len(estimates)):
                pair = found.overlap.isel(method=k, other_method=other).sel(policy=policy)
                expected = overlap((low, high), estimates[other].sel(policy=policy).interval.values)
                np.testing.assert_allclose(pair, expected, rtol=1e-12)


def test_a_failure_is_data_and_covers_nothing(estimates, truth):
    found = compare(estimates, truth=truth).sel({"method": "labels_only", "policy": "better"})
    assert Status(int(found.status)).failed and np.isnan(found.width) and not found.covers
    assert np.isnan(found.interval_score) and np.isnan(found.overlap).all()


def test_cases_of_overlap():
    def one(low, high):
        return direct.estimate(well_specified.simulate(n=60, rng=1)).assign(
            interval=(("policy", "ci_bound"), [[low, high]] * 4)
        )

    pairs = compare({"a": one(0.2, 0.4), "b": one(0.4, 0.6), "c": one(0.3, 0.3), "d": one(0.3, 0.3)}).overlap
    at = lambda x, y: float(pairs.sel({"method": x, "other_method": y})[0])  # noqa: E731
    assert (at("a", "b"), at("a", "c"), at("c", "d"), at("a", "a")) == (0.0, 0.0, 1.0, 1.0)


def test_order_of_policies_does_not_matter(estimates):
    turned = [estimates[0], estimates[1].isel(policy=slice(None, None, -1))]
    xr.testing.assert_identical(compare(turned), compare(estimates[:2]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda e: [e[0], e[0]], r"several estimates are called direct; give them names"),
        (lambda e: [], r"nothing to compare; give at least one estimate"),
        (lambda e: e[0], r"one estimate alone is nothing to compare; give a list"),
        (
            lambda e: [e[0], e[1].isel(policy=[0])],
            r"bayes_direct is of the policies base, direct of base, better",
        ),
        (
            lambda e: [e[0], e[1].assign_attrs(ci_prob=0.9)],
            r"bayes_direct has intervals of 0.9, direct of 0.95; estimate both",
        ),
    ],
)
def test_what_cannot_be_compared(estimates, spoil, message):
    with pytest.raises(ValueError, match=message):
        compare(spoil(estimates))


def test_the_forest_draws_it(estimates, truth):
    found = compare(estimates, truth=truth)
    axes = forest(found, truth=found.truth)
    assert {text.get_text() for text in axes.figure.legends[0].get_texts()} == {*found.method.values, "truth"}
    plt.close(axes.figure)


def test_estimators_by_name_run_on_the_data_and_say_what_does_not_apply(truth):
    data = cje_sim.simulate("discrete_judge", n=120, oracle_fraction=0.3, rng=2)
    names = ["raw_judge", "direct", "rogan_gladen", "snips", "bayes_direct"]
    found = cje_core.compare(data, names, truth=cje_sim.truth("discrete_judge"), seed=3)
    assert found.method.values.tolist() == ["raw_judge", "direct", "bayes_direct"]
    assert [line.partition(":")[0] for line in found.left_out] == ["rogan_gladen", "snips"]
    alone = direct.estimate(data, rng=generator(3, "compare", "direct"))
    np.testing.assert_array_equal(found.interval.sel({"method": "direct"}), alone.interval)
    ratio = found.width_ratio.sel({"method": "direct"})
    assert (
        found.reference == "direct" and (ratio == 1).all()
    )  # not the raw judge, whose width is no yardstick
    by_posterior = cje_core.compare(data, names, seed=3, reference="bayes_direct").width_ratio
    assert (by_posterior.sel({"method": "bayes_direct"}) == 1).all()


def test_methods_that_cannot_be_compared_are_refused_in_one_line(estimates):
    data = cje_sim.simulate("discrete_judge", n=60, oracle_fraction=0.3, rng=2)
    with pytest.raises(ValueError, match="name the estimators to run"):
        cje_core.compare(data)
    with pytest.raises(ValueError, match="no method applies: rogan_gladen: oracle labels are not binary"):
        cje_core.compare(data, ["rogan_gladen"])
    with pytest.raises(ValueError, match="reference='none': use one of"):
        cje_core.compare(estimates, reference="none")


def test_the_forest_draws_one_estimate(estimates):
    axes = forest(estimates[0])
    assert axes.get_xlabel() == "policy value V = E[Y], oracle scale"
    plt.close(axes.figure)
