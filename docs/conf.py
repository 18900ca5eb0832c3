"""How Sphinx makes the pages. `make docs` builds them; warnings are errors, and nothing is fetched while it runs."""

import gc
import importlib.metadata
import inspect
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parent / "extensions"), str(Path(__file__).parents[1])]

from numpydoc import xref  # noqa: E402
from outside import ALIASES, SITES  # noqa: E402

gc.set_threshold(100_000, 50, 50)  # trees of pages stay: a tenth of the time went into searches for garbage
xref.DEFAULT_LINKS.clear()  # words such as "sequence", whose pages are not in our inventories

project = "cje-lab"
author = "The cje-lab authors"
project_copyright = "The cje-lab authors, MIT licence"
release = version = importlib.metadata.version("cje-lab")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",
    "reference",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery", "claims/README.md"]  # the last is part of results/proofs.md
default_role = "py:obj"  # what stands in single backticks is a name; one that has no page is shown as code

highlight_language = "none"  # what stands in a block without a language is a command, or what one prints

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True  # $$ within a paragraph, as the proofs have it
autodoc_typehints = "none"
intersphinx_mapping = {project: (site, f"inventories/{project}.inv") for project, site in SITES.items()}
numpydoc_xref_param_type = True  # types of parameters lead to where they are told
numpydoc_xref_aliases = ALIASES
numpydoc_xref_ignore = "all"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 3600,  # how long an example took is no part of the page
    "write_computation_times": False,
    "notebook_extensions": set(),
    "image_srcset": ["2x"],
    "within_subsection_order": "FileNameSortKey",
}
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
    "header_links_before_dropdown": 7,
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


def returned(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """A section "Returns" that is prose describes what the annotation names; numpydoc wants that name above it."""
    if "Returns" not in lines or not inspect.isfunction(obj):
        return
    first = lines.index("Returns") + 2
    last = next((k for k in range(first, len(lines)) if not lines[k]), len(lines))
    body = lines[first:last]
    if any(line.startswith(" ") for line in body):
        return
    annotation = inspect.signature(obj).return_annotation
    kind = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    lines[first:last] = [kind, *(f"    {line}" for line in body)]


def setup(app: Sphinx) -> None:
    """Hear of every file that a page includes, and of every docstring before numpydoc does."""
    app.connect("include-read", rewritten)
    app.connect("autodoc-process-docstring", returned, priority=100)
