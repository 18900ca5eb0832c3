"""Freeze what cje-eval 0.9.3 says of the Arena base policy: ``arena_peer.py ARENA_SAMPLE > arena_peer.json``."""

import json
import sys
from pathlib import Path

import numpy as np


def freeze(sample: Path) -> dict[str, object]:
    """Estimate, standard error and interval of cje-eval's one-sample function at its defaults."""
    from cje import array_api

    lines = (sample / "fresh_draws" / "base_responses.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    score = np.array([row["judge_score"] for row in rows], dtype=float)
    label = np.array([row.get("oracle_label", np.nan) for row in rows], dtype=float)
    names = np.array([row["prompt_id"] for row in rows])
    found = array_api.calibrated_mean_ci(score, label, cluster_ids=names)
    return {"version": "0.9.3", "estimate": found.estimate, "std_error": found.se, "interval": list(found.ci)}


if __name__ == "__main__":
    print(json.dumps(freeze(Path(sys.argv[1])), indent=1))
