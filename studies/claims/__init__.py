"""The paper's statements on trial, one file per group: the directory listing is the registry.

Each module says in its docstring what its claims are about and defines ``CLAIMS``, a tuple of
`studies.ledger.claim.Claim`; a new group is one new file.

Rule of this package: it holds claims and nothing else; what they compute with is in ``cje_core``, ``cje_sim`` and
`studies.ledger`.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.ledger.claim import Claim


def available() -> list[str]:
    """Names of all groups, sorted: the module names of this directory.

    Examples
    --------
    >>> "calibration" in available()
    True
    """
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def load(group: str) -> "tuple[Claim, ...]":
    """Claims of a group, in the order of its file.

    Examples
    --------
    >>> len(load("calibration")) > 3
    True
    """
    claims: tuple[Claim, ...] = importlib.import_module(f"{__name__}.{group}").CLAIMS
    return claims


def find(names: Sequence[str] = ()) -> "dict[str, list[Claim]]":
    """Claims by group; all of them, or those named by their own name or their group's.

    Raises
    ------
    ClaimError
        For a name that is neither, with the names that are nearest.
    """
    import difflib

    from studies.ledger.claim import ClaimError

    groups = {group: list(load(group)) for group in available()}
    if not names:
        return groups
    known = [claim.name for claims in groups.values() for claim in claims]
    for name in names:
        if name not in groups and name not in known:
            near = difflib.get_close_matches(name, [*known, *groups], 3, 0.4) or sorted(groups)
            raise ClaimError(f"no claim named {name!r}; near it: {', '.join(near)}")
    chosen = {
        group: [claim for claim in claims if group in names or claim.name in names]
        for group, claims in groups.items()
    }
    return {group: claims for group, claims in chosen.items() if claims}
