"""Which estimator the paper would choose here, and why.

Its "Estimator Selection Guide" and "Practical takeaways" as a rule per policy, on facts that can be counted: fresh
responses, labels, probes, log-probabilities, overlap gates.

1. Fresh responses: **Direct**, the default; it needs no overlap. With labels of the policy's own it corrects itself
   (theta_aug); with probes these make its value (**direct_corrected**), whatever the audit says of what it
   would borrow; else it borrows a calibration that must be audited, or, where the judge tells nothing, is labelled.
2. No fresh responses but log-probabilities, and overlap gates that pass (TTC first): **calibrated IPS**.
3. Neither: nothing. Generate responses; logs that miss what a policy typically says cannot be reweighted into it.

Doubly robust estimators need fresh responses *and* log-probabilities; where overlap holds they are named as the
alternative, elsewhere they are Direct plus noise.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.informative import LEVEL
from cje_core.data.arrays import count_prompts
from cje_core.inference.estimate import Status
from cje_core.verdict.gates import collect, evaluate, ope_ok
from cje_core.verdict.refusal import bounded
from cje_core.verdict.thresholds import BY_NAME, GATES, Gate

# the paper's takeaway on the calibration's share of the variance: above the first buy labels, below the second prompts
SHARE_HIGH, SHARE_LOW = 0.5, 0.2
ENOUGH = 50  # labels that the paper's audits ask for at least
_LABEL = f"label {ENOUGH} of its responses, chosen at random"
_TURN = "if a lower score means a better response, declare the direction decreasing; else "
_CHOOSE = "choose whose labels to borrow (calibration policy); else "
OVERLAP_ONLY = "overlap_weights gives the mean over what it shares with the logger, not its value"
# One response with this share of the weight leaves fewer than ten effective ones whatever the others have, since
# ESS <= 1 / share^2: the number below which `cje_core.families.off_policy.estimate` flags poor overlap.
DOMINANT = 10**-0.5
TAILS = ("hill", "max_share")
BARRED = (Status.UNINFORMATIVE_JUDGE, Status.LOW_SUPPORT)


class Facts(NamedTuple):
    """What is at hand for one policy."""

    n_fresh: int  # prompts with an evaluated response
    n_own_labels: int  # clusters of prompts with a label of its own that corrects
    n_unlabelled: int  # prompts with an evaluated response that has no label
    n_probes: int  # clusters of prompts with a label that audits
    n_logged: int  # logged responses with both log-likelihoods
    ttc: float
    ope: str  # ok, blocked or unknown; "none" without log-probabilities
    probes_make_value: bool  # whether a value made of them has an interval: equal labels show no spread
    transport: str  # verdict of the audit
    may_borrow: bool  # whether a calibration learned elsewhere can say anything of it


class Choice(NamedTuple):
    """What to do about it."""

    estimator: str  # a module of cje_core.estimators, or "none"
    reason: str
    alternative: str = ""
    caution: str = ""


def recommend(
    data: xr.Dataset | Calibrated,
    *,
    overlap: xr.Dataset | None = None,
    transport: xr.Dataset | None = None,
    calibration_share: Mapping[str, float] | None = None,
    estimate: xr.Dataset | None = None,
    probed: xr.Dataset | None = None,
    contradicted: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
    thresholds: Sequence[Gate] = GATES,
) -> xr.Dataset:
    """Recommend an estimator for each policy, with the reasons.

    Parameters
    ----------
    data : xr.Dataset
    overlap : xr.Dataset, optional
        From `cje_core.offpolicy.overlap.overlap`; without it overlap is unknown, which is not good enough for logs
        alone.
    transport : xr.Dataset, optional
        From `cje_core.transport.audit.audit`.
    calibration_share : mapping of policy to float, optional
        Share of the variance that comes from the calibration.
    estimate : xr.Dataset, optional
        Of `cje_core.estimators.direct`: a policy that may not borrow there is told to label its own responses.
    probed : xr.Dataset, optional
        Of `cje_core.estimators.direct_corrected`: probes whose value has no interval there are not advised (default:
        4 probed prompts make one).
    contradicted : collection of str
        Policies that would borrow from labels that contradict each other (`cje_core.transport.agreement`).
    refused : mapping of policy to str, optional
        Policies of which no level holds, and why (`cje_core.verdict.refusal.level`): they are told to label, not to use
        the estimator whose value is refused.
    thresholds : sequence of Gate
        By which overlap is judged.

    Returns
    -------
    xr.Dataset
        Over ``policy``: the fields of `Choice` and `Facts`, ``calibrator``, the paper's advice on it, and
        ``online_check``, why weighted logs need one (`online_check`), else empty.
    """
    given = calibrated(data)
    data, rows = given.data, given.rows
    names = [str(name) for name in data["policy"].values]
    metrics = collect(names, overlap=overlap, transport=transport)
    ope = ope_ok(evaluate(metrics, gates=thresholds))
    n_teaching = count_clusters(rows, rows.teaches)
    usable = np.zeros(len(names), dtype=int)
    if {"logp_target", "logp_logger", "logged_judge"} <= set(data):
        usable = given.logged.usable.sum(axis=1)
    found: dict[str, list[object]] = {}
    for p, name in enumerate(names):
        code = rows.policies.index(name)

        def prompts(which: npt.NDArray[np.bool_], code: int = code) -> int:
            return count_prompts(rows, which & (rows.policy == code))

        def clusters(which: npt.NDArray[np.bool_], code: int = code) -> int:
            return count_clusters(rows, which & (rows.policy == code))

        n_probes = clusters(rows.probe)
        verdict = "NOT_CHECKED" if transport is None else str(transport["verdict"].sel(policy=name).item())
        facts = Facts(
            n_fresh=prompts(rows.evaluated),
            n_own_labels=clusters(rows.evaluated & rows.labelled),
            n_unlabelled=prompts(rows.evaluated & ~rows.labelled),
            n_probes=n_probes,
            n_logged=int(usable[code]),
            probes_make_value=n_probes >= MIN_LABELLED_CLUSTERS if probed is None else bounded(probed, name),
            ttc=float(metrics["ttc"].values[p]),
            ope=str(ope["state"].values[p]) if usable[code] else "none",
            transport=verdict,
            may_borrow=_may_borrow(estimate, name) and name not in contradicted,
        )
        choice = _choose(facts, str(ope["reason"].values[p]), n_teaching)
        if not facts.may_borrow and choice.estimator == "none":
            first = _CHOOSE if name in contradicted else _TURN if _inverted(estimate) else ""
            choice = choice._replace(reason=first + choice.reason)
        if refused is not None and name in refused and choice.estimator != "none":
            choice = Choice("none", f"its level is refused ({refused[name]}): {_more(facts)}")
        spend = _spend(float((calibration_share or {}).get(name, np.nan)), facts)
        tails = online_check(
            *(
                float(overlap[v].sel(policy=name)) if overlap is not None and v in overlap else np.nan
                for v in TAILS
            )
        )
        ask = f"or run an online check: {tails}" if tails and not facts.n_fresh else ""
        choice = choice._replace(caution="; ".join(filter(None, [ask, choice.caution, spend])))
        for key, value in (facts._asdict() | choice._asdict() | {"online_check": tails}).items():
            found.setdefault(key, []).append(value)
    found["calibrator"] = ["two_stage" if "covariate" in data else "monotone"] * len(names)
    return xr.Dataset({key: ("policy", np.array(v)) for key, v in found.items()}, coords={"policy": names})


def online_check(hill: float, max_share: float) -> str:
    """Say why weighted logs decide nothing before a small online test of the policy; empty where they may.

    The paper's mitigation of poor overlap: a Hill index below 1 (weights of infinite mean), or one response that
    dominates. Unknown numbers (NaN) ask for nothing here; their gates say that they are unknown.

    Examples
    --------
    >>> online_check(0.8, 0.4)
    'its weights have a tail index of 0.8, below 1, and one response carries 40% of the weight'
    >>> online_check(2.5, 0.01)
    ''
    """
    parts = [f"its weights have a tail index of {hill:.2g}, below 1"] * (hill < BY_NAME["hill"].critical)
    parts += [f"one response carries {max_share:.0%} of the weight"] * (max_share >= DOMINANT)
    return ", and ".join(parts)


def _inverted(estimate: xr.Dataset | None) -> bool:
    """Whether the labels show that the judge ranks against the oracle."""
    return estimate is not None and bool((estimate["status"] == Status.INVERTED_JUDGE).any())


def _may_borrow(estimate: xr.Dataset | None, policy: str) -> bool:
    """Whether Direct lets a policy borrow; without fresh responses its test of the judge says so of logged ones."""
    if estimate is None:
        return True
    status = int(estimate["status"].sel(policy=policy).item())
    silent = status == Status.NO_RESPONSES and estimate.attrs.get("judge_p_value", 0.0) >= LEVEL
    return status not in BARRED and not silent


def _more(facts: Facts) -> str:
    """What a policy whose level is refused can do: labels of its own, or more of them."""
    return "label more of its responses, chosen at random" if facts.n_own_labels else _LABEL


def _choose(facts: Facts, overlap_reason: str, n_teaching: int) -> Choice:
    """Apply the paper's guide to the facts of one policy."""
    covered = facts.ope == "ok"
    if not facts.n_fresh and covered and not facts.may_borrow:
        return Choice("none", f"no fresh responses, and nothing can be borrowed to reweight: {_LABEL}")
    if not facts.n_fresh and covered:
        return Choice(
            "snips",  # the paper's guide says calibrated IPS, whose weights shrink towards the logger's value
            "no fresh responses; the logs cover this policy (all overlap gates pass), so reweight them",
            alternative="capped_ips",
            caution="fresh responses would remove the need for overlap and for log-probabilities",
        )
    if not facts.n_fresh:
        uncovered = f"the logs do not cover it ({overlap_reason})"
        why = uncovered if facts.n_logged else "it has no log-probabilities either"
        choice = Choice("none", f"no fresh responses, and {why}: generate responses and use Direct")
        if facts.ope == "blocked" and facts.may_borrow:
            choice = choice._replace(alternative="overlap_weights", caution=OVERLAP_ONLY)
        return choice
    own = facts.n_own_labels >= MIN_LABELLED_CLUSTERS
    if not own and facts.probes_make_value:
        doubt = "" if facts.transport == "PASS" else f" (what it would borrow: transport {facts.transport})"
        return Choice("direct_corrected", f"its probes are labels of its own and make its value{doubt}")
    if not own and not facts.may_borrow:
        return Choice("none", f"nothing can be borrowed for it: {_LABEL}", alternative="labels_only")
    if n_teaching < MIN_LABELLED_CLUSTERS and not (own and facts.n_unlabelled == 0):
        return Choice(
            "none",
            f"fewer than {MIN_LABELLED_CLUSTERS} labelled prompts teach a calibrator: label some before asking for a "
            "level",
            alternative="labels_only" if own else "",
        )
    borrowed = f"the calibration is borrowed (transport: {facts.transport})"
    why = "fresh responses are at hand, and Direct needs no overlap; "
    why += "its own labels correct it" if own else borrowed
    if facts.n_logged and not covered:
        why += f"; the logs add nothing to rely on ({overlap_reason})"
    caution, alternative = "", "stacked_dr" if covered else ""
    if not own:
        more = "its probes make no value, so " if facts.n_probes else ""
        caution = (
            f"transport is assumed: {more}probe {ENOUGH} to 200 of its responses before reporting a level"
        )
    return Choice("direct", why, alternative, caution)


def _spend(share: float, facts: Facts) -> str:
    """Where the next unit of budget goes, by the calibration's share of the variance.

    The mean label of responses that all have one holds no calibration, and its share, 0, says nothing of what fewer
    labels would cost on more prompts: `cje_core.planning` splits that variance.
    """
    if SHARE_LOW <= share <= SHARE_HIGH or np.isnan(share):
        return ""
    if not facts.n_unlabelled and not facts.probes_make_value:
        return "every response of it is labelled: only more prompts, with labels, make its interval narrower"
    part = "less than 1%" if share < 0.005 else f"{share:.0%}"
    return f"{part} of the variance comes from the labels: collect {'labels' if share > SHARE_HIGH else 'prompts'}"
