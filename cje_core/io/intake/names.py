"""Names that are nearly another: fields that look like those that are read, names apart by case or blanks alone."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence

from cje_core.data.errors import DataError

CLOSE = 0.85  # difflib's ratio from which a name is taken for another misspelt
MOST = 1000  # names that are compared one by one
LONG, HEAD, TAIL = 72, 40, 24  # letters of a name beyond which it is shown by its beginning and its end
CAUTION = "caution: "  # begins what is told of a file that is read all the same


def normal(name: str) -> str:
    """A name without case, blanks and signs.

    Examples
    --------
    >>> normal(" Oracle-Label")
    'oraclelabel'
    """
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def check_names(names: Iterable[str], fields: Collection[str], where: str) -> None:
    """Stop at a name that is a field's but for case, blanks or signs.

    Parameters
    ----------
    names : iterable of str
        What a file has.
    fields : collection of str
        What is read of it.
    where : str
        The file, in messages.
    """
    normals = {normal(field): field for field in fields}
    for name in names:
        field = normals.get(normal(name)) if name not in fields else None
        if field is not None:
            raise DataError(f"{where}: unknown field {name!r}: did you mean {field}? rename or drop it")


def closest(names: Iterable[str], fields: Collection[str]) -> dict[str, str]:
    """Field that each unknown name is close to; of names beyond the first thousand none is compared.

    Examples
    --------
    >>> closest(["policy", "oracle_lable", "note"], ["policy", "oracle_label"])
    {'oracle_lable': 'oracle_label'}
    """
    unknown = [name for name in dict.fromkeys(names) if name not in fields]
    near = ((name, difflib.get_close_matches(name, fields, 1, CLOSE)) for name in unknown[:MOST])
    return {name: match[0] for name, match in near if match}


def alike(names: Sequence[str]) -> tuple[str, str] | None:
    """Two names that differ by case or blanks alone, the first such pair; None if there are none.

    Examples
    --------
    >>> alike(["base", "Base ", "other"]), alike(["base", "base2"])
    (('base', 'Base '), None)
    """
    seen: dict[str, str] = {}
    for name in names:
        key = "".join(name.casefold().split())
        if key in seen:
            return seen[key], name
        seen[key] = name
    return None


def brief(names: Iterable[str]) -> dict[str, str]:
    """What stands for each long name where there is little room: its beginning and end, and a number where two agree.

    Examples
    --------
    >>> names = ["base", "x" * 300 + "-a", "x" * 300 + "-b", "x" * 301 + "-a"]
    >>> [(len(short), short[-6:]) for short in brief(names).values()]
    [(65, 'xxxx-a'), (65, 'xxxx-b'), (69, '-a (2)')]
    """
    found: dict[str, str] = {}
    for name in names:
        if len(name) > LONG:
            short = f"{name[:HEAD]}…{name[-TAIL:]}"
            alike_to = sum(other.startswith(short) for other in found.values())
            found[name] = f"{short} ({alike_to + 1})" if alike_to else short
    return found


def shortened(text: str, short: Mapping[str, str]) -> str:
    """A text with the names of `brief` in place of the long ones, the longest first.

    Examples
    --------
    >>> shortened("ab and abc", {"ab": "1", "abc": "2"})
    '1 and 2'
    """
    for name in sorted(short, key=len, reverse=True):
        text = text.replace(name, short[name])
    return text
