"""The paper's thirteen estimators by their names, and the Arena sample against the reference library."""

import numpy as np
import pytest

from cje_core import estimators
from cje_core.estimators import (
    calibrated_ips,
    direct,
    snips,
)
from cje_core.inference.estimate import Status
from cje_core.io import files
from cje_core.workflow import paper
from cje_sim.scenarios import arena_like


def test_the_paper_has_thirteen_estimators():
    assert len(paper.PAPER) == 13
    assert sum(name.endswith("+cov") for name in paper.PAPER) == 6
    for name, (module, options) in paper.PAPER.items():
        assert module in estimators.available()
        assert ("calibration" in options) is name.endswith("+cov")
    with pytest.raises(ValueError, match="the paper has no estimator named 'ips'"):
        paper.paper_estimator("ips")


@pytest.mark.parametrize("name", paper.PAPER)
def test_the_papers_rows_run(name):
    data = arena_like.simulate(n=120, oracle_fraction=0.5, label_design="base", rng=0)
    module, options = paper.paper_estimator(name)
    result = module.estimate(data, **options)
    assert np.isfinite(result["estimate"].sel(policy="clone"))
    assert np.isfinite(result["std_error"].sel(policy="clone"))


# --- the Arena sample ---


# Point estimates of cje-eval 0.3.0 on this sample.
FROZEN = {
    "SNIPS": (0.7564, 0.7522),
    "calibrated-ips": (0.7642, 0.7609),
    "dr-cpo": (0.7624, 0.7627),
    "stacked-dr": (0.7633, 0.7640),
}


@pytest.fixture(scope="module")
def arena_data(arena):
    return files.read(
        arena / "fresh_draws", probes=arena / "probe_slice", logged=arena / "logged_data.jsonl"
    )[0]


@pytest.mark.parametrize("name", FROZEN)
def test_arena_sample_agrees_with_the_reference_library(arena_data, name):
    """Folds and the stack's members differ; SNIPS, which has neither, agrees to the printed digits."""
    module, options = paper.paper_estimator(name)
    result = module.estimate(arena_data, **options)
    values = result["estimate"].sel(policy=["clone", "parallel_universe_prompt"])
    np.testing.assert_allclose(values, FROZEN[name], atol=5e-5 if name == "SNIPS" else 0.01)
    assert result["status"].sel(policy="parallel_universe_prompt") == Status.POOR_OVERLAP
    assert (
        result["status"].sel(policy="base") == Status.NO_LOG_PROBS
    )  # the file has no log-likelihoods for it
    used = result["n_logged_used"].sel(policy=["base", "clone"]).values
    assert used.tolist() == [0, 1000]


def test_arena_sample_raw_overlap(arena_data):
    ess = snips.estimate(arena_data)["ess_fraction_raw"]
    for policy, expected, tolerance in (
        ("clone", 0.2146, 1e-3),
        ("parallel_universe_prompt", 0.0034, 5e-5),
        ("unhelpful", 0.0078, 5e-5),
    ):
        assert float(ess.sel(policy=policy)) == pytest.approx(expected, abs=tolerance)


def test_arena_sample_stabilised_weights_give_the_loggers_value(arena_data):
    """Unhelpful (oracle mean .16 on its probes): the constant weight wins, ESS is n, and the value is base's."""
    result = calibrated_ips.estimate(arena_data).sel(policy="unhelpful")
    base = float(
        direct.estimate(arena_data, correction="none", inference="influence")["estimate"].sel(policy="base")
    )
    assert result["ess_fraction"] > 0.99
    assert abs(result["estimate"] - base) < 0.01
    assert result["status"] == Status.POOR_OVERLAP
