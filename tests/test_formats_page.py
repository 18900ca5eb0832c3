"""The page of other tools' formats is what their readers say of themselves."""

import importlib
from pathlib import Path

from cje_core.io.intake.foreign import READERS, readers

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "formats.md"
COLUMNS = ("policy", "prompt", "draw", "scores", "left out")


def table() -> str:
    """Return the rows of the table, a format each."""
    lines = [f"| file | {' | '.join(COLUMNS)} |", f"|{'---|' * (len(COLUMNS) + 1)}"]
    for name in readers():
        module = importlib.import_module(f"{READERS}.{name}")
        lines.append(f"| {module.TITLE} | {' | '.join(module.ROLES[column] for column in COLUMNS)} |")
    return "\n".join(lines)


def test_the_table_is_the_readers_own() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    print(table())
