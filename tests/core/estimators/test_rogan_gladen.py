"""Misclassification correction against its definition, the figures of its authors, and repeated sampling."""

import numpy as np
import oracles_peers
import pytest
from bare_arrays import drawn, rows_of
from scipy import optimize, stats
from statsmodels.stats.proportion import proportion_confint

from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import labels_only, rogan_gladen
from cje_core.families.misclassification import Verdicts
from cje_core.formulas.misclassification import difference_limits
from cje_core.formulas.proportions import wilson
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.inference.pairs import pair_errors
from cje_sim.scenarios import preference_like

ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors


def world(n=300, seed=0, *, share=0.4, draws=1, clustered=False, unequal=False, prevalence=(0.6, 0.4)):
    """Two policies, a judge with Se .8 and Sp .75 on a 0-10 scale, labels 1 or 3."""
    rng = np.random.default_rng(seed)
    shape = (len(prevalence), n, draws)
    good = rng.uniform(size=shape) < np.array(prevalence)[:, None, None]
    passed = rng.uniform(size=shape) < np.where(good, 0.8, 0.25)
    score = np.where(passed, rng.choice([5, 7, 9], shape), rng.choice([1, 2, 4], shape)).astype(float)
    prob = np.where(score > 6, 0.5, 0.25) if unequal else np.full(shape, share)
    seen = rng.uniform(size=shape) < prob
    return from_arrays(
        score,
        policies=["a", "b"][: len(prevalence)],
        oracle=np.where(seen, np.where(good, 3.0, 1.0), np.nan),
        label_prob=prob,
        cluster=np.arange(n) // 2 if clustered else None,
        judge_range=(0, 10),
        oracle_range=(1, 3),
    )


def row_dicts(data, policy):
    rows = unpack(data)
    mine = np.flatnonzero((rows.policy == rows.policies.index(policy)) & rows.evaluated)
    return [
        {
            "cluster": rows.cluster[rows.prompt[i]],
            "score": rows.score[i],
            "label": (rows.label[i] - 1) / 2 if rows.labelled[i] else None,
            "weight": rows.weight[i],
            "prob": rows.label_prob[i],
        }
        for i in mine
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"draws": 2}, {"clustered": True, "draws": 2}, {"unequal": True}],
    ids=["plain", "draws", "clusters", "propensities"],
)
def test_matches_the_definition(options):
    data = world(**options)
    out = rogan_gladen.estimate(data, interval="wald")
    for policy in ("a", "b"):
        rows, mine = row_dicts(data, policy), out.sel(policy=policy)
        theta, se, sp, std_error, df = oracles_peers.rogan_gladen(
            rows, [r for r in rows if r["label"] is not None], 5.0
        )
        np.testing.assert_allclose(mine.estimate, 1 + 2 * theta, rtol=1e-10)
        np.testing.assert_allclose([mine.sensitivity, mine.specificity], [se, sp], rtol=1e-10)
        np.testing.assert_allclose([mine.std_error, mine.df], [2 * std_error, df], rtol=1e-9)
        half = 2 * std_error * stats.t.ppf(0.975, df)
        np.testing.assert_allclose(mine.interval, 1 + 2 * theta + np.array([-half, half]), rtol=1e-9)
        assert mine.route == "own_labels"


def test_intervals_match_the_definition():
    data = world()
    out = rogan_gladen.estimate(data, ci_prob=0.9, interval="lee")
    for policy in ("a", "b"):
        rows, mine = row_dicts(data, policy), out.sel(policy=policy)
        seen = [r for r in rows if r["label"] is not None]
        counts = len(rows), sum(r["label"] == 1 for r in seen), sum(r["label"] == 0 for r in seen)
        p = np.mean([r["score"] >= 5 for r in rows])
        se, sp = float(mine.sensitivity), float(mine.specificity)
        low, high = oracles_peers.lee(p, se, sp, *counts, 0.9)
        np.testing.assert_allclose(mine.interval, [1 + 2 * low, 1 + 2 * high], rtol=1e-10)
        bounds = oracles_peers.newcombe(se, counts[1], sp, counts[2], 0.9)
        np.testing.assert_allclose(mine.youden_interval, bounds, rtol=1e-9)
        np.testing.assert_allclose(mine.youden, se + sp - 1)


