"""Drift of the judge in the gates of an analysis: probes that came in batches, charted policy by policy.

The paper's gate JUDGE asks for no persistent drift alarm. `cje_core.transport.monitor.batch_audit` charts the residuals
of each policy's probes over batches (labels that did not teach, so change is not fitted away); its alarm is the metric
of the gate ``drift``. An alarm qualifies a level and does not refuse it: the audit says how far off the level is, the
alarm that this has not always been so.
"""

from dataclasses import replace

import xarray as xr

from cje_core.io.fields import Source
from cje_core.streams import generator
from cje_core.transport.monitor import batch_audit, field_of_probes
from cje_core.verdict import gates
from cje_core.verdict.thresholds import BY_NAME
from cje_core.workflow.analysis import Analysis


def with_drift(
    analysis: Analysis,
    path: Source,
    *,
    batch: str,
    probes: Source | None = None,
) -> Analysis:
    """The analysis with the gate ``drift``, and the charts behind it.

    Parameters
    ----------
    analysis : Analysis
    path, probes : path or DataFrame
        As in `cje_core.io.files.read`.
    batch : str
        Field of the probes' rows that says in which batch they came: numbers, or text that sorts.

    Raises
    ------
    DataError
        Without probes, or where they are of one batch, or one has no batch.
    """
    when = field_of_probes(analysis.calibrated, path, probes, batch, "batch")
    charts = batch_audit(analysis.calibrated, when, rng=generator(analysis.seed, "analyze", "drift"))
    alarms = xr.DataArray(charts["drifted"].values, coords={"policy": charts["stream"].values}, dims="policy")
    metrics = gates.collect(analysis.policies, drift=alarms)
    evaluated = gates.evaluate(metrics, gates=[BY_NAME["drift"]])
    joined = xr.concat([analysis.gates, evaluated], dim="gate", data_vars="minimal", join="exact")
    return replace(analysis, gates=joined, drift=charts)
