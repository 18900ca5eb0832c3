"""Target-typicality coverage (TTC) of long responses: when it collapses, at which rate, and what it does not show.

Tokens are i.i.d.; L of them make a response. Exact laws of sums by convolution of atoms or FFT (`cje_sim.exact`).
``margin = E_q[-log p] - H(p)``: the logger's cross-entropy less the target's entropy, nats per token.
"""

import itertools
import math

import numpy as np

from cje_core.streams import generator
from cje_sim.exact import divergences, sums, typicality
from cje_sim.targets.tilts import temperature, token_tilt, utilities
from cje_sim.tokens.laws import iid_policy, sample_sums, zipf
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided, first_broken
from studies.ledger.worlds import Family, FloatArray, batches, masses, number, over_worlds

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


def gate_world(z: FloatArray, size: int) -> dict[str, float]:
    """A temperature and a length, for Zipf tokens."""
    return {"temperature": float(np.exp(z[0] / 4)), "length": int(np.clip(np.exp(4 + z[1]), 5, 800))}


def hot(w: Params) -> tuple[FloatArray, FloatArray]:
    """Zipf tokens at a temperature, and at 1."""
    q = iid_policy(zipf(VOCAB, ZIPF), int(w["length"]))
    if not 0.2 < w["temperature"] < 5:
        raise ClaimError("the temperature is out of range")
    return temperature(q, w["temperature"]).log_prob[0, 0], q.log_prob[0, 0]


def gate_passed(w: Params) -> Sides:
    """Nats lost in ESS/n where TTC passes the gate, against those that leave a hundredth."""
    p, q = hot(w)
    found = typicality.coverage(p, q, int(w["length"]), level=LEVEL, points=2**13)
    if found.ttc < 0.7:
        raise ClaimError("TTC is below the gate")
    return Sides(-divergences.log_limit_ess(p, q, int(w["length"])), math.log(100))


def gate_by_simulation(w: Params) -> Sides:
    """The same from 20,000 simulated responses for TTC, and the token sum of ``p^2 / q`` in plain numbers."""
    p, q = hot(w)
    length = int(w["length"])
    rng = generator(0, "claims", "typicality", "gate")
    logger, target = iid_policy(q, length), iid_policy(p, length)
    table = np.broadcast_to(-p, logger.log_prob.shape)[..., None]
    edge = np.quantile(sample_sums(target, table, 20_000, rng=rng).sums[:, 0], LEVEL)
    ttc = float((sample_sums(logger, table, 20_000, rng=rng).sums[:, 0] <= edge).mean())
    if ttc < 0.7:
        return Sides(0.0, math.log(100))
    return Sides(length * math.log(float((np.exp(p) ** 2 / np.exp(q)).sum())), math.log(100))


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


def figure_row(kind: str, seed: int, points: int) -> dict[tuple[float, int], float]:
    """TTC at the figure's lengths and tilts, for one draw of utilities."""
    q = zipf(VOCAB, ZIPF)
    u = utilities(kind, VOCAB, rng=seed)
    out: dict[tuple[float, int], float] = {}
    for eta in (0.1, 0.3, 0.5):
        p = token_tilt(iid_policy(q, 1), u, eta).log_prob[0, 0]
        out |= {
            (eta, n): typicality.coverage(p, q, n, level=LEVEL, points=points).ttc for n in (25, 100, 400)
        }
    return out


def decide_figure(trial: Trial) -> Evidence:
    """How many draws of utilities, for each association of utility with rank, give the figure's TTC."""
    draws, points = trial.size(3, 30, 200), trial.size(2**10, 2**12, 2**14)
    shares, ranges, starts, ends = {}, {}, {}, {}
    for kind in ("iid", "aligned", "anti_aligned"):
        rows = [figure_row(kind, seed, points) for seed in range(draws)]
        start = [all(r[eta, 25] > 0.8 for eta in (0.3, 0.5)) for r in rows]
        end = [all(r[eta, 400] < (1e-9 if trial.planted else 0.01) for eta in (0.3, 0.5)) for r in rows]
        good = [a and b and r[0.1, 100] > 0.7 for a, b, r in zip(start, end, rows, strict=True)]
        starts[kind], ends[kind], shares[kind] = (sum(x) / draws for x in (start, end, good))
        last = [r[0.5, 400] for r in rows]
        first = [min(r[0.3, 25], r[0.5, 25]) for r in rows]
        ranges[kind] = (min(last), max(last), float(np.median(first)))
    text = (
        "The paper does not say how utilities are distributed (normal ones are ours) or "
        f"attach to tokens. Of {draws} draws of standard normal utilities each, "
        "these give TTC above .8 at 25 and below .01 at 400 tokens for both larger tilts and above .70 at 100 for the "
        "smallest: "
        + ", ".join(f"{100 * v:.0f}% {k.replace('_', '-')}" for k, v in shares.items())
        + ". TTC at 400 tokens and tilt .5 lies in "
        + ", ".join(f"[{a:.3f}, {b:.3f}] ({k.replace('_', '-')})" for k, (a, b, _) in ranges.items())
        + ". The two ends exclude each other: TTC starts above .8 for both larger tilts in "
        + ", ".join(f"{100 * v:.0f}%" for v in starts.values())
        + " of the draws and ends below .01 for both in "
        + ", ".join(f"{100 * v:.0f}%" for v in ends.values())
        + ". The median over draws of the smaller TTC at 25 tokens is "
        + ", ".join(f"{m:.2f} ({k.replace('_', '-')})" for k, (_, _, m) in ranges.items())
        + "."
    )
    return Evidence(
        holds=max(shares.values()) > 0.5,
        measured="share of draws that give the figure: "
        + ", ".join(f"{100 * v:.0f}% {k}" for k, v in shares.items()),
        expected="most draws of some association",
        text=text,
    )


