"""The demo: its files are what its script makes, they are small, and the command runs on them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cje_core.io.files import read
from cje_sim.scenarios import arena_like
from studies.cli.app import app
from studies.demo import arena


@pytest.mark.slow
def test_the_files_are_made_again_bit_for_bit() -> None:
    assert arena.held() == arena.files()
    assert sum(len(text.encode()) for text in arena.held().values()) < 150_000


def test_what_is_read_is_what_was_simulated() -> None:
    """Every score, label and probe of the world's draw, to the digits that the files keep."""
    drawn = arena_like.simulate(rng=arena.SEED, **arena.OPTIONS)
    data, left_out = read(
        arena.HELD / "responses",
        probes=arena.HELD / "probes",
        covariates=["response_length"],
        calibration_policy="base",
    )
    assert left_out.empty
    for name, digits in (("judge", 2), ("oracle", 3), ("covariate", 0)):
        np.testing.assert_array_equal(data[name].values, np.round(drawn[name].values, digits))
    for name in ("labelled", "probe", "evaluated"):
        np.testing.assert_array_equal(data[name].values, drawn[name].values)
    data, _ = read(arena.HELD / "responses", logged=arena.HELD / "logged.jsonl")
    np.testing.assert_allclose(
        data["logp_target"].values[1:], drawn["logp_target"].values[1:], atol=0.005, rtol=0
    )
    about = json.loads(arena.held()["truth.json"])
    for policy, value in about["truth"].items():
        assert value == pytest.approx(float(arena_like.truth().sel(policy=policy)), abs=5e-5)


@pytest.mark.slow
def test_the_command_writes_analyses_and_says_what_is_next(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    found = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert found.exit_code == 0, found.output
    for name, text in arena.held().items():
        assert (out / name).read_text(encoding="utf-8") == text
    told = json.loads((out / "analysis" / "estimates.json").read_text())
    assert set(told["policies"]) == set(arena_like.POLICIES)
    assert f"cje-lab analyze {out / 'responses'} --probes {out / 'probes'}" in found.output
    truth = json.loads(arena.held()["truth.json"])["truth"]
    assert all(
        f"{name}" in found.output and f"{value:.3f}  estimated" in found.output
        for name, value in truth.items()
    )
    (out / "truth.json").write_text("{}")
    again = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert again.exit_code and "truth.json is another file" in str(again.exception)
