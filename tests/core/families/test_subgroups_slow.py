"""Subgroup calibration by simulation: what it costs where groups do not differ, what it covers where they do.

And how often the test of the labels of each group finds a difference that is not there, or one that is.
"""

import numpy as np
import pytest
from bare_arrays import direct_numbers, rows_of
from blocks import on_block
from group_world import arrays, draw, value
from scipy import stats

from cje_core.calibration.calibrated import Calibration
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.calibration.reliability import reliability_by_group
from cje_core.data.block import Block
from cje_core.data.cohorts import restrict
from cje_core.estimators import direct
from cje_core.families.direct.fit import Options

BY_TOPIC = Calibration(groups="topic")
POLICIES = ["base", "target"]
N, N_REPLICATES, PER_BLOCK = 600, 1200, 50
TAIL = stats.norm.sf(5)  # one-sided probability of five standard errors
PER_ROW = {"policy", "prompt", "score", "z", "label", "labelled", "probe", "weight", "label_prob", "teaches"}

pytestmark = pytest.mark.slow


def rows_and_groups(labels, shift, seeds):
    """Of each data set of `draw` its `Rows`, the codes of its groups, and intervals by the pooled calibrator."""
    drawn = [arrays(N, labels, shift, seed) for seed in seeds]
    score, oracle = (np.stack([one[k] for one in drawn]) for k in range(2))
    block = Block(tuple(POLICIES), score, oracle, np.ones(score.shape), (0.0, 1.0), (0.0, 1.0))
    pooled = on_block(direct, block, ci_prob=0.95, borrowed="balanced").interval
    for (*both, group), interval in zip(drawn, pooled, strict=True):
        rows = rows_of(*both, POLICIES, teach=["base"])
        yield rows, np.unique(group[rows.prompt_order], return_inverse=True)[1], interval


def inside(rows, group, g):
    """What `restrict` leaves: one group's prompts are evaluated, labels of others still teach."""
    mine = group[rows.prompt] == g
    of_prompt = ("prompts", "cluster", "cluster_names", "prompt_order")
    found = {name: held[mine | rows.labelled] for name, held in rows._asdict().items() if name in PER_ROW}
    stays, prompt = np.unique(found.pop("prompt"), return_inverse=True)
    names = rows.prompts[stays]
    found |= dict(zip(of_prompt, (names, np.arange(len(names)), names, None), strict=True))
    found["evaluated"] = mine[mine | rows.labelled]
    return rows._replace(prompt=prompt, **found), group[stays]


def intervals(rows, *groups):
    """Intervals of `direct.estimate` (policies, 2): by the pooled calibrator (None), or shifted in each group."""
    fitted = fit_slice(rows, every_fold=False)
    return [direct_numbers(rows, fitted, Options(borrowed="balanced", group=how)).interval for how in groups]


def test_the_intervals_are_those_of_the_estimator():
    shift = [0.1, -0.1, 0.0]
    for seed, (rows, group, pooled) in enumerate(rows_and_groups(60, shift, range(5))):
        data, (few, code) = draw(N, 60, shift, seed), inside(rows, group, 0)
        for given, found in (
            (data, (pooled, *intervals(rows, group))),
            (restrict(data, {"topic": "g0"}), intervals(few, None, code)),
        ):
            for how, interval in zip((None, BY_TOPIC), found, strict=True):
                wanted = direct.estimate(given, calibration=how, borrowed="balanced")["interval"].values
                np.testing.assert_allclose(interval, wanted, rtol=1e-9)


def holds(covered, level=0.95):
    """Whether a share of all replicates is no lower than the level allows, at five exact binomial standard errors."""
    covered = np.asarray(covered)
    return covered.sum(axis=0) >= stats.binom.ppf(TAIL, len(covered), level)


@pytest.mark.parametrize(("groups", "labels"), [(4, 100), (4, 30), (6, 25)])
def test_it_costs_no_more_than_two_percent_where_groups_do_not_differ(groups, labels):
    """Mean width over mean width; five Monte Carlo standard errors fit into what is left up to 2%."""
    pairs = [
        (pooled, *intervals(rows, group))
        for start in range(0, 600, PER_BLOCK)
        for rows, group, pooled in rows_and_groups(labels, [0.0] * groups, range(start, start + PER_BLOCK))
    ]
    pooled, grouped = (np.ptp(side, axis=-1) for side in np.moveaxis(np.array(pairs), 1, 0))
    known = np.isfinite(pooled).all(axis=0)
    assert known[0]
    ratio = (grouped.mean(axis=0) / pooled.mean(axis=0))[known]
    mcse = ((grouped / pooled).std(axis=0) / np.sqrt(len(pooled)))[known]
    assert (ratio + mcse < 1.02).all(), (ratio, mcse)
    assert (5 * mcse < 0.012).all(), "enough replicates to see more than that"


@pytest.fixture(scope="module")
def apart():
    """Whether intervals cover, and widths, in a world whose groups differ: overall and in the first group."""
    shift = [0.1, -0.1, 0.0, 0.0]
    whole, within, width = [], [], []
    overall = np.array([value(policy, shift) for policy in POLICIES])
    first = np.array([value(policy, shift[:1]) for policy in POLICIES])

    def covers(interval, truth):
        return (interval[:, 0] <= truth) & (truth <= interval[:, 1])

    for start in range(0, N_REPLICATES, PER_BLOCK):
        seeds = range(start, start + PER_BLOCK)
        for r, (rows, group, pooled) in zip(seeds, rows_and_groups(120, shift, seeds), strict=True):
            found = pooled, *intervals(rows, group)
            whole.append([covers(one, overall) for one in found])
            width.append([np.ptp(one, axis=1) for one in found])
            if r % 2 == 0:
                few, code = inside(rows, group, 0)
                within.append([covers(one, first) for one in intervals(few, None, code)])
    return np.array(whole), np.array(within), np.array(width)


def test_it_covers_and_is_narrower_where_groups_differ(apart):
    whole, _, width = apart
    assert holds(whole[:, 1]).all(), whole.mean(axis=0)
    said = np.isfinite(width).all(
        axis=(1, 2)
    )  # now and then the judge's test lets nothing be borrowed: a miss above
    assert said.mean() > 0.99
    pooled, grouped = width[said].mean(axis=0)
    assert (grouped < 0.85 * pooled).all()


def test_each_group_is_covered_and_by_the_pooled_calibrator_is_not(apart):
    """The policy with labels in the group is covered either way, the one that borrows only by the group's labels."""
    _, within, _ = apart
    assert holds(within[:, 1]).all(), within.mean(axis=0)
    assert holds(within[:, 0])[0]
    assert not holds(within[:, 0])[1]


def test_groups_that_do_not_differ_are_flagged_no_more_often_than_said():
    """Any flag is a false discovery here: at most 5%, five exact binomial errors above; most real ones are found."""
    n = 800
    false = sum(
        reliability_by_group(draw(400, 100, [0.0] * 4, r), "topic")["flagged"].any().item() for r in range(n)
    )
    assert false <= stats.binom.isf(TAIL, n, 0.05), false / n
    assert false > 0, "a test that never rejects"
    found = sum(
        reliability_by_group(draw(400, 100, [0.1, 0.0, 0.0, 0.0], r), "topic")["flagged"].values[0]
        for r in range(100)
    )
    assert found > 90
