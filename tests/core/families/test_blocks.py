"""Estimators on blocks against the same estimators on one labelled data set after the other: equal up to rounding.

The two have the estimators' code in common, and not the layout of rows, the orders of policies and prompts, intervals
of many data sets at once, and differences. Worlds meet every route and status: own and borrowed labels, few and all of
them, unequal probabilities, binary labels, ties, a weak judge.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from blocks import on_block

from cje_core.calibration.calibrated import calibrated
from cje_core.estimators import direct, labels_only, load, raw_judge
from cje_core.estimators.direct import Bootstrap
from cje_core.inference.estimate import Status
from cje_core.inference.pairs import pair_errors
from cje_core.streams import Streams
from cje_sim import scenarios

METHODS = {
    "raw_judge": ("raw_judge", {}),
    "labels_only": ("labels_only", {}),
    "labels_only_logit": ("labels_only", {"interval": "logit"}),
    "ppi": ("ppi", {}),
    "ppi_plus_plus": ("ppi_plus_plus", {}),
    "half_powered": ("ppi_plus_plus", {"lam": 0.5}),
    "direct": ("direct", {}),
    "balanced": ("direct", {"borrowed": "balanced"}),
    "plug_in": ("direct", {"borrowed": "plug_in"}),
    "one_step": ("direct", {"borrowed": "one_step"}),
    "untuned": ("direct", {"power_tuned": False, "borrowed": "plug_in", "interval": "wald"}),
    "cluster": ("direct", {"correction": "none", "inference": "cluster"}),
    "uncorrected": ("direct", {"correction": "none"}),
    "plugin_iid": ("direct", {"inference": "plugin_iid"}),
    "horvitz_thompson": ("direct", {"correction": "horvitz_thompson"}),
    "bootstrap": ("direct", {"inference": Bootstrap(n=40), "power_tuned": False}),
    "tuned_bootstrap": ("direct", {"inference": Bootstrap(n=40)}),
    "bca": ("direct", {"inference": Bootstrap("bca", n=40)}),
    "bayesian": ("direct", {"inference": Bootstrap("bayesian", n=40), "correction": "tmle"}),
    "tmle": ("direct", {"correction": "tmle", "power_tuned": False, "borrowed": "plug_in"}),
    "tuned_tmle": ("direct", {"correction": "tmle", "interval": "normal"}),
    "jackknife": ("direct", {"inference": "jackknife", "power_tuned": False, "interval": "normal"}),
    "tuned_jackknife": ("direct", {"inference": "jackknife"}),
    "plug_in_jackknife": ("direct", {"inference": "jackknife", "correction": "none"}),
}
SHAPES = (
    {"n": 150, "oracle_fraction": 0.1, "label_design": "own"},
    {"n": 200, "oracle_fraction": 0.25, "label_design": "base"},
    {"n": 120, "oracle_fraction": 0.3, "label_design": "own", "label_scheme": "stratified"},
    {"n": 90, "oracle_fraction": 0.2, "label_design": "base", "label_scheme": "score"},
    {"n": 60, "oracle_fraction": 0.08, "label_design": "own"},  # 5 labels
    {"n": 40, "oracle_fraction": 0.05, "label_design": "base"},  # 2 labels
    {"n": 30, "oracle_fraction": 1.0, "label_design": "base"},
    {"n": 30, "oracle_fraction": 0.0, "label_design": "own"},
)
FAST = (0, 1)  # of these shapes, in the fast suite
WORLDS = ("well_specified", "discrete_judge", "weak_judge", "binary_oracle")
REPLICATES = 2


@cache
def drawn(world, number):
    """Data sets of a world in one of `SHAPES`: one block, and one by one, calibrated; and the streams of each."""
    simulate, shape = scenarios.load(world).simulate, SHAPES[number]
    streams = [Streams(5, world, shape, r) for r in range(REPLICATES)]
    block = simulate.block([s("data") for s in streams], **shape)
    return block, [calibrated(simulate(**shape, rng=s("data"))) for s in streams], streams


def compare(world, number, method, plant=lambda block: block):
    """Stop where what the block gives is not what labelled data give."""
    estimator, options = METHODS[method]
    estimator = load(estimator)
    block, given, streams = drawn(world, number)
    got = on_block(estimator, plant(block), ci_prob=0.9, rngs=[s("method") for s in streams], **options)
    first, second = np.array([0, 2]), np.array([1, 0])
    pairs, made = got.pairs(first, second, 0.9), got.finished
    for r, (s, one) in enumerate(zip(streams, given, strict=True)):
        data = one if estimator is direct else one.data  # the others calibrate nothing
        want = estimator.estimate(data, ci_prob=0.9, rng=s("method"), **options)
        apart = pair_errors(want, first, second, 0.9, tested=False)
        for name, found, wanted in (
            ("status", got.status[r], want.status),
            ("estimate", got.estimate[r], want.estimate),
            ("std_error", got.std_error[r], want.std_error),
            ("df", got.df[r], want.df),
            ("interval", got.interval[r], want.interval),
            ("kind of interval", made.kind[r, got.place], want.interval_kind),
            ("influence", made.influence[r, got.place], want.influence),
            ("effective", made.basis.effective[r, got.place], want.effective_count),
            ("unseen_by", made.basis.unseen_by[r, got.place], want.unseen_by),
            ("difference", pairs.difference[r], apart.difference),
            ("error of the difference", pairs.std_error[r], apart.std_error),
            ("interval of the difference", pairs.interval[r], apart.interval),
        ):
            where, wanted = f"{world}: {name}", np.asarray(wanted)
            if name == "kind of interval":
                np.testing.assert_array_equal(found, wanted, err_msg=where)
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12, err_msg=where)


@pytest.mark.parametrize(
    "number",
    [pytest.param(k, marks=() if k in FAST else pytest.mark.slow) for k in range(len(SHAPES))],
    ids=["-".join(map(str, shape.values())) for shape in SHAPES],
)
@pytest.mark.parametrize("method", METHODS)
def test_a_block_gives_the_numbers_of_labelled_data(method, number):
    for world in WORLDS:
        compare(world, number, method)


@pytest.mark.parametrize("axis", [1, 2], ids=["policies", "prompts"])
def test_planted_error_rows_in_another_order(axis):
    """The comparison sees policies or prompts under one another's names."""

    def moved(block):
        parts = ("score", "label", "label_prob")
        return replace(block, **{name: np.roll(getattr(block, name), 1, axis) for name in parts})

    for number in FAST:
        with pytest.raises(AssertionError):
            compare("well_specified", number, "direct", moved)


@pytest.mark.slow
def test_the_worlds_meet_every_status_and_route():
    blocks = [drawn(world, number)[0] for world in WORLDS for number in range(len(SHAPES))]
    seen = {code for block in blocks for code in on_block(direct, block).status.ravel().tolist()}
    assert {
        Status.OK,
        Status.TRANSPORT_ASSUMED,
        Status.CONSTANT_LABELS,
        Status.TOO_FEW_LABELS,
        Status.NO_LABELS,
        Status.UNINFORMATIVE_JUDGE,
        Status.LOW_SUPPORT,
    } <= seen


def test_idle_policies_say_nothing():
    simulate = scenarios.load("well_specified").simulate
    block = simulate.block([np.random.default_rng(0)], n=80, label_design="base")
    fewer = block.without_idle(["worse"])
    assert fewer.policies == ("base", "worse")
    for estimator in (raw_judge, labels_only, direct):
        whole, part = (on_block(estimator, b) for b in (block, fewer))
        np.testing.assert_array_equal(whole.interval[:, [0, 3]], part.interval)
