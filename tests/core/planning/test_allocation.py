"""Budget allocation, variance components and power against definitions and brute force."""

import warnings

import numpy as np
import oracles_compare as slow
import pytest
import xarray as xr
from oracles_compare import only
from scipy import stats
from statsmodels.stats.power import normal_power

from cje_core.data import from_arrays
from cje_core.estimators import direct
from cje_core.inference.contrasts import against
from cje_core.inference.estimate import Status
from cje_core.planning.allocation import allocate, optimal_fraction, spend_balance
from cje_core.planning.components import variance_components
from cje_core.planning.forecast import effect_at, extrapolation, labels_needed, mde_surface, std_error_at
from cje_core.planning.power import detectable, mde, power_at
from cje_sim.scenarios import clustered, useless_judge, well_specified


def pilot(design="own", n=400, fraction=0.3, rng=4, **options):
    return well_specified.simulate(n=n, oracle_fraction=fraction, label_design=design, rng=rng, **options)


# --- the law ---


def test_the_papers_worked_example():
    """At n = 1000, m = 50 and c_S / c_Y = .064 the labels make 90% of the variance: ratio .45, share 17%."""
    omega, n, m, cost_ratio = 0.90, 1000, 50, 0.064
    ratio = omega * m / ((1 - omega) * n)
    assert ratio == pytest.approx(0.45)
    assert optimal_fraction(cost_ratio, 1.0, 1.0, ratio) == pytest.approx(np.sqrt(0.064 * 0.45))
    assert f"{optimal_fraction(cost_ratio, 1.0, 1.0, ratio):.0%}" == "17%"
    balance = spend_balance(n, m, 1.0, ratio, cost_ratio, 1.0)
    assert balance.calibration_share == pytest.approx(omega)
    assert balance.spend_share == pytest.approx(50 / (50 + 64))
    assert balance.advice == "more labels"
    spent = cost_ratio * n + m
    plan = allocate(spent, cost_ratio, 1.0, 1.0, ratio)
    assert plan.m / plan.n == pytest.approx(0.17, abs=0.01)
    assert plan.std_error**2 < ratio / m + 1 / n


def test_a_peers_plan_on_the_arena_pilot():
    """A peer planned n = 55013, m = 27811 for 5000 at .01 and .16 from components printed as .0120 and .0490."""
    low = np.sqrt(0.01 / 0.16 * 0.04895 / 0.01205)
    high = np.sqrt(0.01 / 0.16 * 0.04905 / 0.01195)
    plan = allocate(5000, 0.01, 0.16, 0.0120, 0.0490)
    assert low < plan.m / plan.n < high
    assert low < 27811 / 55013 < high
    assert abs(plan.n - 55013) < 55013 * (high / low - 1)


def test_allocation_is_never_beaten_by_any_pair_of_whole_numbers():
    rng = np.random.default_rng(7)
    for _ in range(300):
        budget = rng.uniform(5, 60)
        judge, oracle = rng.uniform(0.05, 1.5, 2)
        sigma2 = rng.uniform(0, 1, 2) * (rng.uniform(size=2) > 0.1) + 1e-12 * (rng.uniform(size=2) > 0.5)
        n_policies, m_min = int(rng.integers(1, 4)), int(rng.integers(1, 5))
        if sigma2.sum() == 0 or budget < m_min * (judge * n_policies + oracle):
            continue
        plan = allocate(budget, judge, oracle, *sigma2, n_policies=n_policies, m_min=m_min)
        best = slow.best_plan(budget, judge * n_policies, oracle, *sigma2, m_min)
        np.testing.assert_allclose(plan.std_error**2, best, rtol=1e-12)
        np.testing.assert_allclose(plan.std_error**2, sigma2[0] / plan.n + sigma2[1] / plan.m, rtol=1e-12)
        assert m_min <= plan.m <= plan.n
        cost = judge * n_policies * plan.n + oracle * plan.m
        assert cost <= budget * (1 + 1e-9)
        np.testing.assert_allclose([plan.cost, plan.spend_share], [cost, oracle * plan.m / cost])


