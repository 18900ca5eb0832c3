"""The numbers in the caption of the figure on weight stabilisation, held against the table of weight diagnostics.

Both are of 4,961 logged responses and four policies. The caption gives the range of the raw weights, by how much the
effective sample size (ESS) rises, and where it starts and ends; the table gives ESS before and after.
"""

import numpy as np

from cje_core.data.arrays import unpack_logged
from cje_core.offpolicy.weights import log_ratios, place_of
from cje_sim.scenarios import arena_like
from studies.claims.tables import ESS, ROUNDING, ROWS
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided

FIGURE = "fig:weight-stabilization-app, caption"
STABILISED = {
    "clone": 0.990,
    "parallel_universe_prompt": 0.954,
    "premium": 0.821,
    "unhelpful": 0.846,
}  # of the table
RISE = {"clone": 4.6, "parallel_universe_prompt": 3000.0}  # of ESS; the second is a lower bound
LARGEST = 1e3  # raw weights reach 10^2, that is less than this
ORDERS = 130.0
DEGENERATE, HEALTHY = 0.01, 0.80


def rise_of_ess(w: Params) -> Sides:
    """A rise of ESS against the largest that a printed raw ESS/n allows with its rounding, ``1 / (ESS/n)``."""
    if not (w["ess"] > ROUNDING and w["rise"] > 0):
        raise ClaimError("ESS/n and its rise must be positive")
    return Sides(w["rise"], 1 / (w["ess"] - ROUNDING))


def rise_of_rows(w: Params) -> Sides:
    """The same from rows: weights equal on as few as that ESS allows, and then on all."""
    few, every = np.zeros(ROWS), np.ones(ROWS)
    few[: max(round((w["ess"] - ROUNDING) * ROWS), 1)] = 1.0
    before, after = ((v.sum() ** 2 / (v**2).sum()) for v in (few, every))
    return Sides(w["rise"], float(after / before))


def largest_weight(w: Params) -> Sides:
    """A rise of ESS against the largest mean-one weight: ``max W >= mean W^2 = n/ESS``, and ESS ends at n at most."""
    if not (w["rise"] > 0 and w["largest"] >= 1):
        raise ClaimError("the largest of mean-one weights is at least 1")
    return Sides(w["rise"], w["largest"])


def largest_of_rows(w: Params) -> Sides:
    """The same from rows: mean-one weights of this largest size have least ESS where all others are zero."""
    weight = np.zeros(ROWS)
    n_full = int(ROWS / w["largest"])
    weight[:n_full] = w["largest"]
    weight[n_full : n_full + 1] = ROWS - n_full * w["largest"]
    return Sides(w["rise"], float(ROWS * (weight**2).sum() / weight.sum() ** 2))


def decide_rise(trial: Trial) -> Evidence:
    """Whether the rises of the caption are possible with the raw ESS of the table."""
    printed = {name: {"ess": ESS[name], "rise": rise} for name, rise in RISE.items()}
    if trial.planted:
        printed = {name: {**w, "rise": 2 * rise_of_ess(w).right} for name, w in printed.items()}
    broken = [name for name, w in printed.items() if rise_of_ess(w).broken("<=")]
    told = ", ".join(
        f"{w['rise']:.4g} against {rise_of_ess(w).right:.4g} ({name})" for name, w in printed.items()
    )
    table = ", ".join(f"{STABILISED[name] / ESS[name]:.1f} ({name})" for name in RISE)
    return Evidence(
        holds=not broken,
        measured=told,
        expected="rise of ESS at most 1 / (ESS/n)",
        text=f"The paper's conditions: {ROWS:,} rows, ESS/n at most 1 after stabilisation. The rise of ESS is then at "
        f"most one over the raw ESS/n: {told}. The table's own columns give {table}. A rise of 4.6 to 99.0% asks for a "
        f"raw ESS/n of {100 * STABILISED['clone'] / RISE['clone']:.1f}% where the table has 26.2%, a rise of 3000 to "
        f"95.4% for {100 * STABILISED['parallel_universe_prompt'] / RISE['parallel_universe_prompt']:.3f}% where it "
        "has .6%: caption and table are of different weights.",
        counterexample=printed[broken[0]] if broken else None,
    )


