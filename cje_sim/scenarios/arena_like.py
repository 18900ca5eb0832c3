"""A world with the profile of the paper's Chatbot Arena benchmark: discrete judge, broken weights.

Everything is a parameter below; the numbers are rounded summary facts of the public Arena sample (shares of
the judge's levels, mean labels, lengths) and of the tables of "Causal Judge Evaluation". ``premium`` is not
in that sample: its judge shares are chosen a little above those of the others.

Quality
    The judge takes 14 levels. ``E[Y | S, X] = expit(logit(MEANS[S]) - length_slope * X)`` with X the
    standardised log-odds of the response's length, which follows a policy's own normal law; `unhelpful` has a
    table of its own, so the calibrator overrates it by about .3 while it transports exactly to the other
    three.
Overlap
    Logged responses are the base policy's. Per token the target's surprisal exceeds the logger's by
    ``d ~ N(k, 2 k / N)`` for N tokens, which makes ``exp(-N d)`` a density ratio with mean exactly one; the
    ratio of the judge-level and length laws multiplies it. So W is the true ratio of the laws of (S, X,
    tokens), except that the lower labels of `unhelpful` given S are not in it. Recorded log-probabilities
    carry teacher-forcing error: with probability `noise_share` a normal error with sd `noise_sd` on the
    sequence (as in the sample, where 90% of the clone's log-ratios are exactly 0), and an offset per token
    common to logger and target, which cancels in W but not in the typicality of logged text.

How close it comes: the paper gives TTC .80, .49, .19, .26 and a residual of -.31; in the sample labels under
base average .754 and probe labels .78, .79 and .16 (50 each, for clone, parallel_universe_prompt and
unhelpful). The paper's raw ESS/n, at n = 4961, are .262 (clone), .006, .007 and .004. With tails as heavy as these
a sample's ESS/n falls with n, so `noise_sd` is set to give the clone's at the paper's n, not in the limit:

>>> def one_sample(seed):
...     data = simulate(n=4961, rng=seed)
...     log_w = data.logp_target - data.logp_logger
...     w = np.exp(log_w - log_w.max("prompt"))
...     ess = w.sum("prompt") ** 2 / (w**2).sum("prompt") / data.sizes["prompt"]
...     return xr.Dataset({"raw_ess": ess, "judge_mean": data.judge.mean(["prompt", "draw"])})
>>> samples = xr.concat([one_sample(seed) for seed in range(40)], "replicate").median("replicate")
>>> for name, row in samples.to_dataframe().iterrows():
...     print(f"{name:24} judge mean {row.judge_mean:.3f} raw ESS/n {row.raw_ess:.3f}")
base                     judge mean 0.841 raw ESS/n 1.000
clone                    judge mean 0.840 raw ESS/n 0.264
parallel_universe_prompt judge mean 0.847 raw ESS/n 0.004
premium                  judge mean 0.851 raw ESS/n 0.003
unhelpful                judge mean 0.245 raw ESS/n 0.001

(In the sample the judge's means are .841, .849, .849 and .245 for base, clone, parallel_universe_prompt, unhelpful.)

>>> table = overlap().assign(truth=truth(), residual=residual()).round(2) + 0.0
>>> for name, row in table.to_dataframe().iterrows():
...     print(f"{name:24}", *(f"{column} {value:7.2f}" for column, value in row.items()))
base                     ttc    0.80 log10_ess    0.00 truth    0.75 residual    0.00
clone                    ttc    0.80 log10_ess   -0.73 truth    0.75 residual    0.00
parallel_universe_prompt ttc    0.49 log10_ess  -24.98 truth    0.77 residual    0.00
premium                  ttc    0.19 log10_ess  -52.34 truth    0.76 residual    0.00
unhelpful                ttc    0.26 log10_ess  -37.63 truth    0.14 residual   -0.32
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import optimize, special

from cje_sim.judges import FloatArray, draw_levels, draw_oracle, prompt_uniforms
from cje_sim.labelling import LabelDesign, label

# fmt: off
LEVELS = np.array([.05, .1, .15, .2, .35, .45, .5, .55, .65, .7, .85, .9, .95, 1.0])
MEANS = np.array([.38, .40, .41, .42, .46, .5, .56, .58, .59, .61, .747, .82, .88, .93])
UNHELPFUL_MEANS = np.array([.02, .06, .09, .09, .1, .1, .12, .12, .3, .45, .65, .65, .65, .6])
# fmt: on
MAX_CHARS, CHARS_PER_TOKEN, CHARS_PER_WORD, MIN_TOKENS = 2700, 4, 6, 8
QUANTILES = special.ndtri((np.arange(4000) + 0.5) / 4000)  # of the standard normal law
ALL_LEVELS = np.arange(len(LEVELS))[:, None]
ENTROPY, ENTROPY_SD = 0.8, 0.1  # nats per token of the base policy's own text: mean and sd between responses


@dataclass(frozen=True)
class Policy:
    """One policy of the world.

    Parameters
    ----------
    shares : tuple of float
        Probability of each judge level.
    length_mean, length_sd : float
        Law of standardised length X.
    divergence : float
        k, nats per token between logger and target; 0 for a copy of the base policy.
    means : tuple of float, optional
        A table of ``E[Y | S, X = 0]`` of its own; the common one by default.
    """

    shares: tuple[float, ...]
    length_mean: float = 0.0
    length_sd: float = 1.0
    divergence: float = 0.0
    means: tuple[float, ...] = tuple(MEANS)


# fmt: off
BASE = (.001, .005, .001, .007, .003, .005, .014, .016, .006, .08, .608, .05, .123, .081)
POLICIES = {
    "base": Policy(BASE),
    "clone": Policy(BASE),
    "parallel_universe_prompt": Policy(
        (.001, .006, .001, .009, .003, .012, .008, .011, .007, .055, .575, .09, .143, .079), -.08, 1.0, .044
    ),
    "premium": Policy(
        (.001, .004, .001, .006, .003, .005, .012, .013, .006, .07, .57, .07, .14, .099), .1, 1.0, .0907
    ),
    "unhelpful": Policy(
        (.013, .583, .064, .108, .029, .035, .007, .018, .007, .038, .083, .001, .003, .011), .0, .62, .0654,
        tuple(UNHELPFUL_MEANS),
    ),
}
# fmt: on


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    policies: Mapping[str, Policy] = POLICIES,
    length_slope: float = 0.3,
    spread: float = 1.0,
    atoms: float = 0.12,
    prompt_corr: float = 0.3,
    noise_share: float = 0.1,
    noise_sd: float = 1.45,
    offset: float = 0.045,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts, with logged data, covariate ``response_length`` (words) and
    surprisal.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`; scores, lengths and label noise of one prompt are
        all correlated.
    policies : mapping of str to Policy
        The first is the base and logging policy; a target's judge levels must have positive share under it.
    length_slope : float
        What a standard unit of length takes from the logit of E[Y].
    noise_share, noise_sd : float
        Share of rows with teacher-forcing error in the target's log-probability, and its sd in nats.
    offset : float
        Teacher-forcing offset in nats per token, common to logger and target.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    shape = (len(policies), n)
    level = draw_levels(prompt_uniforms(shape, rng, prompt_corr), [p.shares for p in policies.values()])
    center, scale, k = np.array([(p.length_mean, p.length_sd, p.divergence) for p in policies.values()]).T[
        :, :, None
    ]
    x = center + scale * special.ndtri(prompt_uniforms(shape, rng, prompt_corr))
    table = np.array([p.means for p in policies.values()])
    mean = _mean(np.take_along_axis(table, level, axis=1), x, length_slope)
    oracle = draw_oracle(mean, prompt_uniforms(shape, rng, prompt_corr), spread=spread, atoms=atoms)

    tokens = _tokens(x)
    own_entropy = rng.normal(ENTROPY, ENTROPY_SD, shape)
    ratio = np.stack([_log_ratio(policies, p, level[i], x[i]) for i, p in enumerate(policies)])
    own = own_entropy + rng.normal(-k, np.sqrt(2 * k / tokens)) - ratio / tokens

    logged_tokens = tokens[0]
    logged_ratio = np.stack([_log_ratio(policies, p, level[0], x[0]) for p in policies])
    excess = rng.normal(k, np.sqrt(2 * k / logged_tokens), shape) - logged_ratio / logged_tokens
    noise = np.where(rng.random(shape) < noise_share, noise_sd * rng.standard_normal(shape), 0.0)
    noise[0] = 0.0
    logp_logger = -(own_entropy[0] + offset) * logged_tokens
    data = label(
        LEVELS[level],
        oracle,
        list(policies),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        covariate=np.ceil(_chars(x) / CHARS_PER_WORD)[:, :, None],
        features=["response_length"],
        surprisal=own,
        logged={
            "logp_target": logp_logger - excess * logged_tokens + noise,
            "logp_logger": logp_logger,
            "n_tokens": logged_tokens,
            "logged_judge": LEVELS[level[0]],
        },
        rng=rng,
    )
    return data.assign(logged_oracle=data["oracle"].isel(policy=0, draw=0, drop=True))


def truth(*, policies: Mapping[str, Policy] = POLICIES, length_slope: float = 0.3) -> xr.DataArray:
    """``V(policy)``: sum over judge levels, Gauss-Hermite quadrature over length."""
    values = [float(np.dot(p.shares, _level_means(p.means, p, length_slope))) for p in policies.values()]
    return xr.DataArray(values, coords={"policy": list(policies)}, name="truth")


def residual(*, policies: Mapping[str, Policy] = POLICIES, length_slope: float = 0.3) -> xr.DataArray:
    """Transport residual ``E_p[Y - f(S, X)]`` of the base policy's exact calibrator."""
    base = next(iter(policies.values()))
    values = [
        float(
            np.dot(
                p.shares, _level_means(p.means, p, length_slope) - _level_means(base.means, p, length_slope)
            )
        )
        for p in policies.values()
    ]
    return xr.DataArray(values, coords={"policy": list(policies)}, name="residual")


