"""The runner: one result whatever the workers, kills and extensions; failures kept as data; nothing mixed."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import toy_study
import xarray as xr

from cje_core.streams import Streams, canonical
from studies.engine import blocks as _blocks
from studies.engine import run
from studies.engine import study as _study
from studies.engine.outcome import CRASHED, NOT_RUN, Outcome
from studies.engine.running import directory
from studies.engine.running.workers import run_replicate
from studies.engine.study import Profile, StudyError

TOY = toy_study.STUDY
SCRIPT = Path(toy_study.__file__)


def assert_same(one: xr.Dataset, two: xr.Dataset) -> None:
    """Bit for bit the same results; wall times may differ."""
    assert set(one.variables) == set(two.variables) and one.sizes == two.sizes
    for name in set(one.variables) - {"seconds"}:
        assert one[name].dims == two[name].dims and one[name].dtype == two[name].dtype
        assert one[name].values.tobytes() == two[name].values.tobytes(), name


def go(out, profile="smoke", study=TOY, **options):
    return run.run_study(study, profile=profile, out=out, **options)


def results(out):
    return _blocks.read_results(out / "toy_study" / "results.nc")


def snapshot(out):
    """Content and time of every block file."""
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted((out / "toy_study/blocks").glob("*/*"))}


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """The toy's quick profile, run by one process without interruption."""
    out = tmp_path_factory.mktemp("serial")
    summary = go(out, "quick")
    assert (summary.replicates_run, summary.replicates_found, summary.crashes) == (100, 0, 2)
    return out


def test_results_are_what_the_replicates_give(serial):
    ds = results(serial)
    assert dict(ds.sizes) == {"world": 2, "n": 2, "replicate": 25, "method": 3, "policy": 2, "ci_bound": 2}
    for cell in TOY.cells():
        for r in (0, 3, 17, 24):
            outcome = run_replicate(TOY.at("quick"), cell, Streams(1, TOY.name, cell, r))
            at = ds.sel(cell).isel(replicate=r)
            np.testing.assert_array_equal(at["estimate"], outcome.estimate)
            np.testing.assert_array_equal(at["truth"], outcome.truth)
            if not outcome.failures:
                np.testing.assert_array_equal(at["interval"], outcome.interval)
                np.testing.assert_array_equal(at["per_policy"], outcome.extra["per_policy"])
                np.testing.assert_array_equal(at["per_both"], outcome.extra["per_both"])
                np.testing.assert_array_equal(at["mean_judge"], outcome.extra["mean_judge"])
        np.testing.assert_array_equal(ds["theory_std_error"].sel(cell), cell["n"] ** -0.5)
        np.testing.assert_array_equal(ds["theory_value"].sel(cell), [0, 1])


def test_a_failed_replicate_is_data(serial):
    ds = results(serial)
    crashed = ds.sel(world="crash", replicate=3)
    assert (crashed["status"] == CRASHED).all() and crashed["estimate"].isnull().all()
    assert (ds["status"] == CRASHED).sum() == 2 * 6 and (ds["status"] == NOT_RUN).sum() == 0
    rows = [json.loads(line) for line in (serial / "toy_study/failures.jsonl").read_text().splitlines()]
    assert sorted(row["cell"]["n"] for row in rows) == [4, 16]
    assert all(
        row["replicate"] == 3
        and row["seed"] == 1
        and row["stage"] == "replicate"
        and row["error"].startswith("ZeroDivisionError: planted")
        and "toy_study.py" in row["error"]
        for row in rows
    )


def test_two_processes_give_the_same(serial, tmp_path):
    go(tmp_path, "quick", jobs=2)
    assert_same(results(serial), results(tmp_path))


def script(out, jobs, *, sleep=0.0, before=lambda: None, **options):
    """The toy as a command; one that is to be stopped midway sleeps at each replicate."""
    words = [sys.executable, "-m", "toy_study", str(out), str(jobs), "1", "", "quick"]
    tests = SCRIPT.parent
    environment = {**os.environ, "PYTHONPATH": str(tests), "TOY_SLEEP": str(sleep)}
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tests.parent,  # so that `studies` is the package, not tests/studies
        env=environment,
        # where the suite runs in the background, its shell has told it to ignore Ctrl-C; a terminal's child does not
        preexec_fn=lambda: (signal.signal(signal.SIGINT, signal.SIG_DFL), before()),
        **options,
    )


