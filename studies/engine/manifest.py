"""What a result stands on: definition (seed, methods, code), versions, machine, command.

Blocks may be mixed only if they have one definition. The code part is a digest of each file that a replicate
depends on, found by following imports from the study, its scenario and its estimators; comments, docstrings,
the study's own table and figure and the text of its declaration do not count.
"""

import ast
import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cje_core import estimators
from cje_core.disk.whole import put
from cje_core.streams import canonical, digest
from studies.engine.running.interpreters import versions
from studies.engine.study import Study, StudyError

ENGINE, USUAL = "studies.engine.study", "studies.engine.scenario"
OURS = ("cje_core", "cje_sim", "studies")
DISTRIBUTIONS = ("cje-lab", "numpy", "scipy", "xarray", "numba", "statsmodels", "pymc", "nutpie", "arviz")


def _code(tree: ast.Module, leave_out: Collection[str]) -> str:
    """Source of a module without comments, docstrings, functions in `leave_out` and the STUDY declaration."""
    tree.body = [
        node
        for node in tree.body
        if getattr(node, "name", None) not in leave_out
        and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STUDY")
    ]
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        queue += _inside(node)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _inside(node: ast.AST) -> list[ast.AST]:
    """Parts of a node but expressions, in which there is neither an import nor a docstring."""
    return [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)]


def _source(module: str) -> tuple[str, str] | None:
    """File and text of a module, which is not imported; None for a name inside one, and for a script without a file."""
    root, *inside = module.split(".")
    try:
        spec = importlib.util.find_spec(root)
    except (ModuleNotFoundError, ValueError):
        return None
    if spec is None:
        return None
    files = [Path(spec.origin or "")]
    if inside:
        places = [Path(place, *inside) for place in spec.submodule_search_locations or ()]
        files = [
            file for place in places for file in (place / "__init__.py", place.with_name(f"{place.name}.py"))
        ]
    for file in files:
        if file.suffix == ".py" and file.is_file():
            package = "/__init__" if file.name == "__init__.py" else ""
            return f"{module.replace('.', '/')}{package}.py", file.read_text(encoding="utf-8")
    return None


