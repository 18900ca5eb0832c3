"""What off-policy estimators say of each policy, without a labelled data set for every estimate."""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrated import calibrated
from cje_core.families.intervals import bounds
from cje_core.families.off_policy import unpack_logs
from cje_core.families.off_policy_estimate import policy_results


class Numbers(NamedTuple):
    """Arrays over policies; ``interval`` has the bounds last."""

    estimate: np.ndarray
    std_error: np.ndarray
    interval: np.ndarray


def numbers(data, methods, policies, *, fresh):
    """`Numbers` of each method, from a mapping to pairs of an estimator's module and its options."""
    given = calibrated(data)
    logs = unpack_logs(given)
    order = [logs.rows.policies.index(name) for name in policies]
    scale = tuple(map(float, given.data.attrs["oracle_range"]))
    out = {}
    for name, (module, options) in methods.items():
        every = [result for _, result, _ in policy_results(logs, module.estimate.method(**options), fresh)]
        found = [every[p] for p in order]
        value = np.clip([one.value for one in found], *scale)
        error, df = (np.array([getattr(one, part) for one in found]) for part in ("std_error", "df"))
        interval = bounds(value, error, df, kind="auto", ci_prob=0.95, scale=scale).interval
        out[name] = Numbers(value, error, interval)
    return out
