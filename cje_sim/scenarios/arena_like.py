"""A world with the profile of the paper's Chatbot Arena benchmark: discrete judge, broken weights.

Everything is a parameter below; the numbers are rounded summary facts of the public Arena sample (shares of
the judge's levels, mean labels, lengths) and of the tables of "Causal Judge Evaluation". ``premium`` is not
in that sample: its judge shares are chosen a little above those of the others.

The mechanism is that of `cje_sim.chat_world`. The judge takes 14 levels; `unhelpful` has a table of ``E[Y | S, X =
0]`` of its own, so the calibrator overrates it by about .3 while it transports exactly to the other three, and its
lower labels given S are not in the weights. Nine in ten log-likelihoods are recorded without error, as in the sample,
where 90% of the clone's log-ratios are exactly 0.

How close it comes: the paper gives TTC .80, .49, .19, .26 and a residual of -.31; in the sample labels under
base average .754 and probe labels .78, .79 and .16 (50 each, for clone, parallel_universe_prompt and
unhelpful). The paper's raw ESS/n, at n = 4961, are .262 (clone), .006, .007 and .004. With tails as heavy as these
a sample's ESS/n falls with n, so `noise_sd` is set to give the clone's at the paper's n, not in the limit:

>>> import numpy as np
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

import xarray as xr

from cje_sim import chat_world
from cje_sim.chat_world import Errors, Policy
from cje_sim.world import Prompts, Responses, by_policy, world

# fmt: off
LEVELS = (.05, .1, .15, .2, .35, .45, .5, .55, .65, .7, .85, .9, .95, 1.0)
MEANS = (.38, .40, .41, .42, .46, .5, .56, .58, .59, .61, .747, .82, .88, .93)
UNHELPFUL_MEANS = (.02, .06, .09, .09, .1, .1, .12, .12, .3, .45, .65, .65, .65, .6)
BASE = (.001, .005, .001, .007, .003, .005, .014, .016, .006, .08, .608, .05, .123, .081)
PARALLEL = (.001, .006, .001, .009, .003, .012, .008, .011, .007, .055, .575, .09, .143, .079)
PREMIUM = (.001, .004, .001, .006, .003, .005, .012, .013, .006, .07, .57, .07, .14, .099)
UNHELPFUL = (.013, .583, .064, .108, .029, .035, .007, .018, .007, .038, .083, .001, .003, .011)
# fmt: on
POLICIES = {
    "base": Policy(BASE, MEANS),
    "clone": Policy(BASE, MEANS),
    "parallel_universe_prompt": Policy(PARALLEL, MEANS, length_mean=-0.08, divergence=0.044),
    "premium": Policy(PREMIUM, MEANS, length_mean=0.1, divergence=0.0907),
    "unhelpful": Policy(UNHELPFUL, UNHELPFUL_MEANS, length_sd=0.62, divergence=0.0654),
}


def law(
    prompts: Prompts,
    *,
    policies: Mapping[str, Policy] = POLICIES,
    length_slope: float = 0.3,
    noise_share: float = 0.1,
    noise_sd: float = 1.45,
    offset: float = 0.045,
) -> Responses:
    """Scores, lengths and label noise, all tied within a prompt, with logs and the covariate ``response_length``.

    Parameters
    ----------
    policies : mapping of str to Policy
        The first is the base and logging policy; a target's judge levels must have positive share under it.
    length_slope : float
        What a standard unit of length takes from the logit of E[Y].
    noise_share, noise_sd : float
        Share of rows with teacher-forcing error in the target's log-probability, and its sd in nats.
    offset : float
        Teacher-forcing offset in nats per token, common to logger and target.
    """
    return chat_world.law(prompts, policies, LEVELS, length_slope, Errors(noise_share, noise_sd, offset))


def truth(*, policies: Mapping[str, Policy] = POLICIES, length_slope: float = 0.3) -> xr.DataArray:
    """``V(policy)``: sum over judge levels, Gauss-Hermite quadrature over length."""
    return by_policy({name: chat_world.value(p, p.means, length_slope) for name, p in policies.items()})


def residual(*, policies: Mapping[str, Policy] = POLICIES, length_slope: float = 0.3) -> xr.DataArray:
    """Transport residual ``E_p[Y - f(S, X)]`` of the base policy's exact calibrator."""
    calibrator = next(iter(policies.values())).means
    said = by_policy({name: chat_world.value(p, calibrator, length_slope) for name, p in policies.items()})
    return (truth(policies=policies, length_slope=length_slope) - said).rename("residual")


def overlap(
    *,
    policies: Mapping[str, Policy] = POLICIES,
    noise_share: float = 0.1,
    noise_sd: float = 1.45,
    offset: float = 0.045,
    level: float = 0.9,
) -> xr.Dataset:
    """Exact ``ttc`` at `level` and ``log10_ess`` of the recorded weights, see `cje_sim.chat_world.overlap`."""
    return chat_world.overlap(policies, Errors(noise_share, noise_sd, offset), level)


simulate = world(law, label_design="base", spread=1.0, atoms=0.12)
