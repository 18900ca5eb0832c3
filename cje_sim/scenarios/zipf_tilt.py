"""Zipf token sequences and reward-tilted targets: the paper's TTC collapse, with judge and oracle.

The logger draws i.i.d. tokens from Zipf's law; a target tilts each token's law by ``exp(eta u(v))``. Utilities attach
to tokens as `utility` says (the paper does not; see `cje_sim.targets.tilts.utilities`), drawn once from `utility_seed`:
they belong to the world, not to the sample. Judge and oracle are those of `cje_sim.token_world`.

Examples
--------
>>> truth().round(3).values.tolist()
[0.541, 0.556, 0.585, 0.613]
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'tilt_0.1', 'tilt_0.3', 'tilt_0.5']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
"""

from collections.abc import Mapping

from cje_sim.targets.tilts import token_tilt, utilities
from cje_sim.token_world import TokenLaws, token_world
from cje_sim.tokens.laws import iid_policy, zipf

ETA = {"base": 0.0, "tilt_0.1": 0.1, "tilt_0.3": 0.3, "tilt_0.5": 0.5}


def tokens(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 50,
    eta: Mapping[str, float] = ETA,
    utility: str = "iid",
    utility_seed: int = 0,
) -> TokenLaws:
    """Tilted laws of the tokens, and their utilities.

    Parameters
    ----------
    vocab, alpha, length : int, float, int
        Tokens, Zipf's exponent, tokens per response.
    eta : mapping of policy to float
        Tilt of each policy against the logger; the first, the base policy, is usually 0.
    utility, utility_seed
        How reward attaches to tokens, see `cje_sim.targets.tilts.utilities`, and the seed of that draw.
    """
    logger = iid_policy(zipf(vocab, alpha), length)
    u = utilities(utility, vocab, rng=utility_seed)
    return TokenLaws({name: token_tilt(logger, u, strength) for name, strength in eta.items()}, u)


simulate, truth, overlap = token_world(tokens)
