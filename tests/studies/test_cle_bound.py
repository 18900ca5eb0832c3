"""The CLE floor: its parts, its side of the truth, and the machinery's power to notice a false bound."""

import numpy as np
import pytest

from cje_core.streams import Cell, Streams
from studies import cle_bound

STUDY = cle_bound.STUDY
CELLS = list(STUDY.at("quick").cells())
NAMES = (*cle_bound.MASSES, "all")


def cell(**levels: float | int | str) -> dict[str, float | int | str]:
    return {"shift": "tilt-0.1", "length": 25, "reward": "centred", "noise": "1.0"} | levels


@pytest.mark.slow
def test_floor_is_below_the_standard_error_in_every_cell() -> None:
    """And a bound 1.5 times as large is not, nor is the corollary's form: the check has power."""
    assert len(CELLS) == 90
    ratio = {"floor": [], "ess_form": []}  # type: dict[str, list[float]]
    for one in CELLS:
        exact = cle_bound.theory(one)
        for name in NAMES:
            for bound, values in ratio.items():
                values.append(exact[f"log_{bound}_{name}"] - exact["log_se_ips"])
            parts = exact[f"log_coverage_part_{name}"] + exact[f"log_shape_part_{name}"]
            sigma = np.log(min(cle_bound.NOISES[str(one["noise"])]))
            assert exact[f"log_floor_{name}"] == pytest.approx(
                parts + sigma - np.log(cle_bound.N) / 2, abs=1e-9
            )
    assert max(ratio["floor"]) <= 1e-9
    assert max(ratio["floor"]) + np.log(1.5) > 0.4
    assert max(ratio["ess_form"]) > 0.1


def test_whole_space_is_the_tightest_region_and_is_attained_without_signal() -> None:
    exact = cle_bound.theory(cell())
    floors = [exact[f"log_floor_{name}"] for name in NAMES]
    assert floors == sorted(floors)
    assert floors[-1] == pytest.approx(exact["log_se_ips"], abs=1e-9)
    # E0[W^2 1_T] = (alpha^2 / beta)(1 + chi2_T) grows with T, and its corollary has lost the factor alpha.
    assert exact["log_ess_form_90"] - exact["log_floor_90"] == pytest.approx(-np.log(0.9), abs=1e-4)
    assert exact["log_ess_form_90"] > exact["log_se_ips"]


@pytest.mark.parametrize("shift", ["clone", "tilt-0.1", pytest.param("hot-1.25", marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", ["0.2", pytest.param("mixed", marks=pytest.mark.slow)])
def test_empirical_standard_errors_are_the_exact_ones(shift: str, noise: str) -> None:
    """Errors of 400 replicates at L = 5: mean square against the exact variance, within 5 MCSE."""
    one: Cell = cell(shift=shift, noise=noise, length=5, reward="first_token")
    exact = cle_bound.theory(one)
    runs = [cle_bound.replicate(STUDY, one, Streams(3, STUDY.name, one, r)) for r in range(400)]
    for k, method in enumerate(STUDY.methods):
        if method == "logged_mean":
            continue
        square = np.array([(np.asarray(run.estimate)[k, 0] - np.asarray(run.truth)[0]) ** 2 for run in runs])
        variance = np.exp(2 * exact[f"log_se_{method}"])
        assert abs(square.mean() - variance) < 5 * square.std(ddof=1) / np.sqrt(len(square))


def test_calibrated_reward_escapes_the_floor() -> None:
    exact = cle_bound.theory(cell())
    assert exact["log_se_ips_calibrated"] < exact["log_floor_50"] - 10
