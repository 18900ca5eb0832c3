"""Audits of probes that come in time: drift over batches, anchors then and now, and a verdict after every label.

`cje_core.transport.drift` and `cje_core.transport.audit_size` hold the tests; they take one residual per sampling unit.
Here the units are made of evaluation data (draws and prompts of a cluster are averaged: they share their noise), and
the errors of the several tests of one command are put under one level, the one that is stated:

``batches``
    two charts per policy: a policy's p-value is that of the smaller of its two, and policies are adjusted by
    Benjamini-Hochberg, which under no drift at all is their familywise error
``anchors``
    half of the level goes to the mean change (sign flips), half to the one-sided bound of tau
``label``
    each policy's betting sequence by itself: a verdict is about one policy, as in
    `cje_core.transport.audit`
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import FloatArray, Rng, probability
from cje_core.data.errors import DataError
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND
from cje_core.io.fields import Source, show
from cje_core.io.tables import beside
from cje_core.transport.audit import residuals
from cje_core.transport.audit_size import sequential_audit
from cje_core.transport.drift import rank_drift, residual_drift
from cje_core.transport.margin import harmless_margin

PROBE_FILES = ("_probe", "_responses")  # ends of the names of files of probes


class Units(NamedTuple):
    """Residuals of sampling units; one unit is a policy's responses to the prompts of a cluster that came together."""

    residual: FloatArray  # (units,)
    policy: npt.NDArray[np.str_]  # (units,)
    when: npt.NDArray[np.object_]  # (units,) batch or place in time


def field_of_residuals(found: xr.Dataset, table: pd.DataFrame, field: str) -> npt.NDArray[np.object_]:
    """One field of a user's rows for each probed response.

    Parameters
    ----------
    found : xr.Dataset
        From `cje_core.transport.audit.residuals`.
    table : DataFrame
        ``policy``, ``prompt_id``, `field` of the rows, from `cje_core.io.tables.beside`.
    field : str

    Raises
    ------
    DataError
        Where a probe has no row with the field, or two rows of one policy and prompt differ in it.
    """
    known: dict[tuple[str, str], tuple[object, str]] = {}
    for policy, prompt, value, file, row in zip(
        *(table[name] for name in ("policy", "prompt_id", field, "file", "row")), strict=True
    ):
        if value is None:
            continue
        first, place = known.setdefault((policy, prompt), (value, f"{file}, row {row}"))
        if first != value:
            raise DataError(
                f"{file}, row {row}: {field} is {show(value)}, but {place} of the same policy and prompt has "
                f"{show(first)}; give all draws of a prompt one"
            )
    out = []
    for key in zip(found["policy"].values.tolist(), found["prompt"].values.tolist(), strict=True):
        if key not in known:
            raise DataError(f"the probe of policy {key[0]!r}, prompt_id {key[1]!r} has no {field}; add it")
        out.append(known[key][0])
    return np.array(out, dtype=object)


def field_of_probes(
    given: Calibrated, path: Source, probes: Source | None, field: str, option: str
) -> npt.NDArray[np.object_]:
    """One field of a user's rows for each probed response, from the files that evaluation data were read from.

    Parameters
    ----------
    given : Calibrated
    path, probes : path or DataFrame
        As in `cje_core.io.files.read`.
    field, option : str
        The field, and the argument that named it.

    Raises
    ------
    DataError
        Without probes, where no row has the field, and as `field_of_residuals`.
    """
    found = residuals(given)
    if found.sizes["row"] == 0:
        raise DataError(
            f"{option}={field!r}: it is a field of probes, and there are none; give probes=FILE with it, or mark rows "
            "of the responses with probe: true"
        )
    source, suffixes = (path, ("_responses",)) if probes is None else (probes, PROBE_FILES)
    return field_of_residuals(
        found, beside(source, field, suffixes=suffixes, required=probes is not None), field
    )


