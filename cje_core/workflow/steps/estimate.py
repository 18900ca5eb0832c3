"""Steps 3 and 4: estimates with their influence values, and the stack of the doubly robust ones."""

from pathlib import Path

import xarray as xr

from cje_core.estimators import stacked_dr
from cje_core.families.off_policy.estimate import logs_of
from cje_core.families.off_policy.logs import Logs
from cje_core.workflow.analyze import estimates, with_stages
from cje_core.workflow.steps.files import write_tree
from cje_core.workflow.steps.members import value_groups
from cje_core.workflow.steps.state import read_state

STACK = "stacked_dr"


def estimate(directory: Path) -> list[str]:
    """Run the chosen estimators but the stack; the names of the files written.

    ``estimates.nc``: a group per estimator. ``members.nc``, where a stack was asked for: per member and policy (by its
    number in order of name) the sources of error over prompts, and the terms of the calibration's.
    """
    state = read_state(directory, weighted=True)
    asked = state.asked._replace(names=[name for name in state.asked.names if name != STACK])
    logs = with_stages(state.logs or state.given, asked)
    write_tree(directory / "estimates.nc", estimates(state.given, asked, logs))
    if STACK not in state.asked.names:
        return ["estimates.nc"]
    write_tree(directory / "members.nc", _members(logs or logs_of(state.given)))
    return ["estimates.nc", "members.nc"]


def _members(logs: Logs) -> dict[str, xr.Dataset]:
    groups = {"library": xr.Dataset(attrs={"members": list(stacked_dr.LIBRARY)})}
    for name, values in stacked_dr.with_members(logs).members.items():
        for p, value in enumerate(values):
            if value is not None:
                groups |= {f"{name}/{p}/{part}": ds for part, ds in value_groups(logs, value).items()}
    return groups


def stack(directory: Path) -> list[str]:
    """Stack the doubly robust members; the names of the files written, none where no stack was asked for.

    ``stacked.nc``: the estimate, with the weights of the members.
    """
    state = read_state(directory, calibrated=False)
    if STACK not in state.asked.names:
        return []
    state = read_state(directory, weighted=True, stack=True)
    found = estimates(state.given, state.asked._replace(names=[STACK]), state.logs)
    write_tree(directory / "stacked.nc", found)
    return ["stacked.nc"]
