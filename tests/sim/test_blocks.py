"""Blocks of data sets: the very numbers of `simulate`, replicate by replicate, or none."""

import numpy as np
import pytest

from cje_core.streams import Streams
from cje_sim import scenarios

SHAPES = {
    "well_specified": {"n": 40, "oracle_fraction": 0.3},
    "discrete_judge": {"n": 30, "label_design": "base"},
    "binary_oracle": {"n": 30, "label_scheme": "stratified"},
    "weak_judge": {"n": 30, "label_scheme": "score"},
    "equal_policies": {"n": 25},
    "transport_shift": {"n": 25},
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_block_holds_what_simulate_draws(name):
    simulate = scenarios.load(name).simulate
    streams = [Streams(3, "study", {"n": 1}, r) for r in range(3)]
    block = simulate.block([s("data") for s in streams], **SHAPES[name])
    for r, s in enumerate(streams):
        data = simulate(**SHAPES[name], rng=s("data"))
        assert list(block.policies) == data.policy.values.tolist()
        assert data.attrs["judge_range"] == list(block.judge_range)
        assert data.attrs["oracle_range"] == list(block.oracle_range)
        for values, field in (
            (block.score, "judge"),
            (block.label, "oracle"),
            (block.label_prob, "label_prob"),
        ):
            np.testing.assert_array_equal(values[r], data[field].values[..., 0])


def test_judge_scores_in_oracle_units():
    block = scenarios.load("well_specified").simulate.block([np.random.default_rng(0)], n=20, grid="percent")
    np.testing.assert_allclose(block.oracle_units, block.score / 100, rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("well_specified", {"n_probes": 3}), ("length_bias", {}), ("arena_like", {})],
)
def test_what_a_block_cannot_hold_is_none(name, arguments):
    simulate = scenarios.load(name).simulate
    assert simulate.block([np.random.default_rng(0)], n=60, **arguments) is None


def test_a_block_refuses_unknown_keywords():
    with pytest.raises(TypeError, match="no parameter 'm'"):
        scenarios.load("well_specified").simulate.block([np.random.default_rng(0)], m=3)
