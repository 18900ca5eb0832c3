"""The finite-model efficiency calculator against textbook bounds, Fisher information, and a simulated estimator."""

import numpy as np
import pytest
from scipy.linalg import null_space

from cje_core.estimators import oracle_bound
from cje_sim.exact import judge_models
from cje_sim.exact.efficiency import (
    bound,
    conditional,
    cramer_rao,
    derivative,
    derivatives,
    dimension,
    mean_restricted,
    monotone_directions,
    project,
    riesz,
    sample_space,
    scores,
    variance,
)
from cje_sim.exact.judge_models import JudgeModel, draw_model, observed, softmax, tangent, value
from cje_sim.exact.judged_means import parts, two_phase
from cje_sim.scenarios import finite_model

# Central differences with step 1e-5: truncation 1e-10 times a third derivative of order 100, rounding 1e-11.
CLOSE = {"rtol": 1e-6, "atol": 1e-8}


def orthogonal(space, tangent_space, constraints):
    """Scores of a tangent space (N, k) along which no constraint moves, given the constraints' gradients (N, c)."""
    inner = constraints.T @ (space.probability[:, None] * tangent_space)
    return tangent_space @ null_space(inner, rcond=1e-9)


def canonical_error(space, candidate, functional, tangent_space):
    """Distance of a function from the canonical gradient in L2(P), mean included."""
    gradient = riesz(space, tangent_space, derivatives(space, functional, tangent_space))
    return np.sqrt(space.probability @ (candidate - gradient) ** 2)


def gradient_error(space, candidate, functional, tangent_space):
    """Distance of a function from being a gradient: that of its projection from the canonical one."""
    return canonical_error(space, project(space, candidate, tangent_space), functional, tangent_space)


def joint(rng, shape):
    return softmax(rng.normal(0, 1, np.prod(shape))).reshape(shape)


def mean_given(p, y, cell):
    return np.bincount(cell, p * y) / np.bincount(cell, p)


def test_the_mean_of_a_sample_and_with_a_known_mean_of_a_covariate():
    """Var Y; with E X known the regression estimator's Var Y - Cov(X, Y)^2 / Var X."""
    space = sample_space(joint(np.random.default_rng(1), (4, 5)), {"x": np.arange(4), "y": np.arange(5) ** 2})
    p, x, y = space.probability, space["x"], space["y"]
    everything = scores(space, ["x", "y"])

    def mean(q):
        return float(q @ y)

    np.testing.assert_allclose(bound(space, mean, everything), variance(space, y), **CLOSE)
    cov = p @ ((x - p @ x) * (y - p @ y))
    known = orthogonal(space, everything, x[:, None])
    np.testing.assert_allclose(
        bound(space, mean, known), variance(space, y) - cov**2 / variance(space, x), **CLOSE
    )
    # the whole law of X known: what is left is E Var(Y | X)
    left = variance(space, y - conditional(space, y, ["x"]))
    np.testing.assert_allclose(bound(space, mean, scores(space, ["y"], ["x"])), left, **CLOSE)
    assert dimension(space, known) == dimension(space, everything) - 1


def test_two_measurements_of_one_mean_are_weighted_by_precision():
    """E[Y | G = 0] = E[Y | G = 1], G known: 1 / E[1 / Var(Y | G)], by conditional means and by constraint gradients."""
    space = sample_space(joint(np.random.default_rng(2), (2, 4)), {"g": [0, 1], "y": [0, 1, 2, 3]})
    # give both groups the same mean
    groups = space.probability.reshape(2, 4)
    law = judge_models.law_with_mean(groups / groups.sum(1, keepdims=True), np.arange(4.0), np.full(2, 1.3))
    share = np.array([0.3, 0.7])
    space = sample_space(law * share[:, None], {"g": [0, 1], "y": [0, 1, 2, 3]})
    p, g, y = space.probability, space["g"], space["y"]
    noise = law @ np.arange(4.0) ** 2 - 1.3**2
    expected = 1 / (share @ (1 / noise))
    restricted = mean_restricted(space, scores(space, ["y"], ["g"]), y, ["g"], [])
    np.testing.assert_allclose(bound(space, lambda q: float(q @ y), restricted), expected, **CLOSE)
    contrast = (g == 0) / share[0] * (y - 1.3) - (g == 1) / share[1] * (y - 1.3)
    again = orthogonal(space, scores(space, ["y"], ["g"]), contrast[:, None])
    np.testing.assert_allclose(bound(space, lambda q: float(q @ y), again), expected, **CLOSE)
    assert abs(p @ y - 1.3) < 1e-12


