"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing to fetch.

docutils has the converter. A formula that it cannot read is a warning, and a warning ends the build.
"""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def formula(node: nodes.Element, *, block: bool) -> str:
    """A formula's MathML."""
    try:
        return str(tex2mathml(node.astext(), as_block=block))
    except MathError as error:
        logger.warning("formula %s: %s", node.astext(), error, location=node)
        return ""


def inline(self: Any, node: nodes.math) -> None:
    """A formula within a line."""
    self.body.append(formula(node, block=False))
    raise nodes.SkipNode


def displayed(self: Any, node: nodes.math_block) -> None:
    """A formula of its own line, which scrolls where the page is narrow."""
    self.body.append(f'<div class="formula">{formula(node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer the renderer as ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
