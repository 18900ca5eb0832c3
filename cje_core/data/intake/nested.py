"""Grades within objects: each scalar is a score by its path."""

from collections.abc import Iterator, Mapping
from typing import Any


def scalars(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of each part of a grade that is no object, by its path.

    Examples
    --------
    >>> dict(scalars("tone", {"score": 0.5, "by": {"rule": True}})), dict(scalars("fit", 1))
    ({'tone.score': 0.5, 'tone.by.rule': True}, {'fit': 1})
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from scalars(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, value
