"""Misclassification correction or calibration: who is unbiased under which shift, and what the correction costs.

"Causal Judge Evaluation", section "Comparison to Misclassification Correction". Rogan and Gladen (1978) need the
judge's sensitivity and specificity to be those of the labels, calibration needs ``E[Y | S]`` to be. In the scenario
`binary_judge` either is stable, *and the observable data follow the same law in both*, so no method that only borrows
labels can be right in both. With own labels both are right, and the exact variances say what each costs: with J =
Youden's index and rho the correlation of verdict and label, the labels' part of the correction's variance is ``E Var(Z
| Y) / J^2``, ``1 / rho^2`` times the calibration's (`cje_sim.exact.judged_means`).

`preference_like` is the paper's own set-up: a graded judge with J = .41, cut at one half for the correction.
"""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cje_core.figures.style import GREY, MARKERS, OKABE_ITO
from cje_core.streams import Cell
from cje_sim.exact.judged_means import BinaryJudge, borrowed_labels, own_labels
from cje_sim.judges import FloatArray
from cje_sim.scenarios import preference_like
from studies.engine.measures import paired_table, summary_table
from studies.engine.panels import legend
from studies.engine.sentences import ANSWER, below, every, highest, lowest, opposite, plain, refusals, said
from studies.engine.study import Finding, Method, Profile, Protocol, Scenario, Setting, Study

THETA = 0.5  # prevalence of the target where rates are stable
TILT = 0.05  # sensitivity above, specificity below the middle of the two
GRADED = "graded"
RELEVANT = 0.02  # a bias that matters
CLEAR = 0.4  # Youden's index from which large-sample formulas can be held against a few hundred labels
COVERED = [f"{name}{end}" for name in ("coverage", "refused", "failed") for end in ("", "_mcse")]
CELL = ["judge", "stable", "taught", "label_design", "n", "labels"]
CONTROLS = ("raw_judge", "labels_only")
BORROWING = ("rogan_gladen", "direct_plug_in", "direct")
MEASURES = ("bias", "empirical_se", "rmse", "coverage", "refused", "failed", "width", "se_calibration")
SHIFTS = (
    "Labels of the base policy only: simulated bias (marks, 95% Monte Carlo) and its exact large-sample value (lines) "
    "against the prevalence where the labels are; target .5. Left: rates stable; middle: predictive values stable, the "
    "same observable data; right: the paper's graded judge, rates stable."
)
YOUDEN = (
    "Own labels: standard errors by Youden's index, exact (lines) and simulated (marks, 95% Monte Carlo). Left: as they"
    " are; right: of the correction, times J: flat where the 1/J law is all there is."
)


def judge_of(cell: Cell, good: float) -> BinaryJudge:
    """The cell's binary judge on a policy with this share of good responses."""
    middle = (1 + float(str(cell["judge"]).removeprefix("J="))) / 2
    return BinaryJudge(good, middle + TILT, middle - TILT)


def simulate_graded(*, n: int, oracle_fraction: float, taught: float, rng: Any) -> xr.Dataset:
    """The world `preference_like` with the prevalences of a cell."""
    world = {"n": n, "oracle_fraction": oracle_fraction, "prevalence": {"base": taught, "target": THETA}}
    return preference_like.simulate(**world, rng=rng)


def truth_graded(*, taught: float = THETA) -> xr.DataArray:
    """Its values."""
    return preference_like.truth(prevalence={"base": taught, "target": THETA})


def setting(study: Study, cell: Cell) -> Setting:
    """The world of a cell; labels_only where the target has labels, the plug-in where it has none."""
    n = int(cell["n"])
    own = cell["label_design"] == "own"
    methods = set(study.methods) - ({"direct_plug_in"} if own else {"labels_only"})
    fraction, taught = int(cell["labels"]) / n, float(cell["taught"])
    common: dict[str, Any] = {"n": n, "oracle_fraction": fraction, "taught": taught}
    if cell["judge"] == GRADED:
        return Setting(Scenario(simulate_graded, truth_graded), ("target",), common, methods)
    base = judge_of(cell, taught)
    common |= {"sensitivity": base.sensitivity, "specificity": base.specificity, "label_design": "base"}
    if own:  # the policy whose labels they are stands for the target
        return Setting("binary_judge", ("base",), common, methods)
    return Setting(
        "binary_judge", ("target",), common | {"theta": THETA, "stable": str(cell["stable"])}, methods
    )


