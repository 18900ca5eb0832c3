"""Panels that several studies draw: marks of methods side by side, one column per world; legends; scales."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from cje_core.checks import FloatArray
from cje_core.figures.style import GREY
from studies.engine.measures import performance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = Mapping[
    str, Mapping[str, Any]
]  # of each method, in the order of the legend: keywords of `Axes.errorbar`
Row = tuple[str, str, str]  # estimand, measure, what the axis says


def _stretch(coverage: FloatArray) -> FloatArray:
    """Axis scale: coverage spans 0 (raw judge) to 1, and the differences that matter lie near 0.95."""
    return np.asarray(np.sign(coverage) * np.abs(coverage) ** 2.5)


def _unstretch(height: FloatArray) -> FloatArray:
    return np.asarray(np.sign(height) * np.abs(height) ** 0.4)


STRETCH = (_stretch, _unstretch)  # for `Axes.set_yscale("function", functions=...)`


def marks(ax: "Axes", measured: xr.Dataset, name: str, along: str, looks: Looks, step: float) -> None:
    """One measure of the methods that answer, side by side at each level of `along`, with Monte Carlo bounds.

    Levels at which a method printed no interval have no mark of its coverage; the share refused shows them.
    """
    measured = measured.squeeze("policy", drop=True)
    there = [m for m in looks if m in measured["method"].values]
    there = [m for m in there if (measured["replicates"].sel({"method": m}) > 0).any()]
    for k, method in enumerate(there):
        one = measured.sel({"method": method})  # as a keyword, `method` is an option of sel
        value = one["value"].sel(measure=name).values
        answers = np.isfinite(value) & (one["replicates"].values > 0)
        if not answers.any():
            continue
        at = np.arange(len(answers))[answers] + step * (k - (len(there) - 1) / 2)
        bound = one["bound"].sel(measure=name).transpose("ci_bound", along).values[:, answers]
        error = np.abs(bound - value[answers])
        ax.errorbar(at, value[answers], error, **looks[method], ls="none", ms=4, lw=1, label=method)


def by_world(
    worlds: Sequence[tuple[str, Mapping[str, xr.Dataset], Sequence[str]]],
    rows: Sequence[Row],
    looks: Looks,
    *,
    along: str,
    step: float,
    size: tuple[float, float],
) -> tuple["Figure", Any]:
    """One column per world, one row per measure, averages over the policies of a part; coverage with its nominal level.

    Parameters
    ----------
    worlds : sequence of (title, results by estimand, tick labels)
        Results over `along`, replicates, methods and policies.
    rows : sequence of (estimand, measure, what the axis says)
    looks : mapping of method to keywords of ``Axes.errorbar``
    along : str
        The factor on the x axis.
    step : float
        Distance of two methods' marks.
    size : pair of float
        Inches.

    Returns
    -------
    figure, array of axes
    """
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(len(rows), len(worlds), figsize=size, sharex="col", sharey="row", squeeze=False)
    for column, (title, parts, ticks) in zip(axes.T, worlds, strict=True):
        for ax, (estimand, name, _) in zip(column, rows, strict=True):
            marks(
                ax,
                performance(parts[estimand], measures=[name], pool=True),
                name,
                along,
                looks,
                step,
            )
            if name.startswith("coverage"):
                ax.axhline(parts[estimand].attrs["ci_prob"], color=GREY, ls="--", lw=1, zorder=0)
        column[0].set(title=title)
        column[-1].set(xlim=(-0.5, len(ticks) - 0.5))
        column[-1].set_xticks(np.arange(len(ticks)), ticks)
    for first, (_, name, words) in zip(axes[:, 0], rows, strict=True):
        first.set(ylabel=words)
        if name == "refused":
            first.set(ylim=(-0.04, 1.04))
        elif name == "width":
            plain_log(first)
    legend(fig, list(looks))
    return fig, axes


def plain_log(ax: "Axes") -> None:
    """Logarithmic y axis of what is drawn already; its ticks are plain numbers."""
    from matplotlib import ticker

    ax.set(yscale="log")
    low, high = ax.get_ylim()
    few = high < 5 * low  # decades would leave one tick, or none
    ax.yaxis.set_major_locator(ticker.MaxNLocator(5) if few else ticker.LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())


def legend(
    fig: "Figure", order: Iterable[str] = (), *, panels: "Iterable[Axes] | None" = None, **look: Any
) -> None:
    """One legend of all that `panels` show (all of the figure's by default), those named in `order` first.

    It has as many columns as the figure is wide. `look` is for `matplotlib.figure.Figure.legend`; its ``ncols`` is the
    most that are tried.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    pairs = (pair for ax in panels or fig.axes for pair in zip(*ax.get_legend_handles_labels(), strict=True))
    handles = {name: handle for handle, name in pairs}
    shown = [name for name in dict.fromkeys((*order, *handles)) if name in handles]
    look = {"loc": "outside upper center", "ncols": 4, "frameon": False, **look}
    renderer = FigureCanvasAgg(fig).get_renderer()  # type: ignore[no-untyped-call]
    for ncols in range(max(min(len(shown), look["ncols"]), 1), 0, -1):
        made = fig.legend([handles[name] for name in shown], shown, **(look | {"ncols": ncols}))
        if ncols == 1 or made.get_window_extent(renderer).width <= fig.bbox.width:
            return
        made.remove()
