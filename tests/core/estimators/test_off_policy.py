"""Off-policy estimators: values against the definitions, scales and order, statuses, options."""

import numpy as np
import oracles_ope as slow
import pytest
from ope_world import DR, FAMILY, IPS, logs_of, names, of_target, small, unrefused, world_of

from cje_core.calibration.calibrated import Calibration
from cje_core.data import DataError
from cje_core.estimators import (
    calibrated_dr_cpo,
    calibrated_ips,
    capped_ips,
    direct,
    dr_cpo,
    ips,
    mrdr,
    snips,
    stacked_dr,
    tmle,
)
from cje_core.families.off_policy.value import Stabilisation
from cje_core.inference.estimate import Status
from cje_core.offpolicy.weights import ess_fraction, stabilise

# --- values against the definitions ---


@pytest.mark.parametrize("seed", range(3))
def test_importance_sampling_matches_the_definition(seed):
    data = small(seed, spread=2.5)  # the largest weight exceeds sqrt(n)
    world = world_of(data)
    n_used = sum(p["ratio"] is not None for p in world)
    assert max(w for w in slow.weights(world) if w is not None) > np.sqrt(n_used)
    for result, cap in (
        (snips.estimate(data, borrowed="plug_in"), None),
        (snips.estimate(data, clip=1.3, borrowed="plug_in"), 1.3),
        (capped_ips.estimate(data, borrowed="plug_in"), np.sqrt(n_used)),
        (capped_ips.estimate(data, cap=2.0, borrowed="plug_in"), 2.0),
    ):
        assert of_target(result) == pytest.approx(slow.ips(world, slow.weights(world, cap)), abs=1e-12)


@pytest.mark.parametrize("scale", [(0.0, 1.0), (10.0, 15.0)])
def test_plain_importance_sampling_matches_the_definition(scale):
    low, high = scale
    data = small(2)
    for name in ("oracle", "logged_oracle"):
        data[name] = low + (high - low) * data[name]
    data.attrs["oracle_range"] = list(scale)
    result = ips.estimate(data, borrowed="plug_in")
    assert of_target(result) == pytest.approx(slow.plain_ips(world_of(data), low), abs=1e-12)
    ratios = [np.exp(p["ratio"]) for p in world_of(data) if p["ratio"] is not None]
    assert of_target(result, "mean_weight") == pytest.approx(np.mean(ratios))


def test_a_constant_error_of_the_likelihoods_multiplies_plain_importance_sampling_and_not_snips():
    data = small(2)
    moved = data.assign(logp_logger=data["logp_logger"] + np.log(1.2))
    plain, normalised = (
        [of_target(module.estimate(one, borrowed="plug_in")) for one in (data, moved)]
        for module in (ips, snips)
    )
    assert plain[1] == pytest.approx(plain[0] / 1.2) and normalised[1] == pytest.approx(normalised[0])


def test_ratios_beyond_the_largest_number_are_data_and_no_crash():
    data = small(2)
    data["logp_logger"] = data["logp_logger"] - 2000.0
    result = ips.estimate(data)
    assert of_target(result) == 1.0 and np.isfinite(of_target(result, "std_error"))


@pytest.mark.parametrize("seed", range(3))
def test_doubly_robust_matches_the_definition(seed):
    data = small(seed)
    world = world_of(data)
    expected = slow.doubly_robust(world, slow.weights(world))
    assert of_target(dr_cpo.estimate(data, borrowed="plug_in")) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("target", ["high", "low"])
def test_tmle_matches_the_definition(target):
    data = small(5, target=target)
    world = world_of(data)
    expected = slow.tmle(world, slow.weights(world), decreasing=target == "low")
    assert of_target(tmle.estimate(data, borrowed="plug_in")) == pytest.approx(expected, abs=1e-10)


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
    result = mrdr.estimate(data, omega=omega, weights="raw", borrowed="plug_in")
    assert of_target(result) == pytest.approx(expected, abs=1e-12)


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
    result = module.estimate(data, weighting=Stabilisation(**options), borrowed="plug_in")
    assert of_target(result) == pytest.approx(form(world, weight), abs=1e-12)
    np.testing.assert_allclose(result["beta"].sel(policy="target"), out.beta)
    assert result["candidate"].values.tolist() == list(options.get("candidates", ("base", "up", "down")))
    assert of_target(result, "alpha") == pytest.approx(out.alpha)
    assert of_target(result, "guard_engaged") == float(out.engaged)
    assert of_target(result, "ess_fraction") == pytest.approx(ess_fraction(out.weight))
    assert of_target(result, "ess_fraction_raw") == pytest.approx(ess_fraction(raw))


# --- weights one, scales, order ---


