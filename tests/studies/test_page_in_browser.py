"""The page in a real browser, where one is found: no sideways scroll, no console error, and print."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from analysis import probes, world

from cje_core.workflow.analyze import analyze
from studies.cli.analysis import save

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell")
CACHE = Path.home() / ".cache" / "ms-playwright"
FRAME = """<!DOCTYPE html><body><iframe src="index.html" style="width:{width}px;height:900px;border:0"></iframe>
<script>document.querySelector("iframe").onload = function () {{
  var page = this.contentDocument.documentElement, wide = 0;
  this.contentDocument.querySelectorAll("table").forEach(function (one) {{
    var box = one.closest(".scroll");
    if (!box || box.getBoundingClientRect().right > {width} + 1) wide += 1;
  }});
  document.body.dataset.found = page.scrollWidth + " " + wide;
}};</script></body>"""


def browser():
    found = next(filter(None, map(shutil.which, NAMES)), None)
    within = [*CACHE.glob("chromium*/*/chrome"), *CACHE.glob("chromium*/*/headless_shell")]
    return found or next(map(str, within), None)


pytestmark = pytest.mark.skipif(browser() is None, reason="no Chromium on this machine")


def run(*words):
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options = ["--enable-logging=stderr", "--virtual-time-budget=4000", "--window-size=1600,1000"]
    return subprocess.run(
        [*command, *options, *words], capture_output=True, text=True, check=True, timeout=60
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    names = ("base", "<b>bold</b>", "נעים־מאוד", "a-model-with-a-very-long-name-of-fifty-five-letters-2026")
    table = world(80, labels=50, policies=names)
    out = tmp_path_factory.mktemp("page")
    save.save(analyze(table, probes=probes(table, names[1], 40, 0.0)), out)
    return out


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_scrolls_sideways(folder, width):
    (folder / "frame.html").write_text(FRAME.format(width=width))
    done = run("--dump-dom", f"file://{folder}/frame.html")
    (found,) = re.findall(r'data-found="(\d+) (\d+)"', done.stdout)
    assert int(found[0]) <= width and found[1] == "0"
    assert "CONSOLE" not in done.stderr


def test_it_prints(folder):
    run(f"--print-to-pdf={folder}/page.pdf", f"file://{folder}/index.html")
    assert (folder / "page.pdf").read_bytes().startswith(b"%PDF")
