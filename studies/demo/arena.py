"""The demo data: a draw of the world ``arena_like``, as files in the formats that ``cje-lab analyze`` reads.

``python -m studies.demo.arena`` writes them anew into the package, bit for bit; a test holds that. They lie in
``files/``: ``responses/{policy}_responses.jsonl``, ``probes/{policy}_probe.jsonl``, ``logged.jsonl`` with
log-likelihoods, and ``truth.json``, which names the world, its seed and the true value of every policy.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_sim.scenarios import arena_like

SEED = 17
OPTIONS: Mapping[str, Any] = {"n": 250, "oracle_fraction": 0.4, "n_probes": 40}
HELD = Path(__file__).parent / "files"


def files() -> dict[str, str]:
    """Text of each file of the demo, by its path.

    Returns
    -------
    dict
        Scores are the judge's levels, labels are rounded to three decimals, log-likelihoods (nats) to two.

    Examples
    --------
    >>> json.loads(files()["truth.json"])["world"]
    'arena_like'
    """
    data = arena_like.simulate(rng=SEED, **OPTIONS)
    truth = arena_like.truth()
    about = {
        "world": "arena_like",
        "seed": SEED,
        "options": dict(OPTIONS),
        "made_by": "python -m studies.demo.arena",
        "truth": {name: round(float(truth.sel(policy=name)), 4) for name in truth["policy"].values.tolist()},
    }
    written = {"truth.json": json.dumps(about, indent=1) + "\n", "logged.jsonl": _lines(_logged(data))}
    for policy in data["policy"].values.tolist():
        responses, probes = _responses(data.sel(policy=policy, draw=0))
        written[f"responses/{policy}_responses.jsonl"] = _lines(responses)
        if probes:
            written[f"probes/{policy}_probe.jsonl"] = _lines(probes)
    return written


def held() -> dict[str, str]:
    """Text of the files as they ship."""
    paths = sorted(path for path in HELD.rglob("*") if path.is_file())
    return {path.relative_to(HELD).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _responses(data: xr.Dataset) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Responses of one policy with the labels that teach, and its probes."""
    responses, probes = [], []
    for k, prompt in enumerate(_names(data)):
        row = {"prompt_id": prompt, "judge_score": round(float(data["judge"][k]), 2)}
        label = round(float(data["oracle"][k]), 3)
        words = {"response_length": int(data["covariate"].sel(feature="response_length")[k])}
        if bool(data["probe"][k]):
            probes.append(row | {"oracle_label": label} | words)
        taught = {"oracle_label": label} if bool(data["labelled"][k]) else {}
        responses.append(row | taught | words)
    return responses, probes


def _logged(data: xr.Dataset) -> list[dict[str, Any]]:
    """Logged responses with their log-likelihoods."""
    rows = []
    targets = data["policy"].values.tolist()[1:]
    for k, prompt in enumerate(_names(data)):
        at = data.isel(prompt=k)
        row = {"prompt_id": prompt, "judge_score": round(float(at["logged_judge"]), 2)}
        if np.isfinite(label := float(at["logged_oracle"])):
            row["oracle_label"] = round(label, 3)
        row["n_tokens"] = int(at["n_tokens"])
        row["base_policy_logprob"] = round(float(at["logp_logger"]), 2)
        of = {name: round(float(at["logp_target"].sel(policy=name)), 2) for name in targets}
        rows.append(row | {"target_policy_logprobs": of})
    return rows


def _names(data: xr.Dataset) -> list[str]:
    return [f"q{k:03d}" for k in range(data.sizes["prompt"])]


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def main() -> None:
    """Write the files into the package."""
    for name, text in files().items():
        path = HELD / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
