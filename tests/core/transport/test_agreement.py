"""Labels of several policies that contradict each other about what a judge score is worth."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from cje_core.data import from_arrays
from cje_core.inference.estimate import wald
from cje_core.transport.agreement import REASON, agreement, mixed, refuse_mixed
from cje_core.transport.audit import audit


def world(rng, relations, labels, *, n=300, binary=False, prob=None, teachers=None):
    """Policies whose label given the score has the mean `relations` say; the last has no labels if one is missing."""
    score = rng.beta(2, 2, (len(relations), n)).round(3)
    mean = np.stack([f(s) for f, s in zip(relations, score, strict=True)])
    noise = 2 * rng.uniform(size=mean.shape) - 1
    label = (noise / 2 + 0.5 < mean) * 1.0 if binary else mean + noise * np.minimum(mean, 1 - mean)
    oracle = np.full(mean.shape, np.nan)
    for p, m in enumerate(labels):
        oracle[p, :m] = label[p, :m]
    return from_arrays(
        score,
        policies=list("abcd")[: len(score)],
        oracle=oracle,
        label_prob=prob,
        calibration_policy=teachers,
    )


def up(score):
    return score


def lower(score):
    return 0.7 * score


def higher(score):
    return 0.7 * score + 0.3


def down(score):
    return 1 - score


def flatter(score):
    return 0.5 - 0.4 * (score - 0.5)


def by_t(found, prob):
    """Return the t interval of an audited residual with the fit's noise: a contradiction, like FAIL, needs no room."""
    return wald(found.residual, found.std_error_with_fit, found.df_with_fit, prob)


def test_the_check_is_the_audit_of_the_labels_as_probes():
    """Recast a policy's labels within the others' range as probes: residual and interval are the audit's."""
    data = world(np.random.default_rng(0), [up, higher, down, up], [60, 60, 60, 0])
    out = agreement(data)
    assert np.isnan(out.residual.sel(policy="d")) and not out.teaches.sel(policy="d")
    for p, name in enumerate("abc"):
        others = [o for o in "abc" if o != name]
        taught = data["judge"].where(data["labelled"]).sel(policy=others)
        mine = data["labelled"] & (data["policy"] == name)
        mine = mine & (data["judge"] >= taught.min()) & (data["judge"] <= taught.max())
        recast = data.assign(
            probe=data["probe"] | mine,
            labelled=data["labelled"] & (data["policy"] != name),
            oracle=data["oracle"].where((data["policy"] != name) | mine),
        ).assign_attrs(calibration_policy=others)
        found = audit(recast).sel(policy=name)
        np.testing.assert_allclose(out.residual[p], found.residual)
        np.testing.assert_allclose(out.interval[p], by_t(found, 1 - 0.05 / 2 / 3))
        assert out.n_labels[p] == found.n_probes


def test_regions_are_the_audit_of_their_labels():
    data = world(np.random.default_rng(1), [up, down], [90, 90])
    out = agreement(data).sel(policy="b")
    for region in range(3):
        inside = (data["judge"] >= out.score_low[region]) & (data["judge"] <= out.score_high[region])
        mine = data["labelled"] & (data["policy"] == "b") & inside
        recast = data.assign(
            probe=mine,
            labelled=data["labelled"] & (data["policy"] == "a"),
            oracle=data["oracle"].where((data["policy"] == "a") | mine),
        ).assign_attrs(calibration_policy=["a"])
        found = audit(recast).sel(policy="b")
        np.testing.assert_allclose(out.region_residual[region], found.residual)
        np.testing.assert_allclose(out.region_interval[region], by_t(found, 1 - 0.05 / 2 / 2 / 3))


@pytest.mark.parametrize(
    ("relations", "contradict", "by_mean"),
    [
        ([up, up], False, True),
        ([lower, higher], True, True),
        ([up, down], True, False),
        ([up, flatter], True, False),
    ],
)
def test_what_contradicts(relations, contradict, by_mean):
    """A shift of .3 shows in the mean; slopes that cancel show in a region."""
    out = agreement(world(np.random.default_rng(2), relations, [150, 150]))
    assert mixed(out) == contradict
    if contradict:
        worst = out.isel(policy=int(np.abs(out.shown_residual.values).argmax()))
        assert (int(worst.shown_region) == -1) == by_mean
        low, high = worst.shown_interval.values
        assert low > out.attrs["margin"] or high < -out.attrs["margin"]


def test_scores_that_only_one_policy_has_contradict_nothing():
    """One relation, steep in the middle; the policies' scores overlap nowhere, so each extends the other's fit."""
    rng = np.random.default_rng(3)
    score = np.stack([rng.uniform(0, 0.45, 200), rng.uniform(0.55, 1, 200)])
    label = np.clip(score**2 + rng.normal(0, 0.05, score.shape), 0, 1)
    out = agreement(from_arrays(score, policies=["low", "high"], oracle=label))
    assert np.isnan(out.residual).all() and not mixed(out)