def wait_for_blocks(process, out, count):
    deadline = time.monotonic() + 60
    while len(list(out.glob("toy_study/blocks/*/*.parquet"))) < count:
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline, "no blocks after a minute"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_kill_and_run_again(serial, tmp_path, jobs):
    for blocks in (2, 9):  # killed twice, at different depths
        process = script(tmp_path, jobs, sleep=0.02)
        try:
            wait_for_blocks(process, tmp_path, blocks)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate(timeout=30)  # ends when the orphaned workers have closed its stdout too
        assert not (tmp_path / "toy_study/results.nc").exists()
    kept = snapshot(tmp_path)
    process = script(tmp_path, jobs)
    assert "done" in process.communicate(timeout=120)[0] and process.returncode == 0
    assert_same(results(serial), results(tmp_path))
    after = snapshot(tmp_path)
    assert all(after[path] == kept[path] for path in kept if path.suffix == ".parquet")
    assert 9 <= sum(path.suffix == ".parquet" for path in kept) < sum(p.suffix == ".parquet" for p in after)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_says_how_to_resume_and_leaves_nothing_half_written(tmp_path, jobs):
    process = script(tmp_path, jobs, sleep=0.02, stderr=subprocess.PIPE)
    wait_for_blocks(process, tmp_path, 3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(err.strip().splitlines()) == 1 and err.startswith("interrupted: "), err
    assert "the same command resumes" in err
    contents, broken = directory.collect(tmp_path / "toy_study")
    assert len(contents) >= 3 and not broken
    left = [p for p in (tmp_path / "toy_study").rglob("*") if p.is_file() and p.suffix == ".tmp"]
    assert not left and not (tmp_path / "toy_study/results.nc").exists()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [900, 9000], ids=["a block", "the results"])
def test_a_full_disk_is_one_line_and_nothing_is_half_written(serial, tmp_path, limit):
    """No file may grow beyond `limit` bytes: below those of any block, or between them and the merged results."""
    sizes = [path.stat().st_size for path in (serial / "toy_study/blocks").glob("*/*.parquet")]
    assert min(sizes) > 900 and max(sizes) < 9000 < (serial / "toy_study/results.nc").stat().st_size
    if limit == 900:  # the manifest is there, as of a run that had just begun
        process = script(tmp_path, 1, sleep=0.02)
        wait_for_blocks(process, tmp_path, 1)
        process.kill()
        process.communicate()

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    process = script(tmp_path, 1, stderr=subprocess.PIPE, before=full)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.strip().splitlines()[-1].startswith("studies.engine.study.StudyError: cannot write to"), err
    contents, broken = directory.collect(tmp_path / "toy_study")
    assert contents and not broken
    assert not list(tmp_path.rglob("*.tmp")) and not (tmp_path / "toy_study/results.nc").exists()
    process = script(tmp_path, 1)
    assert "done" in process.communicate(timeout=120)[0]
    assert_same(results(serial), results(tmp_path))


@pytest.mark.slow
def test_a_finished_study_grows_without_touching_what_is_there(serial, tmp_path):
    go(tmp_path, "smoke", levels={"n": [16]})  # 10 replicates, two cells: blocks 0-6 and 6-10
    before = snapshot(tmp_path)
    summary = go(tmp_path, "quick", levels={"n": [16]})
    assert (summary.replicates_run, summary.replicates_found) == (30, 20)
    summary = go(tmp_path, "quick")
    assert (summary.replicates_run, summary.replicates_found) == (50, 50)
    after = snapshot(tmp_path)
    assert all(after[path] == content for path, content in before.items())
    assert_same(results(serial), results(tmp_path))
    assert go(tmp_path, "quick").replicates_run == 0
    assert go(tmp_path, "smoke").replicates_run == 0  # the smaller run asks for nothing new
    assert_same(results(serial), results(tmp_path))


