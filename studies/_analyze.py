"""What ``cje-lab analyze`` does: user files -> estimates, transport audit and contrasts, and their JSON.

The table is in `studies._summary`, the forest plot in `studies._forest`, what ``--out`` gets in `studies._save`.

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
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from cje_core import estimators
from cje_core.compare import contrasts
from cje_core.data import DataError
from cje_core.io import read
from cje_core.result import Status
from cje_core.tables import Source
from cje_core.transport import audit
from studies._manifest import provenance
from studies._streams import generator

DEFAULT = ("raw_judge", "labels_only", "direct", "direct_corrected")
CORRECTED = "direct_corrected"
MARGIN = 0.05  # of the width of the oracle scale
LABELS = {"labels_only": "labels only", "raw_judge": "raw judge", CORRECTED: "probe-corrected"}
# What a missing ingredient is called where the user can add it.
INGREDIENTS = {"logp_target": "--logged FILE", "logp_logger": "--logged FILE", "covariate": "covariates"}
STATUS = {int(member): member for member in Status}


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
        "contrasts": contrast_records(analysis),
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


def contrast_records(analysis: Analysis) -> list[dict[str, Any]]:
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
