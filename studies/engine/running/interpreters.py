"""Which interpreter has which peer: those named by ``CJE_LAB_PEERS`` or ``--peers``, then this one.

An environment variable, since the worker processes of a study inherit it. Only the standard library at import: the
interpreter of a peer reads `studies.engine.benchmark`, which imports this.
"""

import functools
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence

VARIABLE = "CJE_LAB_PEERS"


def named() -> list[str]:
    """Interpreters that the environment names, in order; several are told apart as the entries of PATH are."""
    return [python for python in os.environ.get(VARIABLE, "").split(os.pathsep) if python]


def name(pythons: Sequence[str]) -> None:
    """Name interpreters, for this process and those that it starts; none leaves the environment's."""
    if pythons:
        os.environ[VARIABLE] = os.pathsep.join(pythons)


def place(package: str) -> tuple[str, str] | None:
    """Interpreter that has a distribution, and its version; None if none has."""
    return home(package, named())


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Version of each distribution, empty where no interpreter has it."""
    return {package: (place(package) or ("", ""))[1] for package in sorted(set(packages))}


def lacking(packages: Iterable[str]) -> list[str]:
    """A line for each distribution that no interpreter has."""
    return [
        f"{package} is not installed: its rows are not run (pip install 'cje-lab[peers]', or --peers PYTHON)"
        for package, version in versions(packages).items()
        if not version
    ]


def home(package: str, peers: Sequence[str]) -> tuple[str, str] | None:
    """Interpreter that has a distribution, the peers' before this one, and its version; None if none has."""
    if not package:
        return sys.executable, ""
    for python in (*peers, sys.executable):
        if version := _version(python, package):
            return python, version
    return None


@functools.cache
def _version(python: str, package: str) -> str:
    """Version of a distribution in an interpreter's environment; empty where it is not installed."""
    code = (
        "import sys, importlib.metadata as m\n"
        "print(next((d.version for d in m.distributions(name=sys.argv[1])), ''))"
    )
    if python == sys.executable:
        return next((d.version for d in importlib.metadata.distributions(name=package)), "")
    try:
        done = subprocess.run([python, "-c", code, package], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        from cje_core.data import DataError

        raise DataError(f"peers={python!r}: no Python runs there; give the path of an interpreter") from error
    return done.stdout.strip()
