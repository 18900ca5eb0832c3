"""Every formula of the core: what computes it, what computes it a second time for the tests, and what compares the two.

Each has, line by line: the quantity and its equation in a few words, and where the paper has it (its label or the title
of its section); the one function of `cje_core` that holds it; the compiled functions ``with`` which it is made, of the
same module unless they have a path; the slow second implementation, of ``tests/oracles`` or a library; the test, in
``tests``, that compares them.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Formula(NamedTuple):
    says: str
    paper: str
    holds: str  # dotted names without ``cje_core.``
    parts: tuple[str, ...]
    again: str
    test: str


TABLE = """
# --- means and their errors
weighted mean, error w (v - mean) / sum w by cluster | app:if-var
    inference.influence.mean_over
    with mean_and_moves weigh_rows clusters_behind correction
    statsmodels.api.WLS
    core/inference/test_second_forms.py::test_a_weighted_mean_and_its_error_are_weighted_least_squares
small-sample factor G / (G - 1) (n - 1) / (n - k)
    inference.influence.cr1_factor
    statsmodels.stats.sandwich_covariance.cov_cluster
    core/inference/test_influence.py::test_cr1_factor_is_statsmodels
variance n^-2 sum_g phi_g^2 | app:if-var
    inference.sums.cluster_se
    oracles_uncertainty.cluster_standard_error
    core/inference/test_influence.py::test_cluster_robust_mean_is_statsmodels
several sources of error: the sum of their influences | app:if-var
    inference.influence.combine
    with add_parts
    oracles_peers.join
    core/inference/test_second_forms.py::test_sources_of_error_add_as_their_sums_by_cluster
effective clusters (sum l^2)^2 / sum l^4
    inference.influence.effective_clusters
    oracles_borrowed.effective
    core/inference/test_second_forms.py::test_effective_clusters_and_kish_are_their_sums
Kish (sum w)^2 / sum w^2
    inference.influence.kish_ess
    oracles_weights.ess_fraction
    core/inference/test_second_forms.py::test_effective_clusters_and_kish_are_their_sums
Welch-Satterthwaite df, no narrower than one source
    inference.influence.pooled_df
    oracles_uncertainty.pooled_df
    core/inference/test_second_forms.py::test_pooled_degrees_of_freedom_are_welchs_or_solve_for_the_widest
the same of one sum of sources
    inference.influence.pooled_df_of_one
    oracles_uncertainty.pooled_df
    core/inference/test_second_forms.py::test_pooled_degrees_of_freedom_are_welchs_or_solve_for_the_widest
jackknife of unequal folds | app:oua
    inference.influence.delete_group_variance
    oracles_uncertainty.delete_group_variance
    core/inference/test_jackknife.py::test_weighted_jackknife_of_unequal_folds
acceleration sum u^3 / 6 (sum u^2)^1.5
    inference.influence.acceleration
    scipy.stats.skew
    core/inference/test_second_forms.py::test_skewness_and_acceleration_are_those_of_the_sums_by_cluster
simultaneous bands: quantile of the largest absolute t
    inference.influence.simultaneous_bands
    scipy.stats.norm
    core/inference/test_influence.py::test_critical_value_of_independent_and_of_identical_policies
serial dependence: variance under blocks of random length | Temporal dependence and logger drift
    inference.serial.stationary_bootstrap_se
    oracles_uncertainty.stationary_means
    core/inference/test_influence.py::test_stationary_bootstrap_variance_is_that_of_resampled_blocks

# --- calibration
isotonic regression | lem:iso-mean
    calibration.isotonic.isotonic
    with pool_into pava_into
    oracles.isotonic_minmax
    core/calibration/test_oracle_slice.py::test_isotonic_is_the_minmax_solution
linear between knots, constant outside
    calibration.isotonic.interpolate
    with interpolate_into locate between
    numpy.interp
    core/calibration/test_oracle_slice.py::test_many_values_are_interpolated_as_numpy_does
monotone calibrator: ties pooled, isotonic, linear | Shape constraints (isotonic)
    calibration.calibrator.fit
    with calibration.isotonic.ends_of_blocks
    oracles.calibrate
    core/calibration/test_oracle_slice.py::test_calibrator_matches_definition_and_preserves_the_slice_mean
