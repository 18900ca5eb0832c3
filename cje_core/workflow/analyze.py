"""What ``cje-lab analyze`` does: user files -> estimates, transport audit, overlap, gates, advice, contrasts.

Its JSON is in `studies.cli.analysis.as_json`, the tables in `studies.cli.analysis.tables` with
`studies.cli.analysis.notes` below them, the figures in `studies.cli.analysis.forest` and
`studies.cli.analysis.panels`, what ``--out`` gets in `studies.cli.analysis.save`.

Statistical failure is data: a policy without an estimate stays in the table, the JSON and the plot with its named
status. Nothing printed depends on the order of rows, policies or files; each estimator draws from its own named
stream, so its numbers do not depend on which others ran.
"""

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from cje_core import estimators
from cje_core.calibration.label_balance import label_balance
from cje_core.calibration.oracle_slice import MODES
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.checks import one_of
from cje_core.data import DataError
from cje_core.data.tables import Source
from cje_core.families.posterior import ENGINES
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.offpolicy.overlap import overlap
from cje_core.offpolicy.weight_map import cap_curves
from cje_core.streams import generator
from cje_core.transport import sensitivity
from cje_core.transport.agreement import agreement, refuse_mixed
from cje_core.transport.audit import MARGIN, audit
from cje_core.verdict import gates, guide, refusal
from cje_core.verdict.headline import headline
from cje_core.workflow.given import Given, has_logs, oracle_scale, take
from cje_core.workflow.posterior import BAYESIAN, VALUE, Posterior, posterior, stricter, without
from cje_core.workflow.shown import Shown, Shows, number

DEFAULT = ("raw_judge", "labels_only", "direct", "direct_corrected")
OFF_POLICY = (
    "snips",
    "calibrated_ips",
    "calibrated_dr_cpo",
    "stacked_dr",
)  # join the default with logged responses
CORRECTED = "direct_corrected"
CALIBRATORS = ("default", "auto", *MODES)
BORROWED = ("balanced", "one_step", "plug_in")
# Gates without input here, and those about the calibrator, which say nothing of a primary estimate that uses none.
ELSEWHERE = ("drift",)
ABOUT_CALIBRATOR = ("reliability", "label_support", "identification")
# What a missing ingredient is called where the user can add it.
INGREDIENTS = {
    "logp_target": "logged=FILE",
    "logp_logger": "logged=FILE",
    "logged_judge": "logged=FILE",
    "covariate": "covariates=NAME",
}


