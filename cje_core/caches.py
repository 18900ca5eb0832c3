"""Where dependencies keep their caches, when the home directory cannot be written.

Containers often run with a read-only home or none at all. ArviZ 0.23 (the date of its daily notice) and PyTensor
(compiled code) then fail at import, matplotlib warns, and numba fails where the installed package cannot be written
either. `redirect` gives those, and only those, a temporary directory that goes with the process; who imports one of
these libraries first calls `redirect_before`, so that importing this project touches neither environment nor disk.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PREFIX = "cje-lab-caches-"


def redirect(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables that move each cache that cannot be written, and set them.

    Parameters
    ----------
    environ : mapping, optional
        Environment to judge by, in place of the process's own; then nothing is set or created.

    Returns
    -------
    dict
        Empty where every cache can be written.

    Examples
    --------
    >>> import tempfile
    >>> redirect({"HOME": tempfile.gettempdir()})
    {}
    >>> sorted(redirect({"HOME": "/dev/null"}))
    ['MPLCONFIGDIR', 'PYTENSOR_FLAGS', 'XDG_CACHE_HOME']
    """
    env = os.environ if environ is None else environ
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 -- Path.home() raises where there is none
    flags = env.get("PYTENSOR_FLAGS", "")
    package = Path(__file__).parent
    blocked = []
    if not _writable(
        env.get("MPLCONFIGDIR") or f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/matplotlib"
    ):
        blocked.append("MPLCONFIGDIR")
    if not _writable(env.get("XDG_CACHE_HOME") or f"{home}/.cache"):
        blocked.append("XDG_CACHE_HOME")
        if not _writable(package / "__pycache__") and "NUMBA_CACHE_DIR" not in env:
            blocked.append("NUMBA_CACHE_DIR")
    if "compiledir" not in flags and not _writable(f"{home}/.pytensor"):
        blocked.append("PYTENSOR_FLAGS")
    if not blocked:
        return {}
    if environ is None:
        directory = tempfile.mkdtemp(prefix=PREFIX)
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    else:
        directory = PREFIX
    moved = {name: f"{directory}/{name.lower()}" for name in blocked}
    if "PYTENSOR_FLAGS" in moved:
        moved["PYTENSOR_FLAGS"] = ",".join(filter(None, [flags, f"base_compiledir={directory}/pytensor"]))
    if environ is None:
        os.environ |= moved
    return moved


def redirect_before(library: str) -> None:
    """Call `redirect` unless a library is loaded, which has by then looked where its cache is."""
    if library not in sys.modules:
        redirect()


def _writable(directory: str | Path) -> bool:
    """Whether a directory can be written, or made where it does not exist yet."""
    path = Path(directory)
    if not path.is_absolute():  # "~" that nobody could expand
        return False
    while not path.exists() and path != path.parent:
        path = path.parent
    try:  # permissions do not tell all: root may write to /proc, which makes no directories
        Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=path)).rmdir()
    except OSError:
        return False
    return True
