"""Audits that look inside: residuals over the judge's scale, over time, label by label, and what they can find."""

from typing import Any

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes, new_panels

SHADE: dict[str, Any] = {"color": OKABE_ITO[2], "alpha": 0.13, "lw": 0, "zorder": 1}
LINES = ("-", "--", ":", "-.")


def residual_bins(binned: xr.Dataset, *, axes: Any = None) -> Any:
    """Mean residual in each bin of the judge's scale with its interval, one panel per policy that has probes.

    Draws a result of `cje_core.transport.local_audits.binned_audit`; the joint p-value stands in the title.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> from matplotlib import pyplot as plt
    >>> from cje_core.transport.local_audits import binned_audit
    >>> panels = residual_bins(binned_audit(data, n_bins=4))
    >>> plt.close("all")
    """
    shown = [str(p) for p in binned["policy"].values if bool(binned["n_bins"].sel(policy=p) > 0)]
    if axes is None:
        axes = new_panels(1, max(len(shown), 1), (3.6 * max(len(shown), 1), 3.0), squeeze=False, sharey=True)
    panels = np.ravel(axes)
    for panel, policy in zip(panels, shown, strict=False):
        at = binned.sel(policy=policy)
        middle = ((at["score_low"] + at["score_high"]) / 2).values
        half = ((at["score_high"] - at["score_low"]) / 2).values
        value, (low, high) = at["residual"].values, at["interval"].values.T
        panel.axhline(0.0, color=GREY, lw=0.8)
        bounds = np.abs(np.stack([low, high]) - value)
        panel.errorbar(middle, value, bounds, half, fmt="o", ms=4, color=OKABE_ITO[0], lw=1.2)
        panel.set_title(f"{policy}: joint p = {float(at['p_value']):.3f}", loc="left", parse_math=False)
        panel.set_xlabel("judge score (bin)")
    if len(panels):
        panels[0].set_ylabel(f"residual Y - f(Z), {100 * float(binned.attrs['ci_prob']):g}% interval")
    return axes


def control_charts(charts: xr.Dataset, *, axes: Any = None) -> Any:
    """Both charts of each stream over its batches, each with the limit that it passes by chance as stated.

    Draws a result of `cje_core.transport.monitor.batch_audit`; a batch beyond the limit is marked.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> from matplotlib import pyplot as plt
    >>> from cje_core.transport.audit import residuals
    >>> from cje_core.transport.monitor import batch_audit
    >>> batch = np.arange(residuals(data).sizes["row"]) % 6
    >>> panels = control_charts(batch_audit(data, batch, rng=1))
    >>> plt.close("all")
    """
    names = [str(name) for name in charts["stream"].values]
    if axes is None:
        size = (3.6 * charts.sizes["chart"], 0.5 + 2.0 * len(names))
        axes = new_panels(len(names), charts.sizes["chart"], size, squeeze=False, sharex=True)
    place = np.arange(charts.sizes["batch"])
    for row, name in enumerate(names):
        for column, chart in enumerate(charts["chart"].values.astype(str)):
            panel, at = axes[row][column], charts.sel(stream=charts["stream"].values[row], chart=chart)
            path, limit = at["path"].values, float(at["joint_limit"])
            panel.plot(place, path, "o-", color=OKABE_ITO[0], ms=3, lw=1.1)
            if np.isfinite(limit):
                panel.axhline(limit, color=GREY, lw=1.0, ls="--")
                over = path > limit
                panel.plot(place[over], path[over], "X", color=OKABE_ITO[1], ms=7)
            panel.set_title(f"{name}: {chart.upper()}", loc="left", parse_math=False)
            top = np.nanmax(np.append(path, limit if np.isfinite(limit) else np.nan), initial=1.0)
            panel.set_ylim(0, 1.12 * top)
    step = max(1, len(place) // 8)
    for panel in axes[-1]:
        panel.set_xticks(
            place[::step],
            [f"{b:g}" if isinstance(b, float) else str(b) for b in charts["batch"].values[::step]],
            rotation=45,
            ha="right",
        )
        panel.set_xlabel("batch (dashed: limit)")
    return axes


def label_sequence(audited: xr.Dataset, *, axes: Any = None) -> Any:
    """Mean residual after each label with the interval that is valid at all of them, and where it decided.

    Draws a result of `cje_core.transport.monitor.label_audit`; the margin is shaded.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> from matplotlib import pyplot as plt
    >>> from cje_core.transport.audit import residuals
    >>> from cje_core.transport.monitor import label_audit
    >>> panels = label_sequence(label_audit(data, np.arange(residuals(data).sizes["row"])))
    >>> plt.close("all")
    """
    names = [str(name) for name in audited["policy"].values]
    if axes is None:
        axes = new_panels(1, len(names), (3.6 * len(names), 3.0), squeeze=False, sharey=True)
    margin = float(audited.attrs["margin"])
    for panel, name in zip(np.ravel(axes), names, strict=True):
        at, label = audited.sel(policy=name), audited["label"].values
        low, high = at["path"].values.T
        panel.axhspan(-margin, margin, **SHADE)
        panel.fill_between(label, low, high, color=OKABE_ITO[5], alpha=0.45, lw=0)
        panel.plot(label, at["mean"].values, color=OKABE_ITO[0], lw=1.2)
        verdict, stop = str(at["verdict"].item()), int(at["stop"])
        if stop:
            panel.axvline(stop, color=OKABE_ITO[1], lw=1.0, ls="--")
        title = f"{name}: {verdict}" + f" at {stop} labels" * (stop > 0)
        panel.set_title(title, loc="left", parse_math=False)
        panel.set_xlabel("probe labels")
        reach = 1.2 * float(
            np.nanmax(np.abs(at["path"].values[min(10, len(label) - 1) :]), initial=2 * margin)
        )
        panel.set_ylim(-reach, reach)
    np.ravel(axes)[0].set_ylabel("mean residual Y - f(Z)")
    return axes


def audit_power(power: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Probability of the right verdict against the number of probes, one line per true residual.

    Draws a result of `cje_core.transport.audit_size.audit_power`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cje_core.transport import audit_size
    >>> power = audit_size.audit_power([20, 50, 100], residual_sd=0.2, true_residual=[0.0, 0.1], margin=0.05)
    >>> audit_power(power, ax=Figure().subplots()).get_xlabel()
    'probes'
    """
    axes = new_axes(ax, 5.2, 3.4)
    margin, n_probes = float(power.attrs["margin"]), power["n_probes"].values
    for k, shift in enumerate(power["true_residual"].values.tolist()):
        right = "PASS" if abs(shift) <= margin else "FAIL"
        line = power["probability"].sel(true_residual=shift, verdict=right).values
        colour = OKABE_ITO[k % len(OKABE_ITO)]
        axes.plot(n_probes, line, LINES[k % len(LINES)], color=colour, label=f"{right} at residual {shift:g}")
    axes.axhline(0.8, color=GREY, lw=0.8)
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="probes", ylabel="probability of the right verdict")
    axes.legend(frameon=False)
    return axes
