"""What "Causal Judge Evaluation" states or asks for, row by row, and the public call or command that does it.

``at`` is the paper's own label or the title of its section or paragraph; ``by`` names what does it (dotted names below
``cje_core`` or of another package, and commands that begin with cje-lab); ``holds`` runs it on a small world
(`paper_world.Small`) and says whether what came out is what the row says. Rows without ``holds`` state what only a
study or the ledger of claims can decide: ``by`` is then where they will stand. `test_paper_rows` runs the table.
"""

import numpy as np
from paper_checks import (
    aipw,
    bootstrap,
    borrowed_mean,
    cached,
    chain,
    cle,
    column_read,
    conformance,
    coverage_badge,
    folds,
    gate_states,
    influence_mean,
    jackknife_of,
    lee_split,
    pairs_in_order,
    probes_as_residuals,
    pseudo_values,
    rank_pieces,
    redrawn,
    sandwich,
    simplex,
    stack_of,
    steps_again,
    theta_aug,
    ttc,
    tuned,
    values_by_group,
)  # fmt: skip
from paper_diagnostics import DIAGNOSTICS, REPORTING
from paper_world import LENGTH, Row

from cje_core.calibration import calibrator, isotonic, label_balance, oracle_slice
from cje_core.calibration import folds as folds_of
from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.reliability import calibration_curve
from cje_core.data import cohorts
from cje_core.estimators import rogan_gladen
from cje_core.inference import ranks, serial
from cje_core.io.schema.redacted import redact
from cje_core.offpolicy import weights
from cje_core.offpolicy.ratio_calibration import ratio_calibration
from cje_core.planning import allocation
from cje_core.transport import drift, local_audits
from cje_core.verdict import gates
from cje_core.workflow.paper import PAPER, paper_estimator
from cje_sim.exact import divergences, typicality
from cje_sim.judges import garble

near = np.allclose
COSTS = {"cost_judge": 0.01, "cost_oracle": 0.16}


SETUP = (
    Row("Setup \\& notation", "importance ratio of a logged response, from log-likelihoods",
        "offpolicy.weights.log_ratios",
        lambda w: near(w.ratio, w.logged.logp_target[w.p] - w.logged.logp_logger)),
    Row("Observed data and policies", "mean-one ratios with one global denominator", "offpolicy.weights.mean_one",
        lambda w: near(w.weight, np.exp(w.ratio) / np.exp(w.ratio).mean())),
    Row("Two operating modes: ranking vs.\\ levels", "an order of policies where levels are refused",
        "verdict.refusal.rank_only", rank_pieces),
    Row("Variance, overlap, and stabilization", "ESS/n = 1 / (1 + CV^2)", "offpolicy.weights.ess_fraction",
        lambda w: near(weights.ess_fraction(w.weight), 1 / (1 + w.weight.var()))),
    Row("Variance, overlap, and stabilization", "clipped weights, brought back to mean one",
        "offpolicy.weights.clip", lambda w: near(weights.clip(w.weight, 2.0).mean(), 1)),
    Row("Variance, overlap, and stabilization", "overlap weights, whose estimand is another",
        "offpolicy.weights.overlap_weights",
        lambda w: near(weights.overlap_weights([0.0, np.log(3.0)]), [0.8, 1.2])),
    Row("eq:cle-bound", "the floor's factor is coverage penalty times shape mismatch",
        "offpolicy.typicality.cle_factor, offpolicy.overlap.overlap", cle),
    Row("Calibration for OPE", "E_0[W h] against E_target[h] for a class of test functions",
        "offpolicy.ratio_calibration.ratio_calibration", lambda w: "verdict" in ratio_calibration(w.given)),
    Row("Diagnostics for CLE", "TTC: logged mass below the target's 90% surprisal",
        "offpolicy.typicality.typicality, offpolicy.overlap.overlap", ttc),
    Row("Diagnostics for CLE", "without draws of the target, a proxy from weights",
        "offpolicy.typicality.weighted_typicality", lambda w: ttc(w, proxy=True)),
    Row("Shape constraints (isotonic)", "isotonic regression by pooling of adjacent violators",
        "calibration.isotonic.isotonic",
        lambda w: near(isotonic.isotonic(np.array([0.0, 2.0, 1.0]), np.ones(3))[0], [0, 1.5, 1.5])),
    Row("eq:transport-decomp", "error of the surrogate value is the mean residual", "transport.audit.audit",
        probes_as_residuals),
    Row("Surrogate interpretation", "residuals checked over the judge's scale, not on average alone",
        "transport.local_audits.binned_audit, cje-lab audit binned",
        lambda w: "bin" in local_audits.binned_audit(w.given, n_bins=3).dims),
)  # fmt: skip

