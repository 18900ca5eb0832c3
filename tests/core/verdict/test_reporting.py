"""The reporting ledger: every item of the paper's list, and netCDF gives it back."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.estimators import calibrated_dr_cpo, direct
from cje_core.inference.contrasts import contrasts
from cje_core.offpolicy.overlap import overlap
from cje_core.transport import sensitivity
from cje_core.transport.agreement import agreement
from cje_core.transport.audit import audit
from cje_core.verdict import gates, refusal
from cje_core.verdict.reporting import ENTRIES, digest, ledger
from cje_sim.scenarios import arena_like, well_specified

ITEMS = {
    "calibrator",
    "weights",
    "overlap",
    "coverage badge",
    "doubly robust",
    "estimator",
    "uncertainty",
    "transport",
    "gates",
    "filters",
    "multiplicity",
}


@pytest.fixture(scope="module")
def world():
    return arena_like.simulate(n=300, oracle_fraction=0.3, n_probes=40, rng=0)


def everything(data, estimate):
    names = [str(name) for name in data.policy.values]
    pieces = {"overlap": overlap(data), "coverage": coverage_badge(data), "reliability": reliability(data)}
    transport = audit(data)
    found = gates.evaluate(
        gates.collect(names, **pieces, transport=transport, estimate=estimate, adjusted=True)
    )
    left_out = pd.DataFrame(
        {"policy": ["", names[1], names[1]], "reason": ["logger missing", "target missing", "target missing"]}
    )
    return ledger(
        data,
        estimate=estimate,
        transport=transport,
        gates=found,
        agreement=agreement(data),
        levels=refusal.level(found, estimate),
        sensitivity=sensitivity.levels(estimate, 0.05),
        contrasts=contrasts(estimate, adjust="by"),
        tipping=sensitivity.tipping_points(estimate),
        left_out=left_out,
        q=0.1,
        **pieces,
    )


def test_pitfall_41_netcdf_gives_back_every_variable_and_attribute(world, tmp_path):
    for k, estimate in enumerate(
        (None, direct.estimate(world, inference="influence"), calibrated_dr_cpo.estimate(world))
    ):
        out = ledger(world) if estimate is None else everything(world, estimate)
        file = tmp_path / f"{k}.nc"
        out.to_netcdf(file)
        back = xr.load_dataset(file)
        xr.testing.assert_identical(back, out)
        assert all(back[name].attrs["about"] for name in back)


def test_no_item_of_the_papers_list_is_missing(world):
    assert {entry.item for entry in ENTRIES} == ITEMS
    direct_jackknife = direct.estimate(world, inference="jackknife")
    absent = [
        set(json.loads(everything(world, estimate).attrs["missing"]))
        for estimate in (direct_jackknife, calibrated_dr_cpo.estimate(world))
    ]
    assert not set.intersection(*absent)  # between a Direct and a doubly robust estimate, all of it is there
    assert (
        "jackknife" not in absent[0] and "beta" not in absent[1] and "orthogonality_interval" not in absent[1]
    )


def test_missing_pieces_are_named_and_nan(world):
    out = ledger(world)
    missing = set(json.loads(out.attrs["missing"]))
    computed = {entry.name for entry in ENTRIES if entry.piece == "data"}
    assert missing == {entry.name for entry in ENTRIES} - computed
    assert np.isnan(out.estimate).all() and (out.level == "").all()
    assert out.attrs["estimator"] == ""


def test_values_are_those_of_the_pieces(world):
    estimate = direct.estimate(world, inference="influence")
    out = everything(world, estimate)
    names = world.policy.values
    np.testing.assert_array_equal(out.estimate, estimate.estimate)
    np.testing.assert_array_equal(out.transport_residual, audit(world).residual)
    np.testing.assert_allclose(out.oof_rmse, reliability(world).attrs["oof_rmse"])
    assert out.oof_rmse_tertile.dims == ("policy", "tertile")
    assert set(out.calibrator_hash.values) == {reliability(world).attrs["fingerprint"]}
    assert out.n_teaching_labels.values[0] == world.labelled.sum()
    assert out.left_out.sel(filter="logger missing").values.tolist() == [1] * len(names)
    assert out.left_out.sel(filter="target missing").values.tolist() == [0, 2] + [0] * (len(names) - 2)
    family = json.loads(out.attrs["multiplicity"])
    assert family == {"family": len(names) * (len(names) - 1) // 2, "method": "by", "q": 0.1}
    pairs = contrasts(estimate, adjust="by")
    first, second, p = pairs["first"].values[0], pairs["second"].values[0], pairs.p_adjusted.values[0]
    np.testing.assert_allclose(out.p_adjusted.sel(policy=first, other=second), p)
    np.testing.assert_allclose(out.p_adjusted.sel(policy=second, other=first), p)


def test_pieces_in_another_order_of_policies_land_where_they_belong(world):
    order = world.policy.values[::-1]
    estimate = direct.estimate(world, inference="influence")
    turned = ledger(world, estimate=estimate.sel(policy=order), transport=audit(world).sel(policy=order))
    straight = ledger(world, estimate=estimate, transport=audit(world))
    xr.testing.assert_identical(turned, straight)


def test_hashes_tell_manifests_and_influence_apart(world):
    estimate = direct.estimate(world, inference="influence")
    out = ledger(world, estimate=estimate)
    assert len(set(out.influence_hash.values)) == world.sizes["policy"]
    assert len(set(out.manifest_hash.values)) == 1
    first = world.policy.values[0]
    dropped = world.evaluated & ~((world.prompt == world.prompt[0]) & (world.policy == first))
    other = ledger(world.assign(evaluated=dropped))
    assert (other.manifest_hash != out.manifest_hash).values.tolist() == [True] + [False] * (
        len(out.policy) - 1
    )
    assert int(other.included.sel(policy=first).sum()) == world.sizes["prompt"] - 1
    shuffled = world.isel(prompt=np.random.default_rng(0).permutation(world.sizes["prompt"]))
    assert (ledger(shuffled).manifest_hash == out.manifest_hash).all()


def test_digest_ignores_the_last_bits_and_keeps_boundaries():
    assert digest([1 / 3]) == digest([1 / 3 + 1e-15]) != digest([1 / 3 + 1e-6])
    assert digest([1.0, 2.0]) != digest([1.0], [2.0])


def test_without_a_calibrator_the_ledger_still_stands():
    data = well_specified.simulate(n=100, oracle_fraction=0.2, rng=0)
    bare = data.assign(labelled=data.labelled & False)
    out = ledger(bare)
    assert (out.calibrator_hash == "").all() and (out.n_teaching_labels == 0).all()
