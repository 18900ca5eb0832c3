"""Misclassification or calibration: exact limits by a second route, worlds that look alike, and what is noticed."""

import itertools

import numpy as np
import pytest

from cje_core.planning.binary_judge import Judge, variance_at_random
from cje_core.streams import Streams
from cje_sim.exact.judged_means import BinaryJudge, borrowed_labels, own_labels, two_phase
from cje_sim.scenarios import binary_judge, preference_like
from studies import misclassification as mis
from studies.engine import run
from studies.engine.scenario import replicate_scenario

STUDY = mis.STUDY
CELL = {"judge": "J=.4", "stable": "rates", "taught": 0.3, "label_design": "base", "n": 1000, "labels": 400}


def numerical_variance(judge: BinaryJudge, estimator, n: int, m: int) -> float:
    """Delta method with numerical slopes on the eight cells (labelled, verdict, label) of a multinomial."""
    share = m / n
    cells = list(itertools.product((0, 1), (0, 1), (0, 1)))
    p = np.array([(share if lab else 1 - share) * judge.law[z, y] for lab, z, y in cells])

    def value(q):
        at = dict(zip(cells, q / q.sum(), strict=True))
        passed = sum(v for (_, z, _), v in at.items() if z)
        labels = {(z, y): at[1, z, y] for z in (0, 1) for y in (0, 1)}
        return estimator(passed, labels)

    step = 1e-6
    slopes = np.array([(value(p + step * e) - value(p - step * e)) / (2 * step) for e in np.eye(8)])
    return float((p @ slopes**2 - (p @ slopes) ** 2) / n)


def corrected(passed, labels):
    se = labels[1, 1] / (labels[1, 1] + labels[0, 1])
    fp = labels[1, 0] / (labels[1, 0] + labels[0, 0])
    return (passed - fp) / (se - fp)


def calibrated(passed, labels):
    good, bad = (labels[z, 1] / (labels[z, 1] + labels[z, 0]) for z in (1, 0))
    return passed * good + (1 - passed) * bad


@pytest.mark.parametrize("youden", [0.2, 0.4, 0.8])
def test_exact_own_variances_are_those_of_the_multinomial(youden):
    judge = mis.judge_of({"judge": f"J={youden}"}, 0.37)
    exact = own_labels(judge, 1000, 150)
    for name, estimator in (("rogan_gladen", corrected), ("direct", calibrated)):
        slow = numerical_variance(judge, estimator, 1000, 150)
        assert exact[name].std_error ** 2 == pytest.approx(slow, rel=1e-5)
        if name == "rogan_gladen":  # a law in 1 / J would be seen
            whole, wrong = judge.good * (1 - judge.good), judge.noise / judge.youden
            assert abs(two_phase(whole, wrong, 1000, 150) / slow - 1) > 0.1


def test_labels_part_of_the_correction_is_the_bound_over_rho_squared():
    judge = BinaryJudge(0.3, 0.85, 0.7)
    n, m = 1000, 100
    whole = judge.good * (1 - judge.good)
    rho2 = judge.youden**2 * whole / (judge.passed * (1 - judge.passed))
    parts = {name: limit.std_error**2 - whole / n for name, limit in own_labels(judge, n, m).items()}
    assert parts["rogan_gladen"] * rho2 == pytest.approx(parts["direct"], rel=1e-12)
    assert parts["ppi_plus_plus"] <= min(parts["ppi"], parts["labels_only"])


def test_borrowed_variance_is_the_planners():
    base = BinaryJudge(0.3, 0.8, 0.75)
    slow = variance_at_random(1000, 100, Judge(0.6, 0.8, 0.75, 0.3))
    assert borrowed_labels(base, 0.6, 1000, 100)["rogan_gladen"].std_error ** 2 == pytest.approx(
        slow, rel=1e-12
    )


def test_the_two_worlds_look_alike_and_mean_different_things():
    """The same verdicts and base labels bit for bit; values that differ by the exact bias."""
    one, other = (binary_judge.simulate(n=500, stable=stable, rng=3) for stable in binary_judge.STABLE)
    np.testing.assert_array_equal(one["judge"].values, other["judge"].values)
    np.testing.assert_array_equal(one["oracle"].sel(policy="base"), other["oracle"].sel(policy="base"))
    rates, values = (mis.theory({**CELL, "stable": stable}) for stable in ("rates", "values"))
    assert rates["bias_rogan_gladen"] == 0 == values["bias_direct"]
    assert (
        rates["bias_direct"] == pytest.approx(-values["bias_rogan_gladen"])
        and abs(rates["bias_direct"]) > 0.1
    )


@pytest.mark.slow
def test_graded_bias_by_simulation():
    """E[P_base(Y | S)] over a million scores, 5 Monte Carlo standard errors."""
    exact = mis.theory({**CELL, "judge": mis.GRADED})["bias_direct"]
    data = preference_like.simulate(n=400_000, prevalence={"base": 0.3, "target": 0.5}, rng=1)
    score = data["judge"].sel(policy="target").values.ravel()
    a, b = preference_like.SCORE_LAW
    good, bad = (a * b * s ** (a - 1) * (1 - s**a) ** (b - 1) for s in (score, 1 - score))
    rule = 0.3 * good / (0.3 * good + 0.7 * bad)
    assert abs(rule.mean() - 0.5 - exact) < 5 * rule.std() / np.sqrt(rule.size)
    assert abs(exact) > 0.1


@pytest.mark.slow
def test_errors_of_replicates_are_the_exact_ones():
    """Bias and mean square of 150 replicates with own labels, within 5 MCSE; a bias of .05 would be seen."""
    cell = {**CELL, "judge": "J=.8", "label_design": "own", "taught": mis.THETA}
    study = STUDY.at("quick")
    exact = mis.theory(cell)
    runs = [replicate_scenario(study, cell, Streams(5, STUDY.name, cell, r)) for r in range(150)]
    for k, name in enumerate(study.methods):
        if name in ("direct_plug_in", "raw_judge"):
            continue
        error = np.array([np.asarray(run.estimate)[k, 0] - mis.THETA for run in runs])
        mcse = error.std(ddof=1) / np.sqrt(error.size)
        assert abs(error.mean()) < 5 * mcse < 0.05, name
        square = error**2
        assert abs(square.mean() - exact[f"se_{name}"] ** 2) < 5 * square.std(ddof=1) / np.sqrt(
            square.size
        ), name


@pytest.mark.slow
def test_smoke_ends_in_sentences_that_notice_a_swap(tmp_path):
    """Findings, tables and figures of the smoke profile; with the two methods swapped nothing may hold."""
    ds = run.run_study(STUDY, profile="smoke", out=tmp_path, jobs=1).results
    found = STUDY.findings(ds)
    assert len(found) == 5 and all("nan" not in one.sentence for one in found)
    assert len(STUDY.figure(ds)) == 2 and len(STUDY.table(ds)) == 4
    rows = mis._measured(ds)
    base = rows[(rows["label_design"] == "base") & (rows["judge"] == "J=.8") & (rows["taught"] == 0.3)].copy()
    base["bias"], base["bias_mcse"] = base["exact_bias"], 0.001  # what many replicates would show
    assert mis._who_is_right(base, "rates").holds is True
    base["bias"] = base["bias"].where(base["method"] != "rogan_gladen", 0.05)
    assert mis._who_is_right(base, "rates").holds is False
