"""Target policies: what a logger becomes when it is pushed towards a reward.

All are token policies again (`cje_sim.tokens.laws.TokenPolicy`); `cje_sim.exact.markov.divergence` gives their exact
KL and chi-square from the logger.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cje_sim.tokens.laws import FloatArray, IntArray, Rng, TokenPolicy, log_normalise

UTILITIES = ("iid", "aligned", "anti_aligned", "token_set")


def utilities(kind: str, vocab: int, *, tokens: npt.ArrayLike | None = None, rng: Rng = None) -> FloatArray:
    """Token utilities u(v), shape (V,): how reward attaches to tokens.

    Kind ``iid`` is standard normal draws; ``aligned`` the same draws sorted so that frequent tokens have high utility,
    ``anti_aligned`` so that rare tokens have; ``token_set`` is 1 on the integers `tokens`, 0 elsewhere.

    Examples
    --------
    >>> u = utilities("aligned", 5, rng=0)
    >>> bool((np.diff(u) <= 0).all())
    True
    """
    rng = np.random.default_rng(rng)
    if kind not in UTILITIES:
        raise ValueError(f"kind={kind!r}: it must be one of {', '.join(UTILITIES)}")
    if kind == "token_set":
        return indicator(vocab, tokens)
    draws = rng.standard_normal(vocab)
    if kind == "iid":
        return draws
    ascending = np.sort(draws)
    return ascending[::-1].copy() if kind == "aligned" else ascending


def token_tilt(logger: TokenPolicy, utility: npt.ArrayLike, eta: float) -> TokenPolicy:
    """Reward tilt of every token law: ``p(v | past) ~ q(v | past) exp(eta u(v))``.

    Examples
    --------
    >>> from cje_sim.tokens.laws import iid_policy
    >>> logger = iid_policy(np.log([6 / 11, 3 / 11, 2 / 11]), length=2)
    >>> target = token_tilt(logger, [0.0, 0.0, np.log(2)], 1.0)
    >>> np.exp(target.log_prob[0, 0]).round(4).tolist()
    [0.4615, 0.2308, 0.3077]
    """
    u = checked_utility(logger, utility)
    if not np.isfinite(eta):
        raise ValueError(f"eta={eta}: it must be finite")
    return replace(logger, log_prob=log_normalise(logger.log_prob + eta * u))


def temperature(logger: TokenPolicy, value: float) -> TokenPolicy:
    """Every token law at another temperature: ``p ~ q^(1 / value)``; 1 is the logger, above 1 is hotter.

    Examples
    --------
    >>> from cje_sim.tokens.laws import iid_policy
    >>> hot = temperature(iid_policy(np.log([0.8, 0.2]), length=1), 2.0)
    >>> np.exp(hot.log_prob[0, 0]).round(4).tolist()
    [0.6667, 0.3333]
    """
    return replace(logger, log_prob=log_normalise(logger.log_prob / positive("temperature", value)))


def clone(logger: TokenPolicy) -> TokenPolicy:
    """The logger itself as a target: every exact weight is one, so any other weight is teacher-forcing noise."""
    return replace(logger)


def indicator(vocab: int, tokens: npt.ArrayLike | None) -> FloatArray:
    """1 on the given tokens, 0 elsewhere, shape (V,)."""
    chosen: IntArray = np.asarray([] if tokens is None else tokens, dtype=np.int64)
    if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= vocab:
        raise ValueError(f"a token set needs `tokens`, integers in 0..{vocab - 1}")
    out = np.zeros(vocab)
    out[chosen] = 1.0
    return out


def checked_utility(logger: TokenPolicy, utility: npt.ArrayLike) -> FloatArray:
    """Utilities as an array (V,), or an error that says what they must be."""
    u = np.asarray(utility, dtype=float)
    if u.shape != (logger.vocab,) or not np.isfinite(u).all():
        raise ValueError(f"utility must be {logger.vocab} finite numbers, one per token; got shape {u.shape}")
    return u


def positive(name: str, value: float) -> float:
    """The value, or an error that names it."""
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value}: it must be finite and > 0")
    return float(value)