@pytest.mark.parametrize(
    "options",
    [{}, {"draws": 2}, {"clustered": True, "draws": 2}, {"unequal": True}],
    ids=["plain", "draws", "clusters", "propensities"],
)
def test_the_default_keeps_each_share_that_a_test_does_not_reject(options):
    """Against a scan of shares by loops over responses: the ends lie within a step of the scan."""
    data = world(n=150, **options)
    out = rogan_gladen.estimate(data, ci_prob=0.9)
    assert out.attrs["ci_kind"] == "fieller"
    for policy in ("a", "b"):
        rows = row_dicts(data, policy)
        low, high = oracles_peers.fieller(rows, [r for r in rows if r["label"] is not None], 5.0, 0.9)
        np.testing.assert_allclose(out.interval.sel(policy=policy), [1 + 2 * low, 1 + 2 * high], atol=2.1e-3)


@pytest.mark.parametrize(
    "options",
    [{}, {"draws": 2}, {"clustered": True, "draws": 2}, {"unequal": True}, {"prevalence": (0.3, 0.95)}],
    ids=["plain", "draws", "clusters", "propensities", "far"],
)
def test_differences_under_one_matrix_invert_a_test(options):
    """Against a scan by loops over responses, in both orders; the p-value is the level whose interval ends at 0."""
    data = borrowing(world(n=150, **options))
    out = rogan_gladen.estimate(data)
    a, b = row_dicts(data, "a"), row_dicts(data, "b")
    labels = [r for r in a if r["label"] is not None]
    for first, second, names in ((a, b, [0, 1]), (b, a, [1, 0])):
        one = pair_errors(out, *np.array(names)[:, None], 0.9)
        low, high = oracles_peers.fieller_difference(first, second, labels, 5.0, 0.9, step=3e-3)
        np.testing.assert_allclose(one.interval[0], [2 * low, 2 * high], atol=6.1e-3)
        at_p = pair_errors(out, *np.array(names)[:, None], 1 - one.p_value[0]).interval[0]
        assert np.abs(at_p).min() < 1e-6
        better = one.p_value[0] / 2 if one.difference[0] < 0 else 1 - one.p_value[0] / 2
        assert one.probability[0] == pytest.approx(better)


def test_differences_under_two_matrices_combine_the_values():
    """MOVER of the two intervals, with the correlation of the influence values."""
    data = world(clustered=True)
    out = rogan_gladen.estimate(data, ci_prob=0.9)
    assert out.confusion_matrix.values.tolist() == [0, 1]
    one = pair_errors(out, np.array([0]), np.array([1]), 0.9)
    value, (low, high) = out.estimate.values, out.interval.values.T
    below, above = value - low, high - value
    sums = out.influence.groupby(out.cluster).sum().values
    r = (sums[0] * sums[1]).sum() / np.sqrt((sums**2).sum(axis=1).prod())
    reach = [np.sqrt(x**2 + y**2 - 2 * r * x * y) for x, y in ((below[0], above[1]), (above[0], below[1]))]
    np.testing.assert_allclose(one.interval[0], value[0] - value[1] + [-reach[0], reach[1]], rtol=1e-9)


def test_differences_at_the_ends():
    """An inverted judge turned round changes nothing; J = 0 rejects nothing; a difference beyond J has a width."""
    rng = np.random.default_rng(2)
    value = rng.uniform(size=(200, 4))
    below, above = value * rng.uniform(size=(200, 4)), (1 - value) * rng.uniform(size=(200, 4))
    none = np.broadcast_to(np.eye(4), (200, 4, 4))
    limits = difference_limits(value, below, above, none)
    turned = difference_limits(1 - value, above, below, none)
    np.testing.assert_allclose(turned, limits, atol=1e-9)
    swap = [1, 0, 2, 3]
    swapped = difference_limits(value[:, swap], below[:, swap], above[:, swap], none)
    np.testing.assert_allclose(-swapped[:, ::-1], limits, atol=1e-9)
    assert (limits[:, 0] < limits[:, 1]).all()
    value[:, 3] = value[:, 2]
    assert (difference_limits(value, below, above, none) == [-1, 1]).all()


