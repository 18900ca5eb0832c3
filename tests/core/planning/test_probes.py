"""Probes in a plan: their share of the budget, what stands in for those a pilot lacks, and which policies get any."""

import numpy as np
import pytest

import cje_sim
from cje_core.calibration.calibrated import calibrated
from cje_core.estimators import direct_corrected
from cje_core.planning.forecast import std_error_at
from cje_core.planning.probes import (
    FEWEST_PROBES,
    ProbeOption,
    Spending,
    choose_probes,
    probe_counts,
    purchase_shares,
    spend,
    stand_in_probes,
    with_probes,
)
from cje_core.planning.trial import resample_pilot, simulate_plan
from cje_core.workflow.plan import plan


def cheapest(budget, costs, sigma2, terms):
    """Least variance over a dense grid of labels and probes of two policies, what is left going to prompts."""
    prompt, label, probe = costs
    numbers = np.unique(np.concatenate([[FEWEST_PROBES], np.geomspace(10, budget / probe, 60).astype(int)]))
    labels = np.unique(np.geomspace(4, max(4, int(budget / label)), 80).astype(int))
    a, b, m = np.meshgrid(numbers, numbers, labels, indexing="ij")
    n = np.floor((budget - probe * (a + b) - label * m) / prompt * (1 + 1e-12) + 1e-9)
    possible = n >= np.maximum(np.maximum(a, b), m)
    variance = sigma2[0] / np.maximum(n, 1) + sigma2[1] / m + terms[0] / a + terms[1] / b
    return np.where(possible, variance, np.inf).min()


@pytest.mark.parametrize("seed", range(12))
def test_a_budget_is_spent_as_well_as_on_a_grid(seed):
    rng = np.random.default_rng(seed)
    costs, sigma2, terms = (
        10 ** rng.uniform(-2, 0, 3),
        10 ** rng.uniform(-4, 0, 2),
        10 ** rng.uniform(-3, 0, 2),
    )
    budget = (10 * (costs[0] + 2 * costs[2]) + 4 * costs[1]) * 10 ** rng.uniform(0.3, 1.2)
    plan_, probes = spend(budget, *costs, *sigma2, dict(zip("ab", terms, strict=True)))
    variance = sigma2[0] / plan_.n + sigma2[1] / plan_.m + terms[0] / probes["a"] + terms[1] / probes["b"]
    assert plan_.std_error**2 == pytest.approx(variance)
    assert (
        costs @ [plan_.n, plan_.m, sum(probes.values())] == pytest.approx(plan_.cost) and plan_.cost <= budget
    )
    assert (
        4 <= plan_.m <= plan_.n and min(probes.values()) >= FEWEST_PROBES and max(probes.values()) <= plan_.n
    )
    assert variance <= 1.03 * cheapest(budget, costs, sigma2, terms)


def test_inside_its_bounds_the_law_gives_each_purchase_its_share_of_the_spend():
    """By hand: numbers go like sqrt(term / cost); planted: all labels to the source policy is not balanced."""
    plan_, probes = spend(4000, 0.01, 1.0, 2.0, 0.04, 0.09, {"a": 0.08, "b": 0.32})
    assert probes["b"] / probes["a"] == pytest.approx(2, rel=0.01)
    assert plan_.m / probes["a"] == pytest.approx(np.sqrt(0.09 / (0.08 / 2)), rel=0.01)
    variances = (0.04 / plan_.n, 0.09 / plan_.m, 0.08 / probes["a"] + 0.32 / probes["b"])
    costs = (0.01 * plan_.n, plan_.m, 2.0 * sum(probes.values()))
    shares = purchase_shares(plan_.n, plan_.m, variances, costs)
    assert shares.advice == "balanced" and shares.probe_share == pytest.approx(
        shares.probe_spend_share, abs=0.01
    )
    assert purchase_shares(4000, 3900, (1e-5, 2e-5, 1e-2), (40.0, 3900.0, 60.0)).advice == "more probes"


