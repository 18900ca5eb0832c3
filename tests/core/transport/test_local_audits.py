"""Audits of bins and of subgroups against obvious implementations."""

import numpy as np
import oracles_transport as oracles
import pandas as pd
import pytest
import xarray as xr
from audit_world import world
from scipy import stats

from cje_core.calibration.calibrated import calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays, from_frame
from cje_core.data.arrays import unpack
from cje_core.transport import local_audits
from cje_core.transport.audit import audit
from cje_core.transport.local_audits import binned_audit, score_bins, subgroup_audit
from cje_sim.scenarios import transport_shift

# --- bins ------------------------------------------------------------------------------------------------------------


def without_noise(data):
    """The same world, its calibrator learned from the true curve."""
    return data.assign(oracle=data.oracle.where(~data.labelled, 0.2 + 0.6 * data.judge))


def test_binned_statistic_is_the_lack_of_fit_test_when_f_is_known():
    """Labels without noise leave f known; what remains is the classical test on the probes."""
    data = without_noise(world(n=2000, probes=100, seed=3))
    report = binned_audit(data, n_bins=8).sel(policy="b")
    rows = unpack(data)
    mine = np.flatnonzero(rows.probe & (rows.policy == 1))
    f = predict(fit_slice(rows).calibrator, rows.z[mine])
    bins = score_bins(rows.score[mine], mine, 8)
    slow = oracles.lack_of_fit(rows.label[mine].tolist(), f.tolist(), bins.tolist())
    np.testing.assert_allclose(report.statistic, slow, rtol=1e-6)
    q, m = int(report.n_bins), len(mine)
    ratio, df_bins, df = oracles.anova_type(rows.label[mine].tolist(), f.tolist(), bins.tolist())
    np.testing.assert_allclose([report.f_value, report.df_bins, report.df], [ratio, df_bins, df], rtol=1e-6)
    np.testing.assert_allclose(report.p_value, stats.f.sf(ratio, df_bins, df), rtol=1e-6)
    assert 6 < df_bins <= q and 0.7 * (m - q) < df < 1.3 * (
        m - q
    )  # one variance in all bins: near the F test's
    np.testing.assert_allclose(
        (report.residual * report.n_probes).sum() / m, (rows.label[mine] - f).mean(), rtol=1e-9
    )


def test_audit_scope_compensating_errors_pass_the_mean_and_fail_the_bins():
    data = transport_shift.simulate(n=2000, oracle_fraction=0.5, n_probes=400, rng=1)
    mean, bins = audit(data), binned_audit(data)
    assert mean.p_value.sel(policy="compensating") > 0.05
    assert bins.p_bh.sel(policy="compensating") < 1e-4
    assert bins.p_bh.sel(policy="same") > 0.05
    assert np.isnan(bins.p_value.sel(policy="base"))  # no probes, no test


def test_pitfall_39_bins_are_for_display_and_never_smaller_than_five():
    report = binned_audit(world(probes=23), n_bins=10)
    filled = report.n_probes.values[report.n_probes.values > 0]
    assert filled.min() >= 5
    assert not {"verdict", "flagged"} & set(report)
    assert int(report.n_bins.sel(policy="b")) < 10


def test_bins_share_ties_and_merge_small_neighbours():
    score = np.repeat([0.1, 0.5, 0.9], [3, 9, 4])
    code = score_bins(score, np.arange(16), 10)
    assert [code[score == s].tolist() for s in (0.1, 0.5, 0.9)] == [[0] * 3, [0] * 9, [0] * 4]
    code = score_bins(np.repeat([0.1, 0.9], [5, 5]), np.arange(10), 10)
    assert code.tolist() == [0] * 5 + [1] * 5
    clustered = score_bins(np.repeat([0.1, 0.9], [5, 5]), np.repeat([0, 1], 5), 10)
    assert set(clustered) == {0}  # ten rows, two clusters


