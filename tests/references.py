"""Which functions a function names, and these in turn: read from the source of `cje_core` and of the tests, not run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def module_name(path: Path) -> str:
    """Dotted name of a module; helpers of the tests go by their file's name alone, as tests import them."""
    inside = path.relative_to(ROOT).with_suffix("")
    parts = inside.parts[:-1] if inside.name == "__init__" else inside.parts
    return inside.name if parts[0] == "tests" and not inside.name.startswith("test_") else ".".join(parts)


@cache
def source_files() -> dict[str, Path]:
    """Modules of `cje_core` and of the tests, by name."""
    files = [path for part in ("cje_core", "tests") for path in sorted((ROOT / part).rglob("*.py"))]
    return {module_name(path): path for path in files if path.stem != "conftest"}


@cache
def names_in(module: str) -> tuple[dict[str, list[ast.AST]], dict[str, str]]:
    """What a module defines at its top level, methods as ``Class.method``, and its imports, alias to dotted name."""
    defined: dict[str, list[ast.AST]] = {}
    imported: dict[str, str] = {}
    tree = ast.parse(source_files()[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.setdefault(node.name, []).append(node)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    defined.setdefault(f"{node.name}.{inner.name}", []).append(inner)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        defined.setdefault(name.id, []).append(node.value)
    return defined, imported


@cache
def methods() -> dict[str, list[str]]:
    """Methods of `cje_core` by their name alone: what ``something.name`` may be."""
    found: dict[str, list[str]] = {}
    for module in source_files():
        if module.startswith("cje_core"):
            for name in names_in(module)[0]:
                if "." in name:
                    found.setdefault(name.partition(".")[2], []).append(f"{module}.{name}")
    return found


def resolve(dotted: str) -> str:
    """Follow imports from module to module to where a name is defined; other names are left as they are."""
    for _ in range(5):
        module, name = split(dotted)
        if module is None or module == dotted:
            break
        first, _, rest = name.partition(".")
        defined, imported = names_in(module)
        if first in defined or first not in imported:
            break
        dotted = ".".join([imported[first], rest] if rest else [imported[first]])
    return dotted


def dotted_of(node: ast.AST) -> list[str]:
    """``a.b.c`` as a list of names, empty where it starts with anything but a name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        base = dotted_of(node.value)
        return [*base, node.attr] if base else []
    return []


@cache
def references(dotted: str) -> frozenset[str]:
    """Dotted names that the definition of a name refers to: too many rather than too few, see `methods`."""
    module, name = split(dotted)
    if module is None:
        return frozenset()
    defined, imported = names_in(module)
    found, attributes = set[str](), set[str]()
    for node in (node for root in defined.get(name, []) for node in ast.walk(root)):
        if isinstance(node, ast.arg) and ".test_" in module and node.arg in defined:
            found.add(f"{module}.{node.arg}")  # a fixture
        if isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        if isinstance(node, ast.Name | ast.Attribute) and (parts := dotted_of(node)):
            if parts[0] in defined:
                found.add(f"{module}.{parts[0]}")
            else:
                found.add(resolve(".".join([imported.get(parts[0], parts[0]), *parts[1:]])))
    # a module that is passed on as a value: any of its functions that are asked for by name
    passed = [other for other in found if other in source_files()]
    found |= {f"{other}.{name}" for other in passed for name in attributes & names_in(other)[0].keys()}
    found |= {method for name in attributes for method in methods().get(name, [])}
    return frozenset(found - {dotted})


def split(dotted: str) -> tuple[str | None, str]:
    """Module and name inside it; no module where it is none of ours."""
    parts = dotted.split(".")
    for k in range(len(parts), 0, -1):
        if (module := ".".join(parts[:k])) in source_files():
            return module, ".".join(parts[k:])
    return None, dotted


@cache
def reached(dotted: str) -> frozenset[str]:
    """All that a definition refers to, directly or through what it names."""
    seen, queue = set[str](), [dotted]
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue += references(name)
    return frozenset(seen)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Every function of a module, methods and inner ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def shape_of(function: ast.FunctionDef) -> tuple[int, str]:
    """How many statements a function has, and its body with its names numbered in the order of their appearance.

    Annotations and docstrings do not count. What the package calls by name (attributes, keywords) is kept.
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    numbers: dict[str, str] = {}
    copy = ast.parse(ast.unparse(ast.Module(body, [])))
    for node in ast.walk(copy):
        if isinstance(node, ast.Name):
            node.id = numbers.setdefault(node.id, f"v{len(numbers)}")
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = numbers.setdefault(node.arg, f"v{len(numbers)}"), None
        elif isinstance(node, ast.FunctionDef):
            node.name, node.returns = "f", None
    return sum(isinstance(node, ast.stmt) for node in ast.walk(copy)), ast.dump(copy)


def repeated(package: Path, fewest: int) -> list[list[str]]:
    """Functions under a folder whose bodies, of at least `fewest` statements, are the same but for names."""
    places: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            size, shape = shape_of(function)
            if size >= fewest:
                places.setdefault(shape, []).append(f"{path.relative_to(package)}:{function.name}")
    return [where for where in places.values() if len(where) > 1]
