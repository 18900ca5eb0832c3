"""The usual study: replicates at once, one by one, and when something raises."""

from dataclasses import replace

import numpy as np
import pytest

from cje_core.estimators import direct
from cje_sim import scenarios
from studies.engine.blocks import Block
from studies.engine.outcome import CRASHED
from studies.engine.running.possible import TRIES, refuse_impossible
from studies.engine.running.workers import compute_block
from studies.engine.study import Method, Profile, Scenario, StudyError, load, own_setting

CELL = {"world": "weak", "n": 200, "oracle_fraction": 0.2, "label_design": "base"}


def study():
    """The study of coverage with a jackknife beside it."""
    coverage = load("interval_coverage")
    chosen = {name: coverage.methods[name] for name in ("raw_judge", "labels_only", "direct")}
    methods = {
        **chosen,
        "jackknife": Method("delete-one-fold jackknife", "direct", {"inference": "jackknife"}),
    }
    profiles = {name: replace(profile, options={}, without=()) for name, profile in coverage.profiles.items()}
    return replace(coverage, methods=methods, profiles=profiles)


def block(start, stop, seed=1, one=None):
    one = one or study()
    return compute_block(one, Block(one.name, seed, CELL, start, stop))


def test_replicates_do_not_depend_on_those_beside_them():
    whole, parts = block(0, 7), [block(0, 3), block(3, 4), block(4, 7)]
    for name, array in whole.arrays.items():
        if name != "seconds":
            np.testing.assert_array_equal(array, np.concatenate([part.arrays[name] for part in parts]))
    assert np.isfinite(whole.arrays["seconds"]).all()


def test_an_error_on_a_block_is_that_methods_in_every_replicate(monkeypatch):
    def broken(*_, **__):
        raise ArithmeticError("planted")

    sound = block(0, 3)
    monkeypatch.setattr(direct, "find", broken)
    monkeypatch.setattr(direct, "estimate", broken)
    found = block(0, 3)
    names = list(study().methods)
    for m, name in enumerate(names):
        if name in ("direct", "jackknife"):
            assert (found.arrays["status"][:, m] == CRASHED).all()
        else:
            np.testing.assert_array_equal(found.arrays["estimate"][:, m], sound.arrays["estimate"][:, m])
    assert sorted(f["stage"] for f in found.failures) == ["direct"] * 3 + ["jackknife"] * 3
    assert all("planted" in f["error"] for f in found.failures)


def test_an_error_of_the_simulator_spoils_its_replicate_only(monkeypatch):
    simulate = scenarios.load("weak_judge").simulate
    drawn = []

    def flaky(rngs, **arguments):
        drawn.append(len(rngs))
        if len(rngs) > 1 or len(drawn) == 3:
            raise ArithmeticError("planted")
        return whole(rngs, **arguments)

    sound, whole = block(0, 4), simulate.block
    monkeypatch.setattr(simulate, "block", flaky)
    found = block(0, 4)
    assert drawn == [4, 1, 1, 1, 1]
    crashed = (found.arrays["status"] == CRASHED).all(axis=(1, 2))
    assert crashed.tolist() == [False, True, False, False]
    assert [f["replicate"] for f in found.failures] == [1] and found.failures[0]["stage"] == "replicate"
    # a block of one and a block of four may add in another order: the last bit of some sums (seen once in many runs)
    np.testing.assert_allclose(
        found.arrays["estimate"][[0, 2]], sound.arrays["estimate"][[0, 2]], rtol=1e-12, atol=0
    )


def test_an_error_of_the_block_alone_is_not_hidden_by_going_on_one_by_one(monkeypatch):
    simulate = scenarios.load("weak_judge").simulate
    whole = simulate.block

    def faulty(rngs, **arguments):
        if len(rngs) > 1:
            raise ArithmeticError("planted")
        return whole(rngs, **arguments)

    monkeypatch.setattr(simulate, "block", faulty)
    with pytest.raises(ArithmeticError, match="planted"):
        block(0, 2)


def user_study(simulate):
    """A study of a user's own world, which no frame checks."""
    own = Scenario(simulate, scenarios.load("weak_judge").truth)
    profiles = {name: Profile(2) for name in ("smoke", "quick", "paper")}
    own_grid = {"factors": {"n": (50,)}, "profiles": profiles, "legend": {}, "keep": None, "theory": None}
    return replace(study(), **own_grid, scenario=own, setting=own_setting)


def test_what_fails_by_chance_is_run_and_what_always_fails_is_not():
    def flaky(*, n, rng):
        if rng.random() > np.random.default_rng(TRIES - 1).random():  # at the last seed it does not
            raise ValueError("planted")
        return scenarios.load("weak_judge").simulate(n=n, rng=rng)

    assert any(
        np.random.default_rng(k).random() > np.random.default_rng(TRIES - 1).random() for k in range(TRIES)
    )
    refuse_impossible(user_study(flaky))

    def broken(*, n, rng):
        raise ValueError("planted")

    with pytest.raises(StudyError, match="n=50 cannot be simulated: planted; give other levels"):
        refuse_impossible(user_study(broken))

    def own_arguments(study, cell, streams):
        raise AssertionError("nothing runs")

    factors = {"n": (50,), "labels_of_its_own": (-1,)}
    refuse_impossible(replace(user_study(broken), factors=factors, replicate=own_arguments))
