"""``cje-lab analyze --large``: the same JSON, page and files as in memory, and messages in options."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis import Cli, three_policies


def responses(path: Path) -> Path:
    three_policies().to_parquet(path, index=False)
    return path


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Places at which two JSON values are not the same: to 1e-9, or of limits of differences to 1e-3."""
    if isinstance(one, dict) and isinstance(other, dict) and set(one) == set(other):
        return [found for key in one for found in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for k, pair in pairs for found in differences(*pair, f"{where}/{k}")]
    if isinstance(one, float) and isinstance(other, float):
        of_differences = where.startswith(("/contrasts", "/tipping")) or "/p_" in where
        close = {"rtol": 1e-2, "atol": 1e-3} if of_differences else {"rtol": 1e-9, "atol": 1e-12}
        return [] if np.isclose(one, other, **close) else [where]
    return [] if one == other else [where]


@pytest.mark.slow
def test_the_json_and_the_page_are_those_in_memory(cli: Cli, tmp_path: Path) -> None:
    path = responses(tmp_path / "x.parquet")
    whole, pooled = (cli(path, option, "--json") for option in ("--no-large", "--large"))
    assert whole[0] == pooled[0] == 0 and pooled[2] == ""
    assert differences(json.loads(whole[1]), json.loads(pooled[1])) in ([], ["/seconds"])
    pairs = zip(
        cli(path, "--no-large")[1].split(),
        cli(path, "--large", "--out", tmp_path / "out")[1].split(),
        strict=True,
    )
    parted = [(float(a.strip("[],+")), float(b.strip("[],+"))) for a, b in pairs if a != b]
    np.testing.assert_allclose(
        *np.array(parted).T, atol=0.0011
    )  # one in the last digit of a limit of a difference
    assert len(parted) <= 2
    assert json.loads((tmp_path / "out" / "estimates.json").read_text("utf-8"))["manifest"]["counts"][
        "c"
    ] == {
        "responses": 400,
        "labels": 0,
        "probes": 0,
    }
    assert {"ledger.nc", "forest.png"} <= {file.name for file in (tmp_path / "out").iterdir()}


def test_what_needs_rows_is_one_line_in_options(cli: Cli, tmp_path: Path) -> None:
    path = responses(tmp_path / "x.parquet")
    for options, said in (
        (
            ("--covariate", "length"),
            "cje-lab: --large: --covariate length needs every row in memory; leave one",
        ),
        (("--shared-prompts",), "cje-lab: --large: --shared-prompts needs every row in memory; leave one"),
        (("--probes", path), "cje-lab: --large: --probes needs every row in memory; leave one"),
    ):
        code, out, err = cli(path, "--large", *options)
        assert (code, out) == (2, "") and err.startswith(said), err
        code, _, err = cli(path, "--dask", "tcp://127.0.0.1:9", *options)
        assert code == 2 and err.startswith(said.replace("--large", "--dask tcp://127.0.0.1:9")), err
    table = pd.read_parquet(path)
    pd.concat([table.assign(draw_idx=draw) for draw in (0, 1)]).to_parquet(path, index=False)
    code, _, err = cli(path, "--large")
    assert code == 2 and "takes one draw a prompt" in err and "--no-large" in err and err.count("\n") == 1
