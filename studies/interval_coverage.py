"""Coverage of 95% intervals of values and of differences: raw judge, labels only, and Direct by kind of inference.

The world `smooth` has the set-up of the tables "Coverage by UQ Method" and "UQ diagnostics for Direct mode" of "Causal
Judge Evaluation" (n in {250, 500, 1000, 2500}, oracle fraction 5% to 50%): truth known by quadrature, calibration that
transports. Policies with labels of their own (theta_aug) are told apart from policies that borrow the base policy's
calibrator, and each of the paper's three ways to a variance is run on the plug-in and on theta_aug. The other worlds
are those where borrowing is hard: a judge of few levels, a weak one, pass/fail labels, equal policies under an
independent judge, and one where the calibration does not transport.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cje_core.estimators.direct import Bootstrap
from cje_core.figures.style import GREY, MARKERS, looks
from cje_core.streams import Cell
from studies.engine.measures import by_estimand, paired_table, performance, side_by_side, summary_table
from studies.engine.measures.normalised import normalised_errors
from studies.engine.outcome import NOT_RUN
from studies.engine.panels import STRETCH, by_world, legend, marks, plain_log
from studies.engine.published import meets_published
from studies.engine.sentences import LeftOut, keeps_level
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study


class World(NamedTuple):
    """One level of the factor `world`: a scenario, its policies in the places base, high, low, and what fails there.

    ``fails`` says which assumption of a borrowed calibrator is violated by construction; sentences leave such a world
    out, by name. ``equal`` is a world whose policies all have one value.
    """

    title: str
    scenario: str
    policies: tuple[str, str, str] = ("base", "better", "worse")
    arguments: Mapping[str, Any] = MappingProxyType({})
    fails: str = ""
    equal: bool = False
    design: str = "base"  # of the labels; the world smooth has both
    holds: str = ""  # by construction, for the page; the older worlds stand in the study's mechanism


WORLDS = {
    "smooth": World("informative judge", "well_specified"),
    "discrete": World("few judge levels", "discrete_judge"),
    "weak": World("weak judge", "weak_judge"),
    "binary": World("binary oracle", "binary_oracle"),
    "equal": World(
        "equal policies,\nindependent judge", "equal_policies", ("base", "favoured", "disliked"), equal=True
    ),
    "few_levels": World(
        "judge of 3 levels,\nbinary labels",
        "few_levels",
        ("base", "better", "slightly_better"),
        holds="the calibration transports exactly; policies use the judge's three levels differently",
    ),
    "skewed": World(
        "equal policies,\nskewed own labels",
        "equal_skewed",
        ("policy00", "policy01", "policy02"),
        MappingProxyType({"count": 3}),
        equal=True,
        design="own",
        holds="every value is the same; 10% of the labels drop far below the rest, and the judge knows nothing",
    ),
    "rare_drops": World(
        "own labels that\nrarely drop far",
        "rare_drops",
        ("base", "same", "safer"),
        design="own",
        holds="3% of the graded labels of two policies drop from .9 to .1, so that few labels show none",
    ),
    "shift": World(
        "one target 0.1 lower",
        "transport_shift",
        ("base", "same", "lower"),
        fails="transport fails by construction",
    ),
}
N_HARD = 1000  # prompts in the worlds beside the paper's
HARD_FRACTIONS = (0.05, 0.25)  # of labels there
FORMS = ("direct_plug_in", "direct_one_step")  # of borrowing: nothing to choose where every policy has labels
CORRECTED = (
    "aug_cluster",
    "aug_jackknife",
    "plug_in_bootstrap",
)  # without own labels the same as their twins
# Rows of the paper's table "Coverage by UQ Method" (`studies.engine.published`), and who is in them here.
PAPER = {
    "cluster-robust": ("plug_in_cluster", "aug_cluster"),
    "calibration-aware jackknife": ("plug_in_jackknife", "aug_jackknife"),
    "bootstrap": ("plug_in_bootstrap", "direct_bootstrap", "direct_bootstrap_500"),
}
PAPER_FRACTIONS = (0.05, 0.25)  # of that table
PAPER_ONLY = tuple(m for methods in PAPER.values() for m in methods)  # run in the paper's world
PLUG_IN = FORMS[0]
CONTROLS = ("raw_judge", "labels_only")
# the default beside the paper's three
FRONT = ("direct", "plug_in_cluster", "plug_in_jackknife", "direct_bootstrap")
DIFFERENCE = "high - low"
GROUPS = {"own": "labels under every policy", "base": "calibration borrowed from the base policy"}
MEASURES = (
    "coverage", "refused", "failed", "miss_left", "miss_right", "width", "bias", "se_calibration", "interval_score",
)  # fmt: skip
CELL = ["world", "label_design", "estimand", "n", "oracle_fraction"]
BORROWED = "Where a calibrator is borrowed"
CAPTION = (
    "The paper's set-up, values: coverage of the intervals printed with exact 95% Monte Carlo bounds, which take the "
    "policies of a replicate as one trial (above), share of runs refused one (middle), mean width (below). Averages "
    "over all three policies (labels under every policy), or high and low (borrowed). Dashed: nominal. Without labels "
    "of its own a policy has no labels_only."
)
BORROWED_CAPTION = (
    "Two policies that borrow the base policy's calibrator: coverage of their values and of their difference among the "
    "runs that print an interval, with exact 95% Monte Carlo bounds (dashed: nominal 95%), and the shares of runs that "
    "are refused one. In the last world the calibration of one of them is .1 off, and no interval knows."
)
COVERAGE_TITLE = "Coverage of the 95% intervals printed, and share of runs refused or failed where any was"
Z_TITLE = "Coverage, mean and sd of Z = (estimate - truth) / SE, the paper's world, all n together"
SHOWN = (
    "raw_judge", "labels_only", "plug_in_cluster", "plug_in_jackknife", "direct_bootstrap", *FORMS, "direct",
)  # fmt: skip
# grey is the control's, so that it is not the default's, which comes eighth
LOOKS = {SHOWN[0]: {"color": GREY, "marker": MARKERS[len(SHOWN) - 1]}, **looks(SHOWN[1:])}
Y_TICKS = (0, 0.5, 0.7, 0.8, 0.9, 0.95, 1)  # the stretched scale has no room for one between 0 and .5


def applies(method: str, cell: Cell) -> bool:
    """Whether a method has something of its own to say in a cell."""
    if method in PAPER_ONLY and cell["world"] != "smooth":
        return False
    return method not in (FORMS if cell["label_design"] == "own" else CORRECTED)


def keep(cell: Cell) -> bool:
    """Every cell of the paper's world; of the others, the world's label design at one n and two fractions."""
    design = WORLDS[str(cell["world"])].design
    hard = (
        cell["label_design"] == design and cell["n"] == N_HARD and cell["oracle_fraction"] in HARD_FRACTIONS
    )
    return cell["world"] == "smooth" or hard


def setting(study: Study, cell: Cell) -> Setting:
    """The cell's world, and the methods that apply."""
    world = WORLDS[str(cell["world"])]
    arguments = {**{name: level for name, level in cell.items() if name != "world"}, **world.arguments}
    return Setting(world.scenario, world.policies, arguments, [m for m in study.methods if applies(m, cell)])


