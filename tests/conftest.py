"""Shared fixtures: where the real data lie, if they are here."""

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


# Of the slow files those that take minutes, the longest first (CPU time): one that starts last would leave the other
# workers idle, for a file stays with one worker (its fixtures and simulated data sets are shared). `test_models` starts
# when `test_nuts` has compiled most of what it calls.
MINUTES = (
    "test_nuts.py",
    "test_first_run.py",
    "test_models.py",
    "test_coverage_slow.py",
    "test_interval_coverage_slow.py",
    "test_borrowed_slow.py",
    "test_sbc.py",
    "test_off_policy_slow.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first, then the others with slow tests, then the rest."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> int:
        if item.path not in slow:
            return len(MINUTES) + 1
        return MINUTES.index(item.path.name) if item.path.name in MINUTES else len(MINUTES)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later search for garbage, which would take a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.enable()
