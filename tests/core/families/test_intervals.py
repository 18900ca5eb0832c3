"""Intervals that respect the range and hold at rare failures: binomial tails on effective counts."""

import json

import numpy as np
import oracles_bounded as slow
import pytest
from blocks import on_block
from conformance_world import NAMES, rich, run, sound
from scipy import stats

from cje_core.data import from_arrays
from cje_core.data.block import Block
from cje_core.estimators import direct, direct_corrected, labels_only, ppi, ppi_plus_plus, raw_judge
from cje_core.families.intervals import Evidence, bounds
from cje_core.formulas.room import crowding, share_beyond, unseen_weight
from cje_core.inference.contrasts import contrasts, win_matrix
from cje_core.inference.estimate import Status, clopper_pearson, wald


def by_count(m, start=0, low=0.0, high=1.0):
    """One policy per possible number of tops among m binary labels, at prompts start..start + m - 1."""
    label = np.full((m + 1, start + m), np.nan)
    for k in range(m + 1):
        label[k, start:] = np.where(np.arange(m) < k, high, low)
    return label


def labelled(label, prefix="k", **options):
    return from_arrays(
        np.full(label.shape, 0.5), policies=[f"{prefix}{k:02d}" for k in range(len(label))], oracle=label, **options
    )  # fmt: skip


# --- the interval of a share -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 4, 15])
@pytest.mark.parametrize("prob", [0.5, 0.95])
def test_clopper_pearson_inverts_the_binomial_tails(m, prob):
    share = np.arange(m + 1) / m
    expected = [slow.tail_interval(k, m, prob) for k in range(m + 1)]
    np.testing.assert_allclose(clopper_pearson(share, m, prob), expected, atol=1e-9)


def test_clopper_pearson_grows_with_the_share_and_shrinks_with_the_count():
    share = np.linspace(0, 1, 201)
    for count in (1.0, 3.7, 40.2):
        low, high = clopper_pearson(share, count, 0.9).T
        assert (np.diff(low) >= 0).all()
        assert (np.diff(high) >= 0).all()
        assert (low <= share).all()
        assert (high >= share).all()
        more_low, more_high = clopper_pearson(share, 1.5 * count, 0.9).T
        assert (more_low >= low).all()
        assert (more_high <= high).all()


# --- labels alone: exact coverage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [4, 15, 30])
def test_labels_alone_cover_their_level_at_every_mean(m):
    """By enumeration over the binomial, nothing simulated; the t interval is the planted error."""
    data = labelled(by_count(m))
    p = np.r_[np.linspace(0.01, 0.99, 99), 0.94, 0.999]
    mass = stats.binom.pmf(np.arange(m + 1), m, p[:, None])
    covered = {}
    for kind in ("auto", "clopper_pearson", "wald"):
        out = labels_only.estimate(data, interval=kind)
        low, high = out.interval.values.T
        covered[kind] = (mass * ((low <= p[:, None]) & (p[:, None] <= high))).sum(axis=1)
    assert (covered["auto"] >= 0.95).all()
    np.testing.assert_array_equal(covered["auto"], covered["clopper_pearson"])
    assert covered["wald"][99] < 0.87


def test_labels_alone_get_the_interval_of_their_count():
    m = 15
    out = labels_only.estimate(labelled(by_count(m, low=1.0, high=5.0), oracle_range=(1.0, 5.0)))
    expected = [slow.tail_interval(k, m, 0.95) for k in range(m + 1)]
    np.testing.assert_allclose(out.interval, 1 + 4 * np.array(expected), atol=1e-8)
    np.testing.assert_allclose(out.effective_count, m)
    assert out.attrs["ci_kind"] == "clopper_pearson"
    assert out.status.values.tolist() == [
        Status.CONSTANT_LABELS,
        *[Status.OK] * (m - 1),
        Status.CONSTANT_LABELS,
    ]
    np.testing.assert_array_equal(np.isnan(out.std_error), out.status == Status.CONSTANT_LABELS)


def test_a_judge_that_ignores_nothing_leaves_the_labels_their_interval():
    """A constant judge adds nothing: PPI++, Direct and the labels alone agree."""
    label = by_count(12)
    label = np.c_[label, np.full((13, 30), np.nan)]
    data = labelled(label)
    expected = labels_only.estimate(data).interval
    np.testing.assert_allclose(ppi_plus_plus.estimate(data).interval, expected, atol=1e-9)
    one = labelled(label[[9]])
    found = direct.estimate(one).interval
    np.testing.assert_allclose(found, labels_only.estimate(one).interval, atol=0.02)


