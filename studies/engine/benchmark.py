"""What a benchmark is, and how it is run: contenders do the same work in turns, and their CPU seconds are compared.

Only the standard library at import: the interpreter of a peer reads the benchmark's file too.
"""

import inspect
import os
import statistics
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from studies.engine.running.interpreters import home
from studies.engine.stopwatch import Call, ContenderError, Elsewhere, Fresh, Stopwatch

SCHEMA = "cje-lab-bench/1"
ENOUGH = 30.0  # CPU seconds: a contender that has used more in a case takes part in no further round of it
ROLES = ("ours", "peer", "limit")


class Profile(NamedTuple):
    """Rounds, the least CPU seconds of a lap, and whether each contender gets a process of its own."""

    rounds: int
    least: float
    apart: bool


PROFILES = {
    "smoke": Profile(2, 0.0, False),
    "small": Profile(5, 0.05, True),
    "full": Profile(5, 0.2, True),
}


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Parameters
    ----------
    name : str
        As it is printed.
    prepare : function
        A public function of the benchmark's file. Takes a case's options, makes the data, and returns what is timed;
        `Fresh` where the code keeps anything of data that it has seen.
    role : {"ours", "peer", "limit"}
        ``limit``: what no implementation could do without, such as reading the bytes or drawing the numbers once.
    package : str, optional
        Distribution that it needs; a contender without it is left out, and a line says so.
    """

    name: str
    prepare: Callable[..., Call | Fresh]
    role: str = "ours"
    package: str = ""


@dataclass(frozen=True)
class Case:
    """One size or form of the work.

    Parameters
    ----------
    label : str
    options : mapping
        What every contender's ``prepare`` takes; JSON values.
    amount : float
        Units of work in one call, of contenders that do not count them.
    left_out : mapping
        Why a contender (by name) does not take part.
    whole : (float, str), optional
        A larger amount to which the measured rate is extrapolated, and what it is.
    """

    label: str
    options: Mapping[str, Any]
    amount: float = 1.0
    left_out: Mapping[str, str] = field(default_factory=dict)
    whole: tuple[float, str] | None = None


@dataclass(frozen=True)
class Benchmark:
    """A comparison; its file's docstring says what is compared.

    Parameters
    ----------
    title : str
    unit : str
        Of the work, in the plural.
    contenders : sequence of Contender
        CPU seconds are shown as multiples of the first one's.
    cases : function
        The cases of a profile.
    missing : function, optional
        Why the benchmark cannot be run on this machine; nothing where it can.
    per : {"second", "minute"}
        Unit of CPU time in which the page gives rates.
    """

    title: str
    unit: str
    contenders: Sequence[Contender]
    cases: Callable[[str], Sequence[Case]]
    missing: Callable[[], str] = lambda: ""
    per: str = "second"

    @property
    def about(self) -> str:
        """Docstring of the benchmark's file."""
        return inspect.getdoc(inspect.getmodule(self.cases)) or ""


class Entry(NamedTuple):
    """A contender, the interpreter that has what it needs, and the version of that."""

    contender: Contender
    python: str
    version: str


Track = Callable[[Iterator[None], int], Iterator[None]]


def run_all(
    benchmarks: Mapping[str, Benchmark],
    profile: str,
    *,
    peers: str | None = None,
    track: Callable[[str], Track] = lambda name: lambda steps, total: steps,
) -> dict[str, Any]:
    """Run benchmarks one after the other and give what was measured, as JSON values.

    Parameters
    ----------
    benchmarks : mapping of name to Benchmark
    profile : {"smoke", "small", "full"}
    peers : path, optional
        Python interpreter of an environment that has peers; one that it has not is looked for in this one.
    track : function
        Takes a benchmark's name and gives what wraps the iterator of its steps (a progress bar).

    Returns
    -------
    dict
        ``schema, profile``, the ``machine`` with versions, commit and load before and after, and ``benchmarks`` by
        name: ``cases`` with a row for each contender, and ``notes`` on what was skipped. Seconds are CPU seconds of a
        call, ``amount`` units of work in one and ``rate`` those in a second, ``multiple`` that of a lap to the first
        contender's in the same round; medians, lowest and highest over rounds.
    """
    from studies.engine.manifest import provenance
    from studies.engine.study import StudyError

    if profile not in PROFILES:
        raise StudyError(f"unknown profile {profile!r}; there are: {', '.join(PROFILES)}")
    before = os.getloadavg()[0]
    measured = {name: run(one, profile, peers=peers, track=track(name)) for name, one in benchmarks.items()}
    machine = {**provenance(), "load": [before, os.getloadavg()[0]]}
    return {"schema": SCHEMA, "profile": profile, "machine": machine, "benchmarks": measured}


