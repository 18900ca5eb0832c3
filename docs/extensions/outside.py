"""Names of other projects that docstrings use, and the inventories that say where they are told.

Sphinx would fetch every project's whole inventory at each build. Here stand trimmed ones, in the plain text of an
inventory's first version: a name, its role, its page. To bring them up to date, with a network::

    python docs/extensions/outside.py                            # from the projects' sites
    python docs/extensions/outside.py xarray=path/objects.inv    # or from a file at hand
"""

import sys
import urllib.request
from pathlib import Path

HELD = Path(__file__).resolve().parents[1] / "inventories"
SITES = {
    "matplotlib": "https://matplotlib.org/stable/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "python": "https://docs.python.org/3/",
    "xarray": "https://docs.xarray.dev/en/stable/",
}
# As docstrings have them, and in full.
ALIASES = {
    "Axes": "matplotlib.axes.Axes",
    "DataArray": "xarray.DataArray",
    "DataFrame": "pandas.DataFrame",
    "DataTree": "xarray.DataTree",
    "Dataset": "xarray.Dataset",
    "Generator": "numpy.random.Generator",
    "Path": "pathlib.Path",
    "pd.DataFrame": "pandas.DataFrame",
    "xr.DataArray": "xarray.DataArray",
    "xr.DataTree": "xarray.DataTree",
    "xr.Dataset": "xarray.Dataset",
}


def read(content: bytes, site: str) -> dict[str, tuple[str, str]]:
    """Role and page of the names of `ALIASES` that an inventory has."""
    from sphinx.util.inventory import InventoryFile

    objects = InventoryFile.loads(content, uri="").data
    found = {}
    for role, names in objects.items():
        for name in set(ALIASES.values()) & set(names):
            if role.startswith("py:"):
                found[name] = (role.removeprefix("py:"), names[name].uri.partition("#")[0])
    if not found:
        raise SystemExit(f"{site}: its inventory has none of {', '.join(sorted(set(ALIASES.values())))}")
    return found


def trimmed(project: str, found: dict[str, tuple[str, str]]) -> str:
    """An inventory of the first version."""
    head = ["# Sphinx inventory version 1", f"# Project: {project}", "# Version: stable"]
    return "\n".join([*head, *(f"{name} {role} {page}" for name, (role, page) in sorted(found.items())), ""])


def main(given: dict[str, str]) -> None:
    """Write the trimmed inventory of every project, or of those whose files are given."""
    for project, site in SITES.items():
        if given and project not in given:
            continue
        if given:
            content = Path(given[project]).read_bytes()
        else:
            with urllib.request.urlopen(f"{site}objects.inv") as answer:
                content = answer.read()
        (HELD / f"{project}.inv").write_text(trimmed(project, read(content, site)), encoding="utf-8")


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