def _values(design: str) -> list[str]:
    """Policies whose values are summarised: under "base" only those without labels, whose calibrator is borrowed."""
    return ["high", "low"] if design == "base" else ["base", "high", "low"]


def _groups(ds: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Estimand ("value" or "difference") and its part of the results, by world and label design."""
    found = []
    for world in ds["world"].values:
        for design in ds["label_design"].values:
            part = ds.sel(world=[world], label_design=[design])
            if (part["status"] != NOT_RUN).any():
                found.append(("value", part.sel(policy=_values(str(design)))))
                found.append(("difference", part.sel(policy=[DIFFERENCE])))
    return found


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage of printed intervals beside the share refused; false differences; width; every measure.

    Values are averages over the policies that the column ``policy`` names. A method that never prints an interval in a
    cell (labels_only without labels) has no coverage there.
    """
    groups = _groups(ds)
    measures = by_estimand(groups, lambda part: summary_table(part, MEASURES))
    measures = measures[
        [*CELL, "policy", "method", *(f"{name}{end}" for name in MEASURES for end in ("", "_mcse"))]
    ]
    methods = [str(m) for m in ds["method"].values]
    out = {COVERAGE_TITLE: side_by_side(measures, CELL, "coverage", methods, first=FRONT)}
    alike = [name for name, world in WORLDS.items() if world.equal]
    false = measures[~measures["method"].isin(CONTROLS) & measures["world"].isin(alike)]
    false = false[false["estimand"] == "difference"]
    if len(false):
        share = false["miss_left"] + false["miss_right"]  # of all runs: exclusive events
        error = np.sqrt(share * (1 - share) / max(int(ds.sizes["replicate"]) - 1, 1))
        false = false[[*CELL, "policy", "method"]].assign(share=share, share_mcse=error)
        out["False differences: share of all runs, refused ones too, that tell equal policies apart"] = (
            side_by_side(false, CELL, "share", methods, first=FRONT)
        )
    borrowed = [(e, part) for e, part in groups if part["label_design"].item() == "base"]
    if borrowed:
        widths = by_estimand(borrowed, lambda part: paired_table(part, PLUG_IN, (), ratios=("width",)))
        widths = widths[widths["width_ratio"].notna() & ~widths["method"].isin(CONTROLS)]
        out[f"{BORROWED}, mean width, ratio to {PLUG_IN}"] = side_by_side(
            widths, CELL, "width_ratio", methods, first=FRONT
        )
    if "smooth" in ds["world"].values:
        out[Z_TITLE] = _z_table(ds.sel(world="smooth"))
    return {**out, "All measures": measures}


def _z_table(ds: xr.Dataset) -> pd.DataFrame:
    """The paper's table "UQ diagnostics for Direct mode", by label design."""
    parts = []
    for design in ds["label_design"].values:
        part = ds.sel(label_design=design, policy=_values(str(design)))
        parts.append(normalised_errors(part, "oracle_fraction").assign(label_design=str(design)))
    return pd.concat(parts, ignore_index=True)


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whether the default keeps its level, of values and differences, and where the paper's ranges are met."""
    tables, replicates = table(ds), int(ds.sizes["replicate"])
    measures = tables["All measures"]
    own, said = measures["label_design"] == "own", []
    cell = ["world", *(name for name in ("n", "oracle_fraction") if ds.sizes[name] > 1)]
    for estimand in ("value", "difference"):
        for words, chosen in (("with labels under every policy", own), ("with a borrowed calibrator", ~own)):
            rows = measures[chosen & (measures["estimand"] == estimand) & (measures["method"] == "direct")]
            asked = rows[~rows["world"].map(lambda name: bool(WORLDS[name].fails))]
            if len(asked):
                policies = " and ".join(dict.fromkeys(asked["policy"]))
                who = f"direct's {estimand} ({policies}) {words}"
                out = _violated(rows)
                said.append(keeps_level(who, asked, cell, replicates, left_out=out))
    values = measures[(measures["world"] == "smooth") & (measures["estimand"] == "value")]
    values = values[values["oracle_fraction"].isin(PAPER_FRACTIONS)]
    for name, methods in PAPER.items():
        for method in methods:
            for design in values["label_design"].unique():
                rows = values[(values["method"] == method) & (values["label_design"] == design)]
                if len(rows):
                    z = tables[Z_TITLE].query("method == @method and label_design == @design")
                    who = f"{method}, {design} labels, values in world smooth"
                    said.append(meets_published(name, who, rows, z))
    return said


def _violated(rows: pd.DataFrame) -> list[LeftOut]:
    """Return the worlds whose assumptions are violated by construction, each with its rows."""
    there = [name for name in WORLDS if WORLDS[name].fails and (rows["world"] == name).any()]
    return [LeftOut(f"world {name}", WORLDS[name].fails, rows[rows["world"] == name]) for name in there]


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """The paper's world by label design: coverage over width; then borrowed calibrators, by world."""
    made = {}
    if "smooth" in ds["world"].values:
        made[CAPTION] = _paper_figure(ds.sel(world="smooth"))
    if "base" in ds["label_design"].values:
        made[BORROWED_CAPTION] = _borrowed_figure(ds.sel(label_design="base"))
    return made


def _paper_figure(ds: xr.Dataset) -> Figure:
    """Coverage with exact bounds over the share refused and mean width, one column per label design."""
    designs = [str(design) for design in ds["label_design"].values]
    size = (4.8 * len(designs), 7.0)
    ratios = (2.4, 1, 2)
    fig, axes = plt.subplots(
        3, len(designs), figsize=size, sharex="col", sharey="row", squeeze=False, height_ratios=ratios
    )
    for column, design in enumerate(designs):
        part = ds.sel(label_design=design, policy=_values(design))
        found = performance(part, measures=("coverage", "refused", "width"), pool=True)
        measured = found.stack(cell=("n", "oracle_fraction"))
        labels = [f"{n}\n{fraction:.0%}" for n, fraction in measured["cell"].values]
        top, middle, bottom = axes[:, column]
        for ax, name in ((top, "coverage"), (middle, "refused"), (bottom, "width")):
            marks(ax, measured, name, "cell", LOOKS, step=0.12)
        top.axhline(part.attrs["ci_prob"], color="0.4", linestyle="--", linewidth=1, zorder=0)
        top.set_yscale("function", functions=STRETCH)
        top.set(ylim=(-0.25, 1.01), yticks=Y_TICKS, title=GROUPS[design])
        bottom.set(
            xticks=np.arange(len(labels)), xticklabels=labels, xlabel="prompts, and share of them labelled"
        )
        middle.set(ylim=(-0.04, 1.04))
        plain_log(bottom)
    axes[0, 0].set_ylabel("coverage (stretched scale)")
    axes[1, 0].set_ylabel("share of runs refused")
    axes[2, 0].set_ylabel("mean width of the interval")
    legend(fig, SHOWN)
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
            ("value", "coverage", "coverage of values"),
            ("difference", "coverage", "coverage of the difference"),
            ("value", "refused", "values: share of runs refused"),
            ("difference", "refused", "difference: share refused"),
        ),
        {method: look for method, look in LOOKS.items() if method not in CONTROLS},
        along="oracle_fraction",
        step=0.12,
        size=(max(1.9 * len(worlds) + 0.8, 6.6), 8.2),
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


