"""Step 6: audits, gates, levels and differences of the estimates at hand."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from cje_core.families.off_policy.stages import make_logs
from cje_core.verdict.reporting import ledger
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.analyze import conclude
from cje_core.workflow.cohorts import together
from cje_core.workflow.reading.prepare import Ready
from cje_core.workflow.steps.estimate import STACK
from cje_core.workflow.steps.files import read_tree
from cje_core.workflow.steps.jackknife import jackknife_traces
from cje_core.workflow.steps.stabilise import stabilisation, with_both_weights
from cje_core.workflow.steps.state import read_state


def report(directory: Path) -> Analysis:
    """What `cje_core.workflow.analyze.analyze` returns, of the estimates that the steps before wrote."""
    start = time.perf_counter()
    state = read_state(directory)
    found = read_tree(directory / "estimates.nc")
    if STACK in state.asked.names:
        found |= read_tree(directory / "stacked.nc")
    ordered = {name: found[name] for name in state.asked.names if name in found}
    return conclude(Ready(state.given, state.left_out, state.asked), ordered, start=start)


def ledgers(analysis: Analysis, traces: Mapping[str, xr.Dataset] | None = None) -> dict[str, xr.Dataset]:
    """The reporting ledger of every estimator of an analysis (`cje_core.verdict.reporting.ledger`).

    ``traces`` are those of `cje_core.workflow.steps.jackknife.jackknife_traces`, which are made here by default.
    """
    given = analysis.calibrated
    logs = None if analysis.overlap is None else with_both_weights(make_logs(given))
    if traces is None:
        traces = jackknife_traces(given, analysis.estimates, logs)
    how = None if logs is None else stabilisation(logs)
    of_primary: dict[str, Any] = {
        "sensitivity": analysis.if_biased,
        "contrasts": analysis.contrasts,
        "tipping": analysis.tipping,
        "serial": analysis.serial,
        "cohorts": together(analysis.cohorts),
    }
    found = {}
    for name, estimate in analysis.estimates.items():
        delta = "residual" if "direct_part" in estimate else "reward"
        found[name] = ledger(
            given,
            estimate=estimate,
            overlap=analysis.overlap,
            coverage=analysis.coverage,
            reliability=analysis.reliability,
            transport=analysis.transport,
            agreement=analysis.agreement,
            gates=analysis.gates,
            levels=analysis.levels,
            assumptions=analysis.assumptions,
            left_out=analysis.left_out,
            stabilisation=how.sel(delta=delta) if how is not None and "beta" in estimate else None,
            variance=traces.get(name),
            **(of_primary if name == analysis.primary else {}),
        )
    return found


def traces(directory: Path) -> dict[str, xr.Dataset]:
    """The jackknife's traces that step 5 wrote."""
    found = read_tree(directory / "variance.nc")
    return {name: found[name] for name in found["manifest"].attrs["estimators"]}
