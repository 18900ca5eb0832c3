"""The labels' correction of off-policy values: against the definition, and against repeated sampling."""

import numpy as np
import oracles_borrowed as slow
import pytest
from bare_arrays import Drawn, with_logs
from ope_world import FAMILY, logs_of, small
from scipy import special, stats

from cje_core.estimators import calibrated_dr_cpo, dr_cpo, mrdr, snips
from cje_core.families.off_policy import labels as off_policy_labels
from cje_core.families.off_policy.estimate import logs_of as bare_logs
from cje_core.families.off_policy.estimate import policy_results
from cje_core.families.off_policy.logs import CALIBRATOR, Term
from cje_core.inference.sums import cluster_se
from cje_sim.judges import draw_oracle
from cje_sim.labelling import Labelling, choose
from cje_sim.scenarios import tilted_logs
from cje_sim.world import Prompts


def by_hand(rows, fitted, z, weight):
    """Weights of the labels by a pseudo-inverse, and the labels' held-out residuals: from loops and row lists."""
    score, label = fitted.z[:, 0].tolist(), fitted.label.tolist()
    fold = [int(fitted.fold[i]) for i in fitted.prompt]
    residual = []
    for s, y, k in zip(score, label, fold, strict=True):
        others = [{"score": u, "prob": 1.0} for u, g in zip(score, fold, strict=True) if g != k]
        labels = [v for v, g in zip(label, fold, strict=True) if g != k]
        residual.append(y - slow.calibrated(others, labels, [s])[0])
    knots = sorted({slow.averaged_quantile(score, q) for q in (0.1, 0.5, 0.9)})
    b = np.array([slow.terms(s, knots) for s in score])
    inside = [min(max(s, min(score)), max(score)) for s in z]
    goal = sum(w * np.array(slow.terms(s, knots)) for s, w in zip(inside, weight, strict=True))
    return np.linalg.pinv(b.T @ b) @ goal @ b.T, np.array(residual)


@pytest.mark.parametrize("module", [snips, dr_cpo])
def test_the_correction_is_the_balanced_mean_of_held_out_residuals(module):
    """Importance sampling balances the weighted logged responses; DR the fresh ones, whose logged terms cancel."""
    logs = logs_of(small(3, draws=1))
    value = module.policy_value(logs, 1)
    mine = logs.of(1)
    z, share = (
        (mine.z, mine.weight / mine.weight.sum()) if module is snips else (mine.z_fresh, np.full(40, 1 / 40))
    )
    a, residual = by_hand(logs.rows, logs.fitted, z[:, 0].tolist(), share.tolist())
    found = off_policy_labels.label_error(logs, 1, value.terms())
    assert found.correction == pytest.approx(a @ residual, abs=1e-10)
    assert a.sum() == pytest.approx(1)


def test_any_linear_functional_is_corrected_and_the_correction_is_linear_in_it():
    """Of a difference of two means the weights sum to zero; a constant in f is taken out of a mean, whatever it is."""
    logs = logs_of(small(3))
    one, other = (
        Term(CALIBRATOR, logs.fitted, rows, np.full(len(z), 1 / len(z)))
        for rows, z in (("seen", logs.logged.z), ("fresh", logs.of(1).z_fresh))
    )
    both = [one, other._replace(weight=-2 * other.weight)]
    parts = [off_policy_labels.label_error(logs, 1, [term]) for term in (one, other)]
    joint = off_policy_labels.label_error(logs, 1, both)
    assert joint.correction == pytest.approx(parts[0].correction - 2 * parts[1].correction)
    np.testing.assert_allclose(
        joint.part.influence, parts[0].part.influence - 2 * parts[1].part.influence, atol=1e-12
    )


