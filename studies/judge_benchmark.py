"""Estimators of a pass rate over judges of all qualities: the design of Chen et al. (2026).

"Efficient Inference for Noisy LLM-as-a-Judge Evaluation" (arXiv 2601.05420) compares misclassification correction,
PPI, PPI++, the efficient estimator and the judge alone on n pass/fail verdicts of which a random part is labelled, over
prevalence, sensitivity and specificity, by bias, coverage and width of 90% intervals; the grid here is that of the
simulations in its repository. For each estimator the large-sample standard error is a finite sum
(`cje_sim.exact.judged_means.own_labels`): PPI++ and the efficient estimator have the same, and so has the joint maximum
likelihood, which is the calibrated verdict in other words.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.figures.style import GREY, looks
from cje_core.streams import Cell
from cje_sim.exact.judged_means import BinaryJudge, own_labels
from studies.engine.measures import paired_table, summary_table
from studies.engine.panels import legend, plain_log
from studies.engine.sentences import (
    ANSWER,
    LeftOut,
    below,
    every,
    highest,
    lowest,
    opposite,
    plain,
    points,
    refusals,
    said,
    together,
    where,
)
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study

CELL = ["theta", "specificity", "sensitivity", "n", "oracle_fraction"]
EFFICIENT, DEFAULT = "theta_aug", "direct"
EXACT_OF = {"rogan_gladen_lee": "rogan_gladen", EFFICIENT: "direct"}  # of a method that is a form of another
MEASURES = ("coverage", "width", "interval_score", "bias", "rmse", "empirical_se", "refused", "failed")
SLACK, CEILING = 0.05, 1.02  # under-coverage that matters; interval score over the best's
WIDTHS = (
    "Mean width of 90% intervals by judge (columns) and labelled share, averages over prevalences (log scale). Marks: "
    "simulated, with 95% Monte Carlo bounds; dashes: 2 z times the exact standard error."
)
COVERAGE = (
    "Coverage of the intervals printed in every cell (ticks) and its mean over the cells (dot), with the nominal 90% "
    "(dashed); hollow: mean share of runs refused an interval; cross: failed."
)


def setting(study: Study, cell: Cell) -> Setting:
    """The base policy of `binary_judge`, labelled at random: its own labels are all that it needs."""
    shape = {name: float(cell[name]) for name in ("sensitivity", "specificity", "oracle_fraction")}
    arguments: dict[str, Any] = {"n": int(cell["n"]), "taught": float(cell["theta"]), "label_design": "base"}
    return Setting("binary_judge", ("base",), arguments | shape, study.methods)


def _judge(cell: Cell) -> BinaryJudge:
    return BinaryJudge(*(float(cell[name]) for name in ("theta", "sensitivity", "specificity")))


def theory(cell: Cell) -> dict[str, float]:
    """Exact large-sample standard errors, the judge's bias, and the squared correlation of verdict and label."""
    judge, n = _judge(cell), int(cell["n"])
    limits = own_labels(judge, n, round(float(cell["oracle_fraction"]) * n))
    p, theta = judge.passed, judge.good
    found = {f"se_{name}": limit.std_error for name, limit in limits.items()}
    correlation = judge.youden**2 * theta * (1 - theta) / (p * (1 - p))
    return found | {"bias_raw_judge": limits["raw_judge"].value - theta, "squared_correlation": correlation}


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    rows = summary_table(ds, MEASURES)
    exact = [theory({name: row[name] for name in CELL}) for row in rows.to_dict("records")]
    rows["exact_se"] = [
        one[f"se_{EXACT_OF.get(name, name)}"] for one, name in zip(exact, rows["method"], strict=True)
    ]
    rows["judge_bias"] = [abs(one["bias_raw_judge"]) for one in exact]
    return rows


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Averages over the grid; ratios to the efficient estimator by cell; every measure."""
    rows = _measured(ds)
    summary = []
    for name, one in rows.groupby("method", sort=False):
        k = len(one)
        entry: dict[str, Any] = {"method": name, "cells": k}
        for measure in ("coverage", "refused", "failed", "width", "interval_score"):
            known = one[one[measure].notna()]  # a cell in which no run printed an interval has no coverage
            entry[measure] = known[measure].mean()
            entry[f"{measure}_mcse"] = np.sqrt((known[f"{measure}_mcse"] ** 2).sum()) / max(len(known), 1)
        worst = one.loc[lowest(one["coverage"])]
        entry |= {"worst_coverage": worst["coverage"], "worst_coverage_mcse": worst["coverage_mcse"]}
        summary.append(entry | {"exact_width": 2 * _quantile(ds) * one["exact_se"].mean()})
    ratios = paired_table(ds, EFFICIENT, (), ratios=("width", "rmse"))
    columns = [*CELL, "method", "width_ratio", "width_ratio_mcse", "rmse_ratio", "rmse_ratio_mcse"]
    return {
        "Means over the cells of the grid in which any run printed an interval": pd.DataFrame(summary),
        "Width and RMSE over those of the efficient estimator": ratios[columns],
        "All measures": rows,
    }


def _quantile(ds: xr.Dataset) -> float:
    from scipy import special

    return float(special.ndtri(0.5 + ds.attrs["ci_prob"] / 2))


def findings(ds: xr.Dataset) -> list[Finding]:
    """What the paper reports, one sentence each, then our default against the best."""
    rows = _measured(ds)
    return [_naive(rows), _gap(ds, rows), _same(ds), _level(ds, rows), _against_best(ds, rows)]


def _naive(rows: pd.DataFrame) -> Finding:
    one = rows[(rows["method"] == "raw_judge") & (rows["judge_bias"] > 10 * rows["exact_se"])]
    if not len(one):
        return Finding("No cell has a judge biased by ten standard errors.", "exact bias", None)
    worst, holds = one.loc[highest(one["coverage"])], bool((one["coverage"] <= 0.01).all())
    others = rows[(rows["method"] == "raw_judge") & ~rows.index.isin(one.index)]
    left = LeftOut(f"{len(others)} cells", "the judge's bias is below ten standard errors", others)
    return Finding(
        together(
            f"Does the judge alone fail wherever its bias is ten standard errors or more? {ANSWER[holds]}: it covers "
            f"{points(worst['coverage'], worst['coverage_mcse'], '%')} at best in {len(one)} cells.",
            left.said(),
        ),
        "at most .01 of the intervals cover, in each of these cells",
        holds,
    )


def _gap(ds: xr.Dataset, rows: pd.DataFrame) -> Finding:
    pairs = paired_table(ds, EFFICIENT, (), ratios=("width",))
    pairs = pairs[pairs["method"] == "rogan_gladen_lee"].dropna(subset=["width_ratio"])
    if not len(pairs):
        return Finding("The correction gave no interval.", "width ratio", None)
    least, most = (pairs.loc[pairs["width_ratio"].agg(end)] for end in ("idxmin", "idxmax"))
    wide = rows.pivot_table(index=CELL, columns="method", values="exact_se")
    exact = wide["rogan_gladen_lee"] / wide[EFFICIENT]
    shown = [said(float(row["width_ratio"]), float(row["width_ratio_mcse"])) for row in (least, most)]
    wider = [
        opposite(below(r, e, 1.0))
        for r, e in zip(pairs["width_ratio"], pairs["width_ratio_mcse"], strict=True)
    ]
    mine = rows[rows["method"] == "rogan_gladen_lee"]
    return Finding(
        together(
            f"Are intervals of the correction (Lee et al.) wider than the efficient estimator's? "
            f"{ANSWER[every(wider)]}: {shown[0]} to {shown[1]} times over {len(pairs)} cells; in large samples, before "
            f"clipping, {plain(exact.min())} to {plain(exact.max())} times.",
            refusals(mine, CELL, what="Its refused runs have no width"),
        ),
        "wider by 3 MCSE, on the same data, in every cell",
        every(wider),
    )


def _same(ds: xr.Dataset) -> Finding:
    part = ds.sel(oracle_fraction=[float(ds["oracle_fraction"].max())])
    pairs = paired_table(part, EFFICIENT, (), ratios=("rmse",))
    pairs = pairs[pairs["method"] == "ppi_plus_plus"]
    ends = [pairs.loc[pairs["rmse_ratio"].agg(end)] for end in ("idxmin", "idxmax")]
    least, most = (said(float(row["rmse_ratio"]), float(row["rmse_ratio_mcse"])) for row in ends)
    holds = below((pairs["rmse_ratio"] - 1).abs(), pairs["rmse_ratio_mcse"], 0.05)
    fewer = [
        plain(float(share)) for share in ds["oracle_fraction"].values if share < part["oracle_fraction"][0]
    ]
    left = (
        f" Left out: cells with {', '.join(fewer)} labelled, which the question is not about."
        if fewer
        else ""
    )
    return Finding(
        f"Has PPI++ the efficient estimator's RMSE where {plain(float(part['oracle_fraction'][0]))} are labelled? "
        f"{ANSWER[holds]}: {least} to {most} times over {len(pairs)} cells (exactly 1 in large samples).{left}",
        "every ratio is within .05 of 1 by 3 MCSE, on the same data",
        holds,
    )


def _level(ds: xr.Dataset, rows: pd.DataFrame) -> Finding:
    nominal = float(ds.attrs["ci_prob"])
    whole = rows[rows["method"] == DEFAULT]
    one = whole[whole["coverage"].notna()]
    worst = one.loc[lowest(one["coverage"])]
    # a proportion near one needs its binomial error: all hits have none
    printed = ds.sizes["replicate"] * (1 - one["refused"] - one["failed"])
    error = np.sqrt(nominal * (1 - nominal) / np.maximum(printed, 1))
    holds = below(-one["coverage"], error, SLACK - nominal)
    return Finding(
        together(
            f"Does our default keep {nominal:.0%} within {100 * SLACK:.0f} points? {ANSWER[holds]}: it covers "
            f"{points(worst['coverage'], worst['coverage_mcse'], '%')} in the worst of {len(one)} cells "
            f"({where(worst, CELL)}).",
            refusals(whole, CELL),
        ),
        f"every cell is above {plain(nominal - SLACK)} by 3 binomial standard errors, over the intervals printed",
        holds,
    )


def _against_best(ds: xr.Dataset, rows: pd.DataFrame) -> Finding:
    fair = rows[(rows["method"] != "raw_judge") & (rows["refused"] + rows["failed"] == 0)]
    # a method that misses its level by much has bought its score with it
    fair = fair[fair["coverage"] >= float(ds.attrs["ci_prob"]) - SLACK]
    best = fair.groupby(CELL, sort=False)["interval_score"].transform("min")
    mine = fair[fair["method"] == DEFAULT]
    if not len(mine):
        return Finding("Our default keeps its level in no cell.", "coverage", False)
    ratio = mine["interval_score"] / best[mine.index]
    at = highest(ratio)
    error = mine["interval_score_mcse"] / best[mine.index]
    whole = rows[rows["method"] == DEFAULT]
    out = whole[~whole.index.isin(mine.index)]
    return Finding(
        together(
            f"Is our default's interval score within {CEILING - 1:.0%} of the best's? "
            f"{ANSWER[below(ratio, error, CEILING)]}: {plain(float(ratio.mean()), '.3f')} times on average over "
            f"{len(mine)} cells, {said(float(ratio[at]), float(error[at]))} at worst ({where(mine.loc[at], CELL)}).",
            LeftOut(f"{len(out)} cells", "our default has a refused run or misses its level", out).said(),
            "A rival with a refused run in a cell, or one that misses its level there, is no rival there.",
        ),
        f"at most {CEILING} by 3 MCSE in every cell, among methods that keep their level there within {plain(SLACK)}",
        below(ratio, error, CEILING),
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Widths by judge and labelled share; coverage in all cells."""
    rows = _measured(ds)
    return {WIDTHS: _widths(ds, rows), COVERAGE: _coverage(ds, rows)}


