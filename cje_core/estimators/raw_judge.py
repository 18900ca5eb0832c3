"""Mean judge score, read as if it were the oracle's: the control that is biased.

Estimand: V(policy) = E[Y]. Formula: the mean of S over the policy's responses, mapped affinely from ``judge_range``
to ``oracle_range``. Failure mode: every systematic difference between judge and oracle; its intervals are honest
about sampling and blind to bias ("naive" in the paper's ablation table).

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.627, 'better': 0.74, 'slightly_better': 0.651, 'worse': 0.445}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.72, 0.76]
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import Rng
from cje_core.estimators import Role
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.families.prediction_powered import oracle_units
from cje_core.inference.estimate import Status
from cje_core.inference.influence import combine, mean_part

NEEDS = {"judge"}
ROLE = Role("raw judge", "always", place=3)


def estimate(
    data: xr.Dataset | Calibrated, *, ci_prob: float = 0.95, rng: Rng = None, interval: str = "auto"
) -> xr.Dataset:
    """Estimate each policy's value by its mean judge score; see the module and its package."""
    given = calibrated(data)
    found = find(given, ci_prob=ci_prob, rng=rng, interval=interval)
    return assemble(given.data, found, estimator="raw_judge", ci_prob=ci_prob)


def find(given: Calibrated, *, ci_prob: float, rng: Rng, interval: str = "auto") -> Found:
    """The same on rows, before intervals."""
    del ci_prob, rng
    rows, results, score = given.rows, [], oracle_units(given)
    for p in range(len(rows.policies)):
        index = np.flatnonzero((rows.policy == p) & rows.evaluated)
        if len(index) == 0:
            results.append(PolicyResult(Status.NO_RESPONSES, "mean_score", "judge"))
            continue
        value, part = mean_part(rows, index, score[index], rows.weight[index])
        results.append(PolicyResult(Status.OK, "mean_score", "judge", value, *combine([part], rows.cluster)))
    return Found(rows, results, {"interval": interval}, IntervalRule(interval))
