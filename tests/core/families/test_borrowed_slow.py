"""What is printed of borrowed policies by repeated sampling: levels, differences, and how often they are refused.

Labels of the base policy only, transport true: 1,000 data sets a cell, cut from a few large draws of each scenario, so
that the array-level functions cost milliseconds. With 1,000 data sets the Monte Carlo standard error of a coverage of
95% is 0.7 points, that of a mean over the policies or pairs of a cell no larger.
"""

from functools import lru_cache

import numpy as np
import pytest

from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data.arrays import Rows, unpack
from cje_core.families.direct.fit import Options, fit_policy, make_lender
from cje_core.inference.estimate import Status, cluster_se, wald
from cje_sim.scenarios import binary_oracle, discrete_judge, useless_judge, weak_judge, well_specified

N_REPLICATES, PER_DRAW = 1000, 25
EQUAL = {"base": (3.0, 2.0, 0.55), "left": (2.5, 2.2, 0.55), "right": (3.5, 1.8, 0.55)}
# an independent judge transports between policies of equal values, and only between those
WORLDS = {
    "well_specified": (well_specified, {}),
    "weak_judge": (weak_judge, {}),
    "binary_oracle": (binary_oracle, {}),
    "discrete_judge": (discrete_judge, {}),
    "useless_judge": (useless_judge, {"policies": EQUAL}),
}
CELLS = [(world, m) for world in WORLDS for m in (50, 250)]
BALANCED = Options(borrowed="balanced")
ERROR, STD_ERROR, DF, PRINTED = range(4)


