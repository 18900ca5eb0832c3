"""Worlds of chat responses: a judge with few levels, a response's length, and log-likelihoods of what was logged.

Quality
    ``E[Y | S, X] = expit(logit(means[S]) - length_slope * X)`` with X the standardised log-odds of the response's
    length, which follows a policy's own normal law, independent of the level.
Overlap
    Logged responses are the base policy's. Per token the target's surprisal exceeds the logger's by
    ``d ~ N(k, 2 k / N)`` for N tokens, which makes ``exp(-N d)`` a density ratio with mean exactly one; the
    ratio of the judge-level and length laws multiplies it. So W is the true ratio of the laws of (S, X, tokens);
    a table of means of a policy's own is not in it. Recorded log-probabilities carry `Errors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import optimize, special

from cje_sim.judges import FloatArray, draw_levels
from cje_sim.world import Prompts, Responses

MAX_CHARS, CHARS_PER_TOKEN, CHARS_PER_WORD, MIN_TOKENS = 2700, 4, 6, 8
QUANTILES = special.ndtri((np.arange(4000) + 0.5) / 4000)  # of the standard normal law
ENTROPY, ENTROPY_SD = 0.8, 0.1  # nats per token of the base policy's own text: mean and sd between responses


@dataclass(frozen=True)
class Policy:
    """One policy of the world.

    Parameters
    ----------
    shares, means : tuples of float
        Probability of each judge level, and ``E[Y | S, X = 0]`` there.
    length_mean, length_sd : float
        Law of standardised length X.
    divergence : float
        k, nats per token between logger and target; 0 for a copy of the base policy.
    """

    shares: tuple[float, ...]
    means: tuple[float, ...]
    length_mean: float = 0.0
    length_sd: float = 1.0
    divergence: float = 0.0


class Errors(NamedTuple):
    """Teacher-forcing error of recorded log-probabilities, in nats.

    With probability `share` a normal error with standard deviation `sd` on the sequence, under targets only, and an
    `offset` per token, common to logger and target, which cancels in W but not in the typicality of logged text.
    """

    share: float
    sd: float
    offset: float


def law(
    prompts: Prompts,
    policies: Mapping[str, Policy],
    levels: Sequence[float],
    length_slope: float,
    errors: Errors,
) -> Responses:
    """Complete responses with covariate ``response_length`` (words), surprisal and logs.

    Scores, lengths and label noise of one prompt are all correlated. The first policy is the base and logging
    policy; a target's judge levels must have positive share under it.
    """
    rng, shape = prompts.rng, (len(policies), prompts.n)
    level = draw_levels(prompts.uniforms(len(policies)), [p.shares for p in policies.values()])
    center, scale, k = np.array([(p.length_mean, p.length_sd, p.divergence) for p in policies.values()]).T[
        ..., None
    ]
    x = center + scale * special.ndtri(prompts.uniforms(len(policies)))
    at_zero = np.take_along_axis(np.array([p.means for p in policies.values()]), level, axis=1)
    noise = prompts.uniforms(len(policies))

    tokens = _tokens(x)
    own_entropy = rng.normal(ENTROPY, ENTROPY_SD, shape)
    base, *_ = policies.values()
    ratio = np.stack([_log_ratio(p, base, level[i], x[i]) for i, p in enumerate(policies.values())])
    own = own_entropy + rng.normal(-k, np.sqrt(2 * k / tokens)) - ratio / tokens

    logged_ratio = np.stack([_log_ratio(p, base, level[0], x[0]) for p in policies.values()])
    excess = rng.normal(k, np.sqrt(2 * k / tokens[0]), shape) - logged_ratio / tokens[0]
    error = np.where(rng.random(shape) < errors.share, errors.sd * rng.standard_normal(shape), 0.0)
    error[0] = 0.0
    return Responses(
        policies=policies,
        judge=np.asarray(levels)[level],
        mean=_mean(at_zero, x, length_slope),
        noise=noise,
        covariate={"response_length": np.ceil(_chars(x) / CHARS_PER_WORD)},
        surprisal=own,
        logp_target=-(own_entropy[0] + errors.offset) * tokens[0] - excess * tokens[0] + error,
        n_tokens=tokens[0],
    )


def value(policy: Policy, means: tuple[float, ...], length_slope: float) -> float:
    """Mean over the policy's levels and lengths of what a table of `means` says of them.

    A sum over levels, Gauss-Hermite quadrature over length: 80 nodes leave an error below 1e-14.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    x = policy.length_mean + policy.length_sd * nodes
    by_level = _mean(np.array(means)[:, None], x, length_slope) @ (weights / weights.sum())
    return float(np.dot(policy.shares, by_level))


