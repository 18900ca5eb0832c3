"""What a file is, what it holds, and which command reads it."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cje_core.data.errors import DataError
from cje_core.data.fields import LARGEST, LEFT_OUT, Foreign
from cje_core.data.files import read
from cje_core.data.intake.foreign import Asked, field_names, foreign, items_of, score_names

TABLE = "table of responses"
# Words in the name of a score that say whose it is.
OF_ORACLE = re.compile(
    r"human|annotat|expert|oracle|label|gold|author|@app|thumb|rating|exact", re.IGNORECASE
)
JUDGE = re.compile(r"judge|graded|llm", re.IGNORECASE)  # surely
OF_JUDGE = re.compile(r"judge|llm|gpt|claude|rubric|grade|@model|eval|score", re.IGNORECASE)
SCALES = ((0.0, 1.0), (-1.0, 1.0), (1.0, 5.0), (0.0, 5.0), (1.0, 10.0), (0.0, 10.0), (0.0, 100.0))


class Scored(NamedTuple):
    """A score that a file holds."""

    n: int  # responses that have a number of it
    low: float
    high: float
    distinct: int  # numbers that differ


class Examined(NamedTuple):
    """What a path holds."""

    what: str
    policies: Mapping[str, int]  # usable responses of each
    prompts: int
    scores: Mapping[str, Scored]
    n_read: int
    n_usable: int
    left_out: pd.DataFrame
    judge: str | None  # a guess, of another tool's scores
    oracle: str | None
    problem: str  # why it cannot be read as it is; empty if it can
    beside: Mapping[str, Path] = {}  # probes and logged responses of the same policies, that lie beside it

    def scale(self, name: str) -> tuple[float, float] | None:
        """Smallest usual scale of the scores that a name or pattern means; None if there are none."""
        like = re.compile(re.escape(name).replace(r"\*", ".*"))
        held = [scored for other, scored in self.scores.items() if like.fullmatch(other) and scored.n]
        if not held:
            return None
        low, high = min(s.low for s in held), max(s.high for s in held)
        usual = [scale for scale in SCALES if scale[0] <= low and high <= scale[1]]
        return usual[0] if usual else (math.floor(low), math.ceil(high))


def examine(path: str | Path, asked: Asked = Asked()) -> Examined:  # noqa: B008
    """Say what a file or directory holds.

    Parameters
    ----------
    path : str or Path
    asked : Asked
        Fields of policy and prompt in a table of scores.

    Returns
    -------
    Examined
        ``problem`` is the one line of what keeps it from being read.

    Raises
    ------
    DataError
        Where the path itself cannot be opened.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or directory; check the path")
    try:
        found = items_of(path, asked)
    except DataError as error:
        return _unread("directory" if path.is_dir() else "file", str(error))
    if found is None:
        return _own(path)
    title, items, _ = found
    names = score_names(items)
    values = {name: [v for item in items if (v := item.scores.get(name)) is not None] for name in names}
    scores = {name: _scored(given) for name, given in values.items()}
    judge, oracle = _guess(scores)
    usable: Foreign | None = None
    problem = ""
    if judge is None:
        problem = (
            "no score that a judge may have given"
            if not names
            else "which score is the judge's? name it with judge=NAME"
        )
    else:
        try:
            usable = foreign(path, judge=judge, oracle=oracle, asked=asked)
        except DataError as error:
            problem = str(error)
    table = pd.DataFrame({"policy": []}) if usable is None else usable.table
    return Examined(
        title,
        {str(k): int(v) for k, v in table["policy"].value_counts(sort=False).sort_index().items()},
        len({item.prompt for item in items}),
        scores,
        len(items),
        len(table),
        pd.DataFrame(columns=LEFT_OUT) if usable is None else usable.left_out,
        judge,
        oracle,
        problem,
    )


def _own(path: Path) -> Examined:
    """What a table of responses in our own fields holds."""
    if is_logged(path):
        return _unread(
            "logged responses", f"give it with logged={str(path)!r}, beside fresh responses to its prompts"
        )
    wide = -LARGEST, LARGEST
    try:
        data, left_out = read(path, judge_range=wide, oracle_range=wide)
    except DataError as error:
        return _unread(TABLE, str(error))
    judged = data["evaluated"].sum(["prompt", "draw"])
    scores = {}
    for name, variable in (("judge_score", "judge"), ("oracle_label", "oracle")):
        values = data[variable].values
        scores[name] = _scored(values[np.isfinite(values)].tolist())
    n = int(judged.sum())
    policies = {str(p): int(judged.sel(policy=p)) for p in data["policy"].values}
    return Examined(TABLE, policies, data.sizes["prompt"], scores, n, n, left_out, None, None, "")


def is_logged(path: Path) -> bool:
    """Whether a file begins with a logged response that has its log-likelihoods.

    Examples
    --------
    >>> is_logged(Path("nowhere"))
    False
    """
    return path.is_file() and {"base_policy_logprob", "target_policy_logprobs"} <= field_names(path)


def _unread(what: str, problem: str) -> Examined:
    return Examined(what, {}, 0, {}, 0, 0, pd.DataFrame(columns=LEFT_OUT), None, None, problem)


def _scored(values: Sequence[float]) -> Scored:
    if not values:
        return Scored(0, math.nan, math.nan, 0)
    return Scored(len(values), min(values), max(values), len(set(values)))


def _guess(scores: Mapping[str, Scored]) -> tuple[str | None, str | None]:
    """Names, or patterns, of the judge's and the oracle's score.

    By their words, else by how many numbers they have, and among those the judge's by how many of these differ: a check
    of a rule says yes or no, a judge grades. One that is the same everywhere comes last: it tells nothing apart.
    """
    patterns: dict[str, int] = {}
    differ: dict[str, int] = {}
    for name, scored in scores.items():
        pattern = _pattern(name)
        key = pattern if sum(_pattern(other) == pattern for other in scores) > 1 else name
        patterns[key] = patterns.get(key, 0) + scored.n
        differ[key] = max(differ.get(key, 0), scored.distinct)
    by_oracle = [name for name in patterns if OF_ORACLE.search(name) and patterns[name]]
    by_judge = [name for name in patterns if name not in by_oracle and patterns[name]]
    by_judge.sort(
        key=lambda name: (
            not JUDGE.search(name), not OF_JUDGE.search(name), differ[name] == 1, -patterns[name], -differ[name], name
        )
    )  # fmt: skip
    by_oracle.sort(key=lambda name: (patterns[name], name))
    if not by_judge and len(by_oracle) > 1:
        by_judge = [by_oracle.pop()]
    if by_judge and not by_oracle and len(by_judge) > 1:
        fewest = min(by_judge, key=lambda name: patterns[name])
        if patterns[fewest] < max(patterns.values()):
            by_oracle = [fewest]
            by_judge.remove(fewest)
    return (by_judge[0] if by_judge else None), (by_oracle[0] if by_oracle else None)


def _pattern(name: str) -> str:
    """A name whose last number stands for any, unless it would mean others too."""
    return name if set(name) & set("*?[") else re.sub(r"\d+$", "*", name)
