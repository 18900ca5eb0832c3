"""A target with *more* entropy than its logger: typicality coverage near 1, effective sample size near 0.

The logger draws i.i.d. Zipf tokens, a target the same at another temperature, ``p ~ q^(1/T)``, which is
Zipf's law with exponent ``alpha / T``. For T > 1 the logger's frequent tokens are the target's least
surprising ones, so logged text is more typical for the target than the target's own: the paper's one-sided
TTC tends to 1 with length although KL, and so the dispersion of the weights, grows without bound. Judge and
oracle are those of `cje_sim.scenarios._tokens`.

>>> table = overlap(length=400).sel(policy="hot")
>>> bool(table.ttc > 0.999), bool(table.log10_ess < -40)
(True, True)
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray
from cje_sim.labelling import LabelDesign
from cje_sim.policies import utilities
from cje_sim.scenarios._tokens import simulate_tokens, token_overlap, token_truth
from cje_sim.tokens import TokenPolicy, iid_policy, zipf

TEMPERATURE = {"base": 1.0, "hot": 1.25, "cold": 0.9}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 100,
    temperature: Mapping[str, float] = TEMPERATURE,
    utility: str = "iid",
    utility_seed: int = 0,
    spread: float = 0.9,
    atoms: float = 0.05,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts, with logged data and surprisal.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, spread, atoms, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    vocab, alpha, length, utility, utility_seed
        As in `cje_sim.scenarios.zipf_tilt.simulate`.
    temperature : mapping of policy to float
        Temperature of each policy, > 0; the first is the base and logging policy.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    policies, u = _world(vocab, alpha, length, temperature, utility, utility_seed)
    return simulate_tokens(
        policies,
        u,
        n,
        spread=spread,
        atoms=atoms,
        rng=rng,
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
    )


def truth(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 100,
    temperature: Mapping[str, float] = TEMPERATURE,
    utility: str = "iid",
    utility_seed: int = 0,
) -> xr.DataArray:
    """``V(policy)``, a sum over the vocabulary.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.541, 0.531, 0.547]
    """
    return token_truth(*_world(vocab, alpha, length, temperature, utility, utility_seed))


def overlap(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 100,
    temperature: Mapping[str, float] = TEMPERATURE,
    utility: str = "iid",
    utility_seed: int = 0,
) -> xr.Dataset:
    """Exact TTC, limit ESS and KL per token of each policy, see `cje_sim.scenarios._tokens.token_overlap`."""
    return token_overlap(_world(vocab, alpha, length, temperature, utility, utility_seed)[0])


def _world(
    vocab: int, alpha: float, length: int, temperature: Mapping[str, float], utility: str, utility_seed: int
) -> tuple[dict[str, TokenPolicy], FloatArray]:
    for policy, value in temperature.items():
        if not value > 0:
            raise ValueError(f"temperature of {policy!r} is {value}; it must be > 0")
    policies = {name: iid_policy(zipf(vocab, alpha / t), length) for name, t in temperature.items()}
    return policies, utilities(utility, vocab, rng=utility_seed)
