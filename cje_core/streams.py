"""Named random streams: every draw depends on (seed, names) and on nothing else.

Workers, order, the other methods, the other levels and the number of replicates therefore cannot change a
result, and any single replicate can be drawn again alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from cje_core.seeds import Seeded, seeded

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
    words = _key(canonical(list(names)).encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=words.tolist()))


def _key(spelled: bytes) -> npt.NDArray[np.uint32]:
    """Spawn key of names as they are spelled, shape (8,)."""
    return np.frombuffer(hashlib.blake2b(spelled, digest_size=32).digest(), dtype="<u4")


class _Beside:
    """Seeds of the streams of several replicates: those of a name are made together, when the first is asked for."""

    def __init__(self, seed: int, study: str, cell: Cell, replicates: range) -> None:
        self.seed, self.replicates = seed, replicates
        self._names = canonical([study, dict(cell)])[:-1]  # spelled once
        self._known: dict[str, list[Seeded]] = {}

    def generator(self, name: str, replicate: int) -> np.random.Generator:
        if name not in self._known:
            spelled = [f"{self._names},{r},{canonical(name)}]".encode() for r in self.replicates]
            self._known[name] = seeded(self.seed, np.stack([_key(text) for text in spelled]))
        seed = self._known[name][replicate - self.replicates.start]
        return np.random.Generator(np.random.PCG64(seed))  # type: ignore[arg-type]  # any ISeedSequence will do


@dataclass(frozen=True)
class Streams:
    """The streams of one replicate: ``streams("data")``, ``streams("direct")``, ...

    Each call returns a fresh generator at the start of its stream.
    """

    seed: int
    study: str
    cell: Cell
    replicate: int
    beside: _Beside | None = field(default=None, repr=False, compare=False)  # of replicates that run together

    def __call__(self, name: str) -> np.random.Generator:
        """Return the generator of the stream `name` of this replicate."""
        if self.beside is not None:
            return self.beside.generator(name, self.replicate)
        return generator(self.seed, self.study, dict(self.cell), self.replicate, name)


def streams_of(seed: int, study: str, cell: Cell, replicates: range) -> list[Streams]:
    """Return the streams of replicates that run together: those of `Streams`, bit for bit, in a fifth of the time.

    Parameters
    ----------
    seed : int
    study : str
    cell : mapping
    replicates : range
        Of step 1.

    Examples
    --------
    >>> alone, together = Streams(1, "a", {"n": 5}, 7), streams_of(1, "a", {"n": 5}, range(4, 9))
    >>> bool(alone("data").random() == together[3]("data").random())
    True
    """
    beside = _Beside(seed, study, cell, replicates) if len(replicates) > 1 else None
    return [Streams(seed, study, cell, r, beside) for r in replicates]
