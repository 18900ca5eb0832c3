"""Logged evaluation with a judge as a finite model: its law, its tangent spaces, the gradients that are claimed of it.

    x ~ p(x),   a ~ pi_0(a | x),   s ~ p(s | x, a),   y ~ p(y | x, a, s),   seen with probability e(x, a, s).

The value of a target policy is ``V = sum_x p(x) sum_a pi'(a | x) sum_s p(s | x, a) E[Y | x, a, s]``, `value`; the
mean label of the policy that responded, whose law nobody can sum over, is `mean_label` (the paper's Direct mode). Under
*mean sufficiency* ``E[Y | X, A, S] = R(S)`` the gradients of the value in closed form are, with ``W = pi' / pi_0``,
``m(S) = E[W | S]``, ``q = E[R | X, A]``, ``g(X)`` its mean under the target and ``v = Var(Y | X, A, S)``:

- `printed`: ``g + m (R - q) - V``, the paper's theorem "Surrogate EIF and variance reduction";
- `canonical`: ``g + W (R - q) - V + m (L / v) / E[L / v | S] (Y - R)``, what the projection gives;
- `unrestricted`: ``g + W (q_S - q) - V + W L / e (Y - q_S)`` with ``q_S = E[Y | X, A, S]``, without the restriction.

`cje_sim.exact.efficiency` says which is right.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cje_sim.exact.efficiency import (
    FloatArray,
    Functional,
    Space,
    conditional,
    mean_restricted,
    monotone_directions,
    sample_space,
    scores,
)

NAMES = ("x", "a", "s", "l", "y")


class JudgeModel(NamedTuple):
    """Conditional laws (the last axis sums to one), label values and the share of labels."""

    prompt: FloatArray  # (X,)
    logger: FloatArray  # (X, A)
    target: FloatArray  # (X, A)
    judge: FloatArray  # (X, A, S)
    label: FloatArray  # (X, A, S, Y)
    values: FloatArray  # (Y,)
    seen: FloatArray  # (X, A, S): probability that a response is labelled

    @property
    def reward(self) -> FloatArray:
        """``E[Y | x, a, s]``, shape (X, A, S)."""
        return np.asarray(self.label @ self.values)


def softmax(logits: FloatArray) -> FloatArray:
    """Laws from logits along the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def law_with_mean(law: FloatArray, values: FloatArray, mean: FloatArray) -> FloatArray:
    """Mix laws (..., k) with the lowest or highest value until they have the given means; support is never lost.

    Examples
    --------
    >>> law_with_mean(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.5, 1.0]), np.array(0.75)).tolist()
    [0.25, 0.0, 0.75]
    """
    found = law @ values
    end = np.where(mean > found, values.max(), values.min())
    share = np.where(end == found, 0.0, (mean - found) / np.where(end == found, 1.0, end - found))
    at_end = (values == end[..., None]).astype(float)
    return np.asarray((1 - share[..., None]) * law + share[..., None] * at_end)


def draw_model(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int] = (2, 2, 3, 3),
    *,
    judge: str = "noisy",
    scale: float = 1.5,
    sufficient: bool = True,
    labelled: str = "all",
) -> JudgeModel:
    """Draw a model with normal logits.

    Parameters
    ----------
    shape : tuple
        Numbers of prompts, responses, judge levels and label values; the values are equally spaced on [0, 1].
    judge : {"noisy", "function"}
        Whether the score is random given (x, a) or a function of them.
    scale : float
        Standard deviation of the logits: how uneven the laws are.
    sufficient : bool
        Whether ``E[Y | x, a, s]`` depends on s alone.
    labelled : {"all", "share", "free"}
        Every response, one share of them at random, or a probability that depends on (x, a, s).

    Examples
    --------
    >>> model = draw_model(np.random.default_rng(1))
    >>> bool(np.ptp(model.reward, axis=(0, 1)).max() < 1e-12)  # mean-sufficient
    True
    """
    n_x, n_a, n_s, n_y = shape

    def laws(*axes: int) -> FloatArray:
        return softmax(rng.normal(0, scale, axes))

    score = laws(n_x, n_a, n_s)
    if judge == "function":
        score = np.eye(n_s)[rng.integers(n_s, size=(n_x, n_a))]
    values = np.linspace(0, 1, n_y)
    label = laws(n_x, n_a, n_s, n_y)
    if sufficient:
        label = law_with_mean(label, values, np.broadcast_to(rng.uniform(0.05, 0.95, n_s), (n_x, n_a, n_s)))
    seen = {
        "all": np.ones((n_x, n_a, n_s)),
        "share": np.full((n_x, n_a, n_s), rng.uniform(0.05, 0.9)),
        "free": rng.uniform(0.05, 0.9, (n_x, n_a, n_s)),
    }[labelled]
    return JudgeModel(laws(n_x), laws(n_x, n_a), laws(n_x, n_a), score, label, values, seen)


