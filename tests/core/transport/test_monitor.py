"""Audits of probes that come in time: units, levels shared between tests, verdicts label by label."""

import numpy as np
import pandas as pd
import pytest
from audit_world import world

from cje_core.data import DataError, from_arrays
from cje_core.transport.audit import residuals
from cje_core.transport.audit_size import sequential_audit
from cje_core.transport.drift import residual_drift
from cje_core.transport.monitor import anchor_audit, batch_audit, field_of_residuals, label_audit, units
from cje_core.transport.monitor_power import batch_audit_power, label_audit_power


def test_units_are_cluster_means_at_one_time():
    data = world(n=40, probes=12, cluster=np.arange(40) // 2)
    found = residuals(data)
    when = np.tile(np.repeat([0, 1], 6), 2)
    unit = units(found, when)
    assert len(unit.residual) == 12  # six clusters under each of two policies
    first = found.residual.values[(found.policy == "b").values & (found.cluster == "0").values]
    assert len(first) == 2
    np.testing.assert_allclose(unit.residual[0], first.mean())
    with pytest.raises(ValueError, match="one entry"):
        units(found, when[:-1])


def test_batches_are_charts_of_unit_residuals_under_one_level():
    shift = np.zeros((3, 400))
    shift[2, 60:120] = 0.15
    rng = np.random.default_rng(0)
    score = rng.integers(0, 101, (3, 400)) / 100
    label = 0.2 + 0.6 * score + shift + rng.normal(0, 0.1, score.shape)
    probe = np.zeros(score.shape, bool)
    probe[1:, :120] = True
    oracle = np.where(probe, label, np.nan)
    oracle[0] = label[0]
    prompts = [f"{i:03d}" for i in range(400)]
    data = from_arrays(
        score, policies="abc", prompts=prompts, oracle=oracle, probe=probe, oracle_range=(-2, 3)
    )
    batch = np.tile(np.arange(120) // 20, 2)
    found = batch_audit(data, batch, n_baseline=2, rng=1)
    assert found.drifted.values.tolist() == [0.0, 1.0] and found.n_units.values.tolist() == [120, 120]
    every = residuals(data).residual.values
    plain = residual_drift(every, batch, stream=np.repeat(["b", "c"], 120), n_baseline=2, rng=1)
    np.testing.assert_allclose(found.path, plain.path)
    np.testing.assert_allclose(found.p_joint, plain.p_joint)
    np.testing.assert_allclose(found.p_joint_bh, np.minimum(found.p_joint * [1, 2], found.p_joint.max()))
    with pytest.raises(DataError, match="6 batches, so 1 to 5"):
        batch_audit(data, batch, n_baseline=6)


def test_joint_p_value_is_the_share_of_orders_with_a_smaller_one():
    """Against every order of eight residuals: both charts, their smaller p-value, its own law."""
    from itertools import permutations

    from cje_core.transport import drift

    rng = np.random.default_rng(2)
    values, batch = rng.normal(size=8), np.array([0, 0, 0, 0, 1, 1, 2, 2])
    size = np.array([2.0, 2.0])
    orders = np.array(list(permutations(values)))
    base, later = orders[:, :4], orders[:, 4:].reshape(-1, 2, 2).mean(axis=2)
    z = (later - base.mean(axis=1)[:, None]) / base.std(axis=1, ddof=1)[:, None] * np.sqrt(size)
    highest = np.nanmax(drift._paths(z, 0.5, 0.2), axis=1)
    own = np.array(
        [[(highest[:, c] >= h - 1e-12).mean() for c, h in enumerate(row)] for row in highest[::97]]
    )
    smaller = own.min(axis=1)  # a thinned but exact sample of the orders
    exact = (smaller <= own[0].min()).mean()  # the first order is the data's
    found = residual_drift(values, batch, n_simulated=9999, rng=0)
    sampled = np.sqrt(0.25 / len(smaller) + 0.25 / 9999)
    assert abs(found.p_joint.item() - exact) < 5 * sampled
    np.testing.assert_allclose(found.p_value.values[0], own[0], atol=5 * np.sqrt(0.25 / 9999))


def test_anchor_alarms_share_one_level():
    rng = np.random.default_rng(4)
    then = rng.uniform(size=(2, 60))
    now = np.stack([then[0] + rng.normal(0, 0.01, 60), then[1] - 0.05])
    found = anchor_audit(then, now, false_alarm=0.05, rng=0)
    assert found.alarm.values.tolist() == [0.0, 1.0]
    assert found.attrs["ci_prob"] == 1 - 0.05 / 2 and found.attrs["fdr"] == 0.025
    with pytest.raises(DataError, match="min_tau"):
        anchor_audit(then, now, min_tau=2.0)


def test_labels_are_the_sequential_audit_in_their_order():
    data = world(n=400, probes=120, shift=(0.0, 0.0, 0.3))
    found = residuals(data)
    when = np.random.default_rng(1).permutation(found.sizes["row"])
    out = label_audit(data, when, margin=0.25)
    for policy in "bc":
        mine = (found.policy == policy).values
        values = found.residual.values[mine][np.argsort(when[mine])]
        expected = sequential_audit(values, margin=0.25, bounds=(-5, 5))
        at = out.sel(policy=policy)
        np.testing.assert_allclose(at.path, expected.interval)
        assert at.verdict == expected.final and at["stop"] == expected["stop"]
        np.testing.assert_allclose(at.residual, values.mean())
    with pytest.raises(DataError, match="alpha"):
        label_audit(data, when, alpha=1.5)


def test_field_of_residuals_names_what_is_wrong():
    data = world(n=20, probes=4, policies=("a", "b"), shift=(0.0, 0.0))
    found = residuals(data)
    rows = pd.DataFrame({"policy": "b", "prompt_id": ["0", "1", "2", "3"], "week": [1.0, 1.0, 2.0, 2.0]})
    rows = rows.assign(file="f", row=range(1, 5))
    assert field_of_residuals(found, rows, "week").tolist() == [1, 1, 2, 2]
    with pytest.raises(DataError, match="policy 'b', prompt_id '3' has no week; add it"):
        field_of_residuals(found, rows[:3], "week")
    twice = pd.concat([rows, rows.iloc[[0]].assign(week=9.0, row=9)])
    with pytest.raises(
        DataError, match="f, row 9: week is 9, but f, row 1 of the same policy and prompt has 1"
    ):
        field_of_residuals(found, twice, "week")


def test_power_rises_with_the_shift_and_labels_fall():
    found = batch_audit_power([0.0, 1.0], [20] * 5, n_early=40, replicates=40, rng=1)
    assert found.probability.values[0] < 0.3 and found.probability.values[1] == 1.0
    steps = label_audit_power([0.0, 0.3], residual_sd=0.2, margin=0.1, replicates=20, rng=1)
    assert (steps.decided == 1).all() and (steps.wrong == 0).all()
    assert steps["median"].values[1] < steps["median"].values[0]
    with pytest.raises(ValueError, match="residual_sd"):
        label_audit_power([0.9], residual_sd=0.9, margin=0.1)
