"""Are the log-likelihoods what they claim to be? The paper's section "Teacher forcing: contract and conformance".

Importance weights are exponentials of differences of two teacher-forced log-likelihoods: a slip of 0.7 nats is a factor
two. Each check asks for an identity that every autoregressive likelihood keeps, whatever the model:

=============== ====================================================== ======================================
check           identity                                               needs columns
=============== ====================================================== ======================================
``finite``      log-likelihoods are finite and at most 0               ``logp``
``repeatable``  identical calls agree within 1e-7                      several rows of one policy and prompt
``token_sum``   ``sum_t log p(a_t | a_<t) = log p(A | X)``             ``logp_tokens``
``token_count`` one log-likelihood per token id                        ``logp_tokens``, ``n_ids``
``additive``    ``log p(X + A) = log p(X) + log p(A | X) <= log p(X)`` ``logp_prompt``, ``logp_joint``
``pinned``      the snapshot names one model that cannot move          ``snapshot``
``snapshot``    one snapshot (model, template, tokenizer) per policy   ``snapshot``
``unmasked``    no probability was renormalised after masking          ``renormalized`` or ``masked``
=============== ====================================================== ======================================

A row that breaks one is to be left out; a check whose columns are missing is unknown, not passed. None can see a
likelihood of the wrong text or under the wrong template, which is self-consistent: `clones` looks at what the ratios of
a policy known to be the logger say.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import BoolArray, FloatArray
from cje_core.data import LOGP_ROUNDING, DataError
from cje_core.data.schema.columns import ObjectArray, Ragged
from cje_core.offpolicy.provenance import pinned
from cje_core.offpolicy.weights import ess_fraction, mean_one, place_of

CHECKS = (
    "finite", "repeatable", "token_sum", "token_count", "additive", "pinned", "snapshot", "unmasked",
)  # fmt: skip
REPEAT_TOLERANCE = 1e-7  # nats; the paper's
# Nats. Sums of float32 token scores carry errors of 1e-7 times the total, and prompts have totals of thousands.
SUM_TOLERANCE = 1e-3
COLUMNS = ["policy", "prompt_id", "check", "reason"]
CLONE_COLUMNS = (
    "n_usable", "mean", "sd", "equal_share", "ess_fraction", "ess_fraction_normal", "mean_ratio",
    "mean_ratio_std_error",
)  # fmt: skip


class Calls(NamedTuple):
    """Teacher-forcing calls, one per row; None where nothing is known."""

    logp: FloatArray  # (n,) nats, of the response given the prompt
    call: npt.NDArray[np.integer]  # (n,) equal codes are repetitions of one call
    policy: npt.NDArray[np.integer]  # (n,) code
    tokens: Ragged | None = None  # log-likelihood of each token
    n_ids: FloatArray | None = None  # (n,) token ids that the response has; NaN where unknown
    prompt: FloatArray | None = None  # (n,) log p(X)
    joint: FloatArray | None = None  # (n,) log p(X + A)
    snapshot: Mapping[str, ObjectArray] = {}  # (n,) each: names of model, template, tokenizer
    renormalized: BoolArray | None = None  # (n,)
    masked: BoolArray | None = (
        None  # (n,) a mask acted, and nothing says whether what is left was renormalised
    )


class Verdict(NamedTuple):
    """A check that ran."""

    check: str
    passed: BoolArray  # (n,)
    reason: Callable[[int], str]  # what is wrong with a row that does not pass


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
    logp: npt.ArrayLike, tokens: Sequence[npt.ArrayLike] | Ragged, tolerance: float = SUM_TOLERANCE
) -> BoolArray:
    """Whether the log-likelihoods of each row's tokens, at least one, are valid and sum to the total (nats).

    Examples
    --------
    >>> token_sum([-3.0, -3.0, -3.0], [[-1.0, -2.0], [-4.0, 1.0], []]).tolist()
    [True, False, False]
    """
    rows = tokens if isinstance(tokens, Ragged) else Ragged.of(tokens)
    valid = (rows.length > 0) & (rows.counts(~finite(rows.values)) == 0)
    with np.errstate(invalid="ignore"):
        near = np.abs(rows.sums() - np.asarray(logp, float)) <= tolerance
    return np.asarray(valid & near)


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
        ``logp_tokens`` (a sequence per row), ``n_ids``, ``logp_prompt``, ``logp_joint``, ``snapshot``,
        ``renormalized``, ``masked``. Rows of one policy and prompt are repetitions of one call, unless a column
        ``response_id`` tells them apart.

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
    for name, passed, reason in verdicts(_calls(table)):
        failed = np.flatnonzero(~passed)
        rows = table.iloc[failed][["policy", "prompt_id"]].astype(str)
        found.append(rows.assign(check=name, reason=[reason(k) for k in failed.tolist()]))
    return pd.concat(found)[COLUMNS].sort_values(COLUMNS, kind="stable")


def summarise(table: pd.DataFrame) -> xr.Dataset:
    """Shares of rows that pass, per policy and check, of a table as in `check`.

    Over ``policy`` (sorted): ``n_rows``, ``pass_share`` (rows that pass every check that ran) and, over ``policy,
    check``, ``check_pass_share``, NaN where the check did not run.

    Examples
    --------
    >>> rows = pd.DataFrame({"policy": "a", "prompt_id": ["0", "0", "1"], "logp": [-3.0, -3.1, -8.0]})
    >>> summarise(rows)["pass_share"].round(3).item()
    0.333
    """
    passed_by = {name: passed for name, passed, _ in verdicts(_calls(table))}
    policies, code = np.unique(table["policy"].astype(str).to_numpy(), return_inverse=True)
    size = np.bincount(code, minlength=len(policies))

    def share(passed: BoolArray) -> FloatArray:
        return np.asarray(np.bincount(code, weights=passed, minlength=len(policies)) / size)

    unknown = np.full(len(policies), np.nan)
    by_check = np.stack([share(passed_by[name]) if name in passed_by else unknown for name in CHECKS], axis=1)
    return xr.Dataset(
        {
            "n_rows": ("policy", size),
            "pass_share": ("policy", share(np.logical_and.reduce(list(passed_by.values())))),
            "check_pass_share": (("policy", "check"), by_check),
        },
        coords={"policy": policies, "check": list(CHECKS)},
    )


def verdicts(calls: Calls) -> list[Verdict]:
    """Each check that can run, in the order of `CHECKS`."""
    logp, tokens = calls.logp, calls.tokens

    def shown(k: int) -> str:
        return f"logp is {logp[k]:g}"

    out = [Verdict("finite", finite(logp), shown)]
    if len(logp) and np.bincount(calls.call).max() > 1:
        same = repeatable(logp, calls.call)
        if tokens is not None:
            same &= _tokens_repeat(tokens, calls.call)
        differ = f"identical calls differ by more than {REPEAT_TOLERANCE:g} nats"
        out.append(Verdict("repeatable", same, lambda k: f"{differ}; {shown(k)}"))
    if tokens is not None:
        length, sums = tokens.length, tokens.sums()
        improper = tokens.counts(~finite(tokens.values))

        def about_tokens(k: int) -> str:
            sums_to = f"{length[k]} token scores sum to {sums[k]:g}, {shown(k)}"
            return f"{sums_to}; {improper[k]} of them are positive or not finite" if improper[k] else sums_to

        out.append(Verdict("token_sum", token_sum(logp, tokens), about_tokens))
        if calls.n_ids is not None:
            n_ids = calls.n_ids
            right = np.isnan(n_ids) | (n_ids == length)
            words = "token ids, but log-likelihoods of"
            out.append(Verdict("token_count", right, lambda k: f"{n_ids[k]:g} {words} {length[k]} tokens"))
    if calls.prompt is not None and calls.joint is not None:
        prompt, joint = calls.prompt, calls.joint
        out.append(
            Verdict(
                "additive",
                additive(logp, prompt, joint),
                lambda k: f"log p(X + A) is {joint[k]:g}, log p(X) is {prompt[k]:g}, {shown(k)}",
            )
        )
    if calls.snapshot:
        out += _about_snapshots(calls)
    if calls.renormalized is not None or calls.masked is not None:
        no = np.zeros(len(logp), dtype=bool)
        renormalized = no if calls.renormalized is None else calls.renormalized
        masked = no if calls.masked is None else calls.masked
        after = "probabilities were renormalised after masking"
        silent = "a mask acted, and renormalized does not say whether the rest was renormalised"
        out.append(
            Verdict("unmasked", ~(renormalized | masked), lambda k: after if renormalized[k] else silent)
        )
    return out


def _tokens_repeat(tokens: Ragged, call: npt.NDArray[np.integer]) -> BoolArray:
    """Whether identical calls agree token by token."""
    first = np.full(call.max() + 1, len(call), dtype=np.intp)
    np.minimum.at(first, call, np.arange(len(call)))
    again = np.flatnonzero(first[call] != np.arange(len(call)))
    length = tokens.length
    same_length = length[again] == length[first[call[again]]]
    compared = again[same_length]
    a, b = tokens.take(compared), tokens.take(first[call[compared]])
    with np.errstate(invalid="ignore"):
        off = a.counts(~(np.abs(a.values - b.values) <= REPEAT_TOLERANCE)) > 0
    broken = np.zeros(len(first), dtype=bool)
    broken[call[again[~same_length]]] = True
    broken[call[compared[off]]] = True
    return np.asarray(~broken[call])


def _about_snapshots(calls: Calls) -> list[Verdict]:
    """Whether each row's names pin what they name, and are those of most rows of its policy."""
    n = len(calls.logp)
    moving = np.full(n, "", dtype=object)
    other = np.full(n, "", dtype=object)
    for field, names in calls.snapshot.items():
        code, found = pd.factorize(names, use_na_sentinel=False)
        texts = [None if pd.isna(text) else str(text) for text in found]
        bad = np.array([not pinned(text) for text in texts], dtype=bool)[code]
        said = np.array(
            [f"{field} is {text!r}" if text else f"{field} is missing" for text in texts], dtype=object
        )
        moving[bad & (moving == "")] = said[code][bad & (moving == "")]
        # of names equally frequent, the one that sorts first
        counts = np.zeros((calls.policy.max(initial=0) + 1, len(texts)), dtype=np.intp)
        np.add.at(counts, (calls.policy, code), 1)
        order = np.argsort([text or "" for text in texts], kind="stable")
        common = order[np.argmax(counts[:, order], axis=1)]
        unlike = (code != common[calls.policy]) & (other == "")
        other[unlike] = said[code][unlike]
    mend = "which may name another model tomorrow: give a digest, or a dated snapshot"
    return [
        Verdict("pinned", moving == "", lambda k: f"{moving[k]}, {mend}"),
        Verdict("snapshot", other == "", lambda k: f"{other[k]}, unlike the others"),
    ]


