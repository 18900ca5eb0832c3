"""A process of the command line lives for seconds: it loads nothing that it will not call, and looks for no garbage.

Where Dask is installed xarray loads all of it, and writing a file all of its scheduler. Imports make objects by the
hundred thousand, which Python looks through again and again for cycles that nothing refers to any more, and once more
at the end.
"""

import atexit
import gc
import sys
from collections.abc import Sequence

# commands that run no file of a user's
OURS = ("analyze", "audit", "demo", "doctor", "paper", "plan", "step", "tf-cache")
OBJECTS = 100_000  # that are made before the next look


def be_brief(words: Sequence[str]) -> None:
    """Prepare this process for the command in `words`, before anything heavy is imported.

    Parameters
    ----------
    words : sequence of str
        The command line, the program first.
    """
    atexit.register(gc.freeze)
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    if len(words) < 2 or words[1] not in OURS:
        return
    if not any(word.startswith("--dask") for word in words):
        sys.modules.setdefault("dask", None)  # type: ignore[arg-type]  # importing it says that it is not there


def load_figures() -> None:
    """Import what draws, without the documentation of every artist's properties, which matplotlib writes for .1 s."""
    from matplotlib import artist

    written = artist.kwdoc
    artist.kwdoc = lambda artist: ""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    finally:
        artist.kwdoc = written
