"""A world small enough to write down: prompts, responses, judge scores and labels are all discrete.

``x ~ p(x)``, ``a ~ pi_p(a | x)``, ``s ~ p(s | x, a)``, ``y ~ p(y | x, a, s)``. `joint` is the full law of every
policy; any functional, variance or efficiency bound of it is a finite sum. Logged responses come from the first policy
with exact log-probabilities. With ``surrogacy = 1`` the label depends on (x, a) through s alone, so E[Y | S] is common
to all policies (the paper's mean sufficiency); below 1 it is mixed with a law that depends on the response. With
``judge_noise = 0`` the score is a function of (x, a).

Examples
--------
>>> joint().sum(["x", "a", "s", "y"]).round(12).values.tolist()
[1.0, 1.0, 1.0, 1.0]
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'clone', 'tilted', 'far']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
"""

from functools import cache

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray, draw_category
from cje_sim.world import Prompts, Responses, world

POLICIES = ("base", "clone", "tilted", "far")
TILT = (0.0, 0.0, 1.0, 3.0)  # slope of log pi_p(a | x) in the response's quality, against the base
PROMPTS = np.array([0.5, 0.3, 0.2])
JUDGE_LEVELS = np.array([0.0, 0.5, 1.0])
ORACLE_LEVELS = np.array([0.0, 0.5, 1.0])
# Quality of response a to prompt x, the base policy's probabilities, and the best-fitting judge level.
QUALITY = np.array([[0.1, 0.4, 0.6, 0.9], [0.0, 0.3, 0.5, 0.7], [0.2, 0.3, 0.8, 0.9]])
BASE = np.array([[0.4, 0.3, 0.2, 0.1], [0.3, 0.3, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25]])
NEAREST = np.array([[0, 1, 1, 2], [0, 0, 1, 1], [0, 1, 2, 2]])
# Rows: law of the label at each judge level.
LABEL_BY_SCORE = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]])


def law(prompts: Prompts, *, judge_noise: float = 0.2, surrogacy: float = 1.0) -> Responses:
    """Draw prompts, responses, scores and labels in turn, with logs and the covariate ``prompt_class``.

    Parameters
    ----------
    judge_noise : float
        Probability, in [0, 1], that the judge names a level at random.
    surrogacy : float
        Share, in [0, 1], of the label's law that depends on the score alone.
    """
    pi, score_law, label_law = tables(judge_noise=judge_noise, surrogacy=surrogacy)
    reward = regression(judge_noise=judge_noise, surrogacy=surrogacy)
    x = prompts.rng.choice(len(PROMPTS), prompts.n, p=PROMPTS)
    a = draw_category(pi[:, x], prompts.rng)
    s = draw_category(score_law[x, a], prompts.rng)
    return Responses(
        policies=POLICIES,
        judge=JUDGE_LEVELS[s],
        oracle=ORACLE_LEVELS[draw_category(label_law[x, a, s], prompts.rng)],
        true_reward=np.take_along_axis(reward, s, axis=1),
        covariate={"prompt_class": x},
        surprisal=-np.log(np.take_along_axis(pi[:, x], a[..., None], axis=-1)[..., 0]),
        logp_target=np.log(pi)[:, x, a[0]],
    )


def truth(*, judge_noise: float = 0.2, surrogacy: float = 1.0) -> xr.DataArray:
    """``V(policy) = sum of y times its probability``, by enumeration.

    >>> truth().round(4).values.tolist()
    [0.4328, 0.4328, 0.471, 0.5418]
    """
    law = joint(judge_noise=judge_noise, surrogacy=surrogacy)
    return (law * law["y"]).sum(["x", "a", "s", "y"]).rename("truth")


def joint(*, judge_noise: float = 0.2, surrogacy: float = 1.0) -> xr.DataArray:
    """Law of (x, a, s, y) under every policy, dims ``policy, x, a, s, y``; s and y are coordinates in their units."""
    pi, score_law, label_law = tables(judge_noise=judge_noise, surrogacy=surrogacy)
    law = np.einsum("x,pxa,xas,xasy->pxasy", PROMPTS, pi, score_law, label_law)
    coords = {"policy": list(POLICIES), "s": JUDGE_LEVELS, "y": ORACLE_LEVELS}
    return xr.DataArray(law, dims=("policy", "x", "a", "s", "y"), coords=coords, name="probability")


@cache
def regression(*, judge_noise: float, surrogacy: float) -> FloatArray:
    """E[Y | S] by policy and judge level, shape (P, levels); made once, for every draw of a world needs it."""
    scores = joint(judge_noise=judge_noise, surrogacy=surrogacy).sum(["x", "a"])
    found = np.asarray((scores.dot(scores["y"], dim="y") / scores.sum("y")).values)
    found.flags.writeable = False
    return found


def tables(*, judge_noise: float = 0.2, surrogacy: float = 1.0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Conditional laws ``pi[p, x, a]``, ``p(s | x, a)`` and ``p(y | x, a, s)``; the last axis sums to one."""
    for name, value in (("judge_noise", judge_noise), ("surrogacy", surrogacy)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value}; it must lie in [0, 1]")
    pi = BASE * np.exp(np.array(TILT)[:, None, None] * QUALITY)
    pi /= pi.sum(axis=2, keepdims=True)
    score_law = (1 - judge_noise) * np.eye(len(JUDGE_LEVELS))[NEAREST] + judge_noise / len(JUDGE_LEVELS)
    q = QUALITY[..., None]
    by_response = np.concatenate([(1 - q) ** 2, 2 * q * (1 - q), q**2], axis=-1)[:, :, None, :]
    label_law = surrogacy * LABEL_BY_SCORE + (1 - surrogacy) * by_response
    return pi, score_law, label_law


simulate = world(law, spread=None, atoms=None, prompt_corr=None)