def data_sets(world, n, m):
    """Rows of n prompts each, m of them labelled under the base policy."""
    scenario, options = WORLDS[world]
    for seed in range(N_REPLICATES // PER_DRAW):
        size = n * PER_DRAW
        data = scenario.simulate(n=size, oracle_fraction=1.0, label_design="base", rng=seed, **options)
        every = unpack(data)
        policies = len(every.policies)
        base = every.policies.index("base")
        names, zero = every.prompts[:n], np.zeros(policies * n, bool)
        for k in range(PER_DRAW):
            block = (np.arange(policies)[:, None] * size + k * n + np.arange(n)).ravel()
            policy = every.policy[block]
            taught = (policy == base) & (np.tile(np.arange(n), policies) < m)  # prompts come in no order
            yield Rows(
                every.policies, names, np.arange(n), names, policy, np.tile(np.arange(n), policies),
                every.score[block], every.z[block], np.where(taught, every.label[block], np.nan), taught, zero,
                ~zero, np.ones(len(block)), np.ones(len(block)), taught,
            )  # fmt: skip


@lru_cache
def simulate(world, m, form="balanced"):
    """Levels (replicate, policy, 4) and differences (replicate, pair, 4): error, standard error, df, printed or not.

    Where the judge is not found informative the numbers are computed all the same, and are not printed; where a policy
    has no support they are NaN.
    """
    scenario, fields = WORLDS[world]
    truth = scenario.truth(**fields)
    options = Options(borrowed=form)
    levels, differences = [], []
    for rows in data_sets(world, 4000 if m > 1000 else 1000, m):
        fitted = fit_slice(rows)
        printed, found = True, {}
        lender = make_lender(rows, fitted, options)
        if lender is not None:
            printed = lender.judge.informative
            lender = lender._replace(judge=lender.judge._replace(informative=True))
        for p, name in enumerate(rows.policies):
            if name != "base":
                found[name] = fit_policy(rows, fitted, p, options, lender).result
        gone = np.full(len(rows.prompts), np.nan)
        phi = {name: gone if one.influence is None else one.influence for name, one in found.items()}
        off = {name: one.value - float(truth.sel(policy=name)) for name, one in found.items()}
        names = list(found)
        levels.append([(off[a], found[a].std_error, found[a].df, printed) for a in names])
        differences.append(
            [
                (
                    off[a] - off[b],
                    float(cluster_se(phi[a] - phi[b], rows.cluster)),
                    min(found[a].df, found[b].df),
                    printed,
                )
                for k, a in enumerate(names)
                for b in names[:k]
            ]
        )
    return np.array(levels), np.array(differences)


def covered(cell, shrink=1.0):
    """Whether each interval holds the truth, and whether there is one."""
    there = np.isfinite(cell[..., ERROR])
    half = wald(0.0, cell[..., STD_ERROR], np.where(there, cell[..., DF], 1.0), 0.95)[..., 1]
    return np.abs(cell[..., ERROR]) <= shrink * half, there


def coverage(cell, shrink=1.0):
    """Per policy or pair, where a tenth of the data sets have support; and over all of them."""
    hit, there = covered(cell, shrink)
    each = [hit[there[:, k], k].mean() for k in range(hit.shape[1]) if there[:, k].mean() > 0.1]
    return np.array(each), float(hit[there].mean())


@pytest.mark.slow
@pytest.mark.parametrize(("world", "m"), CELLS)
@pytest.mark.parametrize("what", ["levels", "differences"])
def test_balanced_values_and_differences_keep_their_level(world, m, what):
    """Each at least 91%, together 93% or more; not so with standard errors planted 30% too small."""
    cell = simulate(world, m)[what == "differences"]
    each, together = coverage(cell)
    assert each.min() >= 0.91
    assert 0.93 <= together <= 0.99
    assert coverage(cell, shrink=0.7)[1] < 0.93


@pytest.mark.slow
def test_over_all_worlds_coverage_is_near_its_level():
    for what in (0, 1):
        every = [coverage(simulate(*cell)[what])[1] for cell in CELLS]
        assert 0.945 <= np.mean(every) <= 0.975


@pytest.mark.slow
@pytest.mark.parametrize(("world", "m"), CELLS)
def test_hardly_any_printed_interval_is_wrong(world, m):
    """Printed and wrong in at most 6% of the data sets, refusals counting as what they are."""
    for cell in simulate(world, m):
        hit, there = covered(cell)
        wrong = there & ~hit & (cell[..., PRINTED] > 0)
        assert (wrong.mean(axis=0) <= 0.06 + 3 * 0.0075).all()
        assert wrong.mean() <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("m", [50, 250, 2000])
def test_equal_policies_and_an_independent_judge(m):
    """The judge passes in 5% of the data sets; a difference is false in 5% of all, printed or not; of plug-ins more."""
    cell = simulate("useless_judge", m)[1]
    bound = 5 * np.sqrt(0.05 * 0.95 / N_REPLICATES)
    assert abs(cell[:, 0, PRINTED].mean() - 0.05) < bound
    hit, there = covered(cell)
    assert 1 - hit[there].mean() <= 0.06
    if m == 250:
        plug_in, _ = covered(simulate("useless_judge", m, "plug_in")[1])
        assert 1 - plug_in.mean() > 0.2


@pytest.mark.slow
def test_the_price_in_refusals():
    """A strong judge is hardly ever refused; policies within the reach of 250 labels neither."""
    for world in ("well_specified", "binary_oracle", "discrete_judge"):
        for m, least in ((50, 0.95), (250, 0.99)):
            levels, _ = simulate(world, m)
            assert levels[:, 0, PRINTED].mean() >= least
            near = np.isfinite(levels[..., ERROR]).mean(axis=0)
            assert np.sort(near)[-2:].min() >= 0.93
    assert 0.1 < simulate("weak_judge", 50)[0][:, 0, PRINTED].mean() < 0.3
    assert simulate("weak_judge", 250)[0][:, 0, PRINTED].mean() > 0.3


@pytest.mark.slow
def test_planted_error_a_plug_in_in_place_of_the_balanced_value():
    """The check has the power to see what it is for."""
    assert coverage(simulate("weak_judge", 250, "plug_in")[1])[1] < 0.87


def test_the_statuses_of_the_worlds():
    """One data set each way: an independent judge is named, and a far policy is."""
    rows = next(data_sets("useless_judge", 400, 50))
    fitted = fit_slice(rows)
    statuses = [fit_policy(rows, fitted, p, BALANCED).result.status for p in range(3)]
    assert statuses[1:] == [Status.UNINFORMATIVE_JUDGE] * 2
