"""Our default beside its peers, each by its public call with its own defaults, on the same data of known truth.

Peers are Python packages that put an interval on a mean from judge scores of which a few are labelled. They run in the
interpreters that ``--peers PYTHON`` (repeatable) or ``CJE_LAB_PEERS`` names, else in this one; one that is nowhere is
left out. Every cell asks for two values from the labels of one policy: that policy's own, and that of a second policy,
which has judge scores only.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.figures.style import GREY, looks
from cje_core.streams import Cell
from studies.engine.measures import side_by_side
from studies.engine.panels import legend, marks, plain_log
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study
from studies.referee import calls, verdict
from studies.referee.match import replicate

OURS = "direct"
CONTROLS = ("raw_judge",)
N = 500


class World(NamedTuple):
    """A scenario, its policy without labels, and what fails by construction for a calibrator borrowed there."""

    title: str
    scenario: str
    target: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    fails: str = ""
    holds: str = ""  # by construction, for the page; the older worlds stand in the study's mechanism


DROPS = "3% of the labels are .1, the others near .9; the judge sees half of the drops; the calibration transports"
WORLDS = {
    "strong": World(
        "strong judge", "well_specified", "better", {"low": 0.05, "high": 0.95, "spread": 0.3, "atoms": 0.0}
    ),
    "smooth": World("good judge", "well_specified", "better"),
    "discrete": World("few judge levels", "discrete_judge", "worse"),
    "weak": World("weak judge", "weak_judge", "better"),
    "useless": World(
        "useless judge", "useless_judge", "better", {}, "the base policy's calibration is wrong"
    ),
    "binary": World("pass/fail", "binary_oracle", "better"),
    "binary_weak": World(
        "pass/fail, weak judge", "binary_oracle", "better", {"link": "linear", "low": 0.45, "high": 0.75}
    ),
    "few_levels": World("judge of 3 levels, pass/fail", "few_levels", "better"),
    "binary_high": World("pass/fail, nearly all pass", "binary_oracle", "better", {"low": 0.8, "high": 0.99}),
    "rare_drops": World("labels that rarely drop far", "rare_drops", "same", holds=DROPS),
}
DESIGNS = ("own", "borrowed")
TITLES = {
    "own": "Labels of the policy's own. Coverage of the intervals printed with exact 95% Monte Carlo bounds (dashed: "
    "nominal), share of runs refused one (crosses: failed), and our "
    "default's mean interval score over the method's on the same data, with 95% Monte Carlo bounds: above 1 the method "
    "is better.",
    "borrowed": "Labels of another policy only. Coverage of the intervals printed with exact 95% Monte Carlo bounds "
    "(dashed: nominal), share of runs refused one (crosses: failed), and our default's mean interval score over the "
    "method's on the replicates where our "
    "default prints one: above 1 the method is better. For the useless judge the calibration of the lender is wrong.",
}
WIDE = 4  # worlds in a figure
COLOURS = 8  # of the palette


def holds(design: str, world: str) -> bool:
    """Whether our default's assumptions hold: own labels are a random sample, a calibration that is lent transports."""
    return design == "own" or not WORLDS[world].fails


def setting(study: Study, cell: Cell) -> Setting:
    """The cell's world, with the labels under the base policy only."""
    world = WORLDS[str(cell["world"])]
    fraction = int(cell["labels"]) / int(cell["n"])
    arguments = {"n": cell["n"], "oracle_fraction": fraction, "label_design": "base", **world.arguments}
    return Setting(world.scenario, ("base", world.target), arguments, study.methods)


