"""Bayesian against frequentist intervals on the same data: coverage, width, interval score, misses by side, time.

The estimator is theta_aug of "Causal Judge Evaluation" (Direct) or its Bayesian counterpart, the one-step corrected
posterior, beside plug-ins and the label-free and label-only controls. Worlds are a factor: some where every policy has
labels of its own (among them a link that no monotone calibrator can follow), and three where only the base policy has,
so that the target borrows the calibrator: with transport, without, and without but with 50 probe labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cje_core.figures.style import GREY, looks
from studies._measures import paired_table, performance, summary_table
from studies._streams import Cell, Streams
from studies._study import NOT_RUN, PROFILES, Method, Outcome, Profile, Study, replicate_scenario


class World(NamedTuple):
    """One level of the factor `world`: a scenario, its base and target policies, and what differs from its defaults."""

    title: str
    scenario: str
    policies: tuple[str, str]
    arguments: Mapping[str, Any] = MappingProxyType({})
    borrowed: bool = False  # only the base policy teaches; the target alone is summarised


OWN = ("base", "worse")
SHIFTED = ("base", "lower")
WORLDS = {
    "smooth": World("smooth link", "well_specified", OWN),
    "discrete": World("few judge levels", "discrete_judge", OWN),
    "weak": World("weak judge", "weak_judge", OWN),
    "binary": World("binary oracle", "binary_oracle", OWN),
    "dip": World("link not monotone", "well_specified", OWN, {"link": "dip"}),
    "length": World("judge rewards length", "length_bias", ("base", "verbose")),
    "transport": World("calibration transports", "well_specified", OWN, {}, True),
    "shift": World("target 0.1 lower", "transport_shift", SHIFTED, {}, True),
    "shift_probes": World(
        "target 0.1 lower,\n50 probe labels", "transport_shift", SHIFTED, {"n_probes": 50}, True
    ),
}
REFERENCE = "direct_influence"
MEASURES = ("coverage", "miss_left", "miss_right", "width", "interval_score", "bias", "n_failed")
# The page's colours: those methods in this order; a probe correction is the hollow twin of one of them.
COLOURS = (
    "direct_influence",
    "bayes_one_step",
    "direct_bootstrap",
    "ppi_plus_plus",
    "labels_only",
    "bayes_plug_in",
    "projection",
)
TWINS = {
    "direct_corrected": "direct_influence",
    "bayes_corrected": "bayes_one_step",
    "bayes_flat": "ppi_plus_plus",
}
IN_SHIFT = ("direct_influence", "direct_bootstrap", "bayes_plug_in", *TWINS)
PROBED = tuple(TWINS)
PRIORS = ("bayes_one_step", "bayes_sparse", "bayes_smooth", "bayes_tight_noise", "bayes_wide_noise")
CELL = ["world", "n", "labels"]
OWN_CAPTION = (
    "Every policy has labels of its own. Coverage (above, dashed: nominal 95%) with exact 95% Monte Carlo bounds, mean "
    "width of the intervals (below) with 95% Monte Carlo bounds; averages over the base and a distant policy. The "
    "bounds of coverage take the two policies of a replicate as one trial."
)
SHIFT_CAPTION = (
    "Only the base policy has labels; shown is a target that borrows its calibrator. Coverage (above, dashed: nominal "
    "95%) with exact 95% Monte Carlo bounds and mean width (below). Where the calibration does not transport, no "
    "method without labels of the target is safe, Bayesian or not; probe labels (hollow marks) restore coverage."
)


def applies(method: str, world: World) -> bool:
    """Whether a method has something of its own to say in a world.

    The probe corrections need probes; without labels of the target, its corrected posterior is the plug-in, so of its
    variants only the plug-in stays.
    """
    if method in PROBED:
        return bool(world.arguments.get("n_probes"))
    return not (world.borrowed and method in (*PRIORS, "bayes_hdi"))


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One replicate: the cell's world, with `labels` labelled prompts of n, and the methods that apply on its data."""
    world = WORLDS[str(cell["world"])]
    arguments = {
        "n": cell["n"],
        "oracle_fraction": int(cell["labels"]) / int(cell["n"]),
        "label_design": "base" if world.borrowed else "own",
        **world.arguments,
    }
    chosen = {name: method for name, method in study.methods.items() if applies(name, world)}
    at_world = replace(
        study,
        scenario=world.scenario,
        policies=world.policies,
        methods=chosen,
        profiles={name: Profile(1) for name in PROFILES},
    )
    found = replicate_scenario(at_world, arguments, streams)
    place = [k for k, name in enumerate(study.methods) if name in chosen]

    def spread(values: npt.ArrayLike | None, fill: float) -> npt.NDArray[Any]:
        """Put the chosen methods' values at their places among all methods."""
        part = np.asarray(values)
        full = np.full((len(study.methods), *part.shape[1:]), fill)
        full[place] = part
        return full

    return Outcome(
        spread(found.estimate, np.nan),
        found.truth,
        spread(found.std_error, np.nan),
        spread(found.interval, np.nan),
        spread(found.status, NOT_RUN).astype(int),
        spread(found.seconds, np.nan),
        failures=found.failures,
    )


