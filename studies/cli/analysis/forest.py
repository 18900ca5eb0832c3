"""The forest plot of ``cje-lab analyze``: `forest` with the audit's verdict under each policy's name."""

import math
import warnings
from typing import TYPE_CHECKING

from cje_core import estimators
from cje_core.figures.forest import GAP, LINE_HEIGHT, forest
from cje_core.figures.style import STYLE, folded
from cje_core.verdict.gates import ope_ok
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import SHIFT, VALUE
from cje_core.workflow.standing import shown_estimates
from studies.cli.analysis.numbers import cell, plain
from studies.cli.analysis.panels import image

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render(analysis: Analysis) -> dict[str, bytes]:
    """Files by name; the same analysis gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = _lines(analysis)
    lines = max(folded(policy).count("\n") for policy in analysis.policies)  # a folded name needs their room
    height = 1.3 + LINE_HEIGHT * max(len(names) + GAP, 1.6 + lines) * len(analysis.policies)
    with mpl.rc_context({**STYLE, "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a policy's name may be in any script
        figure = Figure(figsize=(8.0, height), dpi=200)
        FigureCanvasAgg(figure)
        _draw(analysis, names, figure)
        return {f"forest.{kind}": image(figure, kind) for kind in ("png", "svg")}


def _lines(analysis: Analysis) -> list[str]:
    """Estimators from top to bottom: the primary one, its correction, each with its posterior, the rest."""
    first = (analysis.primary, VALUE, analysis.corrector, SHIFT)
    return list(dict.fromkeys(name for name in (*first, *analysis.estimates) if name in analysis.estimates))


def _draw(analysis: Analysis, names: list[str], figure: "Figure") -> None:
    axes = figure.add_subplot()
    axes.set_xlim(*analysis.data.attrs["oracle_range"])  # stands only where there is nothing to draw
    axes.set_autoscalex_on(True)
    shown, primary = shown_estimates(analysis), analysis.primary
    probed = [policy for policy in analysis.policies if analysis.source(policy) == "probes"]
    forest(
        {name: shown[name] for name in names},
        labels={name: estimators.role(name).label for name in names},
        colours=estimators.roles(),  # the same in every analysis
        hollow=_blocked(analysis)
        | {  # not the number to use
            (name, policy): "borrowed"
            for policy in probed
            if not analysis.status(primary, policy).failed
            for name in (primary, VALUE)  # they stand or fall together
        },
        bold={policy: name for policy in analysis.policies if (name := analysis.standing(policy))},
        beneath={policy: _verdict(analysis, policy) for policy in analysis.policies},
        text=lambda name, policy: cell(analysis, name, policy, interval=True),
        ax=axes,
    )
    prob = 100 * float(analysis.estimates[primary].attrs["ci_prob"])
    margin = plain(analysis, float(analysis.transport.attrs["margin"]))
    axes.set_title(f"Estimates with {prob:g}% intervals; transport audit with margin {margin}", loc="left")


def _blocked(analysis: Analysis) -> dict[tuple[str, str], str]:
    """Off-policy estimates that the gates block, and those whose gates cannot be judged."""
    if analysis.overlap is None:
        return {}
    state, words = ope_ok(analysis.gates)["state"], {"blocked": "blocked", "unknown": "not established"}
    return {
        (name, policy): words[said]
        for policy in analysis.policies
        if (said := str(state.sel(policy=policy).item())) in words
        for name in analysis.off_policy
    }


def _verdict(analysis: Analysis, policy: str) -> str:
    """Verdict of the audit with its residual, as it stands under the policy's name."""
    verdict = analysis.verdict(policy)
    shown = verdict if verdict == "FAIL" else verdict.lower().replace("_", " ")
    residual = float(analysis.transport["residual"].sel(policy=policy))
    size = "" if math.isnan(residual) else f" ({plain(analysis, residual, sign=True)})"
    return f"transport {shown}{size}"
