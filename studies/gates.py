"""Every gate against what it should foretell: an interval that misses, or an error beyond what can be borne.

A gate is a metric and a threshold. Over worlds from benign to hostile its metric is held against the failure of the
estimator that it guards, where that estimator prints a number without asking the gate (the paper's plug-in, weighted
logs). The receiver operating characteristic (ROC) shows what any threshold would do, the mark on it what ours does. An
area under the curve (AUC) over all worlds is high also where the gate only tells hostile worlds from benign ones; the
AUC within worlds says whether it tells bad data sets of one world from good ones. Logged worlds hold typicality
coverage (TTC) apart from effective sample size: both fail, only one does, or none. Answers hold for all gates at once.
"""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.checks import FloatArray, IntArray
from cje_core.figures.style import GREY, looks
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import Status
from cje_core.offpolicy.overlap import overlap
from cje_core.streams import Cell, Streams
from cje_core.transport.audit import audit
from cje_core.transport.margin import MARGIN
from cje_core.verdict import gates
from cje_core.verdict.thresholds import BY_NAME
from cje_sim import scenarios
from studies.engine.measures import REFUSALS, summary_table
from studies.engine.measures.roc import area, area_within, curve, share
from studies.engine.outcome import NOT_RUN, Outcome
from studies.engine.sentences import ANSWER, points
from studies.engine.study import Finding, Method, Profile, Protocol, Study


class World(NamedTuple):
    """One level of the factor `world`: a scenario, the policy that is valued, what differs from its defaults."""

    scenario: str
    policy: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    n_labels: int = 100
    mirrored: bool = False  # the judge's scale turned round
    holds: str = ""  # by construction, for the page; the older worlds stand in the study's mechanism


WORLDS = {
    "benign": World("well_specified", "better"),
    "few_labels": World("well_specified", "better", n_labels=12),
    "weak": World("weak_judge", "better"),
    "useless": World("useless_judge", "better"),
    "inverted": World("well_specified", "better", mirrored=True),
    "shift_shape": World("transport_shift", "flatter"),
    "shift_mean": World("transport_shift", "lower"),
    "hacked": World("adversarial", "adversarial"),
    "above_range": World("out_of_range", "above"),
    "below_range": World("out_of_range", "below"),
    "clone": World("clone_with_tf_noise", "clone"),
    "near": World("zipf_tilt", "tilt_0.1"),
    "far": World("zipf_tilt", "tilt_0.3"),
    "farther": World("zipf_tilt", "tilt_0.5"),
    "hot": World("zipf_hot_target", "hot"),
    "cold": World(
        "zipf_hot_target",
        "cold",
        holds="a target with less entropy than its logger: exact TTC .10, ESS/n .003",
    ),
    "narrow": World(
        "zipf_hot_target",
        "cold",
        {"length": 2, "temperature": {"base": 1.0, "cold": 0.68}},
        holds="the same with answers of two tokens, whose weights are bounded: TTC .45 fails, ESS/n .37 passes",
    ),
    "rare_drops": World(
        "rare_drops",
        "same",
        holds="3% of all policies' labels drop far, half of them unseen by the judge; the calibration transports",
    ),
}
N, PROBES = 500, 50
TARGET = 0.05  # largest error that can be borne, a share of the oracle's scale
EVENTS = {"miss": "the 95% interval misses the truth", "beyond": f"the error is beyond {TARGET:g}"}
WORDS = {"miss": "misses", "beyond": f"errors beyond {TARGET:g}"}
OFF_POLICY = ("snips", "dr_cpo")
TELLS = 0.7  # an AUC from which on a gate is called useful
FEWEST = 10  # failures, and sound results, from which on an AUC is tested
FAMILY = 0.05  # probability of any wrong answer among those about all gates


class Guard(NamedTuple):
    """A gate's threshold, and the method of the study whose failures it should foretell."""

    estimator: str
    least: bool  # whether the metric should be at least the threshold (else at most)
    threshold: float
    family: str  # panel of the figure


def _of_table(name: str, estimator: str, family: str) -> Guard:
    return Guard(estimator, BY_NAME[name].least, BY_NAME[name].good, family)


