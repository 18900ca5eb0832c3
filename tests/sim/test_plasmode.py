"""Plasmode worlds: truth by construction, against simulation, against a loop, on made-up and on real data."""

from pathlib import Path

import numpy as np
import oracles_worlds as slow
import pytest
import xarray as xr

from cje_core.data import DataError, check_data, from_arrays
from cje_sim import plasmode
from cje_sim.scenarios import arena_like, clustered, mbpp_like, well_specified

ARENA = Path(__file__).parents[3] / "shared" / "data" / "arena_sample"


def ragged() -> xr.Dataset:
    """Two draws, a missing response, an audit-only response, covariates, probes, scales other than [0, 1]."""
    rng = np.random.default_rng(0)
    judge = np.round(1 + 4 * rng.random((2, 60, 2)))
    oracle = np.where(rng.random(judge.shape) < 0.6, 10 * judge + rng.integers(-5, 6, judge.shape), np.nan)
    judge[1, :5, 1] = oracle[1, :5, 1] = np.nan
    evaluated = np.isfinite(judge)
    evaluated[:, 55:] = False
    probe = np.isfinite(oracle)
    probe[0] = False
    return from_arrays(
        judge,
        policies=["b", "a"],
        oracle=oracle,
        probe=probe,
        evaluated=evaluated,
        covariate=rng.integers(0, 3, (*judge.shape, 1)),
        features=["x"],
        judge_range=(1, 5),
        oracle_range=(0, 60),
    )


@pytest.mark.parametrize("bandwidth", [0.0, 0.25])
@pytest.mark.parametrize("use_covariates", [False, True])
def test_truth_against_a_loop(bandwidth: float, use_covariates: bool) -> None:
    data = ragged()
    world = plasmode.fit(data, bandwidth=bandwidth, use_covariates=use_covariates)
    assert world.own_donors == (True, True)
    for p in range(2):
        by_hand = slow.plasmode_value(data, p, bandwidth, use_covariates)
        assert float(plasmode.truth(world)[p]) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("bandwidth", [0.0, 0.3])
@pytest.mark.parametrize(
    "data",
    [
        ragged(),
        arena_like.simulate(n=300, oracle_fraction=0.4, n_probes=30, rng=1),
        clustered.simulate(n=200, oracle_fraction=0.5, rng=2),
        mbpp_like.simulate(n=100, oracle_fraction=0.5, n_probes=20, rng=3),
    ],
    ids=["ragged", "arena_like", "clustered", "mbpp_like"],
)
def test_truth_against_simulation(data: xr.Dataset, bandwidth: float) -> None:
    """1e5 prompts with every label visible: within 5 SE, by cluster, of a mean that counts each prompt
    once.
    """
    world = plasmode.fit(data, bandwidth=bandwidth)
    sample = plasmode.simulate(
        world, n=100_000, oracle_fraction=1.0, label_design="own", label_scheme="uniform", rng=4
    )
    check_data(sample)
    assert sample.sizes["prompt"] == 100_000
    per_prompt = sample.oracle.where(sample.evaluated).mean("draw").values
    code = (
        np.unique(sample.cluster.values, return_inverse=True)[1]
        if "cluster" in sample
        else np.arange(100_000)
    )
    for p, value in enumerate(plasmode.truth(world).values):
        there = np.isfinite(per_prompt[p])
        gap = np.where(there, per_prompt[p] - np.nanmean(per_prompt[p]), 0.0)
        se = np.sqrt((np.bincount(code, gap) ** 2).sum()) / there.sum()
        assert abs(np.nanmean(per_prompt[p]) - value) < 5 * se
        assert 5 * se < 0.05 * (sample.attrs["oracle_range"][1] - sample.attrs["oracle_range"][0]), "no power"


def test_every_law_is_a_law() -> None:
    rng = np.random.default_rng(5)
    labels, law = plasmode.label_law(
        rng.random((700, 2)), rng.random((40, 2)), np.round(rng.random(40), 1), 0.1
    )
    assert (np.diff(labels) > 0).all()
    assert law.min() >= 0
    assert law.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    far = plasmode.label_law(np.array([[1e6]]), np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), 0.01)[1]
    assert far.tolist() == [[0.0, 1.0]], "no underflow to 0/0 far from all donors"


