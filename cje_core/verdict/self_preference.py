"""Policies that are the judge's own model, by their names: a model may prefer its own answers.

A calibration learned on other policies then need not transport to it (the paper's paragraph on the judge-policy
confound, where GPT-4o-mini as judge of itself had a mean residual of -.065). Names cannot prove it, so this warns and
refuses nothing: the transport audit decides.
"""

import re
from collections.abc import Iterable

# Words after a model's name that make another model of it; sizes (70b) and version numbers do too.
VARIANTS = frozenset(
    {
        *(
            "air",
            "distill",
            "flash",
            "haiku",
            "large",
            "lite",
            "max",
            "medium",
            "micro",
            "mini",
            "nano",
            "opus",
        ),
        *("plus", "pro", "small", "sonnet", "thinking", "tiny", "turbo", "ultra", "xl", "xs"),
    }
)
SIZE = re.compile(r"\d+(\.\d+)?[bmk]|\d{1,3}|v\d+")
RELEASE = re.compile(r"\d{4,}|latest|preview|exp")


def same_model(judge: str, policy: str) -> bool:
    """Whether a policy's name holds the judge's model: with another provider, release date or prompt it still does.

    Examples
    --------
    >>> same_model("openai/gpt-4o-mini-2024-07-18", "gpt-4o-mini")
    True
    >>> same_model("gpt-4o", "gpt-4o-short-prompt"), same_model("gpt-4o", "gpt-4o-mini")
    (True, False)
    """
    model, words = _model(judge), _words(policy)
    n = len(model)
    return n > 0 and any(
        words[i : i + n] == model and not (words[i + n : i + n + 1] and _another(words[i + n]))
        for i in range(len(words) - n + 1)
    )


def own_judge(judge: str | None, policies: Iterable[str]) -> list[str]:
    """Policies that are the judge's model; none where the judge's name is not known.

    Examples
    --------
    >>> own_judge("gpt-4o-mini", ["base", "gpt-4o-mini", "gpt-4o"]), own_judge(None, ["base"])
    (['gpt-4o-mini'], [])
    """
    return [policy for policy in policies if judge is not None and same_model(judge, policy)]


def model_of_score(name: str | None) -> str | None:
    """The judge's model where its score is named after it: a name with a number in it, as models have; else None.

    Examples
    --------
    >>> model_of_score("gpt-4o-mini"), model_of_score("accuracy"), model_of_score("q*")
    ('gpt-4o-mini', None, None)
    """
    told = name is not None and "*" not in name and any(letter.isdigit() for letter in name)
    return name if told else None


def _words(name: str) -> list[str]:
    """Words of a name without its provider, in small letters; a point belongs to a number, as in 3.5."""
    return re.findall(r"[a-z]*\d+(?:\.\d+)?[a-z]*|[a-z]+", re.split(r"[/:]", name.casefold())[-1])


def _model(name: str) -> list[str]:
    """Words of a model without its release: what follows the first date."""
    words = _words(name)
    ends = [i for i, word in enumerate(words) if i and RELEASE.fullmatch(word)]
    return words[: ends[0]] if ends else words


def _another(word: str) -> bool:
    return word in VARIANTS or SIZE.fullmatch(word) is not None
