"""Simulation studies: every file here is one; beside them what runs, reports and prints them.

Rule of this package: it may import ``cje_core`` and ``cje_sim``; nothing imports it but the tests. A new study is one
file. ``engine`` runs them, ``report`` makes the page, ``cli`` is the command line; studies import the engine, never
each other's machinery.
"""

import sys
from typing import Any


def _in_one_line(kind: type[BaseException], *rest: Any) -> None:
    """Answer Ctrl-C before `studies.__main__` is there to catch it."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("cje-lab: interrupted\n")
    else:
        sys.__excepthook__(kind, *rest)


if sys.argv[:1] and sys.argv[0].rpartition("/")[2] in ("-m", "cje-lab"):  # as a program, not in a session
    sys.excepthook = _in_one_line

from cje_core import caches  # noqa: E402

caches.redirect()  # before a study imports matplotlib
