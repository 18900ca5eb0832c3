"""What a restriction of the model is worth: known laws, mean sufficiency, monotonicity.

The full model is logged evaluation with a judge, a function of (X, A), and a share of labels at random, all of its laws
unknown; a restriction takes directions out of its tangent space. Bounds are projections of one gradient
(`cje_sim.exact.efficiency`).
"""

import numpy as np

from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import (
    FloatArray,
    Space,
    cramer_rao,
    derivatives,
    dimension,
    project,
    riesz,
    variance,
)
from cje_sim.exact.judge_models import JudgeModel
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.judged import LEFT_RAISED, RIGHT_LOWERED, SMALL, length, model, scored
from studies.ledger.worlds import Family, over_worlds

THEOREM = 'Theorem "Efficiency via Model Restriction", thm:model-restriction'
KNOWN = "xasl"  # prompts, logger, judge, design of the labels
HAIR = 1e-5  # relative gain below which two bounds count as equal: far above rounding, far below a real gain


def restricted(z: FloatArray, size: int) -> Params:
    """A world and two restrictions, of which the second contains the first."""
    own, first, more = np.split(z, [length(size), length(size) + 5])
    known = [bool(v > 0) for v in first]
    nested = [a or bool(v > 0) for a, v in zip(known, more, strict=True)]
    return {**scored(own, size), "restriction": list(map(int, known)), "stronger": list(map(int, nested))}


FAMILY = Family((1, 2), lambda size: length(size) + 10, restricted, 0.4)


def span(m: JudgeModel, space: Space, restriction: list[int]) -> FloatArray:
    """Tangent space of a restriction: one flag per law of `KNOWN`, and one for mean sufficiency."""
    if len(restriction) != len(KNOWN) + 1:
        raise ClaimError(
            f"a restriction has {len(KNOWN) + 1} flags, for {', '.join(KNOWN)} and mean sufficiency"
        )
    known = "".join(name for name, flag in zip(KNOWN, restriction, strict=False) if flag)
    return judge_models.tangent(m, space, known=known, sufficient="s" if restriction[-1] else None)


def nested(w: Params) -> Sides:
    """Bounds under the stronger restriction and under the weaker."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    phi = judge_models.unrestricted(m, space)
    strong, weak = (
        variance(space, project(space, phi, span(m, space, list(w[name]))))
        for name in ("stronger", "restriction")
    )
    return Sides(strong, weak)


def smaller_and_strict(w: Params) -> Sides:
    """The restricted bound, raised by a hair, and the full one, where the restriction takes directions away."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    phi = judge_models.unrestricted(m, space)
    full, small = span(m, space, [0] * 5), span(m, space, list(w["restriction"]))
    if dimension(space, small) == dimension(space, full):
        raise ClaimError("this restriction takes no direction away")
    return Sides((1 + HAIR) * variance(space, project(space, phi, small)), variance(space, phi))


def smaller_and_strict_again(w: Params) -> Sides:
    """The same from finite differences of the value along both tangent spaces: no gradient is used."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    functional = judge_models.value(m, space)
    small, full = (
        variance(space, riesz(space, directions, derivatives(space, functional, directions)))
        for directions in (span(m, space, list(w["restriction"])), span(m, space, [0] * 5))
    )
    return Sides((1 + HAIR) * small, full)


def pythagoras(w: Params) -> Sides:
    """The full bound, and the restricted one plus the squared distance of the gradient from the smaller space."""
    m = model(w, complete=False)
    space = judge_models.observed(m)
    phi = judge_models.unrestricted(m, space)
    small = project(space, phi, span(m, space, list(w["restriction"])))
    return Sides(variance(space, phi), variance(space, small) + float(space.probability @ (phi - small) ** 2))


def rising(w: Params) -> Params:
    """The same world with a reward that rises strictly with the judge's level."""
    reward = np.sort(np.asarray(w["reward"], float))
    return {**w, "reward": np.round(reward + 0.02 * np.arange(len(reward)), 12).tolist()}


