"""Block files: the unit of work that is written once, verified, and merged.

A block holds some replicates of one cell in one Parquet file: its arrays as one column, with its key (study,
seed, cell, replicate range), their names and shapes, failures and a checksum in the schema's metadata. It comes into
being by rename of a synced temporary file, so it is either absent or whole; one that does not verify counts as absent.
The single writer of the merged netCDF file is `write_results`.
"""

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr

from cje_core.disk import groups
from cje_core.disk.whole import put, whole
from cje_core.streams import Cell, Level, canonical, digest
from studies.engine.outcome import NOT_RUN
from studies.engine.study import Study, StudyError

METADATA = b"cje-block/2"
AXES = ((), ("policy",), ("method", "policy"), ("method", "policy", "ci_bound"))  # of arrays, by their rank
Arrays = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Block:
    """Key of one block: replicates ``start <= r < stop`` of a cell, or its theory if ``start = stop = 0``."""

    study: str
    seed: int
    cell: Cell
    start: int
    stop: int

    @property
    def is_theory(self) -> bool:
        """Whether this block holds the cell's exact values instead of replicates."""
        return self.stop == 0

    @property
    def path(self) -> Path:
        """File of the block, relative to the directory of its study."""
        name = "theory" if self.is_theory else f"{self.start:06d}-{self.stop:06d}"
        return Path("blocks") / digest(dict(self.cell), 8) / f"{name}.parquet"


@dataclass(frozen=True)
class Content:
    """What a block file holds: arrays with the replicate first (none for theory) and the failures."""

    block: Block
    arrays: Arrays
    failures: Sequence[Mapping[str, Any]]


def _checksum(header: Mapping[str, Any], value: npt.NDArray[np.float64]) -> str:
    total = hashlib.blake2b(canonical(header).encode(), digest_size=16)
    total.update(np.ascontiguousarray(value).tobytes())
    return total.hexdigest()


def write_block(directory: Path, content: Content) -> None:
    """Write one block file of the study in `directory`, with its checksum."""
    arrays = {name: np.asarray(array, np.float64) for name, array in sorted(content.arrays.items())}
    value = np.concatenate([array.ravel() for array in arrays.values()])
    header = {
        **asdict(content.block),
        "shapes": [[name, *array.shape] for name, array in arrays.items()],
        "failures": [dict(f) for f in content.failures],
    }
    header["checksum"] = _checksum(header, value)
    table = pa.table({"value": value}).replace_schema_metadata({METADATA: canonical(header).encode()})
    whole = io.BytesIO()  # Arrow writes to a Python file in many small calls, at four times the price
    pq.write_table(table, whole, use_dictionary=False)
    put(directory / content.block.path, whole.getvalue())


def read_block(path: Path) -> Content | None:
    """Return the content of a block file, or None if it is absent or does not verify."""
    try:
        table = pq.read_table(path)
        header = json.loads((table.schema.metadata or {})[METADATA])
        expected, value = header.pop("checksum"), table.column("value").to_numpy()
        if _checksum(header, value) != expected:
            return None
    except (OSError, pa.ArrowException, KeyError, ValueError, AttributeError):
        return None  # truncated, overwritten or foreign bytes: the block counts as not there
    shapes = {name: shape for name, *shape in header.pop("shapes")}
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
    parts = zip(shapes.items(), np.split(value, ends), strict=True)
    arrays = {name: part.reshape(shape) for (name, shape), part in parts}
    return Content(failures=header.pop("failures"), block=Block(**header), arrays=arrays)


def read_all(directory: Path) -> Iterator[tuple[Path, Content | None]]:
    """Yield every block file of a study's directory, in a fixed order, with its content."""
    for path in sorted((directory / "blocks").glob("*/*.parquet")):
        yield path, read_block(path)


