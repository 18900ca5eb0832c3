"""Evaluation data as flat arrays: what estimators, audits and planners compute on.

The labelled dataset (`cje_core.data`) is checked and put into a canonical order here, once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import xarray as xr

from cje_core.data.contract import (
    check_data,
    check_unique,
    policy_names,
    teaching_policies,
)
from cje_core.data.errors import DataError
from cje_core.data.fields import NO_FOLD


class Rows(NamedTuple):
    """Evaluation data as flat arrays in canonical order, so that no result depends on the order it came in.

    Policies and prompts are sorted by name; rows are sorted by policy, prompt, draw. A row is a response that is
    judged and either evaluated, labelled or a probe.
    """

    policies: list[str]  # sorted names
    prompts: npt.NDArray[np.str_]  # sorted names
    cluster: npt.NDArray[np.intp]  # code of each prompt's cluster, 0..G-1 in order of name
    cluster_names: npt.NDArray[np.str_]
    policy: npt.NDArray[np.intp]  # per row: code into policies
    prompt: npt.NDArray[np.intp]  # per row: code into prompts
    score: npt.NDArray[np.float64]
    z: npt.NDArray[np.float64]  # (rows, 1 + features): the paper's Z = (S, X), judge score first
    label: npt.NDArray[np.float64]  # NaN where there is none
    labelled: npt.NDArray[np.bool_]
    probe: npt.NDArray[np.bool_]
    evaluated: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float64]  # 1 / draws of this policy at this prompt, times `stands_for`
    label_prob: npt.NDArray[np.float64]  # 1 where no probability was declared
    teaches: npt.NDArray[np.bool_]  # labelled, and of a calibration policy
    stands_for: npt.NDArray[np.float64] = np.empty(
        0
    )  # responses, which weigh `weight` together; empty: one each
    # assigned by the user to each cluster, -1 where none is; empty where none is at all
    fold: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
    prompt_order: npt.NDArray[np.intp] | None = None  # what sorts the data's prompts; None: they are sorted


FIRST = 1_000  # names that tell whether it is worth while to look at all
ROUNDING = 1e-12  # of the scale: labels that differ by less are one number, computed in two ways


def unpack(data: xr.Dataset, covariates: Sequence[str] = (), *, checked: bool = False) -> Rows:
    """Check evaluation data, unless they are `checked` already, and flatten them into `Rows`.

    Parameters
    ----------
    data : xr.Dataset
    covariates : sequence of str
        Features of ``covariate`` that join the judge score in ``z``.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> rows = unpack(from_arrays([[0.2, 0.8]], policies=["base"], oracle=[[0.0, np.nan]]))
    >>> rows.score.tolist(), rows.labelled.tolist()
    ([0.2, 0.8], [True, False])
    """
    if not checked:
        check_data(data, names=False)  # that they are unique is seen below, where they are sorted
    chosen = _feature_index(data, covariates)
    held, by_draw = data.variables, None
    policies, by_policy = _in_order("policy", np.array(policy_names(data)).astype(str, copy=False))
    prompts, by_prompt = _in_order("prompt", names_of(data, "prompt"))
    if data.sizes["draw"] > 1:
        by_draw = np.argsort(held["draw"].values, kind="stable")
    order = [(axis, by) for axis, by in enumerate((by_policy, by_prompt, by_draw)) if by is not None]

    def canonical(name: str) -> npt.NDArray[Any]:
        out: npt.NDArray[Any] = held[name].values
        if out.dtype == bool and (not out.any() or out.all()):
            return out  # in any order
        for axis, by in order:
            out = out.take(by, axis=axis)
        return out

    score, evaluated = canonical("judge"), canonical("evaluated")
    labelled, probe = canonical("labelled"), canonical("probe")
    counts = np.isfinite(score)
    counts &= evaluated | labelled | probe
    complete = bool(counts.all())
    at = np.empty(0, dtype=np.intp) if complete else np.flatnonzero(counts)

    n_policies, n_prompts, n_draws = score.shape

    def flat(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows = values.reshape(-1, *values.shape[3:])
        return rows if complete else rows[at]

    ones = np.ones(score.size if complete else len(at))
    weight = ones
    if n_draws > 1:
        together = np.where(
            evaluated, evaluated.sum(axis=2, keepdims=True), (~evaluated & probe).sum(axis=2, keepdims=True)
        )
        weight = ones / np.maximum(flat(together), 1)
    stands_for = flat(canonical("stands_for")) if "stands_for" in held else np.empty(0)
    if stands_for.size:
        weight = weight * stands_for
    in_order = np.arange(n_prompts)
    cluster_names, cluster = prompts, in_order
    if "cluster" in held:
        of_prompt = held["cluster"].values.astype(str, copy=False)
        if by_prompt is not None:
            of_prompt = of_prompt[by_prompt]
        cluster_names, cluster = np.unique(of_prompt, return_inverse=True)
    fold = np.empty(0, dtype=np.intp)
    if "fold" in held:
        of_prompt = held["fold"].values.astype(np.intp)
        fold = _fold_of_cluster(
            of_prompt if by_prompt is None else of_prompt[by_prompt], cluster, cluster_names
        )
    score = flat(score)
    z = score[:, None]
    if chosen:
        z = np.column_stack([z, flat(canonical("covariate"))[:, chosen]])
    taught = teaching_policies(data)
    teachers = np.array([name in taught for name in policies.tolist()], dtype=bool)
    if complete:
        policy = np.repeat(np.arange(n_policies), n_prompts * n_draws)
        prompt = in_order if n_draws == 1 else np.repeat(in_order, n_draws)
        prompt = prompt if n_policies == 1 else np.tile(prompt, n_policies)
    else:
        policy, prompt, _ = np.unravel_index(at, labelled.shape)
    labelled = flat(labelled)
    return Rows(
        policies=policies.tolist(),
        prompts=prompts,
        cluster=cluster,
        cluster_names=cluster_names,
        policy=policy,
        prompt=prompt,
        score=score,
        z=z,
        label=_without_rounding(flat(canonical("oracle")), policy, data.attrs["oracle_range"]),
        labelled=labelled,
        probe=flat(probe),
        evaluated=flat(evaluated),
        weight=weight,
        label_prob=flat(canonical("label_prob")) if "label_prob" in held else ones,
        teaches=labelled if teachers.all() else labelled & teachers[policy],
        stands_for=stands_for,
        fold=fold,
        prompt_order=by_prompt,
    )


def _without_rounding(
    label: npt.NDArray[np.float64], policy: npt.NDArray[np.intp], scale: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Labels by policy, in order, of which those next to an end of the scale lie on it, and equal ones are equal.

    An average of rubric items is .9999999999999999 for one response and 1 for another: that is no spread to be made an
    interval of.

    Examples
    --------
    >>> label = np.array([0.1 + 0.2, 0.3, np.nan, 0.1 + 0.2 + 0.7 - 1e-16, 0.5])
    >>> _without_rounding(label, np.array([0, 0, 1, 1, 1]), (0, 1)).tolist()
    [0.3, 0.3, nan, 1.0, 0.5]
    """
    at = np.flatnonzero(np.isfinite(label))
    if not len(at):
        return label
    low, high = scale
    near, y, of = ROUNDING * (high - low), label[at], policy[at]
    settled = np.where(y - low < near, low, np.where(high - y < near, high, y))
    start = np.zeros(1, np.intp) if of[0] == of[-1] else np.flatnonzero(np.diff(of, prepend=-1))
    least, most = np.minimum.reduceat(settled, start), np.maximum.reduceat(settled, start)
    for k in np.flatnonzero((least < most) & (most - least < near)):
        settled[start[k] : start[k + 1] if k + 1 < len(start) else None] = least[k]
    if (settled == y).all():
        return label
    out = label.copy()
    out[at] = settled
    return out