def keep(cell: Cell) -> bool:
    """Own labels need no shift; without one, rates and values are both stable; the graded judge has stable rates."""
    if cell["label_design"] == "own":
        return cell["taught"] == THETA and cell["stable"] == "rates" and cell["judge"] != GRADED
    if cell["judge"] == GRADED or cell["taught"] == THETA:
        return cell["stable"] == "rates"
    return True


def theory(cell: Cell) -> dict[str, float]:
    """Exact large-sample bias and standard error of each method; NaN where there is no closed form here."""
    n, m = int(cell["n"]), int(cell["labels"])
    if cell["judge"] == GRADED:
        bias, errors = _graded(cell), {}
    else:
        base = judge_of(cell, float(cell["taught"]))
        own = cell["label_design"] == "own"
        limits = own_labels(base, n, m) if own else borrowed_labels(base, THETA, n, m)
        value = THETA if own or cell["stable"] == "rates" else limits["direct"].value
        bias = {name: limit.value - value for name, limit in limits.items()}
        errors = {name: limit.std_error for name, limit in limits.items()}
    names = ("raw_judge", "labels_only", *BORROWING)
    found = {f"bias_{name}": bias.get(name, np.nan) for name in names}
    return found | {f"se_{name}": errors.get(name, np.nan) for name in names}


def _graded(cell: Cell) -> dict[str, float]:
    """The paper's set-up, by quadrature over the score: the calibrator's limit is E[P(Y = 1 | S, labels)]."""
    a, b = preference_like.SCORE_LAW
    score, weight = _nodes()
    density: FloatArray = a * b * score ** (a - 1) * (1 - score**a) ** (b - 1)  # of a good response's score
    mirrored = density[::-1]  # the nodes are symmetric
    taught = float(cell["taught"])
    rule = taught * density / (taught * density + (1 - taught) * mirrored)
    target = weight * (THETA * density + (1 - THETA) * mirrored)
    target /= target.sum()
    calibrated = float(target @ rule) - THETA
    raw = float(target @ score) - THETA
    return {"raw_judge": raw, "rogan_gladen": 0.0, "direct_plug_in": calibrated, "direct": calibrated}


@cache
def _nodes() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of a quadrature over [0, 1]."""
    at, weight = np.polynomial.legendre.leggauss(400)
    return (at + 1) / 2, weight / 2


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    """A row per cell and method that ran: measures, exact bias and standard error, Youden's index."""
    rows = summary_table(ds.sel(policy=["target"]), MEASURES)
    rows = rows[[*CELL, "method", *(f"{name}{end}" for name in MEASURES for end in ("", "_mcse"))]]
    exact = [theory({name: row[name] for name in CELL}) for row in rows.to_dict("records")]
    for kind in ("bias", "se"):
        rows[f"exact_{kind}"] = [
            one.get(f"{kind}_{name}", np.nan) for one, name in zip(exact, rows["method"], strict=True)
        ]
    rows["youden"] = [
        preference_like.youden() if judge == GRADED else float(str(judge).removeprefix("J="))
        for judge in rows["judge"]
    ]
    return rows


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Bias under a shift; own labels against the exact standard errors; every measure."""
    rows = _measured(ds)
    out = {}
    shifted = rows[(rows["label_design"] == "base") & rows["method"].isin((*BORROWING, "raw_judge"))]
    if len(shifted):
        columns = ["judge", "stable", "taught", "labels", "method", "bias", "bias_mcse", "exact_bias"]
        out["Bias where the labels are the base policy's"] = shifted[[*columns, *COVERED]]
    own = rows[rows["label_design"] == "own"]
    if len(own):
        columns = ["judge", "labels", "method", "empirical_se", "empirical_se_mcse", "exact_se"]
        title = "Own labels: standard errors, simulated and exact"
        out[title] = own[[*columns, *COVERED, "width", "width_mcse"]]
        ratios = paired_table(ds.sel(label_design=["own"]), "labels_only", (), ratios=("rmse", "width"))
        columns = [
            "judge",
            "labels",
            "method",
            "rmse_ratio",
            "rmse_ratio_mcse",
            "width_ratio",
            "width_ratio_mcse",
        ]
        out["Own labels: RMSE and width over those of the labels alone"] = ratios[columns]
    return {**out, "All measures": rows}


def findings(ds: xr.Dataset) -> list[Finding]:
    """Who is right under which shift, the exact biases, the paper's numbers, the 1/J law and its price."""
    rows = _measured(ds)
    base = rows[(rows["label_design"] == "base") & (rows["judge"] != GRADED)]
    out = [_who_is_right(base[base["taught"] != THETA], stable) for stable in ("rates", "values")]
    graded = rows[(rows["judge"] == GRADED) & rows["method"].isin(("rogan_gladen", "direct"))]
    out += [_as_the_paper(graded), _law(rows[rows["label_design"] == "own"]), _price(ds)]
    return [finding for finding in out if finding is not None]


