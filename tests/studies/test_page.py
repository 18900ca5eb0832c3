"""The page of an analysis: answers first, escapes names, stands alone, and leaves nothing half-written or stale."""

import html
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
import xarray as xr
from analysis import printed, probes, world, write

from cje_core import figures
from cje_core.workflow.analyze import analyze
from studies.cli.analysis import forest, panels, save
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.page import agreed, leaderboard, worth
from studies.cli.analysis.panels import file_name
from studies.cli.analysis.told import answer, methods, next_steps

VOID = {"meta", "link", "br", "img", "input", "hr"}
NAMES = (
    "base",
    "<b>bold</b>&\"'",
    "נעים־מאוד",
    "a-model-with-a-very-long-name-of-fifty-five-letters-2026",
)


class Page(HTMLParser):
    """Balance of tags, text, and what a page would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.loads, self.scripts = [], [], [], 0
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        found = dict(attrs)
        if tag != "a":
            self.loads += [found[key] for key in ("src", "href", "xlink:href") if found.get(key)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        if tag != "a":
            self.loads += [value for key, value in attrs if key in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def sketched(monkeypatch):
    """One panel for all: what is written where does not depend on what is drawn."""
    kept = panels._panels
    wanted = ("win_matrix", "reliability")
    monkeypatch.setattr(panels, "_panels", lambda one: (made for made in kept(one) if made[0] in wanted))
    monkeypatch.setattr(forest, "render", lambda _: {})


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Names that HTML, bidirectional text and narrow columns would choke on."""
    table = world(80, labels=50, policies=NAMES)
    result = analyze(table, probes=probes(table, NAMES[1], 40, 0.0), bayes="gibbs")
    out = tmp_path_factory.mktemp("odd")
    save.save(result, out)
    return result, out, (out / "index.html").read_text("utf-8")


@pytest.mark.slow
def test_the_page_is_whole_stands_alone_and_answers_first(odd):
    _, out, text = odd
    page = Page(text)
    assert page.scripts == 0 and "javascript:" not in text
    assert all(one.startswith(("#", "data:")) for one in page.loads), page.loads
    assert not re.search(r"url\((?!#)", text) and "@import" not in text
    assert len(text.encode()) < 2_000_000
    order = [
        text.index(f'<section id="{name}"') for name in ("answer", "differences", "calibration", "transport")
    ]
    assert order == sorted(order) and text.index('<ul class="answer">') < text.index("<svg")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert set(targets) <= set(ids)
    for heading in (
        "Posterior beside the value",
        "What the judge is worth",
        "From rows to numbers",
        "Methods, to paste",
    ):
        assert heading in text
    linked = re.findall(r'<li><a href="([^"]+)">', text)
    assert {unquote(name) for name in linked} == {p.name for p in out.iterdir()} - {
        "index.html",
        ".cje-lab-files",
    }


@pytest.mark.slow
def test_names_are_escaped_and_set_apart(odd):
    _, _, text = odd
    assert "<b>bold" not in text and html.escape(NAMES[1], quote=False)[:12] in text
    cells = re.findall(r'<td class="name"><bdi>(.*?)</bdi>', text)
    assert {html.unescape(one) for one in cells} >= set(NAMES)
    for section in re.findall(r"<svg.*?</svg>", text, flags=re.S):
        ElementTree.fromstring(section.replace("xlink:href", "href"))


@pytest.mark.slow
def test_the_style_serves_narrow_screens_and_print(odd):
    _, _, text = odd
    assert "@media (max-width: 640px)" in text and "@media print" in text and 'name="viewport"' in text
    # tables and figures scroll in their own box, never the page
    body = text[text.index("<main>") :]
    for found in re.finditer(r"<table|<svg [^>]*viewBox=\"0 0 \d{3}", body):
        before = body[: found.start()]
        assert before.rfind('class="scroll') > before.rfind("</table></div>") - 1


@pytest.mark.slow
def test_the_leaderboard_is_sorted_by_value_and_holds_every_policy(odd):
    result, _, text = odd
    rows = leaderboard(result)
    known = [float(row["value"]) for row in rows if row["value"] != "no value"]
    assert known == sorted(known, reverse=True) and {row["policy"] for row in rows} == set(NAMES)
    shown = re.findall(r'<td class="name"><bdi>(.*?)</bdi></td><td class="value">', text)
    assert [html.unescape(one) for one in shown] == [row["policy"] for row in rows]
    for row in rows:
        if row["bar"]:
            assert 0 <= row["bar"][0] <= row["bar"][2] <= row["bar"][1] <= 100


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 30])
def test_one_and_thirty_policies(count, tmp_path, sketched):
    result = analyze(world(30, labels=20, policies=tuple(f"m{k:02}" for k in range(count))))
    save.save(result, tmp_path)
    text = (tmp_path / "index.html").read_text("utf-8")
    Page(text)
    assert len(text.encode()) < 2_000_000
    assert text.count('<td class="value">') == count
    assert ("<summary>435 pairs" in text) == (count == 30)
    # one line per reason, not one per policy
    told = json.loads((tmp_path / "estimates.json").read_text())
    assert len(next_steps(told)) <= 6


