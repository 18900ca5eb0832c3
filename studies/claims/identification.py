"""What a calibrated judge identifies: mean transport, what its audit sees, and responses outside the oracle's range."""

import numpy as np

from cje_core.streams import generator
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, masses, over_worlds

ROWS = 20_000


def world(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Responses with masses under two policies and the logger, mean labels, judge levels, a calibrator."""
    p, other, q, y, level, f = z.reshape(6, size)
    return {
        "target": np.exp(p).tolist(),
        "other": np.exp(other).tolist(),
        "logger": np.exp(q).tolist(),
        "label": (1 / (1 + np.exp(-2 * y))).tolist(),
        "level": [int(v > 0) + int(v > 1) for v in level],
        "fit": (1 / (1 + np.exp(-2 * f))).tolist(),
    }


FAMILY = Family((2, 3, 5), lambda size: 6 * size, world)


def by_level(w: Params, values: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of values within the judge's levels, for each response."""
    level = np.asarray(w["level"])
    if not all(mass[level == s].sum() > 1e-9 for s in level):
        raise ClaimError("a level has no mass")
    return np.array([values[level == s] @ mass[level == s] / mass[level == s].sum() for s in level])


def transport_identity(w: Params) -> Sides:
    """``E[Y] - E[f]`` and ``E[Y - f]`` under the target, from the joint law of level and label, moved from 0."""
    p, y = masses(w["target"]), np.asarray(w["label"], float)
    f = by_level(w, np.asarray(w["fit"], float), np.ones(len(y)))
    joint = np.stack([p * (1 - y), p * y])  # label 0 and 1
    residual = float((joint * np.stack([0 - f, 1 - f])).sum())
    return Sides(10 + float(joint[1].sum()) - float(p @ f), 10 + residual)


def sufficient_transport(w: Params) -> Sides:
    """Under mean sufficiency: V against the mean of the logger's calibration under the target."""
    p, q = masses(w["target"]), masses(w["logger"])
    y = by_level(w, np.asarray(w["label"], float), np.ones(len(p)))  # labels depend on the level alone
    return Sides(float(p @ y), float(p @ by_level(w, y, q)))


def transported(w: Params) -> Sides:
    """V against the mean of the logger's calibration under the target, labels as they are."""
    p, q, y = masses(w["target"]), masses(w["logger"]), np.asarray(w["label"], float)
    return Sides(float(p @ y), float(p @ by_level(w, y, q)))


def transport_by_simulation(w: Params) -> Sides:
    """The same with simulated labels under both policies."""
    p, q, y, level = masses(w["target"]), masses(w["logger"]), np.asarray(w["label"]), np.asarray(w["level"])

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        taught, drawn = rng.choice(len(q), ROWS, p=q), rng.choice(len(p), ROWS, p=p)
        label = rng.random(ROWS) < y[taught]
        fit = {s: label[level[taught] == s].mean() for s in set(level[drawn].tolist())}
        return float((rng.random(ROWS) < y[drawn]).mean()), float(
            np.mean([fit[s] for s in level[drawn].tolist()])
        )

    return batches(batch, generator(0, "claims", "identification", "transport"))


def compensating(w: Params) -> Params:
    """A world whose mean residual is zero under the target: the calibrator is shifted by a constant."""
    p, y = masses(w["target"]), np.asarray(w["label"], float)
    f = by_level(w, np.asarray(w["fit"], float), np.ones(len(y)))
    return {**w, "fit": (f + float(p @ (y - f))).tolist()}


def binned(w: Params) -> Sides:
    """Largest mean residual within a level, for a calibrator that passes the mean audit, against a hundredth."""
    w = compensating(w)
    p, y, f = masses(w["target"]), np.asarray(w["label"], float), np.asarray(w["fit"], float)
    return Sides(float(np.abs(by_level(w, y - f, p)).max()), 0.01)


def binned_by_simulation(w: Params) -> Sides:
    """The same from simulated labels."""
    w = compensating(w)
    p, y, f, level = masses(w["target"]), np.asarray(w["label"]), np.asarray(w["fit"]), np.asarray(w["level"])

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        a = rng.choice(len(p), ROWS, p=p)
        residual = (rng.random(ROWS) < y[a]) - f[a]
        return max(abs(float(residual[level[a] == s].mean())) for s in set(level[a].tolist())), 0.01

    return batches(batch, generator(0, "claims", "identification", "binned"))


def sufficiency_needed(w: Params) -> Sides:
    """Mean residual of the logger's calibration that is shifted onto transport: largest gap of sufficiency, or .01."""
    p, q, y = masses(w["target"]), masses(w["logger"]), np.asarray(w["label"], float)
    if abs(float(p @ y) - float(p @ by_level(w, y, q))) > 1e-9:
        raise ClaimError("the calibration does not transport")
    if np.abs(p - q).sum() < 0.2:
        raise ClaimError("the policies agree")
    used = p > 1e-6
    return Sides(float(np.abs(y - by_level(w, y, q))[used].max()), 0.01)


def onto_transport(z: FloatArray, size: int) -> dict[str, list[float]]:
    """A world in which the logger's calibration transports: the last response of each level makes up for the others.

    The target is the logger on the levels and within them moves mass between responses of equal label.
    """
    w = world(z, size)
    q, label = masses(w["logger"]), list(w["label"])
    w["level"] = [0] * size
    target = masses(w["target"])
    mean = float(np.dot(q, label))
    # labels are shifted along the direction in which only the target's mean moves, until it is the logger's
    direction = (target - q) - float((target - q) @ q) / float(q @ q) * q
    gap = float(np.dot(target, label)) - mean
    slope = float(target @ direction)
    moved = np.asarray(label) - gap / slope * direction if abs(slope) > 1e-9 else np.asarray(label)
    w["label"] = (moved - moved.min() + 0.05).tolist()
    top = max(w["label"]) + 0.05
    w["label"] = [v / top for v in w["label"]]
    return w


def out_of_range(w: Params) -> Sides:
    """Bias of a calibrator right inside the oracle's range, and any value in [0, 1] outside, against the mass there."""
    p, y = masses(w["target"]), np.asarray(w["label"], float)
    outside = np.asarray(w["level"]) > 0
    f = np.where(outside, np.asarray(w["fit"], float), y)
    return Sides(abs(float(p @ (f - y))), float(p[outside].sum()) + 1e-12)


def flat_edge(w: Params) -> Sides:
    """Bias of flat extension from the edge value e upwards, truth rising: against ``eta (1 - e)``."""
    p = masses(w["target"])
    y = np.sort(np.asarray(w["label"], float))
    edge = len(y) // 2
    f = np.minimum(y, y[edge])
    return Sides(float(p @ (y - f)), float(p[edge:].sum()) * (1 - float(y[edge])) + 1e-12)


def inverted(w: Params) -> Sides:
    """Higher mean score, lower value: value of the policy with more of the judge's top level against the other's."""
    p, o, y = masses(w["target"]), masses(w["other"]), np.asarray(w["label"], float)
    score = np.asarray(w["level"], float)
    if float(p @ score) < float(o @ score) + 0.05:
        p, o = o, p
    if float(p @ score) < float(o @ score) + 0.05:
        raise ClaimError("the judge sees no difference")
    return Sides(float(o @ y), float(p @ y))


def inverted_by_simulation(w: Params) -> Sides:
    """The same from simulated rows of both policies."""
    p, o, y = masses(w["target"]), masses(w["other"]), np.asarray(w["label"], float)
    score = np.asarray(w["level"], float)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        a, b = rng.choice(len(p), ROWS, p=p), rng.choice(len(o), ROWS, p=o)
        low, high = (a, b) if score[a].mean() < score[b].mean() else (b, a)
        return float((rng.random(ROWS) < y[low]).mean()), float((rng.random(ROWS) < y[high]).mean())

    return batches(batch, generator(0, "claims", "identification", "inverted"))


def rising_labels(w: Params) -> Params:
    """The same world with labels that are a rising function of the judge's level."""
    value = {s: (k + 0.5) / 3 for k, s in enumerate((0, 1, 2))}
    return {**w, "label": [value[s] for s in w["level"]]}


def gap_of_two(w: Params) -> Sides:
    """Largest gap between a response's label and its level's mean, by simulation of labels; .01 on the right."""
    y, q = np.asarray(w["label"], float), masses(w["logger"])

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        a = rng.choice(len(q), ROWS, p=q)
        label = rng.random(ROWS) < y[a]
        return max(abs(float(label[a == k].mean() - label.mean())) for k in set(a.tolist())), 0.01

    return batches(batch, generator(0, "claims", "identification", "gap"))


CLAIMS = (
    over_worlds(
        name="prop-mean-transport",
        source="Proposition (mean transport equivalence), prop:mean-transport, eq:transport-decomp",
        statement=r"$E_{\pi'}[Y] - E_{\pi'}[f(S)] = E_{\pi'}[Y - f(S)]$",
        why="Linearity; enumerated over the joint law of response, level and binary label.",
        family=FAMILY,
        sides=transport_identity,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="sufficiency-transports",
        source="Section 2, judges as surrogates: mean sufficiency guarantees transport",
        statement=r"if $E[Y|X,A,S] = \mu(S)$ then $E_{\pi'}[\mu_0(S)] = V(\pi')$ for every policy",
        why=r"The logger's $E[Y|S]$ is then $\mu(S)$ whatever it samples.",
        family=FAMILY,
        sides=sufficient_transport,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="calibration-transports",
        source="ours: 'reuse calibration' (Section 1) without the audit for which the paper asks",
        statement=r"$E_{\pi'}[E_0[Y|S]] = V(\pi')$ for every policy",
        why="Responses of one score need not be worth the same, and policies differ in which of them they write.",
        family=FAMILY,
        sides=transported,
        relation="==",
        second=transport_by_simulation,
        condition="labels depend on the score alone (mean sufficiency)",
        restrict=rising_labels,
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="transport-strictly-weaker",
        source="Section 2, 'strictly weaker than Prentice-style surrogacy'",
        statement="a calibration can transport to a policy, though responses of one score differ in worth (by "
        "more than "
        ".01)",
        why="Errors within a level cancel under both policies.",
        family=Family((2, 3), lambda size: 6 * size, onto_transport, 0.3),
        sides=sufficiency_needed,
        second=gap_of_two,
        exists=True,
        planted="they differ by more than 1",
        falsified=lambda s: Sides(s.left, 100 * s.right),
    ),
    over_worlds(
        name="audit-scope",
        source="Section 2, compensating errors; remark after prop:mean-transport",
        statement="a calibrator with mean residual 0 under the target can have a mean residual of more than .01 "
        "within a "
        "level",
        why="The mean audit sees one number; errors of opposite sign in two levels cancel in it.",
        family=FAMILY,
        sides=binned,
        second=binned_by_simulation,
        exists=True,
        planted="above 10",
        falsified=lambda s: Sides(s.left, 1000 * s.right),
    ),
    over_worlds(
        name="out-of-range-bound",
        source="tab:gates, Identification: OutOfRange <= eta bounds the worst-case bias by eta",
        statement=r"labels and calibrator in [0, 1], right inside the range: $|bias| \le \eta$",
        why=r"The bias is $E[(f - y) 1_{out}]$, and $|f - y| \le 1$. It is reached: f = 0 where y = 1.",
        family=FAMILY,
        sides=out_of_range,
        planted="half of eta",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="out-of-range-flat",
        source="ours: sharpening tab:gates, for a rising truth and flat extension",
        statement=r"above the range the bias of flat extension at edge value e is at most $\eta (1 - e)$",
        why=r"There $e \le y \le 1$: flat boundaries are no sign of danger by themselves, their height is.",
        family=FAMILY,
        sides=flat_edge,
        planted="half of the bound",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="rankings-invert",
        source="Section 1, 'rankings can invert' (the surrogate paradox)",
        statement="the policy with the higher mean score can have the lower value",
        why="Nothing ties the score to the label but the responses that a policy writes.",
        family=FAMILY,
        sides=inverted,
        second=inverted_by_simulation,
        exists=True,
        planted="lower by more than 1",
        falsified=lambda s: Sides(s.left - 1, s.right),
    ),
)
