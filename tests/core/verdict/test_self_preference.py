"""Names of models: which policy is the judge itself, and which is only called alike."""

import pytest

from cje_core.verdict.self_preference import own_judge, same_model


@pytest.mark.parametrize(
    ("judge", "policy", "same"),
    [
        ("gpt-4o-mini", "gpt-4o-mini", True),
        ("openai/gpt-4o-mini", "openai:chat:gpt-4o-mini-2024-07-18", True),
        ("gpt-4o-mini-2024-07-18", "GPT 4o mini, prompt B", True),
        ("claude-3.5-sonnet-20241022", "anthropic/claude-3.5-sonnet", True),
        ("claude-3.5-sonnet-latest", "claude-3.5-sonnet-terse", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-4o-mini", "gpt-4o", False),
        ("gpt-4", "gpt-4.1", False),
        ("claude-3-opus", "claude-3-haiku", False),
        ("llama-3-70b", "llama-3-8b", False),
        ("llama-3", "llama-3-8b", False),
        ("gpt-4o", "base", False),
        ("", "base", False),
        ("judge", "base", False),
    ],
)
def test_names_of_one_model(judge, policy, same):
    assert same_model(judge, policy) is same


def test_no_name_no_warning():
    assert own_judge(None, ["gpt-4o"]) == []
