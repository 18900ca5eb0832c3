"""TMLE: the outcome model moved by a logistic fluctuation until its weighted residuals balance (stack member).

Estimand: V(policy) = E[Y]. With h(S) = E[W | S] fitted out of fold (isotonic in S, in the direction that fits better,
mean one) and q the held-out calibrator, on the oracle scale brought to [0, 1]:

    q*_i = expit(logit q_i + eps h(S_i)),   eps solves  sum_logged h_i (R_i - q*_i) = 0,   V = mean_x mean_draws q*(Z')

eps h(S') moves the fresh draws too: a fluctuation of the logged rows alone would cancel. If h = E[W | S] then V is
consistent with any q that is a function of S, since ``E_logger[h q*] = E_policy[q*]``; if q is right, eps tends to 0.

Influence: ``q*(Z'_i) - V + C h_i (R_i - q*_i)`` with C the exact derivative of V in the score of eps (1/n when h is
right). Calibration error: C h (1 - a) at the logged responses, which is 0 where eps is, and a/n at the fresh ones,
with ``a = q*(1 - q*) / (q (1 - q))``.

Failure modes: E[W | S] that is not monotone in S is missed; else those of dr_cpo. (``TMLE`` of Direct, for missing
labels of fresh responses, is another estimator.)

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.548, 'tilt_0.1': 0.562}
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy import special

from cje_core.calibration.calibrator import fit, predict
from cje_core.checks import FloatArray, IntArray
from cje_core.families.fluctuation import fluctuate
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.inference.sums import sum_by
from cje_core.offpolicy.weights import ess_fraction

NEEDS = off_policy.NEEDS
# Where the held-out q and the reward are both at an end of the scale, the wider edge of Direct would invent a residual.
EDGE = 1e-6  # q stays this far inside (0, 1), where its logit is finite
SMALLEST = 1e-6  # and the mean-one covariate this far above 0, so that eps is bounded


def clever_covariate(
    mine: off_policy.PolicyLogs, new_score: FloatArray, new_fold: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Out-of-fold isotonic regression of the mean-one weight on the score, at the logged and at new responses.

    Mean one over the rows fitted on; 1 where a fold leaves no weight to fit on.
    """
    score, weight = mine.score, mine.weight
    miss = [((weight - predict(fit(score, weight, increasing=up), score)) ** 2).sum() for up in (True, False)]
    name = "up" if miss[0] <= miss[1] else "down"
    out, new = mine.maps.at(name, score, mine.fold), mine.maps.at(name, new_score, new_fold)
    return np.maximum(out, SMALLEST), np.maximum(new, SMALLEST)


def with_covariates(logs: off_policy.Logs, outcome: tuple[str, ...] = ()) -> off_policy.Logs:
    """Logs with q on the features `outcome`, and h of every policy, which no label changes."""
    logs = off_policy.with_outcome(logs, outcome)
    if logs.covariates:
        return logs
    nothing = np.empty(0), np.empty(0)
    made = [
        clever_covariate(mine, mine.z_fresh[:, 0], logs.fold[logs.rows.prompt[mine.fresh]])
        if len(mine.used)
        else nothing
        for mine in logs.policies
    ]
    return replace(logs, covariates=tuple(made))


def policy_value(logs: off_policy.Logs, p: int, *, outcome: tuple[str, ...] = ()) -> off_policy.Value:
    """TMLE of policy p; `outcome` as in `cje_core.estimators.dr_cpo`."""
    rows, n, mine = logs.rows, len(logs.rows.prompts), logs.of(p)
    low, span = logs.oracle_range[0], logs.oracle_range[1] - logs.oracle_range[0]
    used, index = mine.used, mine.fresh
    (h, h_fresh), model = logs.covariates[p], logs.outcomes[outcome]

    def unit(values: FloatArray) -> FloatArray:
        return np.clip((values - low) / span, EDGE, 1 - EDGE)

    q, q_fresh = unit(model.logged[used]), unit(model.fresh[index])
    guess, guess_fresh = special.logit(q), special.logit(q_fresh)
    eps = float(fluctuate(guess, h, (logs.reward[used] - low) / span, h, len(used)))
    star, star_fresh = special.expit(guess + eps * h), special.expit(guess_fresh + eps * h_fresh)
    moved, moved_fresh = star * (1 - star), star_fresh * (1 - star_fresh)
    mass = rows.weight[index] / rows.weight[index].sum()
    information = (h**2 * moved).sum()
    scale = float((mass * h_fresh * moved_fresh).sum() / information) if information > 0 else 1 / len(used)

    share, expected, expected_fresh = scale * h, low + span * star, low + span * star_fresh

    def correction(reward: FloatArray) -> FloatArray:
        return n * sum_by(used, share * (reward[used] - expected), n)

    def sources() -> tuple[off_policy.Source, off_policy.Source]:
        direct = off_policy.hajek(n, rows.prompt[index], rows.weight[index], expected_fresh)
        return direct, off_policy.Source(0.0, correction(logs.reward), sum_by(used, share, n))

    def term(rows: str, weight: FloatArray) -> off_policy.Term:
        return off_policy.Term(off_policy.CALIBRATOR, logs.fitted, rows, weight)

    def terms() -> list[off_policy.Term]:
        moves = moved / (q * (1 - q))
        of_fresh = mass * moved_fresh / (q_fresh * (1 - q_fresh))
        if model.linear is None:  # q and R are one calibrator
            return [term("fresh", of_fresh), term("logged", share * (1 - moves))]
        of_model = off_policy.outcome_terms(logs, p, model, of_fresh, -share * moves)
        return [*of_model, term("logged", share)]

    return off_policy.Value(
        off_policy.hajek_mean(rows.weight[index], expected_fresh),
        0.0,
        sources,
        lambda: correction(logs.outcomes[()].logged),
        terms,
        lambda: off_policy.orthogonality(logs, used, mine.weight, expected),
        {"ess_fraction": ess_fraction(h), "epsilon": eps},
    )


@estimator(fresh=True)
def estimate(*, outcome: Sequence[str] = ()) -> Method:
    """Estimate each policy's value by TMLE; see the module and its package.

    Parameters
    ----------
    outcome : sequence of str
        Features of q(X, A), see `cje_core.estimators.dr_cpo`; it is cut at the oracle range.

    Returns
    -------
    And ``epsilon(policy)`` and ``ess_fraction(policy)``, that of h.
    """
    features = off_policy.feature_names(outcome)
    return Method(
        partial(policy_value, outcome=features),
        {"outcome": list(features)} if features else {},
        partial(with_covariates, outcome=features),
    )
