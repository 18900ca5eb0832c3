"""Datasets as the groups of one netCDF file, as `xarray.DataTree.to_netcdf` writes them.

xarray fills each variable as soon as it is defined, and netCDF, between a definition and the next one, brings all that
was defined so far to the disk: time grows with the square of the number of variables, .3 s for a ledger of 450. Here
all are defined before the first is filled.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from xarray.conventions import decode_cf_variables, encode_dataset_coordinates

if TYPE_CHECKING:
    import netCDF4


def write(path: Path, groups: Mapping[str, xr.Dataset]) -> None:
    """Write datasets into a file, by the paths of their groups.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write(Path(directory, "x.nc"), {"one": xr.Dataset({"x": ("draw", [1.0, 2.0])})})
    ...     xr.load_dataset(Path(directory, "x.nc"), group="one")["x"].values.tolist()
    [1.0, 2.0]
    """
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        _fill(file, groups)


def read(path: Path) -> dict[str, xr.Dataset]:
    """The groups of a file by their paths, loaded, texts of NumPy's kind; those that hold nothing are left out.

    `xarray.open_datatree` opens each group and each variable lazily first.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write(Path(directory, "x.nc"), {"one/two": xr.Dataset({"x": ("draw", [True, False])})})
    ...     {name: ds["x"].values.tolist() for name, ds in read(Path(directory, "x.nc")).items()}
    {'one/two': [True, False]}
    """
    import netCDF4

    found = {}
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        for group in _all_groups(file):
            if group.variables or group.ncattrs():
                found[group.path.strip("/")] = _loaded(group)
    return found


def _all_groups(group: "netCDF4.Dataset") -> "Iterator[netCDF4.Dataset]":
    yield group
    for inner in group.groups.values():
        yield from _all_groups(inner)


def _loaded(group: "netCDF4.Dataset") -> xr.Dataset:
    stored = {}
    for name, held in group.variables.items():
        values = np.asarray(held[...])
        values = values.astype(str) if values.dtype.kind == "O" else values
        stored[name] = xr.Variable(held.dimensions, values, _attributes(held))
    variables, attributes, coords = decode_cf_variables(stored, _attributes(group))
    return xr.Dataset(variables, attrs=attributes).set_coords(coords).load()


def _attributes(held: Any) -> dict[str, Any]:
    return {name: held.getncattr(name) for name in held.ncattrs()}


def packed(groups: Mapping[str, xr.Dataset]) -> bytes:
    """The bytes of such a file.

    Examples
    --------
    >>> packed({"one": xr.Dataset({"x": ("draw", [1.0, 2.0])})})[1:4]
    b'HDF'
    """
    import netCDF4

    file = netCDF4.Dataset("in memory", "w", memory=1)
    _fill(file, groups)
    return bytes(file.close())


def _fill(file: "netCDF4.Dataset", groups: Mapping[str, xr.Dataset]) -> None:
    later = _Later()
    for name, ds in groups.items():
        store: Any = xr.backends.NetCDF4DataStore(file, group=name, mode="w")  # type: ignore[no-untyped-call]
        variables, attributes = encode_dataset_coordinates(ds)
        store.store(variables, attributes, writer=later)
    for source, target in later.added:
        target[...] = source


class _Later:
    """Takes what a store would have written at once."""

    def __init__(self) -> None:
        self.added: list[tuple[Any, Any]] = []

    def add(self, source: Any, target: Any, region: Any = None) -> None:
        self.added.append((source, target))
