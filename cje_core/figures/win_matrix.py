"""Who beats whom: the pairwise win matrix with marks for differences that survive multiplicity."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cje_core.figures.style import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def win_matrix(wins: xr.Dataset, *, ax: "Axes | None" = None) -> "Axes":
    """Differences "row minus column", shaded by size; bold with a star where the adjusted p-value is below q.

    Parameters
    ----------
    wins : xr.Dataset
        From `cje_core.inference.contrasts.win_matrix`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    policies = [str(p) for p in wins["policy"].values]
    count = len(policies)
    axes = new_axes(ax, 2.4 + 0.85 * count, 1.5 + 0.6 * count)
    difference = wins["difference"].transpose("policy", "other").values.astype(float)
    significant = wins["significant"].transpose("policy", "other").values.astype(bool)
    np.fill_diagonal(difference, np.nan)
    size = np.nanmax(np.abs(difference)) if np.isfinite(difference).any() else 1.0
    image = axes.imshow(difference, cmap="PuOr_r", vmin=-size, vmax=size, aspect="auto")
    for i, j in np.ndindex(count, count):
        if np.isfinite(difference[i, j]):
            strong = significant[i, j]
            axes.text(
                j,
                i,
                f"{difference[i, j]:+.3f}" + ("*" if strong else ""),
                ha="center",
                va="center",
                fontsize=8,
                fontweight="bold" if strong else "normal",
                color="white" if abs(difference[i, j]) > 0.7 * size else "black",
            )
        else:
            axes.text(j, i, "·" if i == j else "no number", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(count), policies, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(count), policies)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    q, adjustment = wins.attrs["q"], str(wins.attrs["adjustment"])
    axes.set_title(f"V(row) - V(column); * adjusted p < {q:g} ({adjustment})", loc="left")
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, label="difference, oracle scale", shrink=0.8)
    return axes
