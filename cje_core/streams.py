"""Named random streams: every draw depends on (seed, names) and on nothing else.

Workers, order, the other methods, the other levels and the number of replicates therefore cannot change a
result, and any single replicate can be drawn again alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

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


# NumPy's ``SeedSequence`` of many spawn keys at once: a study draws thousands of streams of few numbers each, where it
# costs more than the draws. Its law (O'Neill's ``seed_seq_fe``) mixes the root first and the words of a key after it,
# with constants that depend on no data: over many keys that is arithmetic on arrays. NumPy promises to keep the law.

Words = npt.NDArray[np.uint32]
State = npt.NDArray[np.uint64]

HASH_IN, HASH_OUT = (
    (0x43B0D7E5, 0x931E8875),
    (0x8B51F9DD, 0x58F38DED),
)  # start and factor of a hash's constants
MIX_POOL, MIX_WORD = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
SHIFT = np.uint32(16)
POOL, WORDS = 4, 8  # words of the pool, and of what a PCG64 is seeded with


class Seeded(np.random.bit_generator.ISpawnableSeedSequence):
    """A ``SeedSequence`` whose first words are known; all else it leaves to NumPy's, made when it is needed.

    Parameters
    ----------
    root : int
    key : array (k,) of uint32
        The spawn key.
    state : array (4,) of uint64
        ``SeedSequence(root, spawn_key=key).generate_state(4, np.uint64)``.
    """

    def __init__(self, root: int, key: Words, state: State) -> None:
        self.root, self.key, self.state = root, key, state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> npt.NDArray[Any]:
        """Return the first words of the sequence."""
        if dtype is np.uint64 and n_words == len(self.state):
            return self.state
        return self.whole.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[Any]:
        """Return further children, as NumPy's would."""
        return list(self.whole.spawn(n_children))

    @cached_property
    def whole(self) -> np.random.SeedSequence:
        """NumPy's."""
        return np.random.SeedSequence(self.root, spawn_key=self.key.tolist())


def seeded(root: int, keys: Words) -> list[Seeded]:
    """Return the seed sequence of each spawn key below a root.

    Parameters
    ----------
    root : int, >= 0
    keys : array (n, k) of uint32

    Examples
    --------
    >>> (one,) = seeded(7, np.array([[1, 2, 3]], np.uint32))
    >>> np.array_equal(one.generate_state(4, np.uint64), one.whole.generate_state(4, np.uint64))
    True
    """
    pool, constants = _root(root, keys.shape[1])
    hashed = MIX_WORD * _hashed(keys[:, :, None], *constants)  # (n, k, POOL)
    pools = np.broadcast_to(pool, (len(keys), POOL))
    for k in range(keys.shape[1]):
        mixed = MIX_POOL * pools - hashed[:, k]
        pools = mixed ^ (mixed >> SHIFT)
    states = _hashed(np.tile(pools, WORDS // POOL), *_OUT).astype("<u4").view("<u8").astype(np.uint64)
    return [Seeded(root, key, state) for key, state in zip(keys, states, strict=True)]


def _hashed(words: Words, before: Words, factor: Words) -> Words:
    value: Words = (words ^ before) * factor
    return value ^ (value >> SHIFT)


def _constants(start: int, factor: int, skip: int, count: int) -> tuple[Words, Words]:
    """What calls number skip, ..., skip + count - 1 of a hash xor, and what they multiply by."""
    powers = [start * pow(factor, k, 2**32) % 2**32 for k in range(skip, skip + count + 1)]
    return np.array(powers[:-1], np.uint32), np.array(powers[1:], np.uint32)


_OUT = _constants(*HASH_OUT, 0, WORDS)


@lru_cache(maxsize=8)
def _root(root: int, n_words: int) -> tuple[Words, tuple[Words, Words]]:
    """Pool of a root before any key, and the constants with which a key of `n_words` is hashed into it."""
    calls = POOL + POOL * (POOL - 1) + POOL * max(-(-root.bit_length() // 32) - POOL, 0)
    before, factor = _constants(*HASH_IN, calls, POOL * n_words)
    pool: Words = np.random.SeedSequence(root).pool
    return pool, (before.reshape(n_words, POOL), factor.reshape(n_words, POOL))


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
