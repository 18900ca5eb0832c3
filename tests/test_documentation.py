"""Every public function shows an example, and every snippet and example of the documentation runs.

The examples themselves are run by pytest's ``--doctest-modules``, those of the gallery by `make docs`.
"""

import doctest
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def extension(name):
    """A module of `docs/extensions`, which is no package's."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "extensions" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


PUBLIC, OUTSIDE = extension("public"), extension("outside")


@functools.cache  # imports every package, which collecting tests should not
def names():
    """What is public."""
    return PUBLIC.public()


def example(module, name):
    """The examples of a function that call it: its own, or for an entry of a registry those of its module."""
    function = inspect.unwrap(getattr(module, name))
    texts = [function.__doc__ or ""]
    if module.__name__.rpartition(".")[0] in ("cje_core.estimators", "cje_sim.scenarios"):
        texts.append(module.__doc__ or "")
    lines = [found for text in texts for found in doctest.DocTestParser().get_examples(text)]
    return any(f"{name}(" in found.source for found in lines)


def functions(given):
    """Those of the names that are functions."""
    for found in given:
        module = importlib.import_module(found.module)
        if inspect.isfunction(inspect.unwrap(getattr(module, found.name))):
            yield module, found.name


def test_every_public_function_shows_an_example_that_calls_it():
    assert [
        f"{module.__name__}.{name}" for module, name in functions(names()) if not example(module, name)
    ] == []


def test_a_function_without_an_example_is_seen():
    module = importlib.import_module("cje_core.estimators.direct")
    assert example(module, "estimate") and not example(module, "find")


@pytest.mark.parametrize(
    "dotted",
    [
        "cje_core.workflow.analyze.analyze",  # in an __all__
        "cje_core.transport.drift.cusum_arl",  # in README's table
        "cje_core.inference.contrasts.contrasts",  # in a snippet of README
        "studies.engine.measures.tables.summary_table",  # in one of CONTRIBUTING
        "cje_sim.exact.markov.rates",  # in the docstring of a package
        "cje_sim.scenarios.weak_judge.simulate",  # in a registry
        "cje_core.estimators.load",  # cached
    ],
)
def test_names_count_as_public_wherever_users_meet_them(dotted):
    assert dotted in {found.dotted for found in names()}


def test_names_inside_are_not_public():
    dotted = {found.dotted for found in names()}
    assert not dotted & {
        "cje_core.families.direct.fit.fit_policy",
        "cje_core.estimators.direct.find",
    }


SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```(\w+)$", re.MULTILINE)
# What a snippet of the pages' own may be: of Python, which is run here, or of what is not run. Those that pages include
# from README are run in `test_documents.py`.
KINDS = {"python", "text"}


def pages():
    """Pages that are written by hand."""
    folders = ("", "guide", "project", "results")
    return [path for folder in folders for path in sorted((ROOT / "docs" / folder).glob("*.md"))]


def test_the_snippets_of_the_pages_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in pages():
        for k, code in enumerate(SNIPPET.findall(path.read_text(encoding="utf-8"))):
            exec(compile(code, f"{path.name}, snippet {k}", "exec"), {})  # the block is ours
    assert SNIPPET.findall("Text.\n```python\n1 / 0\n```\n") == ["1 / 0\n"]


def test_no_snippet_of_the_pages_is_of_a_kind_that_nobody_runs():
    found = {kind for path in pages() for kind in FENCE.findall(path.read_text(encoding="utf-8"))}
    assert found <= KINDS


@pytest.mark.parametrize("k", [0, 1], ids=["estimator", "world"])
def test_the_examples_in_the_skeletons_run(k):
    code = SNIPPET.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))[k]
    found: dict[str, object] = {"__name__": "a_skeleton"}
    exec(compile(code, "CONTRIBUTING", "exec"), found)  # the block is ours
    shown = doctest.DocTestParser().get_doctest(found["__doc__"], found, "CONTRIBUTING", None, None)
    done = doctest.DocTestRunner().run(shown)
    assert done.attempted > 1 and not done.failed


def test_trimmed_inventories_hold_the_names_that_docstrings_use_and_no_others():
    held = {}
    for project in OUTSIDE.SITES:
        text = (OUTSIDE.HELD / f"{project}.inv").read_bytes()
        found = OUTSIDE.read(text, project)
        assert OUTSIDE.trimmed(project, found).encode() == text  # what the script would write of it
        held |= found
    assert set(held) == set(OUTSIDE.ALIASES.values())
    assert {path.stem for path in OUTSIDE.HELD.iterdir()} == set(OUTSIDE.SITES)
    with pytest.raises(SystemExit, match="has none of"):
        OUTSIDE.read(b"# Sphinx inventory version 1\n# Project: x\n# Version: 1\nx.y class x.html\n", "x")
