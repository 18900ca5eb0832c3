"""``cje-lab analyze --keep-steps`` and ``cje-lab step``: what is printed is what the one call prints."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from analysis import probes, world, write

from cje_core.data import DataError
from cje_core.workflow.steps import order
from cje_core.workflow.steps.files import check_room
from studies.cli import app as command_line


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run any command in this process; gives exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Responses, probes and logged responses of a small world."""
    root = tmp_path_factory.mktemp("files")
    table = world(60)
    rng = np.random.default_rng(2)
    lines = [
        {"prompt_id": str(i), "judge_score": s, "base_policy_logprob": b,
         "target_policy_logprobs": {"base": b, "other": b + r}}
        for i, s, b, r in zip(
            range(55), table["judge_score"], -50 - rng.exponential(20, 55), rng.normal(0, 0.4, 55), strict=False
        )
    ]  # fmt: skip
    logged = root / "logged.jsonl"
    logged.write_text("".join(json.dumps(line) + "\n" for line in lines))
    audit = write(probes(table, "other", 20, 0.0), root / "probes", "{policy}_probe.jsonl")
    return [write(table, root / "data"), "--probes", audit, "--logged", logged]


def told(text):
    found = json.loads(text)
    found.pop("seconds")
    return found


@pytest.mark.slow
def test_the_report_of_kept_steps_is_what_analyze_prints(cli, files, tmp_path: Path):
    code, plain, _ = cli("analyze", *files, "--json")
    assert code == 0
    code, kept, err = cli("analyze", *files, "--json", "--keep-steps", tmp_path / "steps")
    assert code == 0 and str(tmp_path / "steps") in err
    assert told(kept) == told(plain)
    for name in ("calibrate", "stabilise", "estimate", "stack", "jackknife"):
        code, out, _ = cli("step", name, "--in", tmp_path / "steps", "--json")
        assert code == 0 and all((tmp_path / "steps" / file).exists() for file in json.loads(out))
    code, again, _ = cli("step", "report", "--in", tmp_path / "steps", "--json", "--out", tmp_path / "out")
    assert code == 0 and told(again) == told(plain)
    with xr.open_datatree(tmp_path / "out" / "ledger.nc", engine="netcdf4") as ledgers:
        assert "map_score" not in json.loads(ledgers["calibrated_ips"].attrs["missing"])
        assert ledgers["snips"]["jackknife"].notnull().all()
    code, table, _ = cli("step", "report", "--in", tmp_path / "steps")
    assert code == 0 and table == cli("analyze", *files)[1]


def test_a_step_without_its_input_is_one_line(cli, tmp_path: Path):
    code, out, err = cli("step", "stack", "--in", tmp_path)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "config.json" in err and "keep an analysis there first" in err
    code, _, err = cli("step", "plot", "--in", tmp_path)
    assert code == 2 and "use one of calibrate, stabilise, estimate, stack, jackknife, report" in err
    code, _, err = cli("step", "stack", "--in", tmp_path, "--out", tmp_path / "out")
    assert code == 2 and "only the step report" in err
    (tmp_path / "file").write_text("")
    code, _, err = cli("analyze", tmp_path, "--keep-steps", tmp_path / "file")
    assert code == 2 and "--keep-steps" in err and "is a file" in err


def test_a_directory_of_others_is_left_alone(cli, files, tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "thesis.tex").write_text("mine")
    code, out, err = cli("analyze", *files, "--keep-steps", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'thesis.tex'" in err and "name a new or empty directory" in err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "config.json": "{}",
        "thesis.tex": "mine",
    }


def test_a_directory_that_cannot_be_written_is_one_line(cli, files, tmp_path: Path, monkeypatch):
    """By the user's rights, which os.access knows (those who run tests may have all), and by the file system."""
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & os.W_OK)
    code, out, err = cli("analyze", *files, "--keep-steps", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1) and "permission denied; name another directory" in err
    monkeypatch.undo()
    if Path("/proc/self").exists():
        with pytest.raises(DataError, match="name another directory"):
            check_room(Path("/proc/none/steps"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--block", "x"], "--block x: give a mean length of at least 1, or auto"),
        (["--batch", "week"], "no row has the field 'week'; add it, or name another"),
        (["--margin", "-1"], "--margin -1: it must be a positive number"),
    ],
)
def test_an_analysis_that_is_refused_keeps_nothing(cli, files, tmp_path: Path, words, said):
    """Neither before the steps ran nor after them; and one line says why."""
    steps = tmp_path / "new" / "steps"
    code, out, err = cli("analyze", *files, "--keep-steps", steps, *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_an_interrupted_analysis_leaves_nothing_that_a_step_takes_for_whole(
    cli, files, tmp_path: Path, monkeypatch
):
    """The files of an earlier analysis are gone before the first new one is written, and a new attempt is taken."""
    steps = tmp_path / "steps"
    assert cli("analyze", *files, "--keep-steps", steps)[0] == 0
    half = steps / ".data.nc.12-ab.tmp"
    half.write_bytes(b"cut short")
    with monkeypatch.context() as now:
        now.setattr(order, "write_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli("analyze", *files, "--keep-steps", steps)[0] == 130
    assert [path.name for path in steps.iterdir()] == ["data.nc"]
    for name in ("calibrate", "stabilise", "estimate", "stack", "jackknife", "report"):
        code, _, err = cli("step", name, "--in", steps)
        assert code == 2 and "config.json: there is no such file" in err
    with monkeypatch.context() as now:
        now.setitem(order.STEPS, "stabilise", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli("analyze", *files, "--keep-steps", steps)[0] == 130
    code, _, err = cli("step", "report", "--in", steps)
    assert code == 2 and "there is no such file; run the step" in err
    assert cli("analyze", *files, "--keep-steps", steps)[0] == 0
