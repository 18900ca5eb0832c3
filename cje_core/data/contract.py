"""Evaluation data: the contract between files, simulators and estimators.

Evaluation data is one ``xr.Dataset`` (attribute ``schema = "cje-data/1"``) over ``policy, prompt, draw``. Prompts
are shared across policies, so a contrast keeps the covariance of its two policies.

==================================  =====================================================================
variable                            meaning
==================================  =====================================================================
``judge(policy, prompt, draw)``     judge score S; NaN where the policy has no such response
``oracle(policy, prompt, draw)``    oracle label Y; NaN where there is none
``labelled(policy, prompt, draw)``  the label teaches and corrects (it belongs to the oracle slice L)
``probe(policy, prompt, draw)``     the label audits: it is never used to fit
``evaluated(policy, prompt, draw)`` the response enters its policy's mean (false for audit-only responses)
``label_prob`` (optional)           known probability that the response was labelled, e(Z)
``covariate`` (optional)            ``(policy, prompt, draw, feature)``
``cluster(prompt)`` (optional)      sampling unit; a prompt is its own cluster when absent
``stratum(prompt)`` (optional)      stratum of a stratified label design
``surprisal`` (optional)            ``(policy, prompt, draw)``: mean per-token surprisal, in nats, of own draws
``true_reward`` (optional)          ``(policy, prompt, draw)``: the true E[Y | Z], which only a simulator knows
``logp_target(policy, prompt)``     log-likelihood, in nats, of the *logged* response under each target
``logp_logger(prompt)``             the same under the logging policy
``n_tokens(prompt)``                length of the logged response
``logged_judge``, ``logged_oracle`` judge score and oracle label of the logged response, ``(prompt)``
``logged_covariate`` (optional)     ``(prompt, feature)``: the covariates of the logged response
==================================  =====================================================================

Attributes: ``judge_range`` and ``oracle_range`` are the declared scales ``[low, high]``; ``calibration_policy`` is
the list of policies whose labels teach the calibrator.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.data.errors import DataError
from cje_core.data.tables import CONTROL, LARGEST, ONE_LINE, OVERFLOW, typed

SCHEMA = "cje-data/1"
RESPONSE = ("policy", "prompt", "draw")
LOGGED = ("logp_target", "logp_logger", "n_tokens", "logged_judge", "logged_oracle", "logged_covariate")
LOGGED_DIMS = {"logp_target": ("policy", "prompt"), "logged_covariate": ("prompt", "feature")}
LOGP_ROUNDING = (
    1e-5  # rounding in an inference server can push the log-likelihood of a sure response above zero
)


class Fields(TypedDict, total=False):
    """What `from_arrays` takes beside judge scores: each an array, or None for nothing known."""

    oracle: npt.ArrayLike | None
    probe: npt.ArrayLike | None
    evaluated: npt.ArrayLike | None
    label_prob: npt.ArrayLike | None
    covariate: npt.ArrayLike | None
    surprisal: npt.ArrayLike | None
    true_reward: npt.ArrayLike | None
    cluster: npt.ArrayLike | None
    stratum: npt.ArrayLike | None


def from_arrays(
    judge: npt.ArrayLike,
    *,
    policies: Sequence[str],
    prompts: Sequence[object] | None = None,
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
        Names; prompts are kept as strings and default to ``"0", "1", ...``.
    oracle : array shaped like `judge`, optional
        Oracle labels; NaN where there is none.
    probe, evaluated : boolean arrays shaped like `judge`, optional
        Labels that only audit (default: none), responses that enter the means (default: all with a score).
    label_prob, surprisal, true_reward : arrays shaped like `judge`, optional
        Known labelling probabilities; mean per-token surprisal of the policy's own draws, in nats; the true E[Y | Z]
        of a simulated response, in oracle units.
    covariate : array, shape of `judge` with one more axis, optional
        Covariates, named by `features`.
    cluster, stratum : arrays, shape (prompts,), optional
        Sampling unit and label stratum of each prompt.
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
        ("true_reward", fields.get("true_reward")),
    ):
        if values is not None:
            variables[name] = (RESPONSE, response(values, name, None, float))
    coords: dict[str, Any] = {
        "policy": [str(p) for p in policies],
        "prompt": _texts(np.arange(shape[1]) if prompts is None else prompts),
        "draw": np.arange(shape[2]),
    }
    if (covariate := fields.get("covariate")) is not None:
        values = np.asarray(covariate, dtype=float)
        if values.ndim == 3:
            values = values[:, :, None, :]
        names = features if features is not None else [f"x{j}" for j in range(values.shape[-1])]
        variables["covariate"] = ((*RESPONSE, "feature"), values)
        coords["feature"] = list(names)
    for name, per_prompt in (("cluster", fields.get("cluster")), ("stratum", fields.get("stratum"))):
        if per_prompt is not None:
            variables[name] = ("prompt", np.asarray(per_prompt).astype(str))
    for name, per_logged in (logged or {}).items():
        if name not in LOGGED:
            raise DataError(f"logged has no field {name!r}; it may hold {', '.join(LOGGED)}")
        variables[name] = (LOGGED_DIMS.get(name, ("prompt",)), np.asarray(per_logged, dtype=float))

    teachers = [calibration_policy] if isinstance(calibration_policy, str) else calibration_policy
    if teachers is None:
        has_labels = (np.isfinite(labels) & ~audits).any(axis=(1, 2))
        teachers = [name for name, any_label in zip(coords["policy"], has_labels, strict=True) if any_label]
    try:
        ds = xr.Dataset(variables, coords=coords)
    except ValueError as err:
        raise DataError(f"the arrays do not fit together: {err}") from err
    ds.attrs = {
        "schema": SCHEMA,
        "judge_range": [float(v) for v in judge_range],
        "oracle_range": [float(v) for v in oracle_range],
        "calibration_policy": [str(p) for p in teachers],
    }
    for dim in ("policy", "prompt"):
        _check_name(dim, np.asarray(coords[dim], dtype=str))
    return check_data(ds)


def from_frame(
    frame: pd.DataFrame,
    *,
    covariates: Sequence[str] = (),
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    calibration_policy: str | Sequence[str] | None = None,
    logged: Mapping[str, npt.ArrayLike] | None = None,
) -> xr.Dataset:
    """Evaluation data from a table with one row per response.

    Parameters
    ----------
    frame : DataFrame
        Columns ``policy``, ``prompt_id``, ``judge_score``; optional ``oracle_label`` (NaN: no label), ``draw_idx``
        (default 0), ``probe`` and ``evaluated`` (boolean), ``label_prob``, ``surprisal``, ``cluster``, ``stratum``.
        Every row needs a score; leave out responses that were not judged.
    covariates : sequence of str
        Numeric columns that become ``covariate(..., feature)``.
    judge_range, oracle_range, calibration_policy, logged
        As in `from_arrays`; logged responses in the order of the sorted policies and prompts.

    Returns
    -------
    xr.Dataset
        Policies and prompts sorted by name, so the order of rows never matters.

    Raises
    ------
    DataError
        With one line: row (counted from 1), column, what was found and how to mend it.

    Examples
    --------
    >>> table = pd.DataFrame({"policy": ["b", "a"], "prompt_id": [0, 0], "judge_score": [0.1, 0.9]})
    >>> from_frame(table).policy.values.tolist()
    ['a', 'b']
    """
    frame = typed(frame, covariates)
    draw = frame["draw_idx"] if "draw_idx" in frame else pd.Series(0, index=frame.index)
    keys = pd.DataFrame({"policy": frame["policy"], "prompt": frame["prompt_id"], "draw": draw})
    twice = keys[keys.duplicated()]
    if len(twice):
        policy, prompt, number = twice.iloc[0]
        raise DataError(
            f"two rows for policy {policy!r}, prompt_id {prompt!r}, draw_idx {number}; "
            "remove one or number the draws in draw_idx"
        )
    axes = [np.sort(keys[name].unique()) for name in RESPONSE]
    codes = tuple(
        np.searchsorted(axis, keys[name].to_numpy()) for axis, name in zip(axes, RESPONSE, strict=True)
    )
    shape = tuple(len(axis) for axis in axes)

    def spread(column: str, fill: Any, dtype: type) -> npt.NDArray[Any] | None:
        if column not in frame:
            return None
        out: npt.NDArray[Any] = np.full(shape, fill, dtype=dtype)
        out[codes] = frame[column].to_numpy(dtype=dtype)
        return out

    def per_prompt(column: str) -> npt.NDArray[Any] | None:
        if column not in frame:
            return None
        values = frame[column].groupby(keys["prompt"], sort=True)
        if (values.nunique() > 1).any():
            prompt = values.nunique().idxmax()
            raise DataError(f"prompt_id {prompt!r} has more than one {column}; give each prompt exactly one")
        return values.first().to_numpy()

    x = None
    if covariates:
        x = np.full((*shape, len(covariates)), np.nan)
        x[codes] = frame[list(covariates)].to_numpy(dtype=float)
    scores = spread("judge_score", np.nan, float)
    assert scores is not None
    return from_arrays(
        scores,
        policies=list(axes[0]),
        prompts=list(axes[1]),
        oracle=spread("oracle_label", np.nan, float),
        probe=spread("probe", False, bool),
        evaluated=spread("evaluated", False, bool),
        label_prob=spread("label_prob", np.nan, float),
        surprisal=spread("surprisal", np.nan, float),
        covariate=x,
        features=list(covariates) or None,
        cluster=per_prompt("cluster"),
        stratum=per_prompt("stratum"),
        judge_range=judge_range,
        oracle_range=oracle_range,
        calibration_policy=calibration_policy,
        logged=logged,
    ).assign_coords(draw=axes[2])


def check_names(data: xr.Dataset) -> xr.Dataset:
    """Return `data` unchanged if its names each stand on one line, else raise `DataError`.

    Done once, where data are made or given; `check_data` runs wherever they are used.
    """
    for dim in ("policy", "prompt"):
        _check_name(dim, data[dim].values.astype(str))
    return data


def _check_name(dim: str, names: npt.NDArray[np.str_]) -> None:
    if not _plain(names) and CONTROL.search("".join(names.tolist())):
        bad = next(name for name in names.tolist() if CONTROL.search(name))
        raise DataError(f"{dim} is {bad!r}; {ONE_LINE}")


def check_unique(dim: str, ordered: npt.NDArray[np.str_]) -> None:
    """Raise `DataError` if one of the sorted names of a dimension stands there twice."""
    twice = ordered[1:] == ordered[:-1]
    if twice.any():
        raise DataError(f"{dim} {str(ordered[1:][twice][0])!r} occurs twice; names must be unique")


def _texts(names: Iterable[object]) -> npt.NDArray[np.str_] | list[str]:
    """Names as text; an array of integers or text makes no Python object per name."""
    if not isinstance(names, np.ndarray) or names.dtype.kind not in "iuU":
        return [str(name) for name in names]
    if names.dtype.kind == "U" or not names.size:
        return names.astype(str)
    width = max(len(str(end)) for end in (names.min(), names.max()))
    return names.astype(f"U{width}")


def _letters(names: npt.NDArray[np.str_]) -> npt.NDArray[np.uint32]:
    """Code points of names, shape (n, width), zero after the last."""
    native = np.ascontiguousarray(names, dtype=names.dtype.newbyteorder("="))
    return native.view(np.uint32).reshape(len(names), names.dtype.itemsize // 4)


def _plain(names: npt.NDArray[np.str_]) -> bool:
    """Whether names are of printable ASCII alone: then no control character needs to be looked for."""
    code = _letters(names)
    ended = code == 0
    printable = (code >= 0x20) & (code < 0x7F)
    return bool((printable | ended).all() and not (ended[:, :-1] & ~ended[:, 1:]).any())


def _distinct(names: npt.NDArray[np.str_]) -> bool:
    """Whether 64-bit sums of the names' letters are all different, and so the names; equal sums prove nothing."""
    total = np.zeros(len(names), dtype=np.uint64)
    for letter in _letters(names).T:
        total = total * np.uint64(0x9E3779B97F4A7C15) + letter  # wraps round: any odd factor would do
    total.sort()
    return not (total[1:] == total[:-1]).any()


