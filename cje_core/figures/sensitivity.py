"""Borrowed levels and differences against the bound on their transport residual, with tipping points."""

import numpy as np
import xarray as xr

from cje_core.figures.style import (
    FOLD,
    GREY,
    MARKERS,
    OKABE_ITO,
    Axes,
    folded,
    grid_behind,
    new_axes,
    plain_words,
)

DASHES = ("-", "--", "-.", ":")
MOST = 6  # curves on one panel; more cannot be told apart


def sensitivity_levels(levels: xr.Dataset, *, margin: float | None = None, ax: Axes | None = None) -> Axes:
    """Interval of each level as the absolute transport residual may grow; own labels make a flat band.

    Draws a result of `cje_core.transport.sensitivity.levels`, delta rising, its first six policies; the declared margin
    is a grey vertical line.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=300, oracle_fraction=0.5, label_design="base", rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.transport import sensitivity
    >>> sensitivity_levels(sensitivity.levels(estimate, [0, 0.05, 0.1]), ax=Figure().subplots()).get_ylabel()
    'policy value V = E[Y], oracle scale'
    """
    axes = new_axes(ax, 7.6, 3.8)
    kind = {True: "borrowed", False: "labels of its own"}
    borrowed = levels["borrowed"].to_series()
    names = [f"{folded(str(policy))} ({kind[lent]})" for policy, lent in borrowed.items()]
    interval = levels["interval"].transpose("policy", "delta", "ci_bound")
    _bands(axes, interval, levels["estimate"].values, names)
    axes.set_ylabel("policy value V = E[Y], oracle scale")
    return _finish(axes, levels, margin)


def sensitivity_differences(
    differences: xr.Dataset, tipping: xr.Dataset, *, margin: float | None = None, ax: Axes | None = None
) -> Axes:
    """Interval of each difference as the absolute transport residual may grow; a mark where a decided sign flips.

    Draws results of `cje_core.transport.sensitivity.differences` and `tipping_points` over the same pairs, the first
    six (choose with ``.isel(pair=...)``); the margin is as in `sensitivity_levels`.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=300, oracle_fraction=0.5, label_design="base", rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.transport import sensitivity
    >>> curves = sensitivity.differences(estimate, [0, 0.05, 0.1])
    >>> sensitivity_differences(curves, sensitivity.tipping_points(estimate), ax=Figure().subplots()).get_ylabel()
    'difference of values, oracle scale'
    """
    axes = new_axes(ax, 7.6, 3.8)
    names = []
    for row in range(differences.sizes["pair"]):
        first, second = (folded(str(differences[name].values[row])) for name in ("first", "second"))
        both = f"{first} -\n{second}" if len(first) + len(second) > FOLD else f"{first} - {second}"
        names.append(f"{both}: {_words(float(tipping['tipping'].values[row]))}")
    interval = differences["interval"].transpose("pair", "delta", "ci_bound")
    _bands(axes, interval, differences["difference"].values, names)
    axes.axhline(0.0, color="black", lw=1, zorder=1)
    end = float(differences["delta"].values.max())
    for row, delta in enumerate(tipping["tipping"].values[:MOST]):
        if 0 < delta <= end:
            shape, colour = MARKERS[row], OKABE_ITO[row % len(OKABE_ITO)]
            axes.plot(delta, 0.0, shape, mfc="white", mec=colour, mew=1.6, ms=7, zorder=5, clip_on=False)
    axes.set_ylabel("difference of values, oracle scale")
    return _finish(axes, differences, margin)


def _words(tipping: float) -> str:
    if np.isnan(tipping):
        return "no interval"
    if np.isinf(tipping):
        return "no residual flips it"
    return "undecided" if tipping == 0 else f"flips at {tipping:.3g}"


def _bands(axes: Axes, interval: xr.DataArray, value: np.ndarray, names: list[str]) -> None:
    """Shaded intervals (row, delta, ci_bound) between lines; the dash tells them apart without colour."""
    delta = interval["delta"].values.astype(float)
    for row, name in enumerate(names[:MOST]):
        low, high = interval.values[row].T
        colour, dash = OKABE_ITO[row % len(OKABE_ITO)], DASHES[row % len(DASHES)]
        axes.fill_between(delta, low, high, color=colour, alpha=0.10, lw=0, zorder=2)
        axes.plot(delta, low, color=colour, ls=dash, lw=1.6, label=name, zorder=3)
        axes.plot(delta, high, color=colour, ls=dash, lw=1.6, zorder=3)
        axes.plot(delta[0], value[row], MARKERS[row], color=colour, ms=4, zorder=4, clip_on=False)


def _finish(axes: Axes, curves: xr.Dataset, margin: float | None) -> Axes:
    delta = curves["delta"].values
    if margin is not None:
        axes.axvline(margin, color=GREY, lw=1, ls=":", zorder=1)
        axes.annotate(
            f"margin {margin:g}", (margin, 1), xycoords=("data", "axes fraction"), fontsize=8, color=GREY,
            xytext=(3, -2), textcoords="offset points", va="top",
        )  # fmt: skip
    axes.set_xlim(float(delta.min()), float(delta.max()))
    prob = 100 * float(curves.attrs["ci_prob"])
    axes.set_xlabel(
        f"δ, bound on the transport residual |E[Y - f(S)]|\n(lines: {prob:g}% bias-aware intervals)"
    )
    grid_behind(axes, "y")
    legend = axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    plain_words(legend.get_texts())
    return axes
