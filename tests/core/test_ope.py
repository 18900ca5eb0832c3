"""Off-policy estimators: values and errors against the definitions, statuses, diagnostics, pitfalls."""

import functools

import numpy as np
import oracles_ope as slow
import pytest
import xarray as xr
from scipy import stats

from cje_core import estimators, io
from cje_core.calibration import calibration_part, knot_mass, label_leverage
from cje_core.data import DataError, from_arrays
from cje_core.estimators import (
    _ope,
    _ope_run,
    calibrated_dr_cpo,
    calibrated_ips,
    capped_ips,
    direct,
    dr_cpo,
    mrdr,
    snips,
    stacked_dr,
    tmle,
)
from cje_core.folds import assign_folds
from cje_core.result import Status, cluster_se, cluster_sums
from cje_core.rows import unpack
from cje_core.weights import ess_fraction, stabilise
from cje_sim.scenarios import arena_like, finite_model

IPS = (snips, capped_ips, calibrated_ips)
DR = (dr_cpo, calibrated_dr_cpo, tmle, mrdr, stacked_dr)
FAMILY = IPS + DR
names = pytest.mark.parametrize("module", FAMILY, ids=lambda m: m.__name__.split(".")[-1])
SCORES = np.linspace(0.1, 0.9, 9)


def small(seed=0, *, n=40, draws=2, missing=4, spread=0.6, share=0.6, cluster=None, target="high"):
    """A logger "base" that is labelled, a target tilted in the score, two draws each, some ratios unknown."""
    rng = np.random.default_rng(seed)
    judge = rng.choice(SCORES, (2, n, draws))
    oracle = np.round(np.clip(judge + rng.normal(0, 0.2, judge.shape), 0, 1), 3)
    labels = np.where(rng.random(judge.shape) < share, oracle, np.nan)
    labels[1] = np.nan
    labels[:, :, 1:] = np.nan
    slope = 2.0 if target == "high" else -2.0
    ratio = slope * (judge[0, :, 0] - 0.5) + rng.normal(0, spread, n)
    ratio[rng.choice(n, missing, replace=False)] = np.nan
    logger = -rng.uniform(200, 400, n)
    return from_arrays(
        judge,
        policies=["base", "target"],
        oracle=labels,
        calibration_policy="base",
        cluster=cluster,
        logged={
            "logp_target": np.stack([logger, logger + ratio]),
            "logp_logger": logger,
            "logged_judge": judge[0, :, 0],
            "logged_oracle": labels[0, :, 0],
        },
    )


def logs_of(data):
    return _ope.unpack_logs(data, direction="increasing", calibrator="default", covariates=())


def world_of(data, policy="target"):
    """The data as the oracle's list of prompt dicts, in canonical order."""
    logs = logs_of(data)
    rows, p = logs.rows, logs.rows.policies.index(policy)
    out = []
    for i in range(len(rows.prompts)):
        taught = np.flatnonzero(rows.teaches & (rows.prompt == i))
        mine = np.flatnonzero((rows.policy == p) & (rows.prompt == i) & rows.evaluated)
        label, ratio = logs.logged.label[i], logs.log_ratio[p, i]
        out.append(
            {
                "fold": int(logs.fitted.fold[i]),
                "score": float(logs.logged.z[i, 0]),
                "label": float(label) if np.isfinite(label) else None,
                "ratio": float(ratio) if np.isfinite(ratio) else None,
                "fresh": rows.score[mine].tolist(),
                "taught": [(float(rows.score[j]), float(rows.label[j])) for j in taught],
            }
        )
    return out


def of_target(result, name="estimate"):
    return float(result[name].sel(policy="target"))


# --- values against the definitions ---