def test_large_budgets_reach_the_closed_form():
    sigma2_eval, sigma2_cal, judge, oracle, budget = 0.012, 0.049, 0.01, 0.16, 1e6
    plan = allocate(budget, judge, oracle, sigma2_eval, sigma2_cal)
    root = np.sqrt(judge * sigma2_eval) + np.sqrt(oracle * sigma2_cal)
    n, m = budget * np.sqrt(sigma2_eval / judge) / root, budget * np.sqrt(sigma2_cal / oracle) / root
    # whole numbers cost at most one unit of each kind; near the optimum the variance is flat, so m moves by a root
    assert root**2 / budget <= plan.std_error**2 <= root**2 / budget * (1 + 2 / m)
    assert abs(plan.m / m - 1) < 2 * np.sqrt(2 / m) and abs(plan.n / n - 1) < 2 * np.sqrt(2 / m)
    np.testing.assert_allclose(plan.calibration_share, plan.spend_share, atol=2 * np.sqrt(2 / m))
    assert spend_balance(plan.n, plan.m, sigma2_eval, sigma2_cal, judge, oracle).advice == "balanced"


def test_policies_that_share_labels_raise_their_share_by_the_root():
    one, four = (optimal_fraction(0.001, 1.0, 1.0, 0.5, n_policies=p) for p in (1, 4))
    assert four == pytest.approx(2 * one)
    assert allocate(500, 0.01, 1.0, 1.0, 0.5, n_policies=4)[:2] == allocate(500, 0.04, 1.0, 1.0, 0.5)[:2]


def test_corners():
    cheap_labels = allocate(100, 1.0, 0.1, 0.1, 0.9)
    assert cheap_labels.all_labelled and cheap_labels[:2] == (
        91,
        90,
    )  # one more score is all the rest pays for
    assert optimal_fraction(1.0, 0.1, 0.1, 0.9) == 1
    useless_judge_plan = allocate(100, 0.01, 1.0, 0.0, 1.0)
    assert useless_judge_plan.m == 99 and useless_judge_plan.all_labelled
    perfect_judge = allocate(100, 0.01, 1.0, 1.0, 0.0)
    assert (perfect_judge.m, perfect_judge.n) == (4, 9600)
    assert allocate(4.4, 0.1, 1.0, 1.0, 1.0)[:2] == (4, 4)  # exactly what four labelled prompts cost
    assert allocate(0.3, 0.1, 1e-9, 1.0, 0.0, m_min=1).n == 2  # 0.3 / 0.1 is below 3 once the label is paid
    assert optimal_fraction(0.1, 1.0, 0.0, 1.0) == 1


def test_money_has_no_unit():
    assert (
        allocate(50, 0.01, 0.16, 1, 2)[:2]
        == allocate(50e6, 1e4, 1.6e5, 1, 2)[:2]
        == allocate(50, 0.01, 0.16, 5, 10)[:2]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (4.3, 0.1, 1.0, 1.0, 1.0),
            "budget of 4.3 does not pay for 4 labelled prompts; it takes at least 4.4",
        ),
        ((0, 0.1, 1.0, 1.0, 1.0), "budget is 0"),
        ((1, -0.1, 1.0, 1.0, 1.0), "cost_judge is -0.1"),
        ((1, 0.1, np.nan, 1.0, 1.0), "cost_oracle is nan"),
        ((9, 0.1, 1.0, -1.0, 1.0), "cannot be negative"),
        ((9, 0.1, 1.0, 0.0, 0.0), "both zero"),
    ],
)
def test_bad_budgets_say_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        allocate(*arguments)


