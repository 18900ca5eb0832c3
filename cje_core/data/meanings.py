"""What each variable of a labelled result is called in words, and its unit: ``long_name`` and ``units``, said once.

Units are ``oracle scale`` and ``judge scale`` (the declared ranges stand in the attributes of the data), ``1`` for
shares, counts and probabilities, ``nats``, ``tokens``; a name has the empty unit.
"""

from collections.abc import Mapping

import xarray as xr

ORACLE, JUDGE, ONE, NATS, NAME = "oracle scale", "judge scale", "1", "nats", ""

COORDINATES = {
    "policy": ("policy", NAME),
    "prompt": ("prompt", NAME),
    "draw": ("draw of a response", ONE),
    "feature": ("covariate", NAME),
    "ci_bound": ("end of the interval", NAME),
    "method": ("estimator", NAME),
    "cluster": ("sampling unit of the prompt", NAME),
}
DATA = {
    "judge": ("judge score S", JUDGE),
    "oracle": ("oracle label Y", ORACLE),
    "labelled": ("whether the label teaches and corrects", ONE),
    "probe": ("whether the label audits", ONE),
    "evaluated": ("whether the response enters its policy's mean", ONE),
    "label_prob": ("probability that the response was labelled", ONE),
    "surprisal": ("mean surprisal per token of the policy's own response", NATS),
    "log_ratio": ("log-likelihood of the policy's own response less that under the logger", NATS),
    "stands_for": ("responses that this one stands for", ONE),
    "true_reward": ("true E[Y | Z]", ORACLE),
    "covariate": ("covariate X", "as given"),
    "logged_covariate": ("covariate of the logged response", "as given"),
    "stratum": ("stratum of the label design", NAME),
    "cohort": ("cohort of the prompt", NAME),
    "fold": ("cross-fitting fold that the user assigned", ONE),
    "logp_target": ("log-likelihood of the logged response under the target", NATS),
    "logp_logger": ("log-likelihood of the logged response under the logger", NATS),
    "n_tokens": ("length of the logged response", "tokens"),
    "logged_judge": ("judge score of the logged response", JUDGE),
    "logged_oracle": ("oracle label of the logged response", ORACLE),
    **COORDINATES,
}
ESTIMATE = {
    "estimate": ("value of the policy", ORACLE),
    "std_error": ("standard error", ORACLE),
    "interval": ("interval", ORACLE),
    "status": ("what happened to the estimate", ONE),
    "route": ("how the number came about", NAME),
    "source": ("whose labels the value rests on", NAME),
    "influence": ("influence of the prompt; their mean is the error", ORACLE),
    "balance": ("weight of the labels that a borrowed value takes from others", ONE),
    # what limits at any level and differences of borrowed values need: `cje_core.formulas.borrowed.Borrowed`
    "borrowed_draw": ("value as it moves with the curve through the borrowed labels", ORACLE),
    "borrowed_rest_draw": ("part of it that the one-step leaves", ORACLE),
    "borrowed_coefficient": ("what the value moves by each borrowed label", ONE),
    "borrowed_fitted": ("part of it that moves the curve", ONE),
    "borrowed_offset": ("value less the mean of its draws", ORACLE),
    "borrowed_response": ("root of the covariance that the responses drawn leave", ORACLE),
    "borrowed_own": ("whether own labels make the value", ONE),
    "borrowed_selection": ("weight of each draw for a judge that passed its test", ONE),
    "borrowed_variance": ("variance of each borrowed label by the curve", "squared oracle units"),
    "borrowed_square": ("squared residual of each borrowed label", "squared oracle units"),
    "draws": ("draws of the value", ORACLE),
    "df": ("degrees of freedom", ONE),
    "interval_kind": ("how the interval was made", NAME),
    "effective_count": ("effective count behind a binomial interval", ONE),
    "unseen_by": ("labels that may have missed a tail", ONE),
    "mean_weight": (
        "mean of the importance weights of the logged responses, one where the logs cover the policy",
        ONE,
    ),
    "unseen_weight": ("weight of an outcome that no label showed, beside the labels", ONE),
    "unseen_bound": ("value if outcomes that no label showed are as common as the labels allow", ORACLE),
    "skewness": ("skewness of the error", ONE),
    "std_error_evaluation": ("standard error from the responses drawn", ORACLE),
    "std_error_calibration": ("standard error from the labels that taught", ORACLE),
    "calibration_share": ("share of the labels in the variance", ONE),
    "power_calibrator": ("tuned weight of the calibrator", ONE),
    "power_curve": ("tuned weight of the judge's logistic curve", ONE),
    "lam": ("tuned weight of the judge", ONE),
    "unlabelled_mass": ("share of responses on judge levels without a label", ONE),
    "shift": ("mean residual of the probes", ORACLE),
    "shift_interval": ("interval of the shift", ORACLE),
    "shift_draws": ("draws of the shift", ORACLE),
    "within_margin": ("probability that the shift is harmless", ONE),
    "level": ("judge score of the level", JUDGE),
    "calibrator": ("draws of the calibrator f", ORACLE),
    "own_calibrator": ("draws of the policy's own calibrator", ORACLE),
    "ends": ("draws of f at the worst and the best score", ORACLE),
    "shape": ("weights of the I-splines", ONE),
    "sigma": ("spread of labels around f", ORACLE),
    "covariate_effect": ("effect of covariates on the log odds", ONE),
    "flat_judge": ("probability that the calibrator is flat", ONE),
    "rhat": ("largest R-hat", ONE),
    "ess_bulk": ("smallest bulk effective sample size", ONE),
    "ess_tail": ("smallest tail effective sample size", ONE),
    "divergences": ("divergent transitions", ONE),
    "bfmi": ("smallest Bayesian fraction of missing information", ONE),
    "chain": ("chain of the sampler", ONE),
    "sensitivity": ("share of good responses that the judge passes", ONE),
    "specificity": ("share of bad responses that the judge fails", ONE),
    "youden": ("Youden's J", ONE),
    "sensitivity_interval": ("interval of the sensitivity", ONE),
    "specificity_interval": ("interval of the specificity", ONE),
    "youden_interval": ("interval of Youden's J", ONE),
    "proportion": ("pass rate, false-pass rate or sensitivity of the judge", NAME),
    "proportion_value": ("share of responses that the judge passes", ONE),
    "proportion_count": ("effective count behind the share", ONE),
    "proportion_df": ("degrees of freedom of the share", ONE),
    "proportion_influence": ("influence of the prompt on the share; their mean is the error", ONE),
    "confusion_matrix": ("number of the labels behind the error rates; equal numbers share them", ONE),
    "width_vs_labels": ("width relative to labels alone", ONE),
    "alpha": ("weight of the off-policy part", ONE),
    "candidate": ("candidate of the weight stabilisation", NAME),
    "beta": ("weight of the candidate", ONE),
    "direct_part": ("direct part of a doubly robust value", ORACLE),
    "direct_part_interval": ("interval of the direct part", ORACLE),
    "direct_part_std_error": ("standard error of the direct part", ORACLE),
    "ips_part": ("weighted residuals of a doubly robust value", ORACLE),
    "ips_part_interval": ("interval of the weighted residuals", ORACLE),
    "ips_part_std_error": ("standard error of the weighted residuals", ORACLE),
    "part_correlation": ("correlation of the two parts", ONE),
    "ess_fraction": ("effective over actual logged responses, stabilised weights", ONE),
    "ess_fraction_raw": ("effective over actual logged responses, raw weights", ONE),
    "guard_engaged": ("whether the variance guard engaged", ONE),
    "n_logged_used": ("logged responses used", ONE),
    "label_correction": ("what the labels' balanced residuals add to the plug-in", ORACLE),
    "residual_df": ("degrees of freedom of the residuals", ONE),
    "residual_nan": ("logged responses without a residual", ONE),
    "orthogonality": ("score of the orthogonality test", ORACLE),
    "orthogonality_interval": ("interval of the orthogonality score", ORACLE),
    "orthogonality_std_error": ("standard error of the orthogonality score", ORACLE),
    "overlap_mass": ("share of two policies in the overlap population", ONE),
    "stack_rank": ("rank of the stacked covariance", ONE),
    "stack_support": ("members with weight", ONE),
    "member": ("member of the stack", NAME),
    "stack_weight": ("weight of the member", ONE),
    "epsilon": ("fluctuation of the targeting step", ONE),
    "difference": ("difference of two values", ORACLE),
    "first": ("first policy of the pair", NAME),
    "second": ("second policy of the pair", NAME),
    "p_value": ("p-value", ONE),
    "p_bh": ("p-value, Benjamini-Hochberg", ONE),
    "p_adjusted": ("adjusted p-value", ONE),
    "borrowed": ("whether the value borrows", ONE),
    "taken_from": ("estimator that the value is taken from", NAME),
    "width": ("width of the interval", ORACLE),
    "width_ratio": ("width over that of the first method", ONE),
    "overlap": ("shared over joint length of two intervals", ONE),
    "other_method": ("the other estimator", NAME),
    "truth": ("true value", ORACLE),
    "covers": ("whether the interval covers the truth", ONE),
    "interval_score": ("interval score", ORACLE),
    "ci_kind": ("kind of interval", NAME),
    **COORDINATES,
}


def attributes(name: str, table: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """``long_name`` and ``units`` of a variable; one that no table names is called what it is called.

    Examples
    --------
    >>> attributes("judge", DATA)
    {'long_name': 'judge score S', 'units': 'judge scale'}
    """
    words, units = table.get(name, (name.replace("_", " "), ONE))
    return {"long_name": words, "units": units}


def described(ds: xr.Dataset, table: Mapping[str, tuple[str, str]]) -> xr.Dataset:
    """The same dataset, whose variables say what they are; what they said already stays."""
    for name in ds.variables:
        said = ds.variables[name].attrs
        for key, text in attributes(str(name), table).items():
            said.setdefault(key, text)
    return ds
