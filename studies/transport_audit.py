"""The transport audit and what is printed after it: verdicts, their errors, coverage of the level that follows.

After the paper's section on calibration transportability: 50-200 probe labels audit a borrowed calibrator. Here the
target's mean residual is known, with endless labels that teach (the shift) and for the calibrator at hand (the shift
plus its own error, by quadrature), so the verdict can be held against what it is about. Two ways to go on from there:
the old rule, which prints the borrowed level unless the audit FAILs, and the tuned probe value, which is printed
whatever the audit says.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.checks import FloatArray
from cje_core.data.arrays import unpack
from cje_core.estimators import direct, direct_corrected
from cje_core.figures.style import GREY, OKABE_ITO
from cje_core.streams import Cell, Streams
from cje_core.transport import audit
from cje_core.transport.audit_size import VERDICTS
from cje_core.transport.margin import MARGIN
from cje_sim import scenarios
from cje_sim.judges import score_quantile
from studies.engine.measures import clopper_pearson, share_error, summary_table
from studies.engine.outcome import Outcome
from studies.engine.panels import legend
from studies.engine.sentences import ANSWER, bounds, keeps_level, kept, points, together, where
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study

LAW = (3.0, 2.0)  # of the judge score, the same under both policies
N_QUANTILES = 2000


def quantile_scores() -> FloatArray:
    """Return judge scores of the target under `LAW` at equal quantiles, for means over its law."""
    return score_quantile((np.arange(N_QUANTILES) + 0.5) / N_QUANTILES, *LAW)


def uniform_scores() -> FloatArray:
    """Return judge scores of `rare_probe_failures` at equal quantiles: uniform on (.6, 1)."""
    return np.asarray(0.6 + 0.4 * (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)


def rare_failures(shift: float) -> dict[str, Any]:
    """Return the policies of rare_probe_failures whose target fails so often that its value is lower by `shift`."""
    return {"failures": {"base": 0.0, "target": shift / 0.9}}  # (1 - p) .9 = .9 - shift


def moved_mean(shift: float) -> dict[str, Any]:
    """Return the policies of transport_shift whose target is lower by `shift` at every score."""
    return {"policies": {"base": (*LAW, "none", 0.0), "target": (*LAW, "mean", -shift)}}


class Judge(NamedTuple):
    """One level of the factor `judge`: a scenario with a policy ``target``, and what its shift is made of.

    Parameters
    ----------
    arguments : mapping
        What differs from the scenario's defaults at every shift.
    scenario : str
    shifted : function shift -> mapping
        Arguments with which the target's mean residual is ``-shift``.
    scores : function -> array
        Judge scores of the target at equal quantiles of its law.
    holds : str
        What is so by construction, for the page; the older judges stand in the study's mechanism.
    """

    arguments: Mapping[str, Any]
    scenario: str = "transport_shift"
    shifted: Callable[[float], Mapping[str, Any]] = moved_mean
    scores: Callable[[], FloatArray] = quantile_scores
    holds: str = ""


JUDGES = {
    "strong": Judge({"low": 0.3, "high": 0.9, "spread": 0.9, "atoms": 0.05}),
    "weak": Judge({"low": 0.42, "high": 0.62, "spread": 0.9, "atoms": 0.4}),
    "binary": Judge({"low": 0.3, "high": 0.95, "spread": 0.0, "atoms": 1.0}),
    "rare": Judge(
        {},
        "rare_probe_failures",
        rare_failures,
        uniform_scores,
        "labels near .9 follow the score, but a share of the target's answers, shift / .9, fails completely and "
        "unseen by the judge; the base policy never fails",
    ),
}
PRINTED = ("old_rule", "probe_tuned")
CELL = ["judge", "probes", "shift", "n", "labels"]
SIZE, POWER, UNDECIDED = (
    0.025,
    0.8,
    0.5,
)  # a verdict's error by its interval; what an audit should at least do
MEASURES = ("coverage", "width", "bias", "se_calibration")
CAPTION = (
    "Above: share of audits that FAIL (solid) and that PASS (dotted) by the true shift; the margin is the grey line. "
    "Below: coverage of the borrowed level that the old rule prints (the audit did not FAIL: the share refused is the "
    "solid line above) and of the tuned probe value; dashed: nominal 95%. Bars: exact 95% Monte Carlo bounds."
)


def setting(study: Study, cell: Cell) -> Setting:
    """The judge's world, its target shifted; labels of the base policy and probes of the target."""
    judge = JUDGES[str(cell["judge"])]
    arguments: dict[str, Any] = {
        "n": int(cell["n"]),
        "oracle_fraction": int(cell["labels"]) / int(cell["n"]),
        "n_probes": int(cell["probes"]),
        **judge.shifted(float(cell["shift"])),
        **judge.arguments,
    }
    return Setting(judge.scenario, ("target",), arguments, study.methods)


