"""The report: self-contained, deterministic, escaped, with every number's MCSE."""

import csv
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import toy_study

from cje_core.figures.style import OKABE_ITO, looks
from studies.engine import run
from studies.engine.measures import MEASURES
from studies.engine.running import directory
from studies.report import page as _report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report on one toy study, and its directory."""
    out = tmp_path_factory.mktemp("report")
    run.run_study(toy_study.STUDY, profile="smoke", out=out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "load", lambda name: toy_study.STUDY)
        first = _report.write(out).path.read_bytes()
        again = _report.write(out).path.read_bytes()
    assert first == again  # the same results give the same file
    return out, first.decode()


@pytest.mark.slow
def test_the_page_needs_nothing_else(page):
    _, text = page
    assert not re.search(r"<(script|link|img|iframe)\b", text)
    assert not re.search(r"src=", text)
    links = re.findall(r"href=\"(?!#)([^\"]*)", text)  # files beside it, for whoever has them
    assert links and all(
        re.fullmatch(r"toy_study/(tables/[\w-]+\.(csv|tex)|performance\.csv)", link) for link in links
    )
    assert all((page[0] / link).is_file() for link in links)
    assert "url(http" not in text and "@import" not in text


@pytest.mark.slow
def test_the_page_shows_design_results_and_provenance(page):
    _, text = page
    for piece in (
        "A toy",
        "Check the runner.",
        "Normal means.",
        "half width",
        "world: plain, crash",
        "n: 4, 16",
    ):
        assert piece in text, piece
    assert "The mean &lt;of&gt; each policy." in text and "<of>" not in text  # text is text, not markup
    assert "Exceptions kept as data" in text and "ZeroDivisionError: planted" in text
    assert "&#34;numpy&#34;" in text  # the manifest
    cells = re.findall(r"<td>([^<]*)</td>", text)
    assert any(re.fullmatch(r"-?\d+\.\d+ \(\d+\.\d+\)", cell) for cell in cells)


def test_the_figure_is_inline_svg_with_ids_of_its_own(page):
    _, text = page
    (figure,) = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    ET.fromstring(figure)  # well formed
    ids = re.findall(r'\bid="([^"]+)"', figure)
    assert ids and all(i.startswith("toy_study-0-") for i in ids)
    used = re.findall(r'(?:url\(|href=")#([^")]+)', figure)
    assert set(used) <= set(ids)


def test_performance_csv_has_every_measure(page):
    out, _ = page
    with (out / "toy_study/performance.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 4 * 3 * 2 * len(MEASURES)
    assert list(rows[0]) == [
        "world",
        "n",
        "method",
        "policy",
        "measure",
        "value",
        "mcse",
        "lower",
        "upper",
        "replicates",
    ]


def test_numbers_carry_two_digits_of_their_mcse():
    assert _report.with_mcse(0.138012, 0.000412) == "0.13801 (0.00041)"
    assert _report.with_mcse(1234.5, 67.0) == "1234 (67)"
    assert _report.with_mcse(0.0, 0.0) == "0.000"  # no error of 0 is claimed
    assert _report.with_mcse(2.5, np.nan) == "2.5"
    frame = pd.DataFrame({"n": [250], "bias": [0.5], "bias_mcse": [0.01], "alone_mcse": [3.0]})
    assert _report.render(frame).to_dict("records") == [
        {"n": "250", "bias": "0.500 (0.010)", "alone_mcse": "3"}
    ]


def test_a_method_keeps_its_colour():
    style = looks([f"m{k}" for k in range(10)])
    assert len({look["color"] for look in style.values()}) == len(OKABE_ITO)
    assert style["m0"]["color"] == style["m8"]["color"] and style["m0"]["marker"] != style["m8"]["marker"]