def test_unequal_replicates_are_marked_as_not_run(tmp_path):
    go(tmp_path, "smoke", levels={"n": [4]})
    go(tmp_path, "quick", levels={"n": [9]})
    ds = results(tmp_path)
    assert ds["n"].values.tolist() == [4, 9] and ds.sizes["replicate"] == 25
    assert (ds["status"].sel(n=4).isel(replicate=slice(10, None)) == NOT_RUN).all()
    assert (ds["status"].sel(n=9) != NOT_RUN).all()
    assert ds["theory_std_error"].sel(world="plain").values.tolist() == [0.5, 1 / 3]


def test_a_partial_grid(tmp_path):
    study = replace(TOY, keep=keep_diagonal)
    go(tmp_path, study=study)
    status = results(tmp_path)["status"]
    assert (status.sel(world="plain", n=16) == NOT_RUN).all() and (
        status.sel(world="plain", n=4) != NOT_RUN
    ).all()


def keep_diagonal(cell):
    return (cell["world"] == "plain") == (cell["n"] == 4)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign"])
def test_a_block_that_does_not_verify_is_run_again(serial, tmp_path, damage):
    go(tmp_path, "quick")
    victim = sorted((tmp_path / "toy_study/blocks").glob("*/000006-*.parquet"))[0]
    raw = bytearray(victim.read_bytes())
    if damage == "flip":  # one bit of one stored number
        number = _blocks.read_block(victim).arrays["estimate"].ravel()[0].tobytes()
        raw[raw.index(number)] ^= 1
    content = {
        "truncate": raw[: len(raw) // 2],
        "flip": raw,
        "empty": b"",
        "foreign": b"PAR1 not a block PAR1",
    }
    victim.write_bytes(bytes(content[damage]))
    said = []
    summary = go(tmp_path, "quick", log=run.Log(say=said.append))
    assert summary.replicates_run == 6 and any("does not verify" in line for line in said)
    assert_same(results(serial), results(tmp_path))


def test_nothing_is_mixed(tmp_path):
    go(tmp_path)
    cases = [
        ({"seed": 2}, "made with seed 1, not 2"),
        ({"study": with_option(TOY, "z", factor=2)}, "other options of z"),
        ({"study": replace(TOY, policies=("zero", "two"))}, "other policies"),
        ({"study": replace(TOY, ci_prob=0.9)}, "other ci_prob"),
    ]
    for options, message in cases:
        with pytest.raises(StudyError, match=message) as error:
            go(tmp_path, **options)
        assert "\n" not in str(error.value) and "choose another --out" in str(error.value)
    (tmp_path / "toy_study/manifest.json").unlink()
    with pytest.raises(StudyError, match=r"holds blocks but no manifest\.json"):
        go(tmp_path)


def with_option(study, method, **options):
    changed = replace(study.methods[method], options=options)
    return replace(study, methods={**study.methods, method: changed})


def wrong_shape(study, cell, streams):
    return Outcome(np.zeros((2, 2)), np.zeros(2))


def wrong_extra(study, cell, streams):
    return Outcome(np.zeros((3, 2)), np.zeros(2), extra={"odd": np.zeros(5)})


def broken_theory(cell):
    raise OverflowError("too much")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicate": wrong_shape}, r"estimate has shape \(2, 2\), expected \(3, 2\)"),
        ({"replicate": wrong_extra}, r"diagnostic 'odd' of shape \(5,\)"),
        ({"theory": broken_theory}, "theory fails at world=plain, n=4: OverflowError: too much"),
    ],
)
def test_programmers_errors_raise(tmp_path, change, message):
    with pytest.raises(StudyError, match=message):
        go(tmp_path, study=replace(TOY, **change))


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StudyError, match=r"cannot write to .*file"):
        go(tmp_path / "file")


def test_missing_blocks_keep_their_boundaries():
    study = replace(TOY, factors={"world": ("plain",), "n": (4,)}, theory=None)
    cell = {"world": "plain", "n": 4}

    def ranges(replicates, *present):
        have = [_blocks.Block("toy_study", 1, cell, *pair) for pair in present]
        wanted = {canonical(cell): replicates}
        return [(b.start, b.stop) for b in _blocks.missing(study, 1, wanted, have)]

    assert ranges(15) == [(0, 6), (6, 12), (12, 15)]
    assert ranges(20, (0, 6), (6, 12), (12, 15)) == [(15, 18), (18, 20)]
    assert ranges(12, (0, 2), (4, 6)) == [(2, 4), (6, 12)]
    assert ranges(10, (0, 6), (6, 12)) == []


