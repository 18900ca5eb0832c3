"""Claims that decide by themselves: the world that breaks them is looked for, and a second method must confirm it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial, confirms
from studies.ledger.worlds import CLEAR, said


def first_broken(
    worlds: Iterable[Params], sides: Callable[[Params], Sides], relation: str = "<="
) -> Params | None:
    """The first of `worlds`, plainest first, that breaks a statement clearly; else that which breaks it most, if any.

    Examples
    --------
    >>> first_broken([{"x": 1}, {"x": 2}, {"x": 3}], lambda w: Sides(w["x"], 1.5))
    {'x': 2}
    >>> first_broken([{"x": 1}], lambda w: Sides(w["x"], 1.5)) is None
    True
    """
    most, found = 0.0, None
    for world in worlds:
        try:
            at = sides(world)
        except ClaimError:
            continue
        if not at.broken(relation):
            continue
        if at.excess(relation) > CLEAR:
            return dict(world)
        if at.excess(relation) > most:
            most, found = at.excess(relation), dict(world)
    return found


def decided(
    *,
    decide: Callable[[Trial], Evidence],
    sides: Callable[[Params], Sides],
    second: Callable[[Params], Sides],
    relation: str = "<=",
    route: str = "",
    **told: Any,
) -> Claim:
    """A claim whose `decide` may give a counterexample, which is confirmed here and nowhere else.

    Parameters
    ----------
    decide : function
        Its evidence has a counterexample where the statement fails, and says nothing on its confirmation.
    sides, second : function
        Both break the statement there and, without a `route`, give the same sides within their error.
    **told
        The other fields of `studies.ledger.claim.Claim`.

    Examples
    --------
    >>> def sides(world):
    ...     return Sides(world["x"] ** 2, world["x"])
    >>> claim = decided(
    ...     decide=lambda trial: Evidence(
    ...         holds=False, measured="4 above 2", expected="at most", text="One world.", counterexample={"x": 2.0}),
    ...     sides=sides, second=sides, name="square-below", source="ours", statement="x^2 <= x.", why="Not above 1.",
    ...     planted="the same", rule="sides")
    >>> claim.decide(Trial("square-below")).confirmed
    True
    """

    def confirming(trial: Trial) -> Evidence:
        found = decide(trial)
        if found.counterexample is None or trial.planted:
            return found
        here, again = sides(found.counterexample), second(found.counterexample)
        method = f"a second method ({route})" if route else "a second method"
        return replace(
            found,
            confirmed=confirms(here, again, relation, route),
            text=f"{found.text} At the counterexample: {said(here)}; {method} gives {said(again)}.",
        )

    return Claim(decide=confirming, sides=sides, second=second, relation=relation, route=route, **told)
