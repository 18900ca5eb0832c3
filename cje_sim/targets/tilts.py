"""Target policies: what a logger becomes when it is pushed towards a reward.

All are token policies again (`cje_sim.tokens.laws.TokenPolicy`); `cje_sim.exact.markov.divergence` gives their exact
KL and chi-square from the logger. Targets that act on whole responses are in `cje_sim.targets.responses`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from cje_sim.tokens.laws import FloatArray, IntArray, Rng, TokenPolicy, log_normalise

UTILITIES = ("iid", "aligned", "anti_aligned", "token_set")


class SequenceTilt(NamedTuple):
    """A KL-regularised optimum ``pi_0 exp(r / beta) / Z``: the policy, and ``log Z`` of each prompt class (K,)."""

    policy: TokenPolicy
    log_z: FloatArray


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


def first_token_tilt(logger: TokenPolicy, utility: npt.ArrayLike, beta: float) -> SequenceTilt:
    """Sequence-level tilt for the reward ``r(a) = u(a_1)``: only the first token's law changes.

    ``log Z = log E_q[exp(u(a_1) / beta)]``, so KL and chi-square do not grow with length.

    Examples
    --------
    >>> from cje_sim.tokens.laws import iid_policy
    >>> logger = iid_policy(np.log([0.5, 0.5]), length=3)
    >>> np.exp(first_token_tilt(logger, [0.0, np.log(3)], beta=1.0).policy.log_prob[0, 0]).round(3).tolist()
    [0.25, 0.75]
    """
    u = checked_utility(logger, utility) / positive("beta", beta)
    first = logger.log_prob[:, :1] + u
    log_z = logsumexp(first, axis=2)[:, 0]
    tilted = np.concatenate([first - log_z[:, None, None], logger.log_prob[:, 1:]], axis=1)
    return SequenceTilt(replace(logger, log_prob=tilted), log_z)


def additive_tilt(logger: TokenPolicy, utility: npt.ArrayLike, beta: float) -> SequenceTilt:
    """Sequence-level tilt for the reward ``r(a) = sum_t u(a_t)`` of i.i.d. tokens of fixed length.

    It is the token tilt at ``eta = 1 / beta``, with ``Z = E_q[exp(u / beta)]^L``. With memory or a stop token the
    optimum is not a policy of the same kind (its laws change from token to token), and this raises.

    Examples
    --------
    >>> from cje_sim.tokens.laws import iid_policy
    >>> logger = iid_policy(np.log([0.5, 0.5]), length=3)
    >>> np.exp(additive_tilt(logger, [0.0, np.log(3)], beta=1.0).policy.log_prob[0, 0]).round(3).tolist()
    [0.25, 0.75]
    """
    if logger.stop is not None or logger.log_prob.shape[1] > 2:
        raise ValueError(
            "additive_tilt needs i.i.d. tokens of fixed length; use token_tilt for a chain or a stop token"
        )
    u = checked_utility(logger, utility) / positive("beta", beta)
    each = logsumexp(logger.log_prob + u, axis=2)
    log_z = each[:, 0] + (logger.length - 1) * each[:, 1]
    return SequenceTilt(replace(logger, log_prob=logger.log_prob + u - each[:, :, None]), log_z)


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


def token_mixture(logger: TokenPolicy, other: TokenPolicy, epsilon: float) -> TokenPolicy:
    """Each token from `other` with probability epsilon, else from the logger; laws must have one layout.

    Examples
    --------
    >>> from cje_sim.tokens.laws import iid_policy
    >>> logger, other = (iid_policy(np.log(law), length=2) for law in ([0.8, 0.2], [0.2, 0.8]))
    >>> np.exp(token_mixture(logger, other, 0.5).log_prob[0, 0]).round(3).tolist()
    [0.5, 0.5]
    """
    if logger.log_prob.shape != other.log_prob.shape:
        raise ValueError(
            f"token laws have shapes {logger.log_prob.shape} and {other.log_prob.shape}; they must agree"
        )
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon={epsilon}: it must lie in (0, 1)")
    return replace(
        logger, log_prob=np.logaddexp(np.log1p(-epsilon) + logger.log_prob, np.log(epsilon) + other.log_prob)
    )


def clone(logger: TokenPolicy) -> TokenPolicy:
    """The logger itself as a target: every exact weight is one, so any other weight is teacher-forcing noise."""
    return replace(logger)


def adversarial_utility(
    oracle_utility: npt.ArrayLike, log_law: FloatArray, *, share: float = 0.1, bonus: float = 5.0
) -> FloatArray:
    """Judge utilities with an exploit: the oracle's, plus `bonus` on the tokens the oracle likes least.

    The exploited tokens are the worst ones that together hold at most `share` of the logger's mass (at least one). A
    target tilted towards this utility is adversarial: judge scores rise while oracle outcomes fall.

    Examples
    --------
    >>> adversarial_utility([1.0, 0.0, -1.0], np.log([0.6, 0.32, 0.08])).tolist()  # the worst token is exploited
    [1.0, 0.0, 4.0]
    """
    oracle = np.asarray(oracle_utility, dtype=float)
    if oracle.shape != log_law.shape:
        raise ValueError(f"oracle_utility has shape {oracle.shape}; the token law has {log_law.shape}")
    if not 0 < share < 1:
        raise ValueError(f"share={share}: it must lie in (0, 1)")
    worst = np.argsort(oracle, kind="stable")
    count = max(1, int(np.searchsorted(np.cumsum(np.exp(log_law[worst])), share, side="right")))
    judge = oracle.copy()
    judge[worst[:count]] += bonus
    return judge


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
