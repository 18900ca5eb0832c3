"""Bayesian against frequentist intervals on the same data: coverage, width, interval score, misses by side, time.

The estimator is theta_aug of "Causal Judge Evaluation" (Direct) or its Bayesian counterpart, the one-step corrected
posterior, beside plug-ins and the label-free and label-only controls. Worlds are a factor: some where every policy has
labels of its own (among them a link that no monotone calibrator can follow), and some where only the base policy has,
so that the target borrows the calibrator: with transport (under an informative, a weak and an independent judge, and
binary labels), without, and without but with 50 probe labels. Estimands are values and differences of two policies.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cje_core.bayes.prior import Prior
from cje_core.figures.style import GREY, looks
from cje_core.streams import Cell, Streams
from studies.engine.measures import paired_table, performance, side_by_side, summary_table
from studies.engine.study import Method, Outcome, Profile, Study, replicate_elsewhere


class World(NamedTuple):
    """One level of the factor `world`: a scenario, its base, target and rival, and what differs from its defaults."""

    title: str
    scenario: str
    policies: tuple[str, str, str]
    arguments: Mapping[str, Any] = MappingProxyType({})
    borrowed: bool = False  # only the base policy teaches; the target alone is summarised


OWN = ("base", "worse", "better")
SHIFTED = ("base", "lower", "same")
WORLDS = {
    "smooth": World("smooth link", "well_specified", OWN),
    "discrete": World("few judge levels", "discrete_judge", OWN),
    "weak": World("weak judge", "weak_judge", OWN),
    "binary": World("binary oracle", "binary_oracle", OWN),
    "dip": World("link not monotone", "well_specified", OWN, {"link": "dip"}),
    "length": World("judge rewards length", "length_bias", ("base", "verbose", "concise")),
    "transport": World("calibration transports", "well_specified", OWN, {}, True),
    "weak_base": World("weak judge", "weak_judge", OWN, {}, True),
    "binary_base": World("binary oracle", "binary_oracle", OWN, {}, True),
    "equal": World(
        "equal policies,\nindependent judge", "equal_policies", ("base", "disliked", "favoured"), {}, True
    ),
    "shift": World("target 0.1 lower", "transport_shift", SHIFTED, {}, True),
    "shift_probes": World(
        "target 0.1 lower,\n50 probe labels", "transport_shift", SHIFTED, {"n_probes": 50}, True
    ),
}
REFERENCE = "direct_influence"
MEASURES = (
    "coverage", "miss_left", "miss_right", "coverage_answered", "refused", "width", "interval_score", "bias",
)  # fmt: skip
# The page's colours: those methods in this order; a probe correction is the hollow twin of one of them.
COLOURS = (
    "direct_influence",
    "bayes_one_step",
    "direct_bootstrap",
    "ppi_plus_plus",
    "labels_only",
    "bayes_plug_in",
    "projection",
    "direct_plug_in",
)
TWINS = {
    "direct_corrected": "direct_influence",
    "bayes_corrected": "bayes_one_step",
    "bayes_flat": "ppi_plus_plus",
}
IN_SHIFT = ("direct_influence", "direct_plug_in", "bayes_one_step", "bayes_plug_in", *TWINS)
PROBED = tuple(TWINS)
PRIORS = ("bayes_one_step", "bayes_sparse", "bayes_smooth", "bayes_tight_noise", "bayes_wide_noise")
OWN_ONLY = (*PRIORS[1:], "bayes_hdi", "direct_bootstrap")
CELL = ["world", "estimand", "n", "labels"]
OWN_CAPTION = (
    "Every policy has labels of its own. Coverage of values and of the difference target - base among the runs that "
    "print an interval (dashed: nominal 95%) with exact 95% Monte Carlo bounds, mean width of the values' intervals "
    "with 95% Monte Carlo bounds; values are averages over the base and a distant policy, the bounds of their coverage "
    "take the two policies of a replicate as one trial."
)
SHIFT_CAPTION = (
    "Only the base policy has labels; target and rival borrow its calibrator. Coverage of the target's value and of "
    "the difference target - rival among the runs that print an interval (dashed: nominal 95%) with exact 95% Monte "
    "Carlo bounds, mean width of the value's interval, and the share of runs refused a number. Where the calibration "
    "does not transport, no method without labels of the target is safe, Bayesian or not; probe labels (hollow marks) "
    "restore coverage."
)
ESTIMANDS = ("value", "difference")
ROWS = (
    ("value", "coverage_answered", "coverage of values"),
    ("difference", "coverage_answered", "coverage of the difference"),
    ("value", "width", "mean width of the interval"),
)
REFUSED = (("difference", "refused", "share of runs refused"),)


def applies(method: str, world: World) -> bool:
    """Whether a method has something of its own to say in a world.

    The probe corrections need probes. Where the target borrows, the posterior stays as it comes and as a plug-in (the
    bootstrap of a borrowed plug-in is in the study interval_coverage); where it does not, Direct has nothing to borrow.
    """
    if method in PROBED:
        return bool(world.arguments.get("n_probes"))
    if method == "direct_plug_in":
        return world.borrowed
    return not (world.borrowed and method in OWN_ONLY)


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One replicate: the cell's world, with `labels` labelled prompts of n, and the methods that apply on its data."""
    world = WORLDS[str(cell["world"])]
    arguments = {
        "n": cell["n"],
        "oracle_fraction": int(cell["labels"]) / int(cell["n"]),
        "label_design": "base" if world.borrowed else "own",
        **world.arguments,
    }
    methods = [name for name in study.methods if applies(name, world)]
    return replicate_elsewhere(
        study, arguments, streams, scenario=world.scenario, policies=world.policies, methods=methods
    )


