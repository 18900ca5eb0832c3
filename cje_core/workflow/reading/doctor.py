"""What a file is, what it holds, and which command reads it."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.data.errors import DataError
from cje_core.data.fields import FIELDS, LARGEST, LEFT_OUT, line
from cje_core.data.files import read
from cje_core.data.intake.foreign import UNGRADED, Asked, Held, chosen, items_of, score_names, titles
from cje_core.data.intake.names import closest, normal
from cje_core.data.intake.recognize import File

TABLE = "table of responses"
# Words in the name of a score that say whose it is.
OF_ORACLE = re.compile(
    r"human|annotat|expert|oracle|label|gold|author|@app|@edit|thumb|rating|exact", re.IGNORECASE
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
    roles: Mapping[str, str] = {}  # what became policy, prompt, draw, judge and oracle, with counts
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
    return _other(path, found)


def _other(path: Path, held: Held) -> Examined:
    """What another tool's file holds: it is read as the printed command reads it."""
    scores = {name: _scored([]) for name in score_names(held.items)}
    values: dict[str, list[float]] = {name: [] for name in scores}
    for item in held.items:
        for name, value in item.scores.items():
            if value is not None:
                values[name].append(value)
    scores = {name: _scored(given) for name, given in values.items()}
    judge, oracle = _guess(scores)
    first = Examined(held.title, {}, 0, scores, len(held.items), 0, pd.DataFrame(columns=LEFT_OUT), judge, oracle, "",
                     held.roles)  # fmt: skip
    try:
        if judge is None and any(scored.n for scored in scores.values()):
            raise DataError("which score is the judge's? name it with judge=NAME")
        source = chosen(path, held, judge or next(iter(held.wordy), None), oracle)
        judge_range, oracle_range = (first.scale(name or "") or (0.0, 1.0) for name in (judge, oracle))
        data, left_out = read(source, judge_range=judge_range, oracle_range=oracle_range)
    except DataError as error:
        return first._replace(problem=str(error))
    policies, n_labels = _counts(data), int(data["labelled"].sum())
    n, prompts = sum(policies.values()), data.sizes["prompt"]
    roles = dict(held.roles)
    roles["policy"] = f"{roles.get('policy', 'policy')} ({len(policies)} values)"
    roles["prompt"] = f"{roles.get('prompt', 'prompt')} ({prompts} values)"
    roles["draw"] = f"{roles.get('draw', 'none')} (up to {data.sizes['draw']} a prompt)"
    roles["judge"] = f"{judge} ({n} responses)"
    roles["oracle"] = f"{oracle} ({n_labels} labels on them)" if oracle is not None else "none"
    return first._replace(policies=policies, prompts=prompts, n_usable=n, left_out=left_out, roles=roles)


def _counts(data: xr.Dataset) -> dict[str, int]:
    """Responses in the mean of each policy."""
    judged = data["evaluated"].sum(["prompt", "draw"])
    return {str(policy): int(judged.sel(policy=policy)) for policy in data["policy"].values}


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
        return _unread(TABLE, str(error) if _may_be_own(path) else _unknown(path))
    scores = {}
    for name, variable in (("judge_score", "judge"), ("oracle_label", "oracle")):
        values = data[variable].values
        scores[name] = _scored(values[np.isfinite(values)].tolist())
    policies, prompts = _counts(data), data.sizes["prompt"]
    n, n_labels = sum(policies.values()), int(np.isfinite(data["oracle"].values).sum())
    n_read = n + int(left_out["reason"].astype(str).str.startswith(UNGRADED).sum())
    roles = {
        "policy": f"{'the name of the file' if path.is_dir() else 'policy'} ({len(policies)} values)",
        "prompt": f"prompt_id ({prompts} values)",
        "draw": f"draw_idx (up to {data.sizes['draw']} a prompt)",
        "judge": f"judge_score ({n} responses)",
        "oracle": f"oracle_label ({n_labels} labels on them)" if n_labels else "none",
    }
    return Examined(TABLE, policies, prompts, scores, n_read, n, left_out, None, None, "", roles)


def _may_be_own(path: Path) -> bool:
    """Whether a file that could not be read has a field of a table of responses, or is no table at all."""
    file = File(path)
    names = file.names | file.inner if path.is_file() else frozenset()
    ours = set(map(normal, FIELDS[:5]))
    return not names or bool(set(map(normal, names)) & ours) or bool(closest(names, FIELDS[:5]))


def _unknown(path: Path) -> str:
    """What to say of a file that is neither ours nor of a tool that is known."""
    held = line(", ".join(sorted(File(path).names)), 160)
    return (
        f"{path}: neither a table of responses (prompt_id, policy, judge_score) nor a file that is known "
        f"({'; '.join(titles())}); it has {held}"
    )


def is_logged(path: Path) -> bool:
    """Whether a file begins with a logged response that has its log-likelihoods.

    Examples
    --------
    >>> is_logged(Path("nowhere"))
    False
    """
    return path.is_file() and {"base_policy_logprob", "target_policy_logprobs"} <= File(path).names


def _unread(what: str, problem: str) -> Examined:
    return Examined(what, {}, 0, {}, 0, 0, pd.DataFrame(columns=LEFT_OUT), None, None, problem)


def _scored(values: Sequence[float]) -> Scored:
    if not values:
        return Scored(0, math.nan, math.nan, 0)
    return Scored(len(values), min(values), max(values), len(set(values)))


def _guess(scores: Mapping[str, Scored]) -> tuple[str | None, str | None]:
    """Names, or patterns, of the judge's and the oracle's score.

    By their words; among those that may be the judge's by how many numbers they have and how many of these differ:
    a check of a rule says yes or no, a judge grades. One that is the same everywhere is last: it tells nothing apart. A
    score with fewer numbers is no oracle for that: a metric that failed on some responses has fewer too.
    """
    patterns: dict[str, int] = {}
    differ: dict[str, int] = {}
    alike = Counter(map(_pattern, scores))
    for name, scored in scores.items():
        pattern = _pattern(name)
        key = pattern if alike[pattern] > 1 else name
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
    if not by_judge and len(by_oracle) == len(scores) == 1:
        by_judge, by_oracle = by_oracle, []  # the one score there is
    judge = by_judge[0] if by_judge else None
    # Two filters of one metric are one grader, and no judge and oracle.
    by_oracle = [name for name in by_oracle if name.partition(",")[0] != (judge or "").partition(",")[0]]
    return judge, (by_oracle[0] if by_oracle else None)


def _pattern(name: str) -> str:
    """A name whose last number stands for any, unless it would mean others too."""
    return name if set(name) & set("*?[") else re.sub(r"\d+$", "*", name)