def check_data(data: xr.Dataset, *, names: bool = True) -> xr.Dataset:
    """Return `data` unchanged if it keeps the contract of this module, else raise `DataError`.

    Without `names` whoever calls looks for names that stand there twice (`check_unique`).
    """
    if data.attrs.get("schema") != SCHEMA:
        raise DataError(
            f"attribute schema is {data.attrs.get('schema')!r}, expected {SCHEMA!r}; "
            "build data with from_arrays or from_frame"
        )
    for name in ("judge", "oracle", "labelled", "probe", "evaluated"):
        if name not in data:
            raise DataError(f"the dataset lacks {name!r}; build it with from_arrays or from_frame")
        if data.variables[name].dims != RESPONSE:
            raise DataError(f"{name} has dims {data.variables[name].dims}, expected {RESPONSE}")
    for dim in ("policy", "prompt"):
        if names and not _distinct(values := data[dim].values.astype(str, copy=False)):
            check_unique(dim, np.sort(values))
    for name, scale in (("judge", "judge_range"), ("oracle", "oracle_range")):
        low, high = data.attrs[scale]
        if not (np.isfinite([low, high]).all() and low < high):
            raise DataError(f"{scale} is [{low}, {high}]; it must be two finite numbers, low < high")
        if max(abs(low), abs(high)) > LARGEST:
            raise DataError(f"{scale} is [{low:g}, {high:g}]; {OVERFLOW}")
        values = data.variables[name].values
        if np.isinf(values).any() or (values < low).any() or (values > high).any():
            wrong = np.isinf(values) | (values < low) | (values > high)
            p, i, _ = np.argwhere(wrong)[0]
            raise DataError(
                f"{name} of policy {data.policy.values[p]!r}, prompt {data.prompt.values[i]!r} is "
                f"{values[wrong][0]:g}, outside the declared {scale} [{low:g}, {high:g}]; "
                "correct it or declare the scale"
            )
    if (
        "true_reward" in data
        and not np.isfinite(data.variables["true_reward"].values[data.variables["evaluated"].values]).all()
    ):
        raise DataError(
            "an evaluated response lacks true_reward; give E[Y | Z] for all of them or drop the variable"
        )
    if "covariate" in data:
        values = data.variables["covariate"].values[np.isfinite(data.variables["judge"].values)]
        if not np.isfinite(values).all():
            raise DataError(
                "a response has a judge score but a missing or infinite covariate; fill it or drop the row"
            )
        if values.size and np.abs(values).max() > LARGEST:
            raise DataError(f"a covariate is {values[np.abs(values) > LARGEST][0]:g}; {OVERFLOW}")
    has_label = np.isfinite(data.variables["oracle"].values)
    for name in ("labelled", "probe"):
        if (data.variables[name].values & ~has_label).any():
            raise DataError(f"a response is marked {name} but has no oracle label")
    if (data.variables["labelled"].values & data.variables["probe"].values).any():
        raise DataError("a label is both `labelled` and `probe`; a label that audits may not teach")
    for name in ("oracle", "evaluated"):
        used = has_label if name == "oracle" else data.variables["evaluated"].values
        if (used & ~np.isfinite(data.variables["judge"].values)).any():
            raise DataError(
                f"a response that counts in {name!r} has no judge score; judge it or leave it out"
            )
    if "label_prob" in data:
        prob = data.variables["label_prob"].values[data.variables["labelled"].values]
        if not ((prob > 0) & (prob <= 1)).all():
            raise DataError(_bad_label_prob(data))
    _check_logged(data)
    unknown = set(data.attrs["calibration_policy"]) - set(data.policy.values.tolist())
    if unknown:
        raise DataError(
            f"calibration policy {sorted(unknown)[0]!r} is not in the data; "
            f"there are: {', '.join(map(str, data.policy.values))}"
        )
    return data


