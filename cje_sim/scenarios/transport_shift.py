"""Policies for which the base calibrator is wrong in a stated way: on average or in shape.

``S ~ Kumaraswamy(a_p, b_p)`` and ``E[Y | S]`` is the base curve changed by `cje_sim.judges.shifted_mean`. A
``mean`` shift is what the paper's transport audit tests; ``shape`` and ``compensating`` shifts have residual
mean exactly zero, so the level is right and the audit must pass, though the curve is wrong at almost every
score.
"""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import (
    FloatArray,
    draw_oracle,
    expected_over_scores,
    oracle_mean,
    prompt_uniforms,
    score_quantile,
    shifted_mean,
)
from cje_sim.labelling import LabelDesign, label

POLICIES = {
    "base": (3.0, 2.0, "none", 0.0),
    "same": (3.4, 1.9, "none", 0.0),
    "lower": (3.0, 2.0, "mean", -0.1),
    "flatter": (3.0, 2.0, "shape", 0.6),
    "compensating": (3.0, 2.0, "compensating", 0.1),
}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    policies: Mapping[str, tuple[float, float, str, float]] = POLICIES,
    low: float = 0.15,
    high: float = 0.85,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, low, high, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    policies : mapping of policy to (a, b, kind, size)
        Score law and shift, see `cje_sim.judges.shifted_mean`; the first is the base policy.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    a, b = np.array([law[:2] for law in policies.values()]).T[:, :, None]
    judge = score_quantile(prompt_uniforms((len(policies), n), rng, prompt_corr), a, b)
    mean = np.stack([_curve(law, low, high)(row) for law, row in zip(policies.values(), judge, strict=True)])
    oracle = draw_oracle(mean, rng.random(judge.shape), spread=spread, atoms=atoms)
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
    policies: Mapping[str, tuple[float, float, str, float]] = POLICIES,
    low: float = 0.15,
    high: float = 0.85,
) -> xr.DataArray:
    """``V(policy) = E[shifted curve(S)]``, by quadrature.

    Examples
    --------
    >>> (truth() - truth()[0]).round(6).values + 0.0  # same, lower, flatter, compensating against base
    array([ 0.      ,  0.035821, -0.1     ,  0.      ,  0.      ])
    """
    values = [
        expected_over_scores(
            _curve(law, low, high), law[0], law[1], [float(score_quantile(0.5, law[0], law[1]))]
        )
        for law in policies.values()
    ]
    return xr.DataArray(values, coords={"policy": list(policies)}, name="truth")


def _curve(
    law: tuple[float, float, str, float], low: float, high: float
) -> Callable[[FloatArray], FloatArray]:
    """``E[Y | S]`` of one policy."""
    a, b, kind, size = law
    return shifted_mean(lambda s: oracle_mean(s, "sigmoid", low, high), kind, size, a, b)
