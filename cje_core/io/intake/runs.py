"""Runs of a tool as arms: one policy per run's model, with the settings in which runs of one model differ.

Responses of one policy and prompt are draws where one run made them; of two runs they are a duplicate, and refused.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cje_core.data.errors import DataError, line
from cje_core.io.fields import show
from cje_core.io.intake.foreign import Item
from cje_core.io.intake.keys import arm_column, told_apart
from cje_core.io.intake.names import CAUTION

# What is said of files that test judges on answers whose better one is known.
TEST_OF_A_JUDGE = (
    f"{CAUTION}the file tests a judge, and its policies are judges: cje-lab analyze with judge=judge, oracle=label and "
    "a folder to write to says in index.html how far it agrees with the labels (kappa, AC1, alpha, correlation); with "
    "oracle=correct the value is its accuracy"
)


class Run(NamedTuple):
    """What a tool says of a run: its model, its task, and its settings as text, the most telling first."""

    model: str
    task: str
    settings: Mapping[str, str]


def setting(value: Any) -> str:
    """Text of a setting; an absent or empty one is the default, whatever its form.

    Examples
    --------
    >>> setting(None), setting({}), setting({"b": 1, "a": None}), setting("x")
    ('default', 'default', '{"b": 1}', 'x')
    """
    if isinstance(value, dict):
        value = {name: inner for name, inner in value.items() if inner is not None}
    if isinstance(value, str) and value:
        return value
    return json.dumps(value, sort_keys=True, default=str) if value not in (None, "", {}, []) else "default"


def arms(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """Policy of each run, and the settings that name policies beside the model.

    Runs of one model and task whose settings differ are policies of their own, named by the fewest settings that tell
    them apart.

    Examples
    --------
    >>> arms([Run("m", "t", {"shots": "0", "seed": "1"}), Run("m", "t", {"shots": "5", "seed": "1"})])
    (['m, shots=0', 'm, shots=5'], ['shots'])
    >>> arms([Run("m", "t", {"shots": "0"}), Run("n", "t", {"shots": "5"})])
    (['m', 'n'], [])
    """
    of_model: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        of_model[run.model].append(run)
    telling = {model: _telling(own) for model, own in of_model.items()}
    policies = []
    for run in runs:
        named = (f"{name.split('.')[-1]}={line(_of(run, name), 60)}" for name in telling[run.model])
        policies.append(", ".join([run.model, *named]))
    return policies, sorted({name for names in telling.values() for name in names})


def _of(run: Run, name: str) -> str:
    return run.settings.get(name, setting(None))


def _telling(own: Sequence[Run]) -> list[str]:
    """Return the settings that tell runs of one model apart within each task."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in own:
        groups[run.task].append(run)
    names: list[str] = []
    for group in groups.values():
        order = dict.fromkeys(name for run in group for name in run.settings)
        full = _distinct(group, [*order])
        while _distinct(group, names) < full:
            counts = {name: _distinct(group, [name]) for name in order if name not in names}
            names.append(max(counts, key=counts.__getitem__))
    return names


def _distinct(runs: Sequence[Run], names: Sequence[str]) -> int:
    """Count the combinations of values that runs have of some settings."""
    return len({tuple(_of(run, name) for name in names) for run in runs})


def numbered(items: Sequence[Item], policy_field: str, runs: Sequence[str] | None = None) -> list[Item]:
    """Items with draws counted from 0 within each policy and prompt; `DataError` where two runs share one.

    Parameters
    ----------
    items : sequence of Item
    policy_field : str
        What names the policy, in the message.
    runs : sequence of str, optional
        Run of each item; the file where it is left out.
    """
    first: dict[tuple[str, str], tuple[str, Item]] = {}
    draws: dict[tuple[str, str], int] = defaultdict(int)
    made = []
    for item, run in zip(items, runs or [item.file for item in items], strict=True):
        key = item.policy, item.prompt
        before_run, before = first.setdefault(key, (run, item))
        if before_run != run:
            raise repeated(item, before, policy_field)
        made.append(item._replace(draw=draws[key]))
        draws[key] += 1
    return made


def unique(items: Sequence[Item], policy_field: str) -> list[Item]:
    """Items as they are; `DataError` where two are of one policy, prompt and draw."""
    first: dict[tuple[str, str, int], Item] = {}
    for item in items:
        before = first.setdefault((item.policy, item.prompt, item.draw), item)
        if before is not item:
            raise repeated(item, before, policy_field)
    return list(items)


def repeated(item: Item, before: Item, policy_field: str) -> DataError:
    """Error of a response that is in the data twice."""
    return DataError(
        f"{item.file}, row {item.row}: {policy_field} {show(item.policy)} answers prompt {show(item.prompt)} in "
        f"{before.file}, row {before.row} too: two runs; keep one, or name what tells them apart with "
        "policy_field=NAME"
    )


def check_draws(items: Sequence[Item], fields: Sequence[Mapping[str, Any]], policy_field: str) -> None:
    """Stop where a field tells the draws of every prompt apart as it would arms; fields are those of each item."""
    groups: dict[tuple[str, str], list[tuple[Item, Mapping[str, Any]]]] = defaultdict(list)
    for item, held in zip(items, fields, strict=True):
        groups[item.policy, item.prompt].append((item, held))
    several = [group for group in groups.values() if len(group) > 1]
    if (found := arm_column([[[held] for _, held in group] for group in several], ())) is not None:
        item = several[0][1][0]
        raise told_apart(f"{item.file}, row {item.row}", *found, policy_field)
