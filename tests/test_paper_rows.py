"""The paper, row by row: what each names exists, and does on a small world what the row says."""

import importlib
import re
from pathlib import Path

import pytest
import typer
from paper_rows import ROWS
from paper_world import Small

from studies.cli.app import app

CLAIM = re.compile(r"cje-lab claims [a-z-]+$")  # the ledger of claims, where such rows will stand
LATER = [row for row in ROWS if row.holds is None]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("paper"))


def parts(row):
    return [part.strip() for part in row.by.split(",")]


def resolves(name):
    """Whether a dotted name, of `cje_core` or any package, is something that can be imported."""
    return found_at(f"cje_core.{name}") or found_at(name)


def found_at(name):
    module, found = name, []
    while module:
        try:
            at = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            found.insert(0, last)
            continue
        for attribute in found:
            at = getattr(at, attribute, None)
        return at is not None
    return False


def runs(words):
    """Whether the command line has a command with these options."""
    command = typer.main.get_command(app)
    _, *rest = words.split()
    while rest and not rest[0].startswith("--"):
        commands = getattr(command, "commands", {})
        if rest[0] not in commands:
            break
        command = commands[rest.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    named = [word for word in rest if word.startswith("--")]
    return not getattr(command, "commands", {}) and set(named) <= known


def called(row):
    return f"{row.at}: {row.what}"


LONG = (
    "app:impl-run: steps with files in and out, and any of them again",
    "Subgroups and fairness: values, overlap and reliability by group",
)
assert set(LONG) <= {called(row) for row in ROWS}


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=pytest.mark.slow if called(r) in LONG else ()) for r in ROWS if r.holds],
    ids=called,
)
def test_row(row, small):
    check_names(row)
    assert bool(row.holds(small))


def check_names(row):
    for name in parts(row):
        if not CLAIM.match(name):
            assert runs(name) if name.startswith("cje-lab ") else resolves(name), name


def test_no_row_is_empty():
    for row in ROWS:
        assert row.at and row.what and row.by
    assert len({(row.at, row.what) for row in ROWS}) == len(ROWS)


def test_rows_that_stand_elsewhere_say_where():
    """They are studies and benchmarks that run, or entries of the ledger of claims."""
    for row in LATER:
        for name in parts(row):
            assert CLAIM.match(name) or runs(name), name
    claims = [row for row in LATER if any(CLAIM.match(name) for name in parts(row))]
    assert len(LATER) < len(ROWS) / 5 and len(claims) == 25


def test_a_row_that_names_nothing_is_caught():
    assert not resolves("offpolicy.weights.no_such") and not resolves("no_such.thing")
    assert not runs("cje-lab no_such") and not runs("cje-lab analyze --no-such")


def labels_of(text):
    """Labels of equations, algorithms, tables, figures, theorems and their kin."""
    return set(re.findall(r"\\label\{((?:eq|alg|tab|fig|thm|prop|lem|cor):[^}]+)\}", text))


def test_every_label_of_the_paper_has_a_row():
    paper = Path(__file__).resolve().parents[2] / "shared" / "paper.tex"
    if not paper.exists():
        pytest.skip("the paper (shared/paper.tex beside the checkout) is not on this machine")
    text = paper.read_text(encoding="utf-8")
    named = {row.at for row in ROWS}
    assert labels_of(text) - named - {"fig:dag", "fig:pipeline"} == set()  # drawings of ideas
    missing = {at for at in named if at not in text}
    assert not missing
