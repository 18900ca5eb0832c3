"""Does a finer judge lower the bound? Two judges, the coarse one a garbling of the fine one.

In the paper's set-up both scores are functions of (X, A) and the coarse one is a function of the fine one. Both are
mean-sufficient (the setting of the corollary), so both rewards are ``E[Y | X, A]``: fine levels 2j and 2j + 1 are the
coarse level j and have its reward.

Entries named "random-judge" are ours. There a world has coarse levels, random given the response, each split into two
fine ones, in one of two ways: with ``extra = 0`` the split tells responses apart and nothing about the label; with
``extra = 1`` it tells something about the label and, given the coarse level, nothing about the response. One prompt.
Without mean sufficiency the garbling is any channel.
"""

import numpy as np

from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import cramer_rao, project, variance
from cje_sim.exact.judge_models import JudgeModel, law_with_mean
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.judged import LEFT_RAISED, OURS, RIGHT_LOWERED, apart, inside, law, sums
from studies.ledger.worlds import Family, FloatArray, over_worlds

COROLLARY = 'Corollary "Blackwell-efficiency monotonicity", cor:blackwell'
RESPONSES = 2
FINE = 4  # levels of a fine score that is a function of (x, a); the coarse one has half of them
CELLS = {1: (1, 3, 2), 2: (2, 2, 2), 3: (2, 3, 3)}  # prompts, responses, label values