@pytest.mark.parametrize("design", ["share", "free"])
def test_missing_labels_reach_the_aipw_bound_whether_the_design_is_known_or_not(design):
    model = draw_model(np.random.default_rng(3), sufficient=False, labelled=design)
    space = observed(model)
    functional, full = judge_models.mean_label(model, space), tangent(model, space)
    candidate = judge_models.augmented_mean(model, space)
    assert canonical_error(space, candidate, functional, full) < 1e-7
    assert gradient_error(space, candidate, functional, full) < 1e-7
    weight = model.prompt[:, None, None] * model.logger[:, :, None] * model.judge
    mean = (weight * model.reward).sum()
    noise = model.label @ model.values**2 - model.reward**2
    by_hand = (weight * (model.reward - mean) ** 2).sum() + (weight * noise / model.seen).sum()
    for known in ("", "l"):
        np.testing.assert_allclose(
            bound(space, functional, tangent(model, space, known=known)), by_hand, **CLOSE
        )
    # planted: inverse-probability weighting without augmentation is a gradient where the design is known, not efficient
    seen = model.seen[tuple(space[c].astype(int) for c in "xas")]
    raw = space["l"] / seen * space["y"] - mean
    assert gradient_error(space, raw, functional, tangent(model, space, known="l")) < 1e-7
    assert gradient_error(space, raw, functional, full) > 1e-3
    assert variance(space, raw) > by_hand + 1e-3
    projected = project(space, raw, tangent(model, space, known="l"))
    np.testing.assert_allclose(projected, candidate, atol=1e-9)


def test_the_value_of_a_policy_known_propensity_and_known_prompts():
    """Known pi_0 changes nothing; a known law of the prompts takes Var g(X) away (Hahn 1998 for the mean)."""
    model = draw_model(np.random.default_rng(4), sufficient=False)
    space = observed(model)
    functional, p = value(model, space), judge_models.pieces(model, space)
    whole = bound(space, functional, tangent(model, space))
    np.testing.assert_allclose(whole, variance(space, judge_models.without_judge(model, space)), **CLOSE)
    np.testing.assert_allclose(bound(space, functional, tangent(model, space, known="a")), whole, **CLOSE)
    np.testing.assert_allclose(
        bound(space, functional, tangent(model, space, known="x")),
        whole - variance(space, p.by_prompt),
        **CLOSE,
    )


@pytest.mark.parametrize("known", [False, True])
def test_the_effect_on_the_treated_is_cheaper_with_a_known_propensity(known):
    """Hahn (1998, theorem 1 and its corollary): the term of beta(X) - beta has e^2 instead of e."""
    space = sample_space(
        joint(np.random.default_rng(5), (3, 2, 3)), {"x": range(3), "a": [0, 1], "y": [0, 1, 2]}
    )
    y, a, x = space["y"], space["a"], space["x"].astype(int)
    cell = 2 * x + a.astype(int)

    def effect(q):
        means = mean_given(q, y, cell).reshape(3, 2)
        treated = np.bincount(x, q * a)
        return float(treated @ (means[:, 1] - means[:, 0]) / treated.sum())

    p = space.probability
    prompts, e = np.bincount(x, p), np.bincount(x, p * a) / np.bincount(x, p)
    means = mean_given(p, y, cell).reshape(3, 2)
    spread = mean_given(p, y**2, cell).reshape(3, 2) - means**2
    share = prompts @ e
    beta = means[:, 1] - means[:, 0] - effect(p)
    last = e**2 if known else e
    expected = prompts @ (e * spread[:, 1] + e**2 * spread[:, 0] / (1 - e) + beta**2 * last) / share**2
    laws = [scores(space, "x"), scores(space, "y", "xa")] + ([] if known else [scores(space, "a", "x")])
    np.testing.assert_allclose(bound(space, effect, np.hstack(laws)), expected, **CLOSE)