def observed(model: JudgeModel) -> Space:
    """Sample space of one logged response: columns x, a, s, l (labelled) and y (0 where it is not).

    Examples
    --------
    >>> space = observed(draw_model(np.random.default_rng(1), (1, 2, 2, 2), labelled="share"))
    >>> len(space.probability), round(float(space.probability.sum()), 12)  # 4 cells, each with two labels or none
    (12, 1.0)
    """
    base = model.prompt[:, None, None] * model.logger[:, :, None] * model.judge
    table = np.zeros((*base.shape, 2, len(model.values) + 1))
    table[..., 1, 1:] = (base * model.seen)[..., None] * model.label
    table[..., 0, 0] = base * (1 - model.seen)
    axes = [np.arange(k) for k in base.shape]
    # the value of a missing label is a marker outside [0, 1]; it is replaced below and never enters a sum
    space = sample_space(table, dict(zip(NAMES, [*axes, [0, 1], [-1.0, *model.values]], strict=True)))
    return replace(space, columns=space.columns | {"y": np.where(space["l"] == 1, space["y"], 0.0)})


def value(model: JudgeModel, space: Space) -> Functional:
    """The value of the target policy as a function of the law on a sample space; the target is known."""
    x, a, s = (space[name].astype(int) for name in "xas")
    seen, shape = space["l"] == 1, model.judge.shape
    cell, y = np.ravel_multi_index((x, a, s), shape), space["y"] * (space["l"] == 1)
    size = model.judge.size

    def functional(p: FloatArray) -> float:
        joint = np.bincount(cell, p, minlength=size).reshape(shape)
        labelled = np.bincount(cell[seen], p[seen], minlength=size).reshape(shape)
        sums = np.bincount(cell, p * y, minlength=size).reshape(shape)
        mean = sums / np.where(labelled > 0, labelled, 1.0)
        response = joint.sum(axis=2)
        by_response = (joint * mean).sum(axis=2) / np.where(response > 0, response, 1.0)
        return float(response.sum(axis=1) @ (model.target * by_response).sum(axis=1))

    return functional


def mean_label(model: JudgeModel, space: Space) -> Functional:
    """``E[E[Y | X, A, S, L = 1]]``, the mean label under the law of the responses themselves, whatever it is."""
    x, a, s = (space[name].astype(int) for name in "xas")
    cell = np.ravel_multi_index((x, a, s), model.judge.shape)
    seen, size = space["l"] == 1, model.judge.size

    def functional(p: FloatArray) -> float:
        labelled = np.bincount(cell[seen], p[seen], minlength=size)
        sums = np.bincount(cell[seen], (p * space["y"])[seen], minlength=size)
        return float(np.bincount(cell, p, minlength=size) @ (sums / np.where(labelled > 0, labelled, 1.0)))

    return functional


def tangent(
    model: JudgeModel, space: Space, *, known: str = "", sufficient: str | None = None, monotone: bool = False
) -> FloatArray:
    """Span of the scores of a model: what is not `known` is unrestricted but for the label's mean.

    Parameters
    ----------
    known : str
        Which laws are known, of "x" (prompts), "a" (logger), "s" (judge), "l" (design of the labels), "y" (the reward:
        the label's conditional mean is known, the rest of its law is free).
    sufficient : str, optional
        What the label's mean may depend on: "s" is mean sufficiency; None leaves it free.
    monotone : bool
        Whether the mean, a function of s, is also known not to fall: its two-sided directions are kept.

    Examples
    --------
    >>> from cje_sim.exact.efficiency import bound, variance
    >>> model = draw_model(np.random.default_rng(1))
    >>> space = observed(model)
    >>> found = bound(space, value(model, space), tangent(model, space, known="a", sufficient="s"))
    >>> bool(np.isclose(found, variance(space, canonical(model, space))))
    True
    """
    laws = {"x": "", "a": "x", "s": "xa", "l": "xas"}
    parts = [scores(space, of, given) for of, given in laws.items() if of not in known]
    label = scores(space, "y", "xasl")
    if "y" in known:
        label = mean_restricted(space, label, space["y"], "xasl", None)
    elif sufficient is not None:
        label = mean_restricted(space, label, space["y"], "xasl", sufficient + "l")
    if monotone:
        label = _kept_directions(model, space, label)
    return np.hstack([*parts, label])


