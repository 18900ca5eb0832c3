"""The command line: list, run, status, report; its errors are one line and exit code 2; light imports."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import toy_study

import cje_core
from cje_core import estimators
from cje_sim import scenarios
from studies import benchmarks, claims
from studies.cli import app as command_line
from studies.cli.options import in_options
from studies.engine import study
from studies.engine.running import directory
from studies.report import plots

ROOT = Path(command_line.__file__).parents[2]
HEAVY = ("pymc", "arviz", "nutpie", "numba", "xarray", "scipy", "statsmodels", "pandas", "matplotlib")


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command in this process; gives exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def with_toy(monkeypatch):
    """The toy, with its crashing world, in the registry."""
    load = study.load
    for where in (study, directory):
        monkeypatch.setattr(
            where, "load", lambda name: toy_study.STUDY if name == "toy_study" else load(name)
        )


def test_list_names_everything(cli):
    code, out, err = cli("list", "--json")
    assert (code, err) == (0, "")
    found = {kind: [entry["name"] for entry in entries] for kind, entries in json.loads(out).items()}
    assert found == {
        "studies": study.available(),
        "scenarios": scenarios.available(),
        "estimators": estimators.available(),
        "claims": claims.available(),
        "benchmarks": benchmarks.available(),
        "plots": plots.available(),
    }
    assert all(entry["summary"] for entries in json.loads(out).values() for entry in entries)
    code, text, _ = cli("list")
    assert code == 0 and all(f"  {name} " in text for names in found.values() for name in names)


def test_groups_of_studies_are_what_their_files_state(cli):
    """The Makefile names no study: it asks."""
    names = study.available()
    stated = {name: getattr(importlib.import_module(f"studies.{name}"), "RUN_GROUPS", ()) for name in names}
    makefile = re.sub(r"(?m)^#.*", "", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert not set(re.findall(r"\w+", makefile)) & set(names)
    for group in {group for groups in stated.values() for group in groups}:
        code, out, _ = cli("list", "--group", group)
        assert (code, out.split()) == (0, [name for name in names if group in stated[name]])
        assert f"$(call STUDIES,{group})" in makefile
    assert cli("list", "--group", "none")[0] == 2


@pytest.mark.parametrize("words", [["list"], ["list", "--group", "pages"], ["--help"], ["run", "--help"]])
def test_list_and_help_import_nothing_heavy(words):
    script = (
        "import sys\nfrom studies.cli.app import main\n"
        f"sys.argv = ['cje-lab', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_console_script_is_the_module():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["cje-lab"] == "studies.__main__:main"
    done = subprocess.run(
        [sys.executable, "-m", "studies", "list"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.startswith("studies:")


def test_what_the_readme_points_to_exists():
    """Functions of its table, and the target that makes the environment."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.split("| What for | Where |")[1].split("\n\n")[0]
    paths = [
        path
        for row in re.findall(r"^\| .* \| (.*) \|$", table, re.M)
        for path in re.findall(r"`([a-z_.0-9]+)`", row)
    ]
    assert len(paths) > 10
    for path in paths:
        module, _, name = path.rpartition(".")
        assert callable(getattr(importlib.import_module(f"cje_core.{module}"), name)), path
    options = re.findall(r"`(estimators\.\w+)\.estimate`: `(\w+)=", text)
    assert len(options) > 2
    for module, option in options:
        known = inspect.signature(importlib.import_module(f"cje_core.{module}").estimate).parameters
        assert option in known, (module, option)
    assert "make install && . .venv/bin/activate" in text
    assert "\ninstall: " in (ROOT / "Makefile").read_text()


