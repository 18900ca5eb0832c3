"""Each line of the proofs about restrictions of the model and about judges compared, on random models."""

import itertools

import numpy as np
import pytest
from proof_lines import Dense, numbered, registry, run

from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import project, scores, variance
from cje_sim.exact.judge_models import draw_model, law_with_mean, softmax

CHECKS, line = registry()
MINE = ("model_restriction", "blackwell")
CLOSE = {"rtol": 1e-9, "atol": 1e-12}  # sums of at most 72 products


def spaces(rng, **options):
    model = draw_model(rng, **{"labelled": "free", **options})
    space = judge_models.observed(model)
    return model, space, judge_models.unrestricted(model, space)


@line("model_restriction", 1)
def pythagoras(rng):
    model, space, phi = spaces(rng)
    small = project(space, phi, judge_models.tangent(model, space, known="x", sufficient="s"))
    gap = space.probability @ (phi - small) ** 2
    np.testing.assert_allclose(variance(space, phi), variance(space, small) + gap, **CLOSE)
    assert gap > 1e-6


@line("model_restriction", 2)
def nested(rng):
    model, space, phi = spaces(rng)
    bounds = [
        variance(
            space, project(space, phi, judge_models.tangent(model, space, known=known, sufficient=enough))
        )
        for known, enough in (("", None), ("", "s"), ("x", "s"), ("xs", "s"))
    ]
    assert all(later < earlier - 1e-9 for earlier, later in itertools.pairwise(bounds))


@line("model_restriction", 3)
def known_logger_and_design(rng):
    model, space, phi = spaces(rng)
    for of, given in (("a", "x"), ("l", "xas")):
        gone = scores(space, of, given)
        np.testing.assert_allclose(gone.T @ (space.probability * phi), 0, atol=1e-10)
    kept = project(space, phi, judge_models.tangent(model, space, known="al"))
    np.testing.assert_allclose(kept, phi, atol=1e-9)


@line("model_restriction", 4)
def known_prompts(rng):
    model, space, phi = spaces(rng)
    fell = variance(space, phi) - variance(
        space, project(space, phi, judge_models.tangent(model, space, known="x"))
    )
    np.testing.assert_allclose(fell, variance(space, judge_models.pieces(model, space).by_prompt), **CLOSE)


@line("model_restriction", 5)
def every_direction_stays(rng):
    reward = np.cumsum(rng.uniform(0.01, 0.3, 6))
    direction = rng.normal(size=6)
    room = (np.diff(reward) / (np.abs(direction[1:]) + np.abs(direction[:-1]))).min()
    for t in (-0.999 * room, 0.999 * room):
        assert (np.diff(reward + t * direction) > 0).all()
    flat = np.repeat(reward[:3], 2)
    assert (
        np.diff(flat + 1e-9 * np.arange(6)[::-1]) < 0
    ).any()  # planted: where it is flat, some leave at once


@line("model_restriction", 6)
def flat_levels(rng):
    model = draw_model(rng)
    model = model._replace(label=law_with_mean(model.label, model.values, np.full(model.judge.shape, 0.4)))
    space = judge_models.observed(model)
    phi = judge_models.unrestricted(model, space)
    free, pooled = (
        variance(
            space, project(space, phi, judge_models.tangent(model, space, sufficient="s", monotone=known))
        )
        for known in (False, True)
    )
    assert pooled < free - 1e-9