def decide_tiny(trial: Trial) -> Evidence:
    """TTC at .03 nats per token for a logger colder and hotter than the target, and the least that any law allows."""
    delta, alpha = 0.03, LEVEL
    h = -(alpha * math.log(alpha) + (1 - alpha) * math.log(1 - alpha))
    least = {n: math.exp(-(n * delta + h) / alpha) for n in (100, 200, 300, 400, 500)}
    cold, hot_ = (
        {n: tiny({"delta": delta, "length": n, "hotter": hotter}).left for n in least} for hotter in (0, 1)
    )
    tried = ({"delta": delta, "length": n, "hotter": hotter} for n in least for hotter in (0, 1))
    asked = GATE / (1e6 if trial.planted else 1)
    said = [f"{min(x.values()):.3g} to {max(x.values()):.3g}" for x in (cold, hot_)]
    return Evidence(
        holds=max(*cold.values(), *hot_.values()) < asked,
        measured=f"TTC at 100 to 500 tokens: {said[0]} for a colder target, {said[1]} for a hotter one",
        expected="negligible: below the gate of .70",
        text=f"Zipf tokens, the target at another temperature with KL = {delta}: TTC is {said[0]} at 100 to 500 tokens "
        f"where the target is colder than the logger, {said[1]} where it is hotter. "
        f"By `ttc-kl-floor` it is at least {least[100]:.3f} at 100 tokens and {least[200]:.4f} at "
        f"200 whatever the laws.",
        counterexample=first_broken(tried, tiny),
        condition="the target is the logger at a lower temperature (Zipf tokens)",
        holds_under=max(cold.values()) < asked,
        curve={
            "colder": sorted(cold.items()),
            "hotter": sorted(hot_.items()),
            "least possible": sorted(least.items()),
        },
        axes=("tokens", "TTC"),
    )


def at_divergence(w: Params) -> tuple[FloatArray, FloatArray]:
    """Zipf tokens at the temperature, above or below 1, with the divergence; and at 1."""
    q = iid_policy(zipf(VOCAB, ZIPF), 1)
    far, near = (3.0, 1.0) if w["hotter"] else (0.3, 1.0)
    for _ in range(40):
        middle = (far + near) / 2
        p = temperature(q, middle).log_prob[0, 0]
        far, near = (middle, near) if divergences.kl(p, q.log_prob[0, 0]) > w["delta"] else (far, middle)
    return p, q.log_prob[0, 0]


def tiny(w: Params) -> Sides:
    """TTC at a divergence and length by FFT, against the gate."""
    p, q = at_divergence(w)
    return Sides(typicality.coverage(p, q, int(w["length"]), level=LEVEL, points=2**13).ttc, GATE)


def tiny_by_simulation(w: Params) -> Sides:
    """The same from simulated responses."""
    p, q = at_divergence(w)
    logger, target = (iid_policy(x, int(w["length"])) for x in (q, p))
    table = np.broadcast_to(-p, logger.log_prob.shape)[..., None]

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        edge = np.quantile(sample_sums(target, table, 500, rng=rng).sums[:, 0], LEVEL)
        return float((sample_sums(logger, table, 500, rng=rng).sums[:, 0] <= edge).mean()), GATE

    return batches(batch, generator(0, "claims", "typicality", "tiny"))


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
    over_worlds(
        name="ttc-gate-sound",
        source="Section 2 and tab:gates, 'TTC >= 0.70' as the gate of logs-only estimation",
        statement=r"where TTC is at least .70, the limit of ESS/n is at least a hundredth",
        why=r"TTC of a hotter target tends to 1 while $ESS/n = (1+\chi^2)^{-L}$ falls exponentially: the gate passes "
        r"what it should stop.",
        family=Family((1,), lambda size: 2, gate_world, 0.1),
        sides=gate_passed,
        second=gate_by_simulation,
        planted="nothing may be lost",
        falsified=lambda s: Sides(s.left, 0.01 * s.right),
    ),
    Claim(
        name="fig-ttc-collapse",
        source="fig:ttc-collapse and its text: TTC from > .8 at 25 tokens to < .01 at 400 for tilts of .3 and "
        "more, above "
        ".70 beyond 100 tokens for .1",
        statement="with Zipf tokens (1,000, exponent 1.2) and tilts of standard normal utilities, TTC is as in "
        "the figure",
        rule="exact TTC by FFT over draws of utilities, attached to tokens at random, in or against the order of their "
        "frequency",
        why="Which tokens are rewarded decides whether a tilt makes the target hotter or colder than the logger, and "
        "with it whether TTC falls.",
        decide=decide_figure,
        planted="TTC below 1e-9 at 400 tokens",
        kind="number",
    ),
    decided(
        name="ttc-tiny-kl",
        source="app:ttc-collapse, 'even tiny per-token KL (delta about 0.03 nats) yields negligible TTC' at 100 to 500 "
        "tokens",
        statement="at .03 nats per token TTC is negligible, read as: below the gate of .70, for every length from 100 "
        "to 500",
        rule="Zipf tokens at two temperatures of that divergence by FFT; simulated responses",
        why="The divergence says nothing of the sign: a hotter target finds the logger's text more typical than its "
        r"own. Whatever the laws $TTC \ge \exp(-(L\delta + h(.9))/.9)$.",
        decide=decide_tiny,
        sides=tiny,
        second=tiny_by_simulation,
        planted="below a millionth of the gate",
        kind="number",
    ),
)
