"""Logs and teacher-forced calls as tables in the columns of a logging schema, with violations of the contract planted.

The logger draws token sequences, logger and targets score them token by token (exact log-probabilities), and a serving
stack reports each score twice, with log p(X), log p(X + A), names of model, template and tokenizer, and mask bits.
A share of the rows breaks one rule each; `Recorded.planted` says which, so that what a conformance check finds can be
compared with what there is to find. Random errors are mechanisms of `cje_sim.tokens.teacher_forcing`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from cje_sim.tokens.laws import PADDING, FloatArray, Responses, Rng, TokenPolicy
from cje_sim.tokens.teacher_forcing import Noise, observe

CALLS = 2
NAMES = {
    "model": "model@5f0b02c75b57",
    "template": "sha256:9f86d081884c7d65",
    "tokenizer": "tokens-2024-08-06",
}
# What breaks a rule of the contract, under the name of the rule; of logs, those that need no second call or context.
OF_LOGS = ("error", "missing", "finite", "token_sum", "token_count", "pinned", "snapshot")
OF_TARGETS = (*OF_LOGS, "repeatable", "additive", "unmasked")
DRIFT = Noise("two calls differ", sd=0.01, per="token")
MISMATCH = Noise("another tokenizer", sd=0.3, offset=-0.5, per="token")


class Recorded(NamedTuple):
    """Tables as a server would record them."""

    logs: pd.DataFrame
    targets: dict[str, pd.DataFrame]
    planted: pd.DataFrame  # policy ("" for the logs), x_id, violation


def record(policies: Mapping[str, TokenPolicy], n: int, *, share: float = 0.0, rng: Rng = None) -> Recorded:
    """Draw n responses of the first policy, the logger, and record their scores under it and every other policy.

    Parameters
    ----------
    policies : mapping of name to TokenPolicy
        The logger first, then the targets.
    share : float
        Probability that a row breaks each rule; a row breaks at most one, so with ten rules at most 0.1.

    Examples
    --------
    >>> from cje_sim.tokens.laws import iid_policy, zipf
    >>> recorded = record({"base": iid_policy(zipf(20, 1.0), 4), "target": iid_policy(zipf(20, 1.2), 4)}, 3, rng=0)
    >>> len(recorded.logs), len(recorded.targets["target"]), len(recorded.planted)
    (3, 6, 0)
    """
    if not 0 <= share * len(OF_TARGETS) <= 1:
        raise ValueError(f"share={share}: it must lie in [0, {1 / len(OF_TARGETS):g}], one rule a row")
    rng = np.random.default_rng(rng)
    (_, logger), *others = policies.items()
    drawn = logger.sample(n, rng=rng)
    width = len(str(n - 1))
    x_id = np.array([f"x{k:0{width}d}" for k in range(n)], dtype=object)
    planted = []

    def plant(policy: str, kinds: tuple[str, ...]) -> npt.NDArray[np.object_]:
        place = (rng.random(n) / share).astype(int) if share else np.full(n, len(kinds))
        rule = np.array([*kinds, None], dtype=object)[np.minimum(place, len(kinds))]
        hit = np.array([kind is not None for kind in rule], dtype=bool)
        planted.append(pd.DataFrame({"policy": policy, "x_id": x_id[hit], "violation": rule[hit]}))
        return np.asarray(rule, dtype=object)

    tokens = _lists(drawn.tokens, drawn.tokens)
    rule = plant("", OF_LOGS)
    scores = _broken(_lists(token_scores(logger, drawn), drawn.tokens), rule)
    columns = _columns(scores, rule, "logp_pi0")
    logs = pd.DataFrame({"x_id": x_id, "tokens": _ids(tokens, rule), **columns, "judge_S": rng.random(n)})
    configurations: Any = [{"model": name, "seed": k} for k, name in enumerate(_named("model", rule))]
    logs["run_cfg"] = configurations
    targets = {}
    for name, policy in others:
        rule = plant(name, OF_TARGETS)
        scores = _broken(_lists(token_scores(policy, drawn), drawn.tokens), rule)
        before = -rng.exponential(80.0, n)
        targets[name] = _calls(x_id, tokens, scores, before, rule, rng)
    return Recorded(logs, targets, pd.concat(planted, ignore_index=True))


def token_scores(policy: TokenPolicy, responses: Responses) -> FloatArray:
    """(n, length) log-probability of each token given those before it, NaN after the end."""
    tokens, of = responses.tokens, responses.prompt_class[:, None]
    state = np.zeros_like(tokens[:, 1:]) if policy.is_iid else np.maximum(tokens[:, :-1], 0)
    later = np.maximum(tokens[:, 1:], 0)
    first = policy.log_prob[of[:, 0], 0, tokens[:, 0]]
    scores = np.column_stack([first, policy.log_prob[of, 1 + state, later]])
    return np.where(tokens == PADDING, np.nan, scores)


def _lists(values: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [row[there] for row, there in zip(values, tokens != PADDING, strict=True)]


def _broken(scores: list[FloatArray], rule: npt.NDArray[np.object_]) -> list[FloatArray]:
    """Scores with those of impossible rows made positive."""
    return [-row if kind == "finite" else row for row, kind in zip(scores, rule, strict=True)]


def _named(field: str, rule: npt.NDArray[np.object_]) -> list[str]:
    """Names of a model or its parts: some an alias that moves, some of another snapshot."""
    other = {"pinned": "latest", "snapshot": "model@0a1b2c3d4e5f"} if field == "model" else {}
    return [other.get(kind, NAMES[field]) for kind in rule]


def _ids(tokens: list[npt.NDArray[Any]], rule: npt.NDArray[np.object_]) -> list[npt.NDArray[Any]]:
    """Token ids, one too many where the count is to be wrong."""
    return [
        np.append(row, row[:1]) if kind == "token_count" else row
        for row, kind in zip(tokens, rule, strict=True)
    ]


def _columns(scores: list[FloatArray], rule: npt.NDArray[np.object_], field: str) -> dict[str, list[Any]]:
    """Scores of tokens, the server's own sums, and why there are none."""
    gone = [kind in ("error", "missing") for kind in rule]
    sums = [float(row.sum()) - 0.5 * (kind == "token_sum") for row, kind in zip(scores, rule, strict=True)]
    return {
        field: [None if absent else row for row, absent in zip(scores, gone, strict=True)],
        f"{field}_sum": [None if absent else total for total, absent in zip(sums, gone, strict=True)],
        "error": ["timeout" if kind == "error" else None for kind in rule],
    }


