"""`import cje_core` is quick, and shows themes and the calls of a first session."""

import importlib
import subprocess
import sys

import pytest

import cje_core

CPU = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


def cpu_seconds(statement):
    """Least of three fresh interpreters: what else the machine does can only add."""
    words = [sys.executable, "-c", CPU.format(statement)]
    return min(
        float(subprocess.run(words, capture_output=True, text=True, check=True).stdout) for _ in range(3)
    )


def test_names_are_few_and_all_there():
    names = dir(cje_core)
    assert len(names) <= 30 and {"read", "from_frame", "analyze", "compare", "plan", "figures"} <= set(names)
    for name in names:
        assert getattr(cje_core, name).__doc__


def test_every_theme_is_in_the_map():
    for theme in cje_core._THEMES:
        assert f"\n    {theme} " in cje_core.__doc__
        assert getattr(cje_core, theme) is importlib.import_module(f"cje_core.{theme}")


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match=r"no attribute 'estimate'; see help\(cje_core\)"):
        cje_core.estimate  # noqa: B018


def test_import_is_quick():
    assert cpu_seconds("import cje_core") < 0.15


def test_help_is_quick():
    help_ = "import sys; sys.argv = ['cje-lab', '--help']; from studies.cli.app import app; app(standalone_mode=False)"
    printed = subprocess.run(
        [sys.executable, "-c", f"import time; t = time.process_time(); {help_}; print(time.process_time() - t)"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert float(printed.splitlines()[-1]) < 0.3
