"""The smallest level of a factor at which a measure reaches a target: how large n must be, how many labels suffice.

The measure is taken to be monotone in the factor, and nothing else: no curve is fitted. The bracket is halved on the
log scale at levels where the Monte Carlo interval of the measure lies on one side of the target. A level gets four
times the replicates until it does, or until it has `most` of them. One that stays open is near the target, and each end
of the bracket is then brought as near to it as that number of replicates can tell. With ``L = steps * looks`` intervals
at ``1 - (1 - prob) / L`` each (Bonferroni), the level that is sought lies in the bracket with probability at least
`prob`.

The interval of a measure with value v and MCSE s is ``v +- z s``; for a proportion of n replicates it is Agresti and
Coull's (1998) about (k + z^2 / 2) / (n + z^2), which has width at 0 and 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr
from scipy import special

from cje_core.streams import Cell, Level
from studies.engine.measures import MEASURES, PROPORTIONS, performance
from studies.engine.run import QUIET, Log, run_study
from studies.engine.study import Study, StudyError

MDE = "mde"  # (z_.8 + z_.975) times the empirical SE: of a difference, what a two-sided 5% test detects with power .8
DETECTS = float(special.ndtri(0.8) + special.ndtri(0.975))
LOOKS = 4  # sizes of a level's sample: most / 64, most / 16, most / 4, most


@dataclass(frozen=True)
class Question:
    """What is to be reached.

    Parameters
    ----------
    factor : str
        A number among the study's factors.
    method, estimand : str
        Of the study; an estimand is a policy or a difference of two.
    measure : str
        One of `studies.engine.measures.MEASURES`, or ``mde``.
    target : float
    """

    factor: str
    method: str
    estimand: str
    measure: str
    target: float


@dataclass(frozen=True)
class Look:
    """A look at one level: replicates, value with MCSE and interval, and on which side of the target it lies.

    ``side`` is -1 below the target, 1 above it and 0 where that is open.
    """

    level: float
    replicates: int
    value: float
    mcse: float
    lower: float
    upper: float
    side: int


@dataclass(frozen=True)
class Answer:
    """Where the level lies.

    Parameters
    ----------
    question : Question
    low, high : float
        The level that is sought is above `low` and at most `high`, with probability `prob`.
    about : float
        Between the two, on the line through their values.
    rising : bool
        Whether the measure grows with the factor: then `high` is the smallest level known to be at or above the target.
    looks : sequence of Look
        In the order in which they were taken.
    """

    question: Question
    low: float
    high: float
    about: float
    prob: float
    rising: bool
    looks: Sequence[Look]


def solve(
    study: Study,
    question: Question,
    between: tuple[float, float],
    *,
    out: Path,
    fixed: Mapping[str, Level],
    most: int = 6400,
    within: float = 0.05,
    prob: float = 0.95,
    run: Callable[[Study], xr.Dataset] | None = None,
) -> Answer:
    """Find the smallest level of a factor at which a measure of a study reaches a target.

    Parameters
    ----------
    study : Study
    question : Question
    between : (low, high)
        Levels between which it is sought, on different sides of the target.
    out : Path
        Replicates are kept there, as those of any run: the same question, or a finer one, starts from them.
    fixed : mapping
        One level of every other factor.
    most : int
        Replicates that one level may get.
    within : float
        Stop when ``high / low <= 1 + within``, or, of a whole number, when they are neighbours.
    prob : float
        Probability with which the answer holds.
    run : function, optional
        Runs the study it is given, of one cell, at its profile ``quick``; default: `run_study` with one process.

    Raises
    ------
    StudyError
        If the question does not fit the study, or the two ends lie on one side of the target.
    """
    whole = _check(study, question, between, fixed, most)
    low, high = (round(x) if whole else float(x) for x in between)
    steps = 2 + 3 * (whole + math.ceil(math.log2(max(math.log(high / low) / math.log1p(within), 2))))
    z = float(special.ndtri(1 - (1 - prob) / (2 * steps * LOOKS)))
    go = run or (lambda one: one_cell(one, out))
    looks: list[Look] = []

    def side_of(level: float) -> Look:
        for shrink in range(LOOKS - 1, -1, -1):
            n = math.ceil(most / 4**shrink)
            one = _of_one_cell(study, {**fixed, question.factor: int(level) if whole else level}, n)
            looks.append(_look(go(one), question, level, n, z))
            if looks[-1].side:
                break
        return looks[-1]

    first, last = side_of(low), side_of(high)
    if first.side * last.side != -1:
        ends = (
            f"{end.value:.4g} ({end.mcse:.2g}) at {question.factor}={end.level:g}" for end in (first, last)
        )
        raise StudyError(
            f"{question.measure} of {question.method} is {' and '.join(ends)}: the ends must lie on different sides of "
            f"{question.target:g}, beyond Monte Carlo error; widen the range, or allow more replicates"
        )
    rising = last.side == 1

    def between_(below: float, above: float) -> float | None:
        """Level in the middle, on the log scale; None where there is none worth a look."""
        if above / below <= 1 + within or (whole and above - below <= 1):
            return None
        middle = math.sqrt(below * above)
        return min(max(round(middle), below + 1), above - 1) if whole else middle

    inner = [
        low,
        high,
    ]  # the levels between which the answer is open, as far as looks went: at first everything
    edge = [low, high]  # ends of the bracket
    middle = between_(low, high)
    while middle is not None:
        side = side_of(middle).side
        if not side:
            inner = [middle, middle]
            break
        edge[0 if (side == 1) != rising else 1] = middle
        middle = between_(*edge)
    for end in (
        (0, 1) if inner[0] == inner[1] else ()
    ):  # about an open level, each end is brought as near as it goes
        open_ = inner[end]
        while (middle := between_(*sorted((edge[end], open_)))) is not None:
            side = side_of(middle).side
            mine = side != 0 and ((side == 1) != rising) == (end == 0)
            edge[end], open_ = (middle, open_) if mine else (edge[end], middle)
    low, high = edge
    return Answer(question, low, high, _about(looks, low, high, question.target), prob, rising, tuple(looks))


def _check(
    study: Study, question: Question, between: tuple[float, float], fixed: Mapping[str, Level], most: int
) -> bool:
    """Whether the factor is a whole number; raise what does not fit."""
    declared = study.factors.get(question.factor, ())
    numbers = [level for level in declared if isinstance(level, int | float) and not isinstance(level, bool)]
    known = {
        "factor": (question.factor, [name for name, levels in study.factors.items()
                                     if all(isinstance(v, int | float) and not isinstance(v, bool) for v in levels)]),
        "method": (question.method, list(study.methods)),
        "estimand": (question.estimand, study.columns),
        "measure": (question.measure, [*MEASURES, MDE]),
    }  # fmt: skip
    for what, (given, there) in known.items():
        if given not in there:
            raise StudyError(f"{what} {given!r}: study {study.name} has {', '.join(there) or 'none'}")
    if not math.isfinite(question.target):
        raise StudyError(f"target={question.target}: a number that the measure can reach")
    if not 0 < between[0] < between[1]:
        raise StudyError(
            f"between {between[0]:g} and {between[1]:g}: give two positive levels, the smaller one first"
        )
    lacking = set(study.factors) - {question.factor} - set(fixed)
    if lacking:
        raise StudyError(f"fix one level of {', '.join(sorted(lacking))}: the answer depends on them")
    if most < 4**LOOKS:
        raise StudyError(f"most={most}: a level needs up to {4**LOOKS} replicates at least")
    return all(isinstance(level, int) for level in numbers)


def _of_one_cell(study: Study, cell: Cell, replicates: int) -> Study:
    profile = replace(
        study.profiles["quick"], replicates=replicates, factors={k: (v,) for k, v in cell.items()}, more=()
    )
    return replace(study, profiles=dict.fromkeys(study.profiles, profile))


def one_cell(study: Study, out: Path, seed: int = 1, jobs: int = 1, log: Log = QUIET) -> xr.Dataset:
    """Run the one cell of a study's profile ``quick`` and return its results."""
    done = run_study(study, profile="quick", out=out, seed=seed, jobs=jobs, log=log)
    assert done.results is not None
    levels = {factor: levels[0] for factor, levels in study.profiles["quick"].factors.items()}
    return done.results.sel({factor: [level] for factor, level in levels.items()})


