"""A target with *more* entropy than its logger: typicality coverage near 1, effective sample size near 0.

The logger draws i.i.d. Zipf tokens, a target the same at another temperature, ``p ~ q^(1/T)``, which is Zipf's law
with exponent ``alpha / T``. For T > 1 the logger's frequent tokens are the target's least surprising ones, so logged
text is more typical for the target than the target's own: the paper's one-sided TTC tends to 1 with length although
KL, and so the dispersion of the weights, grows without bound. Judge and oracle are those of
`cje_sim.token_world`.

Examples
--------
>>> table = overlap(length=400).sel(policy="hot")
>>> bool(table.ttc > 0.999), bool(table.log10_ess < -40)
(True, True)
>>> truth().round(3).values.tolist()
[0.541, 0.531, 0.547]
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'hot', 'cold']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 30)
"""

from collections.abc import Mapping

from cje_sim.targets.tilts import utilities
from cje_sim.token_world import TokenLaws, token_world
from cje_sim.tokens.laws import iid_policy, zipf

TEMPERATURE = {"base": 1.0, "hot": 1.25, "cold": 0.9}


def tokens(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 100,
    temperature: Mapping[str, float] = TEMPERATURE,
    utility: str = "iid",
    utility_seed: int = 0,
) -> TokenLaws:
    """Zipf's law at the temperature of each policy, and the tokens' utilities.

    Parameters
    ----------
    temperature : mapping of policy to float
        Temperature of each policy, > 0; the first is the base and logging policy.
    vocab, alpha, length, utility, utility_seed
        As in `cje_sim.scenarios.zipf_tilt.tokens`.
    """
    for policy, value in temperature.items():
        if not value > 0:
            raise ValueError(f"temperature={{{policy!r}: {value}}}: it must be > 0")
    laws = {name: iid_policy(zipf(vocab, alpha / t), length) for name, t in temperature.items()}
    return TokenLaws(laws, utilities(utility, vocab, rng=utility_seed))


simulate, truth, overlap = token_world(tokens)
