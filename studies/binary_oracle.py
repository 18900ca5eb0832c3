"""A pass/fail oracle with a graded judge: coverage and width by how rare the outcome is and how few the labels are.

"Causal Judge Evaluation", appendix "Code Generation Experiment (MBPP)": unit tests say pass or fail, the judge grades.
The scenario `binary_oracle` makes outcomes even, common or rare (a twentieth); `mbpp_like` is the paper's experiment
(problems answered four times, a judge that knows little). With simple random labels of independent responses the number
of good labels is binomial, so the coverage of the labels alone is a finite sum, which the simulated one must meet.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.figures.style import looks
from cje_core.streams import Cell
from cje_sim.exact.judged_means import score_parts, two_phase
from cje_sim.scenarios import binary_oracle, well_specified
from studies.engine.measures import by_estimand, paired_table, side_by_side, summary_table
from studies.engine.panels import by_world
from studies.engine.sentences import (
    ANSWER,
    below,
    every,
    highest,
    keeps_level,
    points,
    said,
    where,
)
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study


class World(NamedTuple):
    """One level of the factor `world`."""

    title: str
    scenario: str
    shape: dict[str, Any]
    policies: tuple[str, str]  # the one that teaches, and a target to which its calibration transports


WORLDS = {
    "even": World("about half pass", "binary_oracle", {}, ("base", "better")),
    "common": World("nine in ten pass", "binary_oracle", {"low": 0.7, "high": 0.98}, ("base", "better")),
    "rare": World("one in twenty\npasses", "binary_oracle", {"low": 0.01, "high": 0.08}, ("base", "better")),
    "rare_sharp": World(
        "one in twenty,\nsharp judge",
        "binary_oracle",
        {"link": "convex", "low": 0.0, "high": 0.15},
        ("base", "better"),
    ),
    "mbpp": World("like the paper's\ncode experiment", "mbpp_like", {}, ("base", "enhanced")),
}
CONTROLS = ("raw_judge", "labels_only")
CELL = ["world", "estimand", "n", "labels"]
GROUPS = {"own labels": ["base"], "borrowed labels": ["target"]}
MEASURES = (
    "coverage",
    "refused",
    "failed",
    "width",
    "interval_score",
    "bias",
    "miss_left",
    "miss_right",
)
LEVEL = 0.95
CAPTION = (
    "Coverage of the intervals printed, share of runs refused one and mean width with own labels, and coverage and "
    "refusals where the labels are the base policy's, by the number of labels; exact 95% Monte Carlo bounds. Dashed: "
    "nominal 95%."
)


def setting(study: Study, cell: Cell) -> Setting:
    """The cell's world with labels under the base policy; problems of mbpp_like come with four labelled programs."""
    world = WORLDS[str(cell["world"])]
    n, m = int(cell["n"]), int(cell["labels"])
    draws = 4 if world.scenario == "mbpp_like" else 1
    arguments = {"n": n // draws, "oracle_fraction": m / n, "label_design": "base", **world.shape}
    if world.scenario == "binary_oracle":
        arguments["prompt_corr"] = 0.0
    return Setting(world.scenario, world.policies, arguments, study.methods)


def theory(cell: Mapping[Any, Any]) -> dict[str, float]:
    """Exact for the base policy: its value, coverage and width of the labels alone, the efficiency bound; or NaN."""
    world = WORLDS[str(cell["world"])]
    names = ("value", "coverage_labels_only", "width_labels_only", "se_bound")
    if world.scenario != "binary_oracle":
        return dict.fromkeys(names, np.nan)
    n, m = int(cell["n"]), int(cell["labels"])
    value = float(binary_oracle.truth(**world.shape).sel(policy="base"))
    coverage, width = binomial_interval(value, m)
    ends: dict[str, Any] = {"link": "sigmoid", "low": 0.05, "high": 0.95} | world.shape
    between, within = score_parts(well_specified.SCORE_LAW["base"], **ends, atoms=1.0)
    bound = two_phase(between + within, within, n, m) ** 0.5
    return dict(zip(names, (value, coverage, width, bound), strict=True))


def binomial_interval(value: float, m: int) -> tuple[float, float]:
    """Exact coverage and mean width of the Clopper-Pearson interval from m independent labels."""
    from scipy import stats  # both load slowly, and replicates never come here
    from statsmodels.stats.proportion import proportion_confint

    hits = np.arange(m + 1)
    prob = stats.binom.pmf(hits, m, value)
    low, high = proportion_confint(hits, m, 1 - LEVEL, "beta")
    return float(prob @ ((low <= value) & (value <= high))), float(prob @ (high - low))


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    parts = [(group, ds.sel(policy=policies)) for group, policies in GROUPS.items()]
    rows = by_estimand(parts, lambda part: summary_table(part, MEASURES))
    return rows[[*CELL, "policy", "method", *(f"{name}{end}" for name in MEASURES for end in ("", "_mcse"))]]


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage, width over the labels alone, refusals, the labels alone against their exact coverage, every measure."""
    rows, methods = _measured(ds), [str(m) for m in ds["method"].values]
    ratios = paired_table(ds.sel(policy=["base"]), "labels_only", (), ratios=("width", "interval_score"))
    ratios = ratios[ratios["method"] != "raw_judge"].assign(estimand="own labels")
    shown = [m for m in methods if m not in CONTROLS]
    return {
        "Coverage of the 95% intervals printed, and share of runs refused or failed where any was": side_by_side(
            rows, CELL, "coverage", methods, first=shown
        ),
        "Own labels: mean width over that of the labels alone": side_by_side(
            ratios, CELL, "width_ratio", shown
        ),
        "Own labels: interval score over that of the labels alone": side_by_side(
            ratios, CELL, "interval_score_ratio", shown
        ),
        "The labels alone, simulated and exact": _alone(ds, rows),
        "All measures": rows,
    }


def _alone(ds: xr.Dataset, rows: pd.DataFrame) -> pd.DataFrame:
    """Simulated against exact coverage and width of the labels alone, where responses are independent."""
    one = rows[(rows["method"] == "labels_only") & (rows["estimand"] == "own labels")]
    exact = [theory(row) for row in one.to_dict("records")]
    columns = [
        *(name for name in CELL if name != "estimand"),
        "method",
        "policy",
        *(f"{m}{end}" for m in ("coverage", "refused", "failed", "width") for end in ("", "_mcse")),
    ]
    one = one[columns].assign(
        exact_coverage=[e["coverage_labels_only"] for e in exact],
        exact_width=[e["width_labels_only"] for e in exact],
    )
    return one[one["exact_coverage"].notna()].reset_index(drop=True)


def findings(ds: xr.Dataset) -> list[Finding]:
    """Level with own and with borrowed labels, against the labels alone, the plain t interval, the exact control."""
    rows, replicates = _measured(ds), int(ds.sizes["replicate"])
    own = rows[(rows["estimand"] == "own labels") & (rows["method"] == "direct")]
    lent = rows[(rows["estimand"] == "borrowed labels") & (rows["method"] == "direct")]
    plainly = rows[(rows["estimand"] == "own labels") & (rows["method"] == "direct_wald")]
    out = [
        keeps_level(who, mine, ["world", "labels"], replicates)
        for who, mine in (
            ("our default with own labels", own),
            ("our default with borrowed labels", lent),
            ("the same estimate with a t interval and own labels", plainly),
        )
        if mine["coverage"].notna().any()
    ]
    return [one for one in (*out, _score(ds), _control(ds, rows)) if one is not None]


def _score(ds: xr.Dataset) -> Finding:
    pairs = paired_table(ds.sel(policy=["base"]), "labels_only", (), ratios=("interval_score", "width"))
    pairs = pairs[(pairs["method"] == "direct") & pairs["interval_score_ratio"].notna()]
    least, most = (pairs.loc[pairs["interval_score_ratio"].agg(end)] for end in ("idxmin", "idxmax"))
    ends = [
        f"{said(r['interval_score_ratio'], r['interval_score_ratio_mcse'])} ({r['world']}, {r['labels']} labels)"
        for r in (least, most)
    ]
    holds = below(pairs["interval_score_ratio"], pairs["interval_score_ratio_mcse"], 1.02)
    return Finding(
        "With own labels, is our default's interval score at most that of the labels alone? "
        f"{ANSWER[holds]}: the ratio goes from {ends[0]} to {ends[1]} over {len(pairs)} cells, each method over the "
        "intervals that it prints.",
        "at most 1.02 by 3 MCSE, on the same data, in every cell",
        holds,
    )


def _control(ds: xr.Dataset, rows: pd.DataFrame) -> Finding | None:
    alone = _alone(ds, rows)
    if not len(alone):
        return None
    exact = alone["exact_coverage"]
    off = (alone["coverage"] - exact) / np.sqrt(exact * (1 - exact) / ds.sizes["replicate"])
    at = highest(off.abs())
    holds = every(bool(abs(z) <= 4) for z in off)
    without = [name for name in rows["world"].unique() if name not in set(alone["world"])]
    left = f" Left out, without an exact law: world {', '.join(without)}." if without else ""
    return Finding(
        f"Do the labels alone cover what the binomial law says, {100 * exact.min():.1f} to "
        f"{100 * exact.max():.1f}%? {ANSWER[holds]}: farthest off is "
        f"{points(alone.loc[at, 'coverage'], alone.loc[at, 'coverage_mcse'], '%')} for {100 * exact[at]:.1f}% "
        f"({where(alone.loc[at], ['world', 'labels'])}).{left}",
        "every simulated coverage within 4 exact standard errors of the exact one",
        holds,
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Own labels: coverage, width; borrowed: coverage, refusals; one column per world."""
    worlds = []
    ticks = [str(m) for m in ds["labels"].values]
    for name in ds["world"].values:
        part = ds.sel(world=name, n=ds["n"].values[0])
        parts = {group: part.sel(policy=policies) for group, policies in GROUPS.items()}
        worlds.append((WORLDS[str(name)].title, parts, ticks))
    own, lent = GROUPS
    rows = (
        (own, "coverage", "coverage,\nown labels"),
        (own, "refused", "share refused,\nown labels"),
        (own, "width", "mean width,\nown labels"),
        (lent, "coverage", "coverage,\nborrowed labels"),
        (lent, "refused", "share refused,\nborrowed labels"),
    )
    shown = {method: look for method, look in looks(list(METHODS)).items() if method != "raw_judge"}
    size = (max(1.8 * len(worlds) + 0.8, 6.6), 9.6)
    fig, axes = by_world(worlds, rows, shown, along="labels", step=0.13, size=size)
    for ax in (*axes[0], *axes[3]):
        ax.set(ylim=(0.6, 1.02))
    for ax in axes[-1]:
        ax.set(xlabel="labels")
    return {CAPTION: fig}


METHODS = {
    "raw_judge": Method("control, biased: mean judge score"),
    "labels_only": Method("control, unbiased: mean of the policy's own labels, Clopper-Pearson interval"),
    "direct": Method("Direct as it comes: binomial tails on effective counts"),
    "direct_wald": Method("the same estimate with a t interval", "direct", {"interval": "wald"}),
    "direct_logit": Method("the same with a logit interval", "direct", {"interval": "logit"}),
    "ppi_plus_plus": Method("tuned prediction-powered mean"),
}

RUN_GROUPS = ("pages", "compiling")
STUDY = Study(
    name="binary_oracle",
    title="Do intervals of a pass rate hold with few labels and rare outcomes?",
    aims="Find out whether intervals keep 95% with 20 to 250 pass/fail labels when half, most or a twentieth of the "
    "responses pass, what the graded judge adds to the labels alone, and what a borrowing policy is told.",
    mechanism="Scenario binary_oracle: graded scores, Y | S Bernoulli with mean E[Y | S]; even (.05 to .95), common "
    "(.7 to .98), rare (.01 to .08), rare_sharp (convex, 0 to .15). Scenario mbpp_like: problems answered four times, "
    "labels of whole problems. Labels at random under the base policy; the target borrows them.",
    estimands="V(base), which has labels of its own, and V(target), which has none; known by quadrature.",
    measures="Coverage of the intervals printed, shares of runs refused one and failed, width, interval score, "
    "misses by side, with Monte Carlo standard errors; for the labels alone the exact coverage.",
    factors={"world": tuple(WORLDS), "n": (1000,), "labels": (20, 50, 100, 250)},
    policies=("base", "target"),
    methods=METHODS,
    profiles={
        "smoke": Profile(6, {"world": ("even", "rare"), "labels": (20, 100)}),
        "quick": Profile(200, {"labels": (20, 100), "world": ("even", "common", "rare", "rare_sharp")}),
        "paper": Profile(2000),
    },
    setting=setting,
    worlds=("binary_oracle", "mbpp_like"),
    theory=theory,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="Pass rates of code (.87) and of rare failures (.05); 20 to 250 labels are what people collect.",
        replicates="2,000 (paper) give coverage to .005, 200 (quick) to .015.",
        failures="Coverage is that of the intervals printed; the shares refused one and failed stand beside it.",
        primary="Coverage of direct for the base policy.",
        relevant="Five points of coverage; a fiftieth of the interval score.",
    ),
    claims=("tab-mbpp",),
    block=50,
)