@pytest.mark.parametrize("seed", range(3))
def test_importance_sampling_matches_the_definition(seed):
    data = small(seed, spread=2.5)  # the largest weight exceeds sqrt(n)
    world = world_of(data)
    n_used = sum(p["ratio"] is not None for p in world)
    assert max(w for w in slow.weights(world) if w is not None) > np.sqrt(n_used)
    for result, cap in (
        (snips.estimate(data), None),
        (snips.estimate(data, clip=1.3), 1.3),
        (capped_ips.estimate(data), np.sqrt(n_used)),
        (capped_ips.estimate(data, cap=2.0), 2.0),
    ):
        assert of_target(result) == pytest.approx(slow.ips(world, slow.weights(world, cap)), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_doubly_robust_matches_the_definition(seed):
    data = small(seed)
    world = world_of(data)
    expected = slow.doubly_robust(world, slow.weights(world))
    assert of_target(dr_cpo.estimate(data)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("target", ["high", "low"])
def test_tmle_matches_the_definition(target):
    data = small(5, target=target)
    world = world_of(data)
    expected = slow.tmle(world, slow.weights(world), decreasing=target == "low")
    assert of_target(tmle.estimate(data)) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("omega", mrdr.OMEGA)
def test_mrdr_matches_the_definition(omega):
    data = small(6)
    world = world_of(data)
    weight = slow.weights(world)
    kind = {"w": lambda w: w, "w_squared": lambda w: w**2, "w_minus_one_squared": lambda w: (w - 1) ** 2}[
        omega
    ]
    raw = [None if w is None or p["label"] is None else kind(w) for p, w in zip(world, weight, strict=True)]
    mean = np.mean([v for v in raw if v is not None])
    q = slow.weighted_outcomes(world, [None if v is None else max(v / mean, 1e-3) for v in raw])
    expected = slow.doubly_robust(world, weight, q)
    assert of_target(mrdr.estimate(data, omega=omega, weights="raw")) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("module", [calibrated_ips, calibrated_dr_cpo])
@pytest.mark.parametrize(
    "options", [{}, {"guard": "none", "candidates": ("up",)}, {"projection": "exact", "rho": 0.1}]
)
def test_stabilised_weights_use_the_residual_of_the_estimator(module, options):
    data = small(7)
    world, logs = world_of(data), logs_of(data)
    used = np.flatnonzero(np.isfinite(logs.log_ratio[1]))
    reward, outcome = np.array(slow.rewards(world)), np.array(slow.outcomes(world)[0])
    delta = reward if module is calibrated_ips else reward - outcome
    raw = np.array(slow.weights(world), dtype=float)[used]
    out = stabilise(raw, logs.logged.z[used, 0], delta[used], logs.fitted.fold[used], **options)
    weight = [None] * len(world)
    for i, w in zip(used, out.weight, strict=True):
        weight[i] = float(w)
    form = slow.ips if module is calibrated_ips else slow.doubly_robust
    result = module.estimate(data, **options)
    assert of_target(result) == pytest.approx(form(world, weight), abs=1e-12)
    np.testing.assert_allclose(result["beta"].sel(policy="target"), out.beta)
    assert result["candidate"].values.tolist() == list(options.get("candidates", ("base", "up", "down")))
    assert of_target(result, "alpha") == pytest.approx(out.alpha)
    assert of_target(result, "guard_engaged") == float(out.engaged)
    assert of_target(result, "ess_fraction") == pytest.approx(ess_fraction(out.weight))
    assert of_target(result, "ess_fraction_raw") == pytest.approx(ess_fraction(raw))


def test_stack_is_the_convex_combination_of_least_variance():
    data = small(8, n=60)
    members = ("dr_cpo", "mrdr", "capped_ips")
    result = stacked_dr.estimate(data, members=members, ridge=1e-3)
    logs = logs_of(data)
    values = [stacked_dr.MEMBERS[name](logs, 1) for name in members]
    columns = [
        (v.direct.influence + v.ips.influence + _ope_run.calibration_error(logs, v.terms).influence).tolist()
        for v in values
    ]
    alpha = result["stack_weight"].sel(policy="target").values
    assert alpha.sum() == pytest.approx(1.0)
    assert of_target(result) == pytest.approx(alpha @ [v.value for v in values])
    centred = np.array(columns) - np.mean(columns, axis=1, keepdims=True)
    sigma = centred @ centred.T / centred.shape[1]
    sigma += 1e-3 * np.trace(sigma) / 3 * np.eye(3)
    least, at = slow.best_stack(columns, 1e-3)
    assert alpha @ sigma @ alpha <= least + 1e-15
    np.testing.assert_allclose(alpha, at, atol=0.1)  # the grid has steps of 1/60; the optimum is flat


# --- errors against the definitions ---


@pytest.mark.parametrize("seed", range(3))
def test_standard_error_of_snips_matches_the_definition(seed):
    data = small(seed, draws=1, n=80, share=0.8)
    world = world_of(data)
    result = snips.estimate(data)
    assert of_target(result, "std_error") == pytest.approx(
        slow.snips_standard_error(world, slow.weights(world)), rel=1e-9
    )


@names
def test_terms_carry_the_whole_value(module):
    """A shift of all labels shifts the value as much, so the weights on the fits sum to one."""
    logs = logs_of(small(3))
    policy_value = (
        functools.partial(module.policy_value, members=("dr_cpo", "mrdr"))
        if module is stacked_dr
        else module.policy_value
    )
    value = policy_value(logs, 1)
    total = sum(term.weight.sum() for term in value.terms)
    # TMLE is linear to first order only: its logit bends
    assert total == pytest.approx(1.0, abs=1e-2 if module is tmle else 1e-12)


def test_terms_of_one_fit_are_one_functional():
    """What cancels between them counts neither as error nor for the degrees of freedom."""
    logs = logs_of(small(3))
    z, share = logs.logged.z, np.full(40, 1 / 40)
    back = np.where(z[:, 0] < 0.5, -share, 0.0)
    part = _ope_run.calibration_error(
        logs, [_ope.Term(logs.fitted, z, share), _ope.Term(logs.fitted, z, back)]
    )
    whole = calibration_part(logs.rows, logs.fitted, z, share + back)
    np.testing.assert_allclose(part.influence, whole.influence, atol=1e-12)
    assert part.df == pytest.approx(whole.df)


def test_the_papers_path_puts_held_out_rewards_in_place_of_pooled_ones():
    logs = logs_of(small(3))
    value = tmle.policy_value(logs, 1)
    swapped = value.ips.influence - 40 * value.ips.leverage * (logs.reward - logs.outcome.logged)
    np.testing.assert_allclose(value.path, value.direct.influence + swapped, atol=1e-12)


def test_one_dominating_weight_leaves_a_wide_interval_with_two_degrees_of_freedom():
    data = small(3, spread=12.0)
    part = _ope_run.source_part(logs_of(data), snips.policy_value(logs_of(data), 1).ips)
    assert part.df == 2.0
    result = snips.estimate(data)
    assert np.isfinite(of_target(result, "std_error"))
    assert of_target(result, "df") >= 2


def test_calibration_term_is_the_derivative_in_the_labels():
    """Moving one label inside its block moves SNIPS by the leverage that the standard error uses."""
    data = small(4, draws=1)
    logs = logs_of(data)
    step, before = 1e-7, snips.policy_value(logs, 1).value
    term = snips.policy_value(logs, 1).terms[0]
    leverage = label_leverage(
        logs.fitted.calibrator,
        knot_mass(logs.fitted.calibrator, term.z, term.weight),
        logs.fitted.z,
        logs.fitted.weight,
    )
    rows = unpack(data)
    teaching = np.flatnonzero(rows.teaches)
    for j in (0, 7, 15):
        moved = data.copy(deep=True)
        i = int(np.flatnonzero(data.prompt.values == rows.prompts[rows.prompt[teaching[j]]])[0])
        moved["oracle"][0, i, 0] += step
        after = snips.policy_value(logs_of(moved), 1).value
        assert (after - before) / step == pytest.approx(leverage[j], abs=1e-6)


def test_jackknife_is_the_rerun_without_each_fold():
    data = small(9)
    world = world_of(data)
    weight = slow.weights(world)
    again = [
        slow.weighted_mean(weight, slow.rewards(world, [k for k in slow.folds_of(world) if k != j]))
        for j in slow.folds_of(world)
    ]
    mean = sum(again) / len(again)
    calibration = (len(again) - 1) / len(again) * sum((v - mean) ** 2 for v in again)
    held_out = slow.outcomes(world)[0]
    centre = slow.weighted_mean(weight, held_out)
    total = sum(w for w in weight if w is not None)
    sampling = sum(
        (w / total * (q - centre)) ** 2 for w, q in zip(weight, held_out, strict=True) if w is not None
    )
    result = snips.estimate(data, inference="jackknife")
    assert of_target(result, "std_error") == pytest.approx(np.sqrt(sampling + calibration), rel=1e-9)
    assert of_target(result, "calibration_share") == pytest.approx(
        calibration / (sampling + calibration), rel=1e-9
    )
    assert np.isinf(of_target(result, "df"))


@names
def test_inference_changes_neither_the_estimate_nor_the_influence(module):
    data = small(10)
    one, two = module.estimate(data), module.estimate(data, inference="jackknife")
    np.testing.assert_array_equal(one["estimate"], two["estimate"])
    np.testing.assert_array_equal(one["influence"], two["influence"])
    low, high = one["interval"].sel(policy="target").values
    assert low < of_target(one) < high
    se = cluster_se(one["influence"].sel(policy="target").values, np.arange(one.sizes["prompt"]))
    assert se == pytest.approx(of_target(one, "std_error"))


@names
def test_jackknife_reruns_also_lose_the_labels_of_logged_responses(module):
    """Every estimator's reruns forget fold k whole: MRDR reads those labels directly."""
    logs = logs_of(small(11))
    for rerun in _ope_run.rerun_logs(logs):
        gone = sorted(set(logs.fitted.fold) - set(rerun.fitted.fold[rerun.fitted.prompt]))
        assert len(gone) == 1
        assert np.isnan(rerun.logged.label[logs.fitted.fold == gone[0]]).all()
    assert len(_ope_run.rerun_logs(logs)) == 5
    assert of_target(module.estimate(small(11), inference="jackknife"), "std_error") > 0


# --- weights one, scales, order ---


def test_with_weights_one_snips_is_the_mean_reward_and_dr_is_direct():
    data = small(12, draws=1, missing=0)
    plug_in = direct.estimate(data, correction="none", inference="influence")
    expected = plug_in["estimate"].sel(policy="base").item()
    logs = logs_of(data)
    assert np.mean(logs.reward) == pytest.approx(expected)
    for module in (snips, capped_ips, calibrated_ips, dr_cpo, calibrated_dr_cpo):
        result = module.estimate(data)
        assert result["estimate"].sel(policy="base").item() == pytest.approx(expected, abs=1e-12)
        assert result["ess_fraction_raw"].sel(policy="base").item() == pytest.approx(1.0)
    for module in (snips, dr_cpo):
        se = module.estimate(data)["std_error"].sel(policy="base").item()
        assert se == pytest.approx(plug_in["std_error"].sel(policy="base").item(), rel=0.1)


@names
def test_values_follow_the_oracle_scale(module):
    data = small(13)
    scaled = data.copy(deep=True)
    for name in ("oracle", "logged_oracle"):
        scaled[name] = 10 + 5 * data[name]
    scaled.attrs["oracle_range"] = [10.0, 15.0]
    one, two = module.estimate(data), module.estimate(scaled)
    np.testing.assert_allclose(two["estimate"], 10 + 5 * one["estimate"], rtol=1e-9)
    np.testing.assert_allclose(two["std_error"], 5 * one["std_error"], rtol=1e-6)


@names
def test_order_changes_no_bit_and_input_is_left_alone(module):
    data = small(14)
    before = data.copy(deep=True)
    one = module.estimate(data)
    rng = np.random.default_rng(0)
    two = module.estimate(data.isel(prompt=rng.permutation(data.sizes["prompt"]), policy=[1, 0]))
    assert data.identical(before)
    for name in one.data_vars:
        np.testing.assert_array_equal(two[name].sel(policy=one.policy), one[name], err_msg=name)


# --- statuses and counts ---


@names
def test_prompts_without_log_probabilities_are_left_out_and_counted(module):
    data = small(15, missing=7)
    result = module.estimate(data)
    assert result["n_logged_used"].sel(policy=["base", "target"]).values.tolist() == [40, 33]
    if (
        module in IPS
    ):  # the value is that of the data without those prompts' log-probabilities filled with nonsense
        shifted = data.copy(deep=True)
        unknown = np.isnan(data["logp_target"].sel(policy="target").values)
        shifted["logp_logger"] = data["logp_logger"] - 5.0 * unknown
        assert of_target(module.estimate(shifted)) == of_target(result)


@names
def test_no_log_probabilities_is_a_status(module):
    data = small(16)
    data["logp_target"].loc[{"policy": "target"}] = np.nan
    result = module.estimate(data)
    assert Status(int(result["status"].sel(policy="target"))) is Status.NO_LOG_PROBS
    assert np.isnan(of_target(result))
    assert np.isfinite(result["estimate"].sel(policy="base"))
    assert of_target(result, "n_logged_used") == 0


@names
def test_fresh_draws_are_needed_by_doubly_robust_estimators_only(module):
    data = small(17)
    data["evaluated"].loc[{"policy": "target"}] = False
    result = module.estimate(data)
    status = Status(int(result["status"].sel(policy="target")))
    assert status is (Status.NO_RESPONSES if module in DR else Status.TRANSPORT_ASSUMED)
    assert np.isfinite(of_target(result)) == (module in IPS)


@names
def test_too_few_labels_is_a_status(module):
    data = small(18)
    keep = np.isfinite(data["oracle"]) & (np.arange(40)[None, :, None] < 3)
    data["oracle"] = data["oracle"].where(keep)
    data["labelled"] = data["labelled"] & keep
    result = module.estimate(data)
    assert (result["status"] == Status.TOO_FEW_LABELS).all()
    assert np.isnan(result["estimate"]).all()


def test_labels_of_logged_responses_teach_where_no_fresh_ones_do():
    data = small(19, draws=1)
    bare = data.assign(oracle=data["oracle"] * np.nan, labelled=data["labelled"] & False)
    bare.attrs["calibration_policy"] = []
    for module in FAMILY:
        with_fresh, with_logged = module.estimate(data), module.estimate(bare)
        np.testing.assert_allclose(with_logged["estimate"], with_fresh["estimate"], atol=1e-12)
        assert with_logged["status"].sel(policy="base").item() == Status.OK  # the logger's labels are its own


def test_two_label_folds_are_too_few_for_the_jackknife():
    data = small(20)
    few = np.isfinite(data["oracle"]) & (np.cumsum(np.isfinite(data["oracle"].values), axis=1) <= 5)
    data = data.assign(oracle=data["oracle"].where(few), labelled=data["labelled"] & few)
    for module in (snips, dr_cpo):
        result = module.estimate(data, inference="jackknife")
        assert (result["status"] == Status.FEW_RESAMPLES).all()
        assert np.isnan(result["std_error"]).all()
        assert np.isfinite(result["estimate"]).all()


def test_mrdr_needs_labels_of_logged_responses():
    data = small(21).drop_vars("logged_oracle")
    result = mrdr.estimate(data)
    assert (result["status"] == Status.NO_LABELS).all()
    stack = stacked_dr.estimate(data)
    assert (stack["stack_weight"].sel(member="mrdr") == 0).all()
    assert np.isfinite(stack["estimate"]).all()
    alone = stacked_dr.estimate(data, members=("mrdr",))
    assert (alone["status"] == Status.NO_LABELS).all()


def test_data_without_logged_responses_are_refused():
    data = small(22).drop_vars(["logp_target", "logp_logger"])
    with pytest.raises(DataError, match="logp_target"):
        snips.estimate(data)
    with pytest.raises(DataError, match="covariate"):
        snips.estimate(small(22), covariates=("response_length",))


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (snips, {"inference": "bootstrap"}, "inference is 'bootstrap'"),
        (snips, {"clip": 0.0}, "cap is 0.0"),
        (mrdr, {"omega": "w3"}, "omega is 'w3'"),
        (mrdr, {"weights": "clipped"}, "weights is 'clipped'"),
        (stacked_dr, {"members": ()}, "members are"),
        (stacked_dr, {"members": ("tmle", "tmle")}, "each once"),
        (stacked_dr, {"columns": "all"}, "columns is 'all'"),
        (calibrated_ips, {"guard": "hard"}, "guard is 'hard'"),
    ],
)
def test_bad_options_raise_with_the_mend(module, options, message):
    with pytest.raises(ValueError, match=message):
        module.estimate(small(0), **options)


