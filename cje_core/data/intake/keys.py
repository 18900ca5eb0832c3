"""Name the prompt of a response by its text, and find the column that tells two responses of one prompt apart."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cje_core.data.errors import DataError
from cje_core.data.fields import CONTROL, line

# Fields that tell one response of a prompt from another as a draw, and those that never name an arm.
DRAW = {"draw_idx", "draw", "epoch", "repetition", "repeat", "attempt", "trial", "sample", "seed"}
NO_ARM = {"id", "comment", "explanation", "timestamp", "created_at", "updated_at", "createdAt", "updatedAt", "latency",
          "cost", "total_cost", "input", "output", "response", "trace_name", "traceName", "name", "modified_at",
          "start_time", "end_time", "environment"}  # fmt: skip
MOST_ARMS = 20
SHORT = 40  # letters of an arm's name, where one prompt alone could tell a name from a text
# A grade of two draws that says 0 and 1 in this order in four prompts has a probability of two in 4**4 by chance.
FEW_PROMPTS = 4
# Variables that a run fills in: they differ between responses to one prompt. In `plain` spelling.
FILLED = {"sessionid", "conversationid", "timestamp", "requestid", "traceid", "evaluationid"}
LONGEST, HEAD = 80, 48  # letters of a text that names its prompt itself, and of one that is cut
DIGITS = 10  # hexadecimal; a million texts share such a number with probability below one half


def plain(name: str) -> str:
    """Return a name in lower case without underscores.

    Examples
    --------
    >>> plain("session_Id")
    'sessionid'
    """
    return name.lower().replace("_", "")


def prompt_name(value: Any) -> str:
    r"""Return the id of a prompt that is known by its text: the text, or its beginning and a number made of all of it.

    Objects, also as text, are compared without the variables that a run fills in.

    Examples
    --------
    >>> prompt_name("What is 2 + 2?"), prompt_name({"q": "Why?", "session_id": "s1"})
    ('What is 2 + 2?', '{"q": "Why?"}')
    >>> prompt_name("one line\nand another")
    'one line and another #946a9e4a12'
    """
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict):
        value = {name: held for name, held in value.items() if plain(str(name)) not in FILLED} or value
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(text) <= LONGEST and text == text.strip() and not CONTROL.search(text):
        return text
    number = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
    return f"{CONTROL.sub(' ', ' '.join(text.split()))[:HEAD].rstrip()} #{number}"


def arm_column(
    groups: Sequence[Sequence[Sequence[Mapping[str, Any]]]],
    used: Collection[str],
    grades: Collection[str] = (),
) -> tuple[str, list[str]] | None:
    """Return a column of few values that differs between all responses of each prompt, and its values.

    Parameters
    ----------
    groups : sequence
        Of each policy and prompt with several responses, the rows of each response.
    used : collection of str
        Columns that have another meaning, also as the last part of ``object.field``.
    grades : collection of str
        Columns of numbers that may be grades, or settings of an arm such as its temperature: these have the same
        values in the same order at every prompt.

    Returns
    -------
    tuple of str and list, or None
        Such a column may name an arm that was taken for a draw.
    """
    n_responses = sum(map(len, groups))
    passed = {*used, *DRAW, *NO_ARM}
    for name in dict.fromkeys(name for group in groups for own in group for row in own for name in row):
        if name in passed or name.rpartition(".")[2] in passed or plain(name) in FILLED:
            continue
        values: set[str] = set()
        for group in groups:
            of_group = [{_scalar(row.get(name)) for row in own} for own in group]
            distinct = {next(iter(one)) for one in of_group if len(one) == 1} - {None}
            values |= {value for value in distinct if value is not None}
            if len(distinct) < len(group) or len(values) > MOST_ARMS:
                break
        else:
            # A column that differs in every response of many prompts is one of their texts.
            one = len(groups) == 1 and max(map(len, values)) <= SHORT
            if name in grades:
                orders = {tuple(_scalar(own[0].get(name)) for own in group) for group in groups}
                if len(orders) > 1 or len(groups) < FEW_PROMPTS:
                    continue
            elif not one and len(values) >= n_responses:
                continue
            return name, sorted(values)
    return None


def told_apart(where: str, name: str, values: Sequence[str], policy_field: str) -> DataError:
    """Error of responses of one policy and prompt that a field tells apart."""
    return DataError(
        f"{where}: {name} tells responses of one policy and prompt apart ({line(', '.join(values), 80)}): name the "
        f"policy with policy_field={name}, or with policy_field={policy_field} if they are its draws"
    )


def _scalar(value: Any) -> str | None:
    return None if value is None or value == "" or isinstance(value, dict | list) else str(value)
