"""The referee's study: peers are asked in a process of their own, and whatever they do, the study goes on."""

import json
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from cje_core.streams import Streams
from studies.engine.blocks import read_results
from studies.engine.manifest import code_digests
from studies.engine.outcome import CRASHED, NOT_RUN
from studies.engine.run import run_study
from studies.engine.running import interpreters
from studies.engine.study import Method, Profile, StudyError
from studies.peers import OURS, STUDY, WORLDS, figure, table
from studies.referee import calls, match, verdict

INSTALLED = "numpy"  # stands for the distribution of a toy peer: this interpreter has it
CELL = {"world": "smooth", "n": 200, "labels": 30}

TOY = '''"""Peers of a test."""

import os
import sys
import time

import numpy as np

PARENT = {parent}


def classical(sample):
    assert os.getpid() != PARENT
    print("chatter")
    half = 1.96 * sample.label.std(ddof=1) / len(sample.label) ** 0.5
    return sample.label.mean(), sample.label.mean() - half, sample.label.mean() + half


def off(sample):
    """The labels' mean, and .3."""
    value, low, high = classical(sample)
    return value + 0.3, low + 0.3, high + 0.3


def told(sample):
    """What it was given: number of labels, of the other scores, and of the lender's other scores."""
    return len(sample.label), len(sample.rest) - 1000, len(sample.other) + 1000


def seeded(sample):
    draw = np.random.default_rng(sample.seed).random()
    return draw, draw, draw


def raises(sample):
    raise ValueError("too few\\nlabels")


def dies(sample):
    print("out of memory", file=sys.stderr, flush=True)
    os._exit(3)


def shape(sample):
    return np.zeros(2), 0.0, 1.0


def pair(sample):
    return 0.0, 1.0


def upside_down(sample):
    return 0.5, 1.0, 0.0


def no_number(sample):
    return float("nan"), 0.0, 1.0


def sleeps(sample):
    time.sleep(60)
'''


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """The study with toy peers beside `direct`; their file stands where no package is."""
    monkeypatch.delenv(interpreters.VARIABLE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toy_peers.py").write_text(TOY.format(parent=os.getpid()), encoding="utf-8")
    import toy_peers

    def made(*names, package=INSTALLED, replicates=3):
        methods = {name: Method("a toy", getattr(toy_peers, name), package=package) for name in names}
        return replace(
            STUDY,
            methods={OURS: STUDY.methods[OURS], **methods},
            profiles=dict.fromkeys(("smoke", "quick", "paper"), Profile(replicates)),
            factors={"world": ("smooth",), "n": (200,), "labels": (30,)},
        )

    yield made
    match.interpreter(sys.executable).close()
    del sys.modules["toy_peers"]


def one(study, replicate=0, cell=CELL):
    return match.replicate(study, cell, Streams(1, study.name, cell, replicate))


def test_a_peer_is_asked_in_a_process_of_its_own_about_the_same_data(toys):
    outcome = one(toys("classical"))
    block = simulated(0)
    label = block.label[0, block.policies.index("base")]
    label = label[np.isfinite(label)]
    half = 1.96 * label.std(ddof=1) / np.sqrt(len(label))
    assert len(label) == 30
    np.testing.assert_allclose(outcome.estimate[1, 0], label.mean(), rtol=1e-15)
    np.testing.assert_allclose(outcome.interval[1, 0], [label.mean() - half, label.mean() + half], rtol=1e-15)
    assert (outcome.status[1] == 0).all() and outcome.seconds[1] > 0 and not outcome.failures
    ours = one(replace(toys("classical"), methods={OURS: STUDY.methods[OURS]}))
    np.testing.assert_array_equal(outcome.estimate[0], ours.estimate[0])  # a peer changes none of our bits
    np.testing.assert_array_equal(outcome.interval[0], ours.interval[0])


def simulated(replicate):
    from studies.engine.scenario import world_of

    chosen = STUDY.setting(STUDY, CELL)
    streams = Streams(1, STUDY.name, CELL, replicate)
    return world_of(chosen.scenario).simulate.block([streams("data")], **chosen.arguments)


def test_what_a_peer_is_given(toys):
    """Own: 30 labels and the 170 scores of the rest. Borrowed: the same labels, and the target's 200 scores."""
    outcome = one(toys("told"))
    assert outcome.estimate[1].tolist() == [30, 30]
    assert (outcome.interval[1] + [1000, -1000]).tolist() == [[170, 0], [200, 170]]
    block = simulated(0)
    base, target = (block.policies.index(name) for name in ("base", "better"))
    own, lent = (match.sample_of(block, p, 1) for p in (base, target))
    known = np.isfinite(block.label[0, base])
    assert not own["lent"] and lent["lent"]
    assert own["score"] == lent["score"] == block.oracle_units[0, base][known].tolist()
    assert own["label"] == lent["label"] == block.label[0, base][known].tolist()
    assert own["rest"] == block.oracle_units[0, base][~known].tolist() and own["other"] == []
    assert lent["rest"] == block.oracle_units[0, target].tolist() and lent["other"] == own["rest"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raises", "ValueError: too few labels"),
        ("dies", "its process ended: out of memory"),
        ("shape", "sizes [2, 1, 1], not 1, 1, 1"),
        ("pair", "sizes [1, 1], not 1, 1, 1"),
        ("upside_down", "interval [1.0, 0.0]"),
        ("no_number", "estimate nan"),
    ],
)
def test_a_peer_that_fails_is_a_failure_of_its_own(toys, name, says):
    outcome = one(toys("classical", name, "seeded"))
    assert np.isfinite(outcome.estimate[[0, 1, 3]]).all()
    assert np.isnan(outcome.estimate[2]).all() and np.isnan(outcome.interval[2]).all()
    assert (outcome.status[2] == CRASHED).all() and (outcome.status[[1, 3]] == 0).all()
    assert [failure.stage for failure in outcome.failures] == [name, name]
    assert all(says in failure.error and failure.peer for failure in outcome.failures)


