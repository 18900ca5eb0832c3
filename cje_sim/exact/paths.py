"""Sums of scores over token paths with memory: exact atoms, moment generating function, law by FFT.

A path law is given by one-step factors, ``prod_t factor(a_(t-1), a_t)``, normalised or not: ``p`` gives probabilities,
``p^2 / q`` gives second moments of importance weights. With ``e^(i omega score)`` in place the same product gives the
characteristic function of the sum of scores (`cje_sim.exact.sums` explains tilt, lattice and bracket).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from cje_sim.exact.sums import (
    FloatArray,
    Lattice,
    LogProb,
    chernoff_window,
    lattice_spacing,
    merge_atoms,
    place,
    solve_tilt,
    split_cells,
)

ComplexArray = npt.NDArray[np.complex128]

MAX_ATOMS = 100_000
# Complex numbers held at once in the frequency recursion.
CHUNK = 2**21


@dataclass(frozen=True)
class Paths:
    """Token paths of one prompt class: log one-step factors and scores, both (1 + S, V)."""

    log_kernel: FloatArray
    scores: FloatArray
    length: int
    stop: int | None

    @property
    def _ends(self) -> tuple[float, float]:
        possible = self.scores[self.log_kernel > -np.inf]
        return float(possible.min()), float(possible.max())

    @property
    def _reach(self) -> tuple[float, float]:
        """Ends of the sum."""
        low, high = self._ends
        n = np.array([1 if self.stop is not None else self.length, self.length])
        return float((low * n).min()), float((high * n).max())

    def atoms(self) -> list[tuple[int, FloatArray, FloatArray]] | None:
        """Every (number of tokens, sums of scores, log-mass), or None beyond `MAX_ATOMS` atoms."""
        rows, vocab = self.log_kernel.shape
        out: list[tuple[int, FloatArray, FloatArray]] = []
        # the row of log_kernel that a state continues with, its sums and their log-mass
        states = [(0, np.zeros(1), np.zeros(1))]
        for n_tokens in range(1, self.length + 1):
            reached: list[tuple[int, FloatArray, FloatArray]] = []
            for token in range(vocab):
                sums = np.concatenate([sums + self.scores[row, token] for row, sums, _ in states])
                mass = np.concatenate([mass + self.log_kernel[row, token] for row, _, mass in states])
                keep = mass > -np.inf
                if not keep.any():
                    continue
                pair = merge_atoms(sums[keep], mass[keep])
                if token == self.stop or n_tokens == self.length:
                    out.append((n_tokens, *pair))
                else:
                    reached.append((1 + token if rows > 2 else 1, *pair))
            if not reached:
                break
            if rows == 2:
                parts = (np.concatenate([state[i] for state in reached]) for i in (1, 2))
                reached = [(1, *merge_atoms(*parts))]
            if sum(len(sums) for _, sums, _ in reached) * vocab > MAX_ATOMS:
                return None
            states = reached
        return out

    def log_mgf(self, theta: float) -> float:
        """Log of the sum over paths of the factors times ``e^(theta * sum of scores)``."""
        return float(self._forward(np.array([theta]))[0][0])

    def slopes(self, theta: float) -> tuple[float, float]:
        """First and second derivative of `log_mgf`.

        By finite differences: the tilt only has to be near the saddlepoint, the tail sum is exact at any tilt.
        """
        low, high = self._ends
        step = 1e-4 / max(high - low, abs(high), 1e-9)
        left, mid, right = self._forward(theta + np.array([-step, 0.0, step]))[0].tolist()
        return (right - left) / (2 * step), (right - 2 * mid + left) / step**2

    def log_cdf(self, x: float, points: int) -> LogProb:
        """Log of the factors' sum over the paths whose scores sum to at most x."""
        total = self.log_mgf(0.0)
        low, high = self._ends
        least, most = self._reach
        if x >= most:
            return LogProb(total, total, total)
        if x < least:
            return LogProb(*(3 * [float(-np.inf)]))
        mean, variance = self.slopes(0.0)
        scale = 1 / np.sqrt(max(variance, 1e-12 * (high - low) ** 2))
        theta = solve_tilt(lambda t: self.slopes(t)[0], x, mean, scale, 1e3 * scale)
        return LogProb(*(v + total for v in self.lattice(theta, points).log_cdf(x)))

    def lattice(self, theta: float, points: int) -> Lattice:
        """Law of the sum of scores under the normalised factors, tilted by theta."""
        log_top = self.log_mgf(theta)
        low, high = self._ends
        variance = max(self.slopes(theta)[1], 1e-8 * (high - low) ** 2)
        ends = chernoff_window(lambda t: self._forward(theta + t)[0] - log_top, variance)
        least, most = self._reach
        start, stop = max(ends[0], least), min(ends[1], most)
        h, spill = lattice_spacing(start, stop, self.length, points)
        mass = np.fft.irfft(self._transform(theta, h, points), points)
        return place(mass, start, h, spill, theta, log_top - self.log_mgf(0.0), self.length)

    def _forward(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log total of each tilt (T,), and the log-mass still running after 0, 1, ..., L tokens (T, L + 1).

        The latter is the scale of the recursion.
        """
        kernel = tilted(self.log_kernel, self.scores, theta[:, None, None])
        n_rows = kernel.shape[1]
        alive = np.full(kernel.shape[:2], -np.inf)
        alive[:, 0] = 0.0
        running, finished = np.full((len(theta), self.length + 1), -np.inf), []
        running[:, 0] = 0.0
        with np.errstate(divide="ignore"):  # a token nothing leads to
            for t in range(self.length):
                # In logs: under a strong tilt the steps of one path differ by more than a double can hold.
                paths = alive[:, :, None] + kernel
                top = np.maximum(paths.max(axis=1), -1e300)
                here = top + np.log(np.exp(paths - top[:, None]).sum(axis=1))
                if self.stop is not None:
                    finished.append(here[:, self.stop].copy())
                    here[:, self.stop] = -np.inf
                top_here = here.max(axis=1)
                if top_here[0] == -np.inf:  # what can be reached is so under every tilt
                    break
                running[:, t + 1] = top_here + np.log(np.exp(here - top_here[:, None]).sum(axis=1))
                alive[:, 0] = -np.inf
                alive[:, 1:] = here if n_rows > 2 else running[:, t + 1, None]
        return np.asarray(logsumexp(np.column_stack([*finished, running[:, -1]]), axis=1)), running

    def _transform(self, theta: float, h: float, points: int) -> ComplexArray:
        """Characteristic function, at the FFT frequencies, of the tilted and normalised law of the lattice sum."""
        log_total, running = (one[0] for one in self._forward(np.array([theta])))
        kernel = tilted(self.log_kernel, self.scores, theta)
        top = float(kernel.max())
        factor = np.exp(kernel - top)
        index, fraction = split_cells(np.where(factor > 0, self.scores, 0.0), h)
        # After the last finite scale all have stopped.
        steps = min(int(np.isfinite(running).sum()), self.length)
        out = np.empty(points // 2 + 1, dtype=np.complex128)
        block = max(1, CHUNK // factor.size)
        for begin in range(0, len(out), block):
            omega = 2 * np.pi * np.arange(begin, min(begin + block, len(out)))[:, None, None] / points
            turn = np.exp(-1j * omega * index) * (1 - fraction + fraction * np.exp(-1j * omega)) * factor
            total = np.zeros(len(omega), dtype=np.complex128)
            alive = np.ones((len(omega), 1), dtype=np.complex128)
            for t in range(steps):
                matrix = turn[:, :1] if t == 0 else turn[:, 1:]
                here = np.matmul(alive[:, None, :], matrix)[:, 0]
                if self.stop is not None:
                    total += here[:, self.stop] * np.exp(running[t] + top - log_total)
                    here[:, self.stop] = 0.0
                alive = here if len(factor) > 2 else here.sum(axis=1, keepdims=True)
                alive *= np.exp(running[t] + top - running[t + 1]) if np.isfinite(running[t + 1]) else 0
            tail = np.exp(running[-1] - log_total) if np.isfinite(running[-1]) else 0.0
            out[begin : begin + len(omega)] = total + alive.sum(axis=1) * tail
        return out


def tilted(kernel: FloatArray, scores: FloatArray, theta: float | FloatArray) -> FloatArray:
    """Log one-step factors times ``e^(theta * score)``; impossible steps stay impossible."""
    with np.errstate(invalid="ignore"):  # impossible steps: -inf + theta * score
        return np.where(kernel > -np.inf, kernel + theta * scores, -np.inf)
