"""A page of tables that lose nothing where the terminal is narrow: columns that do not fit are continued beneath."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cje_core.io.intake.names import shortened

BETWEEN = 2  # blanks between columns
LEAST_NAME, FULL_NAME = 8, 16  # a name folds down to the first; where columns are continued, to the second


def page(parts: Iterable[RenderableType]) -> Group:
    """The parts with a blank line between them."""
    return Group(*[shown for part in parts for shown in (Text(""), part)][1:])


def briefly(part: RenderableType, short: Mapping[str, str]) -> RenderableType:
    """A part of the page with short names in place of long ones, see `cje_core.io.intake.names.brief`."""
    if isinstance(part, Wide):
        return part.briefly(short)
    return _brief_cell(part, short) if isinstance(part, str | Text) else part


def _brief_cell(cell: str | Text, short: Mapping[str, str]) -> str | Text:
    text = cell if isinstance(cell, str) else cell.plain
    if not any(name in text for name in short):
        return cell
    said = shortened(text, short)
    return said if isinstance(cell, str) else Text(said, style=cell.style)


class Wide:
    """Columns and rows as `rich.table.Table` takes them; the first column names the rows.

    Rich drops the columns, the first of them too, that it finds no room for. Here a column that may not wrap needs the
    width of its longest line and another one its ``min_width``; columns are put side by side as long as they have it.
    """

    def __init__(self) -> None:
        self._columns: list[tuple[str, dict[str, Any]]] = []  # the header, and options of `Table.add_column`
        self._rows: list[tuple[str | Text, ...]] = []

    def add_column(self, header: str, **options: Any) -> None:
        """Add a column."""
        self._columns.append((header, options))

    def add_row(self, *cells: str | Text) -> None:
        """Add a row: its name, and a cell for each other column."""
        self._rows.append(cells)

    def briefly(self, short: Mapping[str, str]) -> "Wide":
        """Return the table with short names, if there are any."""
        found = Wide()
        found._columns = self._columns
        found._rows = [tuple(_brief_cell(cell, short) for cell in row) for row in self._rows]
        return found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """One table, or several with a blank line between them."""
        for k, chosen in enumerate(self._blocks(options.max_width)):
            if k:
                yield Text("")
            shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
            for column in (0, *chosen):
                header, given = self._columns[column]
                shown.add_column(header, **given)
            for row in self._rows:
                shown.add_row(row[0], *(row[column] for column in chosen))
            yield shown

    def _blocks(self, width: int) -> list[list[int]]:
        """Numbers of the columns beside the name in each table."""
        least = []
        for column, (_, given) in enumerate(self._columns):
            longest = self._longest(column)
            least.append(longest if given.get("no_wrap") else min(longest, given.get("min_width", longest)))
        name = self._longest(0)
        if min(name, LEAST_NAME) + sum(BETWEEN + need for need in least[1:]) <= width:
            return [list(range(1, len(least)))]
        blocks: list[list[int]] = []
        left = 0
        for column, need in enumerate(least[1:], start=1):
            if not blocks or need + BETWEEN > left:
                blocks.append([])
                left = width - min(name, FULL_NAME)
            blocks[-1].append(column)
            left -= need + BETWEEN
        return blocks

    def _longest(self, column: int) -> int:
        """Width of the longest line of a column."""
        texts = [self._columns[column][0], *(str(row[column]) for row in self._rows)]
        return max(cell_len(line) for text in texts for line in text.split("\n"))