two-stage calibrator: spline ridge, then isotonic | ssec:method-autocal
    calibration.calibrator.predict
    with calibration.isotonic.predict_at
    oracles_calibration.two_stage
    core/calibration/test_two_stage.py::test_two_stage_is_spline_ridge_then_isotonic_on_the_mid_rank
first stage: ridge, penalty by cross-validation, nonnegative | ssec:method-autocal
    calibration.two_stage.fit_first_stage
    with calibration.two_stage_kernels.locate_into calibration.two_stage_kernels.fit_into
    with calibration.two_stage_kernels.choose_penalty calibration.two_stage_kernels.make_monotone
    with calibration.two_stage_kernels.solve_free calibration.two_stage_kernels.coef_into
    with calibration.two_stage_kernels.index_into calibration.two_stage_kernels.index_at
    with calibration.two_stage_kernels.rounded
    oracles_calibration.gcv
    core/calibration/test_two_stage.py::test_two_stage_is_spline_ridge_then_isotonic_on_the_mid_rank
held-out prediction f^(-k) | ssec:method-autocal
    calibration.oracle_slice.held_out
    with fit_without_folds predict_without
    oracles_calibration.two_stage
    core/calibration/test_two_stage.py::test_pitfall_12_held_out_predictions_never_see_their_fold_and_are_nan_without_training_rows
fits without one fold, or two | alg:oua
    calibration.leave_out.LeaveOut.predict
    with calibration.leave_out.monotone_fits calibration.leave_out.first_stages
    with calibration.leave_out.predict_into calibration.two_stage_kernels.indices_into
    with calibration.two_stage_kernels.second_stages
    oracles_calibration.two_stage
    core/calibration/test_leave_out.py::test_fits_without_folds_are_their_definition
mass of a mean on the knots
    calibration.calibrator.knot_mass
    with mass_into
    oracles_uncertainty.hat_mass
    core/calibration/test_label_errors.py::test_leverage_is_the_slope_in_the_label
label leverage d mean f / d Y | prop:direct-eif
    calibration.calibrator.label_leverage
    oracles_uncertainty.label_slopes
    core/calibration/test_label_errors.py::test_leverage_is_the_slope_in_the_label
what the fit of f adds: leverage times residual | Variance decomposition
    calibration.oracle_slice.calibration_part
    oracles_uncertainty.calibration_error
    core/calibration/test_label_errors.py::test_the_error_of_a_borrowed_mean_is_its_definition
the same through the two-stage index | Variance decomposition
    calibration.two_stage.index_influence
    with calibration.two_stage_kernels.moved_sums_into
    oracles_calibration.functional_influence
    core/calibration/test_two_stage.py::test_the_influence_through_the_index_is_its_definition
labels look drawn at random: Kolmogorov and Smirnov | Oracle independence and leakage
    calibration.label_balance.kolmogorov_smirnov
    scipy.stats.ks_2samp
    core/calibration/test_label_balance.py::test_the_test_of_balance_is_kolmogorovs_and_smirnovs

