"""What each scenario says about itself: conditional means, residuals, overlap, exact log-probabilities."""

from dataclasses import replace

import numpy as np
import oracles_worlds as slow
import pytest
import xarray as xr

from cje_sim import judges, scenarios
from cje_sim.scenarios import (
    adversarial,
    arena_like,
    clone_with_tf_noise,
    drift,
    finite_model,
    garbled_judge,
    length_bias,
    mbpp_like,
    out_of_range,
    preference_like,
    self_preference,
    useless_judge,
    zipf_hot_target,
    zipf_tilt,
)

N = 100_000


def columns(data: xr.Dataset, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Judge scores and labels of a fully labelled policy."""
    one = data.sel(policy=policy).isel(draw=0)
    return one.judge.values, one.oracle.values


def assert_mean_zero(values: np.ndarray, groups: np.ndarray) -> None:
    """Mean zero in every group of at least 100 values, within 5 SE."""
    for g in np.unique(groups):
        part = values[groups == g]
        if len(part) >= 100:
            assert abs(part.mean()) < 5 * part.std() / np.sqrt(len(part)) + 1e-12, (g, part.mean())


@pytest.mark.slow
def test_conditional_mean_given_score_and_covariate() -> None:
    """length_bias, drift, self_preference: the stated E[Y | S, X] leaves residuals of mean 0 by score
    decile.
    """
    data = length_bias.simulate(n=N, oracle_fraction=1.0, bias=0.5, rng=1)
    for policy in data.policy.values:
        s, y = columns(data, policy)
        x = data.covariate.sel(policy=policy).values[:, 0, 0]
        expected = judges.oracle_mean(judges.inflate(s, -0.5 * x), "sigmoid", 0.1, 0.95)
        assert_mean_zero(y - expected, np.digitize(s, np.quantile(s, np.arange(1, 10) / 10)))
        assert_mean_zero(y - expected, np.digitize(x, np.quantile(x, np.arange(1, 10) / 10)))
    for change in (None, 0.5):
        data = drift.simulate(n=N, oracle_fraction=1.0, size=0.8, change=change, rng=2)
        s, y = columns(data, "base")
        t = data.covariate.values[0, :, 0, 0]
        amount = 0.8 * t if change is None else 0.8 * (t >= change)
        assert_mean_zero(y - judges.oracle_mean(judges.inflate(s, -amount)), np.floor(10 * t))
        stale = y - judges.oracle_mean(s)
        late = stale[t > 0.9]
        assert late.mean() < -5 * late.std() / np.sqrt(len(late)), "without the correction it must show"
    data = self_preference.simulate(n=N, oracle_fraction=1.0, label_design="own", rng=3)
    s, y = columns(data, "own_model")
    gap = y - judges.oracle_mean(s)
    assert abs(gap.mean() - self_preference.residual()) < 5 * gap.std() / np.sqrt(N)


def test_length_bias_inverts_the_raw_ranking() -> None:
    data = length_bias.simulate(n=N, oracle_fraction=0.0, rng=4)
    raw, value = data.judge.mean(("prompt", "draw")), length_bias.truth()
    assert raw.sel(policy="verbose") > raw.sel(policy="concise")
    assert value.sel(policy="verbose") < value.sel(policy="concise")


def test_adversarial_residual() -> None:
    data = adversarial.simulate(n=N, oracle_fraction=1.0, label_design="own", rng=5)
    a, b = adversarial.HACK_LAW
    expected = 0.5 * (0.15 - judges.expected_over_scores(judges.oracle_mean, a, b))
    for policy, target in (("honest", 0.0), ("adversarial", expected)):
        s, y = columns(data, policy)
        gap = y - judges.oracle_mean(s)
        assert abs(gap.mean() - target) < 5 * gap.std() / np.sqrt(N)


def test_useless_judge_is_independent_of_the_label() -> None:
    data = useless_judge.simulate(n=N, oracle_fraction=1.0, rng=6)
    for policy in data.policy.values:
        assert abs(np.corrcoef(*columns(data, policy))[0, 1]) < 5 / np.sqrt(N)


def test_garbled_judge_has_the_cell_means() -> None:
    data = garbled_judge.simulate(n=N, oracle_fraction=1.0, bits=2, rng=7)
    fine = garbled_judge.simulate(n=N, oracle_fraction=1.0, bits=3, rng=7)
    assert (data.oracle.values == fine.oracle.values).all(), "one world at every coarseness"
    for policy, (a, b) in garbled_judge.SCORE_LAW.items():
        s, y = columns(data, policy)
        prob, means = judges.cell_means(judges.oracle_mean, a, b, np.arange(5) / 4)
        cell = np.round(4 * s).astype(int)
        assert_mean_zero(y - means[cell], cell)
        assert (np.abs(np.bincount(cell, minlength=4) / N - prob) < 5 * np.sqrt(prob / N)).all()


def test_out_of_range_shares() -> None:
    data = out_of_range.simulate(n=N, oracle_fraction=0.0, rng=8)
    low, high = 0.45, 0.9
    beyond = ((data.judge < low) | (data.judge > high)).mean(("prompt", "draw"))
    expected = out_of_range.outside()
    assert (np.abs(beyond - expected) <= 5 * np.sqrt(expected * (1 - expected) / N)).all()


@pytest.mark.parametrize(("judge_noise", "surrogacy"), [(0.2, 1.0), (0.0, 0.5)])
def test_finite_model_by_enumeration(judge_noise: float, surrogacy: float) -> None:
    world = {"judge_noise": judge_noise, "surrogacy": surrogacy}
    value = finite_model.truth(**world)
    for p, policy in enumerate(finite_model.POLICIES):
        by_hand = slow.finite_value(finite_model, p, judge_noise, surrogacy)
        assert float(value.sel(policy=policy)) == pytest.approx(by_hand, abs=1e-14)
    law = finite_model.joint(**world)
    assert law.sum(["x", "a", "s", "y"]).values == pytest.approx(1.0, abs=1e-14)
    pi = finite_model.tables(**world)[0]
    assert np.log(pi.sum(axis=2)) == pytest.approx(0.0, abs=1e-14)
    if surrogacy == 1.0:
        mean = (law * law.y).sum(["x", "a", "y"]) / law.sum(["x", "a", "y"])
        assert mean.values == pytest.approx(np.broadcast_to(mean.values[0], mean.shape), abs=1e-14)


@pytest.mark.parametrize(
    "name", [n for n in scenarios.available() if "logp_target" in scenarios.load(n).simulate(n=20, rng=0)]
)
def test_logged_log_probabilities(name: str) -> None:
    """Base against itself is a ratio of one; log-probabilities are <= 0; logged rows are the base's own."""
    data = scenarios.load(name).simulate(n=2000, rng=9)
    assert (data.logp_target.values[0] == data.logp_logger.values).all()
    finite = data.logp_target.values[np.isfinite(data.logp_target.values)]
    assert (finite <= 0).all()
    assert (data.logged_judge.values == data.judge.values[0, :, 0]).all()
    assert np.array_equal(data.logged_oracle.values, data.oracle.values[0, :, 0], equal_nan=True)


def test_true_ratios_average_to_one() -> None:
    """E0[W] = 1 and E0[W Y] = V where variance allows: finite_model, and zipf_tilt at a short length."""
    for data, value in (
        (finite_model.simulate(n=N, oracle_fraction=1.0, rng=10), finite_model.truth()),
        (zipf_tilt.simulate(n=N, oracle_fraction=1.0, length=5, rng=11), zipf_tilt.truth(length=5)),
    ):
        w = np.exp(data.logp_target.values - data.logp_logger.values)
        for product, expected in ((w, 1.0), (w * data.logged_oracle.values, value.values)):
            assert (np.abs(product.mean(1) - expected) < 5 * product.std(1) / np.sqrt(N) + 1e-12).all()


@pytest.mark.parametrize("module", [zipf_tilt, zipf_hot_target])
def test_token_overlap_against_simulation(module) -> None:
    """Exact TTC against the share of typical logged responses; the threshold's own noise is below its
    density.
    """
    n = 20_000
    data, exact = module.simulate(n=n, length=25, rng=12), module.overlap(length=25)
    logged = -data.logp_target.values / data.n_tokens.values
    threshold = np.quantile(data.surprisal.values[:, :, 0], 0.9, axis=1)
    ttc = (logged <= threshold[:, None]).mean(axis=1)
    # A threshold at the empirical 0.9 quantile moves the target's mass by sqrt(.09 / n), and the logger's by
    # that times the density ratio at the threshold, estimated on a window of 2% of the target's mass.
    low, high = np.quantile(data.surprisal.values[:, :, 0], [0.89, 0.91], axis=1)
    ratio = ((logged > low[:, None]) & (logged < high[:, None])).mean(axis=1) / 0.02
    se = np.sqrt((ttc * (1 - ttc) + ratio**2 * 0.09) / n)
    assert (np.abs(ttc - exact.ttc.values) < 5 * se + 1 / n).all()


@pytest.mark.slow
def test_noisy_clone_loses_what_it_should() -> None:
    """Limit ESS exp(-s^2) = .26 for the clone; with 2e5 rows the ratio of moments is within 5 SE of it."""
    n = 200_000
    data, exact = clone_with_tf_noise.simulate(n=n, rng=16), clone_with_tf_noise.overlap()
    assert 10 ** float(exact.log10_ess.sel(policy="clone")) == pytest.approx(0.26, abs=1e-4)
    for i in (1, 2):
        log_w = data.logp_target.values[i] - data.logp_logger.values
        there = np.isfinite(log_w)
        assert abs(1 - there.mean() - 0.01) < 5 * np.sqrt(0.01 * 0.99 / n)
        w = np.exp(log_w[there])
        assert abs(w.mean() - 1) < 5 * w.std() / np.sqrt(n)
        second = 10 ** -float(exact.log10_ess[i])
        assert abs((w**2).mean() - second) < 5 * (w**2).std() / np.sqrt(n)


@pytest.mark.slow
def test_arena_like_meets_the_paper() -> None:
    """The module docstring's figures: TTC, residuals, means of the sample, order of judge and value, ESS and CLE."""
    exact = arena_like.overlap()
    assert exact.ttc.values[1:] == pytest.approx([0.796, 0.494, 0.190, 0.256], abs=0.01)
    assert float(arena_like.residual().sel(policy="unhelpful")) == pytest.approx(-0.31, abs=0.01)
    assert arena_like.residual().values[:4] == pytest.approx(0.0, abs=1e-12)
    # Sample: 480 labels with mean .754, sd .227; probe means .779, .786 and .159 of 50 labels with sd .21,
    # .21, .24.
    sample = {"base": (0.754, 0.227, 480), "clone": (0.779, 0.21, 50)}
    sample |= {"parallel_universe_prompt": (0.786, 0.21, 50), "unhelpful": (0.159, 0.24, 50)}
    for policy, (mean, sd, n) in sample.items():
        assert abs(float(arena_like.truth().sel(policy=policy)) - mean) < 2 * sd / np.sqrt(n), policy
    judged = {name: float(np.dot(p.shares, arena_like.LEVELS)) for name, p in arena_like.POLICIES.items()}
    assert max(judged, key=judged.__getitem__) == "parallel_universe_prompt"
    assert str(arena_like.truth().idxmax("policy").item()) == "parallel_universe_prompt"
    cle, ess = [], []
    for seed in range(100):
        data = arena_like.simulate(n=4961, rng=seed)
        log_w = (data.logp_target - data.logp_logger).values
        w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
        w /= w.mean(axis=1, keepdims=True)
        own = np.quantile(data.surprisal.values[:, :, 0], 0.8, axis=1)[:, None]
        typical = -data.logp_target.values / data.n_tokens.values <= own
        cle.append(np.sqrt((w**2 * typical).mean(axis=1)))
        ess.append(1 / (w**2).mean(axis=1))
    # The published CLE column and the caption's rise of ESS. A median of 100 has an error of up to 12% for the heaviest
    # tail, measured by bootstrap: 10% of fit and two errors.
    at = np.median(cle, axis=0)[1:] / [1.9, 60.5, 23.8, 37.6]
    assert (np.abs(at - 1) < [0.15, 0.15, 0.25, 0.3]).all()
    assert 0.954 / np.median(ess, axis=0)[2] > 3000


def test_arena_like_ties_large_weights_to_low_rewards() -> None:
    """SNIPS of the exact rewards is far too low where errors are recorded, and not without them."""
    low = []
    for options in ({}, {"low_error": 0.0}):
        error = []
        for seed in range(30):
            data = arena_like.simulate(n=2000, rng=seed, **options)
            log_w = (data.logp_target - data.logp_logger).values
            w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
            reward = np.interp(data.logged_judge.values, arena_like.LEVELS, arena_like.MEANS)
            error.append((w @ reward / w.sum(axis=1) - arena_like.truth().values)[2:4])
        low.append(np.mean(error, axis=0))
    assert (low[0] < -0.12).all() and (np.abs(low[1]) < 0.05).all()


def test_arena_like_overlap_against_simulation() -> None:
    n = 100_000
    data, exact = arena_like.simulate(n=n, rng=13), arena_like.overlap()
    logged = -data.logp_target.values / data.n_tokens.values
    threshold = np.quantile(data.surprisal.values[:, :, 0], 0.8, axis=1)
    ttc = (logged <= threshold[:, None]).mean(axis=1)
    low, high = np.quantile(data.surprisal.values[:, :, 0], [0.79, 0.81], axis=1)
    ratio = ((logged > low[:, None]) & (logged < high[:, None])).mean(axis=1) / 0.02
    se = np.sqrt((ttc * (1 - ttc) + ratio**2 * 0.16) / n)
    assert (np.abs(ttc - exact.ttc.values) < 5 * se).all()


def test_arena_like_ratio_is_a_density_ratio() -> None:
    """Without noise and divergence W is the ratio of the laws of (S, X): E0[W] = 1, E0[W 1(S = s)] =
    share.
    """
    flat = {name: replace(p, divergence=0.0) for name, p in arena_like.POLICIES.items()}
    data = arena_like.simulate(n=N, policies=flat, noise_share=0.0, low_error=0.0, rng=14)
    w = np.exp(data.logp_target.values - data.logp_logger.values)
    for i, policy in enumerate(flat.values()):
        for level, share in zip(arena_like.LEVELS, policy.shares, strict=True):
            product = w[i] * (data.logged_judge.values == level)
            assert abs(product.mean() - share) < 5 * product.std() / np.sqrt(N)


def test_arena_like_records_no_likelihood_above_one() -> None:
    """An error larger than a short response's own log-likelihood, which the exact moments leave out."""
    data = arena_like.simulate(n=500, noise_sd=300.0, rng=3)
    assert float(data["logp_target"].max()) == 0.0 and float(data["logp_logger"].max()) < 0.0


def test_mbpp_and_preference_facts() -> None:
    assert mbpp_like.truth().values == pytest.approx([0.874, 0.872, 0.874, 0.809, 0.560], abs=0.005)
    assert mbpp_like.youden() == pytest.approx(0.05, abs=0.015)
    base_low = np.cumsum(mbpp_like.SHARES["base"])[1]
    assert base_low < 0.1
    assert np.cumsum(mbpp_like.SHARES["unhelpful"])[1] == pytest.approx(0.31, abs=0.01)
    data = preference_like.simulate(n=N, oracle_fraction=1.0, label_design="own", rng=15)
    for policy in data.policy.values:
        s, y = columns(data, policy)
        for outcome in (
            0.0,
            1.0,
        ):  # stable error rates: sensitivity = specificity = (1 + J) / 2 for every policy
            right = ((s > 0.5) == outcome)[y == outcome]
            rate = (1 + preference_like.youden()) / 2
            assert abs(right.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / len(right))


@pytest.mark.parametrize("name", ["well_specified", "discrete_judge"])
def test_raw_judge_is_far_off(name: str) -> None:
    """At n = 1000 the raw mean is more than 5 of its standard errors from the truth, for every policy."""
    module = scenarios.load(name)
    data = module.simulate(n=N, oracle_fraction=0.0, rng=17)
    s = data.judge.values[:, :, 0]
    assert (np.abs(s.mean(axis=1) - module.truth().values) > 5 * s.std(axis=1) / np.sqrt(1000)).all()
