"""Slips that are legal: draws numbered over all rows, and names that differ by case or blanks alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cje_core.io.fields import show
from cje_core.io.intake.names import CAUTION, alike

# A cell for each policy, prompt and draw: beyond this many for each row, and in all, draws are counted anew.
SPARSE, FEW_CELLS = 8, 100_000
RENUMBERED = (
    f"{CAUTION}draw_idx counts on over prompts: draws are numbered anew within each policy and prompt"
)


def few_draws(draw: npt.NDArray[Any], policy: Any, prompt: Any) -> npt.NDArray[np.intp] | None:
    """Draws counted from 0 within each policy and prompt, where their numbers would blow arrays up, else None.

    A counter over all rows gives every row a draw of its own, and arrays by policy, prompt and draw as many cells as
    the square of the rows. Which number a draw has matters to nothing but the order of its prompt's draws.
    """
    names = [pd.factorize(values)[0] for values in (policy, prompt)]
    n_draws = len(np.unique(draw))
    key = names[0].astype(np.int64) * (names[1].max(initial=0) + 1) + names[1]
    most = int(np.unique(key, return_counts=True)[1].max(initial=1))
    cells = n_draws * (names[0].max(initial=0) + 1) * (names[1].max(initial=0) + 1)
    if n_draws <= most or cells <= max(SPARSE * len(draw), FEW_CELLS):
        return None
    order = np.lexsort((draw, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    counted = np.empty(len(draw), dtype=np.intp)
    counted[order] = np.arange(len(draw)) - np.repeat(starts, np.diff(np.append(starts, len(draw))))
    return counted


def alike_names(policies: Sequence[str], prompts: Any, path: Path) -> list[tuple[Path, str]]:
    """Names that differ by case or blanks alone: legal, and more often a slip."""
    # Most ids have neither capitals nor blanks, and need no look at each.
    letters = np.frombuffer(prompts.buffers()[2] or b"", np.uint8)
    odd = (letters <= 0x20) | (letters >= 0x80) | ((letters >= 0x41) & (letters <= 0x5A))
    prompts = prompts.to_pylist() if odd.any() else []
    found = []
    for what, names in (("policies", policies), ("prompt_ids", prompts)):
        pair = alike(names)
        if pair is not None:
            # ids of prompts may be secret, and what is said here goes into every output
            named = f"{what} {show(pair[0])} and {show(pair[1])}" if what == "policies" else f"two {what}"
            words = f"{CAUTION}{named} differ by case or blanks alone"
            found.append((path, f"{words}: give them one name if they are one"))
    return found
