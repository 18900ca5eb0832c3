"""The study of a user's own files: what it reads, what it records of them, what it says, and when it refuses."""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from user_files import write

from cje_core.estimators import direct
from cje_core.io import files
from cje_core.streams import Streams
from cje_sim import plasmode
from studies import real_data
from studies.cli import app as command_line
from studies.demo import arena
from studies.engine import run, study
from studies.engine.measures.bounds import flat_error
from studies.engine.outcome import NOT_RUN
from studies.engine.running import inputs
from studies.report import page

STUDY = study.load("real_data")
ARENA = Path(__file__).parents[3] / "shared" / "data" / "arena_sample"


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile, without files."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def own_files(home, n=150):
    """Two policies on a scale from 1 to 5, the second's labels lower by .3: 40 labels of the first, 30 probes of it."""
    rng = np.random.default_rng(2)
    judge = rng.beta(3, 2, (2, n))
    for p, policy in enumerate(("a", "b")):
        rows = []
        for i in range(n):
            score = float(judge[p, i])
            row = {"prompt_id": f"q{i}", "response": "x", "judge_score": 1 + 4 * score}
            if i < (40 if policy == "a" else 30):
                label = np.clip(score - 0.3 * (policy == "b") + 0.1 * rng.normal(), 0, 1)
                row |= {"oracle_label": 10 * float(label), "probe": policy == "b"}
            rows.append(row)
        write(home / f"{policy}_responses.jsonl", rows)
    return home


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command in this process; gives exit code, stdout, stderr."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return call


@pytest.mark.slow
def test_a_users_files_are_the_population(cli, tmp_path):
    home = own_files(tmp_path / "mine")
    words = ("run", "real_data", "--data", home, "--judge-range", 1, 5, "--oracle-range", 0, 10)
    words = (*words, "--profile", "smoke", "--jobs", 1, "--out", tmp_path / "out")
    code, _, err = cli(*words)
    assert code == 0, err
    found = xr.load_dataset(tmp_path / "out" / "real_data" / "results.nc")
    assert found["policy"].values.tolist() == ["a", "b", "b - a"]
    data, _ = files.read(home, judge_range=(1, 5), oracle_range=(0, 10))
    world = plasmode.fit(data)
    truth = plasmode.truth(world).sel(policy=["a", "b"]).values
    assert world.own_donors == (True, True)
    stored = found["truth"].isel(design=0, labels=0)
    stored = stored.isel(replicate=0) if "replicate" in stored.dims else stored
    np.testing.assert_allclose(stored.values, [*truth, truth[1] - truth[0]])
    np.testing.assert_allclose(
        found["residual"].isel(design=0, labels=0, replicate=0).values[:2], plasmode.residual(world).values
    )
    manifest = (tmp_path / "out" / "real_data" / "manifest.json").read_text()
    recorded = json.loads(manifest)
    assert real_data.digest_of([home.resolve()]) in recorded["definition"]["replicate"]
    assert str(home) not in manifest and "mine" not in manifest
    said = [f.sentence for f in STUDY.findings(found)]
    assert said[0] == "The population is 150 prompts of the files given." and "b (" in said[1]
    # other files never join the results of these
    with (home / "b_responses.jsonl").open("a") as more:
        more.write(json.dumps({"prompt_id": "q999", "response": "x", "judge_score": 3.0}) + "\n")
    code, _, err = cli(*words)
    assert (
        code == 2 and "holds results made with other replicate" in err and len(err.strip().splitlines()) == 1
    )


@pytest.fixture
def finished(cli, tmp_path):
    home = own_files(tmp_path / "mine")
    words = ("--judge-range", 1, 5, "--oracle-range", 0, 10, "--set", "design=own", "--jobs", 1)
    words = ("run", "real_data", "--data", home, *words, "--profile", "smoke")
    assert cli(*words, "--out", tmp_path / "out")[0] == 0
    return home, words, tmp_path / "out" / "real_data"


@pytest.mark.slow
def test_a_replicate_of_ones_own_files_is_had_again_and_its_shards_merge(finished, cli, tmp_path):
    home, words, directory = finished
    again = ("replay", directory, "--cell", "0", "--replicate", 2)
    code, out, err = cli(*again)
    assert code == 0 and "every number is the stored one" in out, err
    places = json.loads((directory / "inputs.json").read_text())
    assert places["data"] == str(home.resolve()) and len(places["sha256"]["--data"]) == 2
    crate = (directory / "ro-crate-metadata.json").read_text()
    assert "mine" not in crate and "mine" not in (directory / "manifest.json").read_text()
    parts = tmp_path / "parts"
    for part in ("1/2", "2/2"):
        assert cli(*words, "--shard", part, "--out", parts)[0] == 0
    code, _, err = cli("merge", parts)
    assert code == 0, err
    one, two = (xr.load_dataset(place / "results.nc") for place in (directory, parts / "real_data"))
    xr.testing.assert_equal(one.drop_vars("seconds"), two.drop_vars("seconds"))


