"""Compiled loops behind `cje_sim.tokens.laws`: alias tables, sampling, sums of token scores.

Arrays in the layout of `cje_sim.tokens.laws.TokenPolicy`, flattened to rows: row ``k * rows`` is the first token's
law of prompt class k, the rows after it are those of later tokens (one if i.i.d., else one for each previous token).
"""

from typing import Any

import numpy as np

from cje_core import caches

caches.redirect_before("numba")
import numba  # noqa: E402


@numba.njit(cache=True)
def alias_tables(prob: Any) -> Any:
    """Alias tables of probabilities (rows, V) by Vose's method, shape (rows, V, 2).

    A cell keeps (threshold, alternative) side by side, so that a draw touches one cache line.
    """
    n_rows, vocab = prob.shape
    table = np.empty((n_rows, vocab, 2))
    small, large = np.empty(vocab, dtype=np.int64), np.empty(vocab, dtype=np.int64)
    for r in range(n_rows):
        scaled = prob[r] * vocab
        n_small = n_large = 0
        for v in range(vocab):
            table[r, v, 0], table[r, v, 1] = 1.0, v
            if scaled[v] < 1.0:
                small[n_small] = v
                n_small += 1
            else:
                large[n_large] = v
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            low, high = small[n_small], large[n_large - 1]
            table[r, low, 0], table[r, low, 1] = scaled[low], high
            scaled[high] -= 1.0 - scaled[low]
            if scaled[high] < 1.0:
                n_large -= 1
                small[n_small] = high
                n_small += 1
    return table


@numba.njit(inline="always")
def _uniform(s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    # xoshiro256++, state in registers; 53 random bits in [0, 1).
    total = s0 + s3
    bits = ((total << np.uint64(23)) | (total >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return (bits >> np.uint64(11)) * (1.0 / 9007199254740992.0), s0, s1, s2, s3


@numba.njit(inline="always")
def _pick(u: Any, row: Any) -> Any:
    # Both candidates are loaded before the choice: a conditional move, not a mispredicted branch.
    x = u * row.shape[0]
    cell = int(x)
    other = int(row[cell, 1])
    return cell if x - cell < row[cell, 0] else other


@numba.njit(cache=True)
def sample(state: Any, alias: Any, rows: Any, classes: Any, stop: Any, tokens: Any) -> None:
    """Fill ``tokens (n, length)`` with draws, up to and including a stop token; advances `state` (4,) uint64."""
    s0, s1, s2, s3 = state
    markov = rows > 2
    for i in range(tokens.shape[0]):
        base = classes[i] * rows
        row = base
        for t in range(tokens.shape[1]):
            u, s0, s1, s2, s3 = _uniform(s0, s1, s2, s3)
            token = _pick(u, alias[row])
            tokens[i, t] = token
            if token == stop:
                break
            row = base + 1 + (token if markov else 0)
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3


@numba.njit(cache=True)
def token_sums(tokens: Any, classes: Any, rows: Any, scores: Any, out: Any, n_tokens: Any) -> None:
    """Fill ``out (n, k)`` with sums of ``scores (rows, V, k)`` over each response, and its length."""
    markov = rows > 2
    two = out.shape[1] == 2
    for i in range(tokens.shape[0]):
        base = classes[i] * rows
        row = base
        count = 0
        if two:  # surprisal and log ratio, the case of every overlap study: both sums stay in registers
            a = 0.0
            b = 0.0
            for t in range(tokens.shape[1]):
                token = tokens[i, t]
                if token < 0:
                    break
                a += scores[row, token, 0]
                b += scores[row, token, 1]
                count += 1
                row = base + 1 + (token if markov else 0)
            out[i, 0], out[i, 1] = a, b
        else:
            for t in range(tokens.shape[1]):
                token = tokens[i, t]
                if token < 0:
                    break
                for k in range(out.shape[1]):
                    out[i, k] += scores[row, token, k]
                count += 1
                row = base + 1 + (token if markov else 0)
        n_tokens[i] = count
