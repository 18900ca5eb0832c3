"""One replicate of a finished run again: its data, its numbers beside those that were stored, its exception.

Every draw comes from a stream that is named after (seed, study, cell, replicate, method), so one replicate can be had
alone, years later, on another machine: the same code gives the same bits.
"""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.streams import Cell, Level, Streams
from studies.engine import blocks
from studies.engine.manifest import code_digests, read_manifest
from studies.engine.outcome import Outcome
from studies.engine.running.inputs import study_of
from studies.engine.running.workers import arrays_of, one_thread, run_replicate
from studies.engine.scenario import replicate_scenario, world_of
from studies.engine.study import Study, StudyError, parse_levels

if TYPE_CHECKING:
    import xarray as xr


ROUNDING = 1e-12


class Difference(NamedTuple):
    """An array of a replicate that is not the stored one: the largest difference, and the methods that have one."""

    name: str
    size: float
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """One replicate, run again.

    Parameters
    ----------
    study : Study
        At the profile of the run.
    cell : mapping
        Levels of the factors.
    number : int
        The replicate's.
    stored : mapping name -> array
        What the run wrote of this replicate; empty where its block is not there.
    outcome : Outcome
        What it gives now.
    changed : sequence of str
        Source files that are not those of the run.
    """

    study: Study
    cell: Cell
    number: int
    streams: Streams
    stored: dict[str, npt.NDArray[np.float64]]
    outcome: Outcome
    changed: list[str]

    @property
    def different(self) -> list["Difference"]:
        """Arrays in which a number is not the stored one, bit for bit."""
        now = arrays_of(self.study, self.outcome)
        compared = sorted(
            set(self.stored) & set(now) - {"seconds"}
        )  # a replicate that failed has no diagnostics
        found = []
        for name in compared:
            one, other = now[name], self.stored[name]
            apart = ~_equal(one, other)
            if apart.any():
                size = np.abs(np.nan_to_num(one - other, nan=np.inf))
                of_methods = one.ndim > 1 and len(one) == len(self.study.methods)
                methods = (
                    np.array(list(self.study.methods))[apart.reshape(len(one), -1).any(1)]
                    if of_methods
                    else ()
                )
                found.append(Difference(name, float(size[apart].max()), tuple(map(str, methods))))
        return found

    @property
    def same(self) -> bool:
        """Whether there are stored numbers, and every number is the stored one."""
        return bool(self.stored) and not self.different

    @property
    def reproduced(self) -> bool:
        """Whether every stored number is had again to `ROUNDING` of the largest of its array.

        A replicate alone, and one in a block, may add in another order, so that the last bit of a sum can differ.
        """
        largest = {
            name: float(np.abs(np.nan_to_num(array)).max(initial=0.0)) for name, array in self.stored.items()
        }
        return bool(self.stored) and all(one.size <= ROUNDING * largest[one.name] for one in self.different)

    def data(self) -> "xr.Dataset":
        """Simulate the replicate's data, of a study whose methods run on the data of a world.

        Raises
        ------
        StudyError
            If the study has a mechanism of its own.
        """
        if self.study.replicate is not None:
            raise StudyError(f"study {self.study.name} draws in its own replicate(); step through `again`")
        setting = self.study.setting(self.study, self.cell)
        return world_of(setting.scenario).simulate(**setting.arguments, rng=self.streams("data"))  # type: ignore[no-any-return]

    def again(self) -> Outcome:
        """Run the replicate with nothing caught: the exception of a failed one is raised where it arises."""
        if self.study.replicate is not None:
            return self.study.replicate(self.study, self.cell, self.streams)
        return replicate_scenario(self.study, self.cell, self.streams, keep=False)

    def traceback(self) -> str:
        """Return the traceback of the replicate's exception; empty where it raises none."""
        try:
            with one_thread():
                self.again()
        except Exception:  # whatever a method or a user's study raised is what is asked for
            return traceback.format_exc()
        return ""


def _equal(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Where two arrays hold the same number, or both none."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def replay(directory: Path, cell: str | Cell, replicate: int) -> Replay:
    """Run one replicate of the study in `directory` again.

    Parameters
    ----------
    directory : Path
        The study's directory.
    cell : str or mapping
        Levels of all factors, "n=250,label_design=own" or a mapping; or the cell's number in the last run's grid,
        counted from 0.
    replicate : int

    Raises
    ------
    StudyError
        If there is no such cell, or a user's files, of which the run was, changed or are gone.

    Examples
    --------
    ``replay(Path("results/quick/interval_coverage"), "3", 7).data()`` gives the data of a replicate, and ``.again()``
    under ``python -m pdb`` stops where it fails.
    """
    manifest = read_manifest(directory)
    whole = study_of(directory, manifest or {})
    if manifest is None or not manifest["runs"]:
        raise StudyError(
            f"{directory} holds shards that were not merged; cje-lab merge {directory.parent} first"
        )
    last = manifest["runs"][-1]
    study = whole.at(last["profile"], last["factors"])
    chosen = _cell(study, cell) if isinstance(cell, str) else dict(cell)
    if replicate < 0:
        raise StudyError(f"replicate={replicate}: replicates count from 0")
    seed = manifest["definition"]["seed"]
    streams = Streams(seed, study.name, chosen, replicate)
    with one_thread():
        outcome = run_replicate(study, chosen, streams)
    then, now = manifest["definition"]["code"], code_digests(study)
    return Replay(
        study=study,
        cell=chosen,
        number=replicate,
        streams=streams,
        stored=_stored(directory, chosen, replicate),
        outcome=outcome,
        changed=[name for name in {**then, **now} if then.get(name) != now.get(name)],
    )


def _stored(directory: Path, cell: Cell, replicate: int) -> dict[str, npt.NDArray[np.float64]]:
    """Arrays that a run wrote of one replicate."""
    folder = directory / blocks.Block("", 0, cell, 0, 0).path.parent
    for path in sorted(folder.glob("*-*.parquet")):
        content = blocks.read_block(path)
        if content is not None and content.block.start <= replicate < content.block.stop:
            return {name: array[replicate - content.block.start] for name, array in content.arrays.items()}
    return {}


def _cell(study: Study, text: str) -> dict[str, Level]:
    """Return the cell that a command names."""
    cells = list(study.cells())
    if text.isdigit():
        if int(text) < len(cells):
            return cells[int(text)]
        raise StudyError(f"--cell {text}: the last run of {study.name} has cells 0 to {len(cells) - 1}")
    levels = parse_levels([study], text.split(","), "--cell")
    if set(levels) != set(study.factors):
        lacking = ", ".join(sorted(set(study.factors) - set(levels)))
        raise StudyError(f"--cell {text}: give a level of each factor; there is none of {lacking}")
    return {factor: levels[factor][0] for factor in study.factors}
