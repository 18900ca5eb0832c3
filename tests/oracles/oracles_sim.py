"""Slow, obvious second implementations for cje_sim: enumeration of every sequence, loops over tokens."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from cje_sim.tokens.laws import Responses, TokenPolicy


def sequences(policy: TokenPolicy) -> list[tuple[int, ...]]:
    """Every response the policy can give: all of full length, or ended by the stop token."""
    out = []
    for a in itertools.product(range(policy.vocab), repeat=policy.length):
        if policy.stop is not None and policy.stop in a:
            a = a[: a.index(policy.stop) + 1]
        out.append(a)
    return sorted(set(out))


def as_responses(listed: list[tuple[int, ...]], prompt_class: int = 0) -> Responses:
    """Pad with -1."""
    width = max(len(a) for a in listed)
    tokens = np.array([a + (-1,) * (width - len(a)) for a in listed], dtype=np.int32)
    return Responses(tokens, np.full(len(listed), prompt_class))


def log_prob(policy: TokenPolicy, a: tuple[int, ...], prompt_class: int = 0) -> float:
    """Chain rule, one token at a time."""
    laws = policy.log_prob[prompt_class]
    rows, entry = len(laws), laws.item  # Python's floats: sums of NumPy's take twice the time
    total = entry(0, a[0])
    for past, token in itertools.pairwise(a):
        total += entry(1 if rows == 2 else 1 + past, token)
    return total


def expectation(policy: TokenPolicy, f: Callable[[tuple[int, ...]], float], prompt_class: int = 0) -> float:
    """Mean of f over every sequence."""
    return math.fsum(math.exp(log_prob(policy, a, prompt_class)) * f(a) for a in sequences(policy))


def quantile(values: list[float], masses: list[float], level: float) -> float:
    """Smallest value whose distribution function reaches the level (equal values pooled to 1e-9)."""
    total = 0.0
    ranked = sorted(zip(values, masses, strict=True))
    for i, (value, mass) in enumerate(ranked):
        total += mass
        last_of_its_atom = i + 1 == len(ranked) or ranked[i + 1][0] > value + 1e-9
        if total >= level - 1e-12 and last_of_its_atom:
            return value
    raise AssertionError("masses do not sum to one")


def coverage(target: TokenPolicy, logger: TokenPolicy, level: float, two_sided: bool) -> dict[str, float]:
    """Alpha, beta, E0[W^2 1_T], chi2 inside T and the edge of the typical region, by listing all
    sequences.
    """
    listed = sequences(target)
    log_p = [log_prob(target, a) for a in listed]
    log_q = [log_prob(logger, a) for a in listed]
    score = [-lp / len(a) for a, lp in zip(listed, log_p, strict=True)]
    if two_sided:
        tokens = sum(math.exp(lp) * len(a) for a, lp in zip(listed, log_p, strict=True))
        entropy = -sum(math.exp(lp) * lp for lp in log_p) / tokens
        score = [abs(s - entropy) for s in score]
    edge = quantile(score, [math.exp(v) for v in log_p], level)
    inside = [i for i, s in enumerate(score) if s <= edge + 1e-9]
    alpha = math.fsum(math.exp(log_p[i]) for i in inside)
    beta = math.fsum(math.exp(log_q[i]) for i in inside)
    chi2 = math.fsum((math.exp(log_p[i]) / alpha) ** 2 / (math.exp(log_q[i]) / beta) for i in inside) - 1
    second = math.fsum(math.exp(2 * log_p[i] - log_q[i]) for i in inside)
    return {"edge": edge, "alpha": alpha, "beta": beta, "chi2": chi2, "second": second}
