"""The import arrows cje_core <- cje_sim (`data` only) <- studies <- tests, and the conventions of the registries."""

import ast
import graphlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from registry_checks import estimator_convention, study_convention

from cje_core import estimators
from studies.engine import study as studies_engine

parsed = cache(ast.parse)  # of the text of each file, which several tests read
ROOT = Path(studies_engine.__file__).parents[2]
PACKAGES = ("cje_core", "cje_sim", "studies")
# What takes seconds to import: inside functions only, except in the modules that are made of it.
PYMC_MODULES = tuple(
    f"cje_core.bayes.models.{name}"
    for name in (
        "engines",
        "specification",
        "calibrator",
        "likelihoods",
        "slice",
        "policies",
        "nuts",
        "draws",
    )
)
# Folders of cje_core from the bottom up; those of one line do not import each other.
THEMES = (
    ("caches", "seeds"),
    ("checks", "compiled", "disk", "streams"),
    ("formulas",),
    ("data",),
    ("io",),
    ("inference",),
    ("calibration",),
    ("offpolicy", "transport", "bayes"),
    ("verdict", "families"),
    ("estimators", "figures"),
    ("planning",),
    ("workflow",),
)
RANK = {theme: k for k, themes in enumerate(THEMES) for theme in themes}
REGISTRIES = ("benchmarks", "claims", "estimators", "figures", "readers", "scenarios", "studies")
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
        elif isinstance(node, ast.expr):  # holds no statement
            continue
        elif not (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, top_level=top_level)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def upwards(where: str, name: str) -> bool:
    """Whether a file of cje_core imports a theme that stands after its own in `THEMES`, or beside it."""
    mine, other = where.split("/"), name.split(".")
    if mine[0] != "cje_core" or other[0] != "cje_core" or len(other) < 2 or mine[1] == "__init__.py":
        return False
    theme = mine[1].removesuffix(".py")
    if theme == other[1] or other[1] not in RANK:
        return False
    return theme not in RANK or RANK[other[1]] >= RANK[theme]


