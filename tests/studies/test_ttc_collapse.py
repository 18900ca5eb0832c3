"""The paper's figure: Monte Carlo agrees with exact theory in every cell; tables and figure are built."""

import numpy as np
import pytest

from cje_core.streams import Cell, Streams
from cje_sim.exact import typicality
from studies import ttc_collapse

STUDY = ttc_collapse.STUDY
CELLS = list(STUDY.at("quick").cells())


def agrees(cell: Cell, exact_cell: Cell, replicates: int = 3) -> bool:
    """Whether the mean plug-in TTC is within 5 standard errors of its exact value.

    TTC = F_q(x_hat) with x_hat the empirical 0.9 quantile under the target, so its variance is
    ``(beta (1 - beta) + (d beta / d alpha)^2 alpha (1 - alpha)) / n`` (delta method).
    """
    drawn = [
        ttc_collapse.replicate(STUDY, cell, Streams(1, STUDY.name, cell, r)).extra["ttc"]
        for r in range(replicates)
    ]
    target, logger = ttc_collapse.policies(exact_cell)
    p, q = target.log_prob[0, 0], logger.log_prob[0, 0]
    low, exact, high = (typicality.coverage(p, q, logger.length, level=a).ttc for a in (0.89, 0.9, 0.91))
    variance = exact * (1 - exact) + ((high - low) / 0.02) ** 2 * 0.09
    error = np.sqrt(variance / (ttc_collapse.N * replicates))
    return bool(abs(np.mean(drawn) - exact) <= 5 * error + 1e-9)  # 1e-9: the rounding of 1 - beta


@pytest.mark.parametrize("eta", [0.1, 0.5])
def test_monte_carlo_ttc_is_the_exact_one(eta: float) -> None:
    cell: dict[str, float | int | str] = {"utility": "iid-2", "eta": eta, "length": 50}
    assert agrees(cell, cell)
    assert not agrees(cell, cell | {"eta": eta + 0.05})  # a planted error of the tilt is noticed


@pytest.mark.slow
def test_monte_carlo_ttc_is_the_exact_one_in_every_cell() -> None:
    assert len(CELLS) == 90
    assert [cell for cell in CELLS if not agrees(cell, cell)] == []


def test_direct_and_ips_have_their_exact_standard_errors() -> None:
    """Mean estimated variance of 20 replicates against theory, within 5 standard errors of that mean."""
    cell: dict[str, float | int | str] = {"utility": "iid-1", "eta": 0.1, "length": 25}
    exact = ttc_collapse.theory(cell)
    runs = [ttc_collapse.replicate(STUDY, cell, Streams(2, STUDY.name, cell, r)) for r in range(20)]
    variance = np.array([np.square(run.std_error)[:, 0] for run in runs])
    for method, name in (("ips", "log_se_ips"), ("snips", "log_se_snips"), ("direct", "log_se_direct")):
        column = variance[:, list(STUDY.methods).index(method)]
        assert abs(column.mean() - np.exp(2 * exact[name])) < 5 * column.std(ddof=1) / np.sqrt(20)
    errors = np.array([np.asarray(run.estimate)[3, 0] - run.truth[0] for run in runs])
    assert abs(errors.mean()) < 5 * np.exp(exact["log_se_direct"]) / np.sqrt(20)


def test_clone_keeps_its_level_at_any_length() -> None:
    assert ttc_collapse.theory({"utility": "iid-1", "eta": 0.0, "length": 400})["ttc"] == pytest.approx(0.9)
