"""Worlds of token sequences: the quality of a response sits in its first token.

The judge scores ``S = expit(u(a_1))`` with a utility u of the first token, as in the paper's simulation of
TTC collapse, and ``E[Y | S] = oracle_mean(S)``. So truth is a sum over the vocabulary, log-probabilities are
exact, the importance weights are the true ones, and the rest of the sequence is there only to be improbable.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from cje_sim.exact import divergences, typicality
from cje_sim.judges import FloatArray, oracle_mean
from cje_sim.signatures import composed
from cje_sim.tokens.laws import TokenPolicy, sample_sums
from cje_sim.world import Prompts, Responses, by_policy, world


class TokenLaws(NamedTuple):
    """i.i.d. token laws of equal length, the base and logging policy first, and the tokens' utilities, shape (V,)."""

    policies: Mapping[str, TokenPolicy]
    utility: FloatArray


def token_world(
    tokens: Callable[..., TokenLaws],
) -> tuple[Callable[..., xr.Dataset], Callable[..., xr.DataArray], Callable[..., xr.Dataset]]:
    """``simulate``, ``truth`` and ``overlap`` of the world whose parameters `tokens` turns into laws."""
    simulate: Any = world(composed("law", law, tokens, first="prompts"), prompt_corr=None)
    return simulate, composed("truth", truth, tokens), composed("overlap", overlap, tokens)


def law(prompts: Prompts, laws: TokenLaws) -> Responses:
    """Fresh draws of every policy with their surprisal and log ratio; the logged responses are the base policy's."""
    policies, n = list(laws.policies.values()), prompts.n
    length = policies[0].length
    first = np.empty((len(policies), n), dtype=np.int64)
    surprisal, log_ratio = np.empty((len(policies), n)), np.zeros((len(policies), n))
    for i, policy in enumerate(policies):
        scored = policies if i == 0 else [policy, policies[0]]
        log_prob = np.stack([one.log_prob for one in scored], axis=-1)
        draws = sample_sums(policy, log_prob, n, rng=prompts.rng)
        first[i], surprisal[i] = draws.first_token, -draws.sums[:, 0] / length
        if i == 0:
            logp = draws.sums.T
        else:
            log_ratio[i] = draws.sums[:, 0] - draws.sums[:, 1]
    score = special.expit(laws.utility)[first]
    return Responses(
        policies=laws.policies,
        judge=score,
        mean=oracle_mean(score),
        surprisal=surprisal,
        log_ratio=log_ratio,
        logp_target=logp,
        n_tokens=length,
    )


def truth(laws: TokenLaws) -> xr.DataArray:
    """``V(policy) = sum_v p(v) oracle_mean(expit(u(v)))``."""
    value = oracle_mean(special.expit(laws.utility))
    return by_policy(
        {name: divergences.expectation(one.log_prob[0, 0], value) for name, one in laws.policies.items()}
    )


def overlap(laws: TokenLaws) -> xr.Dataset:
    """Exact overlap with the base policy: ``ttc`` at .9, ``log10_ess`` (limit of ESS/n), ``kl`` per token in nats."""
    base = next(iter(laws.policies.values())).log_prob[0, 0]
    table = {
        name: (
            typicality.coverage(one.log_prob[0, 0], base, one.length, level=0.9).ttc,
            divergences.log_limit_ess(one.log_prob[0, 0], base, one.length) / np.log(10),
            divergences.kl(one.log_prob[0, 0], base),
        )
        for name, one in laws.policies.items()
    }
    columns = zip(("ttc", "log10_ess", "kl"), zip(*table.values(), strict=True), strict=True)
    return xr.Dataset(
        {name: ("policy", list(values)) for name, values in columns}, coords={"policy": list(table)}
    )
