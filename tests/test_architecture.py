"""The import arrows cje_core <- cje_sim (data.py only) <- studies <- tests, and the conventions of the registries."""

import ast
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from cje_core import data, estimators
from studies import _study

ROOT = Path(_study.__file__).parent.parent
PACKAGES = ("cje_core", "cje_sim", "studies")
VARIABLES = {
    "judge",
    "oracle",
    "probe",
    "label_prob",
    "covariate",
    "surprisal",
    "true_reward",
    *data.LOGGED,
}  # of the data contract
# What takes seconds to import: inside functions only, except in the modules that are made of it.
PYMC_MODULES = tuple(
    f"cje_core.bayes.{name}" for name in ("engines", "models", "policy_models", "sampling", "fits")
)
ENGINES = ("pymc", "pytensor", "arviz", "nutpie")
LAZY = (*ENGINES, *PYMC_MODULES)


def imports(tree: ast.AST, *, top_level: bool = False) -> Iterator[tuple[int, int, str]]:
    """Line, level and dotted name of each import; "from a import b" counts as a.b.

    `top_level` is what runs on import: neither functions nor what only a type checker reads.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from ((node.lineno, node.level, f"{module}.{alias.name}") for alias in node.names)
        elif top_level and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                yield from imports(ast.Module([other], []), top_level=True)
        elif not (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield from imports(node, top_level=top_level)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def violations(root: Path) -> list[str]:
    """Every import under `root` that breaks a rule, as "file:line rule"."""
    found = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            where = path.relative_to(root).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for line, level, name in imports(tree):
                rules = {
                    "PyMC and its kin come from cje_core.bayes.engines": within(name, *ENGINES)
                    and where != "cje_core/bayes/engines.py",
                    "relative import": level > 0,
                    "cje_core imports neither cje_sim nor studies": package == "cje_core"
                    and within(name, "cje_sim", "studies"),
                    "cje_sim imports of cje_core only cje_core.data": package == "cje_sim"
                    and within(name, "cje_core")
                    and not within(name, "cje_core.data"),
                    "only tests and studies import studies": package != "studies" and within(name, "studies"),
                    "nothing imports tests": within(name, "tests"),
                }
                found += [f"{where}:{line} {rule}" for rule, broken in rules.items() if broken]
            lazy = () if where.removesuffix(".py").replace("/", ".") in PYMC_MODULES else LAZY
            if not (
                package == "studies" and not path.name.startswith("_")
            ):  # a study may draw its own figures
                lazy = (*lazy, "matplotlib")
            found += [
                f"{where}:{line} {module} is imported at the top level"
                for line, _, name in imports(tree, top_level=True)
                for module in lazy
                if within(name, module)
            ]
    return found


def test_import_arrows_hold():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("where", "line", "rule"),
    [
        ("cje_core/x.py", "import cje_sim", "cje_core imports neither"),
        ("cje_core/x.py", "from studies import _run", "cje_core imports neither"),
        (
            "cje_core/estimators/x.py",
            "def f():\n    from cje_sim.exact import kl",
            "cje_core imports neither",
        ),
        ("cje_sim/x.py", "from cje_core.estimators import direct", "of cje_core only"),
        ("cje_sim/x.py", "from cje_core import data, result", "of cje_core only"),
        ("cje_sim/x.py", "import cje_core", "of cje_core only"),
        ("cje_sim/x.py", "import cje_core.database", "of cje_core only"),
        ("cje_sim/x.py", "import studies._study", "only tests and studies"),
        ("studies/x.py", "from . import _run", "relative import"),
        ("studies/x.py", "from tests import oracles", "nothing imports tests"),
        ("cje_core/x.py", "import pymc as pm", "pymc is imported at the top level"),
        (
            "studies/x.py",
            "try:\n    from arviz import hdi\nexcept ImportError:\n    hdi = None",
            "arviz is imported",
        ),
        ("cje_core/x.py", "def f():\n    import pymc", "come from cje_core.bayes.engines"),
        ("cje_core/bayes/models.py", "import pymc as pm", "come from cje_core.bayes.engines"),
        ("cje_sim/x.py", "class A:\n    import nutpie", "nutpie is imported at the top level"),
        ("cje_core/x.py", "import pytensor.tensor as pt", "pytensor is imported at the top level"),
        ("cje_core/bayes/x.py", "import pymc", "pymc is imported at the top level"),
        ("cje_core/estimators/x.py", "from cje_core.bayes import sampling", "cje_core.bayes.sampling is"),
        ("studies/x.py", "import cje_core.bayes.fits as fits", "cje_core.bayes.fits is imported"),
        ("cje_core/bayes/x.py", "from cje_core.bayes.models import EDGE", "cje_core.bayes.models is"),
        (
            "cje_core/bayes/__init__.py",
            "from cje_core.bayes import policy_models",
            "policy_models is imported",
        ),
        ("cje_core/figures/x.py", "from matplotlib import pyplot as plt", "matplotlib is imported"),
        ("studies/_x.py", "import matplotlib as mpl", "matplotlib is imported at the top level"),
        ("cje_core/x.py", "if not TYPE_CHECKING:\n    import matplotlib", "matplotlib is imported"),
        ("cje_core/x.py", "if TYPE_CHECKING:\n    x = 1\nelse:\n    import pymc", "pymc is imported"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, where, line, rule):
    (tmp_path / where).parent.mkdir(parents=True)
    (tmp_path / where).write_text(line + "\n")
    assert any(rule in found for found in violations(tmp_path))


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("cje_sim/x.py", "from cje_core.data import from_arrays"),
        ("cje_sim/x.py", "from cje_core import data"),
        ("cje_core/bayes/engines.py", "import arviz\nimport pymc"),
        (
            "cje_core/bayes/models.py",
            "from cje_core.bayes import sampling\nfrom cje_core.bayes.engines import pm",
        ),
        ("cje_core/estimators/x.py", "def f():\n    from cje_core.bayes import sampling"),
        (
            "cje_core/estimators/x.py",
            "from cje_core.bayes import gibbs\nfrom cje_core.bayes.value import values",
        ),
        ("studies/x.py", "from matplotlib import pyplot as plt"),
        ("cje_core/figures/x.py", "if TYPE_CHECKING:\n    from matplotlib.axes import Axes"),
        (
            "studies/x.py",
            "from cje_core import result\nfrom cje_sim import scenarios\nfrom studies import _run",
        ),
        ("cje_core/x.py", "import studies_of_something_else"),
    ],
)
def test_what_is_allowed_passes(tmp_path, where, line):
    (tmp_path / where).parent.mkdir(parents=True)
    (tmp_path / where).write_text(line + "\n")
    assert violations(tmp_path) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_states_its_rule(package):
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")))
    assert text and "Rule of this package" in text


@pytest.mark.parametrize("name", estimators.available())
def test_estimators_keep_the_convention(name):
    module = estimators.load(name)
    assert module.__doc__ and "Estimand" in module.__doc__ and "Failure mode" in module.__doc__
    assert module.NEEDS and module.NEEDS <= VARIABLES
    parameters = list(inspect.signature(module.estimate).parameters.values())
    assert parameters[0].name == "data" and parameters[0].kind is parameters[0].POSITIONAL_OR_KEYWORD
    assert [p.name for p in parameters[1:3]] == ["ci_prob", "rng"]
    assert (parameters[1].default, parameters[2].default) == (0.95, None)
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters[1:])
    assert inspect.getdoc(module.estimate)


@pytest.mark.parametrize("name", _study.available())
def test_studies_keep_the_convention(name):
    study = _study.load(name)
    assert inspect.getdoc(inspect.getmodule(study.table))
    assert all((study.title, study.aims, study.mechanism, study.estimands, study.measures))
    assert all(method.description for method in study.methods.values())
    sizes = []
    for profile in _study.PROFILES:
        chosen = study.at(profile)
        n_cells = sum(1 for _ in chosen.cells())
        assert n_cells > 0
        sizes.append(n_cells * study.profiles[profile].replicates)
    assert sizes == sorted(sizes), "smoke <= quick <= paper"
    used = {method.estimator or key for key, method in study.methods.items()}
    if study.replicate is _study.replicate_scenario:  # a comparison of estimators carries its controls
        assert {"raw_judge", "labels_only"} <= used <= set(estimators.available())
    clone = pickle.loads(pickle.dumps(study))
    assert list(clone.cells()) == list(study.cells())
