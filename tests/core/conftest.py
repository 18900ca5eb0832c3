"""User files that several tests of their reading share."""

from pathlib import Path

import pytest
from user_files import rows, write


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two policies, six labels on base."""
    write(tmp_path / "data" / "base_responses.jsonl", rows(labels=6))
    write(tmp_path / "data" / "other_responses.jsonl", rows())
    return tmp_path / "data"
