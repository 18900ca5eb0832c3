"""Who beats whom: the pairwise win matrix with marks for differences that survive multiplicity."""

import numpy as np
import xarray as xr

from cje_core.figures.style import Axes, figure_of, new_axes, plain_words


def win_matrix(wins: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Differences "row minus column", shaded by size; bold with a star where the adjusted p-value is below q.

    Draws a result of `cje_core.inference.contrasts.win_matrix`.
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
        text, weight, colour = "·" if i == j else "no number", "normal", "black"
        if np.isfinite(difference[i, j]):
            text = f"{difference[i, j]:+.3f}" + ("*" if significant[i, j] else "")
            weight = "bold" if significant[i, j] else "normal"
            colour = "white" if abs(difference[i, j]) > 0.7 * size else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=8, fontweight=weight, color=colour)
    axes.set_xticks(range(count), policies, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(count), policies)
    plain_words((*axes.get_xticklabels(), *axes.get_yticklabels()))
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    q, adjustment = wins.attrs["q"], str(wins.attrs["adjustment"])
    axes.set_title(f"V(row) - V(column); * adjusted p < {q:g} ({adjustment})", loc="left")
    figure_of(axes).colorbar(image, ax=axes, label="difference, oracle scale", shrink=0.8)
    return axes
