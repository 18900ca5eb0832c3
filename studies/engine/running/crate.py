"""``ro-crate-metadata.json``: what lies beside a result, who made it, with what, as RO-Crate 1.1 (JSON-LD).

It describes the last run that was merged: files with size and SHA-256, blocks as one data set with a digest over all
of them, the study, versions of the software, licence and creators, and each run as a ``CreateAction``. It holds no
path, host name or user. The report that is written later is not part of it.
"""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cje_core.disk.whole import put
from studies.engine.study import Study

NAME = "ro-crate-metadata.json"
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", {"sha256": "https://schema.org/sha256"}]
SPECIFICATION = "https://w3id.org/ro/crate/1.1"
FILES = {
    "results.nc": ("All replicates, merged", "application/x-netcdf"),
    "manifest.json": ("What was asked for and with what code", "application/json"),
    "failures.jsonl": ("Exceptions kept as data, one per line", "application/jsonl"),
    "source/*.py": ("The study, and what it imports from beside it", "text/x-python"),
    "shards/*.json": ("What a shard ran", "application/json"),
}
LICENCES = "https://spdx.org/licenses/"
Entity = dict[str, Any]


def of_file(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def of_blocks(directory: Path) -> tuple[int, int, str]:
    """Number and bytes of the block files, and SHA-256 over lines ``<sha256>  <path>`` as ``sha256sum`` prints them."""
    paths = sorted((directory / "blocks").glob("*/*.parquet"))
    lines = [f"{of_file(path)}  {path.relative_to(directory).as_posix()}\n" for path in paths]
    return (
        len(paths),
        sum(p.stat().st_size for p in paths),
        hashlib.sha256("".join(lines).encode()).hexdigest(),
    )


def _reference(*names: str) -> Any:
    found = [{"@id": name} for name in names]
    return found[0] if len(found) == 1 else found


def citation() -> tuple[str, list[Entity]]:
    """Licence and creators as ``CITATION.cff`` has them; where only the installed package is there, as its metadata."""
    path = Path(__file__).parents[2] / "CITATION.cff"
    if not path.exists():
        found = importlib.metadata.metadata("cje-lab")
        return str(found["License-Expression"] or "MIT"), [_creator({"name": str(found["Author"])})]
    text = path.read_text(encoding="utf-8")
    licence = re.search(r"^license:\s*\"?([\w.+-]+)", text, flags=re.MULTILINE)
    (block,) = re.findall(r"^authors:\n((?:[ -].*\n?)+)", text, flags=re.MULTILINE)
    creators = []
    for item in re.split(r"^ *- ", block, flags=re.MULTILINE)[1:]:
        fields = re.findall(r"^ *([\w-]+):\s*\"?(.*?)\"?\s*$", item, flags=re.MULTILINE)
        creators.append(_creator(dict(fields)))
    return licence.group(1) if licence else "", creators


def _creator(fields: Mapping[str, str]) -> Entity:
    if "name" in fields:
        return {"@id": f"#{_slug(fields['name'])}", "@type": "Organization", "name": fields["name"]}
    name = " ".join(fields[part] for part in ("given-names", "family-names") if part in fields)
    return {"@id": fields.get("orcid") or f"#{_slug(name)}", "@type": "Person", "name": name}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _files(directory: Path) -> Iterator[Entity]:
    for pattern, (name, kind) in FILES.items():
        for path in sorted(directory.glob(pattern)):
            yield {
                "@id": path.relative_to(directory).as_posix(),
                "@type": "File",
                "name": name,
                "encodingFormat": kind,
                "contentSize": str(path.stat().st_size),
                "sha256": of_file(path),
            }
    count, size, found = of_blocks(directory)
    if count:
        yield {
            "@id": "blocks/",
            "@type": "Dataset",
            "name": "Replicates as they were computed, one file per block",
            "description": f"{count} files; the digest is over the lines that sha256sum prints of them, sorted by path",
            "contentSize": str(size),
            "sha256": found,
        }


def _software(manifest: Mapping[str, Any]) -> Iterator[Entity]:
    for name, version in manifest["versions"].items():
        if version != "not installed":
            yield {
                "@id": f"#software-{name}",
                "@type": "SoftwareApplication",
                "name": name,
                "softwareVersion": version,
                **(
                    {"identifier": manifest["git_commit"]}
                    if name == "cje-lab" and manifest["git_commit"]
                    else {}
                ),
            }


def _runs(manifest: Mapping[str, Any], tools: list[str]) -> Iterator[Entity]:
    """One action per run, and what it was given: profile, seed, levels, replicates."""
    for number, run in enumerate(manifest["runs"], 1):
        given = {key: run[key] for key in ("profile", "replicates", "factors", "mcse") if key in run}
        given |= {"seed": manifest["definition"]["seed"]}
        given |= {"protocol": run["protocol"]["digest"]} if "protocol" in run else {}
        values = [
            {"@id": f"#run-{number}-{key}", "@type": "PropertyValue", "name": key, "value": _plain(value)}
            for key, value in given.items()
        ]
        action = {
            "@id": f"#run-{number}",
            "@type": "CreateAction",
            "name": run["command"] or f"Run {number}",
            "startTime": run["started"],
            "actionStatus": {
                "@id": f"http://schema.org/{'Completed' if run['finished'] else 'Active'}ActionStatus"
            },
            "instrument": _reference(*tools),
            "object": _reference("#study", *(value["@id"] for value in values)),
            "result": _reference("results.nc"),
        }
        yield action | ({"endTime": run["finished"]} if run["finished"] else {})
        yield from values


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else json.dumps(value)


def crate(study: Study, directory: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of what a run of `study` left in its directory, as JSON-LD."""
    licence, creators = citation()
    files, software = list(_files(directory)), list(_software(manifest))
    tools = [one["@id"] for one in software]
    runs = list(_runs(manifest, tools))
    actions = [one["@id"] for one in runs if one["@type"] == "CreateAction"]
    finished = [run["finished"] for run in manifest["runs"] if run["finished"]]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": study.title,
        "description": study.aims,
        "datePublished": max(finished, default=manifest["runs"][-1]["started"]),
        "license": _reference(LICENCES + licence),
        "creator": _reference(*(one["@id"] for one in creators)),
        "hasPart": [{"@id": one["@id"]} for one in files],
        "about": _reference("#study"),
        "mentions": [{"@id": name} for name in actions],
    }
    subject = {
        "@id": "#study",
        "@type": "CreativeWork",
        "name": study.name,
        "headline": study.title,
        "abstract": f"{study.aims} {study.mechanism} {study.estimands} {study.measures}",
        "creator": root["creator"],
    }
    about = {
        "@id": NAME,
        "@type": "CreativeWork",
        "conformsTo": {"@id": SPECIFICATION},
        "about": {"@id": "./"},
    }
    terms = {"@id": LICENCES + licence, "@type": "CreativeWork", "name": licence, "identifier": licence}
    return {"@context": CONTEXT, "@graph": [about, root, subject, terms, *creators, *files, *software, *runs]}


def write_crate(study: Study, directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the metadata beside the results, whole or not at all."""
    put(directory / NAME, json.dumps(crate(study, directory, manifest), indent=1).encode())
