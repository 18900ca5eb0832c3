"""Direct as it comes, and with it the value that `analyze` prints for own labels, against what others publish.

Same data sets (`reference.small_samples`, 15 to 250 labels are in `test_default_interval_slow`; here the nine cells in
which cje-eval was run), same truth: coverage and interval score of the default interval (binomial where labels are
binary, gamma where they are graded), of ppi-python's tuned normal interval, run here, and of cje-eval's
default, frozen in the reference.
"""

import numpy as np
import pytest
from blocks import on_block
from borrowed_world import at_least
from own_label_world import FROZEN, PLANTED, as_block, as_data, excess, score_ratio
from reference import small_samples

from cje_core.estimators import direct
from cje_core.families.finish import finish
from cje_core.verdict import gates
from cje_core.verdict.headline import headline
from cje_core.verdict.refusal import level

pytestmark = pytest.mark.slow

N, PER_BLOCK = FROZEN["n_replicates"], 50
CELLS = [(cell["world"], cell["n"], cell["m"]) for cell in FROZEN["cells"]]


def default_intervals(block, shrink=1.0):
    """Intervals (R, 2) of the one policy of a block by Direct's default."""
    found = [
        one._replace(results=[result._replace(std_error=shrink * result.std_error) for result in one.results])
        for one in on_block(direct, block).found
    ]
    return finish(found, 0.95, (0.0, 1.0)).interval[:, 0]


def data_sets(world, n, m):
    """Scores and labels, (R, n), and block of some data sets of a cell."""
    for start in range(0, N, PER_BLOCK):
        drawn = [small_samples.simulate(world, n, r) for r in range(start, min(start + PER_BLOCK, N))]
        score, label = map(np.array, zip(*drawn, strict=True))
        yield score, label, as_block(score, label, m)


@pytest.mark.parametrize(("world", "n", "m"), CELLS[::3])
def test_the_core_is_the_default_and_the_value_that_stands(world, n, m):
    """What the replicates run is what `direct.estimate` returns, and what stands first for labels of its own."""
    score, label, block = next(data_sets(world, n, m))
    data = as_data(score[0], label[0], m, [str(i) for i in range(n)])
    out = direct.estimate(data)
    stands = headline(out, level(gates.evaluate(gates.collect(["0000"], estimate=out)), out))
    for found in (out, stands):
        np.testing.assert_allclose(found.interval.values[0], default_intervals(block)[0], rtol=1e-9)
    assert (stands.source.item(), stands.level.item()) == ("own", "reported")


@pytest.fixture(scope="module")
def found():
    """Per cell: intervals (N, 2) of the default, of the default planted too short, and of ppi-python."""
    ppi_py = pytest.importorskip("ppi_py", reason="ppi-python is not installed (extra dev)")
    out = {}
    for cell in CELLS:
        parts = {"default": [], "planted": [], "ppi-python": []}
        m = cell[2]
        for scores, labels, block in data_sets(*cell):
            parts["default"] += list(default_intervals(block))
            parts["planted"] += list(default_intervals(block, PLANTED))
            for score, label in zip(scores, labels, strict=True):
                low, high = ppi_py.ppi_mean_ci(label[:m], score[:m], score[m:], alpha=0.05)
                parts["ppi-python"].append((float(np.squeeze(low)), float(np.squeeze(high))))
        out[cell] = {name: np.array(bounds) for name, bounds in parts.items()}
    return out


def covers(interval, target):
    return (interval[:, 0] <= target) & (target <= interval[:, 1])


def test_coverage_is_not_below_the_peers(found):
    """93% in every cell, and together at least that of either peer, up to the Monte Carlo error of the pairs."""
    gaps = {"ppi-python": [], "cje-eval": []}
    for frozen, cell in zip(FROZEN["cells"], CELLS, strict=True):
        target = small_samples.truth(cell[0])
        hit = {name: covers(interval, target) for name, interval in found[cell].items()}
        mean = {name: float(h.mean()) for name, h in hit.items()}
        print(*cell, mean, f"cje-eval {frozen['coverage']:.3f}")
        assert mean["default"] >= at_least(0.93, N)
        gaps["ppi-python"].append(mean["default"] - mean["ppi-python"])
        gaps["cje-eval"].append(mean["default"] - frozen["coverage"])
    # cells are independent; a difference of two dependent shares varies no more than 2 p (1 - p) / N
    slack = 3 * np.sqrt(2 * 0.05 * 0.95 / (N * len(CELLS)))
    assert all(np.mean(gap) > -slack for gap in gaps.values())
    planted = [covers(found[cell]["planted"], small_samples.truth(cell[0])).mean() for cell in CELLS]
    assert np.mean(planted) < at_least(0.93, N * len(CELLS))


def test_interval_score_is_within_five_percent_of_the_peers(found):
    """In all nine cells and against both; planted errors are caught."""
    ratios = {"default": [], "planted": []}
    for frozen, cell in zip(FROZEN["cells"], CELLS, strict=True):
        target = small_samples.truth(cell[0])
        peers = {
            "ppi-python": small_samples.interval_score(*found[cell]["ppi-python"].T, target),
            "cje-eval": np.array(frozen["interval_score"]),
        }
        for name, entries in ratios.items():
            ours = small_samples.interval_score(*found[cell][name].T, target)
            entries += [(*score_ratio(ours, theirs), (*cell, peer)) for peer, theirs in peers.items()]
    for ratio, error, where in ratios["default"]:
        print(f"{ratio:.3f} ({error:.3f})", *where)
    assert len(ratios["default"]) == 18 and not excess(ratios["default"])
    assert len(excess(ratios["planted"])) >= 3
