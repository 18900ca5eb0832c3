"""Look of the figures: one palette, one style, so that a method keeps its colour on a page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): colours that readers with colour-vision deficiency can tell apart, and markers to match
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#6E6E6E"  # what is refused, unknown or a threshold
PALE = "#F4F4F4"  # bands behind rows
STYLE: Any = {
    "svg.hashsalt": "cje-lab",  # the same figure gives the same file
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
}


def looks(methods: Sequence[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each method, by its place in the study; colours that come again have other markers.

    Examples
    --------
    >>> looks(["raw_judge", "direct"])["direct"]
    {'color': '#D55E00', 'marker': 's'}
    """
    count = len(OKABE_ITO)
    return {
        name: {"color": OKABE_ITO[k % count], "marker": MARKERS[(k + k // count) % count]}
        for k, name in enumerate(methods)
    }


def new_axes(ax: "Axes | None", width: float = 6.0, height: float = 3.6) -> "Axes":
    """Return `ax`, or the axes of a new figure in the house style (inches)."""
    if ax is not None:
        return ax
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        return plt.subplots(figsize=(width, height))[1]


def policy_rows(ax: "Axes", policies: Sequence[str]) -> None:
    """One labelled row per policy, the first on top, every other one shaded."""
    for row in range(0, len(policies), 2):
        ax.axhspan(row - 0.5, row + 0.5, color=PALE, lw=0, zorder=0)
    ax.set_ylim(len(policies) - 0.5, -0.5)
    ax.set_yticks(range(len(policies)), list(policies))
    ax.tick_params(axis="y", length=0)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)  # a policy may be called "$best"
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", color="#DDDDDD", lw=0.6)
    ax.set_axisbelow(True)
