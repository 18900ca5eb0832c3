"""Graded labels near an end of the scale with rare drops: the default holds where few labels show none."""

import numpy as np
import pytest

from cje_core.data import from_arrays
from cje_core.estimators import direct, labels_only, ppi_plus_plus
from cje_core.inference.estimate import wald

N_REPLICATES = 1000


def drops(rng, shape, judge):
    """Labels near 1, one in ten Beta(2, 4); the judge knows nothing, or most of it."""
    dropped = rng.uniform(size=shape) < 0.1
    label = np.where(dropped, rng.beta(2, 4, shape), rng.beta(40, 1, shape))
    noise = rng.uniform(size=shape)
    return (noise if judge == "useless" else 0.7 * label + 0.3 * noise), label


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["useless", "useful"])
@pytest.mark.parametrize("m", [12, 20])
def test_rare_drops_are_covered_by_few_graded_labels(judge, m):
    """At least 93%; the t interval, the planted error, misses where no label shows a drop."""
    truth = 0.9 * 40 / 41 + 0.1 * 2 / 6
    score, label = drops(np.random.default_rng(m), (N_REPLICATES, 150), judge)
    label[:, m:] = np.nan
    for module, size, n in (
        (labels_only, 50, N_REPLICATES),
        (ppi_plus_plus, 50, N_REPLICATES),
        (direct, 1, 300),
    ):
        found = []
        for at in range(0, n, size):
            policies = [f"{r:02d}" for r in range(size)]
            data = from_arrays(score[at : at + size], policies=policies, oracle=label[at : at + size])
            out = module.estimate(data)
            plain = wald(out.estimate, out.std_error, out.df, 0.95)
            found.append(np.stack([out.interval.values, plain]))
        low, high = np.concatenate(found, axis=1).transpose(2, 0, 1)
        coverage = ((low <= truth) & (high >= truth)).mean(axis=1)
        assert coverage[0] >= 0.93, (module.__name__, coverage)
        assert coverage[1] < 0.93, (module.__name__, coverage)