def test_a_peer_that_takes_too_long_is_stopped(toys):
    process = match.Interpreter(sys.executable)
    sample = match.sample_of(simulated(0), 0, 1)
    found = process.ask(toys("sleeps").methods["sleeps"], sample, limit=0.5)
    assert found["error"] == "its process ended: no answer in 0.5 seconds"
    assert "answer" in process.ask(toys("classical").methods["classical"], sample)  # begun anew
    process.close()


@pytest.mark.slow
def test_a_run_with_failing_peers_is_a_finished_run(toys, tmp_path):
    done = run_study(toys("classical", "dies"), profile="smoke", out=tmp_path, jobs=1)
    assert done.crashes == 0 and done.replicates_run == 3
    kept = [json.loads(line) for line in (done.directory / "failures.jsonl").read_text().splitlines()]
    assert len(kept) == 6 and all(row["peer"] and row["stage"] == "dies" for row in kept)
    ds = read_results(done.directory / "results.nc")
    assert np.isfinite(ds["interval"].sel({"method": "classical"})).all()
    found = verdict.measured(ds)
    dies = found[found["method"] == "dies"]
    assert (dies["failed"] == 1).all() and (dies["refused"] == 0).all()  # an exception is no refusal
    manifest = json.loads((done.directory / "manifest.json").read_text())
    assert manifest["definition"]["code"][INSTALLED] == np.__version__


@pytest.mark.slow
def test_replicates_do_not_depend_on_those_before(toys):
    study = toys("seeded", "dies")
    in_a_row = [one(study, r).estimate[1] for r in range(3)]
    np.testing.assert_array_equal(one(study, 2).estimate[1], in_a_row[2])
    assert len(np.unique(in_a_row)) == 3


@pytest.mark.slow
def test_an_absent_peer_is_not_run_and_said(toys, tmp_path):
    study = toys("classical", package="no-such-peer")
    assert (one(study).status[1] == NOT_RUN).all()
    assert interpreters.lacking(["no-such-peer", INSTALLED]) == [
        "no-such-peer is not installed: its rows are not run (pip install 'cje-lab[peers]', or --peers PYTHON)"
    ]
    done = run_study(study, profile="smoke", out=tmp_path, jobs=1)
    assert done.crashes == 0 and not (done.directory / "failures.jsonl").exists()
    said = verdict.findings(done.results, OURS, (), lambda d, w: True, 30)
    assert said[-1].sentence == "Not run, so these sentences do not speak of them: classical."
    assert verdict.that_ran(done.results) == [OURS]


def test_peers_of_another_version_are_another_definition(toys, monkeypatch, tmp_path):
    study = toys("classical")
    run_study(study, profile="smoke", out=tmp_path, jobs=1)
    monkeypatch.setattr(
        "studies.engine.running.interpreters.home", lambda package, named: (sys.executable, "0.0")
    )
    assert code_digests(study)[INSTALLED] == "0.0"
    with pytest.raises(StudyError, match=r"other code \(numpy changed since\)"):
        run_study(study, profile="smoke", out=tmp_path, jobs=1)


