"""Coverage of the logger: the weight's second moment, the floor of coverage-limited efficiency, and whom it binds.

Worlds are finite: k responses, each with a mass under target and logger, a mean and a noise of the outcome,
membership of the region T, and a level of the judge. As in the paper, alpha and beta are the target's and the logger's
mass of T, W the ratio of the two laws, E0 the expectation under the logger; standard errors are those of one row.
"""

import math

import numpy as np

from cje_core.calibration.isotonic import isotonic
from cje_core.streams import generator
from cje_sim.exact import typicality
from cje_sim.exact.judged_means import rising
from cje_sim.targets.tilts import token_tilt, utilities
from cje_sim.tokens.laws import iid_policy, zipf
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided, first_broken
from studies.ledger.worlds import Family, FloatArray, batches, masses, number, over_worlds

ROWS = 20_000  # simulated rows of a batch
# Table "Weight Diagnostics" of the paper: TTC and CLE factor of the policies that are not the clone.
TABLE = {"parallel universe": (0.494, 60.5), "premium": (0.190, 23.8), "unhelpful": (0.256, 37.6)}
TARGET_MASS = 0.9


def world(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Masses, outcome means and noises, regions and levels; the first response lies in T."""
    p, q, mean, noise, inside, level = z.reshape(6, size)
    return {
        "target": np.exp(p).tolist(),
        "logger": np.exp(q).tolist(),
        "mean": mean.tolist(),
        "noise": np.exp(noise).tolist(),
        "inside": [1, *(int(v > 0) for v in inside[1:])],
        "level": [int(v > 0) for v in level],
    }


FAMILY = Family((1, 2, 3, 5), lambda size: 6 * size, world)


def laws(w: Params) -> tuple[FloatArray, FloatArray]:
    """Target and logger, the one absolutely continuous with respect to the other."""
    p, q = masses(w["target"]), masses(w["logger"])
    if not (q[p > 0] > 0).all():
        raise ClaimError("the target has mass where the logger has none")
    return p[q > 0], q[q > 0]


def kept(w: Params, name: str) -> FloatArray:
    """A property of the responses that the logger gives at all."""
    return np.asarray(w[name], float)[masses(w["logger"]) > 0]


def region(w: Params) -> tuple[FloatArray, float, float, float]:
    """Membership, alpha, beta and 1 + chi2 of the laws within T."""
    p, q = laws(w)
    t = kept(w, "inside")
    alpha, beta = float(p @ t), float(q @ t)
    if not alpha > 0:
        raise ClaimError("T is empty")
    used = t > 0
    return t, alpha, beta, float(((p[used] / alpha) ** 2 / (q[used] / beta)).sum())


def floor(w: Params) -> float:
    """``sigma_T alpha / sqrt(beta) sqrt(1 + chi2_T)``."""
    t, alpha, beta, shape = region(w)
    sigma = float(np.abs(kept(w, "noise")[t > 0]).min())
    return sigma * alpha / math.sqrt(beta) * math.sqrt(shape)


def ips_error(w: Params, weight: FloatArray | None = None) -> float:
    """``sd(W Y)`` under the logger, by the second moment; other weights in place of W if given."""
    p, q = laws(w)
    v = p / q if weight is None else weight
    mean, noise = kept(w, "mean"), kept(w, "noise")
    return math.sqrt(max(float(q @ (v**2 * (mean**2 + noise**2))) - float(q @ (v * mean)) ** 2, 0.0))


def snips_error(w: Params) -> float:
    """First-order standard error of the self-normalised mean: ``sd(W (Y - V))``."""
    p, _ = laws(w)
    mean = kept(w, "mean")
    return ips_error({**w, "mean": (np.asarray(w["mean"], float) - float(p @ mean)).tolist()})


def by_level(w: Params) -> FloatArray:
    """``m*(S) = E0[W | S]`` of each response."""
    p, q = laws(w)
    level = kept(w, "level").astype(int)
    return np.array([p[level == s].sum() / q[level == s].sum() for s in level])


def stabilised(w: Params, slow: bool = False) -> FloatArray:
    """The nearest weights to ``m*(S)`` that rise with the level, of each response."""
    _, q = laws(w)
    level, m = kept(w, "level").astype(int), by_level(w)
    used = np.unique(level)
    share = np.array([q[level == s].sum() for s in used])
    own = np.array([m[level == s][0] for s in used])
    fit = rising(own, share) if slow else isotonic(own, share)[0]
    return np.asarray(fit[np.searchsorted(used, level)])


def sufficient(w: Params) -> dict[str, list[float]]:
    """The world with mean and noise of the outcome given by the judge's level alone (mean sufficiency)."""
    first = [list(w["level"]).index(s) for s in w["level"]]
    return {**w, "mean": [w["mean"][i] for i in first], "noise": [w["noise"][i] for i in first]}


def simulated(w: Params, left: str, weights: str = "raw") -> Sides:
    """Floor or ESS form against a standard error, both from simulated rows alone."""
    p, q = laws(w)
    t, mean, noise = kept(w, "inside"), kept(w, "mean"), np.abs(kept(w, "noise"))
    use = {"raw": p / q, "level": by_level(w), "none": p / q, "rising": stabilised(w, slow=True)}[weights]

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        a = rng.choice(len(q), ROWS, p=q)
        y = mean[a] + (0.0 if weights == "none" else noise[a]) * rng.standard_normal(ROWS)
        ratio, sigma = (p / q)[a] * t[a], noise[t > 0].min()
        second = (ratio**2).mean()
        bound = sigma * math.sqrt(second)
        if left == "ess":
            bound = sigma / math.sqrt(ratio.sum() ** 2 / (ratio**2).sum() / ROWS)
        return bound, float((use[a] * y).std())

    return batches(batch, generator(0, "claims", "coverage", left, weights))


def everything(w: Params) -> dict[str, list[float]]:
    """The same world with every response in T."""
    return {**w, "inside": [1] * len(w["inside"])}


def second_moments(w: Params) -> Sides:
    """``E0[W^2 1_T]`` by enumeration, and the lemma's right side."""
    p, q = laws(w)
    t, alpha, beta, shape = region(w)
    return Sides(float((t * p**2 / q).sum()), alpha**2 / beta * shape)


def ess_form(w: Params) -> Sides:
    """``sigma_T / sqrt(ESS_T)`` of one row, ``ESS_T = beta / (1 + chi2_T)``, against the error of IPS."""
    t, _, beta, shape = region(w)
    return Sides(float(np.abs(kept(w, "noise")[t > 0]).min()) * math.sqrt(shape / beta), ips_error(w))


def ess_form_repaired(w: Params) -> Sides:
    """``alpha sigma_T / sqrt(ESS_T)``, with Kish's ``(E0[W 1_T])^2 / E0[W^2 1_T]`` for the ESS of one row."""
    p, q = laws(w)
    t, alpha, _, _ = region(w)
    kish = float((p * t).sum()) ** 2 / float((t * p**2 / q).sum())
    return Sides(alpha * float(np.abs(kept(w, "noise")[t > 0]).min()) / math.sqrt(kish), ips_error(w))


def larger_region(w: Params) -> Sides:
    """The factor of T against that of everything."""
    _, alpha, beta, shape = region(w)
    _, one, whole, all_shape = region(everything(w))
    return Sides(alpha * math.sqrt(shape / beta), one * math.sqrt(all_shape / whole))


def surrogate_error(w: Params) -> Sides:
    """The floor against the error of the mean of ``m*(S) Y``, unbiased where the judge is mean-sufficient."""
    s = sufficient(w)
    return Sides(floor(s), ips_error(s, by_level(s)))


def divergence_floor(w: Params) -> Sides:
    """``exp(-(KL + h(alpha)) / alpha)`` against beta."""
    p, q = laws(w)
    _, alpha, beta, _ = region(w)
    used = p > 0
    kl = float((p[used] * np.log(p[used] / q[used])).sum())
    h = -sum(x * math.log(x) for x in (alpha, 1 - alpha) if x > 0)
    return Sides(math.exp(-(kl + h) / alpha), beta)


def parts_of_table(row: Params) -> Sides:
    """Half the log of a CLE factor against the log of its coverage penalty ``.9 / sqrt(TTC)``."""
    return Sides(0.5 * math.log(row["cle"]), math.log(TARGET_MASS / math.sqrt(row["ttc"])))


def parts_of_tokens(row: Params) -> Sides:
    """The same parts in a world of Zipf tokens tilted until it has the row's TTC, by Fourier transform."""
    logger = iid_policy(zipf(1000, 1.2), 100)
    q, u = logger.log_prob[0, 0], utilities("aligned", 1000, rng=0)
    low, high = 0.0, 3.0
    for _ in range(30):
        middle = (low + high) / 2
        found = typicality.coverage(
            token_tilt(logger, -u, middle).log_prob[0, 0],
            q,
            100,
            level=TARGET_MASS,
            two_sided=True,
            points=2**12,
        )
        low, high = (middle, high) if found.ttc > row["ttc"] else (low, middle)
    penalty = found.log_alpha - found.log_beta / 2
    return Sides(0.5 * (penalty + found.log1p_chi2 / 2), penalty)


def decide_parts(trial: Trial) -> Evidence:
    """Parts of the factors that the paper's table prints."""
    rows = {name: parts_of_table({"ttc": ttc, "cle": cle}) for name, (ttc, cle) in TABLE.items()}
    share = {name: s.right / (2 * s.left) for name, s in rows.items()}
    if trial.planted:
        share = {name: s / 2 for name, s in share.items()}
    table = ({"ttc": ttc, "cle": cle} for ttc, cle in TABLE.values())
    text = (
        "From the paper's own TTC, with target mass .9, the coverage penalty is "
        + ", ".join(f"{math.exp(s.right):.2f}× of {TABLE[n][1]}× ({n})" for n, s in rows.items())
        + f": {100 * min(share.values()):.0f} to {100 * max(share.values()):.0f}% of the factor's logarithm; the rest "
        "is the shape term."
    )
    return Evidence(
        holds=min(share.values()) >= 0.5,
        measured=f"share of log factor {number(min(share.values()))} to {number(max(share.values()))}",
        expected="at least half",
        text=text,
        counterexample=first_broken(table, parts_of_table),
        curve={"share of the log factor": [(TABLE[n][0], share[n]) for n in TABLE]},
        axes=("TTC of the policy", "share of the coverage penalty"),
    )


NOTHING = "left times 1.5"
CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="lem-weight-identity",
        source="Lemma (weight second moment on T), lem:weight-identity",
        statement=r"$E_0[W^2 1_T] = \frac{\alpha^2}{\beta} (1 + \chi^2(\pi'_T \| \pi_{0,T}))$",
        why=r"Within T the normalised laws are $\pi'/\alpha$ and $\pi_0/\beta$, so "
        r"$1 + \chi^2_T = \frac{\beta}{\alpha^2} \sum_T \pi'^2/\pi_0$.",
        family=FAMILY,
        sides=second_moments,
        relation="==",
        planted="right side times 1.5",
        falsified=lambda s: Sides(s.left, 1.5 * s.right),
    ),
    over_worlds(
        name="prop-cle",
        source="Proposition (CLE bound for IPS-style estimators), prop:cle, for the IPS mean of W Y",
        statement=r"$SE(IPS) \ge \frac{\sigma_T \alpha}{\sqrt{\beta n}} \sqrt{1 + \chi^2_T}$ for every region T",
        why=r"$Var(WY) = E_0[W^2 Var(Y|X,A)] + Var(W E[Y|X,A]) \ge \sigma_T^2 E_0[W^2 1_T]$, and the lemma. It is "
        r"tight: "
        r"equality where $W E[Y|X,A]$ is constant, the noise is $\sigma_T$ on T and 0 outside.",
        family=FAMILY,
        sides=lambda w: Sides(floor(w), ips_error(w)),
        planted="the floor times 1.5",
        falsified=lambda s: Sides(1.5 * s.left, s.right),
    ),
    over_worlds(
        name="cor-cle-ess",
        source="Corollary (ESS form) after prop:cle",
        statement=r"$SE(IPS) \ge \sigma_T / \sqrt{ESS_T}$, $ESS_T = n\beta / (1 + \chi^2_T)$",
        why=r"The bound is $\alpha\sigma_T\sqrt{(1+\chi^2_T)/(n\beta)} = \alpha\sigma_T/\sqrt{ESS_T}$: the "
        r"corollary drops "
        r"$\alpha \le 1$. A clone, for which IPS is a plain mean, breaks it with any T that has not all of the "
        r"target's mass. Read with $ESS_T = n^2/\sum W^2 1_T$, which is not the ESS of the weights within T, "
        r"$n\beta/(1+\chi^2_T)$, it is true: that is the repaired form.",
        family=FAMILY,
        sides=ess_form,
        second=lambda w: simulated(w, "ess"),
        condition=r"$\alpha = 1$, that is, T has all of the target's mass",
        restrict=everything,
        planted="the right side of the printed form halved",
        falsified=lambda s: Sides(2 * s.left, s.right),
    ),
    over_worlds(
        name="cor-cle-ess-repaired",
        source="ours: in place of the corollary (ESS form)",
        statement=r"$SE(IPS) \ge \alpha \sigma_T / \sqrt{ESS_T}$, $ESS_T = (\sum W 1_T)^2 / \sum W^2 1_T$",
        why=r"$ESS_T / n \to \alpha^2 / E_0[W^2 1_T]$, so $\alpha\sigma_T/\sqrt{ESS_T} = \sigma_T \sqrt{E_0[W^2 "
        r"1_T]/n}$, "
        r"which the proof of the proposition bounds by the standard error.",
        family=FAMILY,
        sides=ess_form_repaired,
        repairs="cor-cle-ess",
        planted="the factor times 1.5",
        falsified=lambda s: Sides(1.5 * s.left, s.right),
    ),
    over_worlds(
        name="cle-larger-region",
        source="ours: interpretation of prop:cle (which T?)",
        statement=r"the factor of a region is at most that of everything, $\sqrt{1 + \chi^2(\pi' \| \pi_0)}$",
        why=r"The product of the parts is $\sqrt{E_0[W^2 1_T]}$, which grows with T. At equal noise the tightest "
        r"region is "
        r"everything, where the coverage penalty $\alpha/\sqrt\beta$ is 1 and TTC plays no part.",
        family=FAMILY,
        sides=larger_region,
        planted="half of the factor of everything",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    decided(
        name="cle-coverage-penalty",
        source="ours: on Section 5, weight diagnostics, and tab:weight-diagnostics: 'half of the logarithm' is ours",
        statement="where the logger rarely visits T it is the coverage penalty that makes the factors of 24 to 61: at "
        "least half of each factor's logarithm",
        rule="arithmetic on the table's TTC and CLE columns; then exact Zipf worlds with the same TTC",
        why=r"The penalty is $\alpha/\sqrt\beta$ with $\alpha = .9$ and $\beta$ = TTC; it is at most "
        r"$.9/\sqrt{.19}$ in "
        r"the table. Only $\chi^2$ within T can make the rest, which TTC does not see.",
        decide=decide_parts,
        sides=parts_of_table,
        second=parts_of_tokens,
        route="the same parts in worlds of Zipf tokens with the table's TTC",
        planted="half the share",
    ),
    over_worlds(
        name="cle-binds-snips",
        source="prop:cle, 'any IPS-style estimator': SNIPS, to first order",
        statement=r"$\sqrt{E_0[W^2 (Y - V)^2]} \ge$ the floor",
        why=r"Centring Y moves only $E[Y|X,A]$; the noise that the proof uses is untouched.",
        family=FAMILY,
        sides=lambda w: Sides(floor(w), snips_error(w)),
        planted="the floor times 1.5",
        falsified=lambda s: Sides(1.5 * s.left, s.right),
    ),
    over_worlds(
        name="cle-binds-calibrated",
        source="Section 2, implication of eq:cle-bound: 'regardless of weight stabilization', 'explains ... "
        "calibrated IPS' "
        "(prop:cle itself is of W Y); here IPS on calibrated rewards R = E[Y|X,A]",
        statement=r"$sd(W R) \ge$ the floor",
        why=r"A reward that is known has no noise, and the proof keeps only the noise. With R known the error can be 0 "
        r"at any coverage; the floor belongs to IPS on labels.",
        family=FAMILY,
        sides=lambda w: Sides(floor(w), ips_error({**w, "noise": [0.0] * len(w["noise"])})),
        second=lambda w: simulated(w, "floor", "none"),
        planted="twice the floor",
        falsified=lambda s: Sides(2 * s.left, s.right),
    ),
    over_worlds(
        name="cle-binds-stabilised",
        source="Section 2, implication of eq:cle-bound: 'regardless of weight stabilization', 'explains ... "
        "calibrated IPS' "
        "(prop:cle itself is of W Y); here the mean of Y with stabilised weights (monotone in the score)",
        statement=r"$sd(m_\uparrow(S) Y) \ge$ the floor, $m_\uparrow$ the monotone projection of $m^*$",
        why=r"The proof needs the second moment of W within T. The projection has less, and the floor is passed at the "
        r"price of a bias, `stabilisation-gives-away`: what is then estimated precisely is another number.",
        family=FAMILY,
        sides=lambda w: Sides(floor(w), ips_error(w, stabilised(w))),
        second=lambda w: simulated(w, "floor", "rising"),
        planted="twice the floor",
        falsified=lambda s: Sides(2 * s.left, s.right),
    ),
    over_worlds(
        name="cle-structural",
        source="Section 2, 'a hard precision floor that logs-only methods cannot beat'; app:ttc-collapse, 'that no "
        "estimator can overcome'",
        statement=r"an unbiased logs-only estimator has an error of at least the floor: here the mean of $m^*(S) Y$ "
        r"where $E[Y|X,A,S]$ depends on S alone",
        why=r"Under mean sufficiency $E_0[m^*(S) Y] = V$, and $m^* = E_0[W|S]$ has a smaller second moment than W: "
        r"responses that the judge does not tell apart share their coverage.",
        family=FAMILY,
        sides=surrogate_error,
        second=lambda w: simulated(sufficient(w), "floor", "level"),
        condition="the judge tells all responses apart (W is a function of S)",
        restrict=lambda w: {**w, "level": list(range(len(w["level"])))},
        planted="twice the floor",
        falsified=lambda s: Sides(2 * s.left, s.right),
    ),
    over_worlds(
        name="ttc-kl-floor",
        source="ours: beside prop:ttc-collapse",
        statement=r"$\beta \ge \exp(-(KL(\pi'\|\pi_0) + h(\alpha))/\alpha)$ for every region T, $h$ the binary entropy",
        why=r"Data processing: $KL \ge \alpha\log\frac{\alpha}{\beta} + (1-\alpha)\log\frac{1-\alpha}{1-\beta} \ge "
        r"-h(\alpha) - \alpha\log\beta$. A divergence bounds the logger's mass from below; it never bounds it "
        r"from above.",
        family=FAMILY,
        sides=divergence_floor,
        planted="twice the lower bound",
        falsified=lambda s: Sides(2 * s.left, s.right),
    ),
)
