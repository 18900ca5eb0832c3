"""Shards, merges, replays, runs to a precision, and studies in a user's own file: the same replicates, bit for bit."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy_study
from filelock import FileLock

from cje_core.streams import canonical
from studies.engine import blocks, study
from studies.engine.run import Log, Shard, run_study
from studies.engine.running import directory as places
from studies.engine.running.precision import replicates_for, worst_mcse
from studies.engine.running.replay import replay
from studies.engine.running.shards import merge
from studies.engine.study import Profile, StudyError

TOY = toy_study.STUDY
PLAIN = replace(TOY, factors={"world": ("plain",), "n": (4, 16)})


def assert_same(one, two):
    assert set(one.variables) == set(two.variables) and one.sizes == two.sizes
    for name in set(one.variables) - {"seconds"}:
        assert one[name].values.tobytes() == two[name].values.tobytes(), name


def go(out, study=TOY, profile="quick", **options):
    return run_study(study, profile=profile, out=out, **options)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """The toy is a study that a directory can name."""
    load = study.load
    monkeypatch.setattr(places, "load", lambda name: TOY if name == "toy_study" else load(name))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return go(out)


@pytest.mark.parametrize("apart", [False, True], ids=["one directory", "three machines"])
def test_shards_that_are_merged_are_the_run_without_shards(tmp_path, whole, apart):
    outs = [tmp_path / (f"machine-{k}" if apart else "shared") for k in (1, 2, 3)]
    done = [go(out, shard=Shard(k, 3)) for k, out in zip((2, 3, 1), outs, strict=True)]
    assert all(one.results is None for one in done)
    ran = [one.replicates_run for one in done]
    assert sum(ran) == whole.replicates_run and max(ran) - min(ran) <= 3 * TOY.block
    sources = list(dict.fromkeys(out / "toy_study" for out in outs))
    target = tmp_path / "merged" / "toy_study" if apart else sources[0]
    found = merge(sources, target)
    assert_same(found.results, whole.results)
    assert (found.crashes, found.first_crash) == (whole.crashes, whole.first_crash)
    assert_same(blocks.read_results(target / "results.nc"), whole.results)
    state = places.status(target)
    assert state["shards_finished"] == ["1/3", "2/3", "3/3"] and state["finished"]
    assert state["replicates_done"] == state["replicates_asked"] == 100


def test_a_merge_names_what_is_missing_and_leaves_nothing(tmp_path):
    go(tmp_path, shard=Shard(1, 3))
    with pytest.raises(StudyError, match=r"lacks \d+ replicates in \d+ blocks \(finished shards: 1/3\)"):
        merge([tmp_path / "toy_study"], tmp_path / "toy_study")
    assert not (tmp_path / "toy_study/results.nc").exists()
    rest = go(tmp_path)  # without a shard: the rest, and the merge
    assert 0 < rest.replicates_run < 100 and rest.results is not None


def test_shards_of_other_seeds_are_never_mixed(tmp_path):
    go(tmp_path / "a", shard=Shard(1, 2))
    go(tmp_path / "b", shard=Shard(2, 2), seed=2)
    with pytest.raises(StudyError, match="made with seed 2, not 1"):
        merge([tmp_path / "a/toy_study", tmp_path / "b/toy_study"], tmp_path / "c/toy_study")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_a_relative_directory_is_where_the_run_begins(tmp_path, monkeypatch):
    """Worker processes outlive a run, and do not move with a notebook that does."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        done = run_study(toy_study.STUDY, profile="smoke", out=Path("results"), jobs=2)
        assert done.replicates_run == 40 and done.results is not None
        assert (tmp_path / name / "results" / "toy_study" / "results.nc").exists()


def test_two_runs_do_not_write_into_one_directory(tmp_path):
    (tmp_path / "toy_study").mkdir()
    with FileLock(tmp_path / "toy_study" / ".run.lock"):
        with pytest.raises(StudyError, match=r"another run is writing to .*toy_study: wait for its end"):
            go(tmp_path)
        assert go(tmp_path, shard=Shard(1, 2)).replicates_run  # a shard has a lock of its own
    with (
        FileLock(tmp_path / "toy_study" / ".run1-of-2.lock"),
        pytest.raises(StudyError, match="of shard 1-of-2"),
    ):
        go(tmp_path, shard=Shard(1, 2))
    assert go(tmp_path).replicates_found  # a lock dies with its process


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard": Shard(4, 3)}, "shard 4/3: the parts of 3 are 1 to 3"),
        ({"shard": Shard(1, 3), "mcse": 0.01}, "merge the shards"),
        ({"mcse": 0.7}, "mcse=0.7: take a Monte Carlo standard error"),
        ({"jobs": 0}, "jobs=0"),
    ],
)
def test_what_cannot_be_asked(tmp_path, options, message):
    with pytest.raises(StudyError, match=message):
        go(tmp_path, **options)
    assert not (tmp_path / "toy_study").exists()