def test_equal_labels_within_bins_give_no_infinite_statistic():
    """Binary labels agree within many bins; the pooled variance keeps the statistic finite."""
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    rng = np.random.default_rng(5)
    base = (rng.random(200) < score).astype(float)
    target = np.where(score == 0.5, rng.random(200) < 0.5, score > 0.5).astype(float)
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    data = from_arrays([score, score], policies=["a", "b"], oracle=[base, target], probe=probe)
    report = binned_audit(data).sel(policy="b")
    assert np.isfinite(report.statistic) and 0 < report.p_value < 0.05


def levels(target, *, oracle_range=(0, 1)):
    """Five levels of the score, 40 prompts each, the base's labels .1, .3, ... good there, the target's as given."""
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    base = np.tile(np.arange(40), 5) < 40 * score
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    return from_arrays(
        [score, score], policies=["a", "b"], oracle=[base.astype(float), target], probe=probe,
        calibration_policy="a", oracle_range=oracle_range,
    )  # fmt: skip


@pytest.mark.parametrize("rare", [2, 14])
def test_binary_labels_vary_at_least_as_the_null_says(rare):
    """With few failures in every bin the variances are those of the null, with more the estimated ones."""
    good = (np.tile(np.arange(40), 5) < rare).astype(float)
    found = binned_audit(levels(good)).sel(policy="b")
    wide = binned_audit(levels(good, oracle_range=(-1, 2))).sel(policy="b")  # labels inside the scale
    f = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    null, own = f * (1 - f) / 40, np.full(5, rare / 40 * (1 - rare / 40) / 39)
    rows = unpack(levels(good))
    fitted = fit_slice(rows)
    members = [np.flatnonzero((rows.policy == 1) & (rows.score == s)) for s in f]
    kept = local_audits._joint(rows, fitted, members, (0.0, 1.0)).own
    np.testing.assert_allclose(kept, null if null.sum() > own.sum() else own, rtol=1e-9)
    assert (null.sum() > own.sum()) == (rare == 2)
    assert (found.f_value < wide.f_value) if rare == 2 else (found.f_value == wide.f_value)


def test_a_policy_without_a_test_says_why():
    assert binned_audit(levels(np.ones(200))).status.values.tolist() == ["TOO_FEW_BINS", "OK"]
    score = np.repeat([0.2, 0.8], 40)
    same = np.full((2, 80), 0.5)
    probe = np.stack([np.zeros(80, bool), np.ones(80, bool)])
    mute = binned_audit(
        from_arrays([score, score], policies=["a", "b"], oracle=same, probe=probe, oracle_range=(0, 1))
    ).sel(policy="b")
    assert mute.status.item() == "NO_VARIATION" and np.isnan([mute.p_value, mute.statistic]).all()


def test_bins_of_probes_that_repeat_the_labels_that_taught_have_no_error():
    """One block per score level: what taught and what audits cancel bin by bin; with one sign wrong they double."""
    rng = np.random.default_rng(7)
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    label = (score + rng.normal(0, 0.1, 200)).clip(-1, 2)
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    data = from_arrays(
        [score, score], policies=["a", "b"], oracle=[label, label], probe=probe, oracle_range=(-1, 2)
    )
    report = binned_audit(data).sel(policy="b").isel(bin=slice(5))
    np.testing.assert_allclose(report.residual, 0, atol=1e-12)
    assert (report.std_error < 0.5 * 0.1 / np.sqrt(40)).all()


def test_bins_of_a_clustered_design_count_clusters():
    """Each probe copied into a second prompt of its cluster changes nothing but the count."""
    data = without_noise(world(n=200, probes=80, teach=100))
    rows = unpack(data)
    frame = pd.DataFrame(
        {
            "policy": np.array(rows.policies)[rows.policy],
            "prompt_id": rows.prompts[rows.prompt],
            "judge_score": rows.score,
            "oracle_label": rows.label,
            "probe": rows.probe,
            "evaluated": rows.evaluated,
        }
    )
    twice = pd.concat([frame, frame.assign(prompt_id=frame.prompt_id + "+")])
    twice = twice.assign(cluster=twice.prompt_id.str.rstrip("+"))
    single = binned_audit(data, n_bins=5)
    double = binned_audit(from_frame(twice, oracle_range=(-2, 3), calibration_policy="a"), n_bins=5)
    np.testing.assert_allclose(single.residual.sel(policy="b"), double.residual.sel(policy="b"), rtol=1e-9)
    for name in ("std_error", "df", "p_value"):
        np.testing.assert_allclose(single[name].sel(policy="b"), double[name].sel(policy="b"), rtol=1e-9)