def violations(root: Path) -> list[str]:
    """Every import under `root` that breaks a rule, as "file:line rule"."""
    found = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            where = path.relative_to(root).as_posix()
            tree = parsed(path.read_text(encoding="utf-8"))
            for line, level, name in imports(tree):
                rules = {
                    "PyMC and its kin come from cje_core.bayes.models.engines": within(name, *ENGINES)
                    and where != "cje_core/bayes/models/engines.py",
                    "relative import": level > 0,
                    "cje_core imports neither cje_sim nor studies": package == "cje_core"
                    and within(name, "cje_sim", "studies"),
                    "cje_sim imports of cje_core only cje_core.data": package == "cje_sim"
                    and within(name, "cje_core")
                    and not within(name, "cje_core.data", "cje_core.caches"),
                    "only tests and studies import studies": package != "studies" and within(name, "studies"),
                    "nothing imports tests": within(name, "tests"),
                    "imports point up the list of themes": upwards(where, name),
                }
                found += [f"{where}:{line} {rule}" for rule, broken in rules.items() if broken]
            lazy = () if where.removesuffix(".py").replace("/", ".") in PYMC_MODULES else LAZY
            if path.parent != root / "studies":  # a study may draw its own figures
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
        ("cje_core/x.py", "from studies.engine import run", "cje_core imports neither"),
        (
            "cje_core/estimators/x.py",
            "def f():\n    from cje_sim.exact.divergences import kl",
            "cje_core imports neither",
        ),
        ("cje_sim/x.py", "from cje_core.estimators import direct", "of cje_core only"),
        ("cje_sim/x.py", "from cje_core import data, inference", "of cje_core only"),
        ("cje_sim/x.py", "import cje_core", "of cje_core only"),
        ("cje_sim/x.py", "import cje_core.database", "of cje_core only"),
        ("cje_sim/x.py", "import studies.engine.study", "only tests and studies"),
        ("studies/x.py", "from . import run", "relative import"),
        ("studies/x.py", "from tests import oracles", "nothing imports tests"),
        ("cje_core/x.py", "import pymc as pm", "pymc is imported at the top level"),
        (
            "studies/x.py",
            "try:\n    from arviz import hdi\nexcept ImportError:\n    hdi = None",
            "arviz is imported",
        ),
        ("cje_core/x.py", "def f():\n    import pymc", "come from cje_core.bayes.models.engines"),
        ("cje_core/bayes/models/slice.py", "import pymc as pm", "come from cje_core.bayes.models.engines"),
        ("cje_sim/x.py", "class A:\n    import nutpie", "nutpie is imported at the top level"),
        ("cje_core/x.py", "import pytensor.tensor as pt", "pytensor is imported at the top level"),
        ("cje_core/bayes/x.py", "import pymc", "pymc is imported at the top level"),
        (
            "cje_core/estimators/x.py",
            "from cje_core.bayes.models import nuts",
            "cje_core.bayes.models.nuts is",
        ),
        (
            "studies/x.py",
            "import cje_core.bayes.models.draws as fits",
            "cje_core.bayes.models.draws is imported",
        ),
        (
            "cje_core/bayes/x.py",
            "from cje_core.bayes.models.slice import EDGE",
            "cje_core.bayes.models.slice is",
        ),
        (
            "cje_core/bayes/__init__.py",
            "from cje_core.bayes.models import policies",
            "policies is imported",
        ),
        ("cje_core/figures/x.py", "from matplotlib import pyplot as plt", "matplotlib is imported"),
        ("cje_core/data/x.py", "from cje_core.inference import estimate", "up the list of themes"),
        ("cje_core/checks.py", "from cje_core.data import from_arrays", "up the list of themes"),
        ("cje_core/families/direct/x.py", "from cje_core.verdict import gates", "up the list of themes"),
        ("cje_core/newtheme/x.py", "from cje_core.data import from_arrays", "up the list of themes"),
        ("studies/engine/x.py", "import matplotlib as mpl", "matplotlib is imported at the top level"),
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
        ("cje_core/bayes/models/engines.py", "import arviz\nimport pymc"),
        (
            "cje_core/bayes/models/slice.py",
            "from cje_core.bayes.models import nuts\nfrom cje_core.bayes.models.engines import pm",
        ),
        ("cje_core/estimators/x.py", "def f():\n    from cje_core.bayes.models import nuts"),
        (
            "cje_core/estimators/x.py",
            "from cje_core.bayes import gibbs\nfrom cje_core.bayes.value import values",
        ),
        ("studies/x.py", "from matplotlib import pyplot as plt"),
        ("cje_core/figures/x.py", "if TYPE_CHECKING:\n    from matplotlib.axes import Axes"),
        (
            "studies/x.py",
            "from cje_core import inference\nfrom cje_sim import scenarios\nfrom studies.engine import run",
        ),
        ("cje_core/x.py", "import studies_of_something_else"),
    ],
)
def test_what_is_allowed_passes(tmp_path, where, line):
    (tmp_path / where).parent.mkdir(parents=True)
    (tmp_path / where).write_text(line + "\n")
    assert violations(tmp_path) == []


def folders() -> list[Path]:
    return sorted(path.parent for package in PACKAGES for path in (ROOT / package).rglob("__init__.py"))


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_each_folder_states_its_rule_and_can_be_read_at_a_glance(folder):
    text = ast.get_docstring(parsed((folder / "__init__.py").read_text(encoding="utf-8")))
    assert text and "Rule of this package" in text
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    if folder.name not in REGISTRIES:
        assert len(modules) <= 13
    assert not any(path.name.startswith("_") for path in modules if path.name != "__main__.py")


def test_the_first_folder_holds_folders():
    assert len(list((ROOT / "cje_core").glob("*.py"))) <= 6
    assert {path.name for path in (ROOT / "cje_core").glob("*/") if (path / "__init__.py").exists()} <= set(
        RANK
    )


