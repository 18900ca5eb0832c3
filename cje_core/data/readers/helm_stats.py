"""Statistics of each instance of HELM (``per_instance_stats.json``): a run is a policy on a scenario.

``run_spec.json`` beside it names the model, and the settings of the adapter in which runs of one model differ; without
it the name of the run's directory does. An instance is a prompt and its training trials are draws. A metric counts by
its mean over the outputs of an instance. Perturbed instances, which HELM reports apart, and counts of tokens, times and
indices are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cje_core.data.errors import DataError
from cje_core.data.fields import line, show
from cje_core.data.intake.foreign import (
    UNUSABLE,
    Aggregate,
    Asked,
    Contents,
    Item,
    field_of,
    named_by,
    text_of,
)
from cje_core.data.intake.grades import number
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import Run, arms, repeated, setting

TITLE = "statistics of HELM by instance"
ROLES = {
    "policy": "`adapter_spec.model` of run_spec.json, with the adapter's settings where runs of one model differ",
    "prompt": "`instance_id`, after the scenario where there are several",
    "draw": "`train_trial_index`",
    "scores": "`stats`: mean of each metric by its name",
    "left out": "perturbed instances; tokens, times, indices and reasons to finish",
}
# What HELM writes of each instance beside its metrics.
BESIDE = {"num_references", "num_train_trials", "num_train_instances", "num_prompt_tokens", "num_completion_tokens",
          "num_output_tokens", "num_perplexity_tokens", "num_bytes", "training_co2_cost", "training_energy_cost",
          "inference_runtime", "inference_denoised_runtime", "inference_idealized_runtime", "batch_size", "max_prob",
          "predicted_index", "prompt_truncated", "logprob"}  # fmt: skip
FINISH = "finish_reason_"
MODEL = re.compile(r"(?:^|[:,])model=([^,]+)")  # in the name of a run
NO_ARM = {"model", "max_eval_instances"}  # of an adapter's settings


class Log(NamedTuple):
    """A run: where it lies, what it was, and its instances with their rows."""

    path: Path
    run: Run
    instances: list[tuple[int, dict[str, Any]]]

    @property
    def splits(self) -> set[str]:
        """Splits that the instances are of."""
        return {
            text_of(stat["name"].get("split") or "") for _, held in self.instances for stat in held["stats"]
        }


def knows(file: File) -> bool:
    """Return whether a record holds the statistics of an instance."""
    return {"instance_id", "stats"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each instance and trial, with the means of all metrics."""
    logs = [Log(file.path, _run(file.path), list(_instances(file))) for file in files]
    policies, differ = arms([log.run for log in logs])
    several = len({log.run.task for log in logs}) > 1
    field = asked.policy or "model of run_spec.json" + "".join(f" and {name}" for name in differ)
    items: dict[tuple[str, str, int], Item] = {}
    notes = []
    for log, arm in zip(logs, policies, strict=True):
        path, task = log.path, f"{log.run.task}/" * several
        places = [_json(path.parent / "run_spec.json"), log.run.settings]
        policy = named_by(asked.policy, places, str(path), "policy") if asked.policy else arm
        own: dict[tuple[str, str, int], Item] = {}
        for row, held in log.instances:
            item = _item(path, row, held, policy, task, asked)
            key = policy, item.prompt, item.draw
            if key in items:
                raise repeated(item, items[key], field)
            own[key] = _joined(own[key], item) if key in own else item
        items |= own
        if len(log.splits) > 1:
            notes.append((str(path), f"{CAUTION}splits {', '.join(sorted(log.splits))} are read together"))
    names = {_name(stat) for log in logs for _, held in log.instances for stat in held["stats"]}
    if beside := sorted(name for name in names if _is_beside(name)):
        notes.append((str(logs[0].path), f"{line(', '.join(beside), 120)} are no grades"))
    roles = {"policy": field, "prompt": asked.prompt or "instance_id", "draw": "train_trial_index"}
    return Contents(list(items.values()), roles, notes, [one for log in logs for one in _aggregates(log)])


def _json(path: Path) -> dict[str, Any]:
    """Object of a file beside the statistics; empty where there is none."""
    held = File(path).document if path.is_file() else {}
    return held if isinstance(held, dict) else {}


