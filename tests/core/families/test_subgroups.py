"""Subgroup calibration: the shifts against their definition, the routes that take them, and what refuses."""

import numpy as np
import oracles_uncertainty as slow
import pytest
from group_world import draw, value

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.data.arrays import unpack
from cje_core.data.cohorts import group_codes, restrict
from cje_core.estimators import direct
from cje_core.families.direct.subgroups import FEWEST, Residuals, pooled_shift, shifts
from cje_core.inference.estimate import Status

BY_TOPIC = Calibration(groups="topic")


@pytest.mark.parametrize("seed", range(6))
def test_shifts_match_the_definition(seed):
    rng = np.random.default_rng(seed)
    m = 60
    group = rng.integers(4, size=m) + (rng.random(m) < 0.2)  # the fifth is small
    value = rng.normal(size=m) + (0.0 if seed % 2 else 1.0) * group
    found = pooled_shift(Residuals(value, np.ones(m), np.arange(m), group), 6)
    np.testing.assert_allclose(found, slow.group_shifts(value, np.ones(m), range(m), group, 6), atol=1e-12)
    assert found[5] == 0.0, "a group without a label is the pooled one"
    # two labels of a cluster are its mean, and count once
    twice = Residuals(*(np.tile(part, 2) for part in (value, np.ones(m), np.arange(m), group)))
    np.testing.assert_allclose(pooled_shift(twice, 6), found, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_shift_of_a_label_does_not_know_its_fold(seed):
    """Unequal weights, clusters of two labels in one fold; against the definition on the labels of the other folds."""
    rng = np.random.default_rng(seed)
    rows = unpack(draw(120, 60, SHIFT, seed))
    prompt, m = np.sort(rng.permutation(120)[:80]), 80
    rows = rows._replace(cluster=np.arange(120) // 2)
    fold, group = (np.arange(120) // 2) % 5, (np.arange(120) // 2) % 3
    residual, weight = rng.normal(size=m) + group[prompt], rng.uniform(0.5, 2.0, m)
    by_prompt, held = shifts(rows, fold, group, prompt, residual, weight)
    parts = residual, weight, rows.cluster[prompt], group[prompt]
    np.testing.assert_allclose(by_prompt, np.array(slow.group_shifts(*parts, 3))[group], atol=1e-12)
    assert np.ptp(by_prompt) > 0.5
    for k in range(5):
        others = fold[prompt] != k
        expected = np.array(slow.group_shifts(*(part[others] for part in parts), 3))[group[prompt]]
        np.testing.assert_allclose(held[~others], expected[~others], atol=1e-12)
        # planted: its own labels left in
        assert np.abs(held[~others] - by_prompt[prompt][~others]).max() > 1e-3


def test_nothing_to_tell_apart_is_no_shift():
    rng = np.random.default_rng(1)
    value, at = rng.normal(size=40), np.arange(40)
    few = at < FEWEST - 1
    cases = [
        Residuals(value, np.ones(40), at, np.zeros(40, dtype=int)),  # one group
        Residuals(value - value.mean() + 9.0, np.ones(40), at, at % 2)._replace(
            value=np.ones(40)
        ),  # no spread
        Residuals(*(part[few] for part in (value + 9 * (at % 2), np.ones(40), at, at % 2))),  # few labels
        Residuals(np.repeat([1.0, -1.0, 1.0, -1.0], 10), np.ones(40), at, at // 20),  # equal means
    ]
    for case in cases:
        np.testing.assert_array_equal(pooled_shift(case, 2), 0.0)


SHIFT = (0.15, -0.15, 0.0)


def test_groups_that_differ_narrow_every_value_and_move_none_far():
    data = draw(600, 120, SHIFT, 3, target_labels=60)
    # a calibrator with groups borrows by the balanced form
    pooled, grouped = direct.estimate(data, borrowed="balanced"), direct.estimate(data, calibration=BY_TOPIC)
    assert (grouped["std_error"] < 0.8 * pooled["std_error"]).all()
    assert (np.abs(grouped["estimate"] - pooled["estimate"]) < 3 * pooled["std_error"]).all()
    np.testing.assert_array_equal(grouped["route"], pooled["route"])
    borrowed = data.copy(deep=True)
    borrowed["labelled"].loc[{"policy": "target"}] = False
    borrowed["oracle"].loc[{"policy": "target"}] = np.nan
    pooled, grouped = direct.estimate(borrowed), direct.estimate(borrowed, calibration=BY_TOPIC)
    assert grouped["route"].sel(policy="target") == "balanced"
    assert grouped["std_error"].sel(policy="target") < 0.8 * pooled["std_error"].sel(policy="target")


def test_groups_that_do_not_differ_change_nothing_much():
    data = draw(600, 120, (0.0, 0.0, 0.0), 4)
    # a calibrator with groups borrows by the balanced form
    pooled, grouped = direct.estimate(data, borrowed="balanced"), direct.estimate(data, calibration=BY_TOPIC)
    np.testing.assert_allclose(grouped["std_error"], pooled["std_error"], rtol=0.02)


def test_one_group_borrows_the_labels_of_this_group():
    """Under a calibrator of all labels the value of a group of a policy without labels is off by the group's shift."""
    data = draw(900, 300, SHIFT, 5)
    for k, shift in enumerate(SHIFT[:2]):
        inside = restrict(data, {"topic": f"g{k}"})
        pooled, grouped = (
            direct.estimate(inside, calibration=how).sel(policy="target") for how in (None, BY_TOPIC)
        )
        truth = value("target", [shift])
        assert abs(float(grouped["estimate"]) - truth) < 5 * float(grouped["std_error"])
        assert abs(float(pooled["estimate"]) - truth) > 5 * float(pooled["std_error"])
        assert Status(int(grouped["status"])) is Status.TRANSPORT_ASSUMED
        # only labels of the group lend
        lent = grouped["balance"].values != 0
        names = inside["topic"].sel(prompt=grouped["prompt"].values[lent]).values
        assert set(names.tolist()) == {f"g{k}"}


def test_a_group_without_labels_is_refused():
    data = draw(300, 100, (0.0, 0.0), 6)
    topic = data["topic"].copy(data=np.where(np.arange(300) < 3, "new", "old"))
    unlabelled = ~data["labelled"].any(["policy", "draw"]).values
    topic[:] = np.where(unlabelled & (np.arange(300) % 2 == 0), "new", "old")
    inside = restrict(data.assign(topic=topic), {"topic": "new"})
    grouped = direct.estimate(inside, calibration=BY_TOPIC)
    assert (grouped["status"] == Status.LOW_SUPPORT).all()
    assert np.isfinite(direct.estimate(inside)["estimate"]).all(), "the pooled calibrator says something"


def test_choices_that_do_not_go_together_are_refused():
    data = draw(100, 50, (0.0, 0.0), 7)
    for options in (
        {"inference": "bootstrap"},
        {"inference": "jackknife"},
        {"correction": "none"},
        {"borrowed": "plug_in"},
        {"borrowed": "one_step"},
    ):
        with pytest.raises(ValueError, match="groups='topic': a calibrator with groups goes with"):
            direct.estimate(data, calibration=BY_TOPIC, **options)
    assert calibrated(data, BY_TOPIC).group.tolist() == group_codes(data, "topic")[1].tolist()
    with pytest.raises(ValueError, match="no names of prompts 'side'"):
        direct.estimate(data, calibration=Calibration(groups="side"))


@pytest.mark.parametrize("options", [{}, {"power_tuned": False}, {"correction": "tmle"}])
def test_the_error_is_that_of_the_shifted_residuals(options):
    """Variance of own residuals within groups, not of all: the shifts are large and learned well."""
    data = draw(1500, 600, SHIFT, 8)
    out = direct.estimate(data, calibration=BY_TOPIC, **options).sel(policy="base")
    within = 0.1**2 / 3  # uniform noise
    sampling = (0.4**2 / 12 + np.var(SHIFT)) / 1500
    assert float(out["std_error"]) == pytest.approx(np.sqrt(within / 600 + sampling), rel=0.06)
