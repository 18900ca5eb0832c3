"""``cje-lab analyze`` on a narrow terminal: no row loses its name, and no column its place."""

from functools import cache

import numpy as np
import pytest
from analysis import printed, probes, world
from rich.cells import cell_len
from rich.console import Console

from cje_core.workflow import standing
from cje_core.workflow.analyze import analyze
from cje_core.workflow.standing import best
from cje_sim.scenarios import weak_judge, well_specified
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.lines.notes import notes
from studies.cli.analysis.panels import shares
from studies.cli.wide import Wide


def logged(policies, n=60):
    """Log-likelihoods of the logged responses under every policy."""
    rng = np.random.default_rng(6)
    return {
        "logp_target": (("policy", "prompt"), -10 - rng.random((len(policies), n))),
        "logp_logger": ("prompt", -10 - rng.random(n)),
        "logged_judge": ("prompt", rng.integers(2, 10, n) / 10),
    }


def useless(**options):
    """Logs, posteriors, and labels that no policy may borrow: every status is a long word."""
    table = world()
    labelled = table["oracle_label"].notna()
    table.loc[labelled, "oracle_label"] = np.random.default_rng(8).random(int(labelled.sum()))
    data = analyze(table).data
    return analyze(data.assign(logged(data["policy"].values)), bayes="gibbs", **options)


@cache
def useless_once():
    return useless()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_row_of_every_table_keeps_its_name(width):
    result = useless_once()
    text = printed(result, width)
    tables = text.split("reported: ")[0]
    blocks = [block.splitlines() for block in tables.split("\n\n") if block.strip()]
    at = next(k for k, block in enumerate(blocks) if block[0].startswith("assumption"))
    ledger, blocks = blocks[at:], blocks[:at]  # its rows are assumptions
    assert all("\noverlap" in "\n".join(block) and "\nshared" in "\n".join(block) for block in ledger)
    assert len(blocks) >= 5 and (len(blocks) > 5) == (width < 120)
    for block in blocks:
        for policy in ("base",) if "difference" in block[0] else ("base", "other"):
            assert any(line.startswith(policy) for line in block), (policy, block)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "uninformative_jud\N{HORIZONTAL ELLIPSIS}" not in text
    for header in ("level,", "P(best)", "TTC", "gates", "stacked", "p (BH)"):
        assert header in tables
    assert (
        tables.count("uninformative_judge") >= 6
    )  # once for the value, the posterior, and each off-policy estimator


def narrow(width):
    table = Wide()
    table.add_column("policy", overflow="fold", min_width=8)
    for k in range(4):
        table.add_column(f"column {k}", no_wrap=True)
    table.add_row("a rather long name", *["x" * 10] * 4)
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize(("width", "blocks"), [(56, 1), (55, 2), (40, 2), (28, 4)])
def test_columns_that_find_no_room_are_continued_beneath(width, blocks):
    """The name takes 8 columns beside all others, and 16 of its 18 where these are continued."""
    text = narrow(width)
    assert sum(line.startswith("policy") for line in text.splitlines()) == blocks
    assert text.count("x" * 10) == 4
    for k in range(4):
        assert f"column {k}" in text
    whole = "".join(line[:8] for line in text.splitlines()[1:]) if blocks == 1 else text
    assert "a rather" in whole


def test_what_leads_says_what_it_assumes():
    """Named best: what it leads by, that transport may end it, and that a judge at its word is assumed."""
    table = world(300, labels=200)
    low = (table["policy"] == "other") & (table["judge_score"] < 0.6)
    table.loc[low, "judge_score"] += 0.3
    borrowed = analyze(table)
    found = best(borrowed)
    assert found is not None and found.policy == "other" and found.decided and found.flips_at > 0
    text = notes(borrowed)[0].plain
    words = "best: other: ahead of base by intervals that together leave out 0, while transport is off by less than"
    assert f"{words} {found.flips_at:.3f}" in text
    word = notes(analyze(table, chosen=["raw_judge"]))[0].plain
    assert (
        "best: other: ahead of base by intervals that together leave out 0, if what is assumed holds" in word
    )


def test_a_wholly_labelled_policy_is_not_told_to_collect_what_it_has():
    result = analyze(world(labels=60))
    caution = result.guide["caution"].sel(policy="base").item()
    assert (
        caution
        == "every response of it is labelled: only more prompts, with labels, make its interval narrower"
    )


def test_the_affinity_of_the_gate_is_named_as_the_bound_that_it_is():
    from cje_core.verdict.gates import evaluate, ope_ok

    found = ope_ok(
        evaluate({"ess_fraction": 0.5, "hill": 3.0, "ttc": 0.9, "ttc_two_sided": 0.9, "affinity": 0.494})
    )
    assert found.reason.item() == "affinity 0.494 (its upper bound; at least 0.85)"


@pytest.mark.slow
def test_the_figure_of_shares_is_of_the_values_that_stand():
    """Its probes make a policy's value: what it would borrow has another share, which the guide does not speak of."""
    table = world()
    result = analyze(table, probes=probes(table, "other", 30, 0.0))
    assert result.standing("other") == "direct_corrected"
    found = shares(result)["calibration_share"]
    for name, policy in (("direct", "base"), ("direct_corrected", "other")):
        assert float(found.sel(policy=policy)) == float(
            result.estimates[name]["calibration_share"].sel(policy=policy)
        )
    assert float(found.sel(policy="other")) != float(
        result.estimates["direct"]["calibration_share"].sel(policy="other")
    )
    assert np.isnan(shares(useless())["calibration_share"].sel(policy="other"))


def test_who_is_behind_is_not_among_those_undecided():
    """Two alike and one far below: which of the two leads is open, the third is not among them."""
    table = world(policies=("base", "other", "worst"))
    bad = probes(table, "worst", 60, -0.3)
    result = analyze(table, probes=bad)
    found = best(result)
    assert not found.decided and found.behind == ["worst"] and "worst" in found.compared
    text = " ".join(printed(result, 200).split())
    assert "behind it, if what is assumed holds: worst" in text and "among base, other:" in text


def test_a_posterior_that_is_its_prior_is_no_number_of_a_refused_policy():
    table = world(labels=10)
    table.loc[table["oracle_label"].notna(), "oracle_label"] = np.random.default_rng(5).random(10)
    result = analyze(table, bayes="gibbs")
    assert result.level("other") == "refused"
    held = result.estimates["bayes_direct"].sel(policy="other")
    shown = standing.shown_estimates(result)["bayes_direct"].sel(policy="other")
    assert np.isnan(held["interval"]).all() and np.isnan(shown["estimate"])


@pytest.mark.slow
def test_a_judge_that_only_just_passes_is_said_to_widen_what_is_borrowed():
    """With its factor in the JSON; a strong judge needs no such line."""
    weak = analyze(weak_judge.simulate(n=400, oracle_fraction=0.3, label_design="base", rng=11))
    assert (
        "passes its test (p 0.021)" in (page := notes(weak)[0].plain)
        and "up to 3.9 times as uncertain" in page
    )
    assert to_json(weak)["manifest"]["judge"]["widening"] == pytest.approx(3.8695, abs=1e-4)
    strong = analyze(well_specified.simulate(n=400, oracle_fraction=0.3, label_design="base", rng=11))
    assert "passes its test" not in notes(strong)[0].plain
    assert to_json(strong)["manifest"]["judge"]["widening"] == 1.0
