"""Pages of the reference, written before Sphinx reads: a page per module with public names, a table per theme.

Catalogues of estimators and worlds are such tables. Everything comes from docstrings and the registries; nothing here
names a function.
"""

import importlib
import inspect
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from public import Name, available, find, public
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

NAMES = public()
NAMED = re.compile(r"(?:[a-z_]\w*\.)+[A-Za-z_]\w*")
CATALOGUES = ("cje_core.estimators", "cje_sim.scenarios")


def summary(dotted: str) -> str:
    """First sentence or line of a module's docstring, without its full stop."""
    text = inspect.getdoc(importlib.import_module(dotted)) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def theme(module: str) -> str:
    """The package whose table lists a module: a folder of `cje_core` or `cje_sim`, or `studies`."""
    parts = module.split(".")
    if parts[0] == "studies":
        return "studies"
    package = ".".join(parts[:2])
    return package if hasattr(importlib.import_module(package), "__path__") else parts[0]


def heading(text: str) -> list[str]:
    """A title."""
    return [text, "=" * len(text), ""]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A list-table."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *rows):
        lines += [f"   {'*' if k == 0 else ' '} - {cell}" for k, cell in enumerate(row)]
    return [*lines, ""]


def toctree(modules: Iterable[str], package: str = "") -> list[str]:
    """A hidden table of contents, of names below `package`."""
    entries = (f"   {module.removeprefix(f'{package}.')} <{module}>" for module in modules)
    return [".. toctree::", "   :hidden:", "", *entries, ""]


def module_page(module: str, names: list[str]) -> list[str]:
    """Docstring of a module, then each public name of it in full."""
    lines = [*heading(module), f".. automodule:: {module}", ""]
    for name in names:
        found = getattr(importlib.import_module(module), name)
        lines += [f".. autoclass:: {module}.{name}", "   :members:", ""] if inspect.isclass(found) else []
        lines += [] if inspect.isclass(found) else [f".. autofunction:: {module}.{name}", ""]
    return lines


def theme_page(package: str, modules: dict[str, list[str]]) -> list[str]:
    """Docstring of a package, and what is public in its modules."""
    rows = [
        (
            f":doc:`{module.removeprefix(package + '.')} <{module}>`",
            summary(module),
            ", ".join(f"`~{module}.{name}`" for name in names),
        )
        for module, names in modules.items()
    ]
    first = [f".. automodule:: {package}", ""] if package not in modules else []
    return [
        *heading(package),
        *first,
        *table(("module", "what it is", "public"), rows),
        *toctree(modules, package),
    ]


def catalogue_page(package: str, modules: dict[str, list[str]]) -> list[str]:
    """One line per entry of a registry; what an estimator needs of the data."""
    rows = []
    for name in available(package):
        module = f"{package}.{name}"
        needs = getattr(importlib.import_module(module), "NEEDS", ())
        cells = [f":doc:`{name} <{module}>`", summary(module)]
        rows.append([*cells, ", ".join(f"``{need}``" for need in sorted(needs))] if needs else cells)
    head = ("name", "what it is", "needs") if rows and len(rows[0]) == 3 else ("name", "what it is")
    return [
        *heading(package),
        f".. automodule:: {package}",
        "",
        *table(head, rows),
        *toctree(modules, package),
    ]


def first_page() -> list[str]:
    """Docstring of `cje_core`, and where the calls of a first session are told in full."""
    import cje_core

    rows = []
    for name in sorted(cje_core.__all__):
        found = find(f"cje_core.{name}")
        assert found is not None  # an entry of __all__
        rows.append((f":py:obj:`cje_core.{name} <{found.dotted}>`", f":doc:`{found.module}`"))
    return [*heading("cje_core"), ".. automodule:: cje_core", "", *table(("call", "told on"), rows)]


def pages(names: list[Name]) -> dict[str, list[str]]:
    """Lines of every page of the reference, by its name."""
    modules: dict[str, list[str]] = {}
    for found in names:
        modules.setdefault(found.module, []).append(found.name)
    themes: dict[str, dict[str, list[str]]] = {}
    for module, inside in modules.items():
        themes.setdefault(theme(module), {})[module] = inside
    written = {module: module_page(module, inside) for module, inside in modules.items()}
    for package, inside in themes.items():
        page = catalogue_page if package in CATALOGUES else theme_page
        inside = {module: found for module, found in inside.items() if module != package}
        written[package] = page(package, inside)
        if package in modules:  # functions of the package itself stand below its table
            written[package] += [f".. autofunction:: {package}.{name}\n" for name in modules[package]]
    written["cje_core"] = first_page()
    listed = sorted({"cje_core", *themes})
    rows = [(f":doc:`{package}`", summary(package)) for package in listed]
    written["index"] = [
        *heading("Reference"),
        "What README, CONTRIBUTING and the packages' docstrings name. Everything else may change.",
        "",
        *table(("theme", "what it is"), rows),
        *toctree(listed),
    ]
    return written


def write(app: Sphinx) -> None:
    """Write the pages; one that has not changed keeps its date, so that it is not read again."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    written = {folder / f"{name}.rst": "\n".join(lines) for name, lines in pages(NAMES).items()}
    for path in set(folder.iterdir()) - set(written):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path, text in written.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def by_its_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.Element | None:
    """Resolve what a package passes on, such as ``cje_core.compare``, to where it is told."""
    found = find(node.get("reftarget", "")) if node.get("refdomain") == "py" else None
    if found is None or found.dotted == node["reftarget"]:
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found.dotted, node, shown)


def linked(app: Sphinx, doctree: nodes.document) -> None:
    """Let names in README's tables, and in other documents, lead to where they are told."""
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        if isinstance(literal.parent, pending_xref | nodes.reference) or not NAMED.fullmatch(text):
            continue
        found = next((n for n in (find(text), find(f"cje_core.{text}")) if n in NAMES), None)
        if found is not None:
            link = pending_xref(refdomain="py", reftype="obj", reftarget=found.dotted, refdoc=app.env.docname)
            literal.replace_self(link)
            link.append(literal)


def setup(app: Sphinx) -> dict[str, Any]:
    """Before the sources are listed, and where a name has no page of its own."""
    app.connect("builder-inited", write)
    app.connect("doctree-read", linked)
    app.connect("missing-reference", by_its_short_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
