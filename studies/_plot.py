"""Look of the figures: one palette, one style, so that a method keeps its colour on a page."""

from collections.abc import Sequence
from typing import Any

# Okabe and Ito (2008): colours that readers with colour-vision deficiency can tell apart, and markers to match
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
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
    """Colour and marker of each method, by its place in the study.

    Examples
    --------
    >>> looks(["raw_judge", "direct"])["direct"]
    {'color': '#D55E00', 'marker': 's'}
    """
    count = len(OKABE_ITO)
    return {
        name: {"color": OKABE_ITO[k % count], "marker": MARKERS[k % count]} for k, name in enumerate(methods)
    }
