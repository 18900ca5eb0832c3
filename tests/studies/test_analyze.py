"""``cje-lab analyze``: its table, JSON and plot; order of rows and files; logs, covariates, advice."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from analysis import Cli, Frame, printed, probes, run_installed, world, write

from studies._analyze import analyze
from studies._analyze_json import to_json
from studies._save import save

# --- the three outputs ---


def test_json_has_the_contract_shape(cli: Cli, tmp_path: Path) -> None:
    table = world()
    data = write(table, tmp_path / "data")
    audit = write(probes(table, "other", 20, 0.0), tmp_path / "probes", "{policy}_probe.jsonl")
    code, out, err = cli(data, "--probes", audit, "--json")
    assert (code, err) == (0, "")
    result = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert set(result) == {"policies", "contrasts", "seconds", "manifest"}
    assert set(result["policies"]) == {"base", "other"}
    for policy in result["policies"].values():
        contract = {"estimates", "level", "flags", "transport", "overlap"}
        more = {"refused_by", "posterior", "gates", "gate_warnings", "bounds", "recommended"}
        assert set(policy) == contract | more
        assert policy["overlap"] is None and policy["posterior"] is None
        assert policy["recommended"]["estimator"] == "direct"
        assert set(policy["gates"].values()) <= {"pass", "warn", "fail", "unknown"}
        assert set(policy["transport"]) == {"verdict", "residual", "interval"}
        assert set(policy["estimates"]) == {"raw_judge", "labels_only", "direct", "direct_corrected"}
        for estimate in policy["estimates"].values():
            assert set(estimate) == {"estimate", "std_error", "interval", "status"}
            if estimate["estimate"] is not None:
                low, high = estimate["interval"]
                assert low <= estimate["estimate"] <= high
    assert result["policies"]["base"]["estimates"]["direct"]["status"] == "ok"
    assert result["policies"]["other"]["estimates"]["labels_only"]["status"] == "no_labels"
    assert result["policies"]["other"]["estimates"]["labels_only"]["interval"] == [None, None]
    [pair] = result["contrasts"]
    assert (pair["first"], pair["second"]) == ("base", "other")
    assert result["manifest"]["seed"] == 1
    assert result["manifest"]["counts"]["other"] == {"responses": 60, "labels": 0, "probes": 20}


def test_out_gets_json_and_plots(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, _ = cli(data, "--json", "--out", tmp_path / "deep" / "out")
    assert code == 0
    files = sorted(p.name for p in (tmp_path / "deep" / "out").iterdir())
    panels = ["reliability.png", "transport_residuals.png", "uncertainty_share.png", "win_matrix.png"]
    assert files == ["estimates.json", "forest.png", "forest.svg", "ledger.nc", *panels]
    with xr.open_datatree(tmp_path / "deep" / "out" / "ledger.nc", engine="netcdf4") as ledgers:
        assert set(ledgers.children) == {"raw_judge", "labels_only", "direct", "direct_corrected"}
        assert ledgers["direct"]["level"].values.tolist() == ["reported", "reported"]
    written = json.loads((tmp_path / "deep" / "out" / "estimates.json").read_text())
    printed = json.loads(out)
    assert written == printed
    assert (tmp_path / "deep" / "out" / "forest.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "deep" / "out" / "forest.svg").read_text()


def test_transport_failure_refuses_the_level(tmp_path: Path) -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.3)
    result = analyze(table, probes=audit)
    assert [result.level(p) for p in result.policies] == ["reported", "refused"]
    record = to_json(result)["policies"]["other"]
    assert record["transport"]["verdict"] == "FAIL" and record["flags"] == [
        "transport_assumed",
        "transport_fail",
    ]
    [pair] = to_json(result)["contrasts"]
    assert pair["level"] == "refused"
    text = printed(result, 80)
    corrected = record["estimates"]["direct_corrected"]
    assert f"{corrected['estimate']:.3f} [{corrected['interval'][0]:.3f}" in text
    assert "does not transport to other" in text.replace("\n", " ").replace("  ", " ")


def mixed() -> tuple[Frame, Frame]:
    """Both policies have labels, and other's are .3 below what the base policy teaches; so are its probes."""
    table = world(300, labels=150)
    at = table["policy"] == "other"
    lower = (table["judge_score"] ** 2 - 0.3).clip(0, 1)
    table.loc[at & (table["prompt_id"] >= 200), "oracle_label"] = lower
    return table, probes(table, "other", 100, -0.3)


