"""Equal policies and an independent judge: it prefers one policy's style, no score says anything about any label.

``S ~ Kumaraswamy(a_p, b_p)``, a law of its own for every policy, and ``E[Y | S] = value`` for all of them: the
calibration transports, for there is nothing in it. Every true difference is zero, so whoever orders two policies orders
them falsely. The world of `cje_sim.scenarios.useless_judge` with one value.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.labelling import LabelDesign
from cje_sim.scenarios import useless_judge

SCORE_LAW = {"base": (3.0, 2.0), "favoured": (4.0, 1.6), "disliked": (2.0, 3.0)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    value: float = 0.6,
    spread: float = 0.9,
    atoms: float = 0.3,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, score_law, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    value : float
        Value of every policy, in [0, 1].

    Returns
    -------
    xr.Dataset
    """
    return useless_judge.simulate(
        n=n,
        oracle_fraction=oracle_fraction,
        label_design=label_design,
        label_scheme=label_scheme,
        n_probes=n_probes,
        policies={name: (*law, value) for name, law in score_law.items()},
        spread=spread,
        atoms=atoms,
        prompt_corr=prompt_corr,
        rng=rng,
    )


def truth(*, score_law: Mapping[str, tuple[float, float]] = SCORE_LAW, value: float = 0.6) -> xr.DataArray:
    """``V(policy) = value``, a parameter.

    Examples
    --------
    >>> truth().values.tolist()
    [0.6, 0.6, 0.6]
    """
    return xr.DataArray([value] * len(score_law), coords={"policy": list(score_law)}, name="truth")
