"""Audits of transport: what a pass shows, and what "not failed" lets through."""

import math

import numpy as np
from scipy import stats

from cje_core.planning.power import power_at
from cje_core.streams import generator
from cje_core.transport.audit_size import audit_power
from studies.ledger.claim import Claim, ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, masses, over_worlds

ALPHA = 0.0125  # of the paper's figure: four policies, Bonferroni
SHIFT = 0.31  # mean residual of the adversarial policy there
MARGIN = 0.05
FIGURE_LABELS = 1240  # a quarter of its prompts


def rejected(n: float, shift: float, sd: float, alpha: float = 0.05) -> float:
    """Power of the one-sample t-test of a zero mean residual."""
    return float(power_at(shift, sd / math.sqrt(n), n - 1, ci_prob=1 - alpha))


def audited(z: FloatArray, size: int) -> dict[str, float]:
    """A shift, the residuals' spread, and probes from 50 to 200."""
    return {
        "shift": 0.05 + 0.05 * abs(float(z[0])),
        "sd": 0.05 + 0.45 / (1 + math.exp(-float(z[1]))),
        "probes": 50 + int(150 * abs(math.tanh(z[2]))),
    }


def sparing(z: FloatArray, size: int) -> dict[str, float]:
    """The same with spreads near one half, and probes near 50, drawn often."""
    found = audited(z, size)
    return {**found, "sd": 0.5 / (1 + math.exp(-3 * float(z[1]))), "probes": 50 + int(abs(50 * z[2]))}


AUDITS = Family((1,), lambda size: 3, audited)


def passed(w: Params) -> Sides:
    """Probability that the zero-null test passes a policy whose calibration is off by a margin or more, against .05."""
    if not (w["sd"] > 0.01 and w["probes"] >= 4 and w["shift"] >= MARGIN):
        raise ClaimError("the audit is degenerate")
    return Sides(1 - rejected(w["probes"], w["shift"], w["sd"]), 0.05)


def passed_by_simulation(w: Params) -> Sides:
    """The same from simulated normal residuals."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        x = w["shift"] + w["sd"] * rng.standard_normal((2000, int(w["probes"])))
        t = x.mean(axis=1) / x.std(axis=1, ddof=1) * math.sqrt(w["probes"])
        return float((np.abs(t) <= stats.t.isf(0.025, w["probes"] - 1)).mean()), 0.05

    return batches(batch, generator(0, "claims", "audits", "passed"))


def precise(w: Params) -> Params:
    """The same audit with as many probes as `stats` asks for: a shift of a margin is 3.7 standard errors."""
    probes = math.ceil((3.7 * w["sd"] / MARGIN) ** 2) + 4
    return {**w, "probes": probes}


def detected(w: Params) -> Sides:
    """Probability that the shift of the adversarial policy is missed at the paper's level, against .01."""
    if not (0.01 < w["sd"] <= 0.5):
        raise ClaimError("residuals of labels in [0, 1] have a spread of at most .5")
    return Sides(1 - rejected(max(w["probes"], 50), SHIFT, w["sd"], ALPHA), 0.01)


def powerful(w: Params) -> Sides:
    """.8 against the power of the zero-null test at a shift of .25 with 50 to 200 probes."""
    if not (0.01 < w["sd"] <= 0.5 and 50 <= w["probes"] <= 200):
        raise ClaimError("outside 50 to 200 probes of labels in [0, 1]")
    return Sides(0.8, rejected(w["probes"], 0.25, w["sd"]))


def narrow(w: Params) -> Params:
    """The same with a spread of at most .4."""
    return {**w, "sd": min(w["sd"], 0.4)}


