"""A judge that knows little: E[Y | S] is the same for all policies but nearly flat, and labels are noisy.

The world of `cje_sim.scenarios.well_specified` with a linear link between `low` and `high`. Judge scores are
worth only a few extra labels here, so an estimator that leans on them should be hardly better than labels
alone, and must not be worse.
"""

import numpy as np
import xarray as xr

from cje_sim.labelling import LabelDesign
from cje_sim.scenarios import well_specified


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    low: float = 0.42,
    high: float = 0.62,
    atoms: float = 0.4,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts; arguments as in `cje_sim.scenarios.well_specified.simulate`."""
    return well_specified.simulate(
        n=n,
        oracle_fraction=oracle_fraction,
        label_design=label_design,
        label_scheme=label_scheme,
        n_probes=n_probes,
        link="linear",
        low=low,
        high=high,
        atoms=atoms,
        prompt_corr=prompt_corr,
        rng=rng,
    )


def truth(*, low: float = 0.42, high: float = 0.62) -> xr.DataArray:
    """As in `cje_sim.scenarios.well_specified.truth`."""
    return well_specified.truth(link="linear", low=low, high=high)