# --- double robustness ---


@pytest.fixture(scope="module")
def large():
    """A world where everything is known: n = 20,000 prompts, every second logged response labelled."""
    data = finite_model.simulate(n=20_000, oracle_fraction=0.5, label_design="base", rng=1)
    return data, logs_of(data), finite_model.truth()


def wrong_outcome(logs, value=0.2):
    """An outcome model that says `value` whatever the score."""
    return logs.outcome._replace(
        logged=np.full_like(logs.outcome.logged, value), fresh=np.full_like(logs.outcome.fresh, value)
    )


@pytest.mark.parametrize("module", [dr_cpo, tmle])
@pytest.mark.parametrize("policy", ["tilted", "far"])
def test_right_weights_repair_a_wrong_outcome_model(large, module, policy):
    _, logs, truth = large
    p, target = logs.rows.policies.index(policy), float(truth.sel(policy=policy))
    wrong = logs._replace(outcome=wrong_outcome(logs))
    value = module.policy_value(wrong, p)
    # the error is at most that of SNIPS, which the same weights give: 5 of its standard errors, 2 for TMLE's isotonic h
    error = _ope_run.error_parts(logs, snips.policy_value(logs, p))
    bound = 5 * np.sqrt(sum(_ope_run.variance(logs, part.influence) for part in error))
    assert abs(value.value - target) < bound
    assert abs(wrong.outcome.fresh[0] - target) > bound  # the plug-in alone is that far off