def detected_by_simulation(w: Params) -> Sides:
    """The same from simulated normal residuals."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        n = max(int(w["probes"]), 50)
        x = SHIFT + w["sd"] * rng.standard_normal((4000, n))
        t = x.mean(axis=1) / x.std(axis=1, ddof=1) * math.sqrt(n)
        return float((np.abs(t) <= stats.t.isf(ALPHA / 2, n - 1)).mean()), 0.01

    return batches(batch, generator(0, "claims", "audits", "detected"))


def not_failed(w: Params) -> Sides:
    """Probability that a shift of `shift` margins does not FAIL, against one half."""
    if not (1.5 <= w["margins"] <= 4 and w["sd"] > 0.01):
        raise ClaimError("the shift is inside the margin or far outside")
    found = audit_power([int(w["probes"])], residual_sd=w["sd"], true_residual=w["margins"] * MARGIN)
    fail = float(found.probability.sel(verdict="FAIL").item())
    return Sides(1 - fail, 0.5)


def not_failed_by_simulation(w: Params) -> Sides:
    """The same: the 95% t interval of simulated residuals is not wholly outside the margin."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        n = int(w["probes"])
        x = w["margins"] * MARGIN + w["sd"] * rng.standard_normal((2000, n))
        half = stats.t.isf(0.025, n - 1) * x.std(axis=1, ddof=1) / math.sqrt(n)
        failed = (x.mean(axis=1) - half > MARGIN) | (x.mean(axis=1) + half < -MARGIN)
        return float((~failed).mean()), 0.5

    return batches(batch, generator(0, "claims", "audits", "not failed"))


def margins(z: FloatArray, size: int) -> dict[str, float]:
    """A shift in margins, the residuals' spread, and probes."""
    return {
        "margins": 1.5 + abs(float(z[0])),
        "sd": 0.05 + 0.45 / (1 + math.exp(-float(z[1]))),
        "probes": 50 + int(150 * abs(math.tanh(z[2]))),
    }


KEPT = 0.06  # size at 5% that counts as kept by the audit of the mean


def learned(z: FloatArray, size: int) -> dict[str, object]:
    """Judge levels with masses under target and logger and label rates, labels of the calibrator, and probes."""
    target, logger, rate = z[: 3 * size].reshape(3, size)
    return {
        "target": np.exp(target / 2).tolist(),
        "logger": np.exp(logger / 2).tolist(),
        "rate": (0.2 + 0.6 / (1 + np.exp(-rate))).tolist(),
        "labels": 400 + round(600 * math.tanh(abs(float(z[-2])) / 2)),
        "probes": 50 + round(150 * math.tanh(abs(float(z[-1])) / 2)),
    }


def price_of_learning(w: Params) -> float:
    """Variance of the calibrator's part of the mean residual over that of the probes', large samples."""
    p, q, y = masses(w["target"]), masses(w["logger"]), np.asarray(w["rate"], float)
    if not (q.min() > 0.03 and w["labels"] >= 1 and w["probes"] >= 4 and 0 < y.min() <= y.max() < 1):
        raise ClaimError("a level has too few labels")
    noise = y * (1 - y)
    return float((p**2 / q) @ noise) / int(w["labels"]) * int(w["probes"]) / float(p @ noise)


def known_calibrator(w: Params) -> Sides:
    """Size of the zero-null test that takes a learned calibrator as known, where it transports, against .06."""
    return Sides(2 * float(stats.norm.sf(stats.norm.isf(0.025) / math.sqrt(1 + price_of_learning(w)))), KEPT)


def known_by_simulation(w: Params) -> Sides:
    """The same from simulated labels of the logger and probes of the target, level means for a calibrator."""
    p, q, y = masses(w["target"]), masses(w["logger"]), np.asarray(w["rate"], float)
    n = int(w["probes"])

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        taught = rng.multinomial(int(w["labels"]), q, size=10_000)
        fit = rng.binomial(taught, y) / np.maximum(taught, 1)
        seen = rng.multinomial(n, p, size=10_000)
        good = rng.binomial(seen, y)
        mean = (good - seen * fit).sum(axis=1) / n
        square = (good * (1 - fit) ** 2 + (seen - good) * fit**2).sum(axis=1) / n
        z = mean / np.sqrt((square - mean**2) / (n - 1))
        return float((np.abs(z) > stats.t.isf(0.025, n - 1)).mean()), KEPT

    return batches(batch, generator(0, "claims", "audits", "known"))


MOST = (
    float(stats.norm.isf(0.025)) / float(stats.norm.isf(KEPT / 2))
) ** 2 - 1  # price at which the size is `KEPT`