def _widths(ds: xr.Dataset, rows: pd.DataFrame) -> Figure:
    look = {name: one for name, one in looks(list(METHODS)).items() if name != "raw_judge"}
    judges = list(dict.fromkeys(zip(rows["specificity"], rows["sensitivity"], strict=True)))
    fig = Figure(figsize=(max(2.3 * len(judges) + 0.8, 7.0), 3.5), layout="constrained")
    axes = fig.subplots(1, len(judges), sharey=True, squeeze=False)[0]
    for ax, (specificity, sensitivity) in zip(axes, judges, strict=True):
        part = rows[(rows["specificity"] == specificity) & (rows["sensitivity"] == sensitivity)]
        shares = sorted(part["oracle_fraction"].unique())
        for k, (name, one) in enumerate(look.items()):
            mine = part[part["method"] == name].groupby("oracle_fraction")
            at = np.arange(len(shares)) + 0.1 * (k - (len(look) - 1) / 2)
            bars = 1.96 * mine["width_mcse"].agg(lambda e: np.sqrt((e**2).sum()) / len(e))
            ax.errorbar(at, mine["width"].mean(), bars, **one, ls="none", ms=4, lw=1, label=name)
            exact = 2 * _quantile(ds) * mine["exact_se"].mean()
            ax.scatter(at, np.minimum(exact, 1.0), marker="_", s=30, color=one["color"], alpha=0.6)
        ax.set_xticks(np.arange(len(shares)), [f"{share:.0%}" for share in shares])
        ax.set(title=f"specificity {specificity:g}\nsensitivity {sensitivity:g}", xlabel="labelled share")
    plain_log(axes[0])
    axes[0].set_ylabel("mean width of the interval")
    legend(fig, look)
    return fig