def test_own_labels_keep_a_level_that_the_pooled_audit_fails() -> None:
    table, audit = mixed()
    found = analyze(table, probes=audit, calibration_policy="base")
    record = to_json(found)["policies"]["other"]
    assert record["transport"]["verdict"] == "FAIL" and record["estimates"]["direct"]["status"] == "ok"
    assert (record["level"], record["refused_by"], record["flags"]) == ("reported", [], [])
    text = " ".join(printed(found, 100).split())
    assert "not refused: the calibration does not transport to other" in text and "do not use" not in text
    table.loc[table["policy"] == "other", "oracle_label"] = np.nan  # nothing else than the labels did it
    assert analyze(table, probes=audit, calibration_policy="base").refused_by("other") == ["transport"]


@pytest.mark.parametrize("name", ["labels_only", "raw_judge", "ppi", "direct_corrected"])
def test_the_audit_of_a_calibrator_that_is_not_used_refuses_nothing(name: str) -> None:
    table, audit = mixed()
    found = analyze(table, probes=audit, calibration_policy="base", chosen=[name])
    assert found.verdict("other") == "FAIL" and found.refused_by("other") == []
    uses = name == "direct_corrected"
    assert ("identification" in found.gates["gate"].values) == uses
    assert ("the judge is taken at its word" in printed(found, 100)) == (name == "raw_judge")


def test_what_to_use_in_place_of_a_refused_level_is_what_was_computed() -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.3)
    with_it, without = (
        " ".join(printed(analyze(table, probes=audit, chosen=chosen), 100).split())
        for chosen in (["direct", "direct_corrected"], ["direct"])
    )
    assert "do not use its level, use its probe-corrected value" in with_it
    assert "do not use its level, add --estimator direct_corrected" in without
    assert "probe-corrected" not in without


def test_differences_of_borrowed_plug_ins_carry_a_caution() -> None:
    table = world(policies=("base", "other", "third"))
    pairs = to_json(analyze(table))["contrasts"]
    assert all("76-88%" in pair["caution"] and "--borrowed one_step" in pair["caution"] for pair in pairs)
    text = " ".join(printed(analyze(table), 100).split())
    assert text.count("--borrowed one_step") == 1
    stepped = analyze(table, borrowed="one_step")
    assert stepped.estimates["direct"]["route"].values.tolist() == ["theta_aug", "one_step", "one_step"]
    assert [pair["caution"] for pair in to_json(stepped)["contrasts"]] == [None] * 3
    assert "one_step" not in printed(stepped, 100)
    many = analyze(world(30, labels=20, policies=tuple("abcdef")))  # too many pairs for a table
    assert "--borrowed one_step" in " ".join(printed(many, 100).split())
    own = world(policies=("base", "other"))
    own["oracle_label"] = own["judge_score"] ** 2
    assert to_json(analyze(own))["contrasts"][0]["caution"] is None


def test_gates_that_warn_are_printed_with_what_to_do() -> None:
    """Labels near the policy's scores are few: the level stands, with the gate's words in table and JSON."""
    result = analyze(world(100, labels=20))
    record = to_json(result)["policies"]["other"]
    assert record["gates"]["label_support"] == "warn" and record["level"] == "reported"
    warned = record["gate_warnings"]["label_support"]
    assert warned["value"] < warned["good"] == 30 and warned["action"].startswith("label responses")
    assert set(record["gate_warnings"]) == {g for g, s in record["gates"].items() if s in ("warn", "fail")}
    text = " ".join(printed(result, 100).split())
    assert f"label_support {warned['value']:g} (at least 30): {warned['action']}" in text
    assert "caution for base, other: " in text or "caution for other: " in text


def test_the_share_of_the_calibration_reaches_the_advice() -> None:
    result = analyze(world(400, labels=10))
    share = float(result.estimates["direct"]["calibration_share"].sel(policy="other"))
    assert share > 0.5
    advice = to_json(result)["policies"]["other"]["recommended"]["caution"]
    assert f"{share:.0%} of the variance is the calibration's: collect labels" in advice
    assert "direct" not in (bare := analyze(world(400, labels=10), chosen=["labels_only"])).estimates
    assert "of the variance" not in to_json(bare)["policies"]["other"]["recommended"]["caution"]


