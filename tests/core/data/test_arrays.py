"""Layout of evaluation data: what a study shares between its estimators, and that it shares nothing else."""

import numpy as np

from cje_core.data.arrays import unpack, unpacked_once
from cje_sim.scenarios import well_specified


def test_a_dataset_is_laid_out_once_inside_and_afresh_outside():
    data, other = (well_specified.simulate(n=30, rng=seed) for seed in (0, 1))
    with unpacked_once(data):
        first = unpack(data)
        assert unpack(data) is first
        assert unpack(other) is not unpack(other)
        assert not np.array_equal(unpack(other).score, first.score)
        with unpacked_once(other):
            assert unpack(other) is unpack(other)
            assert unpack(data) is not first
        assert unpack(data) is first
    assert unpack(data) is not first
    for one, again in zip(first, unpack(data), strict=True):
        np.testing.assert_array_equal(one, again)