def monotone_gain(w: Params) -> Sides:
    """The bound with a reward known to rise, raised by a hair, and without that knowledge; the reward does rise."""
    m = model(rising(w), complete=False)
    space = judge_models.observed(m)
    phi = judge_models.unrestricted(m, space)
    known, free = (
        variance(
            space, project(space, phi, judge_models.tangent(m, space, known="a", sufficient="s", monotone=k))
        )
        for k in (True, False)
    )
    return Sides((1 + HAIR) * known, free)


def by_information(w: Params) -> Sides:
    """Bounds by Fisher information: a rising reward, with the logs of its increments as parameters, and a free one."""
    m = model(rising(w), complete=False)
    space = judge_models.observed(m)
    law, start = judge_models.parametrised(m, space)
    functional, levels = judge_models.value(m, space), m.judge.shape[-1]
    head, reward = start[:-levels], start[-levels:]
    logs = np.concatenate([reward[:1], np.log(np.diff(reward))])

    def by_increments(theta: FloatArray) -> FloatArray:
        raised = np.concatenate([theta[-levels:][:1], np.exp(theta[-levels:][1:])]).cumsum()
        return law(np.concatenate([theta[:-levels], raised]))

    return Sides(
        cramer_rao(by_increments, functional, np.concatenate([head, logs])),
        cramer_rao(law, functional, start),
    )


def monotone_gain_again(w: Params) -> Sides:
    """The bounds of `monotone_gain` by Fisher information."""
    sides = by_information(w)
    return Sides((1 + HAIR) * sides.left, sides.right)


def monotone_equality(w: Params) -> Sides:
    """The bound of a reward known to rise by Fisher information, and that of a free one by projection.

    The tangent space of a rising reward is that of a free one by construction; only the first is worth computing.
    """
    m = model(rising(w), complete=False)
    space = judge_models.observed(m)
    span_ = judge_models.tangent(m, space, known="a", sufficient="s")
    free = variance(space, project(space, judge_models.unrestricted(m, space), span_))
    return Sides(by_information(w).left, free)


CLAIMS = (
    over_worlds(
        name="thm-model-restriction",
        source=THEOREM + ", part (i)",
        statement=r"A stronger restriction never raises the bound: $T_2 \subseteq T_1$ implies "
        r"$\|\varphi^*_2\| \le \|\varphi^*_1\|$.",
        why=r"$\varphi^*_2$ is the projection of $\varphi^*_1$ on $T_2$.",
        family=FAMILY,
        sides=nested,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="model-restriction-equality",
        source=THEOREM + ", part (i)",
        statement=r"Equality holds only if $T_C = T$: a restriction that takes directions away lowers the bound.",
        why=r"A known logger or a known design of the labels takes directions away along which the value does not "
        r"move.",
        family=FAMILY,
        sides=smaller_and_strict,
        second=smaller_and_strict_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="model-restriction-repaired",
        source="ours: repairs model-restriction-equality (docs/claims/model_restriction.md)",
        statement=r"$\|\varphi^*\|^2 = \|\varphi^*_C\|^2 + \|\varphi^* - \varphi^*_C\|^2$, so equality holds iff "
        r"$\varphi^* \in T_C$.",
        why=r"Pythagoras; the directions that are taken away must be those along which the value moves.",
        family=FAMILY,
        sides=pythagoras,
        relation="==",
        repairs="model-restriction-equality",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="monotone-restriction",
        source='Section "Theory": "encoding justified restrictions like monotonicity ... tightens efficiency bounds"',
        statement=r"Knowing that $R$ rises lowers the bound, where $R$ rises strictly.",
        why=r"Near a strictly rising function every direction stays inside the cone: $T_C = T$. What monotonicity "
        r"helps is the finite sample, not the bound.",
        family=SMALL,
        sides=monotone_gain,
        second=monotone_gain_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="monotone-restriction-repaired",
        source="ours: repairs monotone-restriction (docs/claims/model_restriction.md)",
        statement=r"Where $R$ rises strictly the two bounds are equal.",
        why=r"An identity of tangent spaces: near a strictly rising $R$ no direction leaves the cone. It is computed "
        r"without them for the rising $R$, whose parameters are the logs of its increments, by Fisher information; "
        r"by projection for the free one.",
        family=SMALL._replace(sizes=(1,), effort=0.2),  # milliseconds a world
        sides=monotone_equality,
        relation="==",
        repairs="monotone-restriction",
        **LEFT_RAISED,
    ),
)
