"""The ledger: each claim decided in its smoke size, a false variant of each refuted, what breaks one re-run from it."""

import json
import re
import sys
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

import studies
from studies import claims
from studies.cli import app as command_line
from studies.engine.run import run_study
from studies.engine.study import load
from studies.ledger import page
from studies.ledger.claim import VERDICTS, Claim, ClaimError, Evidence, Sides, Trial, verdict
from studies.ledger.own import decided, first_broken
from studies.ledger.shown import document
from studies.ledger.trial import (
    Entry,
    again,
    as_json,
    by_source,
    compact,
    decide,
    decide_in_processes,
    in_order,
    ledger,
    summary,
)
from studies.ledger.worlds import Family, masses, over_worlds, search

DOCS = Path(studies.__file__).parents[1] / "docs"
EVERY = {claim.name: (group, claim) for group, found in claims.find().items() for claim in found}


# those that take a quarter of a second or more: their neighbours run in the fast suite
LONG = (
    "binned-pooled-variance", "prop-oua-isotonic", "monotone-restriction-repaired", "cor-caratheodory",
    "binned-anova-type", "spread-labels-budget", "binned-null-variance", "blackwell-some-labels-reversed",
    "fig-ttc-collapse", "dr-variance-repaired", "fig-ips-growth", "prop-oua-whole", "ttc-tiny-kl",
    "monotone-restriction", "audit-known-calibrator", "blackwell-all-labels", "blackwell-some-labels",
    "blackwell-threshold", "bootstrap-conditioning", "budgeted-limit-random-judge",
    "budgeted-nonincreasing", "budgeted-optimal", "budgeted-optimal-random-judge",
    "budgeted-trade-random-judge", "cle-coverage-penalty", "dr-attains-bound", "model-restriction-equality",
    "model-restriction-repaired", "prop-calips-mean", "rg-inverse-youden", "sur-eif-repaired",
    "sur-strictness", "sur-strictness-printed", "sur-strictness-repaired", "sur-variance-printed",
    "sur-variance-printed-random-judge", "sur-variance-repaired", "thm-model-restriction", "thm-sur-eif",
)  # fmt: skip
assert set(LONG) <= set(EVERY)
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in EVERY]


@cache
def entry(name: str) -> Entry:
    group, claim = EVERY[name]
    return next(decide({group: [claim]}, "smoke"))