def test_no_circle_of_files_or_folders():
    """Between all files of the project, wherever they import, and between the folders they lie in."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    files: dict[str, set[str]] = {}
    themes: dict[str, set[str]] = {}
    for module, path in modules.items():
        for _, _, name in imports(parsed(path.read_text(encoding="utf-8"))):
            target = name if name in modules else name.rpartition(".")[0]
            if target not in modules or target == module:
                continue
            files.setdefault(module, set()).add(target)
            mine, other = (
                one if modules[one].name == "__init__.py" else one.rpartition(".")[0]
                for one in (module, target)
            )
            if mine != other and not within(other, mine) and not within(mine, other):
                themes.setdefault(mine, set()).add(other)
    for graph in (files, themes):
        assert tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("name", estimators.available())
def test_estimators_keep_the_convention(name):
    estimator_convention(estimators.load(name))


def mended(source: str) -> list[int]:
    """Lines where an estimate is assembled without being returned as it is."""
    tree = parsed(source)
    returned = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("assemble", "label_estimate", "run", "to_estimate")
        and id(node) not in returned
    ]


@pytest.mark.parametrize("folder", ["estimators", "families"])
def test_nothing_is_added_to_an_estimate_after_it_is_assembled(folder):
    found = {
        path.name: mended(path.read_text("utf-8")) for path in (ROOT / "cje_core" / folder).rglob("*.py")
    }
    assert not {name: lines for name, lines in found.items() if lines}
    assert mended("def f():\n    out = assemble(data)\n    out['x'] = 1\n    return out") == [2]


@pytest.mark.parametrize("name", studies_engine.available())
def test_studies_keep_the_convention(name):
    study_convention(studies_engine.load(name))


MOST_PARAMETERS = 10
# A plan asks for money, prices and power; the commands of the command line for what a user may choose.
LONGER = {
    "plan", "studies.cli.app", "studies.cli.audit.commands", "studies.cli.paper", "studies.cli.runs",
    "studies.cli.solve",
}  # fmt: skip


def crowded(source: str, module: str) -> list[str]:
    """Public functions with more than ten parameters; kernels take arrays one by one and are left out."""
    found = []
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        if any({"njit", "Kernel"} & set(re.findall(r"\w+", ast.unparse(d))) for d in node.decorator_list):
            continue
        taken = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        names = {node.name, module, f"{module.rpartition('.')[2]}.{node.name}"}
        if len(taken) + (node.args.kwarg is not None) > MOST_PARAMETERS and not names & LONGER:
            found.append(f"{module}.{node.name}")
    return found


def test_no_public_function_has_more_parameters_than_can_be_read():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            assert not crowded(path.read_text(), module)
    planted = f"def estimate({', '.join(f'x{k}' for k in range(11))}): ..."
    assert crowded(planted, "cje_core.estimators.planted") == ["cje_core.estimators.planted.estimate"]
    assert not crowded(planted.replace("x10", "*, x10").replace(", x9", ""), "cje_core.estimators.planted")


@pytest.mark.parametrize("name", estimators.available())
def test_no_estimator_shows_more_options_than_can_be_read(name):
    """The off-policy family's signatures are put together when they are imported."""
    shown = inspect.signature(estimators.load(name).estimate).parameters
    assert len(shown) <= MOST_PARAMETERS


NAMES = {*estimators.available()} - {
    "direct",
    "ips",
    "tmle",
}  # sources of error and corrections are called like these
# Not a choice: rows of the paper, its guide, what plans and run steps are made of, the two posteriors of ``--bayes``.
NAMING = {
    "cje_core/workflow/paper.py", "cje_core/verdict/guide.py", "cje_core/planning/components.py",
    "cje_core/planning/stacked.py", "cje_core/workflow/steps/estimate.py", "cje_core/workflow/posterior.py",
}  # fmt: skip


def named_estimators(source: str) -> set[str]:
    """Names of estimators among the strings of some code."""
    return {n.value for n in ast.walk(parsed(source)) if isinstance(n, ast.Constant) and n.value in NAMES}


def test_no_code_but_their_own_names_estimators_by_a_string():
    folders = [*(ROOT / "cje_core").glob("*/"), *(ROOT / "studies").glob("*/")]
    left = {"estimators", "claims", "benchmarks"}
    paths = [path for folder in folders if folder.name not in left for path in folder.rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in paths if named_estimators(path.read_text("utf-8"))}
    assert found == NAMING
    assert named_estimators('estimates["raw_judge"] if default else OTHERS') == {"raw_judge"}