@pytest.mark.parametrize("policy", ["tilted", "far"])
def test_right_outcome_model_repairs_wrong_weights(large, policy):
    _, logs, truth = large
    p, target = logs.rows.policies.index(policy), float(truth.sel(policy=policy))
    ones = logs._replace(log_ratio=np.zeros_like(logs.log_ratio))
    bound = 5 * np.sqrt(
        sum(
            _ope_run.variance(logs, part.influence)
            for part in _ope_run.error_parts(logs, dr_cpo.policy_value(logs, p))
        )
    )
    assert abs(dr_cpo.policy_value(ones, p).value - target) < bound
    assert abs(snips.policy_value(ones, p).value - target) > bound


@names
def test_consistent_in_an_enumerable_world(large, module):
    data, _, truth = large
    result = module.estimate(data)
    error = np.abs(result["estimate"] - truth.sel(policy=result.policy)) / result["std_error"]
    if module is calibrated_ips:  # stabilisation shrinks towards the logger: it is not consistent
        assert (error.sel(policy=["base", "clone"]) < 5).all()
        assert (error.sel(policy=["tilted", "far"]) > 5).all()
    else:
        assert (error < 5).all()


# --- diagnostics ---


def test_decomposition_adds_up_and_matches_the_definition():
    data = small(23)
    world = world_of(data)
    weight = slow.weights(world)
    q, fresh = slow.outcomes(world)
    result = dr_cpo.estimate(data)
    direct_part = np.mean([np.mean(values) for values in fresh])
    ips_part = slow.weighted_mean(weight, [r - m for r, m in zip(slow.rewards(world), q, strict=True)])
    labelled = [w if p["label"] is not None else None for w, p in zip(weight, world, strict=True)]
    score = slow.weighted_mean(labelled, [(p["label"] or 0.0) - m for p, m in zip(world, q, strict=True)])
    for name, expected in (("direct_part", direct_part), ("ips_part", ips_part), ("orthogonality", score)):
        assert of_target(result, name) == pytest.approx(expected, abs=1e-12)
        low, high = result[f"{name}_interval"].sel(policy="target").values
        assert low < expected < high
        assert of_target(result, f"{name}_std_error") > 0
    assert of_target(result) == pytest.approx(direct_part + ips_part)
    assert -1 <= of_target(result, "part_correlation") <= 1


