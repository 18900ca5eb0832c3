"""NumPy's ``SeedSequence`` of many spawn keys at once.

A study draws thousands of streams of few numbers each, where the sequence costs more than the draws. Its law (O'Neill's
``seed_seq_fe``) mixes the root first and the words of a key after it, with constants that depend on no data: over many
keys that is arithmetic on arrays. NumPy promises to keep the law.
"""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

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
