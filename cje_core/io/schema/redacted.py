"""Ids that may be shown to others: ``redacted-`` and 96 bits of HMAC-SHA256, keyed with a secret salt.

Equal ids stay equal under one salt, so tables can be joined; without the salt nobody can tell, or test a guess, whose
an id is. An unsalted hash would hide nothing: prompt ids can be guessed and hashed.
"""

import hmac
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cje_core.data.errors import DataError

PREFIX = "redacted-"
FORM = re.compile(rf"{PREFIX}[0-9a-f]{{24}}")
SHORTEST = 16  # characters of a salt; shorter ones can be tried out
MEND = "write at least 16 random characters into it, once, and keep it secret"


def redact(names: Iterable[str | None], salt: str | None) -> list[str | None]:
    """Salted ids; without a salt None in place of each. What is redacted already, or missing, stays.

    Examples
    --------
    >>> one, other = redact(["p1", "p2"], "0123456789abcdef")
    >>> one == other, redact(["p1", one], "0123456789abcdef") == [one, one], len(one)
    (False, True, 33)
    >>> redact(["p1"], None)
    [None]
    """
    if salt is None:
        return [None for _ in names]
    check_salt(salt, "salt")
    key = hmac.new(salt.encode(), digestmod="sha256")
    out: list[str | None] = []
    for name in names:
        if name is None or FORM.fullmatch(name):
            out.append(name)
            continue
        one = key.copy()
        one.update(name.encode())
        out.append(PREFIX + one.hexdigest()[:24])
    return out


def is_redacted(names: Sequence[object]) -> bool:
    """Whether all names are redacted ids."""
    return len(names) > 0 and all(isinstance(name, str) and FORM.fullmatch(name) for name in names)


def check_salt(salt: str, whose: str) -> str:
    """Return the salt, or stop at one that can be guessed."""
    if len(salt) < SHORTEST:
        raise DataError(f"{whose} has {len(salt)} characters; {MEND}")
    return salt


def read_salt(path: str | Path) -> str:
    """Text of a file without white space around it, at least 16 characters.

    Where there is no such file its name is not repeated: it may be the salt itself, and messages end up in logs.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as err:
        why = (err.strerror or str(err)).lower() if isinstance(err, OSError) else "not UTF-8"
        raise DataError(
            f"the file of the salt: {why}; name the file that holds it, not the salt itself"
        ) from None
    return check_salt(text, str(path))