def test_orthogonality_sees_a_wrong_outcome_model_and_not_a_right_one(large):
    _, logs, _ = large
    p = logs.rows.policies.index("tilted")
    for q, covers in ((logs.outcome, True), (wrong_outcome(logs), False)):
        facts = _ope_run.decomposition(logs, dr_cpo.policy_value(logs, p, outcome=q), 0.9999)
        low, high = facts["orthogonality_interval"]
        assert bool(low < 0 < high) is covers


def test_the_papers_score_is_identically_zero():
    """R^OOF and q are the same held-out calibrator, so the paper's influence of DR is that of its direct part."""
    value = dr_cpo.policy_value(logs_of(small(24)), 1)
    np.testing.assert_array_equal(value.path, value.direct.influence)


def test_stack_learns_on_clusters_and_the_outer_split_on_the_other_half():
    data = small(25, n=80, cluster=np.repeat(np.arange(40), 2))
    logs = logs_of(data)
    members = ("dr_cpo", "mrdr", "capped_ips")
    library = [stacked_dr.MEMBERS[name](logs, 1) for name in members]
    columns = cluster_sums(np.stack([v.path for v in library]), logs.rows.cluster)
    options = {"members": members, "columns": "sampling", "ridge": 1e-3}
    whole = stacked_dr.policy_value(logs, 1, **options)
    expected = stacked_dr.stack_weights(columns, 1e-3)
    np.testing.assert_allclose(whole.facts["stack_weight"], expected)
    values = np.array([v.value for v in library])
    assert whole.value == pytest.approx(expected @ values)
    for name in ("influence", "leverage"):
        mixed = sum(a * getattr(v.ips, name) for a, v in zip(expected, library, strict=True))
        np.testing.assert_allclose(getattr(whole.ips, name), mixed, atol=1e-12)

    split = stacked_dr.policy_value(logs, 1, **options, outer_split=True)
    half = assign_folds(logs.rows.cluster_names, np.ones(40, dtype=bool), n_folds=2)
    estimate, learned = 0.0, []
    for h in (0, 1):
        alpha = stacked_dr.stack_weights(columns[:, half != h], 1e-3)  # learned on the other half
        inside = half[logs.rows.cluster] == h
        shift = [(v.direct.influence + v.ips.influence)[inside].mean() for v in library]
        estimate += inside.mean() * alpha @ (values + shift)
        learned.append(inside.mean() * alpha)
    assert split.value == pytest.approx(estimate)
    np.testing.assert_allclose(split.facts["stack_weight"], sum(learned))