def _bad_label_prob(data: xr.Dataset) -> str:
    """Name the first labelled response without a usable probability."""
    prob, labelled = (data.variables[name].values for name in ("label_prob", "labelled"))
    wrong = np.argwhere(labelled & ~((prob > 0) & (prob <= 1)))[0]
    policy, prompt = (data[name].values[k] for name, k in zip(RESPONSE, wrong[:2], strict=False))
    return (
        f"label_prob of a labelled response must lie in (0, 1]: that of policy {str(policy)!r}, prompt {str(prompt)!r} "
        f"is {prob[tuple(wrong)]:g}; give it for every labelled response, or for none"
    )


def _check_logged(data: xr.Dataset) -> None:
    """Stop at log-likelihoods that cannot be, and at logged scores and labels off their scales."""
    for name in ("logp_target", "logp_logger"):
        if name not in data:
            continue
        values = data.variables[name].values
        wrong = np.isinf(values) | (values > LOGP_ROUNDING)
        if wrong.any():
            at = np.argwhere(wrong)[0]
            whose = f"policy {data.policy.values[at[0]]!r}, " if name == "logp_target" else ""
            raise DataError(
                f"{name} of {whose}prompt {data.prompt.values[at[-1]]!r} is {values[wrong][0]:g}; a log-likelihood of "
                "tokens is finite and at most 0 (nats, summed over tokens); write NaN where it is unknown"
            )
    for name, scale in (("logged_judge", "judge_range"), ("logged_oracle", "oracle_range")):
        if name in data:
            low, high = data.attrs[scale]
            values = data.variables[name].values
            wrong = np.isinf(values) | (values < low) | (values > high)
            if wrong.any():
                raise DataError(
                    f"{name} of prompt {data.prompt.values[wrong][0]!r} is {values[wrong][0]:g}, outside the declared "
                    f"{scale} [{low:g}, {high:g}]; correct it or declare the scale"
                )
    if "n_tokens" in data and (data.variables["n_tokens"].values <= 0).any():
        raise DataError("n_tokens of a logged response is not positive; a response has at least one token")