@pytest.mark.slow
def test_what_the_judge_replaces_is_the_ratio_of_the_variances(odd):
    result, _, _ = odd
    (row,) = [one for one in worth(result) if one["policy"] == "base"]
    alone, ours = (
        float(result.estimates[name]["std_error"].sel(policy="base")) for name in ("labels_only", "direct")
    )
    assert row["effective"] == f"{50 * (alone / ours) ** 2:.0f}"
    assert next(one["labels"] for one in agreed(result)) == 90


@pytest.mark.slow
def test_one_figure_that_fails_leaves_the_rest(tmp_path, monkeypatch, sketched):
    def fails(*_, **__):
        raise RuntimeError("no ink")

    monkeypatch.setattr(figures, "reliability", fails)
    broken = []
    names = save.save(analyze(world()), tmp_path, broken=broken)
    assert "reliability.png" not in names and "win_matrix.svg" in names
    (line,) = broken
    assert line.startswith("the figure reliability could not be made: RuntimeError: no ink")
    assert "no ink" in (tmp_path / "index.html").read_text()


@pytest.mark.slow
def test_a_second_run_leaves_nothing_stale_and_nothing_of_others(tmp_path, sketched):
    (tmp_path / "mine.txt").write_text("keep")
    first = analyze(world(policies=("base", "other")), bayes="gibbs")
    save.save(first, tmp_path)
    assert (tmp_path / "posterior.nc").exists() and (tmp_path / "win_matrix.png").exists()
    save.save(analyze(world(policies=("base",))), tmp_path)
    there = {path.name for path in tmp_path.iterdir()}
    assert not {"posterior.nc", "win_matrix.png"} & there and {"mine.txt", "index.html"} <= there


@pytest.mark.slow
def test_the_table_stands_though_the_directory_cannot(cli, tmp_path):
    """A name that no file system takes: the result is printed, then one line."""
    code, out, err = cli(write(world(), tmp_path / "data"), "--out", tmp_path / ("x" * 400))
    assert code == 2 and "base" in out and err.count("\n") == 1 and "too long" in err


def test_what_is_written_is_no_data_of_the_next_run(cli, tmp_path):
    write(world(40, labels=30), tmp_path / "d", "{policy}.jsonl")
    code, _, err = cli(tmp_path / "d", "--out", tmp_path / "d")
    assert code == 2 and "would read what is written there as data" in err and err.count("\n") == 1


@pytest.mark.slow
def test_sentences_claim_what_was_done(odd):
    """The paragraph names each value's estimator; without probes nothing was audited, without labels taught."""
    result, _, _ = odd
    told = to_json(result)
    text = " ".join(methods(result, told))
    for policy in NAMES:
        assert told["policies"][policy]["value"]["from"] in text and policy in text
    assert "audited on the probes" in text and "Benjamini" in text
    bare = analyze(world(60, labels=0, policies=("only",)))
    text = " ".join(methods(bare, to_json(bare)))
    assert "audited" not in text and "taught" not in text and "Benjamini" not in text


def test_names_of_files_are_short_and_apart():
    assert file_name("gpt-4o") == "gpt-4o"
    assert file_name("a/b") != file_name("a b") and len(file_name("y" * 900)) < 80


@pytest.mark.slow
def test_the_posterior_s_file_hides_prompts_with_a_salt(tmp_path, sketched):
    table = world()
    table["prompt_id"] = "secret-" + table["prompt_id"].astype(str)
    save.save(analyze(table, bayes="gibbs"), tmp_path, salt="0123456789abcdef0123456789abcdef")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="netcdf4") as tree:
        names = tree["constant_data"]["label_prompt"].values.astype(str)
    assert not any("secret" in name for name in names)
    assert "secret" not in (tmp_path / "index.html").read_text()


def test_every_panel_is_drawn_when_it_is_asked_for():
    made = dict(panels._panels(analyze(world())))
    assert set(made) >= {"transport_residuals", "calibration", "win_matrix"}
    assert np.isfinite(made["calibration"]().get_ylim()).all()


@pytest.mark.slow
def test_very_long_names_are_short_on_screen_and_page_and_whole_once(tmp_path, sketched):
    """300 letters: beginning and end, told apart, with the full names below the methods and in the JSON."""
    names = tuple("n" * 290 + f"-version-{k}" for k in (1, 2))
    result = analyze(world(policies=names))
    shown = printed(result, 100)
    assert "version-1" in shown and "version-2" in shown and "n" * 60 not in shown.replace("\n", "")
    save.save(result, tmp_path)
    text = (tmp_path / "index.html").read_text()
    visible = text.split("Names in full")[0]
    assert "n" * 60 not in visible and "version-1" in visible
    assert all(name in text.split("Names in full")[1] for name in names)
    assert list(json.loads((tmp_path / "estimates.json").read_text())["policies"]) == list(names)


@pytest.mark.slow
def test_refusals_that_differ_in_a_share_alone_are_one_line():
    """Thirty policies outside the labels' range by thirty shares made thirty lines at the top of the page."""
    table = world(150, labels=80, policies=tuple(f"model-{k}" for k in range(9)))
    number = table["policy"].str[-1].astype(int)
    table["judge_score"] = (table["judge_score"] + number / 30).clip(0, 1)
    result = analyze(table)
    refused = [policy for policy in result.policies if result.level(policy) == "refused"]
    lines = [line for line in answer(result, to_json(result)) if line.startswith("Refused")]
    assert len(refused) > 2 and len({result.of_level("reason", p) for p in refused}) > 1
    assert len(lines) == 1 and all(policy in lines[0] for policy in refused)
