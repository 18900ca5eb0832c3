"""Statistical failures of every estimator are statuses and not exceptions: a table of data sets that lack something."""

from functools import cache

import numpy as np
import pytest
import xarray as xr
from conformance_world import BINARY, NAMES, run, sound, world

from cje_core import estimators
from cje_core.calibration.folds import assign_folds
from cje_core.data import check_data
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status


def keep_labels(data, mask):
    """The same data with only the labels where the mask holds, logged labels included."""
    kept = data.labelled & mask
    seen = kept | (data.probe & mask)
    logged = data.logged_oracle.where(mask.sel(policy="base", draw=0, drop=True))
    return data.assign(
        labelled=kept, probe=data.probe & mask, oracle=data.oracle.where(seen), logged_oracle=logged
    )


def where_prompts(data, n):
    first = xr.DataArray(np.arange(data.sizes["prompt"]) < n, dims="prompt")
    return first & data.labelled.notnull()


def in_one_fold(data):
    """Labels of the other policies only on prompts of one fold of the base's."""
    _, cluster = np.unique(data.cluster.values, return_inverse=True)
    fold = assign_folds(np.unique(data.cluster.values), np.ones(cluster.max() + 1, dtype=bool))[cluster]
    mask = xr.DataArray(fold == 0, dims="prompt") | (data.policy == "base")
    return keep_labels(data, mask & data.labelled.notnull())


def constant(data, names_, value):
    return data.assign({v: data[v].where(data[v].isnull(), value) for v in names_})


def by_rounding(data, names_, value):
    """Labels of one value, every other of which was computed in another way: the number next to it."""

    def blurred(held):
        odd = np.arange(held.size).reshape(held.shape) % 2 == 1
        return held.where(held.isnull(), np.where(odd, np.nextafter(value, 0), value))

    return data.assign({name: blurred(data[name]) for name in names_})


FAILURES = {
    "no labels": lambda d: keep_labels(d, d.labelled & False),
    "one label": lambda d: keep_labels(d, where_prompts(d, 1)),
    "four labelled prompts": lambda d: keep_labels(d, where_prompts(d, 8)),
    "borrowed": lambda d: keep_labels(d, (d.policy == "base") & d.labelled.notnull()),
    "no probes": lambda d: d.assign(probe=d.probe & False, oracle=d.oracle.where(d.labelled)),
    "labels in one fold": in_one_fold,
    "constant labels": lambda d: constant(d, ["oracle", "logged_oracle"], 5.0),
    "constant labels but for rounding": lambda d: by_rounding(d, ["oracle", "logged_oracle"], 5.0),
    "constant judge": lambda d: constant(d, ["judge", "logged_judge"], 4.0),
    "inverted judge": lambda d: d.assign(judge=8 - d.judge, logged_judge=8 - d.logged_judge),
    "zero variance": lambda d: constant(
        constant(constant(d, ["judge", "logged_judge"], 4.0), ["oracle", "logged_oracle"], 5.0),
        ["logp_target", "logp_logger"],
        -1.0,
    ),
    "one cluster": lambda d: d.assign(cluster=d.cluster.copy(data=["only"] * d.sizes["prompt"])),
    "no log-probabilities": lambda d: d.assign(logp_target=d.logp_target * np.nan),
    "one usable log-probability": lambda d: d.assign(
        logp_target=d.logp_target.where(xr.DataArray(np.arange(d.sizes["prompt"]) == 3, dims="prompt"))
    ),
    "one huge weight": lambda d: d.assign(
        logp_logger=d.logp_logger.where(
            xr.DataArray(np.arange(d.sizes["prompt"]) != 3, dims="prompt"), -800.0
        )
    ),
    "no responses": lambda d: d.assign(
        evaluated=d.evaluated & (d.policy != "far"), labelled=d.labelled & (d.policy != "far")
    ),
    "every row labelled": lambda d: world(binary=set(np.unique(d.oracle)[:2]) == {1.0, 5.0}, share=1.0),
    "one policy": lambda d: d.isel(policy=[0]),
    "one prompt": lambda d: d.isel(prompt=[0]),
    "few prompts": lambda d: d.isel(prompt=slice(0, 12)),
    "one draw": lambda d: d.isel(draw=[0]),
    "unequal propensities": lambda d: world(binary=set(np.unique(d.oracle)[:2]) == {1.0, 5.0}, unequal=True),
}


@cache
def lacking(case, binary):
    """The data set of a case, for all estimators of these labels: none changes what it is given (the conformance)."""
    return check_data(FAILURES[case](world(binary=binary)))


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("name", NAMES)
def test_a_statistical_failure_is_a_status(name, case):
    out = run(name, lacking(case, name in BINARY))
    sound(out)
    contrasts(out)
    needs_labels = name not in ("raw_judge", "oracle_bound")
    if case == "no labels" and needs_labels:
        assert (out.status >= Status.TOO_FEW_LABELS).all()
    if case == "no responses" and "logp_target" not in estimators.load(name).NEEDS:
        assert out.status.sel(policy="far") == Status.NO_RESPONSES or name == "labels_only"
    if case == "no log-probabilities" and "logp_target" in estimators.load(name).NEEDS:
        assert (out.status >= Status.TOO_FEW_LABELS).all()
    if case.startswith("constant labels"):
        assert out.std_error.isnull().all() or not needs_labels


@pytest.mark.parametrize("name", NAMES)
def test_pitfall_28_one_cluster_shows_no_spread(name):
    out = run(name, lacking("one cluster", name in BINARY))
    assert out.std_error.isnull().all()
    assert out.interval.isnull().all() or (out.status == Status.ILL_CONDITIONED).all()
    assert contrasts(out).std_error.isnull().all()
