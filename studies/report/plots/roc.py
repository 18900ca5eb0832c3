"""ROC of every diagnostic as an alarm for what it should foretell: an interval that misses, or no estimate at all.

A diagnostic is a variable that the study stored beside its estimates. Low or high values alarm, whichever separates
better in these data, so an area near 1/2 is no better than chance. The area is the Mann-Whitney share; its Monte Carlo
standard error sums the placements of DeLong et al. (1988) within replicates, which share their data.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import BoolArray
from cje_core.figures.style import GREY, OKABE_ITO, new_panels
from studies.engine.study import StudyError
from studies.report.data import STANDARD, FloatArray, need, replicates, whole_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("-", "--", "-.", ":")


class Area(NamedTuple):
    """Area under the curve, its MCSE, and the rates."""

    area: float
    mcse: float
    false_alarms: FloatArray
    alarms: FloatArray


def curve(score: FloatArray, failed: BoolArray, cluster: npt.NDArray[np.int64]) -> Area:
    """ROC of a score whose high values alarm.

    Parameters
    ----------
    score, failed, cluster : arrays (N,)
        `failed` is true where the alarm should go off; rows of one `cluster` are not independent.

    Examples
    --------
    >>> curve(np.array([1.0, 2, 3, 4]), np.array([False, False, True, True]), np.arange(4)).area
    1.0
    """
    bad, good = score[failed], score[~failed]
    order = np.sort(good)
    below = (np.searchsorted(order, bad, "left") + np.searchsorted(order, bad, "right")) / 2 / good.size
    ranks = np.sort(bad)
    above = 1 - (np.searchsorted(ranks, good, "left") + np.searchsorted(ranks, good, "right")) / 2 / bad.size
    area = float(below.mean())
    share = np.empty(score.size)
    share[failed] = (below - area) / bad.size
    share[~failed] = (above - area) / good.size
    _, place = np.unique(cluster, return_inverse=True)
    mcse = float(np.sqrt((np.bincount(place, share) ** 2).sum()))
    levels = np.r_[np.inf, np.unique(score)[::-1]]
    rates = [
        np.asarray(1 - np.searchsorted(np.sort(part), levels, "left") / part.size) for part in (good, bad)
    ]
    return Area(area, mcse, rates[0], rates[1])


def draw(ds: xr.Dataset) -> "Figure":
    """Panels by method with intervals, a curve for each diagnostic."""
    need("roc", ds, "interval")
    scores = [str(v) for v in ds.data_vars if v not in STANDARD and not str(v).startswith("theory_")]
    scores = [v for v in scores if "replicate" in ds[v].dims]
    if not scores:
        raise StudyError(
            "plot roc: these results have no diagnostic beside the estimates; store one in Outcome.extra"
        )
    shown = _curves(ds, scores)
    if not shown:
        raise StudyError(
            "plot roc: no method of these results both fails and succeeds where a diagnostic varies"
        )
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    panels = new_panels(rows, columns, (3.3 * columns + 0.4, 3.4 * rows + 0.3), squeeze=False)
    for ax, (method, found) in zip(panels.ravel(), shown.items(), strict=False):
        ax.plot([0, 1], [0, 1], color=GREY, ls="--", lw=1)
        for j, (name, (side, one)) in enumerate(found.items()):
            words = f"{name} ({side}): {one.area:.2f} ({one.mcse:.2f})"
            look = {"color": OKABE_ITO[j % 7], "ls": STYLES[(j // 7) % 4]}
            ax.plot(one.false_alarms, one.alarms, lw=1.3, label=words, **look)
        ax.set(xlabel="alarms where the interval covers", ylabel="alarms where it misses")
        ax.set_title(method, fontsize=9)
        ax.legend(fontsize=6.5, frameon=False, loc="lower right", title="area (MCSE)", title_fontsize=6.5)
    for ax in panels.ravel()[len(shown) :]:
        ax.set_axis_off()
    return whole_figure(panels[0, 0])


def _curves(ds: xr.Dataset, scores: list[str]) -> dict[str, dict[str, tuple[str, Area]]]:
    """By method and diagnostic, which values alarm and how well; methods that never fail, or always, are left out."""
    estimate, truth, interval = (replicates(ds, name) for name in ("estimate", "truth", "interval"))
    ran = np.isfinite(replicates(ds, "status"))
    hit = (interval[..., 0] <= truth) & (truth <= interval[..., 1]) & np.isfinite(estimate)
    cells, runs, _, columns = ran.shape
    cluster = np.arange(cells * runs).repeat(columns).reshape(cells, runs, columns)
    values = {name: replicates(ds, name) for name in scores}
    found: dict[str, dict[str, tuple[str, Area]]] = {}
    for k, method in enumerate(ds["method"].values.tolist()):
        if not np.isfinite(interval[:, :, k]).any():
            continue
        for name in scores:
            score = values[name][:, :, k]
            use = ran[:, :, k] & np.isfinite(score)
            failed = ~hit[:, :, k][use]
            if 0 < failed.sum() < failed.size and np.ptp(score[use]) > 0:
                up, down = (curve(sign * score[use], failed, cluster[use]) for sign in (1.0, -1.0))
                found.setdefault(method, {})[name] = ("high", up) if up.area >= down.area else ("low", down)
    return found
