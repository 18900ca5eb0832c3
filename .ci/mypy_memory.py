"""A plugin of mypy that lets it search for garbage less often: a quarter of a first check was searches in vain."""

import gc

from mypy.plugin import Plugin

gc.set_threshold(5_000_000, 30, 30)  # mypy's own is 200,000; takes 1.2 GB of memory in place of 0.8


def plugin(version: str) -> type[Plugin]:
    """No types of its own."""
    return Plugin
