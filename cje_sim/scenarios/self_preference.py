"""A judge that favours the outputs of its own model: calibration on other policies cannot see it.

Quality ``Q ~ Kumaraswamy(a_p, b_p)``, ``E[Y | Q] = oracle_mean(Q)`` for all; the judge reports Q, except for
the policy of its own family, whose scores it inflates by `bonus` on the logit scale. There
``E[Y | S] = oracle_mean(expit(logit(S) - bonus))``, and the transport residual ``E[Y - f(S)]`` is negative;
the default is near the -.065 that the paper reports for a model that judges its own code.
"""

import numpy as np
import xarray as xr

from cje_sim.judges import expected_over_scores, inflate, oracle_mean
from cje_sim.world import Prompts, Responses, ScoreLaw, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "own_model": (3.0, 2.0), "rival": (3.4, 1.9)}


def law(
    prompts: Prompts, *, score_law: ScoreLaw = SCORE_LAW, favoured: str = "own_model", bonus: float = 0.313
) -> Responses:
    """Quality, and scores that flatter one policy.

    Parameters
    ----------
    score_law : mapping of policy to (a, b)
        Quality law; the first is the base policy.
    favoured : str
        The policy whose outputs the judge favours.
    bonus : float
        What it adds to their logit.
    """
    if favoured not in score_law:
        raise ValueError(f"favoured={favoured!r} is no policy; there are: {', '.join(score_law)}")
    quality = prompts.scores(score_law)
    amount = np.array([[bonus if policy == favoured else 0.0] for policy in score_law])
    return Responses(policies=score_law, judge=inflate(quality, amount), mean=oracle_mean(quality))


def truth(*, score_law: ScoreLaw = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.697, 0.741]
    """
    return link_truth(score_law)


def residual(*, score_law: ScoreLaw = SCORE_LAW, bonus: float = 0.313) -> float:
    """Transport residual ``E[Y - f(S)]`` of a favoured policy with the base's quality law.

    Examples
    --------
    >>> round(residual(), 3)
    -0.065
    """
    a, b = next(iter(score_law.values()))
    return expected_over_scores(lambda q: oracle_mean(q) - oracle_mean(inflate(q, bonus)), a, b)


simulate = world(law, label_design="base")