def _calls(
    x_id: npt.NDArray[np.object_],
    tokens: list[npt.NDArray[Any]],
    scores: list[FloatArray],
    before: FloatArray,
    rule: npt.NDArray[np.object_],
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Two calls of each response, in an order of their own."""
    exact = np.array([row.sum() for row in scores])
    tables = []
    for call in range(CALLS):
        reported = list(scores)
        for k in np.flatnonzero(rule == "additive"):
            reported[k] = observe(
                scores[k], [MISMATCH], n_tokens=1, rng=int(k)
            ).log_prob  # the same in both calls
        for k in np.flatnonzero(rule == "repeatable") if call else ():
            reported[k] = observe(scores[k], [DRIFT], n_tokens=1, rng=rng).log_prob
        columns = _columns(reported, rule, "logp")
        sums = np.array([np.nan if total is None else total for total in columns["logp_sum"]])
        joint = np.where(rule == "additive", before + exact, before + sums)
        renormalized = [True if kind == "unmasked" and k % 2 else (None if kind == "unmasked" else False)
                        for k, kind in enumerate(rule)]  # fmt: skip
        mask = [[1] if kind == "unmasked" else [0] for kind in rule]
        names = {field: _named(field, rule) for field in NAMES}
        tables.append(
            pd.DataFrame(
                {
                    "x_id": x_id,
                    "tokens": _ids(tokens, rule),
                    **columns,
                    "logp_prompt": before,
                    "logp_joint": joint,
                }
                | names
                | {"renormalized": renormalized, "mask": mask}
            )
        )
    table = pd.concat(tables, ignore_index=True)
    return table.iloc[rng.permutation(len(table))].reset_index(drop=True)
