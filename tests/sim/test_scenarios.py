"""Conformance of every scenario that the directory holds: no scenario is named here."""

import inspect
from functools import cache

import numpy as np
import pytest
import xarray as xr

from cje_core.data import check_data
from cje_sim import scenarios

TAIL = {"n", "oracle_fraction", "label_design", "label_scheme", "n_probes", "rng"}


@cache
def large(name: str) -> xr.Dataset:
    """2e5 prompts with every label visible."""
    return scenarios.load(name).simulate(n=200_000, oracle_fraction=1.0, label_design="own", rng=20240607)


@pytest.mark.parametrize("name", scenarios.available())
def test_signature(name: str) -> None:
    module = scenarios.load(name)
    simulate, truth = (
        inspect.signature(module.simulate).parameters,
        inspect.signature(module.truth).parameters,
    )
    assert all(
        p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in [*simulate.values(), *truth.values()]
    )
    assert set(simulate) >= TAIL
    assert set(truth) <= set(simulate) - TAIL
    assert all(truth[k].default == simulate[k].default for k in truth), (
        "simulate and truth disagree on a default"
    )


@pytest.mark.parametrize("name", scenarios.available())
@pytest.mark.parametrize("design", ["own", "base"])
def test_schema_and_labels(name: str, design: str) -> None:
    data = scenarios.load(name).simulate(n=400, oracle_fraction=0.25, label_design=design, n_probes=20, rng=1)
    check_data(data)
    assert data.sizes["prompt"] == 400
    assert "label_prob" in data
    truth = scenarios.load(name).truth()
    assert list(truth.policy.values) == list(data.policy.values)
    low, high = data.attrs["oracle_range"]
    assert ((truth >= low) & (truth <= high)).all()
    taught = data.sel(policy=data.attrs["calibration_policy"])
    assert (taught.label_prob.values[taught.labelled.values] > 0).all()
    assert data.probe.sum(("prompt", "draw")).values.tolist() == [0] + [20] * (data.sizes["policy"] - 1)
    with_labels = data.policy[data.labelled.any(("prompt", "draw"))].values.tolist()
    assert with_labels == (data.policy.values.tolist() if design == "own" else [data.policy.values[0]])


@pytest.mark.parametrize("name", scenarios.available())
def test_truth_against_simulation(name: str) -> None:
    """|mean - truth| < 5 SE in 2e5 prompts, the SE by cluster where the world has clusters."""
    data, truth = large(name), scenarios.load(name).truth()
    labels = data.oracle.where(data.evaluated)
    assert bool(np.isfinite(labels.values[data.evaluated.values]).all())
    per_prompt = labels.mean("draw").values
    cluster = data.cluster.values if "cluster" in data else data.prompt.values
    _, code = np.unique(cluster, return_inverse=True)
    for p, policy in enumerate(data.policy.values):
        values = per_prompt[p]
        sums = np.bincount(code, weights=values - values.mean())
        se = np.sqrt((sums**2).sum()) / len(values)
        error = values.mean() - float(truth.sel(policy=policy))
        assert 5 * se < 0.01, "an error of .01 must show"
        assert abs(error) < 5 * se, (
            f"{policy}: mean {values.mean():.5f}, truth {float(truth[p]):.5f}, SE {se:.5f}"
        )


@pytest.mark.parametrize("name", scenarios.available())
def test_same_seed_same_data_and_no_global_state(name: str) -> None:
    simulate = scenarios.load(name).simulate
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - reads the global state to show that it stays put
    first, second = simulate(n=60, rng=7), simulate(n=60, rng=np.random.default_rng(7))
    other = simulate(n=60, rng=8)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert first.identical(second)
    assert not first.identical(other)


@pytest.mark.parametrize("name", scenarios.available())
def test_generator_moves_on(name: str) -> None:
    """Two calls with one generator differ; replaying the generator replays the second call."""
    simulate = scenarios.load(name).simulate
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    first, second = simulate(n=60, rng=rng), simulate(n=60, rng=rng)
    assert not first.identical(second)
    simulate(n=60, rng=again)
    assert simulate(n=60, rng=again).identical(second)
    assert rng.bit_generator.state == again.bit_generator.state
