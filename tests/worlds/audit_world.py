"""A world whose first policy teaches and whose others are probed, for the tests of the audits."""

import numpy as np

from cje_core.data import from_arrays


def world(n=400, probes=120, *, seed=0, policies=("a", "b", "c"), shift=(0.0, 0.0, 0.0), teach=None, **extra):
    """Labels of the first policy teach, the first `probes` prompts of each other one audit."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 101, (len(policies), n)) / 100
    label = 0.2 + 0.6 * score + np.array(shift)[:, None] + rng.normal(0, 0.1, score.shape)
    probe = np.zeros(score.shape, bool)
    probe[1:, :probes] = True
    taught = np.zeros(score.shape, bool)
    taught[0, : (n if teach is None else teach)] = True
    return from_arrays(
        score,
        policies=policies,
        oracle=np.where(probe | taught, label, np.nan),
        probe=probe,
        oracle_range=(-2, 3),
        **extra,
    )