def _groups(ds: xr.Dataset) -> list[xr.Dataset]:
    """One dataset per world; where the calibrator is borrowed, with the target only."""
    return [
        ds.sel(world=[name], policy=["target"] if WORLDS[str(name)].borrowed else list(ds["policy"].values))
        for name in ds["world"].values
    ]


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage side by side, differences to the reference on the same data, the prior's part, times, every measure."""
    measures = pd.concat([summary_table(part, MEASURES) for part in _groups(ds)], ignore_index=True)
    silent = measures["bias"].isna()  # labels_only where the target has no label: no coverage, rather than 0
    measures.loc[silent, [f"{m}{end}" for m in MEASURES[:3] for end in ("", "_mcse")]] = np.nan
    methods = [str(m) for m in ds["method"].values]
    pairs = pd.concat(
        [
            paired_table(part, REFERENCE, ("coverage", "interval_score"), ratios=("width",))
            for part in _groups(ds)
        ],
        ignore_index=True,
    )
    pairs = pairs[pairs["coverage"].notna()].reset_index(drop=True)
    columns = [c for name in ("coverage", "width_ratio", "interval_score") for c in (name, f"{name}_mcse")]
    priors = pd.concat(
        [
            paired_table(part, PRIORS[0], ("bias", "coverage"), ratios=("width",))
            for part in _groups(ds.sel({"method": [m for m in methods if m in PRIORS]}))
        ],
        ignore_index=True,
    )
    return {
        "Coverage of 95% intervals": _side_by_side(measures, "coverage", methods),
        "Mean width of 95% intervals": _side_by_side(measures, "width", methods),
        f"Differences to {REFERENCE} on the same data (width: ratio)": pairs[[*CELL, "method", *columns]],
        f"Other priors against {PRIORS[0]} on the same data: differences, and the ratio of widths": priors,
        "Milliseconds per fit": _times(ds),
        "All measures": measures.drop(columns="n_failed_mcse"),
    }


def _side_by_side(measures: pd.DataFrame, name: str, methods: Sequence[str]) -> pd.DataFrame:
    """One row per cell, one pair of columns per method."""
    wide = measures.pivot(index=CELL, columns="method", values=[name, f"{name}_mcse"])
    wide = wide.reindex(pd.MultiIndex.from_frame(measures[CELL].drop_duplicates()))
    return pd.DataFrame(
        {f"{m}{end}": wide[f"{name}{end}", m] for m in methods if (name, m) in wide for end in ("", "_mcse")}
    ).reset_index()