def overlap(
    *,
    policies: Mapping[str, Policy] = POLICIES,
    noise_share: float = 0.1,
    noise_sd: float = 1.45,
    offset: float = 0.045,
    level: float = 0.9,
) -> xr.Dataset:
    """Exact typicality coverage and limit ESS of the recorded weights.

    Parameters
    ----------
    policies, noise_share, noise_sd, offset
        As in `simulate`.
    level : float
        Probability under the target that defines its typical region: own surprisal up to that quantile.

    Returns
    -------
    xr.Dataset
        ``ttc(policy)``, the probability that a logged response is typical for the target, and
        ``log10_ess(policy)``, the logarithm of ``lim ESS / n = E[W]^2 / E[W^2]``.
    """
    ttc, log10_ess = [], []
    base = next(iter(policies.values()))
    for name, p in policies.items():
        share = 0.0 if p is base else noise_share
        own = partial(_surprisal_cdf, policies=policies, name=name, law=p, shift=-p.divergence, variance=0.0)
        threshold = optimize.brentq(lambda t, own=own: own(t) - level, -2.0, 5.0, xtol=1e-12)
        logged = partial(_surprisal_cdf, policies=policies, name=name, law=base, shift=offset + p.divergence)
        ttc.append(
            (1 - share) * logged(threshold, variance=0.0) + share * logged(threshold, variance=noise_sd**2)
        )

        x = base.length_mean + base.length_sd * QUANTILES
        log_square = 2 * _log_ratio(policies, name, ALL_LEVELS, x) + 2 * p.divergence * _tokens(x)
        second = special.logsumexp(log_square + np.log(base.shares)[:, None] - np.log(x.size))
        first = np.log1p(share * np.expm1(noise_sd**2 / 2))
        second += np.log1p(share * np.expm1(2 * noise_sd**2))
        log10_ess.append(float((2 * first - second) / np.log(10)))
    coords = {"policy": list(policies)}
    return xr.Dataset({"ttc": ("policy", ttc), "log10_ess": ("policy", log10_ess)}, coords=coords)