# v, se, sp, labels under a, responses; the pair that the delta method covered .655 and .617 of the time
CELLS = [((0.5, 0.97, 0.02), 0.98, 0.98, 40, 1000, (1, 2)), ((0.9, 0.1, 0.98), 0.8, 0.8, 50, 500, (0, 1))]


@pytest.mark.parametrize("cell", CELLS, ids=["excellent", "weak"])
def test_differences_keep_their_level(cell):
    """Five standard errors below .95 at most; the delta method, or a matrix taken as known, is not."""
    v, se, sp, m, n, (a, b) = cell
    rng, reps = np.random.default_rng(8), 4000
    n_good = rng.binomial(m, v[0], reps)
    of_good, of_bad = rng.binomial(n_good, se), rng.binomial(m - n_good, 1 - sp)
    p = [rng.binomial(n, w * se + (1 - w) * (1 - sp), reps) / n for w in v]
    rest = rng.binomial(n - m, v[0] * se + (1 - v[0]) * (1 - sp), reps)
    p[0] = (of_good + of_bad + rest) / n  # which holds its labelled responses
    with np.errstate(invalid="ignore", divide="ignore"):
        f, good = of_bad / (m - n_good), of_good / n_good
        bounds = [wilson(q, k, 0.95).T for q, k in ((f, m - n_good), (good, n_good))]
        youden = good - f - np.hypot(good - bounds[1][0], bounds[0][1] - f)
        kept = (n_good >= 2) & (m - n_good >= 2) & (youden > 0)
        value = np.stack([p[a], p[b], f, good], axis=-1)[kept]
        count = np.stack(np.broadcast_arrays(n, n, m - n_good, n_good), axis=-1)[kept]
    bounds = wilson(value, count, 0.95)
    below, above = value - bounds[..., 0], bounds[..., 1] - value
    variance = value * (1 - value) / count
    joint = np.eye(4) * np.ones((len(value), 1, 1))
    if a == 0:  # errors of Se and f are parts of p's, each by its count over n
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = np.sqrt(variance[:, 2:] * (count[:, 2:] / n) ** 2 / variance[:, :1])
        joint[:, 0, 2:] = joint[:, 2:, 0] = np.nan_to_num(parts)
    truth, least = v[a] - v[b], stats.binom.ppf(ALPHA / 2, len(value), 0.95)

    def hits(low, high):
        return ((low <= truth + 1e-12) & (truth <= high + 1e-12)).sum()

    assert hits(*difference_limits(value, below, above, joint).T) >= least
    known = [arm * [1, 1, 0, 0] for arm in (below, above)]
    assert hits(*difference_limits(value, *known, joint).T) < least
    j = value[:, 3] - value[:, 2]
    delta = (value[:, 0] - value[:, 1]) / j
    slope = np.stack([1 / j, -1 / j, delta / j, -delta / j], axis=-1)
    moves = slope * np.sqrt(variance)
    half = stats.norm.ppf(0.975) * np.sqrt(np.einsum("ri,rij,rj->r", moves, joint, moves))
    clipped = np.clip((value[:, :2] - value[:, 2:3]) / j[:, None], 0, 1)
    middle = clipped[:, 0] - clipped[:, 1]
    assert hits(middle - half, middle + half) < least


