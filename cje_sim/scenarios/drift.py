"""A judge that drifts while prompts come in, and an oracle that does not.

Prompts are ordered in time, ``t = (i + 1/2) / n``. ``Q ~ Kumaraswamy(a_p, b_p)``, ``E[Y | Q] = oracle_mean(Q)`` at all
times; the judge reports ``S = expit(logit(Q) + amount(t))``, where the amount grows to `size` linearly or in one step
at `change`. Time is a covariate, so ``E[Y | S, t]`` is known; ``label_scheme="early"`` puts all labels before the
drift, where a calibrator goes stale.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 30)
"""

import numpy as np
import xarray as xr

from cje_sim.judges import inflate, oracle_mean
from cje_sim.world import Prompts, Responses, ScoreLaw, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8), "worse": (2.4, 2.4)}


def law(
    prompts: Prompts, *, score_law: ScoreLaw = SCORE_LAW, size: float = 0.8, change: float | None = None
) -> Responses:
    """Quality judged ever more leniently, with the covariate ``time`` in (0, 1).

    Parameters
    ----------
    size : float
        Inflation of the judge's logit at the end.
    change : float, optional
        Time in [0, 1] of a sudden change; by default the drift is linear.
    """
    if change is not None and not 0 <= change <= 1:
        raise ValueError(f"change={change}: the time of the change lies in [0, 1]")
    quality = prompts.scores(score_law)
    time = (np.arange(prompts.n) + 0.5) / prompts.n
    judge = inflate(quality, size * time if change is None else size * (time >= change))
    return Responses(policies=score_law, judge=judge, mean=oracle_mean(quality), covariate={"time": time})


def truth(*, score_law: ScoreLaw = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(Q)]``, by quadrature; the drift is the judge's alone.

    >>> truth().round(3).values.tolist()
    [0.697, 0.763, 0.59]
    """
    return link_truth(score_law)


simulate = world(law)
