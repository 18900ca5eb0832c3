"""The identification gate and REFUSE-LEVEL: what passes it, whom it refuses, and whether rankings stand where it does.

The judge's levels are in order and labels rise with them. Labels were bought on the first `labelled` levels; beyond
them the calibrator is flat, at the value of the last. The gate refuses a level where more than 5% of the policy's
scores lie beyond and the boundary is flat, as the paper has it.
"""

import math

import numpy as np
from scipy import stats

from cje_core.streams import generator
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, masses, over_worlds

ETA = 0.05  # of the gate
FLAT = 0.01  # rise from the last labelled level but one to the last that counts as none (ours)
APART = 0.01  # by which one policy must lead the other
LEVEL = 0.05  # false alarms that a gate may have (ours)
ROWS = 1_000_000  # simulated responses of a batch


def world(z: FloatArray, size: int) -> dict[str, object]:
    """Masses of the judge's levels under two policies, labels that rise with the level, how many levels have labels."""
    target, other, rise = z[: 3 * size].reshape(3, size)
    labels = np.cumsum(np.exp(rise))
    return {
        "target": np.exp(target).tolist(),
        "other": np.exp(other).tolist(),
        "label": (labels / (labels[-1] + math.exp(z[-2]))).tolist(),
        "labelled": 2 + int((size - 2) / (1 + math.exp(-z[-1]))),
    }


def edged(z: FloatArray, size: int) -> dict[str, object]:
    """The same with a boundary that is flat to within the gate's tolerance."""
    w = world(z, size)
    edge, label = int(w["labelled"]), list(w["label"])  # type: ignore[call-overload]
    label[edge - 1] = min(label[edge - 1], label[edge - 2] + FLAT / 2)
    return {**w, "label": label}


FAMILY = Family((3, 4, 6), lambda size: 3 * size + 2, world)
FLAT_EDGE = FAMILY._replace(world=edged)


def known(w: Params) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Target, the other policy, labels and the number of levels with labels."""
    y, edge = np.asarray(w["label"], float), int(w["labelled"])
    if not (2 <= edge < len(y) and (np.diff(y) >= 0).all() and y[0] >= 0 and y[-1] <= 1):
        raise ClaimError("labels must rise within [0, 1], on two levels with labels and one without at least")
    return masses(w["target"]), masses(w["other"]), y, edge


def refused(p: FloatArray, y: FloatArray, edge: int) -> bool:
    """Whether the gate refuses the level of a policy."""
    return bool(p[edge:].sum() > ETA and y[edge - 1] - y[edge - 2] <= FLAT)


def plugged(y: FloatArray, edge: int) -> FloatArray:
    """The calibrator: right where there are labels, flat beyond."""
    return np.asarray(np.minimum(y, y[edge - 1]))


def passes(w: Params) -> Sides:
    """Bias of a policy that passes the gate, against eta."""
    p, _, y, edge = known(w)
    if refused(p, y, edge):
        raise ClaimError("the gate refuses")
    return Sides(float(p @ (y - plugged(y, edge))), ETA)


def within(w: Params) -> Params:
    """The same with 5% of the target beyond the labels at most."""
    p, edge = masses(w["target"]), int(w["labelled"])
    outside = float(p[edge:].sum())
    kept = min(outside, ETA * 0.999)
    moved = [p[:edge] * (1 - kept) / (1 - outside), p[edge:] * kept / max(outside, 1e-12)]
    return {**w, "target": np.concatenate(moved).tolist()}


def alarm(w: Params) -> Sides:
    """Eta against the bias of a policy that the gate refuses."""
    p, _, y, edge = known(w)
    if not refused(p, y, edge):
        raise ClaimError("the gate passes")
    return Sides(ETA, float(p @ (y - plugged(y, edge))))


def drawn(w: Params, which: str, rng: np.random.Generator) -> tuple[float, float, bool]:
    """Mean binary label and mean plug-in value of simulated responses of a policy, and the gate's word on its law."""
    _, _, y, edge = known(w)
    p = masses(w[which])
    count = rng.multinomial(ROWS, p)
    good = rng.binomial(count, y)
    return float(good.sum()) / ROWS, float(count @ plugged(y, edge)) / ROWS, refused(p, y, edge)


def passes_by_simulation(w: Params) -> Sides:
    """The sides of `passes` from simulated responses and labels."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        label, fit, stopped = drawn(w, "target", rng)
        return (0.0 if stopped else label - fit), ETA

    return batches(batch, generator(0, "claims", "refusal", "passes"))


def alarm_by_simulation(w: Params) -> Sides:
    """The sides of `alarm` from simulated responses and labels."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        label, fit, stopped = drawn(w, "target", rng)
        return ETA, (label - fit if stopped else 1.0)

    return batches(batch, generator(0, "claims", "refusal", "alarm"))


def ordered(w: Params) -> Sides:
    """Where the gate refuses the policy that the plug-in puts first: value of the second, and of the first."""
    p, o, y, edge = known(w)
    fit = plugged(y, edge)
    if float((p - o) @ fit) < 0:
        p, o = o, p
    if float((p - o) @ fit) < APART:
        raise ClaimError("the plug-in does not order them")
    if not (refused(p, y, edge) or refused(o, y, edge)):
        raise ClaimError("the gate passes both")
    return Sides(float(o @ y), float(p @ y))