def _surprisal_cdf(
    t: float, *, policies: Mapping[str, Policy], name: str, law: Policy, shift: float, variance: float
) -> float:
    """P(surprisal under `name` <= t) for responses whose level and length follow `law`.

    Given both, surprisal is normal around ``ENTROPY + shift`` minus the ratio's share per token; `variance`
    is that of a sequence-level error. Length is integrated over `QUANTILES`, a midpoint rule.
    """
    x = law.length_mean + law.length_sd * QUANTILES
    tokens = _tokens(x)
    center = ENTROPY + shift - _log_ratio(policies, name, ALL_LEVELS, x) / tokens
    sd = np.sqrt(ENTROPY_SD**2 + 2 * policies[name].divergence / tokens + variance / tokens**2)
    return float(np.dot(law.shares, special.ndtr((t - center) / sd).mean(axis=1)))


def _chars(x: FloatArray) -> FloatArray:
    """Characters of a response: a logistic curve, since answers stop near the token limit."""
    return np.asarray(np.ceil(MAX_CHARS * special.expit(0.5 + 2 * x)))


def _tokens(x: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.round(_chars(x) / CHARS_PER_TOKEN), MIN_TOKENS))


def _mean(at_zero: npt.ArrayLike, x: npt.ArrayLike, slope: float) -> FloatArray:
    """``E[Y | S, X]`` from the value at X = 0."""
    return np.asarray(special.expit(special.logit(np.asarray(at_zero)) - slope * np.asarray(x)))


def _level_means(means: tuple[float, ...], law: Policy, slope: float) -> FloatArray:
    """``E[Y | S]`` at each level when lengths follow `law`; 80 nodes leave an error below 1e-14."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    x = law.length_mean + law.length_sd * nodes
    return np.asarray(_mean(np.array(means)[:, None], x, slope) @ (weights / weights.sum()))


def _log_ratio(
    policies: Mapping[str, Policy], name: str, level: npt.NDArray[np.intp], x: FloatArray
) -> FloatArray:
    """Log density ratio, target against base, of judge level and length."""
    p, base = policies[name], next(iter(policies.values()))
    by_level = np.log(np.array(p.shares) / np.array(base.shares))
    z, z0 = (x - p.length_mean) / p.length_sd, (x - base.length_mean) / base.length_sd
    return np.asarray(by_level[level] + 0.5 * (z0**2 - z**2) - np.log(p.length_sd / base.length_sd))
