"""Look of the figures: one palette, one style, so that a method keeps its colour on a page."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from cje_core import caches

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import FigureBase
else:  # matplotlib is imported on the first call
    Axes = Figure = FigureBase = Any

from cje_core.io.intake.names import brief, shortened

# Okabe and Ito (2008): colours that readers with colour-vision deficiency can tell apart, and markers to match
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#6E6E6E"  # what is refused, unknown or a threshold
FOLD = 30
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
    "text.hinting": "no_hinting",  # letters keep their distances, and are laid out in less time
}


_TO_FILES: ContextVar[bool] = ContextVar("to_files", default=False)


@contextmanager
def to_files() -> Iterator[None]:
    """Inside, new figures belong to no screen, and pyplot, which takes .2 s to import, is left alone."""
    token = _TO_FILES.set(True)
    try:
        yield
    finally:
        _TO_FILES.reset(token)


def new_panels(rows: int, columns: int, figsize: tuple[float, float], **grid: Any) -> Any:
    """Axes of a new figure in the house style, shape (rows, columns) or as ``squeeze`` leaves it; inches."""
    caches.redirect_before("matplotlib")
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        if not _TO_FILES.get():
            from matplotlib import pyplot as plt

            return plt.subplots(rows, columns, figsize=figsize, **grid)[1]
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=figsize)
        FigureCanvasAgg(figure)
        return figure.subplots(rows, columns, **grid)


def settle(figure: Figure) -> None:
    """Lay the figure out for good: a layout that is still open costs a whole drawing at each ``savefig``."""
    import matplotlib as mpl

    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if not axis.label.get_text():
                axis.set_label_coords(
                    0.0, 0.0
                )  # else a place for it is looked for below all tick labels, every time
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        with mpl.rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
            figure.set_layout_engine(None)  # "none" would leave one that does nothing, and the second drawing


def looks(methods: Sequence[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each method, by its place in the study; colours that come again have other markers.

    Examples
    --------
    >>> looks(["raw_judge", "direct"])["direct"]
    {'color': '#D55E00', 'marker': 's'}
    """
    count, colours = len(OKABE_ITO), (*OKABE_ITO[:-1], GREY)  # the eighth, a yellow, is too pale for a mark
    return {
        name: {"color": colours[k % count], "marker": MARKERS[(k + k // count) % count]}
        for k, name in enumerate(methods)
    }


def new_axes(ax: Axes | None, width: float = 6.0, height: float = 3.6) -> Axes:
    """Return `ax`, or the axes of a new figure in the house style (inches)."""
    if ax is not None:
        return ax
    axes: Axes = new_panels(1, 1, (width, height))
    return axes


def policy_panels(
    axes: tuple[Axes, Axes] | None, policies: Sequence[str], height: float, **grid: Any
) -> tuple[Axes, Axes]:
    """Return `axes`, or two panels of a new figure (`height` and .45 inches per policy), with `policy_rows`."""
    if axes is None:
        left, right = new_panels(1, 2, (8.0, height + 0.45 * len(policies)), sharey=True, **grid)
        axes = left, right
    for panel in axes:
        policy_rows(panel, policies)
    return axes


def figure_of(ax: Axes) -> FigureBase:
    """Figure that the axes are in."""
    figure = ax.get_figure()
    assert figure is not None
    return figure


def legend_above(*panels: Axes, ncols: int) -> None:
    """One legend of all panels above them."""
    found = [panel.get_legend_handles_labels() for panel in panels]
    handles = [handle for shown, _ in found for handle in shown]
    names = [name for _, called in found for name in called]
    figure_of(panels[0]).legend(
        handles, names, loc="outside upper center", ncols=ncols, frameon=False, fontsize=8
    )


def folded(name: str) -> str:
    r"""A long name on several lines of at most `FOLD` letters; names of models have no blanks to break at.

    Of a very long one its beginning and end, see `cje_core.io.intake.names.brief`.

    Examples
    --------
    >>> folded("a-model-with-a-name-of-many-parts-2026-11")
    'a-model-with-a-name-of-many-\nparts-2026-11'
    """
    lines, rest = [], shortened(name, brief([name]))
    while len(rest) > FOLD:
        at = max(rest.rfind(mark, FOLD // 2, FOLD) for mark in " -_/.:") + 1 or FOLD
        lines.append(rest[:at])
        rest = rest[at:]
    return "\n".join([*lines, rest])


def plain_words(labels: Iterable[Any]) -> None:
    """Show labels as they are: a policy may be called "$best"."""
    for label in labels:
        label.set_parse_math(False)


def grid_behind(ax: Axes, axis: Literal["x", "y"]) -> None:
    """Light lines across one axis, behind everything."""
    ax.grid(axis=axis, color="#DDDDDD", lw=0.6)
    ax.set_axisbelow(True)


def notes_beside(
    ax: Axes, at: Sequence[float], notes: Sequence[str], size: float, *, bold: Collection[int] = ()
) -> None:
    """Words at the right edge, at some heights; those whose place is in `bold` in bold."""
    edge = ax.get_yaxis_transform()
    for k, (y, note) in enumerate(zip(at, notes, strict=True)):
        ax.annotate(
            note, (1.0, y), xycoords=edge, xytext=(3.5, 0.0), textcoords="offset points", va="center_baseline",
            fontsize=size, fontweight="bold" if k in bold else "normal", parse_math=False, annotation_clip=False,
        )  # fmt: skip


def policy_rows(ax: Axes, policies: Sequence[str]) -> None:
    """One labelled row per policy, the first on top, every other one shaded."""
    for row in range(0, len(policies), 2):
        ax.axhspan(row - 0.5, row + 0.5, color=PALE, lw=0, zorder=0)
    ax.set_ylim(len(policies) - 0.5, -0.5)
    ax.set_yticks(range(len(policies)), [folded(name) for name in policies])
    ax.tick_params(axis="y", length=0)
    plain_words(ax.get_yticklabels())
    ax.spines["left"].set_visible(False)
    grid_behind(ax, "x")
