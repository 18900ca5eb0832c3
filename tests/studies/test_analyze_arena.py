"""``cje-lab analyze`` on the Arena sample: the installed command, logged responses, covariates."""

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis import Cli, children_cpu, run_installed, world, write

from cje_core.calibration.calibrated import Calibration
from cje_core.workflow.analyze import analyze
from cje_sim.scenarios import clone_with_tf_noise, zipf_tilt
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.lines.cautions import ratio_calibration
from studies.cli.analysis.lines.notes import notes
from studies.cli.analysis.page import page


@pytest.mark.slow
def test_a_frequentist_analysis_loads_neither_pymc_nor_dask(tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    script = (
        "import sys; from studies import __main__ as m; "
        f"sys.argv = ['cje-lab', 'analyze', {str(data)!r}, '--out', {str(tmp_path / 'out')!r}]\n"
        "try:\n    m.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "heavy = ['pymc', 'arviz', 'nutpie', 'pytensor', 'sklearn', 'scipy.stats', 'dask', 'distributed']\n"
        "heavy += ['matplotlib.pyplot', 'statsmodels']\n"
        "print('heavy', [name for name in heavy if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy []"


@pytest.mark.slow
def test_arena_sample(arena: Path, cli: Cli, tmp_path: Path) -> None:
    """The acceptance figures of the main job; the second run finds all compiled."""
    words = [arena / "fresh_draws", "--probes", arena / "probe_slice", "--out", tmp_path / "out"]
    assert cli(*words)[0] == 0
    start = children_cpu()
    done = run_installed(*words)
    spent = children_cpu() - start
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "estimates.json").read_text())["policies"]
    direct = {name: policy["estimates"]["direct"] for name, policy in found.items()}
    assert abs(direct["base"]["estimate"] - 0.754) < 0.01
    for name in ("clone", "parallel_universe_prompt"):
        low, high = direct[name]["interval"]
        assert 0.74 < direct[name]["estimate"] < 0.79 and high - low < 0.06
        assert found[name]["transport"]["verdict"] != "FAIL" and found[name]["level"] == "reported"
        assert found[name]["value"]["from"] == "direct_corrected"
    unhelpful = found["unhelpful"]
    assert unhelpful["transport"]["verdict"] == "FAIL" and unhelpful["transport"]["residual"] < -0.2
    assert unhelpful["level"] == "reported" and unhelpful["value"]["from"] == "direct_corrected"
    low, high = unhelpful["value"]["interval"]
    assert low < 0.159 < high  # the mean of its 50 probe labels
    assert f"{unhelpful['estimates']['direct_corrected']['estimate']:.3f} [" in done.stdout
    assert spent < 20, f"{spent:.1f} s"  # 6 s of CPU on an idle machine