def test_the_default_at_the_ends():
    """Nothing is known of a judge whose J is 0; a value clipped to an end keeps an interval of some width."""
    assert rogan_gladen.fieller_interval(0.4, 0.3, 0.7, n=100, n_good=20, n_bad=20) == (0.0, 1.0)
    low, high = rogan_gladen.fieller_interval(0.01, 0.9, 0.7, n=1000, n_good=50, n_bad=50)
    assert low == 0
    up, down_f, down_s = (
        abs(wilson(q, n, 0.95)[k] - q) for q, n, k in ((0.01, 1000, 1), (0.3, 50, 0), (0.9, 50, 0))
    )

    def spare(
        at,
    ):  # the nearest p that Se and Sp allow is .3, at a distance of .6 at from that of a share `at`
        return up**2 + ((1 - at) * down_f) ** 2 + (at * down_s) ** 2 - (0.6 * at) ** 2

    assert high == pytest.approx(optimize.brentq(spare, 0, 1))
    turned = rogan_gladen.fieller_interval(0.99, 0.1, 0.3, n=1000, n_good=50, n_bad=50)
    np.testing.assert_allclose(turned, (low, high), atol=1e-9)
    weak = rogan_gladen.fieller_interval(0.5, 0.55, 0.55, n=1000, n_good=20, n_bad=20)
    assert weak == (0.0, 1.0)


# Printed by the function of the authors of "How to Correctly Report LLM-as-a-Judge Evaluations" for
# (p, specificity, sensitivity, n, n_bad, n_good) at 95% and 90%.
AUTHORS = [
    ((0.5, 0.9, 0.9, 10000, 5000, 5000), 0.95, (0.4857088025790391, 0.514291197420961)),
    ((0.62, 0.7, 0.85, 400, 30, 50), 0.95, (0.38277832097902786, 0.7672121584102796)),
    ((0.3, 0.8, 0.6, 200, 80, 20), 0.9, (0.026219548628179795, 0.48419738897491427)),
    ((0.75, 1.0, 0.9, 1000, 25, 25), 0.95, (0.7459532248684069, 1.0)),
]


@pytest.mark.parametrize(("figures", "ci_prob", "expected"), AUTHORS)
def test_lee_interval_is_that_of_its_authors(figures, ci_prob, expected):
    p, sp, se, n, n_bad, n_good = figures
    mine = rogan_gladen.lee_interval(p, se, sp, n=n, n_good=n_good, n_bad=n_bad, ci_prob=ci_prob)
    np.testing.assert_allclose(mine, expected, atol=1e-12)
    np.testing.assert_allclose(oracles_peers.lee(p, se, sp, n, n_good, n_bad, ci_prob), expected, atol=1e-12)


@pytest.mark.parametrize("n", [1.5, 12.3, 400])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1 - 1e-16, 1.0])
def test_wilson_is_statsmodels_also_for_counts_that_are_not_whole(share, n):
    """Planted once: with n for n^2 under z^2 / 4 it fails."""
    low, high = wilson(share, n, 0.9)
    np.testing.assert_allclose([low, high], proportion_confint(share * n, n, 0.1, "wilson"), atol=1e-12)
    assert low <= share <= high


def test_every_row_labelled_returns_the_mean_label():
    """``p = V Se + (1 - V) (1 - Sp)`` is then an identity of the sample, and so is the influence function."""
    data = world(share=1.0)
    out, labels = rogan_gladen.estimate(data, interval="wald"), labels_only.estimate(data)
    np.testing.assert_allclose(out.estimate, labels.estimate, rtol=1e-12)
    np.testing.assert_allclose(out.std_error, labels.std_error, rtol=0.01)  # three factors m / (m - 1)
    wide = rogan_gladen.estimate(data, interval="lee").interval.diff("ci_bound").values
    assert (wide > 1.2 * labels.interval.diff("ci_bound").values).all()  # lee takes p as independent


def test_a_cluster_counts_no_more_than_it_says():
    """Clusters of identical prompts: the intervals are those of one prompt per cluster."""
    data = world()
    twice = data.isel(prompt=np.repeat(np.arange(300), 2))
    twice = twice.assign_coords(prompt=[f"{i:03d}" for i in range(600)])
    twice["cluster"] = ("prompt", np.repeat(data.prompt.values, 2))
    once, out = rogan_gladen.estimate(data), rogan_gladen.estimate(twice)
    for name in ("estimate", "interval", "std_error", "df", "youden_interval", "sensitivity_interval"):
        np.testing.assert_allclose(out[name], once[name], rtol=1e-9)


