"""Values, overlap and reliability by cohort: one row for each policy in each group of prompts.

A cohort's value is the one that an analysis of this cohort alone prints first (`cje_core.data.cohorts.restrict`): the
mean over its prompts, under the calibrator that all labels taught, corrected by the policy's own labels or probes in
the cohort. Where nothing of the policy's own corrects it, it borrows across cohorts as well as across policies, unless
the calibration is told the groups (`cje_core.calibration.calibrated.Calibration`).

*Cohorts add up.* With s_c the share of a policy's prompts in cohort c, ``sum_c s_c V_c`` is the whole's value exactly
where the value is a mean of predictions that the cohorts share (raw judge, plug-in); with ``s_c`` the shares of its
labels, exactly for the mean label. A corrected value adds up to ``sum_c s_c (mean_c h + mean residual_c)``, the
post-stratified form of the whole's: it differs from it by the accident that labels are not spread over cohorts as
prompts are (and by what tuning to a cohort's own labels does). Both stand side by side, ``sum`` and ``whole``.

*Differences.* Each cohort's value is tested against the whole's, from the joint influence of both, so labels and
prompts that they share cancel; the p-values of all policies and cohorts are adjusted together (Benjamini-Hochberg).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from cje_core.calibration.reliability import reliability_by_group
from cje_core.checks import FloatArray
from cje_core.data import DataError
from cje_core.data.cohorts import group_codes, restrict
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND
from cje_core.transport.local_audits import subgroup_audit
from cje_core.workflow.analysis import Analysis

FDR = 0.05
OVERLAP = ("ess_fraction", "max_share", "hill", "ttc")
MOST = 100  # cohorts of one table: each is an analysis


def by_cohort(whole: Analysis, name: str, analyse: Callable[[xr.Dataset], Analysis]) -> xr.Dataset:
    """Table of an analysis by one variable over prompts.

    Parameters
    ----------
    whole : Analysis
    name : str
        Variable over ``prompt``.
    analyse : callable
        The same analysis of evaluation data; posteriors it need not have.

    Returns
    -------
    xr.Dataset
        Over ``policy, cohort`` (in order of name): ``estimate``, ``interval``, ``std_error``, ``level``, ``source``,
        ``reason`` as an analysis of the cohort has them; ``share`` of the policy's prompts, ``n_prompts``,
        ``n_labels`` and ``n_probes`` (labels and probes of its own); ``difference`` from the whole's value with
        ``difference_std_error``, ``p_value``, ``p_bh`` and ``flagged``; ``ess_fraction``, ``max_share`` and ``hill``
        of the raw weights, ``ttc`` and ``n_logged``; ``probe_residual``, ``probe_p_bh`` of
        `cje_core.transport.local_audits.subgroup_audit`. Over ``policy``: ``whole`` and ``sum``. Over ``cohort``, of
        the labels that taught: ``label_n`` and what `reliability_by_group` has, by its names with ``label_`` before.
        NaN where there is no value or no such data.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=90, oracle_fraction=0.5, rng=1)
    >>> from cje_core.workflow.analyze import analyze
    >>> data["topic"] = "prompt", ["code", "prose", "maths"] * 30
    >>> by_cohort(analyze(data), "topic", analyze)["cohort"].values.tolist()
    ['code', 'maths', 'prose']
    """
    given = whole.calibrated
    rows = given.rows
    every, code = group_codes(given.data, name)
    # the prompts of a restricted analysis that only teach make no cohort
    present = np.unique(code[rows.prompt[rows.evaluated | rows.probe]])
    names = every[present]
    if len(names) > MOST:
        raise DataError(
            f"field {name!r} of prompts: it has {len(names)} values, and values by cohort take {MOST}; group them"
        )
    shape = len(whole.policies), len(names)
    columns: dict[str, Any] = {
        key: np.full(shape, np.nan)
        for key in (
            "estimate", "std_error", "share", "difference", "difference_std_error", "p_value", *OVERLAP, "n_logged",
        )
    }  # fmt: skip
    interval = np.full((*shape, 2), np.nan)
    words = {key: np.full(shape, "", dtype=object) for key in ("level", "source", "reason")}
    counts = {key: np.zeros(shape, dtype=int) for key in ("n_prompts", "n_labels", "n_probes")}
    for c, (group, cohort) in enumerate(zip(present, names.tolist(), strict=True)):
        part = analyse(restrict(given.data, {name: cohort}))
        for p, policy in enumerate(whole.policies):
            at, mine = (p, c), rows.policy == rows.policies.index(policy)
            inside = mine & (code[rows.prompt] == group)
            value = part.value.sel(policy=policy)
            columns["estimate"][at], columns["std_error"][at] = (
                float(value["estimate"]),
                float(value["std_error"]),
            )
            interval[at] = value["interval"].values
            for key in words:
                words[key][at] = part.of_level(key, policy)
            evaluated = float(rows.weight[mine & rows.evaluated].sum())
            columns["share"][at] = (
                rows.weight[inside & rows.evaluated].sum() / evaluated if evaluated else np.nan
            )
            counts["n_prompts"][at] = len(np.unique(rows.prompt[inside & rows.evaluated]))
            counts["n_labels"][at] = (inside & rows.evaluated & rows.labelled).sum()
            counts["n_probes"][at] = (inside & rows.probe).sum()
            found = _against(part.value, whole.value, policy)
            columns["difference"][at], columns["difference_std_error"][at], columns["p_value"][at] = found
            if part.overlap is not None:
                of = part.overlap.sel(policy=policy)
                for key in OVERLAP:
                    columns[key][at] = float(of[key])
                columns["n_logged"][at] = int(of["n_usable"])
    p_bh = adjust_p(columns["p_value"].ravel(), "bh").reshape(shape)
    cell = ("policy", "cohort")
    summed = np.where(columns["share"] > 0, columns["share"] * columns["estimate"], 0.0).sum(axis=1)
    probed = subgroup_audit(given, group=name, fdr=FDR).sel(policy=whole.policies, group=names)
    labels = reliability_by_group(given, name, fdr=FDR).sel(group=names).rename(group="cohort")
    return xr.Dataset(
        {
            **{key: (cell, column) for key, column in columns.items()},
            **{key: (cell, column.astype(str)) for key, column in words.items()},
            **{key: (cell, column) for key, column in counts.items()},
            "interval": ((*cell, "ci_bound"), interval),
            "p_bh": (cell, p_bh),
            "flagged": (cell, p_bh <= FDR),
            "probe_residual": (cell, probed["residual"].values),
            "probe_p_bh": (cell, probed["p_bh"].values),
            "whole": ("policy", whole.value["estimate"].sel(policy=whole.policies).values),
            "sum": ("policy", summed),
            **{f"label_{key}": labels[key].variable for key in labels if key != "n_labels"},
            "label_n": labels["n_labels"].variable,
        },
        coords={"policy": whole.policies, "cohort": names, "ci_bound": CI_BOUND},
        attrs={"variable": name, "fdr": FDR, "ci_prob": float(whole.value.attrs["ci_prob"])},
    )


def _against(part: xr.Dataset, whole: xr.Dataset, policy: str) -> tuple[float, float, float]:
    """Difference of a cohort's value from the whole's, its standard error and p-value, from their joint influence."""
    a, b = part.sel(policy=policy), whole.sel(policy=policy)
    difference = float(a["estimate"] - b["estimate"])
    if "influence" not in a or "influence" not in b:
        return difference, np.nan, np.nan
    prompts = b["prompt"].values.astype(str)  # sorted, and those of the cohort among them
    moves = _error(b)
    moves[np.searchsorted(prompts, a["prompt"].values.astype(str))] -= _error(a)
    _, cluster = np.unique(b["cluster"].values, return_inverse=True)
    std_error = float(np.sqrt((np.bincount(cluster, weights=moves) ** 2).sum()))
    df = min(float(a["df"]), float(b["df"]))
    # of a cohort that is the whole nothing is left but rounding
    tested = std_error > 1e-9 * float(b["std_error"])
    return (
        difference,
        std_error,
        float(2 * special.stdtr(df, -abs(difference) / std_error)) if tested else np.nan,
    )


def _error(value: xr.Dataset) -> FloatArray:
    """What each prompt adds to the error of one policy's value."""
    return np.asarray(value["influence"].values / value.sizes["prompt"])


def together(tables: Mapping[str, xr.Dataset]) -> xr.Dataset | None:
    """Tables of `by_cohort` as one, cohorts named ``variable=value``; None without any.

    What is over cohorts alone is given to every policy, as the reporting ledger keeps it.
    """
    parts = []
    for name, table in tables.items():
        cohort = [f"{name}={value}" for value in table["cohort"].values.astype(str)]
        wide = table.drop_vars(["whole", "sum"]).assign_coords(cohort=cohort)
        parts.append(wide.map(lambda column, over=wide["policy"]: column.broadcast_like(over)))
    return xr.concat(parts, dim="cohort") if parts else None