def truth_of(judge: Judge, arguments: Mapping[str, Any]) -> float:
    """Return V(target) of a judge's world, its scenario's truth taking those of the arguments that it asks for."""
    truth = scenarios.load(judge.scenario).truth
    asked = inspect.signature(truth).parameters
    return float(truth(**{k: v for k, v in arguments.items() if k in asked}).sel(policy="target"))


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One data set with labels of the base policy and probes of the target: levels, verdicts, residual of this f."""
    judge = JUDGES[str(cell["judge"])]
    world: dict[str, Any] = dict(setting(study, cell).arguments)
    data = scenarios.load(judge.scenario).simulate(**world, rng=streams("data"))
    truth = truth_of(judge, world)
    calibrator = fit_slice(unpack(data)).calibrator
    of_this_f = np.nan if calibrator is None else truth - float(predict(calibrator, judge.scores()).mean())
    report = audit.audit(data).sel(policy="target")
    verdict = str(report["verdict"].item())
    with_fit = audit.verdicts(report["interval_with_fit"].values[None], report.attrs["margin"])[0]
    borrowed = direct.estimate(data, **study.methods["borrowed"].options).sel(policy="target")
    found: dict[str, Any] = {"borrowed": borrowed, "old_rule": borrowed}
    for name in ("probe_corrected", "probe_tuned"):
        found[name] = direct_corrected.estimate(data, **study.methods[name].options).sel(policy="target")
    silent = np.array([name == "old_rule" and verdict == "FAIL" for name in study.methods])

    def column(variable: str) -> Any:
        values = np.array([found[name][variable].values for name in study.methods], dtype=float)[:, None]
        values[silent] = np.nan
        return values

    return Outcome(
        column("estimate"),
        np.array([truth]),
        column("std_error"),
        column("interval"),
        extra={
            "verdict": np.array([_code(verdict)]),
            "verdict_with_fit": np.array([_code(str(with_fit))]),
            "residual_of_f": np.array([of_this_f]),
        },
    )


def _code(verdict: str) -> float:
    return float(VERDICTS.index(verdict)) if verdict in VERDICTS else np.nan


def _audits(ds: xr.Dataset) -> pd.DataFrame:
    """One row per audit: cell, codes of its verdicts, size of this f's residual; whether printed intervals hold."""
    at = ds.isel(policy=0, drop=True)
    low, high = (at["interval"].sel(ci_bound=end, drop=True) for end in ("lower", "upper"))
    hit = ((low <= at["truth"]) & (at["truth"] <= high)).where(np.isfinite(low) & np.isfinite(high))
    columns = {"code": at["verdict"], "with_fit": at["verdict_with_fit"], "size": np.abs(at["residual_of_f"])}
    columns |= {name: hit.sel({"method": name}, drop=True).astype(float) for name in PRINTED}
    return xr.Dataset(columns).to_dataframe(dim_order=[*CELL, "replicate"]).reset_index()


