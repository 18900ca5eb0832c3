"""Are the log-likelihoods what they claim to be? The paper's section "Teacher forcing: contract and conformance".

Importance weights are exponentials of differences of two teacher-forced log-likelihoods: a slip of 0.7 nats is a factor
two. Each check asks for an identity that every autoregressive likelihood keeps, whatever the model:

============== ======================================================= ======================================
check          identity                                                needs columns
============== ======================================================= ======================================
``finite``     log-likelihoods are finite and at most 0                ``logp``
``repeatable`` identical calls agree within 1e-7                       several rows of one policy and prompt
``token_sum``  ``sum_t log p(a_t | a_<t) = log p(A | X)``              ``logp_tokens``
``additive``   ``log p(X + A) = log p(X) + log p(A | X) <= log p(X)``  ``logp_prompt``, ``logp_joint``
``snapshot``   one snapshot (model, template, tokenizer) per policy    ``snapshot``
``unmasked``   no probability was renormalised after masking           ``renormalized``
============== ======================================================= ======================================

A row that breaks one is to be left out; a check whose columns are missing is unknown, not passed. None can see a
likelihood of the wrong text or under the wrong template, which is self-consistent: `clones` looks at what the ratios of
a policy known to be the logger say.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.checks import BoolArray, FloatArray
from cje_core.data import LOGP_ROUNDING, DataError
from cje_core.data.arrays import unpack_logged
from cje_core.offpolicy.weights import ess_fraction, mean_one, place_of

CHECKS = ("finite", "repeatable", "token_sum", "additive", "snapshot", "unmasked")
REPEAT_TOLERANCE = 1e-7  # nats; the paper's
# Nats. Sums of float32 token scores carry errors of 1e-7 times the total, and prompts have totals of thousands.
SUM_TOLERANCE = 1e-3
COLUMNS = ["policy", "prompt_id", "check", "reason"]
CLONE_COLUMNS = (
    "n_usable", "mean", "sd", "equal_share", "ess_fraction", "ess_fraction_normal", "mean_ratio",
    "mean_ratio_std_error",
)  # fmt: skip


def finite(logp: npt.ArrayLike) -> BoolArray:
    """Whether each log-likelihood is finite and, up to rounding, at most 0.

    Examples
    --------
    >>> finite([-3.2, 0.4, float("nan"), float("-inf")]).tolist()
    [True, False, False, False]
    """
    values = np.asarray(logp, float)
    return np.asarray(np.isfinite(values) & (values <= LOGP_ROUNDING))


def repeatable(logp: npt.ArrayLike, call: npt.ArrayLike, tolerance: float = REPEAT_TOLERANCE) -> BoolArray:
    """Whether identical calls agree: the range of their answers is at most `tolerance` (nats), row by row.

    `call` has the code of each row's call (policy, prompt, response); equal codes are repetitions.
    """
    values, code = np.asarray(logp, float), np.asarray(call, dtype=np.intp)
    if len(values) == 0:
        return np.zeros(0, dtype=bool)
    low, high = np.full(code.max() + 1, np.inf), np.full(code.max() + 1, -np.inf)
    np.minimum.at(low, code, values)
    np.maximum.at(high, code, values)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN: such a call is not repeatable
        same = high - low <= tolerance
    return np.asarray(same[code])


def token_sum(
    logp: npt.ArrayLike, tokens: Sequence[npt.ArrayLike], tolerance: float = SUM_TOLERANCE
) -> BoolArray:
    """Whether the log-likelihoods of each row's tokens, at least one, are valid and sum to the total (nats)."""
    sums = np.array([np.sum(np.asarray(row, float)) for row in tokens])
    valid = np.array([np.size(row) > 0 and bool(finite(row).all()) for row in tokens], dtype=bool)
    return np.asarray(valid & (np.abs(sums - np.asarray(logp, float)) <= tolerance))


def additive(
    logp: npt.ArrayLike,
    logp_prompt: npt.ArrayLike,
    logp_joint: npt.ArrayLike,
    tolerance: float = SUM_TOLERANCE,
) -> BoolArray:
    """Whether ``log p(X + A) = log p(X) + log p(A | X) <= log p(X)``, row by row.

    Examples
    --------
    >>> additive([-2.0, -2.0, 0.5], [-5.0, -5.0, -5.0], [-7.0, -9.0, -4.5]).tolist()
    [True, False, False]
    """
    answer, prompt, joint = (np.asarray(v, float) for v in (logp, logp_prompt, logp_joint))
    with np.errstate(invalid="ignore"):
        adds_up = np.abs(joint - (prompt + answer)) <= tolerance
    return np.asarray(adds_up & (joint <= prompt + LOGP_ROUNDING))


def check(table: pd.DataFrame) -> pd.DataFrame:
    """Run every check whose columns are there, and list the rows that fail; without ``logp`` it is a `DataError`.

    Parameters
    ----------
    table : DataFrame
        One row per call: ``policy``, ``prompt_id`` and ``logp`` (nats, of the response given the prompt); optional
        ``logp_tokens`` (a sequence per row), ``logp_prompt``, ``logp_joint``, ``snapshot``, ``renormalized``. Rows of
        one policy and prompt are repetitions of one call, unless a column ``response_id`` tells them apart.

    Returns
    -------
    DataFrame
        ``policy, prompt_id, check, reason``, one row per violation, indexed as in `table`. `summarise` counts it.

    Examples
    --------
    >>> rows = pd.DataFrame({"policy": "a", "prompt_id": ["0", "0", "1"], "logp": [-3.0, -3.1, -8.0]})
    >>> check(rows)[["prompt_id", "check"]].values.tolist()
    [['0', 'repeatable'], ['0', 'repeatable']]
    """
    found = []
    for name, passed, reason in _verdicts(table):
        failed = table.index[~passed]
        rows = table.loc[~passed, ["policy", "prompt_id"]].astype(str)
        found.append(rows.assign(check=name, reason=reason[~passed]).set_index(failed))
    return pd.concat(found)[COLUMNS].sort_values(COLUMNS, kind="stable")


