"""A judge that knows nothing: S and Y are independent under every policy.

``S ~ Kumaraswamy(a_p, b_p)``, ``E[Y | S] = v_p``. By default the judge even orders the policies the wrong way round,
so the raw mean and a calibrator borrowed from the base are both wrong, while an estimator that uses each policy's own
labels should be as good as those labels alone, no better and no worse.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 30)
"""

import xarray as xr

from cje_sim.world import Laws, Prompts, Responses, by_policy, column, world

POLICIES = {"base": (3.0, 2.0, 0.55), "better": (2.5, 2.2, 0.65), "worse": (3.5, 1.8, 0.45)}


def law(prompts: Prompts, *, policies: Laws = POLICIES) -> Responses:
    """Scores and labels that have nothing to do with each other.

    Parameters
    ----------
    policies : mapping of policy to (a, b, v)
        Score law and value; the first is the base policy.
    """
    value = column(policies, 2)
    return Responses(policies=policies, judge=prompts.scores(policies), mean=value, true_reward=value)


def truth(*, policies: Laws = POLICIES) -> xr.DataArray:
    """``V(policy) = v_p``, a parameter.

    >>> truth().values.tolist()
    [0.55, 0.65, 0.45]
    """
    return by_policy({policy: value for policy, (_, _, value) in policies.items()})


simulate = world(law, atoms=0.3)
