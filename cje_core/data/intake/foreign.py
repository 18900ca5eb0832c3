"""Files of other tools: which reader knows one, which scores it holds, which of them are the judge's and the oracle's.

A reader is a module of `cje_core.data.readers` with ``TITLE``, ``knows(head)`` and ``items(path, asked)``: it makes
`Item` of what a tool wrote, with every score by its name. What is common to all stands here: names are matched, items
without a judge's number are left out with the reason, and the rest are a table of responses.
"""

import fnmatch
import importlib
import math
import pkgutil
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cje_core.data.errors import DataError
from cje_core.data.fields import LEFT_OUT, Foreign, line
from cje_core.data.intake.raw import HEAD, JSON_KEY, LINES, PARQUET, is_zipped, kind_of, parsed, readable

READERS = "cje_core.data.readers"
UNGRADED = "ungraded: "  # begins the reason of an item that was read, and has no number of the judge
UNUSABLE = "unusable: "  # of one that the tool itself gave up
LABEL = "oracle_label"  # a further column of what is left out, where an item without a score has a label
WORDS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class Head(NamedTuple):
    """What the first bytes of a file show."""

    path: Path
    kind: str
    names: frozenset[str]  # fields of the first row; of a whole document, none
    text: bytes


class Asked(NamedTuple):
    """What a reader is asked for beside scores."""

    responses: bool = False  # whether the texts are needed
    policy: str | None = None  # field that names the policy
    prompt: str | None = None  # field that names the prompt


class Item(NamedTuple):
    """A response as a tool kept it."""

    file: str
    row: int
    policy: str
    prompt: str
    scores: Mapping[str, float | None]  # None: the scorer gave nothing that is a number
    draw: int = 0
    response: str | None = None
    cluster: str | None = None
    why: str = ""  # it cannot be used


def readers() -> list[str]:
    """Names of the readers: the directory is the registry.

    Examples
    --------
    >>> "inspect_log" in readers()
    True
    """
    package = importlib.import_module(READERS)
    return sorted(found.name for found in pkgutil.iter_modules(package.__path__))


def reader_of(path: Path) -> ModuleType | None:
    """Return the reader that knows a file; None where none does, as of a table of responses in our own fields."""
    head = _head(path)
    if "judge_score" in head.names:
        return None
    modules = (importlib.import_module(f"{READERS}.{name}") for name in readers())
    return next((module for module in modules if module.knows(head)), None)


def found_in(path: Path) -> tuple[ModuleType, list[Path], list[Path]] | None:
    """Reader of a file or of the files of a directory, those files, and the others; None where none is known.

    A directory is looked into, and its directories; one with a table of responses in our own fields is our own.
    """
    if not path.is_dir():
        module = reader_of(path) if path.is_file() else None
        return None if module is None else (module, [path], [])
    files = sorted(file for pattern in ("*", "*/*") for file in path.glob(pattern) if file.is_file())
    known = {file: module for file in files if (module := reader_of(file)) is not None}
    if not known or any("judge_score" in _head(file).names for file in files if file.parent == path):
        return None
    module = next(iter(known.values()))
    mixed = next((file for file, other in known.items() if other is not module), None)
    if mixed is not None:
        raise DataError(
            f"{mixed}: {known[mixed].TITLE}, beside files of another tool ({module.TITLE}); part them"
        )
    return module, list(known), [file for file in files if file not in known]


def items_of(path: Path, asked: Asked = Asked()) -> tuple[str, list[Item], list[Path]] | None:  # noqa: B008
    """Name of the format, items and unread files of a path; None where no reader knows it."""
    found = found_in(path)
    if found is None:
        return None
    module, files, unread = found
    items = module.items(files, asked)
    if not items:
        raise DataError(f"{path}: {module.TITLE} without any item; give one that has run")
    return module.TITLE, items, unread


def foreign(
    path: str | Path,
    *,
    judge: str | None = None,
    oracle: str | None = None,
    asked: Asked = Asked(),  # noqa: B008
) -> Foreign | None:
    """Responses of another tool's file or directory of files, as `cje_core.data.files.read` takes them.

    Parameters
    ----------
    path : str or Path
    judge, oracle : str, optional
        Names of scores; a pattern with ``*`` means the mean of those that match. The judge may be left out where there
        is one other score only.
    asked : Asked

    Returns
    -------
    Foreign or None
        None where no reader knows the file: then it is a table of responses, or nothing.

    Raises
    ------
    DataError
        Where a name is not there: with those that are.
    """
    path = Path(path)
    found = items_of(path, asked)
    if found is None:
        return None
    _, items, unread = found
    names = score_names(items)
    of_oracle = matching(names, oracle, "oracle", path) if oracle is not None else []
    rest = [name for name in names if name not in of_oracle]
    if judge is None and len(rest) != 1:
        raise DataError(
            f"{path}: which score is the judge's? name it with judge=NAME; it has {_listed(rest)}"
        )
    of_judge = rest if judge is None else matching(names, judge, "judge", path)
    return _table(path, items, of_judge, of_oracle, unread)


