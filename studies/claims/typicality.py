"""Target-typicality coverage (TTC) of long responses: when it collapses, at which rate, and what it does not show.

Tokens are i.i.d.; L of them make a response. Exact laws of sums by convolution of atoms or FFT (`cje_sim.exact`).
``margin = E_q[-log p] - H(p)``: the logger's cross-entropy less the target's entropy, nats per token.
"""

import itertools
import math

import numpy as np

from cje_sim.exact import divergences, sums, typicality
from cje_sim.targets.tilts import token_tilt, utilities
from cje_sim.tokens.laws import iid_policy, zipf
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.worlds import Family, FloatArray, masses, number, over_worlds

LEVEL = 0.9
SLOWEST = 1e-6  # share of KL that a rate must reach to be told from 0
TENTH = 0.1
GATE = 0.7  # the paper's on TTC
VOCAB, ZIPF = 1000, 1.2


def token_world(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Masses of `size` tokens under target and logger."""
    p, q = z.reshape(2, size)
    return {"target": np.exp(p / 2).tolist(), "logger": np.exp(q / 2).tolist()}


TOKENS = Family((2, 3), lambda size: 2 * size, token_world)


def laws(w: Params) -> tuple[FloatArray, FloatArray]:
    """Log-laws of target and logger; they differ, and every token has mass."""
    p, q = masses(w["target"]), masses(w["logger"])
    if not (p.min() > 1e-4 and q.min() > 1e-4):
        raise ClaimError("a token has no mass")
    p, q = np.log(p), np.log(q)
    if not divergences.kl(p, q) > 1e-3:
        raise ClaimError("target and logger agree")
    return p, q


def rate_against_kl(w: Params, share: float, two_sided: bool = False) -> Sides:
    """A share of KL against the rate of collapse."""
    p, q = laws(w)
    rate = typicality.collapse_rate(p, q, two_sided=two_sided)
    return Sides(share * divergences.kl(p, q), max(rate, 0.0))


def margin_above(w: Params, two_sided: bool = False) -> Params:
    """The same world, if its margin (its absolute value) is at least a tenth of KL."""
    p, q = laws(w)
    margin = divergences.collapse_margin(p, q)
    if (abs(margin) if two_sided else margin) < TENTH * divergences.kl(p, q):
        raise ClaimError("the margin is too small")
    return w


def at_lengths(w: Params, two_sided: bool = False, lengths: tuple[int, int] = (50, 400)) -> Sides:
    """TTC at the longer length against half of it at the shorter, by convolution of the atoms of the sums."""
    p, q = laws(w)
    short, long = (typicality.coverage(p, q, n, level=LEVEL, two_sided=two_sided).ttc for n in lengths)
    return Sides(long, 0.5 * short)


def slow(w: Params) -> Sides:
    """A hundredth of KL against the slope of ``-log TTC`` between 3,200 and 6,400 tokens, by FFT.

    A slope, because the level's edge and the density's factor fade from the mean only like 1 / sqrt(L).
    """
    p, q = laws(w)
    found = [typicality.coverage(p, q, n, level=LEVEL).log_beta for n in (3200, 6400)]
    return Sides(0.01 * divergences.kl(p, q), (found[0] - found[1]) / 3200)


def _collapsing(w: Params) -> Sides:
    """A hundredth of KL against the rate, where it is positive."""
    sides = rate_against_kl(w, 0.01)
    if not sides.right > 1e-9:
        raise ClaimError("TTC does not collapse")
    return sides


def _rate_below(w: Params) -> Sides:
    """The rate of the two-sided region against KL; a target within rounding of uniform has no rate to compute."""
    p, _ = laws(w)
    if np.ptp(p) < 1e-2:
        raise ClaimError("the surprisal is constant")
    sides = rate_against_kl(w, 1.0, two_sided=True)
    return Sides(sides.right, sides.left)


def chernoff(w: Params) -> Sides:
    """TTC at 30 tokens against ``exp(-L I_q(edge))``, where the edge lies below the logger's mean surprisal."""
    p, q = laws(w)
    found = typicality.coverage(p, q, 30, level=LEVEL)
    edge = found.region.high / 30
    if edge >= divergences.expectation(q, -p):
        return Sides(found.ttc, 1.0)
    return Sides(found.ttc, math.exp(-30 * sums.cramer_rate(-p, q, edge)))


def ratio_region(w: Params) -> Sides:
    """Logger mass of ``{log W >= c}`` against ``alpha exp(-c)``, sequences of 8 tokens, by convolution."""
    p, q = laws(w)
    c = w["edge"] * 8
    alpha, beta = (math.exp(sums.log_cdf(q - p, law, 8, -c).value) for law in (p, q))  # -log W <= -c
    if not alpha > 1e-12:
        raise ClaimError("the region is empty")
    return Sides(beta, alpha * math.exp(-c))


def ratio_world(z: FloatArray, size: int) -> dict[str, object]:
    """Tokens, and the edge c / L of the region."""
    return {**token_world(z[:-1], size), "edge": 0.3 * float(z[-1])}


def decide_rate(trial: Trial) -> Evidence:
    """Slope of log TTC in L at lengths where it is below 1e-30, against Cramer's rate."""
    p = token_tilt(iid_policy(zipf(VOCAB, ZIPF), 1), -utilities("aligned", VOCAB, rng=0), -0.5).log_prob[0, 0]
    q = zipf(VOCAB, ZIPF)
    if divergences.collapse_margin(p, q) <= 0:
        p, q = q, p
    rate = typicality.collapse_rate(p, q) * (1.5 if trial.planted else 1.0)
    points = trial.size(2**14, 2**14, 2**16)
    lengths = [round(x / rate) for x in (100, 200, 400, 800)]
    logs = [typicality.coverage(p, q, n, level=LEVEL, points=points).log_beta for n in lengths]
    slope = [
        -(b - a) / (m - n) for a, b, n, m in zip(logs[:-1], logs[1:], lengths[:-1], lengths[1:], strict=True)
    ]
    # The edge is H(p) + z sd / sqrt(L) and the density's factor falls like 1 / sqrt(L): slopes approach like 1/sqrt(L).
    distance = [abs(s / rate - 1) for s in slope]
    falls = all(b < a for a, b in itertools.pairwise(distance))
    x = np.array([1 / math.sqrt((a + b) / 2) for a, b in itertools.pairwise(lengths)])
    limit = float(np.polyfit(x, slope, 1)[1])
    good = falls and abs(limit / rate - 1) < 0.02
    text = (
        f"Cramer's rate is {number(rate)} nats per token, KL {number(divergences.kl(p, q))}. At lengths "
        f"{', '.join(map(str, lengths))} log10 TTC is {', '.join(f'{v / math.log(10):.1f}' for v in logs)}; "
        f"slopes between "
        f"them are {', '.join(f'{s / rate:.4f}' for s in slope)} of the rate, and tend to {limit / rate:.4f} of it as "
        "they are extrapolated in 1/sqrt(L)."
    )
    return Evidence(
        holds=good,
        measured=f"limit of the slopes {limit / rate:.4f} of the rate, at TTC down to 1e{logs[-1] / math.log(10):.0f}",
        expected="1 within 2%",
        text=text,
        curve={"log10 TTC": [(n, v / math.log(10)) for n, v in zip(lengths, logs, strict=True)]},
        axes=("tokens", "log10 TTC"),
    )


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="prop-ttc-collapse",
        source="Proposition (exponential collapse of logger coverage), prop:ttc-collapse, read with the surprisal "
        "region of Section 2",
        statement=r"whenever $KL(p\|q) > 0$, TTC $\le \exp(-\Omega(L))$: its rate per token is positive",
        why=r"T is one-sided: low surprisal under the target. By the law of large numbers TTC falls only if the "
        r"logger's "
        r"text is less typical than the target's own, $E_q[-\log p] > H(p)$; then the rate is Cramér's $I_q(H(p))$. A "
        r"target with more entropy than the logger finds the logger's text more typical than its own, and TTC "
        r"tends to 1.",
        rule="rate per token against a millionth of KL: random token laws, then an optimiser; then exact TTC at "
        "two lengths",
        family=TOKENS,
        sides=lambda w: rate_against_kl(w, SLOWEST),
        second=at_lengths,
        route="exact TTC at 400 tokens against half of that at 50",
        condition=r"$E_q[-\log p] - H(p)$ is positive (here: at least a tenth of KL)",
        restrict=margin_above,
        planted="ten times KL as the rate",
        falsified=lambda s: Sides(s.left / SLOWEST * 10, s.right),
    ),
    over_worlds(
        name="ttc-rate-in-kl",
        source="prop:ttc-collapse, 'exp(-Omega(L delta))' and '(...) tiny per-token KL (...)': the constant",
        statement=r"where TTC collapses at all, its rate is at least a hundredth of $\delta = KL(p\|q)$",
        why=r"The rate is $I_q(H(p))$, which tends to 0 with the margin at any $\delta$: no constant serves all "
        r"laws, so "
        r"$\delta$ alone says nothing about TTC.",
        family=TOKENS,
        sides=_collapsing,
        second=slow,
        route="the slope of log TTC between 3,200 and 6,400 tokens as the rate",
        planted="a hundred times as fast",
        falsified=lambda s: Sides(100 * s.left, s.right),
    ),
    over_worlds(
        name="ttc-rate-below-kl",
        source="ours: beside prop:ttc-collapse",
        statement=r"the rate of collapse is at most $KL(p\|q)$",
        why=r"The target itself has mean surprisal $H(p)$, so it is a candidate in Sanov's infimum. Equality for the "
        r"logger at another temperature, the exponential family of the surprisal.",
        family=TOKENS,
        sides=_rate_below,
        planted="half of KL",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="ttc-chernoff",
        source="ours: in place of prop:ttc-collapse",
        statement=r"TTC $\le \exp(-L\, I_q(t))$ at every length, $t$ the region's edge per token, wherever "
        r"$t < E_q[-\log p]$",
        why=r"Chernoff's bound for the logger's mean surprisal; $I_q$ is Cramér's rate. As $t \to H(p)$ it is the "
        r"proposition with its condition and its constant.",
        family=Family((2,), lambda size: 2 * size, token_world, 0.3),
        sides=chernoff,
        repairs="prop-ttc-collapse",
        planted="half the bound",
        falsified=lambda s: Sides(s.left, 0.2 * s.right),
    ),
    over_worlds(
        name="ttc-two-sided",
        source="ours: does a two-sided region repair prop:ttc-collapse?",
        statement=r"TTC of $\{|\bar\ell - H(p)| \le d\}$ falls exponentially whenever $KL(p\|q) > 0$",
        why=r"Its rate is $I_q(H(p))$ whatever the margin's sign, and 0 only where the margin is 0: a uniform "
        r"target has "
        r"constant surprisal and finds everything typical.",
        rule="rate per token against a millionth of KL; then exact TTC at two lengths",
        family=TOKENS,
        sides=lambda w: rate_against_kl(w, SLOWEST, two_sided=True),
        second=lambda w: at_lengths(w, two_sided=True),
        route="exact TTC at 400 tokens against half of that at 50",
        condition=r"$E_q[-\log p] \ne H(p)$ (here: by a tenth of KL)",
        restrict=lambda w: margin_above(w, two_sided=True),
        planted="ten times KL as the rate",
        falsified=lambda s: Sides(s.left / SLOWEST * 10, s.right),
    ),
    over_worlds(
        name="ttc-ratio-region",
        source="prop:ttc-collapse with the region of its printed sketch (log-likelihood ratios concentrate)",
        statement=r"for $T = \{\log W \ge c\}$, $\beta \le \alpha e^{-c}$; with $c = L(\delta - \epsilon)$, "
        r"$\alpha \to 1$ "
        r"and the logger's mass is at most $e^{-L(\delta - \epsilon)}$",
        why=r"$\beta = E_{\pi'}[W^{-1} 1_T] \le e^{-c} \alpha$, and $\log W / L \to \delta$ under the target. "
        r"This is the "
        r"collapse in KL that the proposition states; its sketch speaks of this region, typical in the ratio, "
        r"and Section 2 of another, typical in the surprisal.",
        family=Family((2, 3), lambda size: 2 * size + 1, ratio_world, 0.3),
        sides=ratio_region,
        repairs="prop-ttc-collapse",
        planted="half the bound",
        falsified=lambda s: Sides(s.left, 0.2 * s.right),
    ),
    Claim(
        name="ttc-cramer-rate",
        source="ours: beside prop:ttc-collapse",
        statement=r"where the margin is positive, $-\log TTC / L \to I_q(H(p))$",
        rule="exact log TTC by tilted FFT at four lengths, slopes extrapolated in 1/sqrt(L)",
        why=r"Cramér's theorem for the logger's surprisal at the target's entropy; the region's edge and Bahadur and "
        r"Rao's factor add terms of order $1/\sqrt{L}$.",
        decide=decide_rate,
        planted="1.5 times the rate",
    ),
)