WEIGHTS, BORROWED, DOUBLE = (
    "weighted logs (snips)",
    "borrowed calibration (plug_in)",
    "doubly robust (dr_cpo)",
)
GUARDS = {
    **{
        name: _of_table(name, "snips", WEIGHTS)
        for name in ("ess", "hill", "affinity", "ttc", "ttc_two_sided")
    },
    # the floor under the standard error, against that of an interval which just meets the target
    "cle_floor": Guard("snips", False, TARGET / 1.96, WEIGHTS),
    "transport_fail": Guard(
        "plug_in", False, MARGIN, BORROWED
    ),  # FAIL: the whole interval is beyond the margin
    "judge_rank": Guard(
        "plug_in", False, 0.05, BORROWED
    ),  # p-value of the test that lets a calibration be lent
    "inverted": Guard("plug_in", True, 0.0, BORROWED),  # Spearman's correlation on the slice
    "refusal": Guard("plug_in", False, 0.5, BORROWED),  # Direct as it comes prints no number
    "identification": _of_table("identification", "plug_in", BORROWED),
    "out_of_range": Guard("plug_in", False, BY_NAME["identification"].good, BORROWED),
    "label_support": _of_table("label_support", "plug_in", BORROWED),
    "n_labels": Guard("plug_in", True, 20.0, BORROWED),  # fewer teach no covariates (COVARIATES_DROPPED)
    "reliability": _of_table("reliability", "plug_in", BORROWED),
    "residual_tails": _of_table("residual_tails", "dr_cpo", DOUBLE),
    "orthogonality": _of_table("orthogonality", "dr_cpo", DOUBLE),
    "ess_dr": _of_table("ess", "dr_cpo", DOUBLE),
}
METRIC = {"residual_tails": "residual_df", "ess_dr": "ess_fraction"} | {
    name: BY_NAME[name].metric for name in GUARDS if name in BY_NAME and name != "residual_tails"
}
TITLE = "What each gate foretells, over all worlds (foretold, false_alarms: at the threshold in use)"
CAPTION = (
    "ROC of each gate over all worlds: share of failures that it foretells against share of sound results that it "
    "stops, for every threshold; the mark is the threshold in use. Above: the 95% interval misses; below: the error is "
    f"beyond {TARGET:g} of the oracle's scale. Dashed: a coin."
)


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One data set: the guarded estimates of its target policy, and the metric of every gate."""
    world = WORLDS[str(cell["world"])]
    scenario = scenarios.load(world.scenario)
    design = {"n": N, "oracle_fraction": world.n_labels / N, "label_design": "base", "n_probes": PROBES}
    data = scenario.simulate(**design, **world.arguments, rng=streams("data"))
    if world.mirrored:
        low, high = data.attrs["judge_range"]
        data = data.assign(judge=low + high - data["judge"])
    asked = inspect.signature(scenario.truth).parameters
    known = {name: value for name, value in world.arguments.items() if name in asked}
    truth = float(scenario.truth(**known).sel(policy=world.policy))
    chosen = [m for m in study.methods if m not in OFF_POLICY or "logp_target" in data]
    found, results, given = {}, {}, calibrated(data)
    for name in chosen:
        method = study.methods[name]
        module = estimators.load(method.estimator or name)
        results[name] = module.estimate(given, ci_prob=study.ci_prob, rng=streams(name), **method.options)
        found[name] = results[name].sel(policy=world.policy)
    metrics = _metrics(given, results, world.policy)
    shape = (len(study.methods), 1)
    numbers = {v: np.full(shape, np.nan) for v in ("estimate", "std_error")}
    interval, status = np.full((*shape, 2), np.nan), np.full(shape, NOT_RUN)
    for m, name in enumerate(study.methods):
        if name in found:
            for variable, column in numbers.items():
                column[m] = found[name][variable]
            interval[m], status[m] = found[name]["interval"], found[name]["status"]
    return Outcome(
        numbers["estimate"],
        [truth],
        numbers["std_error"],
        interval,
        status,
        extra={f"gate_{name}": metrics[name] for name in GUARDS},
    )


def _metrics(given: Calibrated, results: Mapping[str, xr.Dataset], policy: str) -> dict[str, float]:
    """Each gate's metric for one policy; NaN where it is unknown."""
    covered = overlap(given) if "logp_target" in given.data else None
    badge, bins = coverage_badge(given), reliability(given)
    report = audit(given).sel(policy=policy)
    known = gates.collect(
        [policy], overlap=covered, coverage=badge, reliability=bins, estimate=results.get("dr_cpo")
    )
    low, high = report["interval"].values
    status = Status(results["direct"]["status"].sel(policy=policy).item())
    attrs = results["direct"].attrs
    out = {name: float(known[metric].item()) for name, metric in METRIC.items()}
    factor = np.nan if covered is None else float(covered["cle_factor"].sel(policy=policy))
    return out | {
        "cle_floor": float(bins.attrs.get("oof_rmse", np.nan)) * factor / N**0.5,
        "transport_fail": float(max(low, -high)),
        "judge_rank": float(attrs.get("judge_p_value", np.nan)),
        "inverted": float(attrs.get("judge_spearman", np.nan)),
        "refusal": float(status.failed),
        "out_of_range": float(badge["out_of_range"].sel(policy=policy)),
        "n_labels": float(badge.attrs["n_labels"]),
    }