def _groups(ds: xr.Dataset, estimand: str = "value") -> list[xr.Dataset]:
    """One dataset per world: the policies whose values, or the pair whose difference, is summarised there.

    Where the calibrator is borrowed these are the target, and the two policies that borrow; elsewhere the base and the
    target.
    """
    return [ds.sel(world=[name], policy=_columns(str(name), estimand)) for name in ds["world"].values]


def _columns(world: str, estimand: str) -> list[str]:
    borrowed = WORLDS[world].borrowed
    if estimand == "difference":
        return ["target - rival" if borrowed else "target - base"]
    return ["target"] if borrowed else ["base", "target"]


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage and refusals side by side, differences to the reference on the same data, the prior's part, times, all.

    Of values and of differences between policies (column ``estimand``).
    """
    measures = _both(ds, lambda part: summary_table(part, MEASURES))
    silent = measures["bias"].isna()  # labels_only where the target has no label: no coverage, rather than 0
    measures.loc[silent, [f"{m}{end}" for m in MEASURES[:3] for end in ("", "_mcse")]] = np.nan
    methods = [str(m) for m in ds["method"].values]
    pairs = _both(
        ds, lambda part: paired_table(part, REFERENCE, ("coverage", "interval_score"), ratios=("width",))
    )
    pairs = pairs[pairs["coverage"].notna()].reset_index(drop=True)
    columns = [c for name in ("coverage", "width_ratio", "interval_score") for c in (name, f"{name}_mcse")]
    priors = _both(
        ds.sel({"method": [m for m in methods if m in PRIORS]}),
        lambda part: paired_table(part, PRIORS[0], ("bias", "coverage"), ratios=("width",)),
    )
    return {
        "Coverage of 95% intervals (a refusal is a miss)": side_by_side(measures, CELL, "coverage", methods),
        "Coverage among the runs that print a number": side_by_side(
            measures, CELL, "coverage_answered", methods
        ),
        "Share of runs refused: a status in place of a number": side_by_side(
            measures, CELL, "refused", methods
        ),
        "Mean width of 95% intervals": side_by_side(measures, CELL, "width", methods),
        f"Differences to {REFERENCE} on the same data (width: ratio)": pairs[[*CELL, "method", *columns]],
        f"Other priors against {PRIORS[0]} on the same data: differences, and the ratio of widths": priors,
        "Milliseconds per fit": _times(ds),
        "All measures": measures,
    }


def _both(ds: xr.Dataset, measure: Callable[[xr.Dataset], pd.DataFrame]) -> pd.DataFrame:
    """One table of every world, values first, then differences, told apart by the column ``estimand``."""
    frames = []
    for estimand in ESTIMANDS:
        frame = pd.concat([measure(part) for part in _groups(ds, estimand)], ignore_index=True)
        frame.insert(1, "estimand", estimand)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _times(ds: xr.Dataset) -> pd.DataFrame:
    """Median and 95th percentile over worlds and replicates, without laying out the data, which methods share.

    The median does not see a first call's compilation.
    """
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
    """Coverage of values and differences by world, at the largest n: first own labels, then borrowed calibrators."""
    at_n = ds.sel(n=[ds["n"].values.max()])
    made = {}
    for caption, borrowed, shown in ((OWN_CAPTION, False, COLOURS[:-1]), (SHIFT_CAPTION, True, IN_SHIFT)):
        names = [str(name) for name in ds["world"].values if WORLDS[str(name)].borrowed == borrowed]
        if names:
            made[caption] = _panels(at_n.sel(world=names), shown, (*ROWS, *(REFUSED if borrowed else ())))
    return made


def _panels(ds: xr.Dataset, shown: Sequence[str], rows: Sequence[tuple[str, str, str]]) -> Figure:
    worlds = [str(name) for name in ds["world"].values]
    size = (max(2.0 * len(worlds) + 0.8, 6.6), 0.8 + 2.1 * len(rows))
    fig, axes = plt.subplots(len(rows), len(worlds), figsize=size, sharex="col", sharey="row", squeeze=False)
    for estimand in ESTIMANDS:
        for column, part in enumerate(_groups(ds, estimand)):
            measured = performance(part, pool=True).isel(world=0, n=0)
            for ax, row in zip(axes[:, column], rows, strict=True):
                if row[0] == estimand:
                    _marks(ax, measured, row[1], shown)
    for column, world in enumerate(worlds):
        labels = [str(m) for m in ds["labels"].values]
        axes[0, column].set(title=WORLDS[world].title)
        axes[-1, column].set(xlim=(-0.5, len(labels) - 0.5), xlabel="labels")
        axes[-1, column].set_xticks(np.arange(len(labels)), labels)
    for line, (_, name, words) in zip(axes, rows, strict=True):
        line[0].set(ylabel=words)
        if name == "width":
            line[0].set(yscale="log")
            line[0].yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            line[0].yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
            line[0].yaxis.set_minor_formatter(ticker.NullFormatter())
        elif name == "refused":
            line[0].set(ylim=(-0.04, 1.04))
        else:
            line[0].set(ylim=(None, 1.03))
            for ax in line:
                ax.axhline(ds.attrs["ci_prob"], color=GREY, ls="--", lw=1, zorder=0)
    handles = {
        name: handle
        for ax in axes.ravel()
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
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
    style[COLOURS[-1]]["color"] = GREY  # the palette's eighth is too pale for a mark
    there = [m for m in shown if m in measured["method"].values]
    there = [m for m in there if (measured["replicates"].sel({"method": m}) > 0).any()]
    for k, method in enumerate(there):
        one = measured.sel({"method": method})  # as a keyword, `method` is an option of sel
        value = one["value"].sel(measure=name).values
        if name != "refused":
            value = np.where(np.isfinite(one["value"].sel(measure="bias").values), value, np.nan)
        answers = np.isfinite(value) & (one["replicates"].values > 0)
        if not answers.any():
            continue
        at = np.arange(len(answers))[answers] + 0.11 * (k - (len(there) - 1) / 2)
        bound = one["bound"].sel(measure=name).transpose("ci_bound", "labels").values[:, answers]
        face: Any = {"mfc": "white"} if method in TWINS else {}
        ax.errorbar(
            at,
            value[answers],
            np.abs(bound - value[answers]),
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
    "differs between policies). Labels of the base policy only: transport (well_specified), weak_base (weak_judge), "
    "binary_base (binary_oracle), equal (equal_policies: every value the same, the judge independent of the label), "
    "shift (transport_shift, the target's residual mean is -0.1), shift_probes (the same with 50 probe labels under "
    "every policy).",
    estimands="V(policy) = E[Y] of the base and of one distant policy, known by quadrature, and the difference "
    "target - base; where the calibrator is borrowed, the value of the target alone and the difference target - rival, "
    "two policies that borrow.",
    measures="Coverage (a failure is a miss) with exact bounds, coverage among the runs that print a number and the "
    "share of runs refused one, misses by side, width, interval score, bias, averaged over policies, with Monte Carlo "
    "standard errors; differences to direct_influence with the standard error of a paired comparison; time per fit. "
    "The estimate of a posterior is its mean.",
    factors={"world": tuple(WORLDS), "n": (1000,), "labels": (50, 250)},
    policies=("base", "target", "rival"),
    contrasts=(("target", "base"), ("target", "rival")),
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "labels_only": Method(
            "control, unbiased: mean oracle label, interval as it comes (t, or by the binomial law for binary labels)"
        ),
        "ppi_plus_plus": Method("prediction-powered mean, tuned, interval as it comes"),
        "direct_influence": Method(
            "Direct as it comes: tuned, influence function with the calibrator's term, interval as it comes",
            "direct",
        ),
        "direct_bootstrap": Method(
            "theta_aug, cluster bootstrap that refits the calibrator, percentile interval",
            "direct",
            {"inference": "bootstrap", "n_boot": 2000, "power_tuned": False, "borrowed": "plug_in"},
        ),
        "direct_plug_in": Method(
            "Direct with the borrowed calibrator's mean, as the paper has it",
            "direct",
            {"borrowed": "plug_in"},
        ),
        "bayes_one_step": _posterior(
            "posterior as it comes (corrected where the target has labels), equal-tailed"
        ),
        "bayes_hdi": _posterior("the same, interval of highest density", interval="hdi"),
        "bayes_plug_in": _posterior("posterior plug-in, never corrected by own labels", route="plug_in"),
        "bayes_sparse": _posterior("corrected posterior, Dirichlet concentration 0.5", curve=Prior(0.5)),
        "bayes_smooth": _posterior("corrected posterior, Dirichlet concentration 2", curve=Prior(2.0)),
        "bayes_tight_noise": _posterior("corrected posterior, scale of sigma 0.1", curve=Prior(scale=0.1)),
        "bayes_wide_noise": _posterior("corrected posterior, scale of sigma 1", curve=Prior(scale=1.0)),
        "projection": Method(
            "projection posterior: isotonic plug-in, no prior on shape", "projection_posterior"
        ),
        "direct_corrected": Method("probe-corrected Direct, interval as it comes"),
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
            {"world": ("smooth", "binary", "equal", "shift_probes"), "n": (250,), "labels": (50,)},
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
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    table=table,
    figure=figure,
)
