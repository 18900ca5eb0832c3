"""Audits of bins and of subgroups against obvious implementations."""

import numpy as np
import oracles_transport as oracles
import pandas as pd
import pytest
import xarray as xr
from audit_world import world
from scipy import stats

from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.io import from_frame
from cje_core.transport.audit import audit
from cje_core.transport.local_audits import binned_audit, score_bins, subgroup_audit
from cje_core.transport.local_bootstrap import (
    Sample,
    bootstrap,
    cell_tests,
    draw_labels,
    joint_test,
    label_law,
)
from cje_sim.scenarios import transport_shift

# --- bins ------------------------------------------------------------------------------------------------------------


def without_noise(data):
    """The same world, its calibrator learned from the true curve."""
    return data.assign(oracle=data.oracle.where(~data.labelled, 0.2 + 0.6 * data.judge))


def random_samples(rng, kind, m=40, n=24):
    """Calibration labels and probes of a judge with five grades: weights, and clusters of two where graded."""
    index = [np.round(4 * rng.random(size)) / 4 for size in (m, n)]
    if kind == "binary":
        label = [(rng.random(len(x)) < 0.2 + 0.6 * x).astype(float) for x in index]
    else:
        label = [rng.beta(1 + 2 * x, 3 - 2 * x) for x in index]
    cluster = [np.arange(len(x)) // (1 if kind == "binary" else 2) for x in index]
    parts = zip(index, label, [rng.uniform(0.5, 2, len(x)) for x in index], cluster, strict=True)
    return [Sample(*part) for part in parts]


@pytest.mark.parametrize("kind", ["binary", "graded"])
def test_draws_are_those_of_a_plain_loop(kind):
    """Residuals of the data and of each draw refit f; the curve of both samples weighs each by its effective size."""
    rng = np.random.default_rng(2)
    labels, probes = random_samples(rng, kind)
    probes = probes._replace(score=probes.score + 0.1)  # between the knots, and beyond the last
    group = rng.permutation(np.arange(24) % 3)
    drawn = bootstrap(labels, probes, group, 60, np.random.default_rng(5))
    both = [[*a, *b] for a, b in zip(labels[:2], probes[:2], strict=True)]
    both.append([w for s in (labels, probes) for w in s.weight * s.weight.sum() / (s.weight**2).sum()])
    law = label_law(labels, probes)
    np.testing.assert_allclose(law.mean, np.interp(both[0], *oracles.isotonic_curve(*both)), atol=1e-12)
    new = draw_labels(law, 60, np.random.default_rng(5))
    both_labels = np.concatenate([labels.label, probes.label])
    slow = [
        oracles.group_residuals(
            (*labels[:1], y[:40], labels.weight), (*probes[:1], y[40:], probes.weight), group
        )
        for y in [both_labels, *new]
    ]
    np.testing.assert_allclose([drawn.value, *drawn.null], slow, atol=1e-12)
    np.testing.assert_allclose(joint_test(drawn), oracles.joint_p(slow[0], slow[1:]), rtol=1e-6)
    far = np.abs(np.array(slow) - np.mean(slow[1:], axis=0))
    np.testing.assert_allclose(cell_tests(drawn), (1 + (far[1:] >= far[0]).sum(axis=0)) / 61)


def test_new_labels_have_the_moments_of_the_old():
    """Mean g, variance and skewness of graded labels on both sides of the middle."""
    rng = np.random.default_rng(3)
    index = np.tile([0.0, 1.0], 4000)
    label = np.where(index == 0, rng.beta(1, 5, 8000), rng.beta(5, 1, 8000))
    row = np.arange(4000)
    labels, probes = (
        Sample(index[at], label[at], np.ones(4000), row) for at in (slice(4000), slice(4000, None))
    )
    new = draw_labels(label_law(labels, probes), 200, rng)
    for at, a, b in ((index == 0, 1, 5), (index == 1, 5, 1)):
        mean, variance, skewness = stats.beta.stats(a, b, moments="mvs")
        np.testing.assert_allclose(new[:, at].mean(), mean, atol=0.01)  # five errors of 4,000 labels
        np.testing.assert_allclose(new[:, at].var(), variance, rtol=0.1)
        np.testing.assert_allclose(stats.skew(new[:, at].ravel()), skewness, rtol=0.15)


def test_new_labels_of_a_cluster_depend_on_each_other_as_the_old():
    """Rows of one cluster with means on both sides of the middle have one error."""
    rng = np.random.default_rng(4)
    score, cluster = rng.integers(0, 2, 1200).astype(float), np.arange(1200) // 3
    label = 0.3 + 0.4 * score + 0.1 * rng.standard_normal(400)[cluster]
    half = slice(600), slice(600, None)
    law = label_law(*(Sample(score[at], label[at], np.ones(600), cluster[at]) for at in half))
    error = (draw_labels(law, 50, rng) - law.mean).reshape(50, 400, 3)
    np.testing.assert_allclose(np.corrcoef(error.reshape(-1, 3).T), 1, atol=0.05)
    score, label = score[cluster * 3], (rng.random(400) < 0.5)[cluster].astype(float)
    law = label_law(*(Sample(score[at], label[at], np.ones(600), cluster[at]) for at in half))
    new = draw_labels(law, 50, rng).reshape(50, 400, 3)
    # donors of another mean keep a part: blocks near one half leave nearly all
    assert np.corrcoef(new.reshape(-1, 3).T).min() > 0.8


def test_audit_scope_compensating_errors_pass_the_mean_and_fail_the_bins():
    data = transport_shift.simulate(n=2000, oracle_fraction=0.5, n_probes=400, rng=1)
    mean, bins = audit(data), binned_audit(data)
    assert mean.p_value.sel(policy="compensating") > 0.05
    assert bins.p_bh.sel(policy="compensating") < 0.002  # no draw of 999 is as far
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


def levels(target):
    """Five levels of the score, 40 prompts each, the base's labels .1, .3, ... good there, the target's as given."""
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    base = np.tile(np.arange(40), 5) < 40 * score
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    return from_arrays(
        [score, score], policies=["a", "b"], oracle=[base.astype(float), target], probe=probe,
        calibration_policy="a", oracle_range=(0, 1),
    )  # fmt: skip


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
    """One block per score level: what taught and what audits cancel bin by bin."""
    rng = np.random.default_rng(7)
    score = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], 40)
    label = (score + rng.normal(0, 0.1, 200)).clip(-1, 2)
    probe = np.stack([np.zeros(200, bool), np.ones(200, bool)])
    data = from_arrays(
        [score, score], policies=["a", "b"], oracle=[label, label], probe=probe, oracle_range=(-1, 2)
    )
    report = binned_audit(data).sel(policy="b").isel(bin=slice(5))
    np.testing.assert_allclose(report.residual, 0, atol=1e-12)
    assert report.p_value > 0.9


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
    for name in ("std_error", "p_value"):
        np.testing.assert_allclose(single[name].sel(policy="b"), double[name].sel(policy="b"), rtol=1e-9)


