"""Sensitivity to the transport residual: bias-aware intervals, tipping points, identified sets, coverage."""

from functools import lru_cache

import numpy as np
import pytest
from blocks import on_block
from oracles_sensitivity import critical_value, identified_set, tipping_by_scan
from scipy import stats

from cje_core.estimators import bayes_direct, direct
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import label_estimate, wald
from cje_core.transport import sensitivity
from cje_sim.scenarios import finite_model, transport_shift, well_specified

DELTA = np.array([0.0, 0.01, 0.05, 0.2])


@pytest.fixture(scope="module")
def estimate():
    """One policy with labels, three that borrow."""
    data = well_specified.simulate(n=400, oracle_fraction=0.25, label_design="base", rng=5)
    return direct.estimate(data, borrowed="plug_in")


@pytest.mark.parametrize("df", [3.0, 48.0, np.inf])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.7, 2.0, 30.0])
@pytest.mark.parametrize("ci_prob", [0.8, 0.95])
def test_half_width_solves_its_equation(df, ratio, ci_prob):
    got = float(sensitivity.half_width(ratio * 0.02, 0.02, df, ci_prob))
    assert got == pytest.approx(0.02 * critical_value(ratio, df, ci_prob), rel=1e-9)


@pytest.mark.parametrize("df", [3.0, 48.0, np.inf])
@pytest.mark.parametrize("gap", [0.01, 0.03, 0.06, 0.3])
def test_tipping_bias_is_where_the_interval_reaches_the_point(df, gap):
    got = float(sensitivity.tipping_bias(gap, 0.013, df, 0.95))
    assert got == pytest.approx(tipping_by_scan(gap, 0.013, df, 0.95), abs=1e-9)
    if got > 0:
        assert float(sensitivity.half_width(got, 0.013, df, 0.95)) == pytest.approx(gap, rel=1e-12)


def test_the_interval_is_shorter_than_the_bound_plus_the_printed_one_and_longer_than_each():
    bias = np.linspace(0.001, 0.2, 50)
    half = sensitivity.half_width(bias, 0.02, 30.0, 0.95)
    printed = 0.02 * stats.t.ppf(0.975, 30)
    assert (half < bias + printed).all() and (half > printed).all() and (half > bias).all()
    assert (np.diff(half) > 0).all()


def test_without_a_bias_every_printed_interval_comes_back(estimate):
    level = sensitivity.levels(estimate, DELTA)
    pair = sensitivity.differences(estimate, DELTA)
    np.testing.assert_allclose(level["interval"].sel(delta=0), estimate["interval"], rtol=1e-12)
    np.testing.assert_allclose(pair["interval"].sel(delta=0), contrasts(estimate)["interval"], rtol=1e-10)
    data = well_specified.simulate(n=200, oracle_fraction=0.25, label_design="base", rng=6)
    for other in (
        direct.estimate(data, borrowed="plug_in", interval="logit"),
        direct.estimate(data, borrowed="plug_in", inference=direct.Bootstrap(n=50), rng=1),
        bayes_direct.estimate(data, n_draws=200, rng=1),
    ):
        curve = sensitivity.levels(other, DELTA)["interval"]
        np.testing.assert_allclose(curve.sel(delta=0), other["interval"], rtol=1e-12)
        assert (np.diff(curve.isel(policy=1).sel(ci_bound="upper")) > 0).all()
        curve = sensitivity.differences(other, DELTA)["interval"]
        np.testing.assert_allclose(curve.sel(delta=0), contrasts(other)["interval"], rtol=1e-9)


def test_each_borrowed_policy_brings_its_own_residual(estimate):
    level = sensitivity.levels(estimate, DELTA)
    assert level["borrowed"].values.tolist() == [False, True, True, True]
    assert (level["interval"].sel(policy="base") == estimate["interval"].sel(policy="base")).all()
    pair = sensitivity.differences(estimate, DELTA)
    k = np.where((pair["first"] == "base") | (pair["second"] == "base"), 1, 2)
    assert pair["n_borrowed"].values.tolist() == k.tolist()
    found = contrasts(estimate)
    for i in range(found.sizes["pair"]):
        at = found.isel(pair=i)
        value, df = float(at["difference"]), float(at["df"])
        # each arm by the error that would print it: those to graded labels of a policy's own are not alike
        errors = np.abs(at["interval"].values - value) / stats.t.ppf(0.975, df)
        ends = [
            value + sign * error * np.array([critical_value(k[i] * d / error, df, 0.95) for d in DELTA])
            for sign, error in zip((-1, 1), errors, strict=True)
        ]
        np.testing.assert_allclose(pair["interval"].isel(pair=i), np.stack(ends, axis=-1), rtol=1e-8)
    none = sensitivity.differences(estimate, DELTA, borrowed=[False] * 4)["interval"]
    assert (none == none.isel(delta=0)).all()