METHODS = (
    Row("ssec:method-autocal", "a two-stage calibrator keeps the mean of its labels",
        "calibration.calibrated.Calibration",
        lambda w: near(np.mean(calibrator.predict(w.with_length.slice.calibrator, w.with_length.slice.z)),
                       w.slice.label.mean())),
    Row("ssec:method-autocal", "so does the monotone one", "calibration.calibrator.predict",
        lambda w: near(np.mean(calibrator.predict(w.slice.calibrator, w.slice.z)), w.slice.label.mean())),
    Row("ssec:method-autocal", "rewards out of fold", "calibration.oracle_slice.held_out",
        lambda w: not near(oracle_slice.held_out(w.slice, w.slice.z, w.slice.prompt),
                           calibrator.predict(w.slice.calibrator, w.slice.z))),
    Row("fig:reward-calibration", "both calibrators against the labels", "figures.calibration_curve",
        lambda w: w.drawn("calibration_curve", calibration_curve(w.given))),
    Row("fig:two-stage-detail", "first-stage effects and second stage", "figures.covariate_effects",
        lambda w: w.drawn("covariate_effects", calibration_curve(w.with_length))),
    Row("ssec:method-simcal", "stack of up, down and identity, then the guard", "offpolicy.weights.stabilise",
        lambda w: near(w.stable.weight.mean(), 1) and near(w.stable.beta.sum(), 1)),
    Row("ssec:method-simcal", "the simplex quadratic program", "offpolicy.weights.simplex_qp", simplex),
    Row("ssec:method-simcal", "the guard's blend", "offpolicy.weights.guard_blend",
        lambda w: near((1 + weights.guard_blend([0.0, 4.0], 1.0) * (np.array([0.0, 4.0]) - 2)).var(), 1)),
    Row("Direct (fresh responses under $\\pi'$; no overlap needed)", "mean calibrated reward",
        "estimators.direct.estimate", borrowed_mean),
    Row("Calibrated IPS", "mean of stabilised weight times reward", "estimators.calibrated_ips.estimate",
        lambda w: near(w.value("calibrated_ips", borrowed="plug_in"),
                       (w.stable.weight * w.given.logged_reward).mean())),
    Row("Calibrated DR (doubly robust with calibrated rewards)", "direct part plus weighted residual",
        "estimators.calibrated_dr_cpo.estimate",
        lambda w: near(w.estimate("calibrated_dr_cpo").direct_part + w.estimate("calibrated_dr_cpo").ips_part
                       + w.estimate("calibrated_dr_cpo").label_correction,
                       w.estimate("calibrated_dr_cpo").estimate)),
    Row("ssec:method-stack", "weights of least variance over influence columns", "estimators.stacked_dr.estimate",
        stack_of),
    Row("Variance decomposition", "sampling given f, and learning f", "estimators.direct.estimate",
        lambda w: near(w.estimate("direct", inference="jackknife").std_error**2,
                       w.estimate("direct", inference="jackknife").std_error_evaluation**2
                       + w.estimate("direct", inference="jackknife").std_error_calibration**2)),
    Row("Delete-one-fold jackknife", "(K-1)/K sum of squares about the mean",
        "families.off_policy.estimate.jackknife", jackknife_of),
    Row("Calibration-aware confidence intervals", "1.96 standard errors of the total", "estimators.direct.estimate",
        lambda w: near(np.diff(w.estimate("direct", inference="jackknife", interval="normal").interval).ravel(),
                       2 * 1.959963985 * w.estimate("direct", inference="jackknife", interval="normal").std_error)),
    Row("eq:theta-aug", "plug-in plus mean held-out residual of own labels", "estimators.direct.estimate", theta_aug),
    Row("eq:theta-aug", "the same tuned, never wider asymptotically", "estimators.direct.estimate", tuned),
    Row("Bootstrap with bias-corrected estimation", "refit in each replicate",
        "estimators.direct.estimate", bootstrap),
)  # fmt: skip

