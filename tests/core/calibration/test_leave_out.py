"""Fits without one fold, or two, against refits one at a time; and how many of them a jackknife makes."""

from collections import Counter

import numpy as np
import oracles
import oracles_calibration
import pytest
from ope_world import small

from cje_core.calibration import leave_out
from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.calibrator import MODES, fit, predict
from cje_core.calibration.leave_out import Ground, LeaveOut
from cje_core.calibration.two_stage import make_basis
from cje_core.estimators import stacked_dr
from cje_core.families.off_policy import stages
from cje_core.workflow import paper
from cje_sim.scenarios import arena_like

FOLDS = 4
OFF_POLICY = [name for name in paper.PAPER if "direct" not in name]


def sample(seed, m, *, discrete):
    """Labelled rows and new ones: a judge, a covariate, labels that rise with both, weights, folds."""
    rng = np.random.default_rng(seed)
    score = rng.choice(np.linspace(0, 1, 12), m + 600) if discrete else rng.random(m + 600)
    z = np.column_stack([score, rng.normal(size=m + 600)])
    label = np.clip(z @ [0.7, 0.1] + rng.normal(0, 0.2, m + 600), 0, 1)
    return z[:m], label[:m], rng.uniform(0.5, 2, m), rng.integers(0, FOLDS, m), z[m:]


