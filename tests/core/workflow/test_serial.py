"""Errors in blocks of time: their formula by hand, order and clusters, and coverage where neighbours depend."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from analysis import world
from scipy import stats

from cje_core.data import DataError
from cje_core.inference.serial import stationary_bootstrap_se
from cje_core.workflow.analyze import analyze
from cje_core.workflow.serial import prompt_times, serial_errors, with_serial_errors


def estimate(influence, cluster=None):
    n = influence.shape[1]
    return xr.Dataset(
        {
            "estimate": ("policy", np.full(len(influence), 0.5)),
            "std_error": ("policy", influence.std(axis=1) / np.sqrt(n)),
            "df": ("policy", np.full(len(influence), n - 1.0)),
            "influence": (("policy", "prompt"), influence),
        },
        coords={
            "policy": list("ab"[: len(influence)]),
            "prompt": np.arange(n).astype(str),
            "cluster": ("prompt", np.arange(n) if cluster is None else cluster),
        },
        attrs={"ci_prob": 0.95},
    )


def test_order_and_block_are_those_given():
    rng = np.random.default_rng(0)
    influence, place = rng.normal(size=(2, 80)), rng.permutation(80)
    found = serial_errors(estimate(influence), place, mean_block=4)
    for p in range(2):
        expected = stationary_bootstrap_se(influence[p][np.argsort(place)], mean_block=4)
        np.testing.assert_allclose(found.std_error_serial[p], expected.std_error)
        half = stats.t.ppf(0.975, 79) * expected.std_error
        np.testing.assert_allclose(found.interval_serial[p], [0.5 - half, 0.5 + half])
    assert (found.mean_block == 4).all()
    swept = serial_errors(estimate(influence), place)
    np.testing.assert_allclose(
        swept.mean_block[0], stationary_bootstrap_se(influence[0][np.argsort(place)]).mean_block
    )


def test_blocks_of_one_cluster_are_the_cluster_error():
    """A mean block of one prompt is independence: the cluster-robust error without its small-sample factor."""
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(30), 3)
    influence = rng.normal(size=(1, 90)) + rng.normal(size=30)[cluster]
    influence -= influence.mean()
    found = serial_errors(estimate(influence, cluster), np.arange(90), mean_block=1)
    sums = influence[0].reshape(30, 3).sum(axis=1)
    np.testing.assert_allclose(found.std_error_serial[0], np.sqrt((sums**2).sum()) / 90)
    assert found.attrs["units"] == 30
    with pytest.raises(DataError, match="block=31: it must lie between 1 and the 30"):
        serial_errors(estimate(influence, cluster), np.arange(90), mean_block=31)


def test_times_come_from_a_field_or_from_the_rows():
    table = pd.DataFrame(
        {"policy": ["b", "a", "a", "b"], "prompt_id": ["x", "y", "x", "y"], "when": [3, 1, 4, 2]}
    )
    names = np.array(["x", "y"])
    assert prompt_times(table, names).tolist() == [0, 1]
    assert prompt_times(table, names, "when").tolist() == [
        1,
        0,
    ]  # the first response of x came at 3, of y at 1
    with pytest.raises(DataError, match="prompt 'z' has no when"):
        prompt_times(table, np.array(["x", "z"]), "when")
    with pytest.raises(DataError, match="row 2: when is missing"):
        prompt_times(table.assign(when=[1, None, 2, 3]), names, "when")


def test_an_analysis_gets_them_beside_its_own():
    table = world(80, labels=60)
    plain = analyze(table)
    found = with_serial_errors(plain, table, block=3)
    assert plain.serial is None and found.serial.attrs["order"] == "the rows"
    np.testing.assert_array_equal(found.serial.std_error, plain.value.std_error)
    assert (found.serial.mean_block == 3).all() and np.isfinite(found.serial.interval_serial).all()
    with pytest.raises(DataError, match="block='long': give a mean length"):
        with_serial_errors(plain, table, block="long")


@pytest.mark.slow
def test_intervals_in_blocks_cover_where_neighbours_depend():
    """AR(1) of .6: the default error is half as large as it should be, and its interval covers a third less."""
    rng, n, rho, reps = np.random.default_rng(2), 600, 0.6, 400
    covered = np.zeros(2)
    for _ in range(reps):
        noise = rng.normal(size=n)
        walk = np.empty(n)
        walk[0] = noise[0] / np.sqrt(1 - rho**2)
        for t in range(1, n):
            walk[t] = rho * walk[t - 1] + noise[t]
        one = estimate(walk[None] - walk.mean())
        one["estimate"] = ("policy", [walk.mean()])
        found = serial_errors(one, np.arange(n))
        half = stats.t.ppf(0.975, n - 1) * found.std_error.item()
        low, high = found.interval_serial.values[0]
        covered += abs(walk.mean()) <= half, low <= 0 <= high
    floor = stats.binom.ppf(stats.norm.sf(5), reps, 0.95 - 0.03)  # blocks are short of the truth by a little
    assert covered[0] < floor <= covered[1]
