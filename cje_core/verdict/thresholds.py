"""The thresholds of all gates, as data: one table, and the same table derived from the difference to be found.

`GATES` is the paper's table "Default gates", with the second, critical level where the paper's text or its reference
library has one; no threshold stands anywhere else. The paper's defaults are set for about 5,000 responses and a
smallest detectable difference of about .02; `from_mde` derives those of the overlap gates for others.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.checks import probability
from cje_core.offpolicy.typicality import LEVEL

MIN_TTC_DRAWS = 30  # effective target draws behind the 0.9 quantile of TTC: with fewer it is not known
RHO_SPAN = 2.0  # the cap curve is read from rho / 2 to 2 rho
LOST = (0.01, 0.03)  # coverage that an interval may lose to residual tails: below the first all is well
CRITICAL = 2.0  # an overlap gate derived from a target fails where twice the target cannot be met either


class Gate(NamedTuple):
    """One threshold."""

    name: str
    group: str  # the paper's gate
    metric: str
    good: float  # passes on this side of it, itself included
    critical: float  # fails beyond it; NaN: the gate only warns
    least: bool  # whether the metric should be at least `good` (else at most)
    applies_to: str  # "off_policy", "dr", "level" or "comparison"
    blocks: str  # state from which on the thing it applies to is off: "warn", "fail" or "never"
    action: str
    source: str  # where the numbers come from


def tail_df(lost: float, ci_prob: float = 0.95) -> int:
    """Fewest degrees of freedom of a standard error at which its normal interval loses at most `lost` of coverage.

    Least d with ``P(|T_d| <= z) >= ci_prob - lost``: what behind the thresholds of the gate ``residual_tails`` are,
    whose metric is the degrees of freedom of the variance of ``U = W (R - q)``
    (`cje_core.families.off_policy.residual_tails.variance_df`).

    Examples
    --------
    >>> [tail_df(lost) for lost in LOST]
    [29, 10]
    """
    z = float(special.ndtri(0.5 + ci_prob / 2))
    df = np.arange(1, 10_001)
    return int(df[1 - 2 * special.stdtr(df, -z) >= ci_prob - lost][0])


_OVERLAP = (
    "prefer Direct; else overlap_weights, whose mean over the overlap is not the policy's value, or a cohort of "
    "prompts where overlap holds"
)
_TYPICAL = "the logs miss what the target typically says, which no reweighting mends: use Direct"
_CAP = "show the cap curve; prefer overlap weights or restriction"
_BOTH = "paper; critical: its reference library"
_OURS = "this library: the paper gives no number"
NAN = float("nan")

GATES = (
    Gate("ess", "overlap", "ess_fraction", 0.30, 0.10, True, "off_policy", "fail", _OVERLAP, _BOTH),
    Gate("hill", "overlap", "hill", 2.0, 1.0, True, "off_policy", "fail",
         "at least 1: report with a warning (infinite variance); below 1 (infinite mean): ship no offline conclusion, "
         "run an online check", "paper"),
    Gate("affinity", "overlap", "affinity", 0.85, 0.50, True, "off_policy", "fail", _OVERLAP, _BOTH),
    Gate("ttc", "overlap", "ttc", 0.70, 0.30, True, "off_policy", "warn", _TYPICAL, _BOTH),
    # the bound of TTC holds for any region of target mass .9, so the region without the too fluent has its threshold
    Gate("ttc_two_sided", "overlap", "ttc_two_sided", 0.70, 0.30, True, "off_policy", "warn", _TYPICAL,
         "this library: the paper's bound and threshold for the region |surprisal - mean| <= its .9 quantile"),
    Gate("reliability", "judge", "uncovered_bins", 0.0, NAN, False, "level", "never",
         "extend the oracle slice or use a two-stage calibrator, then validate again", "paper"),
    Gate("drift", "judge", "drift_alarm", 0.0, 0.0, False, "level", "never",
         "the judge changed: label afresh and recalibrate before comparing with older numbers", "paper"),
    Gate("label_support", "judge", "labels_near", 30.0, NAN, True, "level", "never",
         "label responses with scores like this policy's: its calibration rests on few labels", _OURS),
    Gate("identification", "identification", "unsupported_mass", 0.05, 0.05, False, "level", "fail",
         "limited calibration support: report rankings and partial-identification bounds; label where scores lie "
         "outside the labelled range", "paper"),
    Gate("transport", "transport", "transport_code", 0.0, 1.0, False, "level", "fail",
         "probe until the audit decides; where it fails correct by the probes, recalibrate with this policy's labels, "
         "or report its labels only", "paper"),
    Gate("orthogonality", "dr", "orthogonality_gap", 0.0, NAN, False, "dr", "never",
         "strengthen the outcome model or the cross-fitting; fall back to stabilised IPS as a diagnostic", "paper"),
    # beyond a share of .05 what is left out could move a mean by 5% of its range, as OutOfRange could
    Gate("residual_nan", "dr", "residual_nan", 0.0, 0.05, False, "dr", "never",
         "find out why logged responses have no W (R - q) and whether they are a random part of the logs",
         "paper; critical: its threshold of OutOfRange"),
    Gate("residual_tails", "dr", "residual_df", tail_df(LOST[0]), tail_df(LOST[1]), True, "dr", "never",
         "a few responses make the correction: see which; strengthen the outcome model, or fall back to stabilised IPS "
         "as a diagnostic", "this library: degrees of freedom at which the interval loses 1 and 3 points (`tail_df`)"),
    Gate("cap_engaged", "cap", "guard_engaged", 0.5, NAN, False, "off_policy", "never", _CAP, "paper"),
    Gate("cap_sensitivity", "cap", "cap_sensitivity", 0.25, NAN, False, "off_policy", "never",
         f"the width hangs on the cap: {_CAP}", _OURS),
    Gate("multiplicity", "multiplicity", "unadjusted_policies", 5.0, NAN, False, "comparison", "never",
         "report adjusted p-values (Benjamini-Hochberg); crown no winner without", "paper"),
)  # fmt: skip
BY_NAME = {gate.name: gate for gate in GATES}


def from_mde(
    mde: float, *, n: float, sigma: float, power: float = 0.8, ci_prob: float = 0.95
) -> tuple[Gate, ...]:
    """`GATES` with overlap thresholds at which a difference of `mde` can still be found, by the paper's CLE bound.

    Two estimates of equal standard error tell a difference apart with the power asked for if (its section on the
    planner) ``mde >= (z_power + z_(1 - a/2)) sqrt(2) SE``, which bounds SE from above; the bound of the section on
    coverage-limited efficiency bounds it from below,

        SE >= sigma alpha / sqrt(beta n) sqrt(1 + chi2_T)      alpha = P_target(T), beta = P_logger(T)

    With ``f = (sigma / SE)^2 / n`` at the largest SE allowed, no estimator that weights the logs can meet the target if

    - TTC, one- or two-sided, is below ``alpha^2 f`` (T the typical region, alpha = .9, chi2_T >= 0);
    - ESS/n is below f (T everything: alpha = beta = 1, and ``1 + chi2 = 1 / (ESS / n)``);
    - the affinity A_B is below sqrt(f), since ``1 + chi2 >= A_B^-2`` (Lyapunov's inequality for the moments 1/2, 1 and
      2 of W).

    These are necessary: logs that pass may still miss the target. A gate fails where twice the target would be missed
    too (f / 4). A threshold above 1 says that logs of this size cannot, however well they overlap. Hill's threshold has
    no unit and stays.

    Parameters
    ----------
    mde : float
        Smallest difference of two policies to be found, oracle units; positive.
    n : float
        Logged responses.
    sigma : float
        Standard deviation of the outcome given the response. The bound has its infimum over T, which cannot be
        estimated: that of labels around the calibrator (``oof_rmse``) says what the bound would be if it were the same
        everywhere.
    power, ci_prob : float

    Examples
    --------
    >>> [round(g.good, 2) for g in from_mde(0.02, n=5000, sigma=0.2) if g.group == "overlap"]
    [0.31, 2.0, 0.56, 0.25, 0.25]
    """
    for name, value in (("mde", mde), ("n", n), ("sigma", sigma)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name}={value:g}: it must be positive and finite")
    probability(power, "power")
    probability(ci_prob)
    z = special.ndtri(power) + special.ndtri(0.5 + ci_prob / 2)

    def least(target: float) -> dict[str, float]:
        f = float((np.sqrt(2) * z * sigma / target) ** 2 / n)
        return {"ess": f, "affinity": f**0.5, "ttc": LEVEL**2 * f, "ttc_two_sided": LEVEL**2 * f}

    good, critical = least(mde), least(CRITICAL * mde)
    source = f"CLE bound for a difference of {mde:g} with {n:g} logged responses, sigma {sigma:.3g}"
    return tuple(
        gate._replace(good=good[gate.name], critical=critical[gate.name], source=source)
        if gate.name in good
        else gate
        for gate in GATES
    )
