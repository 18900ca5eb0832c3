"""Steps 3 and 4: estimates with their influence values, and the stack of the doubly robust ones."""

from pathlib import Path

import xarray as xr

from cje_core.estimators import stacked_dr
from cje_core.families.off_policy.estimate import refusal
from cje_core.families.off_policy.value import unpack_logs
from cje_core.inference.estimate import Status
from cje_core.workflow.analyze import estimates
from cje_core.workflow.steps.files import write_tree
from cje_core.workflow.steps.members import value_groups
from cje_core.workflow.steps.state import State, read_state

STACK = "stacked_dr"


def estimate(directory: Path) -> list[str]:
    """Run the chosen estimators but the stack; the names of the files written.

    ``estimates.nc``: a group per estimator. ``members.nc``, where a stack was asked for: per member and policy (by its
    number in order of name) the sources of error over prompts, and the terms of the calibration's.
    """
    state = read_state(directory, weighted=True)
    names = [name for name in state.asked.names if name != STACK]
    found = estimates(state.given, state.asked._replace(names=names))
    write_tree(directory / "estimates.nc", found)
    if STACK not in state.asked.names:
        return ["estimates.nc"]
    write_tree(directory / "members.nc", _members(state))
    return ["estimates.nc", "members.nc"]


def _members(state: State) -> dict[str, xr.Dataset]:
    logs = unpack_logs(state.given)
    groups = {"library": xr.Dataset(attrs={"members": list(stacked_dr.LIBRARY)})}
    for p in range(len(logs.rows.policies)):
        if isinstance(refusal(logs, p, fresh=True), Status):
            continue
        for name in stacked_dr.LIBRARY:
            value = stacked_dr.member(logs, p, name)
            groups |= {f"{name}/{p}/{part}": ds for part, ds in value_groups(logs, p, value).items()}
    return groups


def stack(directory: Path) -> list[str]:
    """Stack the doubly robust members; the names of the files written, none where no stack was asked for.

    ``stacked.nc``: the estimate, with the weights of the members.
    """
    state = read_state(directory, calibrated=False)
    if STACK not in state.asked.names:
        return []
    state = read_state(directory, weighted=True, stack=True)
    found = estimates(state.given, state.asked._replace(names=[STACK]))
    write_tree(directory / "stacked.nc", found)
    return ["stacked.nc"]
