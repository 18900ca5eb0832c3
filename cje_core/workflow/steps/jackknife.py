"""Step 5: the calibration-aware jackknife, values without each oracle fold and what labels add to the variance."""

import inspect
from collections.abc import Iterable
from pathlib import Path

import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated
from cje_core.families.off_policy.logs import Logs
from cje_core.verdict.reporting import jackknife_trace
from cje_core.workflow.steps.files import write_tree
from cje_core.workflow.steps.state import read_state


def jackknife(directory: Path) -> list[str]:
    """Rerun the estimators that have a jackknife without each oracle fold; ``variance.nc``: a group per estimator."""
    state = read_state(directory, weighted=True)
    traces = jackknife_traces(state.given, state.asked.names, state.logs)
    write_tree(
        directory / "variance.nc", {**traces, "manifest": xr.Dataset(attrs={"estimators": list(traces)})}
    )
    return ["variance.nc"]


def jackknife_traces(
    given: Calibrated, names: Iterable[str], logs: Logs | None = None
) -> dict[str, xr.Dataset]:
    """The jackknife's trace of each of some estimators that has one; ``logs`` are those of the data, made before.

    Returns
    -------
    dict of xr.Dataset
        `cje_core.verdict.reporting.jackknife_trace` of each. Of `cje_core.estimators.direct` the value is the paper's,
        whose plug-in policies without labels of their own get; with a calibrator of groups it has no jackknife.
    """
    traces = {}
    for name in names:
        module = estimators.load(name)
        options = set(inspect.signature(module.estimate).parameters)
        knows_groups = given.calibration.groups is not None and "correction" in options
        if knows_groups or not {"inference", "calibration"} <= options:
            continue
        data: Calibrated | Logs = given
        prepare = getattr(module.estimate, "prepare", None)
        if prepare is not None:
            data = logs = prepare(logs or given, inference="jackknife")
        traces[name] = jackknife_trace(module.estimate(data, inference="jackknife"))
    return traces