def test_policies_without_labels_borrow_and_then_transport() -> None:
    data = well_specified.simulate(n=500, label_design="base", rng=6)
    world = plasmode.fit(data)
    assert world.own_donors == (True, False, False, False)
    assert plasmode.residual(world).values == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_shape_of_the_users_data_is_kept() -> None:
    """Row order does not matter, prompts stay whole, and a world near its source has nearly its truth."""
    data = well_specified.simulate(n=3000, oracle_fraction=0.5, rng=7)
    world = plasmode.fit(data)
    shuffled = plasmode.fit(data.isel(prompt=np.random.default_rng(8).permutation(3000), policy=[0, 3, 1, 2]))
    assert plasmode.truth(shuffled).sel(policy=data.policy).values == pytest.approx(
        plasmode.truth(world).values, abs=1e-12
    )
    rows = {tuple(r) for r in data.judge.values[:, :, 0].T}
    assert {tuple(r) for r in plasmode.simulate(world, n=200, rng=9).judge.values[:, :, 0].T} <= rows
    # 1500 labels with sd < .3, and the population is one sample of 3000: an SE below .3 sqrt(1/1500 +
    # 1/3000), and a kernel of .25 sd flattens the ends by less than .01.
    error = plasmode.truth(world) - well_specified.truth()
    assert (np.abs(error) < 5 * 0.3 * np.sqrt(1 / 1500 + 1 / 3000) + 0.01).all()


def test_determinism_and_purity() -> None:
    data = ragged()
    before = data.copy(deep=True)
    world = plasmode.fit(data)
    kept = world.population.copy(deep=True)
    first, second = (
        plasmode.simulate(world, n=50, rng=1),
        plasmode.simulate(world, n=50, rng=np.random.default_rng(1)),
    )
    assert first.identical(second)
    assert not first.identical(plasmode.simulate(world, n=50, rng=2))
    assert data.identical(before)
    assert world.population.identical(kept)
    assert not (first.evaluated & ~np.isfinite(first.judge)).any()


@pytest.mark.parametrize("scheme", ["stratified", "score", "active", "mnar", "early"])
def test_schemes_on_ragged_data(scheme: str) -> None:
    world = plasmode.fit(ragged())
    check_data(plasmode.simulate(world, n=80, label_scheme=scheme, label_design="own", n_probes=10, rng=1))


def test_bad_input() -> None:
    data = ragged()
    with pytest.raises(ValueError, match="finite and >= 0"):
        plasmode.fit(data, bandwidth=-1.0)
    with pytest.raises(DataError, match="no response has an oracle label"):
        plasmode.fit(from_arrays([[0.5, 0.6]], policies=["a"]))
    with pytest.raises(DataError, match="'a' has no evaluated response"):
        plasmode.fit(data.assign(evaluated=data.evaluated & (data.policy == "b")))


@pytest.mark.skipif(not ARENA.is_dir(), reason="the shared Arena sample is not here")
@pytest.mark.parametrize("bandwidth", [0.0, 0.25])
@pytest.mark.parametrize("covariates", [[], ["response_length"]])
def test_arena_sample(bandwidth: float, covariates: list[str]) -> None:
    from cje_core.io import files

    data, _ = files.read(
        ARENA / "fresh_draws",
        probes=ARENA / "probe_slice",
        logged=ARENA / "logged_data.jsonl",
        covariates=covariates,
    )
    world = plasmode.fit(data, bandwidth=bandwidth)
    assert all(world.own_donors)
    value, gap = plasmode.truth(world), plasmode.residual(world)
    assert float(value.sel(policy="base")) == pytest.approx(0.754, abs=0.01)
    assert 0.1 < float(value.sel(policy="unhelpful")) < 0.2
    # The base has 9 labels at scores of .2 and below, so this figure depends on how they are smoothed.
    assert float(gap.sel(policy="unhelpful")) < -0.1
    assert (np.abs(gap.values[:3]) < 2 * 0.21 / np.sqrt(50)).all(), "probe labels of the others transport"
    sample = plasmode.simulate(world, oracle_fraction=0.25, n_probes=50, rng=1)
    check_data(sample)
    assert sample.sizes["prompt"] == 1000
    assert {"logp_target", "logp_logger", "logged_judge", "logged_oracle"} <= set(sample)
