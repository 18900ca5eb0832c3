"""What makes importance sampling fail: errors of teacher-forced likelihoods, or lack of coverage.

The paper's limitations ("Teacher forcing and API drift") name both and cannot tell them apart: its log-likelihoods
carry errors of unknown size and its targets differ from the logger. Here each has a factor of its own. `likelihoods`
says what is recorded: the exact ones, errors in one row of ten (the paper's clone, whose ESS/n is 26% at its sample
size) and at the lowest judge levels, or in every row (26% in the limit). `shift` scales every target's divergence from
the logger and so its TTC, while no true value changes with it. At ``shift = 1`` with errors in one row of ten the world
is that of the benchmark.

Log ratios of fresh draws are recorded with the same errors, so each data set is audited by
`cje_core.offpolicy.ratio_calibration.ratio_calibration`: as recorded, and with .05 nats per token planted on either
side.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.checks import FloatArray
from cje_core.figures.style import GREY, MARKERS, OKABE_ITO
from cje_core.offpolicy.ratio_calibration import ratio_calibration
from cje_core.streams import Cell
from cje_sim.scenarios import arena_like
from cje_sim.scenarios.arena_like import CHARS_PER_TOKEN, CHARS_PER_WORD
from cje_sim.tokens.teacher_forcing import sd_for_ess
from studies.engine.grids import HALF, RULE, Average, average, ranked, rows_of, scored
from studies.engine.measures import summary_table
from studies.engine.outcome import NOT_RUN
from studies.engine.panels import legend, plain_log
from studies.engine.scenario import replicate_with_facts
from studies.engine.sentences import ANSWER
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study

LIKELIHOODS: dict[str, dict[str, Any]] = {
    "exact": {"noise_share": 0.0, "noise_sd": 0.0, "low_error": 0.0},
    "one_in_ten": {"noise_share": 0.1, "noise_sd": 1.45},
    "every_row": {"noise_share": 1.0, "noise_sd": sd_for_ess(0.26), "low_error": 0.0},
}
SHIFTED = (
    "parallel_universe_prompt",
    "premium",
)  # targets whose divergence the factor scales, and f transports
CLONE = "clone"
PLANTED, SIZE, POWER = 0.05, 0.05, 0.9  # nats per token; of the audit of log ratios
AUDITS = {"p_ratios": 0.0, "p_ratios_high": PLANTED, "p_ratios_low": -PLANTED}
RELEVANT = 0.05  # change of pairwise accuracy that would matter
METHODS = {
    "raw_judge": Method("control, biased: mean judge score"),
    "all_labels": Method("control, unbiased: mean of an oracle label of every response", "labels_only"),
    "direct": Method(
        "calibrated plug-in, reads no likelihood", "direct", {"correction": "none", "borrowed": "plug_in"}
    ),
    "snips": Method("self-normalised importance sampling of calibrated rewards"),
    "calibrated_ips": Method("the same with stabilised weights", options={"borrowed": "plug_in"}),
    "dr_cpo": Method("doubly robust, raw weights"),
}
WEIGHTED = ("snips", "calibrated_ips", "dr_cpo")


def with_error(data: xr.Dataset, nats: float) -> xr.Dataset:
    """Add an error of `nats` per token to the recorded log-likelihoods of every target, logged and fresh.

    Fresh responses have as many tokens as their words say, up to rounding.
    """
    target = xr.Variable("policy", np.arange(data.sizes["policy"]) > 0).astype(float)
    tokens = data["covariate"].sel(feature="response_length", drop=True) * CHARS_PER_WORD / CHARS_PER_TOKEN
    return data.assign(
        logp_target=np.minimum(data["logp_target"] + nats * target * data["n_tokens"], 0.0),
        log_ratio=data["log_ratio"] + nats * target * tokens,
        surprisal=data["surprisal"] - nats * target,
    )


def audited(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return p-values of the audit of log ratios by policy, as recorded and with planted errors; NaN: unchecked."""
    out = {}
    for name, nats in AUDITS.items():
        found = ratio_calibration(with_error(data, nats) if nats else data)
        out[name] = found["p_value"].where((found["method"] == "two_sided") | (found["p_value"] < SIZE))
    return out


