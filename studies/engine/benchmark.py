"""What a benchmark is, and how it is run: contenders do the same work in turns, and their CPU seconds are compared.

Only the standard library at import: the interpreter of a peer reads the benchmark's file too.
"""

import functools
import importlib.metadata
import inspect
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from studies.engine.stopwatch import Call, ContenderError, Elsewhere, Stopwatch

SCHEMA = "cje-lab-bench/1"
ENOUGH = 30.0  # CPU seconds: a contender that has used more in a case takes part in no further round of it
PATIENCE = 30.0  # CPU seconds: the first call of a peer that takes longer is not repeated to warm it up
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
        A public function of the benchmark's file. Takes a case's options, makes the data, and returns what is timed.
    role : {"ours", "peer", "limit"}
        ``limit``: what no implementation could do without, such as reading the bytes or drawing the numbers once.
    package : str, optional
        Distribution that it needs; a contender without it is left out, and a line says so.
    """

    name: str
    prepare: Callable[..., Call]
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
        Units of work in one call.
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
        call, ``rate`` units of work in one, ``multiple`` that of a lap to the first contender's in the same round;
        medians, lowest and highest over rounds.
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
    homes = {c.name: _home(c.package, peers) for c in benchmark.contenders}
    lacking = dict.fromkeys(c.package for c in benchmark.contenders if homes[c.name] is None)
    told["notes"] += [f"skipped: {p} is not installed (pip install 'cje-lab[peers]')" for p in lacking]
    races = []
    for case in benchmark.cases(profile):
        chosen = [c for c in benchmark.contenders if homes[c.name] and c.name not in case.left_out]
        told["notes"] += [f"{case.label}: without {name}, {why}" for name, why in case.left_out.items()]
        races.append((case, chosen))

    def steps() -> Iterator[None]:
        for case, chosen in races:
            told["cases"].append((yield from _race(case, chosen, homes, PROFILES[profile], told["notes"])))

    for _ in track(steps(), sum(len(chosen) for _, chosen in races) * (1 + PROFILES[profile].rounds)):
        pass
    return told


def _race(
    case: Case,
    contenders: Sequence[Contender],
    homes: Mapping[str, tuple[str, str] | None],
    size: Profile,
    notes: list[str],
) -> Generator[None, None, dict[str, Any]]:
    """Rounds of one lap each, after a turn that prepares; who begins changes from round to round."""
    laps: dict[str, list[dict[str, float]]] = {c.name: [] for c in contenders}
    running: dict[str, Stopwatch | Elsewhere] = {}
    with ExitStack() as ends:
        for turn in range(-1, size.rounds):
            first = max(turn, 0) % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                name = contender.name
                try:
                    if turn < 0:
                        running[name] = _start(contender, case, homes[name], size)
                        ends.enter_context(closing(running[name]))
                        running[name].warm()
                    elif name in running and sum(lap["total"] for lap in laps[name]) <= ENOUGH:
                        laps[name].append(running[name].lap())
                except ContenderError as error:  # a peer's bug is said, and the others go on
                    if contender.role != "peer":
                        raise
                    notes.append(f"{case.label}: {name} failed, {str(error).splitlines()[-1]}")
                    running.pop(name, None)
                    laps[name] = []
                yield
    reference = [lap["seconds"] for lap in laps[contenders[0].name]]
    rows = [_row(c, case, laps[c.name], reference, homes[c.name], size) for c in contenders if laps[c.name]]
    return {"case": case.label, "amount": case.amount, "whole": case.whole, "contenders": rows}


def _start(
    contender: Contender, case: Case, home: tuple[str, str] | None, size: Profile
) -> Stopwatch | Elsewhere:
    """Prepare a contender, here or in a process of its own."""
    assert home is not None
    patience = PATIENCE if contender.role == "peer" else math.inf  # ours may compile for longer
    if size.apart or home[0] != sys.executable:
        return Elsewhere(home[0], contender.prepare, case.options, size.least, patience)
    return Stopwatch(contender.prepare(**case.options), size.least, patience)


def _row(
    contender: Contender,
    case: Case,
    laps: Sequence[Mapping[str, float]],
    reference: Sequence[float],
    home: tuple[str, str] | None,
    size: Profile,
) -> dict[str, Any]:
    """What a contender's laps say; a multiple is of the first contender's lap of the same round."""
    seconds = [lap["seconds"] for lap in laps]
    multiples = [mine / other for mine, other in zip(seconds, reference, strict=False)]
    last, known = laps[-1], size.apart  # memory of a process that all contenders share is nobody's
    return {
        "name": contender.name,
        "role": contender.role,
        "version": home[1] if home else "",
        "rounds": len(laps),
        "calls": last["calls"],
        "seconds": _spread(seconds),
        "multiple": _spread(multiples),
        "rate": case.amount / statistics.median(seconds),
        "first_seconds": last["first"],
        "peak_mb": last["peak_mb"] if known else None,
        "added_mb": last["peak_mb"] - last["before_mb"] if known else None,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def _home(package: str, peers: str | None) -> tuple[str, str] | None:
    """Interpreter that has a distribution, the peers' before this one, and its version; None if neither has."""
    if not package:
        return sys.executable, ""
    for python in filter(None, (peers, sys.executable)):
        if version := _version(python, package):
            return python, version
    return None


@functools.cache
def _version(python: str, package: str) -> str:
    """Version of a distribution in an interpreter's environment; empty where it is not installed."""
    code = (
        "import sys, importlib.metadata as m\n"
        "print(next((d.version for d in m.distributions(name=sys.argv[1])), ''))"
    )
    if python == sys.executable:
        return next((d.version for d in importlib.metadata.distributions(name=package)), "")
    try:
        done = subprocess.run([python, "-c", code, package], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        from cje_core.data import DataError

        raise DataError(f"peers={python!r}: no Python runs there; give the path of an interpreter") from error
    return done.stdout.strip()
