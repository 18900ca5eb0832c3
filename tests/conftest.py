"""Shared fixtures: where the real data lie, if they are here."""

import gc
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent

# Bytecode is kept, whatever the environment asks for: else every worker, and every process that a test starts, would
# compile the project and rewrite the asserts of all test modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Until all is collected: what is imported stays, and each search through it costs more than the last.
gc.disable()

# shared checks that are no test modules: their asserts too say what was compared
pytest.register_assert_rewrite("conformance_world", "user_files", "world_checks")

# The same examples in every run, as all seeds here are fixed; a slow machine is no failure.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def arena() -> Path:
    """Directory of the Arena sample, beside the checkout; it is not part of the project."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data" / "arena_sample"
    if not path.is_dir():
        pytest.skip("the Arena sample (shared/data/arena_sample beside the checkout) is not on this machine")
    return path


# The files that take a minute or more, the longest first: one that starts last would leave the other workers idle, for
# a file stays with one worker (its fixtures and simulated data sets are shared). `test_models` starts when `test_nuts`
# has compiled most of what it calls.
MINUTE = 60.0
MINUTES = (
    "core/bayes/test_nuts.py",
    "core/bayes/test_coverage_slow.py",
    "core/bayes/test_models.py",
    "core/bayes/test_generative.py",
    "core/estimators/test_interval_coverage_slow.py",
    "core/bayes/test_borrowed_slow.py",
    "test_first_run.py",
    "core/families/test_borrowed_slow.py",
    "studies/test_same_numbers.py",
    "core/bayes/test_sbc.py",
)
seconds: Counter[str] = Counter()  # of each file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first, then the others with slow tests, then the rest."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    first = {TESTS / name: k for k, name in enumerate(MINUTES)}

    def place(item: pytest.Item) -> int:
        return first.get(item.path, len(MINUTES)) if item.path in slow else len(MINUTES) + 1

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later search for garbage, which would take a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # the default looks after each 700 objects: thousands of times in a test
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which files `MINUTES` has forgotten."""
    known = {f"tests/{name}" for name in MINUTES}
    late = [name for name, spent in seconds.most_common() if spent > MINUTE and name not in known]
    if late:
        terminalreporter.write_line(
            f"a minute or more, and not in MINUTES of tests/conftest.py: {', '.join(late)}"
        )
