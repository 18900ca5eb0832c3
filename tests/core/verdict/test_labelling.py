"""Where to label next: regions and numbers by hand, and what is refused before is reported and covered after."""

import numpy as np
import pytest
from gates_world import world
from scipy import stats

from cje_core import analyze
from cje_core.data import from_arrays
from cje_core.estimators import direct
from cje_core.verdict import labelling
from cje_core.verdict.labelling import next_labels, split
from cje_sim.scenarios import out_of_range


def base_only(n, n_labels, seed):
    """The world without labels but those of `n_labels` responses of the base policy, and the same with all."""
    full = out_of_range.simulate(n=n, oracle_fraction=1.0, label_design="own", rng=seed)
    kept = np.zeros(full.labelled.shape, dtype=bool)
    chosen = np.random.default_rng([seed, 1]).permutation(n)[:n_labels]
    kept[full.policy.values.tolist().index("base"), chosen] = True
    masked = full.assign(labelled=(full.labelled.dims, kept), oracle=full.oracle.where(kept))
    return masked.drop_vars("label_prob", errors="ignore"), full


def as_told(data, full, told, policy, rng):
    """The data after labelling a policy as `next_labels` says, with the probabilities declared."""
    p = data.policy.values.tolist().index(policy)
    labelled, oracle, score = data.labelled.values.copy(), data.oracle.values.copy(), data.judge.values[p]
    prob = np.where(labelled, labelled[data.policy.values.tolist().index("base")].mean(), np.nan)
    left = data.evaluated.values[p].copy()
    at = {name: told[name].values[told.policy.values.tolist().index(policy)] for name in told}
    for k in np.flatnonzero(at["kind"] != ""):
        within = (score >= at["low"][k]) & (score <= at["high"][k])
        inside = left if at["kind"][k] == "covered" else left & within
        index = np.argwhere(inside)
        left = left & ~inside
        assert len(index) == at["n_responses"][k]
        i, d = index[rng.permutation(len(index))[: int(at["labels"][k])]].T
        labelled[p, i, d] = True
        oracle[p, i, d] = full.oracle.values[p, i, d]
        prob[p, i, d] = at["label_prob"][k]
    new = {"labelled": labelled, "oracle": oracle, "label_prob": prob}
    return data.assign({name: (data.judge.dims, values) for name, values in new.items()})


def test_regions_by_hand():
    score, share = np.linspace(0, 1, 1001), np.full(1001, 1 / 1001)
    taught = np.r_[np.linspace(0.2, 0.4, 50), np.linspace(0.6, 0.8, 50)]
    found = split(score, share, taught)
    assert [region.kind for region in found] == ["below", "gap", "above", "covered"]
    np.testing.assert_allclose(sum(region.inside for region in found), 1.0)
    masses = [share @ region.inside for region in found]
    np.testing.assert_allclose(masses, [0.2, 0.2, 0.2, 0.4], atol=0.003)
    # one label in the middle of nowhere is no support: the parts on both sides of it are one
    alone = split(score, share, np.r_[taught[taught < 0.5], 0.9])
    assert [region.kind for region in alone] == ["below", "above", "covered"]
    assert alone[1].high == 1.0 and alone[1].low == pytest.approx(0.401)
    # labels that lie like the scores leave no gap, however few: their spacings are what chance makes them
    rng = np.random.default_rng(0)
    gaps = 0
    for _ in range(300):
        few = np.sort(rng.uniform(size=12))
        gaps += any(region.kind == "gap" for region in split(rng.uniform(size=500), np.full(500, 0.002), few))
    assert gaps <= stats.binom.ppf(1 - 1e-6, 300, 2 * labelling.CHANCE)  # and the mass of 500 scores is noisy