def test_the_alternative_of_the_guide_is_printed() -> None:
    table = world(200, labels=150)
    result = analyze(table, probes=probes(table, "other", 60, -0.3))
    assert to_json(result)["policies"]["other"]["recommended"]["alternative"] == "direct_corrected"
    assert "Alternative: direct_corrected" in " ".join(printed(result, 100).split())


def test_transport_verdicts_are_told_apart(tmp_path: Path) -> None:
    """PASS, INCONCLUSIVE and NOT_CHECKED are three things (a peer conflated two of them)."""
    table = world(400, labels=300, policies=("base", "few", "many", "none"))
    audit = pd.concat([probes(table, "few", 5, 0.03), probes(table, "many", 200, 0.0)])
    found = to_json(analyze(table, probes=audit))["policies"]
    verdicts = {name: found[name]["transport"]["verdict"] for name in found}
    assert (
        verdicts["many"] == "PASS" and verdicts["none"] == "NOT_CHECKED" and verdicts["base"] == "NOT_CHECKED"
    )
    assert found["many"]["flags"] == ["transport_assumed"]
    assert found["none"]["flags"] == ["transport_assumed", "transport_not_checked"]
    assert found["base"]["flags"] == []


@pytest.mark.parametrize("width", [80, 120])
def test_table_shows_every_column_at_common_widths(width: int) -> None:
    table = world(policies=("base", "a_policy_with_quite_a_long_name"))
    text = printed(analyze(table), width)
    for word in (
        "direct",
        "[95% interval]",
        "judge",
        "only",
        "residual",
        "level",
        "reported",
        "no_labels",
        "NOT_CHECKED",
    ):
        assert word in text
    assert max(map(len, text.splitlines())) <= width


def test_scale_decides_the_decimals() -> None:
    table = world()
    table["oracle_label"] *= 100
    table["judge_score"] *= 10
    result = analyze(table, judge_range=(0, 10), oracle_range=(0, 100))
    unit = analyze(world())
    assert np.isclose(result.transport.attrs["margin"], 5.0)
    a, b = (to_json(r)["policies"]["other"]["estimates"]["direct"] for r in (result, unit))
    assert np.isclose(a["estimate"], 100 * b["estimate"]) and np.allclose(
        a["interval"], 100 * np.array(b["interval"])
    )
    assert re.search(r"\d\d\.\d \[\d\d\.\d, \d\d\.\d\]", printed(result, 100))


def test_estimators_can_be_chosen_and_do_not_disturb_each_other() -> None:
    alone = analyze(world(), chosen=["direct"])
    together = analyze(world())
    np.testing.assert_array_equal(alone.estimates["direct"].interval, together.estimates["direct"].interval)
    assert list(alone.estimates) == ["direct"]
    other = analyze(world(), chosen=["raw_judge"])
    assert other.primary == "raw_judge" and "raw_judge" in printed(other, 80)


# --- order never matters ---


def test_order_of_rows_and_files_changes_no_printed_digit(cli: Cli, tmp_path: Path) -> None:
    table = world(120, labels=60, policies=("base", "other", "third"))
    audit = probes(table, "other", 30, -0.2)
    rng = np.random.default_rng(2)
    outputs, numbers = set(), set()
    for k in range(3):
        mixed = table if k == 0 else table.iloc[rng.permutation(len(table))]
        data = write(mixed, tmp_path / f"data{k}")
        probe = write(
            audit.iloc[rng.permutation(len(audit))], tmp_path / f"probes{k}", "{policy}_probe.jsonl"
        )
        code, out, _ = cli(data, "--probes", probe)
        assert code == 0
        outputs.add(out)
        result = json.loads(cli(data, "--probes", probe, "--json")[1])
        numbers.add(json.dumps([result["policies"], result["contrasts"]]))
    one_file = tmp_path / "one.csv"
    table.iloc[rng.permutation(len(table))].to_csv(one_file, index=False)
    outputs.add(cli(one_file, "--probes", tmp_path / "probes0")[1])
    assert len(outputs) == 1 and len(numbers) == 1


def test_plots_are_reproducible(tmp_path: Path) -> None:
    table = world(policies=("base", "other"))
    shuffled = table.sample(frac=1, random_state=4)
    for name, source in (("a", table), ("b", shuffled)):
        save(analyze(source), tmp_path / name)
    for kind in ("png", "svg"):
        assert (tmp_path / "a" / f"forest.{kind}").read_bytes() == (
            tmp_path / "b" / f"forest.{kind}"
        ).read_bytes()