def test_too_little_money_for_probes_says_what_it_takes():
    with pytest.raises(ValueError, match=r"10 probes of each of 2 policies; it takes at least 24\.1"):
        spend(20, 0.01, 1.0, 1.0, 0.1, 0.1, {"a": 0.1, "b": 0.1})


def test_policies_get_probes_one_by_one_as_long_as_the_criterion_falls():
    gain = {"a": -3.0, "b": 1.0, "c": -1.0}
    tried = []

    def spending(chosen):
        tried.append(chosen)
        if len(chosen) > 2:
            raise ValueError("too little money")
        return Spending(None, dict.fromkeys(chosen, 10)), sum(gain[name] for name in chosen)

    best, chosen = choose_probes(dict.fromkeys("abc", ProbeOption(0, 1)), (), spending)
    assert chosen == ("a", "c") and list(best.probes) == ["a", "c"]
    assert choose_probes(dict.fromkeys("abc", ProbeOption(0, 1)), ("b",), spending)[1] == ("b", "a")


def pilot(seed=1, world="binary_oracle"):
    return cje_sim.simulate(world, n=400, oracle_fraction=0.3, label_design="base", rng=seed)


def test_stand_ins_are_labels_of_like_scores():
    """With a judge of few levels all labels of the level take part; the labels that calibrate stay as they are."""
    data = pilot(world="discrete_judge")
    stood = stand_in_probes(calibrated(data), ["clone"]).data
    assert probe_counts(stood) == {"clone": 400} and not (stood.probe & stood.labelled).any()
    base = stood.sel(policy="base")
    assert base.oracle.sel(prompt=data.prompt).equals(data.oracle.sel(policy="base"))
    clone = stood.sel(policy="clone").isel(draw=0)
    score, label = (base[name].isel(draw=0).where(base.labelled.isel(draw=0)) for name in ("judge", "oracle"))
    for level in np.unique(clone.judge.values):
        donors = label.values[score.values == level]
        mine = clone.oracle.values[clone.judge.values == level]
        if len(donors) >= 5 and len(mine) >= len(donors):
            assert set(mine) == set(donors)  # planted: the first five alone are a part of them
            assert abs(mine.mean() - donors.mean()) < donors.std() + 1e-9
    again = stand_in_probes(calibrated(data.isel(prompt=slice(None, None, -1))), ["clone"]).data
    assert again.oracle.equals(stood.oracle)


def test_the_probes_part_falls_with_their_number():
    given = calibrated(cje_sim.simulate("transport_shift", n=400, n_probes=40, rng=1))
    _, now, _ = with_probes(given, {})
    _, more, pairs = with_probes(given, {"lower": 160}, reference="base")
    ratio = (more["variance_probes"] / now["variance_probes"]).sel(policy=["lower", "same"]).values
    np.testing.assert_allclose(ratio, [0.25, 1.0])
    assert float(more["df_probes"].sel(policy="lower")) == pytest.approx(
        float(now["df_probes"].sel(policy="lower")) + 120
    )
    before = with_probes(given, {}, reference="base")[2]["variance_probes"]
    np.testing.assert_allclose(
        (pairs["variance_probes"] / before).values, np.where(before["first"] == "lower", 0.25, 1)
    )


def test_resampled_studies_hold_the_planned_probes():
    data = cje_sim.simulate("transport_shift", n=400, n_probes=40, rng=1)
    study = simulate_plan(data, 300, 60, replicates=20, rng=1, probes={"lower": 90, "same": 20})
    assert (study["n_failed"] == 0).all()
    same = resample_pilot(data, 300, 60, 1, with_probes=True)
    assert probe_counts(same) == probe_counts(data)