def test_clusters_count_as_one_observation():
    """Every label twice, in one cluster: the interval of half as many labels."""
    label = np.repeat([[1.0] * 9 + [0.0] * 3], 2, axis=1)
    data = labelled(label, cluster=[f"c{i // 2:02d}" for i in range(24)])
    np.testing.assert_allclose(
        labels_only.estimate(data).interval[0], slow.tail_interval(9, 12, 0.95), atol=1e-8
    )
    same = labelled(np.ones((1, 24)), cluster=[f"c{i // 2:02d}" for i in range(24)])
    assert labels_only.estimate(same).interval.values[0, 0] == pytest.approx(0.025 ** (1 / 12))


# --- which interval --------------------------------------------------------------------------------------------------


def graded(rng, n_policies=3, n=80, m=20, level=0.5):
    label = np.clip(level + 0.1 * rng.normal(size=(n_policies, n)), 0, 1)
    label[:, m:] = np.nan
    return labelled(label)


@pytest.mark.parametrize("module", [labels_only, direct, ppi, ppi_plus_plus])
def test_graded_labels_without_a_tail_have_nearly_the_t_interval(module):
    """Symmetric labels in the middle of the scale: no room, and the skewness of a sample of them moves it little."""
    data = graded(np.random.default_rng(0))
    auto, plain = module.estimate(data), module.estimate(data, interval="wald")
    assert auto.attrs["ci_kind"] == "gamma" and plain.attrs["ci_kind"] == "wald"
    assert (auto.unseen_weight == 0).all() and np.isnan(auto.effective_count).all()
    width, t_width = (one.interval.diff("ci_bound").values for one in (auto, plain))
    assert (np.abs(width / t_width - 1) < 0.05).all()
    raw = raw_judge.estimate(data)  # rests on no labels
    assert raw.attrs["ci_kind"] == "wald" and np.isnan(raw.unseen_bound).all()


