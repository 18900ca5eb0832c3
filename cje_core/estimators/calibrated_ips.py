"""Calibrated IPS: importance sampling with stabilised weights and calibrated rewards (the paper's algorithm Cal-IPS).

Estimand: V(policy) = E[Y]. Formula: ``V = mean_i W_i R_i`` with W the stabilised weights
(`cje_core.offpolicy.weights.stabilise`, Delta = R) of mean one and R = f(Z). Influence in Hajek form, ``W_i (R_i -
V)``, plus the calibration term. The paper prints ``W R^OOF - V``, which leaves out that the weights are normalised.

Stabilisation is shrinkage towards the logger's value. Where ``Cov(W, (R - E[R])^2) >= 0`` under the logger, whichever
policy is better (`cje_core.offpolicy.weights`: with a long lower tail of rewards it is the worse target), the paper's
stack takes the constant weight, effective sample size rises to n and the estimate tends to the *logger's* value;
neither the standard error nor any gate shows that. So a value is refused (SHRUNK_WEIGHTS) where both of two things are
seen: the raw weights rise or fall with the judge score (Spearman's test, two-sided at .05, which heavy tails do not
blind), and the value differs by more than one standard error of the difference from that of the candidates'
combination nearest to the raw weights (``objective="fit"`` in `cje_core.offpolicy.weights`, no guard). As n grows every
policy is refused whose weights follow the score; of clones of the logger, with whatever noise in their likelihoods, one
in twenty is. The paper's mode (``borrowed="plug_in"``, the default with ``inference="jackknife"``) refuses nothing.

Failure modes: shrinkage that this sample is too small to show; weights that vary with the score but not in rank.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.526, 'tilt_0.1': nan}
"""

from functools import partial

from cje_core.estimators import Role
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.inference.estimate import Status
from cje_core.inference.rank_test import rank_test
from cje_core.inference.sums import cluster_se
from cje_core.offpolicy.weights import CANDIDATES, stack_candidates

NEEDS = off_policy.NEEDS
ROLE = Role(offered="logs", place=5)
LEVEL = 0.05  # of the test that the raw weights rank with the judge score
DETECTED = 1.0  # standard errors by which the value must differ from that of the nearest combination


def policy_value(
    logs: off_policy.Logs, p: int, *, weighting: off_policy.Stabilisation = off_policy.DEFAULT
) -> off_policy.Value:
    """Calibrated IPS of policy p."""
    weight, facts = off_policy.stabilised_weights(logs, p, "reward", weighting)
    return off_policy.ips_value(logs, p, weight, facts)


def shrunk(
    logs: off_policy.Logs, p: int, *, weighting: off_policy.Stabilisation = off_policy.DEFAULT
) -> Status | None:
    """Return SHRUNK_WEIGHTS where stabilisation visibly pulled policy p's value towards the logger's, else None.

    The difference of the two values is that of two weighted means of R over the same logged responses, and so is its
    standard error; that the nearest combination was fitted is not in it, which is why the weights are tested too.
    """
    mine, rows = logs.of(p), logs.rows
    chance = rank_test(mine.score, mine.weight, rows.cluster[mine.used]).p_value
    if min(chance, 1 - chance) > LEVEL / 2:
        return None
    reward = logs.reward[mine.used]
    nearest = stack_candidates(
        mine.weight,
        mine.score,
        reward,
        logs.weights.candidates[p],
        projection="rescale",
        candidates=CANDIDATES,
        objective="fit",
        guard="none",
        rho=1.0,
    )
    weights = off_policy.stabilised(logs, p, "reward", weighting).weight, nearest.weight
    stable, fitted = (off_policy.hajek(len(rows.prompts), mine.used, w, reward) for w in weights)
    std_error = float(cluster_se(stable.influence - fitted.influence, rows.cluster))
    return Status.SHRUNK_WEIGHTS if abs(stable.value - fitted.value) > DETECTED * std_error else None


@estimator(fresh=False)
def estimate(*, weighting: off_policy.Stabilisation = off_policy.DEFAULT) -> Method:
    """Estimate each policy's value by calibrated IPS; see the module and its package.

    Parameters
    ----------
    weighting : Stabilisation
        Its fields are as in `cje_core.offpolicy.weights.stabilise`.

    Returns
    -------
    And ``ess_fraction(policy)`` of the stabilised weights, ``beta(policy, candidate)``, ``alpha`` and
    ``guard_engaged`` (1 or 0).
    """
    return Method(
        partial(policy_value, weighting=weighting),
        weighting._asdict(),
        partial(off_policy.with_weights, delta="reward", weighting=weighting),
        refuse=partial(shrunk, weighting=weighting),
    )