class Trials(NamedTuple):
    """Runs in which an estimator printed an interval and a gate's metric was known."""

    alarm: FloatArray  # larger is worse
    at: float  # the threshold on that scale; an alarm lies beyond it
    failed: FloatArray  # 1 where the event happened
    world: IntArray
    unknown: int  # runs left out because the metric was not known
    silent: int  # runs left out because the estimator printed no interval


def _failed(ds: xr.Dataset, estimator: str, event: str) -> FloatArray:
    """Whether the event happened, arrays (world, replicate); NaN where the estimator printed no interval."""
    one = ds.sel({"method": estimator}).isel(policy=0)
    low, high = one["interval"].sel(ci_bound="lower"), one["interval"].sel(ci_bound="upper")
    error = one["estimate"] - one["truth"]
    happened = ~((low <= one["truth"]) & (one["truth"] <= high)) if event == "miss" else abs(error) > TARGET
    printed = np.isfinite(error) & np.isfinite(low) & np.isfinite(high)
    return np.asarray(happened.where(printed).transpose("world", "replicate").values, float)


def trials(ds: xr.Dataset, gate: str, event: str) -> Trials:
    """What one gate said and what happened, over all worlds of the results where its estimator ran."""
    guard, failed = GUARDS[gate], _failed(ds, GUARDS[gate].estimator, event)
    sign = -1.0 if guard.least else 1.0
    alarm = sign * ds[f"gate_{gate}"].transpose("world", "replicate").values
    ran = np.isfinite(failed)
    known = ran & np.isfinite(alarm)
    world = np.broadcast_to(np.arange(len(ran))[:, None], ran.shape)[known]
    status = (
        ds["status"].sel({"method": guard.estimator}).isel(policy=0).transpose("world", "replicate").values
    )
    silent = int(((status != NOT_RUN) & ~ran).sum())
    return Trials(
        alarm[known], sign * guard.threshold, failed[known], world, int((ran & ~known).sum()), silent
    )


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """ROC of every gate by event; then each world's failures, and what each gate does there."""
    rows = []
    for gate in GUARDS:
        for event in EVENTS:
            found = trials(ds, gate, event)
            if not len(found.alarm):
                continue
            alarm, bad = found.alarm > found.at, found.failed > 0
            row = {"gate": gate, "guards": GUARDS[gate].estimator, "event": event, "runs": len(alarm)}
            row |= {"no_interval": found.silent, "unknown": found.unknown, "failures": int(bad.sum())}
            for name, hit in (("foretold", alarm[bad]), ("false_alarms", alarm[~bad])):
                row |= dict(zip((name, f"{name}_mcse"), share(hit), strict=True))
            for name, (value, mcse) in {
                "auc": area(found.alarm, bad),
                "auc_within": area_within(found.alarm, bad, found.world),
            }.items():
                row |= {name: value, f"{name}_mcse": mcse}
            rows.append(row)
    return {
        TITLE: pd.DataFrame(rows),
        "Failures by world": _failures(ds),
        "Share of runs in which each gate speaks, by world": _spoken(ds),
    }


def _failures(ds: xr.Dataset) -> pd.DataFrame:
    """Return the shares of misses and large errors among the runs with an interval, and what became of the others."""
    found = summary_table(ds, ("coverage",)).to_dict("records")
    measured = {(str(one["world"]), str(one["method"])): one for one in found}
    rows = []
    for estimator in dict.fromkeys(guard.estimator for guard in GUARDS.values()):
        by_event = {event: _failed(ds, estimator, event) for event in EVENTS}
        for k, world in enumerate(ds["world"].values):
            row: dict[str, Any] = {"world": str(world), "method": estimator}
            for event, failed in by_event.items():
                hit = failed[k][np.isfinite(failed[k])]
                row |= {"runs": len(hit)} | dict(zip((event, f"{event}_mcse"), share(hit), strict=True))
            shares = measured.get((str(world), estimator))
            if shares is not None:
                columns = [f"{m}{end}" for m in REFUSALS for end in ("", "_mcse")]
                rows.append(row | {name: shares[name] for name in columns})
    return pd.DataFrame(rows)


