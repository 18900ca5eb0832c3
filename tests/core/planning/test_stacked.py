"""Components of stacked DR: the pilot's own standard error, forecasts against fresh studies, a plan tried out."""

import json

import numpy as np
import pytest
from off_policy_numbers import values as numbers_of

from cje_core.calibration.calibrated import calibrated
from cje_core.data import DataError
from cje_core.estimators import stacked_dr
from cje_core.planning.components import variance_components
from cje_core.planning.forecast import mde_surface, std_error_at
from cje_core.planning.stacked import stacked_splits
from cje_core.planning.trial import simulate_plan
from cje_core.workflow.plan import plan
from cje_sim.scenarios import arena_like
from studies.cli.planning.as_json import to_json

POLICIES = ["clone", "premium"]


@pytest.fixture(scope="module")
def data():
    return arena_like.simulate(n=400, oracle_fraction=0.4, rng=1).sel(policy=["base", *POLICIES])


def test_at_the_pilots_own_size_they_give_its_standard_error(data):
    found = variance_components(data, estimator="stacked_dr")
    estimate = stacked_dr.estimate(data)
    known = np.isfinite(estimate["std_error"].values)
    assert known.sum() >= 2
    again = std_error_at(found.attrs["n"], found.attrs["m"], found)
    np.testing.assert_allclose(again.std_error[known], estimate["std_error"][known], rtol=1e-9)
    np.testing.assert_allclose(found.std_error[known], estimate["std_error"][known], rtol=1e-9)
    assert (found.route[known] == "stacked_dr").all() and (
        found.status[known] == estimate.status[known]
    ).all()
    share = estimate["calibration_share"].values[known]  # of the parts apart; the cross terms go with n here
    assert (np.abs(found.calibration_share.values[known] - share) < 0.2).all()


def test_parts_are_the_influence_of_the_stack(data):
    given = calibrated(data)
    estimate = stacked_dr.estimate(given)
    for name, part in zip(given.rows.policies, stacked_splits(given), strict=True):
        if np.isfinite(part.df_eval):
            total = (part.evaluation + part.calibration) * len(given.rows.prompts)
            np.testing.assert_allclose(total, estimate["influence"].sel(policy=name).values, atol=1e-12)


def test_a_difference_cancels_what_two_policies_share(data):
    pair = variance_components(data, estimator="stacked_dr", reference="clone").isel(pair=0)
    levels = variance_components(data, estimator="stacked_dr").sel(
        policy=["clone", str(pair["first"].item())]
    )
    assert pair.std_error < np.sqrt((levels.std_error**2).sum())
    surface = mde_surface(levels.isel(policy=0), [200, 800], [0.1, 0.5], cost_judge=0.01, cost_oracle=0.1)
    assert (surface.std_error.diff("n") < 0).all() and (surface.std_error.diff("fraction") < 0).all()


@pytest.mark.slow
def test_a_plan_is_of_the_stack_and_tried_out_with_logs(data):
    money = {"budget": 60.0, "cost_judge": 0.02, "cost_oracle": 0.2}
    found = plan(data, estimator="stacked_dr", replicates=20, **money)
    assert found.estimator == "stacked_dr" and found.route("clone") == "stacked_dr"
    assert np.isfinite(found.check["simulated_std_error"].sel(policy="clone"))
    told = to_json(found)
    json.dumps(told, allow_nan=False)
    assert told["manifest"]["estimator"] == "stacked_dr" and "teacher forcing" in told["next"][0]
    per_prompt = 0.02 * (found.components.attrs["responses_per_prompt"] + 1)  # and the logged response
    assert found.cost_per_prompt == pytest.approx(per_prompt)
    with pytest.raises(
        DataError, match="estimator='stacked_dr': it weights logged responses; give logged=FILE"
    ):
        plan(
            data.drop_vars(["logp_target", "logp_logger", "logged_judge"], errors="ignore"),
            estimator="stacked_dr",
            **money,
        )
    with pytest.raises(DataError, match="estimator='snips': use one of direct, stacked_dr"):
        plan(data, estimator="snips", **money)


@pytest.mark.slow
def test_forecasts_are_the_spread_of_fresh_studies():
    """Pilots of 500 prompts with 150 labels forecast 1,000 with 300; fresh studies are that size. A component left out
    (the labels') must show.
    """
    names, pilots, studies = ["base", "clone"], 60, 240
    forecast, values, without = [], [], []
    for r in range(pilots):
        pilot = arena_like.simulate(n=500, oracle_fraction=0.3, rng=r).sel(policy=names)
        found = variance_components(pilot, estimator="stacked_dr")
        forecast.append(std_error_at(1000, 300, found).std_error.sel(policy=names).values)
        without.append(np.sqrt(found.sigma2_eval.sel(policy=names).values / 1000))
    for r in range(studies):
        study = arena_like.simulate(n=1000, oracle_fraction=0.3, rng=10_000 + r).sel(policy=names)
        values.append(numbers_of(study, {"stack": (stacked_dr, {})}, names, fresh=True)["stack"][0])
    spread = np.std(values, axis=0, ddof=1)
    ratio = np.mean(forecast, axis=0) / spread
    mcse = ratio * np.hypot(
        np.std(forecast, axis=0) / np.mean(forecast, axis=0) / np.sqrt(pilots), 1 / np.sqrt(2 * studies)
    )
    assert (np.abs(ratio - 1) < 5 * mcse).all(), (ratio, mcse)
    assert (np.mean(without, axis=0) / spread < 1 - 5 * mcse).any()


@pytest.mark.slow
def test_a_trial_spreads_as_the_components_say(data):
    found = simulate_plan(data, 400, 160, replicates=120, rng=2, estimator="stacked_dr", reference="clone")
    known = np.isfinite(found.planned_std_error.values)
    ratio = found.simulated_std_error.values[known] / found.planned_std_error.values[known]
    mcse = found.simulated_mcse.values[known] / found.planned_std_error.values[known]
    assert (np.abs(ratio - 1) < 5 * mcse).all(), ratio
