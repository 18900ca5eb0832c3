"""Worlds with a judge for the claims of efficiency: parameters, the finite model behind them, exact sums by loops.

A world has prompts x, responses a, judge levels s and label values y on [0, 1]; masses need not sum to one. ``function
= 1`` makes the score a function of (x, a), its heaviest level: the paper's set-up, ``S = s(X, A)``, in which its
statements are decided (`FAMILY`, `SMALL`). `FAMILY_RANDOM` and `SMALL_RANDOM` have judges that are random given (x, a)
as well, for statements of ours. Means of the label depend on s alone (mean sufficiency).
`outcomes` lists the same world in rational arithmetic, from the decimals of the parameters, by plain loops: the second
way that counterexamples are confirmed.
"""

import itertools
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_sim.exact.judge_models import JudgeModel, law_with_mean
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray

SHAPES = {
    1: (1, 2, 2, 2),
    2: (2, 2, 2, 3),
    3: (2, 2, 3, 3),
    4: (2, 2, 3, 2),
}  # prompts, responses, judge levels, label values
OURS = "ours: if the judge were random given (X, A), which the paper excludes"
EDGE = 0.05  # masses, shares and means stay this far from 0 and 1: counterexamples then have short decimals


def length(size: int) -> int:
    """Length of the vector behind a world."""
    x, a, s, y = SHAPES[size]
    return x + 2 * x * a + x * a * s + s + x * a * s * y + 2


def world(z: FloatArray, size: int) -> Params:
    """Parameters of a world from real numbers."""
    x, a, s, y = SHAPES[size]
    parts = np.split(z, np.cumsum([x, x * a, x * a, x * a * s, s, x * a * s * y, 1]))
    prompt, logger, target, judge, reward, label, function, share = parts
    return {
        "prompt": inside(prompt).tolist(),
        "logger": inside(logger.reshape(x, a)).tolist(),
        "target": inside(target.reshape(x, a)).tolist(),
        "judge": inside(judge.reshape(x, a, s)).tolist(),
        "function": int(function[0] > 0),
        "reward": inside(reward).tolist(),
        "label": inside(label.reshape(x, a, s, y)).tolist(),
        "share": float(inside(share)[0]),
    }


def scored(z: FloatArray, size: int) -> Params:
    """Parameters of a world whose score is a function of (x, a), from real numbers."""
    return as_function(world(z, size))


def as_function(w: Params) -> Params:
    """The same world with a score that is a function of (x, a)."""
    return {**w, "function": 1}


FAMILY = Family((1, 2, 3), length, scored)
SMALL = Family((1, 2), length, scored, 0.4)  # where a bound takes linear algebra: milliseconds
FAMILY_RANDOM = FAMILY._replace(world=world)
SMALL_RANDOM = SMALL._replace(world=world)


def inside(z: npt.ArrayLike) -> FloatArray:
    """Numbers in (.05, .95)."""
    return np.asarray(EDGE + (1 - 2 * EDGE) / (1 + np.exp(-np.asarray(z, float))))


def law(masses: npt.ArrayLike) -> FloatArray:
    """Laws along the last axis from masses, all of which must be positive."""
    table = np.asarray(masses, float)
    if not (np.isfinite(table).all() and (table > 0).all()):
        raise ClaimError("masses of a world with a judge must be positive")
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def model(w: Params, *, complete: bool = True) -> JudgeModel:
    """The finite model of a world; with every label, or a share of them at random."""
    reward = np.asarray(w["reward"], float)
    share = 1.0 if complete else float(w["share"])
    if not ((reward > 0) & (reward < 1)).all() or not 0 < share <= 1:
        raise ClaimError("means of the label must lie inside (0, 1), the share of labels in (0, 1]")
    judge = law(w["judge"])
    if w["function"]:
        judge = np.eye(judge.shape[-1])[judge.argmax(axis=-1)]
    label = law(w["label"])
    values = np.linspace(0, 1, label.shape[-1])
    label = law_with_mean(label, values, np.broadcast_to(reward, judge.shape))
    return JudgeModel(
        law(w["prompt"]),
        law(w["logger"]),
        law(w["target"]),
        judge,
        label,
        values,
        np.full(judge.shape, share),
    )


class Sums(NamedTuple):
    """Joint law of (x, a, s) and what is conditioned on it, broadcast to (X, A, S)."""

    joint: FloatArray
    weight: FloatArray  # W
    level_mass: FloatArray  # (S,)
    judged_weight: FloatArray  # m(S), (S,)
    reward: FloatArray  # R(S), (S,)
    by_response: FloatArray  # q(x, a), (X, A, 1)
    by_prompt: FloatArray  # g(x), (X, 1, 1)
    noise: FloatArray  # Var(Y | x, a, s)
    value: float

    def mean(self, function: FloatArray) -> float:
        """Mean of a function of (x, a, s)."""
        return float((self.joint * function).sum())

    def variance(self, function: FloatArray) -> float:
        """Variance of a function of (x, a, s)."""
        return self.mean((function - self.mean(function)) ** 2)

    def given_level(self, function: FloatArray) -> FloatArray:
        """Conditional mean given s, (S,); 0 where the judge never gives a level."""
        total = (self.joint * function).sum(axis=(0, 1))
        return np.asarray(total / np.where(self.level_mass > 0, self.level_mass, 1.0))

    @property
    def printed(self) -> FloatArray:
        """The paper's ``phi_sur``, as a function of (x, a, s)."""
        return self.by_prompt + self.judged_weight * (self.reward - self.by_response) - self.value


