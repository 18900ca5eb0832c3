"""Divergences and estimator errors of i.i.d. token policies, in closed form.

Everything is a function of the token laws ``log_p`` (target) and ``log_q`` (logger), arrays (V,) of normalised
log-probabilities in nats, and of the length ``L``. Sequence-level quantities that grow like ``c^L`` are returned in
logs. Notation as in the paper: ``W = pi'(A|X) / pi_0(A|X)``, ``E0`` the expectation under the logger.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from cje_sim.exact.sums import FloatArray, log_minus


def expectation(log_law: FloatArray, values: FloatArray) -> float:
    """Mean of `values` under a law, where impossible tokens (-inf) contribute nothing."""
    possible = log_law > -np.inf
    return float(np.exp(log_law[possible]) @ values[possible])


def variance(log_law: FloatArray, values: FloatArray) -> float:
    """Variance of a token score, for instance of the surprisal ``-log_p``, under a law."""
    return expectation(log_law, (values - expectation(log_law, values)) ** 2)


def entropy(log_p: FloatArray) -> float:
    """Per-token entropy ``H(p)``, nats."""
    return expectation(log_p, -log_p)


def kl(log_p: FloatArray, log_q: FloatArray) -> float:
    """Per-token ``KL(p || q)``, nats; of sequences of length L it is L times as large.

    Examples
    --------
    >>> round(kl(np.log([0.5, 0.5]), np.log([0.25, 0.75])), 6)
    0.143841
    """
    _check_pair(log_p, log_q)
    return expectation(log_p, log_p - log_q)


def log1p_chi2(log_p: FloatArray, log_q: FloatArray) -> float:
    """``log(1 + chi2(p || q)) = log E0[w^2]`` of one token; for L tokens it is L times as large.

    Examples
    --------
    >>> round(float(np.exp(log1p_chi2(np.log([0.5, 0.5]), np.log([0.25, 0.75])))), 6)
    1.333333
    """
    _check_pair(log_p, log_q)
    possible = log_p > -np.inf
    return float(logsumexp(2 * log_p[possible] - log_q[possible]))


def log_limit_ess(log_p: FloatArray, log_q: FloatArray, length: int) -> float:
    """Log of the limit of ESS/n, ``1 / E0[W^2] = (1 + chi2)^(-L)``; the ESS fraction of infinitely many rows."""
    return -length * log1p_chi2(log_p, log_q)


def chi2_law(log_p: FloatArray, log_q: FloatArray) -> FloatArray:
    """The token law ``m ~ p^2 / q``, under which ``E0[W^2 1_T] = (1 + chi2)^L m^L(T)`` for every region T."""
    _check_pair(log_p, log_q)
    weight = np.where(log_p > -np.inf, 2 * log_p - log_q, -np.inf)
    return np.asarray(weight - logsumexp(weight))


def log_draws_needed(log_p: FloatArray, log_q: FloatArray, length: int, power: int) -> float:
    """Log of the number of logged responses that a mean of ``W^power`` needs before it shows its expectation.

    That of ``E0[W^k]`` is carried by responses of the law ``r ~ p^k q^(1-k)``, and a mean of m draws from q is near 0
    with probability near 1 as long as ``log m`` is below ``L KL(r || q)`` (Chatterjee and Diaconis 2018, Theorem 1.1,
    with r as their target). The simulated variance of IPS rests on k = 2, its Monte Carlo error on k = 4.

    Examples
    --------
    >>> round(log_draws_needed(np.log([0.5, 0.5]), np.log([0.25, 0.75]), 10, 2), 6)
    5.493061
    """
    _check_pair(log_p, log_q)
    weight = np.where(log_p > -np.inf, power * log_p + (1 - power) * log_q, -np.inf)
    return length * kl(np.asarray(weight - logsumexp(weight)), log_q)


def collapse_margin(log_p: FloatArray, log_q: FloatArray) -> float:
    """Which way one-sided TTC goes: ``E_q[-log p] - H(p)``, nats per token.

    Positive: logger text is less typical for the target than the target's own, and TTC falls to 0 exponentially in L.
    Negative: logger text looks *more* typical, and TTC tends to 1 whatever KL and chi2 are.
    """
    return expectation(log_q, -log_p) - entropy(log_p)


class RewardErrors(NamedTuple):
    """Exact errors for ``Y = u(a_1) + noise``: value V(pi'), and log standard errors at the given n.

    Of SNIPS they are first-order (delta method), ``E0[W^2 (Y - V)^2] / n`` and ``-E0[W^2 (Y - V)] / n``, and mean
    something only while they are small.
    """

    value: float
    log_se_ips: float
    log_se_snips: float
    log_se_direct: float
    snips_bias: float


def first_token_errors(
    log_p: FloatArray, log_q: FloatArray, utility: FloatArray, noise_sd: npt.ArrayLike, length: int, n: int
) -> RewardErrors:
    """Exact errors of IPS, SNIPS and Direct with exact weights for a reward of the first token.

    ``Y = u(a_1) + noise_sd(a_1) * e``, as in the paper's simulation of TTC collapse. IPS is unbiased with
    ``n SE^2 = (1 + chi2)^(L-1) sum_v p(v)^2/q(v) (u(v)^2 + noise_sd(v)^2) - V^2``; Direct is the mean of n fresh
    draws from the target, judged without error. `utility` (V,) and `noise_sd` (a number, or (V,)), mean and standard
    deviation of the outcome given the first token, are in units of Y; `length` tokens in each of `n` responses.
    """
    value = expectation(log_p, utility)
    noise = np.broadcast_to(np.asarray(noise_sd, dtype=float) ** 2, utility.shape)
    second = log1p_chi2(log_p, log_q)
    log_n = np.log(n)
    m = chi2_law(log_p, log_q)
    log_e_w2 = length * second
    log_e_w2y2 = log_e_w2 + _log(expectation(m, utility**2 + noise))
    log_var_ips = log_minus(log_e_w2y2, 2 * np.log(abs(value)) if value else -np.inf)
    log_var_snips = log_e_w2 + _log(expectation(m, (utility - value) ** 2 + noise))
    tilted = expectation(m, utility) - value
    with np.errstate(over="ignore"):  # an astronomically large bias is reported as infinite
        bias = float(-np.sign(tilted) * np.exp(log_e_w2 + np.log(abs(tilted)) - log_n)) if tilted else 0.0
    return RewardErrors(
        value,
        float((log_var_ips - log_n) / 2),
        float((log_var_snips - log_n) / 2),
        float((_log(expectation(log_p, (utility - value) ** 2 + noise)) - log_n) / 2),
        bias,
    )


def _log(x: float) -> float:
    return float(np.log(x)) if x > 0 else float(-np.inf)


def _check_pair(log_p: FloatArray, log_q: FloatArray) -> None:
    if log_p.shape != log_q.shape or log_p.ndim != 1:
        raise ValueError(f"token laws have shapes {log_p.shape} and {log_q.shape}; both must be (V,)")
    if np.any((log_p > -np.inf) & (log_q == -np.inf)):
        raise ValueError(
            "the logger gives probability 0 to a token of the target: importance weights do not exist"
        )
