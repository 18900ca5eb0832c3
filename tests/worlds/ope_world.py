"""A small world with logged responses, and the family of estimators that read them, for their tests."""

import numpy as np
import pytest

from cje_core.data import from_arrays
from cje_core.estimators import (
    calibrated_dr_cpo,
    calibrated_ips,
    capped_ips,
    dr_cpo,
    ips,
    mrdr,
    snips,
    stacked_dr,
    tmle,
)
from cje_core.families.off_policy.estimate import logs_of as bare_logs
from cje_core.families.off_policy.estimate import prepared

IPS = (snips, ips, capped_ips, calibrated_ips)
DR = (dr_cpo, calibrated_dr_cpo, tmle, mrdr, stacked_dr)
FAMILY = IPS + DR
names = pytest.mark.parametrize("module", FAMILY, ids=lambda m: m.__name__.split(".")[-1])
SCORES = np.linspace(0.1, 0.9, 9)


def small(seed=0, *, n=40, draws=2, missing=4, spread=0.6, share=0.6, cluster=None, target="high"):
    """A logger "base" that is labelled, a target tilted in the score, two draws each, some ratios unknown."""
    rng = np.random.default_rng(seed)
    judge = rng.choice(SCORES, (2, n, draws))
    oracle = np.round(np.clip(judge + rng.normal(0, 0.2, judge.shape), 0, 1), 3)
    labels = np.where(rng.random(judge.shape) < share, oracle, np.nan)
    labels[1] = np.nan
    labels[:, :, 1:] = np.nan
    slope = 2.0 if target == "high" else -2.0
    ratio = slope * (judge[0, :, 0] - 0.5) + rng.normal(0, spread, n)
    ratio[rng.choice(n, missing, replace=False)] = np.nan
    logger = -rng.uniform(200, 400, n)
    return from_arrays(
        judge,
        policies=["base", "target"],
        oracle=labels,
        calibration_policy="base",
        cluster=cluster,
        logged={
            "logp_target": np.stack([logger, logger + ratio]),
            "logp_logger": logger,
            "logged_judge": judge[0, :, 0],
            "logged_oracle": labels[0, :, 0],
        },
    )


def logs_of(data):
    """Logs with every stage that a member of the family reads."""
    logs = bare_logs(data)
    for module in FAMILY:
        logs = prepared(logs, module.estimate.method())
    return logs


def world_of(data, policy="target"):
    """The data as the oracle's list of prompt dicts, in canonical order."""
    logs = logs_of(data)
    rows, p = logs.rows, logs.rows.policies.index(policy)
    out = []
    for i in range(len(rows.prompts)):
        taught = np.flatnonzero(rows.teaches & (rows.prompt == i))
        mine = np.flatnonzero((rows.policy == p) & (rows.prompt == i) & rows.evaluated)
        label, ratio = logs.logged.label[i], logs.log_ratio[p, i]
        out.append(
            {
                "fold": int(logs.fitted.fold[i]),
                "score": float(logs.logged.z[i, 0]),
                "label": float(label) if np.isfinite(label) else None,
                "ratio": float(ratio) if np.isfinite(ratio) else None,
                "fresh": rows.score[mine].tolist(),
                "taught": [(float(rows.score[j]), float(rows.label[j])) for j in taught],
            }
        )
    return out


def unrefused(module):
    """Options under which every member values the tilted target: calibrated IPS refuses what it shrinks."""
    return {"borrowed": "plug_in"} if module is calibrated_ips else {}


def of_target(result, name="estimate"):
    return float(result[name].sel(policy="target"))
