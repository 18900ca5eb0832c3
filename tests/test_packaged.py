"""What a wheel holds: every tracked file of the packages that is no Python is named in package-data."""

import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def wanting(data: dict[str, list[str]], files: list[str]) -> list[str]:
    """Files of packages that no pattern of package-data takes along; a pattern's ``*`` stays within a folder."""
    taken = [
        f"{package.replace('.', '/')}/{pattern}" for package, patterns in data.items() for pattern in patterns
    ]
    return [
        name
        for name in files
        if not name.endswith(".py")
        and not any(name.count("/") == one.count("/") and fnmatch(name, one) for one in taken)
    ]


def test_the_wheel_takes_every_file_of_the_packages() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: what is tracked is unknown")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = subprocess.run(
        ["git", "ls-files", "cje_core", "cje_sim", "studies"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert any(name.endswith(".j2") for name in listed)
    assert not wanting(project["package-data"], listed)
    lacking = {name: kinds for name, kinds in project["package-data"].items() if name != "studies.report"}
    assert wanting(lacking, listed)  # the check sees a template that no pattern takes
