"""Evaluation data from arrays: what simulators and notebooks build, and readers of files in the end."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import xarray as xr
from xarray.indexes import PandasIndex

from cje_core.data.construct import dataset
from cje_core.data.contract import (
    LOGGED,
    LOGGED_DIMS,
    PER_PROMPT,
    RESPONSE,
    SCHEMA,
    check_data,
    check_name,
)
from cje_core.data.errors import DataError
from cje_core.data.meanings import DATA, described


class Fields(TypedDict, total=False):
    """What `from_arrays` takes beside judge scores: each an array, or None for nothing known."""

    oracle: npt.ArrayLike | None
    probe: npt.ArrayLike | None
    evaluated: npt.ArrayLike | None
    label_prob: npt.ArrayLike | None
    covariate: npt.ArrayLike | None
    surprisal: npt.ArrayLike | None
    log_ratio: npt.ArrayLike | None
    stands_for: npt.ArrayLike | None
    true_reward: npt.ArrayLike | None
    cluster: npt.ArrayLike | None
    stratum: npt.ArrayLike | None
    cohort: npt.ArrayLike | None
    fold: npt.ArrayLike | None


def from_arrays(
    judge: npt.ArrayLike,
    *,
    policies: Sequence[str],
    prompts: Sequence[object] | pa.LargeStringArray | None = None,
    features: Sequence[str] | None = None,
    logged: Mapping[str, npt.ArrayLike] | None = None,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    calibration_policy: str | Sequence[str] | None = None,
    **fields: Unpack[Fields],
) -> xr.Dataset:
    """Evaluation data from arrays.

    Parameters
    ----------
    judge : array, shape (policies, prompts) or (policies, prompts, draws)
        Judge scores; NaN where a policy has no response.
    policies, prompts : sequences
        Names; prompts are kept as strings and default to ``"0", "1", ...``. Those in Arrow's form are taken as they
        are: sorted, each once, without a control character (`cje_core.io.columnar`).
    oracle : array shaped like `judge`, optional
        Oracle labels; NaN where there is none.
    probe, evaluated : boolean arrays shaped like `judge`, optional
        Labels that only audit (default: none), responses that enter the means (default: all with a score).
    label_prob, surprisal, log_ratio, true_reward, stands_for : arrays shaped like `judge`, optional
        Known labelling probabilities; mean per-token surprisal of the policy's own draws, in nats; their
        log-likelihood less that under the logger; the true E[Y | Z] of a simulated response, in oracle units; how many
        responses each stands for.
    covariate : array, shape of `judge` with one more axis, optional
        Covariates, named by `features`.
    cluster, stratum, cohort, fold : arrays, shape (prompts,), optional
        Sampling unit, label stratum, slice of the traffic, and cross-fitting fold (-1: none assigned) of each prompt.
    logged : mapping, optional
        Any of ``logp_target`` (policies, prompts), ``logp_logger``, ``n_tokens``, ``logged_judge``,
        ``logged_oracle`` (prompts,), ``logged_covariate`` (prompts, features).
    judge_range, oracle_range : pair of float
        Declared scales.
    calibration_policy : str or sequence of str, optional
        Policies whose labels teach the calibrator. Default: every policy that has labels.

    Returns
    -------
    xr.Dataset
        Checked evaluation data, prompts in the order given.

    Examples
    --------
    >>> ds = from_arrays([[0.2, 0.8]], policies=["base"], oracle=[[0.0, np.nan]])
    >>> dict(ds.sizes), int(ds.labelled.sum()), ds.attrs["calibration_policy"]
    ({'policy': 1, 'prompt': 2, 'draw': 1}, 1, ['base'])
    """
    if unknown := set(fields) - set(Fields.__annotations__):
        raise TypeError(
            f"from_arrays takes no {min(unknown)!r}; it takes {', '.join(Fields.__annotations__)}"
        )
    scores = np.asarray(judge, dtype=float)
    if scores.ndim == 2:
        scores = scores[:, :, None]
    if scores.ndim != 3:
        raise DataError(f"judge must have shape (policies, prompts[, draws]), got {np.shape(judge)}")
    shape = scores.shape

    def response(values: npt.ArrayLike | None, name: str, default: Any, dtype: type) -> npt.NDArray[Any]:
        if values is None:
            return np.full(shape, default, dtype=dtype) if np.ndim(default) == 0 else np.asarray(default)
        out: npt.NDArray[Any] = np.asarray(values, dtype=dtype)
        if out.ndim == 2:
            out = out[:, :, None]
        if out.shape != shape:
            raise DataError(
                f"{name} has shape {np.shape(values)}, judge has {np.shape(judge)}; they must agree"
            )
        return out

    labels = response(fields.get("oracle"), "oracle", np.nan, float)
    audits = response(fields.get("probe"), "probe", False, bool)
    variables: dict[str, Any] = {
        "judge": (RESPONSE, scores),
        "oracle": (RESPONSE, labels),
        "labelled": (RESPONSE, np.isfinite(labels) & ~audits),
        "probe": (RESPONSE, audits),
        "evaluated": (RESPONSE, response(fields.get("evaluated"), "evaluated", np.isfinite(scores), bool)),
    }
    for name, values in (
        ("label_prob", fields.get("label_prob")),
        ("surprisal", fields.get("surprisal")),
        ("log_ratio", fields.get("log_ratio")),
        ("stands_for", fields.get("stands_for")),
        ("true_reward", fields.get("true_reward")),
    ):
        if values is not None:
            variables[name] = (RESPONSE, response(values, name, None, float))
    known = isinstance(prompts, pa.LargeStringArray)
    coords: dict[str, Any] = {
        "policy": [str(p) for p in policies],
        "prompt": _indexed(prompts) if known else _texts(np.arange(shape[1]) if prompts is None else prompts),
        "draw": np.arange(shape[2]),
    }
    if (covariate := fields.get("covariate")) is not None:
        values = np.asarray(covariate, dtype=float)
        if values.ndim == 3:
            values = values[:, :, None, :]
        names = features if features is not None else [f"x{j}" for j in range(values.shape[-1])]
        variables["covariate"] = ((*RESPONSE, "feature"), values)
        coords["feature"] = list(names)
    for name, per_prompt in dict(fields).items():
        if name in PER_PROMPT and per_prompt is not None:
            variables[name] = ("prompt", np.asarray(per_prompt).astype(str))
    if (fold := fields.get("fold")) is not None:
        variables["fold"] = ("prompt", np.asarray(fold).astype(np.int64))
    for name, per_logged in (logged or {}).items():
        if name not in LOGGED:
            raise DataError(f"logged has no field {name!r}; it may hold {', '.join(LOGGED)}")
        variables[name] = (LOGGED_DIMS.get(name, ("prompt",)), np.asarray(per_logged, dtype=float))

    teachers = [calibration_policy] if isinstance(calibration_policy, str) else calibration_policy
    if teachers is None:
        has_labels = (np.isfinite(labels) & ~audits).any(axis=(1, 2))
        teachers = [name for name, any_label in zip(coords["policy"], has_labels, strict=True) if any_label]
    try:
        ds = dataset(variables, coords)
    except ValueError as err:
        raise DataError(f"the arrays do not fit together: {err}") from err
    ds.attrs = {
        "schema": SCHEMA,
        "judge_range": [float(v) for v in judge_range],
        "oracle_range": [float(v) for v in oracle_range],
        "calibration_policy": [str(p) for p in teachers],
    }
    for dim in ("policy",) if known or prompts is None else ("policy", "prompt"):
        check_name(dim, np.asarray(coords[dim], dtype=str))
    return described(check_data(ds, names=not known), DATA)


def _indexed(prompts: pa.LargeStringArray) -> xr.Variable:
    """The coordinate ``prompt``, its index made of Arrow's own memory."""
    index = pd.Index(pd.arrays.ArrowStringArray(pa.chunked_array([prompts])))
    width = max(pc.max(pc.utf8_length(prompts)).as_py(), 1)
    made = PandasIndex(index, "prompt", coord_dtype=np.dtype(f"U{width}")).create_variables()
    return made["prompt"]


def _texts(names: Iterable[object]) -> npt.NDArray[np.str_] | list[str]:
    """Names as text; an array of integers or text makes no Python object per name."""
    if not isinstance(names, np.ndarray) or names.dtype.kind not in "iuU":
        return [str(name) for name in names]
    if names.dtype.kind == "U" or not names.size:
        return names.astype(str)
    width = max(len(str(end)) for end in (names.min(), names.max()))
    return names.astype(f"U{width}")
