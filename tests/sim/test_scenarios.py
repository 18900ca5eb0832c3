"""Conformance of every scenario that the directory holds: no scenario is named here."""

import itertools
import re
import statistics
from pathlib import Path

import pytest
import world_checks as check

from cje_sim import scenarios

FOUND = scenarios.available()
every_world = pytest.mark.parametrize("name", FOUND)
# their truths are slow checks: the other worlds are tried in the fast suite
LONG = (
    "arena_like", "mbpp_like", "zipf_hot_target", "zipf_tilt", "clone_with_tf_noise", "clustered", "finite_model",
)  # fmt: skip
assert set(LONG) <= set(FOUND)
FILES = [Path(scenarios.__file__).with_name(f"{name}.py") for name in scenarios.available()]


@every_world
def test_signature(name: str) -> None:
    check.signature(scenarios.load(name))


@every_world
@pytest.mark.parametrize("design", ["own", "base"])
def test_schema_and_labels(name: str, design: str) -> None:
    check.labels(scenarios.load(name), design)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in FOUND]
)
def test_truth_against_simulation(name: str) -> None:
    check.truth_against_simulation(scenarios.load(name))


@every_world
def test_variables_are_their_own(name: str) -> None:
    check.variables_are_their_own(scenarios.load(name))


@every_world
def test_same_seed_same_data_and_no_global_state(name: str) -> None:
    check.same_seed_same_data(scenarios.load(name))


@every_world
def test_generator_moves_on(name: str) -> None:
    check.generator_moves_on(scenarios.load(name))


@every_world
def test_logs_are_the_base_policys_first_responses(name: str) -> None:
    check.logs(scenarios.load(name))


def without_examples(source: str) -> str:
    """A source without the examples of its docstring, which call the same functions in every world."""
    return re.sub(r'(?s)\n\nExamples\n--------\n.*?\n"""\n', '\n"""\n', source)


def shared_runs(sources: list[str], length: int = 6) -> list[tuple[str, ...]]:
    """Runs of lines that two sources share, blank lines and indents aside."""
    runs = []
    for source in sources:
        lines = [line.strip() for line in source.splitlines() if line.strip()]
        runs.append({tuple(lines[i : i + length]) for i in range(len(lines) - length + 1)})
    return [run for one, two in itertools.combinations(runs, 2) for run in one & two]


def test_a_world_says_only_its_own() -> None:
    sources = [without_examples(path.read_text(encoding="utf-8")) for path in FILES]
    assert shared_runs(sources) == []
    assert (
        statistics.median_low(len(source.splitlines()) for source in sources) <= 60
    )  # half of them, or more


def test_a_shared_run_is_caught() -> None:
    common = "a\n\n b\nc\nd\ne\nf\n"
    assert shared_runs([common + "x", "y\n" + common]) == [tuple("abcdef")]
    assert shared_runs([common.replace("c", "g"), common]) == []