def test_money_in_any_unit_buys_the_same_plan():
    """Squares of 1e300 are no number, and neither is a price in so small a unit that it pays for 1e300 labels."""
    sigma2 = 0.012, 0.049
    plain = allocate(100.0, 0.01, 0.16, *sigma2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for unit in (2.0**900, 2.0**-900, 1e300, 1e-300):
            plan = allocate(100.0 * unit, 0.01 * unit, 0.16 * unit, *sigma2)
            assert plan[:2] == plain[:2] and plan.spend_share == pytest.approx(plain.spend_share)
            balance = spend_balance(1e4, 500, *sigma2, 0.01 * unit, 0.16 * unit)
            assert balance.spend_share == pytest.approx(80 / 180)
        assert spend_balance(1e4, 500, *sigma2, 1e307, 1e307).spend_share == pytest.approx(500 / 10_500)
        for budget, judge, oracle in (
            (1e300, 0.01, 0.16),
            (100, 1e-300, 0.16),
            (100, 0.01, 5e-324),
            (1e18, 1, 1),
        ):
            with pytest.raises(ValueError, match=r"pays for more than 1e\+10 prompts or labels"):
                allocate(budget, judge, oracle, *sigma2)
        with pytest.raises(ValueError, match=r"1e\+308 does not pay for 4 labelled prompts"):
            allocate(1e308, 1e308, 1e308, *sigma2)


def test_spend_balance_advice():
    assert spend_balance(100, 50, 1.0, 0.01, 1.0, 10.0).advice == "more prompts"
    assert spend_balance(100, 100, 0.01, 1.0, 1.0, 0.1).advice == "all labelled"
    assert spend_balance(100, 20, 1.0, 0.2, 1.0, 5.0).advice == "balanced"
    assert spend_balance(100, 50, -0.1, 1.0, 1.0, 1.0).calibration_share == 1
    with pytest.raises(ValueError, match="m must lie in"):
        spend_balance(10, 11, 1, 1, 1, 1)


# --- power ---


def test_power_is_that_of_a_normal_test_in_the_limit_and_known_at_any_effect():
    """Planted once: without NaN taken for 1, the upper tail is NaN at 38 standard errors and 9 df."""
    effect = np.array([-2.8, 0.0, 0.7, 8.0, 15.0, 38.0, 40.0])
    for df in (3, 9, 200, 1e6, np.inf):
        found = power_at(effect, 1.0, df)
        assert np.isfinite(found).all() and (found <= normal_power(effect, 1, 0.05) * (1 + 1e-12)).all()
    np.testing.assert_allclose(found, normal_power(effect, 1, 0.05), rtol=1e-12)
    assert np.isnan(power_at([np.nan, 1.0, np.inf], 1.0, [9.0, np.nan, 9.0])).all()


def test_detectable_effect_has_its_power_and_scales():
    df = np.array([3.0, 9.5, 80.0, 1e7, np.inf, np.nan])
    for power, ci_prob in ((0.8, 0.95), (0.1, 0.95), (0.5, 0.6), (0.99, 0.99)):
        effect = detectable(0.3, df, power=power, ci_prob=ci_prob)
        np.testing.assert_allclose(power_at(effect[:-1], 0.3, df[:-1], ci_prob=ci_prob), power, atol=1e-6)
        assert np.isnan(effect[-1])
    assert np.isnan(detectable(np.nan))
    with pytest.raises(ValueError, match=r"power is 0\.05"):
        detectable(1.0, power=0.05)


def test_mde_of_the_paper_and_of_paired_estimates():
    """The paper's formula leaves out the far tail, which adds 1e-6 to the power."""
    paper = (stats.norm.ppf(0.8) + stats.norm.ppf(0.975)) * np.sqrt(2) * 0.01
    np.testing.assert_allclose(mde(0.01), paper, rtol=1e-5)
    np.testing.assert_allclose(mde(0.01, paired_correlation=0.75), paper / 2, rtol=1e-5)
    with pytest.raises(ValueError, match="paired_correlation=1"):
        mde(0.01, paired_correlation=1.0)


def test_pitfall_37_the_normal_formula_loses_power_where_the_interval_uses_t():
    """80% become 77% with 30 labels and 70% with 10; the two tails are both counted."""
    paper = stats.norm.ppf(0.8) + stats.norm.ppf(0.975)
    reached = power_at(paper, 1.0, np.array([29.0, 9.0]))
    np.testing.assert_allclose(reached, [0.77, 0.70], atol=0.005)
    ours = detectable(1.0, np.array([29.0, 9.0]))
    assert (ours > paper).all()
    np.testing.assert_allclose(power_at(ours, 1.0, np.array([29.0, 9.0])), 0.8, atol=1e-6)
    assert power_at(0.0, 1.0) == pytest.approx(0.05)  # one-sided counting would give 2.5%


# --- variance components ---


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("design", ["own", "base"])
def test_components_give_back_the_pilots_standard_errors(design, tuned):
    data = pilot(design)
    components = variance_components(data, power_tuned=tuned, borrowed="plug_in")
    estimate = direct.estimate(data, inference="influence", power_tuned=tuned, borrowed="plug_in")
    np.testing.assert_allclose(components.std_error, estimate.std_error, rtol=1e-12)
    n, m = components.attrs["n"], components.attrs["m"]
    assert (n, m) == (400, 120)
    forecast = std_error_at(n, m, components)
    np.testing.assert_allclose(forecast.std_error, estimate.std_error, rtol=1e-12)
    np.testing.assert_allclose(forecast.df, estimate.df, rtol=1e-9)
    np.testing.assert_allclose(forecast.calibration_share, components.calibration_share, rtol=1e-12)
    assert components["route"].values.tolist() == estimate["route"].values.tolist()
    expected = Status.OK if design == "own" else Status.TRANSPORT_ASSUMED
    assert components.status.values[-1] == expected
    contrast = variance_components(data, reference="base", power_tuned=tuned, borrowed="plug_in")
    versus = against(estimate, "base").set_index(pair="first").sel(pair=contrast["first"].values)
    np.testing.assert_allclose(contrast.std_error, versus.std_error, rtol=1e-12)
    assert "base" not in contrast["first"].values


def test_components_of_own_labels_are_the_two_phase_formula():
    data = only(pilot(n=80, fraction=0.4), "base")
    label = [None if np.isnan(y) else float(y) for y in data.oracle.values[0, :, 0]]
    expected = slow.two_phase(data.judge.values[0, :, 0].tolist(), label, data.prompt.values.tolist())
    found = variance_components(data, power_tuned=False)
    np.testing.assert_allclose([found.sigma2_eval[0], found.sigma2_cal[0]], expected, rtol=1e-10)


def test_a_pilot_labelled_entirely_splits_the_variance_of_the_label():
    data = only(pilot(n=600, fraction=1.0), "base")
    found = variance_components(data)
    assert found["route"].values[0] == "theta_aug"
    assert float(found.sigma2_cal[0]) > 0
    whole = float(found.sigma2_eval[0] + found.sigma2_cal[0])
    # Y differs from f + (Y - f^(-k)) by f - f^(-k) only, a few percent of its spread
    np.testing.assert_allclose(whole, np.var(data.oracle.values, ddof=1), rtol=0.05)


def test_components_count_clusters_draws_and_label_probabilities():
    for data in (clustered.simulate(n=300, oracle_fraction=0.3, rng=2), pilot(label_scheme="score")):
        expected = direct.estimate(data, inference="influence").std_error
        np.testing.assert_allclose(variance_components(data).std_error, expected, rtol=1e-12)
    one = only(pilot(n=60, fraction=0.5), "base", "better")
    twice = xr.concat([one, one.assign_coords(draw=[1])], "draw")
    twice["labelled"][..., 1] = False
    twice["oracle"][..., 1] = np.nan
    attrs = variance_components(twice.assign_attrs(one.attrs)).attrs
    assert (attrs["responses_per_prompt"], attrs["labels_per_prompt"], attrs["n"], attrs["m"]) == (
        4.0,
        2.0,
        60,
        30,
    )


def test_components_follow_the_scale_of_the_labels():
    data = pilot("base")
    wide = data.assign(oracle=100 * data.oracle).assign_attrs(oracle_range=[0.0, 100.0])
    small, large = variance_components(data), variance_components(wide)
    for name in ("sigma2_eval", "sigma2_cal", "sigma2_eval_se", "sigma2_cal_se"):
        np.testing.assert_allclose(large[name], 1e4 * small[name], rtol=1e-9)
    np.testing.assert_allclose(large.calibration_share, small.calibration_share, rtol=1e-9)


def test_statistical_failure_of_a_pilot_is_data():
    none = variance_components(from_arrays([[0.1, 0.5, 0.9, 0.3]], policies=["a"]))
    assert none.status.values[0] == Status.NO_LABELS and np.isnan(none.sigma2_cal[0])
    # own labels that never vary show no spread to plan with, though the labels that teach do
    rng = np.random.default_rng(0)
    judge = rng.uniform(size=(2, 40))
    label = np.clip(judge + rng.normal(0, 0.1, (2, 40)), 0, 1)
    label[1] = 1.0
    own = variance_components(
        from_arrays(judge, policies=["a", "b"], oracle=label, calibration_policy="a"), power_tuned=True
    )
    assert own.status.values.tolist() == [Status.OK, Status.CONSTANT_LABELS]
    assert np.isfinite(own.std_error.values).tolist() == [True, False]
    constant = variance_components(from_arrays([np.linspace(0, 1, 8)], policies=["a"], oracle=[np.ones(8)]))
    assert constant.status.values[0] == Status.CONSTANT_LABELS and np.isnan(constant.std_error[0])
    with pytest.raises(ValueError, match="reference='z': the data have base"):
        variance_components(pilot(), reference="z")


def test_a_useless_judge_leaves_nothing_to_the_prompts():
    components = variance_components(useless_judge.simulate(n=2000, oracle_fraction=0.5, rng=3)).isel(
        policy=0
    )
    share = float(components.sigma2_eval / (components.sigma2_eval + components.sigma2_cal))
    assert abs(share) < 5 * float(components.sigma2_eval_se / components.sigma2_cal) + 0.02
    plan = allocate(200, 0.05, 1.0, max(float(components.sigma2_eval), 0.0), float(components.sigma2_cal))
    assert plan.m > 0.5 * plan.n


# --- forecasts ---


def test_forecasts_follow_the_law_and_know_their_limits():
    components = variance_components(pilot("base"), borrowed="plug_in")
    found = std_error_at(5000, 250, components)
    expected = components.sigma2_eval / 5000 + components.sigma2_cal / 250
    np.testing.assert_allclose(found.std_error**2, expected)
    gradient = np.stack([np.full(4, 1 / 5000), np.full(4, 1 / 250)])
    spread = (
        (gradient[0] * components.sigma2_eval_se) ** 2
        + (gradient[1] * components.sigma2_cal_se) ** 2
        + 2 * gradient[0] * gradient[1] * components.sigma2_covariance
    )
    np.testing.assert_allclose(found.std_error_se, np.sqrt(spread) / (2 * found.std_error))
    assert np.isnan(std_error_at(100, 101, components).std_error).all()
    assert np.isnan(std_error_at(100, 3, components).std_error).all()
    few, many = std_error_at(400, 10, components).df, std_error_at(400, 300, components).df
    assert (few <= 10).all() and (many > few).all()


def test_extrapolation_names_what_lies_outside():
    components = variance_components(pilot())  # 400 prompts, 120 labelled
    assert extrapolation(400, 120, components) == [] == extrapolation(100, 30, components)
    [wide] = extrapolation(4000, 100, components)
    assert wide == "n = 4000 is 10.0 times the pilot's 400 prompts"
    assert "2.0 times the pilot's 120 labelled prompts" in extrapolation(400, 240, components)[0]
    assert "under a quarter" in extrapolation(400, 29, components)[0]


def test_surface_agrees_with_single_designs_and_costs():
    components = variance_components(pilot("base"), borrowed="plug_in")
    surface = mde_surface(
        components, [100, 400, 1600], [0.02, 0.1, 0.5, 1.0], cost_judge=0.1, cost_oracle=2.0, n_policies=4
    )
    assert dict(surface.sizes) == {"policy": 4, "n": 3, "fraction": 4}
    assert np.isnan(surface.mde.sel(n=100, fraction=0.02)).all()  # two labels
    cell = surface.sel(n=1600, fraction=0.1)
    np.testing.assert_allclose(cell.mde, effect_at(1600, 160, components))
    np.testing.assert_allclose(
        cell.mde,
        mde(
            std_error_at(1600, 160, components).std_error.values,
            std_error_at(1600, 160, components).df.values,
        ),
    )
    assert float(cell.cost) == pytest.approx(0.1 * 4 * 1600 + 2 * 160)
    assert bool(cell.extrapolates) and not bool(surface.extrapolates.sel(n=400, fraction=0.1))
    assert bool(surface.extrapolates.sel(n=100, fraction=0.1))  # ten labels
    known = surface.mde.isel(fraction=slice(1, None)).transpose("policy", "n", "fraction")
    assert (known.fillna(1.0) <= 1.0).all() and np.isnan(known).any()  # one design sees nothing on the scale
    free = components.copy()
    free.attrs.pop("scale_width")
    wide = mde_surface(
        free, [100, 400, 1600], [0.1, 0.5, 1.0], cost_judge=0.1, cost_oracle=2.0, n_policies=4
    ).mde
    wide = wide.transpose(*known.dims)
    np.testing.assert_allclose(known, wide.where(wide <= 1.0))
    assert (np.diff(wide, axis=1) < 0).all() and (np.diff(wide, axis=2) < 0).all()
    with pytest.raises(ValueError, match="labelled share"):
        mde_surface(components, [100], [1.5], cost_judge=1, cost_oracle=1)


@pytest.mark.slow
def test_labels_needed_is_the_fewest():
    for components in (
        variance_components(pilot("base"), borrowed="plug_in"),
        variance_components(pilot(), reference="base"),
    ):
        target = float(effect_at(900, 200, components)[0])
        found = labels_needed(target * 1.0001, 900, components)
        assert float(found[0]) == 200
        for k, m in enumerate(found.values):
            if np.isfinite(m):
                assert float(effect_at(900, m, components)[k]) <= target * 1.0001
                assert m == 4 or not float(effect_at(900, m - 1, components)[k]) <= target * 1.0001
            else:
                assert float(effect_at(900, 900, components)[k]) > target
        assert np.isnan(labels_needed(1e-9, 900, components)).all()
    with pytest.raises(ValueError, match="target_mde=0"):
        labels_needed(0, 900, components)