def setting(study: Study, cell: Cell) -> Setting:
    """The Arena-like world with the cell's errors and divergence."""
    arguments = {name: level for name, level in cell.items() if name != "likelihoods"}
    return Setting(
        "arena_like", study.policies, arguments | LIKELIHOODS[str(cell["likelihoods"])], study.methods
    )


def theory(cell: Cell) -> dict[str, Any]:
    """Exact TTC and limit of ESS/n by policy, recorded and with the errors taken away: the difference is theirs."""
    shift = float(cell["shift"])
    recorded = arena_like.overlap(shift=shift, **LIKELIHOODS[str(cell["likelihoods"])])
    true = arena_like.overlap(shift=shift, **LIKELIHOODS["exact"])
    order = {"policy": list(STUDY.policies)}
    return {
        "ttc": recorded["ttc"].sel(order).values,
        "log10_ess": recorded["log10_ess"].sel(order).values,
        "log10_ess_true": true["log10_ess"].sel(order).values,
    }


def squares(ds: xr.Dataset, policies: tuple[str, ...]) -> Average:
    """Mean squared error per method over these policies; `ds` is one cell or several."""
    return average((scored(ds.sel(policy=list(policies)))["error"] ** 2).mean(axis=-1))


def coverage_share(exact: Average, both: Average, neither: Average, k: int) -> tuple[float, float]:
    """Share of the rise of the MSE, from neither cause to both, that lack of coverage alone gives, and its MCSE.

    ``(MSE(exact, shift) - MSE(exact, 0)) / (MSE(errors, shift) - MSE(exact, 0))``, three independent cells.
    """
    a, b, c = (float(part.value[k]) for part in (exact, both, neither))
    share = (a - c) / (b - c)
    slopes = (1 / (b - c), -share / (b - c), (share - 1) / (b - c))
    errors = (float(part.mcse[k]) for part in (exact, both, neither))
    return share, math.hypot(*(slope * error for slope, error in zip(slopes, errors, strict=True)))


def _cell(ds: xr.Dataset, likelihoods: str, shift: float) -> xr.Dataset:
    return ds.sel(likelihoods=[likelihoods], shift=[shift], n=[ds["n"].values.max()])


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """RMSE of the shifted targets by cell, of the clone, ESS/n by its two causes, and rankings."""
    rows, clone, orders, causes = [], [], [], []
    methods = [str(m) for m in ds["method"].values]
    for n in ds["n"].values:
        for shift in ds["shift"].values:
            for name in ds["likelihoods"].values:
                part = ds.sel(n=[n], shift=[shift], likelihoods=[name])
                at: dict[str, Any] = {"n": n, "shift": shift, "likelihoods": name}
                exact = part.isel(n=0, shift=0, likelihoods=0, oracle_fraction=0)
                ttc = float(exact["theory_ttc"].sel(policy=list(SHIFTED)).mean())
                rows.append(at | {"TTC": ttc} | _columns(_rmse(part, SHIFTED), methods))
                clone.append(at | _columns(_rmse(part, (CLONE,)), methods))
                orders.append(at | _columns(average(ranked(part).pairwise), methods))
                for p in (CLONE, *SHIFTED) if n == ds["n"].values[0] else ():
                    one = exact.sel(policy=p)
                    whole, true = float(one["theory_log10_ess"]), float(one["theory_log10_ess_true"])
                    cause = {"log10 ESS/n": whole, "by coverage": true, "by errors": whole - true}
                    causes.append({"policy": p, **at, "TTC": float(one["theory_ttc"])} | cause)
    return {
        "RMSE of the shifted targets (mean TTC, exact)": pd.DataFrame(rows),
        "RMSE of the clone": pd.DataFrame(clone),
        "Share of policy pairs in the right order": pd.DataFrame(orders),
        "Limit of log10 ESS/n by its causes (exact)": pd.DataFrame(causes).drop(columns="n"),
        "Share of runs whose log ratios the audit calls wrong, at level .05 (unchecked: next to no overlap)": _audits(
            ds
        ),
        "Every cell": summary_table(ds, ("rmse", "bias", "coverage", "width"), pool=False),
    }


