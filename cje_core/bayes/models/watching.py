"""What a long run of NUTS tells whoever waits for it: its stage, and how many draws are done.

Computing functions print nothing. A command that has a place to show progress watches; without one nothing is told.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watch = Callable[[str, int, int], None]  # stage, draws done, draws in all (0 where the stage has none)
COMPILING, WARM_UP, SAMPLING = "compiling the model", "warming up", "sampling"
NUTPIE = "nutpie"  # it draws its own bar from here on

_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Inside, `watch` is told of every stage.

    Examples
    --------
    >>> heard = []
    >>> with watched(lambda *said: heard.append(said)):
    ...     tell(SAMPLING, 3, 10)
    >>> tell(SAMPLING, 4, 10)
    >>> heard
    [('sampling', 3, 10)]
    """
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def is_watched() -> bool:
    """Whether anybody waits."""
    return _WATCH.get() is not None


def tell(stage: str, done: int = 0, total: int = 0) -> None:
    """Say what is being done, and how far it is."""
    watch = _WATCH.get()
    if watch is not None:
        watch(stage, done, total)
