"""The process: Ctrl-C at any moment is one line and exit code 130; the version; no escape sequences; what it loads."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from analysis import probes, world, write

import studies.__main__ as program
from studies.cli import app


def stopped(*_, **__):
    raise KeyboardInterrupt


def test_inside_a_command(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("cje_core.workflow.analyze.analyze", stopped)
    assert cli(write(world(), tmp_path)) == (130, "", "cje-lab: interrupted\n")


def test_outside_of_every_command(monkeypatch, capsys):
    """While libraries are imported, and between typer and the end."""
    for where in ("_command", "_one_line"):
        monkeypatch.setattr(app, where, stopped)
        with pytest.raises(SystemExit) as left:
            program.main()
        assert left.value.code == 130 and capsys.readouterr().err == "cje-lab: interrupted\n"
    monkeypatch.setattr(app, "main", stopped)
    with pytest.raises(SystemExit) as left:
        program.main()
    assert left.value.code == 130 and capsys.readouterr().err == "cje-lab: interrupted\n"


def test_before_the_program_is_imported():
    script = (
        "import sys; sys.argv = ['/usr/bin/cje-lab']; import builtins; real = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'cje_core': raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = stop\n"
        "import studies\n"
    )
    root = Path(app.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.stderr == "cje-lab: interrupted\n" and done.returncode != 0


def test_the_version_is_that_of_the_installed_package(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cje-lab", "--version"])
    with pytest.raises(SystemExit) as left:
        app.main()
    assert not left.value.code and capsys.readouterr().out == f"cje-lab {metadata.version('cje-lab')}\n"


def test_no_escape_sequence_reaches_the_terminal(cli, tmp_path):
    code, out, err = cli(tmp_path / "\x1b[31mred\x07")
    assert code == 2 and out == "" and "\x1b" not in err and "\\x1b[31mred\\x07" in err


ONE_BY_ONE = """
import json, sys
from studies.__main__ import main

for words in json.loads(sys.argv[1]):
    sys.argv[1:], code = words, 0
    try:
        main()
    except SystemExit as left:
        code = left.code or 0
    print(chr(0), code, sys.modules["dask"])
"""


@pytest.mark.slow
def test_commands_about_files_run_without_dask(tmp_path):
    """In a process of their own, from the first import on."""
    table = world(60)
    data = write(table, tmp_path / "data")
    probed = write(probes(table, "other", 30, 0.0), tmp_path / "probes", "{policy}_probe.jsonl")
    kept = str(tmp_path / "kept")
    budget = ["--budget", "30", "--cost-judge", "0.01", "--cost-oracle", "0.16", "--replicates", "20"]
    commands = (
        ["analyze", str(data), "--keep-steps", kept],
        ["step", "report", "--in", kept],
        ["doctor", str(data)],
        ["plan", str(data), *budget],
        ["audit", "binned", str(data), "--probes", str(probed)],
    )
    done = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    left = re.findall(r"(.*?)\0 (\d+) (\w+)\n", done.stdout, re.DOTALL)  # what each said, its code, and Dask
    assert len(left) == len(commands)
    for words, (said, code, dask) in zip(commands, left, strict=True):
        assert said.strip() and code in "01" and dask == "None", (words, code, dask, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "found"), [("analyze", False), ("run", True)])
def test_a_process_hides_dask_where_no_file_of_a_user_could_want_it(command, found):
    pytest.importorskip("dask.array")
    script = (
        f"from studies.cli.brief import be_brief; be_brief(['cje-lab', {command!r}])\n"
        "from importlib.util import find_spec; print(find_spec('dask') is not None)\n"
        "import xarray as xr; xr.DataArray([1.0]); import sys; print(bool(sys.modules.get('dask.array')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(found)] * 2
