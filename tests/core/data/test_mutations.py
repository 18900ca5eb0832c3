"""A sample of the mutated files of `mutated_files`: no traceback, and no item lost without a word."""

import pytest
from mutated_files import SOURCES, run


@pytest.mark.slow
def test_mutated_files_are_read_or_refused() -> None:
    found = run(30 * len(SOURCES))
    read = {name for name, what in found if what == "read"}
    assert read == set(SOURCES) and sum(n for (_, what), n in found.items() if what == "refused") >= 30
