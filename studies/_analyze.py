"""What ``cje-lab analyze`` does: user files -> estimates, transport audit and contrasts -> table, JSON, forest plot.

Statistical failure is data: a policy without an estimate stays in the table, the JSON and the plot with its named
status. Nothing printed depends on the order of rows, policies or files; each estimator draws from its own named
stream, so its numbers do not depend on which others ran.
"""

import inspect
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pandas as pd
import xarray as xr
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cje_core import estimators
from cje_core.compare import contrasts
from cje_core.data import DataError
from cje_core.io import read
from cje_core.result import Status
from cje_core.tables import Source
from cje_core.transport import audit
from studies._blocks import write_whole
from studies._manifest import provenance
from studies._streams import generator

DEFAULT = ("raw_judge", "labels_only", "direct", "direct_corrected")
CORRECTED = "direct_corrected"
MARGIN = 0.05  # of the width of the oracle scale
LABELS = {"labels_only": "labels only", "raw_judge": "raw judge", CORRECTED: "probe-corrected"}
# What a missing ingredient is called where the user can add it.
INGREDIENTS = {"logp_target": "--logged FILE", "logp_logger": "--logged FILE", "covariate": "covariates"}
STATUS = {int(member): member for member in Status}
FEW_PAIRS = 10


@dataclass(frozen=True)
class Analysis:
    """Everything the three outputs show.

    `primary` names the estimator whose level is reported or refused; policies stand in order of name.
    """

    data: xr.Dataset
    ledger: pd.DataFrame
    estimates: Mapping[str, xr.Dataset]
    primary: str
    transport: xr.Dataset
    contrasts: xr.Dataset | None
    seed: int
    seconds: float

    @property
    def policies(self) -> list[str]:
        """Names in order."""
        return [str(name) for name in self.data.policy.values]

    def level(self, policy: str) -> str:
        """``refused`` where the calibration was found not to transport or there is no estimate, else ``reported``."""
        failed = self.status(self.primary, policy).failed
        return "refused" if failed or self.verdict(policy) == "FAIL" else "reported"

    def verdict(self, policy: str) -> str:
        """Verdict of the transport audit."""
        return str(self.transport["verdict"].sel(policy=policy).item())

    def status(self, estimator: str, policy: str) -> Status:
        """What happened to one estimate."""
        return STATUS[int(self.estimates[estimator]["status"].sel(policy=policy).item())]


def analyze(
    path: Source,
    *,
    probes: Source | None = None,
    logged: str | Path | None = None,
    calibration_policy: str | Sequence[str] | None = None,
    chosen: Sequence[str] = DEFAULT,
    margin: float | None = None,
    direction: str = "increasing",
    seed: int = 1,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
) -> Analysis:
    """Read, estimate, audit, compare.

    Parameters
    ----------
    path, probes, logged, calibration_policy, judge_range, oracle_range
        As in `cje_core.io.read`.
    chosen : sequence of str
        Estimators; the primary one is ``direct`` if it is among them, else the first.
    margin : float, optional
        Harmless mean residual of the transport audit, in units of the oracle scale (default: 5% of its width).
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.
    seed : int
        Root of the estimators' named streams.

    Raises
    ------
    DataError
        With one line, before anything is written.
    """
    start = time.perf_counter()
    modules = {}
    for name in dict.fromkeys(chosen):
        if name not in estimators.available():
            raise DataError(
                f"--estimator {name}: no such estimator; there are {', '.join(estimators.available())}"
            )
        modules[name] = estimators.load(name)
    if direction not in ("increasing", "decreasing"):
        raise DataError(f"--direction {direction}: it must be increasing or decreasing")
    width = oracle_range[1] - oracle_range[0]
    harmless = MARGIN * width if margin is None else margin
    if not (math.isfinite(harmless) and harmless > 0):
        raise DataError(f"--margin {harmless:g}: it must be a positive number in units of the oracle scale")
    data, ledger = read(
        path,
        probes=probes,
        logged=logged,
        calibration_policy=calibration_policy,
        judge_range=judge_range,
        oracle_range=oracle_range,
    )
    for name, module in modules.items():
        for need in sorted(set(module.NEEDS) - set(data)):
            raise DataError(
                f"--estimator {name} needs {need}; give {INGREDIENTS.get(need, 'data that has it')}"
            )
    found = {}
    for name, module in modules.items():
        takes = "direction" in inspect.signature(module.estimate).parameters
        options = {"direction": direction} if takes else {}
        found[name] = module.estimate(data, rng=generator(seed, "analyze", name), **options)
    primary = "direct" if "direct" in found else next(iter(found))
    return Analysis(
        data=data,
        ledger=ledger,
        estimates=found,
        primary=primary,
        transport=audit(data, margin=harmless, direction=direction),
        contrasts=contrasts(found[primary]) if "influence" in found[primary] else None,
        seed=seed,
        seconds=time.perf_counter() - start,
    )


