"""Are the recorded likelihood ratios right, or do the logs lack coverage? Ratio calibration with test functions.

Both make importance weighting fail, and effective sample size, tail index and TTC see only that it fails. This audit
compares weighted means of test functions under the logs with their means under the policy's own fresh responses
(`cje_core.formulas.ratio_calibration`), in a form that lack of coverage cannot reject:

``two_sided``   fresh responses carry ``log_ratio``: means weighted by ``1 / (1 + exp(-r))`` and ``1 / (1 + exp(r))``
                are equal under correct ratios whatever the coverage. Test functions: 1, ``tanh(r / 2)``, the judge
                score, each covariate (as ranks), the typical region.
``one_sided``   they do not, or fewer than 50 effective responses overlap: the mean weighted by
                ``min(exp(r), n / 30)`` may not exceed the fresh one. Test functions: 1, judge score and
                covariates, each and its reverse (as ranks), the typical region. Ratios that are too small look like
                lack of coverage, and the verdict says so; unless fresh responses carry theirs, whose mean weighted by
                ``min(exp(-r), n / 30)`` may not exceed the logged one.

The level is that of all test functions (Bonferroni) and policies (Holm) together. Standard errors are clustered by
prompt, whose logged and fresh responses are a pair.

What it cannot do: see errors where logger and target do not overlap; see errors that average out over the test
functions (at most it asks for ``E[exp(true r) | r, Z] = exp(r)``); say which of the two log-likelihoods is wrong; tell
an error from responses that are missing because of what they say.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import BoolArray, FloatArray, IntArray, probability
from cje_core.data.arrays import unpack_logged
from cje_core.data.construct import dataset, in_order
from cje_core.formulas.ratio_calibration import (
    Comparison,
    bounded_weight,
    capped_weight,
    centred_ranks,
    compare,
    max_t,
)
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.influence import kish_ess
from cje_core.inference.sums import sum_by
from cje_core.offpolicy.typicality import LEVEL
from cje_core.offpolicy.weights import log_ratios

MIN_PROMPTS = 30
MIN_OVERLAP = (
    50  # effective responses, of the smaller sample, from which on the two-sided test keeps its size
)
CAP = 30  # the cap is n / 30: a correct ratio reaches it in at most 30 of n logged responses, by Markov's inequality
RATIO, REGION, SCORE, REVERSE = "log ratio", "typical region", "judge score", " (reversed)"
BACK = ", fresh responses weighted"  # to the logger, not logged ones to the target


class Pairs(NamedTuple):
    """Logged and fresh responses of one policy to the same prompts; fresh ones are rows (draws)."""

    log_ratio: FloatArray  # (n,) logged
    fresh_ratio: FloatArray  # (r,) NaN where not recorded
    logged: dict[str, FloatArray]  # (n,) by feature
    fresh: dict[str, FloatArray]  # (r,)
    place: IntArray  # (r,) prompt, 0..n-1
    weight: FloatArray  # (r,) summing to one over each prompt
    cluster: IntArray  # (n,)


class Result(NamedTuple):
    """The test of one policy."""

    method: str
    p_value: float
    p_short: float  # of the other side; NaN for the two-sided method
    n: int
    ess: float
    uncovered: float
    tested: dict[str, tuple[float, float, float]]  # logged, fresh, standard error by test function


def ratio_calibration(data: xr.Dataset | Calibrated, *, alpha: float = 0.05) -> xr.Dataset:
    """Test whether the recorded likelihood ratios of each policy reproduce its fresh responses.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        With logged responses and fresh ones of the same prompts. ``log_ratio`` of the fresh ones makes the test
        two-sided; ``surprisal`` and ``n_tokens`` add the typical region, covariates of both add themselves.
    alpha : float
        Probability, at most, that any policy with correct ratios is called wrong.

    Returns
    -------
    xr.Dataset
        Over ``policy``:

        - ``verdict``: "wrong" (no lack of coverage explains the means), "consistent", "undecided" (weighted logs fall
          short of the fresh responses, or do not overlap with them: lack of coverage, or ratios too small),
          "not_checked" (under 30 prompts with both, or nothing varies: the policy is the logger).
        - ``method``; ``p_value`` of all test functions together; ``p_adjusted``, by Holm over policies; ``p_short``,
          that of the shortfall; ``worst``, the test function with the largest statistic.
        - ``n_prompts``; ``overlap_ess``, effective number of responses in the overlap, of the smaller sample (NaN
          without ``log_ratio``); ``uncovered``, the share of fresh responses whose ratio exceeds n, of all of which
          logs of n responses hold less than one on average.

        Over ``policy, function``: ``logged``, ``fresh``, the weighted means; ``difference``, ``std_error``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=500, rng=1)
    >>> ratio_calibration(data)["verdict"].to_series().to_dict()
    {'base': 'not_checked', 'clone': 'wrong', 'tilt_0.1': 'wrong'}
    >>> exact = cje_sim.simulate("zipf_tilt", n=500, rng=1)
    >>> ratio_calibration(exact)["verdict"].sel(policy="tilt_0.1").item()
    'consistent'
    """
    probability(alpha, "alpha")
    given = calibrated(data)
    pairs = _pairs(given.data, given.rows.cluster)
    results = [None if one is None else _test(one) for one in pairs]
    names = sorted({name for one in results if one for name in one.tested}, key=_place)
    adjusted = adjust_p([np.nan if one is None else one.p_value for one in results], "holm")
    rows = []
    for one, p in zip(results, adjusted.tolist(), strict=True):
        blank = {
            "method": "none",
            "p_value": np.nan,
            "p_short": np.nan,
            "n_prompts": 0,
            "overlap_ess": np.nan,
        }
        row = blank | {"uncovered": np.nan, "worst": "", "verdict": "not_checked"}
        if one is not None:
            row |= {"method": one.method, "p_value": one.p_value, "p_short": one.p_short, "n_prompts": one.n}
            row |= {"overlap_ess": one.ess, "uncovered": one.uncovered, "worst": _worst(one)}
            row["verdict"] = _verdict(one, p, alpha)
        rows.append(row | {"p_adjusted": p})
    columns = {name: ("policy", np.array([row[name] for row in rows])) for name in rows[0]}
    table = np.full((3, len(rows), len(names)), np.nan)
    for k, one in enumerate(results):
        for name, numbers in one.tested.items() if one else ():
            table[:, k, names.index(name)] = numbers
    both = dict(zip(("logged", "fresh", "std_error"), table, strict=True))
    both["difference"] = both["logged"] - both["fresh"]
    out = dataset(
        {**columns, **{name: (("policy", "function"), values) for name, values in both.items()}},
        coords={"policy": given.rows.policies, "function": names},
        attrs={"alpha": alpha, "level": LEVEL},
    )
    return in_order(out, given.data)


def _place(name: str) -> tuple[int, str]:
    first = ("1", RATIO, REGION, SCORE)
    return (first.index(name), "") if name in first else (len(first), name)


def _worst(one: Result) -> str:
    """Name of the test function that departs most, in the direction that the method tests; empty if none varies."""
    z = {name: (logged - fresh) / error for name, (logged, fresh, error) in one.tested.items() if error > 0}
    if not z:
        return ""
    if one.method == "two_sided":
        return max(z, key=lambda name: abs(z[name]))
    return max(z, key=lambda name: -z[name] if name.endswith(BACK) else z[name])


def _verdict(one: Result, p_adjusted: float, alpha: float) -> str:
    if not np.isfinite(p_adjusted):
        return "not_checked"
    if p_adjusted < alpha:
        return "wrong"
    if one.method == "one_sided" and (one.p_short < alpha or one.ess < MIN_OVERLAP):
        return "undecided"
    return "consistent"


def _pairs(data: xr.Dataset, cluster: IntArray) -> list[Pairs | None]:
    """Responses of each policy, in canonical order, to prompts with a usable logged and a fresh response."""
    shared = "covariate" in data and "logged_covariate" in data
    features = data["feature"].values.astype(str).tolist() if shared else []
    logged = unpack_logged(data, features, checked=True)
    order = [np.argsort(data[name].values.astype(str), kind="stable") for name in ("policy", "prompt")]
    order.append(np.argsort(data["draw"].values, kind="stable"))

    def canonical(name: str) -> FloatArray:
        if name not in data:
            return np.full(data["judge"].shape, np.nan)
        return np.asarray(data[name].values[np.ix_(*order)])

    evaluated = canonical("evaluated").astype(bool)
    ratio, surprisal, judge = canonical("log_ratio"), canonical("surprisal"), canonical("judge")
    covariate = canonical("covariate") if features else np.empty((*judge.shape, 0))
    out: list[Pairs | None] = []
    for p, log_ratio in enumerate(log_ratios(logged)):
        usable = np.isfinite(log_ratio)
        counts = _counting(evaluated[p] & usable[:, None], ratio[p])
        used = np.flatnonzero(counts.any(axis=1))
        if len(used) < MIN_PROMPTS:
            out.append(None)
            continue
        at = counts[used]
        place = np.nonzero(at)[0]
        fresh = {SCORE: judge[p][used][at]}
        fresh |= {name: covariate[p][used][at][:, k] for k, name in enumerate(features)}
        of_logged = {name: logged.z[used, k] for k, name in enumerate((SCORE, *features))}
        of_logged[REGION] = -logged.logp_target[p, used] / logged.n_tokens[used]
        fresh[REGION] = surprisal[p][used][at]
        weight = 1.0 / at.sum(axis=1)[place]
        pair = Pairs(log_ratio[used], ratio[p][used][at], of_logged, fresh, place, weight, cluster[used])
        out.append(pair)
    return out


def _counting(fresh: BoolArray, ratio: FloatArray) -> BoolArray:
    """Fresh responses that enter: those with a log ratio where at least 30 prompts have one, else all."""
    known = fresh & ~np.isnan(ratio)
    return known if known.any(axis=1).sum() >= MIN_PROMPTS else fresh


def _test(pair: Pairs) -> Result:
    """Test one policy, two-sided where its fresh responses have log ratios and overlap with the logged ones."""
    n, df = len(pair.log_ratio), float(len(np.unique(pair.cluster)) - 1)
    ess = uncovered = np.nan
    both = not np.isnan(pair.fresh_ratio).any()
    if both:
        weights = (bounded_weight(pair.log_ratio, fresh=False), bounded_weight(pair.fresh_ratio, fresh=True))
        ess = min(kish_ess(weights[0]), kish_ess(_by_prompt(pair, weights[1])))
        uncovered = float((pair.weight * (pair.fresh_ratio > np.log(n))).sum() / n)
        if ess >= MIN_OVERLAP:
            functions = _functions(pair, two_sided=True)
            found = _compared(pair, functions, *weights)
            z = _statistics(found)
            p = max_t(np.concatenate([z, -z]), df)
            return Result("two_sided", p, np.nan, n, ess, uncovered, _named(functions, found))
    functions, cap = _functions(pair, two_sided=False), max(n / CAP, 1.0)
    found = _compared(pair, functions, capped_weight(pair.log_ratio, cap), np.ones(len(pair.place)))
    z, tested = _statistics(found), _named(functions, found)
    excess = z
    if both:
        back = _compared(pair, functions, np.ones(n), capped_weight(-pair.fresh_ratio, cap))
        excess = np.concatenate([z, -_statistics(back)])
        tested |= {name + BACK: numbers for name, numbers in _named(functions, back).items()}
    return Result("one_sided", max_t(excess, df), max_t(-z, df), n, ess, uncovered, tested)


def _functions(pair: Pairs, *, two_sided: bool) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Compute the test functions of logged and fresh responses, by name; one-sided ones lie in [0, 1]."""
    out = {"1": (np.ones(len(pair.log_ratio)), np.ones(len(pair.place)))}
    if two_sided:
        out[RATIO] = np.tanh(pair.log_ratio / 2), np.tanh(pair.fresh_ratio / 2)
    for name, fresh in pair.fresh.items():
        logged = pair.logged[name]
        if not (np.isfinite(logged).all() and np.isfinite(fresh).all()):
            continue
        if name == REGION:
            edge = np.quantile(fresh, LEVEL)
            out[REGION] = (logged <= edge).astype(float), (fresh <= edge).astype(float)
            continue
        a, b = centred_ranks(logged, fresh)
        if two_sided:
            out[name] = a, b
        else:
            out[name], out[name + REVERSE] = ((1 + a) / 2, (1 + b) / 2), ((1 - a) / 2, (1 - b) / 2)
    return out


def _compared(
    pair: Pairs,
    functions: dict[str, tuple[FloatArray, FloatArray]],
    logged_weight: FloatArray,
    fresh_weight: FloatArray,
) -> Comparison:
    logged = np.stack([logged_weight * values for values, _ in functions.values()])
    fresh = np.stack([_by_prompt(pair, fresh_weight * values) for _, values in functions.values()])
    return compare(logged, fresh, pair.cluster)


def _by_prompt(pair: Pairs, values: FloatArray) -> FloatArray:
    """Mean over each prompt's fresh responses, shape (n,)."""
    return sum_by(pair.place, pair.weight * values, len(pair.log_ratio))


def _statistics(found: Comparison) -> FloatArray:
    """Differences over their standard errors; NaN for a function that does not vary."""
    difference = found.logged - found.fresh
    return np.where(found.std_error > 0, difference, np.nan) / np.where(
        found.std_error > 0, found.std_error, 1.0
    )


def _named(
    functions: dict[str, tuple[FloatArray, FloatArray]], found: Comparison
) -> dict[str, tuple[float, float, float]]:
    return dict(zip(functions, zip(*(part.tolist() for part in found), strict=True), strict=True))