@pytest.mark.parametrize("module", [labels_only, direct, ppi, ppi_plus_plus])
@pytest.mark.parametrize(("m", "level"), [(12, 0.93), (60, 0.93), (12, 0.5)])
def test_limits_of_graded_labels_by_a_slow_form(module, m, level):
    """Skewness and room from the estimate itself, arms written out with SciPy's distributions."""
    rng = np.random.default_rng(1)
    label = np.clip(level + 0.1 * rng.normal(size=(3, 80)), 0, 1)
    label[0, :2] = 0.05  # two drops
    label[:, m:] = np.nan
    data = labelled(label)
    out = module.estimate(data)
    for p in out.policy.values:
        at = out.sel(policy=p)
        phi = at.influence.values
        skewness = (phi**3).sum() / (phi**2).sum() ** 1.5
        expected = slow.gamma_limits(
            float(at.estimate), float(at.std_error), float(at.df), skewness, m, float(at.unseen_weight)
        )
        np.testing.assert_allclose(at.interval, expected, rtol=1e-9)
    assert float(out.unseen_weight[0]) > 0


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_weight_of_unseen_outcomes_by_cases(end):
    """None for labels close together; the crowd's, that of a far drop, that of a tail which the judge alone sees."""

    def weight(label, score=None, seen=None):
        score = np.linspace(0.6, 1.0, 400) if score is None else score
        seen = np.linspace(0.6, 1.0, len(label)) if seen is None else seen
        turn = (lambda x: 1 - x) if end else (lambda x: x)
        beyond = share_beyond.function(turn(score), np.ones(len(score)), turn(seen))
        return max(
            unseen_weight.function(turn(label), beyond, 0.0, 1.0), crowding.function(turn(label), 0.0, 1.0)
        )

    near = np.linspace(0.88, 0.92, 30)
    assert weight(near) == 0
    assert weight(np.full(10, 0.9)) == 0
    crowd = 1 - 0.02 * np.random.default_rng(0).exponential(size=30)
    assert weight(crowd) == pytest.approx(0.2, abs=0.02)
    assert weight(np.r_[crowd, crowd]) == pytest.approx(0.2 / 2**1.5, abs=0.02)
    assert weight(np.r_[near, 0.1]) == pytest.approx(0.5)
    tail = np.r_[np.full(8, 0.25), np.linspace(0.6, 1.0, 392)]  # 2% of the scores
    assert weight(near, tail) == pytest.approx((30 * 0.02 / 0.25 / 3.69) ** 1.5, rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_weights_of_unseen_outcomes_are_their_definition(seed):
    """Labels with or without far ones and a crowded end, scores with or without a tail; also on another scale."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(8, 60))
    label = np.clip(1 - rng.gamma(1.0, 0.02, m), 0, 1) if seed % 2 else rng.uniform(0.4, 0.6, m)
    label[: seed % 3] -= rng.uniform(0.2, 0.4)
    score = np.r_[rng.uniform(0.6, 1.0, 300), rng.uniform(0.0, 0.2, seed % 5)]
    weight, seen = rng.uniform(0.5, 2.0, len(score)), rng.uniform(0.6, 1.0, m)
    for low, high in ((0.0, 1.0), (-1.0, 3.0)):
        y = low + (high - low) * label
        beyond = share_beyond(score, weight, seen)
        found = unseen_weight(y, beyond, low, high), crowding(y, low, high)
        np.testing.assert_allclose(found, slow.unseen(y, score, weight, seen, (low, high)), atol=1e-9)


def test_a_caution_states_what_labels_cannot_rule_out():
    label = np.full((2, 60), np.nan)
    label[:, :30] = 0.9 + np.random.default_rng(3).uniform(-0.02, 0.02, (2, 30))
    label[1, :30] = np.random.default_rng(4).uniform(size=30)
    out = labels_only.estimate(labelled(label))
    value, bound = float(out.estimate[0]), out.unseen_bound.values
    assert bound[0] == pytest.approx(value - (1 - 0.05 ** (1 / 30)) * value)
    assert np.isnan(bound[1])  # its interval reaches as far


def test_room_for_drops_turns_with_the_scale():
    rng = np.random.default_rng(5)
    label = rng.beta(1, 9, size=(4, 15))
    low, high = labels_only.estimate(labelled(label)).interval.values.T
    turned = labels_only.estimate(labelled(5 - 4 * label, oracle_range=(1.0, 5.0))).interval.values
    np.testing.assert_allclose(turned, np.stack([5 - 4 * high, 5 - 4 * low], axis=1))


def test_equal_labels_bound_their_mean_only_at_an_end_of_the_scale():
    label = np.full((3, 30), np.nan)
    label[:, :10] = np.array([1.0, 0.0, 0.7])[:, None]
    data = labelled(label)
    bound = 0.025**0.1
    for module in (labels_only, ppi, ppi_plus_plus):
        out = module.estimate(data)
        assert (out.status == Status.CONSTANT_LABELS).all()
        np.testing.assert_allclose(out.interval, [[bound, 1], [0, 1 - bound], [np.nan, np.nan]], atol=1e-9)
        assert np.isnan(module.estimate(data, interval="wald").interval).all()


def test_equal_probe_labels_bound_the_corrected_value():
    rng = np.random.default_rng(2)
    score = rng.uniform(size=(2, 60))
    label = np.where(rng.uniform(size=(2, 60)) < score, 1.0, 0.0)
    label[1, :10] = 1.0
    label[1, 10:] = np.nan
    probe = np.zeros((2, 60), dtype=bool)
    probe[1, :10] = True
    data = from_arrays(
        score, policies=["base", "far"], oracle=label, probe=probe, calibration_policy=["base"]
    )
    out = direct_corrected.estimate(data).sel(policy="far")
    assert out.status == Status.CONSTANT_LABELS
    low, high = out.interval.values
    assert 0 <= low <= 0.025**0.1 + 1e-9
    assert low <= out.estimate <= high


def test_options_are_named():
    data = graded(np.random.default_rng(0))
    for module in (labels_only, direct, ppi, ppi_plus_plus, raw_judge):
        with pytest.raises(ValueError, match="interval"):
            module.estimate(data, interval="exact")
    label = np.random.default_rng(0).uniform(0.3, 0.7, size=(3, 20))
    label[0] = np.arange(20) % 2
    out = labels_only.estimate(labelled(label))
    assert out.attrs["ci_kind"] == "mixed"
    assert out.interval_kind.values.tolist() == ["clopper_pearson", "gamma", "gamma"]
    assert np.isfinite(out.effective_count.values).tolist() == [True, False, False]


FREQUENTIST = [
    name
    for name in NAMES
    if not name.startswith(("bayes", "projection")) and name not in ("rogan_gladen", "oracle_bound")
]


@pytest.mark.parametrize("name", FREQUENTIST)
def test_every_frequentist_estimator_has_the_option(name):
    """The default is named, the t interval is the textbook's, the others stay inside the scale."""
    data = rich(name)
    default = run(name, data)
    assert json.loads(default.attrs["options"])["interval"] == "auto"
    plain = run(name, data, interval="wald")
    for variable in ("estimate", "std_error", "df", "status"):
        np.testing.assert_array_equal(plain[variable], default[variable])
    np.testing.assert_array_equal(plain.interval, wald(plain.estimate, plain.std_error, plain.df, 0.95))
    low, high = data.attrs["oracle_range"]
    for kind in ("auto", "logit", "clopper_pearson"):
        out = run(name, data, interval=kind)
        sound(out)
        if kind != "auto":
            known = np.isfinite(out.interval.values).all(axis=1)
            assert set(out.interval_kind.values[known]) <= {kind}
            below, above = out.interval.values[known].T
            assert (below >= np.minimum(low, out.estimate.values[known])).all()
            assert (above <= np.maximum(high, out.estimate.values[known])).all()


def test_few_failures_do_not_let_the_judge_narrow_the_interval_much():
    """The standard error that one failure shows is worth half; with many failures it is believed."""

    def width(minority, ratio, count=40.0):
        share = 1 - minority / count
        evidence = Evidence(True, False, count, minority, 0.1)
        found = bounds(
            share, 0.1 * ratio, np.inf, evidence=evidence, kind="auto", ci_prob=0.95, scale=(0.0, 1.0)
        )
        return found.basis.effective

    assert width(1.0, 0.1) == pytest.approx(40 / ((0.01 + 1) / 2), rel=1e-9)
    assert width(20.0, 0.5) == pytest.approx(40 / ((20 * 0.25 + 1) / 21), rel=1e-9)
    assert width(20.0, 2.0) == pytest.approx(10.0)  # a judge that harms is believed at once


# --- differences -----------------------------------------------------------------------------------------------------


def two_families(m):
    """Labels of two policies at disjoint prompts, every pair of counts: nothing is shared."""
    first, second = by_count(m), by_count(m, start=m)
    label = np.full((2 * (m + 1), 2 * m), np.nan)
    label[: m + 1, :m], label[m + 1 :] = first, second
    return labelled(label)


def test_differences_cover_their_level_by_enumeration():
    """Two policies, 12 binary labels each: P(interval holds p - q), over a grid of means; t is the planted error."""
    m = 12
    grid = np.array([0.5, 0.8, 0.9, 0.94, 0.97])
    mass = stats.binom.pmf(np.arange(m + 1), m, grid[:, None])
    covered = {}
    for kind in ("auto", "wald"):
        found = contrasts(labels_only.estimate(two_families(m), interval=kind))
        across = found.isel(pair=(found["first"] < f"k{m + 1:02d}") & (found["second"] >= f"k{m + 1:02d}"))
        low, high = across.interval.values.reshape(m + 1, m + 1, 2).transpose(2, 0, 1)
        truth = grid[:, None] - grid[None, :]
        hit = (low <= truth[..., None, None]) & (truth[..., None, None] <= high)
        covered[kind] = np.einsum("pi,qj,pqij->pq", mass, mass, hit)
    assert (covered["auto"] >= 0.95).all()
    assert covered["wald"][3, 3] < 0.5


def test_differences_against_the_formula_in_loops():
    rng = np.random.default_rng(3)
    n, m = 60, 25
    label = (rng.uniform(size=(3, n)) < np.array([[0.9], [0.8], [0.6]])).astype(float)
    label[0] = np.where(rng.uniform(size=n) < 0.7, label[1], label[0])  # shared prompts, correlated labels
    label[:, m:] = np.nan
    out = labels_only.estimate(labelled(label))
    found = contrasts(out, ci_prob=0.9)
    for pair in range(found.sizes["pair"]):
        at = found.isel(pair=pair)
        expected, p_value = slow.mover(out, str(at["first"].values), str(at["second"].values), 0.9)
        np.testing.assert_allclose(at.interval, expected, atol=1e-9)
        assert float(at.p_value) == pytest.approx(p_value, rel=1e-3)


def test_room_and_skewness_reach_the_differences():
    """The error of the difference with its skewness, and the room of both levels; the p-value agrees."""
    rng = np.random.default_rng(8)
    label = np.full((4, 60), np.nan)
    label[:, :15] = rng.beta(20, 20, size=(4, 15))
    label[:2, :15] = rng.beta(20, 1, size=(2, 15))
    out = labels_only.estimate(labelled(label))
    weight = out.unseen_weight.to_series()
    assert (weight[:2] > 0).all() and (weight[2:] == 0).all()
    found = contrasts(out)
    for pair in range(found.sizes["pair"]):
        at = found.isel(pair=pair)
        a, b = (out.sel(policy=str(at[name].values)) for name in ("first", "second"))
        phi = a.influence.values - b.influence.values
        skewness = (phi**3).sum() / (phi**2).sum() ** 1.5
        d = float(a.estimate - b.estimate)
        low, high = slow.gamma_limits(d, float(at.std_error), float(at.df), skewness, 1, 0.0)
        room = [
            [
                slow.beta_quantile(float(x.unseen_weight), 15) * reach
                for reach in (float(x.estimate), 1 - float(x.estimate))
            ]
            for x in (a, b)
        ]
        down = np.sqrt((d - low) ** 2 + room[0][0] ** 2 + room[1][1] ** 2)
        up = np.sqrt((high - d) ** 2 + room[0][1] ** 2 + room[1][0] ** 2)
        np.testing.assert_allclose(at.interval, [d - down, d + up], rtol=1e-9)
        assert (float(at.p_value) < 0.05) == bool(at.interval[0] > 0 or at.interval[1] < 0)


def test_p_values_agree_with_the_intervals():
    found = contrasts(labels_only.estimate(two_families(8)))
    low, high = found.interval.values.T
    np.testing.assert_array_equal((low > 0) | (high < 0), found.p_value < 0.05)
    assert np.isfinite(found.p_value).all()
    wins = win_matrix(labels_only.estimate(two_families(8)))
    either = wins.probability.values + wins.probability.values.T
    np.testing.assert_allclose(either, np.where(np.eye(18), np.nan, 1.0))


def test_a_difference_below_rounding_is_none():
    """Two copies of one policy, one of them moved by rounding."""
    rng = np.random.default_rng(4)
    label = np.repeat(np.clip(0.5 + 0.1 * rng.normal(size=(1, 40)), 0, 1), 2, axis=0)
    label[1] *= 1 + 1e-15
    found = contrasts(labels_only.estimate(labelled(label)))
    assert abs(found.difference.item()) < 1e-12
    assert np.isnan(found.p_value.item())
    binary = contrasts(labels_only.estimate(labelled(np.repeat(by_count(12)[[9]], 2, axis=0))))
    assert binary.p_value.item() == 1.0


def test_a_failed_policy_has_no_difference():
    label = by_count(12)[[3, 9, 6]]
    label[2, 3:] = np.nan
    out = labels_only.estimate(labelled(label))
    out["estimate"][2] = 0.5  # a refused number that was left in
    found = contrasts(out)
    assert np.isfinite(found.difference.values).tolist() == [True, False, False]
    assert np.isfinite(found.interval.values).all(axis=1).tolist() == [True, False, False]


# --- with a judge: repeated sampling ---------------------------------------------------------------------------------

N_REPLICATES = 1000


def rare(rng, shape, judge):
    """Binary labels of mean .94; the judge knows nothing, or fails half of the worst eighth and no other."""
    score = rng.uniform(size=shape)
    chance = np.full(shape, 0.94) if judge == "useless" else np.where(score < 0.12, 0.5, 1.0)
    return score, (rng.uniform(size=shape) < chance).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["useless", "useful"])
