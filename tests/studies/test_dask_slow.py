"""A study on a real Dask cluster, a scheduler and two workers on loopback: the same bits, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_study

from studies.engine import blocks
from studies.engine.run import Log, run_study
from studies.engine.study import StudyError

pytest.importorskip("distributed")
TESTS = Path(toy_study.__file__).parent
SLOW = ("paper", {"n": [4]})  # its replicates sleep 20 ms


def start(*words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS)))}
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """Address of a scheduler, and its two workers."""
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
    yield address, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits_and_loses_nothing_with_a_worker(cluster, tmp_path):
    address, workers = cluster
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


@pytest.mark.slow
def test_no_scheduler_is_one_line(tmp_path):
    with pytest.raises(StudyError, match=r"--dask tcp://127\.0\.0\.1:9: no scheduler answers there") as error:
        run_study(toy_study.STUDY, profile="smoke", out=tmp_path, jobs="tcp://127.0.0.1:9")
    assert "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())  # nothing is left that a later run would find
