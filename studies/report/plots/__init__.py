"""Plots of any results, one file each; the directory is the registry. Each has ``draw(ds) -> Figure``.

Rule of this package: a plot takes the merged results of any study (`studies.engine.blocks.read_results`), all of them
or a part by ``ds.sel``, and raises `studies.engine.study.StudyError` with one line that names what they lack.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

import xarray as xr

from studies.engine.study import StudyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def available() -> list[str]:
    """Names of all plots.

    Examples
    --------
    >>> "coverage" in available()
    True
    """
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def draw(name: str, ds: xr.Dataset) -> "Figure":
    """Draw the plot `name` of some results."""
    if name not in available():
        raise StudyError(f"no plot named {name!r}; there are: {', '.join(available())}")
    made: Figure = importlib.import_module(f"{__name__}.{name}").draw(ds)
    return made
