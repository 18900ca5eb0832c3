"""How Sphinx makes the pages. `make docs` builds them; warnings are errors, and nothing is fetched while it runs."""

import importlib.metadata
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parent / "extensions"), str(Path(__file__).parents[1])]

project = "cje-lab"
author = "The cje-lab authors"
project_copyright = "The cje-lab authors, MIT licence"
release = version = importlib.metadata.version("cje-lab")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",
]
exclude_patterns = ["_build", "claims/README.md"]  # the latter is part of results/proofs.md
default_role = "py:obj"  # what stands in single backticks is a name; one that has no page is shown as code

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True  # $$ within a paragraph, as the proofs have it
autosummary_generate = False
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
html_math_renderer = "mathml"

html_theme = "pydata_sphinx_theme"
html_title = "cje-lab"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
# the pages of the first row have nothing beside them
html_sidebars = {"index": [], "start": []}

# Where links of included documents lead from here: those of the root, and the list of proofs.
LINKS = {
    "](docs/studies)": "](/results/studies.md)",
    "](docs/claims/README.md)": "](/results/proofs.md)",
    "](CONTRIBUTING.md)": "](/project/contributing.md)",
    "](docs/": "](/",
    "](../claims.md)": "](/claims.md)",
}


def rewritten(app: Sphinx, relative: Path, parent: str, content: list[str]) -> None:
    """Links of README and its like are relative to where they lie; make them relative to these pages."""
    for link, here in LINKS.items():
        content[0] = content[0].replace(link, here)
    if Path(relative).parent.name == "claims":
        content[0] = re.sub(r"\]\((\w+\.md)\)", r"](/claims/\1)", content[0])


def setup(app: Sphinx) -> None:
    """Hear of every file that a page includes."""
    app.connect("include-read", rewritten)