def test_the_table_in_the_readme_is_what_the_command_prints(arena: Path, cli: Cli) -> None:
    """Every number of the block, so that none can be typed in or left behind."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    [block] = [part for part in readme.split("```") if "rests on" in part and "[95% interval]" in part]
    number = re.compile(r"[-+]?\d\.\d{3}(?: \[\S+, \S+\])?")
    shown = number.findall(block)
    assert len(shown) >= 10
    code, out, _ = cli(arena / "fresh_draws", "--probes", arena / "probe_slice")
    assert code == 0
    table = out.split("difference")[0]
    assert [text for text in shown if text not in number.findall(table)] == []


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
    assert outputs[0] == outputs[1] and "FAIL" in outputs[0]
    shutil.rmtree(tmp_path / "fresh_draws")


@pytest.mark.slow
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
    share = {name: policy["overlap"]["max_share"] for name, policy in found.items()}
    assert {name for name, policy in found.items() if policy["online_check"]} == {
        name for name in found if (share[name] or 0) >= 10**-0.5 or (found[name]["overlap"]["hill"] or 9) < 1
    }
    assert found["parallel_universe_prompt"]["online_check"] and not found["clone"]["online_check"]
    assert found["base"]["gates"]["cap_sensitivity"] == "unknown"  # no log-probabilities
    assert not any(
        "drift" in policy["gates"] for policy in found.values()
    )  # nothing here could ring its alarm
    assert found["parallel_universe_prompt"]["gates"]["ess"] == found["unhelpful"]["gates"]["ess"] == "fail"
    assert all(
        policy["gates"]["ttc"] == "unknown" for policy in found.values()
    )  # the logs bring no token counts
    assert found["unhelpful"]["recommended"]["estimator"] == "direct_corrected"
    assert {policy["level"] for policy in found.values()} == {"reported"}
    assert {name: policy["source"] for name, policy in found.items() if policy["source"] != "probes"} == {
        "base": "own"
    }
    assert {"snips", "calibrated_ips", "calibrated_dr_cpo", "stacked_dr"} <= set(found["clone"]["estimates"])
    drawn = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert {"ess_tails", "weights_clone", "overlap_unhelpful", "orthogonality_stacked_dr"} <= drawn
    code, out, _ = cli(*sources, "--calibration-policy", "base")
    words = " ".join(out.split())
    assert (
        "Before acting on its weighted logs, let parallel_universe_prompt answer a small random share"
        in words
    )
    assert "blocked: ess 0.00342" in words and "use direct: fresh responses are at hand" in words


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [("calibrated_ips", "dr_cpo"), ("direct", "calibrated_ips"), ("calibrated_ips",)]
)
def test_cap_gate_is_known_where_an_estimate_knows_it(arena: Path, chosen: tuple[str, ...]) -> None:
    """A doubly robust estimate without a guard beside it takes nothing away."""
    found = analyze(arena / "fresh_draws", logged=arena / "logged_data.jsonl", chosen=chosen)
    engaged = found.estimates["calibrated_ips"]["guard_engaged"]
    known = engaged.notnull().values
    assert known.sum() == len(known) - 1  # all but the policy without logged likelihoods
    state = found.gates["state"].sel(gate="cap_engaged").values
    assert (state == np.where(known, np.where(engaged > 0.5, "warn", "pass"), "unknown")).all()
    assert ((found.gates["state"].sel(gate="cap_sensitivity") != "unknown").values == known).all()


@pytest.mark.slow
def test_covariates_reach_every_estimator(arena: Path) -> None:
    result = analyze(
        arena / "fresh_draws",
        logged=arena / "logged_data.jsonl",
        calibration_policy="base",
        calibration=Calibration(["response_length"]),
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


@pytest.mark.slow
def test_verdicts_on_log_ratios_are_told_everywhere() -> None:
    """Terminal, page and JSON say that the ratios of a copy with errors are wrong; exact ones have no error found."""
    wrong = clone_with_tf_noise.simulate(n=400, rng=1)
    exact = zipf_tilt.simulate(n=400, length=200, rng=1)
    short = zipf_tilt.simulate(n=400, length=10, rng=1)
    for data, policy, verdict, words in (
        (wrong, "clone", "wrong", "wrong. Weighted logs and fresh responses differ in the test function"),
        (exact, "tilt_0.5", "undecided", "cannot be checked: by these ratios next to none"),
        (short.drop_vars("log_ratio"), "tilt_0.1", "consistent", "no error found from the logs alone"),
        (short, "tilt_0.1", "consistent", "no error found; the weighted logs agree"),
        (exact.drop_vars("log_ratio"), "tilt_0.5", "undecided", "too small, or the logs lack coverage"),
    ):
        analysis = analyze(data, chosen=["direct"])
        told = to_json(analysis)
        assert told["policies"][policy]["ratio_calibration"]["verdict"] == verdict
        lines = ratio_calibration(analysis)
        assert any(policy in line and words in line for line in lines), lines
        assert set(lines) <= set(str(notes(analysis)[0]).splitlines())
        shown = page(analysis, told, {}, []).decode()
        assert f"{lines[0][0].upper()}{lines[0][1:]}." in html.unescape(shown)
