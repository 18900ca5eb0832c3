"""A first stage of the user's choice: its index by the definition, what it sees, and what it says of bad regressors."""

import json

import numpy as np
import pytest
import statsmodels.api as sm
import xarray as xr
from ope_world import small
from scipy import stats

import cje_core
from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.first_stage import LearnedIndex
from cje_core.data import DataError
from cje_core.estimators import bayes_direct, direct, direct_corrected, snips
from cje_core.workflow.steps.order import read_step
from cje_sim.scenarios import length_bias


class Wls:
    """Weighted least squares by statsmodels, as a regressor of scikit-learn's form."""

    def fit(self, X, y, sample_weight=None):
        self.model = sm.WLS(y, sm.add_constant(X, has_constant="add"), sample_weight).fit()
        return self

    def predict(self, X):
        return self.model.predict(sm.add_constant(X, has_constant="add"))


class Nearest:
    """The label of the nearest score: it interpolates, takes no weights, and its fit returns nothing."""

    def fit(self, X, y):
        self.x, self.y = X[:, 0], y

    def predict(self, X):
        return self.y[np.abs(X[:, [0]] - self.x).argmin(axis=1)]


def world(n=300, rng=1, **options):
    return length_bias.simulate(n=n, rng=rng, **options)


HOW = Calibration(first_stage=LearnedIndex(Wls(), ["length"]))


def test_the_index_of_a_response_is_learned_without_its_fold():
    data = world()
    given = calibrated(data, HOW)
    plain = calibrated(data, Calibration(["length"]))
    rows, fitted = plain.rows, given.slice
    fold, teaches = fitted.fold, np.flatnonzero(rows.teaches)
    for k in range(5):
        train = teaches[fold[rows.prompt[teaches]] != k]
        mine = fold[rows.prompt] == k
        x = np.column_stack([np.ones(len(rows.z)), rows.z])
        beta = np.linalg.lstsq(x[train], rows.label[train], rcond=None)[0]
        np.testing.assert_allclose(given.rows.score[mine], np.clip(x[mine] @ beta, 0, 1), atol=1e-10)
    np.testing.assert_array_equal(given.rows.z[:, 0], given.rows.score)
    assert given.slice.mode == "monotone" and given.rows.z.shape[1] == 1


def test_labels_of_a_fold_do_not_move_its_index():
    data = world()
    given = calibrated(data, HOW)
    mine = given.slice.fold[given.rows.prompt] == 2
    names = given.rows.prompts[np.unique(given.rows.prompt[mine])]
    moved = data.copy(deep=True)
    moved["oracle"].loc[{"prompt": names}] = 1 - moved["oracle"].sel(prompt=names)
    again = calibrated(moved, HOW)
    np.testing.assert_array_equal(again.rows.score[mine], given.rows.score[mine])
    assert (again.rows.score[~mine] != given.rows.score[~mine]).mean() > 0.9


def test_everything_takes_the_index_and_leaves_the_regressor_alone():
    regressor = Wls()
    how = Calibration(first_stage=LearnedIndex(regressor, ["length"]))
    data = world()
    before = data.copy(deep=True)
    result = direct.estimate(data, calibration=how)
    assert not hasattr(regressor, "model") and data.identical(before)
    assert json.loads(result.attrs["options"])["first_stage"] == "Wls"
    shuffled = data.isel(prompt=np.random.default_rng(1).permutation(300), policy=[2, 0, 1])
    other = direct.estimate(shuffled, calibration=how).sel(policy=result.policy)
    np.testing.assert_array_equal(other["estimate"], result["estimate"])
    scaled = data.assign(oracle=10 + 5 * data["oracle"], judge=2 * data["judge"] - 1)
    if "true_reward" in data:
        scaled = scaled.assign(true_reward=10 + 5 * data["true_reward"])
    scaled = scaled.assign_attrs(oracle_range=[10.0, 15.0], judge_range=[-1.0, 1.0])
    np.testing.assert_allclose(
        direct.estimate(scaled, calibration=how)["estimate"], 10 + 5 * result["estimate"], rtol=1e-9
    )
    assert np.isfinite(bayes_direct.estimate(data, calibration=how, n_draws=200, rng=1)["estimate"]).all()
    assert cje_core.analyze(data, calibration=how).estimates["direct"].estimate.equals(result["estimate"])