def _rejected(p: xr.DataArray, among: xr.DataArray | None = None) -> tuple[float, float, float]:
    """Share of audits that reject, its Monte Carlo standard error, and the share unchecked.

    Of those that were checked, or of those that were in another audit of the same data (`among`), whether they are here
    or not.
    """
    rows: FloatArray = rows_of(p, "policy")
    known = np.isfinite(rows if among is None else rows_of(among, "policy"))
    if not known.any():
        return np.nan, np.nan, 1.0
    share = float((rows[known] < SIZE).mean())
    # policies of a replicate share its logged responses: residuals are summed by replicate
    error = np.where(known, (rows < SIZE) - share, 0.0).sum(axis=-1)
    return share, float(np.sqrt((error**2).sum()) / known.sum()), float((~known).mean())


def _audits(ds: xr.Dataset) -> pd.DataFrame:
    rows = []
    for n in ds["n"].values:
        for shift in ds["shift"].values:
            for name in ds["likelihoods"].values:
                part = ds.sel(n=[n], shift=[shift], likelihoods=[name])
                for p in (CLONE, *SHIFTED):
                    row: dict[str, Any] = {"n": n, "shift": shift, "likelihoods": name, "policy": p}
                    for audit, nats in AUDITS.items():
                        words = f"{nats:+g} nats per token" if nats else "as recorded"
                        found = _rejected(part[audit].sel(policy=[p]))
                        row[words], row[f"{words}_mcse"] = found[:2]
                        row["unchecked"] = max(row.get("unchecked", 0.0), found[2])
                    rows.append(row)
    return pd.DataFrame(rows)


def _audit_finding(ds: xr.Dataset) -> Finding:
    """Whether the audit keeps its level where coverage alone is lacking, and finds the planted error."""
    part = ds.sel(n=[ds["n"].values.max()], likelihoods=["exact"], policy=list(SHIFTED))
    part = part.sel(shift=[s for s in part["shift"].values if s > 0])
    size, size_mcse, blind = _rejected(part["p_ratios"])
    both = xr.concat([part["p_ratios_high"], part["p_ratios_low"]], dim="policy")
    power, power_mcse, _ = _rejected(both, among=xr.concat([part["p_ratios"]] * 2, dim="policy"))
    kept = None if np.isnan(size) else size - HALF * size_mcse <= SIZE
    strong = (
        True if power - HALF * power_mcse >= POWER else False if power + HALF * power_mcse < POWER else None
    )
    answer = False if False in (kept, strong) else True if kept and strong else None
    words = "none of the shifted targets overlaps enough with the logger that its log ratios can be checked"
    if np.isfinite(size):
        words = (
            f"of the shifted targets that overlap enough ({100 * (1 - blind):.0f}%) the audit calls {100 * size:.1f}% "
            f"({100 * size_mcse:.1f}) wrong where coverage alone is lacking, and {100 * power:.1f}% "
            f"({100 * power_mcse:.1f}) with {PLANTED:g} nats per token of error"
        )
    return Finding(
        "Can test functions tell errors of likelihoods from lack of coverage on one's own logs? "
        f"{ANSWER[answer]}: at n = {int(part['n'].item()):,} {words}.",
        RULE
        + f"{SIZE:g} for the first share, which may not lie above, and {POWER:g} for the second, not below",
        answer,
    )


def _rmse(ds: xr.Dataset, policies: tuple[str, ...]) -> Average:
    return average((scored(ds.sel(policy=list(policies)))["error"] ** 2).mean(axis=-1), "root")


def _columns(found: Average, methods: list[str]) -> dict[str, float]:
    pairs = zip(methods, found.value, found.mcse, strict=True)
    return {f"{m}{end}": float(x) for m, v, e in pairs for end, x in (("", v), ("_mcse", e))}


