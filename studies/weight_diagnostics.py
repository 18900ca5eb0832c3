"""The paper's table of weight diagnostics, and what each diagnostic knows of the errors that were made.

After the table "Weight Diagnostics: Weight Stabilization" of "Causal Judge Evaluation": ESS raw and stabilised, tail
index, TTC and CLE factor by policy, in `cje_sim.scenarios.arena_like`, at the divergence fitted to the paper's data and
at fractions of it. A diagnostic that is to be read before an estimate is believed has to tell the runs that went wrong
from the others: this is measured by the area under the ROC curve for ``|error| > 0.02`` over policies, replicates and
divergences.
"""

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import ticker
from matplotlib.figure import Figure

from cje_core.checks import FloatArray
from cje_core.figures.style import GREY, MARKERS, OKABE_ITO
from cje_core.offpolicy.overlap import overlap
from studies.engine.grids import HALF, RULE, average, rows_of, scored
from studies.engine.measures import summary_table
from studies.engine.outcome import NOT_RUN
from studies.engine.panels import legend
from studies.engine.scenario import replicate_with_facts
from studies.engine.sentences import ANSWER, every, said
from studies.engine.study import Finding, Method, Profile, Protocol, Study

POLICIES = ("clone", "parallel_universe_prompt", "premium", "unhelpful")
TRUSTED = POLICIES[:3]  # the calibration transports to these: what is wrong with them is the weights
WRONG = 0.02  # absolute error that counts as failure: the difference that the paper's gate is to detect
TTC_GATE, RESTORED, SHALL = 0.70, 0.8, 0.8
LEVEL = 0.8  # target mass of the region behind the printed TTC (a clone has .796), not the .9 of the text
GROUPS = 20  # of replicates left out in turn, for the error of an area
# Sign: +1 where a large value says that the weights are healthy.
DIAGNOSTICS = {
    "ess_fraction": ("ESS/n raw", 1),
    "ess_fraction_stabilised": ("ESS/n stabilised", 1),
    "max_share": ("largest weight's share", -1),
    "hill": ("tail index", 1),
    "ttc": ("TTC", 1),
    "ttc_two_sided": ("TTC two-sided", 1),
    "cle_factor": ("CLE factor", -1),
    "affinity": ("judge-space affinity", 1),
}
WEIGHTED = ("snips", "calibrated_ips", "dr_cpo")
# "Causal Judge Evaluation", table "Weight Diagnostics: Weight Stabilization": ESS in percent, as the others here.
PRINTED = {
    "clone": {"ess_fraction": 26.2, "ess_fraction_stabilised": 99.0, "hill": 1.08, "ttc": 79.6, "cle_factor": 1.9},
    "parallel_universe_prompt": {
        "ess_fraction": 0.6, "ess_fraction_stabilised": 95.4, "hill": 0.56, "ttc": 49.4, "cle_factor": 60.5,
    },
    "premium": {"ess_fraction": 0.7, "ess_fraction_stabilised": 82.1, "hill": 0.32, "ttc": 19.0, "cle_factor": 23.8},
    "unhelpful": {"ess_fraction": 0.4, "ess_fraction_stabilised": 84.6, "hill": 0.13, "ttc": 25.6, "cle_factor": 37.6},
}  # fmt: skip
PERCENT = ("ess_fraction", "ess_fraction_stabilised", "ttc", "ttc_two_sided", "max_share")


