"""Doubly robust estimators: right weights or a right outcome model suffice; the decomposition that tells which."""

from dataclasses import replace

import numpy as np
import oracles_ope as slow
import pytest
from ope_world import logs_of, names, of_target, small, world_of

from cje_core.estimators import calibrated_ips, dr_cpo, snips, tmle
from cje_core.families.off_policy import estimate as off_policy_estimate
from cje_core.inference.estimate import Status
from cje_sim.scenarios import finite_model


@pytest.fixture(scope="module")
def large():
    """A world where everything is known: n = 20,000 prompts, every second logged response labelled."""
    data = finite_model.simulate(n=20_000, oracle_fraction=0.5, label_design="base", rng=1)
    return data, logs_of(data), finite_model.truth()


def wrong_outcome(logs, value=0.2):
    """An outcome model that says `value` whatever the score."""
    right = logs.outcomes[()]
    return right._replace(logged=np.full_like(right.logged, value), fresh=np.full_like(right.fresh, value))


def with_outcome(logs, outcome):
    """The same logs with another outcome model than the one that they would make."""
    return replace(logs, outcomes={(): outcome})


@pytest.mark.parametrize("module", [dr_cpo, tmle])
@pytest.mark.parametrize("policy", ["tilted", "far"])
def test_right_weights_repair_a_wrong_outcome_model(large, module, policy):
    _, logs, truth = large
    p, target = logs.rows.policies.index(policy), float(truth.sel(policy=policy))
    wrong = with_outcome(logs, wrong_outcome(logs))
    value = module.policy_value(wrong, p)
    # the error is at most that of SNIPS, which the same weights give: 5 of its standard errors, 2 for TMLE's isotonic h
    error = off_policy_estimate.error_parts(logs, p, snips.policy_value(logs, p), "plug_in")
    bound = 5 * np.sqrt(sum(off_policy_estimate.variance(logs, part.influence) for part in error.parts))
    assert abs(value.value - target) < bound
    assert abs(wrong.outcomes[()].fresh[0] - target) > bound  # the plug-in alone is that far off


@pytest.mark.parametrize("policy", ["tilted", "far"])
def test_right_outcome_model_repairs_wrong_weights(large, policy):
    _, logs, truth = large
    p, target = logs.rows.policies.index(policy), float(truth.sel(policy=policy))
    same = logs.of(p)
    maps = replace(same.maps, weight=np.ones_like(same.weight))
    ones = replace(logs, policies=(*logs.policies[:p], replace(same, maps=maps), *logs.policies[p + 1 :]))
    bound = 5 * np.sqrt(
        sum(
            off_policy_estimate.variance(logs, part.influence)
            for part in off_policy_estimate.error_parts(
                logs, p, dr_cpo.policy_value(logs, p), "plug_in"
            ).parts
        )
    )
    assert abs(dr_cpo.policy_value(ones, p).value - target) < bound
    assert abs(snips.policy_value(ones, p).value - target) > bound


@names
def test_consistent_in_an_enumerable_world(large, module):
    data, _, truth = large
    if module is calibrated_ips:
        refused = module.estimate(data)["status"] == Status.SHRUNK_WEIGHTS
        assert refused.sel(policy=["base", "clone", "tilted", "far"]).values.tolist() == [
            False,
            False,
            True,
            True,
        ]
    result = module.estimate(data, borrowed="plug_in")
    error = np.abs(result["estimate"] - truth.sel(policy=result.policy)) / result["std_error"]
    if module is calibrated_ips:  # stabilisation shrinks towards the logger: it is not consistent
        assert (error.sel(policy=["base", "clone"]) < 5).all()
        assert (error.sel(policy=["tilted", "far"]) > 5).all()
    else:
        assert (error < 5).all()


def test_pitfall_04_the_fluctuation_moves_fresh_draws(large):
    _, logs, _ = large
    wrong = with_outcome(logs, wrong_outcome(logs))
    value = tmle.policy_value(wrong, logs.rows.policies.index("tilted"))
    assert value.facts["epsilon"] > 0.1
    assert value.direct > 0.3  # 0.2 had the logged rows alone moved


# --- diagnostics ---


def test_decomposition_adds_up_and_matches_the_definition():
    data = small(23)
    world = world_of(data)
    weight = slow.weights(world)
    q, fresh = slow.outcomes(world)
    result = dr_cpo.estimate(data)
    direct_part = np.mean([np.mean(values) for values in fresh])
    ips_part = slow.weighted_mean(weight, [r - m for r, m in zip(slow.rewards(world), q, strict=True)])
    labelled = [w if p["label"] is not None else None for w, p in zip(weight, world, strict=True)]
    score = slow.weighted_mean(labelled, [(p["label"] or 0.0) - m for p, m in zip(world, q, strict=True)])
    for name, expected in (("direct_part", direct_part), ("ips_part", ips_part), ("orthogonality", score)):
        assert of_target(result, name) == pytest.approx(expected, abs=1e-12)
        low, high = result[f"{name}_interval"].sel(policy="target").values
        assert low < expected < high
        assert of_target(result, f"{name}_std_error") > 0
    correction = of_target(result, "label_correction")
    assert of_target(result) == pytest.approx(direct_part + ips_part + correction) and correction != 0
    assert -1 <= of_target(result, "part_correlation") <= 1


def test_orthogonality_sees_a_wrong_outcome_model_and_not_a_right_one(large):
    _, logs, _ = large
    p = logs.rows.policies.index("tilted")
    for q, covers in ((logs.outcomes[()], True), (wrong_outcome(logs), False)):
        value = dr_cpo.policy_value(with_outcome(logs, q), p)
        error = off_policy_estimate.error_parts(logs, p, value, "plug_in")
        facts = off_policy_estimate.decomposition(logs, value, error, 0.9999)
        low, high = facts["orthogonality_interval"].values
        assert bool(low < 0 < high) is covers


def test_the_papers_score_is_identically_zero():
    """R^OOF and q are the same held-out calibrator, so the paper's influence of DR is that of its direct part."""
    value = dr_cpo.policy_value(logs_of(small(24)), 1)
    assert not value.held_out_influence().any() and value.sources()[0].influence.any()