def test_a_slow_peer_takes_part_in_the_first_replicates(toys):
    study = toys("classical")
    method = replace(study.methods["classical"], options={"replicates": 2})
    study = replace(study, methods={**study.methods, "classical": method})
    assert [int(one(study, r).status[1, 0]) for r in range(3)] == [0, 0, NOT_RUN]


@pytest.mark.slow
def test_the_planted_error_is_found(toys, tmp_path):
    """A peer that is .3 off covers nothing; against it ours wins, and against the honest one it does not by much."""
    done = run_study(toys("classical", "off", replicates=30), profile="smoke", out=tmp_path, jobs=1)
    every = verdict.measured(done.results).set_index(["design", "method"])
    assert every.loc[("own", "off"), "coverage"] < 0.1
    assert abs(every.loc[("own", "off"), "bias"] - 0.3) < 5 * every.loc[("own", "off"), "bias_mcse"]
    ratio = verdict.against(done.results, OURS).set_index(["design", "method"])["score_ratio"]
    assert ratio["own", "off"] < 0.2 < ratio["own", "classical"]
    table_ = verdict.champions(done.results, OURS, ())
    assert "off" not in set(table_["best"]) | set(table_["covering"])


def made_up(scores):
    """Results of `direct` and a rival whose interval scores are known: intervals of stated widths around the truth."""
    shape = (1, 1, 1, scores.shape[1], 2, 1)  # world, n, labels, replicate, method, policy
    estimate = np.zeros(shape)
    width = scores.T.reshape(1, 1, 1, -1, 2, 1)
    dims = ("world", "n", "labels", "replicate", "method", "policy")
    ds = xr.Dataset(
        {
            "estimate": (dims, estimate),
            "std_error": (dims, width / 4),
            "interval": ((*dims, "ci_bound"), np.stack([-width / 2, width / 2], axis=-1)),
            "status": (dims, np.zeros(shape, np.int8)),
            "truth": (("world", "n", "labels", "replicate", "policy"), np.zeros((*shape[:4], 1))),
        },
        coords={
            "world": ["smooth"], "n": [200], "labels": [30], "replicate": np.arange(scores.shape[1]),
            "method": [OURS, "rival"], "policy": ["own"],
        },
        attrs={"ci_prob": 0.95},
    )  # fmt: skip
    return ds.isel(n=0)


def test_ratio_and_its_error_by_hand():
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.1, 0.3, (2, 40))
    found = verdict.against(made_up(scores), OURS).iloc[0]
    ratio = scores[0].mean() / scores[1].mean()
    error = np.std(scores[0] - ratio * scores[1], ddof=1) / scores[1].mean() / np.sqrt(40)
    assert found["score_ratio"] == pytest.approx(ratio) and found["score_ratio_mcse"] == pytest.approx(error)
    apart = scores[0] - scores[1]
    assert found["score_difference"] == pytest.approx(apart.mean())
    assert found["score_difference_mcse"] == pytest.approx(apart.std(ddof=1) / np.sqrt(40))


def test_who_is_silent_is_scored_with_the_whole_scale_and_our_refusals_are_left_out():
    scores = np.random.default_rng(2).uniform(0.1, 0.3, (2, 40))
    ds = made_up(scores)
    refused, silent = np.arange(40) % 4 == 0, np.arange(40) % 5 == 1
    for name, gone in ((OURS, refused), ("rival", silent)):
        left = ~((ds["method"] == name) & xr.DataArray(gone, dims="replicate"))
        ds["estimate"], ds["interval"] = ds["estimate"].where(left), ds["interval"].where(left)
    found = verdict.against(ds, OURS).iloc[0]
    ours = scores[0, ~refused].mean()
    rival = scores[1].copy()
    rival[silent] = 1  # the width of [0, 1], which holds the truth, 0 here
    assert found["score_ratio"] == pytest.approx(ours / rival[~refused].mean())
    ds["interval"] = ds["interval"].where(ds["method"] != "rival")
    assert not len(verdict.against(ds, OURS))  # never answers


