"""What xarray does to data and estimates: files, concatenation, and words for what each variable is."""

import numpy as np
import pytest
import xarray as xr

from cje_core import compare, estimators
from cje_core.data import DataError
from cje_core.data.contract import teaching_policies
from cje_core.data.meanings import DATA, ESTIMATE, described
from cje_core.estimators import bayes_direct, direct
from cje_core.transport.audit import audit
from cje_core.workflow.warm_up import made_up


@pytest.fixture(scope="module")
def data():
    return made_up(True).isel(prompt=slice(0, 360))


@pytest.mark.parametrize("engine", ["netcdf4", pytest.param("h5netcdf", marks=pytest.mark.slow)])
def test_data_and_estimates_survive_a_file(data, engine, tmp_path):
    pytest.importorskip({"netcdf4": "netCDF4"}.get(engine, engine))
    data.to_netcdf(tmp_path / "data.nc", engine=engine)
    with xr.open_dataset(tmp_path / "data.nc", engine=engine) as opened:
        back = opened.load()
    assert teaching_policies(back) == teaching_policies(data) == ["base"]
    for module in (direct, bayes_direct):
        one, two = (module.estimate(which, rng=1) for which in (data, back))
        np.testing.assert_array_equal(one["interval"], two["interval"])
        path = tmp_path / f"{module.__name__}.nc"
        one.to_netcdf(path, engine=engine)
        with xr.open_dataset(path, engine=engine) as opened:
            xr.testing.assert_identical(opened.load(), one)


def test_estimates_laid_side_by_side_keep_their_names(data):
    both = [direct.estimate(data), bayes_direct.estimate(data, rng=1)]
    joined = xr.concat(both, "method")
    assert joined["method"].values.tolist() == ["direct", "bayes_direct"]
    for one in both:
        kept = joined.sel({"method": one.attrs["estimator"]})
        np.testing.assert_array_equal(kept["interval"], one["interval"])
    assert compare(both)["method"].values.tolist() == ["direct", "bayes_direct"]


def test_every_variable_says_what_it_is(data):
    """Of data and of every estimator: in words of the table, not of the fallback."""
    told = {name: one.attrs for name, one in data.variables.items()}
    for name in estimators.available():
        if name == "oracle_bound":  # needs the truth
            continue
        found = estimators.load(name).estimate(data, rng=1)
        missing = set(map(str, found.variables)) - set(ESTIMATE)
        assert not missing, (name, missing)
        told |= {f"{name}.{one}": held.attrs for one, held in found.variables.items()}
    assert set(map(str, data.variables)) <= set(DATA)
    assert all({"long_name", "units"} <= set(said) for said in told.values()), told
    planted = described(xr.Dataset({"x_of_mine": 0.0}), ESTIMATE)
    assert planted["x_of_mine"].attrs["long_name"] == "x of mine"


def test_a_result_given_for_data_is_named(data):
    values = direct.estimate(data)
    with pytest.raises(DataError, match="this is a result of direct, not data"):
        audit(values)
    with pytest.raises(DataError, match="this is an audit, not data"):
        direct.estimate(audit(data))
    with pytest.raises(DataError, match="this is str, not evaluation data"):
        direct.estimate("responses/")