def test_support_and_rank():
    data = small(26, n=80)
    result = stacked_dr.estimate(data, members=("dr_cpo", "tmle", "mrdr", "capped_ips"))
    support, rank = of_target(result, "stack_support"), of_target(result, "stack_rank")
    assert support == (result["stack_weight"].sel(policy="target") > 0).sum()
    assert 1 <= support <= rank + 1
    assert rank <= 4


def test_variance_alone_lets_a_biased_member_win():
    """Why capped_ips is not in the default library: a wrong weight that hardly varies has little variance."""
    data = finite_model.simulate(n=2000, oracle_fraction=0.5, label_design="base", rng=3)
    data["logp_target"].loc[{"policy": "far"}] = data["logp_logger"]  # weights one: the logger's value
    far = float(finite_model.truth().sel(policy="far"))
    biased = stacked_dr.estimate(data, members=("dr_cpo", "capped_ips")).sel(policy="far")
    default = stacked_dr.estimate(data).sel(policy="far")
    assert biased["stack_weight"].sel(member="capped_ips") > 0.3
    assert abs(biased["estimate"] - far) > 5 * biased["std_error"] > 0
    assert abs(default["estimate"] - far) < 5 * default["std_error"]


# --- pitfalls that others fell into ---


def test_pitfall_01_jackknife_sums_over_folds():
    values = [0.1, 0.4, 0.2, 0.9, 0.5]
    mean = sum(values) / 5
    assert _ope_run.jackknife(values) == pytest.approx(4 / 5 * sum((v - mean) ** 2 for v in values))
    # for a mean of five group means it is the variance of that mean
    leave_out = [(sum(values) - v) / 4 for v in values]
    assert _ope_run.jackknife(leave_out) == pytest.approx(np.var(values, ddof=1) / 5)


@pytest.mark.parametrize("module", DR)
def test_pitfall_03_repeated_draws_count_once(module):
    """Each fresh draw given twice: the same per-prompt mean, so the same value and error."""
    data = small(27, draws=1)
    twice = small(27, draws=1)
    doubled = twice.reindex(draw=[0, 1])
    for name in ("judge",):
        doubled[name][:, :, 1] = twice[name][:, :, 0]
    for name in ("labelled", "probe", "evaluated"):
        doubled[name] = doubled[name].fillna(name == "evaluated").astype(bool)
    one, two = module.estimate(data), module.estimate(doubled)
    np.testing.assert_allclose(two["estimate"], one["estimate"], rtol=1e-10)
    np.testing.assert_allclose(two["std_error"], one["std_error"], rtol=1e-8)


