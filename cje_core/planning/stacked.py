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
from cje_core.families.finish import name_missing_spread
from cje_core.families.off_policy.estimate import policy_results
from cje_core.families.off_policy.stages import make_logs
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, pooled_df_of_one
from cje_core.inference.sums import cluster_sums
from cje_core.planning.split import Split, failed


def stacked_splits(given: Calibrated) -> list[Split]:
    """Sources of error of each policy's stacked value, in the order of `Rows.policies`."""
    logs = make_logs(given)
    rows, out = logs.rows, list[Split]()
    for _, result, _, error in policy_results(logs, stacked_dr.estimate.method(), fresh=True):
        status = name_missing_spread(result).status
        if error is None or status is Status.CONSTANT_LABELS or not np.isfinite(result.std_error):
            out.append(failed(rows, status))
            continue
        direct, ips, calibration = error.parts
        sampling = [_per_cluster(part, rows.cluster) for part in (direct, ips)]
        df = pooled_df_of_one([float((part**2).sum()) for part in sampling], [direct.df, ips.df])
        labels = _per_cluster(calibration, rows.cluster)
        out.append(
            Split(status, "stacked_dr", sampling[0] + sampling[1], labels, 0 * labels, df, calibration.df)
        )
    return out


def _per_cluster(part: Part, cluster: np.ndarray) -> FloatArray:
    return np.asarray(cluster_sums(part.influence, cluster) / len(cluster))
