"""The favourable case: one monotone link for all policies, and a judge on the wrong scale.

``S ~ Kumaraswamy(a_p, b_p)`` per policy, ``E[Y | S] = oracle_mean(S, link)`` for every policy, so a calibrator that is
learned under one policy is right for all of them (the transport condition of "Causal Judge Evaluation" holds exactly).
The judge is far from the oracle on average, so an interval around the raw judge mean should never cover. Scores of one
prompt are correlated across policies; given S, labels are independent.

With `grid` the judge rounds what it reports. The truth stays; E[Y | reported score] is then the mean of the link over
a cell, which differs a little between policies: no true reward is given (`cje_sim.judges.cell_means`).

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'slightly_better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
"""

import xarray as xr

from cje_sim.judges import GRIDS, oracle_mean, report
from cje_sim.world import Prompts, Responses, ScoreLaw, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "better": (4.0, 1.6), "slightly_better": (3.2, 1.9), "worse": (2.0, 3.0)}


def law(
    prompts: Prompts,
    *,
    score_law: ScoreLaw = SCORE_LAW,
    link: str = "sigmoid",
    low: float = 0.05,
    high: float = 0.7,
    grid: str | None = None,
) -> Responses:
    """Scores of one law per policy, labels around one link."""
    score = prompts.scores(score_law)
    mean = oracle_mean(score, link, low, high)
    if grid is None:
        return Responses(policies=score_law, judge=score, mean=mean, true_reward=mean)
    return Responses(policies=score_law, judge=report(score, grid), mean=mean, judge_range=GRIDS[grid][:2])


def truth(
    *, score_law: ScoreLaw = SCORE_LAW, link: str = "sigmoid", low: float = 0.05, high: float = 0.7
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature.

    >>> truth().round(3).values.tolist()
    [0.507, 0.586, 0.527, 0.336]
    """
    return link_truth(score_law, link, low, high)


simulate = world(law)
