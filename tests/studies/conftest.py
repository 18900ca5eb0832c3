"""The command line, run in this process."""

import sys
from collections.abc import Callable

import pytest

from studies.cli import app as command_line


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process; gives exit code, stdout, stderr."""

    def run(*words: object, command: str = "analyze") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cje-lab", command, *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run