@pytest.mark.parametrize("module", FAMILY, ids=lambda m: m.__name__.split(".")[-1])
def test_the_papers_plug_in_is_left_as_it_was(module):
    """``borrowed="plug_in"`` and the jackknife have no correction: the values are those of the plain terms."""
    data = small(12)
    plain = module.estimate(data, borrowed="plug_in")
    assert (plain["label_correction"] == 0).all()
    paper = module.estimate(data, inference="jackknife")
    np.testing.assert_array_equal(paper["estimate"], plain["estimate"])
    for name in ("estimate", "std_error", "interval"):
        np.testing.assert_array_equal(
            paper[name], module.estimate(data, inference="jackknife", borrowed="plug_in")[name]
        )
    with pytest.raises(ValueError, match="it has no jackknife"):
        module.estimate(data, inference="jackknife", borrowed="balanced")


def test_a_second_fit_is_corrected_by_its_own_labels():
    """MRDR's q has a slice of its own, and its functional is a difference."""
    logs = logs_of(small(6))
    of_fits = off_policy_labels.functionals(logs, 1, mrdr.policy_value(logs, 1).terms())
    assert {name: round(float(one.weight.sum()), 9) for name, one in of_fits.items()} == {
        "mrdr w stabilised": 0.0,
        CALIBRATOR: 1.0,
    }
    assert len({len(one.labels.label) for one in of_fits.values()}) == 2


METHODS = {"snips": (snips, {}), "calibrated_dr_cpo": (calibrated_dr_cpo, {})}
POLICIES = list(tilted_logs.SCORE_LAW)
N, M, REPLICATES = 600, 150, 250


def drawn(r):
    rng = np.random.default_rng([31, r])
    world = tilted_logs.law(Prompts(N, rng))
    oracle = draw_oracle(world.mean, rng.random(world.judge.shape), atoms=1.0)
    found = choose(
        world.judge[..., None], oracle[..., None], Labelling(M / N, "base"), None, (0, 1), (0, 1), rng
    )
    seen = np.where(found.seen[..., 0], oracle, np.nan)
    fields = {"policies": POLICIES, "oracle": seen, "probe": None, "label_prob": found.prob[..., 0]}
    return with_logs(Drawn(world.judge, fields, world.logp_target), POLICIES)


def coverage(borrowed):
    """Shares of values and of differences that the nominal 95% cover, by method: (policies,) and (pairs,)."""
    truth, (a, b) = tilted_logs.truth().values, np.triu_indices(len(POLICIES), 1)
    hits = {name: ([], []) for name in METHODS}
    for r in range(REPLICATES):
        logs = bare_logs(drawn(r))
        order = [logs.rows.policies.index(name) for name in POLICIES]
        for name, (module, options) in METHODS.items():
            method = module.estimate.method(**options)
            each = [
                one.result for one in policy_results(logs, method, name != "snips", "influence", borrowed)
            ]
            each = [each[p] for p in order]
            value, error, df = np.array([(one.value, one.std_error, one.df) for one in each]).T
            apart = np.array(
                [
                    cluster_se(each[i].influence - each[j].influence, logs.rows.cluster)
                    for i, j in zip(a, b, strict=True)
                ]
            )
            hits[name][0].append(np.abs(value - truth) <= special.stdtrit(df, 0.975) * error)
            half = special.stdtrit(np.minimum(df[a], df[b]), 0.975) * apart
            hits[name][1].append(np.abs(value[a] - value[b] - truth[a] + truth[b]) <= half)
    return {name: tuple(np.mean(found, axis=0) for found in pair) for name, pair in hits.items()}


@pytest.mark.slow
def test_binary_labels_are_covered_and_a_plug_in_is_seen():
    """Exact binomial bound of .93 (what is promised at 1,000 replicates and more); the plug-in's differences fall."""
    least = stats.binom.ppf(1e-4, REPLICATES, 0.93) / REPLICATES
    for name, (levels, differences) in coverage("balanced").items():
        assert levels.min() >= least and differences.min() >= least, (name, levels, differences)
    planted = coverage("plug_in")  # without the residual term
    assert all(differences.min() < least for _, differences in planted.values()), planted