def one_at_a_time(ground, label, weight, new, left, monotone):
    """The slow path: a refit of the rows outside the folds that are left out."""
    train = ~np.isin(ground.fold, left)
    if not train.any():
        return np.full(len(new), np.nan)
    mode = "monotone" if ground.basis is None else "two_stage_monotone" if monotone else "two_stage"
    how = {"mode": mode, "increasing": ground.increasing, "basis": ground.basis}
    return predict(fit(ground.z[train], label[train], weight[train], **how), new)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_every_fit_is_the_refit_of_the_rows_that_are_left(mode, increasing, discrete):
    """To rounding, which a two-stage fit magnifies where a row lies in the narrow gap between two of its knots."""
    z, label, weight, fold, new = sample(0, 150, discrete=discrete)
    label = label if increasing else 1 - label
    basis = None if mode == "monotone" else make_basis(z, increasing)
    ground = Ground(z, fold, FOLDS, increasing, basis)
    fits = LeaveOut(ground, label, weight, mode == "two_stage_monotone")
    places, chosen = ground.places(new), np.arange(0, len(new), 3)
    constrained = mode == "two_stage_monotone"
    for j in (None, *range(FOLDS)):
        for k in range(FOLDS):
            slow = one_at_a_time(ground, label, weight, new, [k] if j is None else [j, k], constrained)
            fast = fits.predict(places, np.full(len(new), k), without=j)
            assert abs(fast.mean() - slow.mean()) < 1e-13
            np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-13 if mode == "monotone" else 1e-10)
            some = fits.predict(places, np.full(len(chosen), k), without=j, at=chosen)
            np.testing.assert_array_equal(some, fast[chosen])
            other = one_at_a_time(ground, label, weight, new, [(k + 1) % FOLDS], constrained)
            assert np.abs(fast - other).max() > 1e-3  # the wrong fold left out would be seen


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_fits_without_folds_are_their_definition(mode, increasing):
    """Against loops that know nothing of folds: the rows that are left, ties, unequal weights, binary labels."""
    z, label, weight, fold, new = sample(4, 90, discrete=True)
    label, new = np.round(label if increasing else 1 - label), new[:60]
    basis = None if mode == "monotone" else make_basis(z, increasing)
    ground = Ground(z, fold, FOLDS, increasing, basis)
    fits = LeaveOut(ground, label, weight, mode == "two_stage_monotone")
    places = ground.places(new)
    for left in ([0], [2], [1, 3]):
        kept, sign = ~np.isin(fold, left), 1 if increasing else -1
        if mode == "monotone":
            parts = ((sign * z[kept, 0]).tolist(), label[kept].tolist(), weight[kept].tolist())
            expected = oracles.calibrate(*parts, (sign * new[:, 0]).tolist())
        else:
            how = {"increasing": increasing, "monotone": mode == "two_stage_monotone", "train": kept}
            expected = oracles_calibration.two_stage(z, label, weight, new, **how)[0]
        without = left[0] if len(left) == 2 else None
        found = fits.predict(places, np.full(len(new), left[-1]), without=without)
        np.testing.assert_allclose(found, expected, atol=1e-12 if mode == "monotone" else 1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_told_apart_by_their_folds(mode):
    """A row of fold k gets f^(-j,-k), one of fold j gets f^(-j); without labels elsewhere there is no number."""
    z, label, weight, fold, new = sample(1, 120, discrete=True)
    basis = None if mode == "monotone" else make_basis(z)
    new_fold = np.arange(len(new)) % FOLDS
    ground = Ground(z, fold, FOLDS, True, basis)
    fits = LeaveOut(ground, label, weight, mode == "two_stage_monotone")
    together = fits.predict(ground.places(new), new_fold, without=1)
    for k in range(FOLDS):
        alone = fits.predict(ground.places(new), np.full(len(new), k), without=1)
        np.testing.assert_array_equal(together[new_fold == k], alone[new_fold == k])
    single = fits.predict(ground.places(new), np.full(len(new), 1))
    np.testing.assert_array_equal(together[new_fold == 1], single[new_fold == 1])
    two = Ground(z, np.where(fold < 2, 0, 1), FOLDS, True, basis)
    lumped = LeaveOut(two, label, weight, mode == "two_stage_monotone")
    found = lumped.predict(two.places(new), new_fold, without=1)
    assert np.isnan(found[new_fold == 0]).all() and np.isfinite(found[new_fold != 0]).all()
    with pytest.raises(ValueError, match="every_fold=True"):
        fits.predict(ground.places(new), new_fold - 1)


@pytest.fixture
def refitted(monkeypatch):
    """Every prediction without folds by refits, one at a time."""
    where, places = {}, Ground.places

    def remembered(self, z):
        made = places(self, z)
        where[id(made.score)] = made, z  # the places are held, so that no other gets their id
        return made

    def slowly(self, at_places, fold, *, without=None, at=None):
        z = where[id(at_places.score)][1]
        z, out = z if at is None else z[at], np.empty(len(fold))
        for k in np.unique(fold):
            left = [k] if without is None else [k, without]
            rows = fold == k
            out[rows] = one_at_a_time(self.ground, self.label, self.weight, z[rows], left, self.monotone)
        return out

    with monkeypatch.context() as patched:
        patched.setattr(Ground, "places", remembered)
        patched.setattr(LeaveOut, "predict", slowly)
        yield


def off_policy_results():
    """The paper's off-policy rows and the default stack, on two worlds."""
    data = arena_like.simulate(n=250, oracle_fraction=0.4, label_design="base", rng=5)
    found = {}
    for name in OFF_POLICY:
        module, options = paper.paper_estimator(name)
        found[name] = module.estimate(data, **options)
    for mode in ("monotone", "two_stage_monotone"):
        how = Calibration((), mode)
        for inference in ("influence", "jackknife"):
            found[mode, inference] = stacked_dr.estimate(data, calibration=how, inference=inference)
    return found


@pytest.fixture(scope="module")
def fast_results():
    return off_policy_results()


@pytest.mark.slow
def test_the_papers_estimators_give_the_digits_of_refits(fast_results, refitted):
    del refitted
    for name, slow in off_policy_results().items():
        for variable in ("estimate", "std_error", "interval"):
            np.testing.assert_allclose(
                fast_results[name][variable], slow[variable], rtol=0, atol=1e-12, err_msg=f"{name} {variable}"
            )


@pytest.fixture
def counted(monkeypatch):
    """How often each fit is made: by labels, weights, rows, kind and the folds left out; and every refit."""
    calls = Counter()
    fit_them, refit = LeaveOut._fit, stages.refit

    def counting(self, left_out):
        ground = self.ground
        kind = ground.basis is not None, self.monotone, ground.increasing
        for pair in left_out:
            rows = ground.z.tobytes(), self.label.tobytes(), self.weight.tobytes()
            calls["fit", *kind, *rows, pair] += 1
        return fit_them(self, left_out)

    def counting_refit(*arguments):
        calls["refit"] += 1
        return refit(*arguments)

    monkeypatch.setattr(leave_out.LeaveOut, "_fit", counting)
    monkeypatch.setattr(stages, "refit", counting_refit)
    return calls


@pytest.mark.parametrize("covariates", [False, True])
def test_the_papers_estimators_make_each_fit_once(counted, covariates):
    """Five estimators, five policies, five reruns each: K (K + 1) / 2 fits of the slice, whoever asks for them."""
    data = arena_like.simulate(n=200, oracle_fraction=0.5, label_design="base", rng=4)
    given = logs = calibrated(data, Calibration(("response_length",) if covariates else ()))
    for name in OFF_POLICY:
        if name.endswith("+cov") == covariates:
            module, options = paper.paper_estimator(name)
            options |= {"calibration": given.calibration}
            logs = module.estimate.prepare(logs, **options)
            module.estimate(logs, **options)
    assert set(counted.values()) == {1} and "refit" not in counted
    labels = given.slice.label.tobytes()
    assert sum(key[5] == labels and key[6] == given.slice.weight.tobytes() for key in counted) >= 15
    pairs = Counter(key[7] for key in counted if key[5] == labels)
    assert pairs[0, 1] == 1 and len(pairs) == 15
    # the rest: maps of the weights, up and down, of the four policies that are not the logger, and MRDR's outcome
    # models, of each policy in the estimate and in its five reruns
    assert len(counted) <= 15 + 5 * 2 * 5 + 5 * 6 * 5


def test_the_counter_sees_what_is_made_twice(counted):
    data = small()
    for _ in range(2):
        module, options = paper.paper_estimator("dr-cpo")
        module.estimate(data, **options)
    assert set(counted.values()) == {2}
