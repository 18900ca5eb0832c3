"""Files of other tools: which reader knows one, which scores it holds, which of them are the judge's and the oracle's.

A reader is a module of `cje_core.io.readers` with ``TITLE``, ``ROLES``, ``knows(file)`` and ``read(files, asked)``:
it makes an `Item` of each response that a tool wrote, with every grade by its name as it stands in the file. What is
common to all is done here, on all items: words become numbers by a declared scale, names are matched, the mean of a
score is compared with the one that the file holds, items without a judge's number are left out with the reason, and the
rest are a table of responses, which goes through the checks of every table.
"""

import fnmatch
import importlib
import pkgutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import pandas as pd

from cje_core.data.errors import DataError, line
from cje_core.io.fields import LEFT_OUT, Foreign, show
from cje_core.io.intake.grades import Scale, as_numbers
from cje_core.io.intake.names import CAUTION
from cje_core.io.intake.recognize import File, files_in, is_readable_kind

NO_SCALE: Scale = MappingProxyType({})
READERS = "cje_core.io.readers"
UNGRADED = "ungraded: "  # begins the reason of an item that was read, and has no number of the judge
UNUSABLE = "unusable: "  # of one that the tool itself gave up
SUPERSEDED = (
    "superseded: "  # of one that a later attempt of the same run repeats: it is no response of its own
)
LABEL = "oracle_label"  # a further column of what is left out, where an item without a score has a label
APART = 0.005  # a mean that differs more from the file's own differs by more than its rounding
FEW = 10  # responses from which a policy of its own for each of them is a field misread


class Asked(NamedTuple):
    """What a reader is asked for beside scores."""

    responses: bool = False  # whether the texts are needed
    policy: str | None = None  # field that names the policy
    prompt: str | None = None  # field that names the prompt
    scale: Scale = NO_SCALE  # number of each word that is a grade


class Item(NamedTuple):
    """A response as a tool kept it."""

    file: str
    row: int
    policy: str
    prompt: str
    scores: Mapping[str, Any]  # grades as written: numbers, words, None
    draw: int = 0
    response: str | None = None
    cluster: str | None = None
    why: str = ""  # it cannot be used


class Aggregate(NamedTuple):
    """Mean of a score that a file itself holds."""

    file: str
    score: str
    name: str  # what the file calls it
    value: float
    of_prompts: bool = False  # a mean over prompts of the means over their draws


class Contents(NamedTuple):
    """What a reader makes of files."""

    items: list[Item]
    roles: Mapping[str, str] = MappingProxyType({})  # which fields of these files became policy, prompt, draw
    notes: Sequence[tuple[str, str]] = ()  # file, and what is to be said of it
    aggregates: Sequence[Aggregate] = ()
    scale: Scale = NO_SCALE  # number of each word that the tool declares


class Held(NamedTuple):
    """What a path of another tool's files holds; scores are numbers."""

    title: str
    items: list[Item]
    wordy: Mapping[str, str]  # what is wanting of each score whose words have no scale
    roles: Mapping[str, str]
    notes: list[tuple[str, str]]
    apart: list[tuple[str, str, str]]  # file, score, and what is to be said of its mean


def readers() -> list[str]:
    """Names of the readers: the directory is the registry.

    Examples
    --------
    >>> "inspect_log" in readers()
    True
    """
    package = importlib.import_module(READERS)
    return sorted(found.name for found in pkgutil.iter_modules(package.__path__))


def titles() -> list[str]:
    """Titles of all formats of other tools."""
    return [importlib.import_module(f"{READERS}.{name}").TITLE for name in readers()]


def reader_of(file: File) -> ModuleType | None:
    """Return the reader that knows a file; None where none does, as of a table of responses in our own fields."""
    if file.is_own:
        return None
    modules = (importlib.import_module(f"{READERS}.{name}") for name in readers())
    return next((module for module in modules if module.knows(file)), None)


