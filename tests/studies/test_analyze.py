"""``cje-lab analyze``: its table, JSON and plot; bad input; statistical failure; order of rows and files."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from rich.console import Console

from studies import __main__ as command_line
from studies._analyze import analyze
from studies._analyze_json import to_json
from studies._save import check_out, save
from studies._summary import summary

Frame = pd.DataFrame


def world(
    n: int = 60, *, labels: int = 40, policies: tuple[str, ...] = ("base", "other"), seed: int = 3
) -> Frame:
    """Evaluation table: S on a grid, Y = S^2 plus noise; the first policy has labels."""
    rng = np.random.default_rng(seed)
    parts = []
    for k, policy in enumerate(policies):
        score = rng.integers(2, 10, n) / 10
        label = np.clip(score**2 + rng.normal(0, 0.05, n), 0, 1)
        label[labels if k == 0 else 0 :] = np.nan
        parts.append(
            Frame({"policy": policy, "prompt_id": range(n), "judge_score": score, "oracle_label": label})
        )
    return pd.concat(parts, ignore_index=True)


def probes(table: Frame, policy: str, m: int, shift: float) -> Frame:
    """Labels of the first m responses of a policy, off the relation by `shift`."""
    rows = table[table["policy"] == policy].head(m).copy()
    noise = np.random.default_rng(5).normal(0, 0.02, m)
    rows["oracle_label"] = np.clip(rows["judge_score"] ** 2 + shift + noise, 0, 1)
    return rows


def write(table: Frame, directory: Path, name: str = "{policy}_responses.jsonl") -> Path:
    """Write a table in the directory format."""
    directory.mkdir(parents=True, exist_ok=True)
    for policy, rows in table.groupby("policy", sort=False):
        records = rows.drop(columns="policy").to_dict("records")
        lines = [json.dumps({k: v for k, v in r.items() if v == v}) for r in records]
        (directory / name.format(policy=policy)).write_text("".join(line + "\n" for line in lines))
    return directory


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process; gives exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cje-lab", "analyze", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


Cli = Callable[..., tuple[int, str, str]]


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


def printed(result: Any, width: int) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(summary(result))
    return capture.get()


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


# --- statistical failure is data ---


def few_labels(table: Frame) -> Frame:
    table.loc[3:59, "oracle_label"] = np.nan
    return table


def constant_judge(table: Frame) -> Frame:
    return table.assign(judge_score=0.5)


def equal_labels(table: Frame) -> Frame:
    table.loc[table["oracle_label"].notna(), "oracle_label"] = 0.5
    return table


def inverted_judge(table: Frame) -> Frame:
    return table.assign(judge_score=1 - table["judge_score"])


def no_labels(table: Frame) -> Frame:
    return table.assign(oracle_label=np.nan)


@pytest.mark.parametrize(
    ("break_it", "status", "has_value"),
    [
        (few_labels, "too_few_labels", False),
        (constant_judge, "constant_judge", True),
        (equal_labels, "constant_labels", True),
        (inverted_judge, "inverted_judge", True),
        (no_labels, "no_labels", False),
    ],
)
def test_statistical_failure_is_named_in_table_json_and_plot(
    cli: Cli, tmp_path: Path, break_it: Callable[[Frame], Frame], status: str, has_value: bool
) -> None:
    data = write(break_it(world()), tmp_path / "data")
    code, out, err = cli(data, "--out", tmp_path / "out")
    assert code == 0 and "Traceback" not in err
    assert status in out and "Message" not in out
    result = json.loads((tmp_path / "out" / "estimates.json").read_text())["policies"]
    direct = result["base"]["estimates"]["direct"]
    assert direct["status"] == status and status in result["base"]["flags"]
    assert (direct["estimate"] is not None) == has_value
    for policy in ("base", "other"):
        assert result[policy]["estimates"]["raw_judge"]["estimate"] is not None
    assert named_in_plot(analyze(data), status)


def named_in_plot(result: Any, status: str) -> bool:
    """Whether a line of the forest plot carries the status as text."""
    return status in in_plot(result)


def in_plot(result: Any) -> str:
    """Numbers and words beside the lines of the forest plot."""
    from matplotlib.figure import Figure

    from studies import _forest

    figure = Figure()
    _forest._draw(result, _forest._lines(result), figure)
    axes = figure.axes[0]
    texts = [label.get_text() for child in axes.child_axes for label in child.get_yticklabels()]
    return "\n".join(texts)


def test_failure_of_one_policy_leaves_the_others_alone() -> None:
    """A policy whose own labels are all equal is flagged; the labels of another still teach."""
    table = world(policies=("base", "other", "third"))
    own = table["policy"] == "third"
    table.loc[own, "oracle_label"] = np.where(np.arange(own.sum()) < 3, 0.5, np.nan)
    found = to_json(analyze(table, calibration_policy="base"))["policies"]
    assert found["third"]["estimates"]["labels_only"]["status"] == "too_few_labels"
    assert found["third"]["estimates"]["direct"]["estimate"] is not None
    for policy in ("base", "other"):
        assert found[policy]["estimates"]["direct"]["estimate"] is not None


def test_names_that_matplotlib_or_rich_could_misread(tmp_path: Path) -> None:
    names = ("$a^2$", "[bold]b[/bold]", "模型", "x_y%z")
    result = analyze(world(policies=names))
    save(result, tmp_path / "out")
    text = printed(result, 120)
    for name in names:
        assert name in text


# --- bad input: one line on stderr, exit code 2, nothing written ---


def bad_missing_file(data: Path) -> list[object]:
    return [data / "nowhere"]


def bad_empty_file(data: Path) -> list[object]:
    (data / "x.jsonl").write_text("")
    return [data / "x.jsonl"]


def bad_json(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text("{nope\n")
    return [data]


def bad_missing_score(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1}\n')
    return [data]


def bad_score(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": 1.5}\n')
    return [data]


def bad_label(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": 1, "oracle_label": -1}\n')
    return [data]


def bad_nan(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": NaN}\n')
    return [data]


def bad_duplicate(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_text('{"prompt_id": 1, "judge_score": 1}\n' * 2)
    return [data]


def bad_probe(data: Path) -> list[object]:
    return [data, "--probes", data]


def bad_silent_policy(data: Path) -> list[object]:
    (data / "silent_responses.jsonl").write_text("\n")
    return [data]


def bad_mixed_scales(data: Path) -> list[object]:
    table = world().query("policy == 'other'").assign(judge_score=lambda t: 100 * t["judge_score"])
    write(table, data)
    return [data]


def bad_encoding(data: Path) -> list[object]:
    (data / "other_responses.jsonl").write_bytes(b'{"prompt_id": "caf\xe9", "judge_score": 1}\n')
    return [data]


def bad_directory(data: Path) -> list[object]:
    (data / "sub").mkdir()
    return [data / "sub"]


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (bad_missing_file, ["nowhere", "no such file", "check the path"]),
        (bad_empty_file, ["x.jsonl", "is empty", "at least one response"]),
        (bad_json, ["other_responses.jsonl, row 1", "not JSON", "one JSON object per line"]),
        (bad_missing_score, ["other_responses.jsonl, row 1", "judge_score is missing", "judge the response"]),
        (bad_score, ["other_responses.jsonl, row 1", "judge_score is 1.5", "--judge-range LOW HIGH"]),
        (bad_label, ["other_responses.jsonl, row 1", "oracle_label is -1", "--oracle-range LOW HIGH"]),
        (bad_nan, ["other_responses.jsonl, row 1", "judge_score is missing or NaN", "judge the response"]),
        (bad_duplicate, ["other_responses.jsonl, row 2", "prompt_id '1'", "draw_idx"]),
        (bad_probe, ["base_responses.jsonl, row 1", "oracle_label", "used to fit", "remove one"]),
        (bad_silent_policy, ["silent_responses.jsonl", "policy 'silent' has no rows", "remove it"]),
        (bad_mixed_scales, ["other_responses.jsonl, row 1", "judge_score", "mixed scales", "one scale"]),
        (bad_encoding, ["other_responses.jsonl, row 1", "not UTF-8", "save the file as UTF-8"]),
        (bad_directory, ["sub", "{policy}_responses.jsonl", "give the directory"]),
        (lambda d: [d, "--calibration-policy", "gold"], ["--calibration-policy gold", "base, other"]),
        (lambda d: [d, "--estimator", "oracle_of_delphi"], ["--estimator oracle_of_delphi", "labels_only"]),
        (lambda d: [d, "--margin", "-1"], ["--margin -1", "positive"]),
        (lambda d: [d, "--borrowed", "stolen"], ["--borrowed stolen", "plug_in, one_step"]),
        (lambda d: [d, *["--covariate", "response_length"] * 2], ["response_length is given twice"]),
        (lambda d: [d, "--covariate", "judge_score"], ["covariate judge_score", "meaning of its own"]),
        (lambda d: [d, "--judge-range", "1", "0"], ["--judge-range 1 0", "LOW below HIGH"]),
        (lambda d: [d, "--judge-range", "zero", "1"], ["--judge-range"]),
        (lambda d: [d, "--logged", d / "gone.jsonl"], ["gone.jsonl", "no such file"]),
        (lambda d: [], ["DATA"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    cli: Cli, tmp_path: Path, make: Callable[[Path], list[object]], parts: list[str]
) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(*make(data), "--out", tmp_path / "out")
    assert code == 2 and out == ""
    assert len(err.splitlines()) == 1 and err.startswith("cje-lab: "), err
    for part in parts:
        assert part in err
    assert not (tmp_path / "out").exists()


def test_out_that_is_a_file(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    (tmp_path / "taken").write_text("mine")
    for out in (tmp_path / "taken", tmp_path / "taken" / "deeper"):
        code, _, err = cli(data, "--out", out)
        assert code == 2 and "is a file" in err and len(err.splitlines()) == 1
    assert (tmp_path / "taken").read_text() == "mine"
    check_out(tmp_path / "new" / "deep")


def test_left_out_rows_are_counted(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    (data / "notes.jsonl").write_text("{}\n")
    code, out, _ = cli(data)
    assert code == 0 and "left out: 1" in out
    left_out = json.loads(cli(data, "--json")[1])["manifest"]["left_out"]
    assert [entry["file"] for entry in left_out] == [str(data / "notes.jsonl")]


# --- the installed command, real data ---


def run_installed(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "studies", "analyze", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


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


# --- posteriors beside the estimates ---


def believed(table: Frame, **options: Any) -> Any:
    """An analysis with posteriors, and probes of the second policy if there are any."""
    return analyze(table, bayes="gibbs", **options)


def test_posteriors_stand_beside_the_estimates_in_table_json_and_files(cli: Cli, tmp_path: Path) -> None:
    table = world(200, labels=150)
    data = write(table, tmp_path / "data")
    audit = write(probes(table, "other", 60, -0.3), tmp_path / "probes", "{policy}_probe.jsonl")
    code, out, _ = cli(data, "--probes", audit, "--bayes", "--json", "--out", tmp_path / "out")
    assert code == 0
    result = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    other = result["policies"]["other"]
    assert list(other["estimates"]) == [
        "raw_judge", "labels_only", "direct", "direct_corrected", "bayes_direct", "bayes_corrected"
    ]  # fmt: skip
    posterior = other["posterior"]
    assert posterior["value_from"] == "bayes_corrected" and posterior["p_shift_within_margin"] < 0.01
    assert -0.4 < posterior["shift"] < -0.2 and posterior["p_best"] < 0.01
    base = result["policies"]["base"]["posterior"]
    assert base["value_from"] == "bayes_direct" and base["p_best"] > 0.99 and base["shift"] is None
    assert base["status"] == {"bayes_direct": "ok", "bayes_corrected": "no_probes"}
    assert result["manifest"]["bayes_engine"] == "gibbs"
    assert (tmp_path / "out" / "posterior.nc").exists()
    text = cli(data, "--probes", audit, "--bayes")[1]
    for words in ("posterior", "P(best)", "P(|shift|", "level refused", "<0.001"):
        assert words in text
    value = other["estimates"]["bayes_corrected"]
    assert f"{value['estimate']:.3f} [{value['interval'][0]:.3f}, {value['interval'][1]:.3f}]" in text


def test_without_bayes_nothing_of_it_is_shown() -> None:
    result = analyze(world())
    record = to_json(result)
    assert record["policies"]["base"]["posterior"] is None and record["manifest"]["bayes_engine"] is None
    assert "posterior" not in printed(result, 100) and "bayes_direct" not in result.estimates


def test_posteriors_change_no_other_number() -> None:
    alone, together = analyze(world()), believed(world())
    for name, estimate in alone.estimates.items():
        assert estimate.identical(together.estimates[name])


def test_draws_of_both_posteriors_are_joint() -> None:
    """The corrected draw is the plug-in draw of the same replicate plus the shift: f and the weights are shared."""
    table = world(200, labels=150)
    result = believed(table, probes=probes(table, "other", 60, -0.1))
    value, corrected = (result.posterior.estimates[name] for name in ("bayes_direct", "bayes_corrected"))
    at = {"policy": "other"}
    assert value["route"].sel(at).item() == "plug_in"
    np.testing.assert_allclose(
        corrected["draws"].sel(at), value["draws"].sel(at) + corrected["shift_draws"].sel(at), atol=1e-12
    )
    reported = np.stack([value["draws"].sel(policy="base"), corrected["draws"].sel(at)])
    assert float(result.posterior.decision["best"].sel(policy="base")) == (reported[0] > reported[1]).mean()


def test_the_margin_is_on_the_oracle_scale() -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.05)
    unit = believed(table, probes=audit, margin=0.06)
    table["oracle_label"] *= 100
    audit["oracle_label"] *= 100
    wide = believed(table, probes=audit, margin=6.0, oracle_range=(0, 100))
    shares = [float(r.posterior.decision["within_margin"].sel(policy="other")) for r in (unit, wide)]
    assert shares[0] == shares[1] and 0.1 < shares[0] < 0.9


def test_too_few_labels_give_no_probabilities_and_say_so(tmp_path: Path) -> None:
    table = world(60, labels=8)
    result = believed(table, probes=probes(table, "other", 20, 0.0))
    record = to_json(result)["policies"]
    for policy in ("base", "other"):
        value = record[policy]["estimates"]["bayes_direct"]
        assert value["status"] == "few_labels_posterior" and value["interval"] == [None, None]
        assert record[policy]["posterior"]["p_best"] is None
        assert record[policy]["posterior"]["p_shift_within_margin"] is None
    assert record["other"]["estimates"]["bayes_corrected"]["interval"] == [None, None]
    text = printed(result, 100)
    assert text.count("few_labels_posterior") >= 3 and "label more" in text
    assert named_in_plot(result, "few_labels_posterior")
    save(result, tmp_path / "out")


def test_a_sampler_that_did_not_converge_is_flagged_wherever_its_numbers_appear(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import xarray as xr

    from cje_core.estimators import _bayes
    from cje_core.result import Status

    sound = _bayes.calibrate
    monkeypatch.setattr(_bayes, "calibrate", lambda *a, **k: (sound(*a, **k)[0], Status.NOT_CONVERGED))
    table = world(200, labels=150)
    result = believed(table, probes=probes(table, "other", 60, 0.0))
    record = to_json(result)["policies"]["other"]
    for name in ("bayes_direct", "bayes_corrected"):
        assert record["estimates"][name]["status"] == record["posterior"]["status"][name] == "not_converged"
    refused = believed(table, probes=probes(table, "other", 60, -0.3))
    assert refused.refused("other") and in_plot(refused).count("level refused  not_converged") == 1
    text = printed(result, 100)
    assert (
        text.count("not_converged") == 4
    )  # base, other, other corrected, and the line that says what it means
    assert "did not converge" in text and named_in_plot(result, "not_converged")
    save(result, tmp_path / "out")
    with xr.open_datatree(tmp_path / "out" / "posterior.nc", engine="netcdf4") as tree:
        codes = tree["posterior"]["value_status"]
        assert (codes == Status.NOT_CONVERGED).all() and "not_converged" in codes.attrs["flag_meanings"]


def test_colours_of_the_forest_plot_do_not_depend_on_what_else_runs() -> None:
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    from studies import _forest

    def colours(result: Any) -> dict[str, tuple[str, str]]:
        figure = Figure()
        _forest._draw(result, _forest._lines(result), figure)
        handles = figure.legends[0].legend_handles
        return {h.get_label(): (to_hex(h.get_color()), h.get_marker()) for h in handles}

    alone, together = colours(analyze(world())), colours(believed(world()))
    assert alone.items() <= together.items() and len(set(together.values())) == len(together)
    assert together["posterior"][0] == together["direct"][0]


def test_an_engine_without_posteriors_is_one_line(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(data, "--bayes-engine", "nutpie", "--out", tmp_path / "out")
    assert (code, out) == (2, "") and not (tmp_path / "out").exists()
    assert err == "cje-lab: --bayes-engine nutpie: it samples the posteriors of --bayes; add --bayes\n"


def test_the_margin_reaches_a_posterior_that_is_chosen_by_name() -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.05)
    for margin, expected in ((0.02, 0.02), (None, 0.05)):
        found = analyze(table, probes=audit, margin=margin, chosen=["direct", "bayes_corrected"])
        options = json.loads(found.estimates["bayes_corrected"].attrs["options"])
        assert options["margin"] == pytest.approx(expected)


def test_an_unknown_engine_is_one_line(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(data, "--bayes", "--bayes-engine", "stan", "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err == "cje-lab: --bayes-engine stan: use one of gibbs, nutpie, pymc\n"


@pytest.mark.slow
def test_saved_draws_are_readable_by_arviz(tmp_path: Path) -> None:
    import arviz as az

    table = world(200, labels=150)
    save(believed(table, probes=probes(table, "other", 60, -0.1)), tmp_path / "out")
    trace = az.from_netcdf(tmp_path / "out" / "posterior.nc")
    posterior = trace["posterior"]
    assert posterior["value"].dims == ("chain", "draw", "policy")
    known = posterior["corrected_value"].sel(policy="other") - posterior["shift"].sel(policy="other")
    np.testing.assert_allclose(known, posterior["value"].sel(policy="other"), atol=1e-12)
    assert float(trace["constant_data"]["best"].sum()) == pytest.approx(1)


@pytest.mark.slow
def test_the_fast_sampler_loads_no_pymc(tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    script = (
        "import sys; from studies import __main__ as m; "
        f"sys.argv = ['cje-lab', 'analyze', {str(data)!r}, '--bayes', '--out', {str(tmp_path / 'out')!r}]\n"
        "try:\n    m.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "print('heavy', sorted({'pymc', 'arviz', 'nutpie', 'pytensor'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy []"


@pytest.mark.slow
def test_posteriors_of_the_arena_sample(arena: Path, tmp_path: Path) -> None:
    words = [
        arena / "fresh_draws",
        "--probes",
        arena / "probe_slice",
        "--calibration-policy",
        "base",
        "--bayes",
    ]
    start = time.perf_counter()
    done = run_installed(*words, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    cold = time.perf_counter() - start
    found = json.loads((tmp_path / "out" / "estimates.json").read_text())["policies"]
    assert abs(found["base"]["estimates"]["bayes_direct"]["estimate"] - 0.754) < 0.01
    unhelpful = found["unhelpful"]["posterior"]
    assert -0.36 < unhelpful["shift"] < -0.15 and unhelpful["p_shift_within_margin"] < 0.01
    assert unhelpful["p_best"] == 0
    low, high = found["unhelpful"]["estimates"]["bayes_corrected"]["interval"]
    assert low < 0.159 < high  # the mean of its 50 probe labels
    for name in ("clone", "parallel_universe_prompt"):
        assert found[name]["posterior"]["p_shift_within_margin"] > 0.85
    assert sum(policy["posterior"]["p_best"] for policy in found.values()) == pytest.approx(1)
    assert cold < 90, f"{cold:.0f} s"  # 5 s on an idle machine
