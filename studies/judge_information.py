"""What a judge's information is worth: garbled judges, folded scales, and a covariate.

"Causal Judge Evaluation", corollary on Blackwell ordering: a judge who reports less than another, through whatever
channel, cannot have the lower variance bound. With own labels the bound is ``Var Y / n + E Var(Y | report) (1 / m - 1 /
n)`` (`cje_sim.exact.judged_means`), a finite sum or a quadrature here. The order is one of *bounds*: a calibrator that
must rise with the score reaches its own, larger variance, and there a judge who tells less may do better, by reporting
on a scale that rises. Random finite judges with random channels show both.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy import special

from cje_core.calibration.calibrated import Calibration
from cje_core.figures.style import looks
from cje_core.streams import Cell, generator
from cje_sim.exact.judged_means import garbled, parts, score_parts, two_phase
from cje_sim.judges import FloatArray, cell_means, oracle_mean
from cje_sim.scenarios import discrete_judge, garbled_judge, length_bias
from studies.engine.measures import paired_table, summary_table
from studies.engine.panels import legend
from studies.engine.sentences import ANSWER, below, every, highest, plain, refusals, said
from studies.engine.study import Finding, Method, Profile, Protocol, Scenario, Setting, Study

BITS = (5, 3, 2, 1, 0)  # what the coarse judge reports, by the level of `loss`
CHANNELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # probability that the noisy judge reports a level at random
# A folded judge: quality rises with the distance from the middle, so a calibrator that must rise sees nothing.
FOLDED = {"levels": tuple((np.arange(8) + 0.5) / 8), "shares": (0.125,) * 8}
FOLDED_MEANS = (0.85, 0.65, 0.45, 0.25, 0.25, 0.45, 0.65, 0.85)
LOSSES = {"coarse": 5, "noisy": 5, "folded": 2, "length": 1}
CELL = ["judge", "loss", "n", "labels"]
RANDOM, LEVELS = 400, 5  # finite judges drawn, and their levels
CLOSE = 0.1
CAPTION = (
    "Standard error of the value by what the judge loses on the way: exact bound (solid line), exact for the best "
    "calibrator that rises with the score (dotted), simulated (marks, 95% Monte Carlo). Right: the same judge with and "
    "without the covariate."
)


def levels_of(judge: str, loss: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Levels, shares and label means of the noisy and the folded judge's reports."""
    if judge == "noisy":
        level, mean = np.array(discrete_judge.LEVELS), np.array(discrete_judge.MEANS)
        share = np.array(discrete_judge.SHARES["base"])
        channel = (1 - CHANNELS[loss]) * np.eye(len(level)) + CHANNELS[loss] / len(level)
    else:
        level, share = np.array(FOLDED["levels"]), np.array(FOLDED["shares"])
        mean = np.array(FOLDED_MEANS)
        channel = np.eye(8)
        if loss:  # tells the distance from the middle only
            level = np.array([0.125, 0.375, 0.625, 0.875])
            channel = np.vstack([np.eye(4)[::-1], np.eye(4)])
    reported = share @ channel
    return level, reported, (share * mean) @ channel / reported


def simulate_levels(*, n: int, oracle_fraction: float, judge: str, loss: int, rng: Any) -> xr.Dataset:
    """The scenario discrete_judge with the reports of one policy; labels pass or fail, so that reports are garbled."""
    level, share, mean = levels_of(judge, loss)
    return discrete_judge.simulate(
        n=n, oracle_fraction=oracle_fraction, levels=level, means=mean, shares={"base": share}, atoms=1.0,
        prompt_corr=0.0, rng=rng,
    )  # fmt: skip


def truth_levels(*, judge: str = "noisy", loss: int = 0) -> xr.DataArray:
    """Its value, whatever is lost."""
    _, share, mean = levels_of(judge, loss)
    return discrete_judge.truth(means=mean.tolist(), shares={"base": share.tolist()})


def setting(study: Study, cell: Cell) -> Setting:
    """The judge's world; the covariate is used where there is one."""
    judge, loss, n = str(cell["judge"]), int(cell["loss"]), int(cell["n"])
    arguments: dict[str, Any] = {"n": n, "oracle_fraction": int(cell["labels"]) / n}
    methods = set(study.methods) - ({"direct_covariate"} if judge != "length" else {"direct_two_stage"})
    if judge in ("noisy", "folded"):
        scenario: Any = Scenario(simulate_levels, truth_levels)
        return Setting(scenario, ("base",), {**arguments, "judge": judge, "loss": loss}, methods)
    arguments |= {"label_design": "base", "prompt_corr": 0.0}
    if judge == "coarse":
        return Setting("garbled_judge", ("base",), {**arguments, "bits": BITS[loss]}, methods)
    return Setting("length_bias", ("base",), arguments, methods)


