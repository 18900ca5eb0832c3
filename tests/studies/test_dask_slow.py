"""A study, or the reading of a file, on a real Dask cluster on loopback: the same bits, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
import toy_study
from analysis import three_policies

from cje_core.calibration.calibrated import Calibration
from cje_core.data import DataError
from cje_core.io.large import on_dask
from cje_core.io.large.spill import Spill
from cje_core.workflow.analyze import analyze
from studies.engine import blocks
from studies.engine.run import Log, run_study
from studies.engine.running.workers import _arrived
from studies.engine.study import StudyError

pytest.importorskip("distributed")
TESTS = Path(toy_study.__file__).parent
SLOW = ("paper", {"n": [4]})  # whose replicates sleep on the workers


def start(*words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS)))}
    environment["TOY_SLEEP"] = "0.02"
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """Address of a scheduler, its two workers, and itself."""
    file = tmp_path / "scheduler.json"
    scheduler = start(
        "dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(file),
    )
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith("}")):  # there before it is written
        assert scheduler.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    address = json.loads(file.read_text())["address"]
    workers = [
        start("dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory",
              str(tmp_path / "scratch"), "--name", str(k))
        for k in (1, 2)
    ]  # fmt: skip
    from distributed import Client

    with Client(address, timeout="60s") as client:
        client.wait_for_workers(2, timeout=60)
    yield address, workers, scheduler
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits_and_loses_nothing_with_a_worker(cluster, tmp_path):
    address, workers, _ = cluster
    profile, levels = SLOW
    here = run_study(toy_study.STUDY, profile=profile, out=tmp_path / "here", levels=levels)
    killed = []

    def kill_one(done, total):
        for count, block in enumerate(done, start=1):
            if count == 3:
                os.kill(workers[0].pid, signal.SIGKILL)
                killed.append(total - count)
            yield block

    there = run_study(
        toy_study.STUDY,
        profile=profile,
        out=tmp_path / "there",
        levels=levels,
        jobs=address,
        log=Log(track=kill_one),
    )
    assert killed and killed[0] > 10 and workers[0].wait() == -signal.SIGKILL
    assert there.replicates_run == here.replicates_run == 120
    assert set(there.results.variables) == set(here.results.variables)
    for name in set(here.results.variables) - {"seconds"}:
        assert there.results[name].values.tobytes() == here.results[name].values.tobytes(), name
    assert len(list(blocks.read_all(there.directory))) == len(list(blocks.read_all(here.directory)))
    assert str(tmp_path) not in (there.directory / "manifest.json").read_text()
    assert address not in (there.directory / "manifest.json").read_text()
    again = run_study(toy_study.STUDY, profile=profile, out=tmp_path / "there", levels=levels)
    assert again.replicates_run == 0


def same(one, other):
    """Whether two analyses have the same bits."""
    names = set(one.estimates) | set(other.estimates)
    return all(one.estimates[name].identical(other.estimates[name]) for name in names)


@pytest.mark.slow
def test_a_file_read_on_a_cluster_is_analysed_to_the_same_bits(cluster, tmp_path, monkeypatch):
    """In tasks of a few row groups; a worker that dies costs nothing; a bad row is named as it is at home."""
    address, workers, _ = cluster
    path, table = tmp_path / "x.parquet", three_policies()
    table.to_parquet(path, index=False, row_group_size=100)
    monkeypatch.setattr(on_dask, "ROWS", 150)
    assert len(list(on_dask._tasks([100] * 12))) == 6
    here = analyze(path, large=True)
    assert same(analyze(path, dask=address), here)
    with pytest.raises(DataError, match=f"^dask='{address}': covariates='length' needs every row in memory"):
        analyze(path, dask=address, calibration=Calibration(("length",)))
    printed = [
        subprocess.run(
            [sys.executable, "-m", "studies", "analyze", str(path), *options],
            env={**os.environ, "PYTHONPATH": str(TESTS.parent)}, capture_output=True, text=True, check=False,
        )
        for options in (("--dask", address), ("--large",))
    ]  # fmt: skip
    assert printed[0].returncode == 0 and printed[0].stdout == printed[1].stdout, printed[0].stderr
    add, added = Spill.add, []

    def kill_one(self, share):
        added.append(len(share.rows))
        if len(added) == 2:
            os.kill(workers[0].pid, signal.SIGKILL)
        add(self, share)

    with monkeypatch.context() as patched:
        patched.setattr(Spill, "add", kill_one)
        assert same(analyze(path, dask=address), here)
    assert sum(added) == len(table) and workers[0].wait() == -signal.SIGKILL
    table.loc[777, "judge_score"] = 1.5
    table.to_parquet(path, index=False, row_group_size=100)
    said = []
    for options in ({"large": True}, {"dask": address}):
        with pytest.raises(DataError) as error:
            analyze(path, **options)
        said.append(str(error.value))
    assert said[0] == said[1] and "row 778" in said[0]


@pytest.mark.slow
def test_workers_that_see_another_file_or_run_another_version_are_named(cluster, tmp_path, monkeypatch):
    address, *_ = cluster
    path, home = tmp_path / "x.parquet", os.getpid()
    three_policies().to_parquet(path, index=False)
    here = on_dask._seen(path)
    for there, said in (
        ((here[0], None), "sees no such file; put it on a disk that all share"),
        ((here[0], 7), "sees another file there, of 7 bytes; put it"),
        (("0.0 (ab)", here[1]), r"runs cje-lab 0.0 \(ab\), here is"),
    ):

        def seen(path, there=there, home=home, here=here):
            return here if os.getpid() == home else there

        monkeypatch.setattr(on_dask, "_seen", seen)
        with pytest.raises(DataError, match=said):
            analyze(path, dask=address)

    def lacking(path, home=home, here=here):
        if os.getpid() != home:
            raise ModuleNotFoundError("No module named 'cje_core'")
        return here

    monkeypatch.setattr(on_dask, "_seen", lacking)
    with pytest.raises(DataError, match=r"a worker lacks this project \(No module named 'cje_core'\)"):
        analyze(path, dask=address)


@pytest.mark.slow
def test_a_cluster_that_is_lost_midway_is_one_line(cluster, tmp_path, monkeypatch):
    address, workers, scheduler = cluster
    path, add = tmp_path / "x.parquet", Spill.add
    three_policies().to_parquet(path, index=False, row_group_size=100)
    monkeypatch.setattr(on_dask, "ROWS", 50)
    monkeypatch.setattr(on_dask, "AHEAD", 1)

    def lose_all(self, share):
        for process in (scheduler, *workers):
            process.kill()
        add(self, share)

    monkeypatch.setattr(Spill, "add", lose_all)
    with pytest.raises(DataError, match="it was lost") as error:
        analyze(path, dask=address)
    assert "\n" not in str(error.value)


def test_a_block_whose_cluster_was_lost_is_one_line_whatever_it_raises():
    """Which error arrives, and on how many lines, is a matter of what the client was waiting for."""

    class Future:
        def result(self):
            raise self.error

    for lost in (
        OSError("gone\n\nsee the log"),
        CancelledError("scheduler-connection-lost.\n? ---\nRe-run."),
    ):
        Future.error = lost
        with pytest.raises(
            StudyError, match=r"it was lost \((gone see|scheduler-conn).*resumes toy"
        ) as error:
            _arrived(Future(), "tcp://x", "toy")
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_no_scheduler_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("cje_core.io.large.cluster.PATIENCE", "1s")
    three_policies().to_parquet(tmp_path / "x.parquet", index=False)
    with pytest.raises(DataError, match=r"dask='tcp://127\.0\.0\.1:9': no scheduler answers there") as error:
        analyze(tmp_path / "x.parquet", dask="tcp://127.0.0.1:9")
    assert "\n" not in str(error.value)
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(StudyError, match=r"--dask tcp://127\.0\.0\.1:9: no scheduler answers there") as error:
        run_study(toy_study.STUDY, profile="smoke", out=tmp_path, jobs="tcp://127.0.0.1:9")
    assert "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())  # nothing is left that a later run would find
