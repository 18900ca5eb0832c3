"""Stacked doubly robust estimation against its own members, an equal mixture of them, and members that mislead it.

The paper's algorithm Influence-Function Stacking takes the convex combination of estimators with the least estimated
variance. That is no worse than the best member in the population; in a sample it has to be found, and variance is all
it sees. Here, in `cje_sim.scenarios.arena_like`: the stack by whole influence columns, by the paper's (sampling alone),
with an outer split; with a second member that is nearly a copy; with a biased member of small variance (capped_ips);
and, one level down, stabilised weights with and without the constant candidate, which is the logger's own value.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.estimators import load
from cje_core.estimators.stacked_dr import LIBRARY
from cje_core.families.off_policy.value import Stabilisation
from cje_core.figures.style import GREY, OKABE_ITO
from cje_core.inference.estimate import label_estimate, wald
from cje_core.inference.sums import cluster_se
from studies.engine.grids import RULE, Average, average, over_policies, rows_of, scored
from studies.engine.measures import REFUSALS, summary_table
from studies.engine.panels import legend, plain_log
from studies.engine.scenario import replicate_with_facts
from studies.engine.sentences import ANSWER, refusals
from studies.engine.study import Finding, Method, Profile, Protocol, Study

TRUSTED = ("clone", "parallel_universe_prompt", "premium")
MEMBERS = (*LIBRARY, "dr_cpo", "capped_ips")
REGRET = 1.05  # RMSE over the best member's that counts as no regret
NOMINAL_SLACK = 0.02
STACKS: dict[str, dict[str, Any]] = {
    "stacked": {},
    "stacked_sampling": {"columns": "sampling"},
    "stacked_outer": {"outer_split": True},
    "stacked_near_copy": {"members": (*LIBRARY, "dr_cpo")},
    "stacked_biased": {"members": (*LIBRARY, "capped_ips")},
}
NO_CONSTANT = Stabilisation(candidates=("up", "down"))


def uniform(
    data: xr.Dataset, *, ci_prob: float = 0.95, rng: Any = None, members: Sequence[str] = LIBRARY
) -> xr.Dataset:
    """Equal mixture of the members: mean estimate, mean influence, Normal interval; NaN where a member has none."""
    found = [load(name).estimate(data, ci_prob=ci_prob, rng=rng) for name in members]
    policies = [str(p) for p in found[0]["policy"].values]
    estimate = np.mean([one["estimate"].values for one in found], axis=0)
    influence = np.mean([one["influence"].transpose("policy", "prompt").values for one in found], axis=0)
    _, cluster = np.unique(found[0]["cluster"].values, return_inverse=True)
    error = cluster_se(influence, cluster)
    return label_estimate(
        policies,
        {
            "estimate": estimate,
            "std_error": error,
            "interval": wald(estimate, error, np.inf, ci_prob),
            "status": np.max([one["status"].values for one in found], axis=0),
            "route": ["uniform"] * len(policies),
        },
        estimator="uniform",
        options={"members": list(members)},
        ci_kind="wald",
        ci_prob=ci_prob,
    )


def stack_facts(estimate: xr.Dataset) -> dict[str, xr.DataArray]:
    """Weight of each member, their number in use and the rank of their columns; what the constant candidate got."""
    facts = {name: estimate[name] for name in ("stack_support", "stack_rank") if name in estimate}
    if "stack_weight" in estimate:
        weight = estimate["stack_weight"]
        facts |= {f"weight_{m}": weight.sel(member=m) for m in weight["member"].values}
    if "beta" in estimate and "base" in estimate["candidate"].values:
        facts["weight_constant"] = estimate["beta"].sel(candidate="base")
    return facts


def _rmse(ds: xr.Dataset) -> Average:
    """RMSE of each policy, averaged over policies with the same weight, as in every table of measures."""
    return over_policies(scored(ds)["error"] ** 2, "root")


def _covered(ds: xr.Dataset, what: str = "hit") -> Average:
    """Coverage of the intervals printed, or the share of runs ``refused`` or ``failed``, averaged over policies."""
    return over_policies(scored(ds)[what])


def _cells(ds: xr.Dataset) -> list[tuple[dict[str, Any], xr.Dataset]]:
    factors = [str(d) for d in ds["estimate"].dims[: ds["estimate"].dims.index("replicate")]]
    out: list[tuple[dict[str, Any], xr.Dataset]] = [({}, ds.sel(policy=list(TRUSTED)))]
    for factor in factors:
        out = [
            (at | {factor: level}, part.sel({factor: [level]}))
            for at, part in out
            for level in part[factor].values
        ]
    return out


def regrets(ds: xr.Dataset) -> pd.DataFrame:
    """RMSE of every mixture over that of its cell's best member of the library, paired, and coverage, by cell."""
    names, rows = [str(m) for m in ds["method"].values], []
    library = [names.index(m) for m in LIBRARY]
    covered = summary_table(ds.sel(policy=list(TRUSTED)), ("coverage",))
    covered = covered.set_index([*list(covered.columns[: covered.columns.get_loc("method")]), "method"])
    for at, part in _cells(ds):
        rmse = _rmse(part)
        best = library[int(np.argmin(rmse.value[library]))]
        for name in (m for m in (*STACKS, "uniform") if m in names):
            k = names.index(name)
            ratio = rmse.at(k).over(rmse.at(best))
            row = {**at, "mixture": name, "best member": names[best]}
            row |= {"RMSE": rmse.value[k], "RMSE_mcse": rmse.mcse[k]}
            row |= {"regret": ratio.value[0] - 1, "regret_mcse": ratio.mcse[0]}
            shares = covered.loc[(*at.values(), name)]
            row |= {
                f"{m}{end}": shares[f"{m}{end}"] for m in ("coverage", *REFUSALS) for end in ("", "_mcse")
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _weights(ds: xr.Dataset) -> pd.DataFrame:
    """Mean weight of each member and mean support and rank, by stack and divergence."""
    rows = []
    shown = [f"weight_{m}" for m in MEMBERS] + ["stack_support", "stack_rank"]
    for name in (m for m in STACKS if m in ds["method"].values):
        for shift in ds["shift"].values:
            part = ds.sel(shift=[shift], policy=list(TRUSTED)).sel({"method": name})
            row: dict[str, Any] = {"stack": name, "shift": shift}
            for fact in (f for f in shown if f in part):
                found = average(rows_of(part[fact], "policy").mean(axis=-1, keepdims=True))
                row |= {fact: found.value[0], f"{fact}_mcse": found.mcse[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def _constant(ds: xr.Dataset) -> pd.DataFrame:
    """Calibrated IPS with and without the constant candidate: its weight, RMSE, bias and coverage by divergence."""
    rows = []
    for name in (m for m in ("calibrated_ips", "calibrated_ips_no_constant") if m in ds["method"].values):
        k = [str(m) for m in ds["method"].values].index(name)
        for shift in ds["shift"].values:
            part = ds.sel(shift=[shift], policy=list(TRUSTED))
            shares = rows_of(part["weight_constant"].sel({"method": name}), "policy").mean(
                axis=-1, keepdims=True
            )
            bias = average(scored(part)["error"].mean(axis=-1)).at(k)
            row: dict[str, Any] = {"weights": name, "shift": shift}
            for words, found in (
                ("weight of the constant", average(shares)),
                ("RMSE", _rmse(part).at(k)),
                ("bias", bias),
                ("coverage", _covered(part).at(k)),
                ("refused", _covered(part, "refused").at(k)),
                ("failed", _covered(part, "failed").at(k)),
            ):
                row |= {words: found.value[0], f"{words}_mcse": found.mcse[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Regret and coverage of the mixtures; what weights they gave; the constant candidate; every method."""
    return {
        "Regret: RMSE over that of the best member, less one (paired), and coverage": regrets(ds),
        "Mean weights of the members, members in use and rank of their columns": _weights(ds),
        "Stabilised weights with and without the constant candidate": _constant(ds),
        "Every method": summary_table(
            ds.sel(policy=list(TRUSTED)), ("rmse", "bias", "se_calibration", "coverage", "width")
        ),
    }


def findings(ds: xr.Dataset) -> list[Finding]:
    """Regret of the stack, gain over equal weights, and what a biased member does to it."""
    names, trusted = [str(m) for m in ds["method"].values], ds.sel(policy=list(TRUSTED))
    if not {*STACKS, "uniform", *LIBRARY} <= set(names):
        return []
    found = regrets(ds)
    mine = found[found["mixture"] == "stacked"]
    worst = mine.iloc[int(mine["regret"].to_numpy().argmax())]
    low, high = (mine["regret"] + side * 1.96 * mine["regret_mcse"] for side in (-1, 1))
    rmse, covered = _rmse(trusted), _covered(trusted)
    place = {name: k for k, name in enumerate(names)}
    equal = rmse.at(place["stacked"]).over(rmse.at(place["uniform"]))
    biased = rmse.at(place["stacked_biased"]).over(rmse.at(place["stacked"]))
    lost = covered.at(place["stacked_biased"]).less(covered.at(place["stacked"]))
    regret = True if (high < REGRET - 1).all() else False if (low > REGRET - 1).any() else None
    learn = True if equal.high[0] < 1 else False if equal.low[0] > 1 else None
    harm = (
        True
        if biased.low[0] > 1 or lost.high[0] < -NOMINAL_SLACK
        else False
        if biased.high[0] < 1 and lost.low[0] > -NOMINAL_SLACK
        else None
    )
    about = (
        f"Of the policies {', '.join(TRUSTED)}, over {len(mine)} cells; unhelpful is left out, since its "
        "calibration does not transport by construction. "
    )
    silent = refusals(found, ["mixture", "shift", "oracle_fraction"])
    return [
        Finding(
            f"Is the stack within {REGRET - 1:.0%} of its best member? {ANSWER[regret]}: its largest regret, against "
            f"{worst['best member']}, is {100 * worst['regret']:.1f}% ({100 * worst['regret_mcse']:.1f}) of RMSE, at "
            f"shift {worst['shift']:g} with {100 * worst['oracle_fraction']:g}% labels. {about}{silent}",
            RULE + f"{REGRET - 1:.0%} for the regret in every cell: all below holds, one above does not",
            regret,
        ),
        Finding(
            f"Is there anything to learn from the data about the weights? {ANSWER[learn]}: over the grid the stack's "
            f"RMSE is {equal.said()} times that of equal weights, with coverage "
            f"{covered.said(place['stacked'], percent=True)} against {covered.said(place['uniform'], percent=True)}. "
            f"{about}{silent}",
            RULE + "1 for the ratio: below it there is, above it there is not",
            learn,
        ),
        Finding(
            f"Does a biased member of small variance harm it? {ANSWER[harm]}: with capped_ips among the members the "
            f"stack's RMSE is {biased.said()} times as large and its coverage changes by {lost.said(percent=True)}, to "
            f"{covered.said(place['stacked_biased'], percent=True)}. {about}{silent}",
            RULE + f"1 for the ratio and {-NOMINAL_SLACK:.0%} for the change of coverage: one beyond it does",
            harm,
        ),
    ]


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """RMSE of members and mixtures at each divergence, over their coverage."""
    fig = Figure(figsize=(9.5, 5.6), layout="constrained")
    top, bottom = fig.subplots(2, 1, sharex=True)
    names = [m for m in (*MEMBERS, *STACKS, "uniform") if m in ds["method"].values]
    part = ds.sel(policy=list(TRUSTED)).sel({"method": names})
    at = np.arange(len(names))
    shifts = list(part["shift"].values)
    for k, shift in enumerate(shifts):
        x = at + 0.16 * (k - (len(shifts) - 1) / 2)
        look: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 4, "lw": 1, "color": OKABE_ITO[k]}
        one = part.sel(shift=[shift])
        for ax, found in ((top, _rmse(one)), (bottom, _covered(one))):
            ax.errorbar(x, found.value, 1.96 * found.mcse, label=f"shift {shift:g}", **look)
        for silent, mark in (("refused", "o"), ("failed", "x")):
            share = _covered(one, silent).value
            bottom.plot(x[share > 0], share[share > 0], mark, mfc="none", color=OKABE_ITO[k], ms=4)
    bottom.axhline(ds.attrs["ci_prob"], color=GREY, ls="--", lw=1, zorder=0)
    for ax in (top, bottom):
        ax.axvline(sum(m in MEMBERS for m in names) - 0.5, color=GREY, lw=0.8)
    bottom.set_xticks(at, names, rotation=30, ha="right")
    top.set_ylabel("RMSE")
    bottom.set(ylabel="coverage", ylim=(None, 1.0))
    plain_log(top)
    legend(fig)
    return {
        "RMSE (above) and coverage (below) of the members, left of the line, and of their mixtures, by divergence "
        "of the targets from the logger; averages over labelled shares and three policies. Coverage is of the "
        "intervals "
        "printed; hollow: share of runs refused one; crosses: failed. Bars: 95% Monte Carlo; dashed: nominal.": fig
    }


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="stacking",
    title="The stack and its members",
    aims="Find out what stacking doubly robust estimators by estimated variance gains over its best member and over "
    "equal weights, whether its interval keeps its level, and what a near copy or a biased member does to it.",
    mechanism="Scenario arena_like; the divergence of the targets from the logger is that fitted to the paper's data "
    "times 0, .1 or 1; a tenth or half of the base policy's prompts is labelled.",
    estimands="V(policy) = E[Y], by quadrature, of the three policies to which calibration transports.",
    measures="Regret: RMSE over that of the best member of the cell, less one, paired; coverage; mean weights; bias.",
    scenario="arena_like",
    factors={"shift": (0.0, 0.1, 1.0), "n": (1000,), "oracle_fraction": (0.1, 0.5)},
    policies=TRUSTED,
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "all_labels": Method("control, unbiased: mean of an oracle label of every response", "labels_only"),
        **{name: Method("member") for name in MEMBERS},
        **{name: Method("stack", "stacked_dr", options) for name, options in STACKS.items()},
        "uniform": Method("equal weights on the library's members", uniform),
        "calibrated_ips": Method(
            "stabilised weights, candidates: constant, up, down", "calibrated_ips", {"borrowed": "plug_in"}
        ),
        "calibrated_ips_no_constant": Method(
            "the same without the constant",
            "calibrated_ips",
            {"weighting": NO_CONSTANT, "borrowed": "plug_in"},
        ),
    },
    profiles={
        "smoke": Profile(3, {"shift": (0.0, 1.0), "oracle_fraction": (0.5,)}),
        "quick": Profile(60),
        "paper": Profile(1000),
    },
    replicate=partial(replicate_with_facts, of_estimate=stack_facts, all_labelled=("all_labels",)),
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="cje_sim.scenarios.arena_like, fitted to public facts of the paper's data",
        replicates="1000 per cell: the MCSE of a coverage is .7 points, that of a paired ratio of RMSEs about 1%",
        failures="a run without a number is left out of the RMSE; coverage is of the intervals printed, and the shares "
        "refused one and failed stand beside it",
        primary="regret of the stack against the best of its members",
        relevant="5% of RMSE; 2 points of coverage",
    ),
    claims=("thm-stack", "stack-variance", "cor-caratheodory"),
    block=10,
)
