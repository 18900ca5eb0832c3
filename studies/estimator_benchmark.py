"""The paper's thirteen estimators over its grid of sample sizes and labelled shares, beside the paper's own numbers.

After the section "Experiments" of "Causal Judge Evaluation": 5 sample sizes x 5 oracle fractions x 50 seeds, labels
under the base policy only, logged responses of the base policy with teacher-forced log-likelihoods. Here the world is
`cje_sim.scenarios.arena_like`, whose true values are known by quadrature, so that every ordering that the paper draws
from its table can be held against a truth without noise. The paper's truth is a mean of labels; RMSE^d takes its noise
off, and is computed here as the paper has it, from such a truth, beside the RMSE that it stands for.

Base and clone have the same value: their pair has no right order and is left out of the rankings.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.estimators import direct
from cje_core.estimators.direct import Bootstrap
from cje_core.figures.style import GREY, OKABE_ITO
from cje_core.inference.estimate import Status
from cje_core.streams import Cell, Streams
from cje_core.verdict.refusal import partial_identification
from cje_core.workflow.judging import ORDERED
from cje_core.workflow.paper import ALGORITHMS, PAPER
from cje_sim import simulate
from studies.engine.grids import (
    RULE,
    Average,
    Ranking,
    average,
    over_policies,
    ranked,
    rows_of,
    scored,
)
from studies.engine.measures import summary_table
from studies.engine.outcome import Outcome
from studies.engine.panels import legend
from studies.engine.scenario import replicate_with_facts
from studies.engine.sentences import ANSWER
from studies.engine.study import Finding, Method, Profile, Protocol, Study

POLICIES = ("base", "clone", "parallel_universe_prompt", "premium", "unhelpful")
ADVERSARIAL = (
    "unhelpful"  # left out of accuracy and coverage, as in the paper: its calibration does not transport
)
N_TRUTH = 4961  # labels per policy behind the truth as the paper measures it
CONTROL = "all-labels"
ROWS = tuple(PAPER)
NEAR_CHANCE = 0.55  # pairwise accuracy up to which a ranking is called near or below chance
RESTORED = 0.8  # ESS/n that the paper says stabilised weights reach for target policies
EQUIVALENT = 0.1  # RMSE within 10% is called the same
PAIRS = "Of nine pairs of five policies; base and clone, equal by construction, are left out."
TRUSTED = f"Left out: {ADVERSARIAL}, to which the calibration does not transport by construction."


# "Causal Judge Evaluation", table "Accuracy & Uncertainty Metrics": shares in percent, se a geometric mean.
SHOWN = ("rmse_d", "interval_score", "coverage", "se", "pairwise", "top1", "tau", "seconds")
_ROWS = {
    "naive-direct": (0.0828, 2.9580, 0.0, 0.0039, 90.9, 79.6, 0.817, 0.4),
    "direct": (0.0223, 0.0542, 85.0, 0.0068, 91.8, 84.1, 0.837, 0.7),
    "direct+cov": (0.0256, 0.0568, 86.1, 0.0074, 94.4, 89.5, 0.888, 1.6),
    "SNIPS": (0.1596, 0.7379, 98.3, 0.1815, 38.3, 8.7, -0.235, 0.3),
    "SNIPS+cov": (0.1842, 0.7544, 97.8, 0.1842, 37.4, 6.4, -0.252, 0.3),
    "calibrated-ips": (0.0246, 0.5727, 99.1, 0.0963, 47.1, 19.0, -0.059, 0.3),
    "calibrated-ips+cov": (0.0262, 0.6084, 99.2, 0.1027, 46.5, 20.5, -0.070, 0.4),
    "dr-cpo": (0.0459, 0.2203, 99.2, 0.0371, 78.3, 46.3, 0.566, 3.1),
    "dr-cpo+cov": (0.0570, 0.2657, 99.4, 0.0449, 79.1, 50.1, 0.581, 9.6),
    "calibrated-dr-cpo": (0.0224, 0.1357, 99.5, 0.0230, 90.9, 81.0, 0.818, 3.2),
    "calibrated-dr-cpo+cov": (0.0260, 0.1398, 99.3, 0.0236, 94.1, 87.7, 0.882, 9.7),
    "stacked-dr": (0.0224, 0.0788, 95.6, 0.0125, 91.9, 83.1, 0.838, 8.9),
    "stacked-dr+cov": (0.0281, 0.0806, 96.1, 0.0128, 92.1, 84.8, 0.842, 38.2),
}
PRINTED = {method: dict(zip(SHOWN, row, strict=True)) for method, row in _ROWS.items()}
ABLATIONS = (
    ("reward calibration", "naive-direct", "direct"),
    ("weight stabilisation of IPS", "SNIPS", "calibrated-ips"),
    ("weight stabilisation of DR", "dr-cpo", "calibrated-dr-cpo"),
    *((f"covariate: {name}", name, f"{name}+cov") for name in ROWS if f"{name}+cov" in ROWS),
    ("doubly robust: stack against plug-in", "direct", "stacked-dr"),
)
FACTS = ("ess_fraction", "ess_fraction_raw")
BOUNDS = ("order_lower", "order_upper")  # of what orders a policy whose value is refused
DEFAULT = "direct-default"
HEADS = {
    "Accuracy and intervals, averages over the grid, beside the paper's table 'Accuracy & Uncertainty Metrics'": {
        "rmse": "RMSE", "rmse_d": "RMSE^d", "interval_score": "interval score", "coverage": "coverage",
        "refused": "refused", "failed": "failed", "se": "SE",
    },
    "Rankings and run time, averages over the grid, beside the same table": {
        "pairwise": "pairwise", "right_of_ordered": "of ordered", "unordered": "no order", "top1": "top-1",
        "tau": "tau", "seconds": "seconds",
    },
    "Accuracy against the exact truth and against one measured by labels": {
        "rmse": "RMSE, exact truth", "rmse_d": "RMSE^d, bound .25/n", "rmse_d_estimated": "RMSE^d, estimated variance",
    },
}  # fmt: skip
DRAWN = ("naive-direct", "direct", "direct+cov", "SNIPS", "calibrated-ips", "dr-cpo", "calibrated-dr-cpo")
PERCENT = ("coverage", "refused", "failed", "pairwise", "right_of_ordered", "unordered", "top1")


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """All estimators on one data set; ESS/n before and after what they do to weights; a truth measured by labels."""
    found = replicate_with_facts(study, cell, streams, of_estimate=_effective, all_labelled=(CONTROL,))
    order = _order_bounds(study, cell, streams, np.asarray(found.status))
    world = {"n": N_TRUTH, "oracle_fraction": 1.0, "label_design": "own"}
    drawn = simulate("arena_like", rng=streams("measured truth"), **world)
    labels = drawn["oracle"].sel(policy=list(study.policies)).isel(draw=0)
    measured = {
        "measured_truth": labels.mean("prompt"),
        "measured_variance": labels.var("prompt", ddof=1) / N_TRUTH,
    }
    ess = dict.fromkeys(FACTS, np.full((len(study.methods), len(study.policies)), np.nan))
    shown: dict[str, Any] = {**ess, **found.extra, **{name: v.values for name, v in measured.items()}}
    return replace(found, extra=shown | dict(zip(BOUNDS, order, strict=True)))


def _order_bounds(study: Study, cell: Cell, streams: Streams, status: Any) -> list[Any]:
    """Return the lower and upper ends by which the default orders policies whose value it refuses, (M, P) each.

    As `cje_core.verdict.refusal.rank_only`: a policy refused for want of support enters with its partial identification
    interval (a monotone E[Y | S], as the calibrator takes it), every other with its estimate's interval, all of
    probability 97.5%: two that lie apart order a pair with error 5% at most. NaN for other methods.
    """
    ends = [np.full(status.shape, np.nan) for _ in BOUNDS]
    place = list(study.methods).index(DEFAULT) if DEFAULT in study.methods else -1
    if place < 0 or not (status[place] == Status.LOW_SUPPORT).any():
        return ends
    data = simulate("arena_like", **cell, rng=streams("data"))
    interval = direct.estimate(data, ci_prob=ORDERED)["interval"].sel(policy=list(study.policies))
    wide = partial_identification(data, ci_prob=ORDERED, monotone=True)["interval"].sel(
        policy=list(study.policies)
    )
    used = np.where((status[place] == Status.LOW_SUPPORT)[:, None], wide.values, interval.values)
    for k, end in enumerate(ends):
        end[place] = used[:, k]
    return ends


def _effective(estimate: xr.Dataset) -> dict[str, xr.DataArray]:
    return {name: estimate[name] for name in FACTS if name in estimate}


def _without(ds: xr.Dataset, policy: str) -> xr.Dataset:
    return ds.sel(policy=[p for p in ds["policy"].values if p != policy])


def averages(ds: xr.Dataset) -> dict[str, Average]:
    """The paper's measures per method: averages over cells of what each cell's replicates give.

    Accuracy and uncertainty leave the adversarial policy out, rankings keep it. Coverage is of the intervals printed,
    each policy with the same weight, beside the shares of runs refused one and failed; errors and scores are over the
    replicates in which every policy has a number. A pair whose value is refused has the order that is printed for it; a
    pair without one is not right, nor is it wrong: `right_of_ordered` is the accuracy among the pairs with an order.
    RMSE^d is ``sqrt(max(0, MSE - Var(truth)))`` of a cell, its truth the mean of 4,961 labels and Var at most
    .25 / 4,961 (the paper's bound: ``rmse_d``) or estimated from these labels (``rmse_d_estimated``). RMSEs are roots
    of a mean over policies, as the paper's. The interval score is a cell's mean, averaged geometrically over cells.
    """
    trusted = _without(ds, ADVERSARIAL)
    part, order = scored(trusted), _ranked(ds)
    pairwise = average(order.pairwise)
    with np.errstate(invalid="ignore"):  # a method may order no pair at all
        right_of_ordered = pairwise.over(average(1 - order.unordered))
    measured = rows_of(trusted["measured_truth"], "policy")[:, :, None]
    off = (rows_of(trusted["estimate"], "method", "policy") - measured) ** 2
    variance = rows_of(trusted["measured_variance"], "policy").mean(axis=-1)[:, :, None]
    return {
        "rmse": average((part["error"] ** 2).mean(axis=-1), "root"),
        "rmse_d": average(off.mean(axis=-1), "root", debias=0.25 / N_TRUTH),
        "rmse_d_estimated": average(off.mean(axis=-1), "root", debias=variance),
        "interval_score": average(part["interval_score"].mean(axis=-1), "log").exp(),
        "coverage": over_policies(part["hit"]),
        "refused": over_policies(part["refused"]),
        "failed": over_policies(part["failed"]),
        "se": average(np.log(part["std_error"]).mean(axis=-1)).exp(),
        "pairwise": pairwise,
        "right_of_ordered": right_of_ordered,
        "unordered": average(order.unordered),
        "top1": average(order.top1),
        "tau": average(order.tau),
        "seconds": average(rows_of(ds["seconds"], "method")),
    }


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Ours beside the paper's; the ablations; ESS; the two ways to take the truth's noise off; every cell.

    Coverage, pairwise and top-1 accuracy in percent, as in the paper; SE is a geometric mean.
    """
    found = averages(ds)
    heads = {title: _columns(found, ds, words, "measured" not in title) for title, words in HEADS.items()}
    return {
        **heads,
        "Ablations: what each part changes (paired)": _ablations(ds, found),
        "ESS/n of the weights by policy": _effective_table(ds),
        "Every cell": summary_table(
            _without(ds, ADVERSARIAL), ("rmse", "coverage", "width", "interval_score")
        ),
    }


def _ranked(ds: xr.Dataset) -> Ranking:
    """`ranked`, with the order that the default gives where it refuses a value."""
    return ranked(ds, BOUNDS if BOUNDS[0] in ds else None)


def _columns(
    found: dict[str, Average], ds: xr.Dataset, words: dict[str, str], printed: bool = False
) -> pd.DataFrame:
    out = pd.DataFrame({"method": [str(m) for m in ds["method"].values]})
    for name, said in words.items():
        factor = 100.0 if name in PERCENT else 1.0
        out[said], out[f"{said}_mcse"] = factor * found[name].value, factor * found[name].mcse
        if printed and name in SHOWN:
            out[f"{said}, paper"] = [PRINTED.get(m, {}).get(name, np.nan) for m in out["method"]]
    return out


def _ablations(ds: xr.Dataset, found: dict[str, Average]) -> pd.DataFrame:
    place = {str(m): k for k, m in enumerate(ds["method"].values)}
    rows = []
    for what, without, having in ABLATIONS:
        if without not in place or having not in place:
            continue
        a, b = place[having], place[without]
        ratio = found["rmse"].at(a).over(found["rmse"].at(b))
        row: dict[str, Any] = {"part": what, "without": without, "with": having}
        row |= {"RMSE change, %": 100 * (ratio.value[0] - 1), "RMSE change, %_mcse": 100 * ratio.mcse[0]}
        said = PRINTED[having]["rmse_d"] / PRINTED[without]["rmse_d"]
        row["RMSE^d change, %, paper"] = 100 * (said - 1)
        for name in ("pairwise", "coverage"):
            gain = found[name].at(a).less(found[name].at(b))
            row |= {f"{name}, points": 100 * gain.value[0], f"{name}, points_mcse": 100 * gain.mcse[0]}
            row[f"{name}, points, paper"] = PRINTED[having][name] - PRINTED[without][name]
        rows.append(row)
    return pd.DataFrame(rows)


def _ess(ds: xr.Dataset, method: str, name: str) -> Average:
    """ESS/n of a method's weights by policy, in the place of the methods."""
    return average(rows_of(ds[name].sel({"method": method}, drop=True), "policy"))


def _effective_table(ds: xr.Dataset) -> pd.DataFrame:
    rows = pd.DataFrame({"policy": [str(p) for p in ds["policy"].values]})
    for words, method, name in (
        ("raw", "SNIPS", FACTS[1]), ("clipped (SNIPS)", "SNIPS", FACTS[0]),
        ("stabilised, IPS", "calibrated-ips", FACTS[0]), ("stabilised, DR", "calibrated-dr-cpo", FACTS[0]),
    ):  # fmt: skip
        if method in ds["method"].values:
            found = _ess(ds, method, name)
            rows[words], rows[f"{words}_mcse"] = found.value, found.mcse
    return rows


def findings(ds: xr.Dataset) -> list[Finding]:
    """Which of the orderings that the paper draws from its table hold here."""
    place = {str(m): k for k, m in enumerate(ds["method"].values)}
    if not set(ROWS) <= set(place):
        return []
    found = averages(ds)
    return [
        _best(found, place),
        _near_chance(found, place),
        _effective_but_useless(ds, found, place),
        _stacked_is_direct(found, place),
        _covariates(found, place),
        _calibrated(found, place),
    ]


def _best(found: dict[str, Average], place: dict[str, int]) -> Finding:
    others = [m for m in ROWS if m != "direct+cov"]
    accuracy = found["pairwise"]
    lead = accuracy.at(place["direct+cov"]).less(accuracy.at(*(place[m] for m in others)))
    k = int(np.argmin(lead.value))
    holds = False if (lead.high < 0).any() else True if (lead.low > 0).all() else None
    extra = [
        f"{m} {accuracy.said(k, percent=True)} of all pairs, {found['right_of_ordered'].said(k, percent=True)} of "
        f"those that it orders (no order: {found['unordered'].said(k, percent=True)})"
        for m, k in place.items()
        if m not in ROWS
    ]
    return Finding(
        f"Does direct+cov rank policies best? {ANSWER[holds]}: it orders "
        f"{accuracy.said(place['direct+cov'], percent=True)} of the policy pairs rightly, the best of the other "
        "twelve, "
        f"{others[k]}, {accuracy.said(place[others[k]], percent=True)}: a lead of {lead.said(k, percent=True)} (the "
        f"paper: direct+cov ranks best, {PRINTED['direct+cov']['pairwise']:g}%). {PAIRS} Not among the thirteen: "
        f"{', '.join(extra)}.",
        RULE + "0 for the lead over each of the twelve: all above holds, one below does not",
        holds,
    )


def _near_chance(found: dict[str, Average], place: dict[str, int]) -> Finding:
    rows = ("SNIPS", "SNIPS+cov", "calibrated-ips", "calibrated-ips+cov")
    mine = found["pairwise"].at(*(place[m] for m in rows))
    shown = ", ".join(f"{m} {mine.said(k, percent=True)}" for k, m in enumerate(rows))
    printed = ", ".join(str(PRINTED[m]["pairwise"]) for m in rows)
    below, above = (mine.high <= NEAR_CHANCE).all(), (mine.low > NEAR_CHANCE).any()
    holds = True if below else False if above else None
    return Finding(
        f"Does importance sampling rank near or below chance? {ANSWER[holds]}: shares of pairs in the right order, "
        f"chance being 50%, are {shown} (the paper: {printed}). {PAIRS}",
        RULE + f"{NEAR_CHANCE:.0%}: every row below holds, one above does not",
        holds,
    )


def _effective_but_useless(ds: xr.Dataset, found: dict[str, Average], place: dict[str, int]) -> Finding:
    targets = _without(ds, "base")
    raw, stable = _ess(targets, "SNIPS", "ess_fraction_raw"), _ess(targets, "calibrated-ips", "ess_fraction")
    k = int(np.argmin(stable.value))
    gain = found["pairwise"].at(place["calibrated-ips"]).less(found["pairwise"].at(place["direct"]))
    fine = stable.low[k] > RESTORED and gain.high[0] < 0
    fails = stable.high[k] < RESTORED or gain.low[0] > 0
    holds = True if fine else False if fails else None
    return Finding(
        f"Does stabilisation restore ESS without making the weights useful? {ANSWER[holds]}: it raises ESS/n "
        f"of the worst target ({targets['policy'].values[k]}) from {raw.said(k, percent=True)} to "
        f"{stable.said(k, percent=True)}; the share of pairs that calibrated-ips orders "
        f"rightly, less that of direct: {gain.said(percent=True)}. ESS/n is averaged over the grid. {PAIRS}",
        RULE + f"{RESTORED:.0%} for ESS/n of every target, and 0 for calibrated-ips less direct",
        holds,
    )


def _stacked_is_direct(found: dict[str, Average], place: dict[str, int]) -> Finding:
    ratio = found["rmse"].at(place["stacked-dr"]).over(found["rmse"].at(place["direct"]))
    same = ratio.low[0] >= 1 - EQUIVALENT and ratio.high[0] <= 1 + EQUIVALENT
    apart = ratio.high[0] < 1 - EQUIVALENT or ratio.low[0] > 1 + EQUIVALENT
    printed = PRINTED["stacked-dr"]["rmse_d"] / PRINTED["direct"]["rmse_d"]
    holds = True if same else False if apart else None
    return Finding(
        f"Is stacked-dr as accurate as direct? {ANSWER[holds]}: its RMSE is {ratio.said()} times that of direct (the "
        f"paper: {printed:.3f}). {TRUSTED} {_silent(found, place, ('stacked-dr', 'direct'))}",
        RULE + f"1 +- {EQUIVALENT:g}: inside is the same, outside is not",
        holds,
    )


def _covariates(found: dict[str, Average], place: dict[str, int]) -> Finding:
    plain = [name for name in ROWS if f"{name}+cov" in ROWS]
    gain = found["pairwise"].at(*(place[f"{m}+cov"] for m in plain))
    gain = gain.less(found["pairwise"].at(*(place[m] for m in plain)))
    shown = ", ".join(f"{m} {gain.said(k, percent=True)}" for k, m in enumerate(plain))
    printed = sum(PRINTED[f"{m}+cov"]["pairwise"] > PRINTED[m]["pairwise"] for m in plain)
    holds = False if (gain.high < 0).any() else True if (gain.low > 0).all() else None
    return Finding(
        f"Does response length as a covariate improve every family? {ANSWER[holds]}: pairwise accuracy changes by "
        f"{shown} (in the paper's own table it rises in {printed} of {len(plain)}). {PAIRS}",
        RULE + "0: all six above holds, one below does not",
        holds,
    )


def _calibrated(found: dict[str, Average], place: dict[str, int]) -> Finding:
    ratio = found["rmse"].at(place["direct"]).over(found["rmse"].at(place["naive-direct"]))
    less = ratio._replace(value=1 - ratio.value)
    covered = {m: found["coverage"].said(k, percent=True) for m, k in place.items()}
    others = ", ".join(f"{m} {covered[m]}" for m in place if m not in ROWS)
    holds = True if ratio.high[0] < 1 else False if ratio.low[0] > 1 else None
    return Finding(
        f"Does calibration lower the RMSE? {ANSWER[holds]}: it takes {less.said(percent=True)} off that of the judge's "
        f"mean (the paper: 72%). Intervals cover {covered['naive-direct']} without, {covered['direct']} with the "
        f"paper's jackknife; {others}. {TRUSTED} {_silent(found, place, place)}",
        RULE + "1 for the ratio of the RMSEs, direct to naive-direct",
        holds,
    )


def _silent(found: dict[str, Average], place: dict[str, int], methods: Collection[str]) -> str:
    """Return which methods were refused intervals, or failed, and in which share of the runs."""
    words = [
        f"{m} {what} {found[what].said(place[m], percent=True)}"
        for m in methods
        for what in ("refused", "failed")
        if found[what].value[place[m]] > 0
    ]
    return (
        f"Runs without an interval are not counted: {', '.join(words)}." if words else "No run was refused."
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Accuracy and ranking of every row, ours beside the paper's; pairwise accuracy over the grid."""
    found, methods = averages(ds), [str(m) for m in ds["method"].values]
    fig = Figure(figsize=(10, 0.26 * len(methods) + 1.4), layout="constrained")
    axes = fig.subplots(1, 4, sharey=True)
    at = np.arange(len(methods))[::-1]
    panels = (("rmse", "RMSE"), ("interval_score", "interval score"), ("coverage", "coverage, %"))
    for ax, (name, words) in zip(axes, (*panels, ("pairwise", "pairwise accuracy, %")), strict=True):
        factor = 100.0 if words.endswith("%") else 1.0
        value, error = factor * found[name].value, 1.96 * factor * found[name].mcse
        ax.errorbar(value, at, xerr=error, fmt="o", ms=4, color=OKABE_ITO[0], label="here (95% Monte Carlo)")
        for silent, mark in (("refused", "o"), ("failed", "x")) if name == "coverage" else ():
            share = 100 * found[silent].value
            ax.plot(
                share[share > 0],
                at[share > 0],
                mark,
                mfc="none",
                color="black",
                ms=4,
                label=f"share {silent}",
            )
        said = [PRINTED.get(m, {}).get({"rmse": "rmse_d"}.get(name, name), np.nan) for m in methods]
        ax.plot(said, at, "x", ms=5, color=OKABE_ITO[1], label="the paper's table")
        ax.set(xlabel=words, xscale="linear" if factor > 1 else "log")
        if factor > 1:
            ax.set(xlim=(-3, 103))
            level = 50.0 if name == "pairwise" else 100 * ds.attrs["ci_prob"]
            ax.axvline(level, color=GREY, ls="--", lw=1, zorder=0)
    axes[0].set_yticks(at, methods)
    legend(fig)
    return {
        "Averages over the grid beside the paper's table (its RMSE^d beside our RMSE against the exact truth). Dashed: "
        "nominal coverage; chance.": fig,
        "Pairwise accuracy by sample size, one panel per labelled share; bars: 95% Monte Carlo. Dashed: "
        "chance.": _grid_figure(ds),
    }


def _grid_figure(ds: xr.Dataset) -> Figure:
    fractions = ds["oracle_fraction"].values
    fig = Figure(figsize=(2.3 * len(fractions) + 0.6, 3.2), layout="constrained")
    axes = fig.subplots(1, len(fractions), sharey=True, squeeze=False)[0]
    shown = [m for m in DRAWN if m in ds["method"].values]
    for ax, fraction in zip(axes, fractions, strict=True):
        part = ds.sel(oracle_fraction=[fraction]).sel({"method": shown})
        level = [average(_ranked(part.sel(n=[n])).pairwise) for n in ds["n"].values]
        for k, method in enumerate(shown):
            value, error = [100 * one.value[k] for one in level], [196 * one.mcse[k] for one in level]
            look = {"color": OKABE_ITO[k], "marker": "o", "ms": 3, "lw": 1, "label": method}
            ax.errorbar(ds["n"].values, value, error, **look)
        ax.axhline(50, color=GREY, ls="--", lw=1, zorder=0)
        ax.set(title=f"{float(fraction):.0%} labelled", xlabel="prompts", xscale="log")
        ticks = [int(n) for n in ds["n"].values]
        ax.set_xticks(ticks, [f"{n:,}" for n in ticks], rotation=45)
        ax.minorticks_off()
    axes[0].set(ylabel="pairs in the right order, %", ylim=(-3, 103))
    legend(fig)
    return fig


BOOTSTRAP = {**ALGORITHMS["bootstrap-direct"][1], "inference": Bootstrap(n=200, n_min=None)}
RUN_GROUPS = ("compiling", "paper_pages")
STUDY = Study(
    name="estimator_benchmark",
    title="Thirteen estimators on the paper's grid, beside the paper's numbers",
    aims="Find out which of the orderings that the paper draws from its benchmark hold where the truth is known: "
    "Direct with a covariate ranks best, importance sampling ranks near or below chance although stabilised weights "
    "have a large effective sample size, doubly robust stacks do what Direct does, covariates improve every family.",
    mechanism="Scenario arena_like, fitted to public facts of the paper's data: a judge of 14 levels, four target "
    "policies (a copy, a changed prompt, a bigger model, an adversarial one whose calibration is .3 off), logged "
    "responses of the base policy with teacher-forced log-likelihoods, one in ten with error; a random share of the "
    "base policy's prompts is labelled.",
    estimands="V(policy) = E[Y], by quadrature. Base and clone have the same value, so nine pairs have an order.",
    measures="RMSE, the paper's RMSE^d, interval score (mean of a cell, geometric mean over cells), coverage, "
    "geometric mean of the standard errors, without the adversarial policy; pairwise accuracy, top-1, Kendall's tau "
    "with it, a pair whose value the default refuses having the order that its bounds give; seconds. Averages over "
    "the cells of the grid; their errors keep the pairing of methods.",
    scenario="arena_like",
    worlds=("arena_like",),  # for the truth as labels measure it
    factors={"n": (500, 1000, 2000, 3000, 5000), "oracle_fraction": (0.05, 0.1, 0.25, 0.5, 1.0)},
    policies=POLICIES,
    methods={
        **{
            name: Method(f"the paper's row {name}", module, options)
            for name, (module, options) in PAPER.items()
        },
        "bootstrap-direct": Method(
            "the paper's algorithm Bootstrap-Direct, 200 resamples", "direct", BOOTSTRAP
        ),
        DEFAULT: Method(
            "this package's default; a pair with a refused value has the order that its bounds give", "direct"
        ),
        CONTROL: Method("control, unbiased: mean of an oracle label of every response", "labels_only"),
    },
    profiles={
        "smoke": Profile(2, {"n": (500,), "oracle_fraction": (0.25, 1.0)}),
        "quick": Profile(12, {"n": (500, 2000), "oracle_fraction": (0.05, 0.25, 1.0)}),
        "paper": Profile(50),
    },
    replicate=replicate,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="rounded summary facts of the public Arena sample and of the paper's tables, see "
        "cje_sim.scenarios.arena_like; grid, methods and replicates are the paper's",
        replicates="50 per cell, 1,250 in all, as in the paper: the MCSE of an accuracy averaged over the grid is "
        "at most .5/sqrt(1250) = 1.4 points",
        failures="a pair without two numbers has the order that is printed for it; one without an order is not counted "
        "as right, and the accuracy among the pairs that have an order stands beside; coverage is of the intervals "
        "printed, and a run without a number is left out of RMSE and interval score",
        primary="pairwise accuracy of the five policies' values, averaged over the grid",
        relevant="5 points of pairwise accuracy; 10% of RMSE",
    ),
    claims=("tab-accuracy", "tab-ablation", "ess-not-sufficient", "covariates-matter"),
    block=10,
)
