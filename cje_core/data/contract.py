"""Evaluation data: the contract between files, simulators and estimators.

Evaluation data is one ``xr.Dataset`` (attribute ``schema = "cje-data/1"``) over ``policy, prompt, draw``. Prompts
are shared across policies, so a contrast keeps the covariance of its two policies.

===================================  ================================================================================
variable                             meaning
===================================  ================================================================================
``judge(policy, prompt, draw)``      judge score S; NaN where the policy has no such response
``oracle(policy, prompt, draw)``     oracle label Y; NaN where there is none
``labelled(policy, prompt, draw)``   the label teaches and corrects (it belongs to the oracle slice L)
``probe(policy, prompt, draw)``      the label audits: it is never used to fit
``evaluated(policy, prompt, draw)``  the response enters its policy's mean (false for audit-only responses)
``label_prob`` (optional)            known probability that the response was labelled, e(Z)
``covariate`` (optional)             ``(policy, prompt, draw, feature)``
``cluster(prompt)`` (optional)       sampling unit; a prompt is its own cluster when absent
``stratum(prompt)`` (optional)       stratum of a stratified label design
``cohort(prompt)`` (optional)        slice of the traffic (a time window, a source); empty text where none is named
``fold(prompt)`` (optional)          cross-fitting fold that the user assigned, 0, 1, ...; -1 where none is
``surprisal`` (optional)             ``(policy, prompt, draw)``: mean per-token surprisal, in nats, of own draws
``log_ratio`` (optional)             ``(policy, prompt, draw)``: log-likelihood of an own draw under its policy less
                                     that under the logger, in nats; inf (in files: 1000) where the logger cannot say it
``stands_for`` (optional)            ``(policy, prompt, draw)``: how many responses this one stands for, each of a
                                     prompt of its own without labels (`cje_core.workflow.reading.pooled`); one
                                     when absent
``true_reward`` (optional)           ``(policy, prompt, draw)``: the true E[Y | Z], which only a simulator knows
``logp_target(policy, prompt)``      log-likelihood, in nats, of the *logged* response under each target
``logp_logger(prompt)``              the same under the logging policy
``n_tokens(prompt)``                 length of the logged response
``logged_judge``, ``logged_oracle``  judge score and oracle label of the logged response, ``(prompt)``
``logged_covariate`` (optional)      ``(prompt, feature)``: the covariates of the logged response
any other name, ``(prompt)``         names of groups of prompts, see `cje_core.data.cohorts`
===================================  ================================================================================

Attributes: ``judge_range`` and ``oracle_range`` are the declared scales ``[low, high]``; ``calibration_policy`` is
the list of policies whose labels teach the calibrator.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr
from xarray.indexes import PandasIndex

from cje_core.data.errors import DataError
from cje_core.data.fields import CONTROL, LARGEST, ONE_LINE, OVERFLOW

SCHEMA = "cje-data/1"
RESPONSE = ("policy", "prompt", "draw")
REQUIRED = ("judge", "oracle", "labelled", "probe", "evaluated")
LOGGED = ("logp_target", "logp_logger", "n_tokens", "logged_judge", "logged_oracle", "logged_covariate")
LOGGED_DIMS = {"logp_target": ("policy", "prompt"), "logged_covariate": ("prompt", "feature")}
PER_PROMPT = ("cluster", "stratum", "cohort")  # texts
LOGP_ROUNDING = (
    1e-5  # rounding in an inference server can push the log-likelihood of a sure response above zero
)


def index_of(data: xr.Dataset, dim: str) -> xr.Index | None:
    """The index of a dimension, if any; ``data.xindexes`` makes a mapping of them all each time."""
    return data._indexes.get(dim)


def policy_names(data: xr.Dataset) -> Sequence[str]:
    """Names of the policies, in the order of the data."""
    index = index_of(data, "policy")
    if isinstance(index, PandasIndex):
        return tuple(index.index.tolist())
    return tuple(data.variables["policy"].values.tolist())


def teaching_policies(data: xr.Dataset) -> list[str]:
    """Policies whose labels teach the calibrator; netCDF gives a list of one text back as that text.

    Examples
    --------
    >>> teaching_policies(xr.Dataset(attrs={"calibration_policy": "base"}))
    ['base']
    """
    held = data.attrs["calibration_policy"]
    return [held] if isinstance(held, str) else [str(name) for name in held]


def check_names(data: xr.Dataset) -> xr.Dataset:
    """Return `data` unchanged if its names each stand on one line, else raise `DataError`.

    Done once, where data are made or given; `check_data` runs wherever they are used.
    """
    for dim in ("policy", "prompt"):
        check_name(dim, data[dim].values.astype(str))
    return data


def check_name(dim: str, names: npt.NDArray[np.str_]) -> None:
    """Raise `DataError` if one of the names of a dimension holds a control character."""
    if not _plain(names) and CONTROL.search("".join(names.tolist())):
        bad = next(name for name in names.tolist() if CONTROL.search(name))
        raise DataError(f"{dim} is {bad!r}; {ONE_LINE}")


def check_unique(dim: str, ordered: npt.NDArray[np.str_]) -> None:
    """Raise `DataError` if one of the sorted names of a dimension stands there twice."""
    twice = ordered[1:] == ordered[:-1]
    if twice.any():
        raise DataError(f"{dim} {str(ordered[1:][twice][0])!r} occurs twice; names must be unique")


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

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> data = from_arrays([[0.2, 0.8]], policies=["base"], oracle=[[0.0, np.nan]])
    >>> check_data(data) is data
    True
    """
    if not isinstance(data, xr.Dataset) or data.attrs.get("schema") != SCHEMA:
        said = _is_result(data)
        if said:
            raise DataError(said)
    if data.attrs.get("schema") != SCHEMA:
        raise DataError(
            f"attribute schema is {data.attrs.get('schema')!r}, expected {SCHEMA!r}; "
            "build data with from_arrays or from_frame"
        )
    held = data.variables
    for name in REQUIRED:
        if name not in held:
            raise DataError(f"the dataset lacks {name!r}; build it with from_arrays or from_frame")
        if held[name].dims != RESPONSE:
            raise DataError(f"{name} has dims {held[name].dims}, expected {RESPONSE}")
    judge, oracle, labelled, probe, evaluated = (held[name].values for name in REQUIRED)
    for dim in ("policy", "prompt") if names else ():
        found = data[dim].values.astype(str, copy=False)
        if not _distinct(found):
            check_unique(dim, np.sort(found))
    for name, scale, values in (("judge", "judge_range", judge), ("oracle", "oracle_range", oracle)):
        low, high = data.attrs[scale]
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise DataError(f"{scale} is [{low}, {high}]; it must be two finite numbers, low < high")
        if max(abs(low), abs(high)) > LARGEST:
            raise DataError(f"{scale} is [{low:g}, {high:g}]; {OVERFLOW}")
        least, most = (values.min(), values.max()) if values.size else (low, high)
        if not (low <= least and most <= high) and ((values < low).any() or (values > high).any()):
            wrong = np.isinf(values) | (values < low) | (values > high)
            p, i, _ = np.argwhere(wrong)[0]
            raise DataError(
                f"{name} of policy {data.policy.values[p]!r}, prompt {data.prompt.values[i]!r} is "
                f"{values[wrong][0]:g}, outside the declared {scale} [{low:g}, {high:g}]; "
                "correct it or declare the scale"
            )
    if "true_reward" in data and not np.isfinite(data.variables["true_reward"].values[evaluated]).all():
        raise DataError(
            "an evaluated response lacks true_reward; give E[Y | Z] for all of them or drop the variable"
        )
    if "covariate" in held:
        values = data.variables["covariate"].values[np.isfinite(judge)]
        if not np.isfinite(values).all():
            raise DataError(
                "a response has a judge score but a missing or infinite covariate; fill it or drop the row"
            )
        if values.size and np.abs(values).max() > LARGEST:
            raise DataError(f"a covariate is {values[np.abs(values) > LARGEST][0]:g}; {OVERFLOW}")
    has_label, unjudged = np.isfinite(oracle), ~np.isfinite(judge)
    for name, marked in (("labelled", labelled), ("probe", probe)):
        if (marked & ~has_label).any():
            raise DataError(f"a response is marked {name} but has no oracle label")
    if (labelled & probe).any():
        raise DataError("a label is both `labelled` and `probe`; a label that audits may not teach")
    for name, used in (("oracle", has_label), ("evaluated", evaluated)):
        if (used & unjudged).any():
            raise DataError(
                f"a response that counts in {name!r} has no judge score; judge it or leave it out"
            )
    if "stands_for" in held:
        number, alone = data.variables["stands_for"].values, ~has_label & (data.sizes["draw"] == 1)
        if not ((number > 0) & (alone | (number == 1))).all():
            raise DataError(
                "stands_for is above 0, and 1 for a response with a label or one of several draws"
            )
    if "log_ratio" in held and np.isneginf(held["log_ratio"].values).any():
        raise DataError(
            "log_ratio of an own draw is -inf: a policy can say what it said; write NaN where it is unknown"
        )
    if "label_prob" in held:
        prob = data.variables["label_prob"].values[labelled]
        if not ((prob > 0) & (prob <= 1)).all():
            raise DataError(_bad_label_prob(data))
    _check_logged(data)
    unknown = set(teaching_policies(data)) - set(policy_names(data))
    if unknown:
        raise DataError(
            f"calibration policy {sorted(unknown)[0]!r} is not in the data; "
            f"there are: {', '.join(map(str, data.policy.values))}"
        )
    return data


def _is_result(given: object) -> str:
    """What to say of something that is made of evaluation data and given in their place; empty if it is neither."""
    if not isinstance(given, xr.Dataset):
        return (
            f"this is {type(given).__name__}, not evaluation data; read files with cje_core.read(...), or make an "
            "xr.Dataset with from_arrays or from_frame"
        )
    if "estimator" in given.attrs:
        return f"this is a result of {given.attrs['estimator']}, not data; give the evaluation data that it was made of"
    known = {"verdict": "an audit", "state": "a table of gates", "ess_fraction": "a table of overlap"}
    said = next((what for name, what in known.items() if name in given), None)
    return f"this is {said}, not data; give the evaluation data that it was made of" if said else ""


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