THEORY = (
    Row("prop:direct-eif", "influence values of the one-step average to zero", "estimators.direct.estimate",
        influence_mean),
    Row("prop:direct-eif", "known unequal label probabilities (AIPW)", "estimators.direct.estimate", aipw),
    Row("app:eif-direct", "TMLE with the clever covariate L/e", "estimators.direct.estimate",
        lambda w: abs(w.value("direct", "base", correction="tmle", power_tuned=False)
                      - w.value("direct", "base", power_tuned=False)) < 0.02),
    Row("prop:mean-transport", "oracle minus surrogate value is the mean residual", "transport.audit.audit",
        probes_as_residuals),
    Row("lem:iso-mean", "isotonic regression keeps the mean", "calibration.isotonic.isotonic",
        lambda w: near(isotonic.isotonic(w.slice.label, np.ones(len(w.slice.label)))[0].mean(), w.slice.label.mean())),
    Row("lem:maj", "and pools, so that convex sums fall", "calibration.isotonic.isotonic",
        lambda w: (isotonic.isotonic(w.slice.label, np.ones(len(w.slice.label)))[0] ** 2).sum()
        <= (w.slice.label**2).sum()),
    Row("lem:oof-mean", "held-out predictions keep the mean on average", "cje-lab claims lem-oof-mean"),
    Row("lem:guard", "a cap relative to the variance of the raw weights", "offpolicy.weights.stabilise",
        lambda w: weights.stabilise(w.weight, w.logged.z[:, 0], w.given.logged_reward, w.slice.fold,
                                    guard="relative").weight.var() <= w.weight.var() * (1 + 1e-9)),
    Row("app:projections", "exact projection: monotone and of mean one", "calibration.isotonic.iso_mean_one",
        lambda w: near(isotonic.iso_mean_one(w.weight, w.logged.z[:, 0], True).mean(), 1)
        and weights.ess_fraction(isotonic.iso_mean_one(w.weight, w.logged.z[:, 0], True))
        >= weights.ess_fraction(w.weight)),
    Row("app:nuisances", "g from rollouts: mean of q over the policy's draws", "estimators.dr_cpo.estimate",
        lambda w: near(w.estimate("dr_cpo").direct_part.sel(policy="clone"),
                       w.logs.outcomes[()].fresh[w.logs.of(w.p).fresh].mean())),
    Row("app:nuisances", "a light smoother of g, the same where every prompt has fresh responses",
        "families.off_policy.smooth.smoothed_mean, estimators.dr_cpo.estimate",
        lambda w: near(w.value("dr_cpo", smooth_g=True), w.value("dr_cpo"))),
    Row("app:if-var", "variance n^-2 sum phi^2 and a Wald interval", "inference.sums.cluster_se", sandwich),
    Row("app:oua", "unequal folds take the weighted delete-one-group formula",
        "inference.influence.delete_group_variance", pseudo_values),
    Row("lem:weight-identity", "second moment of the ratio on a region is its chi-square",
        "cje_sim.exact.divergences.log1p_chi2",
        lambda w: near(np.exp(divergences.log1p_chi2(*w.laws)), (np.exp(2 * w.laws[0] - w.laws[1])).sum())),
    Row("prop:cle", "the bound beside Monte Carlo, zero violations",
        "cje-lab run cle_bound, cje-lab claims prop-cle"),
    Row("prop:ttc-collapse", "exact TTC of i.i.d. tokens falls with length", "cje_sim.exact.typicality.coverage",
        lambda w: typicality.coverage(w.laws[0], w.laws[1], 100).ttc
        != typicality.coverage(w.laws[0], w.laws[1], 25).ttc),
    Row("fig:ttc-collapse", "TTC and RMSE against length, three tilts",
        "cje-lab run ttc_collapse, cje-lab claims fig-ttc-collapse"),
    Row("cor:caratheodory", "support of a stack and rank of its columns", "estimators.stacked_dr.estimate",
        lambda w: w.at("stacked_dr", "stack_support") <= w.at("stacked_dr", "stack_rank") + 1),
    Row("cor:blackwell", "garbled judges of nested information",
        "cje_sim.judges.garble, cje-lab claims cor-blackwell",
        lambda w: len(np.unique(garble(w.rows.score, 2))) <= 4),
    *(Row(at, what, f"cje-lab claims {claim}") for at, what, claim in (
        ("thm:sur-eif", "canonical gradient with a surrogate, and its variance", "thm-sur-eif"),
        ("thm:knowledge-riesz", "efficiency of restricted models, by its other names", "thm-model-restriction"),
        ("thm:ckp", "efficiency of restricted models, by its other names", "thm-model-restriction"),
        ("thm:model-restriction", "efficiency of restricted models", "thm-model-restriction"),
        ("prop:calips", "mean and dispersion of calibrated IPS", "prop-calips"),
        ("thm:dr-eff", "root-n limit of calibrated DR", "thm-dr-eff"),
        ("prop:oua", "consistency of the jackknife", "prop-oua"),
        ("lem:remainder", "second-order remainder of DR", "lem-remainder"),
        ("lem:firm", "firm non-expansiveness of projections", "lem-firm-nonexpansive"),
        ("thm:budgeted", "information bound under a cap", "thm-budgeted"),
        ("thm:stack", "variance of the stack and of its best member", "thm-stack"),
        ("eq:com", "change of measure in finite models", "thm-sur-eif"),
        ("eq:orth", "conditional expectation as projection in finite models", "thm-sur-eif"),
    )),
)  # fmt: skip

