"""The reporting ledger: every item of the paper's list, and netCDF gives it back."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cje_core.calibration.calibrated import calibrated
from cje_core.calibration.calibrator import fit
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.estimators import calibrated_dr_cpo, calibrated_ips, direct, snips, stacked_dr
from cje_core.families.off_policy.stages import make_logs
from cje_core.inference.contrasts import contrasts
from cje_core.offpolicy.overlap import overlap
from cje_core.offpolicy.weights import log_ratios, mean_one, stabilise
from cje_core.transport import sensitivity
from cje_core.transport.agreement import agreement
from cje_core.transport.audit import audit
from cje_core.verdict import gates, refusal
from cje_core.verdict.assumptions import Contract, assumptions
from cje_core.verdict.reporting import ENTRIES, digest, jackknife_trace, ledger
from cje_core.workflow.serial import serial_errors
from cje_core.workflow.steps.stabilise import stabilisation, with_both_weights
from cje_sim.scenarios import arena_like, clustered, well_specified

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
    "assumptions",
    "filters",
    "multiplicity",
    "cohorts",
}


@pytest.fixture(scope="module")
def world():
    return arena_like.simulate(n=300, oracle_fraction=0.3, n_probes=40, rng=0)


def by_topic(names):
    """As `cje_core.workflow.cohorts.together` gives it."""
    number = (
        "estimate", "share", "p_bh", "ess_fraction", "max_share", "hill", "ttc", "difference",
        "label_residual", "label_p_bh", "label_slope",
        "difference_std_error", "n_prompts", "n_labels", "n_probes", "n_logged", "probe_residual", "probe_p_bh",
    )  # fmt: skip
    cell = (("policy", "cohort"), np.full((len(names), 2), 0.5))
    return xr.Dataset(
        {
            **dict.fromkeys(number, cell),
            "level": (cell[0], np.full(cell[1].shape, "assumed")),
            **dict.fromkeys(
                ("interval", "label_interval"), ((*cell[0], "ci_bound"), np.full((len(names), 2, 2), 0.5))
            ),
        },
        coords={"policy": names, "cohort": ["topic=a", "topic=b"], "ci_bound": ["lower", "upper"]},
    )


def everything(data, estimate, **more):
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
        assumptions=assumptions(
            calibrated(data),
            {"it": estimate},
            {"it": Contract(weights_logs=False, calibrates=True)},
            transport=transport,
            gates=found,
        ),
        sensitivity=sensitivity.levels(estimate, 0.05),
        contrasts=contrasts(estimate, adjust="by"),
        tipping=sensitivity.tipping_points(estimate),
        serial=serial_errors(estimate, np.arange(data.sizes["prompt"])),
        cohorts=by_topic(names),
        left_out=left_out,
        q=0.1,
        **pieces,
        **more,
    )


def how(data, delta):
    """How stabilised weights came about, for one Delta."""
    return stabilisation(with_both_weights(make_logs(calibrated(data)))).sel(delta=delta)


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_item_of_the_papers_list_is_missing(world):
    assert {entry.item for entry in ENTRIES} == ITEMS
    grouped = world.assign(cluster=("prompt", [str(k // 2) for k in range(world.sizes["prompt"])]))
    found = (
        (world, direct.estimate(world, inference="jackknife"), {}),
        (world, calibrated_dr_cpo.estimate(world), {"stabilisation": how(world, "residual")}),
        (grouped, stacked_dr.estimate(grouped), {}),
    )
    absent = [
        set(json.loads(everything(data, estimate, **more).attrs["missing"])) for data, estimate, more in found
    ]
    assert not set.intersection(
        *absent
    )  # between a Direct, a doubly robust and a stacked estimate, all of it is there
    assert (
        "jackknife" not in absent[0] and "beta" not in absent[1] and "orthogonality_interval" not in absent[1]
    )


def test_missing_pieces_are_named_and_nan(world):
    out = ledger(world)
    missing = set(json.loads(out.attrs["missing"]))
    computed = {entry.name for entry in ENTRIES if entry.piece in ("data", "calibrator")}
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


# --- what the paper asks to persist, against second computations ---


def test_calibrator_is_kept_as_it_is_and_as_refits_without_each_fold_see_its_labels(world):
    out, fitted = ledger(world), calibrated(world).slice
    z, label, fold = fitted.z[:, 0], fitted.label, fitted.fold[fitted.prompt]

    def at(knot, value, where):
        return np.interp(where, knot, value)

    np.testing.assert_allclose(
        at(out.calibrator_knot, out.calibrator_level, z), out.reward_pooled, rtol=0, atol=1e-12
    )
    np.testing.assert_array_equal(out.reward_label, label)
    for k in range(5):
        f = fit(z[fold != k], label[fold != k])
        held = out.reward_oof.values[fold == k]
        np.testing.assert_allclose(held, at(f.knot, f.value, z[fold == k]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(out.reward_pooled.mean(), label.mean())  # isotonic regression keeps the mean
    assert (np.diff(out.calibrator_level) >= 0).all()


@pytest.mark.parametrize(("module", "delta"), [(calibrated_ips, "reward"), (calibrated_dr_cpo, "residual")])
def test_weights_can_be_made_again_from_what_is_kept(world, module, delta):
    """Maps, stack, guard and mean-one: the stabilised weights from the ledger alone, and those of `stabilise`."""
    out = ledger(world, estimate=module.estimate(world, borrowed="plug_in"), stabilisation=how(world, delta))
    given = calibrated(world)
    rows, logged, fold = given.rows, given.logged, given.slice.fold
    logs = with_both_weights(make_logs(given))
    moved = logs.reward - (logs.outcomes[()].logged if delta == "residual" else 0)
    turned = set()
    for policy, ratio in zip(rows.policies, log_ratios(logged), strict=True):
        used = np.isfinite(ratio)
        weight, score = mean_one(ratio), logged.z[:, 0]
        at = out.sel(policy=policy)
        candidates = [np.ones(used.sum())]
        for name in ("up", "down"):
            column = np.empty(len(score))
            for k in range(5):
                ends = at.sel(map=name, fold=k)
                known = np.isfinite(ends.map_score.values)
                knot, value = ends.map_score.values[known], ends.map_weight.values[known]
                column[fold == k] = np.interp(score[fold == k], knot, value)
                assert (np.diff(value) >= 0).all() if name == "up" else (np.diff(value) <= 0).all()
                others = used & (fold != k)
                np.testing.assert_allclose(np.interp(score[others], knot, value).mean(), 1)
            candidates.append(column[used])
        stack = at.beta.values @ np.array(candidates)
        stack /= stack.mean()
        blend = 1 + float(at.alpha) * (stack - 1)
        stable = stabilise(weight, score, moved, fold)
        np.testing.assert_allclose(blend, stable.weight[used], rtol=0, atol=1e-12)
        np.testing.assert_allclose(at.mean_weight, blend.mean())
        np.testing.assert_allclose(at.mean_weight, 1)
        assert bool(at.guard_engaged) == stable.engaged
        for k in range(5):
            spread = stack[fold[used] == k].var()
            np.testing.assert_allclose(
                at.alpha_by_fold.sel(fold=k), min(1, np.sqrt(1 / spread)) if spread else 1
            )
        up, down = at.beta.values[1:]
        assert str(at.orientation.item()) == ("none" if up == down == 0 else "up" if up >= down else "down")
        turned.add(str(at.orientation.item()))
    assert len(turned) > 1 or "none" not in turned  # the world has a policy whose weights follow the score


def test_trace_is_that_of_the_jackknife(world):
    jackknifed = snips.estimate(world, inference="jackknife")
    trace = jackknife_trace(jackknifed)
    out = ledger(world, estimate=snips.estimate(world), variance=trace)
    np.testing.assert_array_equal(out.jackknife, jackknifed.jackknife)
    values = out.jackknife.values
    spread = ((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) * 4 / 5
    np.testing.assert_allclose(out.variance_calibration, spread)
    np.testing.assert_allclose(out.variance_main + spread, out.variance_total)
    np.testing.assert_allclose(np.sqrt(out.variance_total), jackknifed.std_error)
    xr.testing.assert_identical(
        ledger(world, estimate=jackknifed).jackknife, out.jackknife
    )  # its own, unless given


def test_standard_error_by_clusters_is_the_sandwich():
    data = clustered.simulate(n=60, oracle_fraction=0.5, rng=0)
    estimate = direct.estimate(data)
    out = ledger(data, estimate=estimate)
    for policy in data.policy.values:
        phi = estimate.influence.sel(policy=policy)
        sums = phi.groupby("cluster").sum().values
        np.testing.assert_allclose(
            out.std_error_cluster.sel(policy=policy), np.sqrt((sums**2).sum()) / phi.size
        )
    assert "std_error_cluster" in json.loads(ledger(well_specified.simulate(n=40, rng=0)).attrs["missing"])


def test_labels_of_logs_are_the_calibrator_where_they_teach(world):
    bare = world.assign(labelled=world.labelled & False, oracle=world.oracle.where(world.probe))
    out, fitted = ledger(bare), calibrated(bare).slice_with_logs
    assert (out.n_teaching_labels == len(fitted.label)).all() and len(fitted.label)
    np.testing.assert_array_equal(out.calibrator_level, fitted.calibrator.value)