def found_in(path: Path) -> tuple[ModuleType, list[File], list[Path]] | None:
    """Reader of a file or of the files of a directory, those files, and the others; None where none is known.

    A directory is looked into, and its directories; one with a table of responses in our own fields is our own.
    """
    if not path.is_dir():
        file = File(path)
        module = reader_of(file) if path.is_file() else None
        return None if module is None else (module, [file], [])
    files = [file for file in files_in(path) if is_readable_kind(file)]
    if any(file.is_own for file in files if file.path.parent == path):
        return None
    known = {file: module for file in files if (module := reader_of(file)) is not None}
    if not known:
        return None
    module = next(iter(known.values()))
    mixed = next((file for file, other in known.items() if other is not module), None)
    if mixed is not None:
        raise DataError(
            f"{mixed.path}: {known[mixed].TITLE}, beside files of another tool ({module.TITLE}); part them"
        )
    return module, list(known), [file.path for file in files if file not in known]


def items_of(path: Path, asked: Asked = Asked()) -> Held | None:  # noqa: B008
    """All items of a path, every grade that has a scale as a number; None where no reader knows the path."""
    found = found_in(path)
    if found is None:
        return None
    module, files, unread = found
    contents: Contents = module.read(files, asked)
    if not contents.items:
        raise DataError(f"{path}: {module.TITLE} without any item; give one that has run")
    items, wordy = _graded(contents, asked.scale)
    _check_policies(path, items, contents.roles)
    notes = [*contents.notes, *((str(file), "another file beside those that were read") for file in unread)]
    return Held(module.TITLE, items, wordy, contents.roles, notes, _apart(contents.aggregates, items))


def foreign(
    path: str | Path,
    *,
    judge: str | None = None,
    oracle: str | None = None,
    asked: Asked = Asked(),  # noqa: B008
) -> Foreign | None:
    """Responses of another tool's file or directory of files, as `cje_core.io.files.read` takes them.

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
        Where a name is not there: with those that are; where a score's words have no scale.
    """
    path = Path(path)
    held = items_of(path, asked)
    return None if held is None else chosen(path, held, judge, oracle)


def chosen(path: Path, held: Held, judge: str | None, oracle: str | None) -> Foreign:
    """Responses with the scores that are named; see `foreign`."""
    names = score_names(held.items)
    of_oracle = matching(names, oracle, "oracle", path) if oracle is not None else []
    rest = [name for name in names if name not in of_oracle]
    if not names:
        raise DataError(f"{path}: {held.title} without any score; grade the responses first")
    if judge is None and len(rest) != 1:
        raise DataError(
            f"{path}: which score is the judge's? name it with judge=NAME; it has {_listed(rest)}"
        )
    of_judge = rest if judge is None else matching(names, judge, "judge", path)
    for name in dict.fromkeys([*of_judge, *of_oracle]):
        if name in held.wordy:
            raise DataError(f"{path}: score {name} has no numbers: {held.wordy[name]}")
    if both := set(of_judge) & set(of_oracle):
        raise DataError(f"{path}: {min(both)} is named as judge and as oracle; name two scores")
    return _table(path, held, of_judge, of_oracle)


def score_names(items: Sequence[Item]) -> list[str]:
    """Names of all scores, in order of name."""
    return sorted(set().union(*(item.scores for item in items)))


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


def text_of(value: Any) -> str:
    """Id or name as text.

    Examples
    --------
    >>> text_of(7), text_of("a"), text_of(3.0)
    ('7', 'a', '3')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def field_of(record: Mapping[str, Any], name: str) -> Any:
    """Value of a field, also of one within objects, ``object.field``; None where there is none.

    Examples
    --------
    >>> field_of({"a": {"b": 1}, "c.d": 2}, "a.b"), field_of({"a": {"b": 1}, "c.d": 2}, "c.d")
    (1, 2)
    """
    if name in record:
        return record[name]
    first, _, rest = name.partition(".")
    inner = record.get(first)
    return field_of(inner, rest) if rest and isinstance(inner, dict) else None


def named_by(name: str, places: Sequence[Mapping[str, Any]], where: str, role: str) -> str:
    """Policy or prompt that the field which the user names says; `DataError` where no place has it."""
    for record in places:
        value = field_of(record, name)
        if value is not None and value != "":
            return text_of(value) if not isinstance(value, dict | list) else str(value)
    held = _listed(sorted({str(key) for record in places for key in record}))
    raise DataError(f"{where}: {name} is missing, and is to name the {role}; it has {held}")


def _listed(names: Sequence[str]) -> str:
    return line(", ".join(names), 200) or "none"


def _graded(contents: Contents, scale: Scale) -> tuple[list[Item], dict[str, str]]:
    """Items with numbers for grades, and what is wanting of the scores whose words have no scale."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for item in contents.items:
        for name, grade in item.scores.items():
            columns[name].append(grade)
    wordy: dict[str, str] = {}
    numbers = {}
    for name, grades in columns.items():
        found, wanting = as_numbers(grades, contents.scale, scale)
        numbers[name] = iter(found)
        if wanting:
            wordy[name] = wanting
    items = [
        item._replace(scores={name: next(numbers[name]) for name in item.scores}) for item in contents.items
    ]
    return items, wordy


