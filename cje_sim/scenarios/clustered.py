"""Prompts in clusters and several draws per prompt, with given intraclass correlations.

Behind every judge score and every label noise stands a normal variable with correlation `cluster_corr` between prompts
of one cluster and ``cluster_corr + prompt_corr`` between responses to one prompt (of any policy or draw). Margins are
those of `cje_sim.scenarios.well_specified`: ``E[Y | S]`` is the same link everywhere. An interval that counts rows
instead of clusters is too short.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 60)
"""

import numpy as np
import xarray as xr

from cje_sim.judges import oracle_mean
from cje_sim.world import Prompts, Responses, ScoreLaw, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8), "worse": (2.4, 2.4)}


def law(
    prompts: Prompts,
    *,
    score_law: ScoreLaw = SCORE_LAW,
    cluster_size: int = 5,
    draws: int = 2,
    cluster_corr: float = 0.3,
) -> Responses:
    """Tied scores and tied label noise.

    Parameters
    ----------
    cluster_size, draws, cluster_corr : int, int, float
        Prompts per cluster, responses per prompt and policy, correlation within a cluster on the normal scale.
    """
    if cluster_size < 1 or draws < 1:
        raise ValueError(f"cluster_size={cluster_size}, draws={draws}: both must be at least 1")
    cluster = np.arange(prompts.n) // cluster_size
    tied = {"cluster": cluster, "cluster_corr": cluster_corr}
    judge, noise = prompts.scores(score_law, draws, **tied), prompts.uniforms(len(score_law), draws, **tied)
    return Responses(policies=score_law, judge=judge, mean=oracle_mean(judge), noise=noise, cluster=cluster)


def truth(*, score_law: ScoreLaw = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature; dependence leaves it alone.

    >>> truth().round(3).values.tolist()
    [0.697, 0.763, 0.59]
    """
    return link_truth(score_law)


simulate = world(law, label_scheme="cluster", prompt_corr=0.2)
