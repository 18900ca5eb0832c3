"""What off-policy estimators say of each policy, without a labelled data set for every estimate."""

from typing import NamedTuple

import numpy as np

from cje_core.families.intervals import bounds
from cje_core.families.off_policy.estimate import logs_of, policy_results, prepared


class Numbers(NamedTuple):
    """Arrays over policies, with as many replicates in front as there are; ``interval`` has the bounds last."""

    estimate: np.ndarray
    std_error: np.ndarray
    interval: np.ndarray


def values(data, methods, policies, *, fresh):
    """Value, standard error and degrees of freedom of each policy, (3, policies), by each method.

    The methods are a mapping to pairs of an estimator's module and its options.
    """
    logs = logs_of(data)
    order, out = [logs.rows.policies.index(name) for name in policies], {}
    for name, (module, options) in methods.items():
        own = {key: value for key, value in options.items() if key != "borrowed"}
        method, borrowed = module.estimate.method(**own), options.get("borrowed", "balanced")
        logs = prepared(logs, method, "influence", borrowed)
        every = [one.result for one in policy_results(logs, method, fresh, "influence", borrowed)]
        out[name] = np.array([(every[p].value, every[p].std_error, every[p].df) for p in order]).T
    return out


def with_intervals(found, scale=(0.0, 1.0)):
    """`Numbers` of `values` by method, of one data set or of a list of them."""
    out = {}
    for name in found if isinstance(found, dict) else found[0]:
        each = found[name] if isinstance(found, dict) else np.stack([one[name] for one in found], axis=1)
        value, error, df = np.clip(each[0], *scale), each[1], each[2]
        interval = bounds(value, error, df, kind="auto", ci_prob=0.95, scale=scale).interval
        out[name] = Numbers(value, error, interval)
    return out