@lru_cache(maxsize=1)
def committed() -> dict:
    return json.loads((DOCS / "claims.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_is_decided_its_false_variant_refuted_and_its_counterexample_breaks_it_twice(name):
    _, claim = EVERY[name]
    found = entry(name)
    assert not found.error and found.verdict in VERDICTS
    if found.verdict == "undecided":
        assert found.evidence.needs
    planted = claim.decide(Trial(name, "smoke", planted=True))
    assert planted.holds is False, "a false variant came out as holding"
    if found.evidence.counterexample is not None and claim.sides is not None:
        both = again(claim, compact(found.evidence.counterexample))
        assert both["first"]["broken"]
        assert claim.second is not None and both["second"]["broken"], "a second method must confirm it"
        assert claim.route or both["agree"], "both methods must give the same sides within their error"
    if found.verdict == "refuted":
        assert found.evidence.confirmed is True and found.rerun
    if found.verdict == "holds_if":
        assert found.evidence.confirmed is True and found.evidence.condition


def others(value):
    """The value with one of its numbers larger by one, or nought, in every way."""
    if isinstance(value, dict | list):
        for at in value if isinstance(value, dict) else range(len(value)):
            for one in others(value[at]):
                changed = value.copy()
                changed[at] = one
                yield changed
    else:
        yield from (value + 1, 0 * value)


@pytest.mark.parametrize("name", [one["id"] for one in committed()["claims"] if one["rerun"]])
def test_the_sides_at_a_counterexample_depend_on_its_parameters(name):
    """A command that can be copied computes what is asked, not what it would say at any parameters."""
    claim = EVERY[name][1]
    at = next(one for one in committed()["claims"] if one["id"] == name)["counterexample"]
    here = claim.sides(at)

    def moved(world: dict) -> bool:
        try:
            return claim.sides(world)[:2] != here[:2]
        except (ValueError, ZeroDivisionError):  # no world any more
            return True

    assert any(moved(world) for world in others(at))


def test_fifty_claims_and_more_are_decided_and_names_are_unique():
    assert len(EVERY) == sum(len(found) for found in claims.find().values())
    decided = [one for one in committed()["claims"] if one["verdict"] != "undecided"]
    assert len(decided) >= 50
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in EVERY)
    repaired = [claim.repairs for _, claim in EVERY.values() if claim.repairs]
    assert set(repaired) <= set(EVERY)


def test_the_document_is_made_of_its_json_and_the_registry_of_today():
    """Stale when a claim was added, reworded or removed, when the page was edited, or when a verdict moved."""
    found = committed()
    assert (DOCS / "claims.md").read_text(encoding="utf-8") == document(found)
    listed = {one["id"]: one for one in found["claims"]}
    assert list(listed) == list(EVERY), "run cje-lab claims --document docs/claims.md"
    for name, (group, claim) in EVERY.items():
        told = {"group": group, "source": claim.source, "statement": claim.statement, "rule": claim.rule}
        told |= {"why": claim.why, "planted": claim.planted, "repairs": claim.repairs}
        assert {key: listed[name][key] for key in told} == told
    assert found["summary"] == summary(found["claims"])
    counts = [int(told.split()[0]) for told in by_source(found["claims"]).values()]
    assert sum(counts) == len(EVERY) and min(counts) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_document_has_the_verdict_of_today(name):
    listed = {one["id"]: one for one in committed()["claims"]}
    assert entry(name).verdict == listed[name]["verdict"]


def half(**changes: object) -> Claim:
    """X <= 1/2 over numbers between 0 and 1, which is false, for levels of the tests below."""
    told = {
        "name": "half",
        "source": "here",
        "statement": "$x \\le .5$",
        "why": "It is not.",
        "family": Family((1,), lambda size: 1, lambda z, size: {"x": float(1 / (1 + np.exp(-z[0])))}),
        "sides": lambda w: Sides(w["x"], 0.5),
        "second": lambda w: Sides(2 * w["x"] / 2, 0.5),
        "planted": "x is at most a tenth",
        "falsified": lambda s: Sides(s.left, 0.1),
    } | changes
    return over_worlds(**told)


def test_a_search_finds_breaks_conditions_and_witnesses():
    broken = half().decide(Trial("half", "smoke"))
    assert broken.holds is False and broken.counterexample["x"] > 0.5 and broken.confirmed
    assert verdict(half(), broken) == "refuted"
    conditional = half(condition="x is small", restrict=lambda w: {"x": w["x"] / 2})
    assert verdict(conditional, conditional.decide(Trial("half", "smoke"))) == "holds_if"
    wrong = half(condition="x is any", restrict=lambda w: w)
    assert verdict(wrong, wrong.decide(Trial("half", "smoke"))) == "refuted"
    witness = half(exists=True)
    assert verdict(witness, witness.decide(Trial("half", "smoke"))) == "holds"
    nobody = half(exists=True, sides=lambda w: Sides(w["x"], 2.0))
    assert verdict(nobody, nobody.decide(Trial("half", "smoke"))) == "undecided", (
        "a search that finds none proves nothing"
    )


def test_the_optimiser_finds_what_random_worlds_do_not():
    narrow = Family((1,), lambda size: 1, lambda z, size: {"z": float(z[0])})
    peak = lambda w: Sides(-((w["z"] - 7.0) ** 2), -1e-4)  # noqa: E731
    found = search(Trial("peak", "quick"), narrow, 1, peak, "<=")
    assert found.excess > 0 > found.drawn.max() and abs(found.params["z"] - 7) < 0.01


def test_a_refutation_that_the_second_method_denies_is_undecided():
    for second in (lambda w: Sides(0.0, 0.5), lambda w: Sides(9.0, 0.5), None):
        denied = half(second=second)
        assert verdict(denied, denied.decide(Trial("half", "smoke"))) == "undecided"
        [found] = decide({"here": [denied]}, "smoke")
        assert found.evidence.needs
    other = half(second=lambda w: Sides(9.0, 0.5), route="nine in place of x")
    assert verdict(other, other.decide(Trial("half", "smoke"))) == "refuted"


def by_itself(second) -> Claim:
    """The same statement, decided by a function of its own that looks through four worlds."""
    told = {"name": "half", "source": "here", "statement": "s", "rule": "r", "why": "w", "planted": "p"}
    sides = lambda w: Sides(w["x"], 0.5)  # noqa: E731
    worlds = [{"x": x} for x in (0.2, 0.5, 0.51, 0.9)]

    def evidence(trial: Trial) -> Evidence:
        found = first_broken(worlds, sides)
        return Evidence(holds=found is None, measured="", expected="", text="Tried.", counterexample=found)

    return decided(decide=evidence, sides=sides, second=second, **told)


def test_a_claim_that_decides_by_itself_checks_both_methods_when_it_runs():
    agreed = by_itself(lambda w: Sides(2 * w["x"], 2 * 0.5 + w["x"] - 0.5))
    found = agreed.decide(Trial("half", "smoke"))
    assert found.counterexample == {"x": 0.9} and "second method gives left 1.8" in found.text
    assert verdict(agreed, found) == "refuted"
    for wrong in (lambda w: Sides(0.0, 0.5), lambda w: Sides(9.0, 0.5)):
        denied = by_itself(wrong)
        assert verdict(denied, denied.decide(Trial("half", "smoke"))) == "undecided"
    only = first_broken([{"x": 0.51}], lambda w: Sides(w["x"], 0.5))
    assert only == {"x": 0.51}, "the one that breaks it most, where none does so clearly"


@pytest.mark.parametrize("name", NAMES)
def test_every_counterexample_is_confirmed_by_the_machinery(name):
    """Of a second method there is no more than one place in which it is compared with the first."""
    found = entry(name).evidence
    if found.counterexample is not None:
        assert "second method" in found.text and found.confirmed is not None


def test_equal_trials_give_equal_evidence_and_draws_belong_to_their_claim():
    claim = EVERY["cor-cle-ess"][1]
    first, second = (claim.decide(Trial(claim.name, "smoke")) for _ in range(2))
    assert first == second
    one, other = (Trial(name, "smoke").rng("worlds").random() for name in ("cor-cle-ess", "prop-cle"))
    assert one != other


def test_processes_give_the_ledger_of_one_process_in_its_order():
    names = ("cor-cle-ess", "prop-cle", "lem-guard", "sqrt-ratio", "worked-example")
    groups = claims.find(names)
    alone = list(decide(groups, "smoke"))
    ended = list(decide_in_processes(groups, claims.load, "smoke", None, 2))
    for given in (ended, ended[::-1]):  # whichever way they end
        assert ledger(in_order(given, groups), "smoke") == ledger(alone, "smoke")


def test_an_error_is_an_entry_and_the_exit_code(cli_claims, monkeypatch):
    def broken(trial: Trial) -> Evidence:
        raise ZeroDivisionError("no")

    bad = replace(EVERY["prop-cle"][1], decide=broken)
    [found] = decide({"coverage": [bad]}, "smoke")
    assert found.verdict == "undecided" and "ZeroDivisionError" in found.error
    monkeypatch.setattr(claims, "find", lambda names: {"coverage": [bad]})
    code, out, _ = cli_claims("prop-cle", "--profile", "smoke")
    assert code == 1 and "undecided" in out


@pytest.fixture
def cli_claims(monkeypatch, capsys):
    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cje-lab", "claims", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


def test_the_command_prints_json_files_and_a_claim_at_its_counterexample(cli_claims, tmp_path):
    code, out, _ = cli_claims("cor-cle-ess", "--profile", "smoke", "--json", "--out", tmp_path / "new")
    [found] = json.loads(out)
    contract = {
        "id",
        "source",
        "statement",
        "verdict",
        "measured",
        "expected",
        "mcse",
        "counterexample",
        "seconds",
    }
    assert code == 0 and contract <= set(found) and found["verdict"] == "holds_if"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"claims.json", "claims.md", "claims.html"}
    command = found["rerun"].split("--at ")
    assert command[0].split()[:3] == ["cje-lab", "claims", "cor-cle-ess"]
    code, out, _ = cli_claims("cor-cle-ess", "--at", command[1].strip("'"))
    assert code == 0 and out.count("is broken") == 2
    code, out, _ = cli_claims("cor-cle-ess", "--json", "--at", command[1].strip("'"))
    assert json.loads(out)["first"]["broken"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prop-clee"], "near it: prop-cle"),
        (["--profile", "huge"], "smoke, quick, paper"),
        (["prop-cle", "--at", "{"], "not JSON"),
        (["prop-cle", "--at", "[1]"], "JSON object"),
        (["prop-cle", "--at", "{}"], "missing"),
        (["prop-cle", "lem-guard", "--at", "{}"], "name one claim"),
        (["worked-example", "--at", "{}"], "no parameters"),
        (
            ["sqrt-ratio", "--at", '{"judge":0,"oracle":1,"eval":1,"cal":1,"budget":1,"policies":1}'],
            "no world",
        ),
        (["prop-cle", "--results", "nowhere"], "no such directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(cli_claims, words, said):
    code, out, err = cli_claims(*words)
    assert code == 2 and not out and said in err and err.count("\n") == 1


def test_the_page_stands_alone_and_holds_every_claim():
    text = page.render(committed())
    for name in EVERY:
        assert f'<details id="{name}"' in text
    assert not re.search(r'(src|href)="(https?:)?//', text)
    assert "\\" not in re.sub(r"(?s)<script>.*?</script>|<pre>.*?</pre>", "", text), (
        "a formula was not translated"
    )
    read = [re.sub("<[^>]*>", " ", one) for one in re.findall(r'<i class="tex">(.*?)</i>', text)]
    words = {"length", "OutOfRange"}  # of formulas; others are names of TeX's that the page does not know
    assert {word for one in read for word in re.findall(r"[A-Za-z]{6,}", one)} <= words
    assert all(f'data-verdict="{word}"' in text for word in {one["verdict"] for one in committed()["claims"]})


def test_tables_are_read_from_results(tmp_path):
    from studies.claims.tables import from_study

    found = from_study("estimator_benchmark", "no such words")(Trial("x", "smoke"))
    assert found.holds is None and "cje-lab run estimator_benchmark" in found.needs


def test_contracts_stop_what_cannot_be_decided():
    with pytest.raises(ClaimError, match="relation"):
        replace(EVERY["prop-cle"][1], relation="<")
    with pytest.raises(ClaimError, match="why is empty"):
        replace(EVERY["prop-cle"][1], why=" ")
    with pytest.raises(ClaimError, match="no law"):
        masses([0.0, 0.0])
    with pytest.raises(ClaimError, match="degenerate"):
        Sides(np.inf, 1.0).excess("<=")
    with pytest.raises(ClaimError, match="no world meets"):
        half(sides=_degenerate).decide(Trial("half", "smoke"))


def _degenerate(world: dict) -> Sides:
    raise ClaimError("never")


def test_json_is_json_and_the_ledger_has_no_times():
    found = ledger([entry("prop-cle"), entry("tab-mbpp")], "smoke")
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    assert "seconds" not in found["claims"][0] and "seconds" in as_json(entry("prop-cle"))


@pytest.mark.slow
def test_results_are_found_wherever_worker_processes_stand(tmp_path, monkeypatch):
    """Those that an earlier run has left do not move with a process that does."""
    names = ("tab-uq-diagnostics", "tab-uq-jackknife")
    list(
        decide_in_processes(claims.find(names), claims.load, "smoke", None, 2)
    )  # processes there are, of here
    monkeypatch.chdir(tmp_path)
    one_world = {"world": ["smooth"], "label_design": ["base"], "n": [1000]}
    run_study(load("interval_coverage"), profile="smoke", out=Path("results"), levels=one_world)
    ended = decide_in_processes(claims.find(names), claims.load, "smoke", Path("results"), 2)
    assert [entry.error for entry in ended] == ["", ""]