def findings(ds: xr.Dataset) -> list[Finding]:
    """Noise of likelihoods or lack of overlap, for the shifted targets; what errors alone do to the clone; rankings."""
    levels, names = [float(s) for s in ds["shift"].values], [str(v) for v in ds["likelihoods"].values]
    if not {"exact", "one_in_ten"} <= set(names) or not {0.0, 1.0} <= set(levels):
        return []
    corner = {(name, s): _cell(ds, name, s) for name in ("exact", "one_in_ten") for s in (0.0, 1.0)}
    methods = [str(m) for m in ds["method"].values]
    k, plain = methods.index("snips"), methods.index("direct")
    mse = {key: squares(part, SHIFTED) for key, part in corner.items()}
    share, mcse = coverage_share(mse["exact", 1.0], mse["one_in_ten", 1.0], mse["exact", 0.0], k)
    rmse = {key: _rmse(part, SHIFTED) for key, part in corner.items()}
    alike = {key: _rmse(part, (CLONE,)) for key, part in corner.items()}
    price = alike["one_in_ten", 1.0].over(alike["one_in_ten", 1.0].at(*[plain] * len(methods)))
    order = {key: average(ranked(part).pairwise) for key, part in corner.items()}
    gain = order["exact", 1.0].at(k).value[0] - order["one_in_ten", 1.0].at(k).value[0]
    gain_mcse = math.hypot(order["exact", 1.0].mcse[k], order["one_in_ten", 1.0].mcse[k])
    alone = [
        (float(rmse[key].value[k]), float(rmse[key].mcse[k])) for key in (("exact", 1.0), ("one_in_ten", 0.0))
    ]
    left = _left_out(ds, corner.values())
    more, more_mcse = alone[0][0] - alone[1][0], math.hypot(alone[0][1], alone[1][1])
    overlap = True if more > HALF * more_mcse else False if more < -HALF * more_mcse else None
    costly = True if price.low[k] > 1.1 else False if price.high[k] < 1.1 else None
    repair = True if gain > HALF * gain_mcse else False if gain + HALF * gain_mcse < RELEVANT else None
    return [
        Finding(
            f"Does SNIPS fail for lack of overlap rather than for errors of likelihoods? {ANSWER[overlap]}: lack of "
            f"overlap alone, with exact likelihoods, gives {100 * share:.0f}% ({100 * mcse:.0f}) of the rise "
            f"of the MSE of SNIPS: its RMSE on the shifted targets is {rmse['exact', 0.0].said(k)} with neither cause, "
            f"{rmse['one_in_ten', 0.0].said(k)} with errors alone, {rmse['exact', 1.0].said(k)} with lack of overlap "
            f"alone, {rmse['one_in_ten', 1.0].said(k)} with both; direct has {rmse['one_in_ten', 1.0].said(plain)}. "
            f"{left}",
            RULE
            + "0 for the RMSE under lack of overlap alone less that under errors alone: above it is lack of overlap",
            overlap,
        ),
        Finding(
            "Do likelihood errors alone cost SNIPS more than a tenth, on a copy of the logger? "
            f"{ANSWER[costly]}: its RMSE is {alike['exact', 1.0].said(k)} with exact likelihoods and "
            f"{alike['one_in_ten', 1.0].said(k)} with errors, {price.said(k)} times that of direct on the same data. "
            f"{left}",
            RULE + "1.1 for the ratio to direct",
            costly,
        ),
        Finding(
            f"Would better likelihoods repair the ranking? {ANSWER[repair]}: exact ones change the share of pairs that "
            f"SNIPS orders rightly by {100 * gain:.1f}% "
            f"({100 * gain_mcse:.1f}), from {order['one_in_ten', 1.0].said(k, percent=True)} to "
            f"{order['exact', 1.0].said(k, percent=True)}; with them and no divergence it is "
            f"{order['exact', 0.0].said(k, percent=True)}; direct has "
            f"{order['one_in_ten', 1.0].said(plain, percent=True)}. A pair without two numbers counts as wrong. {left}",
            RULE + f"0 and {RELEVANT:.0%} for the change: above 0 it does, below the other it does not",
            repair,
        ),
        _audit_finding(ds),
    ]