@pytest.mark.parametrize(("factor", "holds"), [(0.9, True), (1.01, True), (1.3, False)])
def test_the_rule_is_decided_by_the_ratio(factor, holds):
    scores = np.random.default_rng(3).uniform(0.1, 0.2, verdict.ENOUGH)
    ds = made_up(np.stack([factor * scores, scores]))
    said = verdict.findings(ds, OURS, (), lambda d, w: True, 30)
    assert [f.holds for f in said[:2]] == [holds, holds]
    assert any("rival is better than direct" in f.sentence for f in said) == (factor > 1)
    assert f"in {int(holds)} of 1 cells" in said[0].sentence
    fewer = ds.isel(replicate=slice(verdict.ENOUGH - 1))
    assert verdict.findings(fewer, OURS, (), lambda d, w: True, 30)[0].holds is None
    none = verdict.findings(ds, OURS, (), lambda d, w: False, 30)
    assert none == []  # where no assumption holds, nothing is asked


@pytest.mark.parametrize(
    ("factor", "missed", "why", "holds"),
    [
        (1.3, 0, "rival is better", False),
        (1.021, 0, "too near to tell", None),
        (1.3, 30, "rival does not cover", None),
        (1.3, -30, "rival is better", False),  # neither of the two covers
        (1.015, 0, None, None),
    ],
)
def test_a_cell_above_the_allowance_is_named_with_the_reason(factor, missed, why, holds):
    rng = np.random.default_rng(4)
    scores = rng.uniform(0.1, 0.2, verdict.ENOUGH)
    noise = rng.normal(0, 5e-3, len(scores))
    ds = made_up(np.stack([factor * scores + noise - noise.mean(), scores]))
    who = ["rival"] if missed >= 0 else ["rival", OURS]
    gone = xr.DataArray(np.arange(len(scores)) < abs(missed), dims="replicate") & ds["method"].isin(who)
    past = ds["interval"].isel(ci_bound=1) + 1e-4  # an interval that ends just below the truth
    for name in ("estimate", "interval"):
        ds[name] = ds[name].where(~gone, ds[name] - past)
    said = [
        f for f in verdict.findings(ds, OURS, (), lambda d, w: True, 30) if "cells above 1.02," in f.sentence
    ]
    assert len(said) == (why is not None)
    for finding in said:
        assert finding.sentence.endswith(f"{why}.") and finding.holds is holds
        assert "smooth, 30 labels" in finding.sentence and f"{factor:.2f}" in finding.sentence


@pytest.mark.slow
def test_the_smoke_profile_needs_no_peer(monkeypatch, tmp_path):
    monkeypatch.setattr("studies.engine.running.interpreters.home", lambda package, named: None)
    done = run_study(STUDY, profile="smoke", out=tmp_path, jobs=1)
    assert done.crashes == 0
    shown = table(done.results)
    assert all(len(frame) for frame in shown.values())
    drawn = figure(done.results)
    assert len(drawn) == 2
    import matplotlib.pyplot as plt

    plt.close("all")
    assert "cje_eval" in STUDY.findings(done.results)[-1].sentence


def test_each_peer_answers_where_it_is_installed():
    """Each is near the labels' mean in its interval's widths, for labels of its own; needs the extra."""
    there = [name for name, m in STUDY.methods.items() if m.package and interpreters.place(m.package)]
    if not there:
        pytest.skip("no peer is installed")
    block = simulated(0)
    for name in there:
        method = STUDY.methods[name]
        asked = match.interpreter(interpreters.place(method.package)[0])
        for policy in (0, 1):
            sample = match.sample_of(block, policy, 1)
            found = asked.ask(method, sample)
            value, low, high = found.get("answer", (np.nan,) * 3)
            assert low < value < high, f"{name}: {found}"
            if not sample["lent"]:
                assert abs(value - np.mean(sample["label"])) < high - low


def test_calls_name_themselves():
    assert {m.estimator.__name__ for m in STUDY.methods.values() if m.package} == {
        name for name, value in vars(calls).items() if getattr(value, "__module__", "") == calls.__name__
        and callable(value) and name in STUDY.methods
    }  # fmt: skip
    assert set(WORLDS) == set(STUDY.factors["world"])


def test_an_interpreter_that_is_none_is_one_line(cli_run):
    code, _, said = cli_run("run", "peers", "--profile", "smoke", "--peers", "/no/python")
    assert code == 2 and "no Python runs there" in said and len(said.splitlines()) == 1


@pytest.fixture
def cli_run(monkeypatch, capsys):
    from studies.cli import app

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", *words])
        monkeypatch.setenv(interpreters.VARIABLE, "")  # and put back what the command names
        with pytest.raises(SystemExit) as exit_:
            app.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run
