"""The methods section of a study's results, to paste: ADEMP text, size, Monte Carlo error, seed, versions, citation."""

import importlib.metadata
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from studies.engine.measures import performance
from studies.engine.outcome import NOT_RUN
from studies.engine.study import Study

MORRIS = (
    "Morris TP, White IR, Crowther MJ (2019). Using simulation studies to evaluate statistical methods. "
    "Statistics in Medicine 38, 2074-2102."
)


def mechanism(study: Study, ds: xr.Dataset) -> str:
    """The data-generating mechanism, with what the levels mean that ran."""
    ran = (ds["status"] != NOT_RUN).any([d for d in ds["status"].dims if d not in study.factors])
    parts = []
    for factor, words in study.legend.items():
        there = ran.any([d for d in ran.dims if d != factor])
        levels = [level for level in ds[factor].values.tolist() if bool(there.sel({factor: level}))]
        told = [f"{level}: {words[level]}" for level in levels if level in words]
        parts += [f"{factor.capitalize()} is {'; '.join(told)}."] if told else []
    return " ".join([study.mechanism, *parts])


def methods_text(study: Study, ds: xr.Dataset, manifest: Mapping[str, Any]) -> list[str]:
    """Paragraphs of a methods section; everything in it is of the study's declaration or of its results."""
    parts = [
        f"Aims. {study.aims}",
        f"Data-generating mechanism. {mechanism(study, ds)} {_grid(study, ds)}",
        f"Estimands. {study.estimands}",
        f"Methods. {'; '.join(_methods(study, ds))}.",
        f"Performance measures. {study.measures} {_size(ds)}",
    ]
    if study.protocol is not None:
        stated = study.protocol
        parts.append(
            f"Stated before the run. {stated.replicates} {stated.failures} Primary: {stated.primary}"
        )
    return [*parts, f"Software. {_software(manifest)}", f"References. {_citation(manifest)} {MORRIS}"]


def _grid(study: Study, ds: xr.Dataset) -> str:
    levels = [f"{name} ({', '.join(map(str, ds[name].values.tolist()))})" for name in study.factors]
    ran = (ds["status"] != NOT_RUN).any([d for d in ds["status"].dims if d not in study.factors])
    cells, whole = int(ran.sum()), math.prod(len(ds[name]) for name in study.factors)
    design = "fully crossed" if cells == whole else f"of {whole} combinations"
    return f"Factors: {'; '.join(levels)}; {cells} cells, {design}."


def _methods(study: Study, ds: xr.Dataset) -> Iterator[str]:
    """Name, description and options of each method that ran in some cell."""
    ran = (ds["status"] != NOT_RUN).any([d for d in ds["status"].dims if d != "method"])
    for name, method in study.methods.items():
        if name in ds["method"].values and bool(ran.sel({"method": name})):
            options = ", ".join(f"{option} = {value}" for option, value in method.options.items())
            yield f"{name} ({method.description}{f'; {options}' if options else ''})"


def _size(ds: xr.Dataset) -> str:
    """Replicates and what precision they give, with the rules that count failures."""
    (fewest, most), level = _replicates(ds), float(ds.attrs["ci_prob"])
    found = performance(ds, measures=["coverage"])
    error = found["mcse"].sel(measure="coverage").where(np.isfinite(found["value"].sel(measure="coverage")))
    text = f"Each cell was run {f'{fewest:,} times' if fewest == most else f'{fewest:,} to {most:,} times'}"
    if bool(np.isfinite(error).any()):
        nominal = math.sqrt(level * (1 - level) / fewest)
        text += (
            f", which gives a coverage of {level:g} a Monte Carlo standard error of {nominal:.2g}"
            f"{' or less' if fewest < most else ''}; the largest of any "
            f"method's coverage of any policy in any cell is {float(error.max()):.2g}. "
            "Coverage is that of the intervals printed; the shares of replicates that a rule refused an interval, and "
            "that failed, stand beside it; a method that does not apply in a cell is not counted there"
        )
    return f"{text}. Monte Carlo standard errors take the replicate as the unit (Morris, White and Crowther 2019)."


def _replicates(ds: xr.Dataset) -> tuple[int, int]:
    """The least and the largest number of replicates of a cell that was run."""
    counts = (ds["status"] != NOT_RUN).any(["method", "policy"]).sum("replicate").values
    return int(counts[counts > 0].min(initial=ds.sizes["replicate"])), int(counts.max(initial=0))


def _software(manifest: Mapping[str, Any]) -> str:
    versions = {**manifest["versions"]}
    ours = versions.pop("cje-lab")
    rest = ", ".join(f"{name} {version}" for name, version in versions.items() if version != "not installed")
    name, dirty, _ = (manifest["git_commit"] or "").partition("-dirty")
    commit = f", commit {name[:12]}{dirty and ' with changes'}" if name else ""
    return (
        f"cje-lab {ours}{commit}, with {rest}. Root seed {manifest['seed']}; each replicate and method draws from a "
        f"stream of its own, named after study, cell, replicate and method. Command: {manifest['runs'][-1]['command']}"
    )


def _citation(manifest: Mapping[str, Any]) -> str:
    about = importlib.metadata.metadata("cje-lab")
    return (
        f"{about['Author']}. {about['Name']}: {about['Summary']} Version {manifest['versions']['cje-lab']}."
    )