def test_block_round_trip_keeps_every_bit(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"estimate": rng.normal(size=(3, 2, 2)), "odd": np.array([np.nan, -0.0, np.inf])}
    arrays["estimate"].flat[:2] = [5e-324, -np.inf]
    block = _blocks.Block("toy_study", 1, {"n": 4, "world": "plain"}, 0, 3)
    _blocks.write_block(
        tmp_path, _blocks.Content(block, arrays, [{"replicate": 1, "stage": "x", "error": "é\n"}])
    )
    back = _blocks.read_block(tmp_path / block.path)
    assert back.block == block and back.failures[0]["error"] == "é\n"
    assert {k: v.tobytes() for k, v in back.arrays.items()} == {k: v.tobytes() for k, v in arrays.items()}
    assert not list(tmp_path.rglob("*.tmp"))


def test_status_and_manifest(serial):
    state = directory.status(serial / "toy_study")
    assert (state["replicates_done"], state["replicates_asked"], state["crashes"]) == (100, 100, 2)
    assert state["finished"] and state["estimates_failed"] == 12
    text = (serial / "toy_study/manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["seed"] == 1 and manifest["versions"]["numpy"] == np.__version__
    assert manifest["runs"][0]["replicates"] == 25 and manifest["machine"]["cores"] >= 1
    assert str(Path.home()) not in text and os.uname().nodename not in text and str(serial) not in text


def test_the_pilot_projects_time_and_precision(tmp_path):
    said = []
    profiles = {**TOY.profiles, "quick": Profile(50, {"n": (4,), "world": ("plain",)})}
    go(tmp_path, "quick", study=replace(TOY, profiles=profiles), log=run.Log(say=said.append))
    assert any("s per replicate; 50 replicates to run in 1 cells on 1 job: about" in line for line in said)
    assert any("MCSE of 3.1 points" in line for line in said)  # sqrt(.95 * .05 / 50)


@pytest.mark.parametrize(("own", "expected"), [(False, 0.04 / 50 + 0.002), (True, 0.042)])
def test_the_pilot_foretells_what_a_block_takes(monkeypatch, own, expected):
    """A block costs 40 ms and each replicate 2; a study with replicates of its own runs them one by one.

    By a clock of its own: a busy machine would make sleeps last longer than they say.
    """
    clock = [0.0]

    def compute(study, block):
        clock[0] += 0.04 + 0.002 * (block.stop - block.start)

    monkeypatch.setattr(run, "compute_block", compute)
    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    study = replace(TOY, block=50, replicate=TOY.replicate if own else None)
    seconds = run._time_replicate(run.wrapped(study), 1, {"n": 4, "world": "plain"}, os.getpid())
    assert seconds == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_replicates(tmp_path):
    """Ten times the replicates take the memory of their results, three copies of these at the merge, and no more.

    What Python and NumPy allocate is counted: the size of a process moves by megabytes from run to run.
    Measured 2.2 MB for 2.7 MB of results; 14 MB where a planted list keeps each outcome.
    """

    def peak(replicates):
        profiles = {**TOY.profiles, "quick": Profile(replicates, {"n": (4,), "world": ("plain",)})}
        study = replace(TOY, block=500, theory=None, profiles=profiles)
        tracemalloc.start()
        try:
            found = go(tmp_path / str(replicates), "quick", study=study)
            return tracemalloc.get_traced_memory()[1] / 2**20, found.results.nbytes / 2**20
        finally:
            tracemalloc.stop()

    peak(10)  # what the first run imports
    (few, small), (many, large) = peak(1_000), peak(10_000)
    assert many - few < 3 * (large - small)  # MB


@pytest.mark.slow
def test_a_real_study_does_not_depend_on_jobs(tmp_path):
    study = _study.load("interval_coverage")
    levels = {"n": [250], "oracle_fraction": [0.25], "label_design": ["own"]}
    one = run.run_study(study, profile="smoke", out=tmp_path / "one", levels=levels)
    two = run.run_study(study, profile="smoke", out=tmp_path / "two", levels=levels, jobs=2)
    assert_same(one.results, two.results)
    assert one.crashes == 0
