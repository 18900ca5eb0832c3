"""A pass/fail oracle and a continuous judge: ``Y | S ~ Bernoulli(oracle_mean(S))``.

The world of `cje_sim.scenarios.well_specified` with all label mass at 0 and 1.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'slightly_better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
>>> truth().to_series().round(3).to_dict()
{'base': 0.682, 'better': 0.792, 'slightly_better': 0.711, 'worse': 0.446}
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from cje_sim.judges import draw_oracle
from cje_sim.scenarios import well_specified
from cje_sim.world import Prompts, Responses, world


def law(
    prompts: Prompts, *, link: str = "sigmoid", low: float = 0.05, high: float = 0.95, grid: str | None = None
) -> Responses:
    """Scores as in `cje_sim.scenarios.well_specified.law`: labels pass or fail."""
    graded = well_specified.law(prompts, link=link, low=low, high=high, grid=grid)
    passed = draw_oracle(np.asarray(graded.mean), prompts.rng.random(graded.judge.shape), atoms=1.0)
    return replace(graded, mean=None, oracle=passed)


def truth(*, link: str = "sigmoid", low: float = 0.05, high: float = 0.95) -> xr.DataArray:
    """As in `cje_sim.scenarios.well_specified.truth`."""
    return well_specified.truth(link=link, low=low, high=high)


simulate = world(law, spread=None, atoms=None)
