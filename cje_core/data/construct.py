"""Datasets of variables that are known to go together: xarray takes twice as long to find that out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.indexes import PandasIndex


def dataset(
    data_vars: Mapping[str, Any],
    coords: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    indexes: Mapping[str, xr.Index] | None = None,
) -> xr.Dataset:
    """``xr.Dataset(data_vars, coords, attrs)`` of arrays that need no alignment.

    Parameters
    ----------
    data_vars, coords : mappings
        By name a variable, ``(dims, values)`` or ``(dims, values, attrs)``; of a coordinate also the values alone,
        along the dimension of its name, for which an index is made.
    indexes : mapping, optional
        Those that are made already.

    Examples
    --------
    >>> found = dataset({"x": ("k", [1.0, 2.0])}, {"k": ["a", "b"]})
    >>> found["x"].sel(k="b").item()
    2.0
    """
    known = indexes or {}
    variables, found, sizes = dict[str, xr.Variable](), dict[Any, xr.Index](), dict[Any, int]()
    for name, held in {**data_vars, **coords}.items():
        if isinstance(held, xr.Variable):
            variable = held.copy(deep=False)
        else:
            dims, values, *more = held if isinstance(held, tuple) else (name, held)
            dims = (dims,) if isinstance(dims, str) else tuple(dims)
            variable = xr.Variable(dims, np.asarray(values), more[0] if more else None, fastpath=True)
        if name in known:
            found[name] = known[name]
        elif variable.dims == (name,):
            variable = variable.to_index_variable()
            found[name] = PandasIndex(variable.to_index(), name, variable.dtype)
        variables[name] = variable
        for dim, size in variable.sizes.items():
            if sizes.setdefault(dim, size) != size:
                raise ValueError(f"{name} has {size} values along {dim}, other variables have {sizes[dim]}")
    return xr.Dataset._construct_direct(variables, {*coords, *found}, sizes, dict(attrs or {}), found)