def leave(home):
    return None


def change(home):
    with (home / "b_responses.jsonl").open("a") as file:
        file.write("\n")


def lose(home):
    (home / "b_responses.jsonl").unlink()


def add(home):
    (home / "c_responses.jsonl").write_text("{}")


def lose_all(home):
    home.rename(home.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (leave, ""),
        (change, "mine/b_responses.jsonl of --data changed since"),
        (lose, "mine/b_responses.jsonl of --data is gone"),
        (add, "mine/c_responses.jsonl of --data is new"),
        (lose_all, "mine of --data is gone"),
    ],
)
def test_files_that_are_not_those_of_the_run_are_named(tmp_path, harm, says):
    home, directory = own_files(tmp_path / "mine"), tmp_path / "out"
    inputs.keep(directory, inputs.Inputs(home))
    harm(home)
    if says:
        with pytest.raises(study.StudyError, match=says):
            inputs.kept(directory)
    else:
        assert inputs.kept(directory) == inputs.Inputs(home.resolve())


@pytest.mark.slow
def test_a_replay_without_the_files_is_one_line(finished, cli):
    home, _, directory = finished
    change(home)
    again = ("replay", directory, "--cell", "0", "--replicate", 2)
    code, _, err = cli(*again)
    assert code == 2 and "b_responses.jsonl of --data changed since; put back" in err
    assert len(err.strip().splitlines()) == 1
    (directory / "inputs.json").unlink()
    code, _, err = cli(*again)
    assert code == 2 and "has no inputs.json: run it again" in err


def test_a_replicate_is_what_the_library_says_of_the_resampled_data(tmp_path):
    home = own_files(tmp_path / "mine")
    whole = STUDY.with_data(STUDY, home, None, (1.0, 5.0), (0.0, 10.0))
    mine = whole.at("smoke")
    cell = {"design": "own", "labels": 50}
    streams = Streams(3, mine.name, cell, 0)
    found = mine.replicate(mine, cell, streams)
    data, _ = files.read(home, judge_range=(1, 5), oracle_range=(0, 10))
    drawn = plasmode.simulate(
        plasmode.fit(data), oracle_fraction=50 / 150, label_design="own", rng=streams("data")
    )
    expected = direct.estimate(drawn).sel(policy=["a", "b"])["interval"].values
    names = list(mine.methods)
    np.testing.assert_array_equal(found.interval[names.index("direct")][:2], expected)
    assert (found.status[names.index("direct_corrected")] == NOT_RUN).all()
    assert [cell["labels"] for cell in whole.at("paper").cells() if cell["design"] == "probes"] == [
        25,
        50,
        100,
    ]


def test_without_files_the_population_is_the_demo():
    """The demo's policies, its base first, and as many prompts as it has: the page needs nothing but the package."""
    world = real_data.population(real_data.Source())
    assert world.policies == tuple(STUDY.policies) and world.n == arena.OPTIONS["n"]
    mine = STUDY.with_data(STUDY, arena.HELD / "responses", arena.HELD / "probes")
    cell = {"design": "probes", "labels": 50}
    given, usual = (
        one.at("smoke").replicate(one.at("smoke"), cell, Streams(1, STUDY.name, cell, 0))
        for one in (mine, STUDY)
    )
    np.testing.assert_array_equal(given.estimate, usual.estimate)
    assert usual.extra["simulated"] == 1 and given.extra["simulated"] == 0


def test_the_same_files_elsewhere_have_one_digest_and_changed_ones_another(tmp_path):
    one, two = own_files(tmp_path / "one"), own_files(tmp_path / "two")
    assert real_data.digest_of([one]) == real_data.digest_of([two])
    (two / "a_responses.jsonl").rename(two / "c_responses.jsonl")
    assert real_data.digest_of([one]) != real_data.digest_of([two])


@pytest.mark.slow
def test_a_run_that_is_stopped_has_noted_where_the_files_lie(tmp_path):
    given = inputs.Inputs(
        own_files(tmp_path / "mine").resolve(), judge_range=(1.0, 5.0), oracle_range=(0.0, 10.0)
    )

    def stop(done, total):
        raise KeyboardInterrupt

    log = run.Log(track=stop, opened=lambda directory: inputs.keep(directory, given))
    with pytest.raises(run.InterruptedRunError):
        run.run_study(given.study(STUDY), profile="smoke", out=tmp_path, log=log)
    assert inputs.kept(tmp_path / STUDY.name) == given


