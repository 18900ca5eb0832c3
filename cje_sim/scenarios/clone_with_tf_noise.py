"""A clone whose recorded log-probabilities are wrong: low effective sample size without any policy shift.

The world of `cje_sim.scenarios.zipf_tilt` with a target that *is* the logger and one that is slightly tilted. Each
target's recorded log-likelihood carries an error e of `cje_sim.tokens.teacher_forcing` per response, by default
``N(-s^2/2, s^2)``, so that the recorded weight is ``W exp(e)`` with ``E[exp(e)] = 1`` and the limit of ESS/n is
``exp(-s^2)`` times that of the true weights. The default sd gives the clone the 26% of the paper's, which cannot tell
teacher-forcing error from lack of coverage; here the two causes are apart: `cje_sim.scenarios.zipf_tilt` with the same
seed has the exact log-likelihoods of the same responses. A share of rows may suffer a tokenizer mismatch on top, and a
share has no log-likelihood at all (NaN). The same befalls fresh draws (``log_ratio``).

Examples
--------
>>> (overlap().log10_ess.round(3) + 0.0).values.tolist()  # log10(.26) = -.585; base, clone, tilt_0.1
[0.0, -0.585, -0.699]
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'clone', 'tilt_0.1']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 30)
>>> truth().to_series().round(3).to_dict()
{'base': 0.541, 'clone': 0.541, 'tilt_0.1': 0.556}
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from cje_sim import token_world
from cje_sim.scenarios import zipf_tilt
from cje_sim.signatures import call, composed, inherits
from cje_sim.token_world import TokenLaws
from cje_sim.tokens.teacher_forcing import Law, Noise, clone_log_limit_ess, observe, sd_for_ess
from cje_sim.world import Prompts, Responses, world

ETA = {"base": 0.0, "clone": 0.0, "tilt_0.1": 0.1}
NOISE_SD = sd_for_ess(0.26)


@inherits(zipf_tilt.tokens)
def tokens(*, eta: Mapping[str, float] = ETA, **others: Any) -> TokenLaws:
    """Laws of `cje_sim.scenarios.zipf_tilt.tokens`, which describes the parameters: hardly tilted."""
    return zipf_tilt.tokens(eta=eta, **others)


def errors(
    *,
    noise_sd: float = NOISE_SD,
    noise_law: Law = "normal",
    mismatch: float = 0.0,
    mismatch_sd: float = 3.0,
    mismatch_offset: float = -3.0,
) -> list[Noise]:
    """Return what teacher forcing does to the log-likelihood of a response under a target.

    Parameters
    ----------
    noise_sd : float
        s, sd of the error of a target's log-likelihood, nats per response; the logger's is exact.
    noise_law : {"normal", "laplace", "student_t"}
        Law of that error. ``E[exp(e)] = 1`` but for Student's t, where no shift can bring it about.
    mismatch, mismatch_sd, mismatch_offset : float
        Share of rows, in [0, 1], with a tokenizer mismatch: another error ``N(offset, sd^2)``, not centred.
    """
    return [
        Noise("teacher-forcing noise", noise_law, noise_sd, unit_mean=noise_law != "student_t"),
        Noise("tokenizer mismatch", sd=mismatch_sd, offset=mismatch_offset, share=mismatch),
    ]


@inherits(tokens, errors)
def law(prompts: Prompts, *, missing: float = 0.01, **others: Any) -> Responses:
    """Token sequences, recorded with errors, see `tokens` and `errors`.

    Parameters
    ----------
    missing : float
        Share of rows, in [0, 1], without a log-likelihood under a target.
    """
    noises = [*call(errors, others), Noise("no log-likelihood", "missing", share=missing)]

    def record(data: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
        recorded = data["logp_target"].values.copy()
        recorded[1:] = observe(recorded[1:], noises, rng=rng).log_prob
        own = data["log_ratio"].values.copy()
        own[1:, :, 0] = observe(own[1:, :, 0], noises, rng=rng).log_prob
        return data.assign(
            logp_target=(("policy", "prompt"), recorded), log_ratio=(data["log_ratio"].dims, own)
        )

    return replace(token_world.law(prompts, call(tokens, others)), finish=record)


@inherits(tokens, errors)
def overlap(**others: Any) -> xr.Dataset:
    """``log10_ess`` of the recorded weights, with ``true_log10_ess``, ``ttc`` and ``kl`` of the true ones.

    The difference of the two is what teacher forcing takes, ``true_log10_ess`` what coverage takes. Both are over
    the rows that are not missing.
    """
    true = token_world.overlap(call(tokens, others)).rename(log10_ess="true_log10_ess")
    lost = np.full(true.sizes["policy"], clone_log_limit_ess(call(errors, others)) / np.log(10))
    lost[0] = 0.0  # the logger's own are exact
    return true.assign(log10_ess=true["true_log10_ess"] + xr.Variable("policy", lost))


truth = composed("truth", token_world.truth, tokens)
simulate = world(law, prompt_corr=None)