@pytest.mark.slow
def test_run_status_report(cli, with_toy, tmp_path):
    words = ("run", "toy_study", "--profile", "smoke", "--jobs", 1, "--out", tmp_path, "--set", "world=plain")
    code, out, err = cli(*words)
    assert code == 0 and err == ""
    assert (
        "toy_study: A toy\n" in out
        and "\nA toy, value (MCSE)\n" in out
        and f"results in {tmp_path}/toy_study/results.nc" in out
    )
    assert "20 replicates run, 0 found" in out
    code, out, _ = cli(*words)
    assert "0 replicates run, 20 found" in out
    code, out, _ = cli("status", tmp_path)
    assert code == 0 and "20 of 20 replicates in 2 cells" in out and "finished" in out
    code, out, _ = cli("report", tmp_path)
    assert code == 0 and out.rstrip().endswith(f"report: {tmp_path / 'report.html'}")
    assert (tmp_path / "report.html").exists() and (tmp_path / "toy_study/performance.csv").exists()
    code, out, _ = cli("report", tmp_path / "toy_study", "--json")
    assert json.loads(out)["report"] == str(tmp_path / "toy_study/report.html")


def test_exceptions_in_replicates_are_reported_and_set_the_exit_code(cli, with_toy, tmp_path):
    code, out, err = cli("run", "toy_study", "--profile", "smoke", "--jobs", 1, "--out", tmp_path, "--json")
    assert code == 1 and err == ""
    (found,) = json.loads(out)
    assert found["crashes"] == 2 and found["replicates_run"] == 40
    (rows,) = found["tables"].values()
    names = {f"{name}{end}" for name in ("bias", "coverage", "refused", "failed") for end in ("", "_mcse")}
    assert {"world", "n", "method", "policy"} | names == set(rows[0])
    assert rows[2]["method"] == "none" and rows[2]["coverage"] is None
    code, out, _ = cli("run", "toy_study", "--profile", "smoke", "--jobs", 1, "--out", tmp_path)
    assert code == 1 and "2 exceptions were kept as data, the first: ZeroDivisionError: planted" in out
    code, out, _ = cli("status", tmp_path, "--json")
    assert json.loads(out)[0]["crashes"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nosuch"], "no study named 'nosuch'; there are: "),
        (["run", "toy_study", "--profile", "huge"], "unknown profile 'huge'; there are: smoke, quick, paper"),
        (
            ["run", "toy_study", "--set", "m=1"],
            "toy_study has no factor 'm'; write factor=v1,v2 with one of: world, n",
        ),
        (["run", "toy_study", "--set", "n"], "write factor=v1,v2"),
        (["run", "toy_study", "--set", "n=4,many"], "'many' is not a whole number, as the levels are"),
        (["run", "toy_study", "--set", "n=4,4"], "factor n has no level or a level twice"),
        (["run", "toy_study", "--set", "world=moon"], "'moon' is not a level; there are: plain, crash"),
        (["run", "interval_coverage", "--set", "n=250,-5"], "n=-5: a world has a whole number of prompts"),
        (
            ["run", "stacking", "--set", "shift=-1"],
            "cannot be simulated: shift=-1.0, noise_sd=1.45",
        ),
        (
            ["run", "transport_audit", "--set", "probes=-3"],
            "n_probes=-3: the probes of a policy are a whole number",
        ),
        (["run", "cle_bound", "--set", "length=0"], "length=0: it must be at least 1; give other levels"),
        (
            ["run", "ttc_collapse", "--set", "length=25,-5"],
            "length=-5: it must be at least 1; give other levels",
        ),
        (["run", "judge_information", "--set", "loss=-3"], "no cell of the grid is left at these levels"),
        (
            ["run", "real_data", "--set", "labels=-2"],
            "labels=-2 cannot be simulated: oracle_fraction=-0.008: a share",
        ),
        (["run", "toy_study", "--seed", "-1"], "--seed"),
        (["run", "toy_study", "--jobs", "0"], "--jobs"),
        (["run", "toy_study", "--nosuch"], "--nosuch"),
        (["nosuch"], "nosuch"),
        (["status", "OUT"], "holds no study (no manifest.json)"),
        (["report", "OUT"], "holds no study (no manifest.json)"),
        (["report", "OUT/file"], "holds no study (no manifest.json)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(cli, with_toy, tmp_path, words, message):
    (tmp_path / "file").write_text("")
    words = [word.replace("OUT", str(tmp_path)) for word in words]
    out_option = ["--out", tmp_path / "new"] if words[0] == "run" else []
    code, out, err = cli(*words, *out_option)
    assert (code, out) == (2, "")
    assert err.startswith("cje-lab: ") and len(err.strip().splitlines()) == 1 and message in err, err
    assert not (tmp_path / "new").exists()


def test_an_out_that_cannot_be_written(cli, with_toy, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli("run", "toy_study", "--profile", "smoke", "--out", tmp_path / "file")
    assert code == 2 and "cannot write to" in err and len(err.splitlines()) == 1


def test_another_seed_is_not_mixed(cli, with_toy, tmp_path):
    words = ("run", "toy_study", "--profile", "smoke", "--jobs", 1, "--out", tmp_path, "--set", "world=plain")
    assert cli(*words)[0] == 0
    code, _, err = cli(*words, "--seed", 2)
    assert code == 2 and "made with seed 1, not 2" in err and len(err.splitlines()) == 1


def test_a_report_needs_results(cli, with_toy, tmp_path):
    assert cli("run", "toy_study", "--profile", "smoke", "--jobs", 1, "--out", tmp_path)[0] == 1
    (tmp_path / "toy_study/results.nc").unlink()
    code, _, err = cli("report", tmp_path)
    assert code == 2 and "finish the run (the same command resumes it)" in err
    (tmp_path / "toy_study/manifest.json").write_text("{")
    code, _, err = cli("status", tmp_path)
    assert code == 2 and "manifest.json is not readable JSON" in err and len(err.splitlines()) == 1


def test_numbers_of_a_factor_may_be_new(cli, with_toy, tmp_path):
    code, out, _ = cli(
        "run",
        "toy_study",
        "--profile",
        "smoke",
        "--jobs",
        1,
        "--out",
        tmp_path,
        "--set",
        "world=plain",
        "--set",
        "n=9,25",
    )
    assert code == 0 and re.search(r"^plain +9 +z ", out, re.M) and re.search(r"^plain +25 +z ", out, re.M)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("direction='up': use one of a, b", "--direction up: use one of a, b"),
        ('chosen="it\'s": no such estimator', "--estimator it's: no such estimator"),
        ("judge_range=(1, 0): LOW below HIGH", "--judge-range 1 0: LOW below HIGH"),
        ("declare it with judge_range=(LOW, HIGH)", "declare it with --judge-range LOW HIGH"),
        ("logged= takes one file; leave logged= out", "--logged takes one file; leave --logged out"),
        ("give logged=FILE", "give --logged FILE"),
        ("n_policies=0: at least 1", "--policies 0: at least 1"),
        ("cost_oracle=nan: positive", "--cost-oracle nan: positive"),
        ("budget=1e+06: too small", "--budget 1e+06: too small"),
        ("bayes='stan': use one of gibbs", "--bayes-engine stan: use one of gibbs"),
    ],
)
def test_arguments_of_the_library_are_read_as_options(said, read):
    assert in_options(said, command_line._options()) == read


@pytest.mark.parametrize(
    "own", ["margin=3/fresh: no such file", "/x/seed=3.jsonl: no such file", "power=up.csv: b"]
)
def test_a_users_own_words_stay_as_they_are(own):
    assert in_options(own, command_line._options()) == own


@pytest.mark.slow
def test_no_message_of_the_library_speaks_of_an_option():
    """Docstrings may: they say which command a module serves."""
    root = Path(cje_core.__file__).parent
    spoken = []
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        spoken += [
            f"{path.relative_to(root)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in bare
            and re.search(r"(?<![-\w])--[a-z]", node.value)
        ]
    assert spoken == []
