"""Overlap weights: exact for their own estimand, by enumeration; never taken for an estimate of V."""

import numpy as np
import pytest
from ope_world import of_target, small
from oracles_ope import overlap_population
from scipy import special

from cje_core.data import from_arrays
from cje_core.estimators import direct, overlap_weights, snips
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.inference.side_by_side import compare
from cje_sim.scenarios import finite_model


def census():
    """Logged responses in exactly the proportions of the law, a thousand of them, each labelled; scores are sure."""
    pi, score_law, label_law = finite_model.tables(judge_noise=0.0)
    law = np.einsum("x,xa,xas,xasy->xasy", finite_model.PROMPTS, pi[0], score_law, label_law)
    count = np.round(1000 * law).astype(int)
    np.testing.assert_allclose(count / 1000, law, atol=1e-12)
    x, a, s, y = np.repeat(np.argwhere(count > 0), count[count > 0], axis=0).T
    judge = np.stack([finite_model.JUDGE_LEVELS[s]] * len(finite_model.POLICIES))
    oracle = np.full(judge.shape, np.nan)
    oracle[0] = finite_model.ORACLE_LEVELS[y]
    logp = np.log(pi)[:, x, a]
    return from_arrays(
        judge,
        policies=finite_model.POLICIES,
        oracle=oracle,
        logged={"logp_target": logp, "logp_logger": logp[0], "logged_judge": judge[0]},
    )


def test_exact_by_enumeration():
    out = overlap_weights.estimate(census(), borrowed="plug_in")
    for policy in finite_model.POLICIES:
        value, mass = overlap_population(policy, judge_noise=0.0)
        assert out.estimate.sel(policy=policy).item() == pytest.approx(value, abs=1e-12)
        assert out.overlap_mass.sel(policy=policy).item() == pytest.approx(mass, abs=1e-12)
    # and it is not V: weights r would give that, and are told apart
    truth = finite_model.truth(judge_noise=0.0)
    far = {"policy": "far"}
    assert snips.estimate(census(), borrowed="plug_in").estimate.sel(far).item() == pytest.approx(
        truth.sel(far).item(), abs=1e-12
    )
    assert abs(out.estimate.sel(far).item() - truth.sel(far).item()) > 0.03


@pytest.mark.parametrize("seed", range(3))
def test_matches_the_definition(seed):
    data = small(seed, spread=2.5)
    ratio = (data["logp_target"] - data["logp_logger"]).sel(policy="target").values
    weight = special.expit(ratio)
    used = np.isfinite(ratio)
    reward = direct_rewards(data)[used]
    expected = (weight[used] * reward).sum() / weight[used].sum()
    assert of_target(overlap_weights.estimate(data, borrowed="plug_in")) == pytest.approx(expected, abs=1e-12)


def direct_rewards(data):
    """R = f(S) of the logged responses, from scikit-learn's kind of isotonic fit written out."""
    score = data["judge"].sel(policy="base").values.ravel()
    label = data["oracle"].sel(policy="base").values.ravel()
    seen = np.isfinite(label)
    knot = np.unique(score[seen])
    blocks = [[label[seen & (score == s)].sum(), (seen & (score == s)).sum(), 1] for s in knot]
    k = 0
    while k + 1 < len(blocks):
        (a, n, i), (b, m, j) = blocks[k], blocks[k + 1]
        if a / n > b / m:
            blocks[k : k + 2] = [[a + b, n + m, i + j]]
            k = max(k - 1, 0)
        else:
            k += 1
    value = np.concatenate([np.full(size, total / n) for total, n, size in blocks])
    return np.interp(data["logged_judge"].values, knot, value)


def test_a_heavy_tail_is_tamed():
    """One response with all the raw weight: SNIPS rests on it, these weights do not, and the status is theirs."""
    data = small(32, n=60).copy(deep=True)
    data["logp_target"][1, 7] = data["logp_logger"].values[7] + 25.0
    raw, tamed = (module.estimate(data).sel(policy="target") for module in (snips, overlap_weights))
    assert Status(int(raw["status"])) is Status.POOR_OVERLAP
    assert Status(int(tamed["status"])) is Status.TRANSPORT_ASSUMED
    assert tamed["ess_fraction"] > 0.5 > raw["ess_fraction_raw"]
    # ratios that are all tiny leave the weights what they were up to a constant, and the status says so
    far = small(32, n=60, spread=6.0)
    far = far.assign(logp_target=far["logp_target"] - 80.0 * (far["policy"] == "target"))
    assert Status(int(overlap_weights.estimate(far)["status"].sel(policy="target"))) is Status.POOR_OVERLAP


def test_its_estimand_keeps_it_apart():
    data = small(3)
    mine, other = overlap_weights.estimate(data), snips.estimate(data)
    assert mine.attrs["estimand"].startswith("not V(policy)")
    with pytest.raises(ValueError, match=r"overlap_weights estimates not V\(policy\).*cannot be compared"):
        compare([other, mine])
    compare({"a": mine, "b": mine})
    assert "not V(policy)" in contrasts(mine).attrs["estimand"]
    assert "not V" not in contrasts(direct.estimate(data)).attrs["estimand"]
