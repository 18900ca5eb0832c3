"""Power tuning against a slow version, its exact cases and its symmetries."""

import numpy as np
import oracles_tuning as oracles
import pytest
import statsmodels.api as sm

from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.families.direct import curve as curves
from cje_core.families.direct.power_tuning import charge, simplex_weights, tuned_prediction
from cje_core.inference.influence import combine, mean_part

SCALE = (0.0, 1.0)  # of the labels, unless a test declares another


def world(seed, n=80, m=30, *, policies=1, label=None, draws=1, clusters=None, unequal=False, grid=None):
    """One evaluation data set; `label` maps scores and a generator to oracle labels."""
    rng = np.random.default_rng(seed)
    score = rng.beta(2.0, 1.5, (policies, n, draws))
    if grid:
        score = np.round(score * grid) / grid
    oracle = (
        np.clip(0.1 + 0.7 * score**2 + rng.normal(0, 0.15, score.shape), 0, 1)
        if label is None
        else label(score, rng)
    )
    prob = np.full(score.shape, m / n)
    if unequal:
        prob = np.clip(2 * m / n * score.mean(axis=(0, 2), keepdims=True), 0.05, 1) + 0 * score
    seen = np.zeros(n, dtype=bool)
    if unequal:
        seen = rng.random(n) < prob[0, :, 0]
    else:
        seen[rng.choice(n, m, replace=False)] = True
    drawn = np.arange(draws) <= np.arange(n)[:, None] % draws  # 1, 2, ... draws in turn
    return from_arrays(
        np.where(drawn, score, np.nan),
        policies=[f"p{k}" for k in range(policies)],
        oracle=np.where(seen[None, :, None] & drawn, oracle, np.nan),
        label_prob=prob if unequal else None,
        cluster=None if clusters is None else np.arange(n) % clusters,
    )


def tune(data, p=0, direction="increasing"):
    rows = unpack(data)
    fitted = fit_slice(rows, direction=direction)
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    own = np.flatnonzero((rows.policy == p) & rows.labelled)
    weight = rows.weight[own] / rows.label_prob[own]
    scale = tuple(data.attrs["oracle_range"])
    return rows, fitted, index, own, weight, tuned_prediction(rows, fitted, index, own, weight, scale)


def judge_curve(rows, index, own, weight):
    """Curve of the evaluated rows, and of each own label without its cluster."""
    curve, own_curve = np.empty(len(index)), np.empty(len(own))
    _, cluster = np.unique(rows.cluster[rows.prompt[own]], return_inverse=True)
    share = rows.weight[index] / rows.weight[index].sum()
    curves.judge_curve(
        rows.score[index], share, rows.score[own], rows.label[own], weight, cluster, int(cluster.max()) + 1, 1.0,
        SCALE[0], SCALE[1] - SCALE[0], curve, own_curve,
    )  # fmt: skip
    return curve, own_curve


def value_and_error(data, **options):
    """Value, standard error and degrees of freedom of the tuned estimate."""
    rows, _, index, own, weight, tuned = tune(data, **options)
    value, sampling = mean_part(rows, index, tuned.evaluated, rows.weight[index])
    shift, label_part = mean_part(rows, own, rows.label[own] - tuned.own, weight)
    _, error, df = combine([sampling, charge(label_part, tuned.spent)], rows.cluster)
    return value + shift, error, df


def weights(tuned):
    return np.array([tuned.weight_curve, tuned.weight_calibrator])


