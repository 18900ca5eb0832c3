"""How a budget is best split between judging and labelling, and what the paper's cost table compares.

"Causal Judge Evaluation", appendix "Efficient Budget Allocation": with ``Var(n, m) = s_eval / n + s_cal / m`` and ``B =
c_S n + c_Y m`` the best labelled share is ``sqrt(c_S s_cal / (c_Y s_eval))``. Both components are known here by
quadrature (`cje_sim.exact.judged_means.score_parts`), so the law, the planner's optimum and the plan that a pilot of
each replicate proposes can be held against simulated errors and the exact optimum. Costs count judged responses.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.figures.mde_contours import mde_contours
from cje_core.figures.style import GREY, MARKERS, OKABE_ITO
from cje_core.planning.allocation import Plan, allocate
from cje_core.planning.components import variance_components
from cje_core.planning.power import mde
from cje_core.streams import Cell, Streams
from cje_sim.exact.judged_means import score_parts
from cje_sim.scenarios import well_specified
from studies.engine.measures import summary_table
from studies.engine.outcome import Outcome
from studies.engine.panels import legend, plain_log
from studies.engine.scenario import replicate_scenario
from studies.engine.sentences import ANSWER, N_MCSE, below, highest, lowest, plain, refusals, said
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study

WORLDS: dict[str, dict[str, Any]] = {  # of the scenario well_specified
    "informative": {"link": "sigmoid", "low": 0.05, "high": 0.7, "atoms": 0.05},
    "weak": {"link": "linear", "low": 0.42, "high": 0.62, "atoms": 0.4},
    "binary": {"link": "sigmoid", "low": 0.05, "high": 0.95, "atoms": 1.0},
}
BUDGET, PILOT = 4000, 0.2  # in judged responses; share of spend at which the data serve as a pilot
SPREAD, CLOSE = 0.5, 0.15  # share at which labels are also spread over policies; of an MSE to its law
PAPER_RATIO, PAPER_N, PAPER_FRACTION, PAPER_POLICIES = 16, 5000, 0.05, 5
PAPER_PARTS = 1.0, 0.90 * 50 / (0.10 * 1000)  # its worked example: omega = 90% at 50 of 1,000 labelled
CELL = ["world", "cost_ratio", "share", "labels_go"]
POLICIES = ("base", "high", "low")
DIFFERENCE = "high - low"
SPLITS = (
    "Mean squared error of the base policy's value by the share of a fixed budget that labels get: simulated (marks, "
    "95% Monte Carlo), the law (line) and the planner's optimum (dotted)."
)
CONTOURS = (
    "Smallest difference between two independent values that is found with power 80%, by the exact components of the "
    "informative world; dashed: equal cost at 16 judged responses a label; star: the best plan for the budget."
)


@cache
def components(world: str) -> tuple[float, float]:
    """Exact ``s_eval`` and ``s_cal`` of the base policy."""
    return score_parts(well_specified.SCORE_LAW["base"], **WORLDS[world])


def design(cell: Mapping[Any, Any]) -> tuple[int, int]:
    """Judged and labelled responses of a cell."""
    share, ratio = float(cell["share"]), float(cell["cost_ratio"])
    return round((1 - share) * BUDGET), round(share * BUDGET / ratio)


def variance(world: str, n: float, m: float) -> float:
    """The law."""
    s_eval, s_cal = components(world)
    return s_eval / n + s_cal / m


def best(world: str, ratio: float) -> Plan:
    """The planner's plan with the exact components."""
    return allocate(BUDGET, 1.0, ratio, *components(world))


def setting(study: Study, cell: Cell) -> Setting:
    """The cell's design; spread labels go to the three policies alike, m in all."""
    n, m = design(cell)
    spread = cell["labels_go"] == "spread"
    labels = {"oracle_fraction": m / n / (1 + 2 * spread), "label_design": "own" if spread else "base"}
    arguments = {"n": n, **labels, **WORLDS[str(cell["world"])]}
    return Setting("well_specified", ("base", "better", "worse"), arguments, study.methods)


def keep(cell: Cell) -> bool:
    """Designs with m <= n; spread labels at one split."""
    n, m = design(cell)
    return m <= n and (cell["labels_go"] == "base" or cell["share"] == SPREAD)