def enough_labels(w: Params) -> Params:
    """The same with as many labels as keep the size."""
    return {**w, "labels": math.ceil(max(1.0, price_of_learning(w) / MOST) * w["labels"])}


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="audit-known-calibrator",
        source="ours: Section 4's audit with 50 to 200 probes, were the calibrator taken as known; app:transport asks "
        "for its uncertainty in the interval",
        statement="the zero-null test of a calibration that transports, learned from 400 to 1,000 labels and taken as "
        "known, rejects in at most 6% of the audits at a level of 5%",
        why=r"The mean residual has the probes' variance $E_{\pi'}[v]/n$ and the calibrator's, $E_0[(p/q)^2 v]/m$, "
        r"$v = Var(Y|S)$; the test knows of the first. Its size is $2\Phi(-1.96/\sqrt{1 + r})$, r their "
        "ratio, the second's over the first's.",
        family=Family((2, 3), lambda size: 3 * size + 2, learned),
        sides=known_calibrator,
        second=known_by_simulation,
        condition=rf"labels are many: $m \ge {1 / MOST:.1f}\,n\,E_0[(p/q)^2 v] / E_{{\pi'}}[v]$",
        restrict=enough_labels,
        planted="at most 5.01%",
        falsified=lambda s: Sides(s.left, 0.0501),
    ),
    over_worlds(
        name="audit-pass-evidence",
        source="ours: the .05 and the 5% are; on Section 4, remark on data: a modest audit of 50 to 200 labels "
        "shows that the "
        "calibrator may be reused; fig:transportability-test, 'pass'",
        statement="a policy whose calibration is off by .05 or more passes the zero-null test with a probability of at "
        "most 5%",
        why="Not rejecting zero is no evidence for it: the probability is the test's miss rate, large wherever .05 is "
        "below about three standard errors.",
        family=AUDITS,
        sides=passed,
        second=passed_by_simulation,
        condition="the probes are enough for .05 to be 3.7 standard errors",
        restrict=precise,
        planted="at most a millionth",
        falsified=lambda s: Sides(s.left + 1e-6, 1e-6),
    ),
    over_worlds(
        name="audit-detects-unhelpful",
        source="fig:transportability-test: a mean residual of -.31 fails at alpha = .0125, at 25% of labels",
        statement="with the figure's labels (1,240 of about 5,000 prompts) a shift of .31 is missed with a probability "
        "of at most 1%, whatever the spread of residuals of labels in [0, 1]",
        why="It is more than twenty standard errors at the widest spread, one half.",
        family=AUDITS,
        sides=lambda w: detected({**w, "probes": FIGURE_LABELS}),
        planted="at most a negative probability",
        falsified=lambda s: Sides(s.left, -1e-9),
    ),
    over_worlds(
        name="audit-detects-at-fifty",
        source="ours: fig:transportability-test's shift with the 50 to 200 probes of Section 4",
        statement="a shift of .31 is missed with a probability of at most 1%, with 50 probes or more",
        why="Power of the t-test; residuals of labels in [0, 1] have a spread of at most one half.",
        family=Family((1,), lambda size: 3, sparing),
        sides=detected,
        second=detected_by_simulation,
        condition="the residuals' standard deviation is at most .4",
        restrict=narrow,
        planted="at most one in 1e9, at any spread",
        falsified=lambda s: Sides(s.left, 1e-9),
    ),
    over_worlds(
        name="audit-power-zero",
        source="ours: Section 4's 50 to 200 probes and its test, which rejects zero; the shift is that of the study",
        statement="the zero-null test finds a shift of .25 with a power of 80% or more, whatever the residuals' spread",
        why="At 50 probes and the widest spread, one half, the shift is 3.5 standard errors.",
        family=AUDITS,
        sides=powerful,
        planted="with a power of 99.9%",
        falsified=lambda s: Sides(0.999, s.right),
    ),
    over_worlds(
        name="audit-not-fail",
        source="ours: on gates: 'flag unless FAIL' as a reporting rule",
        statement=f"a shift of 1.5 margins or more (margin {MARGIN:g}) leads to FAIL more often than not",
        why="FAIL needs the whole interval outside the margin; a shift of less than the margin and two standard "
        "errors is "
        "mostly INCONCLUSIVE, and its level is reported.",
        family=Family((1,), lambda size: 3, margins, 0.05),
        sides=not_failed,
        second=not_failed_by_simulation,
        planted="nearly always",
        falsified=lambda s: Sides(s.left, 0.01),
    ),
)