def _shares(audits: pd.DataFrame, by: list[str], **hits: "pd.Series[Any]") -> pd.DataFrame:
    """Mean of each series of 0, 1 and NaN by group, with its MCSE and the number of audits behind it."""
    groups = pd.DataFrame(hits).astype(float).groupby([audits[name] for name in by], sort=False)
    share, n = groups.mean(), groups.count()
    error = pd.DataFrame(share_error(share, n), share.index, share.columns)
    parts = pd.concat([share, error.add_suffix("_mcse"), n.add_suffix("_audits")], axis=1)
    return parts[[f"{name}{end}" for name in hits for end in ("_audits", "", "_mcse")]].reset_index()


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage of what is printed, shares of verdicts, their errors against the residual of this f, every measure."""
    audits, printed = _audits(ds), []
    code, ran = audits["code"], audits["code"].notna()
    is_ = {name: (code == k).where(ran) for k, name in enumerate(VERDICTS)}
    shown = {**is_, "FAIL_with_fit": (audits["with_fit"] == 1).where(ran)}
    verdicts = _shares(audits, CELL, **shown).drop(columns=[f"{name}_audits" for name in shown])
    for name in (*VERDICTS, "any"):
        chosen = ran if name == "any" else is_[name] == 1
        hits = {m: audits[m].where(chosen) for m in PRINTED}
        silent = {f"{m}_refused": audits[m].isna().where(chosen) for m in PRINTED}
        rows = _shares(audits, CELL, any=ran.where(chosen), **hits, **silent)
        rows.insert(len(CELL), "verdict", name)
        printed.append(rows.rename(columns={"any_audits": "audits"}))
    parts = [f"{m}{what}{end}" for m in PRINTED for what in ("", "_refused") for end in ("", "_mcse")]
    columns = [*CELL, "verdict", "audits", *parts]
    errors = _shares(
        audits,
        [name for name in CELL if name != "shift"],
        FAIL_within=is_["FAIL"].where(audits["size"] <= MARGIN),
        PASS_beyond=is_["PASS"].where(audits["size"] >= MARGIN),
    )
    return {
        "Coverage of what is printed after each verdict, and share of its audits without a level": pd.concat(
            printed
        )[columns]
        .sort_index(kind="stable")
        .reset_index(drop=True),
        "Verdicts (FAIL_with_fit: decided by the interval that adds the fit's noise)": verdicts,
        "Wrong verdicts about the residual of this f, all shifts together": errors,
        "All measures (after a FAIL the old rule is refused)": summary_table(ds, MEASURES),
    }


def findings(ds: xr.Dataset) -> list[Finding]:
    """Size, power and indecision of the audit, and the coverage of what is printed after it."""
    audits, cell = _audits(ds), [name for name in CELL if ds.sizes[name] > 1]
    code, size = audits["code"], audits["size"]
    is_ = {name: (code == k).where(code.notna()) for k, name in enumerate(VERDICTS)}
    largest = float(ds["shift"].values.max())
    groups = [name for name in cell if name != "shift"] or ["judge"]
    shifts = "all shifts together" if "shift" in cell else "one shift"
    without = int(audits["size"].isna().sum())
    wrong = _shares(audits, groups, share=is_["FAIL"].where(size <= MARGIN))
    margin = f"calibrators {{}} the margin of {MARGIN:g}, {shifts}"
    said = [_at_most("FAIL", wrong, groups, SIZE, margin.format("within"), without)]
    passed = _shares(audits, groups, share=is_["PASS"].where(size >= MARGIN))
    said.append(_at_most("PASS", passed, groups, SIZE, margin.format("beyond"), without))
    if largest > MARGIN:
        power = _shares(audits[audits["shift"] == largest], groups, share=is_["FAIL"])
        power = power.rename(columns={"share_audits": "share_trials"})
        found = kept(power, groups, 0, measure="share", least=POWER)
        said.append(
            Finding(
                f"Does the audit find the largest shift, {largest:g}, with power {POWER:.0%} everywhere? "
                f"{ANSWER[found.holds]}: FAIL in {found.spread}% of the audits of {len(power)} cells, least at "
                f"{found.at}. Smaller shifts are not asked about; an audit without a verdict counts as no audit.",
                f"yes: every cell's lower bound is at least {POWER:.0%}; no: a cell's upper bound is below",
                found.holds,
            )
        )
    undecided = _shares(audits, cell or ["judge"], share=is_["INCONCLUSIVE"])
    said.append(_at_most("INCONCLUSIVE", undecided, cell or ["judge"], UNDECIDED, "all audits", 0))
    measured = summary_table(ds, ("coverage",))
    for method, words in (("probe_tuned", "the tuned probe value"), ("old_rule", "the old rule's level")):
        rows = measured[measured["method"] == method]
        silent = "Runs without a level are not counted" + (" (all FAILs)" if method == "old_rule" else "")
        said.append(keeps_level(words, rows, cell or ["judge"], ds.sizes["replicate"], silent=silent))
    return said


def _at_most(
    verdict: str, rows: pd.DataFrame, cell: list[str], most: float, cases: str, unknown: int
) -> Finding:
    """Whether the share of a verdict, a row per cell, stays at or below `most` in every cell.

    `cases` are the audits that it is a share of, `unknown` those whose calibrator could not be fitted.
    """
    empty = int(rows["share"].isna().sum())
    question = f"Is {verdict} given in at most {most:.1%} of the audits ({cases})?"
    left = [
        f"{empty} cells without such an audit are left out." if empty else "",
        f"{unknown} audits without a calibrator are left out." if unknown else "",
    ]
    rule = f"at most {most:.1%} in every cell; one-sided exact bounds for all cells at once; None: they reach across"
    rows = rows[rows["share"].notna()].rename(columns={"share_audits": "share_trials"})
    if not len(rows):
        return Finding(f"{question} No audit could have shown it.", rule, None)
    low, high = bounds(rows, "share", 0, len(rows)).T
    holds = False if (low > most).any() else True if (high <= most).all() else None
    ends = rows.sort_values("share", kind="stable").iloc[[0, -1]]
    shown = [points(float(row["share"]), float(row["share_mcse"])) for _, row in ends.iterrows()]
    answer = (
        f"{question} {ANSWER[holds]}: {shown[0]} to {shown[1]}% over {len(rows)} cells, most at "
        f"{where(ends.iloc[1], cell)}."
    )
    return Finding(together(answer, *left), rule, holds)


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Verdicts over coverage by shift, one column per judge, one colour per number of probes; at the largest sizes."""
    ds = ds.sel(n=[ds["n"].values.max()], labels=[ds["labels"].values.max()])
    judges, probes = list(ds["judge"].values), [int(p) for p in ds["probes"].values]
    size = (3.0 * len(judges) + 1.0, 5.4)
    fig, axes = plt.subplots(2, len(judges), figsize=size, sharex=True, sharey="row", squeeze=False)
    colours = dict(zip(probes, OKABE_ITO, strict=False))
    audits = _audits(ds)
    step = 0.016 * max(float(np.ptp(ds["shift"].values)), 0.05)  # beside each other, not on top
    for column, judge in enumerate(judges):
        top, bottom = axes[:, column]
        for k, count in enumerate(probes):
            mine = audits[(audits["judge"] == judge) & (audits["probes"] == count)]
            at = ds["shift"].values + step * (k - (len(probes) - 1) / 2)
            look: dict[str, Any] = {"color": colours[count], "lw": 1.2, "ms": 4}
            for code, style, marker in ((1, "-", "o"), (0, ":", "s")):
                label = f"{count} probes" if code == 1 else None
                said = (mine["code"] == code).where(mine["code"].notna())
                _marks(top, at, mine["shift"], said, ls=style, marker=marker, label=label, **look)
            for method, face, style in (("probe_tuned", colours[count], "-"), ("old_rule", "white", ":")):
                _marks(bottom, at, mine["shift"], mine[method], ls=style, marker="o", mfc=face, **look)
        for ax in (top, bottom):
            ax.axvline(MARGIN, color=GREY, lw=0.8, zorder=0)
        top.annotate(
            "margin", (MARGIN, 1), xycoords=("data", "axes fraction"), xytext=(3, -2),
            textcoords="offset points", va="top", fontsize=8, color=GREY,
        )  # fmt: skip
        bottom.axhline(ds.attrs["ci_prob"], color=GREY, ls="--", lw=1, zorder=0)
        top.set(title=f"{judge} judge", ylim=(-0.03, 1.03))
        bottom.set(xlabel="true shift of the target", ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("share: FAIL (solid), PASS (dotted)")
    axes[1, 0].set_ylabel("coverage: probe_tuned\n(solid), old_rule (dotted)")
    legend(fig, ncols=len(probes))
    return {CAPTION: fig}


def _marks(ax: Axes, at: Any, shifts: "pd.Series[Any]", hits: "pd.Series[Any]", **look: Any) -> None:
    """Share of hits, 0, 1 and NaN, at each shift, joined, with exact Monte Carlo bounds."""
    groups = hits.astype(float).groupby(shifts, sort=False)
    share, number = groups.mean().to_numpy(), groups.count().to_numpy()
    ax.errorbar(at, share, np.abs(clopper_pearson(share * number, number).T - share), elinewidth=0.8, **look)


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="transport_audit",
    title="Does the transport audit decide, and does what is printed after it hold?",
    aims="Find out how often an audit of 25-100 probes passes, fails or stays undecided by the size of the shift, "
    "whether its verdicts are right about the calibrator at hand, and what covers afterwards: the borrowed level "
    "printed unless the audit fails, or the value that the probes themselves give.",
    mechanism="Scenario transport_shift: judge scores of base and target from one Kumaraswamy law, E[Y | S] of the "
    "target lower by the shift at every score; 100 labels of the base policy teach, random probes of the target audit. "
    "Judges: strong (E[Y | S] from .3 to .9, nearly continuous labels), weak (.42 to .62, two fifths of the labels at "
    "0 or 1) and binary (.3 to .95, pass/fail labels).",
    estimands="V(target) = E[Y], by quadrature; the verdicts are held against the mean residual of the fitted "
    "calibrator, by quadrature too.",
    measures="Share of each verdict; P(FAIL) where the residual of this f is within the margin of .05 and P(PASS) "
    "where it is beyond; coverage of what is printed given the verdict, each with its Monte Carlo standard error. The "
    "old rule prints nothing after a FAIL.",
    protocol=Protocol(
        origin="Scenario transport_shift with judges from strong to weak; shifts, probes and the margin of .05 "
        "bracket what the paper's audit meets. 100 labels and 1,000 prompts are a small study's. Written "
        "after the study's first runs.",
        replicates="A share near one half has an MCSE of 4.1 points with 150 replicates and 1.1 with 2,000; coverage "
        "after a verdict rests on the audits that gave it, and says on how many.",
        failures="An audit without a verdict is left out, not a failure. The old rule prints nothing after a FAIL; "
        "its coverage is taken among what it prints.",
        primary="Coverage of what is printed after the audit, probe_tuned against old_rule, over all verdicts.",
        relevant="A coverage below 93%; P(FAIL) above 5% where the residual is within the margin.",
    ),
    scenario="transport_shift",
    worlds=sorted({judge.scenario for judge in JUDGES.values()}),
    legend={"judge": {name: judge.holds for name, judge in JUDGES.items() if judge.holds}},
    factors={
        "judge": tuple(JUDGES),
        "probes": (25, 50, 100),
        "shift": (0.0, 0.02, 0.04, 0.08, 0.15, 0.25),
        "n": (1000,),
        "labels": (100,),
    },
    policies=("target",),
    methods={
        "borrowed": Method(
            "control: calibrated plug-in, influence interval", "direct", {"borrowed": "plug_in"}
        ),
        "old_rule": Method("the same, printed unless the audit FAILs", "direct", {"borrowed": "plug_in"}),
        "probe_corrected": Method(
            "plug-in plus mean residual, with the fit's noise", "direct_corrected", {"tuned": False}
        ),
        "probe_tuned": Method("tuned probe value, interval as it comes", "direct_corrected", {"tuned": True}),
    },
    profiles={
        "smoke": Profile(4, {"probes": (50,), "shift": (0.0, 0.25)}),
        "quick": Profile(150, {"probes": (25, 50), "shift": (0.0, 0.04, 0.08, 0.25)}),
        "paper": Profile(2000),
    },
    replicate=replicate,
    setting=setting,
    table=table,
    figure=figure,
    findings=findings,
)