def _times(ds: xr.Dataset) -> pd.DataFrame:
    """Median and 95th percentile over worlds and replicates; the median does not see a first call's compilation."""
    rows = []
    for n in ds["n"].values:
        for labels in ds["labels"].values:
            for name in ds["method"].values:
                taken = 1000 * ds["seconds"].sel({"n": n, "labels": labels, "method": name}).values
                taken = taken[np.isfinite(taken)]
                if taken.size:
                    median, late = np.quantile(taken, (0.5, 0.95))
                    rows.append(
                        {"n": n, "labels": labels, "method": name, "median": median, "95th percentile": late}
                    )
    return pd.DataFrame(rows)


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Coverage over width by world, at the largest n: worlds with own labels, then those with a borrowed calibrator."""
    at_n = ds.sel(n=[ds["n"].values.max()])
    made = {}
    for caption, borrowed, shown in ((OWN_CAPTION, False, COLOURS), (SHIFT_CAPTION, True, IN_SHIFT)):
        parts = [p for p in _groups(at_n) if WORLDS[str(p["world"].item())].borrowed == borrowed]
        if parts:
            made[caption] = _panels(parts, shown)
    return made


def _panels(parts: Sequence[xr.Dataset], shown: Sequence[str]) -> Figure:
    size = (max(2.0 * len(parts) + 0.8, 6.6), 5.0)
    fig, axes = plt.subplots(2, len(parts), figsize=size, sharex="col", sharey="row", squeeze=False)
    for column, part in enumerate(parts):
        measured = performance(part, pool=True).isel(world=0, n=0)
        labels = [str(m) for m in measured["labels"].values]
        top, bottom = axes[:, column]
        _marks(top, measured, "coverage", shown)
        _marks(bottom, measured, "width", shown)
        top.axhline(part.attrs["ci_prob"], color=GREY, ls="--", lw=1, zorder=0)
        top.set(title=WORLDS[str(part["world"].item())].title)
        bottom.set(xlim=(-0.5, len(labels) - 0.5), xlabel="labels")
        bottom.set_xticks(np.arange(len(labels)), labels)
    axes[0, 0].set(ylabel="coverage", ylim=(None, 1.03))
    axes[1, 0].set(ylabel="mean width of the interval", yscale="log")
    axes[1, 0].yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes[1, 0].yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes[1, 0].yaxis.set_minor_formatter(ticker.NullFormatter())
    handles = {
        name: handle for ax in axes[0] for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    order = [name for name in shown if name in handles]
    fig.legend(
        [handles[n] for n in order],
        order,
        loc="outside upper center",
        ncols=min(len(order), 4),
        frameon=False,
    )
    return fig


def _marks(ax: Axes, measured: xr.Dataset, name: str, shown: Sequence[str]) -> None:
    """One measure of the methods that answer, side by side at each number of labels."""
    style: Any = looks(COLOURS)
    there = [m for m in shown if m in measured["method"].values]
    for k, method in enumerate(there):
        one = measured.sel({"method": method})  # as a keyword, `method` is an option of sel
        answers = np.isfinite(one["value"].sel(measure="bias").values)
        if not answers.any():
            continue
        at = np.arange(len(answers))[answers] + 0.11 * (k - (len(there) - 1) / 2)
        value = one["value"].sel(measure=name).values[answers]
        bound = one["bound"].sel(measure=name).transpose("ci_bound", "labels").values[:, answers]
        face: Any = {"mfc": "white"} if method in TWINS else {}
        ax.errorbar(
            at,
            value,
            np.abs(bound - value),
            **style[TWINS.get(method, method)],
            **face,
            ls="none",
            ms=4,
            lw=1,
            label=method,
        )


def _posterior(description: str, **options: Any) -> Method:
    return Method(description, "bayes_direct", options)


BAYESIAN = (
    "bayes_one_step",
    "bayes_hdi",
    "bayes_plug_in",
    *PRIORS[1:],
    "projection",
    "bayes_corrected",
    "bayes_flat",
)


def _fewer(n_draws: int, n_boot: int) -> dict[str, dict[str, int]]:
    """Method options of a profile that must be quick."""
    return {**{name: {"n_draws": n_draws} for name in BAYESIAN}, "direct_bootstrap": {"n_boot": n_boot}}


STUDY = Study(
    name="bayes_vs_frequentist",
    title="Do Bayesian intervals cover as often as frequentist ones, and are they shorter?",
    aims="Compare the corrected posterior, its plug-in, the projection posterior and a Bayesian probe correction with "
    "the influence-function, bootstrap and prediction-powered intervals on the same data: which keep 95%, at what "
    "width, on which side they miss, what the prior does to them, what a fit costs; and what policy shift does to all.",
    mechanism="Worlds of cje_sim.scenarios with n prompts, of which a simple random sample is labelled. Own labels, "
    "under every policy: smooth (well_specified), discrete (discrete_judge), weak (weak_judge), binary "
    "(binary_oracle), dip (a link that falls in between: a monotone calibrator is misspecified), length (E[Y | S] "
    "differs between policies). Labels of the base policy only: transport (well_specified), shift (transport_shift, "
    "residual mean -0.1), shift_probes (the same with 50 probe labels under every policy).",
    estimands="V(policy) = E[Y] of the base and of one distant policy, known by quadrature; where the calibrator is "
    "borrowed, of the target alone.",
    measures="Coverage (a failure is a miss) with exact bounds, misses by side, width, interval score, bias, failures, "
    "averaged over policies, with Monte Carlo standard errors; differences to direct_influence with the standard "
    "error of a paired comparison; time per fit. The estimate of a posterior is its mean.",
    factors={"world": tuple(WORLDS), "n": (1000,), "labels": (50, 250)},
    policies=("base", "target"),
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "labels_only": Method("control, unbiased: mean oracle label, t interval"),
        "ppi_plus_plus": Method("prediction-powered mean, tuned, t interval"),
        "direct_influence": Method(
            "Direct as it comes: tuned, influence function with the calibrator's term, t interval", "direct"
        ),
        "direct_bootstrap": Method(
            "theta_aug, cluster bootstrap that refits the calibrator, percentile interval",
            "direct",
            {"inference": "bootstrap", "n_boot": 2000, "power_tuned": False},
        ),
        "bayes_one_step": _posterior(
            "corrected posterior (plug-in where the target has no labels), equal-tailed"
        ),
        "bayes_hdi": _posterior("the same, interval of highest density", interval="hdi"),
        "bayes_plug_in": _posterior("posterior plug-in, never corrected by own labels", route="plug_in"),
        "bayes_sparse": _posterior("corrected posterior, Dirichlet concentration 0.5", concentration=0.5),
        "bayes_smooth": _posterior("corrected posterior, Dirichlet concentration 2", concentration=2.0),
        "bayes_tight_noise": _posterior("corrected posterior, scale of sigma 0.1", sigma_scale=0.1),
        "bayes_wide_noise": _posterior("corrected posterior, scale of sigma 1", sigma_scale=1.0),
        "projection": Method(
            "projection posterior: isotonic plug-in, no prior on shape", "projection_posterior"
        ),
        "direct_corrected": Method("probe-corrected Direct, t interval"),
        "bayes_corrected": Method(
            "probe-corrected posterior, Student-t(3) shifts", options={"n_draws": 1000}
        ),
        "bayes_flat": Method(
            "probe-corrected posterior, flat shifts", "bayes_corrected", {"prior": "flat", "n_draws": 1000}
        ),
    },
    profiles={
        "smoke": Profile(
            3,
            {"world": ("smooth", "binary", "shift_probes"), "n": (250,), "labels": (50,)},
            _fewer(100, 50),
        ),
        "quick": Profile(
            30,
            {"world": tuple(name for name in WORLDS if name not in ("weak", "length"))},
            _fewer(400, 300),
        ),
        "paper": Profile(2000, {"n": (500, 1000)}),
    },
    replicate=replicate,
    table=table,
    figure=figure,
)
