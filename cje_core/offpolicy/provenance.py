"""Does the name of a model, template or tokenizer pin what it names? A log-likelihood holds for one snapshot only.

A name pins its content if it holds a digest of it (at least seven hexadecimal digits, one of them a decimal digit, or
``sha256:...`` and its kin), whatever else it says. It pins a release that is not to change if it holds a date
(``gpt-4o-2024-08-06``, ``claude-opus-4-20250514``, ``gpt-4-0613``) and no word that says that it moves. All else is an
alias, which may name other weights tomorrow: ``gpt-4o``, ``latest``, ``llama-3.1-70b``, ``release-2``. A date is the
promise of whoever serves the model; only a digest can be checked.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOVING = ("latest", "main", "master", "head", "current", "newest", "nightly", "stable", "rolling", "default")
DIGEST = re.compile(
    r"(?:sha\d+|md5|blake\w+)[:-][\w+/=-]{6,}|(?<![0-9a-z])(?=[a-f]*\d)[0-9a-f]{7,128}(?![0-9a-z])",
    re.IGNORECASE,
)
_MONTH_DAY = r"(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])"
DATE = re.compile(rf"(?<!\d)20\d\d-?{_MONTH_DAY}(?!\d)|(?<=[-@_]){_MONTH_DAY}(?![\w.])")
# Keys of a configuration whose values name what was run.
NAMES_A_MODEL = re.compile(
    r"model|checkpoint|snapshot|revision|hash|digest|weights|engine|commit", re.IGNORECASE
)


def pinned(name: str | None) -> bool:
    """Whether a name pins what it names; a missing or empty one does not.

    Examples
    --------
    >>> [pinned(name) for name in ("gpt-4o-2024-08-06", "gpt-4-0613", "org/model@5f0b02c75b57", "sha256:9f86d081884c")]
    [True, True, True, True]
    >>> [pinned(name) for name in ("gpt-4o", "gpt-4o-latest", "2024-08-06-latest", "llama-3.1-70b", "", None)]
    [False, False, False, False, False, False]
    """
    if not name:
        return False
    if any(not DATE.fullmatch(found) for found in DIGEST.findall(name)):
        return True
    moves = set(re.split(r"[^a-z]+", name.lower())) & set(MOVING)
    return DATE.search(name) is not None and not moves


def named(configuration: Any) -> str | None:
    """What a configuration says of the model that ran: the values under keys that name one, ``key=value``, sorted.

    None where it says nothing. Seeds and decoding parameters are no part of it.

    Examples
    --------
    >>> named({"engine": "vllm", "seed": 3, "weights": {"checkpoint_hash": "5f0b02c75b57"}})
    'engine=vllm, weights.checkpoint_hash=5f0b02c75b57'
    """
    if isinstance(configuration, str):
        return configuration or None
    if not isinstance(configuration, Mapping):
        return None
    found = sorted(f"{key}={value}" for key, value in _leaves(configuration, "") if NAMES_A_MODEL.search(key))
    return ", ".join(found) or None


def _leaves(configuration: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in configuration.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value