def keep(cell: Cell) -> bool:
    """Each judge's own number of losses."""
    return 0 <= int(cell["loss"]) < LOSSES[str(cell["judge"])]


@cache
def left(judge: str, loss: int) -> tuple[float, float, float]:
    """Variance of the label; what the best prediction from the report leaves of it; what the best rising one leaves."""
    if judge in ("noisy", "folded"):
        _, share, mean = levels_of(judge, loss)
        return parts(np.stack([share * (1 - mean), share * mean], axis=1), [0.0, 1.0])
    if judge == "coarse":
        a, b = garbled_judge.SCORE_LAW["base"]
        between, within = score_parts((a, b), "sigmoid", 0.1, 0.95)
        prob, mean = cell_means(oracle_mean, a, b, np.linspace(0, 1, 2 ** BITS[loss] + 1).tolist())
        seen = prob > 0
        kept = float(prob[seen] @ mean[seen] ** 2 - (prob[seen] @ mean[seen]) ** 2)
        bound = between + within - kept  # the cells rise with the score, as the link does
        return between + within, bound, bound
    between, within, seen_by_score = _length_parts()
    bound = between + within - seen_by_score
    return between + within, bound, bound


@cache
def _length_parts() -> tuple[float, float, float]:
    """``Var E[Y | S, X]``, ``E Var(Y | S, X)`` and ``Var E[Y | S]`` of the length-biased judge, on a grid of logits."""
    a, b, _ = length_bias.POLICIES["base"]
    between, within = score_parts((a, b), "sigmoid", 0.1, 0.95)
    node, weight = np.polynomial.hermite_e.hermegauss(120)  # X, standard normal
    logit = np.linspace(-25, 25, 20_001)
    quality = special.expit(logit[:, None] - 0.5 * node)
    with np.errstate(over="ignore", invalid="ignore"):
        density = a * b * quality ** (a - 1) * (1 - quality**a) ** (b - 1) * quality * (1 - quality)
    density = np.where(np.isfinite(density), density, 0.0) * weight / weight.sum()
    share = density.sum(axis=1)
    moment = (density * oracle_mean(quality)).sum(axis=1)
    step = logit[1] - logit[0]
    squared = np.divide(moment**2, share, out=np.zeros_like(share), where=share > 1e-300)
    return between, within, float(squared.sum() * step - (moment.sum() * step) ** 2)


def theory(cell: Mapping[Any, Any]) -> dict[str, float]:
    """Exact standard errors: the bound, the best rising calibrator's, the labels alone; with the covariate."""
    n, m = int(cell["n"]), int(cell["labels"])
    whole, bound, rising = left(str(cell["judge"]), int(cell["loss"]))
    with_covariate = _length_parts()[1] if cell["judge"] == "length" else np.nan
    named = {"bound": bound, "rising": rising, "labels_only": whole, "covariate": with_covariate}
    return {f"se_{name}": two_phase(whole, value, n, m) ** 0.5 for name, value in named.items()}


