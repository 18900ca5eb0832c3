"""What ``analyze`` and ``plan`` read: a path in our own fields, or what a reader made of another tool's file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cje_core.io.fields import Foreign


def source_of(
    path: Path,
    judge: str | None,
    oracle: str | None,
    policy_field: str | None,
    prompt_field: str | None,
    scale: str | None,
    covariates: Sequence[str],
) -> "Path | Foreign":
    """Return the path itself, or the responses of another tool's file, with the scores that the options name."""
    from cje_core.data import DataError
    from cje_core.io.fields import LENGTH
    from cje_core.io.intake.foreign import Asked, foreign
    from cje_core.io.intake.grades import parsed_scale

    asked = Asked(LENGTH in covariates, policy_field, prompt_field, parsed_scale(scale) if scale else {})
    found = foreign(path, judge=judge, oracle=oracle, asked=asked)
    if found is not None:
        return found
    options = {
        "--judge": judge,
        "--oracle": oracle,
        "--policy-field": policy_field,
        "--prompt-field": prompt_field,
        "--scale": scale,
    }
    for option, value in options.items():
        if value is not None and path.exists():
            raise DataError(
                f"{option} {value}: {path} is no file of another tool that is known here; its fields are judge_score, "
                "oracle_label, policy and prompt_id: rename yours"
            )
    return path