ALGORITHMS = (
    Row("alg:autocalr", "two-stage or monotone by held-out risk", "calibration.oracle_slice.lower_risk",
        lambda w: oracle_slice.lower_risk(w.with_length.slice, w.rows.cluster) in ("two_stage", "monotone")),
    Row("alg:simcalw", "project, stack, cap, normalise", "offpolicy.weights.stabilise",
        lambda w: near(w.stable.weight, 1 + w.stable.alpha * (w.stable.stack - 1))),
    Row("alg:calips", "calibrated importance sampling", "estimators.calibrated_ips.estimate",
        lambda w: np.isfinite(w.value("calibrated_ips"))),
    Row("alg:drcpo", "calibrated doubly robust value", "estimators.calibrated_dr_cpo.estimate",
        lambda w: np.isfinite(w.value("calibrated_dr_cpo"))),
    Row("alg:ifstack", "stack, with an outer split", "estimators.stacked_dr.estimate",
        lambda w: near(w.estimate("stacked_dr", outer_split=True).stack_weight.sel(policy="clone").sum(), 1)),
    Row("alg:oua", "values without each fold, traced", "estimators.snips.estimate, cje-lab step jackknife",
        lambda w: w.estimate("snips", inference="jackknife").sizes["fold"] == 5),
    Row("alg:bootstrap-direct", "clusters redrawn until enough labels are among them",
        "estimators.direct.estimate", redrawn),
    Row("alg:gates", "the gates' logic per policy", "verdict.gates.evaluate", gate_states),
)  # fmt: skip

IMPLEMENTATION = (
    *(Row("tab:schema", f"column {field}", "io.schema.logs.read_logs, cje-lab tf-cache",
          lambda w, field=field: column_read(w, field))
      for field in ("x_id", "tokens", "logp_pi0", "judge_S", "judge_cfg", "run_cfg", "fold_id", "cohort")),
    Row("TF cache (per target $\\pi'$)", "logW and weights with one denominator, the rest left out and counted",
        "offpolicy.tf_cache.tf_cache, cje-lab tf-cache", cached),
    Row("app:impl-determinism", "ids hashed with a salt", "io.schema.redacted.redact, cje-lab analyze --salt",
        lambda w: redact(["a", "b"], "0123456789abcdef") != redact(["a", "b"], "another secret of it")),
    Row("app:impl-tf", "determinism, additivity, provenance, masking",
        "offpolicy.log_likelihoods.check, cje-lab audit likelihoods", conformance),
    Row("app:impl-folds", "folds by a stable hash modulo K", "calibration.folds.assign_folds", folds),
    Row("app:impl-folds", "all modules share their folds", "calibration.folds.assign_folds",
        lambda w: (w.logs.fold == w.slice.fold).all()),
    Row("app:impl-folds", "the hash modulo 5 as an option", "workflow.paper.paper_mode, cje-lab paper --folds",
        lambda w: near(calibrated(w.data, Calibration(folds="hash")).slice.fold,
                       [folds_of.stable_hash(name) % 5 for name in w.rows.prompts.tolist()])),
    Row("alg:bootstrap-direct", "thirty labels in every resample, as an option",
        "workflow.paper.paper_estimator, cje-lab paper --n-min",
        lambda w: paper_estimator("bootstrap-direct", n_min=30)[1]["inference"].n_min == 30),
    Row("app:impl-numerics", "ratios in log space", "offpolicy.weights.mean_one",
        lambda w: near(weights.mean_one([-9000.0, -9000.0]), 1)),
    Row("app:impl-run", "steps with files in and out, and any of them again",
        "workflow.steps.order.run_step, cje-lab analyze --keep-steps, cje-lab step", steps_again),
    Row("app:impl-run", "the files of the steps follow each other", "workflow.steps.order.analyze_in_steps", chain),
    Row("app:impl-determinism", "one named stream per estimator and seed",
        "streams.generator, cje-lab analyze --seed",
        lambda w: w.analysis.seed == 1),
    Row("app:impl-determinism", "versions, commit and machine in a manifest",
        "studies.engine.manifest.provenance, cje-lab run",
        lambda w: __import__("studies.engine.manifest", fromlist=["x"]).provenance()),
    Row("app:impl-compute", "what each piece costs beside its physical limit", "cje-lab bench"),
)  # fmt: skip