@cache
def random_orders() -> pd.DataFrame:
    """Random finite judges through random channels: what bound and rising calibrator leave, fine and garbled; exact."""
    rng = generator(0, "judge_information", "random judges")
    rows = []
    for _ in range(RANDOM):
        law = rng.dirichlet(np.full(3 * LEVELS, 0.7)).reshape(LEVELS, 3)
        channel = rng.dirichlet(np.full(LEVELS, 0.5), size=LEVELS)
        fine, coarse = (parts(one, [0.0, 0.5, 1.0]) for one in (law, garbled(law, channel)))
        rows.append(
            {
                "bound": coarse.bound - fine.bound,
                "rising": coarse.monotone - fine.monotone,
                "whole": fine.whole,
            }
        )
    return pd.DataFrame(rows)


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    rows = summary_table(ds, ("empirical_se", "rmse", "width", "coverage", "bias"))
    exact = [theory(row) for row in rows.to_dict("records")]
    for name in ("bound", "rising", "labels_only", "covariate"):
        rows[f"exact_{name}"] = [one[f"se_{name}"] for one in exact]
    return rows


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Simulated and exact standard errors; the random orders; every measure."""
    rows, orders = _measured(ds), random_orders()
    shown = [
        *CELL,
        "method",
        "empirical_se",
        "empirical_se_mcse",
        "exact_bound",
        "exact_rising",
        "exact_covariate",
    ]
    summary = [
        {
            "of": name, "judges": len(orders), "lower_when_garbled": int((orders[name] < -1e-12).sum()),
            "least_change_over_variance": float((orders[name] / orders["whole"]).min()),
        }
        for name in ("bound", "rising")
    ]  # fmt: skip
    return {
        "Standard errors, simulated and exact": rows[
            [*shown, *(f"{m}{end}" for m in ("coverage", "refused", "failed") for end in ("", "_mcse"))]
        ],
        "Random finite judges through random channels (exact)": pd.DataFrame(summary),
        "All measures": rows,
    }


def findings(ds: xr.Dataset) -> list[Finding]:
    """The order of bounds, its failure for rising calibrators, what is simulated, what the covariate gives."""
    rows, orders = _measured(ds), random_orders()
    worse = int((orders["rising"] < -1e-12).sum())
    steps = [
        left(judge, k + 1)[1] - left(judge, k)[1] for judge, many in LOSSES.items() for k in range(many - 1)
    ]
    least = plain(min(orders["bound"].min(), *steps), ".2g")
    ordered = bool(orders["bound"].min() >= -1e-12 and min(steps) >= -1e-12)
    share, told = (plain(leaves[2] / leaves[0]) for leaves in (left("folded", 0), left("folded", 1)))
    out = [
        Finding(
            f"Does garbling a judge never lower the variance bound? {ANSWER[ordered]}: in {len(orders)} random judges "
            f"through random channels and {len(steps)} steps of these worlds the least change is {least} (exact).",
            "no change below -1e-12",
            ordered,
        ),
        Finding(
            f"Does that order hold for a calibrator that must rise with the score? {ANSWER[worse == 0]}: it fails in "
            f"{worse} of {len(orders)} random judges. The folded judge leaves it {share} of the label's variance, and "
            f"{told} once it tells less (exact).",
            "no random judge leaves it less after garbling",
            worse == 0,
        ),
        _simulated(rows),
        _covariate(ds),
    ]
    return [one for one in out if one is not None]


def _simulated(rows: pd.DataFrame) -> Finding:
    one = rows[(rows["method"] == "direct") & (rows["judge"] != "length")]
    ratio, error = one["empirical_se"] / one["exact_rising"], one["empirical_se_mcse"] / one["exact_rising"]
    at = highest((ratio - 1).abs())
    holds = below(ratio - 1, error, CLOSE)
    left = (
        ""
        if "length" not in set(rows["judge"])
        else " Left out: judge length, whose covariate has its own sentence."
    )
    return Finding(
        f"Does Direct reach the exact standard error of the best rising calibrator? {ANSWER[holds]}: simulated over "
        f"exact is {said(float(ratio[at]), float(error[at]))} at worst of {len(one)} cells ({one.loc[at, 'judge']}, "
        f"loss {one.loc[at, 'loss']}). {refusals(one, ['judge', 'loss'])}{left}",
        f"at most {plain(CLOSE)} above 1 by 3 MCSE in every cell",
        holds,
    )


def _covariate(ds: xr.Dataset) -> Finding | None:
    if "length" not in ds["judge"].values:
        return None
    part = ds.sel(judge=["length"], loss=[0])
    pairs = paired_table(part, "direct", (), ratios=("rmse", "width"))
    pairs = pairs[pairs["method"] == "direct_covariate"]
    exact = [theory(row) for row in pairs.to_dict("records")]
    words = [
        f"{said(row['rmse_ratio'], row['rmse_ratio_mcse'])} with {row['labels']} labels (exact "
        f"{plain(one['se_covariate'] / one['se_bound'])})"
        for row, one in zip(pairs.to_dict("records"), exact, strict=True)
    ]
    lower = [below(r, e, 1.0) for r, e in zip(pairs["rmse_ratio"], pairs["rmse_ratio_mcse"], strict=True)]
    return Finding(
        f"Does the covariate of a length-biased judge lower the RMSE? {ANSWER[every(lower)]}: by a factor of "
        f"{', '.join(words)}, without loss of information, each method over the runs with a number.",
        "below 1 by 3 MCSE, on the same data",
        every(lower),
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Standard errors by loss, one panel per judge."""
    rows = _measured(ds)
    rows = rows[rows["labels"] == rows["labels"].max()]
    judges = list(dict.fromkeys(rows["judge"]))
    fig = Figure(figsize=(max(2.2 * len(judges) + 0.6, 6.6), 3.4), layout="constrained")
    axes = fig.subplots(1, len(judges), sharey=True, squeeze=False)[0]
    shown = [name for name in METHODS if name != "raw_judge"]
    for ax, judge in zip(axes, judges, strict=True):
        part = rows[rows["judge"] == judge]
        exact = part.drop_duplicates("loss")
        width = np.array([-0.3, 0.3])
        for name, style in (("bound", "-"), ("rising", ":"), ("covariate", "--")):
            for loss, value in zip(exact["loss"], exact[f"exact_{name}"], strict=True):
                ax.plot(loss + width, [value, value], ls=style, color="0.3", lw=1.2)
        for k, name in enumerate(shown):
            one = part[part["method"] == name]
            at = one["loss"] + 0.13 * (k - (len(shown) - 1) / 2)
            bars = 1.96 * one["empirical_se_mcse"]
            ax.errorbar(
                at, one["empirical_se"], bars, **looks(list(METHODS))[name], ls="none", ms=4, lw=1, label=name
            )
        ax.set(title=judge, xlabel=LOST[judge])
        names = TICKS[judge]
        ax.set_xticks(exact["loss"].to_numpy(), [names[int(k)] for k in exact["loss"]])
    axes[0].set_ylabel("standard error")
    legend(fig, shown)
    return {CAPTION: fig}