def test_numbers_by_hand():
    """Neyman's allocation and the reach, on a policy with 20% of its mass above and 10% below the labels."""
    data = world()  # labels of a between .3 and .7; b reaches .2 to .9
    told = next_labels(data, margin=0.05).sel(policy="b")
    assert told.kind.values.tolist() == ["below", "above", "covered"]
    score = data.judge.sel(policy="b").values.ravel()
    taught = data.judge.values[data.labelled.values]
    low, high = taught.min(), taught.max()
    share = np.array([(score < low).mean(), (score > high).mean(), ((score >= low) & (score <= high)).mean()])
    np.testing.assert_allclose(told.share, share)
    np.testing.assert_array_equal(told.n_responses, 300 * share)
    label = data.oracle.values[data.labelled.values]
    np.testing.assert_allclose(told.sigma.values[:2], label.std())
    assert 0.08 < told.sigma.values[2] < 0.12  # the noise of the world is .1
    part = share * told.sigma.values
    df = np.inf
    for _ in range(50):
        precise = np.ceil((stats.t.ppf(0.975, df) / 0.05) ** 2 * part * part.sum())
        df = precise.sum() - 1
    reach = [np.ceil(np.log(0.05) / np.log(1 - 0.025 / p)) if p > 0.025 else 0 for p in share[:2]]
    np.testing.assert_array_equal(told.labels, np.maximum(np.maximum(precise, [*reach, 0]), 4))
    np.testing.assert_allclose(told.label_prob, told.labels / told.n_responses)
    # where nothing is out of reach, the whole scale is one region
    assert next_labels(data).sel(policy="a").kind.values.tolist() == ["covered", "", ""]


def test_never_more_labels_than_responses_and_nothing_without_a_calibrator():
    tight = next_labels(world(), margin=0.001)
    some = tight.kind.values != ""
    assert (tight.labels.values[some] <= tight.n_responses.values[some]).all()
    assert tight.half_width.sel(policy="b") > 0.001
    nothing = next_labels(from_arrays([np.linspace(0, 1, 20)], policies=["a"]))
    assert nothing.sizes["region"] == 0 and np.isnan(nothing.half_width).all()


@pytest.mark.slow
def test_a_refused_level_is_reported_after_labelling_as_told():
    data, full = base_only(600, 150, 1)
    before = analyze(data)
    assert before.level("above") == "refused" and before.bounds_hold("above")
    assert before.next_labels is not None and before.order is not None
    after = analyze(as_told(data, full, before.next_labels, "above", np.random.default_rng(2)))
    assert after.level("above") == "reported" and after.source("above") == "own"
    low, high = after.value["interval"].sel(policy="above").values
    assert (high - low) / 2 <= float(before.next_labels["half_width"].sel(policy="above"))
    # where nobody is refused for want of support there is nothing to order or to buy
    plain = analyze(data.sel(policy=["base", "inside"]).assign_attrs(calibration_policy=["base"]))
    assert plain.next_labels is None and plain.order is None


@pytest.mark.slow
def test_labels_bought_as_told_cover_and_reach():
    """200 data sets: the value then covers, is as precise as promised, and what lies out of range is at most eta."""
    truth, n_sets = out_of_range.truth(), 200
    of = {policy: truth.sel(policy=policy).item() for policy in ("above", "below")}
    covered, reached, ratio = np.zeros((3, 2, n_sets))
    for r in range(n_sets):
        data, full = base_only(400, 120, r)
        told = next_labels(data)
        for k, policy in enumerate(("above", "below")):
            bought = as_told(data, full, told, policy, np.random.default_rng([r, 2]))
            p = bought.policy.values.tolist().index(policy)
            low, high = direct.estimate(bought).interval.values[p]
            covered[k, r] = low <= of[policy] <= high
            ratio[k, r] = (high - low) / 2 / told.half_width.values[p]
            taught = bought.judge.values[bought.labelled.values]
            score = bought.judge.values[p]
            reached[k, r] = ((score < taught.min()) | (score > taught.max())).mean() <= 0.05
    for row in covered:
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], n_sets, [0.94, 0.96]) / n_sets
        assert low <= row.mean() <= high
    assert (ratio.mean(axis=1) <= 1).all()  # .61 above, where labels vary less than elsewhere, and .96 below
    assert (reached.mean(axis=1) >= 0.95 - 5 * np.sqrt(0.05 * 0.95 / n_sets)).all()