def _fold_of_cluster(
    fold: npt.NDArray[np.intp], cluster: npt.NDArray[np.intp], names: npt.NDArray[np.str_]
) -> npt.NDArray[np.intp]:
    """The fold that the prompts of each cluster share; -1 where none of them has one."""
    out = np.full(len(names), NO_FOLD, dtype=np.intp)
    np.maximum.at(out, cluster, fold)
    other = (fold != NO_FOLD) & (fold != out[cluster])
    if other.any():
        at = int(np.argmax(other))
        raise DataError(
            f"cluster {str(names[cluster[at]])!r} has prompts in folds {fold[at]} and {out[cluster[at]]}; "
            "prompts that depend on each other share a fold_id"
        )
    return out


def count_prompts(rows: Rows, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> int:
    """Number of prompts that some rows, by index or mask, are responses to."""
    if rows.stands_for.size:  # then each stands for as many prompts
        return round(float(rows.stands_for[index].sum()))
    return len(np.unique(rows.prompt[index]))


def taken(values: npt.NDArray[Any], index: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Rows at rising places: ``values[index]``, and a view, not to be written, where they are adjacent."""
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return values[index[0] : index[-1] + 1]
    return values[index]


def _in_order(
    dim: str, names: npt.NDArray[np.str_]
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.intp] | None]:
    """Names sorted, and the order that sorts them (None: they are); `DataError` if one stands there twice."""
    if _rise(names[:FIRST]) and _rise(names):
        return names, None
    by = np.argsort(names, kind="stable")
    ordered = names.take(by)
    check_unique(dim, ordered)
    return ordered, by


def _rise(names: npt.NDArray[np.str_]) -> bool:
    """Whether each name comes after the one before."""
    return bool((names[:-1] < names[1:]).all())


def names_of(data: xr.Dataset, dim: str) -> npt.NDArray[np.str_]:
    """Names of a dimension as text; where pandas holds them in Arrow's form, without a Python object for each."""
    index = data.indexes.get(dim)
    return data[dim].values.astype(str, copy=False) if index is None else _text_of(index)


def _text_of(index: pd.Index) -> npt.NDArray[np.str_]:
    held = index.array
    if isinstance(held, pd.arrays.ArrowStringArray) and len(held):
        text = pa.array(held, pa.large_string())
        return as_text(text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text)
    return np.asarray(index.values).astype(str)


def as_text(names: pa.LargeStringArray) -> npt.NDArray[np.str_]:
    """Names in NumPy's form, at least one; those of ASCII letters without a Python object for each."""
    ends, letters = _letters(names)
    width = np.diff(ends)
    most = int(width.max())
    if names.null_count or most == 0 or letters.max() >= 0x80:
        return np.array(names.to_pylist(), dtype=str)
    if width.min() < most:
        _, letters = _letters(pc.ascii_rpad(names, most, "\0"))
    return letters.astype(np.uint32).view(f"U{most}")


def _letters(names: pa.LargeStringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each name ends (before them, where the first begins), and the bytes of all of them."""
    _, ends, held = names.buffers()
    place = np.frombuffer(ends, np.int64)[names.offset : names.offset + len(names) + 1]
    return place, np.frombuffer(held or b"", np.uint8)[place[0] : place[-1]]


class Logged(NamedTuple):
    """The logged responses, one per prompt, in the order of `Rows.policies` and `Rows.prompts`."""

    z: npt.NDArray[np.float64]  # (n, 1 + features): judge score and covariates; NaN where nothing was logged
    label: npt.NDArray[np.float64]  # (n,) oracle label; NaN where there is none
    logp_target: npt.NDArray[np.float64]  # (policies, n) nats; NaN where unknown
    logp_logger: npt.NDArray[np.float64]  # (n,)
    n_tokens: npt.NDArray[np.float64]  # (n,); NaN where unknown

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """(policies, n): a judged logged response with both log-likelihoods."""
        judged = np.isfinite(self.z).all(axis=1) & np.isfinite(self.logp_logger)
        return np.asarray(judged & np.isfinite(self.logp_target))


def unpack_logged(data: xr.Dataset, covariates: Sequence[str] = (), *, checked: bool = False) -> Logged:
    """Logged responses of evaluation data, checked here unless they are already, in the canonical order of `unpack`.

    Parameters
    ----------
    data : xr.Dataset
        With ``logp_target``, ``logp_logger`` and ``logged_judge``.
    covariates : sequence of str
        Features of ``logged_covariate`` that join the judge score in ``z``.
    """
    if not checked:
        check_data(data)
    for name in ("logp_target", "logp_logger", "logged_judge"):
        if name not in data:
            raise DataError(f"the dataset lacks {name!r}; off-policy estimators need logged responses")
    if covariates and "logged_covariate" not in data:
        raise DataError(
            "the dataset lacks 'logged_covariate': give the covariates of the logged responses too"
        )
    chosen = _feature_index(data, covariates)
    policy_order = np.argsort(data.policy.values.astype(str), kind="stable")
    prompt_order = np.argsort(data.prompt.values.astype(str), kind="stable")
    missing = np.full(data.sizes["prompt"], np.nan)

    def per_prompt(name: str) -> npt.NDArray[np.float64]:
        values = data.variables[name].values if name in data else missing
        return np.asarray(values[prompt_order], dtype=float)

    z = per_prompt("logged_judge")[:, None]
    if chosen:
        z = np.column_stack([z, data.variables["logged_covariate"].values[prompt_order][:, chosen]])
    return Logged(
        z=z,
        label=per_prompt("logged_oracle"),
        logp_target=np.asarray(
            data.variables["logp_target"].values[np.ix_(policy_order, prompt_order)], dtype=float
        ),
        logp_logger=per_prompt("logp_logger"),
        n_tokens=per_prompt("n_tokens"),
    )


def _feature_index(data: xr.Dataset, covariates: Sequence[str]) -> list[int]:
    names = data.variables["feature"].values.astype(str).tolist() if "feature" in data.coords else []
    for name in covariates:
        if name not in names:
            raise DataError(
                f"no covariate named {name!r} in the data; there are: {', '.join(names) or 'none'}"
            )
    return [names.index(name) for name in covariates]
