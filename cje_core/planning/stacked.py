"""What a pilot with logged responses says about a larger study by stacked DR (the paper's "Planner").

The value of `cje_core.estimators.stacked_dr` has three sources of error per prompt: its fresh responses, its weighted
logged ones, and the labels that taught the calibrator. With n prompts, all of them answered afresh and logged, the
first two fall with 1/n, the third with 1/m, as in `cje_core.planning.components`:

    SE^2 = sum_i (d_i + w_i + c_i)^2 / N^2
         = [sum (d_i + w_i)^2 + cross terms] / N^2  +  sum c_i^2 / N^2

read off the pilot's influence values, calibration included. The stack keeps its members' weights. The weights of logged
responses are taken as known, and their law as the pilot shows it: where the largest ratios were not logged yet the
forecast is too small, so a policy that the estimator flags for overlap has components but no claim to them.
"""

import numpy as np

from cje_core.calibration.calibrated import Calibrated
from cje_core.checks import FloatArray
from cje_core.estimators import stacked_dr
from cje_core.families.off_policy import Value
from cje_core.families.off_policy_estimate import error_parts
from cje_core.families.off_policy_logs import unpack_logs
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, pooled_df_of_one
from cje_core.inference.sums import cluster_sums
from cje_core.planning.split import Split, failed


def stacked_splits(given: Calibrated) -> list[Split]:
    """Sources of error of each policy's stacked value, in the order of `Rows.policies`."""
    logs = unpack_logs(given)
    rows = logs.rows
    found = stacked_dr.estimate(given)
    out = []
    for p, name in enumerate(rows.policies):
        status = Status(int(found["status"].sel(policy=name)))
        if status.failed or not np.isfinite(float(found["std_error"].sel(policy=name))):
            out.append(failed(rows, status))
            continue
        value = stacked_dr.policy_value(logs, p, members=stacked_dr.LIBRARY)
        assert isinstance(value, Value)
        direct, ips, calibration = error_parts(logs, value)
        sampling = [_per_cluster(part, rows.cluster) for part in (direct, ips)]
        df = pooled_df_of_one([float((part**2).sum()) for part in sampling], [direct.df, ips.df])
        labels = _per_cluster(calibration, rows.cluster)
        out.append(
            Split(status, "stacked_dr", sampling[0] + sampling[1], labels, 0 * labels, df, calibration.df)
        )
    return out


def _per_cluster(part: Part, cluster: np.ndarray) -> FloatArray:
    return np.asarray(cluster_sums(part.influence, cluster) / len(cluster))
