"""Healthy metrics, and a policy that leaves the range of the labels, for the tests of gates, refusal and guide."""

import numpy as np

from cje_core.data import from_arrays

HEALTHY = {
    "ess_fraction": 0.5,
    "hill": 3.0,
    "affinity": 0.95,
    "ttc": 0.9,
    "ttc_two_sided": 0.9,
    "uncovered_bins": 0.0,
    "drift_alarm": 0.0,
    "labels_near": 200.0,
    "unsupported_mass": 0.0,
    "transport_code": 0.0,
    "orthogonality_gap": 0.0,
    "residual_nan": 0.0,
    "residual_df": 100.0,
    "guard_engaged": 0.2,
    "cap_sensitivity": 0.1,
    "unadjusted_policies": 3.0,
}


def world(n=300, seed=0, decreasing=False):
    """Labels of policy a between scores .3 and .7; policy b reaches beyond on both sides."""
    rng = np.random.default_rng(seed)
    score = np.stack([rng.uniform(0.3, 0.7, n), rng.uniform(0.2, 0.9, n)])
    mean = 0.8 - 0.6 * score if decreasing else 0.1 + 0.6 * score
    label = (mean + rng.normal(0, 0.1, score.shape)).clip(0, 1)
    seen = np.zeros(score.shape, bool)
    seen[0, :150] = True
    return from_arrays(score, policies=["a", "b"], oracle=np.where(seen, label, np.nan))
