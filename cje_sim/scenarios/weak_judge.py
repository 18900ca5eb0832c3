"""A judge that knows little: E[Y | S] is the same for all policies but nearly flat, and labels are noisy.

The world of `cje_sim.scenarios.well_specified` with a linear link between `low` and `high`. Judge scores are worth
only a few extra labels here, so an estimator that leans on them should be hardly better than labels alone, and must
not be worse.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'slightly_better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
>>> truth().to_series().round(3).to_dict()
{'base': 0.549, 'better': 0.568, 'slightly_better': 0.553, 'worse': 0.511}
"""

import xarray as xr

from cje_sim.scenarios import well_specified
from cje_sim.world import Prompts, Responses, world


def law(prompts: Prompts, *, low: float = 0.42, high: float = 0.62) -> Responses:
    """Scores as in `cje_sim.scenarios.well_specified.law`, ``E[Y | S]`` a line from `low` to `high`."""
    return well_specified.law(prompts, link="linear", low=low, high=high)


def truth(*, low: float = 0.42, high: float = 0.62) -> xr.DataArray:
    """As in `cje_sim.scenarios.well_specified.truth`."""
    return well_specified.truth(link="linear", low=low, high=high)


simulate = world(law, atoms=0.4)