def missing(study: Study, seed: int, replicates: Mapping[str, int], present: Sequence[Block]) -> list[Block]:
    """Blocks still to run so that each cell of `study` has its theory and its number of replicates.

    Boundaries lie at multiples of ``study.block`` whatever is there already, so that a larger run reuses the
    blocks of a smaller one and runs only the rest of a block that was cut short. `replicates` has them by canonical
    cell.
    """
    have: dict[str, set[int]] = {}
    theory = set()
    for block in present:
        key = canonical(dict(block.cell))
        have.setdefault(key, set()).update(range(block.start, block.stop))
        if block.is_theory:
            theory.add(key)
    todo = []
    for cell in study.cells():
        key = canonical(cell)
        if study.theory is not None and key not in theory:
            todo.append(Block(study.name, seed, cell, 0, 0))
        for low in range(0, replicates[key], study.block):
            numbers = range(low, min(low + study.block, replicates[key]))
            open_ = [r for r in numbers if r not in have.get(key, ())]
            for run in np.split(open_, np.flatnonzero(np.diff(open_) > 1) + 1) if open_ else ():
                todo.append(Block(study.name, seed, cell, int(run[0]), int(run[-1]) + 1))
    return todo


def _levels(study: Study, factor: str, contents: Sequence[Content]) -> list[Level]:
    """Levels of a factor that occur, numbers sorted and names in the study's order."""
    found = {content.block.cell[factor] for content in contents}
    if any(isinstance(level, str) for level in found):
        declared = [*study.factors[factor], *sorted(map(str, found))]
        return [level for level in dict.fromkeys(declared) if level in found]
    return sorted(found)


def merge(study: Study, contents: Sequence[Content]) -> xr.Dataset:
    """All blocks of a study as one dataset over ``<factors>, replicate, method, policy, ci_bound``.

    A replicate that was not run has NaN and status -1. Diagnostics keep the names that the study gave them;
    exact values come as ``theory_<name>``.
    """
    factors = {factor: _levels(study, factor, contents) for factor in study.factors}
    sizes = tuple(len(levels) for levels in factors.values())
    replicates = max((content.block.stop for content in contents), default=0)
    places = {factor: {level: i for i, level in enumerate(levels)} for factor, levels in factors.items()}
    values: dict[str, npt.NDArray[np.float64]] = {}
    dims: dict[str, tuple[str, ...]] = {}
    for content in contents:
        block = content.block
        cell = tuple(places[factor][block.cell[factor]] for factor in factors)  # files sort a cell's keys
        for name, array in content.arrays.items():
            variable = f"theory_{name}" if block.is_theory else name
            own = array.shape if block.is_theory else array.shape[1:]
            if variable not in values:
                axes = ("method",) if variable == "seconds" else AXES[len(own)]
                dims[variable] = (*factors, *(() if block.is_theory else ("replicate",)), *axes)
                shape = (*sizes, *own) if block.is_theory else (*sizes, replicates, *own)
                values[variable] = np.full(shape, NOT_RUN if name == "status" else np.nan)
            target = values[variable]
            if target.shape[target.ndim - len(own) :] != own:
                raise StudyError(f"{variable} has shape {own} in one block and another one elsewhere")
            where: tuple[Any, ...] = cell if block.is_theory else (*cell, slice(block.start, block.stop))
            target[where] = array
    ds = xr.Dataset(
        {name: (dims[name], array) for name, array in sorted(values.items())},
        coords={
            **factors,
            "replicate": np.arange(replicates),
            "method": list(study.methods),
            "policy": study.columns,
            "ci_bound": ["lower", "upper"],
        },
        attrs={"schema": "cje-study/1", "study": study.name, "ci_prob": study.ci_prob},
    )
    ds["status"] = ds["status"].astype(np.int8)
    ds["status"].attrs["note"] = (
        "cje_core.inference.estimate.Status; -1 not run, -2 the replicate or method raised"
    )
    return ds


def write_results(path: Path, ds: xr.Dataset) -> None:
    """Write the merged results as one netCDF file, whole or not at all.

    Not by `to_netcdf`: where Dask is installed it loads its scheduler, half a second of each run.
    """
    kept = ds.copy()
    for variable in kept.data_vars.values():
        if variable.ndim:
            variable.encoding |= {"zlib": True, "complevel": 1}
    try:
        with whole(path) as temporary:
            groups.write(temporary, {"": kept})
    except RuntimeError as error:  # what the library makes of a disk that is full
        raise OSError(f"{path.name}: {error} (no space left?)") from None


def read_results(path: Path) -> xr.Dataset:
    """Read merged results into memory.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "results.nc"
    ...     xr.Dataset({"estimate": ("replicate", [0.4, 0.6])}).to_netcdf(path)
    ...     read_results(path)["estimate"].values.tolist()
    [0.4, 0.6]
    """
    with xr.open_dataset(path, engine="netcdf4") as ds:
        return ds.load()
