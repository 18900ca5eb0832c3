"""Target policies that act on whole responses: tilt by a count, mixture of policies, best of n.

Each has ``sample``, ``score`` (exact log-probabilities) and ``divergence`` (exact KL and chi-square from its `base`).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, log_ndtr, logsumexp

from cje_sim.exact.markov import PATH_POINTS, Divergence, divergence
from cje_sim.exact.paths import Paths
from cje_sim.exact.sums import exact_sums, iid_lattice
from cje_sim.targets.tilts import checked_utility, indicator, positive
from cje_sim.tokens.laws import FloatArray, Responses, Rng, TokenPolicy, iid_policy, log_normalise


@dataclass(frozen=True)
class CountTilt:
    """Sequence-level tilt for a reward of how many tokens lie in a set: ``pi_0 exp(g(N) / beta) / Z``.

    ``N`` is binomial under the logger, so ``Z = sum_k Binomial(k) exp(g(k) / beta)`` is exact for any g, linear or
    not (say a reward that saturates, or one for exactly three list items).
    """

    base: TokenPolicy  # logger with i.i.d. tokens of fixed length
    tokens: tuple[int, ...]  # the set
    reward: FloatArray  # (L + 1,): g(k) for k = 0..L tokens in the set
    beta: float  # regularisation, > 0

    def __post_init__(self) -> None:
        """Refuse what has no exact normaliser."""
        if not self.base.is_iid:
            raise ValueError(
                "CountTilt needs a logger with i.i.d. tokens of fixed length and one prompt class"
            )
        if np.shape(self.reward) != (self.base.length + 1,) or not np.isfinite(self.reward).all():
            raise ValueError(
                f"reward must be L + 1 = {self.base.length + 1} finite numbers, for 0..L tokens in the set"
            )
        positive("beta", self.beta)
        if self._inside.all():
            raise ValueError("the set holds every token; leave at least one out")

    @cached_property
    def _inside(self) -> npt.NDArray[np.bool_]:
        return indicator(self.base.vocab, self.tokens) > 0

    @cached_property
    def log_count_law(self) -> FloatArray:
        """Log-probabilities of the count under the logger, binomial, shape (L + 1,)."""
        law, length = self.base.log_prob[0, 0], self.base.length
        k = np.arange(length + 1)
        choose = gammaln(length + 1) - gammaln(k + 1) - gammaln(length - k + 1)
        return np.asarray(
            choose + k * logsumexp(law[self._inside]) + (length - k) * logsumexp(law[~self._inside])
        )

    @cached_property
    def log_z(self) -> float:
        """Log of the normaliser."""
        return float(logsumexp(self.log_count_law + self.reward / self.beta))

    def sample(self, n: int, *, rng: Rng = None) -> Responses:
        """Draw counts from their tilted law, then places uniformly, then tokens from the logger's law given both."""
        rng = np.random.default_rng(rng)
        length, law = self.base.length, self.base.log_prob[0, 0]
        count_law = np.exp(self.log_count_law + self.reward / self.beta - self.log_z)
        counts = rng.choice(length + 1, size=n, p=count_law / count_law.sum())
        chosen = rng.random((n, length)).argsort(axis=1).argsort(axis=1) < counts[:, None]
        parts = [
            iid_policy(log_normalise(np.where(keep, law, -np.inf)), length).sample(n, rng=rng).tokens
            for keep in (self._inside, ~self._inside)
        ]
        return Responses(np.where(chosen, *parts), np.zeros(n, dtype=np.int64))

    def score(self, responses: Responses) -> FloatArray:
        """Exact log-probability of each response, nats, shape (n,)."""
        counts = self._inside[responses.tokens].sum(axis=1)
        return np.asarray(self.base.score(responses) + self.reward[counts] / self.beta - self.log_z)

    def divergence(self) -> Divergence:
        """Exact sequence-level KL and chi-square from the logger."""
        tilt = self.reward / self.beta - self.log_z
        kl = float(np.exp(self.log_count_law + tilt) @ tilt)
        return Divergence(kl, float(logsumexp(self.log_count_law + 2 * tilt)), float(self.base.length))


