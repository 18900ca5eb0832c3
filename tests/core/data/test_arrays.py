"""Layout of evaluation data: what data of the same names share, and that they share nothing else."""

import pytest

from cje_sim.scenarios import well_specified


def test_data_of_the_same_names_share_their_indexes_and_nothing_else():
    """What is written on one coordinate does not reach another, and other names have another index."""
    data, other = (well_specified.simulate(n=30, rng=seed) for seed in (0, 1))
    longer = well_specified.simulate(n=31, rng=0)
    for dim in ("policy", "prompt", "draw"):
        assert data.xindexes[dim] is other.xindexes[dim]
    assert longer.xindexes["prompt"] is not data.xindexes["prompt"]
    assert longer.prompt.values.tolist() == [str(i) for i in range(31)]
    before = dict(other.prompt.attrs)
    data.prompt.attrs["said"] = "of this one"
    assert other.prompt.attrs == before and other.copy(deep=True).prompt.equals(other.prompt)
    with pytest.raises(ValueError, match="read-only"):
        data.draw.values[0] = 7
    renamed = data.assign_coords(prompt=[f"q{i}" for i in range(30)])
    assert renamed.prompt.values[3] == "q3" and other.prompt.values[3] == "3"
