"""The paper's run order: step by step the digits of the one call, and each step reads what the one before wrote."""

import shutil

import numpy as np
import pytest
import xarray as xr
from analysis import probes, world
from user_files import refuse

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import held_out
from cje_core.estimators import calibrated_ips, direct, snips, stacked_dr
from cje_core.offpolicy.weights import log_ratios, mean_one, stabilise
from cje_core.workflow.analyze import analyze
from cje_core.workflow.steps.files import read_rows, read_tree, write_rows, write_tree
from cje_core.workflow.steps.order import STEPS, analyze_in_steps, read_step, run_step
from cje_core.workflow.steps.report import ledgers, report, traces
from cje_sim.scenarios import arena_like, clustered


@pytest.fixture(scope="module")
def data():
    return arena_like.simulate(n=70, oracle_fraction=0.5, n_probes=20, rng=0)


@pytest.fixture(scope="module")
def whole(data):
    return analyze(data)


@pytest.fixture(scope="module")
def kept(data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("steps")
    return directory, analyze_in_steps(data, directory)


@pytest.fixture
def again(kept, tmp_path):
    """A copy whose files may be changed."""
    return shutil.copytree(kept[0], tmp_path / "again")


def same(one, other):
    """All that two analyses found, bit for bit."""
    assert list(one.estimates) == list(other.estimates)
    for name, estimate in one.estimates.items():
        xr.testing.assert_identical(estimate, other.estimates[name])
    for name in (
        "transport",
        "overlap",
        "gates",
        "levels",
        "value",
        "contrasts",
        "agreement",
        "guide",
        "tipping",
        "assumptions",
    ):
        before, after = getattr(one, name), getattr(other, name)
        assert (before is None) == (after is None)
        if before is not None:
            xr.testing.assert_identical(before, after)
    assert one.left_out.equals(other.left_out)
    assert list(one.cohorts) == list(other.cohorts)
    for name, table in one.cohorts.items():
        xr.testing.assert_identical(table, other.cohorts[name])


@pytest.mark.slow
def test_steps_give_the_bits_of_the_one_call(whole, kept):
    same(whole, kept[1])


@pytest.mark.slow
def test_each_step_run_again_gives_the_same_bits(whole, again):
    for name in STEPS:
        files = {name: (again / name).read_bytes() for name in ("rewards.parquet", "weights.parquet")}
        run_step(name, again)
        assert files == {name: (again / name).read_bytes() for name in files}
    same(whole, report(again))


@pytest.mark.slow
def test_ledgers_of_kept_traces_are_those_of_the_one_call(whole, kept):
    directory, found = kept
    of_steps = ledgers(found, traces(directory))
    for name, of_call in ledgers(whole).items():
        xr.testing.assert_identical(of_call, of_steps[name])


def two_stage(rng):
    """Policies in no order, a judge whose low scores are good, a calibrator with a covariate."""
    data = arena_like.simulate(n=80, oracle_fraction=0.6, n_probes=15, rng=rng).isel(policy=[2, 0, 1])
    mirrored = data.assign(judge=1 - data.judge, logged_judge=1 - data.logged_judge)
    how = Calibration(("response_length",), direction="decreasing")
    return mirrored, {"calibration": how, "chosen": ["direct", "calibrated_ips", "stacked_dr"]}


def logs_teach(rng):
    data = arena_like.simulate(n=70, oracle_fraction=0.5, rng=rng)
    bare = data.assign(labelled=data.labelled & False, oracle=data.oracle.where(False))
    return bare, {"chosen": ["snips", "calibrated_dr_cpo", "stacked_dr"]}


def no_logs(rng):
    table = world(60, seed=rng)
    return table, {"probes": probes(table, "other", 20, -0.1), "bayes": "gibbs"}


def in_clusters(rng):
    return clustered.simulate(n=60, oracle_fraction=0.5, rng=rng), {"borrowed": "one_step"}


def by_topic(rng):
    data = arena_like.simulate(n=80, oracle_fraction=0.6, rng=rng)
    topics = data.assign(topic=("prompt", np.array(["a", "b"])[np.arange(80) % 2]))
    asked = {"groups": ["topic"], "calibration": Calibration(groups="topic"), "target_mde": 0.1}
    return topics, {"chosen": ["direct", "snips", "overlap_weights"], **asked}


@pytest.mark.slow
@pytest.mark.parametrize("make", [two_stage, logs_teach, no_logs, in_clusters, by_topic])
def test_steps_give_the_bits_of_the_one_call_for_other_data(make, tmp_path):
    data, asked = make(1)
    same(analyze(data, **asked), analyze_in_steps(data, tmp_path, **asked))


@pytest.mark.slow
def test_steps_give_the_bits_of_the_one_call_on_the_arena_sample(arena, tmp_path):
    asked = {"probes": arena / "probe_slice", "logged": arena / "logged_data.jsonl"}
    same(analyze(arena / "fresh_draws", **asked), analyze_in_steps(arena / "fresh_draws", tmp_path, **asked))


@pytest.mark.slow
def test_files_hold_what_their_names_say(data, kept):
    directory, _ = kept
    given = calibrated(data)
    rows, fitted = given.rows, given.slice
    table = read_rows(directory / "rewards.parquet")
    fresh = table[table["kind"] == "fresh"]
    np.testing.assert_array_equal(fresh["reward"], predict(fitted.calibrator, rows.z))
    np.testing.assert_allclose(fresh["reward_oof"], held_out(fitted, rows.z, rows.prompt), rtol=0, atol=1e-12)
    weights = read_rows(directory / "weights.parquet")
    logged, reward = given.logged, given.logged_reward
    for p, policy in enumerate(rows.policies):
        mine = weights[weights["policy"] == policy]
        raw = mean_one(log_ratios(logged)[p])
        used = np.isfinite(raw)
        np.testing.assert_array_equal(mine["weight"], raw[used])
        stable = stabilise(raw, logged.z[:, 0], reward, fitted.fold)
        np.testing.assert_allclose(mine["stabilised_reward"], stable.weight[used], rtol=0, atol=1e-12)
    left_out = read_tree(directory / "variance.nc")["snips"]
    jackknifed = snips.estimate(data, inference="jackknife")
    np.testing.assert_allclose(left_out["variance_total"], jackknifed.std_error**2)


# --- every step reads: what is planted in a file moves what comes after it by what it should ---


@pytest.mark.slow
def test_estimates_read_the_rewards(whole, again):
    table = read_rows(again / "rewards.parquet")
    table.loc[table["kind"] == "logged", "reward"] += 0.01
    write_rows(again / "rewards.parquet", table)
    run_step("estimate", again)
    moved = read_tree(again / "estimates.nc")
    for name in ("snips", "calibrated_ips"):  # weights of mean one
        np.testing.assert_allclose(moved[name].estimate - whole.estimates[name].estimate, 0.01)


@pytest.mark.slow
def test_estimates_read_the_weights(whole, again):
    table = read_rows(again / "weights.parquet")
    columns = [name for name in table if name == "weight" or name.startswith("stabilised")]
    table[columns] = 1.0
    write_rows(again / "weights.parquet", table)
    run_step("estimate", again)
    moved = read_tree(again / "estimates.nc")
    reward = calibrated(whole.data).logged_reward
    for name in ("snips", "calibrated_ips"):
        plug_in = moved[name].estimate - moved[name].label_correction
        known = np.isfinite(plug_in)  # weights that were shrunk to a constant are refused
        assert known.any() and (known.all() or name == "calibrated_ips")
        np.testing.assert_allclose(plug_in[known], np.nanmean(reward))


@pytest.mark.slow
def test_estimates_read_the_calibrator(whole, again):
    groups = read_tree(again / "calibrator.nc")
    for name in groups:
        if "value" in groups[name]:
            groups[name]["value"] = groups[name]["value"] + 0.01
    write_tree(again / "calibrator.nc", groups)
    run_step("estimate", again)
    moved = read_tree(again / "estimates.nc")["direct"]
    # own residuals undo a constant, and so do the labels that others lend; the plug-in has none
    np.testing.assert_allclose(moved.estimate, whole.estimates["direct"].estimate, rtol=0, atol=1e-12)
    run_step("jackknife", again)
    plug_in = direct.estimate(whole.data, inference="jackknife")
    borrowed = (plug_in.route == "plug_in").values
    values = read_tree(again / "variance.nc")["direct"].jackknife - plug_in.jackknife
    np.testing.assert_allclose(values.values[borrowed], 0.01)


@pytest.mark.slow
def test_the_stack_reads_its_members(whole, again):
    groups = read_tree(again / "members.nc")
    for name in groups:
        if name.endswith("/value") and "direct" in groups[name]:
            groups[name]["direct"] = groups[name]["direct"] + 0.01
    write_tree(again / "members.nc", groups)
    run_step("stack", again)
    moved = read_tree(again / "stacked.nc")["stacked_dr"]
    np.testing.assert_allclose(moved.estimate - whole.estimates["stacked_dr"].estimate, 0.01)


def test_the_jackknife_reads_rewards_without_a_fold(data, again):
    before = read_tree(again / "variance.nc")
    table = read_rows(again / "rewards.parquet")
    table.loc[table["kind"] == "logged", "reward_without_2"] += 0.01
    write_rows(again / "rewards.parquet", table)
    run_step("jackknife", again)
    moved = read_tree(again / "variance.nc")["snips"].jackknife - before["snips"].jackknife
    np.testing.assert_allclose(
        moved, np.broadcast_to(0.01 * (np.arange(5) == 2), moved.shape), rtol=0, atol=1e-12
    )


@pytest.mark.slow
def test_the_report_reads_the_estimates(again):
    groups = read_tree(again / "estimates.nc")
    groups["direct"]["estimate"] = groups["direct"]["estimate"] + 0.01
    write_tree(again / "estimates.nc", groups)
    found, before = report(again), groups["direct"]["estimate"]
    np.testing.assert_array_equal(found.estimates["direct"].estimate, before)


# --- the jackknife's trace of the off-policy family ---


@pytest.mark.parametrize("module", [snips, calibrated_ips, stacked_dr])
def test_a_trace_is_what_reruns_without_the_labels_of_a_fold_give(module, data):
    """A second computation, from data that lack the labels of one fold and keep its folds."""
    found = module.estimate(data, inference="jackknife")
    k = found.jackknife.values
    spread = ((k - k.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) * (k.shape[1] - 1) / k.shape[1]
    np.testing.assert_allclose(found.std_error_calibration**2, spread)
    np.testing.assert_allclose(found.std_error**2, found.std_error_evaluation**2 + spread)
    np.testing.assert_allclose(found.calibration_share, spread / found.std_error**2)
    if module is snips:
        given = calibrated(data)
        fitted, logged = given.slice, given.logged
        weight = np.stack([mean_one(ratio) for ratio in log_ratios(logged)])
        used = np.isfinite(weight)
        without = [predict(fitted.without(j), logged.z) for j in range(5)]
        again = [[np.average(f[u], weights=w[u]) for f in without] for w, u in zip(weight, used, strict=True)]
        order = [given.rows.policies.index(name) for name in data.policy.values]
        np.testing.assert_allclose(k, np.array(again)[order])


# --- bad input ---


def test_what_a_step_lacks_is_named_with_the_step_that_makes_it(data, tmp_path):
    read_step(data, tmp_path)
    refuse(
        lambda: run_step("estimate", tmp_path),
        "calibrator.nc",
        "no such file",
        "run the step calibrate first",
    )
    refuse(
        lambda: run_step("calibrate", tmp_path / "elsewhere"), "config.json", "keep an analysis there first"
    )
    refuse(lambda: run_step("plot", tmp_path), "'plot'", "calibrate, stabilise, estimate, stack, jackknife")
    run_step("calibrate", tmp_path)
    refuse(lambda: run_step("jackknife", tmp_path), "weights.parquet", "run the step stabilise first")


def test_files_of_other_data_are_refused(again):
    table = read_rows(again / "rewards.parquet")
    write_rows(again / "rewards.parquet", table.iloc[1:])
    refuse(
        lambda: run_step("estimate", again), "rewards.parquet", "not those of data.nc", "step calibrate again"
    )
    write_rows(again / "rewards.parquet", table.drop(columns="prompt"))
    refuse(lambda: run_step("estimate", again), "rewards.parquet", "'prompt'", "step calibrate again")
    (again / "rewards.parquet").write_text("not a table")
    refuse(lambda: run_step("estimate", again), "rewards.parquet", "cannot be read", "step calibrate again")