def _spoken(ds: xr.Dataset) -> pd.DataFrame:
    rows = []
    for gate in GUARDS:
        found = trials(ds, gate, "miss")
        for k, world in enumerate(ds["world"].values):
            hit = (found.alarm > found.at)[found.world == k]
            if len(hit):
                speaks, mcse = share(hit)
                rows.append({"gate": gate, "world": str(world), "speaks": speaks, "speaks_mcse": mcse})
    return pd.DataFrame(rows)


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whether each gate tells misses, or errors beyond the target, from sound results, and what its threshold does."""
    rows = table(ds)[TITLE]
    decided = decide(rows)
    rule = (
        f"tells: for one of the events the AUC is above {TELLS:g}; does not: for both it is below; one-sided tests "
        f"with DeLong standard errors, Holm's adjustment over both tests of all {len(decided)} gates, family-wise "
        f"error {FAMILY:.0%}; from {FEWEST} failures and {FEWEST} sound results on"
    )
    said = []
    for gate, mine in rows.groupby("gate", sort=False):
        events = mine.to_dict("records")
        holds = decided[str(gate)]
        parts = [f"{WORDS[row['event']]} (AUC {_auc(row)})" for row in events]
        row = max(events, key=lambda one: np.nan_to_num(one["auc"]))
        early, false = (points(row[c], row[f"{c}_mcse"]) for c in ("foretold", "false_alarms"))
        sentence = f"Does {gate} tell when {row['guards']} fails? {ANSWER[holds]}: {', '.join(parts)}."
        sentence += (
            f" Its threshold foretells {early}% of the {WORDS[row['event']]} and stops {false}% of the other "
        )
        sentence += "runs."
        left = {"print no interval": row["no_interval"], "have no such metric": row["unknown"]}
        shown = ", ".join(f"{count} that {why}" for why, count in left.items() if count)
        sentence += f" Over {row['runs']} runs of all worlds" + (f"; left out: {shown}." if shown else ".")
        said.append(Finding(sentence, rule, holds))
    return said


def decide(rows: pd.DataFrame) -> dict[str, bool | None]:
    """Return, by gate, whether it tells one of the events: True, False, or None where the tests decide neither.

    Two hypotheses a gate: no event's AUC exceeds `TELLS` (p-value: twice the smaller of the events', Bonferroni), and
    some event's does (the larger p-value of the other side). Holm's adjustment over both hypotheses of all gates keeps
    the probability of any wrong answer at `FAMILY` whatever the dependence of gates that see the same runs. A test
    with too few failures or sound results has the p-value 1 and stays in the family.

    Parameters
    ----------
    rows : pd.DataFrame
        A row per gate and event with ``runs``, ``failures``, ``auc`` and ``auc_mcse``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # an area of 1 may have a standard error of 0
        z = (rows["auc"] - TELLS) / rows["auc_mcse"]
    enough = np.minimum(rows["failures"], rows["runs"] - rows["failures"]) >= FEWEST
    sides = pd.DataFrame({"above": norm.sf(z), "below": norm.cdf(z)}, rows.index).where(enough).fillna(1.0)
    of_gate = sides.groupby(rows["gate"], sort=False)
    tells, not_ = 2 * of_gate["above"].min(), of_gate["below"].max()
    sure = adjust_p(np.concatenate([tells, not_]).clip(max=1.0), "holm").reshape(2, -1) < FAMILY
    return {
        str(g): True if yes else False if no else None for g, yes, no in zip(tells.index, *sure, strict=True)
    }


def _auc(row: Mapping[Any, Any]) -> str:
    found = points(row["auc"], row["auc_mcse"])
    return f"{found}, within worlds {points(row['auc_within'], row['auc_within_mcse'])}"


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """ROC curves by family of gates (columns) and event (rows)."""
    families = list(dict.fromkeys(guard.family for guard in GUARDS.values()))
    shown = {
        f: [g for g in GUARDS if GUARDS[g].family == f and len(trials(ds, g, "miss").alarm)] for f in families
    }
    families = [f for f in families if shown[f]]
    size = (3.4 * len(families) + 0.4, 8.4)
    fig, axes = plt.subplots(2, len(families), figsize=size, sharex=True, sharey=True, squeeze=False)
    for column, family in zip(axes.T, families, strict=True):
        style = looks(shown[family])
        for ax, event in zip(column, EVENTS, strict=True):
            ax.plot([0, 1], [0, 1], color=GREY, ls="--", lw=1, zorder=0)
            for gate in shown[family]:
                _roc(ax, trials(ds, gate, event), gate, style[gate])
            ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        column[0].set(title=family)
        column[1].set(xlabel="sound results that it stops")
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}
        column[1].legend(*column[0].get_legend_handles_labels(), **below, frameon=False, fontsize=8)
    for ax, words in zip(
        axes[:, 0], ("misses that it foretells", f"errors beyond {TARGET:g} that it foretells"), strict=True
    ):
        ax.set(ylabel=words)
    return {CAPTION: fig}


