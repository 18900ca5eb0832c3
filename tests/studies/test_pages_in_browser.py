"""Pages opened in Chromium: nothing complains, scrolls sideways or is cut, and each of these would be seen."""

import json
from pathlib import Path

import pytest
from analysis import probes, world
from browser import chromium, complaints

from cje_core.workflow.analyze import analyze
from studies.cli.analysis import save
from studies.ledger import page as ledger

pytestmark = pytest.mark.slow  # it starts a browser; `make test` opens the report of all studies too

SOUND = "<p>A page.</p><div style='overflow-x: auto'><div style='width: 3000px'>scrolls by itself</div></div>"
DRAWN = "<svg width='100' height='20'><text x='{x}' y='15'>legend</text></svg>"
FIGURE = f"<figure>{DRAWN}<figcaption>f</figcaption></figure>"
HEAD = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>t</title>"


@pytest.fixture(scope="module")
def driver():
    with chromium() as found:
        yield found


def written(tmp_path, body):
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html>{HEAD}<body>{body}</body>")
    return page


def test_a_sound_page_has_no_complaint(driver, tmp_path):
    assert complaints(driver, written(tmp_path, SOUND + FIGURE.format(x=5)), look=tmp_path) == []
    assert {path.name for path in tmp_path.glob("*.*")} == {"page.html", "1400.png", "390.png", "print.pdf"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<div style='width: 500px'>wide</div>", "390 px: beyond the edge, DIV: wide"),
        ("<div style='width: 2000px'>wide</div>", "print: beyond the edge, DIV: wide"),
        ("<script>console.error('planted')</script>", "planted"),
        ("<script>throw new Error('planted')</script>", "planted"),
        (FIGURE.format(x=80), "figure, f: beyond its edge"),
    ],
)
def test_what_is_wrong_is_seen(driver, tmp_path, body, said):
    assert any(said in line for line in complaints(driver, written(tmp_path, SOUND + body)))


def test_the_page_of_an_analysis(driver, tmp_path):
    """Names that are long, read from the right, or look like markup."""
    names = ("base", "<b>bold</b>", "נעים־מאוד", "a-model-with-a-very-long-name-of-fifty-five-letters-2026")
    table = world(80, labels=50, policies=names)
    save.save(analyze(table, probes=probes(table, names[1], 40, 0.0)), tmp_path)
    assert complaints(driver, tmp_path / "index.html") == []


def test_the_page_of_the_ledger(driver, tmp_path):
    found = json.loads((Path(__file__).parents[2] / "docs" / "claims.json").read_text(encoding="utf-8"))
    page = tmp_path / "claims.html"
    page.write_text(ledger.render(found), encoding="utf-8")
    assert complaints(driver, page) == []
