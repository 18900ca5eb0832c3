"""The stack of doubly robust estimators: its weights, what they are learned on, and what it cannot see."""

import numpy as np
import oracles_ope as slow
import pytest
from ope_world import logs_of, of_target, small

from cje_core.calibration.folds import assign_folds
from cje_core.estimators import dr_cpo, load, stacked_dr
from cje_core.families.off_policy import labels as off_policy_labels
from cje_core.inference.sums import cluster_sums
from cje_sim.scenarios import finite_model


def test_stack_is_the_convex_combination_of_least_variance():
    data = small(8, n=60)
    members = ("dr_cpo", "mrdr", "capped_ips")
    result = stacked_dr.estimate(data, members=members)
    logs = logs_of(data)
    values = [load(name).policy_value(logs, 1) for name in members]
    of_labels = [off_policy_labels.label_error(logs, 1, v.terms()) for v in values]
    columns = [
        (direct.influence + ips.influence + labels.part.influence).tolist()
        for (direct, ips), labels in zip((v.sources() for v in values), of_labels, strict=True)
    ]
    alpha = result["stack_weight"].sel(policy="target").values
    assert alpha.sum() == pytest.approx(1.0)
    assert of_target(result) == pytest.approx(
        alpha @ [v.value + labels.correction for v, labels in zip(values, of_labels, strict=True)]
    )
    centred = np.array(columns) - np.mean(columns, axis=1, keepdims=True)
    sigma = centred @ centred.T / centred.shape[1]
    sigma += stacked_dr.RIDGE * np.trace(sigma) / 3 * np.eye(3)
    least, at = slow.best_stack(columns, stacked_dr.RIDGE)
    assert alpha @ sigma @ alpha <= least + 1e-15
    np.testing.assert_allclose(alpha, at, atol=0.1)  # the grid has steps of 1/60; the optimum is flat


def test_stack_learns_on_clusters_and_the_outer_split_on_the_other_half():
    data = small(25, n=80, cluster=np.repeat(np.arange(40), 2))
    logs = logs_of(data)
    members = ("dr_cpo", "mrdr", "capped_ips")
    library = [load(name).policy_value(logs, 1) for name in members]
    sources = [v.sources() for v in library]
    paths = [
        direct.influence + v.held_out_influence() for v, (direct, _) in zip(library, sources, strict=True)
    ]
    columns = cluster_sums(np.stack(paths), logs.rows.cluster)
    options = {"members": members, "columns": "sampling"}
    whole = stacked_dr.policy_value(logs, 1, **options)
    expected = stacked_dr.stack_weights(columns)
    np.testing.assert_allclose(whole.facts["stack_weight"].values, expected)
    values = np.array([v.value for v in library])
    assert whole.value == pytest.approx(expected @ values)
    for name in ("influence", "leverage"):
        mixed = sum(a * getattr(ips, name) for a, (_, ips) in zip(expected, sources, strict=True))
        np.testing.assert_allclose(getattr(whole.sources()[1], name), mixed, atol=1e-12)

    split = stacked_dr.policy_value(logs, 1, **options, outer_split=True)
    half = assign_folds(logs.rows.cluster_names, np.ones(40, dtype=bool), n_folds=2)
    estimate, learned = 0.0, []
    for h in (0, 1):
        alpha = stacked_dr.stack_weights(columns[:, half != h])  # learned on the other half
        inside = half[logs.rows.cluster] == h
        shift = [(direct.influence + ips.influence)[inside].mean() for direct, ips in sources]
        estimate += inside.mean() * alpha @ (values + shift)
        learned.append(inside.mean() * alpha)
    assert split.value == pytest.approx(estimate)
    np.testing.assert_allclose(split.facts["stack_weight"].values, sum(learned))


def test_support_and_rank():
    data = small(26, n=80)
    result = stacked_dr.estimate(data, members=("dr_cpo", "tmle", "mrdr", "capped_ips"))
    support, rank = of_target(result, "stack_support"), of_target(result, "stack_rank")
    assert support == (result["stack_weight"].sel(policy="target") > 0).sum()
    assert 1 <= support <= rank + 1
    assert rank <= 4


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_rank_is_that_of_the_columns(rank):
    rng = np.random.default_rng(rank)
    columns = rng.normal(size=(3, rank)) @ rng.normal(size=(rank, 500))
    assert stacked_dr.column_rank(columns) == np.linalg.matrix_rank(columns) == rank
    nearly = columns + 1e-12 * rng.normal(size=(3, 500))  # rounding is no member
    assert stacked_dr.column_rank(nearly) == rank


def test_variance_alone_lets_a_biased_member_win():
    """Why capped_ips is not in the default library: a wrong weight that hardly varies has little variance."""
    data = finite_model.simulate(n=2000, oracle_fraction=0.5, label_design="base", rng=3)
    data["logp_target"].loc[{"policy": "far"}] = data["logp_logger"]  # weights one: the logger's value
    far = float(finite_model.truth().sel(policy="far"))
    biased = stacked_dr.estimate(data, members=("dr_cpo", "capped_ips")).sel(policy="far")
    default = stacked_dr.estimate(data).sel(policy="far")
    assert biased["stack_weight"].sel(member="capped_ips") > 0.3
    assert abs(biased["estimate"] - far) > 5 * biased["std_error"] > 0
    assert abs(default["estimate"] - far) < 5 * default["std_error"]


def test_pitfall_06_identical_influence_gets_equal_weight():
    phi = np.random.default_rng(0).normal(size=200)
    np.testing.assert_allclose(stacked_dr.stack_weights(np.stack([phi, phi, phi]), 1e-4), 1 / 3)
    logs = logs_of(small(29))
    dr = dr_cpo.policy_value(logs, 1)
    mixed = stacked_dr.mix([dr, dr], [dr.sources()] * 2, np.array([0.5, 0.5]))
    assert mixed.value == pytest.approx(dr.value)
    np.testing.assert_allclose(mixed.sources()[1].influence, dr.sources()[1].influence, atol=1e-15)
