"""A judge that favours the outputs of its own model: calibration on other policies cannot see it.

Quality ``Q ~ Kumaraswamy(a_p, b_p)``, ``E[Y | Q] = oracle_mean(Q)`` for all; the judge reports Q, but inflates by
`bonus` on the logit scale the scores of its own family's policy. There ``E[Y | S] = oracle_mean(expit(logit(S) -
bonus))``, and the transport residual is negative, by default near the paper's -.065 for a model judging its own code.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'own_model', 'rival']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
"""

import xarray as xr

from cje_sim.judges import expected_over_scores, inflate, oracle_mean
from cje_sim.world import Prompts, Responses, ScoreLaw, chosen, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "own_model": (3.0, 2.0), "rival": (3.4, 1.9)}


def law(
    prompts: Prompts, *, score_law: ScoreLaw = SCORE_LAW, favoured: str = "own_model", bonus: float = 0.313
) -> Responses:
    """Quality, and scores that flatter one policy.

    Parameters
    ----------
    favoured, bonus : str, float
        The policy whose outputs the judge favours, and what it adds to their logit.
    """
    quality = prompts.scores(score_law)
    judge = inflate(quality, bonus * chosen(score_law, favoured))
    return Responses(policies=score_law, judge=judge, mean=oracle_mean(quality))


def truth(*, score_law: ScoreLaw = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature.

    >>> truth().round(3).values.tolist()
    [0.697, 0.697, 0.741]
    """
    return link_truth(score_law)


def residual(*, score_law: ScoreLaw = SCORE_LAW, bonus: float = 0.313) -> float:
    """Transport residual ``E[Y - f(S)]`` of a favoured policy with the base's quality law.

    >>> round(residual(), 3)
    -0.065
    """
    a, b = next(iter(score_law.values()))
    return expected_over_scores(lambda q: oracle_mean(q) - oracle_mean(inflate(q, bonus)), a, b)


simulate = world(law, label_design="base")