def _check_policies(path: Path, items: Sequence[Item], roles: Mapping[str, str]) -> None:
    """Stop where each response has a policy of its own: what names them is no policy."""
    counts = Counter(item.policy for item in items)
    if len(counts) >= FEW and max(counts.values()) == 1:
        field = roles.get("policy", "the field of the policy")
        raise DataError(
            f"{path}: {field} differs in every response ({len(counts)} values), so it names no policy; name one that "
            "does with policy_field=NAME"
        )


def _apart(aggregates: Sequence[Aggregate], items: Sequence[Item]) -> list[tuple[str, str, str]]:
    """What to say of means that differ from those that the files hold."""
    wanted = {(one.file, one.score) for one in aggregates}
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        for name, value in item.scores.items():
            if (item.file, name) in wanted and value is not None and not item.why:
                values[item.file, name][item.prompt].append(value)
    found = []
    for one in aggregates:
        held = list(values[one.file, one.score].values())
        if not held:
            continue
        n = sum(map(len, held))
        mean = sum(map(fmean, held)) / len(held) if one.of_prompts else sum(map(sum, held)) / n
        if abs(mean - one.value) > APART:
            said = (
                f"{one.name} of {one.score} in the file is {one.value:.3f}, the mean of the {n} grades read"
            )
            found.append((one.file, one.score, f"{CAUTION}{said} {mean:.3f}: the tool counts others"))
    return found


def _table(path: Path, held: Held, judge: Sequence[str], oracle: Sequence[str]) -> Foreign:
    kept: list[dict[str, Any]] = []
    gone: list[tuple[Any, ...]] = []
    of_judge, of_oracle = dict.fromkeys(judge), dict.fromkeys(oracle)
    labelled = 0
    for item in held.items:
        score, label = _mean(item.scores, of_judge), _mean(item.scores, of_oracle)
        labelled += label is not None
        if item.why or score is None:
            reason = item.why or f"{UNGRADED}{line(' or '.join(judge), 60)} gave no number"
            gone.append((item.file, item.row, item.policy, item.prompt, reason, None if item.why else label))
            continue
        kept.append({
            "file": item.file, "row": item.row, "policy": item.policy, "prompt_id": item.prompt,
            "draw_idx": item.draw, "judge_score": score, "oracle_label": label, "response": item.response,
            "cluster": item.cluster,
        })  # fmt: skip
    if not kept:
        raise DataError(f"{path}: none of its {len(held.items)} items has a number of {_listed(judge)}")
    if labelled and not any(row["oracle_label"] is not None for row in kept):
        first = next(item for item in held.items if _mean(item.scores, of_oracle) is not None)
        raise DataError(
            f"{path}: {_listed(judge)} and {_listed(oracle)} share no response: {len(kept)} have a score of the judge, "
            f"as of prompt {show(kept[0]['prompt_id'])}, and {labelled} others a label, as of {show(first.prompt)}; "
            "name scores of the same responses"
        )
    notes = [*held.notes, *((file, said) for file, name, said in held.apart if name in of_judge | of_oracle)]
    gone += [(file, pd.NA, "", "", said, None) for file, said in notes]
    table = pd.DataFrame(kept).astype(object)
    table["row"] = table["row"].astype(int)
    left_out = pd.DataFrame(gone, columns=[*LEFT_OUT, LABEL])
    if left_out[LABEL].isna().all():  # labels of the ungraded say what these are worth
        left_out = left_out[LEFT_OUT]
    return Foreign(table, left_out, str(path))


def _mean(scores: Mapping[str, Any], names: Mapping[str, None]) -> float | None:
    """Mean of an item's own scores among the named ones: an item has few, and thousands of voters may be named."""
    if len(names) == 1:
        return scores.get(next(iter(names)))
    held = [value for name, value in scores.items() if name in names and value is not None]
    return sum(held) / len(held) if held else None
