"""Many data sets of one shape: arrays with a leading replicate axis, for simulations.

A `Block` holds what a study needs of data sets in which every policy answers every prompt once, every response is
judged and evaluated, prompts are their own clusters, and no label is a probe. Labels teach wherever they are, as
`cje_core.data.build.from_arrays` has it by default.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows


@lru_cache(maxsize=8)
def prompt_names(n: int) -> tuple[npt.NDArray[np.str_], IntArray]:
    """Names "0", "1", ... in their order, and what sorts them."""
    names = np.arange(n).astype(str)
    order = np.argsort(names)
    return names[order], order


@dataclass(frozen=True, eq=False)
class Block:
    """R data sets of P policies and n prompts, named "0", "1", ... as `cje_core.data.build.from_arrays` names them."""

    policies: tuple[str, ...]
    score: FloatArray  # (R, P, n)
    label: FloatArray  # (R, P, n); NaN where no oracle label is visible
    label_prob: FloatArray  # (R, P, n)
    judge_range: tuple[float, float]
    oracle_range: tuple[float, float]

    @property
    def oracle_units(self) -> FloatArray:
        """Scores mapped affinely from ``judge_range`` to ``oracle_range``."""
        (low, high), (bottom, top) = self.judge_range, self.oracle_range
        return np.asarray(bottom + (self.score - low) / (high - low) * (top - bottom))

    def rows(self) -> Iterator[Rows]:
        """Each data set as `cje_core.data.arrays.unpack` lays out the labelled dataset of the same numbers."""
        _, n_policies, n = self.score.shape
        prompts, by_prompt = prompt_names(n)
        by_policy = np.argsort(np.array(self.policies))
        policies = [self.policies[p] for p in by_policy]
        policy, prompt = np.repeat(np.arange(n_policies), n), np.tile(np.arange(n), n_policies)
        yes, one = np.ones(n_policies * n, dtype=bool), np.ones(n_policies * n)
        at = by_policy[:, None], by_prompt
        for score, label, prob in zip(self.score, self.label, self.label_prob, strict=True):
            flat = score[at].ravel()
            of_row = label[at].ravel()
            labelled = np.isfinite(of_row)
            yield Rows(
                policies, prompts, np.arange(n), prompts, policy, prompt, flat, flat[:, None], of_row, labelled,
                ~yes, yes, one, prob[at].ravel(), labelled, prompt_order=by_prompt,
            )  # fmt: skip

    def without_idle(self, wanted: Collection[str]) -> "Block":
        """The block without policies that are neither wanted nor labelled in any data set: they say nothing."""
        labelled = np.asarray(np.isfinite(self.label).any(axis=(0, 2)))
        kept = [p for p, name in enumerate(self.policies) if name in wanted or labelled[p]]
        if len(kept) == len(self.policies):
            return self
        return replace(
            self,
            policies=tuple(self.policies[p] for p in kept),
            score=self.score.take(kept, axis=1),
            label=self.label.take(kept, axis=1),
            label_prob=self.label_prob.take(kept, axis=1),
        )