def summarise(table: pd.DataFrame) -> xr.Dataset:
    """Shares of rows that pass, per policy and check, of a table as in `check`.

    Over ``policy`` (sorted): ``n_rows``, ``pass_share`` (rows that pass every check that ran) and, over ``policy,
    check``, ``check_pass_share``, NaN where the check did not run.
    """
    verdicts = {name: passed for name, passed, _ in _verdicts(table)}
    policies, code = np.unique(table["policy"].astype(str).to_numpy(), return_inverse=True)
    size = np.bincount(code, minlength=len(policies))

    def share(passed: BoolArray) -> FloatArray:
        return np.asarray(np.bincount(code, weights=passed, minlength=len(policies)) / size)

    unknown = np.full(len(policies), np.nan)
    by_check = np.stack([share(verdicts[name]) if name in verdicts else unknown for name in CHECKS], axis=1)
    return xr.Dataset(
        {
            "n_rows": ("policy", size),
            "pass_share": ("policy", share(np.logical_and.reduce(list(verdicts.values())))),
            "check_pass_share": (("policy", "check"), by_check),
        },
        coords={"policy": policies, "check": list(CHECKS)},
    )


def _verdicts(table: pd.DataFrame) -> list[tuple[str, BoolArray, npt.NDArray[np.object_]]]:
    """Each check that can run: its name, which rows pass, and what is wrong with those that do not."""
    for column in ("policy", "prompt_id", "logp"):
        if column not in table:
            raise DataError(f"the table has no column {column!r}; add it, one row per teacher-forcing call")
    keys = [c for c in ("policy", "prompt_id", "response_id") if c in table]
    logp = table["logp"].to_numpy(dtype=float)
    shown = [f"logp is {value:g}" for value in logp]
    out = [("finite", finite(logp), shown)]

    call = table.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    if len(call) and np.bincount(call).max() > 1:
        text = [f"identical calls differ by more than {REPEAT_TOLERANCE:g} nats; {s}" for s in shown]
        out.append(("repeatable", repeatable(logp, call), text))
    if "logp_tokens" in table:
        tokens = [np.atleast_1d(np.asarray(row, dtype=float)) for row in table["logp_tokens"]]
        text = [f"{len(t)} token scores sum to {t.sum():g}, {s}" for t, s in zip(tokens, shown, strict=True)]
        out.append(("token_sum", token_sum(logp, tokens), text))
    if "logp_prompt" in table and "logp_joint" in table:
        prompt, joint = (table[c].to_numpy(dtype=float) for c in ("logp_prompt", "logp_joint"))
        each = zip(prompt, joint, shown, strict=True)
        text = [f"log p(X + A) is {j:g}, log p(X) is {p:g}, {s}" for p, j, s in each]
        out.append(("additive", additive(logp, prompt, joint), text))
    if "snapshot" in table:
        common = table.groupby("policy")["snapshot"].transform(lambda s: s.mode(dropna=False).iloc[0])
        same = (table["snapshot"] == common).to_numpy(dtype=bool)
        out.append(("snapshot", same, [f"snapshot is {s!r}, unlike the others" for s in table["snapshot"]]))
    if "renormalized" in table:
        honest = ~table["renormalized"].astype(bool).to_numpy()
        out.append(("unmasked", honest, ["probabilities were renormalised after masking"] * len(table)))
    return [(name, passed, np.array(reason, dtype=object)) for name, passed, reason in out]


def clones(data: xr.Dataset, policies: Sequence[str]) -> xr.Dataset:
    """What the log ratios say of policies that are declared identical to the logger.

    Their ratio is 1 whatever the response, so all spread is teacher-forcing error; with normal errors of standard
    deviation s the effective sample size is ``n exp(-s^2)``.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``n_usable``, ``mean`` and ``sd`` of the log ratio (nats), ``equal_share`` (log ratios
        within 1e-7 of 0), ``ess_fraction``, ``ess_fraction_normal = exp(-sd^2)``, and ``mean_ratio`` with
        ``mean_ratio_std_error``: the mean of the ratios themselves, whose expectation under the logger is 1 for every
        policy.
    """
    logged = unpack_logged(data)
    table = np.full((len(CLONE_COLUMNS), len(policies)), np.nan)
    for j, name in enumerate(policies):
        row = logged.logp_target[place_of(data, name)] - logged.logp_logger
        x = row[np.isfinite(row)]
        table[0, j] = len(x)
        if len(x) > 1:
            ratio, sd = np.exp(np.minimum(x, 300.0)), x.std(ddof=1)  # squares of larger ones overflow
            equal, ess = (np.abs(x) <= REPEAT_TOLERANCE).mean(), ess_fraction(mean_one(x))
            error = ratio.std(ddof=1) / np.sqrt(len(x))
            table[1:, j] = x.mean(), sd, equal, ess, np.exp(-(sd**2)), ratio.mean(), error
    columns = {name: ("policy", column) for name, column in zip(CLONE_COLUMNS, table, strict=True)}
    out = xr.Dataset(columns, coords={"policy": list(policies)})
    return out.assign(n_usable=out["n_usable"].astype(int))
