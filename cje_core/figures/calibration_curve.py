"""The calibrator itself: monotone against two-stage, and what each covariate adds."""

from typing import Any

import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes, new_panels

LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "monotone": ("monotone in S", {"color": OKABE_ITO[0], "lw": 2.0}),
    "two_stage": ("two-stage", {"color": OKABE_ITO[1], "lw": 1.8, "ls": "--"}),
    "two_stage_monotone": ("two-stage, monotone in S given X", {"color": OKABE_ITO[2], "lw": 1.4, "ls": ":"}),
}


def calibration_curve(curve: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Calibrated reward against the judge score, with the labels behind it.

    Draws a result of `cje_core.calibration.reliability.calibration_curve`.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.calibration import reliability
    >>> calibration_curve(reliability.calibration_curve(data), ax=Figure().subplots()).get_xlabel()
    'judge score S (covariates at their means)'
    """
    axes = new_axes(ax, 5.0, 3.6)
    labels = curve["label_score"], curve["label_value"]
    axes.plot(*labels, ".", color=GREY, ms=4, alpha=0.35, label="labels", zorder=1)
    for name, (label, look) in LOOKS.items():
        axes.plot(curve["score"], curve[name], label=label, zorder=2, **look)
        if f"{name}_interval" in curve:
            _band(axes, curve["score"], curve[f"{name}_interval"], look["color"], curve.attrs["ci_prob"])
    axes.set(xlabel="judge score S (covariates at their means)", ylabel="oracle label Y, reward R = f(Z)")
    axes.legend(frameon=False, fontsize=8)
    return axes


def calibration_band(band: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """The calibrator in use with its pointwise band, and the labels that taught it.

    Draws a result of `cje_core.calibration.bands.calibration_band`, which says what the band covers: towards the first
    and the last label less than its level.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.calibration import bands
    >>> calibration_band(bands.calibration_band(data), ax=Figure().subplots()).get_xlabel()
    'judge score S'
    """
    axes = new_axes(ax, 5.0, 3.6)
    axes.plot(
        band["label_score"], band["label_value"], ".", color=GREY, ms=4, alpha=0.35, label="labels", zorder=1
    )
    _band(axes, band["score"], band["interval"], OKABE_ITO[0], band.attrs["ci_prob"], ", less at the ends")
    axes.plot(band["score"], band["reward"], color=OKABE_ITO[0], lw=2.0, label="calibrator f", zorder=2)
    axes.set(xlabel="judge score S", ylabel="oracle label Y, reward R = f(S)")
    if band.attrs["mode"] != "monotone":
        axes.set(xlabel="judge score S (covariates at their means)", ylabel="oracle label Y, reward R = f(Z)")
    axes.legend(frameon=False, fontsize=8)
    return axes


def _band(
    axes: Axes, x: xr.DataArray, interval: xr.DataArray, colour: str, ci_prob: float, more: str = ""
) -> None:
    low, high = (interval.sel(ci_bound=end).values for end in ("lower", "upper"))
    words = f"{100 * ci_prob:g}% band, pointwise{more}"
    axes.fill_between(x.values, low, high, color=colour, alpha=0.18, lw=0, zorder=0, label=words)


def covariate_effects(curve: xr.Dataset) -> list[Axes]:
    """Two-stage calibration: the first stage's effect of each covariate, and then the isotonic second stage.

    Draws a result of `cje_core.calibration.reliability.calibration_curve` with covariates.

    Examples
    --------
    >>> import cje_sim
    >>> from matplotlib import pyplot as plt
    >>> from cje_core.calibration import calibrated, reliability
    >>> how = calibrated.Calibration(["length"])
    >>> data = calibrated.calibrated(cje_sim.simulate("length_bias", n=300, rng=1), how)
    >>> len(covariate_effects(reliability.calibration_curve(data)))
    2
    >>> plt.close("all")
    """
    names = [str(name) for name in curve["feature"].values]
    panels = new_panels(1, len(names) + 1, (3.4 * (len(names) + 1), 3.2), squeeze=False)[0]
    for panel, name in zip(panels[:-1], names, strict=True):
        at = curve.sel(feature=name)
        panel.axhline(0.0, color=GREY, lw=0.8)
        _band(
            panel,
            at["covariate_value"],
            at["partial_effect_interval"],
            OKABE_ITO[0],
            curve.attrs["ci_prob"],
        )
        panel.plot(at["covariate_value"], at["partial_effect"], color=OKABE_ITO[0], lw=1.8)
        panel.set_xlabel(name, parse_math=False)
        panel.set_ylabel("effect on the first stage, oracle scale")
    _band(panels[-1], curve["index"], curve["reward_interval"], OKABE_ITO[1], curve.attrs["ci_prob"])
    panels[-1].plot(curve["index"], curve["reward"], color=OKABE_ITO[1], lw=1.8)
    panels[-1].set(xlabel="index of the first stage, oracle scale", ylabel="reward R, second stage")
    return list(panels)