LOST = {"coarse": "bits reported", "noisy": "share at random", "folded": "what is told", "length": ""}
TICKS = {
    "coarse": [str(bits) for bits in BITS],
    "noisy": [f"{share:g}" for share in CHANNELS],
    "folded": ["side and\ndistance", "distance"],
    "length": ["solid: score, dashed:\nscore and length"],
}
METHODS = {
    "raw_judge": Method("control, biased: mean judge score"),
    "labels_only": Method("control, unbiased: mean of the labels"),
    "direct": Method("Direct as it comes: a calibrator that rises with the score"),
    "direct_two_stage": Method(
        "Direct with the paper's two-stage calibrator, whose index need not rise", "direct",
        {"calibration": Calibration(mode="two_stage")},
    ),
    "direct_covariate": Method(
        "Direct with response length beside the score", "direct", {"calibration": Calibration(covariates=("length",))}
    ),
}  # fmt: skip

RUN_GROUPS = ("pages",)
STUDY = Study(
    name="judge_information",
    title="What is a judge's information worth?",
    aims="Decide whether a judge who reports less can ever give the lower variance, for the bound and for calibrators "
    "that must rise with the score, and what a covariate that explains the judge's bias is worth.",
    mechanism="coarse (garbled_judge): 5, 3, 2, 1 or 0 bits of a graded score. noisy (discrete_judge, pass/fail "
    "labels): a report replaced by a random level with probability 0 to 1. folded (discrete_judge): quality is the "
    "distance from the middle of the scale; the garbled judge tells the distance only. length (length_bias): the score "
    "rewards length.",
    estimands="V(base), by quadrature or a finite sum; what the judge reports does not enter.",
    measures="Empirical standard error with its Monte Carlo standard error, against the exact bound and the exact "
    f"variance of the best rising calibrator; {RANDOM} random finite judges through random channels, exact.",
    factors={"judge": tuple(LOSSES), "loss": (0, 1, 2, 3, 4), "n": (1000,), "labels": (100, 250)},
    policies=("base",),
    methods=METHODS,
    profiles={
        "smoke": Profile(6, {"judge": ("noisy", "folded"), "loss": (0, 1), "labels": (250,)}),
        "quick": Profile(100, {"labels": (250,), "loss": (0, 1, 2, 4)}),
        "paper": Profile(2000),
    },
    setting=setting,
    worlds=("discrete_judge", "garbled_judge", "length_bias"),
    keep=keep,
    theory=theory,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="Levels and shares of the noisy judge are like those of a real one; the others are extremes on purpose.",
        replicates="2,000 (paper) give a standard error to 1.6%, 100 (quick) to 7%.",
        failures="An estimate without a number is left out of the standard error and counted.",
        primary="Exact variances, fine and garbled.",
        relevant="Any decrease of the exact bound; 10% between simulated and exact standard errors.",
    ),
    claims=("cor-blackwell", "covariates-matter"),
    block=50,
)
