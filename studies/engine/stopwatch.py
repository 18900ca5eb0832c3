"""CPU seconds and memory of one function, in this process or in one of its own.

Only the standard library: an interpreter that has a peer, and nothing that this project needs, imports it. A process of
its own gives each contender its own memory, its own libraries and its own warm-up; it times a lap when it is asked for
one, so that the laps of several contenders can take turns.
"""

import atexit
import contextlib
import importlib.util
import inspect
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TextIO

LONG = 5.0  # CPU seconds: a call of this length that found out how many make a lap is the first lap
TIME_TO_END = 5.0  # seconds that a process has to end by itself
ROOT = str(Path(__file__).parents[2])
# At the end of the path: what an interpreter has itself comes first.
BOOT = (
    "import importlib, sys; sys.path.append(sys.argv[1]); "
    "getattr(importlib.import_module(sys.argv[3]), sys.argv[4])()"
)
# One thread each: CPU seconds of idle threads that spin are nobody's work.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
Call = Callable[[], object]


class Fresh(NamedTuple):
    """Work on new data in every call, so that no cache of the last call's results can serve it."""

    draw: Callable[[], Any]  # makes the data of a call; not timed
    work: Callable[[Any], Any]  # what is timed
    amount: Callable[[Any], float] | None = None  # units of work in its result; default: those of the case


class ContenderError(RuntimeError):
    """A contender that did not run; the last line is that of its exception."""


def spent() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def memory() -> tuple[float, float]:
    """Resident memory of this process, now and at most, in MB; of its largest child, where that took more.

    What `getrusage` says of itself begins with what the parent had when it started this process, so the kernel's
    own record is read where there is one.
    """
    unit = 2**20 if sys.platform == "darwin" else 2**10
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / unit
    status = Path("/proc/self/status")
    if not status.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        return peak, max(peak, children)
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    now, peak = (int(fields[name].split()[0]) / 2**10 for name in ("VmRSS", "VmHWM"))
    return now, max(peak, children)


def scratch() -> Path:
    """Return a new directory that goes with the process."""
    directory = tempfile.mkdtemp(prefix="cje-lab-bench-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


class Stopwatch:
    """Laps of a call: one warm-up, then as many calls a lap as take `least` CPU seconds."""

    def __init__(self, call: Call | Fresh, least: float) -> None:
        self.call, self.calls, self.least = call, 1, least
        self.before, self.first, self.amount = memory()[0], 0.0, 0.0
        self._held: float | None = None

    def warm(self) -> None:
        """Call once, and find out how many calls make a lap."""
        self.first = self._timed()
        while self.least:
            if (seconds := self._timed()) >= self.least:
                self._held = seconds if seconds > LONG else None
                break
            self.calls = math.ceil(self.calls * min(10, 1.2 * self.least / max(seconds, 1e-9)))

    def _timed(self) -> float:
        if isinstance(self.call, Fresh):
            return self._timed_fresh(*self.call)
        start = spent()
        for _ in range(self.calls):
            self.call()
        return spent() - start

    def _timed_fresh(
        self, draw: Callable[[], Any], work: Callable[[Any], Any], amount: Callable[[Any], float] | None
    ) -> float:
        total, self.amount = 0.0, 0.0
        for _ in range(self.calls):
            data = draw()
            start = spent()
            result = work(data)
            total += spent() - start
            self.amount += amount(result) / self.calls if amount else 0.0
        return total

    def lap(self) -> dict[str, float]:
        """CPU seconds of a call, the units of work in it (0 where it does not count them), and what all calls took."""
        total = self._timed() if self._held is None else self._held
        self._held = None
        told = {"first": self.first, "calls": self.calls, "before_mb": self.before, "peak_mb": memory()[1]}
        return {"seconds": total / self.calls, "total": total, "amount": self.amount, **told}

    def close(self) -> None:
        """Let go of what the call holds."""
        del self.call


def replies() -> TextIO:
    """Return the standard output that the process came with; whatever a library prints from now on goes to stderr."""
    reply = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return reply


def module_of(file: str) -> ModuleType:
    """Import a file by its path."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve() -> None:
    """Prepare the contender that the arguments name, and time a lap for each line on stdin."""
    reply = replies()
    file, function, options, least = json.loads(sys.argv[2])
    watch = Stopwatch(getattr(module_of(file), function)(**options), least)
    watch.warm()
    print("ready", file=reply, flush=True)
    for _ in sys.stdin:
        print(json.dumps(watch.lap()), file=reply, flush=True)


class Companion:
    """A process of another interpreter, or of this one, that answers lines with lines.

    Its server is a function of a light module of this project: it writes to what `replies` gives it, and ends with its
    stdin.
    """

    def __init__(self, python: str, server: Callable[[], None], words: Any) -> None:
        # read if the process fails; open as long as the process
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        own = python == sys.executable  # another interpreter has libraries of its own
        kept = {name: value for name, value in os.environ.items() if own or name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, "-c", BOOT, ROOT, json.dumps(words), server.__module__, server.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=kept | ONE_THREAD,
        )

    def read(self, limit: float | None = None) -> str:
        """Next line; one that takes more than `limit` seconds ends the process, and that is what is raised."""
        assert self._process.stdout is not None
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            self._process.kill()

        late = threading.Timer(limit, stop) if limit else None
        if late is not None:
            late.start()
        line = self._process.stdout.readline()
        if late is not None:
            late.cancel()
        if not line:
            self._process.wait()
            if stopped.is_set():
                raise ContenderError(f"no answer in {limit:g} seconds")
            self._said.seek(0)
            raise ContenderError(self._said.read().strip() or "it ended without a word")
        return line

    def send(self, line: str = "") -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: the reply says why
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process, in the middle of a call if need be."""
        try:
            self._process.communicate(timeout=TIME_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._said.close()


class Elsewhere:
    """The same laps, timed by a process of another interpreter, or of this one."""

    def __init__(
        self, python: str, prepare: Callable[..., Call | Fresh], options: Mapping[str, Any], least: float
    ) -> None:
        words = [inspect.getfile(prepare), prepare.__name__, dict(options), least]
        self._companion = Companion(python, serve, words)

    def warm(self) -> None:
        """Wait until it has prepared and done what `Stopwatch.warm` does."""
        self._companion.read()

    def lap(self) -> dict[str, float]:
        """As `Stopwatch.lap`."""
        self._companion.send()
        return dict(json.loads(self._companion.read()))

    def close(self) -> None:
        """End the process, in the middle of a call if need be."""
        self._companion.close()
