"""Files between the steps: Parquet for rows, netCDF for labelled results, JSON for the configuration; bits are kept."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.data import DataError
from cje_core.disk.groups import read, write
from cje_core.disk.whole import whole

MAKERS = {  # which step writes a file; what is in none comes before the first, from `read_step`
    "calibrator.nc": "calibrate",
    "rewards.parquet": "calibrate",
    "weights.parquet": "stabilise",
    "stabilisation.nc": "stabilise",
    "estimates.nc": "estimate",
    "members.nc": "estimate",
    "stacked.nc": "stack",
    "variance.nc": "jackknife",
}
FIRST = ("config.json", "data.nc", "left_out.parquet")  # what `read_step` writes
FORMAT = 2  # of these files; a change of what they hold makes it another, and files of others are refused
EXACT = "exact_attributes"  # JSON of the attributes, which netCDF would turn from lists into arrays


def check_room(directory: Path) -> None:
    """`DataError` where the files of an analysis cannot go: a directory that others use, or none that can be written.

    Its own are the files of the steps, whole or cut short, and whatever lies beside a ``config.json`` of an analysis.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in directory.iterdir())
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritten(directory, error) from None
    foreign = [name for name in names if name not in (*FIRST, *MAKERS) and not _cut_short(name)]
    if not foreign:
        return
    try:
        kept = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError):
        kept = None
    if not (isinstance(kept, dict) and {"names", "calibration"} <= set(kept)):
        raise DataError(
            f"{directory}: it holds files that no analysis kept there ({foreign[0]!r}); name a new or empty directory"
        )


@contextmanager
def room(directory: Path) -> Iterator[None]:
    """`check_room`; where what follows is refused, empty directories that it made are taken away again."""
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        check_room(directory)
        yield
    except DataError:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def clear(directory: Path) -> None:
    """Take away what an earlier analysis kept, ``config.json`` first: without it no step takes the rest for whole."""
    try:
        for name in (*FIRST, *MAKERS):
            (directory / name).unlink(missing_ok=True)
        for path in directory.iterdir():
            if _cut_short(path.name):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritten(directory, error) from None


def _cut_short(name: str) -> bool:
    """Whether a name is that of a temporary file of `cje_core.disk.whole`, which a killed process leaves."""
    return name.endswith(".tmp") and any(name.startswith(f".{own}.") for own in (*FIRST, *MAKERS))


def _unwritten(path: Path, error: Exception) -> DataError:
    said = (getattr(error, "strerror", None) or str(error)).lower()
    return DataError(f"{path}: {said}; name another directory")


def write_tree(path: Path, groups: Mapping[str, xr.Dataset]) -> None:
    """Write datasets as the groups of one netCDF file, whole or not at all."""
    with _room(path) as temporary:
        write(temporary, {name: _with_exact(ds) for name, ds in groups.items()})


def read_tree(path: Path) -> dict[str, xr.Dataset]:
    """The groups of a netCDF file, by their paths without the first slash; those without variables are left out."""
    with readable(path):
        return {name: _restored(ds) for name, ds in read(path).items()}


def write_rows(path: Path, rows: pd.DataFrame) -> None:
    """Write a table as Parquet, whole or not at all."""
    with _room(path) as temporary:
        rows.to_parquet(temporary, index=False)


def read_rows(path: Path) -> pd.DataFrame:
    """Read a table."""
    with readable(path):
        return pd.read_parquet(path)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    with _room(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON value."""
    with readable(path):
        return json.loads(path.read_text(encoding="utf-8"))


def aligned(rows: pd.DataFrame, keys: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Rows in the order of `keys`, a table of some of their columns; `DataError` unless each is there, once."""
    names = list(keys.columns)
    missing = [name for name in names if name not in rows]
    if missing:
        raise DataError(f"{path}: it has no column {missing[0]!r}; run the step {MAKERS[path.name]} again")
    index = pd.MultiIndex.from_frame(rows[names])
    place = index.get_indexer(pd.MultiIndex.from_frame(keys)) if index.is_unique else np.array([-1])
    if len(rows) != len(keys) or (place < 0).any():
        raise DataError(
            f"{path}: its rows are not those of data.nc; run the step {MAKERS[path.name]} again, and those after it"
        )
    return rows.iloc[place].reset_index(drop=True)


@contextmanager
def _room(path: Path) -> Iterator[Path]:
    """`cje_core.disk.whole.whole`; what the disk refuses is one line."""
    try:
        with whole(path) as temporary:
            yield temporary
    except (OSError, RuntimeError) as error:  # the latter is netCDF's word for a full disk
        raise _unwritten(path, error) from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say which step writes a file that is not there, or cannot be read."""
    step = MAKERS.get(path.name)
    try:
        yield
    except FileNotFoundError:
        mend = f"run the step {step} first" if step else "keep an analysis there first"
        raise DataError(f"{path}: there is no such file; {mend}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        mend = f"run the step {step} again" if step else "keep the analysis again"
        raise DataError(f"{path}: it cannot be read ({said}); {mend}") from None


def _with_exact(ds: xr.Dataset) -> xr.Dataset:
    """The same with attributes that netCDF can hold, and their JSON beside them."""
    exact = {"": _plain(ds.attrs), **{str(name): _plain(ds[name].attrs) for name in ds.variables}}
    out = ds.copy(deep=False)
    out.attrs = {EXACT: json.dumps(exact)}
    for name in out.variables:
        out[name].attrs = {}
    return out


def _restored(ds: xr.Dataset) -> xr.Dataset:
    """What `_with_exact` was given."""
    exact = json.loads(ds.attrs[EXACT])
    for name, variable in ds.variables.items():
        variable.attrs, variable.encoding = _made(exact[str(name)]), {}
    ds.attrs, ds.encoding = _made(exact[""]), {}
    return ds


def _plain(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        str(k): {"dtype": v.dtype.name, "values": v.tolist()} if isinstance(v, np.ndarray | np.generic) else v
        for k, v in attributes.items()
    }


def _made(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: np.asarray(v["values"], v["dtype"]) if isinstance(v, dict) and "dtype" in v else v
        for k, v in plain.items()
    }
