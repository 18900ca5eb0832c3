"""Parts that every page is made of: templates with one style, figures inline, and what to do if one fails."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from cje_core.figures.style import OKABE_ITO

Made = TypeVar("Made")


def attempt(what: str, make: Callable[[], Made], instead: Made, broken: list[str]) -> Made:
    """What `make` returns; of what it raises one line goes to `broken`, and `instead` stands in its place."""
    try:
        return make()
    except Exception as error:  # a study's own functions may raise anything; the rest of the page is wanted
        from studies.engine.outcome import describe

        broken.append(f"{what} could not be made: {describe(error)}")
        return instead


def inline(svg: str, prefix: str) -> str:
    """An SVG file as it stands in a page: without its XML head, its ids kept apart from those of others.

    Examples
    --------
    >>> inline('<?xml version="1.0"?><svg><g id="a"/><use href="#a"/></svg>', "f1")
    '<svg><g id="f1-a"/><use href="#f1-a"/></svg>'
    """
    text = svg[svg.index("<svg") :]
    return re.sub(r'(\bid="|url\(#|\bhref="#)([^")]+)', rf"\1{prefix}-\2", text)


@lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)


def rendered(template: str, **shown: Any) -> str:
    """A page from a template of this folder; every text is escaped, and the palette is at hand."""
    return str(_environment().get_template(template).render(palette=OKABE_ITO, **shown))
