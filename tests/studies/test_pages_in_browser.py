"""Pages opened in Chromium: nothing complains, scrolls sideways or is cut, and each of these would be seen."""

import pytest
from browser import chromium, complaints

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


@pytest.mark.slow
def test_a_sound_page_has_no_complaint(driver, tmp_path):
    assert complaints(driver, written(tmp_path, SOUND + FIGURE.format(x=5)), look=tmp_path) == []
    assert {path.name for path in tmp_path.glob("*.*")} == {"page.html", "1400.png", "390.png", "print.pdf"}


@pytest.mark.slow
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