# --- subgroups -------------------------------------------------------------------------------------------------------


def test_subgroup_residual_is_that_of_the_audit_of_the_subgroup():
    group = np.where(np.arange(400) % 3 == 0, "code", "prose")
    data = world(stratum=group)
    report = subgroup_audit(data)
    for name in ("code", "prose"):
        probe = data.probe & xr.DataArray(group == name, dims="prompt")
        alone = audit(data.assign(probe=probe, oracle=data.oracle.where(data.labelled | probe)))
        np.testing.assert_allclose(report.sel(group=name).residual, alone.residual)
    np.testing.assert_allclose(subgroup_audit(data, group=group).p_value, report.p_value)
    assert report.group.values.tolist() == ["code", "prose"]


def test_the_noise_of_a_group_is_that_of_all_labels():
    """A group whose probes agree by chance, or are known to, is not sure of itself."""
    data = without_noise(world(n=2000, probes=100, seed=3))
    group = np.array(["x", "y", "z"])[np.arange(2000) % 3]
    quiet = data.probe & (data.policy == "b") & xr.DataArray(group == "x", dims="prompt")
    data = data.assign(oracle=data.oracle.where(~quiet, 0.2 + 0.6 * data.judge + 0.01))
    report = subgroup_audit(data, group=group).sel(policy="b")
    # two of three probes have noise of .1: the standard error of 33 or 34 of them, by 100 residuals
    np.testing.assert_allclose(report.std_error, 0.1 * np.sqrt(2 / 3 / report.n_probes), rtol=0.25)
    assert not report.flagged.sel(group="x")


def test_results_depend_on_data_and_seed_alone():
    """Neither on the order of rows nor on other policies; another seed moves p-values by their Monte Carlo error."""
    data = world(n=300, probes=60)
    turned = data.isel(prompt=np.random.default_rng(1).permutation(300), policy=[2, 0, 1])
    some = data.sel(policy=["a", "b"])
    for check in (binned_audit, lambda d, **k: subgroup_audit(d.assign(kind=group_of(d)), group="kind", **k)):
        plain = check(data)
        xr.testing.assert_allclose(plain, check(turned).sel(policy=plain.policy), rtol=1e-9)
        np.testing.assert_array_equal(check(some).p_value.sel(policy="b"), plain.p_value.sel(policy="b"))
        other = check(data, seed=1).p_value
        assert not np.array_equal(other, plain.p_value, equal_nan=True)
        np.testing.assert_allclose(other, plain.p_value, atol=5 * np.sqrt(0.5 / 999))


def group_of(data):
    """Two groups by the number in the prompt's name."""
    return "prompt", [str(sum(map(ord, name)) % 2) for name in data.prompt.values.tolist()]


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
    alike = data.assign(
        oracle=data.oracle.where(~data.probe, 0.0)
    )  # all probes 0: the curve says that this is rare
    assert subgroup_audit(alike, group=group).flagged.sel(policy="b").all()
    sure = data.assign(oracle=data.oracle.where(~data.oracle.notnull(), 0.0))
    assert np.isnan(
        subgroup_audit(sure, group=group).p_value
    ).all()  # no label differs: no noise to test against


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