@dataclass(frozen=True, repr=False)
class Analysis(Shows):
    """Everything the outputs show.

    `primary` names the estimator behind the values; `value` is what stands first for each policy
    (`cje_core.verdict.headline`), in which probes take the place of what `primary` would borrow. Policies stand in
    order of name.
    """

    data: xr.Dataset
    left_out: pd.DataFrame
    estimates: Mapping[str, xr.Dataset]
    primary: str
    transport: xr.Dataset
    coverage: xr.Dataset | None  # None where there is no calibrator
    reliability: xr.Dataset | None
    overlap: xr.Dataset | None
    gates: xr.Dataset
    levels: xr.Dataset
    value: xr.Dataset
    verdicts: Mapping[str, str]  # of the audit, or of the posterior where that is stricter
    bounds: xr.Dataset
    balance: xr.Dataset  # whether labels and probes look drawn at random
    agreement: xr.Dataset  # whether the labelled policies agree about what a score is worth
    guide: xr.Dataset
    contrasts: xr.Dataset | None
    if_biased: xr.Dataset  # intervals of the levels if transport is off by up to the margin
    tipping: (
        xr.Dataset | None
    )  # how far off it may be before each difference, and the best policy, is undecided
    posterior: Posterior | None  # with --bayes
    options: Mapping[str, Any]  # of the calibrator, shared by all estimators that take them
    seed: int
    seconds: float

    @property
    def policies(self) -> list[str]:
        """Names in order."""
        return [str(name) for name in self.data.policy.values]

    @property
    def off_policy(self) -> list[str]:
        """The estimators that weight logged responses."""
        return [name for name in self.estimates if "logp_target" in estimators.load(name).NEEDS]

    def level(self, policy: str) -> str:
        """``reported``, ``assumed`` or ``refused``, see `cje_core.verdict.refusal.level`."""
        return str(self.levels["level"].sel(policy=policy).item())

    def source(self, policy: str) -> str:
        """What the value rests on: ``own`` labels, ``probes``, ``borrowed`` or ``none``."""
        return str(self.levels["source"].sel(policy=policy).item())

    def borrows(self, policy: str) -> bool:
        """Whether the value rests on a calibration learned elsewhere, or failed to (a failed value rests on none)."""
        return self.source(policy) in ("borrowed", "logs", "none")

    def standing(self, policy: str) -> str | None:
        """Name the estimator whose number stands first for a policy; None where its level is refused."""
        return str(self.value["taken_from"].sel(policy=policy).item()) or None

    def refused_by(self, policy: str) -> list[str]:
        """The gates that forbid the level; ``estimate`` where there is none."""
        return [name for name in str(self.levels["refused_by"].sel(policy=policy).item()).split(", ") if name]

    def bounds_hold(self, policy: str) -> bool:
        """Whether bounds say something of a level refused for want of labels where its scores lie, and of nothing else.

        They take the calibration to hold inside the labelled range, so they answer no other refusal.
        """
        unsupported = self.status(self.primary, policy) is Status.LOW_SUPPORT
        wanting = self.refused_by(policy) == ["identification"] or unsupported
        return wanting and bool(self.bounds["interval"].sel(policy=policy).notnull().all())

    def rests_on(self, policy: str) -> str:
        """Say whose labels the value is made of; empty where there is no value."""
        if self.standing(policy) is None:
            return ""
        teachers = [str(name) for name in self.data.attrs["calibration_policy"]]
        words = {
            "own": "own labels",
            "probes": "its probes",
            "borrowed": f"labels of {teachers[0] if len(teachers) == 1 else 'others'}",
            "judge": "the judge",
            "logs": "weighted logs",
            "none": "",
        }
        return words[self.source(policy)]

    def probes_elsewhere(self, policy: str) -> list[str]:
        """Prompts of a policy's probes to which no policy has an evaluated response: other prompts, or slips."""
        known = self.data["evaluated"].any(["policy", "draw"])
        probed = self.data["probe"].sel(policy=policy).any("draw")
        return [str(name) for name in self.data["prompt"].values[(probed & ~known).values]]

    def verdict(self, policy: str) -> str:
        """Verdict on transport: the audit's, or the posterior's where that is stricter."""
        return self.verdicts[policy]

    def status(self, estimator: str, policy: str) -> Status:
        """What happened to one estimate."""
        return Status(self.estimates[estimator]["status"].sel(policy=policy).item())

    def shown(self) -> Shown:
        """Per policy the value that stands first, its level and what it rests on, or why it is refused."""
        rows, scale = [], self.data.attrs["oracle_range"]
        for policy in self.policies:
            at = self.value.sel(policy=policy)
            bounds = ", ".join(number(float(bound), scale) for bound in at["interval"].values)
            reason = str(self.levels["reason"].sel(policy=policy).item())
            by = self.standing(policy)
            rows.append(
                [
                    policy,
                    number(float(at["estimate"]), scale),
                    f"[{bounds}]" if by else "-",
                    self.level(policy),
                    f"{self.rests_on(policy)} ({by})" if by else reason,
                ]
            )
        heading = f"{len(rows)} policies, {self.data.sizes['prompt']} prompts"
        interval = f"{100 * self.value.attrs['ci_prob']:g}% interval"
        return Shown(heading, ["policy", "value", interval, "level", "rests on (by), or why not"], rows)