def overlap(policies: Mapping[str, Policy], errors: Errors, level: float = 0.9) -> xr.Dataset:
    """Exact typicality coverage and limit ESS of the recorded weights.

    Parameters
    ----------
    policies, errors
        As in `law`.
    level : float
        Probability under the target that defines its typical region: own surprisal up to that quantile.

    Returns
    -------
    xr.Dataset
        ``ttc(policy)``, the probability that a logged response is typical for the target, and
        ``log10_ess(policy)``, the logarithm of ``lim ESS / n = E[W]^2 / E[W^2]``.
    """
    ttc, log10_ess = [], []
    base, *_ = policies.values()
    x = base.length_mean + base.length_sd * QUANTILES
    for p in policies.values():
        share = 0.0 if p is base else errors.share
        surprisal = partial(_surprisal_cdf, policy=p, base=base)
        own = partial(surprisal, of=p, shift=-p.divergence, variance=0.0)
        threshold = optimize.brentq(lambda t, own=own: own(t) - level, -2.0, 5.0, xtol=1e-12)
        logged = partial(surprisal, threshold, of=base, shift=errors.offset + p.divergence)
        ttc.append((1 - share) * logged(variance=0.0) + share * logged(variance=errors.sd**2))

        log_square = 2 * _log_ratio(p, base, ..., x) + 2 * p.divergence * _tokens(x)
        second = special.logsumexp(log_square + np.log(base.shares)[:, None] - np.log(x.size))
        second += np.log1p(share * np.expm1(2 * errors.sd**2))
        first = np.log1p(share * np.expm1(errors.sd**2 / 2))
        log10_ess.append(float((2 * first - second) / np.log(10)))
    coords = {"policy": list(policies)}
    return xr.Dataset({"ttc": ("policy", ttc), "log10_ess": ("policy", log10_ess)}, coords=coords)


def _surprisal_cdf(
    t: float, *, policy: Policy, base: Policy, of: Policy, shift: float, variance: float
) -> float:
    """P(surprisal under `policy` <= t) for responses whose level and length follow the law of `of`.

    Given both, surprisal is normal around ``ENTROPY + shift`` minus the ratio's share per token; `variance`
    is that of a sequence-level error. Length is integrated over `QUANTILES`, a midpoint rule.
    """
    x = of.length_mean + of.length_sd * QUANTILES
    tokens = _tokens(x)
    center = ENTROPY + shift - _log_ratio(policy, base, ..., x) / tokens
    sd = np.sqrt(ENTROPY_SD**2 + 2 * policy.divergence / tokens + variance / tokens**2)
    return float(np.dot(of.shares, special.ndtr((t - center) / sd).mean(axis=1)))


def _chars(x: FloatArray) -> FloatArray:
    """Characters of a response: a logistic curve, since answers stop near the token limit."""
    return np.asarray(np.ceil(MAX_CHARS * special.expit(0.5 + 2 * x)))


def _tokens(x: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.round(_chars(x) / CHARS_PER_TOKEN), MIN_TOKENS))


def _mean(at_zero: FloatArray, x: FloatArray, slope: float) -> FloatArray:
    """``E[Y | S, X]`` from the value at X = 0."""
    return np.asarray(special.expit(special.logit(at_zero) - slope * x))


def _log_ratio(
    policy: Policy, base: Policy, level: npt.NDArray[np.intp] | EllipsisType, x: FloatArray
) -> FloatArray:
    """Log density ratio, policy against base, of lengths x with a judge level each, or (...) with every level."""
    by_level = np.log(np.array(policy.shares) / np.array(base.shares))
    z, z0 = (x - policy.length_mean) / policy.length_sd, (x - base.length_mean) / base.length_sd
    at_level = by_level[:, None] if level is ... else by_level[level]
    return np.asarray(at_level + 0.5 * (z0**2 - z**2) - np.log(policy.length_sd / base.length_sd))
