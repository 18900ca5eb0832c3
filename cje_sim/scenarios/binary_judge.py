"""A pass/fail judge and a pass/fail oracle, and two ways in which a target may differ from where the labels are.

The base policy is good with probability `taught`; the judge passes good responses with probability `sensitivity` and
fails bad ones with probability `specificity`. The judge passes the target's responses with the probability that these
rates give at prevalence `theta`. What is stable decides what that means:

``stable="rates"``
    sensitivity and specificity, the assumption of Rogan and Gladen (1978): the target's value is
    `theta`, and E[Y | verdict] has moved
``stable="values"``
    E[Y | verdict], the assumption of reward calibration (the paper's mean transport): the target's
    value is what the base policy's predictive values make of its verdicts, and the rates have moved

Labels of the base policy and verdicts on the target follow the same law in both, whatever the rest: no estimate that is
made of these can tell the two apart. Labels of the target can. With ``theta = taught`` the two are one world.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'target']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
"""

import numpy as np
import xarray as xr

from cje_sim.exact.judged_means import BinaryJudge
from cje_sim.world import Prompts, Responses, by_policy, world

STABLE = ("rates", "values")


def law(
    prompts: Prompts,
    *,
    theta: float = 0.5,
    taught: float = 0.7,
    sensitivity: float = 0.8,
    specificity: float = 0.75,
    stable: str = "rates",
) -> Responses:
    """Verdicts, then labels given the verdict; the same seed gives the same verdicts whatever is stable.

    Parameters
    ----------
    theta, taught : float
        See the module; shares in (0, 1).
    sensitivity, specificity : float
        Rates of the judge under the base policy.
    stable : {"rates", "values"}
        What the target has in common with the base policy.
    """
    base, passed, (after_fail, after_pass) = _target(theta, taught, sensitivity, specificity, stable)
    share = np.array([[base.passed], [passed]])
    verdict = prompts.uniforms(2) < share
    good = np.where(verdict, [[base.values[1]], [after_pass]], [[base.values[0]], [after_fail]])
    label = (prompts.rng.random(verdict.shape) < good).astype(float)
    return Responses(policies=("base", "target"), judge=verdict.astype(float), oracle=label, true_reward=good)


def truth(
    *,
    theta: float = 0.5,
    taught: float = 0.7,
    sensitivity: float = 0.8,
    specificity: float = 0.75,
    stable: str = "rates",
) -> xr.DataArray:
    """``V(target)`` is `theta` where rates are stable, else ``P(pass) a + P(fail) b`` with the base policy's a, b.

    >>> truth().round(3).values.tolist(), truth(stable="values").round(3).values.tolist()
    ([0.7, 0.5], [0.7, 0.645])
    """
    _, passed, (after_fail, after_pass) = _target(theta, taught, sensitivity, specificity, stable)
    return by_policy({"base": taught, "target": (1 - passed) * after_fail + passed * after_pass})


def _target(
    theta: float, taught: float, sensitivity: float, specificity: float, stable: str
) -> tuple[BinaryJudge, float, tuple[float, float]]:
    """The base policy, the target's pass share, and its shares of good responses after a fail and a pass."""
    if stable not in STABLE:
        raise ValueError(f"stable={stable!r}: use one of {', '.join(STABLE)}")
    shares = {"theta": theta, "taught": taught, "sensitivity": sensitivity, "specificity": specificity}
    for name, share in shares.items():
        if not 0 < share < 1:
            raise ValueError(f"{name}={share}; it must lie between 0 and 1")
    base, target = (BinaryJudge(good, sensitivity, specificity) for good in (taught, theta))
    return base, target.passed, (target if stable == "rates" else base).values


simulate = world(law, label_design="base", spread=None, atoms=None, prompt_corr=None)
