"""Target policies: what a logger becomes when it is pushed towards a reward."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cje_sim.tokens import FloatArray, Rng, TokenPolicy, log_normalise

UTILITIES = ("iid", "aligned", "anti_aligned", "token_set")


def utilities(kind: str, vocab: int, *, tokens: npt.ArrayLike | None = None, rng: Rng = None) -> FloatArray:
    """Token utilities u(v), shape (V,): how reward attaches to tokens.

    Parameters
    ----------
    kind : {"iid", "aligned", "anti_aligned", "token_set"}
        ``iid``: standard normal draws. ``aligned``: the same draws sorted so that frequent tokens have high
        utility. ``anti_aligned``: sorted so that rare tokens have. ``token_set``: 1 on `tokens`, 0 elsewhere.
    vocab : int
    tokens : array of int, for ``token_set``
    rng : Generator, int or None

    Examples
    --------
    >>> u = utilities("aligned", 5, rng=0)
    >>> bool((np.diff(u) <= 0).all())
    True
    """
    rng = np.random.default_rng(rng)
    if kind not in UTILITIES:
        raise ValueError(f"utility kind is {kind!r}; it must be one of {', '.join(UTILITIES)}")
    if kind == "token_set":
        chosen = np.asarray([] if tokens is None else tokens, dtype=np.int64)
        if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= vocab:
            raise ValueError(f"token_set needs `tokens`, integers in 0..{vocab - 1}")
        out = np.zeros(vocab)
        out[chosen] = 1.0
        return out
    draws = rng.standard_normal(vocab)
    if kind == "iid":
        return draws
    ascending = np.sort(draws)
    return ascending[::-1].copy() if kind == "aligned" else ascending


def token_tilt(logger: TokenPolicy, utility: npt.ArrayLike, eta: float) -> TokenPolicy:
    """Reward tilt of every token law: ``p(v | past) ~ q(v | past) exp(eta u(v))``.

    For i.i.d. tokens this is also the sequence-level, KL-regularised optimum for the additive reward
    ``r(a) = sum_t u(a_t)`` at ``beta = 1 / eta``, with ``Z = E_q[e^(eta u)]^L``.

    Examples
    --------
    >>> from cje_sim.tokens import iid_policy, zipf
    >>> logger = iid_policy(zipf(3, 1.0), length=2)
    >>> target = token_tilt(logger, [0.0, 0.0, np.log(2)], 1.0)
    >>> np.exp(target.log_prob[0, 0]).round(4).tolist()
    [0.4615, 0.2308, 0.3077]
    """
    u = np.asarray(utility, dtype=float)
    if u.shape != (logger.vocab,) or not np.isfinite(u).all():
        raise ValueError(f"utility must be {logger.vocab} finite numbers, one per token; got shape {u.shape}")
    if not np.isfinite(eta):
        raise ValueError(f"eta is {eta}; it must be finite")
    return replace(logger, log_prob=log_normalise(logger.log_prob + eta * u))
