"""The budget study: exact components by simulation, the optimum by brute force, what a wrong law would show."""

import numpy as np
import pytest

from cje_sim.exact.judged_means import score_parts
from cje_sim.scenarios import well_specified
from studies import budget
from studies.engine import run

STUDY = budget.STUDY


@pytest.mark.parametrize("world", budget.WORLDS)
def test_exact_components_are_those_of_simulated_labels(world):
    """Var E[Y | S] and E Var(Y | S) of 200,000 responses, 5 Monte Carlo standard errors; swapped they are not."""
    data = well_specified.simulate(
        n=200_000, oracle_fraction=1.0, label_design="base", prompt_corr=0.0, rng=2, **budget.WORLDS[world]
    )
    reward, label = (data[name].sel(policy="base").values.ravel() for name in ("true_reward", "oracle"))
    exact = budget.components(world)
    for squares, value in zip(((reward - reward.mean()) ** 2, (label - reward) ** 2), exact, strict=True):
        assert abs(squares.mean() - value) < 5 * squares.std() / np.sqrt(squares.size)
        assert abs(squares.mean() - sum(exact) / 2) > 5 * squares.std() / np.sqrt(squares.size)


def test_components_of_the_uniform_judge_by_hand():
    assert score_parts((1.0, 1.0), "linear", 0.0, 1.0, atoms=1.0) == pytest.approx((1 / 12, 1 / 6), abs=1e-9)


@pytest.mark.parametrize("world", budget.WORLDS)
@pytest.mark.parametrize("ratio", [16, 100])
def test_planned_optimum_by_brute_force(world, ratio):
    plan = budget.best(world, ratio)
    m = np.arange(4, int(budget.BUDGET / ratio))
    n = np.floor(budget.BUDGET - ratio * m)
    possible = (m <= n) & (n > 0)
    least = min(budget.variance(world, a, b) for a, b in zip(n[possible], m[possible], strict=True))
    assert budget.variance(world, plan.n, plan.m) == pytest.approx(least, rel=1e-12)
    assert plan.m <= plan.n and plan.cost <= budget.BUDGET


def test_cost_table_by_hand():
    """The paper's own numbers: 8.8 and 14 at the same n; at the same error from the labels that are as exact."""
    rows = budget.cost_table().set_index(["components", "policies"])
    assert rows.loc[("paper", 1), "same_n"] == pytest.approx(16 * 5000 / (5000 + 16 * 250))
    assert rows.loc[("paper", 5), "same_n"] == pytest.approx(5 * 16 * 5000 / (5 * 5000 + 16 * 250))
    labels = 1.45 / (1 / 5000 + 0.45 / 250)
    assert rows.loc[("paper", 1), "same_std_error"] == pytest.approx(16 * labels / 9000)


@pytest.mark.slow
def test_smoke_and_a_wrong_law(tmp_path):
    """The pilot's plans exist where they are asked for; errors of twice the law are noticed."""
    ds = run.run_study(STUDY, profile="smoke", out=tmp_path, jobs=1).results
    found = STUDY.findings(ds)
    assert len(found) == 5 and len(STUDY.figure(ds)) == 2 and len(STUDY.table(ds)) == 5
    pilots = ds["regret"].sel(labels_go="base").notnull().all("replicate")
    assert pilots.sel(share=budget.PILOT).all() and not pilots.drop_sel(share=budget.PILOT).any()
    assert (ds["regret"].sel(share=budget.PILOT, labels_go="base") >= -1e-12).all()
    splits = budget._splits(ds)
    splits["mse"], splits["mse_mcse"] = splits["law"], 0.01 * splits["law"]
    assert budget._law(splits).holds is True
    splits["mse"] *= 2
    assert budget._law(splits).holds is False