PRACTICE = (
    Row("tab:estimator-guide", "which estimator for which data", "verdict.guide.recommend",
        lambda w: set(w.analysis.guide.estimator.values) <= {"direct", "direct_corrected"}),
    Row("ssec:takeaways", "Direct with two-stage calibration by default", "workflow.analyze.analyze",
        lambda w: (w.analysis.guide.calibrator == "two_stage").all()),
    Row("ssec:takeaways", "audit transport before levels", "transport.audit.audit, cje-lab analyze --probes",
        lambda w: w.analysis.verdict("unhelpful") == "FAIL"),
    Row("ssec:takeaways", "gate on TTC before logs are trusted", "verdict.gates.ope_ok",
        lambda w: not gates.ope_ok(w.analysis.gates)["ok"].sel(policy="unhelpful").item()),
    Row("ssec:takeaways", "bootstrap with theta_aug", "estimators.direct.estimate", bootstrap),
    Row("ssec:takeaways", "share of calibration above 50%: more labels", "verdict.guide.recommend",
        lambda w: w.analysis.guide.caution.values.astype(str)[0] != ""),
    Row("ssec:takeaways", "length as a covariate of the calibrator", "cje-lab analyze --covariate",
        lambda w: np.isfinite(w.value("direct", "base", calibration=Calibration(LENGTH)))),
    Row("ssec:takeaways", "ratio of labels to scores by the square-root law", "planning.allocation.optimal_fraction",
        lambda w: near(allocation.optimal_fraction(0.064, 1.0, 1.0, 0.45), np.sqrt(0.064 * 0.45))),
    Row("prop:sqrt-allocation", "n* and m* under a budget", "planning.allocation.allocate, cje-lab plan",
        lambda w: allocation.allocate(100.0, 0.01, 0.16, 0.012, 0.049)[0] == 1104),
    Row("app:budget", "spend-balance rule", "planning.allocation.spend_balance",
        lambda w: allocation.spend_balance(1000, 50, 1.0, 0.45, 0.064, 1.0).advice == "more labels"),
    Row("app:budget", "several policies share one slice", "planning.allocation.optimal_fraction",
        lambda w: near(allocation.optimal_fraction(0.01, 1.0, 1.0, 0.45, n_policies=4),
                       2 * allocation.optimal_fraction(0.01, 1.0, 1.0, 0.45))),
    Row("app:budget", "the worked example: 0.45 and 17%", "planning.allocation.optimal_fraction",
        lambda w: round(allocation.optimal_fraction(0.064, 1.0, 1.0, 0.9 * 50 / (0.1 * 1000)), 2) == 0.17),
    Row("Metrics", "pairwise accuracy, top-1, Kendall's tau", "inference.ranks.ranking", pairs_in_order),
    Row("Metrics", "RMSE without the oracle's noise, coverage, interval score",
        "cje-lab run interval_coverage, cje-lab report"),
    Row("ssec:binary", "Rogan-Gladen with Lee's interval", "estimators.rogan_gladen.lee_interval",
        lambda w: rogan_gladen.lee_interval(0.6, 0.8, 0.7, n=200, n_good=40, n_bad=40)[0] > 0),
    Row("ssec:binary", "allocation of labels of Lee et al.", "planning.binary_judge.binary_split", lee_split),
    Row("ssec:binary", "sweep over thresholds", "estimators.rogan_gladen.sweep",
        lambda w: rogan_gladen.sweep(w.data, [0.5, 0.8]).sizes["threshold"] == 2),
    Row("tab:accuracy", "its 13 estimators, as options", "workflow.paper.PAPER", lambda w: len(PAPER) == 13),
    *(Row(at, what, f"cje-lab claims {claim}") for at, what, claim in (
        ("tab:accuracy", "accuracy and coverage of 13 estimators", "tab-accuracy"),
        ("tab:ablation", "what each component adds", "tab-ablation"),
        ("tab:uq-comparison", "coverage by kind of interval", "tab-uq-comparison"),
        ("tab:uq-diagnostics", "centring and spread of Z", "tab-uq-diagnostics"),
        ("tab:weight-diagnostics", "ESS, tails, TTC and CLE of five policies", "tab-weight-diagnostics"),
        ("tab:binary-comparison", "misclassification correction beside calibration", "tab-binary-comparison"),
        ("tab:cost-analysis", "cost of ranking as the oracle does", "tab-cost"),
        ("app:mbpp", "code with unit tests: share labelled", "tab-mbpp"),
        ("tab:mbpp-results", "RMSE by share labelled", "tab-mbpp"),
    )),
)  # fmt: skip

