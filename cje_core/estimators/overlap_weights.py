"""Overlap weights: the mean outcome over responses that logger and policy both give; not the policy's value.

Estimand, which is *not* V(policy): with p0 the law of logged responses (prompt and answer) and p' that of the policy,

    V_h(policy) = E_h[Y],      density of the overlap population   h proportional to  p0 p' / (p0 + p'),

the responses that both could have given, in the proportion in which the rarer of the two gives them. Formula (Li,
Morgan and Zaslavsky 2018, for a law of responses in place of a treatment; the paper's gate "Overlap" asks for it):
``V_h = sum_i w_i R_i / sum_i w_i``, ``w = r / (1 + r)``, r the importance ratio and R = f(Z) the calibrated reward.
``w p0`` is proportional to h and w lies in (0, 1), so every moment exists however heavy the tail of r is.
``overlap_mass = 2 mean w`` estimates ``2 int p0 p' / (p0 + p')``: 1 where the laws agree, 0 where nothing is shared.
Influence: ``w_i (R_i - V_h) / mean w``, which counts that the weights are normalised by their own sum, plus the
calibration term, as for SNIPS (`cje_core.families.off_policy.value`); the ratios are known.

What it is for: an outcome that can be had from logs whose overlap gate fails, said of that part of both policies which
they share. Each policy has an overlap population of its own, so differences of these values compare populations as well
as policies; they are differences of V for no one, and `cje_core.compare` refuses to put them beside estimates of V.

Failure modes: read as V(policy) it is biased towards the logger. Where all logged ratios are tiny (long responses, a
target far away) ``w`` is ``r`` up to a constant and nothing is tamed: the status is POOR_OVERLAP below ten effective
responses under these weights. The level of r counts, so a constant error in the log-likelihoods, which cancels in
SNIPS, moves it.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.534, 'tilt_0.1': 0.545}
"""

from cje_core.estimators import Role
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.inference.estimate import OVERLAP_POPULATION
from cje_core.offpolicy.weights import ess_fraction, overlap_mass
from cje_core.offpolicy.weights import overlap_weights as weights_of

NEEDS = off_policy.NEEDS
ROLE = Role("overlap weights (not V)")


def policy_value(logs: off_policy.Logs, p: int) -> off_policy.Value:
    """Mean of the calibrated reward over the overlap population of policy p and the logger."""
    ratio = logs.log_ratio[p, off_policy.used_rows(logs, p)]
    weight = weights_of(ratio)
    facts = {"ess_fraction": ess_fraction(weight), "overlap_mass": overlap_mass(ratio)}
    return off_policy.ips_value(logs, p, weight, facts)


@estimator(fresh=False)
def estimate() -> Method:
    """Estimate the mean outcome over each policy's overlap with the logger, not its value; see the module.

    Returns
    -------
    And ``ess_fraction(policy)`` of these weights, whose effective sample decides POOR_OVERLAP, and
    ``overlap_mass(policy)``; the attribute ``estimand`` says what is estimated.
    """
    return Method(policy_value, estimand=OVERLAP_POPULATION, own_overlap=True)
