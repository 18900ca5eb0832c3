"""Pairwise preferences under label shift: the error rates of the judge are stable, the prevalence is not.

``Y ~ Bernoulli(pi_p)`` (the human prefers A), and the judge's score for A has one law given Y for every policy: ``S |
Y = 1 ~ Kumaraswamy(a, b)``, ``1 - S | Y = 0`` the same. This is the assumption of misclassification correction (Rogan
& Gladen 1978): at a threshold of one half sensitivity equals specificity. Then E[Y | S] follows from Bayes' rule and
moves with the prevalence: a calibrator learned where A wins with another probability is biased, in proportion to the
mismatch. With equal prevalences both approaches are right. The default score law has Youden index .41, as in the
paper's comparison of binary and continuous calibration; policy names are those of that comparison, their prevalences
are chosen.

Examples
--------
>>> round(youden(), 2)
0.41
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'verbose', 'terse', 'contrarian']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 10)
>>> truth().to_series().round(3).to_dict()
{'base': 0.505, 'verbose': 0.54, 'terse': 0.48, 'contrarian': 0.45}
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray, score_quantile
from cje_sim.world import Prompts, Responses, by_policy, world

PREVALENCE = {"base": 0.505, "verbose": 0.54, "terse": 0.48, "contrarian": 0.45}
SCORE_LAW = (1.93, 1.15)


def law(
    prompts: Prompts,
    *,
    prevalence: Mapping[str, float] = PREVALENCE,
    score_law: tuple[float, float] = SCORE_LAW,
) -> Responses:
    """Outcomes of pairs, then scores given the outcome.

    Parameters
    ----------
    prevalence : mapping of policy to float
        Probability that A is preferred; the first policy is the calibration set.
    score_law : pair of float
        Kumaraswamy law of the score given that A is preferred.
    """
    share = np.array(list(prevalence.values()))[:, None]
    if not ((share >= 0) & (share <= 1)).all():
        raise ValueError(f"prevalence={dict(prevalence)}: each must lie in [0, 1]")
    oracle = (prompts.uniforms(len(prevalence)) >= 1 - share).astype(float)
    score = score_quantile(prompts.rng.random(oracle.shape), *score_law)
    judge = np.where(oracle == 1, score, 1 - score)
    favoured, opposed = share * _density(judge, *score_law), (1 - share) * _density(1 - judge, *score_law)
    bayes_rule = favoured / (favoured + opposed)
    return Responses(policies=prevalence, judge=judge, oracle=oracle, true_reward=bayes_rule)


def truth(*, prevalence: Mapping[str, float] = PREVALENCE) -> xr.DataArray:
    """``V(policy) = pi_p``, a parameter."""
    return by_policy(prevalence)


def youden(*, score_law: tuple[float, float] = SCORE_LAW, threshold: float = 0.5) -> float:
    """Youden index ``P(S > t | Y = 1) - P(S > t | Y = 0)``, in closed form."""
    a, b = score_law
    return float((1 - threshold**a) ** b + (1 - (1 - threshold) ** a) ** b - 1)


def _density(score: FloatArray, a: float, b: float) -> FloatArray:
    """Density of the Kumaraswamy law."""
    return np.asarray(a * b * score ** (a - 1) * (1 - score**a) ** (b - 1))


simulate = world(law, n=2000, label_design="base", spread=None, atoms=None, prompt_corr=0.2)