def _texts(names: pd.Series) -> ObjectArray:
    """Names as they are; one that is an object or a list as its JSON."""
    return np.array(
        [json.dumps(v, sort_keys=True) if isinstance(v, dict | list) else v for v in names], dtype=object
    )


def _calls(table: pd.DataFrame) -> Calls:
    """A table as in `check`, as arrays."""
    for column in ("policy", "prompt_id", "logp"):
        if column not in table:
            raise DataError(f"the table has no column {column!r}; add it, one row per teacher-forcing call")
    keys = [c for c in ("policy", "prompt_id", "response_id") if c in table]

    def floats(column: str) -> FloatArray | None:
        return table[column].to_numpy(dtype=float) if column in table else None

    def flags(column: str) -> BoolArray | None:
        return table[column].astype(bool).to_numpy() if column in table else None

    return Calls(
        logp=table["logp"].to_numpy(dtype=float),
        call=table.groupby(keys, sort=False, dropna=False).ngroup().to_numpy(),
        policy=np.unique(table["policy"].astype(str).to_numpy(), return_inverse=True)[1],
        tokens=Ragged.of(table["logp_tokens"].tolist()) if "logp_tokens" in table else None,
        n_ids=floats("n_ids"),
        prompt=floats("logp_prompt"),
        joint=floats("logp_joint"),
        snapshot={"snapshot": _texts(table["snapshot"])} if "snapshot" in table else {},
        renormalized=flags("renormalized"),
        masked=flags("masked"),
    )


