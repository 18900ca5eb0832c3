"""Direct: calibrated judge scores of fresh responses, corrected by the policy's own labels.

Estimand: V(policy) = E[Y]. With f the calibrator of Z = (S, X) fitted on the labels of the calibration policies, each
policy takes the route that its labels allow, and the result says which:

``theta_aug``
    own labels (4 labelled prompts or more): mean f(Z) + mean over own labels of Y - f^(-k)(Z), the
    paper's equation for theta_aug (one-step estimator of its proposition "Direct: EIF")
``aipw_hajek``
    the same with declared, unequal ``label_prob`` e: residuals weighted by 1 / e over the sum of 1 / e
``aipw_ht``
    (``horvitz_thompson``) residuals weighted by 1 / e over the number of responses (Horvitz-Thompson)
``aipw_tmle``
    (option) mean of the fluctuated predictions (`cje_core.families.fluctuation`): stays within the
    oracle range
``label_mean``
    every evaluated response labelled: the mean label
``spline``
    fewer own labels: posterior mean of a logistic spline through the labels of other policies, with half
    of a one-step (`cje_core.formulas.borrowed`); status TRANSPORT_ASSUMED, interval of kind ``spline``
``balanced``
    (option, and where the spline is not defined: covariates, groups, several labels of one cluster, unequal
    label probabilities) mean f(Z) on the borrowed calibrator plus the slice's held-out residuals, weighted
    so that the labelled scores match the policy's (`cje_core.families.direct.balance`); status
    TRANSPORT_ASSUMED
``one_step``
    (option) the same with residuals reweighted by the density ratio of the two judge-score laws
``plug_in``
    (option, and the paper's) mean f(Z) on the borrowed calibrator, not corrected

A borrowed value is refused (NaN) where a one-sided test does not show that the judge ranks the labels the right way
(UNINFORMATIVE_JUDGE, `cje_core.calibration.informative`), and where the policy's scores lie where no label does
(LOW_SUPPORT, `cje_core.families.direct.balance.supported`). Then there are no differences with it either. The paper's
plug-in is never refused.

Rows are averaged within a prompt first (weight 1 / draws), since the estimand averages over prompts. With
power tuning (the default) f above is a tuned prediction, `cje_core.families.direct.power_tuning`: a useless judge
then costs next to nothing, and a calibrator that is noisier than a logistic curve gives way to the curve.

With ``calibration=Calibration(groups=NAME)`` f is shifted in each group of prompts, shrunk to the pooled one
(`cje_core.families.direct.subgroups`).

Uncertainty (``inference``): given the routes, point estimates do not depend on it, and the joint influence function of
all policies always comes along for contrasts.

``influence``
    one joint influence function per prompt, where a borrowed policy carries the error of the borrowed
    labels (a plug-in: the infinitesimal-jackknife term of the fit); t interval whose degrees of freedom
    follow the labelled clusters
``bootstrap``
    resampled clusters with a refitted calibrator (the paper's algorithm Bootstrap-Direct), percentile
    interval; or Bayesian weights, BCa, studentised
``jackknife``
    cluster variance + delete-one-oracle-fold variance (the paper's section "Calibration-aware inference")
``cluster``, ``plugin_iid``
    f taken as known, with and without clusters: the paper's baselines, which under-cover

``influence`` is the default (why not ``bootstrap``: ``docs/decisions.md``). It does not see the bias of a plug-in,
which drives the policies at the two ends of the scale apart: with a weak judge or binary labels the *difference* of two
plug-ins covers 80-88%, and under an independent judge two policies of equal value differ "significantly" in 17, 33 and
50% of the data sets with 50, 250 and 2,000 labels.
``balanced`` covers 94-97%, levels and differences alike, and 3-4% of those differences are false (before the refusals,
which leave 5% of these data sets): labels of the base policy only, 50 and 250, 4,000 data sets in each of the five
worlds of ``tests/core/families/test_borrowed_slow.py`` where calibrations transport. Where the judge passes its test
easily the median interval is 1.0-1.2 times as wide as the plug-in's for levels and .9-1.6 times for differences; with a
weak judge, which passes only just where it passes, 1.4-1.8 and 2.1-3.4 times (1,000 data sets each). ``one_step``
covers 93-98% but keeps half of the bias, with the other sign. Where the judge has two or three levels or most labels of
a level are equal ``balanced`` covers .69 to .84: equal residuals show no variance. ``spline`` covers .93 to 1.00 there
and is shorter elsewhere (``docs/decisions.md``).

Failure modes: a borrowed policy is biased where the calibration does not transport (audit it); isotonic fits extend
flat beyond the labelled scores; labels missing not at random bias everything.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.537, 'better': 0.586, 'slightly_better': 0.569, 'worse': 0.471}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.502, 0.666]
>>> set(found["route"].values.tolist())
{'theta_aug'}
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.checks import Rng, one_of
from cje_core.estimators import Role
from cje_core.families.assemble import assemble
from cje_core.families.direct.bootstrap import Bootstrap as Bootstrap
from cje_core.families.direct.bootstrap_intervals import add_draws
from cje_core.families.direct.fit import (
    BORROWED,
    Options,
    fit_policy,
    join_splines,
    make_lender,
    oracle_folds,
    with_spline_limits,
)
from cje_core.families.finish import Found, IntervalRule

NEEDS = {"judge", "oracle"}
ROLE = Role(offered="always", place=0)
CHOICES = {
    "inference": ("influence", "bootstrap", "jackknife", "cluster", "plugin_iid"),
    "correction": ("theta_aug", "horvitz_thompson", "tmle", "none"),
    "borrowed": BORROWED,
}


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    inference: str | Bootstrap = "influence",
    correction: str = "theta_aug",
    borrowed: str | None = None,
    power_tuned: bool = True,
    calibration: Calibration | None = None,
    interval: str = "auto",
) -> xr.Dataset:
    """Estimate each policy's value by Direct; see the module and its package.

    Parameters
    ----------
    inference : {"influence", "bootstrap", "jackknife", "cluster", "plugin_iid"} or Bootstrap
        ``bootstrap`` is ``Bootstrap()``.
    correction : {"theta_aug", "horvitz_thompson", "tmle", "none"}
        What own labels do; ``none`` never corrects (the paper's uncorrected baseline). Under a known ``label_prob``
        ``theta_aug`` divides by the sum of the weights (Hajek), ``horvitz_thompson`` by the number of responses.
    borrowed : {"spline", "balanced", "one_step", "plug_in"}, optional
        What a policy without labels of its own gets; only ``plug_in`` goes with bootstrap and jackknife. Default:
        ``spline`` where ``inference`` is ``influence`` and own labels correct, else (the paper's modes) ``plug_in``.
    power_tuned : bool
        Weigh calibrator and judge score by what they explain of a corrected policy's own labels
        (`cje_core.families.direct.power_tuning`); False is the paper's theta_aug, the calibrator in full weight.
    interval : str
        Of ``influence`` and ``jackknife``: also ``normal``, the paper's 1.96 standard errors.

    Returns
    -------
    And ``std_error_evaluation`` and ``std_error_calibration`` (the error due to the responses drawn, which falls with
    their number, and due to the labels, which falls with theirs: fit of a borrowed calibrator or own residuals) and
    ``calibration_share``, the latter's part of the variance. Bootstrapped: ``draws``, and the attribute ``n_rejected``
    counts resamples that held too few labels. Jackknife: ``jackknife(policy, fold)``, the values without each oracle
    fold. Power-tuned: the weights ``power_calibrator(policy)`` and ``power_curve(policy)``. Where a policy borrows and
    is corrected: the attributes ``judge_spearman`` and ``judge_p_value`` of the test that decides whether it may, and
    ``judge_widening``, how much larger errors along it are for having passed. Where a policy borrows by the spline:
    ``borrowed_...``, what limits at other levels and differences need (`cje_core.inference.borrowed_limits`).
    """
    given = calibrated(data, calibration)
    if correction == "horvitz_thompson" and "label_prob" not in given.data:
        raise ValueError(
            f"correction={correction!r}: it needs known label probabilities; give label_prob, or use 'theta_aug'"
        )
    found = find(
        given, ci_prob=ci_prob, rng=rng, inference=inference, correction=correction, borrowed=borrowed,
        power_tuned=power_tuned, interval=interval,
    )  # fmt: skip
    return assemble(given.data, found, estimator="direct", ci_prob=ci_prob)


def find(
    given: Calibrated,
    *,
    ci_prob: float,
    rng: Rng,
    inference: str | Bootstrap = "influence",
    correction: str = "theta_aug",
    borrowed: str | None = None,
    power_tuned: bool = True,
    interval: str = "auto",
) -> Found:
    """The same on rows, before intervals."""
    resampling = inference if isinstance(inference, Bootstrap) else Bootstrap()
    inference = "bootstrap" if isinstance(inference, Bootstrap) else inference
    borrowed = borrowed or _usual_form(inference, correction)
    for name, value in (("inference", inference), ("correction", correction), ("borrowed", borrowed)):
        one_of(value, name, CHOICES[name])
    if borrowed != "plug_in" and inference in ("bootstrap", "jackknife"):
        raise ValueError(f"borrowed={borrowed!r}: it has no {inference}; use inference='influence'")
    if given.group is not None and (
        inference != "influence" or correction == "none" or borrowed not in ("spline", "balanced")
    ):
        raise ValueError(
            f"groups={given.calibration.groups!r}: a calibrator with groups goes with inference='influence', labels "
            "that correct and borrowed='spline' or 'balanced'; leave the other choice, or the groups, out"
        )
    rows, fitted = given.rows, given.slice
    options = Options(
        inference=inference,
        correction="theta_aug" if correction == "horvitz_thompson" else correction,
        normalise="ht" if correction == "horvitz_thompson" else "hajek",
        quantile="normal" if interval == "normal" else "t",
        power_tuned=power_tuned,
        borrowed=borrowed,
        scale=given.scale,
        judge_range=given.judge_range,
        group=given.group,
    )
    lender = make_lender(rows, fitted, options)
    fits = [fit_policy(rows, fitted, p, options, lender) for p in range(len(rows.policies))]
    parts = join_splines(rows, fitted, fits, lender) if interval == "auto" else None
    results = with_spline_limits(fits, parts, ci_prob, options.scale)
    recorded: dict[str, object] = {
        "inference": inference, "correction": correction, "borrowed": borrowed, "power_tuned": power_tuned,
        "covariates": list(given.calibration.covariates), "calibrator": fitted.mode,
        "direction": given.calibration.direction, "interval": interval,
    }  # fmt: skip
    recorded |= given.calibration.recorded
    if given.group is not None:
        recorded["groups"] = given.calibration.groups
    extra: dict[str, object] = {}
    if inference == "bootstrap":
        recorded |= {"bootstrap": resampling.kind, "n_boot": resampling.n}
        recorded |= {} if resampling.n_min is None else {"n_min": resampling.n_min}
        extra["n_rejected"] = add_draws(
            rows, fitted, fits, results, options, resampling, ci_prob, np.random.default_rng(rng)
        )
    if inference == "jackknife":
        left_out = np.full((len(fits), len(oracle_folds(fitted))), np.nan)
        for row, fit in zip(left_out, fits, strict=True):
            if fit.left_out is not None:
                row[:] = fit.left_out
        extra["jackknife"] = (("policy", "fold"), left_out)
    if power_tuned:
        extra["power_calibrator"] = ("policy", [fit.prediction.power for fit in fits])
        extra["power_curve"] = ("policy", [fit.prediction.power_curve for fit in fits])
    if lender is not None:
        judge = lender.judge
        extra |= {
            "judge_spearman": judge.spearman,
            "judge_p_value": judge.p_value,
            "judge_widening": judge.widening,
        }
    rule = IntervalRule(
        "wald" if interval == "normal" else interval,
        rows.labelled & rows.evaluated if correction != "none" else None,
        resampling.kind,
    )
    return Found(rows, results, recorded, rule, decomposed=True, extra=extra, splines=parts)


def _usual_form(inference: str | Bootstrap, correction: str) -> str:
    """What a policy without labels of its own gets where nothing is asked for."""
    return "spline" if inference == "influence" and correction != "none" else "plug_in"