def _who_is_right(rows: pd.DataFrame, stable: str) -> Finding | None:
    right, wrong = ("rogan_gladen", "direct") if stable == "rates" else ("direct", "rogan_gladen")
    rows = rows[(rows["stable"] == stable) & (rows["youden"] >= CLEAR)]
    rows = rows[rows["labels"] == rows["labels"].max()]
    one, other = (rows[rows["method"] == name] for name in (right, wrong))
    if not len(one):
        return None
    good = below(one["bias"].abs(), one["bias_mcse"], RELEVANT)
    bad = every(
        opposite(below(abs(b), e, RELEVANT)) for b, e in zip(other["bias"], other["bias_mcse"], strict=True)
    )
    ends = [frame.loc[highest(frame["bias"].abs())] for frame in (one, other)]
    first, last = (said(float(end["bias"]), float(end["bias_mcse"])) for end in ends)
    exact = plain(float(ends[1]["exact_bias"]), ".3f")
    words = "sensitivity and specificity are" if stable == "rates" else "the predictive values are"
    silent = refusals(
        pd.concat([one, other]), ["method", "judge", "taught"], what="Refused runs have no bias"
    )
    return Finding(
        f"Where {words} stable and the prevalence is not, is {right} right and {wrong} wrong? "
        f"{ANSWER[every((good, bad))]}: the bias of {right} is {first} at worst and that of {wrong} {last} (exact "
        f"{exact}), over {len(one)} cells with the most labels and J of {plain(CLEAR)} or more. The data look the same "
        f"in both worlds. {silent}",
        f"{int(one['labels'].max())} borrowed labels, J of {plain(CLEAR)} or more: every |bias| of {right} is below "
        f"{plain(RELEVANT)} by 3 MCSE, every one of {wrong} above",
        every((good, bad)),
    )


def _as_the_paper(rows: pd.DataFrame) -> Finding | None:
    rows = rows[(rows["labels"] == rows["labels"].max()) & (rows["taught"] != THETA)]
    calibrated = rows[rows["method"] == "direct"].sort_values("taught")
    if not len(calibrated):
        return None
    shown = ", ".join(
        f"{said(float(row['bias']), float(row['bias_mcse']))} with labels at {plain(row['taught'])} (exact "
        f"{plain(row['exact_bias'], '.3f')})"
        for row in calibrated.to_dict("records")
    )
    gap = (calibrated["bias"] - calibrated["exact_bias"]).abs()
    holds = below(gap, calibrated["bias_mcse"], RELEVANT)
    silent = refusals(calibrated, ["taught", "labels"], what="Refused runs have no bias")
    return Finding(
        f"Is calibration with a graded judge of J = {plain(preference_like.youden(), '.2f')} as biased as its exact "
        f"bias says? {ANSWER[holds]}: by {shown}; the paper printed -.14 and .14. {silent}",
        f"each simulated bias is within {plain(RELEVANT)} of its exact value by 3 MCSE",
        holds,
    )


def _law(own: pd.DataFrame) -> Finding | None:
    rows = own[(own["method"] == "rogan_gladen") & (own["labels"] == own["labels"].max())]
    if not len(rows):
        return None
    products = [_label_error(row) for row in rows.to_dict("records")]
    identified = rows[rows["refused"] + rows["failed"] == 0]
    identified = identified[identified["youden"] >= CLEAR]
    ratio, error = (identified[f"empirical_se{end}"] / identified["exact_se"] for end in ("", "_mcse"))
    worst = highest((ratio - 1).abs()) if len(ratio) else None
    simulated = (
        "no cell is identified well enough to hold it against" if worst is None
        else f"simulated over exact it is {said(float(ratio[worst]), float(error[worst]))} at worst from J = .4 on"
    )  # fmt: skip
    out = rows[~rows.index.isin(identified.index)]["judge"].tolist()
    left = (
        f" Left out of the simulation, for refused runs or J below {plain(CLEAR)}: {', '.join(out)}."
        if out
        else ""
    )
    holds = below((ratio - 1).abs(), error, 0.15) if worst is not None else None
    return Finding(
        f"Does the correction's standard error follow the 1/J law? {ANSWER[holds]}: sqrt(m) J times its labels' part "
        f"stays within "
        f"{plain(min(products))}-{plain(max(products))} while J goes from "
        f"{plain(rows['youden'].min())} to {plain(rows['youden'].max())} (exact); {simulated}.{left}",
        "simulated over exact is within .15 of 1 by 3 MCSE in every cell with J of .4 or more",
        holds,
    )


