"""Checks of the numbered lines of docs/claims/*.md: ``@line(page, number)`` names the line that a function computes."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

PAGES = Path(__file__).parents[1] / "docs" / "claims"
N_INSTANCES = 3

Check = Callable[[np.random.Generator], None]


def registry() -> tuple[dict[tuple[str, int], Check], Callable[[str, int], Callable[[Check], Check]]]:
    """A table of checks and the decorator that fills it."""
    checks: dict[tuple[str, int], Check] = {}

    def line(page: str, number: int) -> Callable[[Check], Check]:
        def register(check: Check) -> Check:
            assert (page, number) not in checks, f"{page} ({number}) is checked twice"
            checks[page, number] = check
            return check

        return register

    return checks, line


def numbered(page: str) -> set[tuple[str, int]]:
    """The numbered lines of a page."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return {(page, int(k)) for k in re.findall(r"^\*\*\((\d+)\)\*\*", text, re.M)}


def run(check: Check) -> None:
    """A check on a few random instances."""
    for seed in range(N_INSTANCES):
        check(np.random.default_rng(seed))


class Dense:
    """A model as one table over (x, a, s, l, y), with y latent where l = 0; functions broadcast over it."""

    def __init__(self, model):
        self.model = model
        cell = model.prompt[:, None, None] * model.logger[:, :, None] * model.judge
        seen = np.stack([1 - model.seen, model.seen], axis=-1)
        self.p = cell[..., None, None] * seen[..., None] * model.label[:, :, :, None, :]
        self.label = np.array([0.0, 1.0])[:, None]
        self.y = model.values
        self.w = (model.target / model.logger)[:, :, None, None, None]
        self.r = self.given(self.y, "xas")
        noise = self.given((self.y - self.r) ** 2, "xas")
        self.v = np.where(noise > 0, noise, 1.0)  # of scores that a response never gets
        self.m = self.given(self.w * np.ones_like(self.p), "s")
        self.q = self.given(self.r * np.ones_like(self.p), "xa")
        self.g = self.given(self.w * self.q * np.ones_like(self.p), "x")
        self.value = self.mean(self.w * self.y)
        precision = self.given(self.label / self.v, "s")  # of the efficient term for learning R
        scale = self.m / np.where(precision > 0, precision, 1.0)
        self.efficient = scale * self.label / self.v * (self.y - self.r)

    def mean(self, f):
        return float((self.p * f).sum())

    def given(self, f, names):
        out = tuple(k for k, name in enumerate("xasly") if name not in names)
        share = self.p.sum(axis=out, keepdims=True)
        return (self.p * f).sum(axis=out, keepdims=True) / np.where(share > 0, share, 1.0)

    def var(self, f):
        return self.mean((f - self.mean(f)) ** 2)

    def score(self, rng, of, given):
        """A random function of both with mean zero given `given`."""
        shape = [n if name in of + given else 1 for n, name in zip(self.p.shape, "xasly", strict=True)]
        f = rng.normal(size=shape) * np.ones_like(self.p)
        return f - self.given(f, given)

    def label_score(self, rng):
        """A random k with E[k | x, a, s] = 0 and E[Y k | x, a, s] = r(s), and that r."""
        free = self.score(rng, "y", "xas")
        slope = (self.y - self.r) / self.v
        free = free - self.given(free * self.y, "xas") * slope
        r = rng.normal(size=(1, 1, self.p.shape[2], 1, 1))
        return free + r * slope, r