def _look(ds: xr.Dataset, question: Question, level: float, n: int, z: float) -> Look:
    """What `n` replicates say of a level."""
    name = "empirical_se" if question.measure == MDE else question.measure
    measured = performance(ds.isel(replicate=slice(n)), measures=[name]).sel(
        {"measure": name, "method": question.method, "policy": question.estimand}
    )
    scale = DETECTS if question.measure == MDE else 1.0
    value, mcse = (scale * float(np.squeeze(measured[part].values)) for part in ("value", "mcse"))
    center, half = value, z * mcse
    if question.measure in PROPORTIONS:
        trials = float(np.squeeze(measured["trials"].values))  # of a coverage, the intervals printed
        center = (value * trials + z**2 / 2) / (trials + z**2)
        half = z * math.sqrt(center * (1 - center) / (trials + z**2))
    side = 0
    if math.isfinite(half):
        side = 1 if center - half > question.target else -1 if center + half < question.target else 0
    return Look(level, n, value, mcse, center - half, center + half, side)


def _about(looks: Sequence[Look], low: float, high: float, target: float) -> float:
    """Where the line through the ends, over log level, meets the target."""
    ends = [
        max((look for look in looks if look.level == end), key=lambda look: look.replicates)
        for end in (low, high)
    ]
    share = float(target - ends[0].value) / (ends[1].value - ends[0].value)
    return float(low * (high / low) ** min(max(share, 0.0), 1.0))