def test_tipping_points_are_where_the_curves_reach_zero(estimate):
    tips = sensitivity.tipping_points(estimate)
    for i, tip in enumerate(tips["tipping"].values):
        at = sensitivity.differences(estimate, [tip, tip + 1e-6])["interval"].isel(pair=i)
        nearest = np.abs(at).min("ci_bound")
        if tip > 0:
            assert float(nearest[0]) == pytest.approx(0, abs=1e-12)
            assert tips["better"].values[i] in (tips["first"].values[i], tips["second"].values[i])
        else:
            assert tips["better"].values[i] == ""
        assert (at.isel(delta=1).sel(ci_bound="lower") < 0) and (at.isel(delta=1).sel(ci_bound="upper") > 0)
    best = str(tips["best"].item())
    assert best == "better"
    its = (tips["first"] == best) | (tips["second"] == best)
    assert float(tips["best_tipping"]) == float(tips["tipping"][its].min())


def test_own_labels_never_tip_and_failures_have_no_number():
    n, rng = 50, np.random.default_rng(0)
    influence = 0.1 * rng.normal(size=(4, n))
    influence[3] = np.nan
    value, df = np.array([0.2, 0.5, 0.8, np.nan]), np.full(4, 30.0)
    error = np.array([0.01, 0.01, 0.01, np.nan])
    found = label_estimate(
        list("abcd"),
        {
            "estimate": value, "std_error": error, "interval": wald(value, error, df, 0.95), "status": [0, 0, 1, 72],
            "route": ["theta_aug", "theta_aug", "one_step", "none"], "source": ["own", "own", "borrowed", "none"],
            "influence": influence, "df": df,
        },
        estimator="direct", options={}, ci_kind="wald", ci_prob=0.95,
        coords={"prompt": np.arange(n), "cluster": ("prompt", np.arange(n))},
    )  # fmt: skip
    tips = sensitivity.tipping_points(found)
    pairs = [f"{a}{b}" for a, b in zip(tips["first"].values, tips["second"].values, strict=True)]
    tip = dict(zip(pairs, tips["tipping"].values, strict=True))
    assert tip["ab"] == np.inf and 0 < tip["bc"] < 0.3 < tip["ac"] < 0.6
    assert all(np.isnan(tip[name]) for name in ("ad", "bd", "cd"))
    assert tips["best"].item() == "c" and float(tips["best_tipping"]) == tip["bc"]
    assert np.isnan(sensitivity.levels(found, 0.1)["interval"].sel(policy="d")).all()
    assert (sensitivity.levels(found, 0.9, oracle_range=(0, 1))["interval"].sel(policy="c") == [0, 1]).all()
    found.attrs["oracle_range"] = (0.0, 1.0)
    assert (sensitivity.levels(found, 0.9)["interval"].sel(policy="c") == [0, 1]).all()
    assert np.abs(sensitivity.differences(found, 0.9)["interval"]).max() == 1


def test_one_line_says_what_is_wrong(estimate):
    with pytest.raises(ValueError, match="none of them negative"):
        sensitivity.levels(estimate, [-0.1])
    with pytest.raises(ValueError, match="one True or False for each of 4"):
        sensitivity.levels(estimate, 0.1, borrowed=[True])
    with pytest.raises(ValueError, match="bounds an absolute bias"):
        sensitivity.half_width(-1.0, 1.0, 5.0, 0.95)


def population(law, policy):
    """E_p f(S), with f the base policy's regression: what the plug-in of a borrowed policy converges to."""
    labels = law.sel(policy="base").sum(["x", "a"])
    f = (labels * labels["y"]).sum("y") / labels.sum("y")
    return float((law.sel(policy=policy).sum(["x", "a", "y"]) * f).sum())