def test_logged_responses_have_the_index_too():
    data = small(3, n=80)
    how = Calibration(first_stage=LearnedIndex(Nearest()))
    given = calibrated(data, how)
    assert np.isfinite(given.logged.z).all() and given.logged.z.shape == (80, 1)
    assert not np.array_equal(given.logged.z, calibrated(data).logged.z)
    assert np.isfinite(snips.estimate(data, calibration=how)["estimate"]).all()
    bare = data.assign(oracle=data["oracle"] * np.nan, labelled=data["labelled"] & False)
    bare.attrs["calibration_policy"] = []
    assert np.isfinite(snips.estimate(bare, calibration=how)["estimate"]).all()  # the logs' labels teach


def test_few_labels_teach_no_first_stage():
    data = world(n=60, oracle_fraction=0.1)
    assert (calibrated(data).rows.teaches).sum() < 20
    xr.testing.assert_equal(
        direct.estimate(data, calibration=HOW)["estimate"], direct.estimate(data)["estimate"]
    )


class Bad:
    def __init__(self, predicted):
        self.predicted = predicted

    def fit(self, X, y, sample_weight=None):
        return self

    def predict(self, X):
        return self.predicted(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Calibration(["length"], first_stage=LearnedIndex(Wls())),
            r"covariates=\['length'\]: first_stage learns",
        ),
        (
            lambda: Calibration(direction="decreasing", first_stage=LearnedIndex(Wls())),
            "direction='decreasing'",
        ),
        (lambda: Calibration(mode="two_stage", first_stage=LearnedIndex(Wls())), "calibrator='two_stage'"),
        (lambda: LearnedIndex("ridge"), r"needs a method fit\(\)"),
        (lambda: LearnedIndex(Wls(), "length"), "give a list"),
    ],
)
def test_what_cannot_be_asked_for_is_said_at_once(make, message):
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize("predicted", [lambda X: np.zeros(3), lambda X: np.full(len(X), np.nan)])
def test_predictions_are_checked(predicted):
    how = Calibration(first_stage=LearnedIndex(Bad(predicted)))
    with pytest.raises(DataError, match=r"predict\(\) gave shape"):
        direct.estimate(world(), calibration=how)


def test_weights_need_a_regressor_that_takes_them(tmp_path):
    data = world()
    prob = data["label_prob"].copy(deep=True)
    prob[:, ::2] = 0.5
    with pytest.raises(DataError, match="takes no sample_weight"):
        direct.estimate(
            data.assign(label_prob=prob), calibration=Calibration(first_stage=LearnedIndex(Nearest()))
        )
    assert np.isfinite(direct.estimate(data.assign(label_prob=prob), calibration=HOW)["estimate"]).all()
    with pytest.raises(DataError, match="a regressor is not kept between steps"):
        read_step(data, tmp_path / "steps", calibration=HOW)


@pytest.mark.slow
def test_values_with_own_labels_and_probes_keep_their_level():
    """Wls and a regressor that interpolates its labels; 80 labels of base, 40 probes of others, binomial bounds."""
    truth, runs, hits = length_bias.truth(), 100, np.zeros((2, 3))
    for seed in range(runs):
        data = world(n=320, rng=seed, oracle_fraction=0.25, label_design="base", n_probes=40)
        for m, regressor in enumerate((Wls(), Nearest())):
            how = calibrated(data, Calibration(first_stage=LearnedIndex(regressor, ["length"])))
            own, probed = (module.estimate(how).interval for module in (direct, direct_corrected))
            interval = xr.where(own.policy == "base", own, probed)
            low, high = interval.transpose("ci_bound", "policy").values
            target = truth.sel(policy=own.policy).values
            hits[m] += (low <= target) & (target <= high)
    assert (hits >= stats.binom.ppf(1e-6, runs, 0.95)).all()