@dataclass(frozen=True)
class EpsilonMixture:
    """Whole responses from `other` with probability epsilon, else from the logger.

    Its weights are at least ``1 - epsilon``, and yet chi-square grows with length as that of `other` does.
    """

    base: TokenPolicy
    other: TokenPolicy
    epsilon: float

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon={self.epsilon}: it must lie in (0, 1)")

    def sample(self, n: int, *, rng: Rng = None) -> Responses:
        """Draw `n` responses."""
        rng = np.random.default_rng(rng)
        mine = self.base.sample(n, rng=rng)
        theirs = self.other.sample(n, prompt_class=mine.prompt_class, rng=rng)
        pick = rng.random(n) < self.epsilon
        return Responses(np.where(pick[:, None], theirs.tokens, mine.tokens), mine.prompt_class)

    def score(self, responses: Responses) -> FloatArray:
        """Exact log-probability of each response, nats, shape (n,)."""
        mine, theirs = self.base.score(responses), self.other.score(responses)
        return np.asarray(np.logaddexp(np.log1p(-self.epsilon) + mine, np.log(self.epsilon) + theirs))

    def divergence(self, *, points: int = PATH_POINTS) -> Divergence:
        """Sequence-level KL and chi-square from the logger.

        ``E0[W^2] = (1 - e)^2 + 2 e (1 - e) + e^2 E0[R^2]`` exactly, R the ratio of `other` to the logger. KL is
        ``E log(1 - e + e R)`` over the law of log R, by its atoms or by FFT (then accurate to second order in the
        spacing of `points`).
        """
        far, e = divergence(self.other, self.base), self.epsilon
        back = divergence(self.base, self.base).mean_length
        log_second = float(np.logaddexp(np.log1p(-(e**2)), 2 * np.log(e) + far.log1p_chi2))
        kl = 0.0
        for k, weight in enumerate(self.base.class_prob):
            for share, policy in ((1 - e, self.base), (e, self.other)):
                ratio, mass = _log_ratio_law(self.base, self.other, policy, k, points)
                kl += weight * share * float(mass @ np.logaddexp(np.log1p(-e), np.log(e) + ratio))
        return Divergence(kl, log_second, (1 - e) * back + e * far.mean_length)


