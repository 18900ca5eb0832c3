"""Who beats whom: the pairwise win matrix with marks for differences that survive multiplicity."""

import numpy as np
import xarray as xr
from scipy import special

from cje_core.figures.style import Axes, figure_of, folded, new_axes, plain_words

MOST = 12  # policies whose differences stand in the cells
FULL = 4.0  # z beyond which the colour no longer grows


def win_matrix(wins: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Differences "row minus column", shaded by z; bold with a star where the adjusted p-value is below q.

    Draws a result of `cje_core.inference.contrasts.win_matrix`. z is the normal quantile of the probability that the
    row is better: the same size is shaded by how sure it is. With ``shown(policy, other)`` in the table a pair for
    which it is false, one with a refused level, is blank and never starred. Beyond `MOST` policies
    only marks are drawn.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.inference import contrasts
    >>> win_matrix(contrasts.win_matrix(estimate), ax=Figure().subplots()).get_title()
    ''
    """
    policies = [str(p) for p in wins["policy"].values]
    count = len(policies)
    many = count > MOST
    across, down = (0.3, 0.3) if many else (0.85, 0.6)
    axes = new_axes(ax, 2.4 + across * count, 1.5 + down * count)
    square = {name: wins[name].transpose("policy", "other").values for name in wins.data_vars}
    difference, significant = square["difference"].astype(float), square["significant"].astype(bool)
    if "shown" in square:
        hidden = ~square["shown"].astype(bool)
        difference[hidden], significant[hidden] = np.nan, False
    np.fill_diagonal(difference, np.nan)
    z = np.clip(special.ndtri(square["probability"].astype(float)), -FULL, FULL)
    z[~np.isfinite(difference)] = np.nan
    image = axes.imshow(z, cmap="PuOr_r", vmin=-FULL, vmax=FULL, aspect="auto")
    for i, j in np.ndindex(count, count):
        text, weight, colour = "·" if i == j else "no number", "normal", "black"
        if np.isfinite(difference[i, j]):
            text = f"{difference[i, j]:+.3f}" + ("*" if significant[i, j] else "")
            weight = "bold" if significant[i, j] else "normal"
            colour = "white" if abs(z[i, j]) > 0.7 * FULL else "black"
        if many:  # no room for numbers
            text = "*" if text.endswith("*") else "" if np.isfinite(difference[i, j]) or i == j else "-"
        if text:
            axes.text(j, i, text, ha="center", va="center", fontsize=8, fontweight=weight, color=colour)
    axes.set_xticks(
        range(count),
        [folded(name) for name in policies],
        rotation=90 if many else 30,
        ha="right",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(count), [folded(name) for name in policies])
    plain_words((*axes.get_xticklabels(), *axes.get_yticklabels()))
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    q, adjustment = wins.attrs["q"], str(wins.attrs["adjustment"])
    axes.set_title(f"V(row) - V(column); * adjusted p < {q:g} ({adjustment})", loc="left")
    figure_of(axes).colorbar(image, ax=axes, label="z, row better", shrink=0.8)
    return axes
