"""Small files for ``cje-lab analyze``, and what it shows of them, for its tests."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from studies.cli.analysis.tables import summary

Cli = Callable[..., tuple[int, str, str]]
Frame = pd.DataFrame


def children_cpu() -> float:
    """CPU seconds of finished child processes: what a command costs, whatever else the machine does."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def world(
    n: int = 60, *, labels: int = 40, policies: tuple[str, ...] = ("base", "other"), seed: int = 3
) -> Frame:
    """Evaluation table: S on a grid, Y = S^2 plus noise; the first policy has labels."""
    rng = np.random.default_rng(seed)
    parts = []
    for k, policy in enumerate(policies):
        score = rng.integers(2, 10, n) / 10
        label = np.clip(score**2 + rng.normal(0, 0.05, n), 0, 1)
        label[labels if k == 0 else 0 :] = np.nan
        parts.append(
            Frame({"policy": policy, "prompt_id": range(n), "judge_score": score, "oracle_label": label})
        )
    return pd.concat(parts, ignore_index=True)


def probes(table: Frame, policy: str, m: int, shift: float) -> Frame:
    """Labels of the first m responses of a policy, off the relation by `shift`."""
    rows = table[table["policy"] == policy].head(m).copy()
    noise = np.random.default_rng(5).normal(0, 0.02, m)
    rows["oracle_label"] = np.clip(rows["judge_score"] ** 2 + shift + noise, 0, 1)
    return rows


def write(table: Frame, directory: Path, name: str = "{policy}_responses.jsonl") -> Path:
    """Write a table in the directory format."""
    directory.mkdir(parents=True, exist_ok=True)
    for policy, rows in table.groupby("policy", sort=False):
        records = rows.drop(columns="policy").to_dict("records")
        lines = [json.dumps({k: v for k, v in r.items() if v == v}) for r in records]
        (directory / name.format(policy=policy)).write_text("".join(line + "\n" for line in lines))
    return directory


def run_installed(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "studies", "analyze", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def printed(result: Any, width: int) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(summary(result))
    return capture.get()


def named_in_plot(result: Any, status: str) -> bool:
    """Whether a line of the forest plot carries the status as text."""
    return status in in_plot(result)


def in_plot(result: Any) -> str:
    """Numbers and words beside the lines of the forest plot."""
    from matplotlib.figure import Figure

    from studies.cli.analysis import forest

    figure = Figure()
    forest._draw(result, forest._lines(result), figure)
    return "\n".join(text.get_text() for text in figure.axes[0].texts)


def three_policies() -> Frame:
    """Responses of three policies to 400 prompts, some labelled under two of them."""
    rng, n = np.random.default_rng(5), 400
    frames = []
    for policy in ("a", "b", "c"):
        score = rng.beta(4, 2, n)
        label = np.where((rng.random(n) < 0.2) & (policy != "c"), np.round(score**2, 3), np.nan)
        frame = {"policy": policy, "prompt_id": np.arange(n), "judge_score": score, "oracle_label": label}
        frames.append(pd.DataFrame(frame))
    return pd.concat(frames, ignore_index=True)


def mixed() -> tuple[Frame, Frame]:
    """Both policies have labels, and other's are .3 below what the base policy teaches; so are its probes."""
    table = world(300, labels=150)
    at = table["policy"] == "other"
    lower = (table["judge_score"] ** 2 - 0.3).clip(0, 1)
    table.loc[at & (table["prompt_id"] >= 200), "oracle_label"] = lower
    return table, probes(table, "other", 100, -0.3)
