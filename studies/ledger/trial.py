"""The ledger: claims decided, with their seconds; an error is an entry, not the end."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from joblib import delayed

from studies.engine.running.workers import in_processes, one_thread, settle_in
from studies.ledger.claim import VERDICTS, Claim, ClaimError, Evidence, Params, Trial, verdict

SCHEMA = "cje-lab-claims/1"


@dataclass(frozen=True)
class Entry:
    """A claim with its evidence and verdict; `error` where it could not be decided because something broke."""

    group: str
    claim: Claim
    evidence: Evidence
    verdict: str
    seconds: float
    error: str = ""

    @property
    def rerun(self) -> str:
        """The command that computes both sides at the counterexample again; empty where there is none."""
        if self.evidence.counterexample is None or self.claim.sides is None:
            return ""
        return f"cje-lab claims {self.claim.name} --at '{compact(self.evidence.counterexample)}'"


def compact(params: Params) -> str:
    """Parameters as one line of JSON.

    Examples
    --------
    >>> compact({"target": [1.0, 2.0], "n": 3})
    '{"target":[1.0,2.0],"n":3}'
    """
    return json.dumps(params, separators=(",", ":"))


def decide(
    groups: Mapping[str, Sequence[Claim]], profile: str, results: Path | None = None
) -> Iterator[Entry]:
    """Decide claims in order."""
    for group, claims in groups.items():
        for claim in claims:
            yield _entry(group, claim, profile, results)


def decide_in_processes(
    groups: Mapping[str, Sequence[Claim]],
    load: Callable[[str], Sequence[Claim]],
    profile: str,
    results: Path | None,
    jobs: int,
) -> Iterator[Entry]:
    """Decide claims of the registry in processes, as `decide` does but in the order in which they end.

    Claims hold functions that do not travel: a worker takes them from the registry by `load`.

    A claim's streams are its own (`Trial`), so where and after which others it is decided changes no number.
    """
    known = {(group, claim.name): claim for group, claims in groups.items() for claim in claims}
    # processes that an earlier run has left stand where this one stood then
    there = results.absolute() if results is not None else None
    tasks = [delayed(_elsewhere)(load, *key, profile, there, os.getpid()) for key in known]
    for group, name, *found in in_processes(tasks, jobs):
        yield Entry(group, known[group, name], *found)


def in_order(entries: Iterable[Entry], groups: Mapping[str, Sequence[Claim]]) -> list[Entry]:
    """Entries in the order of their claims."""
    place = [(group, claim.name) for group, claims in groups.items() for claim in claims]
    return sorted(entries, key=lambda entry: place.index((entry.group, entry.claim.name)))


def _elsewhere(
    load: Callable[[str], Sequence[Claim]],
    group: str,
    name: str,
    profile: str,
    results: Path | None,
    owner: int,
) -> tuple[str, str, Evidence, str, float, str]:
    """Decide one claim in a worker process: its entry's fields, and its name, as functions stay there."""
    settle_in(owner)
    [claim] = [one for one in load(group) if one.name == name]
    with one_thread():
        entry = _entry(group, claim, profile, results)
    return group, name, entry.evidence, entry.verdict, entry.seconds, entry.error


def _entry(group: str, claim: Claim, profile: str, results: Path | None) -> Entry:
    start = time.perf_counter()
    error = ""
    try:
        evidence = claim.decide(Trial(claim.name, profile, results=results))
    except Exception as broken:  # a claim must not take the ledger with it; the exit code says so
        error = f"{type(broken).__name__}: {broken}"
        evidence = Evidence(
            holds=None, measured="", expected="", text="", needs=f"it could not be computed, {error}"
        )
    seconds = time.perf_counter() - start
    found = verdict(claim, evidence)
    if found == "undecided" and not evidence.needs:
        evidence = replace(evidence, needs="a second method that gives the counterexample's sides too")
    return Entry(group, claim, evidence, found, seconds, error)