@pytest.mark.slow
def test_a_run_to_a_precision_stops_where_its_worst_coverage_is_that_precise(tmp_path):
    said = []
    done = go(tmp_path / "at once", PLAIN, "smoke", mcse=0.06, log=Log(say=said.append))
    ds = done.results
    lower, upper = (ds["interval"].sel(ci_bound=bound) for bound in ("lower", "upper"))
    ran = (ds["status"] != -1).all(["method", "policy"]).sum("replicate").values.ravel()
    hits = ((lower <= ds["truth"]) & (ds["truth"] <= upper)).sum("replicate").sel({"method": ["z", "short"]})
    for cell, n in zip(hits.values.reshape(2, 2, 2), ran, strict=True):
        p = (cell + 2) / (n + 4)
        assert np.sqrt(p * (1 - p) / (n - 1)).max() <= 0.06
        assert n > 10 and n % TOY.block == 0
    assert any("coverage to an MCSE of 6 points" in line for line in said)
    go(tmp_path / "resumed", PLAIN, "quick")  # more blocks are there than the first round asks for
    again = go(tmp_path / "resumed", PLAIN, "smoke", mcse=0.06)
    assert_same(again.results, ds)
    assert places.status(tmp_path / "at once/toy_study")["replicates_asked"] == ran.sum()


def test_precision_looks_at_the_worst_method_and_never_beyond_what_was_asked():
    assert worst_mcse(np.array([[np.nan, 50.0], [95.0, 100.0]]), np.full((2, 2), 100.0)) == pytest.approx(
        0.5 / np.sqrt(99), rel=1e-3
    )
    cell = {"world": "plain", "n": 4}
    shape = (12, 3, 2)
    interval = np.full((*shape, 2), np.nan)
    interval[:, 0] = [-1, 1]  # holds 0, not 2
    interval[6:, 0] = [3, 4]  # beyond the six that were asked for
    arrays = {"interval": interval, "truth": np.tile([0.0, 0.5], (12, 1)), "status": np.zeros(shape)}
    content = blocks.Content(blocks.Block("toy_study", 1, cell, 0, 12), arrays, [])
    key = canonical(cell)
    p = 8 / 10
    needed = int(np.ceil(6 * p * (1 - p) / 5 / 0.05**2))
    found = replicates_for(TOY, [content], {key: 6}, 0.05)
    assert found == {key: int(np.ceil(needed / TOY.block) * TOY.block)}
    assert replicates_for(TOY, [content], {key: 6}, 0.2) == {key: 6}
    arrays["interval"] = np.full((*shape, 2), np.nan)
    with pytest.raises(StudyError, match="no method gives an interval"):
        replicates_for(TOY, [content], {key: 6}, 0.05)


def test_a_replicate_is_had_again(whole):
    found = replay(whole.directory, "world=plain,n=16", 7)
    assert found.same and found.changed == [] and found.traceback() == ""
    ds = whole.results.sel(world="plain", n=16, replicate=7)
    np.testing.assert_array_equal(found.outcome.estimate, ds["estimate"])
    np.testing.assert_array_equal(found.again().estimate, ds["estimate"])
    assert replay(whole.directory, "1", 7).cell == {"world": "plain", "n": 16}
    beyond = replay(whole.directory, "1", 1000)
    assert not beyond.stored and not beyond.same and np.isfinite(np.asarray(beyond.outcome.estimate)).all()
    for cell, message in [
        ("9", "cells 0 to 3"), ("world=plain", "there is none of n"), ("world=x,n=4", "--cell world=x: 'x' is not"),
    ]:  # fmt: skip
        with pytest.raises(StudyError, match=message):
            replay(whole.directory, cell, 0)


def test_a_failed_replicate_is_had_again_with_its_traceback(whole):
    found = replay(whole.directory, "world=crash,n=4", 3)
    assert found.same and np.isnan(found.outcome.estimate).all()
    assert found.traceback().startswith("Traceback") and "planted: replicate 3" in found.traceback()
    with pytest.raises(ZeroDivisionError, match="planted"):
        found.again()


def test_a_changed_study_does_not_replay_as_the_same(whole, monkeypatch):
    other = replace(TOY, replicate=lambda study, cell, streams: replace_truth(study, cell, streams))
    monkeypatch.setattr(places, "load", lambda name: other)
    assert not replay(whole.directory, "0", 0).reproduced


