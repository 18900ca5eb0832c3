"""Coverage of 95% intervals of values and of differences: raw judge, labels only, and Direct by kind of inference.

The world `smooth` has the set-up of the table "Coverage by UQ Method" of "Causal Judge Evaluation" (n in {250, 500,
1000, 2500}, oracle fraction 5% and 25%): truth known by quadrature, calibration that transports. Policies with labels
of their own (theta_aug) are told apart from policies that borrow the base policy's calibrator. The other worlds are
those where borrowing is hard: a judge of few levels, a weak one, pass/fail labels, equal policies under an independent
judge, and one where the calibration does not transport.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cje_core.checks import FloatArray
from cje_core.estimators.direct import Bootstrap
from cje_core.figures.style import looks
from cje_core.streams import Cell
from studies.engine.measures import by_estimand, paired_table, performance, side_by_side, summary_table
from studies.engine.outcome import NOT_RUN
from studies.engine.panels import by_world, legend, marks, plain_log
from studies.engine.study import Method, Profile, Setting, Study


class World(NamedTuple):
    """One level of the factor `world`: a scenario and its policies in the places base, high, low."""

    title: str
    scenario: str
    policies: tuple[str, str, str] = ("base", "better", "worse")


WORLDS = {
    "smooth": World("informative judge", "well_specified"),
    "discrete": World("few judge levels", "discrete_judge"),
    "weak": World("weak judge", "weak_judge"),
    "binary": World("binary oracle", "binary_oracle"),
    "equal": World("equal policies,\nindependent judge", "equal_policies", ("base", "favoured", "disliked")),
    "shift": World("one target 0.1 lower", "transport_shift", ("base", "same", "lower")),
}
N_HARD = 1000  # prompts in the worlds beside the paper's
PAPER_ONLY = ("plug_in_cluster", "direct_bootstrap")  # run in the paper's world
FORMS = ("direct_plug_in", "direct_one_step")  # of borrowing: nothing to choose where every policy has labels
PLUG_IN = FORMS[0]
CONTROLS = ("raw_judge", "labels_only")
DIFFERENCE = "high - low"
GROUPS = {"own": "labels under every policy", "base": "calibration borrowed from the base policy"}
MEASURES = (
    "coverage", "coverage_answered", "refused", "miss_left", "miss_right", "width", "bias", "se_calibration",
    "interval_score",
)  # fmt: skip
CELL = ["world", "label_design", "estimand", "n", "oracle_fraction"]
CAPTION = (
    "The paper's set-up, values. Coverage (above) with exact 95% Monte Carlo bounds, which take the policies of a "
    "replicate as one trial, and mean width (below); averages over policies. Dashed: nominal. Without labels of its "
    "own a policy has no labels_only."
)
BORROWED_CAPTION = (
    "Two policies that borrow the base policy's calibrator: coverage of their values and of their difference among the "
    "runs that print an interval, with exact 95% Monte Carlo bounds (dashed: nominal 95%), and the share of runs that "
    "are refused a number. In the last world the calibration of one of them is .1 off, and no interval knows."
)
Y_TICKS = (0, 0.5, 0.7, 0.8, 0.9, 0.95, 1)  # the stretched scale has no room for one between 0 and .5


def applies(method: str, cell: Cell) -> bool:
    """Whether a method has something of its own to say in a cell."""
    if method in PAPER_ONLY:
        return cell["world"] == "smooth"
    return not (method in FORMS and cell["label_design"] == "own")


def keep(cell: Cell) -> bool:
    """Every cell of the paper's world; of the others, borrowed labels at one n."""
    return cell["world"] == "smooth" or (cell["label_design"] == "base" and cell["n"] == N_HARD)


def setting(study: Study, cell: Cell) -> Setting:
    """The cell's world, and the methods that apply."""
    world = WORLDS[str(cell["world"])]
    arguments = {name: level for name, level in cell.items() if name != "world"}
    return Setting(world.scenario, world.policies, arguments, [m for m in study.methods if applies(m, cell)])


def _stretch(coverage: FloatArray) -> FloatArray:
    """Axis scale: coverage spans 0 (raw judge) to 1, and the differences that matter lie near 0.95."""
    return np.asarray(np.sign(coverage) * np.abs(coverage) ** 2.5)


def _unstretch(height: FloatArray) -> FloatArray:
    return np.asarray(np.sign(height) * np.abs(height) ** 0.4)


STRETCH = (_stretch, _unstretch)


def _values(design: str) -> list[str]:
    """Policies whose values are summarised: under "base" only those without labels, whose calibrator is borrowed."""
    return ["high", "low"] if design == "base" else ["base", "high", "low"]


def _ran(ds: xr.Dataset, world: str, design: str) -> bool:
    return bool((ds["status"].sel(world=world, label_design=design) != NOT_RUN).any())