def sums(m: JudgeModel) -> Sums:
    """Every sum that the closed forms need, from a model's tables."""
    joint = m.prompt[:, None, None] * m.logger[:, :, None] * m.judge
    weight = np.broadcast_to((m.target / m.logger)[:, :, None], joint.shape)
    mass = joint.sum(axis=(0, 1))
    judged = (joint * weight).sum(axis=(0, 1)) / np.where(mass > 0, mass, 1.0)
    reward = m.reward
    q = (m.judge * reward).sum(axis=2)
    g = (m.target * q).sum(axis=1)
    noise = m.label @ m.values**2 - reward**2
    return Sums(
        joint, weight, mass, judged, reward[0, 0], q[:, :, None], g[:, None, None], noise, float(m.prompt @ g)
    )


class Outcome(NamedTuple):
    """One outcome of a world in rational arithmetic."""

    x: int
    a: int
    s: int
    y: Fraction
    probability: Fraction
    weight: Fraction
    reward: Fraction


def outcomes(w: Params) -> list[Outcome]:
    """All outcomes with positive probability, every response labelled; the parameters are read as decimals."""
    number = _exact(w)
    reward = number["reward"]
    n_y = len(number["label"][0][0][0])
    found = []
    shape = (len(number["prompt"]), len(number["logger"][0]), len(reward))
    for x, a, s in itertools.product(*map(range, shape)):
        judge = number["judge"][x][a]
        there = Fraction(int(s == judge.index(max(judge)))) if w["function"] else judge[s] / sum(judge)
        logger = number["logger"][x][a] / sum(number["logger"][x])
        target = number["target"][x][a] / sum(number["target"][x])
        cell = number["prompt"][x] / sum(number["prompt"]) * logger * there
        base = [mass / sum(number["label"][x][a][s]) for mass in number["label"][x][a][s]]
        values = [Fraction(k, n_y - 1) for k in range(n_y)]
        mean = sum((p * y for p, y in zip(base, values, strict=True)), Fraction(0))
        end = Fraction(1) if reward[s] > mean else Fraction(0)
        mixed = (reward[s] - mean) / (end - mean) if end != mean else Fraction(0)
        for p, y in zip(base, values, strict=True):
            chance = cell * ((1 - mixed) * p + mixed * int(y == end))
            if chance > 0:
                found.append(Outcome(x, a, s, y, chance, target / logger, reward[s]))
    return found


def expected(
    space: list[Outcome],
    function: Callable[[Outcome], Fraction],
    given: Callable[[Outcome], Hashable] = lambda o: 0,
) -> dict[Hashable, Fraction]:
    """Conditional mean of a function by the value of `given`, one outcome after the other."""
    total: dict[Hashable, Fraction] = {}
    mass: dict[Hashable, Fraction] = {}
    for o in space:
        key = given(o)
        total[key] = total.get(key, Fraction(0)) + o.probability * function(o)
        mass[key] = mass.get(key, Fraction(0)) + o.probability
    return {key: total[key] / mass[key] for key in total}


def printed_exact(space: list[Outcome]) -> tuple[Callable[[Outcome], Fraction], Fraction]:
    """The paper's ``phi_sur`` and the value V, in rational arithmetic."""
    judged = expected(space, lambda o: o.weight, lambda o: o.s)
    q = expected(space, lambda o: o.reward, lambda o: (o.x, o.a))
    g = expected(space, lambda o: o.weight * q[o.x, o.a], lambda o: o.x)
    value = expected(space, lambda o: o.weight * o.y)[0]
    return lambda o: g[o.x] + judged[o.s] * (o.reward - q[o.x, o.a]) - value, value


def _exact(value: object) -> "dict[str, list]":  # type: ignore[type-arg]
    """Decimals as fractions, through any depth of lists."""

    def exact(one: object) -> object:
        if isinstance(one, dict):
            return {name: exact(v) for name, v in one.items()}
        if isinstance(one, list):
            return [exact(v) for v in one]
        return Fraction(str(one))

    return exact(value)  # type: ignore[return-value]


def apart(left: float, right: float, shift: float = 2.0) -> Sides:
    """Two numbers on the label's scale, moved by `shift`: an optimiser then gains nothing from sides near zero."""
    return Sides(shift + left, shift + right)


def _raised(s: Sides) -> Sides:
    return Sides(1.5 * s.left, s.right)


def _lowered(s: Sides) -> Sides:
    return Sides(s.left, s.right / 1.5)


LEFT_RAISED: dict[str, Any] = {"planted": "the left side multiplied by 1.5", "falsified": _raised}
RIGHT_LOWERED: dict[str, Any] = {"planted": "the right side divided by 1.5", "falsified": _lowered}
