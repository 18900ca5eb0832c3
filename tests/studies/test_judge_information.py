"""What a judge's information is worth: exact variances by slow routes, and an order that would be seen to fail."""

import numpy as np
import pytest
from scipy import optimize

from cje_sim.exact.judged_means import garbled, parts
from cje_sim.judges import inflate, oracle_mean
from cje_sim.scenarios import garbled_judge, length_bias
from studies import judge_information as info
from studies.engine import run

STUDY = info.STUDY


@pytest.mark.slow
def test_parts_by_enumeration_and_by_optimisation():
    """Var Y and what predictions leave of it, by a loop over all cells and by a general-purpose minimiser."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        law = rng.dirichlet(np.ones(12)).reshape(4, 3)
        y = np.array([0.0, 0.3, 1.0])
        mean = sum(law[s, k] * y[k] for s in range(4) for k in range(3))

        def left(g, law=law, y=y):
            return sum(law[s, k] * (y[k] - g[s]) ** 2 for s in range(4) for k in range(3))

        found = parts(law, y)
        assert found.whole == pytest.approx(left(np.full(4, mean)), abs=1e-12)
        best = [law[s] @ y / law[s].sum() for s in range(4)]
        assert found.bound == pytest.approx(left(best), abs=1e-12)
        steps = [(None, None)] + [(0, None)] * 3  # g as a start and rises
        rising = optimize.minimize(lambda d: left(np.cumsum(d)), np.full(4, 0.1), bounds=steps, tol=1e-14)
        assert found.monotone == pytest.approx(rising.fun, abs=1e-6)


def test_random_orders_hold_for_bounds_alone_and_the_machinery_would_notice():
    orders = info.random_orders()
    assert (orders["bound"] >= -1e-12).all() and (orders["rising"] < -1e-3).any()
    law = np.random.default_rng(0).dirichlet(np.ones(10)).reshape(5, 2)
    channel = np.random.default_rng(1).dirichlet(np.ones(5), size=5)
    wrong = channel @ law  # a channel the wrong way round is none
    assert parts(garbled(law, channel), [0, 1]).bound >= parts(law, [0, 1]).bound
    with pytest.raises(ValueError, match="each row of a channel"):
        garbled(law, channel.T * 2)
    assert not np.allclose(wrong, garbled(law, channel))


@pytest.mark.slow
def test_exact_bounds_of_the_worlds_by_simulation():
    """What 300,000 responses leave after their cell means; 5 Monte Carlo standard errors."""
    data = garbled_judge.simulate(
        n=300_000, bits=2, oracle_fraction=1.0, label_design="base", prompt_corr=0.0, rng=1
    ).sel(policy="base")
    score, label = data["judge"].values.ravel(), data["oracle"].values.ravel()
    cell = np.unique(score, return_inverse=True)[1]
    means = np.bincount(cell, label) / np.bincount(cell)
    square = (label - means[cell]) ** 2
    exact = info.left("coarse", info.BITS.index(2))[1]
    assert abs(square.mean() - exact) < 5 * square.std() / np.sqrt(square.size)
    assert abs(square.mean() - info.left("coarse", 4)[1]) > 5 * square.std() / np.sqrt(square.size)


@pytest.mark.slow
def test_covariate_bounds_by_simulation():
    """With the covariate what E[Y | S, X] leaves, without it what narrow bins of the score leave."""
    data = length_bias.simulate(n=300_000, oracle_fraction=1.0, label_design="base", prompt_corr=0.0, rng=1)
    data = data.sel(policy="base")
    label, score, length = (data[name].values.ravel() for name in ("oracle", "judge", "covariate"))
    reward = oracle_mean(inflate(score, -0.5 * length))
    rank = np.argsort(np.argsort(score))
    cell = rank * 1000 // rank.size
    means = np.bincount(cell, label) / np.bincount(cell)
    _, within, _ = info._length_parts()
    bound = info.left("length", 0)[1]
    for square, exact in (
        ((label - reward) ** 2, within),
        ((label - means[cell]) ** 2 / (1 - 1000 / rank.size), bound),
    ):
        assert abs(square.mean() - exact) < 5 * square.std() / np.sqrt(square.size)
    assert bound > 1.1 * within


def test_folded_and_noisy_reports():
    share = info.levels_of("folded", 1)[1]
    assert share.tolist() == [0.25] * 4
    whole, bound, rising = info.left("folded", 0)
    assert rising > bound and info.left("folded", 1) == pytest.approx((whole, bound, bound), abs=1e-12)
    assert info.left("noisy", 4)[1] == pytest.approx(
        info.left("noisy", 4)[0], abs=1e-12
    )  # nothing gets through
    values = {float(info.truth_levels(judge="noisy", loss=k).item()) for k in range(5)}
    assert max(values) - min(values) < 1e-12


@pytest.mark.slow
def test_smoke(tmp_path):
    ds = run.run_study(STUDY, profile="smoke", out=tmp_path, jobs=1).results
    found = STUDY.findings(ds)
    assert [one.holds for one in found[:2]] == [True, False]
    assert len(STUDY.table(ds)) == 3 and len(STUDY.figure(ds)) == 1
    rows = info._measured(ds)
    rows["empirical_se"], rows["empirical_se_mcse"] = rows["exact_rising"], 1e-4
    assert info._simulated(rows).holds is True
    rows["empirical_se"] *= 1.3
    assert info._simulated(rows).holds is False
