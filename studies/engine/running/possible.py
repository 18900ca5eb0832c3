"""Whether every cell of a study can be drawn: asked before anything runs, so that none fails replicate by replicate."""

import inspect

import numpy as np

from cje_core.data.errors import said
from cje_core.streams import Cell
from studies.engine.scenario import world_of
from studies.engine.study import Study, StudyError, own_setting

TRIES = 3  # a setting that cannot be fails at every seed, a world that fails by chance at some
IMPOSSIBLE = (ValueError, TypeError, ArithmeticError, LookupError)


def refuse_impossible(study: Study) -> None:
    """Stop at the first cell whose setting no world can have, and at a grid without a cell.

    Parameters
    ----------
    study : Study
        At its profile and levels.

    Raises
    ------
    StudyError
        One line: the cell, what the world says of it, and what to change.
    """
    cell = None
    for cell in study.cells():
        said = _impossible(study, cell)
        if said:
            levels = ",".join(f"{factor}={level}" for factor, level in cell.items())
            raise StudyError(f"study {study.name}: {levels} cannot be simulated: {said}; give other levels")
    if cell is None:
        raise StudyError(
            f"study {study.name}: no cell of the grid is left at these levels; give other levels"
        )


def _impossible(study: Study, cell: Cell) -> str:
    """What is wrong with a cell: the study's own check, else one data set of its world; empty where nothing is."""
    try:
        if study.check is not None:
            study.check(cell)
            return ""
        if not study.scenario and study.setting is own_setting:
            return ""  # a mechanism of its own
        setting = study.setting(study, cell)
        world = world_of(setting.scenario)
        arguments = inspect.signature(world.simulate).parameters
        if study.replicate is not None and study.setting is own_setting and not set(cell) <= set(arguments):
            return ""  # it makes the world's arguments of its factors itself
        asked = inspect.signature(world.truth).parameters
        world.truth(**{name: value for name, value in setting.arguments.items() if name in asked})
    except IMPOSSIBLE as error:
        return _said(error)
    found = ""
    for seed in range(TRIES):
        try:
            world.simulate(**setting.arguments, rng=np.random.default_rng(seed))
        except IMPOSSIBLE as error:
            found = _said(error)
        else:
            return ""
    return found


def _said(error: Exception) -> str:
    """Its message, on one line and without its full stop."""
    return said(error).rstrip(".")
