"""What ``cje-lab analyze --out`` writes."""

import json
from functools import partial
from pathlib import Path
from typing import IO

from cje_core.data import DataError
from studies._analyze import Analysis, to_json
from studies._blocks import write_whole


def check_out(out: Path) -> None:
    """Stop before the work if `out` cannot become a directory."""
    for path in (out, *out.parents):
        if path.exists():
            if not path.is_dir():
                raise DataError(f"--out {out}: {path} is a file; name a directory")
            return


def save(analysis: Analysis, out: Path) -> None:
    """Write estimates.json, forest.png and forest.svg; each is whole or absent."""
    from studies._forest import render

    text = json.dumps(to_json(analysis), indent=1, allow_nan=False) + "\n"
    files = {"estimates.json": text.encode("utf-8")}
    files |= {f"forest.{kind}": content for kind, content in render(analysis).items()}
    try:
        for name, content in files.items():
            write_whole(out / name, partial(_put, content))
    except OSError as error:
        raise DataError(
            f"--out {out}: {(error.strerror or str(error)).lower()}; name another directory"
        ) from None


def _put(content: bytes, handle: IO[bytes]) -> None:
    handle.write(content)
