"""Target scores where the base policy has none: the calibrator must extrapolate.

``S = floor_p + (ceiling_p - floor_p) U`` with ``U ~ Kumaraswamy(a_p, b_p)``, and ``E[Y | S] =
oracle_mean(S)`` for all policies. The base policy's scores stay inside its own range, so labels under the
base say nothing about the share of a target's scores beyond it (`outside`), the quantity in the paper's bound
on out-of-range bias and its REFUSE-LEVEL gate.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import (
    LINKS,
    FloatArray,
    draw_oracle,
    expected_over_scores,
    oracle_mean,
    prompt_uniforms,
    score_quantile,
)
from cje_sim.labelling import LabelDesign, label

POLICIES = {
    "base": (2.0, 2.0, 0.45, 0.9),
    "inside": (3.0, 2.0, 0.45, 0.9),
    "above": (3.0, 1.2, 0.45, 1.0),
    "below": (1.5, 3.0, 0.0, 0.9),
}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    policies: Mapping[str, tuple[float, float, float, float]] = POLICIES,
    link: str = "linear",
    low: float = 0.1,
    high: float = 0.95,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, link, low, high, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    policies : mapping of policy to (a, b, floor, ceiling)
        Score law and the range it is squeezed into; the first is the base policy.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    a, b, floor, ceiling = np.array(list(policies.values())).T[:, :, None]
    u = prompt_uniforms((len(policies), n), rng, prompt_corr)
    judge = floor + (ceiling - floor) * score_quantile(u, a, b)
    oracle = draw_oracle(oracle_mean(judge, link, low, high), rng.random(u.shape), spread=spread, atoms=atoms)
    return label(
        judge,
        oracle,
        list(policies),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        rng=rng,
    )


def truth(
    *,
    policies: Mapping[str, tuple[float, float, float, float]] = POLICIES,
    link: str = "linear",
    low: float = 0.1,
    high: float = 0.95,
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.686, 0.728, 0.82, 0.382]
    """
    values = []
    for a, b, floor, ceiling in policies.values():
        width = ceiling - floor

        def curve(u: FloatArray, floor: float = floor, width: float = width) -> FloatArray:
            return oracle_mean(floor + width * u, link, low, high)

        kinks = [(k - floor) / width for k in LINKS[link][1] if floor < k < ceiling]
        values.append(expected_over_scores(curve, a, b, kinks))
    return xr.DataArray(values, coords={"policy": list(policies)}, name="truth")


def outside(*, policies: Mapping[str, tuple[float, float, float, float]] = POLICIES) -> xr.DataArray:
    """Probability of a score beyond the base policy's range.

    Examples
    --------
    >>> outside().round(3).values.tolist()
    [0.0, 0.0, 0.386, 0.73]
    """
    _, _, base_floor, base_ceiling = next(iter(policies.values()))
    values = []
    for a, b, floor, ceiling in policies.values():
        edges = np.clip((np.array([base_floor, base_ceiling]) - floor) / (ceiling - floor), 0, 1)
        below, top = 1 - (1 - edges**a) ** b
        values.append(float(below + 1 - top))
    return xr.DataArray(values, coords={"policy": list(policies)}, name="outside")
