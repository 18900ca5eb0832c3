"""Benchmarks: each runs in a smoke size, slower is seen as slower, what is lacking is said, the page is its JSON's."""

import ast
import itertools
import json
import os
import pickle
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from registry_checks import benchmark_convention

import cje_core
from cje_core.bayes.models import nuts
from cje_core.data import DataError
from cje_core.families import posterior
from studies import benchmarks
from studies.cli import app as command_line
from studies.cli import progress
from studies.engine.benchmark import PROFILES, Benchmark, Case, Contender, run, run_all
from studies.engine.stopwatch import ContenderError, Fresh, Stopwatch
from studies.report.benchmarks import read, render

ROOT = Path(cje_core.__file__).parents[1]
DOCS = ROOT / "docs" / "benchmarks"
SPREAD = {"median", "low", "high"}
ROW = {"name", "role", "version", "rounds", "calls", "seconds", "multiple", "amount", "rate"} | {
    "first_seconds",
    "peak_mb",
    "added_mb",
}

# Prepared by this interpreter and by others, from this file: nothing but the standard library below the line's `def`s.
TOY = '''"""Sums, one of them ten times as long and one of them in 64 MB."""

import sys


def short(n):
    return lambda: sum(range(n))


def slow(n):
    return lambda: sum(range(10 * n))


def large(n):
    return lambda: sum(bytearray(b"1" * 2**26)[:n])


def broken(n):
    return lambda: 1 / (n - n)


def bare(n):
    print("chatter")
    assert "numpy" not in sys.modules
    return lambda: sum(range(n))
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Make a benchmark of functions of the file above; the first is ours."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toy_benchmark.py").write_text(TOY, encoding="utf-8")
    import toy_benchmark

    def made(*contenders, role="peer", package="", **options):
        chosen = [
            Contender(name, getattr(toy_benchmark, name), role if k else "ours", package if k else "")
            for k, name in enumerate(contenders)
        ]
        return Benchmark(
            "Toy", "sums", chosen, lambda profile: [Case("a case", {"n": 20_000}, 2.0, **options)]
        )

    yield made
    del sys.modules["toy_benchmark"]


def rows(told):
    (case,) = told["cases"]
    return {row["name"]: row for row in case["contenders"]}


def check_schema(told):
    assert set(told) - {"machine"} == {"title", "about", "unit", "per", "cases", "notes"}
    for case in told["cases"]:
        assert set(case) == {"case", "amount", "whole", "contenders"} and case["contenders"]
        for row in case["contenders"]:
            assert set(row) == ROW and row["role"] in ("ours", "peer", "limit")
            assert row["rounds"] >= 1 and row["calls"] >= 1
            for spread in (row["seconds"], row["multiple"]):
                assert set(spread) == SPREAD and 0 < spread["low"] <= spread["median"] <= spread["high"]
            assert row["rate"] == pytest.approx(row["amount"] / row["seconds"]["median"])
        assert set(case["contenders"][0]["multiple"].values()) == {1.0}


LONG = ("large", "arena", "paper_grid", "coverage_study", "start_up")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in benchmarks.available()],
)
def test_every_benchmark_runs_in_its_smoke_size(name):
    benchmark = benchmarks.load(name)
    benchmark_convention(benchmark)
    found = run_all({name: benchmark}, "smoke")
    told = found["benchmarks"][name]
    check_schema(told)
    assert f"## {benchmark.title} (`{name}`)" in render(found)
    if benchmark.missing():
        assert told["cases"] == [] and told["notes"] == [f"skipped: {benchmark.missing()}"]
        return
    for case in told["cases"]:
        assert {"ours", "limit"} <= {row["role"] for row in case["contenders"]}


class UnreadError(Exception):
    """Raised where a trace would be read."""


@pytest.mark.parametrize("engine", ["nutpie", "pm.sample"])
def test_no_lap_of_a_posterior_is_served_from_a_cache(monkeypatch, engine):
    """A cache planted in `nuts.run`, which ignores even the seed, serves the same data twice and no lap."""
    contenders = {c.name: c for c in benchmarks.load("posterior").contenders}
    fit, run, sampled, cached = contenders[engine].prepare(), nuts.run, [], {}

    def sample(*_, **options):
        sampled.append(options)
        return object()

    def unread(*_):
        raise UnreadError

    def planted(model, options, *, rng):
        content = (model.key, *(one.tobytes() for _, one in sorted(model.data.items())))
        if content not in cached:
            cached[content] = run(model, options, rng=rng)
        return cached[content]

    ready = SimpleNamespace(with_data=lambda **_: None)
    for place, name, stub in (
        (nuts, "compiled", lambda _: ready), (nuts, "from_nutpie", lambda raw, _: raw),
        (nuts.nutpie, "sample", sample), (nuts.pm, "sample", sample), (nuts, "to_draws", unread),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, stub)

    def samples_in_three(draw):
        before = len(sampled)
        for _ in range(3):
            with pytest.raises(UnreadError):
                fit.work(draw())
        return len(sampled) - before

    assert samples_in_three(fit.draw) == 3
    monkeypatch.setattr(nuts, "run", planted)
    assert samples_in_three(fit.draw) == 3
    data = fit.draw()
    assert samples_in_three(lambda: data) == 1


def test_new_data_are_drawn_for_every_call_and_their_drawing_is_not_timed():
    drawn, worked = itertools.count(), []

    def draw():
        busy = time.process_time() + 0.02
        while time.process_time() < busy:
            pass
        return next(drawn)

    watch = Stopwatch(Fresh(draw, lambda data: worked.append(data) or data, amount=float), least=0.0)
    watch.warm()
    watch.calls = 3
    lap = watch.lap()
    assert worked == [0, 1, 2, 3]
    assert lap["amount"] == pytest.approx(2.0)  # mean of 1, 2 and 3
    assert lap["total"] < 0.02 < 3 * 0.02  # of .06 seconds that the drawing took


@pytest.mark.parametrize("name", ["coverage_study", "one_mean", "paper_grid", "posterior"])
def test_calls_of_our_contender_get_other_data(name):
    """Data that an earlier call had could be served from what the code keeps of it."""
    benchmark = benchmarks.load(name)
    draw = benchmark.contenders[0].prepare(**benchmark.cases("smoke")[0].options).draw
    contents = [pickle.dumps(draw()) for _ in range(3)]
    assert len(set(contents)) == 3


@pytest.mark.slow
def test_the_three_samplers_fit_one_posterior(monkeypatch):
    """Once each: NUTS compiles for seconds, so the smoke size leaves it out; twice the draws that are compared."""
    monkeypatch.setattr(posterior, "MIN_RUN", 2000)
    benchmark = benchmarks.load("posterior")
    assert [c.name for c in benchmark.contenders] == ["Gibbs", "nutpie", "pm.sample", "limit"]
    fits = [contender.prepare() for contender in benchmark.contenders[:3]]
    estimates = [fit.work(fit.draw()) for fit in fits]
    values = [one["estimate"].values for one in estimates]
    answered = np.isfinite(values[0])  # one policy's scores lie where no label does
    assert answered.sum() == 3
    for other in values[1:]:
        # sd .023 over 1,000 draws: five errors of a difference are .005, of correlated ones more
        np.testing.assert_allclose(other[answered], values[0][answered], atol=0.01)
    # no draw can count for more than the super-efficiency of alternating chains, far below twice
    for fit, one in zip(fits, estimates, strict=True):
        assert 100 < fit.amount(one) < 2000


@pytest.mark.slow
def test_what_is_ten_times_slower_is_seen_as_slower_in_every_round(toy):
    """Against the same work twice, which is seen as the same: half of 10 and twice of 1 are far from either."""
    told = rows(run(toy("short", "slow"), "small"))
    assert told["slow"]["rounds"] == PROFILES["small"].rounds
    assert 5 < told["slow"]["multiple"]["median"] < 20 and told["slow"]["multiple"]["low"] > 2
    assert told["short"]["rate"] == pytest.approx(2 / told["short"]["seconds"]["median"])
    again = rows(run(toy("short", "short"), "small"))["short"]
    assert 0.5 < again["multiple"]["median"] < 2


@pytest.mark.slow
def test_memory_is_each_contenders_own(toy):
    told = rows(run(toy("large", "short"), "small"))
    assert told["large"]["added_mb"] > 64 > 16 > told["short"]["added_mb"]
    assert told["short"]["peak_mb"] < 64 < told["large"]["peak_mb"]


def test_a_peer_lives_in_an_environment_of_its_own(toy, tmp_path, monkeypatch):
    """The interpreter below this environment has none of its libraries; what it prints is no reply."""
    base = os.path.realpath(sys.executable)
    monkeypatch.setattr(
        "studies.engine.running.interpreters._version", lambda python, package: "7" if python == base else ""
    )
    told = run(toy("short", "bare", package="some-peer"), "smoke", peers=base)
    assert told["notes"] == [] and rows(told)["bare"]["version"] == "7"


def test_a_benchmarks_file_can_be_read_by_the_interpreter_of_a_peer():
    """At its top: the standard library, numpy, which all peers have, and the engine's two light modules."""
    allowed = {*sys.stdlib_module_names, "numpy", "studies.engine.benchmark", "studies.engine.stopwatch"}
    for name in benchmarks.available():
        tree = ast.parse((ROOT / "studies" / "benchmarks" / f"{name}.py").read_text(encoding="utf-8"))
        found = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        found |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
        assert found <= allowed, name


def test_what_is_not_installed_is_skipped_in_one_line(toy):
    told = run(toy("short", "slow", package="no-such-peer"), "smoke")
    assert told["notes"] == ["skipped: no-such-peer is not installed (pip install 'cje-lab[peers]')"]
    assert list(rows(told)) == ["short"]
    assert "- skipped: no-such-peer is not installed" in render(
        run_all({"t": toy("short", "slow", package="no-such-peer")}, "smoke")
    )


def test_a_case_says_who_is_left_out_and_why(toy):
    told = run(toy("short", "slow", left_out={"slow": "too slow"}), "smoke")
    assert told["notes"] == ["a case: without slow, too slow"] and list(rows(told)) == ["short"]


def test_data_that_are_missing_are_said(monkeypatch, tmp_path):
    arena = benchmarks.load("arena")
    monkeypatch.setattr("studies.benchmarks.arena.DRAWS", tmp_path / "nowhere")
    told = run(arena, "smoke")
    assert told["cases"] == [] and len(told["notes"]) == 1
    assert told["notes"][0].startswith("skipped: the Arena sample") and "not here" in told["notes"][0]


@pytest.mark.slow
def test_a_peer_that_fails_is_said_and_ours_raises(toy):
    told = run(toy("short", "broken"), "small")
    assert told["notes"] == ["a case: broken failed, ZeroDivisionError: division by zero"]
    assert list(rows(told)) == ["short"]
    with pytest.raises(ContenderError, match="ZeroDivisionError"):
        run(toy("short", "broken", role="limit"), "small")


def test_a_long_call_that_found_the_length_of_a_lap_is_the_first_lap(monkeypatch):
    monkeypatch.setattr("studies.engine.stopwatch.LONG", 0.0)
    calls = []
    watch = Stopwatch(lambda: calls.append(sum(range(100_000))), least=1e-6)
    watch.warm()
    assert len(calls) == 2
    assert watch.lap()["total"] > 0 and len(calls) == 2
    assert watch.lap()["total"] > 0 and len(calls) == 3


def test_whole_work_is_extrapolated(toy):
    found = run_all({"toy": toy("short", whole=(6e6, "a year of sums"))}, "smoke")
    row = rows(found["benchmarks"]["toy"])["short"]
    (line,) = [line for line in render(found).splitlines() if line.startswith("- ")]
    assert line == f"- short: a year of sums would take {6e6 / row['rate'] / 60:.2g} CPU minutes"


def test_the_json_says_where_it_was_made(cli):
    code, out, err = cli("bench", "simulator", "--profile", "smoke", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["schema"] == "cje-lab-bench/1" and found["profile"] == "smoke"
    assert set(found["machine"]) == {"versions", "git_commit", "machine", "load"}
    check_schema(found["benchmarks"]["simulator"])


def test_the_page_is_printed_and_made_of_a_file(cli, tmp_path):
    code, out, _ = cli("bench", "simulator", "--profile", "smoke", "--json")
    (tmp_path / "found.json").write_text(out, encoding="utf-8")
    code, page, err = cli("bench", "--page", tmp_path / "found.json")
    assert (code, err) == (0, "") and page == render(json.loads(out))
    assert page.startswith("# Benchmarks\n") and page.endswith("|\n") and "| V = 1,000 " in page
    code, shown, _ = cli("bench", "simulator", "--profile", "smoke")
    assert code == 0 and shown.startswith("# Benchmarks\n")


def test_an_earlier_version_stands_beside(cli, tmp_path):
    code, out, _ = cli("bench", "simulator", "--profile", "smoke", "--json")
    (tmp_path / "now.json").write_text(out, encoding="utf-8")
    found = json.loads(out)
    row = found["benchmarks"]["simulator"]["cases"][0]["contenders"][0]
    was = {name: 4 * value for name, value in row["seconds"].items()}
    row["seconds"], found["machine"]["git_commit"] = was, "0123456789abcdef"
    (tmp_path / "was.json").write_text(json.dumps(found), encoding="utf-8")
    beside = ["bench", "--page", tmp_path / "now.json", "--before", tmp_path / "was.json"]
    code, page, err = cli(*beside)
    assert (code, err) == (0, "") and "Before, at commit 0123456789ab:" in page
    (line,) = [line for line in page.splitlines() if line.startswith("- V = 1,000")]
    assert line.endswith(", 0.25 of it")
    code, out, _ = cli(*beside, "--json")
    assert code == 0 and render(json.loads(out)) == page


def test_a_benchmark_that_is_run_again_replaces_its_rows_and_says_its_load(cli, tmp_path):
    old = json.loads(DOCS.with_suffix(".json").read_text(encoding="utf-8")) | {"profile": "smoke"}
    (tmp_path / "old.json").write_text(json.dumps(old), encoding="utf-8")
    words = ("bench", "simulator", "--profile", "smoke", "--update", tmp_path / "old.json", "--json")
    code, out, err = cli(*words)
    new = json.loads(out)
    assert (code, err) == (0, "") and list(new["benchmarks"]) == list(old["benchmarks"])
    assert {name for name, one in new["benchmarks"].items() if one != old["benchmarks"][name]} == {
        "simulator"
    }
    before, after = new["benchmarks"]["simulator"]["machine"]["load"]
    assert f"load {before:.2f} before and {after:.2f} after" in render(new).split("(`simulator`)")[1]
    assert "simulator" not in new["before"]["seconds"] and "reading" in new["before"]["seconds"]
    code, _, err = cli("bench", "simulator", "--profile", "smoke", "--update", DOCS.with_suffix(".json"))
    assert code == 2 and "the earlier run is of the profile small, the new one of smoke" in err


def test_the_page_of_the_project_is_a_render_of_its_json():
    found = read(DOCS.with_suffix(".json"))
    assert DOCS.with_suffix(".md").read_text(encoding="utf-8") == render(found)
    assert not re.search(r"(?<![\w.])/\w+/", json.dumps(found))  # no path of a machine
    assert list(found["benchmarks"]) == benchmarks.available() and found["profile"] != "smoke"
    for told in found["benchmarks"].values():
        check_schema(told)
    page = render(found)
    found["benchmarks"]["simulator"]["cases"][0]["contenders"][0]["rate"] *= 2
    assert render(found) != page  # a number changed by hand would be seen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "no benchmark named 'nonsense'; there are: arena, "),
        (["simulator", "--profile", "huge"], "unknown profile 'huge'; there are: smoke, small, full"),
        (
            ["one_mean", "--profile", "smoke", "--peers", "/no/python"],
            "--peers /no/python: no Python runs there",
        ),
        (["--page", "/no/file.json"], "/no/file.json: No such file or directory; give a file"),
        (["--page", str(ROOT / "pyproject.toml")], "pyproject.toml: no JSON; give a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(cli, words, said):
    code, out, err = cli("bench", *words)
    assert (code, out) == (2, "") and err.count("\n") == 1 and said in err and err.startswith("cje-lab: ")


def test_another_files_json_is_refused(tmp_path):
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="not of schema cje-lab-bench/1"):
        read(tmp_path / "other.json")


def test_a_run_of_more_than_two_seconds_shows_how_far_it_is(toy, monkeypatch, capsys):
    """A bar on a terminal, lines elsewhere; every step of every contender counts."""
    monkeypatch.setattr(progress, "LOG_EVERY", 0.0)
    run(toy("short", "slow"), "smoke", track=progress.blocks("toy", "steps"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6 and lines[-1].startswith("toy: 6/6 steps, about 0 s left")


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