def run(
    benchmark: Benchmark,
    profile: str,
    *,
    peers: str | None = None,
    track: Track = lambda steps, total: steps,
) -> dict[str, Any]:
    """Run one benchmark; see `run_all`."""
    told: dict[str, Any] = {name: getattr(benchmark, name) for name in ("title", "about", "unit", "per")}
    told |= {"cases": [], "notes": []}
    if missing := benchmark.missing():
        return told | {"notes": [f"skipped: {missing}"]}
    found = [(c, home(c.package, [peers] if peers else [])) for c in benchmark.contenders]
    present = [Entry(contender, *where) for contender, where in found if where]
    lacking = dict.fromkeys(contender.package for contender, where in found if not where)
    told["notes"] += [f"skipped: {p} is not installed (pip install 'cje-lab[peers]')" for p in lacking]
    races = []
    for case in benchmark.cases(profile):
        races.append((case, [entry for entry in present if entry.contender.name not in case.left_out]))
        told["notes"] += [f"{case.label}: without {name}, {why}" for name, why in case.left_out.items()]

    def steps() -> Iterator[None]:
        for case, entries in races:
            told["cases"].append((yield from _race(case, entries, PROFILES[profile], told["notes"])))

    for _ in track(steps(), sum(len(entries) for _, entries in races) * (1 + PROFILES[profile].rounds)):
        pass
    return told


def _race(
    case: Case, entries: Sequence[Entry], size: Profile, notes: list[str]
) -> Generator[None, None, dict[str, Any]]:
    """Rounds of one lap each, after a turn that prepares; who begins changes from round to round."""
    laps: list[list[dict[str, float]]] = [[] for _ in entries]
    running: dict[int, Stopwatch | Elsewhere] = {}
    with ExitStack() as ends:
        for turn in range(size.rounds + 1):
            for k in ((turn + step) % len(entries) for step in range(len(entries))):
                try:
                    if turn == 0:
                        running[k] = _prepare(entries[k], case, size)
                        ends.enter_context(closing(running[k]))
                        running[k].warm()
                    elif k in running and sum(lap["total"] for lap in laps[k]) <= ENOUGH:
                        laps[k].append(running[k].lap())
                except ContenderError as error:  # a peer's bug is said, and the others go on
                    if entries[k].contender.role != "peer":
                        raise
                    said = str(error).splitlines()[-1]
                    notes.append(f"{case.label}: {entries[k].contender.name} failed, {said}")
                    del running[k]
                    laps[k] = []
                yield
    reference = [lap["seconds"] for lap in laps[0]]
    rows = [_row(entry, case, own, reference, size) for entry, own in zip(entries, laps, strict=True) if own]
    return {"case": case.label, "amount": case.amount, "whole": case.whole, "contenders": rows}


def _prepare(entry: Entry, case: Case, size: Profile) -> Stopwatch | Elsewhere:
    """Start a contender, here or in a process of its own."""
    prepare = entry.contender.prepare
    if size.apart or entry.python != sys.executable:
        return Elsewhere(entry.python, prepare, case.options, size.least)
    return Stopwatch(prepare(**case.options), size.least)


def _row(
    entry: Entry,
    case: Case,
    laps: Sequence[Mapping[str, float]],
    reference: Sequence[float],
    size: Profile,
) -> dict[str, Any]:
    """What a contender's laps say; a multiple is of the first contender's lap of the same round."""
    seconds = [lap["seconds"] for lap in laps]
    last, known = laps[-1], size.apart  # memory of a process that all contenders share is nobody's
    amount = statistics.median(lap["amount"] for lap in laps) or case.amount
    return {
        "name": entry.contender.name,
        "role": entry.contender.role,
        "version": entry.version,
        "rounds": len(laps),
        "calls": last["calls"],
        "seconds": _spread(seconds),
        "multiple": _spread([mine / other for mine, other in zip(seconds, reference, strict=False)]),
        "amount": amount,
        "rate": amount / statistics.median(seconds),
        "first_seconds": last["first"],
        "peak_mb": last["peak_mb"] if known else None,
        "added_mb": last["peak_mb"] - last["before_mb"] if known else None,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}