def _at_n(ds: xr.Dataset) -> xr.Dataset:
    return ds.sel(n=ds["n"].values.max())


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Who is best in each cell; ratios, coverage, failures and times side by side; every measure. At the largest n."""
    at_n = _at_n(ds)
    names, every, pairs = verdict.that_ran(at_n), verdict.measured(at_n), verdict.against(at_n, OURS)
    best = verdict.champions(at_n, OURS, CONTROLS)
    shown = [
        "best",
        "best_ratio",
        "best_coverage",
        "covering",
        "covering_ratio",
        "coverage",
        "refused",
        "failed",
    ]
    columns = [c for name in shown for c in (name, f"{name}_mcse") if c in best]
    title = f"Lowest interval score, and {OURS}'s over it: of all, and of those that cover; "
    out = {f"{title}coverage of {OURS} and shares refused and failed": best[[*verdict.CELL, *columns]]}
    for title, name in (
        (
            f"Interval score of {OURS} over the method's, same data (above 1: the method is better)",
            "score_ratio",
        ),
        (f"Interval score of {OURS} less the method's, same data", "score_difference"),
        (f"Width of {OURS}'s intervals over the method's, same data", "width_ratio"),
    ):
        if name in pairs:
            out[title] = side_by_side(pairs, verdict.CELL, name, names)
    title = "Coverage of the 95% intervals printed, and share of runs refused or failed where any was"
    out[title] = side_by_side(every, verdict.CELL, "coverage", names, first=(OURS,))
    return {**out, "Milliseconds for both values": _times(at_n), "All measures": every}


def _times(ds: xr.Dataset) -> pd.DataFrame:
    """Median and 95th percentile over worlds and replicates, wall time of the call without handing over the data."""
    taken = (1000 * ds["seconds"]).to_series().dropna().groupby("method", sort=False)
    shown = pd.DataFrame({"median": taken.median(), "95th percentile": taken.quantile(0.95)})
    return shown.reset_index()


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Coverage over relative interval score by labels; a figure for each label design and four worlds."""
    at_n = _at_n(ds)
    pairs = verdict.against(at_n, OURS)
    worlds = [str(name) for name in ds["world"].values]
    made = {}
    for design in DESIGNS:
        for first in range(0, len(worlds), WIDE):
            some = worlds[first : first + WIDE]
            made[f"{', '.join(WORLDS[w].title for w in some).capitalize()}. {TITLES[design]}"] = _panels(
                at_n.sel(policy=[design]), pairs[pairs["design"] == design], some
            )
    return made


def _panels(ds: xr.Dataset, pairs: pd.DataFrame, worlds: list[str]) -> Figure:
    from matplotlib import pyplot as plt

    from studies.engine.measures import performance

    names = [name for name in verdict.that_ran(ds) if name not in CONTROLS]
    shown = [name for name in METHODS if name not in CONTROLS]
    style = looks(shown)
    for name in shown[COLOURS:]:  # the palette begins again: hollow marks
        style[name]["mfc"] = "white"
    size = (2.3 * len(worlds) + 0.8, 7.0)
    ratios = (2, 1, 2)
    fig, axes = plt.subplots(
        3, len(worlds), figsize=size, sharex="col", sharey="row", squeeze=False, height_ratios=ratios
    )
    labels = [int(m) for m in ds["labels"].values]
    step = 0.8 / max(len(names), 1)
    for (top, middle, bottom), world in zip(axes.T, worlds, strict=True):
        part = performance(ds.sel(world=world), measures=("coverage", "refused", "failed"), pool=True)
        drawn = {m: style[m] for m in names}
        marks(top, part, "coverage", "labels", drawn, step)
        for name in ("refused", "failed"):
            cross = {} if name == "refused" else {"marker": "x"}
            some = {m: {**look, **cross} for m, look in drawn.items() if not cross or _ever(part, name, m)}
            marks(middle, part, name, "labels", some, step)
        top.axhline(ds.attrs["ci_prob"], color=GREY, ls="--", lw=1, zorder=0)
        top.set(title=WORLDS[world].title)
        for k, name in enumerate(names):
            rows = pairs[(pairs["world"] == world) & (pairs["method"] == name)]
            at = [labels.index(m) + step * (k - (len(names) - 1) / 2) for m in rows["labels"]]
            error = verdict.Z * rows["score_ratio_mcse"]
            bottom.errorbar(at, rows["score_ratio"], error, **style[name], ls="none", ms=4, lw=1)
        bottom.axhline(1, color=style[OURS]["color"], lw=1, zorder=0)
        bottom.set(xlabel="labels", xlim=(-0.5, len(labels) - 0.5))
        bottom.set_xticks(range(len(labels)), [str(m) for m in labels])
        plain_log(bottom)
    axes[0, 0].set(ylabel="coverage")
    axes[1, 0].set(ylabel="share without", ylim=(-0.04, 1.04))
    axes[2, 0].set(ylabel=f"{OURS}'s interval score / method's")
    legend(fig, list(METHODS))
    return fig


def _ever(measured: xr.Dataset, name: str, method: str) -> bool:
    """Whether a measure of a method is above 0 in some cell."""
    return bool((measured["value"].sel({"measure": name, "method": method}) > 0).any())


