"""What the steps before left in a directory, as the estimators take it: nothing of it is fitted again."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cje_core.calibration.calibrated import Calibrated, Calibration, Slices
from cje_core.checks import IntArray
from cje_core.data.arrays import Rows
from cje_core.families.off_policy.value import DEFAULT, Logs, Stable, unpack_logs, without_fold
from cje_core.offpolicy.weights import CANDIDATES
from cje_core.workflow.reading.prepare import Asked
from cje_core.workflow.steps.files import aligned, read_json, read_rows, read_tree, readable
from cje_core.workflow.steps.fits import slice_of
from cje_core.workflow.steps.members import value_of

DELTAS = ("reward", "residual")  # what stabilised weights multiply: R (IPS), R - q (DR)


class State(NamedTuple):
    """Data, and what was asked for."""

    given: Calibrated
    left_out: pd.DataFrame
    asked: Asked

    @property
    def logged(self) -> bool:
        """Whether there are logged responses."""
        return "logp_target" in self.given.data


def read_state(
    directory: Path, *, calibrated: bool = True, weighted: bool = False, stack: bool = False
) -> State:
    """Data and configuration, with the calibrator and rewards, the weights, and the members of the stack."""
    config = read_json(directory / "config.json")
    data = read_tree(directory / "data.nc")["data"]
    left_out = read_rows(directory / "left_out.parquet")
    with readable(directory / "config.json"):
        given = Calibrated(data, Calibration(**config.pop("calibration")))
        state = State(given, left_out, Asked(**config))
    if not calibrated:
        return state
    groups = read_tree(directory / "calibrator.nc")
    slices = [
        slice_of({n.removeprefix(f"{name}/"): g for n, g in groups.items() if n.startswith(f"{name}/")})
        for name in ("fresh", "logged" if "logged/labels" in groups else "fresh")
    ]
    fresh, with_logs = slices if "logged/labels" in groups else slices[:1] * 2
    state = state._replace(given=Calibrated(data, given.calibration, Slices(fresh, with_logs)))
    if state.logged:
        logs = unpack_logs(state.given)
        _put_rewards(logs, directory / "rewards.parquet")
        if weighted or stack:
            _put_weights(logs, directory)
        if stack:
            _put_members(logs, directory / "members.nc")
    return state


def reward_keys(rows: Rows, seen: IntArray | None) -> pd.DataFrame:
    """What names a row of ``rewards.parquet``: fresh responses, and with ``seen`` the logged ones of these prompts.

    ``draw`` counts a policy's responses to a prompt from 0.
    """
    fresh = pd.DataFrame(
        {
            "kind": "fresh",
            "policy": np.array(rows.policies, dtype=object)[rows.policy],
            "prompt": rows.prompts[rows.prompt],
        }
    )
    fresh["draw"] = fresh.groupby(["policy", "prompt"], sort=False).cumcount()
    if seen is None:
        return fresh
    logged = pd.DataFrame({"kind": "logged", "policy": "", "prompt": rows.prompts[seen], "draw": 0})
    return pd.concat([fresh, logged], ignore_index=True)


def _put_rewards(logs: Logs, path: Path) -> None:
    keys = reward_keys(logs.rows, logs.shared.seen)
    table = aligned(read_rows(path), keys, path)
    n_fresh = len(logs.rows.z)

    def put(into: Logs, end: str) -> None:
        pooled, held_out = (table[f"{name}{end}"].to_numpy(float) for name in ("reward", "reward_oof"))
        into.put("reward", logs.shared.on_prompts(pooled[n_fresh:]))
        into.put("outcome", (logs.shared.on_prompts(held_out[n_fresh:]), held_out[:n_fresh].copy()))

    put(logs, "")
    for k in [int(n.rpartition("_")[2]) for n in map(str, table) if n.startswith("reward_without_")]:
        put(without_fold(logs, k), f"_without_{k}")


def _put_weights(logs: Logs, directory: Path) -> None:
    path = directory / "weights.parquet"
    everything, how = read_rows(path), read_tree(directory / "stabilisation.nc")["stabilisation"]
    rows = logs.rows
    for p, policy in enumerate(rows.policies):
        mine = logs.of(p)
        if not len(mine.used):
            continue
        keys = pd.DataFrame({"policy": policy, "prompt": rows.prompts[mine.used]})
        table = aligned(everything[everything["policy"] == policy], keys, path)
        column = {name: table[name].to_numpy(float) for name in table if name not in ("policy", "prompt")}
        kept = mine.__class__(
            mine.used, mine.fresh, column["weight"], mine.score, mine.fold, mine.n_folds, mine.z, mine.z_fresh
        )
        kept.put(("candidates", CANDIDATES), np.stack([column[f"candidate_{name}"] for name in CANDIDATES]))
        logs.shared.put(p, kept)
        at = how.sel(policy=policy)
        for delta in DELTAS:
            beta, alpha = at["beta"].sel(delta=delta).values, float(at["alpha"].sel(delta=delta))
            stable = Stable(column[f"stabilised_{delta}"], column[f"stack_{delta}"], beta, alpha)
            logs.put(("stabilised", p, delta, DEFAULT), stable)


def _put_members(logs: Logs, path: Path) -> None:
    groups = read_tree(path)
    for place in {name.split("/")[0] + "/" + name.split("/")[1] for name in groups if "/" in name}:
        member, p = place.split("/")
        mine = {n.removeprefix(f"{place}/"): g for n, g in groups.items() if n.startswith(f"{place}/")}
        logs.put(("member", member, int(p)), value_of(logs, int(p), mine))