def units(found: xr.Dataset, when: npt.ArrayLike) -> Units:
    """Mean residual of each policy's rows of one cluster at one time.

    Parameters
    ----------
    found : xr.Dataset
        From `cje_core.transport.audit.residuals`.
    when : array, shape (rows,)
        Batch or time of each row; numbers or text.
    """
    moment = np.asarray(when)
    if moment.shape != found["residual"].shape:
        raise ValueError(
            f"when has shape {moment.shape}; it needs one entry for each of the "
            f"{found.sizes['row']} probed responses"
        )
    if not np.isfinite(found["residual"].values).all():
        raise DataError(
            "no calibrator could be fitted to the labels, so there are no residuals; label more responses"
        )
    values, policy, cluster = (found[name].values for name in ("residual", "policy", "cluster"))
    if not pd.isna(moment).any() and _alone(policy, cluster, moment):  # then a mean is of one row
        return Units(values, policy.astype(str), np.array(moment.tolist(), dtype=object))
    means = pd.DataFrame({"policy": policy, "cluster": cluster, "when": moment.tolist(), "residual": values})
    means = means.groupby(["policy", "cluster", "when"], sort=False)["residual"].mean().reset_index()
    return Units(
        means["residual"].to_numpy(dtype=float),
        means["policy"].to_numpy(dtype=str),
        means["when"].to_numpy(dtype=object),
    )


def _alone(*keys: npt.NDArray[Any]) -> bool:
    """Whether no two rows have the same keys."""
    return len(set(zip(*(key.tolist() for key in keys), strict=True))) == len(keys[0])


def batch_audit(
    data: xr.Dataset | Calibrated,
    batch: npt.ArrayLike,
    *,
    n_baseline: int = 1,
    false_alarm: float = 0.05,
    slack: float = 0.5,
    smoothing: float = 0.2,
    rng: Rng = None,
) -> xr.Dataset:
    """Look for change in the residuals of probes that came in batches.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    batch : array, shape (rows,)
        Batch of each row of `cje_core.transport.audit.residuals`; batches follow each other in sorted order.
    n_baseline, slack, smoothing, rng
        As in `cje_core.transport.drift.residual_drift`.
    false_alarm : float
        Probability of any alarm, of either chart and any policy, when nothing changes.

    Returns
    -------
    xr.Dataset
        As `residual_drift` gives it (``stream`` the policies), and over ``stream``: ``p_joint_bh``, ``drifted`` (1
        where that is at most `false_alarm`, 0 where not, NaN without a baseline of 4 residuals that vary, or without
        anything after it), ``n_units``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> from cje_core.transport.audit import residuals
    >>> batch = np.arange(residuals(data).sizes["row"]) % 6  # the same law in every batch
    >>> bool(batch_audit(data, batch, rng=1)["drifted"].any())
    False
    """
    probability(false_alarm, "false_alarm", DataError)
    found = residuals(data)
    if found.sizes["row"] == 0:
        raise DataError(
            "no probes: drift is looked for in the residuals of labels that did not teach; give some"
        )
    unit = units(found, batch)
    when = np.array(unit.when.tolist())  # numbers or text, in whose order batches follow
    n_batches = len(np.unique(when))
    if n_batches < 2:
        raise DataError(
            "all probes came in one batch: drift is a change between batches; give a field that parts them"
        )
    if not 1 <= n_baseline < n_batches:
        raise DataError(
            f"n_baseline={n_baseline}: the probes came in {n_batches} batches, so 1 to {n_batches - 1} of them can be "
            "the baseline"
        )
    out = residual_drift(
        unit.residual,
        when,
        stream=unit.policy,
        n_baseline=n_baseline,
        false_alarm=false_alarm,
        slack=slack,
        smoothing=smoothing,
        rng=rng,
    )
    adjusted = adjust_p(out["p_joint"].values, "bh")
    streams, count = np.unique(unit.policy, return_counts=True)
    assert np.array_equal(streams, out["stream"].values)
    return out.assign(
        p_joint_bh=("stream", adjusted),
        drifted=("stream", np.where(np.isnan(adjusted), np.nan, adjusted <= false_alarm)),
        n_units=("stream", count),
    )


