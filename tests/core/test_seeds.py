"""Seeds of many streams at once are NumPy's, word for word."""

import copy
import pickle

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cje_core.seeds import seeded
from cje_core.streams import Streams, streams_of

KEYS = arrays.arrays(np.uint32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9))


@given(st.integers(0, 2**200), KEYS)
@example(0, np.zeros((1, 8), np.uint32))
@example(2**32, np.full((2, 8), 2**32 - 1, np.uint32))
@example(2**128, np.arange(16, dtype=np.uint32).reshape(2, 8))
def test_seeds_are_those_of_seed_sequence(root, keys):
    for key, seed in zip(keys, seeded(root, keys), strict=True):
        slow = np.random.SeedSequence(root, spawn_key=key.tolist())
        assert np.array_equal(seed.generate_state(4, np.uint64), slow.generate_state(4, np.uint64))
        assert np.array_equal(seed.generate_state(7), slow.generate_state(7))


def test_children_and_copies_are_those_of_seed_sequence():
    key = np.arange(8, dtype=np.uint32)
    (seed,) = seeded(3, key[None])
    slow = np.random.default_rng(np.random.SeedSequence(3, spawn_key=key.tolist()))
    fast = np.random.Generator(np.random.PCG64(seed))
    for one, other in zip(fast.spawn(2), slow.spawn(2), strict=True):
        assert one.random() == other.random()
    for again in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert again.random() == copy.deepcopy(slow).random()
    assert fast.spawn(1)[0].random() == slow.spawn(1)[0].random()  # the third child


@given(
    st.integers(0, 2**70),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=4), st.booleans() | st.integers() | st.text(max_size=4), max_size=3),
    st.integers(0, 10**6),
    st.integers(0, 5),
    st.text(max_size=6),
)
def test_streams_of_replicates_that_run_together_are_those_of_each_alone(
    seed, study, cell, start, count, name
):
    together = streams_of(seed, study, cell, range(start, start + count))
    for r, streams in enumerate(together, start):
        alone = Streams(seed, study, cell, r)
        assert streams == alone
        assert streams(name).integers(2**63) == streams(name).integers(2**63) == alone(name).integers(2**63)