# --- subgroups -------------------------------------------------------------------------------------------------------


def test_subgroup_audit_is_the_audit_of_the_subgroup_where_its_own_noise_is_the_larger():
    group = np.where(np.arange(400) % 3 == 0, "code", "prose")
    data = world(stratum=group)
    report = subgroup_audit(data)
    larger = []
    for name in ("code", "prose"):
        probe = data.probe & xr.DataArray(group == name, dims="prompt")
        alone = audit(data.assign(probe=probe, oracle=data.oracle.where(data.labelled | probe)))
        mine = report.sel(group=name)
        np.testing.assert_allclose(mine.residual, alone.residual)
        tested = np.isfinite(mine.std_error.values)
        ratio = (mine.std_error / alone.std_error_with_fit).values[tested]
        assert (ratio > 1 - 1e-9).all()
        same = ratio < 1 + 1e-9
        larger += same.tolist()
        np.testing.assert_allclose(mine.df.values[tested][same], alone.df_with_fit.values[tested][same])
        t = np.abs(mine.residual / mine.std_error)
        np.testing.assert_allclose(mine.p_value, 2 * stats.t.sf(t, mine.df))
    assert set(larger) == {True, False}  # of two groups, one has the larger noise
    np.testing.assert_allclose(subgroup_audit(data, group=group).residual, report.residual)
    assert report.group.values.tolist() == ["code", "prose"]


def test_the_noise_of_a_group_is_at_least_that_of_all_groups():
    """With f known the noise is that of the probes: the larger of the group's own variance and the pooled one."""
    data = without_noise(world(n=2000, probes=100, seed=3))
    group = np.array(["x", "y", "z"])[np.arange(2000) % 3]
    quiet = data.probe & (data.policy == "b") & xr.DataArray(group == "x", dims="prompt")
    data = data.assign(oracle=data.oracle.where(~quiet, 0.2 + 0.6 * data.judge + 0.01))
    report = subgroup_audit(data, group=group).sel(policy="b")
    rows = unpack(data)
    mine = np.flatnonzero(rows.probe & (rows.policy == 1))
    left = rows.label[mine] - predict(fit_slice(rows).calibrator, rows.z[mine])
    of_probe = dict(zip(data.prompt.values.tolist(), group.tolist(), strict=True))
    members = {name: [] for name in "xyz"}
    for prompt, value in zip(rows.prompts[rows.prompt[mine]].tolist(), left.tolist(), strict=True):
        members[of_probe[prompt]].append(value)
    pooled = sum(np.var(r) * len(r) for r in members.values()) / sum(len(r) - 1 for r in members.values())
    for name, r in members.items():
        slow = max(np.var(r, ddof=1), pooled) / len(r)
        np.testing.assert_allclose(report.std_error.sel(group=name), np.sqrt(slow), rtol=1e-6)
        np.testing.assert_allclose(report.df.sel(group=name), len(r) - 1, rtol=1e-6)
    assert not report.flagged.sel(group="x")  # ten thousand to one by its own noise