def _label_error(row: dict[str, Any]) -> float:
    """``J sqrt(m)`` times the labels' part of the standard error: ``sqrt(E Var(Z | Y))``."""
    judge = judge_of({"judge": row["judge"]}, THETA)
    labels = row["exact_se"] ** 2 - THETA * (1 - THETA) / row["n"]
    return float(judge.youden * np.sqrt(labels / (1 / row["labels"] - 1 / row["n"])))


def _price(ds: xr.Dataset) -> Finding | None:
    if "own" not in ds["label_design"].values:
        return None
    part = ds.sel(label_design=["own"], labels=[int(ds["labels"].max())])
    pairs = paired_table(part, "direct", (), ratios=("rmse",))
    pairs = pairs[pairs["method"] == "rogan_gladen"]
    words, above = [], []
    for row in pairs.to_dict("records"):
        one = theory({name: row[name] for name in CELL})
        exact = one["se_rogan_gladen"] / one["se_direct"]
        words.append(
            f"{said(row['rmse_ratio'], row['rmse_ratio_mcse'])} at {row['judge']} (exact {plain(exact, '.2f')})"
        )
        above.append(opposite(below(row["rmse_ratio"], row["rmse_ratio_mcse"], 1.0)))
    mine = _measured(part)
    silent = refusals(mine[mine["method"].isin(("rogan_gladen", "direct"))], ["judge", "method"])
    return Finding(
        f"Does the correction cost precision where labels are own? {ANSWER[every(above)]}: its RMSE over the "
        f"calibration's is {', '.join(words)}. {silent}",
        "above 1 by 3 MCSE, on the same data, at every J",
        every(above),
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Bias by prevalence in three worlds; standard errors by Youden's index."""
    rows = _measured(ds)
    rows = rows[rows["labels"] == rows["labels"].max()]
    made = {}
    base = rows[rows["label_design"] == "base"]
    if len(base):
        made[SHIFTS] = _shifts(base)
    own = rows[rows["label_design"] == "own"]
    if len(own):
        made[YOUDEN] = _youden(own)
    return made


def _draw(ax: Axes, rows: pd.DataFrame, name: str, measure: tuple[str, str], along: str, **by: Any) -> None:
    """A method's simulated measure with 95% bounds and its exact value, a line; times `scale`, moved by `aside`."""
    k = ("labels_only", *BORROWING).index(name)
    one = rows[rows["method"] == name].sort_values(along)
    simulated, exact = measure
    scale, at = by.get("scale", lambda x: 1.0)(one[along]), one[along] + by.get("aside", 0.0)
    ax.plot(one[along], scale * one[exact], color=OKABE_ITO[k], lw=1)
    bars = 1.96 * scale * one[f"{simulated}_mcse"]
    look: dict[str, Any] = {"color": OKABE_ITO[k], "marker": MARKERS[k], "ms": 4, "capsize": 2, "ls": "none"}
    ax.errorbar(at, scale * one[simulated], bars, label=name, **look)


def _shifts(base: pd.DataFrame) -> Figure:
    binary = base[base["judge"] != GRADED]
    shown = binary.loc[lowest((binary["youden"] - CLEAR).abs()), "judge"] if len(binary) else ""
    binary = binary[binary["judge"] == shown]
    unshifted = binary[binary["taught"] == THETA]  # one world under either name
    panels = [
        (f"rates stable, {shown}", binary[binary["stable"] == "rates"]),
        (f"values stable, {shown}", pd.concat([binary[binary["stable"] == "values"], unshifted])),
        ("graded judge, rates stable", base[base["judge"] == GRADED]),
    ]
    panels = [panel for panel in panels if len(panel[1])]
    fig = Figure(figsize=(3.1 * len(panels) + 0.4, 3.3), layout="constrained")
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, rows) in zip(axes, panels, strict=True):
        ax.axhline(0, color=GREY, ls="--", lw=1, zorder=0)
        for k, name in enumerate(BORROWING):
            _draw(ax, rows, name, ("bias", "exact_bias"), "taught", aside=0.012 * (k - 1))
        ax.set(title=title, xlabel="prevalence where the labels are")
    axes[0].set_ylabel("bias of the target's value")
    legend(fig)
    return fig


