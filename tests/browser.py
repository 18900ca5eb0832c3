"""A page in a real Chromium: what a reader sees at two widths and in print, in numbers that a test can hold.

Where no Chromium is found tests skip, but not in CI, which installs one. ``python tests/browser.py PAGE [DIR]`` prints
what is wrong with a page and leaves screenshots in DIR for eyes.
"""

import base64
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (1400, 390)  # a screen and a phone, CSS pixels
# quiet, without a sandbox (root has none), and without the background services that would look for a network
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
# elements that reach beyond the window and lie in nothing that scrolls or hides by itself
BEYOND = """
const width = document.documentElement.clientWidth;
const held = e => {
  for (let p = e.parentElement; p; p = p.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX)) return true;
  return false;
};
return [...document.querySelectorAll("body *")]
  .filter(e => e.getBoundingClientRect().right > width + 1 && !held(e))
  .map(e => `${e.tagName}: ${e.textContent.slice(0, 60)}`);
"""
SIDEWAYS = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
# text drawn in a figure that leaves its drawing, to a pixel
CUT = """
return [...document.querySelectorAll("figure svg")].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text, use")].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width && (r.right > box.right + 1 || r.left < box.left - 1);
  }).map(e => `${svg.closest("figure").querySelector("figcaption")?.textContent}: beyond its edge`);
}).filter((line, k, all) => all.indexOf(line) === k)
"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium by its WebDriver; skips where there is none, but fails in CI."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(found):
        if os.environ.get("CI") == "true":
            pytest.fail("CI has to install Chromium and its driver")
        pytest.skip("no chromium and chromedriver on this machine")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    try:
        yield driver
    finally:
        driver.quit()


def complaints(driver: Any, page: Path, *, look: Path | None = None) -> list[str]:
    """What is wrong with a page: console messages, sideways scroll, what is cut, at each width and in print.

    Parameters
    ----------
    driver
        Of `chromium`.
    page
        HTML file.
    look
        Directory for screenshots ``WIDTH.png`` and ``print.pdf``, for eyes; None keeps none.
    """
    found = []
    for width in WIDTHS:
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        driver.get(page.absolute().as_uri())
        found += [f"{width} px: {entry['message']}" for entry in driver.get_log("browser")]
        if over := driver.execute_script(SIDEWAYS):
            found.append(f"{width} px: the page scrolls sideways by {over} px")
        found += [f"{width} px: beyond the edge, {line}" for line in driver.execute_script(BEYOND)[:5]]
        found += [f"{width} px: figure, {line}" for line in driver.execute_script(CUT)[:5]]
        if look is not None:
            height = driver.execute_script("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": min(height, 14_000), "scale": 1}
            shot = driver.execute_cdp_cmd(
                "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
            )
            look.joinpath(f"{width}.png").write_bytes(base64.b64decode(shot["data"]))
    found += in_print(driver, look=look)
    return found


def in_print(driver: Any, *, look: Path | None = None) -> list[str]:
    """What is cut where the page is printed on A4: elements wider than the paper less its margins."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    paper = round((210 - 2 * 14) / 25.4 * 96)  # CSS pixels between margins of 14 mm
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": paper, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    found = [f"print: beyond the edge, {line}" for line in driver.execute_script(BEYOND)[:5]]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    if look is not None:
        pdf = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
        look.joinpath("print.pdf").write_bytes(base64.b64decode(pdf["data"]))
    return found


def main(page: str, look: str | None = None) -> int:
    """Print what is wrong with one page; 1 if anything is."""
    if look is not None:
        Path(look).mkdir(parents=True, exist_ok=True)
    try:
        with chromium() as driver:
            found = complaints(driver, Path(page), look=None if look is None else Path(look))
    except pytest.skip.Exception as reason:
        print(f"{page}: not opened, {reason}")
        return 0
    print(*found or [f"{page}: nothing is cut or complained of at {WIDTHS} px and in print"], sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
