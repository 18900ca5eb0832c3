"""A judge that reports only a coarse cell of what it saw: nested information, one truth.

A fine score ``S ~ Kumaraswamy(a_p, b_p)`` carries ``E[Y | S] = oracle_mean(S)``; the judge reports ``garble(S,
bits)``, one of 2^bits cells. Fewer bits are a coarser sigma-field inside the finer one (the paper's corollary on
Blackwell ordering: variance bounds can only grow). Within a cell policies differ in where their scores lie, so E[Y |
report] differs between policies: garbling costs transport too. See `cje_sim.judges.cell_means`.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 30)
"""

import xarray as xr

from cje_sim.judges import garble, oracle_mean
from cje_sim.world import Prompts, Responses, ScoreLaw, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8), "worse": (2.4, 2.4)}


def law(prompts: Prompts, *, score_law: ScoreLaw = SCORE_LAW, bits: int = 2) -> Responses:
    """Fine scores, of which the judge reports a cell.

    Parameters
    ----------
    bits : int
        There are ``2^bits`` cells; the same seed gives the same fine scores and labels at any `bits`.
    """
    fine = prompts.scores(score_law)
    return Responses(policies=score_law, judge=garble(fine, bits), mean=oracle_mean(fine))


def truth(*, score_law: ScoreLaw = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature; what the judge reports does not enter.

    >>> truth().round(3).values.tolist()
    [0.697, 0.763, 0.59]
    """
    return link_truth(score_law)


simulate = world(law)