def _youden(own: pd.DataFrame) -> Figure:
    fig = Figure(figsize=(6.6, 3.3), layout="constrained")
    left, right = fig.subplots(1, 2)
    errors = ("empirical_se", "exact_se")
    for name in ("labels_only", "rogan_gladen", "direct"):
        _draw(left, own, name, errors, "youden")
    _draw(right, own, "rogan_gladen", errors, "youden", scale=lambda youden: youden)
    left.set(xlabel="Youden's index J", ylabel="standard error", yscale="log")
    left.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
    left.minorticks_off()
    right.set(xlabel="Youden's index J", ylabel="J times the standard error", ylim=(0, None))
    legend(fig)
    return fig


METHODS = {
    "raw_judge": Method("control, biased: share that the judge passes, or its mean score"),
    "labels_only": Method("control, unbiased: mean own label (where the target has labels)"),
    "rogan_gladen": Method("misclassification correction of the verdict (graded scores are cut at one half)"),
    "direct_plug_in": Method(
        "calibrated plug-in on borrowed labels, as the paper has it", "direct", {"borrowed": "plug_in"}
    ),
    "direct": Method(
        "Direct as it comes: balanced one-step where labels are borrowed, tuned prediction where own"
    ),
    "bayes_rogan_gladen": Method("Bayesian form of the correction (paper profile only: .3 s a fit)"),
}

RUN_GROUPS = ("pages",)
STUDY = Study(
    name="misclassification",
    title="Misclassification correction or calibration?",
    aims="Find out which of the two is unbiased when the labels come from a policy of another prevalence; whether the "
    "correction's standard error follows 1/J; and what it costs against calibration where both are right.",
    mechanism="Scenario binary_judge: a pass/fail judge and oracle, sensitivity (1 + J)/2 + .05 and specificity (1 + "
    "J)/2 - .05; labels at random under the base policy, whose prevalence is .3, .5 or .7, or under the target. Either "
    "the rates are stable (target prevalence .5) or the predictive values are; the observable law is the same."
    " Scenario preference_like: graded scores with J = .41, stable rates.",
    estimands="V(target), a parameter or a finite sum.",
    measures="Bias, empirical standard error, RMSE, coverage, width, refusals, with Monte Carlo standard errors; exact "
    "large-sample biases and standard errors beside them.",
    factors={
        "judge": ("J=.2", "J=.4", "J=.6", "J=.8", GRADED),
        "stable": ("rates", "values"),
        "taught": (0.3, THETA, 0.7),
        "label_design": ("base", "own"),
        "n": (1000,),
        "labels": (100, 400),
    },
    policies=("target",),
    methods=METHODS,
    profiles={
        "smoke": Profile(
            4,
            {"judge": ("J=.4", "J=.8", GRADED), "taught": (0.3, THETA), "labels": (400,)},
            without=("bayes_rogan_gladen",),
        ),
        "quick": Profile(100, {"labels": (400,)}, without=("bayes_rogan_gladen",)),
        "paper": Profile(1000),
    },
    setting=setting,
    worlds=("binary_judge", "preference_like"),
    keep=keep,
    theory=theory,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="Prevalences and J = .41 are those of the paper's comparison; the other J span what judges show, from "
        "code (.05) to easy preferences (.9); n and labels are one benchmark's size.",
        replicates="100 (quick) give biases to about .01 at J = .4; 1,000 (paper) to .003, a seventh of what matters.",
        failures="A correction that is not identified keeps its clipped value and the whole range as interval; an "
        "estimate without a number counts as refused and as a miss.",
        primary="Bias of rogan_gladen and direct with borrowed labels at prevalence .3 and .7.",
        relevant="A bias of .02: two points of a win rate.",
    ),
    claims=("tab-binary-comparison",),
    block=50,
)