@functools.cache  # studies share most of their files
def _read(text: str, leave_out: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Digest of the code of a module, and what it imports."""
    tree = ast.parse(text)
    imported = _imports(tree)
    return digest(_code(tree, leave_out), 8), imported


def _imports(tree: ast.Module) -> frozenset[str]:
    """Dotted names that a module imports when it runs, not those that only a type checker reads."""
    found = set()
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            queue += node.orelse
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)} if module else set()
        else:
            queue += _inside(node)
    return frozenset(found)


def _below(names: Collection[str], roots: Collection[str] = OURS) -> set[str]:
    """Those of dotted names that begin with one of `roots`."""
    return {name for name in names if name.split(".")[0] in roots}


def _is_machinery(module: str) -> bool:
    """What no replicate's numbers depend on: the looks of figures, and parts of studies/."""
    parts = module.split(".")
    if parts[:2] == ["cje_core", "figures"]:
        return True
    engine = parts[:2] == ["studies", "engine"] and parts[-1] != "study"
    return parts[0] == "studies" and (engine or len(parts) == 1 or parts[1] in ("report", "cli"))


def _name(function: Any) -> str:
    """Qualified name of a function; of a partial one with what it holds, which is as much a part of it."""
    if isinstance(function, functools.partial):
        held = [*map(repr, function.args), *(f"{k}={v!r}" for k, v in sorted(function.keywords.items()))]
        return f"{_name(function.func)}({', '.join(held)})"
    return str(getattr(function, "__qualname__", function))


def _bare(function: Any) -> Any:
    """The function that a partial one is of, however often."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def code_digests(study: Study) -> dict[str, str]:
    """Digest of every source file of this project that a replicate of `study` depends on, by file name.

    And the version of each peer's distribution, empty where there is none: other peers give other results.
    """
    # a partial one is of the module functools; what it holds is in the definition (`_name`), or does not count
    study = replace(study, **{part: _bare(getattr(study, part)) for part in ("replicate", "table", "figure")})
    own = study.replicate.__module__ if study.replicate else USUAL
    queue = [own, getattr(study.table, "__module__", own), study.setting.__module__, ENGINE]
    own_world = () if isinstance(study.scenario, str) else study.scenario
    queue += [function.__module__ for function in own_world]
    names = study.worlds if own_world else (study.scenario, *study.worlds)
    queue += [f"cje_sim.scenarios.{name}" for name in names if name]
    home = _source(own)
    by_name = own == USUAL or (
        home is not None and f"{USUAL}.replicate_scenario" in _imports(ast.parse(home[1]))
    )
    # a study that runs no estimators by name may call its methods as it likes
    used, functions = set(), []
    for name, method in study.methods.items():
        chosen = method.estimator or (name if by_name else "")
        functions += [chosen] if callable(chosen) else []
        used |= set() if callable(chosen) else {chosen}
    queue += [_bare(function).__module__ for function in functions]
    for method in study.methods.values():  # an estimator may call others that its options name
        for value in method.options.values():
            used |= {str(one) for one in (value if isinstance(value, tuple | list) else (value,))}
    queue += [f"cje_core.estimators.{name}" for name in used & set(estimators.available())]
    shown = {getattr(part, "__name__", "") for part in (study.table, study.figure, study.findings)}
    # a user's study may have modules beside it
    roots = (*OURS, *(p.stem for p in study.source.parent.glob("*.py"))) if study.source else OURS
    digests: dict[str, str] = {}
    seen = set()
    while queue:
        module = queue.pop()
        if module in seen or _is_machinery(module):
            continue
        seen.add(module)
        found = _source(module)
        if found is not None:
            leave_out = shown if module == getattr(study.table, "__module__", "") else set()
            digests[found[0]], imported = _read(found[1], frozenset(leave_out))
            queue += sorted(_below(imported, roots))
    packages = [method.package for method in study.methods.values() if method.package]
    return {**dict(sorted(digests.items())), **(versions(packages) if packages else {})}


def definition(study: Study, seed: int) -> dict[str, Any]:
    """All that must be equal for two blocks to belong to one study; JSON values."""
    return {
        "study": study.name,
        "seed": seed,
        "ci_prob": study.ci_prob,
        "factors": list(study.factors),
        "policies": study.columns,
        "replicate": _name(study.replicate or USUAL),
        "theory": _name(study.theory),
        "methods": {
            name: {"estimator": _name(m.estimator or name), "options": json.loads(canonical(dict(m.options)))}
            for name, m in study.methods.items()
        },
        "code": code_digests(study),
    }


def check_same(directory: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise one clear line if the blocks in `directory` were made under another definition."""
    for key in sorted(new, key=lambda k: k == "code"):  # the code comes last: what was asked for says more
        if canonical(old.get(key)) == canonical(new[key]):
            continue
        if key == "seed":
            what = f"seed {old.get(key)}, not {new[key]}"
        elif isinstance(new[key], dict):
            before = old.get(key) or {}
            changed = [n for n in {**before, **new[key]} if before.get(n) != new[key].get(n)]
            names = ", ".join(changed)
            what = f"other options of {names} (another profile or a changed study)"
            if key == "code":
                what = f"other code ({names} changed since)"
        else:
            what = f"other {key}: {old.get(key)}, now {new[key]}"
        raise StudyError(
            f"{directory} holds results made with {what}; they are never mixed: choose another --out, "
            f"or delete {directory} to start over"
        )


def provenance() -> dict[str, Any]:
    """Versions, git commit and machine; no host name, user or path."""
    installed = {name: _installed(name) for name in DISTRIBUTIONS}
    return {
        "versions": {"python": platform.python_version(), **installed},
        "git_commit": _git_commit(),
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
    }


@functools.cache  # once a process, which goes on with the code that it has loaded
def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def _git_commit() -> str | None:
    """Commit of the source tree, marked when it has changes; None where there is no repository."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of a study's directory, or None if there is none."""
    path = directory / "manifest.json"
    if not path.exists():
        return None
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise StudyError(f"{path} is not readable JSON ({error}); restore it or delete {directory}") from None


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, whole or not at all."""
    put(directory / "manifest.json", json.dumps(manifest, indent=1).encode())
