"""What the steps before left in a directory, as the estimators take it: nothing of it is fitted again."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cje_core.calibration.calibrated import Calibrated, Calibration, Slices
from cje_core.checks import FloatArray, IntArray
from cje_core.data import DataError
from cje_core.data.arrays import Rows
from cje_core.families.off_policy.logs import Logs, Outcome, PolicyLogs, Stable, Value, Weights
from cje_core.families.off_policy.stages import make_logs, on_prompts, weights_name, without_fold
from cje_core.inference.estimate import Status
from cje_core.offpolicy.held_out_maps import HeldOutMaps
from cje_core.offpolicy.weights import CANDIDATES
from cje_core.workflow.reading.prepare import Asked
from cje_core.workflow.steps.files import FORMAT, aligned, read_json, read_rows, read_tree, readable
from cje_core.workflow.steps.fits import slice_of
from cje_core.workflow.steps.members import value_of

DELTAS = ("reward", "residual")  # what stabilised weights multiply: R (IPS), R - q (DR)


class State(NamedTuple):
    """Data, and what was asked for."""

    given: Calibrated
    left_out: pd.DataFrame
    asked: Asked
    logs: Logs | None = None  # with the stages that were read; None without logged responses

    @property
    def logged(self) -> bool:
        """Whether there are logged responses."""
        return "logp_target" in self.given.data


def read_state(
    directory: Path, *, calibrated: bool = True, weighted: bool = False, stack: bool = False
) -> State:
    """Data and configuration, with the calibrator and rewards, the weights, and the members of the stack."""
    config = read_json(directory / "config.json")
    if not isinstance(config, dict) or config.pop("format", None) != FORMAT:
        raise DataError(
            f"{directory / 'config.json'}: another version of this package kept this analysis; keep it again"
        )
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
    if not state.logged:
        return state
    logs = read_logs(state.given, directory / "rewards.parquet")
    if weighted or stack:
        logs = read_weights(logs, directory)
    if stack:
        logs = replace(logs, members=read_members(logs, directory / "members.nc"))
    return state._replace(logs=logs)


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


def read_logs(given: Calibrated, path: Path) -> Logs:
    """Logs with the rewards of ``rewards.parquet``, pooled and held out, and their reruns without each fold."""
    logs = make_logs(given, np.full(len(given.rows.prompts), np.nan))
    table = aligned(read_rows(path), reward_keys(logs.rows, logs.seen), path)
    n_fresh = len(logs.rows.z)

    def of_logged(column: str) -> FloatArray:
        return on_prompts(logs, table[column].to_numpy(float)[n_fresh:])

    def held_out(end: str) -> dict[tuple[str, ...], Outcome]:
        column = f"reward_oof{end}"
        return {(): Outcome(of_logged(column), table[column].to_numpy(float)[:n_fresh].copy())}

    logs = replace(logs, reward=of_logged("reward"), outcomes=held_out(""))
    folds = [int(n.rpartition("_")[2]) for n in map(str, table) if n.startswith("reward_without_")]
    reruns = [
        replace(without_fold(logs, k, of_logged(f"reward_without_{k}")), outcomes=held_out(f"_without_{k}"))
        for k in folds
    ]
    return replace(logs, reruns=tuple(reruns))


def read_weights(logs: Logs, directory: Path) -> Logs:
    """Logs with the weights of ``weights.parquet``, raw, candidates and stabilised; reruns share all but the last."""
    path = directory / "weights.parquet"
    everything, how = read_rows(path), read_tree(directory / "stabilisation.nc")["stabilisation"]
    policies, candidates = list(logs.policies), [np.empty((len(CANDIDATES), 0)) for _ in logs.policies]
    stable: dict[str, list[Stable | None]] = {delta: [None] * len(policies) for delta in DELTAS}
    for p, (policy, mine) in enumerate(zip(logs.rows.policies, logs.policies, strict=True)):
        if not len(mine.used):
            continue
        keys = pd.DataFrame({"policy": policy, "prompt": logs.rows.prompts[mine.used]})
        table = aligned(everything[everything["policy"] == policy], keys, path)
        column = {name: table[name].to_numpy(float) for name in table if name not in ("policy", "prompt")}
        maps = HeldOutMaps(column["weight"], mine.score, mine.fold, logs.n_folds)
        policies[p] = PolicyLogs(mine.used, mine.fresh, mine.z, mine.z_fresh, maps)
        candidates[p] = np.stack([column[f"candidate_{name}"] for name in CANDIDATES])
        at = how.sel(policy=policy)
        for delta in DELTAS:
            beta, alpha = at["beta"].sel(delta=delta).values, float(at["alpha"].sel(delta=delta))
            stable[delta][p] = Stable(column[f"stabilised_{delta}"], column[f"stack_{delta}"], beta, alpha)
    weights = Weights(tuple(candidates), {weights_name(delta): tuple(stable[delta]) for delta in DELTAS})
    of_policies, shared = tuple(policies), Weights(tuple(candidates))
    reruns = tuple(replace(one, policies=of_policies, weights=shared) for one in logs.reruns or ())
    return replace(logs, policies=of_policies, weights=weights, reruns=reruns)


def read_members(logs: Logs, path: Path) -> dict[str, tuple[Value | Status | None, ...]]:
    """Values of the stack's members by name and policy, from ``members.nc``."""
    groups = read_tree(path)
    values: dict[str, list[Value | Status | None]] = {}
    for place in sorted({"/".join(name.split("/")[:2]) for name in groups if "/" in name}):
        member, p = place.split("/")
        parts = {n.removeprefix(f"{place}/"): g for n, g in groups.items() if n.startswith(f"{place}/")}
        values.setdefault(member, [None] * len(logs.policies))[int(p)] = value_of(logs, parts)
    return {member: tuple(of_policies) for member, of_policies in values.items()}