def test_pitfall_04_the_fluctuation_moves_fresh_draws(large):
    _, logs, _ = large
    wrong = logs._replace(outcome=wrong_outcome(logs))
    value = tmle.policy_value(wrong, logs.rows.policies.index("tilted"))
    assert value.facts["epsilon"] > 0.1
    assert value.direct.value > 0.3  # 0.2 had the logged rows alone moved


@names
def test_pitfall_05_one_standard_error_for_the_family(module):
    """Every prompt twice in one cluster: the same error, whichever estimator; folds are no clusters."""
    data = small(28, n=60)
    n = data.sizes["prompt"]
    names_of = data.prompt.values.astype(str)
    base = data.assign(cluster=("prompt", names_of))
    copy = base.assign_coords(prompt=[f"{name}_again" for name in names_of])
    doubled = xr.concat([base, copy], dim="prompt", data_vars="minimal", coords="minimal")
    one, two = module.estimate(base), module.estimate(doubled)
    assert two.sizes["prompt"] == 2 * n
    np.testing.assert_allclose(two["estimate"], one["estimate"], rtol=1e-6)
    # the labels' factor n_b / (n_b - 1) counts labels, not clusters, hence the slack
    np.testing.assert_allclose(two["std_error"], one["std_error"], rtol=0.1)
    assert (one["df"] > 4).all()


def test_pitfall_06_identical_influence_gets_equal_weight():
    phi = np.random.default_rng(0).normal(size=200)
    np.testing.assert_allclose(stacked_dr.stack_weights(np.stack([phi, phi, phi]), 1e-4), 1 / 3)
    logs = logs_of(small(29))
    dr = dr_cpo.policy_value(logs, 1)
    mixed = stacked_dr.mix([dr, dr], np.array([0.5, 0.5]))
    assert mixed.value == pytest.approx(dr.value)
    np.testing.assert_allclose(mixed.ips.influence, dr.ips.influence, atol=1e-15)


def test_pitfall_07_hajek_influence_is_the_derivative_in_the_row_weights():
    """No second -V (w - mean w) term: n times the derivative of V in a row's multiplicity."""
    data = small(30)
    logs = logs_of(data)
    used, weight = _ope.used_rows(logs, 1), _ope.raw_weights(logs, 1)
    value = snips.policy_value(logs, 1)
    n, step = len(logs.rows.prompts), 1e-6
    for j in (0, 5, 20):
        count = np.ones(len(used))
        count[j] += step
        moved = (count * weight * logs.reward[used]).sum() / (count * weight).sum()
        assert n * (moved - value.value) / step == pytest.approx(value.ips.influence[used[j]], abs=1e-3)
    assert value.ips.influence.sum() == pytest.approx(0, abs=1e-10)


def test_pitfall_08_influence_uses_the_outcome_of_the_estimate():
    """All logged responses labelled: both still use R = f(Z), and the influence is centred at the estimate."""
    data = small(31, share=1.1, missing=0)
    logs = logs_of(data)
    value = snips.policy_value(logs, 1)
    weight = _ope.raw_weights(logs, 1)
    expected = weight * (logs.reward - value.value) / weight.mean()
    np.testing.assert_allclose(value.ips.influence, expected, atol=1e-12)


@names
def test_labels_that_do_not_teach_do_not_vouch_for_the_calibration(module):
    """Direct's plug-in and every weighted mean rest on what base taught, whatever labels the target has besides."""
    data = small(3).copy(deep=True)
    rng = np.random.default_rng(4)
    label = np.where(rng.random(40) < 0.6, data["judge"][1, :, 0], np.nan)
    data["oracle"][1, :, 0] = label
    data["labelled"][1, :, 0] = np.isfinite(label)
    assert data.attrs["calibration_policy"] == ["base"]
    assert Status(int(module.estimate(data)["status"].sel(policy="target"))) is Status.TRANSPORT_ASSUMED
    plug_in = direct.estimate(data, correction="none").sel(policy="target")
    assert Status(int(plug_in["status"])) is Status.TRANSPORT_ASSUMED
    both = data.assign_attrs(calibration_policy=["base", "target"])
    assert Status(int(module.estimate(both)["status"].sel(policy="target"))) is Status.OK
    assert Status(int(direct.estimate(both, correction="none")["status"].sel(policy="target"))) is Status.OK


@pytest.mark.parametrize("module", IPS, ids=lambda m: m.__name__.split(".")[-1])
def test_one_response_with_all_the_weight_is_poor_overlap(module):
    """The spread of one weight is not known, but prompts there are plenty: the overlap is what fails."""
    data = small(32, n=60).copy(deep=True)
    data["logp_target"][1, 7] = data["logp_logger"].values[7] + 25.0
    result = module.estimate(data).sel(policy="target")
    assert Status(int(result["status"])) is Status.POOR_OVERLAP


