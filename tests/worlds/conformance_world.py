"""One rich data set that feeds every estimator of the directory; a new file is picked up by itself.

It has all that any estimator may need: labels, probes, known label probabilities, logged responses with
log-likelihoods, two draws, clusters, a covariate and the simulator's truth. Estimators of binary labels get its binary
twin.
"""

from functools import cache

import numpy as np

from cje_core import estimators
from cje_core.data import from_arrays
from cje_core.inference.estimate import Status

NAMES = estimators.available()
N_PROMPTS = 120
BINARY = {"bayes_rogan_gladen", "rogan_gladen"}
POLICIES = ["base", "clone", "far"]


def world(n=N_PROMPTS, seed=0, *, binary=False, draws=2, clustered=True, share=0.6, unequal=False):
    """The rich data set; labels of every policy, on scales that are not [0, 1]."""
    rng = np.random.default_rng(seed)
    shape = (len(POLICIES), n, draws)
    quality = rng.uniform(size=(1, n, 1))
    level = np.clip(
        np.round(2 * quality + 2 * rng.uniform(size=shape) + np.array([0, 0, 0.5])[:, None, None]), 0, 4
    )
    length = rng.normal(size=shape)
    mean = 0.04 + 0.23 * level if binary else 0.1 + 0.2 * level
    label = (
        (rng.uniform(size=shape) < mean) if binary else np.clip(mean + rng.uniform(-0.1, 0.1, shape), 0, 1)
    )
    prob = np.where(level > 2, 0.8, 0.4) if unequal else np.full(shape, share)
    draw = rng.uniform(size=shape)
    missing = np.zeros(shape, dtype=bool)
    missing[:, ::4, 1:] = True  # ragged: one prompt in four has a single draw
    seen, probe = (draw < prob) & ~missing, (draw > 0.85) & ~missing
    probe[0] = False
    logp_logger = -rng.uniform(5, 10, n)
    ratio = np.stack([np.zeros(n), 0.2 * rng.normal(size=n), 0.6 * rng.normal(size=n)])
    logged_level = level[0, :, 0]
    return from_arrays(
        np.where(missing, np.nan, 2 * level),
        policies=POLICIES,
        prompts=[f"q{i:04d}" for i in range(n)],
        oracle=np.where(seen | probe, 1 + 4 * label, np.nan),
        probe=probe,
        label_prob=prob,
        covariate=length[..., None],
        features=["length"],
        surprisal=np.abs(length),
        true_reward=1 + 4 * mean,
        cluster=[f"c{i // 2:04d}" for i in range(n)] if clustered else None,
        logged={
            "logp_target": np.minimum(logp_logger + ratio, 0),
            "logp_logger": logp_logger,
            "n_tokens": rng.integers(3, 9, n),
            "logged_judge": 2 * logged_level,
            "logged_oracle": np.where(seen[0, :, 0], 1 + 4 * label[0, :, 0], np.nan),
            "logged_covariate": length[0, :, 0][:, None],
        },
        judge_range=(0.0, 8.0),
        oracle_range=(1.0, 5.0),
        calibration_policy=["base"],
    )


def rich(name, **options):
    """The data set of an estimator, which it shares with others."""
    return _rich(name in BINARY, **options)


@cache
def _rich(binary, **options):
    return world(binary=binary, **options)


def run(name, data, **options):
    return estimators.load(name).estimate(data, rng=5, **options)


def sound(out):
    """What holds of every estimate: statuses, failures without numbers, intervals around the estimate."""
    code = out["status"].values
    failed = code >= Status.TOO_FEW_LABELS
    assert {Status(s) for s in code.tolist()} <= set(Status)
    value, (low, high) = out["estimate"].values, out["interval"].values.T
    assert np.isnan(value[failed]).all(), "a failure has no value"
    assert np.isfinite(value[~failed]).all(), "what is no failure has a value"
    assert not np.isinf(out["interval"].values).any()
    shown = np.isfinite(low)
    assert (shown == np.isfinite(high)).all()
    assert not shown[failed].any()
    slack = 1e-12 * np.maximum(1, np.abs(value[shown]))
    assert (low[shown] <= value[shown] + slack).all() and (value[shown] <= high[shown] + slack).all()
    silent = ~np.isfinite(out["std_error"].values)
    explained = [
        Status.ILL_CONDITIONED,
        Status.FEW_RESAMPLES,
        Status.CONSTANT_LABELS,
        Status.ONE_CLUSTER,
        Status.FEW_LABELS_POSTERIOR,
        Status.POOR_OVERLAP,  # one response has all the weight
    ]
    assert np.isin(code[silent & ~failed], explained).all(), "a value without a standard error says why"
    assert not (out["std_error"].values < 0).any()