# --- Direct with labels of the policy's own
plug-in: mean f | Direct (fresh responses under pi'; no overlap needed)
    families.direct.fit._plug_in
    oracles_uncertainty.value
    core/estimators/test_direct_routes.py::test_every_route_is_its_definition
theta_aug: mean f + mean_own (Y - f^(-k)) | eq:theta-aug
    families.direct.fit._one_step
    oracles.theta
    core/estimators/test_direct.py::test_theta_aug_and_plug_in_match_the_definition
its error in Hajek form, unequal probabilities | prop:direct-eif
    families.direct.fit._one_step
    oracles_uncertainty.own_error
    core/estimators/test_direct_errors.py::test_errors_of_own_label_routes_are_their_definition
Horvitz-Thompson: mean f + sum w (Y - f) / sum of all w | prop:direct-eif
    families.direct.fit._one_step
    oracles_uncertainty.own_error
    core/estimators/test_direct_errors.py::test_errors_of_own_label_routes_are_their_definition
TMLE: score equation in the clever covariate 1 / e | app:eif-direct
    families.fluctuation.fluctuate
    with expit
    statsmodels.genmod.generalized_linear_model.GLM
    core/families/test_fluctuation.py::test_the_fluctuation_is_the_logistic_regression_of_statsmodels
predictions moved by it | app:eif-direct
    families.fluctuation.targeted
    with target_into logit_inside _logit
    oracles_uncertainty.pieces
    core/estimators/test_direct_routes.py::test_every_route_is_its_definition
mean label of a policy labelled throughout
    families.direct.fit.fit_policy
    oracles_uncertainty.own_error
    core/estimators/test_direct_errors.py::test_a_fully_labelled_policy_is_its_weighted_label_mean
jackknife of Direct over oracle folds | Delete-one-fold jackknife
    families.direct.fit._fold_part
    oracles_uncertainty.delete_group_variance
    core/inference/test_jackknife.py::test_jackknife_leaves_out_one_oracle_fold_at_a_time
judge's logistic curve, each cluster left out in one step
    families.direct.curve.judge_curve
    with fit_curve without_each keep_distinct clusters_at
    oracles_tuning.curve
    core/families/test_power_tuning.py::test_against_the_slow_version
tuned weights: least variance over w >= 0, sum w <= 1 | eq:theta-aug
    families.direct.power_tuning.tuned_prediction
    with tune moments simplex_weights
    oracles_tuning.best_weights
    core/families/test_power_tuning.py::test_against_the_slow_version
what tuning costs: (m - 1) / (m - 1 - q)
    families.direct.power_tuning.charge
    statsmodels.api.OLS
    core/families/test_power_tuning.py::test_the_charge_is_that_of_a_regression
shifts of groups: moment estimate of their variance | Subgroups and fairness
    families.direct.subgroups.pooled_shift
    oracles_uncertainty.group_shifts
    core/families/test_subgroups.py::test_shifts_match_the_definition
the same without the labels of a fold | Subgroups and fairness
    families.direct.subgroups.shifts
    oracles_uncertainty.group_shifts
    core/families/test_subgroups.py::test_the_shift_of_a_label_does_not_know_its_fold
efficiency bound: E[Y given Z] in place of f | prop:direct-eif
    estimators.oracle_bound.efficient_value
    oracles_peers.efficient
    core/estimators/test_oracle_bound.py::test_matches_the_definition

# --- Direct with borrowed labels
balanced one-step: weights that match 1, S, a natural cubic
    families.direct.balance.balanced_residual
    with terms_into
    oracles_borrowed.balanced
    core/families/test_balance.py::test_the_balanced_value_and_its_error_are_their_definition
density-ratio one-step | prop:direct-eif
    families.direct.balance.density_ratio_residual
    oracles_uncertainty.one_step
    core/estimators/test_direct_routes.py::test_one_step_of_a_borrowed_policy_is_its_definition
rank test: weighted Spearman, by cluster | Judge informativeness (garbling)
    inference.rank_test.rank_test
    with rank_statistic standard_ranks
    oracles_borrowed.weighted_rank_test
    core/families/test_balance.py::test_the_weighted_rank_test_is_its_definition
the same of independent rows | Judge informativeness (garbling)
    inference.rank_test.rank_test
    scipy.stats.spearmanr
    core/families/test_balance.py::test_rank_test_is_spearmans_where_rows_are_independent
widening for values seen only where the judge passes
    calibration.informative.widening
    oracles_borrowed.widening
    core/families/test_balance.py::test_what_is_looked_at_only_where_it_passes_is_covered_all_the_same
df of a difference of two that borrow
    inference.pairs.lent_df
    oracles_borrowed.lent_df
    core/families/test_balance.py::test_the_degrees_of_freedom_of_a_difference_are_of_the_labels_that_it_rests_on
spline posterior of borrowed values: modes on a grid
    formulas.borrowed.make_curve
    with find_mode
    oracles_spline.Posterior
    core/families/test_spline.py::test_values_and_limits_are_their_definition
its limits, of values and of differences
    formulas.borrowed.limits
    oracles_spline.Posterior
    core/families/test_spline.py::test_values_and_limits_are_their_definition

# --- replicates
bootstrap replicate: values, the calibrator refitted | alg:bootstrap-direct
    families.direct.bootstrap.replicate_values
    with families.direct.bootstrap_kernels.direct_replicates families.direct.bootstrap_kernels.policy_value
    with families.direct.refit_kernels.monotone_fits families.direct.refit_kernels.spread_into
    oracles_uncertainty.value
    core/families/test_bootstrap.py::test_kernel_is_the_definition_under_any_cluster_weights
its analytic variance | alg:bootstrap-direct
    families.direct.bootstrap.replicate_values
    with families.direct.bootstrap_kernels.policy_variance families.direct.bootstrap_kernels.knot_blocks
    oracles_uncertainty.variance
    core/families/test_bootstrap.py::test_kernel_is_the_definition_under_any_cluster_weights
both stages refitted | alg:bootstrap-direct
    families.direct.bootstrap.replicate_values
    with calibration.two_stage_kernels.pool_ties
    with calibration.two_stage_kernels.two_stage_fits calibration.two_stage_kernels.second_stage_into
    with calibration.two_stage_kernels.add_moments
    oracles_calibration.two_stage
    core/calibration/test_two_stage.py::test_bootstrap_replicates_refit_both_stages
cells in place of rows: the law of resampled rows
    families.direct.bootstrap.bootstrap_direct
    with families.direct.cells._count_into families.direct.bootstrap_kernels.hidden_variance
    scipy.stats.ks_2samp
    core/families/test_cells.py::test_the_bootstrap_has_the_law_of_the_row_bootstrap
BCa interval
    inference.estimate.bca
    oracles_uncertainty.bca
    core/families/test_bootstrap.py::test_bca_matches_its_formula
studentised interval
    inference.estimate.studentised
    oracles_uncertainty.studentised
    core/families/test_bootstrap.py::test_studentised_interval_turns_the_pivot_round
projection posterior: isotonic under random weights
    bayes.projection.projected_values
    with _projections
    oracles_bayes.projection_draws
    core/bayes/test_value.py::test_projection_against_a_loop

# --- limits
t interval | Calibration-aware confidence intervals
    inference.estimate.wald
    scipy.stats.t
    core/inference/test_contrasts.py::test_contrasts_against_loops
t on the logit
    inference.estimate.logit_wald
    oracles_uncertainty.logit_interval
    core/inference/test_influence.py::test_logit_interval_matches_its_definition_and_approaches_wald
shortest interval of draws
    inference.estimate.hdi
    arviz.hdi
    core/bayes/test_decisions.py::test_hdi_against_arviz
two binomial tails
    inference.estimate.clopper_pearson
    oracles_bounded.tail_interval
    core/families/test_intervals.py::test_clopper_pearson_inverts_the_binomial_tails
effective count of binary labels
    families.intervals.evidence_of
    with look_at_labels
    oracles_bounded.tail_interval
    core/families/test_intervals.py::test_clusters_count_as_one_observation
gamma limits with room
    inference.limits.value_limits
    oracles_bounded.gamma_limits
    core/families/test_intervals.py::test_limits_of_graded_labels_by_a_slow_form
weight of unseen outcomes
    formulas.room.unseen_weight
    oracles_bounded.unseen
    core/families/test_intervals.py::test_weights_of_unseen_outcomes_are_their_definition
weight of a crowd at an end
    formulas.room.crowding
    oracles_bounded.unseen
    core/families/test_intervals.py::test_weights_of_unseen_outcomes_are_their_definition
share of scores beyond the labelled
    formulas.room.share_beyond
    oracles_bounded.unseen
    core/families/test_intervals.py::test_weights_of_unseen_outcomes_are_their_definition
skewness of an error
    inference.limits.error_skewness
    scipy.stats.skew
    core/inference/test_second_forms.py::test_skewness_and_acceleration_are_those_of_the_sums_by_cluster
Wilson's interval of effective counts
    formulas.proportions.wilson
    statsmodels.stats.proportion.proportion_confint
    core/estimators/test_rogan_gladen.py::test_wilson_is_statsmodels_also_for_counts_that_are_not_whole

# --- differences and orders
difference, its joint error and t interval | Selection and multiplicity
    inference.pairs.pair_errors
    oracles_compare.contrast_error
    core/inference/test_contrasts.py::test_contrasts_against_loops
MOVER: from the limits of two levels
    inference.pairs.pair_levels
    oracles_bounded.mover
    core/families/test_intervals.py::test_differences_against_the_formula_in_loops
by error, skewness and room
    inference.pairs.pair_levels
    oracles_bounded.gamma_limits
    core/families/test_intervals.py::test_room_and_skewness_reach_the_differences
adjusted p-values | Selection and multiplicity
    inference.contrasts.adjust_p
    statsmodels.stats.multitest.multipletests
    core/inference/test_contrasts.py::test_adjusted_p_values_are_statsmodels
level of all differences together | Selection and multiplicity
    inference.ranks.simultaneous_prob
    scipy.stats.studentized_range
    core/inference/test_ranks.py::test_few_clusters_have_the_level_of_tukeys_range
probability of being best
    inference.ranks.probability_best
    scipy.stats.t
    core/inference/test_ranks.py::test_best_of_two_is_the_win_probability
PairAcc and Kendall's tau | Metrics
    inference.ranks.kendall
    oracles_compare.concordance
    core/inference/test_ranks.py::test_metrics_against_loops_and_scipy
kappa, AC1, alpha, correlation of judge and oracle
    inference.raters.agreement
    statsmodels.stats.inter_rater.cohens_kappa
    core/inference/test_raters.py::test_values_and_intervals_against_loops

# --- peers
label mean plus lambda times the judge's gap (PPI, PPI++)
    families.prediction_powered.powered_mean
    oracles_peers.prediction_powered
    core/estimators/test_ppi.py::test_matches_the_definition
the same with normal quantiles
    families.prediction_powered.powered_mean
    ppi_py.ppi_mean_ci
    core/estimators/test_ppi.py::test_z_mode_is_ppi_python
Rogan-Gladen (p + Sp - 1) / (Se + Sp - 1) | ssec:binary
    estimators.rogan_gladen._estimated
    oracles_peers.rogan_gladen
    core/estimators/test_rogan_gladen.py::test_matches_the_definition
limits that invert a test | ssec:binary
    formulas.misclassification.value_limits
    oracles_peers.fieller
    core/estimators/test_rogan_gladen.py::test_the_default_keeps_each_share_that_a_test_does_not_reject
limits of differences under one matrix | ssec:binary
    formulas.misclassification.difference_limits
    oracles_peers.fieller_difference
    core/estimators/test_rogan_gladen.py::test_differences_under_one_matrix_invert_a_test
Lee's interval | ssec:binary
    estimators.rogan_gladen.lee_interval
    oracles_peers.lee
    core/estimators/test_rogan_gladen.py::test_intervals_match_the_definition
probes: residuals lean on lambda f | prop:mean-transport
    estimators.direct_corrected.probe_value
    oracles_transport.probe_value
    core/estimators/test_direct_corrected.py::test_value_and_error_against_the_definition

# --- weights
mean-one ratios | Observed data and policies
    offpolicy.weights.mean_one
    oracles_weights.mean_one
    core/offpolicy/test_weights.py::test_mean_one_against_the_definition
ESS / n | Variance, overlap, and stabilization
    offpolicy.weights.ess_fraction
    oracles_weights.ess_fraction
    core/offpolicy/test_weights.py::test_ess_fraction_edges
monotone and of mean one | app:projections
    calibration.isotonic.iso_mean_one
    oracles_weights.iso_mean_one
    core/offpolicy/test_weights.py::test_iso_mean_one_against_min_max_and_majorisation
capped weights | Variance, overlap, and stabilization
    offpolicy.weights.clip
    oracles_ope.ips
    core/estimators/test_off_policy.py::test_importance_sampling_matches_the_definition
overlap weights r / (1 + r) | Overlap (positivity)
    offpolicy.weights.overlap_weights
    oracles_ope.overlap_population
    core/estimators/test_overlap_weights.py::test_exact_by_enumeration
SIMCal: stack of monotone candidates | alg:simcalw
    offpolicy.weights.stabilise
    oracles_weights.candidates
    core/offpolicy/test_weights_stabilised.py::test_stabilise_against_loops
quadratic programme over the simplex | ssec:method-simcal
    offpolicy.simplex.simplex_qp
    oracles_weights.simplex_by_supports
    core/offpolicy/test_weights.py::test_simplex_qp_against_a_least_squares_solution_for_every_support

# --- values from logged responses
IPS, plain
    estimators.ips.policy_value
    oracles_ope.plain_ips
    core/estimators/test_off_policy.py::test_plain_importance_sampling_matches_the_definition
SNIPS, sum W R / sum W | Calibrated IPS
    families.off_policy.value.ips_value
    oracles_ope.ips
    core/estimators/test_off_policy.py::test_importance_sampling_matches_the_definition
their standard error | app:if-var
    families.off_policy.value.hajek
    oracles_ope.snips_standard_error
    core/estimators/test_off_policy_inference.py::test_standard_error_of_snips_matches_the_definition
DR, mean q + sum W (R - q) / sum W | alg:drcpo
    families.off_policy.value.dr_value
    oracles_ope.doubly_robust
    core/estimators/test_off_policy.py::test_doubly_robust_matches_the_definition
MRDR, q fitted by omega(W)
    estimators.mrdr.weighted_outcome
    oracles_ope.weighted_outcomes
    core/estimators/test_off_policy.py::test_mrdr_matches_the_definition
TMLE of logged responses
    estimators.tmle.policy_value
    oracles_ope.tmle
    core/estimators/test_off_policy.py::test_tmle_matches_the_definition
stack of least variance | alg:ifstack
    estimators.stacked_dr.stack_weights
    oracles_ope.best_stack
    core/estimators/test_stacked_dr.py::test_stack_is_the_convex_combination_of_least_variance
q(X, A) by least squares | app:nuisances
    formulas.linear_outcome.linear_outcome
    oracles_ope.fitted_outcomes
    core/families/test_outcome_model.py::test_values_match_the_definition
smoother of the direct part | app:nuisances
    families.off_policy.smooth.smoothed_mean
    numpy.linalg.lstsq
    core/families/test_smooth.py::test_weights_are_the_definition_fold_by_fold
labels' correction of a value's calibrators
    families.off_policy.labels.label_error
    oracles_borrowed.terms
    core/families/test_off_policy_labels.py::test_the_correction_is_the_balanced_mean_of_held_out_residuals
jackknife of reruns | alg:oua
    families.off_policy.estimate.jackknife
    oracles_ope.folds_of
    core/estimators/test_off_policy_inference.py::test_jackknife_is_the_rerun_without_each_fold
DM-IPS decomposition
    families.off_policy.estimate.decomposition
    oracles_ope.outcomes
    core/estimators/test_double_robustness.py::test_decomposition_adds_up_and_matches_the_definition
df of a heavy-tailed variance, 2 G / (kurtosis - 1)
    families.off_policy.residual_tails.variance_df
    scipy.stats.kurtosis
    core/inference/test_second_forms.py::test_degrees_of_freedom_of_a_variance_are_those_of_its_kurtosis

# --- overlap
affinity, with a jackknife | Overlap (positivity)
    offpolicy.overlap.affinity
    with _affinity_without
    oracles_weights.affinity
    core/offpolicy/test_overlap.py::test_affinity_against_loops
Hill's tail index | Variance, overlap, and stabilization
    offpolicy.overlap.hill
    oracles_weights.hill
    core/offpolicy/test_overlap.py::test_hill_against_the_definition
TTC | Diagnostics for CLE
    offpolicy.typicality.typicality
    oracles_weights.ttc
    core/offpolicy/test_typicality.py::test_ttc_against_loops_and_pitfall_19_its_interval_contains_it
CLE factor | eq:cle-bound
    offpolicy.typicality.cle_factor
    oracles_weights.cle
    core/offpolicy/test_typicality.py::test_cle_against_the_definition
ratios calibrate: test functions | Calibration for OPE
    formulas.ratio_calibration.compare
    oracles_ratios.z_statistics
    core/offpolicy/test_ratio_calibration.py::test_statistics_against_loops

# --- transport
mean residual of probes, and its error | eq:transport-decomp
    transport.audit.mean_residual
    statsmodels.api.OLS
    core/transport/test_audit.py::test_the_mean_residual_is_a_regression_on_a_constant
power of the audit
    transport.audit_size.audit_power
    scipy.stats.t
    core/transport/test_audit_size.py::test_power_against_draws_of_the_statistics
betting interval
    transport.audit_size.sequential_audit
    with _betting _won_upwards _won_downwards
    oracles_transport.betting_interval
    core/transport/test_audit_size.py::test_betting_interval_against_its_definition
residuals within bins and groups, f refitted | Scope of the mean transport test
    transport.local_bootstrap.bootstrap
    with _draw_into _refit_into
    oracles_transport.group_residuals
    core/transport/test_local_audits.py::test_draws_are_those_of_a_plain_loop
tau-b and its permutation test | Calibration failure modes
    transport.drift.rank_drift
    with _at_least
    oracles_transport.permutation_p
    core/transport/test_drift.py::test_ties_small_enough_are_enumerated
CUSUM and EWMA charts | Calibration failure modes
    transport.drift._paths
    oracles_transport.charts
    core/transport/test_drift.py::test_charts_are_their_recursion
run length of a CUSUM
    transport.drift.cusum_arl
    oracles_transport.run_length
    core/transport/test_drift.py::test_run_length_against_the_markov_chain
bias-aware interval
    transport.sensitivity.half_width
    oracles_sensitivity.critical_value
    core/transport/test_sensitivity.py::test_half_width_solves_its_equation
identified set under a bounded residual
    transport.sensitivity.bounds
    oracles_sensitivity.identified_set
    core/transport/test_sensitivity.py::test_bounds_equal_the_linear_programme
bounds of a level out of range | Calibration coverage (identification)
    verdict.refusal.partial_identification
    oracles_transport.bounds
    core/verdict/test_refusal.py::test_bounds_against_their_definition

# --- planning
n and m under a budget | prop:sqrt-allocation
    planning.allocation.allocate
    oracles_compare.best_plan
    core/planning/test_allocation.py::test_allocation_is_never_beaten_by_any_pair_of_whole_numbers
power of a contrast | app:budget
    planning.power.power_at
    statsmodels.stats.power.normal_power
    core/planning/test_allocation.py::test_power_is_that_of_a_normal_test_in_the_limit_and_known_at_any_effect
variance components of own labels | Variance decomposition
    planning.components.variance_components
    oracles_compare.two_phase
    core/planning/test_allocation.py::test_components_of_own_labels_are_the_two_phase_formula
of borrowed values | Variance decomposition
    planning.components.variance_components
    oracles_plan.borrowed
    core/planning/test_components.py::test_components_of_borrowed_values_are_their_definition

# --- pieces of the posteriors
I-splines
    bayes.splines.isplines
    oracles_bayes.isplines_by_integration
    core/bayes/test_gibbs.py::test_isplines_integrate_msplines
posterior of the calibrator
    bayes.gibbs.sample
    oracles_bayes.posterior_by_importance
    core/bayes/test_gibbs.py::test_posterior_against_importance_sampling
with covariates
    bayes.covariates.sample
    oracles_bayes.two_stage_by_importance
    core/bayes/test_covariates.py::test_posterior_against_importance_sampling
its prior's density
    bayes.diagnostics.power_scaling.log_prior
    oracles_bayes.log_prior
    core/bayes/test_diagnostics.py::test_the_prior_s_density_is_that_of_the_definition
probability of a flat judge
    bayes.flat.probability
    oracles_bayes.probability_of_flat
    core/bayes/test_prior.py::test_probability_of_a_flat_judge_is_bayes_theorem
draws of values, own labels and borrowed
    bayes.value.values
    oracles_bayes.value_draws
    core/bayes/test_value.py::test_values_against_a_loop
shifts of probed policies
    bayes.shifts.shifts
    oracles_bayes.shift_posterior
    core/bayes/test_shifts.py::test_pooled_priors_against_quadrature
misclassification of a binary judge
    bayes.misclassification.sample
    oracles_bayes.rogan_gladen_moments
    core/bayes/test_misclassification.py::test_posterior_against_quadrature
bounded law of graded labels
    bayes.models.likelihoods.bounded_log_density
    oracles_bayes_models.bounded_posterior
    core/bayes/test_generative.py::test_bounded_posterior_is_that_of_importance_sampling_for_both_engines
"""


def formulas() -> Iterator[Formula]:
    """Read the table."""
    for block in TABLE.replace("\n    ", "\t").splitlines():
        if block and not block.startswith("#"):
            first, holds, *parts, again, test = block.split("\t")
            says, _, paper = first.partition(" | ")
            module = holds.rpartition(".")[0]
            named = " ".join(part.removeprefix("with ") for part in parts).split()
            yield Formula(
                says, paper, holds, tuple(n if "." in n else f"{module}.{n}" for n in named), again, test
            )


FORMULAS = list(formulas())
