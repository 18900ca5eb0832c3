"""The steps in their order, one alone or all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cje_core.checks import one_of
from cje_core.data import DataError
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.reading.given import Given
from cje_core.workflow.reading.prepare import prepare
from cje_core.workflow.steps.calibrate import calibrate
from cje_core.workflow.steps.estimate import estimate, stack
from cje_core.workflow.steps.files import FORMAT, clear, room, write_json, write_rows, write_tree
from cje_core.workflow.steps.jackknife import jackknife
from cje_core.workflow.steps.report import report
from cje_core.workflow.steps.stabilise import stabilise

STEPS: Mapping[str, Callable[[Path], list[str]]] = {
    "calibrate": calibrate,
    "stabilise": stabilise,
    "estimate": estimate,
    "stack": stack,
    "jackknife": jackknife,
}


def read_step(path: Given, directory: str | Path, **asked: Any) -> list[str]:
    """Step 0: read the data and keep them with what is asked for; the names of the files written.

    Parameters
    ----------
    path, **asked
        As `cje_core.workflow.analyze.analyze` takes them.
    directory : str or Path
        Where the steps' files go: new, empty, or that of an earlier analysis, whose files are taken away first. What is
        interrupted leaves no ``config.json`` beside data that are not its own, so that no step takes it for whole.
    """
    for name in ("large", "dask"):
        if asked.get(name):
            raise DataError(f"{name}={asked[name]!r}: steps keep every row; leave one of the two out")
    calibration = asked.get("calibration")
    if calibration is not None and calibration.first_stage is not None:
        raise DataError("first_stage: a regressor is not kept between steps; leave one of the two out")
    directory = Path(directory)
    with room(directory), prepare(path, **{**asked, "large": False}) as ready:
        clear(directory)
        write_tree(directory / "data.nc", {"data": ready.given.data})
        write_rows(directory / "left_out.parquet", ready.left_out)
        config = {
            "format": FORMAT,
            **ready.asked._asdict(),
            "calibration": asdict(ready.given.calibration),
        }
    write_json(directory / "config.json", config)
    return ["data.nc", "left_out.parquet", "config.json"]


def run_step(name: str, directory: str | Path) -> list[str]:
    """Run one of steps 1 to 5 (`STEPS`) from what those before it wrote; the names of the files written.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=100, oracle_fraction=0.5, rng=1)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = analyze_in_steps(data, folder)
    ...     run_step("calibrate", folder)
    ['calibrator.nc', 'rewards.parquet']
    """
    one_of(name, "step", tuple(STEPS), DataError)
    return STEPS[name](Path(directory))


def analyze_in_steps(path: Given, directory: str | Path, **asked: Any) -> Analysis:
    """`cje_core.workflow.analyze.analyze` in the paper's run order, with every step's files kept in a directory.

    Parameters
    ----------
    path, **asked
        As `cje_core.workflow.analyze.analyze` takes them; its digits are those of the one call.
    directory : str or Path
        Where the files go; those of an earlier analysis are replaced.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=100, oracle_fraction=0.5, rng=1)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     analyze_in_steps(data, folder).levels["level"].to_series().to_dict()
    {'base': 'reported', 'better': 'reported', 'slightly_better': 'reported', 'worse': 'reported'}
    """
    start = time.perf_counter()
    read_step(path, directory, **asked)
    for name in STEPS:
        run_step(name, directory)
    return replace(report(Path(directory)), seconds=time.perf_counter() - start)
