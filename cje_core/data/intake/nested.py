"""Grades within objects: each scalar a score by its path, and texts, lists and remarks told apart from grades."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cje_core.data.fields import line
from cje_core.data.intake.foreign import Item
from cje_core.data.intake.grades import word

MOST_WORDS = 20  # different words of a score beyond which they are remarks
LONGEST_WORD = 60  # characters


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


def without_texts(
    items: Sequence[Item], *, several: bool = False
) -> tuple[list[Item], list[tuple[str, str]]]:
    """Items without the scores that hold remarks or lists, and the notes that name these by file.

    Parameters
    ----------
    items : sequence of Item
    several : bool
        Whether a list that holds words is several grades of one response.
    """
    words: dict[str, set[str]] = defaultdict(set)
    texts: set[str] = set()
    for item in items:
        for name, value in item.scores.items():
            parts = value if isinstance(value, list) else [value]
            found = {one for part in parts if (one := word(part)) is not None}
            words[name] |= found
            if isinstance(value, list) and not (several and found):
                texts.add(name)
    texts |= {
        name
        for name, held in words.items()
        if len(held) > MOST_WORDS or any(len(one) > LONGEST_WORD for one in held)
    }
    if not texts:
        return list(items), []
    files = dict.fromkeys(item.file for item in items if texts & item.scores.keys())
    said = f"{line(', '.join(sorted(texts)), 120)}: texts or lists, which are no grades"
    kept = [
        item._replace(scores={name: value for name, value in item.scores.items() if name not in texts})
        for item in items
    ]
    return kept, [(file, said) for file in files]