def clones(data: xr.Dataset | Calibrated, policies: Sequence[str]) -> xr.Dataset:
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

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
    >>> found = clones(data, ["clone"])
    >>> found["n_usable"].item(), found["sd"].round(2).item()
    (299, 1.17)
    """
    given = calibrated(data)
    logged = given.logged
    ratios = {name: logged.logp_target[place_of(given.data, name)] - logged.logp_logger for name in policies}
    return ratio_summary(ratios)


def ratio_summary(log_ratio: Mapping[str, FloatArray]) -> xr.Dataset:
    """The numbers of `clones` from each policy's log ratios (nats, NaN where unknown)."""
    table = np.full((len(CLONE_COLUMNS), len(log_ratio)), np.nan)
    for j, row in enumerate(log_ratio.values()):
        x = row[np.isfinite(row)]
        table[0, j] = len(x)
        if len(x) > 1:
            ratio, sd = np.exp(np.minimum(x, 300.0)), x.std(ddof=1)  # squares of larger ones overflow
            equal, ess = (np.abs(x) <= REPEAT_TOLERANCE).mean(), ess_fraction(mean_one(x))
            error = ratio.std(ddof=1) / np.sqrt(len(x))
            table[1:, j] = x.mean(), sd, equal, ess, np.exp(-(sd**2)), ratio.mean(), error
    columns = {name: ("policy", column) for name, column in zip(CLONE_COLUMNS, table, strict=True)}
    out = xr.Dataset(columns, coords={"policy": list(log_ratio)})
    return out.assign(n_usable=out["n_usable"].astype(int))


def refuted(mean_ratio: npt.ArrayLike, alpha: float = 0.05) -> BoolArray:
    """Whether a mean of likelihood ratios is too large for the ratios to be what they claim to be.

    Under the logger the expectation of ``p(A | X) / p_0(A | X)`` is at most 1, whatever the two policies, so by
    Markov's inequality its mean over any log is ``1 / alpha`` or more with probability at most `alpha`: no law, no
    variance and no overlap is assumed. (A mean far *below* 1 proves nothing: the mass may lie where the logger never
    went.)

    Examples
    --------
    >>> refuted([0.2, 3.0, 25.0]).tolist()
    [False, False, True]
    """
    return np.asarray(np.asarray(mean_ratio, float) >= 1 / alpha)