def test_files_that_change_during_a_run_are_noticed(tmp_path):
    home = own_files(tmp_path / "mine")
    source = real_data.Source("0" * 16, (1.0, 5.0), (0.0, 10.0), str(home))
    with pytest.raises(study.StudyError, match="have changed since the run began"):
        real_data.population(source)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cle_bound", "--data", "."), "study cle_bound makes its own data"),
        (("real_data", "--data", "nowhere"), "there is no such file or directory"),
        (("real_data", "--probes", "."), "--probes go with --data"),
    ],
)
def test_what_cannot_be_used_is_one_line(cli, tmp_path, words, said):
    code, _, err = cli("run", *words, "--profile", "smoke", "--out", tmp_path)
    assert code == 2 and said in err and len(err.strip().splitlines()) == 1


def test_too_few_labels_are_refused_in_one_line(cli, tmp_path):
    rows = [{"prompt_id": f"q{i}", "response": "x", "judge_score": (i % 8) / 8} for i in range(60)]
    for row in rows[:19]:
        row["oracle_label"] = row["judge_score"]
    home = write(tmp_path / "mine" / "a_responses.jsonl", rows).parent
    code, _, err = cli("run", "real_data", "--data", home, "--profile", "smoke", "--out", tmp_path / "out")
    assert code == 2 and "fewer than 20 labels" in err and len(err.strip().splitlines()) == 1


def planted(ds, good, half):
    """400 replicates: intervals of `half` the width that hold the truth, but all methods but one miss two policies."""
    at = np.arange(400)
    big = ds.isel(replicate=at % ds.sizes["replicate"]).assign_coords(replicate=at)
    big["estimate"] = (big["truth"] + 0 * big["status"]).where(big["status"] != NOT_RUN)
    off = xr.DataArray(
        [0.0 if str(m) == good else 1.0 for m in ds["method"].values],
        dims="method",
        coords={"method": ds["method"]},
    )
    some = xr.DataArray(
        [float(k < 2) for k in range(ds.sizes["policy"])], dims="policy", coords={"policy": ds["policy"]}
    )
    sides = xr.DataArray([-half, half], coords={"ci_bound": ["lower", "upper"]})
    big["interval"] = (big["estimate"] + sides + off * some).transpose(*ds["interval"].dims)
    return big


@pytest.mark.parametrize("good", ["direct", "labels_only", "nobody"])
@pytest.mark.parametrize(("half", "enough"), [(0.04, True), (0.2, False)])
def test_the_advice_is_the_method_that_keeps_every_policy(ds, good, half, enough):
    """A method that misses one policy in all replicates is no advice, however well it does on the others."""
    part = ds.sel(design=["own"])
    found = STUDY.findings(planted(part, good, half))
    assert found[0].holds is None and "250 prompts of the demo" in found[0].sentence
    advice = found[-1]
    if good == "nobody":
        assert advice.holds is False and "no method that answers keeps 95%" in advice.sentence
    else:
        assert (
            f"? {good}:" in advice.sentence
            and f"in 100.0% ({100 * flat_error(400):.1f}) of" in advice.sentence
        )
        assert advice.holds is enough
        assert ("50 labels give" if enough else "More than 50 labels are needed") in advice.sentence


def test_tables_name_the_policy_that_is_covered_least(ds):
    worst, width, score, people, measures = STUDY.table(planted(ds, "direct", 0.1)).values()
    rows = worst[worst["estimand"] == "value"].set_index("method")["coverage"]
    assert (rows["direct"] == 1).all() and (rows["raw_judge"] == 0).all()
    assert np.allclose(width["direct"].dropna(), 0.2) and len(score) == len(width)
    assert people["policy"].tolist()[0] == "base" and people["residual"].iloc[0] == pytest.approx(0, abs=1e-9)
    assert set(measures["design"]) == set(real_data.DESIGNS)


@pytest.mark.parametrize("levels", [{}, {"design": ["own"]}])
def test_figure_of_whole_and_partial_grids(ds, levels):
    part = ds.sel(levels)
    with mpl.rc_context(page.STYLE):
        (figure,) = STUDY.figure(part).values()
    assert len(figure.axes) == 3 * part.sizes["design"]
    mpl.pyplot.close(figure)


@pytest.mark.skipif(not ARENA.exists(), reason="the arena sample is not here")
def test_the_arena_sample():
    mine = STUDY.with_data(STUDY, ARENA / "fresh_draws", ARENA / "probe_slice")
    assert mine.policies[0] == "base" and "unhelpful" in mine.policies
    cell = {"design": "probes", "labels": 100}
    found = mine.at("smoke").replicate(mine.at("smoke"), cell, Streams(1, mine.name, cell, 0))
    assert abs(found.extra["residual"][mine.policies.index("unhelpful")]) > 0.2
    assert (
        found.extra["simulated"] == 0
        and np.isfinite(found.estimate[list(mine.methods).index("direct_corrected")]).any()
    )