def two_scores(z: FloatArray, size: int) -> Params:
    """Masses of prompts and responses, of fine levels (the heaviest is the score), labels, coarse rewards, a share."""
    x, a, y = CELLS[size]
    cuts = np.cumsum([x, x * a, x * a, x * a * FINE, FINE // 2, x * a * y])
    prompt, logger, target, judge, reward, label, share = np.split(z, cuts)
    return {
        "prompt": inside(prompt).tolist(),
        "logger": inside(logger.reshape(x, a)).tolist(),
        "target": inside(target.reshape(x, a)).tolist(),
        "score": judge.reshape(x, a, FINE).argmax(axis=-1).tolist(),
        "reward": inside(reward).tolist(),
        "label": inside(label.reshape(x, a, y)).tolist(),
        "share": float(inside(share)[0]),
    }


def n_numbers(size: int) -> int:
    """Length of the vector behind `two_scores`."""
    x, a, y = CELLS[size]
    return x + x * a * (2 + FINE + y) + FINE // 2 + 1


SCORES = Family((1, 2, 3), n_numbers, two_scores, 0.4)


def scored(w: Params, *, complete: bool = True) -> tuple[JudgeModel, JudgeModel]:
    """The finite models of a fine score and of the coarse one, ``score // 2``; both functions of (x, a)."""
    score, reward, label = np.asarray(w["score"]), np.asarray(w["reward"], float), law(w["label"])
    if not ((reward > 0) & (reward < 1)).all() or not ((score >= 0) & (score < FINE)).all():
        raise ClaimError(f"means of the label must lie inside (0, 1), scores be whole numbers below {FINE}")
    values, share = np.linspace(0, 1, label.shape[-1]), 1.0 if complete else float(w["share"])
    head = (law(w["prompt"]), law(w["logger"]), law(w["target"]))

    def build(judge: FloatArray, mean: FloatArray) -> JudgeModel:
        labels = np.broadcast_to(label[:, :, None], (*judge.shape, len(values)))
        labels = law_with_mean(labels, values, np.broadcast_to(mean, judge.shape))
        return JudgeModel(*head, judge, labels, values, np.full(judge.shape, share))

    return build(np.eye(FINE)[score], np.repeat(reward, 2)), build(np.eye(FINE // 2)[score // 2], reward)


def two_judges(z: FloatArray, coarse: int) -> Params:
    """Masses of responses, coarse levels and splits, rewards of fine levels, the share of labels."""
    a = RESPONSES
    cuts = np.cumsum([a, a, a * coarse, a * coarse * 2, coarse * 2, 1])
    logger, target, judge, split, reward, extra, share = np.split(z, cuts)
    return {
        "logger": inside(logger).tolist(),
        "target": inside(target).tolist(),
        "judge": inside(judge.reshape(a, coarse)).tolist(),
        "split": inside(split.reshape(a, coarse, 2)).tolist(),
        "reward": inside(reward.reshape(coarse, 2)).tolist(),
        "extra": int(extra[0] > 0),
        "share": float(inside(share)[0]),
    }


SUFFICIENT = Family((1, 2), lambda k: 2 * RESPONSES + 3 * RESPONSES * k + 2 * k + 2, two_judges, 0.4)


def judges(w: Params, *, complete: bool = True) -> tuple[JudgeModel, JudgeModel]:
    """The finite models of the fine and of the coarse judge; labels of a judge that is random are 0 or 1."""
    if "score" in w:
        return scored(w, complete=complete)
    coarse, split, reward = law(w["judge"]), law(w["split"]), np.asarray(w["reward"], float)
    if not ((reward > 0) & (reward < 1)).all():
        raise ClaimError("means of the label must lie inside (0, 1)")
    if w["extra"]:
        split = np.broadcast_to(split[:1], split.shape)
    else:
        reward = np.broadcast_to(reward[:, :1], reward.shape)
    fine = (coarse[..., None] * split).reshape(1, RESPONSES, -1)
    merged = (split * reward).sum(axis=-1)[None]  # the coarse judge's reward, the same for every response
    values, share = np.array([0.0, 1.0]), 1.0 if complete else float(w["share"])
    head = (np.ones(1), law(w["logger"])[None], law(w["target"])[None])

    def build(judge: FloatArray, mean: FloatArray) -> JudgeModel:
        label = law_with_mean(np.full((*mean.shape, 2), 0.5), values, mean)
        return JudgeModel(*head, judge, label, values, np.full(judge.shape, share))

    return (
        build(fine, np.broadcast_to(reward.reshape(1, 1, -1), fine.shape)),
        build(coarse[None], merged),
    )


def printed_variances(w: Params) -> Sides:
    """Variances of the printed influence function with the fine and with the coarse judge."""
    fine, coarse = (sums(m) for m in judges(w))
    return apart(fine.variance(fine.printed), coarse.variance(coarse.printed), 1.0)


def printed_variances_again(w: Params) -> Sides:
    """The same from the printed functions on the listed outcomes."""
    found = []
    for m in judges(w):
        space = judge_models.observed(m)
        found.append(variance(space, judge_models.printed(m, space)))
    return apart(found[0], found[1], 1.0)


STRICT = 1e-4  # by which the left side is raised where the inequality is said to be strict
VARIED = 0.1  # range of weights within a coarse level, or of rewards, that are not constant


def strict(w: Params) -> None:
    """Stop at a world in which W is a function of the coarse score or R is constant."""
    coarse = scored(w)[1]
    weight, level = coarse.target / coarse.logger, np.asarray(w["score"]) // 2
    spread = max(float(np.ptp(weight[level == k])) if (level == k).any() else 0.0 for k in range(FINE // 2))
    if spread < VARIED or len(np.unique(level)) == 1 or np.ptp(w["reward"]) < VARIED:
        raise ClaimError("W must not be a function of the coarse score, and R not be constant")


def strictly(sides: Sides) -> Sides:
    """The sides with the left one raised by a hair."""
    return Sides(sides.left + STRICT, sides.right)


def printed_strictly(w: Params) -> Sides:
    """`printed_variances`, the left one raised, where the corollary says that the inequality is strict."""
    strict(w)
    return strictly(printed_variances(w))


def printed_strictly_again(w: Params) -> Sides:
    """The same from the printed functions on the listed outcomes."""
    strict(w)
    return strictly(printed_variances_again(w))


def bounds(w: Params, complete: bool) -> Sides:
    """Efficiency bounds under mean sufficiency in the fine and in the coarse judge, by projection."""
    found = []
    for m in judges(w, complete=complete):
        space = judge_models.observed(m)
        span = judge_models.tangent(m, space, known="al", sufficient="s")
        found.append(variance(space, project(space, judge_models.unrestricted(m, space), span)))
    return Sides(*found)


def bounds_again(w: Params, complete: bool) -> Sides:
    """The same by Fisher information."""
    found = []
    for m in judges(w, complete=complete):
        space = judge_models.observed(m)
        parameters, start = judge_models.parametrised(m, space)
        found.append(cramer_rao(parameters, judge_models.value(m, space), start))
    return Sides(*found)


def other_way(sides: Sides) -> Sides:
    """The sides of the opposite inequality."""
    return Sides(sides.right, sides.left)


def threshold(w: Params) -> Sides:
    """The fine bound, and the coarse one plus ``E[W^2 v] - E[m^2 v] / e``, ``v = Var(R_1 | S_2)``, if ``extra = 1``."""
    w = {**w, "extra": 1}
    sides = bounds(w, False)
    coarse = sums(judges(w, complete=False)[1])
    split, reward = law(w["split"])[0], np.asarray(w["reward"], float)
    within = (split * reward**2).sum(axis=1) - (split * reward).sum(axis=1) ** 2
    gain = coarse.mean(coarse.weight**2 * within) - float(
        coarse.level_mass @ (coarse.judged_weight**2 * within) / float(w["share"])
    )
    return Sides(sides.left, sides.right + gain)


def known_rewards(w: Params) -> Sides:
    """Bounds where R is known, ``Var g + E[W^2 Var(R | X, A)]``, with the coarse and with the fine judge."""
    fine, coarse = (sums(m) for m in judges(w))

    def bound(t) -> float:  # type: ignore[no-untyped-def]
        return float(t.variance(t.by_prompt) + t.mean(t.weight**2 * (t.reward - t.by_response) ** 2))

    return apart(bound(coarse), bound(fine), 1.0)


def garbled(z: FloatArray, levels: int) -> Params:
    """Responses, a fine judge, any label law given response and fine level, a channel, the share of labels."""
    a = RESPONSES
    cuts = np.cumsum([a, a, a * levels, a * levels, levels * 2])
    logger, target, judge, reward, channel, share = np.split(z, cuts)
    return {
        "logger": inside(logger).tolist(),
        "target": inside(target).tolist(),
        "judge": inside(judge.reshape(a, levels)).tolist(),
        "reward": inside(reward.reshape(a, levels)).tolist(),
        "channel": inside(channel.reshape(levels, 2)).tolist(),
        "share": float(inside(share)[0]),
    }


GARBLED = Family((2, 3), lambda k: 2 * RESPONSES + 2 * RESPONSES * k + 2 * k + 1, garbled, 0.6)


def garbled_bounds(w: Params) -> Sides:
    """Bounds without a restriction of the label's mean: data with the fine judge, data with the garbled one."""
    fine, coarse = garbled_models(w)
    found = []
    for m in (fine, coarse):
        space = judge_models.observed(m)
        found.append(variance(space, judge_models.unrestricted(m, space)))
    return Sides(*found)


def garbled_models(w: Params) -> tuple[JudgeModel, JudgeModel]:
    """The finite models of the fine judge and of what the channel passes on."""
    judge, channel, reward = law(w["judge"]), law(w["channel"]), np.asarray(w["reward"], float)
    values = np.array([0.0, 1.0])
    joint = judge[:, :, None] * channel  # response, fine level, report
    report = joint.sum(axis=1)
    merged = (joint * reward[:, :, None]).sum(axis=1) / report
    head = (np.ones(1), law(w["logger"])[None], law(w["target"])[None])

    def build(judge: FloatArray, mean: FloatArray) -> JudgeModel:
        label = np.stack([1 - mean, mean], axis=-1)[None]
        return JudgeModel(*head, judge[None], label, values, np.full((1, *judge.shape), float(w["share"])))

    return build(judge, reward), build(report, merged)


def garbling_gap(w: Params) -> Sides:
    """The garbled bound, and the fine one plus ``(1 / e - 1) E[W^2 Var(q_1 | X, A, S_2)]``."""
    judge, channel, reward = law(w["judge"]), law(w["channel"]), np.asarray(w["reward"], float)
    joint = judge[:, :, None] * channel
    report = joint.sum(axis=1)
    merged = (joint * reward[:, :, None]).sum(axis=1) / report
    within = (joint * (reward[:, :, None] - merged[:, None]) ** 2).sum(axis=(1, 2))
    logger, target = law(w["logger"]), law(w["target"])
    gap = (1 / float(w["share"]) - 1) * float((target**2 / logger) @ within)
    sides = garbled_bounds(w)
    return Sides(sides.right, sides.left + gap)


CLAIMS = (
    over_worlds(
        name="cor-blackwell",
        source=COROLLARY,
        statement=r"If $\sigma(S_2) \subseteq \sigma(S_1)$, $Var(\varphi_{sur}(S_1)) \le Var(\varphi_{sur}(S_2))$, "
        r"both judges mean-sufficient.",
        why=r"For $S_j = s_j(X, A)$ it holds trivially: $R_j = q$, so $\varphi_{sur} = g - V$ with either judge, and "
        r"the sides are equal. With the valid bound it fails (blackwell-all-labels, blackwell-some-labels).",
        family=SCORES,
        sides=printed_variances,
        second=printed_variances_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-strictness",
        source=COROLLARY,
        statement=r"The inequality is strict unless $W$ is a function of $S_2$ and $R$ is constant; here neither is "
        r"the case.",
        why=r"The sides are equal whatever $W$ and $R$ are: $\varphi_{sur} = g - V$ with either judge.",
        family=SCORES,
        sides=printed_strictly,
        second=printed_strictly_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-all-labels",
        source="ours: cor:blackwell with the valid bound in place of the printed one",
        statement=r"With every response labelled the bound under mean sufficiency in $S_1$ is at most that in $S_2$.",
        why=r"Mean sufficiency in a coarser judge is the stronger restriction: $T(S_2) \subseteq T(S_1)$, as printed, "
        r"from which the opposite order follows.",
        family=SCORES,
        sides=lambda w: bounds(w, True),
        second=lambda w: bounds_again(w, True),
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-some-labels",
        source="ours: cor:blackwell with the valid bound in place of the printed one",
        statement=r"With a share $e$ of labels the bound under mean sufficiency in $S_1$ is at most that in $S_2$.",
        why=r"As blackwell-all-labels: fewer labels count the same difference $1/e$ times.",
        family=SCORES,
        sides=lambda w: bounds(w, False),
        second=lambda w: bounds_again(w, False),
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-some-labels-reversed",
        source="ours: repairs blackwell-all-labels and blackwell-some-labels (docs/claims/blackwell.md)",
        statement=r"With a share $e$ of labels the bound under mean sufficiency in $S_2$ is at most that in $S_1$.",
        why=r"$E[Y | X, A] = R_2(S_2)$ is a function of $S_1$ too: the model of $S_2$ is contained in that of $S_1$.",
        family=SCORES,
        sides=lambda w: other_way(bounds(w, False)),
        repairs="blackwell-some-labels",
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-printed-random-judge",
        source=OURS + " (cor-blackwell)",
        statement=r"$Var(\varphi_{sur}(S_1)) \le Var(\varphi_{sur}(S_2))$ with judges that are random given $(X, A)$.",
        why=r"A finer judge moves variance of $Y$ into $R(S)$, which $\varphi_{sur}$ counts, out of $Y - R(S)$, which "
        r"it leaves out.",
        family=SUFFICIENT,
        sides=printed_variances,
        second=printed_variances_again,
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-random-judge",
        source=OURS + " (blackwell-some-labels)",
        statement=r"With a share $e$ of labels and judges that are random given $(X, A)$ the bound under mean "
        r"sufficiency in $S_1$ is at most that in $S_2$.",
        why=r"Both orders occur: the split must tell about the label more, times $1/e$, than it spreads the weights.",
        family=SUFFICIENT,
        sides=lambda w: bounds(w, False),
        second=lambda w: bounds_again(w, False),
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-random-judge-reversed",
        source=OURS + " (blackwell-some-labels-reversed)",
        statement=r"With a share $e$ of labels and judges that are random given $(X, A)$ the bound under mean "
        r"sufficiency in $S_2$ is at most that in $S_1$.",
        why=r"With few labels what $S_1$ tells about the label is worth more than what $S_2$ averages over.",
        family=SUFFICIENT,
        sides=lambda w: other_way(bounds(w, False)),
        second=lambda w: other_way(bounds_again(w, False)),
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-threshold",
        source=OURS + " (docs/claims/blackwell.md)",
        statement=r"Judges random given $(X, A)$: where the split tells about the label and not about the response, "
        r"the fine bound is the coarse one plus $E[W^2 v] - E[m^2 v] / e$, $v = Var(R_1 | S_2)$: the finer wins iff "
        r"$e < E[m^2 v] / E[W^2 v]$.",
        why=r"Then $m_1 = m_2$, and $v$ moves from the last term of the bound to the second.",
        family=SUFFICIENT,
        sides=threshold,
        relation="==",
        repairs="blackwell-random-judge",
        **LEFT_RAISED,
    ),
    over_worlds(
        name="blackwell-reversed",
        source=OURS + ": two mean-sufficient judges with known rewards",
        statement=r"With $R_1, R_2$ known and judges that are random given $(X, A)$ the coarser judge has the lower "
        r"bound: $Var\,g + E[W^2 Var(R_2 | X, A)] \le Var\,g + E[W^2 Var(R_1 | X, A)]$.",
        why=r"$R_2(S_2) = E[R_1(S_1) | X, A, S_2]$ under both sufficiencies; conditioning lowers the variance.",
        family=SUFFICIENT,
        sides=known_rewards,
        repairs="blackwell-random-judge",
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-repaired",
        source=OURS + " (docs/claims/blackwell.md)",
        statement=r"Without mean sufficiency, the score random given $(X, A)$ or not, and with a share $e$ of labels "
        r"at random, any garbling raises the bound or leaves it.",
        why=r"The bound is $Var\,g + E[W^2 Var(q_S | X, A)] + E[W^2 Var(Y | X, A, S)] / e$; a finer judge moves "
        r"variance from the last term, which counts $1/e$ times, to the second.",
        family=GARBLED,
        sides=garbled_bounds,
        repairs="blackwell-random-judge",
        **RIGHT_LOWERED,
    ),
    over_worlds(
        name="blackwell-price",
        source=OURS + " (docs/claims/blackwell.md)",
        statement=r"The garbled bound exceeds the fine one by exactly $(1/e - 1) E[W^2 Var(q_1 | X, A, S_2)]$: nothing "
        r"where every response is labelled.",
        why=r"Law of total variance of $q_1 = E[Y | X, A, S_1]$ given $(X, A, S_2)$.",
        family=GARBLED,
        sides=garbling_gap,
        relation="==",
        repairs="blackwell-random-judge",
        **LEFT_RAISED,
    ),
)
