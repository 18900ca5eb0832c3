"""Datasets of variables that are known to go together: xarray takes twice as long to find that out."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from xarray.indexes import PandasIndex

KEPT_BYTES = 1 << 16  # of the names of a coordinate whose index is kept


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
            variable, found[name] = _indexed(name, variable)
        variables[name] = variable
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise ValueError(f"{name} has {size} values along {dim}, other variables have {sizes[dim]}")
    return xr.Dataset._construct_direct(variables, {*coords, *found}, sizes, dict(attrs or {}), found)


def in_order(out: xr.Dataset, data: xr.Dataset) -> xr.Dataset:
    """Policies as the data have them; selecting costs milliseconds that a study need not pay for sorted data."""
    same = np.array_equal(out.policy.values, data.policy.values)
    return out if same else out.sel(policy=data.policy.values)


def _indexed(name: str, variable: xr.Variable) -> tuple[xr.Variable, xr.Index]:
    """A variable as the coordinate of its dimension, and the index; of few names these are kept, for the next data."""
    values = None if isinstance(variable, xr.IndexVariable) else variable.values
    if values is None or values.dtype.kind not in "iU" or values.nbytes > KEPT_BYTES:
        return _index(name, variable)
    kept, index = _kept(name, values.dtype.str, values.tobytes())
    out = kept.copy(deep=False)
    out.attrs = variable.attrs
    return out, index


def _index(name: str, variable: xr.Variable) -> tuple[xr.Variable, xr.Index]:
    out = variable.to_index_variable()
    return out, PandasIndex(out.to_index(), name, out.dtype)


@lru_cache(maxsize=64)  # prompts, policies, draws, ... of several data sets and their estimates
def _kept(name: str, dtype: str, values: bytes) -> tuple[xr.Variable, xr.Index]:
    return _index(name, xr.Variable((name,), np.frombuffer(values, dtype), fastpath=True))
