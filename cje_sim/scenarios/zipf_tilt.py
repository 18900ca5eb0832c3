"""Zipf token sequences and reward-tilted targets: the paper's TTC collapse, with judge and oracle.

The logger draws i.i.d. tokens from Zipf's law; a target tilts each token's law by ``exp(eta u(v))``.
Utilities attach to tokens as `utility` says (the paper does not; see `cje_sim.policies.utilities`), drawn
once from `utility_seed`: they belong to the world, not to the sample. Judge and oracle are those of
`cje_sim.scenarios._tokens`.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import FloatArray
from cje_sim.labelling import LabelDesign
from cje_sim.policies import token_tilt, utilities
from cje_sim.scenarios._tokens import simulate_tokens, token_overlap, token_truth
from cje_sim.tokens import TokenPolicy, iid_policy, zipf

ETA = {"base": 0.0, "tilt_0.1": 0.1, "tilt_0.3": 0.3, "tilt_0.5": 0.5}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 50,
    eta: Mapping[str, float] = ETA,
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
    vocab, alpha, length : int, float, int
        Tokens, Zipf's exponent, tokens per response.
    eta : mapping of policy to float
        Tilt of each policy against the logger; the first, the base policy, is usually 0.
    utility, utility_seed
        How reward attaches to tokens, and the seed of that draw.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    policies, u = _world(vocab, alpha, length, eta, utility, utility_seed)
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
    length: int = 50,
    eta: Mapping[str, float] = ETA,
    utility: str = "iid",
    utility_seed: int = 0,
) -> xr.DataArray:
    """``V(policy)``, a sum over the vocabulary.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.541, 0.556, 0.585, 0.613]
    """
    return token_truth(*_world(vocab, alpha, length, eta, utility, utility_seed))


def overlap(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 50,
    eta: Mapping[str, float] = ETA,
    utility: str = "iid",
    utility_seed: int = 0,
) -> xr.Dataset:
    """Exact TTC, limit ESS and KL per token of each policy, see `cje_sim.scenarios._tokens.token_overlap`."""
    return token_overlap(_world(vocab, alpha, length, eta, utility, utility_seed)[0])


def _world(
    vocab: int, alpha: float, length: int, eta: Mapping[str, float], utility: str, utility_seed: int
) -> tuple[dict[str, TokenPolicy], FloatArray]:
    logger = iid_policy(zipf(vocab, alpha), length)
    u = utilities(utility, vocab, rng=utility_seed)
    return {name: token_tilt(logger, u, strength) for name, strength in eta.items()}, u