def _left_out(ds: xr.Dataset, corner: Iterable[xr.Dataset]) -> str:
    """Return what the sentences are not about: other levels, the adversarial policy, runs without a number."""
    silent = sum(int((np.isnan(part["estimate"]) & (part["status"] != NOT_RUN)).sum()) for part in corner)
    shifts = [f"{s:g}" for s in ds["shift"].values if s not in (0.0, 1.0)]
    levels = [str(name) for name in ds["likelihoods"].values if name not in ("exact", "one_in_ten")]
    out = [f"n = {int(n):,}" for n in ds["n"].values if n != ds["n"].values.max()]
    out += [f"shift {', '.join(shifts)}"] * bool(shifts) + [f"likelihoods {', '.join(levels)}"] * bool(levels)
    words = f"Left out: {'; '.join(out)}. " if out else ""
    return f"{words}Runs of a policy without a number, in all methods of these cells: {silent}."


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """RMSE against exact TTC of each shifted target, one panel per method, one colour per kind of likelihoods."""
    part = ds.isel(n=[int(np.argmax(ds["n"].values))])
    shown = [m for m in WEIGHTED if m in part["method"].values]
    fig = Figure(figsize=(3.1 * len(shown) + 0.4, 3.6), layout="constrained")
    axes = fig.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    methods = [str(m) for m in part["method"].values]
    for ax, method in zip(axes, shown, strict=True):
        for i, name in enumerate(part["likelihoods"].values):
            for j, policy in enumerate(SHIFTED):
                cells = [part.sel(likelihoods=[name], shift=[s]) for s in part["shift"].values]
                ttc = [float(c["theory_ttc"].sel(policy=policy).squeeze()) for c in cells]
                found = [_rmse(c, (policy,)).at(methods.index(method)) for c in cells]
                y = [float(one.value[0]) for one in found]
                error = [HALF * float(one.mcse[0]) for one in found]
                look: dict[str, Any] = {"color": OKABE_ITO[i], "marker": MARKERS[j], "ms": 4, "lw": 1}
                ax.errorbar(ttc, y, error, ls="-" if j else "--", label=f"{name}, {policy}", **look)
        flat = _rmse(part, SHIFTED).at(methods.index("direct")).value[0]
        ax.axhline(float(flat), color=GREY, lw=1, label="direct")
        ax.set(title=method, xlabel="TTC, exact")
        ax.invert_xaxis()
    axes[0].set_ylabel(f"RMSE, n = {int(part['n'].item()):,}")
    plain_log(axes[0])
    legend(fig, ncols=3, fontsize=7)
    return {
        "RMSE of targets at growing divergence from the logger (TTC falls to the right) with exact likelihoods and "
        "with two kinds of errors; bars: 95% Monte Carlo. Grey: Direct, which reads no likelihood.": fig
    }


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="tf_versus_coverage",
    title="Noise of likelihoods or lack of overlap?",
    aims="Decide which of the two causes that the paper cannot separate makes importance sampling fail: errors of "
    "teacher-forced likelihoods, or a logger that does not visit what the targets say.",
    mechanism="Scenario arena_like. Recorded log-likelihoods are exact, wrong in one row of ten (sd 1.45 nats) and at "
    "the lowest judge levels, or wrong in every row (sd 1.16 nats: a copy of the logger keeps 26% of its sample); the "
    "divergence of every target "
    "from the logger is scaled from none to that of the benchmark. A quarter of the base policy's prompts is labelled.",
    estimands="V(policy) = E[Y], by quadrature: the same in every cell.",
    measures="RMSE over the two shifted targets to which calibration transports, and of the copy; the share of the "
    "rise of the MSE that lack of coverage alone gives; pairwise accuracy; exact TTC and limit of ESS/n by cause; "
    "size and power of the audit of log ratios.",
    scenario="arena_like",
    worlds=("arena_like",),
    setting=setting,
    factors={
        "likelihoods": tuple(LIKELIHOODS),
        "shift": (0.0, 0.03, 0.1, 0.3, 1.0),
        "n": (1000, 5000),
        "oracle_fraction": (0.25,),
    },
    policies=("base", CLONE, *SHIFTED, "unhelpful"),
    methods=METHODS,
    profiles={
        "smoke": Profile(3, {"likelihoods": ("exact", "one_in_ten"), "shift": (0.0, 1.0), "n": (1000,)}),
        "quick": Profile(40, {"shift": (0.0, 0.1, 1.0), "n": (1000,)}),
        "paper": Profile(500),
    },
    replicate=partial(replicate_with_facts, of_data=audited, all_labelled=("all_labels",)),
    theory=theory,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="the world is fitted to public facts of the paper's data; the errors give its clone's ESS/n",
        replicates="500 per cell: the relative MCSE of an MSE is about sqrt(2/500) = 6%, that of the share some points",
        failures="a method without a number is left out of the RMSE and has its pairs wrong",
        primary="RMSE of SNIPS on shifted targets, under lack of overlap alone less under errors alone, largest n",
        relevant="any difference: the question is which of the two is the larger cause",
    ),
    claims=("tf-versus-coverage", "dr-is-direct"),
    block=10,
)
