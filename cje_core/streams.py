"""Named random streams: every draw depends on (seed, names) and on nothing else.

Workers, order, the other methods, the other levels and the number of replicates therefore cannot change a
result, and any single replicate can be drawn again alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

Level = bool | int | float | str
Cell = Mapping[str, Level]


_JSON = json.JSONEncoder(  # json.dumps would make one at each call
    sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=asdict
)


def canonical(value: object) -> str:
    """Canonical JSON: sorted keys, no spaces, NaN refused, a dataclass as its fields; the spelling that is hashed.

    Examples
    --------
    >>> canonical({"n": 250, "design": "own"})
    '{"design":"own","n":250}'
    """
    return _JSON.encode(value)


def digest(value: object, size: int = 16) -> str:
    """Hex blake2b digest of the canonical JSON of `value`."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=size).hexdigest()


def generator(seed: int, *names: object) -> np.random.Generator:
    """The random generator that belongs to `seed` and a list of JSON names.

    Parameters
    ----------
    seed : int
        Root seed of the study, >= 0.
    *names : JSON values
        For instance ``"ttc_collapse", "utilities", 3``. Types count: 1 and 1.0 are different names.

    Returns
    -------
    np.random.Generator
        Seeded with ``SeedSequence(seed, spawn_key=blake2b(names))``.

    Examples
    --------
    >>> bool(generator(1, "a", 2).random() == generator(1, "a", 2).random())
    True
    >>> bool(generator(1, "a", 2).random() == generator(1, "a", 3).random())
    False
    """
    words = np.frombuffer(
        hashlib.blake2b(canonical(list(names)).encode(), digest_size=32).digest(), dtype="<u4"
    )
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=words.tolist()))


@dataclass(frozen=True)
class Streams:
    """The streams of one replicate: ``streams("data")``, ``streams("direct")``, ...

    Each call returns a fresh generator at the start of its stream.
    """

    seed: int
    study: str
    cell: Cell
    replicate: int

    def __call__(self, name: str) -> np.random.Generator:
        """Return the generator of the stream `name` of this replicate."""
        return generator(self.seed, self.study, dict(self.cell), self.replicate, name)
