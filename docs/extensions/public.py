"""What is public: the names that README, CONTRIBUTING and the packages' own docstrings give to users.

No list is kept. A name counts when it stands in backticks or in the import of a snippet there, in an ``__all__``, or in
a registry (``estimate`` of an estimator, ``simulate`` and ``truth`` of a world). The reference is made of these names,
and `tests/test_documentation.py` asks each function among them for an example that runs.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cje_core", "cje_sim", "studies")
DOTTED = re.compile(r"`(?:help\()?((?:[a-z_]\w*\.)+[A-Za-z_]\w*)\)?`")
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


class Name(NamedTuple):
    """A public object by the module that defines it."""

    module: str
    name: str

    @property
    def dotted(self) -> str:
        """Where it is imported from."""
        return f"{self.module}.{self.name}"


def find(dotted: str) -> Name | None:
    """The function or class behind a dotted name, or None: a module, a constant, or nothing at all."""
    parts = dotted.split(".")
    for k in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        if len(parts) - k != 1:
            return None  # an attribute of a class
        found = inspect.unwrap(getattr(found, parts[-1], None))  # type: ignore[arg-type]  # of a cache, the function
        if (
            not (inspect.isfunction(found) or inspect.isclass(found))
            or found.__module__.split(".")[0] not in PACKAGES
        ):
            return None
        return Name(found.__module__, found.__name__)
    return None


def in_text(text: str) -> set[str]:
    """Dotted names in backticks, as they stand and below ``cje_core``, and what the snippets import."""
    given = set(DOTTED.findall(text))
    names = {name for name in given if name.split(".")[0] in PACKAGES}
    names |= {f"cje_core.{name}" for name in given - names}
    for code in SNIPPET.findall(text):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def packages() -> list[ModuleType]:
    """Every package of the project."""
    found = []
    for top in PACKAGES:
        package = importlib.import_module(top)
        below = [m.name for m in pkgutil.walk_packages(package.__path__, f"{top}.") if m.ispkg]
        found += [package, *map(importlib.import_module, below)]
    return found


def available(package: str) -> list[str]:
    """Entries of a registry."""
    listed: list[str] = importlib.import_module(package).available()
    return listed


def registry(package: str, *functions: str) -> set[str]:
    """What every module of a registry defines."""
    return {f"{package}.{name}.{function}" for name in available(package) for function in functions}


def public() -> list[Name]:
    """All public functions and classes, sorted by module."""
    names = registry("cje_core.estimators", "estimate") | registry("cje_sim.scenarios", "simulate", "truth")
    for file in ("README.md", "CONTRIBUTING.md"):
        names |= in_text((ROOT / file).read_text(encoding="utf-8"))
    for package in packages():
        names |= in_text(package.__doc__ or "")
        names |= {f"{package.__name__}.{name}" for name in getattr(package, "__all__", ())}
        names |= {f"{package.__name__}.{name}" for name in ("available", "load") if hasattr(package, name)}
    return sorted({found for name in names if (found := find(name))})
