"""What the token scenarios share: responses are token sequences, and quality sits in the first token.

The judge scores ``S = expit(u(a_1))`` with a utility u of the first token, as in the paper's simulation of
TTC collapse, and ``E[Y | S] = oracle_mean(S)``. So truth is a sum over the vocabulary, log-probabilities are
exact, the importance weights are the true ones, and the rest of the sequence is there only to be improbable.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from cje_sim import exact, typicality
from cje_sim.judges import FloatArray, draw_oracle, oracle_mean
from cje_sim.labelling import label
from cje_sim.tokens import TokenPolicy, sample_sums


def simulate_tokens(
    policies: Mapping[str, TokenPolicy],
    utility: FloatArray,
    n: int,
    *,
    spread: float,
    atoms: float,
    rng: np.random.Generator,
    **labels: Any,
) -> xr.Dataset:
    """Evaluation data: fresh draws of every policy; the logged responses are the first policy's draws.

    Parameters
    ----------
    policies : mapping of str to TokenPolicy
        i.i.d. token laws of equal length; the first is the base and logging policy.
    utility : array, shape (V,)
        u of each token.
    n, spread, atoms
        Prompts; label noise, see `cje_sim.judges.draw_oracle`.
    rng : Generator
    **labels
        Arguments of `cje_sim.labelling.label`.

    Returns
    -------
    xr.Dataset
    """
    laws = list(policies.values())
    length = laws[0].length
    first = np.empty((len(laws), n), dtype=np.int64)
    surprisal = np.empty((len(laws), n))
    for i, policy in enumerate(laws):
        scored = laws if i == 0 else [policy]
        draws = sample_sums(policy, np.stack([law.log_prob for law in scored], axis=-1), n, rng=rng)
        first[i], surprisal[i] = draws.first_token, -draws.sums[:, 0] / length
        if i == 0:
            logp = draws.sums.T
    score = special.expit(utility)[first]
    oracle = draw_oracle(oracle_mean(score), rng.random(score.shape), spread=spread, atoms=atoms)
    logged = {
        "logp_target": logp,
        "logp_logger": logp[0],
        "n_tokens": np.full(n, length),
        "logged_judge": score[0],
    }
    data = label(score, oracle, list(policies), surprisal=surprisal, logged=logged, rng=rng, **labels)
    return data.assign(logged_oracle=data["oracle"].isel(policy=0, draw=0, drop=True))


def token_truth(policies: Mapping[str, TokenPolicy], utility: FloatArray) -> xr.DataArray:
    """``V(policy) = sum_v p(v) oracle_mean(expit(u(v)))``."""
    value = oracle_mean(special.expit(utility))
    values = [exact.expectation(law.log_prob[0, 0], value) for law in policies.values()]
    return xr.DataArray(values, coords={"policy": list(policies)}, name="truth")


def token_overlap(policies: Mapping[str, TokenPolicy], level: float = 0.9) -> xr.Dataset:
    """Exact overlap with the first policy: ``ttc``, ``log10_ess`` (limit of ESS/n) and ``kl`` per token,
    nats.
    """
    base = next(iter(policies.values()))
    q = base.log_prob[0, 0]
    table = [
        (
            typicality.coverage(law.log_prob[0, 0], q, law.length, level=level).ttc,
            exact.log_limit_ess(law.log_prob[0, 0], q, law.length) / np.log(10),
            exact.kl(law.log_prob[0, 0], q),
        )
        for law in policies.values()
    ]
    names = ("ttc", "log10_ess", "kl")
    columns = {
        name: ("policy", list(column)) for name, column in zip(names, zip(*table, strict=True), strict=True)
    }
    return xr.Dataset(columns, coords={"policy": list(policies)})
