"""Token policies: laws of token sequences with exact log-probabilities.

A response is a sequence ``a = (a_1, ..., a_L)`` over a vocabulary ``0..V-1``; token ``v`` has frequency rank ``v + 1``.
A `TokenPolicy` covers i.i.d. tokens, first-order Markov chains, prompt classes (each with its own law) and a stop token
(random length) in one layout, so one sampling kernel and one scoring kernel serve all of them.

Sampling uses alias tables (Vose 1991) driven by xoshiro256++ (Blackman & Vigna 2021) inside numba; its
256-bit state is drawn from the NumPy generator of the caller, which therefore governs every token.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from cje_sim.tokens import kernels

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Rng = np.random.Generator | int | None

NO_STOP = -1
PADDING = -1
BLOCK_TOKENS = 2**16


class Responses(NamedTuple):
    """Token sequences: `tokens` (n, length), padded with -1 after a stop token, and the `prompt_class` (n,)."""

    tokens: npt.NDArray[np.int32]
    prompt_class: IntArray


class TokenSums(NamedTuple):
    """What `sample_sums` keeps of each response: `first_token`, `n_tokens`, `prompt_class` (n,), `sums` (n, k)."""

    first_token: IntArray
    n_tokens: IntArray
    sums: FloatArray
    prompt_class: IntArray


@dataclass(frozen=True)
class TokenPolicy:
    """A law of token sequences given the prompt class.

    ``log_prob[k, 0]`` is the law of the first token for prompt class ``k``; ``log_prob[k, 1 + s]`` that of every later
    token, where ``S = 1`` (independent of the past) or ``S = V`` (``s`` is the previous token).
    """

    log_prob: FloatArray  # (K, 1 + S, V) normalised log-probabilities, in nats
    length: int  # number of tokens, or the largest number when there is a stop token
    stop: int | None = None  # token that ends a response; it is part of the response and of its probability
    class_prob: tuple[float, ...] = (1.0,)  # (K,) of the prompt classes, one for every policy of a world

    def __post_init__(self) -> None:
        """Refuse anything that is not a law, with the allowed range."""
        if self.log_prob.ndim != 3:
            raise ValueError(
                f"log_prob has {self.log_prob.ndim} axes; it must have (class, 1 + state, token)"
            )
        n_classes, rows, vocab = self.log_prob.shape
        if rows not in (2, 1 + vocab):
            raise ValueError(
                f"log_prob has {rows} rows a class; it must have 2 (i.i.d.) or 1 + V = {1 + vocab} (Markov)"
            )
        if self.length < 1:
            raise ValueError(f"length={self.length}: it must be at least 1")
        if self.stop is not None and not 0 <= self.stop < vocab:
            raise ValueError(f"stop={self.stop}: it must be a token in 0..{vocab - 1}")
        share = self.class_prob
        if len(share) != n_classes or min(share) < 0 or abs(sum(share) - 1) > 1e-9:
            raise ValueError(f"class_prob must be {n_classes} probabilities that sum to 1, got {share}")
        if not np.allclose(logsumexp(self.log_prob, axis=2), 0.0, atol=1e-9):
            raise ValueError(
                "log_prob is not normalised: each row must have logsumexp = 0 (use log_normalise)"
            )

    @property
    def vocab(self) -> int:
        """Vocabulary size V."""
        return int(self.log_prob.shape[2])

    @property
    def is_iid(self) -> bool:
        """Whether tokens are i.i.d. with one law: a single class, no memory, no stop token."""
        one_law = self.log_prob.shape[:2] == (1, 2) and self.stop is None
        return one_law and bool(np.array_equal(self.log_prob[0, 0], self.log_prob[0, 1]))

    @cached_property
    def alias(self) -> FloatArray:
        """Alias tables, shape (K * (1 + S), V, 2): acceptance threshold and alternative token of each cell."""
        flat = self.log_prob.reshape(-1, self.vocab)
        return np.asarray(kernels.alias_tables(np.exp(flat - logsumexp(flat, axis=1, keepdims=True))))

    def sample(self, n: int, *, prompt_class: npt.ArrayLike | None = None, rng: Rng = None) -> Responses:
        """Draw `n` responses; prompt classes are drawn from ``class_prob`` unless given, shape (n,)."""
        rng = np.random.default_rng(rng)
        classes = draw_classes(self, n, prompt_class, rng)
        tokens = np.full((n, self.length), PADDING, dtype=np.int32)
        stop = NO_STOP if self.stop is None else self.stop
        kernels.sample(_seed_state(rng), self.alias, self.log_prob.shape[1], classes, stop, tokens)
        return Responses(tokens, classes)

    def score(self, responses: Responses) -> FloatArray:
        """Exact log-probability, in nats, of each response given its prompt class, shape (n,)."""
        return token_sums(self, self.log_prob[..., None], responses)[:, 0]


def iid_policy(log_prob: npt.ArrayLike, length: int, *, stop: int | None = None) -> TokenPolicy:
    """Policy whose tokens are independent with law ``log_prob`` (V,), until `stop` if there is a stop token.

    Examples
    --------
    >>> policy = iid_policy(zipf(1000, 1.2), length=5)
    >>> responses = policy.sample(3, rng=0)
    >>> responses.tokens.shape, policy.score(responses).shape
    ((3, 5), (3,))
    """
    law = np.asarray(log_prob, dtype=float)
    if law.ndim != 1:
        raise ValueError(f"log_prob has shape {law.shape}; an i.i.d. law has one axis (V,)")
    return TokenPolicy(np.stack([law, law])[None], length, stop)


def markov_policy(
    log_first: npt.ArrayLike, log_next: npt.ArrayLike, length: int, *, stop: int | None = None
) -> TokenPolicy:
    """First-order Markov chain with initial law (V,) and transition law (V, V), rows indexed by the past token.

    Examples
    --------
    >>> stay = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> markov_policy(np.log([0.5, 0.5]), stay, length=6).sample(3, rng=0).tokens.shape
    (3, 6)
    """
    first, later = np.asarray(log_first, dtype=float), np.asarray(log_next, dtype=float)
    if later.shape != (first.size, first.size):
        raise ValueError(
            f"log_next has shape {later.shape}; it must be (V, V) = ({first.size}, {first.size})"
        )
    return TokenPolicy(np.concatenate([first[None], later])[None], length, stop)


def by_prompt(policies: list[TokenPolicy], class_prob: npt.ArrayLike) -> TokenPolicy:
    """One policy out of several single-class ones: prompt class ``k`` follows ``policies[k]``.

    Examples
    --------
    >>> easy, hard = iid_policy(zipf(10, 2.0), length=4), iid_policy(zipf(10, 0.5), length=4)
    >>> by_prompt([easy, hard], [0.7, 0.3]).sample(5, rng=0).tokens.shape
    (5, 4)
    """
    shapes = {(p.log_prob.shape, p.length, p.stop) for p in policies}
    if len(shapes) != 1:
        raise ValueError(
            "the policies of the prompt classes must agree in vocabulary, memory, length and stop token"
        )
    weights = tuple(float(w) for w in np.asarray(class_prob, dtype=float))
    laws = np.concatenate([p.log_prob for p in policies])
    return TokenPolicy(laws, policies[0].length, policies[0].stop, weights)


def log_normalise(logits: npt.ArrayLike) -> FloatArray:
    """Log-probabilities of softmax over the last axis."""
    x = np.asarray(logits, dtype=float)
    return np.asarray(x - logsumexp(x, axis=-1, keepdims=True))


def zipf(vocab: int, alpha: float) -> FloatArray:
    """Log-probabilities of Zipf's law ``q(v) ~ rank(v)^(-alpha)``, shape (V,); rank 1 is token 0.

    Examples
    --------
    >>> np.exp(zipf(3, 1.0)).round(4).tolist()
    [0.5455, 0.2727, 0.1818]
    """
    if vocab < 2:
        raise ValueError(f"vocab={vocab}: it must be at least 2")
    if not (np.isfinite(alpha) and alpha >= 0):
        raise ValueError(f"alpha={alpha}: Zipf's exponent must be finite and >= 0")
    return log_normalise(-alpha * np.log(np.arange(1, vocab + 1)))


def markov_with_stationary(
    log_stationary: npt.ArrayLike, *, spread: float = 1.0, persistence: float = 0.0, rng: Rng = None
) -> FloatArray:
    """Transition matrix (V, V), in logs, of a random chain with the given stationary law.

    A random log-normal kernel with log-scale `spread` is scaled to a joint law whose two margins are the
    stationary law (Sinkhorn & Knopp 1967); `persistence` in [0, 1) then mixes in "repeat the previous token".
    ``spread = persistence = 0`` is the i.i.d. chain.

    Examples
    --------
    >>> chain = np.exp(markov_with_stationary(zipf(4, 1.2), persistence=0.2, rng=0))
    >>> law = np.exp(zipf(4, 1.2))
    >>> np.allclose(law @ chain, law)
    True
    """
    rng = np.random.default_rng(rng)
    if not 0 <= persistence < 1:
        raise ValueError(f"persistence={persistence}: it must lie in [0, 1)")
    if not (np.isfinite(spread) and spread >= 0):
        raise ValueError(f"spread={spread}: it must be finite and >= 0")
    log_law = np.asarray(log_stationary, dtype=float)
    kernel = spread * rng.standard_normal((log_law.size, log_law.size))
    column = np.zeros_like(log_law)
    for _ in range(10_000):
        row = -logsumexp(kernel + column + log_law, axis=1)
        update = -logsumexp(kernel + row[:, None] + log_law[:, None], axis=0)
        change = float(np.max(np.abs(update - column)))
        column = update
        if change < 1e-13:
            break
    joint = kernel + row[:, None] + column + log_law
    chain = log_normalise(joint)
    if persistence > 0:
        stay = np.where(np.eye(log_law.size, dtype=bool), np.log(persistence), -np.inf)
        chain = np.logaddexp(chain + np.log1p(-persistence), stay)
    return chain


def draw_classes(
    policy: TokenPolicy, n: int, prompt_class: npt.ArrayLike | None, rng: np.random.Generator
) -> IntArray:
    """Prompt classes (n,): the given ones, checked, or draws from the policy's ``class_prob``."""
    n_classes = policy.log_prob.shape[0]
    if n < 0:
        raise ValueError(f"n={n}: the number of responses must be >= 0")
    if prompt_class is None:
        if n_classes == 1:
            return np.zeros(n, dtype=np.int64)
        return rng.choice(n_classes, size=n, p=np.asarray(policy.class_prob)).astype(np.int64)
    classes = np.asarray(prompt_class, dtype=np.int64)
    if classes.shape != (n,) or (n and (classes.min() < 0 or classes.max() >= n_classes)):
        raise ValueError(f"prompt_class must be {n} integers in 0..{n_classes - 1}")
    return classes