@dataclass(frozen=True)
class BestOfN:
    """The best of n logger responses by a reward of the first token, ``R = u(a_1) + noise_sd * z``, z ~ N(0, 1).

    With noise the reward is continuous and the density ratio of (response, reward) is exactly ``n F(R)^(n-1)``, F
    the reward's distribution function under the logger; ``KL = log n - (n-1)/n`` and ``1 + chi2 = n^2 / (2n-1)``
    whatever the reward (one prompt class or many). Without noise ties are broken at random and the ratio is
    ``(F(R)^n - F(R-)^n) / (F(R) - F(R-))``.
    """

    base: TokenPolicy
    utility: FloatArray  # (V,)
    n: int  # candidates per response, at least 1
    noise_sd: float = 0.0  # standard deviation of the reward's continuous part, >= 0

    def __post_init__(self) -> None:
        """Check sizes."""
        checked_utility(self.base, self.utility)
        if self.n < 1:
            raise ValueError(f"n={self.n}: best of n needs n >= 1")
        if not (np.isfinite(self.noise_sd) and self.noise_sd >= 0):
            raise ValueError(f"noise_sd={self.noise_sd}: it must be finite and >= 0")

    @cached_property
    def marginal(self) -> TokenPolicy:
        """The law of the tokens alone: a token policy whose first token has another law."""
        first = np.stack([self._first_token(np.exp(law)) for law in self.base.log_prob[:, 0]])[:, None]
        return replace(
            self.base, log_prob=np.concatenate([log_normalise(first), self.base.log_prob[:, 1:]], axis=1)
        )

    def sample(self, n: int, *, rng: Rng = None) -> Responses:
        """Draw `n` responses (tokens only; `sample_with_reward` gives the reward too)."""
        return self.marginal.sample(n, rng=rng)

    def score(self, responses: Responses) -> FloatArray:
        """Exact log-probability of each response's tokens, nats, shape (n,)."""
        return self.marginal.score(responses)

    def sample_with_reward(self, n: int, *, rng: Rng = None) -> tuple[Responses, FloatArray]:
        """Draw `n` responses as the definition says, from n candidates each, with the winner's reward."""
        rng = np.random.default_rng(rng)
        winners = self.base.sample(n, rng=rng)
        best = self.utility[winners.tokens[:, 0]] + self.noise_sd * rng.standard_normal(n)
        tokens = winners.tokens.copy()
        ties = np.ones(n)
        for _ in range(self.n - 1):
            rival = self.base.sample(n, prompt_class=winners.prompt_class, rng=rng).tokens
            reward = self.utility[rival[:, 0]] + self.noise_sd * rng.standard_normal(n)
            ties = np.where(reward > best, 1.0, ties + (reward == best))
            better = (reward > best) | ((reward == best) & (rng.random(n) < 1 / ties))
            best = np.where(better, reward, best)
            tokens[better] = rival[better]
        return Responses(tokens, winners.prompt_class), best

    def log_ratio(self, reward: npt.ArrayLike, prompt_class: int = 0) -> FloatArray:
        """Log density ratio to the logger of a response with the given reward (see the class)."""
        r = np.asarray(reward, dtype=float)
        log_law = self.base.log_prob[prompt_class, 0]
        if self.noise_sd > 0:
            log_cdf = logsumexp(log_law + log_ndtr((r[..., None] - self.utility) / self.noise_sd), axis=-1)
            return np.asarray(np.log(self.n) + (self.n - 1) * log_cdf)
        law = np.exp(log_law)
        upto, below = (np.where(self.utility <= r[..., None] - s, law, 0.0).sum(-1) for s in (0.0, 1e-12))
        return np.asarray(_log_tie_ratio(upto, below, self.n))

    def divergence(self) -> Divergence:
        """KL and chi-square of (response, reward) from the logger's; without noise, of the tokens."""
        of_tokens = divergence(self.marginal, self.base)
        if self.noise_sd == 0:
            return of_tokens
        kl, chi2 = np.log(self.n) - (self.n - 1) / self.n, 2 * np.log(self.n) - np.log(2 * self.n - 1)
        return Divergence(float(kl), float(chi2), of_tokens.mean_length)

    def _first_token(self, law: FloatArray) -> FloatArray:
        """Log-law of the first token of the winner, up to a constant."""
        u, sd = self.utility, self.noise_sd
        if sd == 0:
            _, group = np.unique(u, return_inverse=True)
            upto = np.cumsum(np.bincount(group, law)).astype(float)
            below = np.concatenate([[0.0], upto[:-1]])
            return np.asarray(np.log(law) + _log_tie_ratio(upto, below, self.n)[group])
        # The trapezoid rule is accurate to rounding for Gaussian integrands at this spacing.
        grid = np.arange(u.min() - 9 * sd, u.max() + 9 * sd, sd / 12)
        with np.errstate(divide="ignore"):
            log_law = np.log(law)
        parts = np.array_split(np.arange(len(u)), max(1, len(u) * len(grid) // 2**22))

        def z(part: npt.NDArray[np.intp]) -> FloatArray:
            return np.asarray((grid[:, None] - u[part]) / sd)

        cdfs = [logsumexp(log_law[part] + log_ndtr(z(part)), axis=1) for part in parts]
        others = (self.n - 1) * np.logaddexp.reduce(cdfs)[:, None]
        log_mean = np.concatenate([logsumexp(others - z(part) ** 2 / 2, axis=0) for part in parts])
        return np.asarray(log_law + log_mean)


def _log_tie_ratio(upto: FloatArray, below: FloatArray, n: int) -> FloatArray:
    """``log (F^n - G^n) / (F - G)`` as ``log sum_k F^k G^(n-1-k)``, which does not cancel."""
    k = np.arange(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_f, log_g = np.log(upto)[..., None], np.log(below)[..., None]
        powers = np.where(k > 0, k * log_f, 0.0) + np.where(n - 1 - k > 0, (n - 1 - k) * log_g, 0.0)
    return np.asarray(logsumexp(powers, axis=-1))


def _log_ratio_law(
    base: TokenPolicy, other: TokenPolicy, policy: TokenPolicy, k: int, points: int
) -> tuple[FloatArray, FloatArray]:
    """Values and masses of ``log other(a) / base(a)`` under `policy`, for prompt class k."""
    if base.log_prob.shape != other.log_prob.shape:
        raise ValueError(
            f"token laws have shapes {base.log_prob.shape} and {other.log_prob.shape}; they must agree"
        )
    ratio, law = other.log_prob[k] - base.log_prob[k], policy.log_prob[k]
    if base.is_iid and other.is_iid:
        atoms = exact_sums(ratio[0], law[0], base.length)
        if atoms is not None:
            return atoms[0], np.exp(atoms[1])
        lattice = iid_lattice(ratio[0], law[0], base.length, 0.0, max(points, 2**16))
        return lattice.at, lattice.mass
    paths = Paths(law, ratio, base.length, base.stop)
    listed = paths.atoms()
    if listed is not None:
        return np.concatenate([s for _, s, _ in listed]), np.exp(np.concatenate([m for *_, m in listed]))
    lattice = paths.lattice(0.0, points)
    return lattice.at, lattice.mass