def diagnose(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Overlap diagnostics by policy."""
    found = overlap(data, level=LEVEL)
    return {name: found[name] for name in DIAGNOSTICS}


def area(healthy: FloatArray, failed: FloatArray) -> float:
    """Area under the ROC curve: P(a failed run looks less healthy than a sound one), a tie counting one half.

    Examples
    --------
    >>> area(np.array([0.1, 0.5, 0.5, 0.9]), np.array([1.0, 1.0, 0.0, 0.0]))
    0.875
    """
    from scipy import stats  # loads slowly, and replicates never come here

    known = np.isfinite(healthy) & np.isfinite(failed)
    value, bad = healthy[known], failed[known] == 1
    if not bad.any() or bad.all():
        return np.nan
    rank = stats.rankdata(value)
    sound = int((~bad).sum())
    return float((rank[~bad].sum() - sound * (sound + 1) / 2) / (sound * bad.sum()))


def area_with_error(healthy: FloatArray, failed: FloatArray) -> tuple[float, float]:
    """`area` of (replicates, ...) and its MCSE: delete-a-group jackknife over replicates, which are independent."""
    group = np.arange(len(healthy)) % min(GROUPS, len(healthy))
    left = [area(healthy[group != g].ravel(), failed[group != g].ravel()) for g in np.unique(group)]
    spread = (len(left) - 1) / len(left) * ((np.array(left) - np.mean(left)) ** 2).sum()
    return area(healthy.ravel(), failed.ravel()), float(np.sqrt(spread))


def predictive(ds: xr.Dataset, method: str, name: str) -> tuple[float, float]:
    """Area, with its MCSE, of diagnostic `name` for failures of `method` over trusted policies and all cells."""
    part = ds.sel(policy=list(TRUSTED))
    error = scored(part)["error"][:, :, [str(m) for m in ds["method"].values].index(method)]
    failed = np.where(np.isfinite(error), (np.abs(error) > WRONG).astype(float), np.nan)
    healthy = DIAGNOSTICS[name][1] * rows_of(part[name], "policy")
    return area_with_error(np.moveaxis(healthy, 1, 0), np.moveaxis(failed, 1, 0))


def _paper_cell(ds: xr.Dataset) -> xr.Dataset:
    """The paper's divergence and the largest sample."""
    return ds.sel(shift=[ds["shift"].values.max()], n=[ds["n"].values.max()])


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """The paper's table with ours beside it; what each diagnostic predicts; failures by cell."""
    at, rows = _paper_cell(ds), []
    for name, (words, _) in DIAGNOSTICS.items():
        factor = 100.0 if name in PERCENT else 1.0
        runs = rows_of(at[name], "policy")
        found = average(runs)
        for k, policy in enumerate(str(p) for p in at["policy"].values):
            rows.append(
                {
                    "diagnostic": f"{words}, %" if name in PERCENT else words,
                    "policy": policy,
                    "ours": factor * found.value[k],
                    "ours_mcse": factor * found.mcse[k],
                    "median sample": factor * float(np.nanmedian(runs[..., k])),  # the paper has one sample
                    "printed": PRINTED.get(policy, {}).get(name, np.nan),
                }
            )
    return {
        "At the paper's divergence, beside its table 'Weight Diagnostics: Weight Stabilization'": pd.DataFrame(
            rows
        ),
        f"Area under the ROC curve for |error| > {WRONG:g} (1: tells every failure, 0.5: knows nothing)": _areas(
            ds
        ),
        "Failures and RMSE by divergence": _failures(ds),
        "Every cell": summary_table(ds, ("rmse", "bias", "coverage", "width"), pool=False),
    }


def _areas(ds: xr.Dataset) -> pd.DataFrame:
    rows = []
    for name, (words, _) in DIAGNOSTICS.items():
        row: dict[str, Any] = {"diagnostic": words}
        for method in (m for m in WEIGHTED if m in ds["method"].values):
            row[method], row[f"{method}_mcse"] = predictive(ds, method, name)
        rows.append(row)
    return pd.DataFrame(rows)


def _failures(ds: xr.Dataset) -> pd.DataFrame:
    rows = []
    for n in ds["n"].values:
        for shift in ds["shift"].values:
            part = ds.sel(n=[n], shift=[shift], policy=list(TRUSTED))
            error = scored(part)["error"]
            failed = average((np.abs(error) > WRONG).astype(float).mean(axis=-1))
            rmse = average((error**2).mean(axis=-1), "root")
            ttc = average(rows_of(part["ttc"], "policy").mean(axis=-1, keepdims=True))
            row = {"n": n, "shift": shift, "TTC": ttc.value[0], "TTC_mcse": ttc.mcse[0]}
            for k, method in enumerate(str(m) for m in ds["method"].values):
                for words, found in ((f"{method} RMSE", rmse), (f"{method} failed", failed)):
                    if method in WEIGHTED or "RMSE" in words:
                        row |= {words: found.value[k], f"{words}_mcse": found.mcse[k]}
            rows.append(row)
    return pd.DataFrame(rows)


def findings(ds: xr.Dataset) -> list[Finding]:
    """Order of the policies; whether stabilised ESS looks healthy and knows anything; whether the gate on TTC does."""
    at = _paper_cell(ds)
    raw = average(rows_of(at["ess_fraction"], "policy"))
    stable = average(rows_of(at["ess_fraction_stabilised"], "policy"))
    k, names = int(np.argmin(stable.value)), [str(p) for p in ds["policy"].values]
    best = {name: predictive(ds, "snips", name) for name in DIAGNOSTICS}
    areas = {name: f"{a:.2f} ({e:.2f})" for name, (a, e) in best.items()}
    after, after_mcse = best["ess_fraction_stabilised"]
    ttc, ttc_mcse = best["ttc"]
    order = sorted((name for name in best if np.isfinite(best[name][0])), key=lambda name: -best[name][0])
    shown = ", ".join(f"{DIAGNOSTICS[name][0]} {areas[name]}" for name in order)
    restored = True if (stable.low > RESTORED).all() else False if (stable.high < RESTORED).any() else None
    chance = None if not np.isfinite(after + after_mcse) else bool(after - HALF * after_mcse <= 0.5)
    useful = True if ttc - HALF * ttc_mcse > SHALL else False if ttc + HALF * ttc_mcse < SHALL else None
    left = _left_out(ds)
    return [
        _order(at),
        Finding(
            f"Do stabilised weights look healthy at the paper's divergence? {ANSWER[restored]}: their ESS/n is at "
            "least "
            f"{stable.said(k, percent=True)} ({names[k]}; raw {said(100 * raw.value[k], 100 * raw.mcse[k])}%; the "
            "paper: 82 to 99%). "
            f"Only n = {int(at['n'].item()):,} and shift {float(at['shift'].item()):g} are asked about.",
            RULE + f"{RESTORED:.0%} for every target",
            restored,
        ),
        Finding(
            f"Is the ESS of stabilised weights no better than chance at telling the runs of SNIPS that are off by more "
            f"than {WRONG:g}? {ANSWER[chance]}. Areas under the ROC curve (0.5 is chance): {shown}. {left}",
            RULE + "0.5 for stabilised ESS/n: not above it holds, above it does not",
            chance,
        ),
        Finding(
            f"Does TTC tell failures of SNIPS with an area of {SHALL:g}? {ANSWER[useful]}: with {areas['ttc']}; its "
            "gate "
            f"at {TTC_GATE:g} {_gate(ds)}. {left}",
            RULE + f"{SHALL:g} for the area of TTC",
            useful,
        ),
    ]


def _order(at: xr.Dataset) -> Finding:
    """Whether the means of each diagnostic order the targets as the paper's table prints them."""
    names, pairs = [str(p) for p in at["policy"].values], []
    for name, (words, _) in DIAGNOSTICS.items():
        if name not in PRINTED["clone"]:
            continue
        mean = average(rows_of(at[name], "policy"))
        for first, second in combinations(range(len(names)), 2):
            gap = mean.at(first).less(mean.at(second))
            up = PRINTED[names[first]][name] > PRINTED[names[second]][name]
            low, high = (gap.low[0], gap.high[0]) if up else (-gap.high[0], -gap.low[0])
            pairs.append((words, True if low > 0 else False if high < 0 else None))
    by_name = {words: [holds for one, holds in pairs if one == words] for words, _ in pairs}
    shown = ", ".join(
        f"{words} {found.count(True)}" + (f" ({found.count(None)} not settled)" if None in found else "")
        for words, found in by_name.items()
    )
    holds = every(holds for _, holds in pairs)
    return Finding(
        f"Do the diagnostics order the targets as the paper's table does? {ANSWER[holds]}: of "
        f"{len(pairs) // len(by_name)} pairs of targets the means order as printed, {shown}.",
        RULE + "0 for the difference of two targets' means: all as printed holds, one the other way does not",
        holds,
    )


def _left_out(ds: xr.Dataset) -> str:
    """Return which policies the areas leave out, and how many runs without a number of SNIPS."""
    others = [str(p) for p in ds["policy"].values if p not in TRUSTED]
    snips = ds.sel({"method": "snips"}).sel(policy=list(TRUSTED))
    silent = int((np.isnan(snips["estimate"]) & (snips["status"] != NOT_RUN)).sum())
    total = int((snips["status"] != NOT_RUN).sum())
    return (
        f"Over all cells and {', '.join(TRUSTED)}; left out: {', '.join(others)}, and {silent} of {total} runs without "
        "a number."
    )


def _gate(ds: xr.Dataset) -> str:
    """What share fails on each side of the gate, in words."""
    part = ds.sel(policy=list(TRUSTED))
    error = scored(part)["error"][:, :, [str(m) for m in ds["method"].values].index("snips")]
    failed, ttc = np.abs(error) > WRONG, rows_of(part["ttc"], "policy")
    words = []
    for side, inside in (("passes", ttc >= TTC_GATE), ("stops", ttc < TTC_GATE)):
        runs = inside.sum(axis=(0, 2))  # by replicate
        if runs.sum():
            bad = (failed & inside).sum(axis=(0, 2))
            share = bad.sum() / runs.sum()
            mcse = np.sqrt(((bad - share * runs) ** 2).sum()) / runs.sum()
            words.append(f"{side} runs of which {100 * share:.1f}% ({100 * mcse:.1f}) fail")
    return " and ".join(words)


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Absolute error of SNIPS and of calibrated IPS against four diagnostics, a point per run and policy."""
    names = ("ess_fraction", "ess_fraction_stabilised", "ttc", "cle_factor")
    methods = [m for m in ("snips", "calibrated_ips") if m in ds["method"].values]
    fig = Figure(figsize=(10, 2.6 * len(methods) + 0.6), layout="constrained")
    axes = fig.subplots(len(methods), len(names), sharex="col", sharey=True, squeeze=False)
    part = ds.sel(policy=list(TRUSTED))
    error, places = np.abs(scored(part)["error"]), [str(m) for m in ds["method"].values]
    for row, method in zip(axes, methods, strict=True):
        for ax, name in zip(row, names, strict=True):
            for j, policy in enumerate(TRUSTED):
                x = rows_of(part[name], "policy")[..., j].ravel()
                y = np.maximum(error[:, :, places.index(method), j].ravel(), 1e-4)
                ax.plot(x, y, MARKERS[j], ms=2, alpha=0.4, color=OKABE_ITO[j], label=policy, rasterized=True)
            ax.axhline(WRONG, color=GREY, ls="--", lw=1)
            ax.set(yscale="log", xscale="log" if name in ("ess_fraction", "cle_factor") else "linear")
            ax.xaxis.set_minor_formatter(ticker.NullFormatter())
        row[0].set_ylabel(f"|error|, {method}")
    for ax, name in zip(axes[-1], names, strict=True):
        ax.set_xlabel(DIAGNOSTICS[name][0])
    legend(fig)
    return {f"Absolute error of each run against diagnostics of its weights. Dashed: {WRONG:g}.": fig}


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="weight_diagnostics",
    title="What diagnostics of weights say, and what they know",
    aims="Hold the paper's table of weight diagnostics against the same diagnostics where overlap is known, and find "
    "out which of them tells the estimates that went wrong from the others.",
    mechanism="Scenario arena_like; the divergence of the targets from the logger is that fitted to the paper's data "
    "times a factor from 0 to 1. A quarter of the base policy's prompts is labelled.",
    estimands="V(policy) = E[Y], by quadrature; the failures told are errors beyond .02.",
    measures="Mean of each diagnostic; area under its ROC curve for failures of each estimator over the three policies "
    "to which calibration transports, with jackknifed Monte Carlo standard errors; RMSE and share of failures.",
    scenario="arena_like",
    factors={"n": (1000, 4961), "shift": (0.0, 0.03, 0.1, 0.3, 1.0), "oracle_fraction": (0.25,)},
    policies=POLICIES,
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "all_labels": Method("control, unbiased: mean of an oracle label of every response", "labels_only"),
        "direct": Method(
            "calibrated plug-in, no weights", "direct", {"correction": "none", "borrowed": "plug_in"}
        ),
        "snips": Method("self-normalised importance sampling of calibrated rewards"),
        "calibrated_ips": Method("the same with stabilised weights", options={"borrowed": "plug_in"}),
        "dr_cpo": Method("doubly robust, raw weights"),
    },
    profiles={
        "smoke": Profile(4, {"n": (1000,), "shift": (0.0, 1.0)}),
        "quick": Profile(40, {"n": (1000,), "shift": (0.0, 0.1, 1.0)}),
        "paper": Profile(500),
    },
    replicate=partial(replicate_with_facts, of_data=diagnose, all_labelled=("all_labels",)),
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="cje_sim.scenarios.arena_like, fitted to public facts of the paper's data; n = 4961 is the paper's",
        replicates="500 per cell: the MCSE of a mean ESS/n is below a point and that of an area about .01",
        failures="a method without a number is no failure of its weights and is left out",
        primary="area under the ROC curve of each diagnostic for failures of SNIPS",
        relevant="an area of .8 or more is of use as a gate; .5 knows nothing",
    ),
    claims=("tab-weight-diagnostics", "ttc-gate", "ess-not-sufficient"),
    block=10,
)