def theory(cell: Cell) -> dict[str, float]:
    """The law's variance here and at the optimum, and the optimum's share of spend."""
    n, m = design(cell)
    world, ratio = str(cell["world"]), float(cell["cost_ratio"])
    plan = best(world, ratio)
    return {
        "variance": variance(world, n, m),
        "best_variance": variance(world, plan.n, plan.m),
        "best_share": plan.spend_share,
    }


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """Estimates; in a pilot's cell also the plan that these data propose: its share and its exact excess variance."""
    outcome = replicate_scenario(study, cell, streams)
    planned = {"planned_share": np.nan, "regret": np.nan}
    if cell["share"] == PILOT and cell["labels_go"] == "base":
        arguments = setting(study, cell).arguments
        data = well_specified.simulate(**arguments, rng=streams("data"))
        found = variance_components(data.sel(policy=["base"])).sel(policy="base")
        pair = [max(float(found[name]), 0.0) for name in ("sigma2_eval", "sigma2_cal")]
        if np.isfinite(pair).all() and sum(pair) > 0:
            world, ratio = str(cell["world"]), float(cell["cost_ratio"])
            plan, optimum = allocate(BUDGET, 1.0, ratio, *pair), best(world, ratio)
            excess = variance(world, plan.n, plan.m) / variance(world, optimum.n, optimum.m) - 1
            planned = {"planned_share": plan.spend_share, "regret": excess}
    return replace(outcome, extra=planned)


def _splits(ds: xr.Dataset) -> pd.DataFrame:
    """A row per split and method of the base policy's value: MSE, its MCSE, the law's."""
    rows = summary_table(
        ds.sel(policy=["base"], labels_go=["base"]), ("rmse", "empirical_se", "coverage", "bias")
    )
    rows["mse"], rows["mse_mcse"] = rows["rmse"] ** 2, 2 * rows["rmse"] * rows["rmse_mcse"]
    designs = [design(row) for row in rows.to_dict("records")]
    rows["n"], rows["m"] = zip(*designs, strict=True)
    rows["law"] = [variance(row["world"], row["n"], row["m"]) for row in rows.to_dict("records")]
    for end in ("", "_mcse"):
        rows[f"mse_over_law{end}"] = rows[f"mse{end}"] / rows["law"]
    return rows


def _optima(splits: pd.DataFrame) -> pd.DataFrame:
    """Per world and cost ratio: the planner's share, the nearest simulated split and the best simulated one."""
    out = []
    for (world, ratio), rows in splits[splits["method"] == "direct"].groupby(
        ["world", "cost_ratio"], sort=False
    ):
        plan = best(str(world), float(str(ratio)))
        near = rows.loc[lowest((rows["share"] - plan.spend_share).abs())]
        least = rows.loc[lowest(rows["mse"])]
        excess = near["mse"] / least["mse"] - 1
        error = np.hypot(near["mse_mcse"] / near["mse"], least["mse_mcse"] / least["mse"]) * (1 + excess)
        out.append(
            {
                "world": world, "cost_ratio": ratio, "planned_share": plan.spend_share, "planned_n": plan.n,
                "planned_m": plan.m, "nearest_split": near["share"], "best_split": least["share"],
                "excess_mse": excess, "excess_mse_mcse": 0.0 if near["share"] == least["share"] else error,
            }
        )  # fmt: skip
    return pd.DataFrame(out)


def _pilots(ds: xr.Dataset) -> pd.DataFrame:
    """Per world and cost ratio: what the pilots' plans are and cost."""
    if PILOT not in ds["share"].values:
        return pd.DataFrame()
    columns: dict[str, xr.DataArray] = {
        "pilots": ds["planned_share"].sel(share=PILOT, labels_go="base").count("replicate")
    }
    for name in ("planned_share", "regret"):
        at = ds[name].sel(share=PILOT, labels_go="base")
        error = at.std("replicate", ddof=1) / np.sqrt(at.count("replicate"))
        columns |= {name: at.mean("replicate"), f"{name}_mcse": error}
    exact = ds["theory_best_share"].sel(share=PILOT, labels_go="base")
    found = xr.Dataset({**columns, "exact_share": exact}).reset_coords(drop=True)
    return found.to_dataframe(dim_order=["world", "cost_ratio"]).reset_index()