@pytest.mark.slow
def test_forecasts_by_stand_ins_are_those_of_fresh_studies():
    """Where transport is exact: mean forecast of 20 pilots against the spread of 150 studies with 80 real probes.

    The ratio of a mean of 15 forecasts or more (each off by some 10%) and a spread of 150 has a standard error of 6.3%.
    """
    names = ["slightly_better", "worse"]
    forecasts = []
    for seed in range(20):
        _, components, _ = with_probes(calibrated(pilot(seed)), dict.fromkeys(names, 80))
        forecasts.append(std_error_at(400, 120, components)["std_error"].sel(policy=names).values)
    values = []
    for seed in range(150):
        rng = np.random.default_rng(1000 + seed)
        data = cje_sim.simulate("binary_oracle", n=400, oracle_fraction=1.0, rng=1000 + seed)
        labelled, probe = np.zeros((2, *data.oracle.shape), dtype=bool)
        for k, name in enumerate(data.policy.values.astype(str)):
            if name == "base" or name in names:
                chosen = rng.choice(400, 120 if name == "base" else 80, replace=False)
                (labelled if name == "base" else probe)[k, chosen] = True
        dims = data.oracle.dims
        study = data.assign(
            labelled=(dims, labelled), probe=(dims, probe), oracle=data.oracle.where(labelled | probe)
        )
        values.append(direct_corrected.estimate(study)["estimate"].sel(policy=names).values)
    assert np.isfinite(forecasts).sum(axis=0).min() >= 15  # some pilots refuse the policy far from the labels
    ratio = np.nanmean(forecasts, axis=0) / np.std(values, axis=0, ddof=1)
    assert (np.abs(ratio - 1) < 5 * 0.063).all()


COSTS = {"cost_judge": 0.02, "cost_oracle": 1.0, "replicates": 20}


@pytest.mark.slow
def test_every_error_falls_with_the_budget_where_policies_are_probed():
    """Four times the money halves every error; labels of base alone would leave the probed ones where they are."""
    data = cje_sim.simulate("transport_shift", n=300, n_probes=40, rng=1)
    small, large = (plan(data, budget=budget, **COSTS) for budget in (300, 1200))
    assert set(large.probe_labels) == {"same", "lower", "flatter", "compensating"} and large.unmoved == []
    ratio = large.forecast["std_error"] / small.forecast["std_error"]
    np.testing.assert_allclose(ratio, 0.5, rtol=0.03)
    assert large.achievable and large.balance.advice == "balanced"
    assert large.pilot_balance.advice in ("more probes", "more labels")


@pytest.mark.slow
def test_a_borrowing_policy_gets_probes_where_money_is_not_what_limits_it():
    """Little money, or transport that is exact: borrow. Much: labels of base cannot show a bias, probes can."""
    data = pilot(world="discrete_judge")
    poor, rich = (plan(data, budget=budget, **COSTS) for budget in (60, 2000))
    exact = plan(data, budget=2000, margin=1e-4, **COSTS)
    assert poor.probe_labels == exact.probe_labels == {} and poor.borrowing == exact.borrowing != []
    assert rich.stand_ins == exact.borrowing and rich.borrowing == []
    assert np.isfinite(rich.forecast["std_error"].values).all()
    assert max(rich.probe_labels.values()) <= rich.plan.n and rich.plan.cost <= 2000
    mixed = plan(
        data, budget=100, **COSTS
    )  # the policy far from the labels first: borrowing leaves it the most
    assert list(mixed.probe_labels) == ["worse"] and mixed.borrowing == ["better", "clone"]


@pytest.mark.slow
def test_a_plan_for_policies_with_labels_alone_buys_no_probes():
    data = cje_sim.simulate("transport_shift", n=300, n_probes=40, rng=1)
    one = plan(data, budget=300, n_policies=1, **COSTS)
    assert one.probe_labels == {} and set(one.unmoved) == {"same", "lower", "flatter", "compensating"}
    three = plan(data, budget=300, n_policies=3, **COSTS)
    assert three.cost_per_probe == pytest.approx(0.5)
    assert three.plan.cost <= 300
