"""Tables of text: as many columns as a page or a terminal has room for, LaTeX, Markdown, and names of files."""

import re
from collections.abc import Iterator, Sequence

import pandas as pd

from cje_core.streams import digest

WIDTH = 100  # characters of a terminal, and of a page
LONG_TABLE = 40  # rows beyond which a table is folded away
GAP = 2  # blanks between columns
# What TeX reads as a command, and how it is printed
TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
}  # fmt: skip


def header(name: str, width: int) -> list[str]:
    """Lines of a column's name, broken between words and after underscores, no wider than need be.

    Examples
    --------
    >>> header("largest coverage part", 8), header("interval_score", 9)
    (['largest', 'coverage', 'part'], ['interval_', 'score'])
    """
    words = re.findall(r"[^\s_]+_*\s?|_+\s?", name) or [""]
    widest = max(width, *(len(word.rstrip()) for word in words))
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1] + word.rstrip()) > widest:
            lines.append("")
        lines[-1] += word
    return [line.rstrip() for line in lines]


def _widths(frame: pd.DataFrame) -> list[int]:
    """Characters of each column, with its name on as many lines as it takes."""
    cells = [frame[column].str.len().max() if len(frame) else 0 for column in frame.columns]
    return [
        max(int(most), *(len(line) for line in header(str(name), int(most))))
        for name, most in zip(frame.columns, cells, strict=True)
    ]


def fitting(frame: pd.DataFrame, width: int = WIDTH) -> pd.DataFrame:
    """The first columns of a table of text, as many as `width` characters have room for, and at least one."""
    room, chosen = width + GAP, 0
    for need in _widths(frame):
        room -= need + GAP
        if room < 0 and chosen:
            break
        chosen += 1
    return frame.iloc[:, :chosen]


def plain(frame: pd.DataFrame, width: int = WIDTH, rows: int = LONG_TABLE) -> str:
    """A table of text for the terminal, with a line that says what it had no room for."""
    shown = fitting(frame, width).head(rows)
    sizes = _widths(shown)
    names = [header(str(column), size) for column, size in zip(shown.columns, sizes, strict=True)]
    height = max(map(len, names))
    names = [[""] * (height - len(lines)) + lines for lines in names]
    left = [not _numeric(shown[column]) for column in shown.columns]
    body = [[lines[k] for lines in names] for k in range(height)] + shown.to_numpy().tolist()
    text = [
        (" " * GAP)
        .join(
            cell.ljust(size) if to_left else cell.rjust(size)
            for cell, size, to_left in zip(row, sizes, left, strict=True)
        )
        .rstrip()
        for row in body
    ]
    columns, lines = frame.shape[1] - shown.shape[1], len(frame) - len(shown)
    more = [f"{n} more {word}{'s' * (n > 1)}" for n, word in ((columns, "column"), (lines, "row")) if n]
    return "\n".join([*text, *([f"({' and '.join(more)} in the report)"] if more else [])])


def _numeric(column: "pd.Series[str]") -> bool:
    return bool(column.str.match(r"^(-|[-+]?[\d.,]+(e[-+]?\d+)?\b.*)$").all())


def tex(text: object) -> str:
    r"""Text for LaTeX.

    Examples
    --------
    >>> print(tex("a_b > 50%"))
    a\_b \textgreater{} 50\%
    """
    return "".join(TEX.get(character, character) for character in str(text))


def latex(title: str, frame: pd.DataFrame) -> str:
    """A table of text in LaTeX; it takes the packages booktabs and longtable, which breaks it over pages."""
    align = "".join("r" if _numeric(frame[column]) else "l" for column in frame.columns)
    styled = (
        frame.reset_index(drop=True).style.hide(axis="index").format(tex).format_index(tex, axis="columns")
    )
    return styled.to_latex(environment="longtable", hrules=True, column_format=align, caption=tex(title))


def markdown(frame: pd.DataFrame) -> str:
    """A table of text in Markdown."""
    align = ["---:" if _numeric(frame[column]) else "---" for column in frame.columns]
    body = [[str(cell).replace("|", "\\|") for cell in row] for row in frame.to_numpy().tolist()]
    lines = [[str(column).replace("|", "\\|") for column in frame.columns], align, *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def file_names(titles: Sequence[str]) -> Iterator[str]:
    """A name for the files of each table: the first words of its title, told apart where they are the same."""
    taken: set[str] = set()
    for title in titles:
        words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        name = (words if len(words) <= 48 else words[:49].rpartition("-")[0]) or "table"
        name = name if name not in taken else f"{name}-{digest(title, 3)}"
        taken.add(name)
        yield name
