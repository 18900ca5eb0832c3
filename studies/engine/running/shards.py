"""Blocks of shards become one result, wherever they were computed."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cje_core.disk.whole import put
from cje_core.streams import canonical
from studies.engine import blocks
from studies.engine.blocks import Block
from studies.engine.manifest import check_same, read_manifest, write_manifest
from studies.engine.protocol import planned_in
from studies.engine.run import Summary, summary_of
from studies.engine.running.directory import count, finished_shards, merged, own, verified
from studies.engine.running.inputs import NAME as INPUTS
from studies.engine.running.inputs import study_of
from studies.engine.study import Study, StudyError


def merge(sources: Sequence[Path], directory: Path) -> Summary:
    """Merge the blocks of shards, wherever they ran.

    Parameters
    ----------
    sources : sequence of Path
        Directories of one study; those beside `directory` have their blocks copied into it.
    directory : Path
        The study's directory, which need not be there yet.

    Raises
    ------
    StudyError
        If the directories hold different definitions, or blocks are missing; the message names the shards.
    """
    started = time.time()
    definitions = []
    for path in sources:
        found = read_manifest(path)
        if found is None:
            raise StudyError(f"{path} holds no study (no manifest.json); give the --out of a run")
        definitions.append(found["definition"])
        check_same(path, found["definition"], definitions[0])
    with own(directory):
        for path in sources:
            if path.resolve() != directory.resolve():
                copy(path, directory)
        manifest = read_manifest(directory) or {}
        shards = finished_shards(directory)
        manifest["runs"] += [record for record in shards.values() if record not in manifest["runs"]]
        study = study_of(directory, manifest)
        contents = verified(directory, started, lambda line: None)
        left = _left(study, manifest, [content.block for content in contents])
        if left or not manifest["runs"]:
            lacking = sum(block.stop - block.start for block in left)
            raise StudyError(
                f"{directory} lacks {lacking} replicates in {len(left)} blocks (finished shards: "
                f"{', '.join(shards) or 'none'}); run the shards that are missing, or the command without --shard"
            )
        study = study.at(manifest["runs"][-1]["profile"])
        write_manifest(directory, manifest)
        ds = merged(study, directory, manifest, contents)
    return summary_of(study.name, directory, contents, (0, count(contents)), time.time() - started, ds)


def _left(study: Study, manifest: Mapping[str, Any], present: Sequence[Block]) -> list[Block]:
    """Blocks that the runs of a manifest asked for and that are not there."""
    left: dict[Path, Block] = {}
    for run in manifest["runs"]:
        part = study.at(run["profile"], run["factors"])
        # how far a run to a precision went in each cell is its own affair: what it asked for at first must be there
        wanted = {canonical(cell): planned_in(run)(cell) for cell in part.cells()}
        todo = blocks.missing(part, manifest["definition"]["seed"], wanted, present)
        left |= {block.path: block for block in todo}
    return list(left.values())


def copy(source: Path, directory: Path) -> None:
    """Copy what shards left in one directory of a study to another, blocks that verify only."""
    wanted = []
    for path, content in blocks.read_all(source):
        if content is not None and blocks.read_block(directory / content.block.path) is None:
            wanted.append((path, directory / content.block.path))
    single = source / "manifest.json", source / INPUTS
    for path in (*source.glob("shards/*.json"), *source.glob("source/*.py"), *single):
        target = directory / path.relative_to(source)
        if path.exists() and not target.exists():
            wanted.append((path, target))
    for path, target in wanted:
        put(target, path.read_bytes())