CASES = {
    "plain": {},
    "two_policies": {"policies": 2},
    "draws": {"draws": 3},
    "clusters": {"clusters": 25, "m": 60},
    "unequal": {"unequal": True, "m": 40},
    "coarse": {"grid": 4},
    "everything": {"policies": 3, "draws": 2, "clusters": 30, "unequal": True, "m": 50, "grid": 10},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_against_the_slow_version(case, seed):
    data = world(seed, **CASES[case])
    for p in range(data.sizes["policy"]):
        rows, fitted, index, own, weight, tuned = tune(data, p)
        assert (list(index), list(own)) == oracles.policy_rows(rows, p)[:2]
        slow = [oracles.curve(rows, index, own, weight, SCALE), oracles.calibrated(rows, fitted, index, own)]
        flat, held = (np.stack([pair[k] for pair in slow]) for k in range(2))
        level = np.average(rows.label[own], weights=weight)
        w = weights(tuned)
        np.testing.assert_allclose(tuned.evaluated, level + w @ flat, atol=1e-10)
        np.testing.assert_allclose(tuned.own, level + w @ held, atol=1e-10)

        def objective(w, held=held, flat=flat, rows=rows, index=index, own=own, weight=weight):
            scale = 1e4  # the optimiser stops on absolute changes
            return scale * oracles.variance(rows, index, own, weight, w @ flat, rows.label[own] - w @ held)

        borrowed = len(fitted.label) > 2 * len(own)
        alone = oracles.best_weights(objective, fixed=0 if borrowed else 1)
        share = min(10 / oracles.kish(rows, own, weight), 1)
        best = share * alone + (1 - share) * oracles.best_weights(objective)
        np.testing.assert_allclose(w, best, atol=2e-3)  # the minimum is flat: the optimiser's own accuracy
        assert objective(w) == pytest.approx(objective(best), rel=1e-4)


def least_squares(gram, cross):
    return np.array(simplex_weights(*gram[0], gram[1, 1], *cross, 0.0))


def test_simplex_weights_meet_the_optimality_conditions():
    """Stationarity on the face, and no way down off it: necessary and sufficient for a convex problem."""
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(500):
        design = rng.normal(size=(6, 2)) * rng.uniform(0.2, 3)
        target = design @ rng.normal(0.3, 0.5, 2) + rng.normal(size=6)
        gram, cross = design.T @ design, design.T @ target
        w = least_squares(gram, cross)
        assert (w >= 0).all() and w.sum() <= 1 + 1e-9
        gradient = gram @ w - cross
        shared = gradient[w > 0].mean() if (w > 0).any() else 0.0
        multiplier = -min(shared, 0.0) if w.sum() > 1 - 1e-9 else 0.0
        assert np.allclose(gradient[w > 0], -multiplier, atol=1e-8)
        assert (gradient[w == 0] >= -multiplier - 1e-8).all()
        seen.add((tuple(w > 0), bool(w.sum() > 1 - 1e-9)))
    assert len(seen) == 7  # every face was visited: inside, three sides, three corners


def test_simplex_weights_of_twins_use_one_and_of_nothing_none():
    gram = np.full((2, 2), 2.0)
    assert least_squares(gram, np.array([1.0, 1.0])).tolist() == [0.5, 0.0]
    assert least_squares(np.zeros((2, 2)), np.zeros(2)).tolist() == [0.0, 0.0]


def test_a_linear_judge_is_trusted_in_full():
    """Residuals are zero at full weight; the optimum lies next to it, since labelled and all rows covary by chance."""
    data = world(3, label=lambda s, rng: 0.2 + 0.6 * s)
    rows, _, _, own, _, tuned = tune(data)
    assert weights(tuned).sum() > 0.99
    value, error, _ = value_and_error(data)
    truth = 0.2 + 0.6 * rows.score
    full, labels = (values.std(ddof=1) / np.sqrt(len(values)) for values in (truth, rows.label[own]))
    assert 0.9 * full < error < 1.01 * full < 0.7 * labels
    assert abs(value - truth.mean()) < 0.2 * error


def test_a_step_needs_the_calibrator():
    """A late one: a logistic curve can follow an early step far."""
    data = world(4, n=600, m=250, label=lambda s, rng: np.where(s > 0.8, 0.9, 0.4), grid=20)
    tuned = tune(data)[-1]
    assert tuned.weight_calibrator > 0.93 and tuned.weight_curve < 0.07


def test_a_useless_judge_gets_little_weight():
    """Each prediction's gain is noise there, positive half the time and of order 1 / m."""
    total = [
        weights(tune(world([9, r], n=400, m=200, label=lambda s, rng: rng.uniform(size=s.shape)))[-1])
        for r in range(60)
    ]
    assert np.mean(np.sum(total, axis=1)) < 0.2
    assert np.mean(np.sum(total, axis=1) < 0.01) > 0.2


def test_an_inverted_judge_is_ignored_not_turned_round():
    """Neither the curve nor the calibrator may fall where a rise was declared; declared as falling, it is trusted."""
    data = world(10, m=60, label=lambda s, rng: 0.9 - 0.8 * s)
    assert weights(tune(data)[-1]).tolist() == [0.0, 0.0]
    assert weights(tune(data, direction="decreasing")[-1]).sum() > 0.9


def test_order_of_prompts_and_policies_does_not_matter():
    data = world(5, policies=2, clusters=30)
    shuffled = data.isel(prompt=np.random.default_rng(0).permutation(data.sizes["prompt"]), policy=[1, 0])
    for p in range(2):
        assert value_and_error(data, p=p) == value_and_error(shuffled, p=p)


def test_only_relative_label_probabilities_matter():
    data = world(6, unequal=True, m=40)
    halved = data.assign(label_prob=data.label_prob / 2)
    np.testing.assert_allclose(value_and_error(halved), value_and_error(data), rtol=1e-9)


def test_a_repeated_draw_adds_nothing():
    """Two equal draws of every prompt weigh half each: the same estimate, error and degrees of freedom."""
    data = world(7)
    twice = from_arrays(
        np.repeat(data.judge.values, 2, axis=2),
        policies=["p0"],
        oracle=np.repeat(data.oracle.values, 2, axis=2),
    )
    np.testing.assert_allclose(value_and_error(twice), value_and_error(data), rtol=1e-9)


def test_equivariance_to_the_scales_of_judge_and_oracle():
    data = world(8)
    value, error, df = value_and_error(data)
    judge = data.assign(judge=5 - 4 * data.judge).assign_attrs(judge_range=[1.0, 5.0])
    np.testing.assert_allclose(value_and_error(judge, direction="decreasing"), [value, error, df], rtol=1e-9)
    oracle = data.assign(oracle=10 * data.oracle - 3).assign_attrs(oracle_range=[-3.0, 7.0])
    np.testing.assert_allclose(value_and_error(oracle), [10 * value - 3, 10 * error, df], rtol=1e-9)


@pytest.mark.parametrize(("m", "used"), [(5, set()), (6, {0}), (10, {0}), (11, {0, 1})])
def test_few_labels_weigh_fewer_predictions(m, used):
    """Which predictions may take part, over twenty data sets with a good judge."""
    seen = set()
    for seed in range(20):
        tuned = tune(world([11, seed], m=m, label=lambda s, rng: s**3 * (1 - rng.uniform(0, 0.2, s.shape))))[
            -1
        ]
        seen |= set(np.flatnonzero(weights(tuned) > 0).tolist())
    assert seen == used


def test_few_labels_under_a_borrowed_calibrator_weigh_the_calibrator():
    rng = np.random.default_rng(12)
    score = rng.uniform(size=(2, 200))
    label = np.where(score > 0.5, 0.8, 0.2) + rng.uniform(-0.05, 0.05, score.shape)
    seen = np.zeros(score.shape, dtype=bool)
    seen[0, :100] = seen[1, 100:108] = True
    data = from_arrays(score, policies=["base", "new"], oracle=np.where(seen, label, np.nan))
    tuned = tune(data, 1)[-1]
    assert tuned.weight_curve == 0 and tuned.weight_calibrator > 0.9


def test_below_six_labels_it_is_the_label_mean():
    data = world(13, m=5)
    rows, _, _, own, _, _ = tune(data)
    value, error, df = value_and_error(data)
    label = rows.label[own]
    assert (value, error) == pytest.approx((label.mean(), label.std(ddof=1) / np.sqrt(5)), rel=1e-9)
    assert df == pytest.approx(4)


def test_a_label_hardly_moves_its_own_prediction():
    """Moved from one end to the other it moves its cluster's held-out curve by the square of what it moves the fit."""
    data = world(14, clusters=30, m=50)
    rows, _, index, own, weight, _ = tune(data)
    target = own[7]
    moved_label = rows.label.copy()
    moved_label[target] = 1 - moved_label[target]
    moved = rows._replace(label=moved_label)
    before, after = (judge_curve(r, index, own, weight) for r in (rows, moved))
    same = rows.cluster[rows.prompt[own]] == rows.cluster[rows.prompt[target]]
    fitted = np.abs(after[0] - before[0])[np.isin(index, own[same])].max()
    assert np.abs(after[1] - before[1])[same].max() < 0.2 * fitted
    assert np.abs(after[1] - before[1])[~same].max() > 0.2 * fitted


@pytest.mark.slow
def test_one_step_is_a_refit_to_second_order():
    """Four times the labels: 1 / 16 of the distance to the exact refit, where the fit on all labels keeps 1 / 4."""
    apart = []
    for m in (30, 120):
        sizes = []
        for seed in range(4):
            rows, _, index, own, weight, _ = tune(world([21, seed], n=200, m=m))
            flat, exact = oracles.curve(rows, index, own, weight, SCALE, refit=True)
            held = judge_curve(rows, index, own, weight)[1]
            unheld = flat[np.isin(index, own)]
            sizes.append([np.abs(held - exact).mean(), np.abs(unheld - exact).mean()])
        apart.append(np.mean(sizes, axis=0))
    shrunk = apart[1] / apart[0]
    assert shrunk[0] < 1 / 8 < shrunk[1]
    assert (apart[0][0] / apart[0][1]) < 0.1


@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_pass_fail_labels_that_the_score_separates_have_a_curve(gap):
    """Without the prior the slope would have no end, and the halves of a step no refit."""
    rng = np.random.default_rng(22)
    score = np.where(
        rng.random(80) < 0.5, rng.uniform(0, 0.5 - gap / 2, 80), rng.uniform(0.5 + gap / 2, 1, 80)
    )
    data = from_arrays(
        score[None, :, None],
        policies=["p0"],
        oracle=np.where(np.arange(80) < 20, score > 0.5, np.nan)[None, :, None],
    )
    rows, _, index, own, weight, tuned = tune(data)
    flat, held = judge_curve(rows, index, own, weight)
    slow = oracles.curve(rows, index, own, weight, SCALE)
    np.testing.assert_allclose(flat, slow[0], atol=1e-9)
    np.testing.assert_allclose(held, slow[1], atol=1e-9)
    assert (np.diff(flat[np.argsort(rows.score[index])]) >= 0).all() and 0.9 < np.ptp(flat) < 1
    assert weights(tuned).sum() > 0.8


def test_one_distinct_score_tells_no_slope():
    """Leaving out the only cluster with another score leaves a slope of zero, not one of rounding errors."""
    data = world(20, m=20)
    rows, _, index, own, weight, _ = tune(data)
    score = np.full(len(rows.score), 0.1 + 0.2)
    score[own[0]] = 0.9
    held = judge_curve(rows._replace(score=score), index, own, weight)[1]
    assert held[0] == 0


def test_labels_all_in_one_fold_leave_the_curve():
    """No calibrator can be fitted without the only fold that has labels: the curve carries on alone."""
    data = world(15)
    rows, fitted, index, own, weight, _ = tune(data)
    lumped = fitted._replace(fold=np.zeros_like(fitted.fold))
    tuned = tuned_prediction(rows, lumped, index, own, weight, SCALE)
    assert tuned.weight_calibrator == 0 and tuned.weight_curve > 0
    assert np.isfinite(tuned.evaluated).all() and np.isfinite(tuned.own).all()


def test_tuning_without_a_calibrator_is_an_error():
    rows, fitted, index, own, weight, _ = tune(world(16))
    with pytest.raises(ValueError, match="too few labels to fit one"):
        tuned_prediction(rows, fitted._replace(calibrator=None), index, own, weight, SCALE)


def test_pitfall_29_the_degrees_of_freedom_pay_for_the_weights():
    """As a regression on m labels with q slopes: m - 1 - q degrees of freedom and divisor."""
    for m in (6, 15, 40):
        rows, _, _, own, _, tuned = tune(world(18, m=m, label=lambda s, rng: 0.2 + 0.6 * s**2))
        curve_alone = min(10 / m, 1)
        both = np.count_nonzero(weights(tuned)) if m > 10 else 0
        n_used = curve_alone + (1 - curve_alone) * both  # on these labels each fit uses all it may
        assert tuned.spent == pytest.approx(n_used / (m - 1))
        _, part = mean_part(rows, own, rows.label[own], np.ones(m))
        charged = charge(part, tuned.spent)
        assert charged.df == pytest.approx(m - 1 - n_used)
        np.testing.assert_allclose(
            charged.influence**2, part.influence**2 * (m - 1) / (m - 1 - n_used), rtol=1e-9
        )


@pytest.mark.parametrize("q", [1, 2])
def test_the_charge_is_that_of_a_regression(q):
    """The error of the mean of a least-squares residual on q centred columns is that of the constant's coefficient."""
    rows, _, _, own, _, _ = tune(world(18, m=30))
    rng = np.random.default_rng(q)
    x = rng.normal(size=(30, q))
    fit = sm.OLS(rows.label[own], np.column_stack([np.ones(30), x - x.mean(axis=0)])).fit()
    level, part = mean_part(rows, own, fit.resid + fit.params[0], np.ones(30))
    _, error, df = combine([charge(part, q / 29)], rows.cluster)
    np.testing.assert_allclose([level, error, df], [fit.params[0], fit.bse[0], fit.df_resid], rtol=1e-9)


def test_heavy_label_weights_count_by_kish():
    """Forty labels of which one weighs as much as the others together are worth about four: no tuning."""
    rows, fitted, index, own, weight, _ = tune(world(19, m=40))
    weight[0] = 39.0
    tuned = tuned_prediction(rows, fitted, index, own, weight, SCALE)
    assert (tuned.spent, *weights(tuned)) == (0, 0, 0)
    weight[0] = 8.0  # (47)^2 / (39 + 64) = 21.4
    tuned = tuned_prediction(rows, fitted, index, own, weight, SCALE)
    kish = 47**2 / 103
    assert kish == pytest.approx(oracles.kish(rows, own, weight))
    allowed = [(10 / kish + (1 - 10 / kish) * both) / (kish - 1) for both in (1, 2)]
    assert min(abs(tuned.spent - spent) for spent in allowed) < 1e-9


def test_pitfall_34_weights_of_constant_labels_are_zero_not_wild():
    """The influence is zero everywhere: whoever uses it must say so, as Direct does by its status."""
    data = world(17, label=lambda s, rng: np.where(s < 0, 0.0, 1.0))
    tuned = tune(data)[-1]
    assert weights(tuned).tolist() == [0.0, 0.0]
    assert np.array_equal(tuned.own, np.ones(len(tuned.own)))