def _coverage(ds: xr.Dataset, rows: pd.DataFrame) -> Figure:
    names = [name for name in METHODS if name in set(rows["method"])]
    fig = Figure(figsize=(6.4, 0.34 * len(names) + 1.0), layout="constrained")
    ax = fig.subplots()
    for k, name in enumerate(names):
        whole = rows[rows["method"] == name]
        one = whole["coverage"].dropna()
        color = looks(list(METHODS))[name]["color"]
        ax.plot(one, np.full(len(one), k), "|", ms=11, color=color, alpha=0.7)
        ax.plot(one.mean(), k, "o", ms=5, color=color)
        for silent, mark in (("refused", "o"), ("failed", "x")):
            if whole[silent].max() > 0:
                ax.plot(whole[silent].mean(), k, mark, ms=5, mfc="none", color=color)
    ax.axvline(float(ds.attrs["ci_prob"]), color=GREY, ls="--", lw=1, zorder=0)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set(
        xlim=(-0.02, 1.02),
        ylim=(len(names) - 0.5, -0.5),
        xlabel="coverage by cell (ticks) and its mean (dot)",
    )
    return fig


METHODS = {
    "raw_judge": Method("control, biased: share that the judge passes (naive)"),
    "labels_only": Method("control, unbiased: mean of the labels"),
    "rogan_gladen_lee": Method(
        "misclassification correction with the interval of Lee et al.", "rogan_gladen", {"interval": "lee"}
    ),
    "rogan_gladen": Method("misclassification correction, interval by test inversion"),
    "ppi": Method("prediction-powered mean, the verdict in full weight"),
    "ppi_plus_plus": Method("prediction-powered mean, tuned"),
    EFFICIENT: Method(
        "one-step estimator on the calibrated verdict: the efficient influence function",
        "direct",
        {"power_tuned": False},
    ),
    DEFAULT: Method("Direct as it comes, tuned prediction"),
}