def _groups(ds: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Estimand ("value" or "difference") and its part of the results, by world and label design."""
    found = []
    for world in ds["world"].values:
        for design in ds["label_design"].values:
            if _ran(ds, world, design):
                part = ds.sel(world=[world], label_design=[design])
                found.append(("value", part.sel(policy=_values(str(design)))))
                found.append(("difference", part.sel(policy=[DIFFERENCE])))
    return found


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage side by side, with a refusal as a miss and without; refusals; false differences; width; every measure.

    Values are averages over policies. A method that never answers in a cell (labels_only without labels) has no
    coverage there.
    """
    groups = _groups(ds)
    measures = by_estimand(groups, lambda part: summary_table(part, MEASURES))
    measures.loc[measures["bias"].isna(), ["coverage", "coverage_mcse"]] = np.nan
    measures = measures[[*CELL, "method", *(f"{name}{end}" for name in MEASURES for end in ("", "_mcse"))]]
    methods = [str(m) for m in ds["method"].values]
    borrowing = measures[(measures["label_design"] == "base") & ~measures["method"].isin(CONTROLS)]
    out = {
        title: side_by_side(rows, CELL, name, methods)
        for title, name, rows in (
            ("Coverage of 95% intervals (a refusal is a miss)", "coverage", measures),
            (
                "Coverage where a calibrator is borrowed, among the runs that print a number",
                "coverage_answered",
                borrowing,
            ),
            (
                "Share of runs refused where a calibrator is borrowed: a status in place of a number",
                "refused",
                borrowing,
            ),
        )
    }
    false = borrowing[(borrowing["world"] == "equal") & (borrowing["estimand"] == "difference")]
    if len(false):
        share = false["miss_left"] + false["miss_right"]  # of all runs: exclusive events
        error = np.sqrt(share * (1 - share) / max(int(ds.sizes["replicate"]) - 1, 1))
        false = false[[*CELL, "method"]].assign(share=share, share_mcse=error)
        title = "False differences: share of runs that tell equal policies apart"
        out[title] = side_by_side(false, CELL, "share", methods)
    borrowed = [(e, part) for e, part in groups if part["label_design"].item() == "base"]
    if borrowed:
        widths = by_estimand(borrowed, lambda part: paired_table(part, PLUG_IN, (), ratios=("width",)))
        widths = widths[widths["width_ratio"].notna() & ~widths["method"].isin(CONTROLS)]
        title = f"Mean width where a calibrator is borrowed, ratio to {PLUG_IN}"
        out[title] = side_by_side(widths, CELL, "width_ratio", methods)
    return {**out, "All measures": measures}


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """The paper's world by label design: coverage over width; then borrowed calibrators, by world."""
    made = {}
    if "smooth" in ds["world"].values:
        made[CAPTION] = _paper_figure(ds.sel(world="smooth"))
    if "base" in ds["label_design"].values:
        made[BORROWED_CAPTION] = _borrowed_figure(ds.sel(label_design="base"))
    return made


def _paper_figure(ds: xr.Dataset) -> Figure:
    """Coverage with exact bounds over mean width, one column per label design."""
    designs = [str(design) for design in ds["label_design"].values]
    size = (4.8 * len(designs), 5.6)
    fig, axes = plt.subplots(2, len(designs), figsize=size, sharex="col", sharey="row", squeeze=False)
    for column, design in enumerate(designs):
        part = ds.sel(label_design=design, policy=_values(design))
        measured = performance(part, pool=True).stack(cell=("n", "oracle_fraction"))
        labels = [f"n = {n}\n{fraction:.0%} labelled" for n, fraction in measured["cell"].values]
        top, bottom = axes[:, column]
        for ax, name in ((top, "coverage"), (bottom, "width")):
            marks(ax, measured, name, "cell", looks(list(METHODS)), step=0.12)
        top.axhline(part.attrs["ci_prob"], color="0.4", linestyle="--", linewidth=1, zorder=0)
        top.set_yscale("function", functions=STRETCH)
        top.set(ylim=(-0.25, 1.01), yticks=Y_TICKS, title=GROUPS[design])
        bottom.set(xticks=np.arange(len(labels)), xticklabels=labels)
        plain_log(bottom)
    axes[0, 0].set_ylabel("coverage (stretched scale)")
    axes[1, 0].set_ylabel("mean width of the interval")
    legend(fig, METHODS)
    return fig


def _borrowed_figure(ds: xr.Dataset) -> Figure:
    """Coverage of values, of the difference, and the share refused; one column per world."""
    worlds = []
    for name in ds["world"].values:
        part = ds.sel(world=name, n=_largest(ds))
        if (part["status"] != NOT_RUN).any():
            ticks = [f"{float(f) * int(part['n']):.0f}" for f in part["oracle_fraction"].values]
            parts = {"value": part.sel(policy=_values("base")), "difference": part.sel(policy=[DIFFERENCE])}
            worlds.append((WORLDS[str(name)].title, parts, ticks))
    fig, axes = by_world(
        worlds,
        (
            ("value", "coverage_answered", "coverage of values"),
            ("difference", "coverage_answered", "coverage of the difference"),
            ("value", "refused", "share of runs refused"),
        ),
        {method: look for method, look in looks(list(METHODS)).items() if method not in CONTROLS},
        along="oracle_fraction",
        step=0.12,
        size=(max(1.9 * len(worlds) + 0.8, 6.6), 6.4),
    )
    for ax in axes[:2, 0]:
        ax.set_yscale("function", functions=STRETCH)
        ax.set(ylim=(-0.25, 1.01), yticks=Y_TICKS)
    for ax in axes[-1]:
        ax.set(xlabel="labels of the base policy")
    return fig


def _largest(ds: xr.Dataset) -> int:
    """The n at which the worlds are compared: that of the hard ones, or the largest that was run."""
    sizes = [int(n) for n in ds["n"].values]
    return N_HARD if N_HARD in sizes else max(sizes)


METHODS = {
    "raw_judge": Method("control, biased: mean judge score"),
    "labels_only": Method("control, unbiased: mean oracle label"),
    "plug_in_cluster": Method(
        "calibrated plug-in, calibrator taken as known",
        "direct",
        {"correction": "none", "inference": "cluster", "borrowed": "plug_in"},
    ),
    "direct_bootstrap": Method(
        "Direct (theta_aug where labelled), cluster bootstrap that refits the calibrator, percentile interval (its "
        "difference by the influence function)",
        "direct",
        {"inference": Bootstrap(n=2000), "power_tuned": False, "borrowed": "plug_in"},
    ),
    "direct_plug_in": Method(
        "Direct, a policy without labels gets the mean calibrated score; joint influence function",
        "direct",
        {"borrowed": "plug_in"},
    ),
    "direct_one_step": Method(
        "Direct, a policy without labels gets the one-step estimate by density ratios",
        "direct",
        {"borrowed": "one_step"},
    ),
    "direct": Method(
        "Direct as it comes: tuned prediction, joint influence function with the calibrator's term"
    ),
}

STUDY = Study(
    name="interval_coverage",
    title="Which 95% intervals cover the policy value, and the difference of two?",
    aims="Find out which uncertainty method keeps its nominal coverage when few responses carry oracle labels, and "
    "what the interval's width pays for it; reproduce the paper's ordering (raw judge near 0%, intervals that "
    "ignore calibration error too short, bootstrap with theta_aug near 95%); for policies that borrow a calibrator, "
    "find out whether values and differences still hold when the judge knows little or the labels are binary.",
    mechanism="smooth (scenario well_specified): judge scores from Kumaraswamy laws, correlated within a prompt; one "
    "monotone link E[Y | S] for all policies; a simple random sample of the prompts is labelled, under every policy "
    "(own) or under the base policy only (base). Base labels only, 1,000 prompts: discrete (discrete_judge), weak "
    "(weak_judge), binary (binary_oracle), equal (equal_policies: every value the same, the judge independent of the "
    "label), shift (transport_shift: one of the two targets has residual mean -.1).",
    estimands="V(policy) = E[Y], known by quadrature, and V(high) - V(low), high and low being the two policies beside "
    "the base. Under label_design=base only these two, which have no labels, are summarised.",
    measures="Coverage (a failure is a miss) with exact bounds, coverage among the runs that print a number and the "
    "share of runs refused one, misses by side, mean width, bias, SE calibration (model SE / empirical SE), interval "
    "score, each averaged over policies with its Monte Carlo standard error. A method that never gives an estimate in "
    "a cell has no coverage there: labels_only cannot value a policy without labels.",
    factors={
        "world": tuple(WORLDS),
        "n": (250, 1000),
        "oracle_fraction": (0.05, 0.25),
        "label_design": ("own", "base"),
    },
    policies=("base", "high", "low"),
    contrasts=(("high", "low"),),
    methods=METHODS,
    profiles={
        # fewer bootstrap replicates than the paper's 2000 keep the quick profile near 75 s on two cores
        "smoke": Profile(
            4,
            {"world": ("smooth", "weak", "equal"), "n": (1000,)},
            {"direct_bootstrap": {"inference": Bootstrap(n=50)}},
        ),
        "quick": Profile(300, {}, {"direct_bootstrap": {"inference": Bootstrap(n=300)}}),
        "paper": Profile(1000, {"n": (250, 500, 1000, 2500)}),
    },
    setting=setting,
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    keep=keep,
    table=table,
    figure=figure,
    claims=("naive-zero-coverage", "tab-uq-comparison"),
    block=50,  # half a second's work: what all replicates of a block share costs as much as two of them
)