@pytest.mark.parametrize("delta", [0.0, 0.013, 0.1, 0.45, 0.6, 1.0])
@pytest.mark.parametrize("surrogacy", [1.0, 0.4])
def test_bounds_equal_the_linear_programme(delta, surrogacy):
    """In the finite model to 1e-9, range of Y included (it binds from delta .46 on)."""
    law = finite_model.joint(surrogacy=surrogacy)
    set_of = {
        p: sensitivity.bounds(population(law, p), delta * (p != "base"), (0, 1))
        for p in ("base", "tilted", "far")
    }
    for p, own in set_of.items():
        np.testing.assert_allclose(own, identified_set(law, "base", p, None, delta), atol=1e-9)
        one_mean = identified_set(law, "base", p, None, delta, shared=True)
        assert one_mean[0] >= own[0] - 1e-9 and one_mean[1] <= own[1] + 1e-9
    for p, q in (("far", "base"), ("far", "tilted"), ("tilted", "far")):
        expected = set_of[p] - set_of[q][::-1]
        np.testing.assert_allclose(expected, identified_set(law, "base", p, q, delta), atol=1e-9)


def test_without_sampling_error_the_curves_are_the_identified_sets():
    law = finite_model.joint()
    names = ["base", "tilted", "far"]
    value = np.array([population(law, p) for p in names])
    found = label_estimate(
        names,
        {
            "estimate": value, "std_error": np.zeros(3), "interval": np.stack([value, value], axis=-1),
            "status": [0, 1, 1], "route": ["theta_aug", "plug_in", "plug_in"],
            "source": ["own", "borrowed", "borrowed"], "df": np.full(3, np.inf),
        },
        estimator="direct", options={}, ci_kind="wald", ci_prob=0.95,
    )  # fmt: skip
    curve = sensitivity.levels(found, [0.0, 0.1, 0.5], oracle_range=(0, 1))["interval"]
    for p in names:
        for d in (0.0, 0.1, 0.5):
            expected = identified_set(law, "base", p, None, d)
            np.testing.assert_allclose(curve.sel(policy=p, delta=d), expected, atol=1e-9)


DELTA_0, M, N, N_REPLICATES = 0.05, 50, 1000, 1000
WITHIN = (0.025, 0.05)  # of both signs; coverage only rises towards 0


@lru_cache
def borrowed_values(shift):
    """One-step values of two policies with residuals -shift and +shift, and of their difference: (replicate, 3, 4).

    Last axis: error, standard error, df, number of residuals in it.
    """
    policies = {
        "base": (3.0, 2.0, "none", 0.0),
        "down": (3.4, 1.9, "mean", -shift),
        "up": (2.6, 2.2, "mean", shift),
    }
    names = ["down", "up"]
    goal = transport_shift.truth(policies=policies).sel(policy=names).values
    out = np.full((N_REPLICATES, 3, 4), np.nan)
    for start in range(0, N_REPLICATES, 50):
        rngs = [np.random.default_rng(start + r) for r in range(50)]
        block = transport_shift.simulate.block(rngs, n=N, oracle_fraction=M / N, policies=policies)
        found = on_block(direct, block, ci_prob=0.95, borrowed="one_step", interval="wald")
        a, b = at = [block.policies.index(name) for name in names]
        these = out[start : start + 50]
        these[:, :2] = np.stack(
            [found.estimate[:, at] - goal, found.std_error[:, at], found.df[:, at], np.ones((50, 2))], axis=-1
        )
        these[:, 2, 0] = these[:, 0, 0] - these[:, 1, 0]
        these[:, 2, 1] = found.pairs(np.array([a]), np.array([b]), 0.95).std_error[:, 0]
        these[:, 2, 2:] = np.stack([these[:, :2, 2].min(axis=1), np.full(50, 2)], axis=-1)
        these[np.isnan(these[:, 2, 0])] = np.nan  # one was refused: no interval to judge
    return out


@pytest.mark.slow
@pytest.mark.parametrize("shift", WITHIN)
def test_intervals_cover_every_shift_up_to_delta(shift):
    """At least 95%, levels and the difference, less what 1,000 data sets leave open (.1% quantile of the binomial).

    With the bias left out, or counted once in the difference, a shift of delta is not covered.
    """
    error, std_error, df, k = np.moveaxis(borrowed_values(shift), -1, 0)

    def hits(bias):
        return (np.abs(error) <= sensitivity.half_width(bias, std_error, df, 0.95)).sum(axis=0)

    answered = int(np.isfinite(error[:, 2]).sum())
    assert answered > 0.8 * N_REPLICATES
    fewest = stats.binom.ppf(0.001, answered, 0.95)
    assert (hits(k * DELTA_0) >= fewest).all()
    if shift == DELTA_0:
        assert (hits(0 * k) < fewest).all() and hits(DELTA_0)[2] < fewest
