"""`cje_core.disk.groups` writes what xarray writes: variables, attributes, and how they are kept."""

import numpy as np
import pytest
import xarray as xr

from cje_core.disk.groups import packed, write

GROUPS = {
    "numbers": xr.Dataset(
        {
            "value": (("policy", "draw"), np.array([[0.1, np.nan], [0.3, 1e-300]]), {"about": "a value"}),
            "count": ("policy", np.array([1, 2**40])),
            "flag": ("policy", np.array([True, False])),
            "small": ((), np.float32(0.1)),
            "none": ("empty", np.array([])),
        },
        {"policy": ["base", "clone"], "kind": ("policy", ["a", "b\u00e9"]), "whole": 3.0},
        {"seed": 1, "names": ["one", "two"], "single": ["one"], "share": 0.5},
    ),
    "texts": xr.Dataset({"route": ("policy", ["", "label mean"]), "ids": ("empty", np.array([], dtype=str))}),
    "one/below": xr.Dataset({"x": ("draw", [1.0, 2.0])}),
    "attributes": xr.Dataset(attrs={"estimator": "direct"}),
}
KEPT = ("dtype", "_FillValue", "contiguous", "chunksizes", "coordinates", "zlib", "fletcher32")


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_file_is_that_of_xarray(tmp_path, in_memory):
    ours, theirs = tmp_path / "ours.nc", tmp_path / "theirs.nc"
    if in_memory:
        ours.write_bytes(packed(GROUPS))
    else:
        write(ours, GROUPS)
    xr.DataTree.from_dict(GROUPS).to_netcdf(theirs, engine="netcdf4")
    with xr.open_datatree(ours) as found, xr.open_datatree(theirs) as expected:
        xr.testing.assert_identical(found.load(), expected.load())
        assert set(found.groups) == set(expected.groups) and len(found.groups) == 6
        for group in found.groups:
            for name, variable in found[group].variables.items():
                other = expected[group].variables[name].encoding
                for what in KEPT:
                    np.testing.assert_equal(variable.encoding.get(what), other.get(what), (name, what))


def test_what_cannot_be_written_raises(tmp_path):
    with pytest.raises(OSError):
        write(tmp_path / "nowhere" / "x.nc", GROUPS)
    with pytest.raises((TypeError, ValueError)):
        packed({"one": xr.Dataset({"x": ("draw", np.array([object()], dtype=object))})})
