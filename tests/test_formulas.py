"""The table of formulas: what it names exists and belongs together, nothing compiled is missing, nothing is copied."""

import importlib
import re

import pytest
from formulas import FORMULAS
from references import ROOT, names_in, reached, repeated, resolve, source_files, split

from cje_core.compiled import Kernel

FEWEST = 6  # statements from which on two equal bodies are one formula written twice


def named_test(formula):
    return "tests." + formula.test.replace(".py::", ".").replace("/", ".")


def exists(dotted):
    module, name = split(dotted)
    return module is not None and name in names_in(module)[0]


def complaints(formula):
    """What is wrong with a line of the table, as far as the source shows."""
    holds, parts = f"cje_core.{formula.holds}", [f"cje_core.{part}" for part in formula.parts]
    compares, again = named_test(formula), resolve(formula.again)
    found = [f"there is no {name}" for name in (holds, *parts, compares) if not exists(name)]
    if again.startswith("cje_core") or (again.startswith("oracles") and not exists(again)):
        found.append(f"{again} is no second implementation")
    if found:
        return found
    found += [f"{holds} does not use its part {part}" for part in parts if part not in reached(holds)]
    found += [f"{compares} does not use {name}" for name in (again, holds) if name not in reached(compares)]
    return found


def compiled_functions():
    """Dotted names of the compiled functions of the core, and of none that a module only imports."""
    found = set()
    for module, path in source_files().items():
        if module.startswith("cje_core.") and "Kernel" in path.read_text(encoding="utf-8"):
            named = vars(importlib.import_module(module)).items()
            found |= {f"{module}.{k}" for k, v in named if isinstance(v, Kernel) and v.__module__ == module}
    return found


def listed(formulas):
    return {f"cje_core.{name}" for formula in formulas for name in (formula.holds, *formula.parts)}


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.says)
def test_a_formula_has_one_function_a_second_implementation_and_a_test_of_both(formula):
    assert complaints(formula) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"holds": "families.direct.fit.two_steps"}, "there is no cje_core.families.direct.fit.two_steps"),
        ({"holds": "formulas.proportions.wilson"}, "does not use cje_core.formulas.proportions.wilson"),
        ({"parts": ("transport.drift._at_least",)}, "does not use its part cje_core.transport"),
        ({"again": "oracles_peers.lee"}, "does not use oracles_peers.lee"),
        ({"again": "oracles.zeta"}, "oracles.zeta is no second implementation"),
        ({"again": "cje_core.inference.influence.hajek"}, "hajek is no second implementation"),
        ({"test": "core/estimators/test_direct.py::test_theta"}, "there is no tests.core.estimators"),
        ({"test": "core/data/test_arrays.py::test_data_of_the_same_names_share_their_indexes_and_nothing_else"},
         "does not use oracles.theta"),
    ],
)  # fmt: skip
def test_planted_error_a_line_that_is_wrong(change, said):
    right = next(formula for formula in FORMULAS if formula.again == "oracles.theta")
    assert any(said in complaint for complaint in complaints(right._replace(**change)))


def test_every_compiled_function_is_in_the_table():
    found = compiled_functions()
    assert len(found) > 50 and found - listed(FORMULAS) == set()
    assert found - listed(FORMULAS[1:])  # planted: a formula that is missing


def test_no_formula_is_written_twice(tmp_path):
    assert repeated(ROOT / "cje_core", FEWEST) == []
    text = (ROOT / "cje_core/inference/influence.py").read_text(encoding="utf-8")
    (tmp_path / "core").mkdir()
    (tmp_path / "core/influence.py").write_text(text, encoding="utf-8")
    planted = text[text.index("def clusters_behind") :].partition("\n\n\n")[0]
    for old, new in (
        ("clusters_behind", "behind"),
        ("fourth", "quartic"),
        ("mass", "leverage"),
        ("count", "n"),
    ):
        planted = re.sub(rf"\b{old}\b", new, planted)
    (tmp_path / "core/copied.py").write_text(f'"""A copy."""\n\n{planted}\n', encoding="utf-8")
    assert repeated(tmp_path, FEWEST) == [["core/copied.py:behind", "core/influence.py:clusters_behind"]]