def replace_truth(study, cell, streams):
    return replace(toy_study.replicate(study, cell, streams), truth=np.array([0.0, 2.0]))


OWN = '''"""A study of a user's own."""

import helper
import numpy as np
import xarray as xr

from cje_core.io import from_frame
from cje_core.estimators import labels_only
from studies.engine.measures import summary_table
from studies.engine.study import Method, Profile, Scenario, Study


def simulate(n, *, rng):
    """Labels that are all there."""
    import pandas as pd

    y = helper.scale(rng.random(n))
    frame = {"policy": "base", "prompt_id": [f"p{k}" for k in range(n)], "judge_score": y, "oracle_label": y}
    return from_frame(pd.DataFrame(frame))


def truth():
    """Half."""
    return xr.DataArray([0.5], dims="policy", coords={"policy": ["base"]})


def shifted(data, *, ci_prob=0.95, rng=None, by=0.0):
    """The mean of the labels, and more."""
    out = labels_only.estimate(data, ci_prob=ci_prob)
    return out.assign(estimate=out["estimate"] + by, interval=out["interval"] + by)


def table(ds):
    """Bias."""
    return summary_table(ds, ["bias", "coverage"])


def figure(ds):
    """Nothing to see."""
    from matplotlib.figure import Figure

    return Figure()


STUDY = Study(
    name="mine_alone", title="Mine", aims="a", mechanism="m", estimands="e", measures="p",
    factors={"n": (30,)}, policies=("base",), scenario=Scenario(simulate, truth),
    methods={"labels_only": Method("theirs"), "mine": Method("mine", shifted, {"by": 0.25})},
    profiles={"smoke": Profile(4), "quick": Profile(4), "paper": Profile(4)},
    table=table, figure=figure,
)
'''


@pytest.fixture
def own_study(tmp_path, monkeypatch):
    import sys

    path = tmp_path / "home" / "mine_alone.py"
    path.parent.mkdir()
    path.write_text(OWN)
    (path.parent / "helper.py").write_text("def scale(x):\n    return x\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    yield path
    for name in ("mine_alone", "helper"):
        sys.modules.pop(name, None)


def test_a_study_in_a_file_of_ones_own(own_study, tmp_path, monkeypatch, capsys):
    found = study.load(str(own_study))
    done = go(tmp_path / "out", found, "smoke", jobs=2)  # worker processes import it too
    ds = done.results
    assert done.crashes == 0 and ds["status"].values.tolist() == np.zeros((1, 4, 2, 1)).tolist()
    theirs, mine = (ds["estimate"].sel({"method": m}) for m in ("labels_only", "mine"))
    np.testing.assert_allclose(mine - theirs, 0.25, rtol=1e-12)
    assert (ds["truth"] == 0.5).all()
    manifest = json.loads((done.directory / "manifest.json").read_text())
    assert {"mine_alone.py", "helper.py"} <= set(manifest["definition"]["code"])
    assert str(tmp_path) not in json.dumps(manifest)
    assert places.of_directory(done.directory).title == "Mine"  # from the copy beside the results
    assert replay(done.directory, "0", 2).same
    (own_study.parent / "helper.py").write_text("def scale(x):\n    return x / 2\n")
    with pytest.raises(StudyError, match=re.escape("other code (helper.py changed since)")):
        go(tmp_path / "out", study.load(str(own_study)), "smoke")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.py", None, "there is no such file"),
        ("numpy.py", "", "'numpy' is the name of another module"),
        ("two words.py", "", "'two words' is the name of another module, or none"),
        ("unclosed_one.py", "STUDY = (", r"SyntaxError: '\(' was never closed .unclosed_one.py:1"),
        ("broken_one.py", "1 / 0", "ZeroDivisionError: division by zero .broken_one.py:1"),
        ("no_study.py", "", r"no_study.py must define STUDY = Study\(name='no_study'"),
    ],
)
def test_a_file_that_is_no_study(tmp_path, monkeypatch, name, text, message):
    monkeypatch.syspath_prepend(str(tmp_path))
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(StudyError, match=message) as error:
        study.load(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_profiles_of_a_precision_keep_their_records(tmp_path):
    go(tmp_path, replace(PLAIN, profiles={**PLAIN.profiles, "smoke": Profile(6)}), "smoke", mcse=0.1)
    record = json.loads((tmp_path / "toy_study/manifest.json").read_text())["runs"][0]
    assert record["mcse"] == 0.1 and record["asked"] >= 12 and record["finished"]