@pytest.mark.parametrize("m", [15, 30])
def test_rare_failures_are_covered_with_a_judge(judge, m):
    """At least 93% for Direct and PPI++, a missing interval counting as a miss; the t interval is the planted error.

    PPI++ takes 50 replicates as the policies of one data set; Direct, which would learn from all, as data sets of one
    block.
    """
    rng = np.random.default_rng(m)
    score, label = rare(rng, (N_REPLICATES, 200), judge)
    label[:, m:] = np.nan
    prob = np.ones((50, 1, 200))  # not declared
    for module in (direct, ppi_plus_plus):
        found = []
        for at in range(0, N_REPLICATES, 50):
            these = slice(at, at + 50)
            if module is direct:
                held = score[these, None], label[these, None]
                out = on_block(direct, Block(("a",), *held, prob, (0.0, 1.0), (0.0, 1.0)), ci_prob=0.95)
                interval, estimate, error, df = (
                    part[:, 0] for part in (out.interval, out.estimate, out.std_error, out.df)
                )
            else:
                policies = [f"{r:02d}" for r in range(50)]
                out = module.estimate(from_arrays(score[these], policies=policies, oracle=label[these]))
                interval, estimate, error, df = out.interval.values, out.estimate, out.std_error, out.df
            found.append(np.stack([interval, wald(estimate, error, df, 0.95)]))
        low, high = np.concatenate(found, axis=1).transpose(2, 0, 1)
        coverage = ((low <= 0.94) & (high >= 0.94)).mean(axis=1)
        assert coverage[0] >= 0.93, (module.__name__, coverage)
        assert coverage[1] < 0.9, (module.__name__, coverage)
