"""A judge that favours the outputs of its own model: calibration on other policies cannot see it.

Quality ``Q ~ Kumaraswamy(a_p, b_p)``, ``E[Y | Q] = oracle_mean(Q)`` for all; the judge reports Q, except for
the policy of its own family, whose scores it inflates by `bonus` on the logit scale. There
``E[Y | S] = oracle_mean(expit(logit(S) - bonus))``, and the transport residual ``E[Y - f(S)]`` is negative;
the default is near the -.065 that the paper reports for a model that judges its own code.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import (
    draw_oracle,
    expected_over_scores,
    inflate,
    oracle_mean,
    prompt_uniforms,
    score_quantile,
)
from cje_sim.labelling import LabelDesign, label

SCORE_LAW = {"base": (3.0, 2.0), "own_model": (3.0, 2.0), "rival": (3.4, 1.9)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    favoured: str = "own_model",
    bonus: float = 0.313,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, score_law, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    favoured : str
        The policy whose outputs the judge favours.
    bonus : float
        What it adds to their logit.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    if favoured not in score_law:
        raise ValueError(f"favoured={favoured!r} is no policy; there are: {', '.join(score_law)}")
    a, b = np.array(list(score_law.values())).T[:, :, None]
    quality = score_quantile(prompt_uniforms((len(score_law), n), rng, prompt_corr), a, b)
    oracle = draw_oracle(oracle_mean(quality), rng.random(quality.shape), spread=spread, atoms=atoms)
    amount = np.array([[bonus if policy == favoured else 0.0] for policy in score_law])
    return label(
        inflate(quality, amount),
        oracle,
        list(score_law),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        rng=rng,
    )


def truth(*, score_law: Mapping[str, tuple[float, float]] = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.697, 0.741]
    """
    values = [expected_over_scores(oracle_mean, a, b) for a, b in score_law.values()]
    return xr.DataArray(values, coords={"policy": list(score_law)}, name="truth")


def residual(*, score_law: Mapping[str, tuple[float, float]] = SCORE_LAW, bonus: float = 0.313) -> float:
    """Transport residual ``E[Y - f(S)]`` of a favoured policy with the base's quality law.

    Examples
    --------
    >>> round(residual(), 3)
    -0.065
    """
    a, b = next(iter(score_law.values()))
    return expected_over_scores(lambda q: oracle_mean(q) - oracle_mean(inflate(q, bonus)), a, b)