def pair(rng, kind):
    """A fine and a coarse judge with binary labels: any garbling, or both mean-sufficient in one of two ways."""
    fine, coarse, share = 4, 2, rng.uniform(0.1, 0.9)
    prompt, logger, target = softmax(rng.normal(size=2)), *(softmax(rng.normal(size=(2, 2, 2))))
    channel = softmax(rng.normal(size=(fine, coarse)))
    judge, reward = softmax(rng.normal(size=(2, 2, fine))), rng.uniform(0.1, 0.9, (2, 2, fine))
    if kind != "any":
        channel = np.repeat(np.eye(coarse), 2, axis=0)
        reward = np.broadcast_to(rng.uniform(0.1, 0.9, fine), (2, 2, fine))
    if kind == "labels":
        split = softmax(rng.normal(size=(coarse, 2)))
        judge = (softmax(rng.normal(size=(2, 2, coarse)))[..., None] * split).reshape(2, 2, fine)
    if kind == "responses":
        reward = np.broadcast_to(np.repeat(rng.uniform(0.1, 0.9, coarse), 2), (2, 2, fine))
    report = judge @ channel
    merged = (judge * reward) @ channel / report

    def build(score, mean):
        label = np.stack([1 - mean, mean], axis=-1)
        return judge_models.JudgeModel(
            prompt, logger, target, score, label, np.array([0.0, 1.0]), np.full(score.shape, share)
        )

    joint = (prompt[:, None] * logger)[..., None, None] * judge[..., None] * channel
    gap = (reward[..., None] - merged[:, :, None]) ** 2
    within = (joint * (target / logger)[..., None, None] ** 2 * gap).sum()
    return build(judge, reward), build(report, merged), within, share


def free_bound(model):
    space = judge_models.observed(model)
    return variance(space, judge_models.unrestricted(model, space))


def sufficient_bound(model):
    space = judge_models.observed(model)
    tangent = judge_models.tangent(model, space, sufficient="s")
    return variance(space, project(space, judge_models.unrestricted(model, space), tangent))


@line("blackwell", 1)
def free_bound_by_parts(rng):
    for model in pair(rng, "any")[:2]:
        d = Dense(model)
        parts = d.var(d.g) + d.mean(d.w**2 * (d.r - d.q) ** 2) + d.mean(d.w**2 * d.v) / model.seen.flat[0]
        np.testing.assert_allclose(free_bound(model), parts, **CLOSE)


@line("blackwell", 2)
def total_variance(rng):
    fine, coarse, within, _ = pair(rng, "any")
    f, c = Dense(fine), Dense(coarse)
    np.testing.assert_allclose(f.g.ravel(), c.g.ravel(), **CLOSE)
    np.testing.assert_allclose(
        f.mean(f.w**2 * (f.r - f.q) ** 2), c.mean(c.w**2 * (c.r - c.q) ** 2) + within, **CLOSE
    )
    np.testing.assert_allclose(c.mean(c.w**2 * c.v), f.mean(f.w**2 * f.v) + within, **CLOSE)


@line("blackwell", 3)
def price_of_a_garbling(rng):
    fine, coarse, within, share = pair(rng, "any")
    np.testing.assert_allclose(free_bound(coarse) - free_bound(fine), (1 / share - 1) * within, **CLOSE)
    assert free_bound(coarse) > free_bound(fine)


@line("blackwell", 4)
def threshold(rng):
    fine, coarse, within, share = pair(rng, "labels")
    f, c = Dense(fine), Dense(coarse)
    np.testing.assert_allclose(f.m.ravel(), np.repeat(c.m.ravel(), 2), **CLOSE)
    one = np.ones_like(c.p)
    levels = f.p.sum(axis=(0, 1, 3, 4)).reshape(2, 2)
    rewards = f.r[0, 0].reshape(2, 2)
    centre = (levels * rewards).sum(axis=1) / levels.sum(axis=1)
    v = ((levels * (rewards - centre[:, None]) ** 2).sum(axis=1) / levels.sum(axis=1))[:, None, None]
    np.testing.assert_allclose(c.mean(c.w**2 * v * one), within, **CLOSE)
    gap = within - c.mean(c.m**2 * v * one) / share
    np.testing.assert_allclose(sufficient_bound(fine), sufficient_bound(coarse) + gap, rtol=1e-8)
    assert c.mean(c.m**2 * v * one) <= within * (1 + 1e-12)


@line("blackwell", 5)
def split_of_responses(rng):
    fine, coarse, _, share = pair(rng, "responses")
    f, c = Dense(fine), Dense(coarse)
    lost = f.mean(f.m**2 * f.v) - c.mean(c.m**2 * c.v)
    np.testing.assert_allclose(sufficient_bound(fine), sufficient_bound(coarse) + lost / share, rtol=1e-8)
    assert lost > 0


