"""How the objects of a workflow show themselves: one line and a table, as text in a terminal, as HTML in a notebook."""

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import xarray as xr

from cje_core.calibration.calibrated import Calibrated


class Shown(NamedTuple):
    """A heading, and a table of texts under it."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Columns under each other; no line ends in blanks."""
        table = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([self.heading, *lines])

    def html(self) -> str:
        """The same, every name escaped."""

        def line(kind: str, row: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{kind}>{html.escape(text)}</{kind}>" for text in row) + "</tr>"

        body = "".join(line("td", row) for row in self.rows)
        return (
            f"<p>{html.escape(self.heading)}</p>"
            f"<table><thead>{line('th', self.columns)}</thead><tbody>{body}</tbody></table>"
        )


class Shows(ABC):
    """What has a heading and a table to show: as text in a terminal, as HTML in a notebook."""

    @abstractmethod
    def shown(self) -> Shown:
        """What is shown."""

    def __repr__(self) -> str:
        """Return the text."""
        return self.shown().text()

    def _repr_html_(self) -> str:
        return self.shown().html()


class OfData(Shows):
    """What was made of evaluation data, and what they teach."""

    calibrated: Calibrated
    levels: xr.Dataset  # what each value rests on, or why it is refused (`cje_core.verdict.refusal.level`)

    @property
    def data(self) -> xr.Dataset:
        """Evaluation data."""
        return self.calibrated.data

    @property
    def policies(self) -> list[str]:
        """Names, in the order of the data."""
        return [str(name) for name in self.data.policy.values]

    def of_level(self, column: str, policy: str) -> str:
        """What one column of the levels says of a policy."""
        return str(of_policy(self.levels, column, policy))

    def refused_by(self, policy: str) -> list[str]:
        """The gates that forbid the level; ``estimate`` where there is none."""
        return [name for name in self.of_level("refused_by", policy).split(", ") if name]


def of_policy(table: xr.Dataset, column: str, policy: str) -> Any:
    """What a column over ``policy`` alone says of one of them; hundreds of times a page, and ``sel`` takes .3 ms."""
    return table[column].values[table.get_index("policy").get_loc(policy)]


def number(value: float, scale: Sequence[float]) -> str:
    """Format with three decimals on a scale of width 1, fewer on a wider one; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{decimals(scale)}f}"


def decimals(scale: Sequence[float]) -> int:
    """Decimals that tell a thousandth of the scale."""
    return min(max(3 - math.floor(math.log10(scale[1] - scale[0])), 0), 6)
