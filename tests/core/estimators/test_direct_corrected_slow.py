"""What probes give, against repeated sampling: the tuned value covers whatever the shift, the audit is right about f.

1,000 draws of probes and responses over 40 fitted calibrators per judge and number of probes; the shifts share the
draws. Each check is run again with an error planted (a standard error a fifth too small, an audit that takes twice the
probes for granted) and must then fail.
"""

import numpy as np
import pytest
from probe_world import JUDGES, MARGIN, draw, draw_clustered, estimates
from scipy import stats

from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data.arrays import unpack
from cje_core.estimators.direct_corrected import probe_value
from cje_core.transport.audit import mean_residual
from cje_sim.scenarios import transport_shift

SHIFTS = (0.0, 0.02, 0.04, 0.08, 0.15, 0.25)
PROBES = (25, 50, 100)
N_DRAWS = 1000
ALPHA = 2 * stats.norm.sf(5)
DECIDED = {"strong": 0.95, "binary": 0.80, "weak": 0.90}  # FAIL at five margins with 50 probes, at least


def at_least(rate, probability, n=N_DRAWS):
    """Whether a rate over n draws is not below a probability by more than five standard errors."""
    return rate >= stats.binom.ppf(ALPHA / 2, n, probability) / n


def at_most(rate, probability, n):
    return rate <= stats.binom.ppf(1 - ALPHA / 2, n, probability) / max(n, 1)


@pytest.mark.parametrize("n_probes", [6, 25])
def test_the_estimates_of_many_draws_are_those_of_the_estimators(n_probes):
    rng = np.random.default_rng(n_probes)
    rows = unpack(transport_shift.simulate(n=200, oracle_fraction=0.25, n_probes=n_probes, rng=1))
    fitted, own = fit_slice(rows, every_fold=False), rows.policy == 1
    probes, probed = np.flatnonzero(own & rows.probe), rows.probe[own]
    assert rows.evaluated[own].all() and probed.sum() == n_probes
    score, label = rng.random((3, 200)), rng.random((2, 3, n_probes))
    label[0, 1] = 1.0  # all alike
    found = estimates(rows, fitted, probed, score, label)
    for s, k in np.ndindex(2, 3):
        at, y = rows.score.copy(), rows.label.copy()
        at[own], y[probes] = score[k], label[s, k]
        drawn = rows._replace(score=at, z=at[:, None], label=y)
        value, audit = probe_value(drawn, fitted, 1, tuned=True).result, mean_residual(drawn, fitted, probes)
        wanted = (
            (value.value, value.std_error, value.df),
            (audit.value, audit.std_error, audit.df),
            (audit.value, audit.std_error_with_fit, audit.df_with_fit),
        )
        got = [
            one[s, k][:2] if (s, k) == (0, 1) else one[s, k] for one in found
        ]  # nothing is known of no spread
        np.testing.assert_allclose(got, np.array(wanted)[:, : len(got[0])], rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def drawn():
    return {(judge, m): draw(judge, m, SHIFTS) for judge in JUDGES for m in PROBES}


def covered(found, shrink=1.0):
    center = found.interval.mean(axis=-1, keepdims=True)
    low, high = np.moveaxis(center + shrink * (found.interval - center), -1, 0)
    return ((low <= found.truth[:, None]) & (found.truth[:, None] <= high)).mean(axis=1)


@pytest.mark.slow
def test_the_tuned_value_covers_in_every_cell_whatever_the_shift(drawn):
    """94% within five standard errors by judge, and 93% as it stands over the judges, in every cell."""
    cells = {key: covered(found) for key, found in drawn.items()}
    for key, rates in cells.items():
        assert at_least(rates, 0.94).all(), (key, rates)
    for m in PROBES:
        assert (np.mean([cells[judge, m] for judge in JUDGES], axis=0) >= 0.93).all()
        planted = [covered(drawn[judge, m], 0.8) for judge in JUDGES]
        assert (np.mean(planted, axis=0) < 0.93).all()


@pytest.mark.slow
def test_a_shift_of_five_margins_fails_the_audit(drawn):
    for judge, share in DECIDED.items():
        found = drawn[judge, 50]
        failed = (found.verdict[-1] == "FAIL").mean()
        assert failed >= share, (judge, failed)
        assert failed >= (found.verdict_with_fit[-1] == "FAIL").mean()


@pytest.mark.slow
def test_verdicts_are_right_about_the_residual_of_this_f(drawn):
    """FAIL within the margin and PASS beyond it are both wrong: 5% at most, in every judge and number of probes."""
    for key, found in drawn.items():
        within = np.abs(found.residual) <= MARGIN
        assert within.sum() > 500
        false_fail, false_pass = found.verdict[within] == "FAIL", found.verdict[~within] == "PASS"
        assert at_most(false_fail.mean(), 0.025, within.sum()), key
        assert at_most(false_pass.mean(), 0.025, (~within).sum()), key


@pytest.mark.slow
def test_clusters_of_prompts_are_covered_by_cluster():
    """25 probed clusters of three prompts, correlation .6; the interval that takes prompts for independent is short."""
    by_cluster, by_prompt = draw_clustered().mean(axis=1)
    assert at_least(by_cluster, 0.95, 600)
    assert not at_least(by_prompt, 0.95, 600)
