"""Pass/fail labels and logs whose importance ratios are exact: targets that tilt quality, style, or both.

A response has a quality, which the judge scores (``S ~ Kumaraswamy(a_p, b_p)``), and a style ``U ~ N(shift_p, 1)`` that
nobody scores. ``Y | S ~ Bernoulli(oracle_mean(S))`` under every policy, so calibrations transport exactly. The ratio
of a logged response is the product of both densities' ratios: quality makes the weights follow the score, style makes
them noise that costs effective sample size, ``exp(-shift^2)`` of it, and moves no value. ``atoms=0.05`` of the frame
gives graded labels in the same world.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'stylish', 'worse']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 20)
>>> truth().to_series().round(3).to_dict()
{'base': 0.565, 'better': 0.741, 'stylish': 0.565, 'worse': 0.41}
>>> overlap().round(2).values.tolist()  # limit of ESS/n
[1.0, 0.58, 0.7, 0.64]
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray, expected_over_scores, oracle_mean
from cje_sim.world import Prompts, Responses, ScoreLaw, by_policy, column, link_truth, world

SCORE_LAW = {"base": (2.0, 2.0), "better": (3.5, 2.0), "stylish": (2.0, 2.0), "worse": (2.0, 4.0)}
STYLE = {"base": 0.0, "better": 0.4, "stylish": 0.6, "worse": 0.4}
COMMON_NATS = (
    100.0  # surprisal of what all policies write alike: likelihoods stay below one, ratios do not know it
)


def law(
    prompts: Prompts,
    *,
    score_law: ScoreLaw = SCORE_LAW,
    style: Mapping[str, float] = STYLE,
    link: str = "sigmoid",
    low: float = 0.1,
    high: float = 0.95,
) -> Responses:
    """Scores and styles of every policy, the base policy's with their log-likelihoods under all of them.

    Parameters
    ----------
    style : mapping of policy to float
        Mean of each policy's style.
    """
    score = prompts.scores(score_law)
    written = prompts.rng.standard_normal(prompts.n) + style[next(iter(score_law))]
    by_style = -0.5 * (written - np.array([style[policy] for policy in score_law])[:, None]) ** 2
    return Responses(
        policies=score_law,
        judge=score,
        mean=oracle_mean(score, link, low, high),
        logp_target=log_density(score[:1], score_law) + by_style - COMMON_NATS,
        n_tokens=50,
    )


def log_density(score: FloatArray, score_law: ScoreLaw = SCORE_LAW) -> FloatArray:
    """Log density of each policy's scores, ``log(a b s^(a-1) (1 - s^a)^(b-1))``; policies come first."""
    a, b = column(score_law, 0), column(score_law, 1)
    s = np.clip(score, np.finfo(float).tiny, 1 - np.finfo(float).eps)
    return np.asarray(np.log(a * b) + (a - 1) * np.log(s) + (b - 1) * np.log1p(-(s**a)))


def truth(
    *, score_law: ScoreLaw = SCORE_LAW, link: str = "sigmoid", low: float = 0.1, high: float = 0.95
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature."""
    return link_truth(score_law, link, low, high)


def overlap(*, score_law: ScoreLaw = SCORE_LAW, style: Mapping[str, float] = STYLE) -> xr.DataArray:
    """Limit of ESS/n of the weights, ``1 / E_base[W^2]``: over scores by quadrature, over styles in closed form."""
    base = next(iter(score_law))

    def squared(policy: str) -> float:
        pair = {base: score_law[base], f"{policy} ": score_law[policy]}

        def ratio(score: FloatArray) -> FloatArray:
            before, after = log_density(np.atleast_1d(score)[None], pair)
            return np.asarray(np.exp(2 * (after - before)).reshape(np.shape(score)))

        return expected_over_scores(ratio, *score_law[base])

    shares = {policy: np.exp(-((style[policy] - style[base]) ** 2)) / squared(policy) for policy in score_law}
    return by_policy(shares, "ess_fraction")


simulate = world(law, atoms=1.0, label_design="base", oracle_fraction=0.5)