def score_names(items: Sequence[Item]) -> list[str]:
    """Names of all scores, in order of name."""
    return sorted({name for item in items for name in item.scores})


def matching(names: Sequence[str], wanted: str, option: str, path: Path) -> list[str]:
    """Scores that a name or pattern means; a name may leave out its source (``quality`` of ``quality@HUMAN``)."""
    if wanted in names:
        return [wanted]
    found = fnmatch.filter(names, wanted)
    if found:
        return found
    found = [name for name in names if name.startswith((f"{wanted}@", f"{wanted},"))]
    if len(found) == 1:
        return found
    if found:
        raise DataError(f"{path}: {option}={wanted!r}: it is ambiguous; take one of {_listed(found)}")
    raise DataError(f"{path}: {option}={wanted!r}: no such score; it has {_listed(names)}")


def number(value: Any) -> float | None:
    """A score as a float: numbers, truth values, and the words and letters that graders write; else None.

    Examples
    --------
    >>> number(True), number("C"), number("0.25"), number(float("nan")), number("maybe"), number([1])
    (1.0, 1.0, 0.25, None, None, None)
    """
    if isinstance(value, str):
        word = value.strip()
        if word.lower() in WORDS:
            return WORDS[word.lower()]
        try:
            value = float(word)
        except ValueError:
            return None
    if not isinstance(value, int | float | Decimal | np.number | np.bool_):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def text_of(value: Any) -> str:
    """Id or name as text.

    Examples
    --------
    >>> text_of(7), text_of("a"), text_of(3.0)
    ('7', 'a', '3')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _listed(names: Sequence[str]) -> str:
    return line(", ".join(names), 200) or "none"


def _table(
    path: Path, items: Sequence[Item], judge: Sequence[str], oracle: Sequence[str], unread: Sequence[Path]
) -> Foreign:
    kept: list[dict[str, Any]] = []
    gone: list[tuple[Any, ...]] = []
    for item in items:
        score, label = _mean(item.scores, judge), _mean(item.scores, oracle)
        if item.why or score is None:
            said = " or ".join(judge)
            reason = item.why or f"{UNGRADED}{line(said, 60)} gave no number"
            gone.append((item.file, item.row, item.policy, item.prompt, reason, None if item.why else label))
            continue
        kept.append({
            "file": item.file, "row": item.row, "policy": item.policy, "prompt_id": item.prompt,
            "draw_idx": item.draw, "judge_score": score, "oracle_label": label, "response": item.response,
            "cluster": item.cluster,
        })  # fmt: skip
    if not kept:
        raise DataError(f"{path}: none of its {len(items)} items has a number of {' or '.join(judge)}")
    gone += [(str(file), pd.NA, "", "", "another file beside those that were read", None) for file in unread]
    table = pd.DataFrame(kept).astype(object)
    table["row"] = table["row"].astype(int)
    left_out = pd.DataFrame(gone, columns=[*LEFT_OUT, LABEL])
    if left_out[LABEL].isna().all():  # labels of the ungraded say what these are worth
        left_out = left_out[LEFT_OUT]
    return Foreign(table, left_out, str(path))


def _mean(scores: Mapping[str, float | None], names: Sequence[str]) -> float | None:
    given = [value for name in names if (value := scores.get(name)) is not None]
    return sum(given) / len(given) if given else None


def field_names(path: Path) -> frozenset[str]:
    """Fields of the first row of a file; none where it is of another kind, or cannot be read."""
    return _head(path).names


def _head(path: Path) -> Head:
    """What a file begins with; nothing where it cannot be read, which is for others to say."""
    kind = kind_of(path)
    try:
        with readable(path) as file:
            text = file.read(HEAD).removeprefix(b"\xef\xbb\xbf")
    except DataError:
        return Head(path, kind, frozenset(), b"")
    return Head(path, kind, frozenset(_names(path, kind, text)), text)


def _names(path: Path, kind: str, text: bytes) -> list[str]:
    first = text.lstrip().partition(b"\n")[0]
    if kind == ".csv":
        return [name.strip().strip('"') for name in first.decode(errors="replace").strip().split(",")]
    if kind in PARQUET and not is_zipped(path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return [str(name) for name in pq.read_schema(path).names]
        except (pa.ArrowException, OSError):
            return []
    if kind not in LINES:
        return []
    try:
        record = parsed(first) if first.startswith(b"{") else _first_of_array(text)
    except (ValueError, RecursionError):  # a document over many lines, or a first line longer than the head
        return [name.decode(errors="replace") for name in JSON_KEY.findall(text)]
    if not isinstance(record, dict):
        return []
    inner = record.get("metadata")
    return [*record, *(["judge_score"] if isinstance(inner, dict) and "judge_score" in inner else [])]


def _first_of_array(text: bytes) -> Any:
    """First object of an array, of which only the beginning may be there."""
    import json

    start = text.decode(errors="replace").lstrip()
    if not start.startswith("["):
        return None
    return json.JSONDecoder().raw_decode(start[1:].lstrip())[0]