def sample_sums(
    policy: TokenPolicy,
    tables: FloatArray,
    n: int,
    *,
    prompt_class: npt.ArrayLike | None = None,
    rng: Rng = None,
) -> TokenSums:
    """Draw `n` responses and keep only sums of token scores: memory O(n), whatever the length.

    `tables` (K, 1 + S, V, k) are token scores in the layout of ``policy.log_prob``, for instance ``-target.log_prob``
    (the target's surprisal) and ``target.log_prob - policy.log_prob`` (the log importance ratio); `prompt_class` (n,)
    as in `TokenPolicy.sample`.
    """
    rng = np.random.default_rng(rng)
    classes = draw_classes(policy, n, prompt_class, rng)
    scores = _check_tables(policy, tables)
    first, n_tokens = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    sums = np.zeros((n, scores.shape[-1]))
    stop = NO_STOP if policy.stop is None else policy.stop
    state, rows = _seed_state(rng), policy.log_prob.shape[1]
    # A block of tokens stays in the cache between drawing and summing; sums in the drawing loop itself are
    # slower, because the compiler then turns the choice of the alias cell into a branch that is mispredicted
    # half the time.
    block = max(1, min(n, BLOCK_TOKENS // policy.length))
    buffer = np.empty((block, policy.length), dtype=np.int32)
    for start in range(0, n, block):
        part = slice(start, min(start + block, n))
        tokens = buffer[: part.stop - part.start]
        if policy.stop is not None:
            tokens.fill(PADDING)
        kernels.sample(state, policy.alias, rows, classes[part], stop, tokens)
        kernels.token_sums(tokens, classes[part], rows, scores, sums[part], n_tokens[part])
        first[part] = tokens[:, 0]
    return TokenSums(first, n_tokens, sums, classes)


def token_sums(policy: TokenPolicy, tables: FloatArray, responses: Responses) -> FloatArray:
    """Sums of token scores of given responses, shape (n, k); `tables` as in `sample_sums`."""
    scores = _check_tables(policy, tables)
    tokens, classes = responses
    if tokens.ndim != 2 or tokens.shape[1] > policy.length:
        raise ValueError(f"tokens have shape {tokens.shape}; expected (n, at most {policy.length})")
    if tokens.size and (tokens[:, 0].min() < 0 or tokens.max() >= policy.vocab):
        raise ValueError(f"tokens must lie in 0..{policy.vocab - 1} (or be -1 after the end)")
    out = np.zeros((len(tokens), scores.shape[-1]))
    n_tokens = np.empty(len(tokens), dtype=np.int64)
    kernels.token_sums(
        np.ascontiguousarray(tokens, dtype=np.int32), classes, policy.log_prob.shape[1], scores, out, n_tokens
    )
    return out


def _check_tables(policy: TokenPolicy, tables: FloatArray) -> FloatArray:
    scores = np.asarray(tables, dtype=float)
    if scores.shape[:3] != policy.log_prob.shape or scores.ndim != 4:
        raise ValueError(
            f"tables have shape {scores.shape}; expected {policy.log_prob.shape} and a last axis of scores"
        )
    return np.ascontiguousarray(scores.reshape(-1, policy.vocab, scores.shape[-1]))


def _seed_state(rng: np.random.Generator) -> npt.NDArray[np.uint64]:
    return rng.integers(0, 2**64, size=4, dtype=np.uint64)
