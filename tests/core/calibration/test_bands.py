"""The refits behind a calibrator's band: the calibrator of rows that are repeated as often as they were drawn."""

import numpy as np
import pytest

from cje_core.calibration.bands import refitter
from cje_core.calibration.calibrator import fit, predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack


@pytest.mark.parametrize("direction", ["increasing", "decreasing"])
@pytest.mark.parametrize("mode", ["monotone", "two_stage"])
def test_a_refit_is_the_fit_of_repeated_rows(mode, direction):
    rng = np.random.default_rng(4)
    judge, label, length = rng.random((3, 1, 60))
    judge = np.round(judge, 1)  # ties
    data = from_arrays(judge, policies=["a"], oracle=label, covariate=length[..., None])
    fitted = fit_slice(unpack(data, ["x0"]), calibrator=mode, direction=direction)
    again = refitter(fitted)
    for _ in range(3):
        times = rng.integers(3, size=60)
        rows = rng.permutation(np.repeat(np.arange(60), times))
        wanted = fit(
            fitted.z[rows], fitted.label[rows], fitted.weight[rows],
            mode=mode, increasing=fitted.increasing, basis=fitted.basis,
        )  # fmt: skip
        got = again(times)
        np.testing.assert_allclose(predict(got, fitted.z), predict(wanted, fitted.z), rtol=1e-9)
        np.testing.assert_array_equal(got.block, wanted.block)