AS_PAPER = {"power_tuned": False, "borrowed": "plug_in"}  # the calibrator in full weight
METHODS = {
    "raw_judge": Method("control, biased: mean judge score"),
    "labels_only": Method("control, unbiased: mean oracle label"),
    "plug_in_cluster": Method(
        "calibrated plug-in, calibrator taken as known",
        "direct",
        {"correction": "none", "inference": "cluster", "borrowed": "plug_in"},
    ),
    "aug_cluster": Method(
        "theta_aug, calibrator taken as known", "direct", {"inference": "cluster", **AS_PAPER}
    ),
    "plug_in_jackknife": Method(
        "calibrated plug-in, cluster variance + delete-one-oracle-fold variance, 1.96 standard errors",
        "direct",
        {"correction": "none", "inference": "jackknife", "interval": "normal", **AS_PAPER},
    ),
    "aug_jackknife": Method(
        "theta_aug, the same variance",
        "direct",
        {"inference": "jackknife", "interval": "normal", **AS_PAPER},
    ),
    "plug_in_bootstrap": Method(
        "calibrated plug-in, cluster bootstrap that refits the calibrator, percentile interval",
        "direct",
        {"correction": "none", "inference": Bootstrap(n=2000), **AS_PAPER},
    ),
    "direct_bootstrap": Method(
        "Direct (theta_aug where labelled), the same bootstrap (its difference by the influence function)",
        "direct",
        {"inference": Bootstrap(n=2000), **AS_PAPER},
    ),
    "direct_bootstrap_500": Method(
        "the same with 500 resamples", "direct", {"inference": Bootstrap(n=500), **AS_PAPER}
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

RUN_GROUPS = ("headlines",)
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
    measures="Coverage of the intervals printed with exact bounds, beside the shares of runs that a rule refused one "
    "and that failed, misses by side (shares of all runs), mean width, bias, SE calibration (model SE / empirical "
    "SE), interval "
    "score, each averaged over the policies that its row names, with its Monte Carlo standard error. A method that "
    "never "
    "gives an estimate in a cell has no coverage there: labels_only cannot value a policy without labels.",
    protocol=Protocol(
        origin="The sizes, oracle fractions and number of replicates of the world smooth are those of the paper's "
        "table; its laws, which the paper does not give, are the scenario's defaults. The other worlds are "
        "chosen to be hard for borrowing, not to be typical. Written after the study's first runs.",
        replicates="1,000 for an MCSE of .7 points of a coverage of 95%, 300 for 1.3; the paper's 50 seeds give 3.",
        failures="Coverage is that of the intervals printed; the shares of runs refused one by rule, and failed, stand "
        "beside it. Bias, width and the interval score are over the estimates there are. A method "
        "without an interval in a whole cell has no coverage there.",
        primary="Coverage of the 95% interval of values, by method and label design, averaged over the policies.",
        relevant="A coverage below 93% matters to a user, and a width 5% above another's that covers as well.",
    ),
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
            {name: {"inference": Bootstrap(n=50)} for name in PAPER["bootstrap"]},
        ),
        "quick": Profile(
            300,
            {},
            {"direct_bootstrap": {"inference": Bootstrap(n=300)}},
            ("aug_jackknife", "plug_in_bootstrap", "direct_bootstrap_500"),
        ),
        "paper": Profile(1000, {"n": (250, 500, 1000, 2500), "oracle_fraction": (0.05, 0.1, 0.25, 0.5)}),
    },
    setting=setting,
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    keep=keep,
    legend={"world": {name: world.holds for name, world in WORLDS.items() if world.holds}},
    table=table,
    figure=figure,
    findings=findings,
    claims=("naive-zero-coverage", "tab-uq-comparison"),
    block=50,  # half a second's work: what all replicates of a block share costs as much as two of them
)