def _spread(ds: xr.Dataset) -> pd.DataFrame:
    """RMSE with labels spread over the policies over that with all under the base policy, the same n and m."""
    if SPREAD not in ds["share"].values or "spread" not in ds["labels_go"].values:
        return pd.DataFrame()
    frames = []
    for estimand, policies in (("value", list(POLICIES)), ("difference", [DIFFERENCE])):
        part = ds.sel({"policy": policies, "share": [SPREAD], "method": ["direct"]})
        rows = summary_table(part, ("rmse", "refused"))
        one, other = (rows[rows["labels_go"] == go].reset_index() for go in ("spread", "base"))
        frame = one[["world", "cost_ratio"]].assign(estimand=estimand, rmse_ratio=one["rmse"] / other["rmse"])
        relative = np.hypot(one["rmse_mcse"] / one["rmse"], other["rmse_mcse"] / other["rmse"])
        frame["rmse_ratio_mcse"] = frame["rmse_ratio"] * relative
        borrow = {"refused_borrowing": other["refused"], "refused_borrowing_mcse": other["refused_mcse"]}
        frames.append(frame.assign(**borrow))
    return pd.concat(frames, ignore_index=True)


def cost_table() -> pd.DataFrame:
    """The paper's saving at the same n, and the saving at the same standard error; exact.

    Labels alone pay ``c_Y`` for all n responses of P policies: the plan is cheaper by ``P c_Y n / (P c_S n + c_Y m)``,
    but less exact; as exact are ``Var Y / Var(n, m)`` labels a policy.
    """
    n, m = PAPER_N, PAPER_N * PAPER_FRACTION
    out = []
    for world, (s_eval, s_cal) in {**{w: components(w) for w in WORLDS}, "paper": PAPER_PARTS}.items():
        alone = (s_eval + s_cal) / (s_eval / n + s_cal / m)  # labels with the plan's standard error
        for policies in (1, PAPER_POLICIES):
            price = policies * PAPER_RATIO / (policies * n + PAPER_RATIO * m)
            row = {
                "components": world,
                "policies": policies,
                "same_n": price * n,
                "same_std_error": price * alone,
            }
            out.append(row | {"std_error_ratio": (n / alone) ** 0.5})
    return pd.DataFrame(out)


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Optima, pilots' plans, spread labels, the cost table, every split."""
    splits = _splits(ds)
    columns = [
        *CELL[:3],
        "n",
        "m",
        "labels_go",
        "method",
        "policy",
        "mse",
        "mse_mcse",
        "law",
        "mse_over_law",
        "mse_over_law_mcse",
        *(f"{name}{end}" for name in ("coverage", "refused", "failed") for end in ("", "_mcse")),
        "bias",
        "bias_mcse",
    ]
    made = {
        "The planner's split against the best simulated one": _optima(splits),
        "Plans from pilots: share of spend on labels, and excess variance over the best plan": _pilots(ds),
        "RMSE with labels spread over three policies, over that with all under the base policy": _spread(ds),
        "Saving over labelling everything: at the same n, and at the same standard error (exact)": cost_table(),
        "Every split": splits[columns],
    }
    return {title: frame for title, frame in made.items() if len(frame)}


def findings(ds: xr.Dataset) -> list[Finding]:
    """The law, the optimum, the pilots, the spread, the cost table."""
    splits = _splits(ds)
    out = [_law(splits), _optimum(_optima(splits))]
    pilots, spread = _pilots(ds), _spread(ds)
    if len(pilots):
        worst = pilots.loc[highest(pilots["regret"])]
        holds = below(pilots["regret"], pilots["regret_mcse"], 0.05)
        fewest = int(pilots["pilots"].min())
        out.append(
            Finding(
                f"Is a plan from one pilot nearly as good as the best one? {ANSWER[holds]}: it costs "
                f"{said(100 * worst['regret'], 100 * worst['regret_mcse'])}% more variance on average at worst "
                f"({worst['world']}, a label at {worst['cost_ratio']:g} judged responses). Pilots that give no plan "
                "are "
                f"left out: {fewest} or more of {ds.sizes['replicate']} give one.",
                "at most 5% by 3 MCSE in every world",
                holds,
            )
        )
    if len(spread):
        shown = spread[spread["cost_ratio"] == spread["cost_ratio"].min()].to_dict("records")
        words = [
            f"{said(r['rmse_ratio'], r['rmse_ratio_mcse'])} ({r['world']}, {r['estimand']})" for r in shown
        ]
        holds = below(spread["rmse_ratio"], spread["rmse_ratio_mcse"], 1.0)
        dearer = spread[spread["cost_ratio"] > spread["cost_ratio"].min()]
        borrow = spread.rename(columns=lambda name: name.replace("_borrowing", ""))
        silent = refusals(
            borrow, ["world", "cost_ratio", "estimand"], what="Refused runs that borrow have no error"
        )
        left = f" Cells with dearer labels, {len(dearer)}, are in the table." if len(dearer) else ""
        out.append(
            Finding(
                "Are labels better spread over three policies than all under one, where calibrations transport? "
                f"{ANSWER[holds]}: the RMSE changes by a factor of {', '.join(words)}.{left} {silent}",
                "below 1 by 3 MCSE everywhere: spreading is better even then",
                holds,
            )
        )
    return [*out, _cost()]


