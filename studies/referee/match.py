"""One replicate of a study with peers: our estimators as always, then each peer on the same data.

A process of a worker lives as long as the worker and answers all its replicates, so that a peer's imports are paid
once. A peer that raises, ends its process, takes too long or gives something else than an estimate and an interval has
no number in that replicate, and what happened is kept; the others go on.
"""

import atexit
import functools
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cje_core.checks import FloatArray
from cje_core.data.block import Block
from cje_core.streams import Cell, Streams
from studies.engine.outcome import CRASHED, Failure, Outcome
from studies.engine.running.interpreters import place
from studies.engine.scenario import replicate_scenario, world_of
from studies.engine.stopwatch import Companion, ContenderError
from studies.engine.study import Method, Study
from studies.referee.calls import serve

LIMIT = 60.0  # seconds that a peer has for one answer


class Interpreter:
    """The process of one interpreter, begun anew after it has ended."""

    def __init__(self, python: str) -> None:
        self.python = python
        self._companion: Companion | None = None
        atexit.register(self.close)

    def ask(self, method: Method, sample: Mapping[str, Any], limit: float = LIMIT) -> dict[str, Any]:
        """Answer or error of a peer's function, and the seconds of the call."""
        if self._companion is None:
            self._companion = Companion(self.python, serve, [])
        call: Any = method.estimator
        self._companion.send(json.dumps([inspect.getfile(call), call.__name__, sample]))
        try:
            return dict(json.loads(self._companion.read(limit)))
        except ContenderError as error:
            self.close()
            return {"error": f"its process ended: {str(error).splitlines()[-1]}", "seconds": np.nan}

    def close(self) -> None:
        """End the process."""
        if self._companion is not None:
            self._companion.close()
            self._companion = None


@functools.cache
def interpreter(python: str) -> Interpreter:
    """Return the process of an interpreter, one for each process of ours."""
    return Interpreter(python)


def sample_of(block: Block, policy: int, seed: int) -> dict[str, Any]:
    """What a peer is given of a policy, fields of `studies.referee.calls.Sample`, JSON values.

    A policy without labels is given those of the first one that has some.
    """
    score, label = block.oracle_units[0], block.label[0]
    known = np.isfinite(label)
    lent = not known[policy].any()
    source = int(np.flatnonzero(known.any(axis=1))[0]) if lent else policy
    of_source = known[source]
    rest = score[policy] if lent else score[policy][~of_source]
    fields: dict[str, FloatArray] = {
        "label": label[source][of_source],
        "score": score[source][of_source],
        "rest": rest,
        "other": score[source][~of_source] if lent else np.empty(0),
    }
    return {**{name: array.tolist() for name, array in fields.items()}, "lent": lent, "seed": seed}


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One replicate; rows of a peer that no interpreter has are `NOT_RUN`."""
    outcome = replicate_scenario(study, cell, streams)
    setting = study.setting(study, cell)
    found = {
        name: place(method.package)
        for name, method in study.methods.items()
        if method.package
        and name in setting.methods
        and streams.replicate < method.options.get("replicates", np.inf)  # of a slow one the first so many
    }
    if not any(found.values()):
        return outcome
    block = world_of(setting.scenario).simulate.block([streams("data")], **setting.arguments)
    rows = [np.array(x) for x in (outcome.estimate, outcome.interval, outcome.status, outcome.seconds)]
    estimate, interval, status, seconds = rows
    failures = list(outcome.failures)
    for m, (name, method) in enumerate(study.methods.items()):
        where = found.get(name)
        if where is None:
            continue
        taken = 0.0
        for p, policy in enumerate(setting.policies):
            seed = int(streams(name).integers(2**31))
            sample = sample_of(block, block.policies.index(policy), seed)
            told = interpreter(where[0]).ask(method, sample)
            taken += told["seconds"]
            if "error" in told:
                status[m, p] = CRASHED
                failures.append(Failure(name, told["error"], peer=True))
                continue
            estimate[m, p], *interval[m, p] = told["answer"]
            status[m, p] = 0
        seconds[m] = taken
    return replace(
        outcome, estimate=estimate, interval=interval, status=status, seconds=seconds, failures=failures
    )