def borrowing(data):
    """Data whose second policy borrows the confusion matrix of the first."""
    data.oracle[1], data.labelled[1] = np.nan, False
    data.attrs["calibration_policy"] = ["a"]
    return data


def test_borrowed_confusion_matrix():
    data = borrowing(world())
    out = rogan_gladen.estimate(data, interval="wald")
    theta, *_, std_error, df = oracles_peers.rogan_gladen(
        [{**r, "cluster": r["cluster"]} for r in row_dicts(data, "b")],
        [r for r in row_dicts(data, "a") if r["label"] is not None],
        5.0,
    )
    mine = out.sel(policy="b")
    assert (mine.status, mine.route) == (Status.TRANSPORT_ASSUMED, "borrowed")
    np.testing.assert_allclose([mine.estimate, mine.std_error, mine.df], [1 + 2 * theta, 2 * std_error, df])
    np.testing.assert_array_equal(out.sensitivity[0], out.sensitivity[1])
    assert np.isfinite(contrasts(out).std_error).all()


def test_statuses():
    data = world()

    def first(changed, **options):
        return rogan_gladen.estimate(changed, **options).sel(policy="a")

    grades = data.assign(oracle=data.oracle.where(data.judge != 7, data.oracle + (data.oracle < 2) * 0.5))
    assert first(grades).status == Status.NOT_BINARY
    one = data.assign(oracle=data.oracle.where(~data.labelled, 3.0))
    assert first(one).status == Status.ONE_CLASS
    none = data.assign(labelled=data.labelled & False, oracle=data.oracle.where(data.judge < 0))
    assert first(none).status == Status.NO_LABELS
    inverted = first(data.assign(judge=10 - data.judge), threshold=5.5)
    assert inverted.status == Status.INVERTED_JUDGE
    np.testing.assert_allclose(
        inverted.estimate, first(data).estimate
    )  # turning the judge round changes nothing
    np.testing.assert_allclose(inverted.interval, first(data).interval)
    constant = first(data.assign(judge=xr_full(data.judge, 7.0)))
    assert constant.status == Status.ILL_CONDITIONED
    np.testing.assert_array_equal(constant.interval, [1, 3])
    with pytest.raises(ValueError, match="threshold"):
        first(data, threshold=11)
    with pytest.raises(ValueError, match="interval"):
        first(data, interval="exact")


def xr_full(like, value):
    return like.where(like.isnull(), value)


@pytest.mark.slow
def test_an_uninformative_judge_is_said_to_be_one():
    """No wild number in silence: the value is clipped, the interval is everything, nothing enters contrasts."""
    rng = np.random.default_rng(4)
    for _ in range(50):
        score = rng.integers(0, 2, (2, 200)).astype(float)
        oracle = np.where(rng.uniform(size=(2, 200)) < 0.25, rng.integers(0, 2, (2, 200)), np.nan)
        out = rogan_gladen.estimate(from_arrays(score, policies=["a", "b"], oracle=oracle), ci_prob=0.999)
        assert (out.status == Status.ILL_CONDITIONED).all()
        np.testing.assert_array_equal(out.interval, [[0, 1], [0, 1]])
        assert ((out.estimate >= 0) & (out.estimate <= 1)).all()
        assert np.isnan(out.std_error).all()
        assert np.isnan(out.influence).all()
        assert np.isnan(contrasts(out).p_value).all()


def test_one_response_of_a_class_identifies_nothing():
    data = from_arrays(
        np.tile([0.0, 1.0], 30)[None],
        policies=["a"],
        oracle=np.where(np.arange(60) < 20, np.arange(60) == 1, np.nan)[None],
    )
    out = rogan_gladen.estimate(data).sel(policy="a")
    assert out.status == Status.ILL_CONDITIONED
    np.testing.assert_array_equal(out.interval, [0, 1])