RUN_GROUPS = ("pages",)
STUDY = Study(
    name="judge_benchmark",
    title="Estimators of a pass rate, over judges of all qualities",
    aims="Repeat the comparison of Chen et al. (2026): is the judge alone as wrong as they say, is the correction for "
    "misclassification as wide, do PPI++ and the efficient estimator agree; and where does our default stand?",
    mechanism="Scenario binary_judge: n independent responses, good with probability theta; the judge passes good ones "
    "with probability sensitivity and fails bad ones with probability specificity; a random part carries labels.",
    estimands="theta, the share of good responses.",
    measures="Coverage and width of 90% intervals, interval score, bias, RMSE, refusals, with Monte Carlo standard "
    "errors; exact large-sample standard errors.",
    factors={
        "theta": (0.1, 0.3, 0.5, 0.7, 0.9),
        "specificity": (0.6, 0.8),
        "sensitivity": (0.6, 0.8),
        "n": (2000,),
        "oracle_fraction": (0.01, 0.05, 0.1, 0.2),
    },
    policies=("target",),
    methods=METHODS,
    profiles={
        "smoke": Profile(4, {"theta": (0.3,), "sensitivity": (0.8,), "oracle_fraction": (0.05, 0.2)}),
        "quick": Profile(60, {"theta": (0.1, 0.5), "oracle_fraction": (0.05, 0.2)}),
        "paper": Profile(1000),
    },
    setting=setting,
    worlds=("binary_judge",),
    theory=theory,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="Prevalences, rates, labelled shares and n = 2,000 are those of the simulations of Chen et al.",
        replicates="1,000, as theirs: coverage of 90% to .0095; 60 (quick) to .039.",
        failures="Labels of one class leave the correction without a number: refused, and a miss.",
        primary="Coverage and mean width by estimator.",
        relevant="Five points of coverage; a fiftieth of the interval score.",
    ),
    ci_prob=0.9,
    block=50,
)