def test_seed_governs_what_is_random() -> None:
    runs = (analyze(world(), seed=seed, chosen=["projection_posterior"]) for seed in (1, 1, 2))
    one, same, other = (run.estimates["projection_posterior"].interval.values for run in runs)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


# --- the installed command, real data ---


@pytest.mark.slow
def test_a_frequentist_analysis_does_not_load_pymc(tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    script = (
        "import sys; from studies import __main__ as m; "
        f"sys.argv = ['cje-lab', 'analyze', {str(data)!r}, '--out', {str(tmp_path / 'out')!r}]\n"
        "try:\n    m.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "heavy = {'pymc', 'arviz', 'nutpie', 'pytensor', 'sklearn', 'distributed'} & set(sys.modules)\n"
        "print('heavy', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy []"


@pytest.mark.slow
def test_arena_sample(arena: Path, tmp_path: Path) -> None:
    """The acceptance figures of the main job; the second run is the quick one."""
    words = [arena / "fresh_draws", "--probes", arena / "probe_slice", "--out", tmp_path / "out"]
    assert run_installed(*words).returncode == 0
    start = time.perf_counter()
    done = run_installed(*words)
    wall = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "estimates.json").read_text())["policies"]
    direct = {name: policy["estimates"]["direct"] for name, policy in found.items()}
    assert abs(direct["base"]["estimate"] - 0.754) < 0.01
    for name in ("clone", "parallel_universe_prompt"):
        low, high = direct[name]["interval"]
        assert 0.74 < direct[name]["estimate"] < 0.79 and high - low < 0.06
        assert found[name]["transport"]["verdict"] != "FAIL" and found[name]["level"] == "reported"
    unhelpful = found["unhelpful"]
    assert unhelpful["transport"]["verdict"] == "FAIL" and unhelpful["transport"]["residual"] < -0.2
    assert unhelpful["level"] == "refused"
    low, high = unhelpful["estimates"]["direct_corrected"]["interval"]
    assert low < 0.159 < high  # the mean of its 50 probe labels
    assert f"{unhelpful['estimates']['direct_corrected']['estimate']:.3f} [" in done.stdout
    assert wall < 20, f"{wall:.1f} s"  # 6 s on an idle machine; the suite shares its cores


