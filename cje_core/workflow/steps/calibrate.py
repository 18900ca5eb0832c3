"""Step 1: the calibrator and the rewards of every response, pooled and held out.

Every fit of the calibrator is made here: f, f^(-k), and for the reruns of the jackknife f^(-j) and f^(-j,-k).
"""

from pathlib import Path

import numpy as np
import pandas as pd

from cje_core.calibration.calibrator import predict
from cje_core.calibration.folds import UNKNOWN
from cje_core.calibration.oracle_slice import held_out
from cje_core.families.off_policy.logs import Logs
from cje_core.families.off_policy.stages import make_logs, with_outcome, with_refit, with_reruns
from cje_core.workflow.steps.files import write_rows, write_tree
from cje_core.workflow.steps.fits import slice_groups
from cje_core.workflow.steps.state import State, read_state, reward_keys


def calibrate(directory: Path) -> list[str]:
    """Fit the calibrator; the names of the files written.

    ``calibrator.nc``: labels, folds, knots and levels of f and of each f^(-k). ``rewards.parquet``: a row per response,
    ``kind`` fresh or logged, with its fold (-1: nobody asks for it), judge score, ``reward`` f(Z), ``reward_oof``
    f^(-k)(Z), and with logged responses ``reward_without_<j>``, ``reward_oof_without_<j>`` without the labels of
    fold j; NaN where there is no fit.
    """
    state = read_state(directory, calibrated=False)
    given = state.given
    groups = {f"fresh/{name}": group for name, group in slice_groups(given.slice).items()}
    if given.slice_with_logs is not given.slice:
        groups |= {f"logged/{name}": group for name, group in slice_groups(given.slice_with_logs).items()}
    write_tree(directory / "calibrator.nc", groups)
    write_rows(directory / "rewards.parquet", rewards(state))
    return ["calibrator.nc", "rewards.parquet"]


def rewards(state: State) -> pd.DataFrame:
    """Rewards of every response."""
    rows, fitted = state.given.rows, state.given.slice
    if state.logged:
        return _with_logs(with_outcome(make_logs(state.given)))
    out = reward_keys(rows, None)
    out["fold"], out["judge_score"] = fitted.fold[rows.prompt], rows.score
    out["reward"], out["reward_oof"] = np.full((2, len(rows.z)), np.nan)
    if fitted.calibrator is not None:
        out["reward"] = predict(fitted.calibrator, rows.z)
        known = fitted.fold[rows.prompt] != UNKNOWN
        out.loc[known, "reward_oof"] = held_out(fitted, rows.z[known], rows.prompt[known])
    return out


def _with_logs(logs: Logs) -> pd.DataFrame:
    rows, seen, fitted = logs.rows, logs.seen, logs.pooled
    out = reward_keys(rows, seen)
    out["fold"] = np.concatenate([fitted.fold[rows.prompt], fitted.fold[seen]])
    out["judge_score"] = np.concatenate([rows.score, logs.logged.z[seen, 0]])
    fits = [(logs, "")]
    if fitted.calibrator is not None:
        reruns = with_reruns(logs, lambda one: with_refit(with_outcome(one))).reruns or ()
        fits += [(other, f"_without_{other.left_out}") for other in reruns]
    for these, end in fits:
        fresh = np.full(len(rows.z), np.nan)
        if these.fitted.calibrator is not None:
            fresh = predict(these.fitted.calibrator, rows.z)
        out[f"reward{end}"] = np.concatenate([fresh, these.reward[seen]])
        held_out_reward = these.outcomes[()]
        out[f"reward_oof{end}"] = np.concatenate([held_out_reward.fresh, held_out_reward.logged[seen]])
    return out