def anchor_audit(
    historical: npt.ArrayLike,
    current: npt.ArrayLike,
    *,
    min_tau: float = 0.8,
    false_alarm: float = 0.05,
    rng: Rng = None,
) -> xr.Dataset:
    """Compare two scorings of anchors, with one level for all alarms.

    Parameters
    ----------
    historical, current : arrays, shape (anchors,) or (streams, anchors)
        As in `cje_core.transport.drift.rank_drift`.
    min_tau : float
        Smallest harmless agreement, in (-1, 1]: what the judge reaches against itself.
    false_alarm : float
        Probability of any alarm while scores then and now are exchangeable and every tau is at least `min_tau`.

    Returns
    -------
    xr.Dataset
        As `rank_drift` gives it; ``interval`` is the one whose upper end decides.

    Examples
    --------
    >>> then = np.random.default_rng(1).random(200)
    >>> found = anchor_audit(then, then + 0.2, rng=1)  # the judge has become lenient, in the same order
    >>> list(found)
    ['tau', 'p_value', 'exact', 'change', 'n_anchors', 'p_change', 'p_change_bh', 'alarm', 'interval']
    """
    probability(false_alarm, "false_alarm", DataError)
    if not -1 < min_tau <= 1:
        raise DataError(f"min_tau={min_tau}: it must lie in (-1, 1]")
    n_streams = len(np.atleast_2d(np.asarray(historical, float)))
    out = rank_drift(
        historical,
        current,
        min_tau=min_tau,
        ci_prob=1 - false_alarm / n_streams,  # its upper end is beyond tau with half the rest
        fdr=false_alarm / 2,
        rng=rng,
    )
    out.attrs["false_alarm"] = false_alarm
    return out


def label_audit(
    data: xr.Dataset | Calibrated,
    when: npt.ArrayLike,
    *,
    margin: float | None = None,
    alpha: float = 0.05,
) -> xr.Dataset:
    """Audit each policy's probes in the order in which they came, valid at every number of them.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    when : array, shape (rows,)
        What puts the rows of `cje_core.transport.audit.residuals` in order; equal ones keep the order of the rows. The
        prompts must be drawn at random, so that this order says nothing of the residuals.
    margin : float, optional
        Largest harmless mean residual; by default 5% of the width of ``oracle_range``.
    alpha : float
        Probability, per policy and over its whole sequence, of PASS while the mean residual of this calibrator is
        beyond the margin, and of FAIL while it is within.

    Returns
    -------
    xr.Dataset
        Over ``policy`` (those with probes): ``verdict``, ``stop`` (labels at which it was reached; 0: never),
        ``n_labels``, ``residual`` (mean of all), ``interval`` (after all). Over ``policy, label``: ``path`` (lower and
        upper end after each label, NaN beyond the last) and ``mean``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> from cje_core.transport.audit import residuals
    >>> list(label_audit(data, np.arange(residuals(data).sizes["row"])))
    ['verdict', 'stop', 'n_labels', 'residual', 'interval', 'path', 'mean']
    """
    given = calibrated(data)
    low, high = given.data.attrs["oracle_range"]
    probability(alpha, "alpha", DataError)
    harmless = harmless_margin(margin, (low, high), DataError)
    found = residuals(given)
    if found.sizes["row"] == 0:
        raise DataError("no probes: the audit is of labels that did not teach; give some")
    moment = np.asarray(when)
    # a cluster counts when its first label came, with the mean of all
    order = pd.Series(moment.tolist()).rank(method="first").to_numpy()
    keys = [found[name].values for name in ("policy", "cluster")]
    first = order if _alone(*keys) else pd.Series(order).groupby(keys).transform("min").to_numpy()
    unit = units(found, first)
    policies = np.unique(unit.policy)
    longest = int(np.unique(unit.policy, return_counts=True)[1].max())
    path, mean = np.full((len(policies), longest, 2), np.nan), np.full((len(policies), longest), np.nan)
    columns: dict[str, list[object]] = {name: [] for name in ("verdict", "stop", "n_labels", "residual")}
    ends = np.empty((len(policies), 2))
    for p, policy in enumerate(policies):
        mine = np.flatnonzero(unit.policy == policy)
        values = unit.residual[mine[np.argsort(unit.when[mine].astype(float), kind="stable")]]
        width = high - low
        one = sequential_audit(values, margin=harmless, alpha=alpha, bounds=(-width, width))
        n = len(values)
        path[p, :n], ends[p] = one["interval"].values, one["interval"].values[-1]
        mean[p, :n] = np.cumsum(values) / np.arange(1, n + 1)
        for name, value in zip(
            columns, (str(one["final"].item()), int(one["stop"]), n, float(values.mean())), strict=True
        ):
            columns[name].append(value)
    return xr.Dataset(
        {
            **{name: ("policy", np.array(column)) for name, column in columns.items()},
            "interval": (("policy", "ci_bound"), ends),
            "path": (("policy", "label", "ci_bound"), path),
            "mean": (("policy", "label"), mean),
        },
        coords={"policy": policies, "label": np.arange(1, longest + 1), "ci_bound": CI_BOUND},
        attrs={"margin": harmless, "alpha": alpha},
    )
