"""Policies whose responses fail rarely and completely: few probes may show no failure at all.

``S ~ Uniform(.6, 1)``; a response that does not fail has ``Y = center + slope (S - .8) + noise U``, U uniform on
(-1, 1); a failure, with the policy's probability, has the label ``failed``. The base policy never fails, so under a
policy that fails with probability p the residual of its calibrator is ``p (failed - center)`` on average: -.063 at
p = .07, beyond a margin of .05, while 11% of samples of 30 probes show no failure.

Examples
--------
>>> data = simulate(n=200, n_probes=30, rng=1)
>>> data.policy.values.tolist(), int(data.probe.sum())
(['base', 'same', 'failing'], 60)
>>> truth().round(3).values.tolist()
[0.9, 0.9, 0.837]
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray
from cje_sim.world import Prompts, Responses, by_policy, world

FAILURES = {"base": 0.0, "same": 0.0, "failing": 0.07}


def law(
    prompts: Prompts,
    *,
    failures: Mapping[str, float] = FAILURES,
    center: float = 0.9,
    slope: float = 0.2,
    noise: float = 0.02,
    failed: float = 0.0,
) -> Responses:
    """Draw scores that do not know of failures, and labels.

    Parameters
    ----------
    failures : mapping of policy to probability
        How often its responses fail; the first is the base policy.
    center, slope : float
        Mean label of responses that do not fail, and how it rises with the score.
    noise : float
        Half-width of their labels around it.
    failed : float
        Label of a failure.
    """
    judge = 0.6 + 0.4 * prompts.uniforms(len(failures))
    rate = np.array(list(failures.values()))[:, None]
    usual: FloatArray = center + slope * (judge - 0.8) + noise * prompts.rng.uniform(-1, 1, judge.shape)
    fails = prompts.rng.random(judge.shape) < rate
    expected = (1 - rate) * (center + slope * (judge - 0.8)) + rate * failed
    return Responses(
        policies=failures, judge=judge, oracle=np.where(fails, failed, usual), true_reward=expected
    )


def truth(
    *, failures: Mapping[str, float] = FAILURES, center: float = 0.9, failed: float = 0.0
) -> xr.DataArray:
    """Return ``V = (1 - p) center + p failed``: scores are symmetric about .8, so slope and noise do not enter."""
    return by_policy({policy: (1 - p) * center + p * failed for policy, p in failures.items()})


simulate = world(law, label_design="base", spread=None, atoms=None)
