"""A pass/fail oracle and a continuous judge: ``Y | S ~ Bernoulli(oracle_mean(S))``.

The world of `cje_sim.scenarios.well_specified` with all label mass at 0 and 1.
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
    link: str = "sigmoid",
    low: float = 0.05,
    high: float = 0.95,
    prompt_corr: float = 0.3,
    grid: str | None = None,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts; arguments as in `cje_sim.scenarios.well_specified.simulate`."""
    return well_specified.simulate(
        n=n,
        oracle_fraction=oracle_fraction,
        label_design=label_design,
        label_scheme=label_scheme,
        n_probes=n_probes,
        link=link,
        low=low,
        high=high,
        atoms=1.0,
        prompt_corr=prompt_corr,
        grid=grid,
        rng=rng,
    )


def truth(*, link: str = "sigmoid", low: float = 0.05, high: float = 0.95) -> xr.DataArray:
    """As in `cje_sim.scenarios.well_specified.truth`."""
    return well_specified.truth(link=link, low=low, high=high)
