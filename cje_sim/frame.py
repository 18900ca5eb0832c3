"""Keywords that all worlds share: what `help` shows of them, and what they may be."""

import inspect
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from cje_sim.labelling import LabelDesign


class Keyword(NamedTuple):
    """A keyword of the frame: what `help` shows of it."""

    kind: Any
    default: Any
    text: str


FRAME = {
    "n": Keyword(int, 1000, "Prompts; every policy answers each."),
    "oracle_fraction": Keyword(float, 0.25, "Share of prompts with oracle labels."),
    "label_design": Keyword(LabelDesign, "own", "Labels under every policy, or under the base policy only."),
    "label_scheme": Keyword(
        str, "uniform", "Which prompts are labelled, one of `cje_sim.labelling.SCHEMES`."
    ),
    "n_probes": Keyword(int, 0, "Labels of each policy but the base that audit and never teach."),
    "spread": Keyword(float, 0.9, "Half width of the labels' noise, see `cje_sim.judges.draw_oracle`."),
    "atoms": Keyword(float, 0.05, "Share of labels at 0 and 1."),
    "prompt_corr": Keyword(float, 0.3, "Correlation, on the normal scale, of responses to one prompt."),
    "rng": Keyword(np.random.Generator | int | None, None, "Source of randomness."),
}
LABELS = ("oracle_fraction", "label_design", "label_scheme", "n_probes")  # the fields of `Labelling`
BEFORE = ("n", *LABELS)  # what stands before the law's own keywords


def refuse(n: int, prompt_corr: float = 0.0, *, spread: float = 0.0, atoms: float = 0.0) -> None:
    """Raise the `ValueError` of a setting that no world can have; `cje_sim.labelling.Labelling` has those of labels.

    Examples
    --------
    >>> refuse(-5)
    Traceback (most recent call last):
    ValueError: n=-5: a world has a whole number of prompts, at least 1
    """
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n={n}: a world has a whole number of prompts, at least 1")
    for name, value in {"prompt_corr": prompt_corr, "spread": spread, "atoms": atoms}.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value}: it must lie in [0, 1]")


def described(parameter: inspect.Parameter) -> str:
    """What `help` says of a keyword of the frame."""
    private = (
        f"{np.random.Generator.__module__}."  # where NumPy keeps it, which is no place to import it from
    )
    kind = inspect.formatannotation(parameter.annotation).replace(private, "")
    return f"{parameter.name} : {kind}\n    {FRAME[parameter.name].text}"