def test_sweep_is_the_estimate_at_each_threshold():
    data = world()
    out = rogan_gladen.sweep(data, [2.0, 5.0, 8.0])
    assert out.sizes == {"threshold": 3, "policy": 2, "ci_bound": 2}
    for cut in (2.0, 5.0, 8.0):
        single = rogan_gladen.estimate(data, threshold=cut)
        for name in ("estimate", "interval", "youden", "status"):
            np.testing.assert_array_equal(out[name].sel(threshold=cut), single[name])
    assert out.youden.argmax("threshold").values.tolist() == [1, 1]
    np.testing.assert_allclose(out.width, out.interval.diff("ci_bound").squeeze("ci_bound"))
    with pytest.raises(ValueError, match="thresholds"):
        rogan_gladen.sweep(data, [])


# --- repeated sampling -----------------------------------------------------------------------------------------------

N_REPLICATES = 1000


WORLD = {"n": 800, "oracle_fraction": 0.25, "label_design": "base"}
POLICIES = list(preference_like.PREVALENCE)


def corrected(rows, kinds):
    """By kind of interval: estimates, standard errors and intervals of `POLICIES`, without a labelled shell."""
    good, out = rows.label == 1.0, {}
    verdicts = Verdicts(0.5, rows.score >= 0.5, good, good | (rows.label == 0.0))
    order = [rows.policies.index(name) for name in POLICIES]
    found = [rogan_gladen._estimated(rows, verdicts, p, 0.95) for p in order]
    for kind in kinds:
        each = [rogan_gladen._with_interval(rows, *one, kind, 0.95) for one in found]
        results = [rogan_gladen._rescale(one.result, 0.0, 1.0) for one in each]
        out[kind] = [
            np.array([getattr(one, part) for one in results]) for part in ("value", "std_error", "bounds")
        ]
    return out


def test_the_numbers_are_those_of_the_estimator():
    data, found = preference_like.simulate(**WORLD, rng=0), drawn(preference_like, 0, **WORLD)
    for kind, numbers in corrected(rows_of(found.score, **found.fields), ("auto", "lee", "wald")).items():
        wanted = rogan_gladen.estimate(data, interval=kind)
        for name, values in zip(("estimate", "std_error", "interval"), numbers, strict=True):
            np.testing.assert_array_equal(values, wanted[name].values)


@pytest.fixture(scope="module")
def replicates():
    """Youden's J .41, prevalences that differ, labels under the base alone: what the method is made for."""
    out = {"auto": [], "lee": [], "wald": []}
    for r in range(N_REPLICATES):
        found = drawn(preference_like, r, **WORLD)
        for name, one in corrected(rows_of(found.score, **found.fields), out).items():
            out[name].append(one)
    return {name: [np.stack(part) for part in zip(*found, strict=True)] for name, found in out.items()}


