"""A judge that rewards length: without the covariate it ranks a verbose policy above a better, concise one.

Quality ``Q ~ Kumaraswamy(a_p, b_p)`` and standardised log length ``X ~ N(mu_p, 1)`` are independent given the
policy. The oracle looks at quality alone, ``E[Y | Q, X] = oracle_mean(Q)``; the judge reports
``S = expit(logit(Q) + bias * X)``. So ``E[Y | S, X] = oracle_mean(expit(logit(S) - bias * X))``: monotone in
S given X and in an additive index, the form of the paper's two-stage calibration. E[Y | S] alone differs
between policies, so a monotone calibrator does not transport.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import (
    LINKS,
    draw_oracle,
    expected_over_scores,
    inflate,
    oracle_mean,
    prompt_uniforms,
    score_quantile,
)
from cje_sim.labelling import LabelDesign, label

POLICIES = {"base": (3.0, 2.0, 0.0), "concise": (3.5, 1.9, -0.8), "verbose": (2.8, 2.1, 1.0)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    policies: Mapping[str, tuple[float, float, float]] = POLICIES,
    bias: float = 0.5,
    link: str = "sigmoid",
    low: float = 0.1,
    high: float = 0.95,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts, with the covariate ``length``.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, link, low, high, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    policies : mapping of policy to (a, b, mu)
        Quality law and mean standardised log length; the first is the base policy.
    bias : float
        Points that one unit of length adds to the judge's logit.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    a, b, mu = np.array(list(policies.values())).T[:, :, None]
    shape = (len(policies), n)
    quality = score_quantile(prompt_uniforms(shape, rng, prompt_corr), a, b)
    shared, own = rng.standard_normal(n), rng.standard_normal(shape)
    length = mu + np.sqrt(prompt_corr) * shared + np.sqrt(1 - prompt_corr) * own
    mean = oracle_mean(quality, link, low, high)
    oracle = draw_oracle(mean, rng.random(shape), spread=spread, atoms=atoms)
    return label(
        inflate(quality, bias * length),
        oracle,
        list(policies),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        covariate=length[:, :, None],
        features=["length"],
        rng=rng,
    )


def truth(
    *,
    policies: Mapping[str, tuple[float, float, float]] = POLICIES,
    link: str = "sigmoid",
    low: float = 0.1,
    high: float = 0.95,
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature; length does not enter.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.748, 0.667]
    """
    values = [
        expected_over_scores(lambda q: oracle_mean(q, link, low, high), a, b, LINKS[link][1])
        for a, b, _ in policies.values()
    ]
    return xr.DataArray(values, coords={"policy": list(policies)}, name="truth")
