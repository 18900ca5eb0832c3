"""Figures of the calibration posterior: prior curves, fitted curve, and whether its labels look as it says."""

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes


def prior_predictive(curves: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Calibrators drawn from the prior, with their pointwise band, before any label.

    Draws `cje_core.bayes.diagnostics.predictive.curves` of prior draws.

    Examples
    --------
    >>> import numpy as np
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> from matplotlib.figure import Figure
    >>> from cje_core.bayes.diagnostics.predictive import curves, prior_draws
    >>> prior_predictive(curves(levels, prior_draws(levels, rng=1)), ax=Figure().subplots()).get_ylabel()
    'E[Y | S], oracle units'
    """
    axes = new_axes(ax, 4.4, 3.6)
    level = curves["level"].values
    for example in curves["example"].values:
        axes.plot(level, example, color=GREY, lw=0.6, alpha=0.6, zorder=1)
    _band(axes, curves, "prior")
    axes.set_title("calibrators before any label (thin: single draws)", loc="left")
    return axes


def calibration_posterior(curves: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Calibrator with its pointwise band over the judge levels, and the mean label at each, sized by their number.

    Draws `cje_core.bayes.diagnostics.predictive.curves` of posterior draws.

    Examples
    --------
    >>> import numpy as np
    >>> from cje_core.bayes.levels import eighteen_labels
    >>> levels, at, label = eighteen_labels()
    >>> from cje_core.bayes import gibbs
    >>> draws = gibbs.sample(levels, n_draws=200, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.bayes.diagnostics.predictive import curves
    >>> calibration_posterior(curves(levels, draws), ax=Figure().subplots()).get_ylabel()
    'E[Y | S], oracle units'
    """
    axes = new_axes(ax, 4.4, 3.6)
    _band(axes, curves, "posterior")
    n, level = curves["n_labels"].values, curves["level"].values
    seen = n > 0
    size = 12 + 110 * n[seen] / max(n.max(), 1.0)
    axes.scatter(
        level[seen], curves["label_mean"].values[seen], s=size, facecolor="none", edgecolor=OKABE_ITO[1], lw=1.2,
        zorder=3, label="mean label (size: labels)",
    )  # fmt: skip
    bottom = np.full((~seen).sum(), axes.get_ylim()[0])
    axes.plot(level[~seen], bottom, "|", color=GREY, ms=7, label="level without labels", zorder=3)
    axes.legend(frameon=False, loc="best", fontsize=7)
    axes.set_title(f"{n.sum():.0f} labels on {int(seen.sum())} of {len(n)} judge levels", loc="left")
    return axes


def _band(axes: Axes, curves: xr.Dataset, what: str) -> None:
    level = curves["level"].values
    bound = curves["interval"].transpose("level", "ci_bound").values
    axes.fill_between(
        level, bound[:, 0], bound[:, 1], color=OKABE_ITO[0], alpha=0.18, lw=0, zorder=0,
        label=f"{100 * curves.attrs['ci_prob']:g}% {what} band, pointwise",
    )  # fmt: skip
    axes.plot(level, curves["mean"].values, color=OKABE_ITO[0], lw=1.6, zorder=2, label=f"{what} mean")
    axes.set(xlabel="judge level (0 worst, 1 best)", ylabel="E[Y | S], oracle units")


def pit_ecdf(found: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """ECDF of the PIT values less the diagonal, with its simultaneous band.

    Draws a result of `cje_core.bayes.diagnostics.predictive.ecdf`, or one quantity of
    `cje_core.bayes.diagnostics.sbc.verdict` (ranks scaled to [0, 1]).

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> import numpy as np
    >>> from cje_core.bayes.diagnostics.predictive import ecdf
    >>> pit_ecdf(ecdf(np.linspace(0.01, 0.99, 50)), ax=Figure().subplots()).get_xlabel()
    'PIT, or scaled rank'
    """
    axes = new_axes(ax, 4.4, 3.2)
    point, low, high, seen = (found[name].values for name in ("point", "lower", "upper", "ecdf"))
    axes.fill_between(point, low - point, high - point, step="mid", color=GREY, alpha=0.25, lw=0)
    axes.axhline(0.0, color=GREY, lw=0.8, ls="--")
    axes.step(point, seen - point, where="mid", color=OKABE_ITO[0], lw=1.4)
    stays = ((seen >= low) & (seen <= high)).all()
    axes.set(xlabel="PIT, or scaled rank", ylabel="ECDF less uniform", xlim=(0, 1))
    band = f"{'inside' if stays else 'leaves'} the simultaneous {100 * found.attrs['prob']:g}% band"
    axes.set_title(f"n = {found.attrs['n']}: {band}", loc="left")
    return axes