def parametrised(
    model: JudgeModel, space: Space, *, sufficient: bool = True
) -> tuple[Callable[[FloatArray], FloatArray], FloatArray]:
    """Law on a sample space as a function of parameters, and the model's own: for `efficiency.cramer_rao`.

    Logger and label design are known. The label's mean has a parameter per judge level (`sufficient`) or per (x, a, s);
    a law that has another mean is moved along y by a linear tilt, which is smooth near the model.
    """
    shape, k = model.judge.shape, len(model.values)
    start = [model.prompt, model.judge, model.label]
    mean = model.reward[:1, :1] if sufficient else model.reward
    sizes = np.cumsum([model.prompt.size, model.judge.size, model.label.size])
    x, a, s = (space[name].astype(int) for name in "xas")
    seen, y = space["l"] == 1, np.searchsorted(model.values, space["y"] - 1e-9)

    def law(theta: FloatArray) -> FloatArray:
        prompt, judge, label, means = np.split(theta, sizes)
        base = softmax(label.reshape(*shape, k))
        found = base @ model.values
        slope = model.values - found[..., None]
        shift = (means.reshape(mean.shape) - found) / (base * slope**2).sum(axis=-1)
        labels = base * (1 + shift[..., None] * slope)
        table = softmax(prompt)[:, None, None] * model.logger[:, :, None] * softmax(judge.reshape(shape))
        cell = table[x, a, s]
        return np.asarray(
            np.where(seen, cell * model.seen[x, a, s] * labels[x, a, s, y], cell * (1 - model.seen[x, a, s]))
        )

    logits = [np.log(np.maximum(table, 1e-300)).ravel() for table in start]
    return law, np.concatenate([*logits, mean.ravel()])


def _kept_directions(model: JudgeModel, space: Space, label: FloatArray) -> FloatArray:
    reward = model.reward[0, 0]
    kept = monotone_directions(reward)
    pooled = np.argmax(kept, axis=1)[space["s"].astype(int)].astype(float)
    by_block = replace(space, columns=space.columns | {"block": pooled})
    return mean_restricted(by_block, label, space["y"], "xasl", ["block", "l"])


def augmented_mean(model: JudgeModel, space: Space) -> FloatArray:
    """``q_S - V + L / e (Y - q_S)``, ``q_S = E[Y | X, A, S]`` (proposition "Direct: EIF and one-step estimator")."""
    p = pieces(model, space)
    x, a, s = (space[name].astype(int) for name in "xas")
    mean = space.probability @ p.reward
    return np.asarray(p.reward - mean + space["l"] / model.seen[x, a, s] * (space["y"] - p.reward))


class Pieces(NamedTuple):
    """What the closed forms are made of, each a function of the outcome, (N,)."""

    weight: FloatArray  # W
    judged_weight: FloatArray  # m(S)
    reward: FloatArray  # E[Y | X, A, S], R(S) under mean sufficiency
    by_response: FloatArray  # q(X, A)
    by_prompt: FloatArray  # g(X)
    noise: FloatArray  # Var(Y | X, A, S)
    value: float


def pieces(model: JudgeModel, space: Space) -> Pieces:
    """Conditional means and variances of a model at each outcome, from its tables."""
    x, a, s = (space[name].astype(int) for name in "xas")
    weight = (model.target / model.logger)[x, a]
    reward = model.reward
    by_response = (model.judge * reward).sum(axis=2)
    by_prompt = (model.target * by_response).sum(axis=1)
    noise = model.label @ model.values**2 - reward**2
    return Pieces(
        weight,
        conditional(space, weight, "s"),
        reward[x, a, s],
        by_response[x, a],
        by_prompt[x],
        noise[x, a, s],
        float(model.prompt @ by_prompt),
    )


def printed(model: JudgeModel, space: Space) -> FloatArray:
    """The paper's ``phi_sur = g + m(S) (R - q) - V`` (theorem "Surrogate EIF and variance reduction")."""
    p = pieces(model, space)
    return p.by_prompt + p.judged_weight * (p.reward - p.by_response) - p.value


def known_reward(model: JudgeModel, space: Space) -> FloatArray:
    """``g + W (R - q) - V``: canonical where R is known and labels therefore carry nothing."""
    p = pieces(model, space)
    return p.by_prompt + p.weight * (p.reward - p.by_response) - p.value


def canonical(model: JudgeModel, space: Space) -> FloatArray:
    """Canonical gradient under mean sufficiency with R unknown (the module's formula)."""
    p = pieces(model, space)
    precision = np.where(space["l"] == 1, 1.0 / p.noise, 0.0)
    learnt = p.judged_weight * precision / conditional(space, precision, "s") * (space["y"] - p.reward)
    return np.asarray(known_reward(model, space) + learnt)


def unrestricted(model: JudgeModel, space: Space) -> FloatArray:
    """Canonical gradient without a restriction of the label's mean (augmented inverse-probability weighting)."""
    p = pieces(model, space)
    x, a, s = (space[name].astype(int) for name in "xas")
    learnt = p.weight * space["l"] / model.seen[x, a, s] * (space["y"] - p.reward)
    return np.asarray(known_reward(model, space) + learnt)


def without_judge(model: JudgeModel, space: Space) -> FloatArray:
    """``g + W (Y - q) - V``: every response labelled, no judge (the paper's ``phi_uncon``)."""
    p = pieces(model, space)
    if (space["l"] != 1).any():
        raise ValueError(
            "the gradient that does not use the judge is that of complete labels; some are missing"
        )
    return p.by_prompt + p.weight * (space["y"] - p.by_response) - p.value