def _law(splits: pd.DataFrame) -> Finding:
    mine = splits[splits["method"] == "direct"]
    ratio, error = mine["mse"] / mine["law"], mine["mse_mcse"] / mine["law"]
    at = highest((ratio - 1).abs())
    where = f"{mine.loc[at, 'world']}, {mine.loc[at, 'm']} of {mine.loc[at, 'n']} labelled"
    holds = below((ratio - 1).abs(), error, CLOSE)
    return Finding(
        f"Does the square-root law give the simulated MSE of the base policy's value? {ANSWER[holds]}: over "
        f"{len(mine)} "
        f"splits the MSE is {plain(ratio.min())}-{plain(ratio.max())} times the law's, worst "
        f"{said(float(ratio[at]), float(error[at]))} ({where}). {refusals(mine, CELL[:3])}",
        f"within {plain(CLOSE)} of 1 by {N_MCSE:g} MCSE at every split",
        holds,
    )


def _optimum(optima: pd.DataFrame) -> Finding:
    words = [
        f"{plain(row['planned_share'], '.2f')} planned, {plain(row['best_split'])} best of those simulated "
        f"({row['world']}, 1:{row['cost_ratio']:g})"
        for row in optima.to_dict("records")
    ]
    room = N_MCSE * optima["excess_mse_mcse"]
    holds = bool((optima["excess_mse"] <= room).all())
    return Finding(
        f"Is the planner's split the best one? {ANSWER[holds]}, by simulation at a few splits. Share of the budget for "
        f"labels: {'; '.join(words)}.",
        f"the MSE at the split next to the planner's is within {N_MCSE:g} MCSE of the least one, everywhere",
        holds,
    )


