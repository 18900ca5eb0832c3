"""Mean oracle label of the labelled slice: the control that is unbiased.

Estimand: V(policy) = E[Y]. Formula: ``sum_L w_i Y_i / sum_L w_i`` over the policy's own labels, w the prompt weight
over the label probability (Hajek). Interval: that of Clopper and Pearson where the labels are binary, else t with
the skewness of the error, by cluster, and room for drops that no label showed. Failure modes: wide, since the
judge is ignored; biased when labels were chosen by something that the declared ``label_prob`` does not know.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.537, 'better': 0.588, 'slightly_better': 0.57, 'worse': 0.472}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.504, 0.667]
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.checks import Rng
from cje_core.estimators import Role
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.inference.estimate import Status
from cje_core.inference.influence import combine, mean_part

NEEDS = {"oracle"}
ROLE = Role("labels only", "always", place=2)


def estimate(
    data: xr.Dataset | Calibrated, *, ci_prob: float = 0.95, rng: Rng = None, interval: str = "auto"
) -> xr.Dataset:
    """Estimate each policy's value by the mean of its own labels; see the module and its package."""
    given = calibrated(data)
    found = find(given, ci_prob=ci_prob, rng=rng, interval=interval)
    return assemble(given.data, found, estimator="labels_only", ci_prob=ci_prob)


def find(given: Calibrated, *, ci_prob: float, rng: Rng, interval: str = "auto") -> Found:
    """The same on rows, before intervals."""
    del ci_prob, rng
    rows, results = given.rows, []
    for p in range(len(rows.policies)):
        index = np.flatnonzero((rows.policy == p) & rows.labelled & rows.evaluated)
        n_labelled = count_clusters(rows, index)
        if n_labelled < MIN_LABELLED_CLUSTERS:
            status = Status.TOO_FEW_LABELS if n_labelled else Status.NO_LABELS
            results.append(PolicyResult(status, "mean_label", "own"))
            continue
        label = rows.label[index]
        value, part = mean_part(rows, index, label, rows.weight[index] / rows.label_prob[index])
        status = Status.CONSTANT_LABELS if np.ptp(label) == 0 else Status.OK
        results.append(PolicyResult(status, "mean_label", "own", value, *combine([part], rows.cluster)))
    rule = IntervalRule(interval, rows.labelled & rows.evaluated)
    return Found(rows, results, {"interval": interval}, rule)
