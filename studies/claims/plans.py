"""Arithmetic of the paper's planner: the worked example, the cost table, the minimum detectable effect."""

import math

import numpy as np
from scipy import stats
from statsmodels.stats.power import normal_power

from cje_core.streams import generator
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.worlds import Family, batches, over_worlds

# Table tab:cost-analysis: 250 oracle labels cost $.55, 25,000 judge scores $3.50, of five policies.
ORACLE, JUDGE = 0.55 / 250, 3.50 / 25_000
PROMPTS = 5000


def decide_example(trial: Trial) -> Evidence:
    """The worked example's arithmetic."""
    omega, n, m = 0.90, 1000, 50
    components = omega * m / ((1 - omega) * n)
    best = math.sqrt(0.064) * math.sqrt(components) * (2 if trial.planted else 1)
    return Evidence(
        holds=round(components, 2) == 0.45 and round(100 * best) == 17,
        measured=f"{components:.4f} and {100 * best:.1f}%",
        expected=".45 and 17%",
        text=f"omega = .90 at n = 1,000 and m = 50 gives a ratio of components of {components:.4f}, and at a cost "
        f"ratio of "
        f".064 an oracle fraction of {100 * best:.2f}%. With the 16× of the text in place of .064 it is "
        f"{100 * math.sqrt(components / 16):.2f}%. The premise, a calibration share of .9, is `oua-share`'s.",
    )


def decide_costs(trial: Trial) -> Evidence:
    """The cost ratios of the text from the table's prices."""
    judge = JUDGE * (2 if trial.planted else 1)

    def reduction(fraction: float, policies: int) -> float:
        pure = ORACLE * PROMPTS * policies
        return pure / (ORACLE * PROMPTS * fraction + judge * PROMPTS * policies)

    found = {
        "single, 5%": reduction(0.05, 1),
        "five, 5%": reduction(0.05, 5),
        "single, 25%": reduction(0.25, 1),
    }
    printed = {"single, 5%": 8.8, "five, 5%": 14.0, "single, 25%": 3.5}
    off = {k: abs(found[k] - printed[k]) for k in found}
    good = off["single, 5%"] < 0.05 and off["five, 5%"] < 0.5 and off["single, 25%"] < 0.05
    return Evidence(
        holds=good,
        measured=", ".join(f"{v:.2f}× ({k})" for k, v in found.items()),
        expected=", ".join(f"{v:g}× ({k})" for k, v in printed.items()),
        text=f"Prices of the table: ${ORACLE:.4f} a label, ${JUDGE:.5f} a score, {ORACLE / JUDGE:.1f} to 1. "
        f"Reductions: "
        + ", ".join(f"{found[k]:.2f}× for {printed[k]:g}× printed ({k})" for k in found)
        + f". Five policies at 25% would give {reduction(0.25, 5):.2f}×; the limit for many policies is "
        f"{ORACLE / JUDGE:.1f}×.",
    )


def power(w: Params) -> Sides:
    """Power at the planned effect of a difference of estimates with a correlation, against .8, from below."""
    effect = (stats.norm.ppf(0.8) + stats.norm.ppf(0.975)) * math.sqrt(2)
    sd = math.sqrt(2 * (1 - w["correlation"]))
    return Sides(0.8, float(normal_power(effect / sd, 1, 0.05)))


def independent_power(w: Params) -> Sides:
    """.8 against the power of the z-test at the planned effect, estimates independent with a standard error each."""
    if not w["std_error"] > 0:
        raise ClaimError("the standard error must be positive")
    effect = (stats.norm.ppf(0.8) + stats.norm.ppf(0.975)) * math.sqrt(2) * w["std_error"]
    return Sides(0.8, float(normal_power(effect / math.hypot(w["std_error"], w["std_error"]), 1, 0.05)))


def power_by_simulation(w: Params) -> Sides:
    """The same from pairs of normal estimates."""
    effect = (stats.norm.ppf(0.8) + stats.norm.ppf(0.975)) * math.sqrt(2)
    r = w["correlation"]

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        a, b = rng.standard_normal((2, 20_000))
        gap = effect + a - (r * a + math.sqrt(1 - r**2) * b)
        return 0.8, float((np.abs(gap) > stats.norm.ppf(0.975) * math.sqrt(2 * (1 - r))).mean())

    return batches(batch, generator(0, "claims", "budget", "power"))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="worked-example",
        source="app:budget, Worked Example",
        statement="the components' ratio is .45 and the best oracle fraction 17%",
        rule="arithmetic",
        why="The formulas of the section with its numbers.",
        decide=decide_example,
        planted="twice the fraction",
        kind="number",
    ),
    Claim(
        name="tab-cost",
        source="tab:cost-analysis and Cost analysis: 8.8×, 14×, and 3.5× at 25% of labels",
        statement="costs fall by 8.8× for one policy, 14× for five, at 5% of labels, and by 3.5× at 25%",
        rule="arithmetic with the table's prices",
        why=r"$c_Y P n / (c_Y f n + c_S P n)$ with labels under the base policy alone.",
        decide=decide_costs,
        planted="twice the judge's price",
        kind="number",
    ),
    over_worlds(
        name="mde-formula",
        source="app:diag-planner, 'given two independent estimates with equal SE'",
        statement=r"for independent estimates of equal SE, "
        r"at a true difference of $(z_{.8} + z_{.975})\sqrt 2\, SE$ the two-sided 5% test has a power "
        r"of .8 or "
        "more",
        why=r"The difference has the standard error $\sqrt 2\,SE$.",
        family=Family((1,), lambda size: 1, lambda z, size: {"std_error": float(np.exp(z[0]))}),
        sides=independent_power,
        planted=".81",
        falsified=lambda s: Sides(0.81, s.right),
    ),
    over_worlds(
        name="mde-correlated",
        source="ours: app:diag-planner's formula for estimates that are not independent",
        statement=r"at a true difference of $(z_{.8} + z_{.975})\sqrt 2\, SE$ the two-sided 5% test has a power "
        r"of .8 or more",
        why="Policies that share prompts or labels are correlated: a "
        "positive correlation makes it conservative, a negative one (a shared calibrator whose error moves two "
        "policies "
        "apart) makes it miss.",
        family=Family((1,), lambda size: 1, lambda z, size: {"correlation": float(np.tanh(z[0]))}),
        sides=power,
        second=power_by_simulation,
        condition="estimates are not negatively correlated",
        restrict=lambda w: {"correlation": abs(w["correlation"])},
        planted=".99",
        falsified=lambda s: Sides(0.99999, min(s.right, 0.99)),
    ),
)