LIMITS = (
    Row("Overlap (positivity)", "overlap weights as an estimator, of another mean",
        "estimators.overlap_weights.estimate",
        lambda w: "overlap" in w.estimate("overlap_weights").attrs["estimand"]),
    Row("Overlap (positivity)", "restriction to a cohort", "data.cohorts.restrict, cje-lab analyze --cohort",
        lambda w: cohorts.restrict(w.by_topic, {"topic": "a"}).evaluated.any(("policy", "draw")).sum() == 80),
    Row("Subgroups and fairness", "values, overlap and reliability by group",
        "workflow.cohorts.by_cohort, cje-lab analyze --by", values_by_group),
    Row("Subgroups and fairness", "calibration by group with partial pooling",
        "calibration.calibrated.Calibration, cje-lab analyze --subgroup",
        lambda w: np.isfinite(w.of_groups.estimate.sel(policy="base"))),
    Row("Calibration failure modes", "drift in time: residuals of batches", "transport.drift.residual_drift",
        lambda w: np.isfinite(drift.cusum_arl(4.0))),
    Row("Calibration failure modes", "scores beyond the labelled range", "calibration.reliability.coverage_badge",
        coverage_badge),
    Row("Scope of the mean transport test", "audits inside groups of prompts",
        "transport.local_audits.subgroup_audit, cje-lab audit subgroup",
        lambda w: local_audits.subgroup_audit(
            w.given, group=np.array(["a", "b"])[np.arange(w.data.sizes["prompt"]) % 2]).sizes["group"] == 2),
    Row("Calibration coverage (identification)", "refusal with bounds and an order",
        "verdict.refusal.partial_identification",
        rank_pieces),
    Row("Temporal dependence and logger drift", "standard errors of dependent responses",
        "inference.serial.stationary_bootstrap_se, cje-lab analyze --block",
        lambda w: serial.stationary_bootstrap_se(w.estimate("raw_judge").influence.values[0]).std_error > 0),
    Row("Oracle independence and leakage", "whether labels look drawn at random",
        "calibration.label_balance.label_balance",
        lambda w: "unbalanced" in label_balance.label_balance(w.data)),
    Row("Oracle independence and leakage", "folds that depend on ids alone", "calibration.folds.stable_hash",
        lambda w: folds_of.stable_hash("a") != folds_of.stable_hash("b")),
    Row("Selection and multiplicity", "sets of ranks that hold for all policies",
        "inference.ranks.rank_confidence_sets",
        lambda w: ranks.rank_confidence_sets(w.estimate("raw_judge"), rng=0).sizes["policy"] == 5),
    Row("Teacher forcing and API drift", "a clone's ratios show the error of teacher forcing",
        "offpolicy.log_likelihoods.clones", lambda w: conformance(w, clones=True)),
    Row("Judge informativeness (garbling)", "whether labels show that the judge tells good from bad",
        "calibration.informative.informative",
        lambda w: w.analysis.estimates["direct"].attrs["judge_p_value"] < 0.05),
)  # fmt: skip

ROWS = (*SETUP, *METHODS, *THEORY, *ALGORITHMS, *DIAGNOSTICS, *REPORTING, *IMPLEMENTATION, *PRACTICE, *LIMITS)
