"""A fitted outcome model q(X, A) in doubly robust values: its definition, its labels, and the gate that it can fail."""

import numpy as np
import oracles_ope as slow
import pytest
from ope_world import logs_of, of_target, small, world_of
from scipy import stats

from cje_core.data import DataError
from cje_core.estimators import calibrated_dr_cpo, dr_cpo, mrdr, tmle
from cje_core.families.off_policy.estimate import prepared
from cje_core.families.off_policy.stages import with_outcome
from cje_core.formulas.linear_outcome import linear_outcome
from cje_core.verdict import gates
from cje_sim.scenarios import tilted_logs

LINEAR = {"link": "linear", "low": 0.2, "high": 0.8}


def with_length(data, seed=0):
    """The data with two covariates: one that no policy and no label knows, and a constant."""
    rng = np.random.default_rng([7, seed])  # not the stream of the world
    values = np.stack([rng.normal(300, 40, data["judge"].shape), np.full(data["judge"].shape, 3.0)], axis=-1)
    return data.assign(
        covariate=((*data["judge"].dims, "feature"), values),
        logged_covariate=(("prompt", "feature"), values[0, :, 0]),
    ).assign_coords(feature=["length", "constant"])


def tilted(seed, n=2000, **law):
    return with_length(tilted_logs.simulate(n=n, rng=seed, **LINEAR, **law), seed)


@pytest.mark.parametrize("module", [dr_cpo, tmle])
def test_values_match_the_definition(module):
    data = with_length(small(5))
    world, logs = world_of(data), logs_of(data)
    lengths = data["covariate"].sel(feature="length", prompt=logs.rows.prompts)
    x = lengths.isel(policy=0, draw=0).values
    fresh_x = [
        lengths.sel(policy="target").isel(prompt=i).values[: len(p["fresh"])] for i, p in enumerate(world)
    ]
    q = slow.fitted_outcomes(world, x, fresh_x)
    result = module.estimate(data, outcome=["length", "constant"], borrowed="plug_in")
    weight = slow.weights(world)
    form = slow.doubly_robust if module is dr_cpo else slow.tmle
    expected = form(world, weight, q) if module is dr_cpo else form(world, weight, decreasing=False, q=q)
    assert of_target(result) == pytest.approx(expected, abs=1e-10)
    assert of_target(result) != pytest.approx(of_target(module.estimate(data, borrowed="plug_in")), abs=1e-3)


def test_weights_of_the_targets_are_those_of_the_predictions():
    rng = np.random.default_rng(1)
    x, new_x, target = rng.normal(size=(60, 2)), rng.normal(size=(25, 2)), rng.normal(size=60)
    fold, new_fold = rng.integers(0, 5, 60), rng.integers(0, 5, 25)
    model = linear_outcome(x, np.tile(target, (5, 1)), fold, new_x, new_fold)
    weight, new_weight = rng.normal(size=60), rng.normal(size=25)
    moved = model.target_weights(weight, new_weight) @ target
    assert moved == pytest.approx(weight @ model.fitted + new_weight @ model.predicted)


@pytest.mark.parametrize("module", [dr_cpo, calibrated_dr_cpo])
def test_terms_carry_the_whole_value(module):
    logs = prepared(logs_of(with_length(small(3))), module.estimate.method(outcome=["length"]))
    value = module.policy_value(logs, 1, outcome=("length",))
    terms = value.terms()
    assert sum(term.weight.sum() for term in terms) == pytest.approx(1.0, abs=1e-12)
    assert len(terms) == 2
    # the rewards of all logged responses make the value: V is their sum by the terms where f^(-k) is f
    q = logs.outcomes["length",].linear.target_weights
    assert q(np.zeros(len(logs.seen)), np.zeros(len(logs.rows.z))) == pytest.approx(0.0)


def state(data, module=dr_cpo, **options):
    """Per policy, the state of the orthogonality gate and whether the interval of the value covers the truth."""
    result = module.estimate(data, **options)
    table = gates.evaluate(gates.collect(result.policy.values, estimate=result))
    truth = tilted_logs.truth(**LINEAR).sel(policy=result.policy)
    low, high = result["interval"].transpose("ci_bound", ...)
    return table.state.sel(gate="orthogonality").to_series().to_dict(), (
        (low < truth) & (truth < high)
    ).values


def test_the_gate_fails_where_the_outcome_model_is_wrong_for_the_policy():
    """Length tells nothing of quality, so q is the logger's mean: wrong for targets that are better or worse."""
    data = tilted(1)
    wrong, covered = state(data, outcome=["length"])
    assert wrong == {"base": "pass", "better": "warn", "stylish": "pass", "worse": "warn"}
    assert covered.all()  # right weights repair it
    direct_part = dr_cpo.estimate(data, outcome=["length"])["direct_part"]
    assert (np.abs(direct_part - tilted_logs.truth(**LINEAR)).sel(policy=["better", "worse"]) > 0.05).all()


@pytest.mark.parametrize("features", [["judge"], ["judge", "length"]])
def test_the_gate_passes_where_the_outcome_model_is_right(features):
    right, covered = state(tilted(1), outcome=features)
    assert set(right.values()) == {"pass"} and covered.all()


@pytest.mark.slow
def test_size_and_power_of_the_gate():
    """With q right in 5% of the data sets it fails by chance; with q wrong for the policy it nearly always fails."""
    runs, failed = 60, {"judge": 0, "length": 0}
    for seed in range(runs):
        data = tilted(seed, n=1000).sel(policy=["base", "better"])
        for feature in failed:
            failed[feature] += state(data, outcome=[feature])[0]["better"] != "pass"
    assert failed["judge"] <= stats.binom.isf(1e-6, runs, 0.05)
    assert failed["length"] >= stats.binom.ppf(1e-6, runs, 0.9)


def test_the_other_members_and_the_jackknife_take_it():
    data = with_length(small(9))
    for module in (calibrated_dr_cpo, tmle):
        plain, fitted = module.estimate(data), module.estimate(data, outcome=["judge", "length"])
        assert (
            of_target(plain) != of_target(fitted)
            and '"outcome": ["judge", "length"]' in fitted.attrs["options"]
        )
    rerun = dr_cpo.estimate(data, outcome=["length"], inference="jackknife")
    assert np.isfinite(rerun["std_error"]).all()
    # R^OOF stays the held-out calibrator, so the correction does not vanish from the paper's influence
    value = dr_cpo.policy_value(with_outcome(logs_of(data), ("length",)), 1, outcome=("length",))
    assert np.abs(value.held_out_influence()).max() > 0.01


def test_a_feature_that_is_not_there_is_named():
    with pytest.raises(DataError, match="no covariate named 'words'"):
        dr_cpo.estimate(with_length(small(1)), outcome=["words"])
    with pytest.raises(ValueError, match="outcome='judge': give a list"):
        dr_cpo.estimate(small(1), outcome="judge")
    with pytest.raises(TypeError, match="outcome"):
        mrdr.estimate(small(1), outcome=["judge"])