def analyze(
    path: Given,
    *,
    probes: Source | None = None,
    logged: str | Path | None = None,
    calibration_policy: str | Sequence[str] | None = None,
    covariates: Sequence[str] = (),
    calibrator: str = "default",
    chosen: Sequence[str] = (),
    margin: float | None = None,
    direction: str = "increasing",
    borrowed: str = "balanced",
    bayes: str | None = None,
    seed: int = 1,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
) -> Analysis:
    """Read, estimate, audit, gate, compare.

    Parameters
    ----------
    path, probes, logged, calibration_policy, covariates, judge_range, oracle_range
        As in `cje_core.data.files.read`; the covariates also enter the calibrator. Evaluation data that are an
        xr.Dataset already bring their own probes, logged responses and scales, see `cje_core.workflow.given.take`.
    calibrator : {"default", "monotone", "two_stage", "two_stage_monotone", "auto"}
        As in `cje_core.calibration.oracle_slice.fit_slice`.
    chosen : sequence of str
        Estimators; the primary one is ``direct`` if it is among them, else the first. Default: `DEFAULT`, and
        `OFF_POLICY` where logged responses are given.
    margin : float, optional
        Harmless mean residual of the transport audit, in units of the oracle scale (default: 5% of its width).
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response. Estimators that fit no calibrator are given the judge's
        scale turned round (`turned`).
    borrowed : {"balanced", "one_step", "plug_in"}
        As in `cje_core.estimators.direct`.
    bayes : {"gibbs", "nutpie", "pymc"}, optional
        Sampler of the Bayesian estimators that join the others (`cje_core.workflow.posterior`); none by default.
    seed : int
        Root of the estimators' named streams.

    Raises
    ------
    DataError
        With one line, before anything is written.
    """
    start = time.perf_counter()
    logs, oracle_range = has_logs(path, logged), oracle_scale(path, oracle_range)
    names = list(dict.fromkeys(chosen or ((*DEFAULT, *OFF_POLICY) if logs else DEFAULT)))
    modules = {}
    for name in names:
        if name not in estimators.available():
            raise DataError(
                f"chosen={name!r}: no such estimator; there are {', '.join(estimators.available())}"
            )
        modules[name] = estimators.load(name)
    one_of(direction, "direction", ("increasing", "decreasing"), DataError)
    one_of(borrowed, "borrowed", BORROWED, DataError)
    if bayes is not None:
        one_of(bayes, "bayes", ENGINES, DataError)
    one_of(calibrator, "calibrator", CALIBRATORS, DataError)
    if covariates and calibrator == "monotone" and borrowed != "balanced" and bayes is None:
        raise DataError(
            f"calibrator={calibrator!r}: it sees the judge's score alone, and borrowed={borrowed!r} balances nothing, "
            "so the covariates would not be used; leave them out, or take another calibrator"
        )
    harmless = harmless_margin(margin, oracle_range)
    data, left_out = take(
        path,
        probes=probes,
        logged=logged,
        covariates=covariates,
        calibration_policy=calibration_policy,
        judge_range=judge_range,
        oracle_range=oracle_range,
    )
    if CORRECTED not in modules and "direct" in modules and bool(data["probe"].any()):
        modules[CORRECTED] = estimators.load(
            CORRECTED
        )  # probes are the policy's own labels: they make its value
    for name, module in modules.items():
        for need in sorted(set(module.NEEDS) - set(data)):
            raise DataError(
                f"chosen={name!r}: it needs {need}; give {INGREDIENTS.get(need, 'data that has it')}"
            )
    common: dict[str, Any] = {
        "direction": direction,
        "covariates": tuple(covariates),
        "calibrator": calibrator,
    }
    offered = common | {"borrowed": borrowed, "margin": harmless}
    upright = turned(data) if direction == "decreasing" else data
    found = {}
    for name, module in modules.items():
        if bayes is not None and name in BAYESIAN:
            continue  # comes below, with its options
        known = inspect.signature(module.estimate).parameters
        taken = {k: v for k, v in offered.items() if k in known}
        found[name] = module.estimate(
            data if "direction" in known else upright, rng=generator(seed, "analyze", name), **taken
        )
    believed = None
    if bayes is not None:
        believed = posterior(
            data, engine=bayes, margin=harmless, direction=direction, seed=seed, covariates=covariates
        )
        found |= believed.estimates
    primary = "direct" if "direct" in found else names[0]
    policies = [str(name) for name in data.policy.values]
    transport = audit(data, margin=harmless, **common)
    verdicts = stricter(transport, believed)
    judged = transport.assign(
        verdict=("policy", [verdicts[str(name)] for name in transport["policy"].values])
    )
    covered = overlap(data, **common) if logs else None
    badge, bins = coverage_badge(data, **common), reliability(data, **common)
    taught = not Status(bins["status"].item()).failed
    metrics = gates.collect(
        policies,
        overlap=covered,
        coverage=badge if taught else None,
        reliability=bins,
        transport=judged,
        estimate=found[primary],
        cap=cap_curves(data, **common) if logs else None,
        adjusted=True,  # the contrasts below carry Benjamini-Hochberg p-values
    )
    metrics = metrics.assign(_about_logs(policies, found, primary))
    calibrated = "direction" in inspect.signature(estimators.load(primary).estimate).parameters
    silent = ELSEWHERE if calibrated else ELSEWHERE + ABOUT_CALIBRATOR
    evaluated = gates.evaluate(metrics, gates=[gate for gate in gates.GATES if gate.name not in silent])
    probed = found.get(CORRECTED) if primary == "direct" else None
    agreed = agreement(data, margin=harmless, **common)
    levels = refuse_mixed(refusal.level(evaluated, found[primary], probed), agreed)
    if believed is not None:
        levels = _refused_by_posterior(levels, believed)
        refused = levels["policy"].values[levels["level"].values == "refused"].astype(str).tolist()
        believed = without(believed, refused)
    bounds = refusal.partial_identification(data, **common)
    levels = refusal.name_outside(levels, bounds)
    value = headline(found[primary], levels, probed)
    jointly = "influence" in value
    lent = value["borrowed"].values.astype(bool).tolist()
    scale = (float(oracle_range[0]), float(oracle_range[1]))
    return Analysis(
        data=data,
        left_out=left_out,
        estimates=found,
        primary=primary,
        transport=transport,
        coverage=badge if taught else None,
        reliability=bins if taught else None,
        overlap=covered,
        gates=evaluated,
        levels=levels,
        value=value,
        verdicts=verdicts,
        balance=label_balance(data),
        agreement=agreed,
        bounds=bounds,
        guide=guide.recommend(
            data,
            overlap=covered,
            transport=judged,
            calibration_share=_calibration_share(value, found),
            estimate=found.get("direct"),
            probed=found.get(CORRECTED),
            contradicted=levels["policy"].values[levels["refused_by"].values == "agreement"].tolist(),
            refused=_without_level(levels),
        ),
        contrasts=contrasts(value) if jointly else None,
        if_biased=sensitivity.levels(value, harmless, borrowed=lent, oracle_range=scale),
        tipping=sensitivity.tipping_points(value, borrowed=lent) if jointly else None,
        posterior=believed,
        options=common,
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def _without_level(levels: xr.Dataset) -> dict[str, str]:
    """Policies refused for want of identification or of an interval, and why: no estimator at hand mends that."""
    found = {}
    for policy in levels["policy"].values.astype(str).tolist():
        at = levels.sel(policy=policy)
        if {"identification", "interval"} & set(str(at["refused_by"].item()).split(", ")):
            found[policy] = str(at["reason"].item())
    return found


def _about_logs(
    policies: Sequence[str], found: Mapping[str, xr.Dataset], primary: str
) -> dict[str, xr.DataArray]:
    """Metrics that only some estimates carry, from the first that does: the primary, a doubly robust one, any."""
    robust = [one for one in found.values() if "orthogonality_interval" in one]
    out = {}
    for metric, variable in (
        ("orthogonality_gap", "orthogonality_interval"),
        ("guard_engaged", "guard_engaged"),
    ):
        carries = next((one for one in (found[primary], *robust, *found.values()) if variable in one), None)
        if carries is not None:
            out[metric] = gates.collect(policies, estimate=carries)[metric]
    return out


def _refused_by_posterior(levels: xr.Dataset, believed: Posterior) -> xr.Dataset:
    """Levels with a borrowed one refused where the posterior refuses to borrow: the stricter of two arms stands."""
    columns = {name: levels[name].values.astype(object) for name in ("level", "refused_by", "reason")}
    for k, policy in enumerate(levels["policy"].values.astype(str).tolist()):
        status = Status(believed.estimates[VALUE]["status"].sel(policy=policy).item())
        borrowed = levels["source"].sel(policy=policy).item() == "borrowed"
        if borrowed and columns["level"][k] == "assumed" and status.failed:
            columns["level"][k], columns["refused_by"][k] = "refused", "posterior"
            columns["reason"][k] = f"posterior: {status.message}"
    return levels.assign({name: ("policy", column.astype(str)) for name, column in columns.items()})


def harmless_margin(margin: float | None, oracle_range: tuple[float, float]) -> float:
    """Return the declared margin, or 5% of the width of the oracle scale; `DataError` where it is no such thing."""
    harmless = MARGIN * (oracle_range[1] - oracle_range[0]) if margin is None else margin
    if margin is not None and not 0 < harmless < float("inf"):
        raise DataError(f"margin={harmless:g}: it must be a positive number in units of the oracle scale")
    return harmless


def turned(data: xr.Dataset) -> xr.Dataset:
    """Evaluation data whose judge scores, logged ones too, are mirrored in the middle of their scale."""
    low, high = data.attrs["judge_range"]
    scores = [name for name in ("judge", "logged_judge") if name in data]
    return data.assign({name: (low + high - data[name]).clip(low, high) for name in scores})


def _calibration_share(value: xr.Dataset, found: Mapping[str, xr.Dataset]) -> dict[str, float]:
    """Share of the variance of each value that stands that comes from labels; policies without one are left out."""
    share = {}
    for policy, name in zip(
        value["policy"].values.astype(str), value["taken_from"].values.astype(str), strict=True
    ):
        if name and "calibration_share" in found[name]:
            share[str(policy)] = float(found[name]["calibration_share"].sel(policy=policy))
    return share