@pytest.mark.slow
def test_keeps_its_level_under_label_shift(replicates):
    """Five-sigma binomial bounds; intervals a fifth too narrow are the planted error.

    With own labels (the first policy) lee leaves the covariance of p with Se and Sp out and is wide: it may over-cover.
    """
    truth = preference_like.truth().values
    least = stats.binom.ppf(ALPHA / 2, N_REPLICATES, 0.95)
    width = {}
    for name, (_, _, interval) in replicates.items():
        low, high = interval.transpose(2, 0, 1)
        center, half = (low + high) / 2, (high - low) / 2
        assert ((np.abs(truth - center) <= half).sum(axis=0) >= least).all()
        narrow = (np.abs(truth - center) <= 0.8 * half).sum(axis=0)
        assert (narrow[1:] < least).all()
        width[name] = 2 * half.mean(axis=0)
    # lee's added successes and failures move a share of k labels, and J, by 2 / k at most: k is about 100 here
    share = float(truth[0])
    alike = np.abs(width["wald"] / width["lee"] - 1) <= 2 / (0.25 * 800 * min(share, 1 - share))
    assert alike.tolist() == [False, True, True, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("se", "sp", "before", "after"),
    [
        (0.705, 0.705, 0.3, 0.7),
        (0.55, 0.7, 0.7, 0.3),
        (0.8, 0.8, 0.5, 0.9),
        (0.95, 0.9, 0.9, 0.6),
        (0.95, 0.9, 0.5, 0.95),
    ],
    ids=["up", "weak", "rare", "down", "excellent"],
)
def test_the_default_holds_where_prevalence_shifts(se, sp, before, after):
    """60 borrowed labels: values that are printed hold their level by five standard errors; the delta method does not.

    Refused, and not counted, are those with fewer than two labels of a class, or 0 in Newcombe's interval of J.
    """
    rng = np.random.default_rng(3)
    n, m, reps = 1000, 60, 2000
    n_good = rng.binomial(m, before, reps)
    counts = np.stack([rng.binomial(n_good, se), rng.binomial(m - n_good, sp)], axis=1)
    passed = rng.binomial(n, after * se + (1 - after) * (1 - sp), reps) / n
    kept, hits = 0, {"auto": 0, "wald": 0}
    for share, good, (right, kept_out) in zip(passed, n_good, counts, strict=True):
        if min(good, m - good) < 2:
            continue
        shares, size = (right / good, kept_out / (m - good)), (good, m - good)
        low, high = oracles_peers.newcombe(shares[0], size[0], shares[1], size[1], 0.95)
        if low <= 0 <= high:
            continue
        kept += 1
        low, high = rogan_gladen.fieller_interval(share, *shares, n=n, n_good=size[0], n_bad=size[1])
        hits["auto"] += low <= after <= high
        j = sum(shares) - 1
        theta = (share + shares[1] - 1) / j
        noise = [q * (1 - q) / max(k - 1, 1) for q, k in zip((share, *shares), (n, *size), strict=True)]
        error = np.sqrt(noise[0] + theta**2 * noise[1] + (1 - theta) ** 2 * noise[2]) / abs(j)
        hits["wald"] += abs(theta - after) <= stats.norm.ppf(0.975) * error
    assert hits["auto"] >= stats.binom.ppf(ALPHA / 2, kept, 0.95)
    assert hits["wald"] < stats.binom.ppf(ALPHA / 2, kept, 0.95)


@pytest.mark.slow
def test_standard_error_is_the_spread(replicates):
    """Mean SE^2 over the variance is 1 within five Monte Carlo standard errors (delta method); a fifth less is not."""
    estimates, std_errors, _ = replicates["wald"]
    apart = (estimates - estimates.mean(axis=0)) ** 2

    def right(shrink):
        squared = (shrink * std_errors) ** 2
        ratio = squared.mean(axis=0) / estimates.var(axis=0, ddof=1)
        terms = squared / squared.mean(axis=0) - apart / apart.mean(axis=0)
        return np.abs(ratio - 1) < 5 * ratio * terms.std(axis=0, ddof=1) / np.sqrt(N_REPLICATES)

    assert right(1.0).all()
    assert not right(0.8).any()


def test_the_width_beside_the_labels_alone_is_reported():
    """Own labels: over the width of their mean's interval; a useful judge on few labels saves, a weak one costs."""
    data = world(n=400, share=0.3)
    out, alone = (module.estimate(data, ci_prob=0.9) for module in (rogan_gladen, labels_only))
    assert (out.route == "own_labels").all()
    width, own = (found.interval.diff("ci_bound").values[:, 0] for found in (out, alone))
    np.testing.assert_allclose(out.width_vs_labels, width / own)
    assert (out.width_vs_labels > 1).all()
    without = data["oracle"].where(data.policy == "a")
    seen = data["labelled"] & (data.policy == "a")
    borrowed = rogan_gladen.estimate(data.assign(oracle=without, labelled=seen))
    assert np.isfinite(borrowed.width_vs_labels).values.tolist() == [True, False]
    assert np.isfinite(borrowed.interval).all()