def test_two_phase_sampling_is_the_bound_of_missing_labels():
    rng = np.random.default_rng(6)
    law = joint(rng, (4, 3))
    whole, left, _ = parts(law, [0.0, 0.5, 1.0])
    n, m = 1000, 130
    table = np.zeros((4, 2, 4))
    table[:, 1, 1:], table[:, 0, 0] = m / n * law, (1 - m / n) * law.sum(axis=1)
    space = sample_space(table, {"s": range(4), "l": [0, 1], "y": [0, 0, 0.5, 1.0]})
    s, seen, y = space["s"].astype(int), space["l"] == 1, space["y"]

    def mean(q):
        return float(
            np.bincount(s, q) @ (np.bincount(s[seen], (q * y)[seen]) / np.bincount(s[seen], q[seen]))
        )

    full = np.hstack([scores(space, "s"), scores(space, "l", "s"), scores(space, "y", "sl")])
    np.testing.assert_allclose(bound(space, mean, full) / n, two_phase(whole, left, n, m), **CLOSE)


@pytest.mark.parametrize("labelled", ["all", "free"])
def test_mean_sufficiency_by_tangent_space_by_constraints_and_by_fisher_information(labelled):
    """Three computations of one bound; the printed gradient misses it, so does a planted formula."""
    model = draw_model(np.random.default_rng(7), labelled=labelled)
    space = observed(model)
    functional = value(model, space)
    restricted = tangent(model, space, known="a", sufficient="s")
    expected = variance(space, judge_models.canonical(model, space))
    np.testing.assert_allclose(bound(space, functional, restricted), expected, **CLOSE)

    law, start = judge_models.parametrised(model, space)
    np.testing.assert_allclose(law(start), space.probability, atol=1e-12)
    np.testing.assert_allclose(cramer_rao(law, functional, start), expected, rtol=1e-5)

    x, a, s = (space[c].astype(int) for c in "xas")
    residual = space["l"] * (space["y"] - judge_models.pieces(model, space).reward)
    contrasts = []
    for level in range(model.judge.shape[2]):
        columns = []
        for i in range(model.judge.shape[0]):
            for j in range(model.judge.shape[1]):
                here = ((x == i) & (a == j) & (s == level) & (space["l"] == 1)).astype(float)
                columns.append(here / (space.probability @ here) * residual)
        contrasts += [column - columns[0] for column in columns[1:]]
    again = orthogonal(space, tangent(model, space, known="a"), np.stack(contrasts, axis=1))
    np.testing.assert_allclose(bound(space, functional, again), expected, **CLOSE)
    assert dimension(space, again) == dimension(space, restricted)

    assert canonical_error(space, judge_models.canonical(model, space), functional, restricted) < 1e-7
    for wrong in (judge_models.printed, judge_models.unrestricted, judge_models.known_reward):
        assert canonical_error(space, wrong(model, space), functional, restricted) > 1e-3


def test_an_inequality_that_does_not_bind_restricts_nothing():
    model = draw_model(np.random.default_rng(8))
    functional_space = observed(model)
    order = np.argsort(model.reward[0, 0])
    rises = model._replace(judge=model.judge[..., order], label=model.label[:, :, order])
    space = observed(rises)
    plain = tangent(rises, space, known="a", sufficient="s")
    assert dimension(space, tangent(rises, space, known="a", sufficient="s", monotone=True)) == dimension(
        space, plain
    )
    flat = rises._replace(
        label=judge_models.law_with_mean(rises.label, rises.values, np.full((2, 2, 3), 0.4))
    )
    space = observed(flat)
    pooled = tangent(flat, space, known="a", sufficient="s", monotone=True)
    assert dimension(space, pooled) == dimension(space, tangent(flat, space, known="a", sufficient="s")) - 2
    with pytest.raises(ValueError, match="fall"):
        monotone_directions(np.array([0.2, 0.1]))
    assert len(functional_space.probability) == 36