def test_labels_that_do_not_teach_are_checked_and_mix_nothing():
    data = world(np.random.default_rng(4), [lower, higher, up], [150, 150, 0], teachers=["a"])
    out = agreement(data)
    assert out.contradicts.values.tolist() == [False, True, False]
    assert np.isnan(out.residual.sel(policy="a")) and not mixed(out)
    assert mixed(agreement(data.assign_attrs(calibration_policy=["a", "b"])))


def test_declared_probabilities_weigh_both_sides():
    """Labels of b chosen for being bad: taken for a random sample they contradict, with their probabilities not."""
    rng = np.random.default_rng(5)
    data = world(rng, [up, up], [900, 900], n=900)
    seen, y = data["oracle"].values[1, :, 0], data["oracle"].values[1, :, 0]
    prob = np.where(y < data["judge"].values[1, :, 0], 0.6, 0.1)
    drawn = rng.uniform(size=900) < prob
    data["oracle"].values[1, :, 0] = np.where(drawn, seen, np.nan)
    data["labelled"].values[1, :, 0] = drawn
    chances = np.ones(data["oracle"].shape)
    chances[1, :, 0] = np.where(drawn, prob, np.nan)
    told = data.assign(label_prob=(data["oracle"].dims, chances))
    assert mixed(agreement(data)) and not mixed(agreement(told))


def test_equal_labels_have_the_exact_bound_and_teach_no_contradiction():
    rng = np.random.default_rng(6)
    data = world(rng, [up, up], [100, 60])
    ones = data["oracle"].copy()
    ones[1] = ones[1].where(ones[1].isnull(), 1.0)
    out = agreement(data.assign(oracle=ones))
    assert out.contradicts.all()  # all of b at one, where a says half; b is audited from either side
    np.testing.assert_allclose(out.residual[0], -out.residual[1])
    np.testing.assert_allclose(out.interval[0], -out.interval[1, ::-1])
    assert out.interval.sel(policy="b").values[1] >= out.residual.sel(policy="b")
    few = world(rng, [up, up], [40, 60])
    few["oracle"].values[1, :60] = 1.0
    assert np.isnan(agreement(few).residual).all()  # nothing is learned from labels without a spread


def levels_of(*cells):
    level, source = zip(*cells, strict=True)
    blank = ("policy", [""] * len(cells))
    return xr.Dataset(
        {
            "level": ("policy", list(level)),
            "source": ("policy", list(source)),
            "refused_by": blank,
            "reason": blank,
        },
        coords={"policy": list("abcde")[: len(cells)]},
    )


def test_only_what_borrows_is_refused():
    levels = levels_of(
        ("reported", "own"),
        ("reported", "probes"),
        ("assumed", "borrowed"),
        ("assumed", "logs"),
        ("refused", "none"),
    )
    rng = np.random.default_rng(7)
    out = refuse_mixed(levels, agreement(world(rng, [lower, higher], [150, 150])))
    assert out.level.values.tolist() == ["reported", "reported", "refused", "refused", "refused"]
    assert out.refused_by.values.tolist() == ["", "", "agreement", "agreement", ""]
    assert out.reason.values.tolist() == ["", "", REASON, REASON, ""]
    assert refuse_mixed(levels, agreement(world(rng, [up, up], [150, 150]))).identical(levels)


@pytest.mark.parametrize(
    ("option", "message"),
    [({"margin": 0.0}, "margin=0: it must be a positive number"), ({"ci_prob": 1.0}, "ci_prob")],
)
def test_bad_options_raise_with_the_mend(option, message):
    with pytest.raises(ValueError, match=message):
        agreement(world(np.random.default_rng(8), [up, up], [20, 20]), **option)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [(15, 200), (40, 40)])
def test_policies_of_one_relation_seldom_contradict(labels):
    """At most 5% of data sets of binary labels (exact bound); the planted error, few labels that teach, is seen."""
    rng = np.random.default_rng(9)
    runs, hits = 200, np.zeros(2, dtype=int)
    for _ in range(runs):
        data = world(rng, [up, up], labels, n=200, binary=True)
        hits[0] += mixed(agreement(data))
        recast = data.assign(
            probe=data["labelled"] & (data["policy"] == "b"),
            labelled=data["labelled"] & (data["policy"] == "a"),
        ).assign_attrs(calibration_policy=["a"])
        hits[1] += audit(recast).verdict.sel(policy="b").item() == "FAIL"
    bound = stats.binom.isf(1e-3, runs, 0.05)
    assert hits[0] <= bound
    if labels[0] < labels[1]:  # the planted error: few labels teach and many audit
        assert hits[1] > bound
