"""A judge that drifts while prompts come in, and an oracle that does not.

Prompts are ordered in time, ``t = (i + 1/2) / n``. ``Q ~ Kumaraswamy(a_p, b_p)``, ``E[Y | Q] =
oracle_mean(Q)`` at all times; the judge reports ``S = expit(logit(Q) + amount(t))``, where the amount grows
to `size` linearly or in one step at `change`. Time is a covariate, so ``E[Y | S, t]`` is known;
``label_scheme="early"`` puts all labels before the drift, where a calibrator goes stale.
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

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8), "worse": (2.4, 2.4)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    size: float = 0.8,
    change: float | None = None,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts in order of time, with the covariate ``time`` in (0, 1).

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, score_law, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    size : float
        Inflation of the judge's logit at the end.
    change : float, optional
        Time in [0, 1] of a sudden change; by default the drift is linear.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    if change is not None and not 0 <= change <= 1:
        raise ValueError(f"change={change}: the time of the change lies in [0, 1]")
    a, b = np.array(list(score_law.values())).T[:, :, None]
    quality = score_quantile(prompt_uniforms((len(score_law), n), rng, prompt_corr), a, b)
    oracle = draw_oracle(oracle_mean(quality), rng.random(quality.shape), spread=spread, atoms=atoms)
    time = (np.arange(n) + 0.5) / n
    amount = size * time if change is None else size * (time >= change)
    return label(
        inflate(quality, amount),
        oracle,
        list(score_law),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        covariate=np.broadcast_to(time[:, None], (*quality.shape, 1)),
        features=["time"],
        rng=rng,
    )


def truth(*, score_law: Mapping[str, tuple[float, float]] = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature; the drift is the judge's alone.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.763, 0.59]
    """
    values = [expected_over_scores(oracle_mean, a, b) for a, b in score_law.values()]
    return xr.DataArray(values, coords={"policy": list(score_law)}, name="truth")
