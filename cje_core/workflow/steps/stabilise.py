"""Step 2: importance weights and their stabilisation, per policy."""

from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.checks import FloatArray
from cje_core.families.off_policy.logs import DEFAULT, Logs
from cje_core.families.off_policy.stages import with_weights
from cje_core.families.off_policy.value import stabilised
from cje_core.offpolicy.weights import CANDIDATES, ess_fraction, guard_blend
from cje_core.workflow.steps.files import write_rows, write_tree
from cje_core.workflow.steps.state import DELTAS, read_state

ORIENTATIONS = ("up", "down")


def stabilise(directory: Path) -> list[str]:
    """Stabilise the weights of logged responses; the names of the files written, none without logs.

    ``weights.parquet``: a row per policy and usable logged response: log ratio (nats), mean-one ``weight``, held-out
    candidates, and per Delta (``reward`` R for IPS, ``residual`` R - q for DR) the ``stack`` and the ``stabilised``
    weight. ``stabilisation.nc``: see `stabilisation`.
    """
    logs = read_state(directory).logs
    if logs is None:
        return []
    logs = with_both_weights(logs)
    write_rows(directory / "weights.parquet", weights(logs))
    write_tree(directory / "stabilisation.nc", {"stabilisation": stabilisation(logs)})
    return ["weights.parquet", "stabilisation.nc"]


def with_both_weights(logs: Logs) -> Logs:
    """Logs with the default weights for R and for R - q."""
    for delta in DELTAS:
        logs = with_weights(logs, delta)
    return logs


def weights(logs: Logs) -> pd.DataFrame:
    """Weights of the usable logged responses of every policy, from logs `with_both_weights`."""
    parts = []
    for p, policy in enumerate(logs.rows.policies):
        mine = logs.of(p)
        if not len(mine.used):
            continue
        part = {
            "policy": policy,
            "prompt": logs.rows.prompts[mine.used],
            "fold": mine.fold,
            "judge_score": mine.score,
            "log_ratio": logs.log_ratio[p, mine.used],
            "weight": mine.weight,
            **dict(zip((f"candidate_{c}" for c in CANDIDATES), logs.weights.candidates[p], strict=True)),
        }
        for delta in DELTAS:
            found = stabilised(logs, p, delta)
            part |= {f"stack_{delta}": found.stack, f"stabilised_{delta}": found.weight}
        parts.append(pd.DataFrame(part))
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else pd.DataFrame({"policy": [], "prompt": []}, dtype=str)
    )


def stabilisation(logs: Logs) -> xr.Dataset:
    """How the weights came about, from logs `with_both_weights`.

    Returns
    -------
    xr.Dataset
        Over ``policy`` and ``delta`` ("reward", "residual"): ``beta(candidate)`` with the identity ``base``;
        ``orientation``, the map with the larger beta ("up", "down", or "none" where the identity has all of it);
        ``alpha`` and ``rho`` of the guard, ``alpha_by_fold(fold)``, the blend that it would ask of the responses of one
        fold alone (1 where it would not act); ``ess_fraction`` of the result and ``mean_weight``, which is one but for
        rounding. Over ``policy``, ``map`` ("up", "down"), ``fold`` and ``end``: the isotonic maps fitted without the
        fold, as the ends of their constant blocks, ``map_score`` (judge scale) and ``map_weight`` (mean one where
        fitted), linear between ends and constant outside them, NaN beyond the last.
    """
    policies, n_folds = logs.rows.policies, logs.n_folds
    shape = (len(policies), len(DELTAS))
    alpha, ess, mean = np.full((3, *shape), np.nan)
    orientation = np.full(shape, "none")
    beta, by_fold = np.full((*shape, len(CANDIDATES)), np.nan), np.full((*shape, n_folds), np.nan)
    for p in range(len(policies)):
        mine = logs.of(p)
        for d, delta in enumerate(DELTAS if len(mine.used) else ()):
            found = stabilised(logs, p, delta)
            beta[p, d], alpha[p, d] = found.beta, found.alpha
            ess[p, d], mean[p, d] = ess_fraction(found.weight), found.weight.mean()
            for k in np.unique(mine.fold):
                by_fold[p, d, k] = guard_blend(found.stack[mine.fold == k], DEFAULT.rho)
            turns = dict(zip(CANDIDATES, found.beta, strict=True))
            if max(turns["up"], turns["down"]) > 0:
                orientation[p, d] = "up" if turns["up"] >= turns["down"] else "down"
    over, of_map = ("policy", "delta"), ("policy", "map", "fold", "end")
    maps = _maps(logs)
    return xr.Dataset(
        {
            "map_score": (of_map, maps[0]),
            "map_weight": (of_map, maps[1]),
            "orientation": (over, orientation),
            "beta": ((*over, "candidate"), beta),
            "alpha": (over, alpha),
            "rho": (over, np.full(shape, DEFAULT.rho)),
            "ess_fraction": (over, ess),
            "mean_weight": (over, mean),
            "alpha_by_fold": ((*over, "fold"), by_fold),
        },
        coords={
            "policy": policies,
            "delta": list(DELTAS),
            "candidate": list(CANDIDATES),
            "map": list(ORIENTATIONS),
            "fold": np.arange(n_folds),
        },
    )


def _maps(logs: Logs) -> FloatArray:
    """Scores and weights at the ends of the maps' blocks, shape (2, policies, orientations, folds, ends)."""
    found: dict[tuple[int, int, int], tuple[FloatArray, FloatArray]] = {}
    for p in range(len(logs.rows.policies)):
        maps = logs.of(p).maps
        for k in np.flatnonzero(maps.mean_outside > 0).tolist():
            found |= {(p, o, k): maps.map(name, k) for o, name in enumerate(ORIENTATIONS)}
    most = max((len(score) for score, _ in found.values()), default=0)
    out = np.full((2, len(logs.rows.policies), len(ORIENTATIONS), logs.n_folds, most), np.nan)
    for (p, o, k), (score, weight) in found.items():
        out[:, p, o, k, : len(score)] = score, weight
    return out
