"""Verdicts on the paper's tables: by its conditions, by one rule for page and ledger, by a stated condition."""

import numpy as np
import pytest

from cje_sim.exact import typicality as exact
from studies import claims
from studies.claims import pass_fail, tables, typicality_zipf, uq_tables, weights
from studies.engine import published
from studies.ledger.claim import Evidence, Trial, verdict
from studies.ledger.trial import by_source

EVERY = {claim.name: claim for found in claims.find().values() for claim in found}


def judged(name: str, profile: str = "smoke") -> tuple[str, Evidence]:
    """Verdict and evidence of a claim."""
    found = EVERY[name].decide(Trial(name, profile))
    return verdict(EVERY[name], found), found


def test_shared_problems_give_all_five_errors_of_the_pass_fail_table():
    """s^2 = .09 and rho = .59 leave at most 9.4%; without sharing the last one is 66% too large."""
    ratio = pass_fail.rmse(0.09, 0.59) / np.array(pass_fail.PRINTED)
    assert np.abs(ratio - 1).max() < 0.095
    assert pass_fail.rmse(0.09, 0.0)[-1] / pass_fail.PRINTED[-1] > 1.6
    assert judged("tab-mbpp")[0] == "holds"


def test_simulated_pass_fail_labels_have_the_formulas_error():
    """5 standard errors of an RMSE from 1,000 replicates, sqrt(1 / 2000), and 3% for the label means of few rows."""
    found = pass_fail.simulated(0.09, 0.59, 1000, np.random.default_rng(2))[1:]
    assert np.abs(found / pass_fail.rmse(0.09, 0.59)[1:] - 1).max() < 5 / np.sqrt(2000) + 0.03


@pytest.mark.slow
def test_the_gate_on_ess_stops_what_the_gate_on_ttc_passes():
    name, found = judged("ttc-gate-sound")
    assert name == "holds_if" and "ESS/n" in found.condition
    world = found.counterexample
    inside = typicality_zipf.both_gates_passed({"temperature": 1.05, "length": 400})
    p, q = typicality_zipf.hot(inside)
    assert exact.coverage(p, q, inside["length"]).ttc > 0.7
    assert typicality_zipf.gate_passed(world).left > -np.log(
        typicality_zipf.ESS_GATE
    )  # stopped by the other gate
    assert typicality_zipf.gate_passed(inside).left <= -np.log(typicality_zipf.ESS_GATE)


def test_calibrated_ips_keeps_the_value_under_r2_and_the_printed_stack_violates_it():
    """The exact weights are among the candidates, and the stack takes the constant."""
    world = {"logger": [1.0, 1.0], "weight": [0.5, 1.5], "reward": [0.2, 0.8], "spread": [0.0, 0.0]}
    q, m, r = weights.population(world)
    assert (weights.candidates(q, m)[1] == m).all()
    assert weights.stacked(q, m, r)[0] == pytest.approx([1.0, 1.0])
    assert weights.calibrated_value(world).broken("==")
    assert not weights.calibrated_value({**world, "consistent": 1}).broken("==")


def test_questions_of_ours_are_not_counted_as_the_papers():
    for name in ("bootstrap-conditioning", "cor-caratheodory-any"):
        found = by_source([{"source": EVERY[name].source, "verdict": "refuted"}])
        assert found["stated by the paper"].startswith("0 claims")


def test_the_figure_of_collapse_needs_a_wider_target():
    """Normal sums at the least ratio start at .8 and end at .01; at a smaller one they miss an end."""
    from statistics import NormalDist

    least, z = typicality_zipf.least_sd_ratio(), NormalDist()
    assert least == pytest.approx(1.48, abs=0.005)
    gap = (z.inv_cdf(0.8) - z.inv_cdf(0.01)) / 15
    ttc = [z.cdf(z.inv_cdf(0.9) * least - gap * np.sqrt(length)) for length in (25, 400)]
    assert ttc == pytest.approx([0.8, 0.01])
    u = typicality_zipf.utilities("iid", typicality_zipf.VOCAB, rng=0)
    assert typicality_zipf.sd_ratio(u, 0.3) < least


def test_the_columns_of_ess_and_cle_exclude_each_other():
    assert judged("tab-cle-ess")[0] == "refuted"
    broken = [
        name
        for name in tables.ESS
        if tables.cle_of_ess({"ess": tables.ESS[name], "cle": tables.CLE[name]}).broken("<=")
    ]
    assert broken == ["parallel_universe_prompt", "premium", "unhelpful"]


def test_page_and_ledger_have_one_rule():
    """Both call `published.agree`; a design effect of 1.6 forgives what one of 1.1 does not, and the ledger says so."""
    assert published.agree([(0.874, 0.008, 0.70)]) is False
    assert published.agree([(0.261, 0.009, 0.15)]) is None
    assert judged("tab-uq-jackknife")[0] == "not_reproduced"
    assert judged("tab-uq-comparison")[0] == "undecided"
    for name in ("tab-uq-comparison", "tab-uq-jackknife", "tab-uq-diagnostics", "jackknife-level"):
        assert "0.3.0" in judged(name)[1].text


def test_a_rows_conditions_world_and_second_method_are_on_its_page():
    for name in ("tab-mbpp", "tab-uq-comparison", "tab-uq-jackknife", "tab-cle-ess"):
        text = judged(name)[1].text
        assert "The paper's conditions" in text, name
    assert "second method" in judged("tab-mbpp")[1].text


@pytest.mark.parametrize(
    "claim", [c for c in (*tables.CLAIMS, *uq_tables.CLAIMS) if c.study], ids=lambda c: c.name
)
def test_a_reader_finds_the_conditions_the_world_the_second_method_and_the_size(claim):
    text = claim.decide(Trial(claim.name, "smoke")).text
    needed = ["Our world: ", "From docs/studies/", "replicates of each"]
    if not claim.source.startswith("ours"):
        needed += ["The paper's conditions: ", "The second method: "]
    assert [words for words in needed if words not in text] == []