def test_with_weights_one_snips_is_the_mean_reward_and_dr_is_direct():
    data = small(12, draws=1, missing=0)
    plug_in = direct.estimate(data, correction="none", inference="influence")
    expected = plug_in["estimate"].sel(policy="base").item()
    logs = logs_of(data)
    assert np.mean(logs.reward) == pytest.approx(expected)
    for module in (snips, ips, capped_ips, calibrated_ips, dr_cpo, calibrated_dr_cpo):
        result = module.estimate(data, borrowed="plug_in")
        assert result["estimate"].sel(policy="base").item() == pytest.approx(expected, abs=1e-12)
        assert result["ess_fraction_raw"].sel(policy="base").item() == pytest.approx(1.0)
    for module in (snips, dr_cpo):
        se = module.estimate(data, borrowed="plug_in")["std_error"].sel(policy="base").item()
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


# --- statuses and counts ---


@names
def test_prompts_without_log_probabilities_are_left_out_and_counted(module):
    data = small(15, missing=7)
    result = module.estimate(data, **unrefused(module))
    assert result["n_logged_used"].sel(policy=["base", "target"]).values.tolist() == [40, 33]
    if (
        module in IPS
    ):  # the value is that of the data without those prompts' log-probabilities filled with nonsense
        shifted = data.copy(deep=True)
        unknown = np.isnan(data["logp_target"].sel(policy="target").values)
        shifted["logp_logger"] = data["logp_logger"] - 5.0 * unknown
        assert of_target(module.estimate(shifted, **unrefused(module))) == of_target(result)


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
        snips.estimate(small(22), calibration=Calibration(["response_length"]))


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (snips, {"inference": "bootstrap"}, "inference='bootstrap'"),
        (snips, {"clip": 0.0}, "cap=0.0"),
        (mrdr, {"omega": "w3"}, "omega='w3'"),
        (mrdr, {"weights": "clipped"}, "weights='clipped'"),
        (stacked_dr, {"members": ()}, "members are"),
        (stacked_dr, {"members": ("tmle", "tmle")}, "each once"),
        (stacked_dr, {"columns": "all"}, "columns='all'"),
        (calibrated_ips, {"weighting": Stabilisation(guard="hard")}, "guard='hard'"),
    ],
)
def test_bad_options_raise_with_the_mend(module, options, message):
    with pytest.raises(ValueError, match=message):
        module.estimate(small(0), **options)


@names
def test_labels_that_do_not_teach_do_not_vouch_for_the_calibration(module):
    """Direct's plug-in and every weighted mean rest on what base taught, whatever labels the target has besides."""
    data = small(3).copy(deep=True)
    rng = np.random.default_rng(4)
    label = np.where(rng.random(40) < 0.6, data["judge"][1, :, 0], np.nan)
    data["oracle"][1, :, 0] = label
    data["labelled"][1, :, 0] = np.isfinite(label)
    assert data.attrs["calibration_policy"] == ["base"]
    options = unrefused(module)
    assert (
        Status(int(module.estimate(data, **options)["status"].sel(policy="target")))
        is Status.TRANSPORT_ASSUMED
    )
    plug_in = direct.estimate(data, correction="none").sel(policy="target")
    assert Status(int(plug_in["status"])) is Status.TRANSPORT_ASSUMED
    both = data.assign_attrs(calibration_policy=["base", "target"])
    assert Status(int(module.estimate(both, **options)["status"].sel(policy="target"))) is Status.OK
    assert Status(int(direct.estimate(both, correction="none")["status"].sel(policy="target"))) is Status.OK


@pytest.mark.parametrize("module", IPS, ids=lambda m: m.__name__.split(".")[-1])
def test_one_response_with_all_the_weight_is_poor_overlap(module):
    """The spread of one weight is not known, but prompts there are plenty: the overlap is what fails."""
    data = small(32, n=60).copy(deep=True)
    data["logp_target"][1, 7] = data["logp_logger"].values[7] + 25.0
    result = module.estimate(data, **unrefused(module)).sel(policy="target")
    assert Status(int(result["status"])) is Status.POOR_OVERLAP


@pytest.mark.parametrize("spread", [0.6, 6.0])
def test_pitfalls_17_18_flags_travel_with_every_estimate(spread):
    """Poor overlap is named by every member of the family, stabilised weights and stacks included."""
    data = small(32, n=60, spread=spread)
    raw = snips.estimate(data)["ess_fraction_raw"].sel(policy="target") * 56
    expected = Status.POOR_OVERLAP if spread > 1 else Status.TRANSPORT_ASSUMED
    assert bool(raw < 10) is (spread > 1)
    for module in FAMILY:
        result = module.estimate(data, **unrefused(module))
        assert Status(int(result["status"].sel(policy="target"))) is expected
        assert np.isfinite(of_target(result))
        assert of_target(result, "ess_fraction_raw") * 56 == pytest.approx(float(raw))
