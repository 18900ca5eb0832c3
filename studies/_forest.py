"""The forest plot of ``cje-lab analyze``: every policy, every estimator, nothing dropped.

Per policy one line for each estimator: marker and interval, in a colour and shape that readers with
colour-vision deficiency can tell apart, and the numbers beside the panel. A refused level is hollow and grey; a
failure stands as its named status where its numbers would be; the audit's verdict stands under the policy's name.
"""

import io
import math
import warnings
from typing import TYPE_CHECKING

from studies._analyze import CORRECTED, LABELS, Analysis
from studies._plot import STYLE, looks
from studies._summary import cell, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREY = "#6E6E6E"
BAND = "#F4F4F4"
LINE_HEIGHT = 0.21  # inches per estimator
GAP = 0.9  # between policies, in lines
ORDER = ("direct", CORRECTED, "labels_only", "raw_judge")  # these keep their colours in every analysis


def render(analysis: Analysis) -> dict[str, bytes]:
    """Draw the plot and return it as ``png`` and ``svg`` files; the same analysis gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = _lines(analysis)
    height = 1.3 + LINE_HEIGHT * (len(names) + GAP) * len(analysis.policies)
    with mpl.rc_context({**STYLE, "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a policy's name may be in any script
        figure = Figure(figsize=(8.0, height), dpi=200)
        FigureCanvasAgg(figure)
        _draw(analysis, names, figure)
        files = {}
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, metadata=metadata)
            files[kind] = stream.getvalue()
    return files


def _lines(analysis: Analysis) -> list[str]:
    """Estimators from top to bottom: the primary one, its correction, the rest."""
    first = [name for name in (analysis.primary, *ORDER) if name in analysis.estimates]
    return list(dict.fromkeys([*first, *analysis.estimates]))


def _draw(analysis: Analysis, names: list[str], figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    look = looks([*ORDER, *(name for name in names if name not in ORDER)])
    axes = figure.add_subplot()
    step = len(names) + GAP
    numbers = []
    for row, policy in enumerate(analysis.policies):
        refused = analysis.verdict(policy) == "FAIL"
        if row % 2 == 0:
            axes.axhspan(
                row * step - 0.5 - GAP / 2, (row + 1) * step - 0.5 - GAP / 2, color=BAND, lw=0, zorder=0
            )
        for k, name in enumerate(names):
            y = row * step + k
            hollow = refused and name == analysis.primary
            at = analysis.estimates[name].sel(policy=policy)
            value, (low, high) = float(at["estimate"]), map(float, at["interval"].values)
            numbers.append((y, _beside(analysis, name, policy, hollow), refused and name == CORRECTED))
            color = GREY if hollow else look[name]["color"]
            if math.isfinite(low) and math.isfinite(high):
                axes.plot([low, high], [y, y], color=color, lw=1.6, solid_capstyle="butt", zorder=2)
            if math.isfinite(value):
                face = "white" if hollow else color
                axes.plot(value, y, look[name]["marker"], mfc=face, mec=color, mew=1.2, ms=4, zorder=3)

    axes.set_ylim(len(analysis.policies) * step - 0.5 - GAP / 2, -0.5 - GAP / 2)
    if not axes.lines:
        axes.set_xlim(*analysis.data.attrs["oracle_range"])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#DDDDDD", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("policy value V = E[Y], oracle scale")
    middle = (len(names) - 1) / 2
    centers = [row * step + middle for row in range(len(analysis.policies))]
    axes.set_yticks([y - 0.35 for y in centers], analysis.policies, fontweight="bold")
    axes.set_yticks(
        [y + 0.65 for y in centers], [_verdict(analysis, p) for p in analysis.policies], minor=True
    )
    axes.tick_params(axis="y", which="both", length=0)
    axes.tick_params(axis="y", which="minor", labelsize=7, labelcolor=GREY)

    right = axes.secondary_yaxis("right")
    right.set_yticks([y for y, _, _ in numbers], [text for _, text, _ in numbers])
    right.tick_params(length=0, labelsize=7)
    right.spines["right"].set_visible(False)
    for label, (_, _, strong) in zip(right.get_yticklabels(), numbers, strict=True):
        label.set_fontweight("bold" if strong else "normal")
    for label in (*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)):
        label.set_parse_math(False)

    handles = [
        Line2D([], [], color=look[n]["color"], marker=look[n]["marker"], ms=5, lw=1.6, label=LABELS.get(n, n))
        for n in names
    ]
    if any(analysis.verdict(policy) == "FAIL" for policy in analysis.policies):
        shape = look[analysis.primary]["marker"]
        handles.append(
            Line2D([], [], color=GREY, marker=shape, mfc="white", ms=5, lw=1.6, label="level refused")
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    prob = 100 * float(analysis.estimates[analysis.primary].attrs["ci_prob"])
    margin = plain(analysis, float(analysis.transport.attrs["margin"]))
    axes.set_title(f"Estimates with {prob:g}% intervals; transport audit with margin {margin}", loc="left")


def _beside(analysis: Analysis, name: str, policy: str, hollow: bool) -> str:
    """Return the text beside one line: the numbers, or whose failure it is, and what must be known of them."""
    status = analysis.status(name, policy)
    text = cell(analysis, name, policy, interval=True)
    if status.failed:
        return f"{LABELS.get(name, name)}: {text}"
    if hollow:
        return f"{text}  level refused"
    return f"{text}  {status.name.lower()}" if status else text


def _verdict(analysis: Analysis, policy: str) -> str:
    """Verdict of the audit with its residual, as it stands under the policy's name."""
    verdict = analysis.verdict(policy).lower().replace("_", " ")
    residual = float(analysis.transport["residual"].sel(policy=policy))
    shown = verdict.upper() if verdict == "fail" else verdict
    return f"transport {shown}" + (
        "" if math.isnan(residual) else f" ({plain(analysis, residual, sign=True)})"
    )
