"""The level at which a measure reaches a target: brackets that hold it, on studies whose curve is known."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import toy_study
import xarray as xr
from scipy import stats

from studies.cli import app
from studies.engine import study as studies_engine
from studies.engine.outcome import Outcome
from studies.engine.running.solve import DETECTS, Question, solve
from studies.engine.study import StudyError

TOY = replace(toy_study.STUDY, factors={"n": (4, 16)}, theory=None)


def biased(study, cell, streams):
    """Mean of n draws of N(0, 1) + 0.5 / n: the z interval's coverage rises with n, in closed form."""
    n = cell["n"]
    x = streams("data").normal(0.5 * math.sqrt(40 / n), 1.0) / math.sqrt(n) + np.zeros(2)
    half = 1.96 / math.sqrt(n)
    interval = np.stack([x - half, x + half], axis=-1)
    return Outcome(np.tile(x, (3, 1)), np.zeros(2), np.full((3, 2), n**-0.5), np.tile(interval, (3, 1, 1)))


def coverage(n):
    shift = 0.5 * math.sqrt(40 / n)
    return stats.norm.cdf(1.96 - shift) - stats.norm.cdf(-1.96 - shift)


RISING = replace(TOY, replicate=biased)


def in_memory(study):
    """Run the one cell of a study without files: what the search asks for, nothing else."""
    from studies.engine import blocks
    from studies.engine.running.workers import compute_block

    study = study.at("quick")
    (cell,) = study.cells()
    block = blocks.Block(study.name, IN_MEMORY["seed"], cell, 0, study.profiles["quick"].replicates)
    return blocks.merge(study, [compute_block(study, block)])


IN_MEMORY = {"seed": 1}


def at_once(study):
    """What `in_memory` gives of `RISING`, drawn in one array: more replicates begin with those of fewer."""
    study = study.at("quick")
    (cell,) = study.cells()
    n, size = cell["n"], study.profiles["quick"].replicates
    rng = np.random.default_rng([IN_MEMORY["seed"], n])
    x = (rng.normal(size=size) + 0.5 * math.sqrt(40 / n)) / math.sqrt(n)
    half = 1.96 / math.sqrt(n)
    every = (1, size, 3, 2)
    dims = ("n", "replicate", "method", "policy")
    x = np.broadcast_to(x[None, :, None, None], every)
    return xr.Dataset(
        {
            "estimate": (dims, x),
            "std_error": (dims, np.full(every, n**-0.5)),
            "interval": ((*dims, "ci_bound"), np.stack([x - half, x + half], axis=-1)),
            "truth": (("n", "replicate", "policy"), np.zeros((1, size, 2))),
            "status": (dims, np.zeros(every)),
        },
        coords={"n": [n], "method": list(study.methods), "policy": study.columns},
        attrs={"ci_prob": 0.95},
    )


def truth(target):
    """Smallest n with the coverage."""
    return next(n for n in range(1, 10_000) if coverage(n) >= target)


@pytest.mark.slow
def test_the_bracket_holds_the_level_as_often_as_it_says(tmp_path):
    """12 searches at 80%: of misses there are at most binomially many (.2); 8 or more have probability .0006."""
    assert stats.binom.sf(7, 12, 0.2) < 0.001
    held, narrow = 0, []
    question = Question("n", "z", "zero", "coverage", 0.85)
    for seed in range(12):
        IN_MEMORY["seed"] = seed
        found = solve(RISING, question, (2, 2000), out=tmp_path, fixed={}, most=512, prob=0.8, run=at_once)
        held += found.low < truth(0.85) <= found.high
        narrow.append(found.high / found.low)
        assert found.rising and found.low <= found.about <= found.high
    assert held >= 12 - 7
    assert np.median(narrow) < 10  # and it is an answer: of a range of 1000


def test_a_falling_measure_and_the_mde(tmp_path):
    IN_MEMORY["seed"] = 3
    target = DETECTS / math.sqrt(50)
    found = solve(
        RISING,
        Question("n", "z", "one", "mde", target),
        (4, 900),
        out=tmp_path,
        fixed={},
        most=4096,
        run=at_once,
    )
    assert not found.rising and found.low < 50 <= found.high < 70
    assert [look.replicates for look in found.looks][:1] == [64]  # far from the target few replicates decide


@pytest.mark.slow
def test_what_was_computed_is_kept(tmp_path):
    study, question = replace(RISING, block=64), Question("n", "z", "zero", "coverage", 0.85)
    few = {"fixed": {}, "most": 256, "within": 3.0}  # levels: each costs a run and its merge
    one = solve(study, question, (4, 400), out=tmp_path, **few)
    before = sorted(tmp_path.rglob("*.parquet"))
    again = solve(study, question, (4, 400), out=tmp_path, **few)
    assert len(one.looks) > 2 and before and again == one and sorted(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize(
    ("question", "between", "options", "message"),
    [
        (Question("m", "z", "zero", "coverage", 0.9), (4, 9), {}, "factor 'm': study toy_study has n"),
        (
            Question("n", "y", "zero", "coverage", 0.9),
            (4, 9),
            {},
            "method 'y': study toy_study has z, short, none",
        ),
        (Question("n", "z", "two", "coverage", 0.9), (4, 9), {}, "estimand 'two'"),
        (Question("n", "z", "zero", "covering", 0.9), (4, 9), {}, "measure 'covering'"),
        (Question("n", "z", "zero", "coverage", 0.9), (9, 4), {}, "the smaller one first"),
        (Question("n", "z", "zero", "coverage", 0.9), (4, 9), {"most": 10}, "most=10"),
        (
            Question("n", "z", "zero", "coverage", 0.5),
            (4, 400),
            {"most": 256},
            "must lie on different sides of 0.5",
        ),
    ],
)
def test_questions_that_do_not_fit(tmp_path, question, between, options, message):
    with pytest.raises(StudyError, match=message) as error:
        solve(RISING, question, between, out=tmp_path, fixed={}, run=in_memory, **options)
    assert "\n" not in str(error.value)


def test_other_factors_are_fixed(tmp_path):
    study = replace(toy_study.STUDY, theory=None)
    with pytest.raises(StudyError, match="fix one level of world"):
        solve(study, Question("n", "z", "zero", "coverage", 0.9), (4, 9), out=tmp_path, fixed={})


@pytest.mark.slow
def test_the_command_answers_in_a_sentence(tmp_path, monkeypatch, capsys):
    study = replace(RISING, block=64)  # four files a level, not forty
    monkeypatch.setattr(studies_engine, "load", lambda name: study)
    words = "solve toy_study --factor n --between 4 400 --method z --target 0.85 --most 256 --jobs 1 --out"
    monkeypatch.setattr(sys, "argv", ["cje-lab", *words.split(), str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        app.main()
    out = capsys.readouterr().out
    assert not end.value.code and "coverage of z for zero reaches 0.85 at n above" in out
    told = json.loads((tmp_path / "solve.json").read_text())
    assert told["low"] < truth(0.85) <= told["high"]
    assert (tmp_path / "solve.png").read_bytes()[:4] == b"\x89PNG"