def ordered_by_simulation(w: Params) -> Sides:
    """The same from simulated responses and labels of both."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        first, second = (drawn(w, which, rng) for which in ("target", "other"))
        if first[1] < second[1]:
            first, second = second, first
        return (second[0] if first[2] or second[2] else 0.0), first[0]

    return batches(batch, generator(0, "claims", "refusal", "ordered"))


def dominated(w: Params) -> Params:
    """The same with the other policy's scores below the target's in stochastic order."""
    law = np.maximum(np.cumsum(masses(w["target"])), np.cumsum(masses(w["other"])))
    return {**w, "other": np.diff(np.append(0.0, np.append(law[:-1], 1.0))).clip(0).tolist()}


def beyond(labels: int) -> float:
    """Chance that more than eta of a continuous law lies beyond the range of so many draws of the same law.

    The shares of a law between its ordered draws are exchangeable, so that what lies beyond both ends has a
    Beta(2, labels - 1) law.
    """
    return float(stats.beta.sf(ETA, 2, labels - 1))


LEAST = next(m for m in range(2, 10_000) if beyond(m) <= LEVEL)


def same_law(w: Params) -> Sides:
    """Chance that a policy with the labels' own law of scores is beyond their range by more than eta, against .05."""
    if not w["labels"] >= 2:
        raise ClaimError("a range takes two labels")
    return Sides(beyond(int(w["labels"])), LEVEL)


def same_law_by_simulation(w: Params) -> Sides:
    """The same from simulated scores."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        s = rng.random((2000, int(w["labels"])))
        return float((1 - np.ptp(s, axis=1) > ETA).mean()), LEVEL

    return batches(batch, generator(0, "claims", "refusal", "same law"))


CLAIMS = (
    over_worlds(
        name="refuse-level-passes",
        source="ours: of the gate's 'or' in tab:gates, Identification, and alg:gates ('OutOfRange <= eta "
        "(worst-case bias <= "
        "eta) or non-flat boundaries'); tab:assumptions-ledger lists both, that is 'and'",
        statement="a level that passes the gate is off by at most 5%, calibrator right where there are labels",
        why=r"The bias is $\sum_{s > edge} p(s) (y(s) - e)$, e the value at the edge. The first half of the gate "
        "bounds its mass, the second nothing: a link that still rises at the edge is where flat extension errs most, "
        "and such a boundary waives the bound on the mass. With 'and' in place of 'or' the gate would keep its "
        "promise.",
        family=FAMILY,
        sides=passes,
        second=passes_by_simulation,
        condition=r"$OutOfRange \le .05$, whatever the boundary",
        restrict=within,
        planted="off by at most a thousandth",
        falsified=lambda s: Sides(s.left, 0.001),
    ),
    over_worlds(
        name="refuse-level-alarm",
        source="ours: does the gate of tab:gates refuse those levels that are off?",
        statement="a level that the gate refuses is off by more than 5%",
        why=r"A flat boundary is also what a judge shows whose scores saturate: there the truth is flat as well, and "
        r"flat extension is right. By `out-of-range-flat` the bias is at most $\eta (1 - e)$, small where e is near 1.",
        family=FLAT_EDGE,
        sides=alarm,
        second=alarm_by_simulation,
        planted="off by more than 50%",
        falsified=lambda s: Sides(10 * s.left, s.right),
    ),
    over_worlds(
        name="refuse-level-same-law",
        source="tab:gates, OutOfRange with its default of 5%, for a policy without any shift; the 5% of false alarms "
        "is ours",
        statement="more than 5% of a policy whose scores have the labelled scores' own law lie beyond their range with "
        "a probability of at most 5%",
        why=r"What lies beyond the range of m draws of a continuous law has a $Beta(2, m - 1)$ law, of mean "
        r"$2/(m + 1)$, whatever the law of the scores: so the range of few labels refuses everybody. Exceedance is "
        r"$P(Bin(m, .05) \le 1) = .95^m + m\,(.05)\,.95^{m-1}$.",
        family=Family((1,), lambda size: 1, lambda z, size: {"labels": 2 + int(20 * abs(float(z[0])))}),
        sides=same_law,
        second=same_law_by_simulation,
        condition=f"there are at least {LEAST} labels",
        restrict=lambda w: {**w, "labels": int(w["labels"]) + LEAST - 2},
        planted="a probability of at most one in a thousand million",
        falsified=lambda s: Sides(s.left, 1e-9),
    ),
    over_worlds(
        name="refuse-level-ranks",
        source="tab:gates and REFUSE-LEVEL procedure: 'report rankings' where levels are refused",
        statement="where the gate refuses a level, the plug-in values still order two policies rightly, labels rising "
        "with the score",
        why="Flat extension takes away what lies beyond the edge, more from the policy that has more there: the better "
        "one can come out second. Where one policy's scores are stochastically larger, every rising function, the "
        "truth and its flat extension, has the larger mean under it.",
        family=FLAT_EDGE,
        sides=ordered,
        second=ordered_by_simulation,
        condition="the scores of one policy are stochastically larger than the other's",
        restrict=dominated,
        planted="with half of the value to spare",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="refuse-level-ranks-repaired",
        source="ours: in place of refuse-level-ranks",
        statement="where the gate refuses a level, the plug-in values order two policies rightly if the scores of "
        "one are stochastically larger, labels rising with the score",
        why="Both the truth and its flat extension rise with the score, and a rising function has the larger mean "
        "under the stochastically larger law.",
        family=FLAT_EDGE._replace(world=lambda z, size: dominated(edged(z, size))),
        sides=ordered,
        second=ordered_by_simulation,
        repairs="refuse-level-ranks",
        planted="with half of the value to spare",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
)
