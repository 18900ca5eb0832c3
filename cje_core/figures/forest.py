"""The forest plot: every policy, every estimator, nothing dropped."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import xarray as xr

from cje_core.figures.style import (
    GREY,
    PALE,
    Axes,
    figure_of,
    folded,
    grid_behind,
    looks,
    new_axes,
    notes_beside,
    plain_words,
)
from cje_core.inference.estimate import Status

LINE_HEIGHT = 0.21  # inches per estimator
GAP = 0.9  # between policies, in lines
HALF_LINE = 0.36  # of a policy's name, in lines


def forest(
    estimates: Mapping[str, xr.Dataset] | xr.Dataset,
    *,
    labels: Mapping[str, str] | None = None,
    colours: Collection[str] = (),
    hollow: Mapping[tuple[str, str], str] | None = None,
    bold: Mapping[str, str] | None = None,
    beneath: Mapping[str, str] | None = None,
    text: Callable[[str, str], str] | None = None,
    truth: xr.DataArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Estimates with their intervals, one line per policy and estimator, the numbers beside the panel.

    A level that does not stand is hollow and grey; a failure stands as its named status where its numbers would be.

    Parameters
    ----------
    estimates : mapping of estimator name to estimate, or Dataset
        All over the same policies; or what `cje_core.compare` returns, or one estimate.
    labels : mapping, optional
        What to call an estimator; its own name by default.
    colours : collection of str
        Names that take the first colours in this order, so that they keep them in every figure.
    hollow : mapping of (estimator, policy) to str, optional
        Levels that do not stand, and the words that say why.
    bold : mapping of policy to str, optional
        The estimator whose number stands first.
    beneath : mapping of policy to str, optional
        Stands in small print under the policy's name.
    text : callable (estimator, policy) -> str, optional
        The numbers beside a line (default: three decimals).
    truth : DataArray over policy, optional
        True values, drawn as diamonds.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> from matplotlib.figure import Figure
    >>> forest({"direct": estimate}, truth=cje_sim.truth("weak_judge"), ax=Figure().subplots()).get_xlabel()
    'policy value V = E[Y], oracle scale'
    """
    from matplotlib.lines import Line2D

    if isinstance(estimates, xr.Dataset):
        several = estimates if "method" in estimates.dims else estimates.expand_dims("method")
        estimates = {str(name): several.sel({"method": name}) for name in several["method"].values}
    names = list(estimates)
    hollow, bold = hollow or {}, bold or {}
    policies = [str(p) for p in estimates[names[0]]["policy"].values]
    step = len(names) + GAP
    axes = new_axes(ax, 8.0, 1.3 + LINE_HEIGHT * step * len(policies))
    first = list(colours)
    look = looks([*first, *(name for name in names if name not in first)])
    call = {name: (labels or {}).get(name, name) for name in names}
    numbers = []
    for row, policy in enumerate(policies):
        if row % 2 == 0:
            top = row * step - 0.5 - GAP / 2
            axes.axhspan(top, top + step, color=PALE, lw=0, zorder=0)
        for k, name in enumerate(names):
            y = row * step + k
            empty = (name, policy) in hollow
            at = estimates[name].sel(policy=policy)
            status = Status(int(at["status"]))
            value, (low, high) = float(at["estimate"]), map(float, at["interval"].values)
            shown = text(name, policy) if text else _numbers(value, low, high, status)
            if status.failed:
                shown = f"{call[name]}: {shown}"
            elif empty:
                shown += f"  {hollow[name, policy]}"
            plain = status is Status.OK or (empty and status is Status.TRANSPORT_ASSUMED)
            if not (plain or status.failed):
                shown += f"  {status.name.lower()}"
            numbers.append((y, shown, bold.get(policy) == name))
            colour = GREY if empty else look[name]["color"]
            if math.isfinite(low + high):
                axes.plot([low, high], [y, y], color=colour, lw=1.6, solid_capstyle="butt", zorder=2)
            if math.isfinite(value):
                face = "white" if empty else colour
                axes.plot(value, y, look[name]["marker"], mfc=face, mec=colour, mew=1.2, ms=4, zorder=3)
        if truth is not None:
            x = float(truth.sel(policy=policy))
            top, bottom = row * step - 0.4, row * step + len(names) - 0.6
            axes.plot([x, x], [top, bottom], color="black", lw=1, ls=":", zorder=1)
            axes.plot(x, top, "D", color="black", ms=4, zorder=4)

    axes.set_ylim(len(policies) * step - 0.5 - GAP / 2, -0.5 - GAP / 2)
    axes.spines["left"].set_visible(False)
    grid_behind(axes, "x")
    axes.set_xlabel("policy value V = E[Y], oracle scale")
    centers = [row * step + (len(names) - 1) / 2 for row in range(len(policies))]
    folds = [folded(policy) for policy in policies]
    up = [(0.35 + HALF_LINE * label.count("\n")) * bool(beneath) for label in folds]
    axes.set_yticks([y - by for y, by in zip(centers, up, strict=True)], folds, fontweight="bold")
    if beneath:
        axes.set_yticks([y + 0.65 for y in centers], [beneath.get(p, "") for p in policies], minor=True)
    axes.tick_params(axis="y", which="both", length=0)
    axes.tick_params(axis="y", which="minor", labelsize=7, labelcolor=GREY)

    heights, notes, strong = zip(*numbers, strict=True)
    notes_beside(axes, heights, notes, 7, bold=np.flatnonzero(strong))
    plain_words((*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)))

    handles = [
        Line2D([], [], color=look[n]["color"], marker=look[n]["marker"], ms=5, lw=1.6, label=call[n])
        for n in names
    ]
    doubted = [name for name in names if any((name, policy) in hollow for policy in policies)]
    if doubted:
        shape, words = look[doubted[0]]["marker"], " or ".join(sorted(set(hollow.values())))
        handles.append(Line2D([], [], color=GREY, marker=shape, mfc="white", ms=5, lw=1.6, label=words))
    if truth is not None:
        handles.append(Line2D([], [], color="black", marker="D", ms=4, lw=1, ls=":", label="truth"))
    figure_of(axes).legend(
        handles=handles, loc="outside lower center", ncols=_columns(handles), frameon=False, fontsize=8
    )
    return axes


def _columns(handles: list[Any]) -> int:
    """Columns of the legend that find room in a figure of eight inches."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    return int(min(len(handles), 6, max(1, 7.6 // (0.55 + 0.068 * longest))))


def _numbers(value: float, low: float, high: float, status: Status) -> str:
    if status.failed or math.isnan(value):
        return status.name.lower()
    if math.isnan(low) or math.isnan(high):
        return f"{value:.3f}"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
