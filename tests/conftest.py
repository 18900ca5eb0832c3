"""Shared fixtures: where the real data lie, if they are here."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: a long file that starts last would leave the other workers idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