# --- JSON ---


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the object that ``--json`` prints: JSON values only, null for NaN and for what was not computed."""
    transport = analysis.transport
    policies = {}
    for policy in analysis.policies:
        at = {"policy": policy}
        policies[policy] = {
            "estimates": {
                name: {
                    "estimate": _number(estimate["estimate"].sel(at)),
                    "std_error": _number(estimate["std_error"].sel(at)),
                    "interval": [_number(bound) for bound in estimate["interval"].sel(at).values],
                    "status": analysis.status(name, policy).name.lower(),
                }
                for name, estimate in analysis.estimates.items()
            },
            "level": analysis.level(policy),
            "flags": flags(analysis, policy),
            "transport": {
                "verdict": analysis.verdict(policy),
                "residual": _number(transport["residual"].sel(at)),
                "interval": [_number(bound) for bound in transport["interval"].sel(at).values],
            },
            "overlap": None,
        }
    return {
        "policies": policies,
        "contrasts": _contrast_records(analysis),
        "seconds": round(analysis.seconds, 3),
        "manifest": {
            "seed": analysis.seed,
            "primary": analysis.primary,
            "estimators": {
                name: {
                    **json.loads(e.attrs["options"]),
                    "ci_kind": e.attrs["ci_kind"],
                    "ci_prob": e.attrs["ci_prob"],
                }
                for name, e in analysis.estimates.items()
            },
            "margin": float(transport.attrs["margin"]),
            "calibration_policy": analysis.data.attrs["calibration_policy"],
            "judge_range": analysis.data.attrs["judge_range"],
            "oracle_range": analysis.data.attrs["oracle_range"],
            "counts": {policy: _counts(analysis, policy) for policy in analysis.policies},
            "left_out": json.loads(analysis.ledger.to_json(orient="records")),
            **provenance(),
        },
    }


def flags(analysis: Analysis, policy: str) -> list[str]:
    """Name what a reader must know before using the number of one policy."""
    status = analysis.status(analysis.primary, policy)
    named = [] if status is Status.OK else [status.name.lower()]
    verdict = analysis.verdict(policy)
    borrowed = status is Status.TRANSPORT_ASSUMED
    if verdict == "FAIL" or (borrowed and verdict != "PASS"):
        named.append(f"transport_{verdict.lower()}")
    return named


def _contrast_records(analysis: Analysis) -> list[dict[str, Any]]:
    """Pairwise differences of the primary estimator; refused where the level of one of the two is."""
    if analysis.contrasts is None:
        return []
    records = []
    for k in range(analysis.contrasts.sizes["pair"]):
        pair = analysis.contrasts.isel(pair=k)
        first, second = str(pair["first"].item()), str(pair["second"].item())
        refused = "refused" in (analysis.level(first), analysis.level(second))
        records.append(
            {
                "first": first,
                "second": second,
                "difference": _number(pair["difference"]),
                "std_error": _number(pair["std_error"]),
                "interval": [_number(bound) for bound in pair["interval"].values],
                "p_value": _number(pair["p_value"]),
                "p_bh": _number(pair["p_bh"]),
                "level": "refused" if refused else "reported",
            }
        )
    return records


def _counts(analysis: Analysis, policy: str) -> dict[str, int]:
    at = analysis.data.sel(policy=policy)
    kinds = {"responses": "evaluated", "labels": "labelled", "probes": "probe"}
    return {name: int(at[variable].sum()) for name, variable in kinds.items()}


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


# --- table ---


def summary(analysis: Analysis) -> Group:
    """Return what stdout shows: policies, contrasts, and what the named statuses mean."""
    parts = [_policy_table(analysis), *_contrast_table(analysis), *_notes(analysis)]
    return Group(*[part for k, part in enumerate(parts) for part in ([Text("")] * (k > 0) + [part])])


def print_summary(analysis: Analysis) -> None:
    """Print the summary on stdout, in colour on a terminal only."""
    Console(highlight=False).print(summary(analysis))


def _policy_table(analysis: Analysis) -> Table:
    others = [name for name in analysis.estimates if name not in (analysis.primary, CORRECTED)]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column("policy", overflow="fold", min_width=8)
    shown.add_column(f"{analysis.primary}\n[{_percent(analysis)} interval]", no_wrap=True)
    for name in others:
        shown.add_column(LABELS.get(name, name).replace(" ", "\n"), overflow="fold", min_width=5)
    shown.add_column("transport\nresidual", overflow="fold", min_width=12)
    shown.add_column("level", no_wrap=True)
    for policy in analysis.policies:
        level, verdict = analysis.level(policy), analysis.verdict(policy)
        refused = verdict == "FAIL"
        residual = float(analysis.transport["residual"].sel(policy=policy))
        value = Text(
            cell(analysis, analysis.primary, policy, interval=True), style="dim" if refused else "bold"
        )
        status = analysis.status(analysis.primary, policy)
        if not (status is Status.OK or status.failed):
            value.append(f"\n{status.name.lower()}", style="not bold")
        if refused and CORRECTED in analysis.estimates:
            value.append(f"\n{cell(analysis, CORRECTED, policy, interval=True)}", style="not dim bold")
            value.append(f"\n{LABELS[CORRECTED]}", style="not dim")
        shown.add_row(
            Text(policy),  # Text, since a name in brackets is not markup
            value,
            *[cell(analysis, name, policy) for name in others],
            verdict if math.isnan(residual) else f"{verdict}\n{plain(analysis, residual, sign=True)}",
            "-" if status.failed else Text(level, style="bold" if refused else ""),
        )
    return shown


def _contrast_table(analysis: Analysis) -> list[Table | Text]:
    records = _contrast_records(analysis)
    if not records:
        return []
    if len(records) > FEW_PAIRS:
        return [Text(f"{len(records)} pairwise differences: see --json or estimates.json")]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column("difference", overflow="fold")
    shown.add_column(f"{analysis.primary} [{_percent(analysis)} interval]", no_wrap=True)
    shown.add_column("p (BH)", no_wrap=True)
    shown.add_column("level", no_wrap=True)
    for record in records:
        shown.add_row(
            Text(f"{record['first']} - {record['second']}"),
            interval_text(analysis, record["difference"], record["interval"], sign=True),
            "-" if record["p_bh"] is None else _p_value(record["p_bh"]),
            record["level"],
        )
    return [shown]


def _notes(analysis: Analysis) -> list[Text]:
    """One line per status, refusal and reason for leaving rows out."""
    meanings: dict[Status, list[str]] = {}
    for name in analysis.estimates:
        for policy in analysis.policies:
            status = analysis.status(name, policy)
            shown = name != CORRECTED or analysis.verdict(policy) == "FAIL"
            if status is not Status.OK and shown:
                meanings.setdefault(status, []).append(f"{name} {policy}")
    lines = [f"{status.name.lower()}: {status.message}" for status in sorted(meanings)]
    for policy in analysis.policies:
        if analysis.verdict(policy) == "FAIL":
            low, high = analysis.transport["interval"].sel(policy=policy).values
            within = f"[{plain(analysis, low, sign=True)}, {plain(analysis, high, sign=True)}]"
            lines.append(
                f"refused: the calibration does not transport to {policy} (residual interval {within}); "
                f"do not use its level, use its {LABELS[CORRECTED]} value"
            )
    counts = analysis.ledger.groupby("reason", sort=True).size()
    lines += [f"left out: {count} ({reason})" for reason, count in counts.items()]
    return [Text("\n".join(lines))] if lines else []


def cell(analysis: Analysis, estimator: str, policy: str, *, interval: bool = False) -> str:
    """Estimate, with its interval on demand, or the named status of a failure."""
    status = analysis.status(estimator, policy)
    at = analysis.estimates[estimator].sel(policy=policy)
    value = float(at["estimate"])
    if status.failed or math.isnan(value):
        return status.name.lower()
    return (
        interval_text(analysis, value, at["interval"].values.tolist()) if interval else plain(analysis, value)
    )


def interval_text(
    analysis: Analysis, value: float | None, bounds: Sequence[float | None], *, sign: bool = False
) -> str:
    if value is None:
        return "-"
    shown = ", ".join("-" if b is None or math.isnan(b) else plain(analysis, b, sign=sign) for b in bounds)
    return f"{plain(analysis, value, sign=sign)} [{shown}]"


def plain(analysis: Analysis, value: float, *, sign: bool = False) -> str:
    """Format with three decimals on a [0, 1] scale, fewer on a wider one."""
    low, high = analysis.data.attrs["oracle_range"]
    decimals = min(max(3 - math.floor(math.log10(high - low)), 0), 6)
    return f"{value:{'+' if sign else ''}.{decimals}f}"


def _p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _percent(analysis: Analysis) -> str:
    return f"{100 * float(analysis.estimates[analysis.primary].attrs['ci_prob']):g}%"


# --- files ---


def check_out(out: Path) -> None:
    """Stop before the work if `out` cannot become a directory."""
    for path in (out, *out.parents):
        if path.exists():
            if not path.is_dir():
                raise DataError(f"--out {out}: {path} is a file; name a directory")
            return


def save(analysis: Analysis, out: Path) -> None:
    """Write estimates.json, forest.png and forest.svg; each is whole or absent."""
    from studies._forest import render

    text = json.dumps(to_json(analysis), indent=1, allow_nan=False) + "\n"
    files = {"estimates.json": text.encode("utf-8")}
    files |= {f"forest.{kind}": content for kind, content in render(analysis).items()}
    try:
        for name, content in files.items():
            write_whole(out / name, partial(_put, content))
    except OSError as error:
        raise DataError(
            f"--out {out}: {(error.strerror or str(error)).lower()}; name another directory"
        ) from None


def _put(content: bytes, handle: IO[bytes]) -> None:
    handle.write(content)
