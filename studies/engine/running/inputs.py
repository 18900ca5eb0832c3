"""A user's own files that a study was made of: where they lie and what they held, so that a replay finds them again.

``inputs.json`` stays beside the manifest of the run. It alone names places: results, report, crate and manifest, which
are shown to others, carry digests only.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cje_core.disk.whole import put
from studies.engine.running.crate import of_file
from studies.engine.running.directory import of_directory
from studies.engine.study import Study, StudyError

NAME = "inputs.json"


@dataclass(frozen=True)
class Inputs:
    """What ``--data`` and the options beside it said.

    Parameters
    ----------
    data : Path
        Directory or file of responses.
    probes : Path, optional
    judge_range, oracle_range : pair of float
    """

    data: Path
    probes: Path | None = None
    judge_range: tuple[float, float] = (0.0, 1.0)
    oracle_range: tuple[float, float] = (0.0, 1.0)

    @property
    def places(self) -> dict[str, Path]:
        """The option that named a place, and the place."""
        return {"--data": self.data} | ({"--probes": self.probes} if self.probes is not None else {})

    def apart(self, out: Path) -> None:
        """Stop where results would lie among the files: they would be new ones of the next run.

        Raises
        ------
        StudyError
            One line.
        """
        for option, place in self.places.items():
            if place.is_dir() and out.resolve().is_relative_to(place.resolve()):
                raise StudyError(f"--out {out} lies in {place} of {option}: name a directory outside it")

    def study(self, study: Study) -> Study:
        """Return the study of these files.

        Raises
        ------
        StudyError
            If the study makes its own data.
        """
        if study.with_data is None:
            raise StudyError(
                f"study {study.name} makes its own data: leave --data out, or name the study real_data"
            )
        return study.with_data(study, self.data, self.probes, self.judge_range, self.oracle_range)


def _files(place: Path) -> Iterator[tuple[str, Path]]:
    """Names inside a place, and paths, of all files in it; a file is its own."""
    for path in [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file()):
        yield path.relative_to(place).as_posix(), path


def _digests(inputs: Inputs) -> dict[str, dict[str, str]]:
    return {
        option: {name: of_file(path) for name, path in _files(at)} for option, at in inputs.places.items()
    }


def keep(directory: Path, inputs: Inputs) -> None:
    """Write down which files a run is of, with the SHA-256 of each."""
    told = asdict(inputs) | {"data": str(inputs.data.resolve())}
    told |= {"probes": str(inputs.probes.resolve()) if inputs.probes is not None else None}
    put(directory / NAME, json.dumps(told | {"sha256": _digests(inputs)}, indent=1).encode())


def kept(directory: Path) -> Inputs | None:
    """Return the files of the run in a directory, None where it had none.

    Raises
    ------
    StudyError
        One line, if a file changed, is gone, or is new.
    """
    path = directory / NAME
    if not path.exists():
        return None
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        judged, labelled = (
            (float(low), float(high)) for low, high in (told["judge_range"], told["oracle_range"])
        )
        probes = Path(told["probes"]) if told["probes"] else None
        inputs, then = Inputs(Path(told["data"]), probes, judged, labelled), dict(told["sha256"])
        problems = list(_problems(inputs, then))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StudyError(f"{path} is damaged: run the study again with the same --data") from None
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise StudyError(
            f"{directory} is a run of your own files, and {problems[0]}{more}; put back what the run read"
        )
    return inputs


def _problems(inputs: Inputs, then: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """What is no longer as the run read it, a line each."""
    for option, place in inputs.places.items():
        if not place.exists():
            yield f"{place} of {option} is gone"
            continue
        now = dict(_files(place))
        for name, digest in then[option].items():
            if name not in now:
                yield f"{place / name} of {option} is gone"
            elif of_file(now[name]) != digest:
                yield f"{now[name]} of {option} changed since"
        yield from (f"{now[name]} of {option} is new" for name in now if name not in then[option])


def study_of(directory: Path, manifest: Mapping[str, Any]) -> Study:
    """Return the study whose results a directory holds, made of the same files of a user's where it was.

    Raises
    ------
    StudyError
        If there is no study, or its files are not as they were.
    """
    study, inputs = of_directory(directory), kept(directory)
    if inputs is not None:
        return inputs.study(study)
    if any("--data" in (run["command"] or "").split() for run in manifest.get("runs", ())):
        raise StudyError(
            f"{directory} is a run of your own files that has no {NAME}: run it again with the same --data"
        )
    return study
