"""What a claim is: a statement with its source, and a function that decides it by computing.

Claims are data. A claim's `decide` takes a `Trial` (profile, generator, results at hand, whether a false variant is
planted) and gives `Evidence`; the verdict follows from the evidence by `verdict` and from nothing else. A claim with
`sides` compares two numbers in a world given by parameters: these are re-run by ``cje-lab claims NAME --at JSON``, and
`second` computes them again by another method.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cje_core.streams import generator

PROFILES = ("smoke", "quick", "paper")
VERDICTS = ("holds", "holds_if", "refuted", "not_reproduced", "undecided")
KINDS = (
    "theory",
    "number",
)  # a number of the paper that is not reached is not reproduced, a theorem is refuted
RELATIONS = ("<=", "==")
TOLERANCE = 1e-8  # relative: exact sums of a few dozen numbers
N_MCSE = 5.0  # Monte Carlo standard errors that a difference must reach
AGREE = 0.05  # share of the larger side by which two methods may part beyond their Monte Carlo error

Params = Mapping[str, Any]  # JSON values: numbers, words, lists of them


class ClaimError(ValueError):
    """A claim or a world that cannot be used as given; the one line says the mend."""


class Sides(NamedTuple):
    """Left and right side of a statement in one world, and the Monte Carlo standard error of their difference."""

    left: float
    right: float
    mcse: float = 0.0

    def excess(self, relation: str) -> float:
        """How far the statement is broken, relative to the larger side; positive beyond `TOLERANCE`: it is.

        Examples
        --------
        >>> Sides(2.0, 1.0).excess("<="), Sides(1.0, 2.0).excess("<=")
        (0.5, -0.5)
        """
        scale = max(abs(self.left), abs(self.right), 1e-12)
        if not math.isfinite(self.left - self.right):
            raise ClaimError(f"the sides are {self.left} and {self.right}: the world is degenerate")
        gap = self.left - self.right
        return float((abs(gap) if relation == "==" else gap) / scale)

    def broken(self, relation: str) -> bool:
        """Whether the statement fails here, beyond rounding and `N_MCSE` standard errors."""
        gap = abs(self.left - self.right) if relation == "==" else self.left - self.right
        return self.excess(relation) > TOLERANCE and gap > N_MCSE * self.mcse

    def agrees(self, other: "Sides") -> bool:
        """Whether two methods give the same difference of the sides, within `AGREE` and their Monte Carlo error.

        Examples
        --------
        >>> Sides(2.0, 1.0).agrees(Sides(2.01, 1.0)), Sides(2.0, 1.0).agrees(Sides(0.02, 0.01))
        (True, False)
        """
        scale = max(abs(side) for side in (self.left, self.right, other.left, other.right))
        gap = abs((self.left - self.right) - (other.left - other.right))
        return gap <= AGREE * scale + N_MCSE * math.hypot(self.mcse, other.mcse)


def confirms(here: Sides, again: Sides, relation: str, route: str = "") -> bool:
    """Whether both methods break a statement, the second with the sides of the first unless it takes another `route`.

    Examples
    --------
    >>> confirms(Sides(2, 1), Sides(2, 1), "<="), confirms(Sides(2, 1), Sides(9, 1), "<=")
    (True, False)
    """
    return here.broken(relation) and again.broken(relation) and (bool(route) or here.agrees(again))


class Trial(NamedTuple):
    """What a claim is decided on."""

    claim: str
    profile: str = "quick"
    planted: bool = False  # decide a variant of the statement that is false: it must not come out as holding
    results: Path | None = None  # results of studies, for claims about tables
    seed: int = 0

    def rng(self, *names: object) -> np.random.Generator:
        """The claim's own generator: no other claim can change its draws."""
        return generator(self.seed, "claims", self.claim, *names)

    def size(self, smoke: int, quick: int, paper: int) -> int:
        """The size that goes with the profile."""
        return dict(zip(PROFILES, (smoke, quick, paper), strict=True))[self.profile]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was computed.

    Parameters
    ----------
    holds : bool or None
        Whether the statement is so; None where this cannot be told.
    measured, expected : str
        The key number, with its error, and what the statement asks of it.
    mcse : float
        Monte Carlo standard error of the key number; 0 where the computation is exact.
    text : str
        What was done and found, as sentences that are computed.
    counterexample : mapping, optional
        Parameters of a world that breaks the statement, found by search.
    confirmed : bool or None
        Whether the second method breaks it there too, and gives the sides of the first within its error.
    condition : str
        Under which the statement does hold, and `holds_under`: whether a search found nothing against that.
    needs : str
        Of an undecided claim: what it would take.
    curve : mapping of name to sequence of (x, y)
        For the figure; ``axes`` names x and y.
    """

    holds: bool | None
    measured: str
    expected: str
    text: str
    mcse: float = 0.0
    counterexample: Params | None = None
    confirmed: bool | None = None
    condition: str = ""
    holds_under: bool | None = None
    needs: str = ""
    curve: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement on trial.

    Parameters
    ----------
    name : str
        Words joined by hyphens; unique in the ledger.
    source : str
        Where it stands in "Causal Judge Evaluation", or which claim of ours it repairs.
    statement : str
        The predicate; formulas in TeX between dollar signs.
    rule : str
        How it is decided.
    why : str
        The argument: a proof where there is one, in sentences and formulas.
    decide : function of a `Trial`
    planted : str
        The false variant that ``Trial(planted=True)`` decides, in words.
    kind : {"theory", "number"}
    sides, second : function of parameters, optional
        The statement's two sides in one world; `second` by another method.
    route : str
        What `second` compares where its sides are not those of the first method; empty where both must agree.
    relation : {"<=", "=="}
        Between the sides.
    repairs : str
        Name of the claim that this one mends.
    study : str
        Study whose results decide it, where they are at hand.
    """

    name: str
    source: str
    statement: str
    rule: str
    why: str
    decide: Callable[[Trial], Evidence]
    planted: str
    kind: str = "theory"
    sides: Callable[[Params], Sides] | None = None
    second: Callable[[Params], Sides] | None = None
    route: str = ""
    relation: str = "<="
    repairs: str = ""
    study: str = ""

    def __post_init__(self) -> None:
        """Stop at what cannot be shown or decided."""
        if self.kind not in KINDS or self.relation not in RELATIONS:
            raise ClaimError(f"{self.name}: kind {self.kind!r}, relation {self.relation!r}")
        for part in ("name", "source", "statement", "rule", "why", "planted"):
            if not getattr(self, part).strip():
                raise ClaimError(f"{self.name}: {part} is empty")


def verdict(claim: Claim, evidence: Evidence) -> str:
    """One of `VERDICTS`, from the evidence alone.

    A statement that fails in general and holds under a condition that was searched holds if. A theorem that fails needs
    a counterexample that a second method confirms, or else it is undecided; so is a number whose second method denies.

    Examples
    --------
    >>> from studies.claims import load
    >>> claim = load("calibration")[0]
    >>> verdict(claim, Evidence(holds=None, measured="", expected="", text="", needs="more worlds"))
    'undecided'
    """
    if evidence.holds is None:
        return "undecided"
    if evidence.holds:
        return "holds_if" if evidence.condition and evidence.holds_under else "holds"
    if evidence.confirmed is False or (evidence.confirmed is None and claim.kind == "theory"):
        return "undecided"
    if evidence.condition and evidence.holds_under:
        return "holds_if"
    return "refuted" if claim.kind == "theory" else "not_reproduced"
