"""Pilots that are legal and as bad as can be, as tables: what `analyze` and `plan` must say the same of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cje_core.calibration.calibrated import Calibration

N = 120  # prompts

Floats = np.ndarray


class World(NamedTuple):
    """What a workflow is given, beside the money."""

    table: pd.DataFrame
    options: dict[str, Any]  # probes among them


def straight(score: Floats, rng: np.random.Generator) -> Floats:
    """Labels that rise with the judge."""
    return np.clip(0.1 + 0.8 * score + rng.normal(0, 0.1, len(score)), 0, 1)


def table(
    labels: dict[str, int],
    *,
    relation: Callable[[Floats, np.random.Generator], Floats] | dict[str, Any] = straight,
    score: Callable[[str, np.random.Generator], Floats] | None = None,
    n: int = N,
    seed: int = 1,
) -> pd.DataFrame:
    """Responses of each policy to n prompts; the first of them, as many as `labels` says, labelled."""
    rng = np.random.default_rng(seed)
    parts = []
    for policy, m in labels.items():
        judged = rng.random(n) if score is None else score(policy, rng)
        told = relation[policy] if isinstance(relation, dict) else relation
        label = np.where(np.arange(n) < m, told(judged, rng), np.nan)
        columns = {"policy": policy, "prompt_id": [f"q{i:03d}" for i in range(n)]}
        parts.append(pd.DataFrame(columns | {"judge_score": judged, "oracle_label": label}))
    return pd.concat(parts, ignore_index=True)


def probed(responses: pd.DataFrame, policy: str, m: int, label: Any) -> pd.DataFrame:
    """Probes on the last m responses of a policy: one label for all, or what a function makes of their scores."""
    rows = responses[responses["policy"] == policy].tail(m).copy()
    values = label(rows["judge_score"].to_numpy(), np.random.default_rng(7)) if callable(label) else label
    return rows.assign(oracle_label=values)


def binary(share: float) -> Callable[[Floats, np.random.Generator], Floats]:
    """Labels 0 and 1, of this mean, more of them 1 where the judge is high."""
    return lambda s, rng: (rng.random(len(s)) < share * 2 * s).astype(float)


def equal(value: float) -> Callable[[Floats, np.random.Generator], Floats]:
    """The same label for all."""
    return lambda s, rng: np.full(len(s), value)


def noise(s: Floats, rng: np.random.Generator) -> Floats:
    """Labels that the judge knows nothing of."""
    return rng.random(len(s))


def falling(s: Floats, rng: np.random.Generator) -> Floats:
    """Labels that fall as the judge rises, seen by a declared direction."""
    return straight(1 - s, rng)


def shifted(s: Floats, rng: np.random.Generator) -> Floats:
    """Labels .4 below what the judge is worth elsewhere."""
    return np.clip(straight(s, rng) - 0.4, 0, 1)


def level_off(s: Floats, rng: np.random.Generator) -> Floats:
    """Labels that rise over the lower half of the scale and are all equal above."""
    return np.clip(0.1 + np.minimum(s, 0.5) + rng.normal(0, 0.03, len(s)) * (s < 0.5), 0, 1)


def almost(policy: str, rng: np.random.Generator) -> Floats:
    """Scores of base that leave out the uppermost tenth of what the others have."""
    return rng.random(N) * (0.9 if policy == "base" else 1.0)


def narrow(policy: str, rng: np.random.Generator) -> Floats:
    """Scores of base that stay low, while the others have the whole scale."""
    return rng.random(N) * (0.4 if policy == "base" else 1.0)


def worlds() -> dict[str, World]:
    """All of them by name."""
    two, three = {"base": 50, "other": 0}, {"base": 50, "other": 0, "third": 0}
    plain = table(two)
    mixed = table(
        {"a": 60, "b": 60, "c": 0, "d": 0},
        relation={"a": straight, "b": shifted, "c": straight, "d": straight},
    )
    found = {
        "plain": World(plain, {}),
        "six_labels": World(table(three | {"base": 6}), {}),
        "twenty_labels": World(table(three | {"base": 20}), {}),
        "own_labels_of_two": World(table({"base": 50, "other": 40, "third": 0}), {}),
        "own_labels_too_few": World(table({"base": 50, "other": 2, "third": 3}), {}),
        "own_labels_of_all": World(table({"base": 50, "other": 40}), {}),
        "contradicting_labels": World(mixed, {}),
        "contradicting_labels_and_probes": World(mixed, {"probes": probed(mixed, "c", 20, straight)}),
        "contradicting_labels_one_chosen": World(mixed, {"calibration_policy": "a"}),
        "useless_judge": World(table(three, relation=noise), {}),
        "constant_judge": World(table(three, score=lambda policy, rng: np.full(N, 0.5)), {}),
        "judge_the_wrong_way": World(table(three, relation=falling), {}),
        "judge_the_other_way": World(
            table(three, relation=falling), {"calibration": Calibration(direction="decreasing")}
        ),
        "labels_equal_at_the_end": World(
            table(
                {"base": 50, "other": 40, "third": 0},
                relation={"base": straight, "other": equal(1.0), "third": straight},
            ),
            {},
        ),
        "labels_equal_inside": World(
            table(
                {"base": 50, "other": 40, "third": 0},
                relation={"base": straight, "other": equal(0.7), "third": straight},
            ),
            {"calibration_policy": "base"},
        ),
        "labels_equal_at_the_end_of_the_first": World(
            table({"a": 40, "b": 50, "c": 0}, relation={"a": equal(0.0), "b": straight, "c": straight}), {}
        ),
        "everything_labelled": World(table({"base": N, "other": 0}), {}),
        "all_policies_labelled_entirely": World(table({"base": N, "other": N}), {}),
        "useless_judge_everything_labelled": World(table({"base": N, "other": N}, relation=noise), {}),
        "rare_outcomes": World(table(three, relation=binary(0.08)), {}),
        "binary_outcomes": World(table(three, relation=binary(0.5)), {}),
        "labels_low_on_the_scale": World(table(three, score=narrow), {}),
        "labels_short_of_the_end": World(table(three, score=almost, relation=level_off), {}),
        "plug_in": World(plain, {"borrowed": "plug_in"}),
        "plug_in_probed": World(
            plain, {"borrowed": "plug_in", "probes": probed(plain, "other", 20, straight)}
        ),
        "plug_in_short_of_the_end": World(
            table(three, score=almost, relation=level_off), {"borrowed": "plug_in"}
        ),
        "plug_in_contradicting": World(mixed, {"borrowed": "plug_in"}),
    }
    for m in (1, 3, 4, 5, 9, 30):
        found[f"probes_{m}"] = World(plain, {"probes": probed(plain, "other", m, straight)})
    for name, label in {"at_the_end": 1.0, "inside": 0.7}.items():
        for m in (5, 30):
            found[f"probes_{m}_equal_{name}"] = World(plain, {"probes": probed(plain, "other", m, label)})
    found["probes_mismatched"] = World(plain, {"probes": probed(plain, "other", 40, shifted)})
    useless = found["useless_judge"].table
    found["probes_useless_judge"] = World(useless, {"probes": probed(useless, "third", 20, noise)})
    own = found["labels_equal_inside"]
    varied = {"probes": probed(own.table, "other", 20, straight)}
    found["labels_equal_inside_and_probes"] = World(own.table, own.options | varied)
    rng = np.random.default_rng(3)
    aged = plain.assign(age=rng.random(len(plain)))
    aged["oracle_label"] = (0.5 * aged["oracle_label"] + 0.5 * aged["age"]).where(
        aged["oracle_label"].notna()
    )
    found["covariate"] = World(aged, {"calibration": Calibration(["age"])})
    far = aged.assign(age=aged["age"] + (aged["policy"] == "other"))
    found["covariate_out_of_reach"] = World(far, {"calibration": Calibration(["age"])})
    clustered = plain.assign(cluster=[f"k{int(name[1:]) // 5}" for name in plain["prompt_id"]])
    found["clusters"] = World(clustered, {})
    wide = plain.assign(oracle_label=100 * plain["oracle_label"])
    found["wide_scale"] = World(wide, {"oracle_range": (0.0, 100.0)})
    again = pd.concat([plain.assign(draw_idx=d) for d in (0, 1)], ignore_index=True)
    again["judge_score"] = np.where(again["draw_idx"] == 1, rng.random(len(again)), again["judge_score"])
    again.loc[again["draw_idx"] == 1, "oracle_label"] = np.nan
    found["draws"] = World(again, {})
    short = table({"base": 20, "other": 0})
    gone = (short["policy"] == "base") & (short["prompt_id"] >= "q020")
    found["short_and_labelled_entirely"] = World(short[~gone], {})
    return found