def rare(rng, *, graded, n=400, probes, teach=300, groups=4):
    """Equal groups: labels 0 but for one in seventeen, or .9 give or take .005 but for one in seventeen."""
    usual, odd = (0.9 + 0.005 * rng.standard_normal((2, n)), 0.2) if graded else (np.zeros((2, n)), 1.0)
    label = np.where(rng.random((2, n)) < 1 / 17, odd, usual)
    probe = np.zeros((2, n), bool)
    probe[1, rng.permutation(n)[:probes]] = True
    label[1] = np.where(probe[1], label[1], np.nan)
    label[0, rng.permutation(n)[: n - teach]] = np.nan
    data = from_arrays(
        rng.random((2, n)), policies=["a", "b"], oracle=label, probe=probe, oracle_range=(0, 1)
    )
    return data, rng.integers(0, groups, n).astype(str)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graded", "probes", "groups"), [(False, 60, 6), (False, 300, 4), (True, 60, 6), (True, 300, 4)]
)
def test_equal_groups_of_rare_outcomes_are_flagged_at_the_stated_level(graded, probes, groups, monkeypatch):
    """P(any flag) is 5% at most, over 300 data sets; by each group's own noise alone it is not."""
    n_sets = 300
    most = stats.binom.ppf(1 - 3e-7, n_sets, 0.05)
    rng = np.random.default_rng(3)
    worlds = []
    for _ in range(n_sets):
        data, group = rare(rng, graded=graded, probes=probes, groups=groups)
        worlds.append((calibrated(data), group))

    def flags(audited):
        return sum(bool(audited(*w)) for w in worlds)

    assert flags(lambda data, group: subgroup_audit(data, group=group).flagged.any()) <= most
    assert flags(lambda data, group: (binned_audit(data).p_value <= 0.05).any()) <= most
    if graded and probes == 60:
        monkeypatch.setattr(
            local_audits, "_with_noise_of_all", lambda *a: (a[1].std_error_with_fit, a[1].df_with_fit)
        )
        assert flags(lambda data, group: subgroup_audit(data, group=group).flagged.any()) > most


def test_a_group_of_equal_labels_is_tested_against_the_noise_of_the_others():
    """Probes all 0 where f says a half: their own spread says nothing, yet chance does not make forty of them."""
    rng = np.random.default_rng(4)
    score, half = rng.random((2, 400)), (rng.random((2, 400)) < 0.5).astype(float)
    group = np.where(np.arange(400) < 40, "silent", "others")
    half[1, :40] = 0.0
    probe = np.stack([np.zeros(400, bool), np.arange(400) < 240])
    half[1, 240:] = np.nan
    data = from_arrays(score, policies=["a", "b"], oracle=half, probe=probe, oracle_range=(0, 1))
    report = subgroup_audit(data, group=group).sel(policy="b")
    assert report.flagged.sel(group="silent") and report.p_value.sel(group="silent") < 1e-3
    assert not report.flagged.sel(group="others")
    alike = data.assign(oracle=data.oracle.where(~data.probe, 0.0))
    assert np.isnan(subgroup_audit(alike, group=group).p_value).all()  # no noise anywhere to test against


def test_subgroup_errors_that_cancel_are_flagged_under_one_fdr():
    data = world(n=600, probes=300)
    group = np.where(np.arange(600) % 2 == 0, "even", "odd")
    move = xr.DataArray(np.where(group == "even", 0.08, -0.08), dims="prompt")
    moved = data.assign(oracle=data.oracle.where(~(data.probe & (data.policy == "c")), data.oracle + move))
    assert abs(float(audit(moved).residual.sel(policy="c"))) < 0.03
    report = subgroup_audit(moved, group=group)
    assert report.flagged.sel(policy="c").all() and not report.flagged.sel(policy=["a", "b"]).any()
    tested = np.isfinite(report.p_value.values)
    assert tested.sum() == 4
    np.testing.assert_allclose(
        report.p_bh.values[tested], stats.false_discovery_control(report.p_value.values[tested])
    )


def test_pitfall_36_too_few_probes_of_a_group_are_nan_and_never_flagged():
    group = np.where(np.arange(400) < 3, "rare", "common")
    report = subgroup_audit(world(shift=(0, 0.5, 0.5)), group=group)
    assert np.isnan(report.p_value.sel(group="rare")).all() and not report.flagged.sel(group="rare").any()
    assert report.n_probes.sel(group="rare").values.tolist() == [0, 3, 3]