@pytest.mark.parametrize("spread", [0.6, 6.0])
def test_pitfalls_17_18_flags_travel_with_every_estimate(spread):
    """Poor overlap is named by every member of the family, stabilised weights and stacks included."""
    data = small(32, n=60, spread=spread)
    raw = snips.estimate(data)["ess_fraction_raw"].sel(policy="target") * 56
    expected = Status.POOR_OVERLAP if spread > 1 else Status.TRANSPORT_ASSUMED
    assert bool(raw < 10) is (spread > 1)
    for module in FAMILY:
        result = module.estimate(data)
        assert Status(int(result["status"].sel(policy="target"))) is expected
        assert np.isfinite(of_target(result))
        assert of_target(result, "ess_fraction_raw") * 56 == pytest.approx(float(raw))


@names
def test_pitfall_19_the_interval_contains_the_estimate(module):
    for seed in range(40, 45):
        for inference in ("influence", "jackknife"):
            result = module.estimate(small(seed, spread=2.0), inference=inference)
            low, high = result["interval"].values.T
            assert (low < result["estimate"].values).all() and (result["estimate"].values < high).all()


# --- the paper's names, and real data ---


def with_length(data):
    return data.assign(logged_covariate=data["covariate"].isel(policy=0, draw=0, drop=True))


def test_the_paper_has_thirteen_estimators():
    assert len(estimators.PAPER) == 13
    assert sum(name.endswith("+cov") for name in estimators.PAPER) == 6
    for name, (module, options) in estimators.PAPER.items():
        assert module in estimators.available()
        assert ("covariates" in options) is name.endswith("+cov")
    with pytest.raises(ValueError, match="the paper has no estimator named 'ips'"):
        estimators.paper_estimator("ips")


@pytest.mark.parametrize("name", estimators.PAPER)
def test_the_papers_rows_run(name):
    data = with_length(arena_like.simulate(n=120, oracle_fraction=0.5, label_design="base", rng=0))
    module, options = estimators.paper_estimator(name)
    result = module.estimate(data, **options)
    assert np.isfinite(result["estimate"].sel(policy="clone"))
    assert np.isfinite(result["std_error"].sel(policy="clone"))


# Point estimates of cje-eval 0.3.0 on this sample.
FROZEN = {
    "SNIPS": (0.7564, 0.7522),
    "calibrated-ips": (0.7642, 0.7609),
    "dr-cpo": (0.7624, 0.7627),
    "stacked-dr": (0.7633, 0.7640),
}


@pytest.fixture(scope="module")
def arena_data(arena):
    return io.read(arena / "fresh_draws", probes=arena / "probe_slice", logged=arena / "logged_data.jsonl")[0]


@pytest.mark.parametrize("name", FROZEN)
def test_arena_sample_agrees_with_the_reference_library(arena_data, name):
    """Folds and the stack's members differ; SNIPS, which has neither, agrees to the printed digits."""
    module, options = estimators.paper_estimator(name)
    result = module.estimate(arena_data, **options)
    values = result["estimate"].sel(policy=["clone", "parallel_universe_prompt"])
    np.testing.assert_allclose(values, FROZEN[name], atol=5e-5 if name == "SNIPS" else 0.01)
    assert result["status"].sel(policy="parallel_universe_prompt") == Status.POOR_OVERLAP
    assert (
        result["status"].sel(policy="base") == Status.NO_LOG_PROBS
    )  # the file has no log-likelihoods for it
    used = result["n_logged_used"].sel(policy=["base", "clone"]).values
    assert used.tolist() == [0, 1000]


def test_arena_sample_raw_overlap(arena_data):
    ess = snips.estimate(arena_data)["ess_fraction_raw"]
    for policy, expected, tolerance in (
        ("clone", 0.2146, 1e-3),
        ("parallel_universe_prompt", 0.0034, 5e-5),
        ("unhelpful", 0.0078, 5e-5),
    ):
        assert float(ess.sel(policy=policy)) == pytest.approx(expected, abs=tolerance)


def test_arena_sample_stabilised_weights_give_the_loggers_value(arena_data):
    """Unhelpful (oracle mean .16 on its probes): the constant weight wins, ESS is n, and the value is base's."""
    result = calibrated_ips.estimate(arena_data).sel(policy="unhelpful")
    base = float(
        direct.estimate(arena_data, correction="none", inference="influence")["estimate"].sel(policy="base")
    )
    assert result["ess_fraction"] > 0.99
    assert abs(result["estimate"] - base) < 0.01
    assert result["status"] == Status.POOR_OVERLAP


def test_normal_quantiles_in_paper_mode():
    result = dr_cpo.estimate(small(33), inference="jackknife", ci_prob=0.9)
    half = (of_target(result) - result["interval"].sel(policy="target", ci_bound="lower")) / of_target(
        result, "std_error"
    )
    assert float(half) == pytest.approx(stats.norm.ppf(0.95))
