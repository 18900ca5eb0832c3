"""CSV as records: each row has as many cells as the header, or the one that has not is named."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from cje_core.data.errors import DataError
from cje_core.io.intake.raw import raw_bytes

LONGEST = min(sys.maxsize, 2**31 - 1)  # characters of a cell; the parser's own limit is 131,072


def csv_rows(path: Path) -> Iterator[list[str]]:
    """Header and rows of a CSV file; blank lines are none.

    Raises
    ------
    DataError
        At the first row that is ragged or cannot be parsed, counted with the header as row 1.
    """
    raw = raw_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, row {row}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    csv.field_size_limit(LONGEST)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number, width = 0, 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{path}, row {number + 1}: not CSV ({error}); quote cells that hold a comma, a quote or a line break"
            ) from None
        if cells is None:
            return
        if not cells:
            continue
        number += 1
        width = width or len(cells)
        if len(cells) != width:
            more = "more" if len(cells) > width else "fewer"
            raise DataError(
                f"{path}, row {number}: {more} cells than the header has columns ({len(cells)}, not {width}); "
                "quote cells that hold a comma, and fill short rows up"
            )
        yield cells