def _roc(ax: Axes, found: Trials, gate: str, look: Mapping[str, str]) -> None:
    bad = found.failed > 0
    line: dict[str, Any] = {"color": look["color"], "lw": 1.2}
    if not bad.any() or bad.all():  # no curve, but a name in the legend
        ax.plot([], [], marker=look["marker"], ms=6, label=gate, **line)
        return
    ax.plot(*curve(found.alarm, bad), **line)
    alarm = found.alarm > found.at
    ax.plot(alarm[~bad].mean(), alarm[bad].mean(), marker=look["marker"], ms=6, label=gate, **line)


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="gates",
    title="Do the gates speak before an estimate fails, and only then?",
    aims="Hold the metric of every gate against the actual failure of the estimator that it guards, over worlds from "
    "benign to hostile: what can any threshold do (ROC, AUC), what does the threshold in use do, and does a gate tell "
    "bad data sets of one world or only bad worlds?",
    mechanism=f"{N} prompts, 100 labels of the base policy (few_labels: 12), {PROBES} probes. benign (well_specified), "
    "weak (weak_judge), useless (useless_judge), inverted (well_specified with the judge's scale turned round), "
    "shift_shape and shift_mean (transport_shift: residual mean 0 and -.1), hacked (adversarial), above_range and "
    "below_range (out_of_range). With logged responses: clone (clone_with_tf_noise), near, far, farther (zipf_tilt, "
    "tilts .1, .3, .5), hot, cold and narrow (zipf_hot_target). Exact TTC and limit of ESS/n: clone .90 and .26 "
    "(recorded weights), near .89 and .77, far .87 and .10, farther .84 and .001, hot 1.00 and 1e-11, cold .10 and "
    ".003, narrow .45 and .37.",
    estimands="V(target) = E[Y] of one policy that borrows the base policy's calibration, known by quadrature or a "
    "finite sum.",
    measures="AUC for two events, a 95% interval that misses and an error beyond .05 of the oracle's scale, with "
    "DeLong's standard error, over all worlds and for pairs within a world; share of failures foretold and of sound "
    "results stopped at the threshold in use. Runs without a number of the guarded estimator, or where the metric is "
    "unknown, have no part in it; the latter are counted.",
    factors={"world": tuple(WORLDS)},
    policies=("target",),
    methods={
        "plug_in": Method(
            "guarded: mean of the borrowed calibrator, never refused", "direct", {"borrowed": "plug_in"}
        ),
        "direct": Method("Direct as it comes, which refuses by itself"),
        "snips": Method("guarded: self-normalised importance sampling"),
        "dr_cpo": Method("guarded: doubly robust"),
    },
    profiles={
        "smoke": Profile(6, {"world": ("benign", "inverted", "hacked", "near", "farther")}),
        "quick": Profile(70),
        "paper": Profile(2000),
    },
    replicate=replicate,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="The scenarios' defaults: each breaks one assumption, in a size that a user may meet. That every world "
        "counts the same is a choice; AUCs within worlds do not depend on it.",
        replicates="2,000 a world: with a tenth of 36,000 runs failing the standard error of an AUC is below 1 point.",
        failures="A run in which the guarded estimator gives no interval is left out for that gate; a metric that is "
        "unknown is counted, not imputed. Exceptions are kept and reported.",
        primary="AUC of each gate for intervals that miss, and the two shares at its threshold. Answers are adjusted "
        f"for testing {len(GUARDS)} gates at once: a gate tells (one of two events, Bonferroni) or does not (both), "
        f"and Holm's method over these {2 * len(GUARDS)} one-sided hypotheses keeps the probability of any wrong "
        f"answer at {FAMILY:.0%}. AUCs and shares have Monte Carlo errors of their own, not adjusted.",
        relevant="An AUC of .7; ten points of either share.",
    ),
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    legend={"world": {name: world.holds for name, world in WORLDS.items() if world.holds}},
)
