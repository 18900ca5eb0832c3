"""What learning f from a finite slice adds to a borrowed mean, against difference quotients in each label."""

import numpy as np
import oracles_uncertainty as slow
import pytest
from oracles_uncertainty import row_dicts, table

from cje_core.calibration.calibrator import knot_mass, label_leverage
from cje_core.calibration.oracle_slice import calibration_part, fit_slice
from cje_core.data.arrays import unpack
from cje_core.inference.sums import cluster_sums
from cje_core.io import from_frame


def world(seed, *, binary=False):
    """Labels of one policy with unequal probabilities, several draws and clusters of two prompts; tied scores."""
    frame = table(n=40, seed=seed, share=0.7, draws=2)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    frame["cluster"] = frame.prompt_id.str[1:].astype(int) // 2
    if binary:
        frame["oracle_label"] = frame.oracle_label.where(
            frame.oracle_label.isna(), frame.oracle_label > 0.5
        ).astype(float)
    return from_frame(frame, oracle_range=(0, 1))


def borrowed_mean(data):
    """Rows, slice, and Z and shares of the responses of the policy without labels."""
    rows = unpack(data)
    mine = np.flatnonzero(rows.policy == 1)
    return rows, fit_slice(rows), rows.z[mine], rows.weight[mine] / rows.weight[mine].sum()


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_leverage_is_the_slope_in_the_label(seed, binary):
    data = world(seed, binary=binary)
    _, fitted, z, share = borrowed_mean(data)
    dicts, _ = row_dicts(data)
    mass = knot_mass(fitted.calibrator, z, share)
    np.testing.assert_allclose(mass, slow.hat_mass(dicts, "b"), atol=1e-12)
    found = label_leverage(fitted.calibrator, mass, fitted.z, fitted.weight)
    slopes = slow.block_slopes(dicts, "b") if binary else slow.label_slopes(dicts, "b")
    # a quotient of numbers of rounding 1e-16 by a step of 1e-6
    np.testing.assert_allclose(found, slopes, atol=1e-9)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_error_of_a_borrowed_mean_is_its_definition(seed, binary):
    data = world(seed, binary=binary)
    rows, fitted, z, share = borrowed_mean(data)
    dicts, _ = row_dicts(data)
    part = calibration_part(rows, fitted, z, share)
    error, df = slow.calibration_error(dicts, "b")
    expected = np.array([error.get(g, 0.0) for g in range(rows.cluster.max() + 1)])
    np.testing.assert_allclose(cluster_sums(part.influence, rows.cluster) / 40, expected, atol=1e-9)
    np.testing.assert_allclose(part.df, df, rtol=1e-6)
