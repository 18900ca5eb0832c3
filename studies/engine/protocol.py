"""What is fixed before a study runs, as a document with a digest, and where a finished run departs from it.

The text follows ADEMP (Morris, White and Crowther 2019) and the questions of ADEMP-PreReg (Siepe, Bartos, Morris,
Boulesteix, Heck and Pawel 2024). The digest covers the text, the definition (seed, methods with options, code; what
must be equal for two blocks to belong together), the levels and the replicates. Every run writes it down with its
request, before the first replicate.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_core.streams import Cell, canonical, digest
from studies.engine import blocks
from studies.engine.manifest import definition, read_manifest
from studies.engine.measures import REGISTRY
from studies.engine.outcome import NOT_RUN
from studies.engine.running.directory import of_directory
from studies.engine.study import Profile, Protocol, Study, StudyError

QUESTIONS = {
    "origin": "Where do the parameters of the mechanism come from?",
    "replicates": "Why so many replicates?",
    "failures": "What happens to a replicate or estimate that fails?",
    "primary": "What is the primary estimand and measure?",
    "relevant": "What difference would matter?",
}
TEXTS = ("title", "aims", "mechanism", "estimands", "measures")
NOT_STATED = "Not stated."


def coverage_mcse(study: Study, replicates: int) -> float:
    """Monte Carlo standard error of a coverage at the nominal level, ``sqrt(p (1 - p) / R)``."""
    return math.sqrt(study.ci_prob * (1 - study.ci_prob) / replicates)


def plan(study: Study, profile: str, defined: Mapping[str, Any]) -> dict[str, Any]:
    """What a run writes down: the digest of the protocol, planned levels and replicates, digests of its texts.

    Parameters
    ----------
    study : Study
        At its profile, without levels set by hand.
    profile : str
    defined : mapping
        Its `studies.engine.manifest.definition`.
    """
    stated = study.protocol._asdict() if study.protocol is not None else {}
    texts = {name: getattr(study, name) for name in TEXTS} | stated
    texts["methods"] = {name: method.description for name, method in study.methods.items()}
    planned = {
        "factors": {name: list(levels) for name, levels in study.factors.items()},
        "replicates": study.profiles[profile].replicates,
        **({"more": list(more)} if (more := study.profiles[profile].more) else {}),
        "cells": sum(1 for _ in study.cells()),
        "texts": {name: digest(text, 8) for name, text in texts.items()},
    }
    return {"digest": digest({"profile": profile, "definition": defined, **planned}), **planned}


def planned_in(run: Mapping[str, Any]) -> Callable[[Cell], int]:
    """Replicates of a cell that a run was to have, whatever its study asks for today.

    Parameters
    ----------
    run : mapping
        Of the manifest. A run without a protocol was made by an older version, and had as many in every cell.
    """
    planned = run.get("protocol", run)
    return Profile(planned["replicates"], more=planned.get("more", ())).replicates_in


def protocol(study: Study, profile: str, seed: int = 1) -> tuple[str, str]:
    """Return the protocol of a study at a profile as Markdown, and its digest.

    Parameters
    ----------
    study : Study
        As it was loaded.
    profile : {"smoke", "quick", "paper"}
    seed : int

    Returns
    -------
    text, digest : str
    """
    at = study.at(profile)
    planned = plan(at, profile, definition(at, seed))
    left_out = [name for name in study.methods if name not in at.methods]
    parts = [
        f"# Protocol: {study.title}",
        f"Study `{study.name}`, profile {profile}, seed {seed}. Digest `{planned['digest']}`: `cje-lab run "
        f"{study.source.name if study.source else study.name} --profile {profile} --seed {seed}` records it in "
        "`manifest.json`.",
        *(f"## {name.capitalize()}\n\n{getattr(study, name)}" for name in ("aims", "mechanism")),
        _factors(planned),
        f"## Estimands\n\n{study.estimands}\n\nIn the results: {', '.join(study.columns)}.",
        _methods(at, left_out),
        f"## Performance measures\n\n{study.measures}",
        _replicates(at, profile, planned["cells"]),
        *_answers(study.protocol),
        "## Formulas of the measures\n\nWith e = estimate - truth; MCSEs by the infinitesimal jackknife.\n\n"
        + "\n".join(f"- `{one.name}`: {one.formula} ({one.source})" for one in REGISTRY.values()),
    ]
    return "\n\n".join(parts) + "\n", str(planned["digest"])


def _factors(planned: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {', '.join(map(str, levels))} |" for name, levels in planned["factors"].items()]
    table = "\n".join(["| factor | levels |", "| --- | --- |", *rows])
    return f"## Factors\n\n{table}\n\n{planned['cells']} cells."


def _methods(study: Study, left_out: list[str]) -> str:
    rows = []
    for name, method in study.methods.items():
        options = ", ".join(f"{key}={value!r}" for key, value in method.options.items()) or "as it comes"
        told = (name, method.description, options)
        rows.append("| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in told) + " |")
    table = "\n".join(["| method | what it is | options |", "| --- | --- | --- |", *rows])
    rest = f"\n\nLeft out at this profile: {', '.join(left_out)}." if left_out else ""
    return f"## Methods\n\n{table}{rest}"


def _replicates(study: Study, profile: str, cells: int) -> str:
    replicates, more = study.profiles[profile].replicates, study.profiles[profile].more
    mcse = 100 * coverage_mcse(study, replicates)
    noisier = [f"{count} where {_named(levels)}" for levels, count in more]
    return (
        f"## Replicates\n\n{replicates} in each of {cells} cells{', '.join(['', *noisier])}. A coverage at the nominal "
        f"{study.ci_prob:.0%} then has a Monte Carlo standard error of {mcse:.2f} points{' at most' * bool(more)}."
    )


def _answers(stated: Protocol | None) -> Iterator[str]:
    answers = stated._asdict() if stated is not None else {}
    for name, question in QUESTIONS.items():
        yield f"## {question}\n\n{answers.get(name) or NOT_STATED}"


def deviations(directory: Path) -> list[str]:
    """Where the results in a study's directory depart from the protocol of its last run, one line each.

    Raises
    ------
    StudyError
        If there are no merged results.
    """
    manifest = read_manifest(directory)
    if manifest is None or not (directory / "results.nc").exists():
        raise StudyError(f"{directory} has no merged results yet; finish the run")
    study, run = of_directory(directory), manifest["runs"][-1]
    planned = run.get("protocol")
    if planned is None:
        return ["the run kept no protocol; it was made by an older version"]
    ds = blocks.read_results(directory / "results.nc")
    return [
        *_of_runs(manifest),
        *_of_levels(run, planned),
        *_of_replicates(study.at(run["profile"], planned["factors"]), ds, run),
        *_of_definition(study, manifest, run),
    ]


def _of_runs(manifest: Mapping[str, Any]) -> Iterator[str]:
    run = manifest["runs"][-1]
    if not run["finished"]:
        yield "the last run did not finish"
    others = {
        one["profile"]
        for one in manifest["runs"]
        if one.get("protocol", {}).get("digest") != run["protocol"]["digest"]
    }
    if others:
        yield f"the results hold replicates of runs with another protocol (profile {', '.join(sorted(others))})"


def _of_levels(run: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[str]:
    for factor, levels in planned["factors"].items():
        if run["factors"][factor] != levels:
            mine, theirs = (", ".join(map(str, part)) for part in (run["factors"][factor], levels))
            yield f"levels of {factor} were set by hand: {mine}; planned were {theirs}"


def _of_replicates(study: Study, ds: xr.Dataset, run: Mapping[str, Any]) -> Iterator[str]:
    """Cells not run, cells beyond the plan, and replicates more or fewer than planned."""
    ran = (ds["status"] != NOT_RUN).any(["method", "policy"]).sum("replicate").to_series()
    counts = {}
    for levels, count in ran.items():
        values = levels if isinstance(levels, tuple) else (levels,)
        plain = [value.item() if isinstance(value, np.generic) else value for value in values]
        if count:
            counts[canonical(dict(zip(ran.index.names, plain, strict=True)))] = int(count)
    cells = {canonical(cell): cell for cell in study.cells()}
    asked = {key: planned_in(run)(cell) for key, cell in cells.items()}
    absent = [cell for key, cell in cells.items() if key not in counts]
    if absent:
        yield f"{len(absent)} of {len(cells)} planned cells were not run, the first {_named(absent[0])}"
    beyond = len(set(counts) - set(cells))
    if beyond:
        yield f"{beyond} cells were run beyond the {len(cells)} planned"
    for word, apart in (
        ("fewer", {key: n for key, n in counts.items() if n < asked.get(key, 0)}),
        ("more", {key: n for key, n in counts.items() if n > asked.get(key, n)}),
    ):
        if apart:
            span, planned = (_span(numbers) for numbers in (apart.values(), [asked[key] for key in apart]))
            why = f" (until the MCSE of every coverage was {run['mcse']:g})" if "mcse" in run else ""
            yield f"{word} replicates than the planned {planned} in {len(apart)} cells: {span}{why}"


def _span(numbers: Iterable[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def _named(cell: Mapping[str, Any]) -> str:
    return ", ".join(f"{factor}={level}" for factor, level in cell.items())


def _of_definition(study: Study, manifest: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    """What of the study is no longer, or never was, as the protocol has it."""
    before, at = manifest["definition"], study.at(run["profile"])
    left_out = [name for name in study.methods if name not in before["methods"]]
    if left_out:
        yield f"methods of the study left out at profile {run['profile']}: {', '.join(left_out)}"
    now = definition(at, before["seed"])
    names = {**before["code"], **now["code"]}
    code = [name for name in names if before["code"].get(name) != now["code"].get(name)]
    if code:
        yield f"code changed since the run: {', '.join(code)}"
    rest = [key for key in now if key != "code" and canonical(before.get(key)) != canonical(now[key])]
    if rest:
        yield f"the definition changed since the run: {', '.join(rest)}"
    texts = plan(at, run["profile"], now)["texts"]
    kept = run["protocol"]["texts"]
    if changed := [name for name in {**kept, **texts} if kept.get(name) != texts.get(name)]:
        yield f"the text of the protocol changed since the run: {', '.join(changed)}"
    if study.protocol is None:
        yield f"the study does not answer: {' '.join(QUESTIONS.values())}"