def decide_largest(trial: Trial) -> Evidence:
    """Whether a rise of 3000 times goes with mean-one weights below 10^3."""
    world = {"rise": RISE["parallel_universe_prompt"], "largest": LARGEST * (0.5 if trial.planted else 1.0)}
    broken = largest_weight(world).broken("<=")
    return Evidence(
        holds=not broken,
        measured=f"a rise of {world['rise']:g} against a largest weight below {world['largest']:g}",
        expected="rise at most the largest mean-one weight",
        text=f"The paper's conditions: {ROWS:,} raw weights up to 10^2, read as below 10^3, and an ESS that rises over "
        "3000 times. If their mean is one, the largest is at least n/ESS, and that is at least the rise.",
        counterexample=world if broken else None,
        condition="the weights drawn are ratios that were not brought to mean one: their scale is then free",
        holds_under=None if trial.planted else True,
    )


def decide_ends(trial: Trial) -> Evidence:
    """Whether the table's ESS starts below 1% and ends above 80% for every policy."""
    high = [name for name in ESS if ESS[name] > DEGENERATE]
    low = [name for name in STABILISED if STABILISED[name] < (0.9 if trial.planted else HEALTHY)]
    told = ", ".join(f"{100 * ESS[name]:.1f}% to {100 * STABILISED[name]:.1f}% ({name})" for name in ESS)
    return Evidence(
        holds=not high and not low,
        measured=told,
        expected="below 1% before, above 80% after",
        text=f"ESS/n before and after, from the table: {told}. The clone starts at 26.2%, no degenerate sample; "
        "the other three are as the caption says, by a column that `tab-cle-ess` finds to be of other weights.",
    )


def decide_orders(trial: Trial) -> Evidence:
    """Over how many orders of magnitude the raw weights of `premium` spread in our world of the benchmark."""
    spans = []
    for r in range(trial.size(2, 5, 20)):
        data = arena_like.simulate(n=ROWS, rng=trial.rng(r))
        nats = log_ratios(unpack_logged(data))[place_of(data, "premium")]
        spans.append(float(np.ptp(nats[np.isfinite(nats)])) / np.log(10))
    mean, error = float(np.mean(spans)), float(np.std(spans, ddof=1) / np.sqrt(len(spans)))
    near = abs(mean - ORDERS) <= 0.1 * ORDERS + 3 * error
    return Evidence(
        holds=near and not trial.planted,
        measured=f"{mean:.0f} ({error:.1f}) orders of magnitude",
        expected="130, within a tenth",
        mcse=error,
        text=f"Our world `arena_like` with {ROWS:,} logs, {len(spans)} samples: the raw weights of premium spread over "
        f"{mean:.0f} ({error:.1f}) orders of magnitude. The world is fitted to TTC, CLE and the errors, not to the "
        "smallest weights, which no diagnostic of the table depends on: weights of 10^-46 and of 10^-130 are both "
        "nothing beside the largest. The paper's log-likelihoods were not used.",
    )


CLAIMS: tuple[Claim, ...] = (
    decided(
        name="fig-stabilisation-rise",
        source=f"{FIGURE}: ESS improves 4.6 to over 3000 times",
        statement=r"the rise of ESS in the caption agrees with the table's raw ESS: it is at most $n/ESS$",
        rule="the printed rises and ESS/n with their rounding; 4,961 rows that attain the bound",
        why=r"Stabilised weights have $ESS \le n$, so the rise is at most $n/ESS$ of the raw weights.",
        decide=decide_rise,
        sides=rise_of_ess,
        second=rise_of_rows,
        planted="twice the largest possible rises",
    ),
    decided(
        name="fig-stabilisation-largest",
        source=f"{FIGURE}: raw weights up to 10^2",
        statement=r"mean-one weights below $10^3$ can have an ESS that rises 3000 times: the rise is at most $\max W$",
        rule="the printed rise and the printed end of the range, rounded up to the next power of ten; 4,961 rows that "
        "attain the bound",
        why=r"$n / ESS = \sum W^2 / n \le \max W$ where the mean of the weights is one.",
        decide=decide_largest,
        sides=largest_weight,
        second=largest_of_rows,
        planted="half of the largest weight",
    ),
    Claim(
        name="fig-stabilisation-ends",
        source=f"{FIGURE}: ESS from below 1% to above 80%",
        statement="the raw ESS/n of every policy is below 1% and the stabilised one above 80%",
        rule="the printed columns of the table of weight diagnostics",
        why="Read from the table; nothing is simulated.",
        decide=decide_ends,
        planted="above 90% after",
        kind="number",
    ),
    Claim(
        name="fig-stabilisation-orders",
        source=f"{FIGURE}: premium spans 130 orders of magnitude",
        statement="the raw weights of premium spread over 130 orders of magnitude, within a tenth",
        rule="range of the log ratios of 4,961 logs of our world arena_like, mean over samples, three standard errors",
        why="Simulated in a world that is fitted to the paper's tables.",
        decide=decide_orders,
        planted="it is denied",
        kind="number",
    ),
)
