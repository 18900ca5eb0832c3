"""What plots of any results share: the parts of a dataset that they need, said in one line where it lacks them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from studies.engine.measures import estimand_kind, performance
from studies.engine.outcome import NOT_RUN
from studies.engine.study import StudyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STANDARD = ("estimate", "std_error", "interval", "truth", "status", "seconds")
FloatArray = npt.NDArray[np.float64]


def need(plot: str, ds: xr.Dataset, *names: str) -> None:
    """Raise one line that names what `ds` lacks: variables, and that they have numbers."""
    for name in ("estimate", "truth", "status", *names):
        if name not in ds:
            raise StudyError(
                f"plot {plot}: these results have no {name!r}; they have: {', '.join(map(str, ds))}"
            )
    words = {"interval": "no method of these results gives an interval", "std_error": "no standard error"}
    for name in names:
        if not bool(np.isfinite(ds[name]).any()):
            raise StudyError(f"plot {plot}: {words.get(name, f'{name!r} has no number')}")


def factors(ds: xr.Dataset) -> list[str]:
    """The factors of a study, in its order."""
    return [str(d) for d in ds["estimate"].dims if d not in ("replicate", "method", "policy")]


def replicates(ds: xr.Dataset, name: str) -> FloatArray:
    """Return a variable as an array (setting, replicate, method, policy), NaN where the replicate was not run.

    A setting is a combination of the factors' levels; a cell is a setting and a policy.
    """
    axes = [*factors(ds), "replicate", "method", "policy"]
    ran = ds["status"].transpose(*axes).values != NOT_RUN
    whole = ds[name].broadcast_like(ds["estimate"])
    shown = [d for d in (*axes, "ci_bound") if d in whole.dims]
    values = np.asarray(whole.transpose(*shown).values, float)
    values = np.where(ran if values.ndim == ran.ndim else ran[..., None], values, np.nan)
    return values.reshape(-1, *values.shape[len(axes) - 3 :])


def axes_of(ds: xr.Dataset) -> list[str]:
    """Return what tells cells apart: the factors, then the policy."""
    return [*factors(ds), "policy"]


def cell_names(ds: xr.Dataset) -> list[str]:
    """Return a name for each cell, of the factors and policies of which there are several, the policy fastest."""
    axes = axes_of(ds)
    index = pd.MultiIndex.from_product([ds[f].values.tolist() for f in axes])
    several = [k for k, f in enumerate(axes) if ds.sizes[f] > 1]
    return [", ".join(str(levels[k]) for k in several) or "the only cell" for levels in index]


def cells_are(ds: xr.Dataset) -> str:
    """Return what the names of cells are made of."""
    return ", ".join(f for f in axes_of(ds) if ds.sizes[f] > 1)


def measured(ds: xr.Dataset, names: Sequence[str]) -> pd.DataFrame:
    """Return rows (cell, method, measure) with value, MCSE and Monte Carlo bounds, of the cells that ran.

    A cell is a combination of the factors' levels and one policy: nothing is averaged, so that a plot shows the numbers
    of the table of cells. A measure that a cell does not have (coverage without an interval) is NaN.
    """
    found = performance(ds, measures=list(names))
    own = axes_of(ds)
    flat = found.stack(cell=own)
    policies = flat["policy"].values.astype(str)
    flat = flat.drop_vars(["cell", *own], errors="ignore").assign_coords(cell=np.arange(flat.sizes["cell"]))
    frame = xr.Dataset(
        {
            "value": flat["value"],
            "mcse": flat["mcse"],
            "lower": flat["bound"].sel(ci_bound="lower", drop=True),
            "upper": flat["bound"].sel(ci_bound="upper", drop=True),
            "replicates": flat["replicates"],
        }
    ).to_dataframe(dim_order=["measure", "method", "cell"])
    run: pd.DataFrame = frame[frame["replicates"] > 0].reset_index()
    return run.assign(kind=[estimand_kind(policies[cell]) for cell in run["cell"]])


def whole_figure(ax: "Axes") -> "Figure":
    """The figure that axes made by `cje_core.figures.style.new_panels` are in."""
    return cast("Figure", ax.get_figure(root=True))
