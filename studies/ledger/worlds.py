"""Statements about every world of a family: random search, an optimiser that tries to break them, a small example.

A family maps a vector of real numbers to the parameters of a world, for sizes from small to large, so that the same
vector space serves random draws and the optimiser. A world that breaks the statement is made plain (fewest levels
first, then fewest digits) and is given with the parameters that re-run it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from studies.ledger.claim import TOLERANCE, Claim, ClaimError, Evidence, Params, Sides, Trial, confirms

FloatArray = npt.NDArray[np.float64]
CLEAR = 0.05  # a counterexample that is shown breaks its statement by 5%, if there is one
SPREAD = 1.5  # standard deviation of the drawn vectors
EDGE = 8.0  # of their coordinates: worlds beyond are all rounding


class Family(NamedTuple):
    """Worlds by size: the length of the vector behind one, and the parameters that it stands for.

    `effort` scales how many are tried, for worlds that take more than a fraction of a millisecond.
    """

    sizes: Sequence[int]
    length: Callable[[int], int]
    world: Callable[[FloatArray, int], Params]
    effort: float = 1.0


class Found(NamedTuple):
    """What a search found: the largest excess and where, a plain world that breaks the statement clearly (or that one),
    how many worlds were tried, the excesses of the draws.
    """

    excess: float
    params: Params
    plainest: Params
    tried: int
    drawn: FloatArray


def over_worlds(
    *,
    family: Family,
    sides: Callable[[Params], Sides],
    falsified: Callable[[Sides], Sides],
    relation: str = "<=",
    condition: str = "",
    restrict: Callable[[Params], Params] | None = None,
    exists: bool = False,
    **told: Any,
) -> Claim:
    """A claim ``left <= right`` (or ``==``) about every world of a family.

    Parameters
    ----------
    falsified : function
        Turns the sides into those of a false variant, which the search must break.
    condition, restrict : str, function
        Under which the statement may hold, and what moves the parameters of a world into that condition.
    exists : bool
        The claim is that some world breaks ``left <= right``; one that the second method confirms is its witness.
    **told
        The other fields of `studies.ledger.claim.Claim`.

    Examples
    --------
    >>> from studies.ledger.claim import Sides
    >>> claim = over_worlds(
    ...     family=Family((2, 3), lambda size: size, lambda z, size: {"x": z.tolist()}),
    ...     sides=lambda world: Sides(float(np.mean(world["x"])) ** 2, float(np.mean(np.square(world["x"])))),
    ...     falsified=lambda sides: Sides(sides.right, sides.left),
    ...     name="jensen", source="a textbook", planted="the sides exchanged", why="Jensen.",
    ...     statement="The square of a mean is at most the mean of the squares.")
    >>> claim.name
    'jensen'
    """
    second = told.get("second")

    def decide(trial: Trial) -> Evidence:
        def measured(params: Params) -> Sides:
            return falsified(sides(params)) if trial.planted else sides(params)

        route = str(told.get("route", ""))
        found = judge(trial, family, measured, relation, condition, restrict, second, route)
        return _as_witness(found) if exists else found

    rule = told.pop(
        "rule", "random worlds, then an optimiser that maximises left against right; exact in each world"
    )
    return Claim(decide=decide, sides=sides, relation=relation, rule=rule, **told)


def judge(
    trial: Trial,
    family: Family,
    sides: Callable[[Params], Sides],
    relation: str,
    condition: str = "",
    restrict: Callable[[Params], Params] | None = None,
    second: Callable[[Params], Sides] | None = None,
    route: str = "",
) -> Evidence:
    """Evidence from a search through all sizes, which stops at the first that has a clear counterexample."""
    best, tried, drawn = _through(trial, family, sides, relation, None)
    expected = "left = right" if relation == "==" else "left ≤ right"
    curve = {"drawn worlds": _quantiles(drawn)}
    axes = ("share of drawn worlds", "(left − right) / larger side")
    if best.excess <= TOLERANCE:
        at = sides(best.params)
        text = (
            f"{tried:,} worlds tried, those of an optimiser included; none breaks it. The tightest has left "
            f"{number(at.left)} and right {number(at.right)}."
        )
        return Evidence(
            holds=True,
            measured=_tightest(at, relation, tried),
            expected=expected,
            text=text,
            curve=curve,
            axes=axes,
        )
    params = plain(best.plainest, sides, relation, best.excess)
    at = sides(params)
    text = (
        f"{tried:,} worlds tried. The smallest that breaks it has left {number(at.left)} and right "
        f"{number(at.right)}; the worst of its size breaks it by {best.excess:.3g} of the larger side."
    )
    confirmed = None
    if second is not None and not trial.planted:
        again = second(params)
        confirmed = confirms(at, again, relation, route)
        text += (
            f" A second method ({route}) gives {said(again)}."
            if route
            else f" A second method gives {said(again)}."
        )
    under = None
    if restrict is not None and not trial.planted:
        inside, n, _ = _through(trial, family, sides, relation, restrict)
        under = inside.excess <= TOLERANCE
        text += (
            f" Where {condition}: {n:,} worlds tried, "
            f"{'none' if under else 'some'} of which breaks it ({_worst(inside.excess, relation)})."
        )
    return Evidence(
        holds=False,
        measured=f"left {number(at.left)}, right {number(at.right)}",
        expected=expected,
        text=text,
        counterexample=params,
        confirmed=confirmed,
        condition=condition,
        holds_under=under,
        curve=curve,
        axes=axes,
    )


def _as_witness(found: Evidence) -> Evidence:
    """Evidence of a statement that some world exists, from a search for it."""
    holds = not found.holds if found.holds or found.confirmed else None
    text = found.text.replace("The smallest that breaks it has", "The smallest that shows it has")
    needs = "" if not found.holds else "a wider search, or a proof that there is none"
    return replace(
        found,
        needs=needs,
        holds=holds,
        text=text.replace("breaks it", "shows it"),
        expected="left > right somewhere",
    )


def said(sides: Sides) -> str:
    """Both sides in words."""
    error = f" (standard error of the difference {number(sides.mcse)})" if sides.mcse else ""
    return f"left {number(sides.left)} and right {number(sides.right)}{error}"


def number(x: float) -> str:
    """Four digits.

    Examples
    --------
    >>> number(0.123456), number(1e-12)
    ('0.1235', '1e-12')
    """
    return f"{x:.4g}"


def masses(values: Sequence[float]) -> FloatArray:
    """Masses, given up to a factor, as a law.

    Examples
    --------
    >>> masses([1, 3]).tolist()
    [0.25, 0.75]
    """
    mass = np.asarray(values, float)
    if not (mass >= 0).all() or not 0 < mass.sum() < np.inf:
        raise ClaimError(f"masses {mass.tolist()} are no law: they must be nonnegative, with a positive sum")
    return np.asarray(mass / mass.sum())


def batches(
    estimate: Callable[[np.random.Generator], tuple[float, float]], rng: np.random.Generator
) -> Sides:
    """Sides from simulation: means of 20 batches, and the standard error of their mean difference."""
    both = np.array([estimate(rng) for _ in range(20)])
    gap = both[:, 0] - both[:, 1]
    left, right = both.mean(axis=0)
    return Sides(float(left), float(right), float(gap.std(ddof=1) / np.sqrt(len(both))))


def plain(params: Params, sides: Callable[[Params], Sides], relation: str, excess: float) -> dict[str, Any]:
    """The parameters with the fewest digits that still break the statement by half as much, or by `CLEAR`."""
    for digits in range(7):
        short = {name: _rounded(value, digits) for name, value in params.items()}
        try:
            left = sides(short).excess(relation)
        except (ValueError, ZeroDivisionError):  # rounded out of the domain
            continue
        if left > max(TOLERANCE, min(excess / 2, CLEAR)):
            return short
    return dict(params)


def _through(
    trial: Trial,
    family: Family,
    sides: Callable[[Params], Sides],
    relation: str,
    restrict: Callable[[Params], Params] | None,
) -> tuple[Found, int, FloatArray]:
    """The tightest world of all sizes, or the first size with a clear counterexample."""
    best: Found | None = None
    tried, drawn = 0, []
    for size in family.sizes:
        found = search(trial, family, size, sides, relation, restrict)
        tried += found.tried
        drawn.append(found.drawn)
        if best is None or found.excess > best.excess:
            best = found
        if found.excess > CLEAR:
            break
    if best is None or best.excess == -np.inf:
        raise ClaimError(f"{trial.claim}: no world meets the condition")
    return best, tried, np.concatenate(drawn)


def search(
    trial: Trial,
    family: Family,
    size: int,
    sides: Callable[[Params], Sides],
    relation: str,
    restrict: Callable[[Params], Params] | None = None,
) -> Found:
    """Draw worlds of one size, then climb from the worst: (1+1) evolution with the one-fifth rule.

    Rechenberg's rule: a step that helps is lengthened, one that does not is shortened by a quarter as much.
    """
    draws, climbs, steps = (trial.size(*n) for n in ((40, 400, 5000), (1, 4, 20), (60, 300, 1500)))
    draws, steps = (max(round(family.effort * n), 10) for n in (draws, steps))
    rng = trial.rng("worlds", size, restrict is not None)
    length = family.length(size)

    def params(z: FloatArray) -> Params:
        world = family.world(z, size)
        return world if restrict is None else restrict(world)

    def excess(z: FloatArray) -> float:
        try:
            return sides(params(z)).excess(relation)
        except ClaimError:
            return -np.inf

    pool = SPREAD * rng.standard_normal((draws, length))
    pool[draws // 2 :] *= (
        rng.random(pool[draws // 2 :].shape) < 0.5
    )  # half of the worlds are plain in some respects
    drawn = np.array([excess(z) for z in pool])
    order = np.argsort(-drawn)
    best, top = pool[order[0]], float(drawn[order[0]])
    if trial.planted and top > CLEAR:  # a false variant is broken, which is all that is asked of it
        return Found(top, params(best), params(best), draws, drawn[np.isfinite(drawn)])
    for k in range(min(climbs, draws)):
        z, here, scale = pool[order[k]], float(drawn[order[k]]), 0.5
        for _ in range(steps):
            step = scale * rng.standard_normal(length) * (rng.random(length) < max(2 / length, 0.3))
            new = np.clip(z + step, -EDGE, EDGE)
            value = excess(new)
            if value > here:
                z, here, scale = new, value, scale * 1.5
            else:
                scale = max(scale * 1.5**-0.25, 1e-7)
        if here > top:
            best, top = z, here
    if top == -np.inf:  # no world of this size meets the condition
        return Found(top, {}, {}, draws, drawn[:0])
    clear = [z for z, value in zip(pool, drawn, strict=True) if value > CLEAR] or [best]
    simple = _simplest(min(clear, key=lambda z: float(z @ z)), excess, min(CLEAR, max(top, TOLERANCE) / 2))
    return Found(top, params(best), params(simple), draws + climbs * steps, drawn[np.isfinite(drawn)])


def _simplest(z: FloatArray, excess: Callable[[FloatArray], float], least: float) -> FloatArray:
    """The vector with as many coordinates at 0, the neutral world, as leave the excess above `least`; then halved."""
    z = z.copy()
    for factor in (0.0, 0.5, 0.5):
        for k in range(len(z)):
            kept, z[k] = z[k], factor * z[k]
            if not excess(z) > least:
                z[k] = kept
    return z


def _worst(excess: float, relation: str) -> str:
    return f"largest {'|left − right|' if relation == '==' else 'left − right'}: {excess:+.2g} of the larger side"


def _tightest(at: Sides, relation: str, tried: int) -> str:
    if relation == "==":
        return f"sides differ by at most {at.excess(relation):.1g} of their size in {tried:,} worlds"
    if not at.right:
        return f"left is at most right in {tried:,} worlds; at the tightest both are {at.right:g}"
    return f"left / right at most {at.left / at.right:.6g} in {tried:,} worlds"


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, list | tuple):
        return [_rounded(one, digits) for one in value]
    if isinstance(value, float):
        return round(value, digits) + 0.0  # no negative nought
    return value


def _quantiles(drawn: FloatArray) -> list[tuple[float, float]]:
    levels = np.linspace(0, 1, 41)
    values = np.quantile(drawn, levels) if len(drawn) else np.full(41, np.nan)
    return [(round(float(x), 4), round(float(y), 6)) for x, y in zip(levels, values, strict=True)]
