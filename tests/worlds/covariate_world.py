"""A world in which a covariate moves the labels at a given judge score, for the tests of the Bayesian calibration."""

import numpy as np

from cje_core.bayes.covariates import effects
from cje_core.bayes.levels import grade
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack

UNIT = (0.0, 1.0)
LEVELS = np.round(np.linspace(0.05, 1.0, 12), 2)


def world(seed, n=400, m=150, *, effect=0.0, center=(0.0, 0.0), binary=False, copies=1, probes=0):
    """Labels of policy a teach. Responses differ in x, whose effect is on the log odds; `copies` share a cluster."""
    rng = np.random.default_rng(seed)
    judge = rng.choice(LEVELS, (2, n))
    x = np.array(center)[:, None] + rng.standard_normal((2, n))
    f = np.clip(0.15 + 0.7 * judge**2, 0.01, 0.99)
    mean = 1 / (1 + (1 / f - 1) * np.exp(-effect * x))
    noisy = np.clip(mean + rng.normal(0, 0.1, (2, n)), 0.0, 1.0)
    y = rng.binomial(1, mean).astype(float) if binary else noisy
    oracle, probe = np.full((2, n), np.nan), np.zeros((2, n), bool)
    oracle[0, :m], oracle[1, :probes] = y[0, :m], y[1, :probes]
    probe[1, :probes] = True
    judge, x, oracle, probe = (np.tile(one, copies) for one in (judge, x, oracle, probe))
    data = from_arrays(
        judge, policies=["a", "b"], oracle=oracle, probe=probe, covariate=np.stack([x, 0 * x + 3.0], -1),
        features=["x", "same"], calibration_policy="a", cluster=np.tile(np.arange(n), copies),
    )  # fmt: skip
    return data, mean.mean(axis=1)


def prepared(data, names, kind="linear"):
    rows = unpack(data, names)
    graded = grade(rows, fit_slice(rows, calibrator="monotone"), judge_range=UNIT, oracle_range=UNIT)
    return rows, graded._replace(columns=effects(rows, kind))
