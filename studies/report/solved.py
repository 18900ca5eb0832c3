"""The answer of a search for a level: one sentence, and the levels that were looked at as a figure."""

from typing import IO

import numpy as np

from cje_core.figures.style import GREY, OKABE_ITO, new_axes, to_files
from studies.engine.running.solve import Answer

SIDES = {-1: ("v", "below the target"), 0: ("o", "open"), 1: ("^", "above the target")}  # mark and name


def sentence(answer: Answer) -> str:
    """Return what was found, with the probability with which it holds.

    Examples
    --------
    >>> from studies.engine.running.solve import Question
    >>> sentence(Answer(Question("n", "direct", "base", "coverage", 0.93), 180, 210, 190.2, 0.95, True, ()))
    'coverage of direct for base reaches 0.93 at n above 180 and at most 210 (probability 95%), about 190'
    """
    q = answer.question
    falls = "reaches" if answer.rising else "falls to"
    return (
        f"{q.measure} of {q.method} for {q.estimand} {falls} {q.target:g} at {q.factor} above {answer.low:.4g} "
        f"and at most {answer.high:.4g} (probability {answer.prob:.0%}), about {answer.about:.3g}"
    )


def draw(answer: Answer, handle: IO[bytes]) -> None:
    """Write the levels that were looked at, with their intervals, the target and the bracket, as PNG."""
    q = answer.question
    with to_files():
        axes = new_axes(None, 6.2, 3.8)
    last = {look.level: look for look in answer.looks}
    for side, (marker, label) in SIDES.items():
        chosen = [look for look in last.values() if look.side == side]
        if chosen:
            reach = [[look.value - look.lower, look.upper - look.value] for look in chosen]
            axes.errorbar(
                [look.level for look in chosen],
                [look.value for look in chosen],
                np.transpose(reach),
                fmt=marker,
                capsize=3,
                color=OKABE_ITO[side],
                label=label,
            )
    axes.axhline(q.target, ls="--", color=GREY, lw=1)
    axes.annotate(f"target {q.target:g}", (0.01, q.target), xycoords=("axes fraction", "data"), va="bottom")
    axes.axvspan(answer.low, answer.high, color="0.88", zorder=0, label="where it is reached")
    axes.set_xscale("log")
    axes.set(xlabel=q.factor, ylabel=f"{q.measure} of {q.method}, {q.estimand}")
    axes.legend(frameon=False, fontsize=8)
    figure = axes.figure.figure
    figure.savefig(handle, format="png", dpi=160)