def test_functionals_without_a_gradient_and_laws_that_are_none_are_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        sample_space(np.array([0.5, 0.6]), {"y": [0, 1]})
    with pytest.raises(ValueError, match="must agree"):
        sample_space(np.array([0.5, 0.5]), {"y": [0, 1, 2]})
    space = sample_space(np.full(3, 1 / 3), {"y": [0, 1, 2]})
    tangents = scores(space, ["y"])
    with pytest.raises(ValueError, match="no gradient"):
        riesz(space, tangents, np.array([1.0, 1.0, 1.0]))  # the columns sum to zero, these derivatives do not
    labels = draw_model(np.random.default_rng(1), labelled="share")
    with pytest.raises(ValueError, match="complete labels"):
        judge_models.without_judge(labels, observed(labels))


def finite_direct(policy, *, judge_noise, surrogacy, fraction):
    pi, score, label = finite_model.tables(judge_noise=judge_noise, surrogacy=surrogacy)
    law = pi[list(finite_model.POLICIES).index(policy)]
    return JudgeModel(
        finite_model.PROMPTS,
        law,
        law,
        score,
        label,
        finite_model.ORACLE_LEVELS,
        np.full(score.shape, fraction),
    )


@pytest.mark.slow
@pytest.mark.parametrize("surrogacy", [1.0, 0.5])
def test_the_oracle_bound_is_the_bound_of_data_that_show_the_score_alone(surrogacy):
    """Its squared error at one large n is the calculator's bound for (S, L, Y); what is also seen may beat it."""
    fraction, n = 0.25, 20_000
    data = finite_model.simulate(
        n=n, oracle_fraction=fraction, surrogacy=surrogacy, label_design="own", rng=9
    )
    found = oracle_bound.estimate(data)
    for k, policy in enumerate(finite_model.POLICIES):
        model = finite_direct(policy, judge_noise=0.2, surrogacy=surrogacy, fraction=fraction)
        space = observed(model)
        full = judge_models.mean_label(model, space)
        by_score = np.hstack([scores(space, "s"), scores(space, "l", "s"), scores(space, "y", "sl")])
        s, seen = space["s"].astype(int), space["l"] == 1

        def coarse(q, s=s, seen=seen, y=space["y"]):
            means = np.bincount(s[seen], (q * y)[seen]) / np.bincount(s[seen], q[seen])
            return float(np.bincount(s, q) @ means)

        seen_score = bound(space, coarse, by_score)
        seen_all = bound(space, full, tangent(model, space))
        reported = float(found["std_error"][k] ** 2) * n
        influence = riesz(space, by_score, derivatives(space, coarse, by_score))
        mcse = np.sqrt(variance(space, influence**2) / n)  # of a mean of n squared influences
        assert abs(reported - seen_score) < 5 * mcse
        assert abs(reported - 1.2 * seen_score) > 5 * mcse  # planted: a bound 20% too high is told apart
        if surrogacy == 1.0:
            np.testing.assert_allclose(seen_all, seen_score, **CLOSE)
        else:
            assert seen_all < seen_score - 1e-3


def test_a_planted_error_of_a_gradient_is_caught():
    model = draw_model(np.random.default_rng(10), labelled="share")
    space = observed(model)
    functional, restricted = value(model, space), tangent(model, space, known="a", sufficient="s")
    right = judge_models.canonical(model, space)
    rng = np.random.default_rng(11)
    score = restricted @ rng.normal(size=restricted.shape[1])
    moved = derivative(space, functional, score)
    np.testing.assert_allclose(space.probability @ (right * score), moved, **CLOSE)
    assert abs(space.probability @ (1.02 * right * score) - moved) > 1e-4
    assert canonical_error(space, right + 1e-3, functional, restricted) > 9e-4  # a mean that is not zero
