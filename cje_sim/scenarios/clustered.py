"""Prompts in clusters and several draws per prompt, with given intraclass correlations.

Behind every judge score and every label noise stands a normal variable with correlation `cluster_corr`
between prompts of one cluster and ``cluster_corr + prompt_corr`` between responses to one prompt (of any
policy or draw). Margins are those of `cje_sim.scenarios.well_specified`: ``E[Y | S]`` is the same link
everywhere. An interval that counts rows instead of clusters is too short.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import draw_oracle, expected_over_scores, oracle_mean, prompt_uniforms, score_quantile
from cje_sim.labelling import LabelDesign, label

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8), "worse": (2.4, 2.4)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "cluster",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    cluster_size: int = 5,
    draws: int = 2,
    cluster_corr: float = 0.3,
    prompt_corr: float = 0.2,
    spread: float = 0.9,
    atoms: float = 0.05,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts in clusters of `cluster_size` (the last may be smaller).

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, score_law, spread, atoms, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    cluster_size, draws : int
        Prompts per cluster, responses per prompt and policy; at least 1.
    cluster_corr, prompt_corr : float
        Correlations on the normal scale, of scores and of label noise alike.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    if cluster_size < 1 or draws < 1:
        raise ValueError(f"cluster_size={cluster_size}, draws={draws}: both must be at least 1")
    a, b = np.array(list(score_law.values())).T[:, :, None, None]
    cluster = np.arange(n) // cluster_size
    shape = (len(score_law), n, draws)
    score_u, label_u = (
        prompt_uniforms(shape, rng, prompt_corr, cluster=cluster, cluster_corr=cluster_corr) for _ in range(2)
    )
    judge = score_quantile(score_u, a, b)
    oracle = draw_oracle(oracle_mean(judge), label_u, spread=spread, atoms=atoms)
    return label(
        judge,
        oracle,
        list(score_law),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        cluster=cluster,
        rng=rng,
    )


def truth(*, score_law: Mapping[str, tuple[float, float]] = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature; dependence leaves it alone.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.763, 0.59]
    """
    values = [expected_over_scores(oracle_mean, a, b) for a, b in score_law.values()]
    return xr.DataArray(values, coords={"policy": list(score_law)}, name="truth")
