"""What a study's directory holds, and who may write to it.

``manifest.json`` says what was asked for and with what code, ``blocks/`` the replicates (see `studies.engine.blocks`),
``results.nc`` all of them merged, ``failures.jsonl`` the exceptions, ``shards/`` what shards ran, ``source/`` the file
of a study that is not one of ours, ``inputs.json`` where a user's own files lie (`studies.engine.running.inputs`),
``ro-crate-metadata.json`` describes them.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from cje_core.disk.whole import put
from studies.engine import blocks
from studies.engine.blocks import Content
from studies.engine.manifest import check_same, definition, provenance, read_manifest, write_manifest
from studies.engine.outcome import NOT_RUN
from studies.engine.running.crate import write_crate
from studies.engine.study import Study, StudyError, load

STALE = 3600.0  # seconds after which a temporary file is nobody's


def collect(directory: Path) -> tuple[list[Content], list[Path]]:
    """Return all blocks that verify, and the files that do not."""
    pairs = list(blocks.read_all(directory))
    return [c for _, c in pairs if c is not None], [path for path, c in pairs if c is None]


def count(contents: Sequence[Content]) -> int:
    """Return the replicates in some blocks."""
    return sum(content.block.stop - content.block.start for content in contents)


def verified(directory: Path, now: float, say: Callable[[str], None]) -> list[Content]:
    """Return the blocks that are there; those that do not verify, and old temporary files, are removed."""
    found, broken = collect(directory)
    for path in directory.rglob(".*.tmp"):  # of a killed run
        with contextlib.suppress(FileNotFoundError):  # of a run that goes on beside this one
            if now - path.stat().st_mtime > STALE:
                path.unlink()
    for path in broken:
        say(f"block {path.relative_to(directory)} does not verify; it is run again")
        path.unlink(missing_ok=True)
    return found


@contextlib.contextmanager
def own(directory: Path, part: str = "") -> Iterator[None]:
    """Keep other runs of the same part ("1-of-3") out of a directory; what the disk refuses is one line."""
    lock = FileLock(directory / f".run{part}.lock", timeout=0)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            what = f"run of shard {part}" if part else "run"
            raise StudyError(
                f"another {what} is writing to {directory}: wait for its end, or choose another --out"
            ) from None
        with lock:
            lock.release()  # `with` holds it once more
            yield
    except BrokenPipeError:  # of who reads what the run says
        raise
    except OSError as error:
        raise StudyError(f"cannot write to {directory}: {error.strerror or error}") from None


def stamp(seconds: float) -> str:
    """Return a time as it stands in a manifest."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def open_directory(directory: Path, study: Study, seed: int) -> dict[str, Any]:
    """Manifest of a directory whose blocks, if there are any, are of this definition."""
    new = definition(study, seed)
    manifest = read_manifest(directory)
    if manifest is None:
        if any((directory / "blocks").glob("*/*.parquet")):
            raise StudyError(
                f"{directory} holds blocks but no manifest.json; delete it or choose another --out"
            )
        manifest = {"definition": new, "runs": []}
    check_same(directory, manifest["definition"], new)
    if study.source is not None:
        for path in (study.source.parent / name for name in new["code"]):
            if path.is_file():  # the study, and what it imports from beside it
                put(directory / "source" / path.name, path.read_bytes())
    return manifest | {"seed": seed, **provenance()}


def note(directory: Path, manifest: dict[str, Any], record: dict[str, Any], part: str) -> None:
    """Write the record of a run: a shard's into a file of its own, since others may write at the same time."""
    if part:
        put(directory / "shards" / f"{part}.json", json.dumps(record, indent=1).encode())
        if (directory / "manifest.json").exists():
            return
    elif not any(record is run for run in manifest["runs"]):
        manifest["runs"].append(record)
    write_manifest(directory, manifest)


def finished_shards(directory: Path) -> dict[str, dict[str, Any]]:
    """Records of the shards that ran to their end, by "i/n"."""
    found = {}
    for path in sorted((directory / "shards").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["finished"]:
            found[path.stem.replace("-of-", "/")] = record
    return found


def find(directory: Path) -> list[Path]:
    """Directories of studies: `directory` itself or those inside it."""
    manifests = [directory / "manifest.json", *sorted(directory.glob("*/manifest.json"))]
    found = [path.parent for path in manifests if path.exists()]
    if not found:
        raise StudyError(f"{directory} holds no study (no manifest.json); give the --out of a cje-lab run")
    return found


def of_directory(directory: Path) -> Study:
    """Return the study whose results a directory holds: one of ours, or the file that was kept beside them."""
    manifest = read_manifest(directory)
    if manifest is None:
        raise StudyError(f"{directory} holds no study (no manifest.json); give the --out of a run")
    name = manifest["definition"]["study"]
    kept = directory / "source" / f"{name}.py"
    return load(str(kept) if kept.exists() else name)


def merged(
    study: Study, directory: Path, manifest: dict[str, Any], contents: Sequence[Content]
) -> xr.Dataset:
    """Merge all blocks of a directory and write what a finished run leaves."""
    ds = blocks.merge(study, contents)
    _write_failures(directory, contents)
    ds.attrs["manifest"] = json.dumps(manifest)
    blocks.write_results(directory / "results.nc", ds)
    write_crate(study, directory, manifest)
    return ds


def _write_failures(directory: Path, contents: Sequence[Content]) -> list[dict[str, Any]]:
    """Write ``failures.jsonl``, one line per exception with all that is needed to run it again."""
    rows = [{"cell": dict(c.block.cell), **failure} for c in contents for failure in c.failures]
    path = directory / "failures.jsonl"
    if rows:
        put(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    else:
        path.unlink(missing_ok=True)
    return rows


def status(directory: Path) -> dict[str, Any]:
    """How far the last run asked for in a study's directory has come."""
    manifest = read_manifest(directory)
    if manifest is None:
        raise StudyError(f"{directory} holds no study (no manifest.json); give the --out of a run")
    contents, broken = collect(directory)
    shards = finished_shards(directory)
    runs = manifest["runs"] or [json.loads(p.read_text()) for p in (directory / "shards").glob("*.json")]
    last = runs[-1]
    asked = last["factors"]
    done = [
        c for c in contents if not c.block.is_theory and all(v in asked[k] for k, v in c.block.cell.items())
    ]
    counts = [min(c.block.stop, last["replicates"]) - c.block.start for c in done]
    ran = [
        c.arrays["estimate"][c.arrays["status"] != NOT_RUN] for c in done
    ]  # what does not apply has not failed
    estimates = np.concatenate(ran or [np.empty(0)])
    return {
        "study": manifest["definition"]["study"],
        "profile": last["profile"],
        "seed": manifest["seed"],
        "finished": last["finished"] if manifest["runs"] else None,
        "shards_finished": list(shards),
        "cells": last["cells"],
        "replicates_asked": last["asked"],
        "replicates_done": sum(max(count, 0) for count in counts),
        "blocks": len(contents),
        "blocks_broken": len(broken),
        "crashes": sum(len(content.failures) for content in contents),
        "estimates": estimates.size,
        "estimates_failed": int((~np.isfinite(estimates)).sum()),
    }
