"""The pseudo-estimator that knows E[Y | Z]: how precise an estimator of its kind can be, for simulations.

Estimand: V(policy) = E[Y]. Formula: ``mean m(Z) + sum_L v (Y - m(Z))`` with ``m(Z) = E[Y | Z]`` the policy's true
regression (``true_reward`` in the data, known to the simulator) and v proportional to 1 / ``label_prob`` (Hajek form).
Its influence function ``m(Z) - V + L / e (Y - m(Z))`` is the efficient one of the paper's proposition "Direct: EIF
and one-step estimator", without the error of estimating m: no regular estimator that uses the policy's own labels
and Z has a smaller asymptotic variance.

With fewer than 4 labelled prompts of its own the value is ``mean m(Z)``, route ``true_reward``: still more than any
estimator knows, but no longer an attainable bound.

Failure modes: real data do not carry the truth; a wrong declared ``label_prob`` biases it as it does everyone; it
bounds estimators that see the same Z, and covariates outside Z may do better.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.534, 'better': 0.588, 'slightly_better': 0.569, 'worse': 0.471}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.508, 0.668]
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.checks import Rng
from cje_core.data.arrays import Rows, unpack
from cje_core.data.fields import LARGEST
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, PolicyResult
from cje_core.inference.estimate import Status
from cje_core.inference.influence import combine, mean_part

NEEDS = {"oracle", "true_reward"}


def estimate(data: xr.Dataset | Calibrated, *, ci_prob: float = 0.95, rng: Rng = None) -> xr.Dataset:
    """Estimate each policy's value with the true regression in place of a calibrator; see the module and its package.

    Every status is NO_TRUTH without ``true_reward``.
    """
    del rng
    given = calibrated(data)
    data, rows, results = given.data, given.rows, []
    known = "true_reward" in data
    if known:  # the regression takes the judge's place: rows and their order stay those of every estimator
        spread = {"judge_range": [-LARGEST, LARGEST]}
        reward = data["true_reward"].where(np.isfinite(data["judge"]))
        rows = unpack(data.assign(judge=reward).assign_attrs(spread))
    for p in range(len(rows.policies)):
        results.append(efficient_value(rows, p) if known else PolicyResult(Status.NO_TRUTH, "none"))
    return assemble(data, Found(rows, results, {}), estimator="oracle_bound", ci_prob=ci_prob)


def efficient_value(rows: Rows, p: int) -> PolicyResult:
    """Result of policy p, from rows whose scores are the true regression."""
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    own = index[rows.labelled[index]]
    if len(index) == 0:
        return PolicyResult(Status.NO_RESPONSES, "none")
    value, sampling = mean_part(rows, index, rows.score[index], rows.weight[index])
    route, source, parts = "true_reward", "truth", [sampling]
    if count_clusters(rows, own) >= MIN_LABELLED_CLUSTERS:
        every = len(own) == len(index)
        weight = rows.weight[own] / (1.0 if every else rows.label_prob[own])
        shift, correction = mean_part(rows, own, rows.label[own] - rows.score[own], weight)
        route, source, parts, value = "efficient", "own", [sampling, correction], value + shift
    return PolicyResult(Status.OK, route, source, value, *combine(parts, rows.cluster))