def again(claim: Claim, text: str) -> dict[str, Any]:
    """Both sides of a claim at parameters given as JSON, by both methods.

    Raises
    ------
    ClaimError
        For a claim without parameters, text that is no JSON object, parameters that make no world.
    """
    if claim.sides is None:
        raise ClaimError(f"{claim.name}: it has no parameters; leave --at out")
    try:
        params = json.loads(text)
    except json.JSONDecodeError as error:
        raise ClaimError(
            f"--at: not JSON ({error.msg} at character {error.pos}); copy it from the ledger"
        ) from None
    if not isinstance(params, dict):
        raise ClaimError("--at: it must be a JSON object; copy it from the ledger")
    found: dict[str, Any] = {"id": claim.name, "statement": claim.statement, "at": params}
    for name, method in (("first", claim.sides), ("second", claim.second)):
        if method is None:
            continue
        try:
            sides = method(params)
            broken = sides.broken(claim.relation)
        except KeyError as error:
            raise ClaimError(
                f"--at: {error.args[0]} is missing; copy the parameters from the ledger"
            ) from None
        except (TypeError, ValueError, IndexError) as error:
            raise ClaimError(f"--at: these parameters make no world ({error})") from None
        found[name] = {"left": sides.left, "right": sides.right, "mcse": sides.mcse, "broken": broken}
    if claim.second is not None and not claim.route:
        found["agree"] = claim.sides(params).agrees(claim.second(params))
    found["relation"] = claim.relation
    return found


def summary(entries: Sequence[Entry | Mapping[str, Any]]) -> str:
    """One line: how many claims hold, hold if, are refuted, are not reproduced, are undecided.

    Examples
    --------
    >>> summary([{"verdict": "holds"}, {"verdict": "refuted"}])
    '2 claims: 1 holds, 0 hold if, 1 refuted, 0 not reproduced, 0 undecided'
    """
    found = [entry.verdict if isinstance(entry, Entry) else entry["verdict"] for entry in entries]
    count = {name: found.count(name) for name in VERDICTS}
    return (
        f"{len(found)} claims: {count['holds']} holds, {count['holds_if']} hold if, {count['refuted']} refuted, "
        f"{count['not_reproduced']} not reproduced, {count['undecided']} undecided"
    )


def by_source(claims: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Two summaries: of what the paper states, and of our questions and repairs, whose sources begin with 'ours'.

    Examples
    --------
    >>> by_source([{"source": "ours: a question", "verdict": "holds"}])["stated by the paper"]
    '0 claims: 0 holds, 0 hold if, 0 refuted, 0 not reproduced, 0 undecided'
    """
    own = [one for one in claims if one["source"].startswith("ours")]
    paper = [one for one in claims if one not in own]
    return {"stated by the paper": summary(paper), "ours (questions, repairs)": summary(own)}


def as_json(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values."""
    claim, evidence = entry.claim, entry.evidence
    return {
        "id": claim.name,
        "group": entry.group,
        "source": claim.source,
        "statement": claim.statement,
        "verdict": entry.verdict,
        "condition": evidence.condition if entry.verdict == "holds_if" else "",
        "measured": evidence.measured,
        "expected": evidence.expected,
        "mcse": evidence.mcse,
        "counterexample": evidence.counterexample,
        "confirmed": evidence.confirmed,
        "rerun": entry.rerun,
        "rule": claim.rule,
        "why": claim.why,
        "text": evidence.text,
        "needs": evidence.needs,
        "repairs": claim.repairs,
        "planted": claim.planted,
        "curve": {
            name: [list(map(float, point)) for point in points] for name, points in evidence.curve.items()
        },
        "axes": list(evidence.axes),
        "seconds": round(entry.seconds, 3),
    }


def ledger(entries: Sequence[Entry], profile: str) -> dict[str, Any]:
    """The ledger as one JSON document: what the pages are made of; no times, so that the same numbers give the "
    "same file.
    """
    claims = [{k: v for k, v in as_json(entry).items() if k != "seconds"} for entry in entries]
    return {"schema": SCHEMA, "profile": profile, "summary": summary(entries), "claims": claims}