@pytest.mark.slow
def test_arena_sample_in_another_order(arena: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    for kind in ("fresh_draws", "probe_slice"):
        (tmp_path / kind).mkdir()
        for path in (arena / kind).iterdir():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            shuffled = "".join(lines[i] for i in rng.permutation(len(lines)))
            (tmp_path / kind / path.name).write_text(shuffled, encoding="utf-8")
    outputs = [
        run_installed(at / "fresh_draws", "--probes", at / "probe_slice").stdout for at in (arena, tmp_path)
    ]
    assert outputs[0] == outputs[1] and "refused" in outputs[0]
    shutil.rmtree(tmp_path / "fresh_draws")


def test_a_policy_without_an_estimate_has_no_level_to_report() -> None:
    result = analyze(world(labels=3))
    assert [result.level(p) for p in result.policies] == ["refused", "refused"]
    assert "does not transport" not in printed(result, 100)


def test_declared_direction_mends_an_inverted_judge(cli: Cli, tmp_path: Path) -> None:
    table = world()
    straight = to_json(analyze(table))["policies"]
    table["judge_score"] = 1 - table["judge_score"]
    turned = to_json(analyze(table, direction="decreasing"))["policies"]
    for policy, record in straight.items():
        for name in ("estimate", "std_error"):
            expected = pytest.approx(record["estimates"]["direct"][name], abs=1e-9)
            assert turned[policy]["estimates"]["direct"][name] == expected
    assert to_json(analyze(table))["policies"]["base"]["estimates"]["direct"]["status"] == "inverted_judge"
    code, _, err = cli(write(table, tmp_path / "data"), "--direction", "up")
    assert code == 2
    assert err == "cje-lab: --direction up: it must be increasing or decreasing\n"


def test_a_mirrored_judge_with_its_direction_declared_gives_the_same_numbers() -> None:
    """For every estimator that files can feed, whether it fits a calibrator or reads the score as it is."""
    chosen = [
        "direct",
        "raw_judge",
        "labels_only",
        "ppi",
        "ppi_plus_plus",
        "rogan_gladen",
        "bayes_rogan_gladen",
    ]
    table = world()
    table["oracle_label"] = (table["oracle_label"] > 0.3).astype(float).where(table["oracle_label"].notna())
    straight = analyze(table, chosen=chosen, judge_range=(0.2, 0.9))
    mirrored = table.assign(judge_score=(1.1 - table["judge_score"]).clip(0.2, 0.9))
    turned = analyze(mirrored, chosen=chosen, judge_range=(0.2, 0.9), direction="decreasing")
    for name in chosen:
        for variable in ("estimate", "interval"):
            np.testing.assert_allclose(
                turned.estimates[name][variable], straight.estimates[name][variable], atol=1e-9, err_msg=name
            )
    ignored = analyze(mirrored, chosen=["raw_judge"], judge_range=(0.2, 0.9)).estimates["raw_judge"]
    assert (np.abs(ignored["estimate"] - straight.estimates["raw_judge"]["estimate"]) > 0.01).any()
    assert to_json(turned)["manifest"]["direction"] == "decreasing"


# --- logged responses, covariates, advice ---


def test_arena_with_logs(arena: Path, cli: Cli, tmp_path: Path) -> None:
    """Raw ESS of the three policies, the gates they pass or fail, the guide's advice, and the refused level."""
    sources = (
        arena / "fresh_draws",
        "--probes",
        arena / "probe_slice",
        "--logged",
        arena / "logged_data.jsonl",
    )
    code, out, _ = cli(*sources, "--calibration-policy", "base", "--json", "--out", tmp_path / "out")
    assert code == 0
    found = json.loads(out)["policies"]
    ess = {name: policy["overlap"]["ess_fraction"] for name, policy in found.items()}
    assert ess["base"] is None and abs(ess["clone"] - 0.2146) < 0.001
    assert abs(ess["parallel_universe_prompt"] - 0.0034) < 5e-5 and abs(ess["unhelpful"] - 0.0078) < 5e-5
    assert found["clone"]["gates"]["ess"] == "warn"
    assert found["clone"]["gates"]["cap_sensitivity"] in ("pass", "warn")  # the cap curve reaches the gate
    assert found["base"]["gates"]["cap_sensitivity"] == "unknown"  # no log-probabilities
    assert not any(
        "drift" in policy["gates"] for policy in found.values()
    )  # nothing here could ring its alarm
    assert found["parallel_universe_prompt"]["gates"]["ess"] == found["unhelpful"]["gates"]["ess"] == "fail"
    assert all(
        policy["gates"]["ttc"] == "unknown" for policy in found.values()
    )  # the logs bring no token counts
    assert all(policy["recommended"]["estimator"] == "direct" for policy in found.values())
    assert found["unhelpful"]["recommended"]["alternative"] == "direct_corrected"
    assert [name for name, policy in found.items() if policy["level"] == "refused"] == ["unhelpful"]
    assert found["unhelpful"]["refused_by"] == ["transport"]
    assert {"snips", "calibrated_ips", "calibrated_dr_cpo", "stacked_dr"} <= set(found["clone"]["estimates"])
    drawn = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert {"ess_tails", "weights_clone", "overlap_unhelpful", "orthogonality_stacked_dr"} <= drawn
    code, out, _ = cli(*sources, "--calibration-policy", "base")
    words = " ".join(out.split())
    assert "blocked: ess 0.00342" in words and "use direct: fresh responses are at hand" in words


def test_covariates_reach_every_estimator(arena: Path) -> None:
    result = analyze(
        arena / "fresh_draws",
        logged=arena / "logged_data.jsonl",
        calibration_policy="base",
        covariates=["response_length"],
        chosen=["direct", "snips", "raw_judge"],
    )
    plain = analyze(arena / "fresh_draws", calibration_policy="base", chosen=["direct", "raw_judge"])
    assert result.reliability is not None and result.reliability.attrs["mode"] == "two_stage"
    assert result.reliability.attrs["oof_rmse"] < plain.reliability.attrs["oof_rmse"]  # type: ignore[union-attr]
    for name in ("direct", "snips"):
        assert json.loads(result.estimates[name].attrs["options"])["covariates"] == ["response_length"]
    np.testing.assert_array_equal(
        result.estimates["raw_judge"].estimate, plain.estimates["raw_judge"].estimate
    )


def test_an_unknown_calibrator_is_one_line(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli(write(world(), tmp_path / "data"), "--calibrator", "spline")
    assert code == 2 and err.strip() == (
        "cje-lab: --calibrator spline: use one of default, monotone, two_stage, auto"
    )
