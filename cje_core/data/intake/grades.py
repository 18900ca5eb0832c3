"""Grades as numbers: a word counts by its name in a declared scale, and never by its place in a list.

A letter means other things in other tools (N is "no answer" in Inspect, "no" beside Y, unknown in A to F), so a scale
applies to a score only where it knows all words that the score has.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from cje_core.data.errors import DataError
from cje_core.data.fields import NOTHING, line

Scale = Mapping[str, float | None]
# Pairs of words that are opposites by themselves.
PAIRS = (("correct", "incorrect"), ("yes", "no"), ("true", "false"), ("pass", "fail"), ("passed", "failed"),
         ("right", "wrong"), ("accurate", "inaccurate"))  # fmt: skip
OPPOSITES = {name: value for pair in PAIRS for name, value in zip(pair, (1.0, 0.0), strict=True)}
LETTERS = ("y", "n")  # opposites only where both occur


def number(value: Any) -> float | None:
    """Number of a grade that is one, or is its text; a truth value is 1 or 0; None for all else.

    Examples
    --------
    >>> number(True), number("0.25"), number(float("nan")), number("C"), number([1])
    (1.0, 0.25, None, None, None)
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float | Decimal | np.number | np.bool_):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def word(value: Any) -> str | None:
    """Word of a grade that is no number, lower case; None where there is none.

    Examples
    --------
    >>> word(" Correct"), word("0.5"), word("N/A"), word(None)
    ('correct', None, None, None)
    """
    if not isinstance(value, str) or number(value) is not None:
        return None
    text = value.strip().lower()
    return None if text in NOTHING or text in ("inf", "-inf", "infinity", "-infinity") else text


def scale_of(
    words: set[str], numbers: set[float], declared: Scale, scale: Scale
) -> dict[str, float | None] | None:
    """Number of each word of a score; None where no scale knows all of them.

    Parameters
    ----------
    words : set of str
        Words of the score, lower case.
    numbers : set of float
        Numbers that stand beside them: with words whose scale is not given they may only be 0 and 1.
    declared : mapping
        Scale that the tool itself declares.
    scale : mapping
        Scale that the user gives; None means no grade.

    Examples
    --------
    >>> scale_of({"y", "n"}, set(), {}, {}), scale_of({"n"}, set(), {}, {}), scale_of({"n"}, set(), {"n": 0.0}, {})
    ({'n': 0.0, 'y': 1.0}, None, {'n': 0.0})
    """
    given = {name.strip().lower(): value for name, value in scale.items()}
    rest = words - given.keys()
    if not rest:
        return {name: given[name] for name in sorted(words)}
    if not numbers <= {0.0, 1.0}:
        return None
    known: list[Scale] = [declared, *({yes: 1.0, no: 0.0} for yes, no in PAIRS)]
    known += [dict(zip(LETTERS, (1.0, 0.0), strict=True))] * (words >= set(LETTERS))
    for one in known:
        if rest <= one.keys():
            return {name: given.get(name, one.get(name)) for name in sorted(words)}
    return None


def as_numbers(values: Sequence[Any], declared: Scale, scale: Scale) -> tuple[list[float | None], str]:
    """Numbers of one score's grades, None where there is none, and what is wanting where words have no scale.

    Examples
    --------
    >>> as_numbers(["correct", "incorrect", None], {}, {})
    ([1.0, 0.0, None], '')
    >>> as_numbers([["correct", "incorrect"], [1, None]], {}, {})
    ([0.5, 1.0], '')
    >>> as_numbers(["A", "C"], {"c": 1.0}, {})[1]
    "it holds the words 'a', 'c': say what each is worth with scale='a=?,c=?'"
    """
    groups = [value if isinstance(value, list) else [value] for value in values]  # several of one response
    flat = [value for group in groups for value in group]
    numbers = [number(value) for value in flat]
    words = [word(value) if found is None else None for value, found in zip(flat, numbers, strict=True)]
    held = {one for one in words if one is not None}
    if not held:
        return _means(groups, numbers), ""
    known = scale_of(held, {one for one in numbers if one is not None}, declared, scale)
    if known is None:
        wanting = sorted(held - {name.strip().lower() for name in scale})
        beside = " beside numbers" if any(one is not None for one in numbers) else ""
        shown = line(", ".join(map(repr, wanting)), 120)
        vocabularies = [
            declared,
            OPPOSITES,
        ]  # of a scale that knows two words or more, its numbers are proposed
        near = max(vocabularies, key=lambda one: len(held & one.keys()))
        near = near if len(held & near.keys()) > 1 and len(held) < 2 * len(held & near.keys()) else {}
        ask = line(
            ",".join(f"{name}={near[name]:g}" if name in near else f"{name}=?" for name in wanting[:8]), 120
        )
        return [None] * len(
            groups
        ), f"it holds the words {shown}{beside}: say what each is worth with scale={ask!r}"
    found = [known[text] if text is not None else one for one, text in zip(numbers, words, strict=True)]
    return _means(groups, found), ""


def _means(groups: Sequence[Sequence[Any]], numbers: Sequence[float | None]) -> list[float | None]:
    """Mean of each group's numbers, of which `numbers` has those of all groups in order."""
    if len(groups) == len(numbers) and all(len(group) == 1 for group in groups):
        return list(numbers)
    rest = iter(numbers)
    held = [[value for _ in group if (value := next(rest)) is not None] for group in groups]
    return [sum(values) / len(values) if values else None for values in held]


def joined(grades: Sequence[Any]) -> Any:
    """One grade of several: their mean, the word that all of them are, or all, to be averaged once words have numbers.

    Examples
    --------
    >>> joined([1, 0, None]), joined(["good", "Good"]), joined(["good", "bad"])
    (0.5, 'good', ['good', 'bad'])
    """
    held = [grade for grade in grades if grade is not None]
    numbers = [value for grade in held if (value := number(grade)) is not None]
    if len(numbers) == len(held):
        return sum(numbers) / len(numbers) if numbers else None
    words = [word(grade) or grade for grade in held]
    return words[0] if all(one == words[0] for one in words) else held


def parsed_scale(text: str) -> dict[str, float | None]:
    """Scale written as ``word=number,word=number``; a word without a number is no grade.

    Examples
    --------
    >>> parsed_scale("correct=1,incorrect=0,unsure=")
    {'correct': 1.0, 'incorrect': 0.0, 'unsure': None}
    """
    scale: dict[str, float | None] = {}
    for pair in text.split(","):
        name, separator, value = pair.rpartition("=")
        name, given = name.strip().lower(), number(value)
        if not separator or not name or (value.strip() and given is None):
            raise DataError(f"scale={text!r}: write WORD=NUMBER, as in correct=1,incorrect=0,unsure=")
        if name in scale:
            raise DataError(f"scale={text!r}: {name} is given twice; give it once")
        scale[name] = given
    return scale
