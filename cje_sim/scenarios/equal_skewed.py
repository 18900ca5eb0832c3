"""Equal policies whose own labels decide: graded with rare drops, or binary, and a judge that knows nothing.

Labels of every policy are independent draws of one law, so every true difference is zero: whoever orders two policies,
names one as behind another or as surely best, errs. With ``label_value`` the labels are binary; else they are
``(1 - drops) Beta(a, b) + drops Beta(c, d)``, most of them near the top of the scale, and a dozen may show no drop.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['policy00', 'policy01', 'policy02', 'policy03', 'policy04']
>>> truth().round(3).values.tolist()
[0.911, 0.911, 0.911, 0.911, 0.911]
"""

import numpy as np
import xarray as xr

from cje_sim.world import Prompts, Responses, ScoreLaw, by_policy, world

USUAL, DROPPED = (40.0, 1.0), (2.0, 4.0)


def law(
    prompts: Prompts,
    *,
    count: int = 5,
    drops: float = 0.1,
    usual: tuple[float, float] = USUAL,
    dropped: tuple[float, float] = DROPPED,
    label_value: float | None = None,
) -> Responses:
    """Scores that say nothing, and labels of one law.

    Parameters
    ----------
    count : int
        Policies.
    drops : float
        Share of labels from the law `dropped`, in [0, 1].
    usual, dropped : pair of float
        Parameters of the two Beta laws.
    label_value : float, optional
        Share of ones; the labels are then binary.
    """
    score_law: ScoreLaw = dict.fromkeys(_names(count), (2.0, 2.0))
    judge = prompts.scores(score_law)
    if label_value is not None:
        label = (prompts.rng.random(judge.shape) < label_value).astype(float)
    else:
        fell = prompts.rng.random(judge.shape) < drops
        label = np.where(fell, prompts.rng.beta(*dropped, judge.shape), prompts.rng.beta(*usual, judge.shape))
    return Responses(policies=score_law, judge=judge, oracle=label)


def truth(
    *,
    count: int = 5,
    drops: float = 0.1,
    usual: tuple[float, float] = USUAL,
    dropped: tuple[float, float] = DROPPED,
    label_value: float | None = None,
) -> xr.DataArray:
    """``V(policy)`` in closed form: the share of ones, or the mean of the two Beta laws by their shares."""
    value = (1 - drops) * usual[0] / sum(usual) + drops * dropped[0] / sum(dropped)
    return by_policy(dict.fromkeys(_names(count), value if label_value is None else label_value))


def _names(count: int) -> list[str]:
    return [f"policy{k:02d}" for k in range(count)]


simulate = world(law, spread=None, atoms=None)