@line("blackwell", 6)
def known_rewards(rng):
    for kind in ("labels", "responses"):
        bounds = []
        for model in pair(rng, kind)[:2]:
            space = judge_models.observed(model)
            tangent = judge_models.tangent(model, space, known="y")
            bounds.append(variance(space, project(space, judge_models.unrestricted(model, space), tangent)))
        assert bounds[0] >= bounds[1] - 1e-12


def functions(rng):
    """A fine and a coarse score, both functions of (x, a), and a label whose mean depends on the coarse one alone."""
    share = rng.uniform(0.1, 0.9)
    prompt, logger, target = softmax(rng.normal(size=2)), *(softmax(rng.normal(size=(2, 2, 4))))
    score = np.stack([rng.permutation(4) for _ in range(2)])  # each prompt has a response on every fine level
    reward, label = rng.uniform(0.1, 0.9, 2), softmax(rng.normal(size=(2, 4, 1, 3)))

    def build(levels, level):
        judge = np.eye(levels)[level]
        of_cell = np.broadcast_to(reward[score // 2][:, :, None], judge.shape)
        values = np.array([0.0, 0.5, 1.0])
        labels = law_with_mean(np.broadcast_to(label, (*judge.shape, 3)), values, of_cell)
        return judge_models.JudgeModel(
            prompt, logger, target, judge, labels, values, np.full(judge.shape, share)
        )

    return build(4, score), build(2, score // 2), score, share


@line("blackwell", 7)
def coarser_model_is_smaller(rng):
    fine, coarse, _, share = functions(rng)
    spaces_ = [judge_models.observed(model) for model in (fine, coarse)]
    large, small = (
        judge_models.tangent(model, space, sufficient="s")
        for model, space in zip((fine, coarse), spaces_, strict=True)
    )
    order = [np.lexsort([space[name] for name in "ylax"]) for space in spaces_]  # one outcome, one place
    probability = spaces_[0].probability[order[0]]
    np.testing.assert_allclose(probability, spaces_[1].probability[order[1]], **CLOSE)
    root = np.sqrt(probability)[:, None]
    basis = np.linalg.svd(root * large[order[0]], full_matrices=False)
    span = basis[0][:, basis[1] > 1e-9 * basis[1].max()]
    inside = root * small[order[1]]
    np.testing.assert_allclose(span @ (span.T @ inside), inside, atol=1e-9)
    assert span.shape[1] > np.linalg.matrix_rank(inside, 1e-9)

    def learnt(model):
        d = Dense(model)
        precision = d.given(share / d.v * np.ones_like(d.p), "s")
        return d.mean(d.m**2 / np.where(precision > 0, precision, 1.0))

    gap = learnt(fine) - learnt(coarse)
    np.testing.assert_allclose(sufficient_bound(fine) - sufficient_bound(coarse), gap, rtol=1e-8)
    assert gap > 1e-6


@line("blackwell", 8)
def printed_variances_are_equal(rng):
    fine, coarse, score, _ = functions(rng)
    variances = []
    for model in (fine, coarse):
        d = Dense(model)
        printed = d.g + d.m * (d.r - d.q) - d.value
        np.testing.assert_allclose(d.p * (printed - d.g + d.value), 0, atol=1e-12)
        variances.append(d.var(printed))
    np.testing.assert_allclose(variances[0], variances[1], **CLOSE)
    weight = coarse.target / coarse.logger  # neither is it a function of the coarse score, nor is R constant
    assert np.ptp(weight[score < 2]) > 1e-3 and np.ptp(Dense(coarse).r) > 1e-3


@pytest.mark.parametrize(("page", "number"), sorted(CHECKS))
def test_line(page, number):
    run(CHECKS[page, number])


def test_every_numbered_line_has_a_check():
    assert set().union(*(numbered(page) for page in MINE)) == set(CHECKS)
