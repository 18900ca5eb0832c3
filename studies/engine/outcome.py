"""What one replicate of a study gives."""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy.typing as npt

from cje_core.inference.estimate import Status

NOT_RUN, CRASHED = -1, -2  # status codes of the runner, below those of cje_core.inference.estimate.Status
BROKEN = (CRASHED, int(Status.NOT_CONVERGED))  # the computation failed, which no rule of the method foresaw


@dataclass(frozen=True)
class Failure:
    """An exception inside one replicate, kept as data; that of a peer is a result and no error of the run."""

    stage: str
    error: str
    peer: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one replicate gives; M methods, P columns (policies, then contrasts), in the study's order.

    Parameters
    ----------
    estimate : array (M, P)
        NaN where a method has no number.
    truth : array (P,)
        The estimands' true values.
    std_error : array (M, P), optional
    interval : array (M, P, 2), optional
        NaN for a method without intervals.
    status : array (M, P), optional
        Codes of ``cje_core.inference.estimate.Status``; 0 (ok) by default.
    seconds : array (M,), optional
        Wall time of each method.
    extra : mapping name -> scalar, (P,) or (M, P)
        Diagnostics; the same names and shapes in every replicate.
    failures : sequence of Failure
        Exceptions that were caught; the rows they spoilt are NaN with status `CRASHED`.
    """

    estimate: npt.ArrayLike
    truth: npt.ArrayLike
    std_error: npt.ArrayLike | None = None
    interval: npt.ArrayLike | None = None
    status: npt.ArrayLike | None = None
    seconds: npt.ArrayLike | None = None
    extra: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    failures: Sequence[Failure] = ()


def describe(error: Exception) -> str:
    """One line for an exception: type, message, and where it was raised."""
    if isinstance(error, SyntaxError) and error.filename:  # its place is in a file that did not run
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename).name}:{error.lineno})"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"