def findings(ds: xr.Dataset) -> list[Finding]:
    """See `studies.referee.verdict.findings`; the rule is asked for from 30 labels on."""
    return verdict.findings(_at_n(ds), OURS, CONTROLS, holds, 30)


METHODS = {
    "direct": Method(
        "Direct as it comes, the default of analyze: tuned, influence function, interval as it comes"
    ),
    "bayes_direct": Method("our Bayesian default: corrected posterior, equal-tailed"),
    "labels_only": Method("control, unbiased: mean oracle label, interval as it comes"),
    "raw_judge": Method("control, biased: mean judge score"),
    "cje_eval": Method(
        "cje-eval: calibrated_mean_ci; borrowed: analyze_dataset", calls.cje_eval, package="cje-eval"
    ),
    "ppi_python": Method("ppi-python: ppi_mean_ci (PPI++)", calls.ppi_python, package="ppi-python"),
    "ppi_aipw": Method(
        "ppi-aipw: mean_inference; borrowed: with its balancing weights", calls.ppi_aipw, package="ppi-aipw"
    ),
    "glide": Method("glide-py: PPIMeanEstimator", calls.glide, package="glide-py"),
    "evalstats": Method("evalstats: judge_debias_mean_ci", calls.evalstats, package="evalstats"),
    "truescore": Method("truescore: ppi_estimate", calls.truescore, package="truescore"),
}
SLOW = ("cje_eval", "evalstats")  # tenths of a second a value
FEW_DRAWS = {"bayes_direct": {"n_draws": 400}}

STUDY = Study(
    name="peers",
    title="Is our default as good as its peers', with few labels?",
    aims="Find out who has the best 95% interval of a policy's value when 15 to 100 responses carry oracle labels, by "
    "strength of the judge, kind of oracle, and whether the labels are the policy's own; say where a peer is better "
    "than our default, and by how much.",
    mechanism="Worlds of cje_sim.scenarios with n prompts; a simple random sample of the base policy's responses is "
    "labelled. Graded oracle: strong and smooth (well_specified, with little and with much noise), discrete "
    "(discrete_judge), weak (weak_judge), useless (useless_judge: scores independent of labels). Pass/fail oracle "
    "(binary_oracle): binary, binary_weak (success .45 to .75 along the scores), binary_high (.8 to .99).",
    estimands="V(policy) = E[Y], known by quadrature: of the base policy (own labels), and of a policy that has judge "
    "scores only (borrowed). For the useless judge the latter cannot be known from the base policy's labels.",
    measures="Coverage of the intervals printed, shares of runs refused one and failed, width, interval score, bias, "
    "time, each with its Monte Carlo "
    "standard error; ratio and difference of our default's interval score to each method's on the replicates where "
    "our default answers, with the standard error of a paired comparison; a method without an interval there is scored "
    "with the whole scale.",
    factors={"world": tuple(WORLDS), "n": (N,), "labels": (15, 30, 50, 100)},
    policies=DESIGNS,
    methods=METHODS,
    profiles={
        "smoke": Profile(
            3, {"world": ("smooth", "binary"), "labels": (30,)}, {"bayes_direct": {"n_draws": 100}}
        ),
        "quick": Profile(400, {}, {**FEW_DRAWS, **{name: {"replicates": verdict.ENOUGH} for name in SLOW}}),
        "paper": Profile(2000, {"n": (500, 2000)}, {name: {"replicates": 500} for name in SLOW}),
    },
    replicate=replicate,
    setting=setting,
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    legend={"world": {name: world.holds for name, world in WORLDS.items() if world.holds}},
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="scenarios as they come, but for the strength of the judge and the rate of success, which are chosen to "
        "span what LLM judges show; 15 to 100 labels, since that is what users have",
        replicates="quick 400: coverage of .95 to 1.1 points; paper 2,000: to .5 points, and a ratio of interval "
        "scores to one or two hundredths; two slow peers take part in the first 200 and 500 of them",
        failures="runs refused an interval and failed are counted apart; coverage is of the intervals printed; "
        "methods are compared where our default prints one, those that are silent there scored with the whole scale; "
        "an exception of a peer is its failure, kept with its text; a peer that is not installed is not run",
        primary="interval score of 95% intervals of a policy's value with labels of its own, 30 to 100 labels",
        relevant="our mean interval score more than 1.02 times the lowest",
    ),
    block=25,
)
