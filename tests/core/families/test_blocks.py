"""Estimators on blocks against the same estimators on one labelled data set after the other: equal up to rounding.

Worlds that meet every route and status: own and borrowed labels, few and all of them, unequal probabilities, binary
labels, ties, a judge that knows nothing.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from cje_core.families.blocks import bootstrap
from cje_core.families.blocks.direct import corrected, slices

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
    "bootstrap": ("direct", {"inference": Bootstrap(n=40), "power_tuned": False, "borrowed": "plug_in"}),
    "tmle": ("direct", {"correction": "tmle", "power_tuned": False, "borrowed": "plug_in"}),
    "tuned_tmle": ("direct", {"correction": "tmle", "interval": "normal"}),
    "jackknife": ("direct", {"inference": "jackknife", "power_tuned": False, "interval": "normal"}),
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
FAST = (0, 1, 4)  # of these shapes, in the fast suite
WORLDS = (
    "well_specified",
    "discrete_judge",
    "weak_judge",
    "binary_oracle",
    "equal_policies",
    "transport_shift",
)
REPLICATES = 3
# df is found from a t quantile that is good to 1e-14, where its slope is small; near one df, which two folds leave, the
# interval moves as much
ROUNDING = {"df": 1e-9, "interval by folds": 1e-9}


@cache
def drawn(world, number):
    """Data sets of a world in one of `SHAPES`: one block, and one by one, calibrated; and the streams of each."""
    simulate, shape = scenarios.load(world).simulate, SHAPES[number]
    streams = [Streams(5, world, shape, r) for r in range(REPLICATES)]
    block = simulate.block([s("data") for s in streams], **shape)
    return block, [calibrated(simulate(**shape, rng=s("data"))) for s in streams], streams


def both(world, shape, method):
    """What the block gives and what labelled data give, by name: pairs of arrays; and the statuses seen."""
    estimator, options = METHODS[method]
    estimator = load(estimator)
    block, data_sets, streams = drawn(world, SHAPES.index(shape))
    got = estimator.estimate_block(block, ci_prob=0.9, rngs=[s("method") for s in streams], **options)
    first, second = np.array([0, 2]), np.array([1, 0])
    pairs = got.pairs(first, second, 0.9)
    found = []
    for r, (s, given) in enumerate(zip(streams, data_sets, strict=True)):
        data = given if estimator is direct else given.data  # the others calibrate nothing
        want = estimator.estimate(data, ci_prob=0.9, rng=s("method"), **options)
        apart = pair_errors(want, first, second, 0.9, tested=False)
        # prompts of an estimate are sorted
        place = np.searchsorted(want.prompt.values, given.data.prompt.values)
        influence = want.influence.values[:, place]
        found.append(
            {
                "status": (got.status[r], want.status.values),
                "estimate": (got.estimate[r], want.estimate.values),
                "std_error": (got.std_error[r], want.std_error.values),
                "df": (got.df[r], want.df.values),
                "interval": (got.interval[r], want.interval.values),
                "influence": (got.influence[r], influence),
                "effective": (got.basis.effective[r], want.effective_count.values),
                "unseen_by": (got.basis.unseen_by[r], want.unseen_by.values),
                "difference": (pairs.difference[r], apart.difference),
                "error of the difference": (pairs.std_error[r], apart.std_error),
                "interval of the difference": (pairs.interval[r], apart.interval),
            }
        )
    return found


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=() if k in FAST else pytest.mark.slow) for k, shape in enumerate(SHAPES)],
    ids=lambda s: "-".join(map(str, s.values())),
)
@pytest.mark.parametrize("method", METHODS)
def test_a_block_gives_the_numbers_of_labelled_data(method, shape):
    for world in WORLDS:
        for found in both(world, shape, method):
            for name, (got, want) in found.items():
                if name == "df":  # without a standard error it is nothing
                    known = np.isfinite(found["std_error"][1])
                    got, want = got[known], want[known]
                kind = "interval by folds" if name == "interval" and "jackknife" in method else name
                np.testing.assert_allclose(
                    got, want, rtol=ROUNDING.get(kind, 1e-12), atol=1e-12, err_msg=f"{world}: {name}"
                )


@pytest.mark.slow
def test_the_worlds_meet_every_status_and_route():
    blocks = [drawn(world, number)[0] for world in WORLDS for number in range(len(SHAPES))]
    seen = {
        code for block in blocks for code in direct.estimate_block(block, ci_prob=0.9).status.ravel().tolist()
    }
    assert {
        Status.OK,
        Status.TRANSPORT_ASSUMED,
        Status.CONSTANT_LABELS,
        Status.TOO_FEW_LABELS,
        Status.NO_LABELS,
        Status.UNINFORMATIVE_JUDGE,
        Status.LOW_SUPPORT,
    } <= seen


def test_planted_error_residuals_that_are_not_held_out():
    """The comparison sees calibrators that were fitted on the very labels that they are compared with."""
    simulate, shape = scenarios.load("well_specified").simulate, SHAPES[0]
    block = simulate.block([np.random.default_rng(r) for r in range(2)], **shape)
    want = direct.estimate_block(block, ci_prob=0.9)
    found = slices(block)  # kept for the next estimator
    corrected.cache_clear()  # what follows from it
    found.own_f[:] = np.where(np.isfinite(block.label), found.f, np.nan)
    got = direct.estimate_block(block, ci_prob=0.9)
    slices.cache_clear()
    corrected.cache_clear()
    assert np.abs(got.estimate / want.estimate - 1).min() > 1e-6


def test_choices_without_a_compiled_form_say_so():
    block = scenarios.load("well_specified").simulate.block([np.random.default_rng(0)], n=40)
    for options in (
        {"inference": "jackknife"},  # tuned
        {"inference": "jackknife", "correction": "tmle"},
        {"inference": "plugin_iid"},
        {"inference": Bootstrap("bca")},
        {"inference": Bootstrap(n=20)},  # tuned
        {"inference": Bootstrap(n=20), "power_tuned": False, "correction": "tmle"},
        {"correction": "horvitz_thompson"},
    ):
        assert direct.estimate_block(block, ci_prob=0.9, rngs=[np.random.default_rng(0)], **options) is None


def test_several_labels_of_a_prompt_are_not_lent_by_the_kernels():
    """Two policies teach, and a third borrows: clusters of two labelled rows, left to labelled data."""
    block = scenarios.load("well_specified").simulate.block([np.random.default_rng(0)], n=40)
    label = block.label.copy()
    label[:, 3] = np.nan
    assert (np.isfinite(label).sum(axis=1) > 1).any()
    assert direct.estimate_block(replace(block, label=label), ci_prob=0.9) is None
    assert direct.estimate_block(replace(block, label=label), ci_prob=0.9, borrowed="plug_in") is not None


def test_idle_policies_say_nothing():
    simulate = scenarios.load("well_specified").simulate
    block = simulate.block([np.random.default_rng(0)], n=80, label_design="base")
    fewer = block.without_idle(["worse"])
    assert fewer.policies == ("base", "worse")
    for estimator in (raw_judge, labels_only, direct):
        whole, part = (estimator.estimate_block(b, ci_prob=0.9) for b in (block, fewer))
        np.testing.assert_array_equal(whole.interval[:, [0, 3]], part.interval)


def test_kernels_are_compiled_for_one_layout_of_arrays(monkeypatch):
    """Each other layout of an argument is compiled again, for seconds: a view of every second number is one."""
    block = scenarios.load("well_specified").simulate.block([np.random.default_rng(0)], n=80)
    fewer = block.without_idle(["worse"])
    assert all(getattr(fewer, name).flags.c_contiguous for name in ("score", "label", "label_prob"))
    seen, drawn = [], bootstrap.bootstrap_direct

    def draw(rows, *args):
        seen.append(rows)
        return drawn(rows, *args)

    monkeypatch.setattr(bootstrap, "bootstrap_direct", draw)
    options = {"inference": Bootstrap(n=20), "power_tuned": False, "borrowed": "plug_in"}
    assert direct.estimate_block(fewer, ci_prob=0.9, rngs=[np.random.default_rng(0)], **options) is not None
    arrays = [part for rows in seen for part in (*rows, *rows.spline) if isinstance(part, np.ndarray)]
    assert len(arrays) > 20 and all(part.flags.c_contiguous for part in arrays)