def _run(path: Path) -> Run:
    """Model, scenario and settings of the run whose directory the file lies in."""
    name = path.resolve().parent.name
    spec = _json(path.parent / "run_spec.json")
    adapter = spec.get("adapter_spec")
    if not isinstance(adapter, dict) or not adapter.get("model"):
        match = MODEL.search(name)
        return Run(match[1] if match else name, MODEL.sub("", name) if match else "", {})
    arguments = field_of(spec, "scenario_spec.args")
    held = arguments.items() if isinstance(arguments, dict) else ()
    task = text_of(spec.get("name") or name).partition(":")[0]
    task += "".join(f"{',' if k else ':'}{key}={value}" for k, (key, value) in enumerate(sorted(held)))
    settings = {key: setting(value) for key, value in adapter.items() if key not in NO_ARM}
    return Run(text_of(adapter["model"]), task, settings)


def _instances(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, held in rows_of(file.path):
        where, stats = f"{file.path}, instance {row}", held.get("stats")
        if held.get("instance_id") is None:
            raise DataError(f"{where}: instance_id is missing; every instance has one")
        if not isinstance(stats, list):
            raise DataError(f"{where}: stats is {show(stats)}; HELM writes a list of statistics")
        for stat in stats:
            if not isinstance(stat, dict) or not field_of(stat, "name.name"):
                raise DataError(f"{where}: a statistic without a name ({show(stat)}); give what HELM wrote")
        yield row, held


def _name(stat: Mapping[str, Any]) -> str:
    return text_of(stat["name"]["name"])


def _is_beside(name: str) -> bool:
    return name in BESIDE or name.startswith(FINISH)


def _item(path: Path, row: int, held: dict[str, Any], policy: str, task: str, asked: Asked) -> Item:
    """Response of an instance; its statistics may lie in several records, one for each of HELM's metrics."""
    where, trial = f"{path}, instance {row}", held.get("train_trial_index", 0)
    if not isinstance(trial, int) or isinstance(trial, bool) or trial < 0:
        raise DataError(f"{where}: train_trial_index is {show(trial)}; HELM counts it from 0")
    prompt = task + (
        named_by(asked.prompt, [held], where, "prompt") if asked.prompt else text_of(held["instance_id"])
    )
    perturbed = held.get("perturbation")
    if perturbed:
        prompt += f", {line(setting(perturbed), 200)}"
    scores: dict[str, Any] = {}
    for stat in held["stats"]:
        name = _name(stat)
        if _is_beside(name):
            continue
        if name in scores:
            raise DataError(f"{where}: {name} occurs twice in its stats; keep one")
        scores[name] = _mean(stat)
    why = f"{UNUSABLE}the instance is perturbed, which HELM reports apart" if perturbed else ""
    return Item(str(path), row, policy, prompt, scores, trial, why=why)


def _mean(stat: Mapping[str, Any]) -> Any:
    """Mean of a statistic; none where it counts nothing, and its sum by its count where it has no mean."""
    count = number(stat.get("count"))
    if count == 0:
        return None
    if stat.get("mean") is not None:
        return stat["mean"]
    total = number(stat.get("sum"))
    return None if total is None or count is None else total / count


def _joined(before: Item, item: Item) -> Item:
    for name in item.scores.keys() & before.scores.keys():
        if item.scores[name] != before.scores[name]:
            raise DataError(
                f"{item.file}, instance {item.row}: {name} of {show(item.prompt)} is {show(item.scores[name])}, and "
                f"{show(before.scores[name])} in instance {before.row}; keep one"
            )
    return before._replace(scores={**before.scores, **item.scores})


def _aggregates(log: Log) -> Iterator[Aggregate]:
    """Means in stats.json beside it, where the instances are of one split."""
    path = log.path.parent / "stats.json"
    held = File(path).document if path.is_file() and len(log.splits) == 1 else []
    for stat in held if isinstance(held, list) else []:
        named = stat.get("name") if isinstance(stat, dict) else None
        if not isinstance(named, dict) or named.get("perturbation") or named.get("sub_split"):
            continue
        if text_of(named.get("split") or "") in log.splits and (mean := number(stat.get("mean"))) is not None:
            yield Aggregate(str(log.path), text_of(named.get("name")), "mean in stats.json", mean)