def _cost() -> Finding:
    rows = cost_table()
    single, many = (plain(rows.loc[rows["policies"] == p, "same_n"].iloc[0]) for p in (1, PAPER_POLICIES))
    equal = rows[rows["components"] == "paper"]["same_std_error"].map(plain).tolist()
    least, most = (plain(rows["same_std_error"].agg(end)) for end in ("min", "max"))
    return Finding(
        f"The paper's savings of 8.8 and 14 times are those at the same n ({single} and {many} here, exact); at the "
        f"same standard error it saves {equal[0]} and {equal[1]} times by the paper's own components, {least} to "
        f"{most} over all worlds: below 1 labels alone are cheaper.",
        "the saving at the same standard error is that at the same n in every world (exact)",
        bool(np.allclose(rows["same_n"], rows["same_std_error"], rtol=0.1)),
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """MSE over splits by world; contours of the minimum detectable effect."""
    return {SPLITS: _split_figure(_splits(ds)), CONTOURS: _contours()}


def _split_figure(splits: pd.DataFrame) -> Figure:
    worlds, ratios = (splits[name].unique() for name in ("world", "cost_ratio"))
    fig = Figure(figsize=(max(2.7 * len(worlds) + 0.6, 5), 2.5 * len(ratios) + 0.6), layout="constrained")
    axes = fig.subplots(len(ratios), len(worlds), sharex=True, sharey=True, squeeze=False)
    for i, ratio in enumerate(ratios):
        for j, world in enumerate(worlds):
            ax, rows = axes[i, j], splits[(splits["world"] == world) & (splits["cost_ratio"] == ratio)]
            fine = np.linspace(rows["share"].min(), rows["share"].max(), 200)
            law = [variance(world, (1 - s) * BUDGET, s * BUDGET / ratio) for s in fine]
            ax.plot(fine, law, color=OKABE_ITO[0], lw=1, label="the law")
            ax.axvline(best(world, ratio).spend_share, color=GREY, ls=":", lw=1)
            for k, name in enumerate(METHODS):
                one = rows[rows["method"] == name]
                look = {"color": OKABE_ITO[k], "marker": MARKERS[k], "ms": 4, "ls": "none", "capsize": 2}
                ax.errorbar(
                    one["share"] + (k - 0.5) / 60, one["mse"], 1.96 * one["mse_mcse"], label=name, **look
                )
            ax.set(title=f"{world}, a label costs {ratio:g}")
            plain_log(ax)
    fig.supxlabel("share of the budget for labels", fontsize=9)
    fig.supylabel("mean squared error", fontsize=9)
    legend(fig)
    return fig


def _contours() -> Figure:
    n, fraction = np.geomspace(200, 10_000, 40), np.geomspace(0.02, 1.0, 40)
    s_eval, s_cal = components("informative")
    error = np.sqrt((s_eval + s_cal / fraction[:, None]) / n)
    surface = xr.Dataset(
        {"mde": (("fraction", "n"), mde(error)),
         "cost": (("fraction", "n"), n * (1 + PAPER_RATIO * fraction[:, None]))},
        coords={"n": n, "fraction": fraction}, attrs={"power": 0.8},
    )  # fmt: skip
    fig, plan = Figure(figsize=(5.6, 4.2), layout="constrained"), best("informative", 16)
    mde_contours(surface, optimum=(plan.n, plan.m / plan.n), ax=fig.subplots())
    return fig


METHODS = {
    "direct": Method("Direct as it comes"),
    "labels_only": Method("control: mean of the base policy's labels, the judge left aside"),
}

RUN_GROUPS = ("pages",)
STUDY = Study(
    name="budget",
    title="How many labels does a budget buy, and how should it be split?",
    aims="Hold the square-root law and the planner's optimum against simulated errors at fixed cost; find out what a "
    "plan from one pilot loses, whether labels are better spread over policies, and what the paper's costs compare.",
    mechanism=f"Scenario well_specified at a budget of {BUDGET:,} judged responses, a label costing 16 or 100 of them, "
    "labels at random under the base policy (or, m in all, under all three). Worlds: informative (sigmoid, .05 to .7), "
    "weak (a line from .42 to .62, two fifths of the labels at 0 or 1) and binary (sigmoid, .05 to .95, pass/fail).",
    estimands="V(base), by quadrature; for spread labels all three values and V(high) - V(low).",
    measures="Mean squared error with its Monte Carlo standard error, against the law with exact components; excess "
    "variance of the pilots' plans, exact given the plan.",
    factors={
        "world": tuple(WORLDS),
        "cost_ratio": (16, 100),
        "share": (0.1, PILOT, 0.35, SPREAD, 0.65, 0.8, 0.9),
        "labels_go": ("base", "spread"),
    },
    policies=POLICIES,
    contrasts=(("high", "low"),),
    methods=METHODS,
    profiles={
        "smoke": Profile(6, {"world": ("informative",), "cost_ratio": (16,), "share": (PILOT, SPREAD, 0.8)}),
        "quick": Profile(150, {"cost_ratio": (16,), "share": (PILOT, 0.35, SPREAD, 0.65, 0.8)}),
        "paper": Profile(2000),
    },
    setting=setting,
    worlds=("well_specified",),
    keep=keep,
    replicate=replicate,
    theory=theory,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="A label at 16 judged responses is the paper's cost ratio, 100 a human's; the worlds are those of "
        "interval_coverage; the budget gives 20 to 225 labels.",
        replicates="2,000 (paper) give an MSE to 3%, 150 (quick) to 12%.",
        failures="An estimate without a number is left out of the MSE and counted as refused.",
        primary="MSE of direct by split, against the law.",
        relevant="15% of the MSE; 5% for the excess of a pilot's plan.",
    ),
    claims=("prop-sqrt-allocation", "spend-balance", "tab-cost", "spread-labels"),
    block=50,
)
